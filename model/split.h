/* Chronological splits, tie policies, and the pass over a recorded feed that
 * gives each event the past it may be scored with. */
#ifndef DL_MODEL_SPLIT_H
#define DL_MODEL_SPLIT_H

#include <stdint.h>

#include "base/graph.h"
#include "model/dataset.h"

enum dl_split_part { DL_SPLIT_TRAIN, DL_SPLIT_VALIDATION, DL_SPLIT_TEST };

/* Train t ≤ q70, validation q70 < t ≤ q85, test t > q85; q are the quantiles of
 * the event times (linear interpolation). Events are in time order, so each
 * part is a range of positions. */
struct dl_split {
    uint64_t begin[3], end[3]; /* by dl_split_part */
};

/* "train", "validation", "test". */
const char *dl_split_part_name(enum dl_split_part part);
int dl_split_part_parse(const char *name, enum dl_split_part *part);

/* DL_OK, or DL_ERR_INVALID with detail where a part would be empty. */
int dl_split_make(const struct dl_dataset *dataset, struct dl_split *split, struct dl_error *error);

/* Nodes held out of training, for the inductive setting: a tenth (of all nodes,
 * by count) drawn by seed from those that occur after q70. held_out: (node_count)
 * of 0 or 1. DL_OK or DL_ERR_NOMEM. */
int dl_split_hold_out(const struct dl_dataset *dataset, const struct dl_split *split, uint64_t seed,
                      uint8_t *held_out, uint32_t *held_out_count);

/* What the model may see at time t: only smaller times; all that came before in
 * the file; or the same with the order inside each timestamp permuted by seed. */
enum dl_ties { DL_TIES_STRICT, DL_TIES_STREAM, DL_TIES_SHUFFLE };

/* "strict", "stream", "shuffle". */
const char *dl_ties_name(enum dl_ties ties);
int dl_ties_parse(const char *name, enum dl_ties *ties);

/* One chronological pass. A position is a place in the pass's order; an event
 * is an index into the data set (they differ under `shuffle`). */
struct dl_pass {
    const struct dl_dataset *dataset; /* borrowed */
    enum dl_ties ties;
    uint32_t *order; /* (event_count) events by position; NULL: the same */
    const uint8_t
        *left_out; /* (node_count) or NULL: events that touch a marked node never happen */
    struct dl_graph *graph;
    uint64_t absorbed; /* positions gone through */
};

/* `window`: interactions kept of each node, at least DL_HISTORY. DL_OK, DL_ERR_NOMEM,
 * DL_ERR_INVALID. */
int dl_pass_init(struct dl_pass *pass, const struct dl_dataset *dataset, enum dl_ties ties,
                 uint64_t seed, uint32_t window, struct dl_error *error);
void dl_pass_deinit(struct dl_pass *pass);

uint64_t dl_pass_event(const struct dl_pass *pass, uint64_t position);

/* Makes pass->graph the past of `position`: takes in all earlier positions
 * (strict: all earlier times). Positions may not go backwards. */
int dl_pass_seek(struct dl_pass *pass, uint64_t position, struct dl_error *error);

#endif
