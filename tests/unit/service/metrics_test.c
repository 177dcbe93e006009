/* The metrics registry and its two text formats. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/metrics.h"

static struct dl_metrics *metrics;
static struct dl_service_metrics service;

static void start(void)
{
    struct dl_error error = {""};
    cr_assert_eq(dl_metrics_new(&metrics), DL_OK);
    cr_assert_eq(dl_service_metrics_init(metrics, &service, &error), DL_OK, "%s", error.text);
}

static void stop(void)
{
    dl_metrics_free(metrics);
}

/* The exposition as text; owned by the caller. */
static char *written(enum dl_metrics_format format)
{
    struct dl_buf out = {0};
    dl_metrics_write(metrics, format, &out);
    dl_buf_u8(&out, 0);
    cr_assert_not(out.failed);
    return (char *)out.data;
}

static int has_line(const char *text, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = strstr(text, line); at; at = strstr(at + 1, line))
        if ((at == text || at[-1] == '\n') && at[length] == '\n') return 1;
    return 0;
}

TestSuite(metrics, .init = start, .fini = stop);

Test(metrics, counters_and_gauges_are_exported)
{
    dl_counter_add(service.events_total, 41);
    dl_counter_add_shared(service.events_total, 1);
    dl_gauge_set(service.drift_statistic, 0.1);
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert(has_line(text, "# TYPE driftline_events_total counter"));
    cr_assert(has_line(text, "driftline_events_total 42"));
    cr_assert(has_line(text, "driftline_drift_statistic 0.1"));
    free(text);
}

Test(metrics, a_gauge_that_is_not_known_is_absent)
{
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert_null(strstr(text, "driftline_quality_auc"));
    free(text);
}

Test(metrics, openmetrics_names_families_without_suffix_and_ends)
{
    dl_counter_add(service.record_bytes_total, 7);
    dl_gauge_set(dl_metrics_gauge(service.model_info, DL_LABELS("abc", "diffdyg", "stream")), 1);
    char *text = written(DL_METRICS_OPENMETRICS);
    cr_assert(has_line(text, "# TYPE driftline_record_bytes counter"));
    cr_assert(has_line(text, "# UNIT driftline_record_bytes bytes"));
    cr_assert(has_line(text, "driftline_record_bytes_total 7"));
    cr_assert(has_line(text, "# TYPE driftline_model info"));
    cr_assert(has_line(
        text, "driftline_model_info{version=\"abc\",architecture=\"diffdyg\",ties=\"stream\"} 1"));
    cr_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
    free(text);
}

Test(metrics, histogram_buckets_are_cumulative_and_include_their_bound)
{
    dl_histogram_observe(service.surprise_bits, 0.01);
    dl_histogram_observe(service.surprise_bits, 0.02);
    dl_histogram_observe(service.surprise_bits, 1000);
    dl_histogram_observe(service.surprise_bits, NAN);
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert(has_line(text, "driftline_surprise_bucket{le=\"0.01\"} 1"));
    cr_assert(has_line(text, "driftline_surprise_bucket{le=\"0.05\"} 2"));
    cr_assert(has_line(text, "driftline_surprise_bucket{le=\"16\"} 2"));
    cr_assert(has_line(text, "driftline_surprise_bucket{le=\"+Inf\"} 3"));
    cr_assert(has_line(text, "driftline_surprise_sum 1000.03"));
    cr_assert(has_line(text, "driftline_surprise_count 3"));
    free(text);
    text = written(DL_METRICS_OPENMETRICS);
    cr_assert(has_line(text, "driftline_surprise_bucket{le=\"16.0\"} 2"));
    free(text);
}

Test(metrics, label_values_are_escaped_and_broken_utf8_is_replaced)
{
    dl_counter_add(
        dl_metrics_counter(service.dead_letters_total, DL_LABELS("a\"b\\c\nd\xff\xc3\xa9")), 1);
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert(
        has_line(text, "driftline_dead_letters_total{reason=\"a\\\"b\\\\c\\nd?\xc3\xa9\"} 1"));
    free(text);
}

Test(metrics, the_same_labels_give_the_same_series)
{
    struct dl_counter *first =
        dl_metrics_counter(service.rpc_requests_total, DL_LABELS("Score", "OK"));
    struct dl_counter *other =
        dl_metrics_counter(service.rpc_requests_total, DL_LABELS("Score", "INTERNAL"));
    cr_assert_neq(first, other);
    cr_assert_eq(first, dl_metrics_counter(service.rpc_requests_total, DL_LABELS("Score", "OK")));
}

Test(metrics, a_family_is_bounded_and_says_what_it_dropped)
{
    char reason[16];
    for (int i = 0; i < 70; i++) {
        snprintf(reason, sizeof reason, "r%d", i);
        dl_counter_add(dl_metrics_counter(service.dead_letters_total, DL_LABELS(reason)), 1);
    }
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert(has_line(text, "driftline_dead_letters_total{reason=\"r63\"} 1"));
    cr_assert_null(strstr(text, "r64"));
    cr_assert(has_line(text, "driftline_metrics_series_dropped_total 6"));
    free(text);
}

Test(metrics, a_revoked_partition_disappears)
{
    dl_gauge_set(dl_metrics_gauge_partition(service.source_lag_records, "edges", 0), 5);
    dl_gauge_set(dl_metrics_gauge_partition(service.source_lag_records, "edges", 1), 7);
    cr_assert_float_eq(dl_metrics_gauge_sum(service.source_lag_records), 12, 1e-9);
    cr_assert_float_eq(dl_metrics_gauge_max(service.source_lag_records), 7, 1e-9);
    dl_metrics_remove_partition(service.source_lag_records, "edges", 1);
    dl_metrics_remove_partition(service.source_lag_records, "edges", 9);
    char *text = written(DL_METRICS_PROMETHEUS);
    cr_assert(has_line(text, "driftline_source_lag_records{topic=\"edges\",partition=\"0\"} 5"));
    cr_assert_null(strstr(text, "partition=\"1\""));
    free(text);
    dl_metrics_clear(service.source_lag_records);
    cr_assert(isnan(dl_metrics_gauge_sum(service.source_lag_records)));
}

Test(metrics, quantiles_are_those_of_the_span)
{
    struct dl_histogram *latency = service.publish_latency_seconds;
    struct dl_histogram_counts before, after;
    for (int i = 0; i < 1000; i++) dl_histogram_observe(latency, 20);
    dl_histogram_read(latency, &before);
    cr_assert(isnan(dl_histogram_quantile(latency, &before, &before, 0.5)));
    for (int i = 0; i < 100; i++) dl_histogram_observe(latency, i < 98 ? 0.002 : 0.2);
    dl_histogram_read(latency, &after);
    double median = dl_histogram_quantile(latency, &before, &after, 0.5);
    double high = dl_histogram_quantile(latency, &before, &after, 0.99);
    cr_assert(median > 0.001 && median <= 0.0025, "median %g", median);
    cr_assert(high > 0.1 && high <= 0.25, "p99 %g", high);
    uint64_t count;
    double mean = dl_histogram_mean(latency, &before, &after, &count);
    cr_assert_eq(count, 100);
    cr_assert_float_eq(mean, (98 * 0.002 + 2 * 0.2) / 100, 1e-9);
}

Test(metrics, format_is_negotiated)
{
    cr_assert_eq(dl_metrics_negotiate(NULL), DL_METRICS_PROMETHEUS);
    cr_assert_eq(dl_metrics_negotiate("*/*"), DL_METRICS_PROMETHEUS);
    cr_assert_eq(dl_metrics_negotiate("application/openmetrics-text;version=1.0.0;q=0.5,"
                                      "text/plain;version=0.0.4;q=0.2"),
                 DL_METRICS_OPENMETRICS);
    cr_assert_eq(dl_metrics_negotiate("application/openmetrics-text;q=0, text/plain"),
                 DL_METRICS_PROMETHEUS);
}

Test(metrics, names_against_the_conventions_are_refused)
{
    struct dl_metric_family *family;
    struct dl_error error;
    const struct dl_metric_description bad[] = {
        {.kind = DL_METRIC_COUNTER, .name = "driftline_things", .help = "x"},
        {.kind = DL_METRIC_GAUGE, .name = "driftline_things_total", .help = "x"},
        {.kind = DL_METRIC_GAUGE, .name = "driftline_wait", .unit = "seconds", .help = "x"},
        {.kind = DL_METRIC_GAUGE, .name = "Driftline", .help = "x"},
        {.kind = DL_METRIC_HISTOGRAM, .name = "driftline_h", .help = "x"},
        {.kind = DL_METRIC_COUNTER, .name = "driftline_events_total", .help = "twice"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(dl_metrics_add(metrics, &bad[i], &family, &error), DL_ERR_INVALID, "%zu", i);
}

Test(metrics, the_process_is_measured)
{
    dl_service_metrics_process(&service);
    cr_assert(dl_gauge_get(service.process_resident_memory_bytes) > 100000);
    cr_assert(dl_gauge_get(service.process_open_fds) >= 1);
}
