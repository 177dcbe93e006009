/* Rings of dashboard points. Each tier keeps the counters as they stood at its
 * own last point, so each computes exact rates and quantiles of its interval. */
#include "service/history.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

struct point {
    int64_t time_ms;
    double values[DL_HISTORY_COLUMNS];
};

/* Counters and histograms at one instant. */
struct snapshot {
    int64_t monotonic_ns; /* 0: none yet */
    uint64_t events, scores, predictions, dead_letters;
    struct dl_histogram_counts surprise, latency;
};

struct tier {
    struct point *points; /* ring */
    uint32_t capacity, count, next;
    uint64_t gained;
    struct snapshot before;
};

struct dl_history {
    const struct dl_service_metrics *service;
    struct tier tiers[DL_HISTORY_TIERS];
};

static const struct {
    int64_t interval_ns;
    uint32_t capacity;
} shapes[DL_HISTORY_TIERS] = {
    {1000000000, 900},
    {10000000000, 1080},
    {60000000000, 1440},
};

static const char *const names[DL_HISTORY_COLUMNS] = {
    [DL_HISTORY_EVENTS_PER_SECOND] = "events_per_second",
    [DL_HISTORY_SCORES_PER_SECOND] = "scores_per_second",
    [DL_HISTORY_PREDICTIONS_PER_SECOND] = "predictions_per_second",
    [DL_HISTORY_DEAD_LETTERS_PER_SECOND] = "dead_letters_per_second",
    [DL_HISTORY_DRIFT_STATISTIC] = "drift_statistic",
    [DL_HISTORY_DRIFT_THRESHOLD] = "drift_threshold",
    [DL_HISTORY_DRIFT_RAISED] = "drift_raised",
    [DL_HISTORY_AVERAGE_PRECISION] = "average_precision",
    [DL_HISTORY_AUC] = "auc",
    [DL_HISTORY_MRR] = "mrr",
    [DL_HISTORY_CALIBRATION_ERROR] = "calibration_error",
    [DL_HISTORY_SURPRISE_MEAN_BITS] = "surprise_mean_bits",
    [DL_HISTORY_SURPRISE_P95_BITS] = "surprise_p95_bits",
    [DL_HISTORY_LAG_RECORDS] = "lag_records",
    [DL_HISTORY_OUTBOX_ROWS] = "outbox_rows",
    [DL_HISTORY_LATENCY_P50_SECONDS] = "latency_p50_seconds",
    [DL_HISTORY_LATENCY_P99_SECONDS] = "latency_p99_seconds",
    [DL_HISTORY_ATTENTION_ENTROPY_RATIO] = "attention_entropy_ratio",
    [DL_HISTORY_ATTENTION_TOP5_RATIO] = "attention_top5_ratio",
    [DL_HISTORY_ATTENTION_SINKS_GLOBAL] = "attention_sinks_global",
    [DL_HISTORY_ATTENTION_SINKS_LOCAL] = "attention_sinks_local",
    [DL_HISTORY_ATTENTION_SINK_MOVEMENT_RATIO] = "attention_sink_movement_ratio",
};

static void take_snapshot(const struct dl_service_metrics *service, int64_t monotonic_ns,
                          struct snapshot *snapshot)
{
    snapshot->monotonic_ns = monotonic_ns;
    snapshot->events = dl_counter_get(service->events_total);
    snapshot->scores = dl_counter_get(service->scores_total);
    snapshot->predictions = dl_counter_get(service->predictions_total);
    snapshot->dead_letters = dl_metrics_counter_sum(service->dead_letters_total);
    dl_histogram_read(service->surprise_bits, &snapshot->surprise);
    dl_histogram_read(service->publish_latency_seconds, &snapshot->latency);
}

/* A counter that was restored to a lower value gives no rate. */
static double rate(uint64_t before, uint64_t after, double seconds)
{
    return after < before ? NAN : (double)(after - before) / seconds;
}

static void fill_point(const struct dl_service_metrics *service, const struct snapshot *before,
                       const struct snapshot *after, struct point *point)
{
    double *to = point->values;
    double seconds = (double)(after->monotonic_ns - before->monotonic_ns) * 1e-9;
#define SET(column, value) to[DL_HISTORY_##column] = (value)
    SET(EVENTS_PER_SECOND, rate(before->events, after->events, seconds));
    SET(SCORES_PER_SECOND, rate(before->scores, after->scores, seconds));
    SET(PREDICTIONS_PER_SECOND, rate(before->predictions, after->predictions, seconds));
    SET(DEAD_LETTERS_PER_SECOND, rate(before->dead_letters, after->dead_letters, seconds));
    SET(DRIFT_STATISTIC, dl_gauge_get(service->drift_statistic));
    SET(DRIFT_THRESHOLD, dl_gauge_get(service->drift_threshold));
    SET(DRIFT_RAISED, dl_gauge_get(service->drift_raised));
    SET(AVERAGE_PRECISION, dl_gauge_get(service->quality_average_precision));
    SET(AUC, dl_gauge_get(service->quality_auc));
    SET(MRR, dl_gauge_get(service->quality_mrr));
    SET(CALIBRATION_ERROR, dl_gauge_get(service->quality_calibration_error));
    SET(SURPRISE_MEAN_BITS,
        dl_histogram_mean(service->surprise_bits, &before->surprise, &after->surprise, NULL));
    SET(SURPRISE_P95_BITS,
        dl_histogram_quantile(service->surprise_bits, &before->surprise, &after->surprise, 0.95));
    SET(LAG_RECORDS, dl_metrics_gauge_sum(service->source_lag_records));
    SET(OUTBOX_ROWS, dl_gauge_get(service->outbox_rows));
    SET(LATENCY_P50_SECONDS, dl_histogram_quantile(service->publish_latency_seconds,
                                                   &before->latency, &after->latency, 0.50));
    SET(LATENCY_P99_SECONDS, dl_histogram_quantile(service->publish_latency_seconds,
                                                   &before->latency, &after->latency, 0.99));
    SET(ATTENTION_ENTROPY_RATIO, dl_metrics_gauge_mean(service->attention_entropy_ratio));
    SET(ATTENTION_TOP5_RATIO, dl_metrics_gauge_mean(service->attention_top5_ratio));
    SET(ATTENTION_SINKS_GLOBAL,
        dl_gauge_get(dl_metrics_gauge(service->attention_sinks, DL_LABELS("global"))));
    SET(ATTENTION_SINKS_LOCAL,
        dl_gauge_get(dl_metrics_gauge(service->attention_sinks, DL_LABELS("local"))));
    SET(ATTENTION_SINK_MOVEMENT_RATIO, dl_gauge_get(service->attention_sink_movement_ratio));
#undef SET
}

static const struct point *newest(const struct tier *tier)
{
    return tier->count ? &tier->points[(tier->next + tier->capacity - 1) % tier->capacity] : NULL;
}

int dl_history_new(const struct dl_service_metrics *service, struct dl_history **history)
{
    struct dl_history *made = calloc(1, sizeof *made);
    if (!made) return DL_ERR_NOMEM;
    made->service = service;
    for (uint32_t i = 0; i < DL_HISTORY_TIERS; i++) {
        made->tiers[i].capacity = shapes[i].capacity;
        made->tiers[i].points = calloc(shapes[i].capacity, sizeof(struct point));
        if (!made->tiers[i].points) {
            dl_history_free(made);
            return DL_ERR_NOMEM;
        }
    }
    *history = made;
    return DL_OK;
}

void dl_history_free(struct dl_history *history)
{
    if (!history) return;
    for (uint32_t i = 0; i < DL_HISTORY_TIERS; i++) free(history->tiers[i].points);
    free(history);
}

int dl_history_sample(struct dl_history *history, int64_t wall_us, int64_t monotonic_ns)
{
    struct snapshot now;
    int gained = 0;
    take_snapshot(history->service, monotonic_ns, &now);
    for (uint32_t i = 0; i < DL_HISTORY_TIERS; i++) {
        struct tier *tier = &history->tiers[i];
        if (tier->before.monotonic_ns == 0) {
            tier->before = now;
            continue;
        }
        /* A tenth of slack, so that a timer that fires early loses no point. */
        int64_t elapsed_ns = monotonic_ns - tier->before.monotonic_ns;
        if (elapsed_ns < shapes[i].interval_ns - shapes[0].interval_ns / 10) continue;
        struct point *point = &tier->points[tier->next];
        point->time_ms = wall_us / 1000;
        fill_point(history->service, &tier->before, &now, point);
        tier->before = now;
        tier->next = (tier->next + 1) % tier->capacity;
        if (tier->count < tier->capacity) tier->count++;
        tier->gained++;
        gained |= i == 0;
    }
    return gained;
}

const char *dl_history_name(enum dl_history_column column)
{
    return names[column];
}

double dl_history_newest(const struct dl_history *history, uint32_t tier,
                         enum dl_history_column column)
{
    DL_CHECK(tier < DL_HISTORY_TIERS);
    const struct point *point = newest(&history->tiers[tier]);
    return point ? point->values[column] : NAN;
}

uint32_t dl_history_count(const struct dl_history *history, uint32_t tier)
{
    DL_CHECK(tier < DL_HISTORY_TIERS);
    return history->tiers[tier].count;
}

uint64_t dl_history_gained(const struct dl_history *history, uint32_t tier)
{
    DL_CHECK(tier < DL_HISTORY_TIERS);
    return history->tiers[tier].gained;
}

void dl_history_write_newest(const struct dl_history *history, uint32_t tier, struct dl_json *json)
{
    DL_CHECK(tier < DL_HISTORY_TIERS);
    const struct point *point = newest(&history->tiers[tier]);
    dl_json_open(json, '{');
    if (point) {
        dl_json_key_int(json, "time_ms", point->time_ms);
        for (int c = 0; c < DL_HISTORY_COLUMNS; c++) {
            dl_json_key(json, names[c]);
            dl_json_number(json, point->values[c]);
        }
    }
    dl_json_close(json, '}');
}

void dl_history_write(const struct dl_history *history, uint32_t tier, struct dl_json *json)
{
    DL_CHECK(tier < DL_HISTORY_TIERS);
    const struct tier *from = &history->tiers[tier];
    uint32_t first = (from->next + from->capacity - from->count) % from->capacity;
    dl_json_open(json, '{');
    dl_json_key_int(json, "interval_seconds", shapes[tier].interval_ns / 1000000000);
    dl_json_key_uint(json, "points_max", from->capacity);
    dl_json_key(json, "time_ms");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < from->count; i++)
        dl_json_int(json, from->points[(first + i) % from->capacity].time_ms);
    dl_json_close(json, ']');
    for (int c = 0; c < DL_HISTORY_COLUMNS; c++) {
        dl_json_key(json, names[c]);
        dl_json_open(json, '[');
        for (uint32_t i = 0; i < from->count; i++)
            dl_json_number(json, from->points[(first + i) % from->capacity].values[c]);
        dl_json_close(json, ']');
    }
    dl_json_close(json, '}');
}
