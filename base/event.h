/* Edge events: who did something with whom, and when. */
#ifndef DL_BASE_EVENT_H
#define DL_BASE_EVENT_H

#include <stdint.h>

#include "base/bytes.h"

#define DL_NAME_BYTES_MAX 256 /* a node's name */
#define DL_TYPE_BYTES_MAX 64  /* an event type's name */
#define DL_EVENT_ID_BYTES_MAX 256
#define DL_EVENT_FEATURES_MAX 32 /* features of one event */

/* An edge event as it arrives: names, not ids. All slices borrow from the
 * message that was decoded. */
struct dl_edge_event {
    struct dl_slice src, dst; /* 1..DL_NAME_BYTES_MAX bytes of UTF-8; integers as decimal text */
    int64_t time;             /* in the configured unit */
    struct dl_slice type;     /* empty: none */
    float weight;             /* 1 when the event has none */
    int has_weight;
    uint32_t feature_count;
    float features[DL_EVENT_FEATURES_MAX];
    struct dl_slice id; /* empty: none */
};

/* The same with dense ids, as the engine and the model see it. */
struct dl_event {
    int64_t time;
    uint32_t src, dst;
    uint16_t type; /* dense id of the type's name; 0: none */
    float weight;
    uint32_t ordinal;      /* set by dl_graph_apply: index of its timestamp; the log carries it */
    const float *features; /* as many as the graph was configured for, or NULL for zeros */
};

/* Where an event came from. For files and standard input the topic is the
 * path, the partition 0 and the offset the record's index. */
struct dl_position {
    char topic[250];
    int32_t partition;
    int64_t offset;
};

#endif
