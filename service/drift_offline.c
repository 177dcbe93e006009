/* Drift within a recorded feed. Two passes: the first collects rows of both
 * spans, the second runs the monitor. */
#include "service/drift_offline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/split.h"

#define ROWS_DEFAULT 2000
#define BLOCK_DEFAULT 50
#define PERMUTATIONS_DEFAULT 999
#define PROGRESS_EVERY 2048 /* events */

/* Rows of a span: blocks of consecutive events, spread evenly over it. */
struct sample {
    struct dl_drift_span span;
    uint32_t blocks, block_rows, rows; /* rows: taken so far */
    float *raw;                        /* (blocks · block_rows, DL_DRIFT_COLUMNS) */
};

struct run {
    const struct dl_dataset *dataset;
    const struct dl_progress *progress;
    double gap;
    struct sample before, after;
    struct dl_drift_builder *builder;
    struct dl_drift_monitor *monitor;
    struct dl_drift_offline *result;
};

/* ---- samples --------------------------------------------------------------------- */

static int sample_begin(struct sample *sample, struct dl_drift_span span, uint32_t rows,
                        uint32_t block_rows, const char *name, struct dl_error *error)
{
    const uint64_t events = span.end - span.begin;
    sample->span = span;
    sample->block_rows = block_rows;
    sample->blocks = (uint32_t)((rows < events ? rows : events) / block_rows);
    if (span.end <= span.begin || sample->blocks < 2)
        return dl_error_set(error, DL_ERR_INVALID,
                            "the span %s has %" PRIu64 " events; it takes two blocks of %u (a "
                            "longer span, or smaller blocks with --block)",
                            name, span.end > span.begin ? events : 0, block_rows);
    sample->raw =
        malloc((size_t)sample->blocks * block_rows * DL_DRIFT_COLUMNS * sizeof *sample->raw);
    return sample->raw ? DL_OK : dl_error_set(error, DL_ERR_NOMEM, "drift: out of memory");
}

static void sample_offer(struct sample *sample, uint64_t event, const float *raw)
{
    if (sample->rows == sample->blocks * sample->block_rows) return;
    const uint64_t room = sample->span.end - sample->span.begin - sample->block_rows;
    const uint32_t block = sample->rows / sample->block_rows;
    const uint64_t wanted = sample->span.begin + block * room / (sample->blocks - 1) +
                            sample->rows % sample->block_rows;
    if (event < wanted) return;
    memcpy(sample->raw + (size_t)sample->rows * DL_DRIFT_COLUMNS, raw,
           DL_DRIFT_COLUMNS * sizeof *raw);
    sample->rows++;
}

/* ---- the passes -------------------------------------------------------------------- */

typedef void (*row_fn)(struct run *run, uint64_t event, const float *raw);

static int walk(struct run *run, const char *stage, uint64_t end, row_fn take,
                struct dl_error *error)
{
    const struct dl_dataset *dataset = run->dataset;
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_graph *graph = NULL;
    int status;
    config.window = DL_DRIFT_WINDOW;
    status = dl_graph_new(&config, &graph, error);
    for (uint64_t i = 0; status == DL_OK && i < end; i++) {
        float raw[DL_DRIFT_COLUMNS];
        dl_drift_features(graph, &dataset->events[i], run->gap, dataset->time_unit, raw);
        take(run, i, raw);
        /* The graph was made without event features. */
        struct dl_event event = dataset->events[i];
        event.features = NULL;
        status = dl_graph_apply(graph, &event);
        if (status) dl_error_set(error, status, "drift: the graph is full or out of memory");
        if (i % PROGRESS_EVERY == 0) {
            dl_progress_advance(run->progress, stage, i, end, "events");
            if (dl_progress_cancelled(run->progress)) status = DL_ERR_CANCELLED;
        }
    }
    dl_graph_free(graph);
    return status;
}

static void take_samples(struct run *run, uint64_t event, const float *raw)
{
    sample_offer(&run->before, event, raw);
    sample_offer(&run->after, event, raw);
    if (event < run->before.span.end) dl_drift_builder_offer(run->builder, event, raw);
}

static void take_curve(struct run *run, uint64_t event, const float *raw)
{
    struct dl_drift_offline *result = run->result;
    const uint64_t stride = 1 + run->dataset->event_count / DL_DRIFT_CURVE_POINTS;
    /* Not while everything is new. */
    if (event < result->before.begin) return;
    dl_drift_monitor_observe(run->monitor, raw, run->dataset->events[event].time, event);
    if (event % stride || event + 1 < result->before.begin + result->window ||
        result->point_count == DL_DRIFT_CURVE_POINTS)
        return;
    result->points[result->point_count].event = event;
    result->points[result->point_count++].statistic = dl_drift_monitor_statistic(run->monitor);
}

static void take_alert(void *context, const struct dl_alert *alert)
{
    struct dl_drift_offline *result = context;
    if (result->alert_count == DL_DRIFT_OFFLINE_ALERTS) {
        result->alerts_left_out++;
        return;
    }
    const uint32_t k = result->alert_count++;
    result->alerts[k].event = alert->seq;
    result->alerts[k].time = alert->time;
    result->alerts[k].raised = alert->raised;
    result->alerts[k].statistic = alert->statistic;
    snprintf(result->alerts[k].feature, sizeof result->alerts[k].feature, "%s",
             alert->feature_count ? alert->features[0].name : "");
}

/* ---- the comparison ------------------------------------------------------------------ */

static int farther(const void *a, const void *b)
{
    const struct dl_drift_offline_feature *x = a, *y = b;
    return (x->distance < y->distance) - (x->distance > y->distance);
}

static double mean_of(const struct sample *sample, int column, double otherwise)
{
    double sum = 0;
    uint32_t valid = 0;
    for (uint32_t i = 0; i < sample->rows; i++) {
        double x = sample->raw[(size_t)i * DL_DRIFT_COLUMNS + column];
        if (isfinite(x)) sum += x, valid++;
    }
    return valid ? sum / valid : otherwise;
}

static int compare_features(struct run *run, const struct dl_reference *scale, const float *before,
                            const float *after, struct dl_error *error)
{
    struct dl_drift_offline *result = run->result;
    const uint32_t n = run->before.rows, m = run->after.rows;
    float *x = malloc((n + m) * sizeof *x), *y = x + n;
    double total = 0;
    if (!x) return dl_error_set(error, DL_ERR_NOMEM, "drift: out of memory");
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        for (uint32_t i = 0; i < n; i++) x[i] = before[(size_t)i * DL_DRIFT_COLUMNS + c];
        for (uint32_t i = 0; i < m; i++) y[i] = after[(size_t)i * DL_DRIFT_COLUMNS + c];
        struct dl_drift_offline_feature *feature = &result->features[c];
        feature->name = dl_drift_column_names[c];
        feature->sd = scale->sd[c];
        feature->before_mean = mean_of(&run->before, c, scale->mean[c]);
        feature->after_mean = mean_of(&run->after, c, scale->mean[c]);
        feature->distance = dl_two_sample_energy(x, n, y, m);
        total += feature->distance;
    }
    for (int c = 0; total > 0 && c < DL_DRIFT_COLUMNS; c++)
        result->features[c].share = result->features[c].distance / total;
    qsort(result->features, DL_DRIFT_COLUMNS, sizeof *result->features, farther);
    free(x);
    return DL_OK;
}

static int compare(struct run *run, const struct dl_drift_offline_options *options,
                   struct dl_error *error)
{
    const uint32_t n = run->before.rows, m = run->after.rows;
    struct dl_drift_offline *result = run->result;
    struct dl_reference scale = {0};
    float *after = NULL;
    float weight[DL_DRIFT_COLUMNS];
    int status = dl_drift_reference_build(run->before.raw, n, result->block_rows, 0, &scale, error);
    if (status == DL_OK && !(after = malloc((size_t)m * DL_DRIFT_COLUMNS * sizeof *after)))
        status = dl_error_set(error, DL_ERR_NOMEM, "drift: out of memory");
    if (status) goto done;
    for (uint32_t i = 0; i < m; i++)
        dl_drift_standardise(&scale, run->after.raw + (size_t)i * DL_DRIFT_COLUMNS,
                             after + (size_t)i * DL_DRIFT_COLUMNS);
    status = compare_features(run, &scale, scale.values, after, error);
    if (status) goto done;
    dl_drift_weigh(&scale, result->block_rows, INFINITY, weight);
    for (uint32_t i = 0; i < n * DL_DRIFT_COLUMNS; i++)
        scale.values[i] *= weight[i % DL_DRIFT_COLUMNS];
    for (uint32_t i = 0; i < m * DL_DRIFT_COLUMNS; i++) after[i] *= weight[i % DL_DRIFT_COLUMNS];
    struct dl_two_sample_config test = {DL_DRIFT_COLUMNS, result->block_rows, result->permutations,
                                        options->seed};
    status = dl_two_sample_test(&test, scale.values, n, after, m, &result->test, error);
done:
    dl_drift_reference_deinit(&scale);
    free(after);
    return status;
}

/* The curve is extra: where the span is too short for a reference, say so. */
static int run_monitor(struct run *run, const struct dl_drift_config *config,
                       struct dl_error *error)
{
    struct dl_drift_offline *result = run->result;
    struct dl_reference reference = {0};
    struct dl_error problem = {{0}};
    int status = dl_drift_builder_finish(run->builder, &reference, &problem);
    if (status == DL_OK)
        status =
            dl_drift_monitor_new(config, &reference, take_alert, result, &run->monitor, &problem);
    if (status) {
        snprintf(result->monitor_problem, sizeof result->monitor_problem, "%.159s", problem.text);
        if (status != DL_ERR_NOMEM) status = DL_OK;
        goto done;
    }
    struct dl_drift_snapshot snapshot;
    dl_drift_monitor_snapshot(run->monitor, &snapshot);
    result->window = snapshot.window;
    result->threshold = snapshot.threshold;
    snprintf(result->warning_text, sizeof result->warning_text, "%s", snapshot.warning);
    result->warning = result->warning_text;
    status = walk(run, "watching", run->dataset->event_count, take_curve, error);
    result->has_monitor = status == DL_OK;
done:
    dl_drift_reference_deinit(&reference);
    return status;
}

static int find_spans(const struct dl_dataset *dataset,
                      const struct dl_drift_offline_options *options,
                      struct dl_drift_offline *result, struct dl_error *error)
{
    const double n = (double)dataset->event_count;
    if (options->spans_given) {
        result->before = (struct dl_drift_span){(uint64_t)(options->before[0] * n),
                                                (uint64_t)(options->before[1] * n)};
        result->after = (struct dl_drift_span){(uint64_t)(options->after[0] * n),
                                               (uint64_t)(options->after[1] * n)};
    } else {
        struct dl_split split;
        int status = dl_split_make(dataset, &split, error);
        if (status) return status;
        result->before =
            (struct dl_drift_span){split.begin[DL_SPLIT_TRAIN], split.end[DL_SPLIT_TRAIN]};
        result->after =
            (struct dl_drift_span){split.begin[DL_SPLIT_TEST], split.end[DL_SPLIT_TEST]};
    }
    /* While a feed is young everything in it is new: not what it is compared with. */
    uint64_t old_enough = result->before.begin + (result->before.end - result->before.begin) / 2;
    if (old_enough > DL_DRIFT_HORIZON_EVENTS) old_enough = DL_DRIFT_HORIZON_EVENTS;
    if (result->before.begin < old_enough) result->before.begin = old_enough;
    return DL_OK;
}

int dl_drift_offline_run(const struct dl_dataset *dataset,
                         const struct dl_drift_offline_options *options,
                         const struct dl_progress *progress, struct dl_drift_offline *result,
                         struct dl_error *error)
{
    struct run run = {.dataset = dataset, .progress = progress, .result = result};
    const uint32_t rows = options->rows ? options->rows : ROWS_DEFAULT;
    struct dl_encoding encoding;

    memset(result, 0, sizeof *result);
    result->warning = "";
    result->block_rows = options->block_rows ? options->block_rows : BLOCK_DEFAULT;
    result->permutations = options->permutations ? options->permutations : PERMUTATIONS_DEFAULT;
    int status = find_spans(dataset, options, result, error);
    if (status == DL_OK)
        status =
            sample_begin(&run.before, result->before, rows, result->block_rows, "before", error);
    if (status == DL_OK)
        status = sample_begin(&run.after, result->after, rows, result->block_rows, "after", error);
    if (status == DL_OK && dl_drift_builder_new(result->before.end, &run.builder) != DL_OK)
        status = dl_error_set(error, DL_ERR_NOMEM, "drift: out of memory");
    if (status == DL_OK) status = dl_dataset_encoding(dataset, result->before.end, &encoding);
    if (status) goto done;
    run.gap = encoding.gap;
    const uint64_t last =
        result->before.end > result->after.end ? result->before.end : result->after.end;
    status = walk(&run, "comparing", last, take_samples, error);
    result->rows_before = run.before.rows;
    result->rows_after = run.after.rows;
    if (status == DL_OK) status = compare(&run, options, error);
    if (status == DL_OK) status = run_monitor(&run, &options->monitor, error);
done:
    dl_drift_builder_free(run.builder);
    dl_drift_monitor_free(run.monitor);
    free(run.before.raw);
    free(run.after.raw);
    return status;
}
