/* Negative samples for a recorded feed: edges that stand against the true one. */
#ifndef DL_MODEL_NEGATIVES_H
#define DL_MODEL_NEGATIVES_H

#include <stdint.h>

#include "base/status.h"
#include "model/dataset.h"
#include "model/pairs.h"

enum dl_negatives_kind {
    DL_NEGATIVES_RANDOM,     /* (u, v'), v' uniform over the destination list */
    DL_NEGATIVES_HISTORICAL, /* a pair seen before the batch and not in its span of time */
    DL_NEGATIVES_INDUCTIVE,  /* likewise, a pair that was not seen in training either */
    DL_NEGATIVES_CLEAN       /* as random, but never a true edge at t */
};

/* "random", "historical", "inductive", "clean". */
const char *dl_negatives_name(enum dl_negatives_kind kind);
int dl_negatives_parse(const char *name, enum dl_negatives_kind *kind);

#define DL_NEGATIVES_BATCH 200 /* events of a batch, as the published protocol has it */

struct dl_edge {
    uint32_t src, dst; /* dst DL_NODE_NONE: there is no such negative */
};

/* What draws rest on. Counter-based: a draw depends on the fields, the event
 * and the draw's number alone. */
struct dl_negatives {
    const struct dl_dataset *dataset;
    const struct dl_pairs *pairs;
    uint64_t seed;
    uint64_t train_end; /* position where training ends */
    uint64_t pool_end;  /* destinations to draw from: those that occurred before this event */
    int only_seen;      /* and before the event that is drawn for, as a live feed has it */
};

/* Draw number `draw` for the event. `batch_from`, `batch_to`: first and last
 * time of its batch. Historical and inductive draws fall back on a random one
 * where there is no such pair (after 100 tries); clean ones give DL_NODE_NONE
 * where every destination is a true edge. Random draws are those of
 * base/negative.h. */
struct dl_edge dl_negatives_draw(const struct dl_negatives *negatives, enum dl_negatives_kind kind,
                                 uint64_t event, uint32_t draw, int64_t batch_from,
                                 int64_t batch_to);

/* A clean draw from a stream of its own, for ranking. */
struct dl_edge dl_negatives_rank_draw(const struct dl_negatives *negatives, uint64_t event,
                                      uint32_t draw);

/* For training: a pair seen before the event's time that is no edge at it, or
 * the random draw where there is none. */
struct dl_edge dl_negatives_past_draw(const struct dl_negatives *negatives, uint64_t event,
                                      uint32_t draw);

#endif
