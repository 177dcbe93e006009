/* The dashboard's memory: what the metrics said over the last minutes, hours
 * and day, in three rings of fixed size (about 0.5 MB together).
 *
 *   tier   a point each   reaches back
 *   0      1 s            15 min
 *   1      10 s           3 h
 *   2      60 s           24 h
 *
 * A point holds rates and quantiles of its own interval, and gauges as they
 * stood at its end; what is not known is NaN. Loop's thread only. */
#ifndef DL_SERVICE_HISTORY_H
#define DL_SERVICE_HISTORY_H

#include <stdint.h>

#include "base/bytes.h"
#include "service/json_out.h"
#include "service/metrics.h"

#define DL_HISTORY_TIERS 3

enum dl_history_column {
    DL_HISTORY_EVENTS_PER_SECOND,
    DL_HISTORY_SCORES_PER_SECOND,
    DL_HISTORY_PREDICTIONS_PER_SECOND,
    DL_HISTORY_DEAD_LETTERS_PER_SECOND,
    DL_HISTORY_DRIFT_STATISTIC,
    DL_HISTORY_DRIFT_THRESHOLD,
    DL_HISTORY_DRIFT_RAISED,
    DL_HISTORY_AVERAGE_PRECISION,
    DL_HISTORY_AUC,
    DL_HISTORY_MRR,
    DL_HISTORY_CALIBRATION_ERROR,
    DL_HISTORY_SURPRISE_MEAN_BITS,
    DL_HISTORY_SURPRISE_P95_BITS,
    DL_HISTORY_LAG_RECORDS,
    DL_HISTORY_OUTBOX_ROWS,
    DL_HISTORY_LATENCY_P50_SECONDS,
    DL_HISTORY_LATENCY_P99_SECONDS,
    DL_HISTORY_ATTENTION_ENTROPY_RATIO,
    DL_HISTORY_ATTENTION_TOP5_RATIO,
    DL_HISTORY_ATTENTION_SINKS_GLOBAL,
    DL_HISTORY_ATTENTION_SINKS_LOCAL,
    DL_HISTORY_ATTENTION_SINK_MOVEMENT_RATIO,
    DL_HISTORY_COLUMNS
};

struct dl_history;

/* `service` must outlive it. DL_ERR_NOMEM. */
int dl_history_new(const struct dl_service_metrics *service, struct dl_history **history);
void dl_history_free(struct dl_history *history);

/* Takes the samples that are due. Call it about once a second with the wall
 * clock and the monotonic clock. Returns 1 if tier 0 gained a point. */
int dl_history_sample(struct dl_history *history, int64_t wall_us, int64_t monotonic_ns);

/* The column's name in JSON. */
const char *dl_history_name(enum dl_history_column column);
/* The value of the newest point of a tier; NaN if there is none. */
double dl_history_newest(const struct dl_history *history, uint32_t tier,
                         enum dl_history_column column);
uint32_t dl_history_count(const struct dl_history *history, uint32_t tier);
/* Points that the tier ever gained: changes exactly when its content does. */
uint64_t dl_history_gained(const struct dl_history *history, uint32_t tier);

/* Writes the newest point of a tier as an object: "time_ms" (Unix time) and a
 * key for each column. */
void dl_history_write_newest(const struct dl_history *history, uint32_t tier, struct dl_json *json);
/* Writes a whole tier, oldest first, as an object of arrays. */
void dl_history_write(const struct dl_history *history, uint32_t tier, struct dl_json *json);

#endif
