/* Metrics: a registry of counters, gauges and histograms with few labels, and
 * the list of everything that driftline measures (struct dl_service_metrics).
 *
 * Names follow the Prometheus conventions: prefix `driftline_`, base units
 * (seconds, bytes, ratio) last, counters end in `_total`. No label ever holds a
 * node's name. The number of series of a family is bounded: when a family is
 * full, or memory is short, further label values share one series that is not
 * exported, and `driftline_metrics_series_dropped_total` counts them. So the
 * getters below never return NULL and callers need no error path.
 *
 * Thread: everything belongs to the loop's thread, except the inline updates:
 * dl_counter_add and dl_histogram_observe have one writer at a time,
 * dl_counter_add_shared and dl_gauge_set may be called from any thread. */
#ifndef DL_SERVICE_METRICS_H
#define DL_SERVICE_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_METRIC_LABELS_MAX 4
#define DL_METRIC_BOUNDS_MAX 32
#define DL_METRIC_LABEL_BYTES_MAX 255 /* longer label values are cut */

/* ---- the three kinds ------------------------------------------------------ */

struct dl_counter {
    _Atomic uint64_t value;
};

struct dl_gauge {
    _Atomic double value; /* NaN: not known yet; such a series is not exported */
};

struct dl_histogram {
    const double *bounds; /* upper bounds, ascending, (bound_count) */
    uint32_t bound_count;
    _Atomic uint64_t
        counts[DL_METRIC_BOUNDS_MAX + 1]; /* not cumulative; the last is above all bounds */
    _Atomic double sum;
};

/* One writer at a time; costs a load and a store. */
static inline void dl_counter_add(struct dl_counter *counter, uint64_t amount)
{
    uint64_t now = atomic_load_explicit(&counter->value, memory_order_relaxed);
    atomic_store_explicit(&counter->value, now + amount, memory_order_relaxed);
}
/* From any thread. */
static inline void dl_counter_add_shared(struct dl_counter *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(&counter->value, amount, memory_order_relaxed);
}
static inline uint64_t dl_counter_get(const struct dl_counter *counter)
{
    return atomic_load_explicit(&counter->value, memory_order_relaxed);
}
/* A counter restored from the store after a restart. */
static inline void dl_counter_restore(struct dl_counter *counter, uint64_t value)
{
    atomic_store_explicit(&counter->value, value, memory_order_relaxed);
}

static inline void dl_gauge_set(struct dl_gauge *gauge, double value)
{
    atomic_store_explicit(&gauge->value, value, memory_order_relaxed);
}
static inline double dl_gauge_get(const struct dl_gauge *gauge)
{
    return atomic_load_explicit(&gauge->value, memory_order_relaxed);
}

/* One writer at a time. A NaN is left out. */
static inline void dl_histogram_observe(struct dl_histogram *histogram, double value)
{
    uint32_t low = 0, high = histogram->bound_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (value <= histogram->bounds[middle])
            high = middle;
        else
            low = middle + 1;
    }
    if (value != value) return;
    uint64_t count = atomic_load_explicit(&histogram->counts[low], memory_order_relaxed);
    atomic_store_explicit(&histogram->counts[low], count + 1, memory_order_relaxed);
    double sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    atomic_store_explicit(&histogram->sum, sum + value, memory_order_relaxed);
}

/* A histogram's counts at one instant, to take quantiles of a span of time. */
struct dl_histogram_counts {
    uint64_t counts[DL_METRIC_BOUNDS_MAX + 1];
    double sum;
};
void dl_histogram_read(const struct dl_histogram *histogram, struct dl_histogram_counts *counts);
/* The quantile (0..1) of what was observed between `before` (NULL: the start)
 * and `after`, interpolated within its bucket; above the last bound it is that
 * bound. NaN when nothing was observed. */
double dl_histogram_quantile(const struct dl_histogram *histogram,
                             const struct dl_histogram_counts *before,
                             const struct dl_histogram_counts *after, double quantile);
/* Mean and count of the same span; NaN and 0 when nothing was observed. */
double dl_histogram_mean(const struct dl_histogram *histogram,
                         const struct dl_histogram_counts *before,
                         const struct dl_histogram_counts *after, uint64_t *count);

/* ---- the registry --------------------------------------------------------- */

enum dl_metric_kind { DL_METRIC_COUNTER, DL_METRIC_GAUGE, DL_METRIC_HISTOGRAM, DL_METRIC_INFO };

/* Describes a family. All text and bounds must outlive the registry. */
struct dl_metric_description {
    enum dl_metric_kind kind;
    const char *name; /* full: counters with _total, infos with _info */
    const char *unit; /* NULL, or the base unit that stands last in the name */
    const char *help; /* one sentence */
    const char *labels[DL_METRIC_LABELS_MAX]; /* NULL after the last */
    uint32_t series_max;                      /* 0: 1 without labels, else 256 */
    double scale;         /* counters: exported value = counted * scale; 0 means 1 */
    const double *bounds; /* histograms */
    uint32_t bound_count; /* 1..DL_METRIC_BOUNDS_MAX */
};

struct dl_metrics;       /* the registry */
struct dl_metric_family; /* owned by its registry */

int dl_metrics_new(struct dl_metrics **metrics);
void dl_metrics_free(struct dl_metrics *metrics);

/* Adds a family. DL_ERR_INVALID with detail for a name against the conventions
 * or one that exists; DL_ERR_NOMEM. */
int dl_metrics_add(struct dl_metrics *metrics, const struct dl_metric_description *description,
                   struct dl_metric_family **family, struct dl_error *error);

/* The label values of a series, in the order of the description. */
#define DL_LABELS(...) ((const char *const[]){__VA_ARGS__})

/* Finds or makes the series with these label values (`values` is NULL for a
 * family without labels). Keep the pointer for the hot path; it stays valid
 * until the series is removed. Gauges start as NaN. Never NULL. The family
 * must be of that kind (dl_metrics_gauge: gauge or info). */
struct dl_counter *dl_metrics_counter(struct dl_metric_family *family, const char *const *values);
struct dl_gauge *dl_metrics_gauge(struct dl_metric_family *family, const char *const *values);
struct dl_histogram *dl_metrics_histogram(struct dl_metric_family *family,
                                          const char *const *values);
/* The gauge of a family with the labels topic and partition. */
struct dl_gauge *dl_metrics_gauge_partition(struct dl_metric_family *family, const char *topic,
                                            int32_t partition);

/* Removes a series, as when a partition was revoked; unknown ones are ignored. */
void dl_metrics_remove(struct dl_metric_family *family, const char *const *values);
void dl_metrics_remove_partition(struct dl_metric_family *family, const char *topic,
                                 int32_t partition);
/* Removes all series of a family. */
void dl_metrics_clear(struct dl_metric_family *family);

/* Over the known series of a gauge family; NaN when there are none. */
double dl_metrics_gauge_sum(const struct dl_metric_family *family);
double dl_metrics_gauge_mean(const struct dl_metric_family *family);
double dl_metrics_gauge_max(const struct dl_metric_family *family);
/* Over the series of a counter family, those that found it full included. */
uint64_t dl_metrics_counter_sum(const struct dl_metric_family *family);

enum dl_metrics_format { DL_METRICS_PROMETHEUS, DL_METRICS_OPENMETRICS };

/* The format that an HTTP Accept header asks for (NULL: Prometheus text). */
enum dl_metrics_format dl_metrics_negotiate(const char *accept);
const char *dl_metrics_content_type(enum dl_metrics_format format);
/* Appends the exposition. A failed allocation shows in out->failed. */
void dl_metrics_write(const struct dl_metrics *metrics, enum dl_metrics_format format,
                      struct dl_buf *out);

/* ---- everything that driftline measures ------------------------------------
 * The names, units and sentences stand in metric_table.c, one row for each
 * field. A field with labels is a family; the others are ready to be updated. */
struct dl_service_metrics {
    /* taking in */
    struct dl_counter *records_total;            /* messages read from the source */
    struct dl_counter *record_bytes_total;       /* their bytes */
    struct dl_counter *events_total;             /* events taken into the windows */
    struct dl_counter *events_late_total;        /* later than allowed, whatever the policy did */
    struct dl_counter *events_repeated_total;    /* by their id */
    struct dl_counter *events_tombstones_total;  /* passed over */
    struct dl_counter *events_duplicate_total;   /* at or below the stored position: no-ops */
    struct dl_metric_family *dead_letters_total; /* counter {reason} */
    struct dl_gauge *event_time_seconds; /* largest event time, Unix seconds (NaN for ticks) */
    struct dl_metric_family *source_lag_records; /* gauge {topic, partition} */
    struct dl_metric_family *source_offset;      /* gauge {topic, partition}: next offset to read */
    struct dl_gauge *source_partitions;          /* assigned */
    struct dl_gauge *source_partitions_paused;   /* paused because a later stage is behind */

    /* scoring */
    struct dl_counter *scores_total;
    struct dl_counter *predictions_total;
    struct dl_counter *candidates_total;           /* candidates scored */
    struct dl_counter *encodings_reused_total;     /* windows whose encoding was at hand */
    struct dl_counter *encodings_made_total;       /* windows that had to be encoded */
    struct dl_histogram *surprise_bits;            /* of each event's own edge */
    struct dl_histogram *batch_duration_seconds;   /* batch begun to batch committed */
    struct dl_histogram *batch_events;             /* events in a batch */
    struct dl_histogram *scoring_duration_seconds; /* a batch on the workers */
    struct dl_histogram *commit_duration_seconds;  /* the store's transaction */
    struct dl_histogram
        *publish_latency_seconds; /* event read to its commit, when subscribers hear of it */
    struct dl_gauge *scoring_queue_batches;

    /* sending out */
    struct dl_gauge *outbox_rows;
    struct dl_metric_family *published_total; /* counter {topic} */
    struct dl_counter *publish_errors_total;  /* from any thread */

    /* live quality, over the running window; NaN until known */
    struct dl_gauge *quality_average_precision;
    struct dl_gauge *quality_auc;
    struct dl_gauge *quality_mrr;
    struct dl_gauge *quality_calibration_error;
    struct dl_gauge *quality_events; /* events that the figures rest on */

    /* drift and alerts */
    struct dl_gauge *drift_statistic;
    struct dl_gauge *drift_threshold;
    struct dl_gauge *drift_raised; /* 1 while a temporal shift is raised */
    struct dl_counter *drift_reference_renewals_total;
    struct dl_metric_family *alerts_total;        /* counter {kind}: raised */
    struct dl_metric_family *notifications_total; /* counter {target, result} */
    struct dl_metric_family *alert_active;        /* gauge {kind}: 1 while raised */

    /* attention on served traffic */
    struct dl_metric_family *attention_entropy_ratio; /* gauge {layer}; 1: uniform */
    struct dl_metric_family *attention_top5_ratio;    /* gauge {layer} */
    struct dl_metric_family *attention_sinks;         /* gauge {scope}: global, local */
    struct dl_gauge *attention_sink_movement_ratio;

    /* state */
    struct dl_gauge *graph_nodes;
    struct dl_gauge *graph_pairs;
    struct dl_gauge *graph_dirty_pages;   /* not yet checkpointed */
    struct dl_metric_family *store_bytes; /* gauge {file}: database, wal */
    struct dl_counter *store_checkpoints_total;
    struct dl_gauge *ready;              /* what /readyz says */
    struct dl_gauge *store_full;         /* the disk is full, and a batch waits */
    struct dl_metric_family *model_info; /* info {version, architecture, ties} */
    struct dl_counter *model_reloads_total;

    /* the faces */
    struct dl_metric_family *rpc_requests_total;   /* counter {method, code} */
    struct dl_metric_family *rpc_duration_seconds; /* histogram {method} */
    struct dl_gauge *rpc_connections;
    struct dl_gauge *rpc_streams;                 /* open server-streaming calls */
    struct dl_metric_family *http_requests_total; /* counter {route, code} */
    struct dl_gauge *http_listeners;              /* open event streams */

    /* the program itself */
    struct dl_metric_family *build_info; /* info {version, compiler} */
    struct dl_counter *series_dropped_total;
    struct dl_gauge *process_resident_memory_bytes;
    struct dl_counter *process_cpu_microseconds; /* exported in seconds */
    struct dl_gauge *process_open_fds;
    struct dl_gauge *process_start_time_seconds;
};

/* Registers every family of the table and fills in *service. DL_ERR_NOMEM. */
int dl_service_metrics_init(struct dl_metrics *metrics, struct dl_service_metrics *service,
                            struct dl_error *error);
/* Reads what the operating system knows of this process into the process_*
 * metrics. Called before each scrape. */
void dl_service_metrics_process(struct dl_service_metrics *service);

/* The rows of the table, for the tests and the documentation. */
uint32_t dl_service_metrics_describe(const struct dl_metric_description **rows);

#endif
