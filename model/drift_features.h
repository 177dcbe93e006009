/* What of an event is watched for drift: a fixed row of features, taken from
 * the graph before the event is absorbed, and the reference sample of such
 * rows that training leaves in the model file.
 *
 * Each feature is stationary on a feed that is: memory reaches back
 * DL_DRIFT_HORIZON_EVENTS events and no further, so "new" means "not seen for
 * that long", ages are capped there, and nothing grows with the feed's age. A
 * graph younger than the horizon is not comparable with an older one.
 *
 * A raw row holds natural values; NaN stands for "does not apply" (the age of
 * a pair never seen). Standardising subtracts the training mean, divides by
 * the training deviation, clips to ±DL_DRIFT_CLIP, and turns NaN into 0. */
#ifndef DL_MODEL_DRIFT_FEATURES_H
#define DL_MODEL_DRIFT_FEATURES_H

#include <stdint.h>

#include "base/clock.h"
#include "base/event.h"
#include "base/graph.h"
#include "base/status.h"
#include "model/model.h"

#define DL_DRIFT_COLUMNS 16
#define DL_DRIFT_HORIZON_EVENTS 8192
#define DL_DRIFT_WINDOW 8 /* interactions of either endpoint that are looked at */
#define DL_DRIFT_CLIP 4.0f
#define DL_DRIFT_SEGMENT_ROWS 1024
#define DL_DRIFT_SEGMENTS 16

enum dl_drift_column {
    DL_DRIFT_GAP,      /* log1p of the time since the feed's last event, in gaps */
    DL_DRIFT_HOUR_SIN, /* time of day in UTC on the circle; 0 for ticks */
    DL_DRIFT_HOUR_COS,
    DL_DRIFT_SRC_AGE,        /* log1p of the time since the source's last event, in gaps */
    DL_DRIFT_PAIR_AGE,       /* the same of the pair's, either direction */
    DL_DRIFT_SRC_AGE_EVENTS, /* log of the feed's events since the source's last */
    DL_DRIFT_DST_AGE_EVENTS,
    DL_DRIFT_PAIR_AGE_EVENTS,
    DL_DRIFT_SRC_RATE, /* log1p of the source's events out of the last ~1,000, decayed */
    DL_DRIFT_DST_RATE, /* log1p of the destination's events in: its popularity */
    DL_DRIFT_SRC_NEW,  /* 1: not seen within the horizon */
    DL_DRIFT_DST_NEW,
    DL_DRIFT_PAIR_NEW,
    DL_DRIFT_REPEATS, /* share of the source's last interactions that were with the destination */
    DL_DRIFT_COMMON,  /* share of the two windows' peers that stand in both */
    DL_DRIFT_WEIGHT   /* sign(w) · log1p|w| */
};

/* "gap", "hour_sin", ... in the order above. */
extern const char *const dl_drift_column_names[DL_DRIFT_COLUMNS];

/* The raw row of an event, from the graph as it was before the event. `gap`:
 * the feed's median gap between distinct timestamps (dl_encoding.gap), > 0.
 * Endpoints may be unknown to the graph. About a microsecond; no allocation. */
void dl_drift_features(const struct dl_graph *graph, const struct dl_event *event, double gap,
                       enum dl_time_unit unit, float raw[DL_DRIFT_COLUMNS]);

/* Standardises one row by the statistics of `reference` (which has
 * DL_DRIFT_COLUMNS columns; check with dl_drift_reference_check once). */
void dl_drift_standardise(const struct dl_reference *reference, const float raw[DL_DRIFT_COLUMNS],
                          float row[DL_DRIFT_COLUMNS]);

/* Whether a reference (from a model file) can serve: the columns' names and
 * order, sizes, finite values, deviations > 0. DL_OK, DL_ERR_VERSION (made for
 * other features), DL_ERR_INVALID. */
int dl_drift_reference_check(const struct dl_reference *reference, struct dl_error *error);
/* Mean time between the reference's events, in training gaps; 0: not told (all
 * at one time). */
double dl_drift_mean_gap(const struct dl_reference *reference);
/* How much each column should count when samples of `window` consecutive rows
 * are compared. Columns whose mean over a window wanders from window to window
 * more than that of independent rows would (the hour of the day, when a window
 * is shorter than a day) count less in proportion, lest their ordinary movement
 * hide the others' extraordinary one; those that wander by more than
 * `wander_max` of their deviation get 0. Fewer than 4 windows: all 1. */
void dl_drift_weigh(const struct dl_reference *reference, uint32_t window, double wander_max,
                    float weight[DL_DRIFT_COLUMNS]);

/* Frees what the reference holds, not the structure. */
void dl_drift_reference_deinit(struct dl_reference *reference);

/* ---- building a reference while training ---------------------------------- */

/* Keeps DL_DRIFT_SEGMENTS stretches of DL_DRIFT_SEGMENT_ROWS consecutive rows,
 * spread evenly over the second half of the span (the whole half if it is
 * shorter): consecutive, so that the threshold can be calibrated for dependent
 * events; spread, so that slow movement within the span counts as normal. */
struct dl_drift_builder;

/* `events`: how many rows will be offered, known beforehand. DL_ERR_NOMEM. */
int dl_drift_builder_new(uint64_t events, struct dl_drift_builder **builder);
void dl_drift_builder_free(struct dl_drift_builder *builder);
/* Offers the raw row of event `index` (0, 1, 2, ... in order). */
void dl_drift_builder_offer(struct dl_drift_builder *builder, uint64_t index,
                            const float raw[DL_DRIFT_COLUMNS]);
/* Makes the reference; free it with dl_drift_reference_deinit. DL_ERR_INVALID
 * with detail (fewer than 64 rows), DL_ERR_NOMEM. */
int dl_drift_builder_finish(struct dl_drift_builder *builder, struct dl_reference *reference,
                            struct dl_error *error);

/* The same from rows already at hand: raw (rows, DL_DRIFT_COLUMNS), in time
 * order, consecutive within segments of segment_rows. */
int dl_drift_reference_build(const float *raw, uint32_t rows, uint32_t segment_rows,
                             uint64_t events_before, struct dl_reference *reference,
                             struct dl_error *error);

#endif
