/* Everything that driftline measures: one row for each metric, with the place
 * in struct dl_service_metrics that it fills. */
#include "service/metrics.h"

#include <dirent.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/version.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const double latency_bounds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                        0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                        1,      2.5,     5,      10,    30,     60};
static const double surprise_bounds[] = {0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1,  1.5, 2,
                                         3,    4,    5,   6,    8,   10,   12, 16};
static const double size_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};

struct row {
    size_t field; /* offset in struct dl_service_metrics */
    struct dl_metric_description about;
};

#define ROW(place, metric, sentence, ...)                                                          \
    {                                                                                              \
        offsetof(struct dl_service_metrics, place),                                                \
        {                                                                                          \
            .name = metric, .help = sentence, __VA_ARGS__                                          \
        }                                                                                          \
    }
#define COUNTER .kind = DL_METRIC_COUNTER
#define GAUGE .kind = DL_METRIC_GAUGE
#define INFO .kind = DL_METRIC_INFO
#define HISTOGRAM(list) .kind = DL_METRIC_HISTOGRAM, .bounds = list, .bound_count = COUNT(list)
#define UNIT(text) .unit = text
#define BY(...) .labels = {__VA_ARGS__}
#define PARTITIONS BY("topic", "partition"), .series_max = 4096

/* clang-format off */
static const struct row rows[] = {
    ROW(records_total, "driftline_records_total",
        "Messages read from the source.", COUNTER),
    ROW(record_bytes_total, "driftline_record_bytes_total",
        "Bytes of the messages read from the source.", COUNTER, UNIT("bytes")),
    ROW(events_total, "driftline_events_total",
        "Edge events taken into the temporal neighbour windows.", COUNTER),
    ROW(events_late_total, "driftline_events_late_total",
        "Edge events older than the allowed lateness, whatever the policy did with them.", COUNTER),
    ROW(events_duplicate_total, "driftline_events_duplicate_total",
        "Messages at or below the stored position, which change nothing.", COUNTER),
    ROW(events_repeated_total, "driftline_events_repeated_total",
        "Events whose id was seen before (source.id_horizon); they are passed over.", COUNTER),
    ROW(events_tombstones_total, "driftline_events_tombstones_total",
        "Messages without a value that were passed over (source.tombstones).", COUNTER),
    ROW(dead_letters_total, "driftline_dead_letters_total",
        "Messages that could not be used, by reason.", COUNTER, BY("reason"), .series_max = 64),
    ROW(event_time_seconds, "driftline_event_time_seconds",
        "Largest event time taken in, as Unix time; absent when times are not wall-clock.", GAUGE, UNIT("seconds")),
    ROW(source_lag_records, "driftline_source_lag_records",
        "Messages of a partition that are not read yet.", GAUGE, PARTITIONS),
    ROW(source_offset, "driftline_source_offset",
        "Offset of the next message to read from a partition.", GAUGE, PARTITIONS),
    ROW(source_partitions, "driftline_source_partitions",
        "Partitions assigned to this instance.", GAUGE),
    ROW(source_partitions_paused, "driftline_source_partitions_paused",
        "Partitions paused because a later stage is behind.", GAUGE),

    ROW(scores_total, "driftline_scores_total",
        "Scores made, one for each event.", COUNTER),
    ROW(predictions_total, "driftline_predictions_total",
        "Predictions made: ranked candidates for a node.", COUNTER),
    ROW(candidates_total, "driftline_candidates_total",
        "Candidates scored.", COUNTER),
    ROW(encodings_reused_total, "driftline_encodings_reused_total",
        "Windows of scored nodes whose encoding was at hand (diffdyg-cached).", COUNTER),
    ROW(encodings_made_total, "driftline_encodings_made_total",
        "Windows of scored nodes that had to be encoded (diffdyg-cached).", COUNTER),
    ROW(surprise_bits, "driftline_surprise",
        "Surprise of each event in bits: minus log2 of the probability of its own edge.",
        HISTOGRAM(surprise_bounds)),
    ROW(batch_duration_seconds, "driftline_batch_duration_seconds",
        "Time from the start of a batch to its commit.", HISTOGRAM(latency_bounds), UNIT("seconds")),
    ROW(batch_events, "driftline_batch_events",
        "Events in a batch.", HISTOGRAM(size_bounds)),
    ROW(scoring_duration_seconds, "driftline_scoring_duration_seconds",
        "Time that a batch spends on the scoring workers.", HISTOGRAM(latency_bounds), UNIT("seconds")),
    ROW(commit_duration_seconds, "driftline_commit_duration_seconds",
        "Time that the store takes to commit a batch.", HISTOGRAM(latency_bounds), UNIT("seconds")),
    ROW(publish_latency_seconds, "driftline_publish_latency_seconds",
        "Time from reading an event to the commit of what it caused, when subscribers hear of it.", HISTOGRAM(latency_bounds), UNIT("seconds")),
    ROW(scoring_queue_batches, "driftline_scoring_queue_batches",
        "Batches that wait for a scoring worker.", GAUGE),

    ROW(outbox_rows, "driftline_outbox_rows",
        "Rows of the outbox that are not published yet.", GAUGE),
    ROW(published_total, "driftline_published_total",
        "Records published, by topic.", COUNTER, BY("topic"), .series_max = 64),
    ROW(publish_errors_total, "driftline_publish_errors_total",
        "Attempts to publish that did not succeed; each is made again.", COUNTER),

    ROW(quality_average_precision, "driftline_quality_average_precision",
        "Live average precision of events against one random destination each, over the running window.", GAUGE),
    ROW(quality_auc, "driftline_quality_auc",
        "Live area under the ROC curve, over the running window.", GAUGE),
    ROW(quality_mrr, "driftline_quality_mrr",
        "Live mean reciprocal rank among 20 negatives, over the running window.", GAUGE),
    ROW(quality_calibration_error, "driftline_quality_calibration_error",
        "Expected calibration error of the probabilities, over the running window.", GAUGE),
    ROW(quality_events, "driftline_quality_events",
        "Events that the live quality figures rest on.", GAUGE),

    ROW(drift_statistic, "driftline_drift_statistic",
        "Squared maximum mean discrepancy between the reference and the recent events.", GAUGE),
    ROW(drift_threshold, "driftline_drift_threshold",
        "Value of the drift statistic above which a temporal shift is raised.", GAUGE),
    ROW(drift_raised, "driftline_drift_raised",
        "1 while a temporal shift is raised, else 0.", GAUGE),
    ROW(drift_reference_renewals_total, "driftline_drift_reference_renewals_total",
        "Times that the drift reference was renewed.", COUNTER),
    ROW(alerts_total, "driftline_alerts_total",
        "Alerts raised, by kind.", COUNTER, BY("kind"), .series_max = 16),
    ROW(notifications_total, "driftline_notifications_total",
        "Attempts to take an alert to the webhook or to Alertmanager: sent, repeated, failed (tried again), refused, or dropped from a full queue.",
        COUNTER, BY("target", "result"), .series_max = 16),
    ROW(alert_active, "driftline_alert_active",
        "1 while an alert of the kind is raised, else 0.", GAUGE, BY("kind"), .series_max = 16),

    ROW(attention_entropy_ratio, "driftline_attention_entropy_ratio",
        "Mean attention entropy on served traffic by layer, as a share of uniform attention.",
        GAUGE, BY("layer"), UNIT("ratio"), .series_max = 16),
    ROW(attention_top5_ratio, "driftline_attention_top5_ratio",
        "Mean share of attention on the top 5 percent of tokens, by layer.",
        GAUGE, BY("layer"), UNIT("ratio"), .series_max = 16),
    ROW(attention_sinks, "driftline_attention_sinks",
        "Mean number of tokens of a pair that attract more than mean plus 3 sigma, in most layers (global) or in fewer (local).",
        GAUGE, BY("scope"), .series_max = 4),
    ROW(attention_sink_movement_ratio, "driftline_attention_sink_movement_ratio",
        "Share of sampled pairs whose strongest sink stands elsewhere than that of the pair before.",
        GAUGE, UNIT("ratio")),

    ROW(graph_nodes, "driftline_graph_nodes",
        "Nodes with at least one event.", GAUGE),
    ROW(graph_pairs, "driftline_graph_pairs",
        "Pairs of nodes whose history is kept.", GAUGE),
    ROW(graph_dirty_pages, "driftline_graph_dirty_pages",
        "Pages of the state that changed since they were last checkpointed.", GAUGE),
    ROW(store_bytes, "driftline_store_bytes",
        "Size of the store's files.", GAUGE, BY("file"), UNIT("bytes"), .series_max = 8),
    ROW(store_checkpoints_total, "driftline_store_checkpoints_total",
        "Pages of the state written to the store.", COUNTER),
    ROW(store_full, "driftline_store_full",
        "1 while the disk is full and a batch waits for room, else 0.", GAUGE),
    ROW(ready, "driftline_ready",
        "1 when progress is possible, else 0; what /readyz answers.", GAUGE),
    ROW(model_info, "driftline_model_info",
        "The model that is served.", INFO, BY("version", "architecture", "ties"), .series_max = 4),
    ROW(model_reloads_total, "driftline_model_reloads_total",
        "Times that another model was swapped in.", COUNTER),

    ROW(rpc_requests_total, "driftline_rpc_requests_total",
        "RPC calls finished, by method and status code.", COUNTER, BY("method", "code"), .series_max = 512),
    ROW(rpc_duration_seconds, "driftline_rpc_duration_seconds",
        "Time from an RPC call to its answer, by method; for streams, to the first message.",
        HISTOGRAM(latency_bounds), UNIT("seconds"), BY("method"), .series_max = 64),
    ROW(rpc_connections, "driftline_rpc_connections",
        "Open RPC connections.", GAUGE),
    ROW(rpc_streams, "driftline_rpc_streams",
        "Open server-streaming RPC calls.", GAUGE),
    ROW(http_requests_total, "driftline_http_requests_total",
        "HTTP requests answered, by route and status code.", COUNTER, BY("route", "code"), .series_max = 256),
    ROW(http_listeners, "driftline_http_listeners",
        "Open event streams of the dashboard.", GAUGE),

    ROW(build_info, "driftline_build_info",
        "The program that runs.", INFO, BY("version", "compiler"), .series_max = 1),
    ROW(series_dropped_total, "driftline_metrics_series_dropped_total",
        "Updates of label values that found their metric full.", COUNTER),
    ROW(process_resident_memory_bytes, "process_resident_memory_bytes",
        "Resident memory.", GAUGE, UNIT("bytes")),
    ROW(process_cpu_microseconds, "process_cpu_seconds_total",
        "User and system CPU time.", COUNTER, UNIT("seconds"), .scale = 1e-6),
    ROW(process_open_fds, "process_open_fds",
        "Open file descriptors.", GAUGE),
    ROW(process_start_time_seconds, "process_start_time_seconds",
        "Start of the process, as Unix time.", GAUGE, UNIT("seconds")),
};
/* clang-format on */

static int add_row(struct dl_metrics *metrics, struct dl_service_metrics *service,
                   const struct row *row, struct dl_error *error)
{
    struct dl_metric_family *family;
    int status = dl_metrics_add(metrics, &row->about, &family, error);
    if (status) return status;
    void *value = family;
    if (row->about.labels[0] == NULL) {
        switch (row->about.kind) {
        case DL_METRIC_COUNTER:
            value = dl_metrics_counter(family, NULL);
            break;
        case DL_METRIC_HISTOGRAM:
            value = dl_metrics_histogram(family, NULL);
            break;
        default:
            value = dl_metrics_gauge(family, NULL);
            break;
        }
    }
    /* All fields are pointers to structures, so one copy serves them all. */
    memcpy((char *)service + row->field, &value, sizeof value);
    return DL_OK;
}

int dl_service_metrics_init(struct dl_metrics *metrics, struct dl_service_metrics *service,
                            struct dl_error *error)
{
    _Static_assert(sizeof(rows) / sizeof *rows ==
                       sizeof(struct dl_service_metrics) / sizeof(void *),
                   "each field of struct dl_service_metrics has its row");
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        int status = add_row(metrics, service, &rows[i], error);
        if (status) return status;
    }
    dl_gauge_set(service->process_start_time_seconds, (double)dl_clock_wall_us() * 1e-6);
    dl_gauge_set(dl_metrics_gauge(service->build_info, DL_LABELS(DL_VERSION, __VERSION__)), 1);
    dl_service_metrics_process(service);
    return DL_OK;
}

/* Entries of a folder, without the two dots and the descriptor that reads it. */
static double open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return NAN;
    int count = -3;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static double resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return NAN;
    unsigned long long size_pages, resident_pages;
    int fields = fscanf(file, "%llu %llu", &size_pages, &resident_pages);
    fclose(file);
    return fields == 2 ? (double)resident_pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

void dl_service_metrics_process(struct dl_service_metrics *service)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        int64_t used_us = ((int64_t)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
                          usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
        dl_counter_restore(service->process_cpu_microseconds, (uint64_t)used_us);
    }
    dl_gauge_set(service->process_resident_memory_bytes, resident_bytes());
    dl_gauge_set(service->process_open_fds, open_fds());
}

uint32_t dl_service_metrics_describe(const struct dl_metric_description **descriptions)
{
    static struct dl_metric_description all[COUNT(rows)];
    for (uint32_t i = 0; i < COUNT(rows); i++) all[i] = rows[i].about;
    *descriptions = all;
    return COUNT(rows);
}
