/* A recorded feed in memory: what `train` and `evaluate` read.
 *
 * Events are in time order (stably sorted if the source was not). Nodes have
 * dense ids in order of first appearance, a source before its destination, as
 * the service hands them out for the same feed. */
#ifndef DL_MODEL_DATASET_H
#define DL_MODEL_DATASET_H

#include <stdint.h>

#include "base/clock.h"
#include "base/dictionary.h"
#include "base/event.h"
#include "base/status.h"
#include "model/network.h"
#include "model/progress.h"

#define DL_DATASET_EVENTS_MAX (1u << 30)
#define DL_DATASET_NODES_MAX (1u << 24)

struct dl_dataset_options {
    /* Column names; NULL: src or source; dst, destination or target; t, time,
     * timestamp or ts; w or weight (which may be missing: weight 1). */
    const char *src, *dst, *time, *weight;
    uint32_t feature_count; /* columns that hold features */
    const char *features[DL_EVENT_FEATURES_MAX];
    int time_unit_given;
    enum dl_time_unit time_unit;
    int bipartite; /* sources and destinations in separate namespaces */
};

struct dl_dataset {
    char *path;
    char hash[65]; /* SHA-256 of the uncompressed text, hex; "" if not from a file */
    uint64_t event_count;
    struct dl_event *events; /* (event_count), by time */
    uint32_t feature_count;
    struct dl_dictionary *nodes;
    uint32_t node_count, timestamp_count, destination_count;
    uint32_t *destinations;      /* (destination_count), by first appearance in `events` */
    uint64_t *destination_first; /* (destination_count), the event of the first appearance */
    enum dl_time_unit time_unit;
    int time_unit_guessed; /* nobody stated it: judged by the size of the numbers */
    uint64_t out_of_order; /* events that came with a smaller time than one before; then sorted */
    int bipartite;
    /* private */
    float *feature_values;
    uint64_t capacity;
};

/* Reads a CSV file, plain or gzip. Errors name file, line, column, value and
 * remedy. `progress` may be NULL. */
int dl_dataset_load(const char *path, const struct dl_dataset_options *options,
                    const struct dl_progress *progress, struct dl_dataset **dataset,
                    struct dl_error *error);

/* The same from memory: begin, add events in arrival order, finish. `name`
 * stands in messages. The time unit must be given in `options`. */
int dl_dataset_begin(const char *name, const struct dl_dataset_options *options,
                     struct dl_dataset **dataset, struct dl_error *error);
int dl_dataset_add(struct dl_dataset *dataset, const struct dl_edge_event *event,
                   struct dl_error *error);
int dl_dataset_finish(struct dl_dataset *dataset, struct dl_error *error);

void dl_dataset_free(struct dl_dataset *dataset);

/* The statistics that normalise a model's inputs, from the first `count` events. */
int dl_dataset_encoding(const struct dl_dataset *dataset, uint64_t count,
                        struct dl_encoding *encoding);

/* Is a number of `unit` a wall-clock time between 1971 and 2200? `ticks` and
 * ISO 8601 always pass. DL_OK, or DL_ERR_INVALID with the unit that would fit. */
int dl_dataset_check_time(int64_t time, enum dl_time_unit unit, struct dl_error *error);

#endif
