/* driftline drift: how far a recorded feed has moved, and in what. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/evaluate.h"
#include "service/commands.h"
#include "service/drift_offline.h"
#include "service/flags.h"
#include "service/json_out.h"
#include "service/progress.h"

enum {
    BEFORE = 1,
    AFTER,
    ROWS,
    BLOCK,
    PERMUTATIONS,
    WINDOW,
    RUN_LENGTH,
    FORM,
    SEED,
    PLOT,
    MODEL,
    JSON,
    HELP
};

static const struct option long_options[] = {
    {"before", required_argument, NULL, BEFORE},
    {"after", required_argument, NULL, AFTER},
    {"rows", required_argument, NULL, ROWS},
    {"block", required_argument, NULL, BLOCK},
    {"permutations", required_argument, NULL, PERMUTATIONS},
    {"window", required_argument, NULL, WINDOW},
    {"run-length", required_argument, NULL, RUN_LENGTH},
    {"form", required_argument, NULL, FORM},
    {"seed", required_argument, NULL, SEED},
    {"plot", required_argument, NULL, PLOT},
    {"model", required_argument, NULL, MODEL},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    DL_FLAGS_DATA,
    {NULL, 0, NULL, 0}};

struct arguments {
    const char *file, *plot, *model;
    int json, before_given, after_given;
    struct dl_dataset_options data;
    struct dl_drift_offline_options drift;
};

static void help(void)
{
    const struct dl_drift_config *d = &dl_drift_config_default;
    printf(
        "usage: driftline drift FILE [flags]\n"
        "       driftline drift --renew [--reason TEXT] [--server HOST:PORT]\n"
        "\n"
        "Compares two spans of a recorded feed by the features that the service watches: the\n"
        "maximum mean discrepancy (MMD) between them with its p-value, and how far each\n"
        "feature moved. Then runs the service's monitor over the whole feed, with the span\n"
        "before as its reference, and lists the alerts that it would have raised.\n"
        "\n"
        "With --renew: a running service takes its recent span as the new reference, and an\n"
        "alert that stands is cleared; the alert history says who did it, and why (flags as\n"
        "for driftline query).\n"
        "\n"
        "  driftline simulate --out events.csv --shift communities@40000\n"
        "  driftline drift events.csv --plot drift.svg\n"
        "\n"
        "  --before FROM:TO      span compared with, as shares of the events (the training\n"
        "                        span: up to the 70 %% quantile of the times)\n"
        "  --after FROM:TO       span compared (the test span: from the 85 %% quantile on)\n"
        "  --rows N              rows of each span that are compared (2000)\n"
        "  --block N             consecutive rows that stay together when spans are permuted;\n"
        "                        more where events depend on each other for longer (50)\n"
        "  --permutations N      of blocks, for the p-value (999)\n"
        "  --window N            events of the monitor's window (%u)\n"
        "  --run-length N        events between false alarms that its threshold is set for (%.0f)\n"
        "  --form FORM           of the statistic watched: fourier (default) or exact\n"
        "  --seed N              of everything random (%" PRIu64 ")\n"
        "  --model MODEL         also measure the model's average precision on the span after,\n"
        "                        against random negatives (train it on the span before)\n"
        "  --plot FILE           write a picture (SVG)\n"
        "  --json                print one JSON object instead of a report\n"
        "\n",
        d->window, d->run_length_events, d->seed);
    dl_flag_data_help(stdout);
}

/* ---- arguments ------------------------------------------------------------------- */

static int take_span(const char *flag, const char *text, double span[2], struct dl_error *error)
{
    char *end;
    span[0] = strtod(text, &end);
    if (end != text && *end == ':' && end[1]) {
        span[1] = strtod(end + 1, &end);
        if (*end == 0 && span[0] >= 0 && span[0] < span[1] && span[1] <= 1) return DL_OK;
    }
    return dl_error_set(error, DL_ERR_INVALID,
                        "--%s %.40s is no span: write FROM:TO as shares of the events, such as "
                        "0:0.5",
                        flag, text);
}

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    static const char *const forms[] = {"fourier", "exact", NULL};
    uint64_t number = 0;
    int status = DL_OK, choice = 0;

    switch (code) {
    case BEFORE:
        a->before_given = 1;
        return take_span("before", value, a->drift.before, error);
    case AFTER:
        a->after_given = 1;
        return take_span("after", value, a->drift.after, error);
    case ROWS:
        status = dl_flag_uint("rows", value, 100, DL_TWO_SAMPLE_ROWS_MAX, &number, error);
        a->drift.rows = (uint32_t)number;
        break;
    case BLOCK:
        status = dl_flag_uint("block", value, 1, DL_TWO_SAMPLE_ROWS_MAX / 2, &number, error);
        a->drift.block_rows = (uint32_t)number;
        break;
    case PERMUTATIONS:
        status = dl_flag_uint("permutations", value, 19, 100000, &number, error);
        a->drift.permutations = (uint32_t)number;
        break;
    case WINDOW:
        status = dl_flag_uint("window", value, 32, DL_MMD_WINDOW_MAX / 4, &number, error);
        a->drift.monitor.window = (uint32_t)number;
        break;
    case RUN_LENGTH:
        return dl_flag_number("run-length", value, 32, 1e15, &a->drift.monitor.run_length_events,
                              error);
    case FORM:
        status = dl_flag_choice("form", value, forms, &choice, error);
        a->drift.monitor.form = choice ? DL_MMD_EXACT : DL_MMD_FOURIER;
        break;
    case SEED:
        status = dl_flag_uint("seed", value, 0, UINT64_MAX, &a->drift.seed, error);
        a->drift.monitor.seed = a->drift.seed;
        break;
    case PLOT:
        a->plot = value;
        break;
    case MODEL:
        a->model = value;
        break;
    case JSON:
        a->json = 1;
        break;
    default:
        return dl_flag_data(code, value, &a->data, error);
    }
    return status;
}

static int parse(int argc, char **argv, struct arguments *a, int *done)
{
    memset(a, 0, sizeof *a);
    a->drift.monitor = dl_drift_config_default;
    a->drift.seed = dl_drift_config_default.seed;
    int flags = dl_flags_read("drift", argc, argv, long_options, help, take_flag, a);
    *done = flags == DL_FLAGS_HELPED;
    if (*done) return DL_EXIT_OK;
    if (flags == DL_FLAGS_WRONG) return DL_EXIT_USAGE;
    if (optind + 1 != argc || a->before_given != a->after_given) {
        fprintf(stderr, "driftline drift: %s (--help shows how)\n",
                optind + 1 != argc ? "name one file to look at"
                                   : "--before and --after go together");
        return DL_EXIT_USAGE;
    }
    a->drift.spans_given = a->before_given;
    a->file = argv[optind];
    return DL_EXIT_OK;
}

/* ---- the model ------------------------------------------------------------------------- */

#define SCORED_MAX 4000 /* events of the span after, spread evenly over it */
#define SCORED_DRAWS 5

/* What the model makes of the span after. */
struct scored {
    int given;
    double trained_ap;
    struct dl_evaluate_result result;
};

static int score_span(const struct arguments *a, const struct dl_dataset *dataset,
                      struct dl_drift_span span, const struct dl_progress *progress,
                      struct scored *scored, struct dl_error *error)
{
    struct dl_model *model;
    int status = dl_model_load(a->model, &model, error);
    if (status != DL_OK) return status;
    const struct dl_model_info *info = dl_model_get_info(model);
    struct dl_scorer scorer = dl_scorer_network(dl_model_get_network(model), &info->calibration);
    struct dl_evaluate_options options = dl_evaluate_options_default;
    options.first = span.begin;
    options.end = span.end;
    options.limit = SCORED_MAX;
    options.draws = SCORED_DRAWS;
    options.candidates = 0;
    options.seed = a->drift.seed;
    options.progress = *progress;
    if (info->time_unit != dataset->time_unit)
        status =
            dl_error_set(error, DL_ERR_INVALID, "%s was trained on times in %s, not %s", a->model,
                         dl_time_unit_name(info->time_unit), dl_time_unit_name(dataset->time_unit));
    else if (dl_ties_parse(info->ties, &options.ties) != DL_OK)
        status = dl_error_set(error, DL_ERR_INVALID, "%s: trained under \"%.15s\", no tie policy",
                              a->model, info->ties);
    else
        status = dl_evaluate_run(dataset, &scorer, &options, &scored->result, error);
    scored->given = status == DL_OK;
    scored->trained_ap = info->validation_ap;
    dl_model_unref(model);
    return status;
}

static void report_model(const struct scored *scored)
{
    if (!scored->given) return;
    printf("model        AP %.4f over %" PRIu64 " events of the span after, %.4f in its "
           "validation\n",
           scored->result.ap_pooled.mean, scored->result.scored, scored->trained_ap);
}

static void model_json(struct dl_json *json, const struct scored *scored)
{
    if (!scored->given) return;
    dl_json_key(json, "model");
    dl_json_open(json, '{');
    dl_json_key_number(json, "ap", scored->result.ap_pooled.mean);
    dl_json_key_number(json, "ap_sd", scored->result.ap_pooled.sd);
    dl_json_key_number(json, "auc", scored->result.auc_pooled.mean);
    dl_json_key_uint(json, "events", scored->result.scored);
    dl_json_key_number(json, "validation_ap", scored->trained_ap);
    dl_json_close(json, '}');
}

/* ---- reports ------------------------------------------------------------------------ */

static void print_span(const char *name, const struct dl_dataset *dataset,
                       struct dl_drift_span span, uint32_t rows)
{
    char from[40], to[40];
    dl_time_format(dataset->events[span.begin].time, dataset->time_unit, from);
    dl_time_format(dataset->events[span.end - 1].time, dataset->time_unit, to);
    printf("%-12s events %" PRIu64 " to %" PRIu64 " (%s to %s), %u rows compared\n", name,
           span.begin, span.end - 1, from, to, rows);
}

static void report_text(const struct dl_dataset *dataset, const struct dl_drift_offline *r,
                        const struct scored *scored)
{
    printf("data         %s: %" PRIu64 " edges, %u nodes, %u timestamps, SHA-256 %s\n",
           dataset->path, dataset->event_count, dataset->node_count, dataset->timestamp_count,
           dataset->hash);
    print_span("before", dataset, r->before, r->rows_before);
    print_span("after", dataset, r->after, r->rows_after);
    printf("MMD²         %.5f; without a shift 95 %% would lie below %.5f\n", r->test.mmd2,
           r->test.null_p95);
    printf("p-value      %.4g (%u permutations of blocks of %u consecutive events)\n",
           r->test.p_value, r->permutations, r->block_rows);
    report_model(scored);
    printf("\nfeature          mean before   mean after   moved by (sd)   distance   share\n");
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        const struct dl_drift_offline_feature *f = &r->features[c];
        printf("%-16s %11.4g  %11.4g  %14.2f  %9.4f  %5.1f %%\n", f->name, f->before_mean,
               f->after_mean, (f->after_mean - f->before_mean) / f->sd, f->distance,
               100 * f->share);
    }
    if (!r->has_monitor) {
        printf("\nmonitor      not run: %s\n", r->monitor_problem);
        return;
    }
    printf("\nmonitor      window %u events, threshold %.5f\n", r->window, r->threshold);
    if (r->warning[0]) printf("             %s\n", r->warning);
    if (!r->alert_count) printf("             no alert over the whole feed\n");
    for (uint32_t k = 0; k < r->alert_count; k++) {
        char when[40];
        dl_time_format(r->alerts[k].time, dataset->time_unit, when);
        printf("             %-7s event %" PRIu64 " (%s), statistic %.5f%s%s\n",
               r->alerts[k].raised ? "raised" : "cleared", r->alerts[k].event, when,
               r->alerts[k].statistic, r->alerts[k].raised ? ", most of all " : "",
               r->alerts[k].raised ? r->alerts[k].feature : "");
    }
    if (r->alerts_left_out) printf("             and %u more\n", r->alerts_left_out);
}

static void span_json(struct dl_json *json, const char *key, const struct dl_dataset *dataset,
                      struct dl_drift_span span, uint32_t rows)
{
    dl_json_key(json, key);
    dl_json_open(json, '{');
    dl_json_key_uint(json, "first_event", span.begin);
    dl_json_key_uint(json, "last_event", span.end - 1);
    dl_json_key_int(json, "first_time", dataset->events[span.begin].time);
    dl_json_key_int(json, "last_time", dataset->events[span.end - 1].time);
    dl_json_key_uint(json, "rows", rows);
    dl_json_close(json, '}');
}

static void monitor_json(struct dl_json *json, const struct dl_drift_offline *r)
{
    dl_json_key(json, "monitor");
    if (!r->has_monitor) {
        dl_json_null(json);
        return;
    }
    dl_json_open(json, '{');
    dl_json_key_uint(json, "window", r->window);
    dl_json_key_number(json, "threshold", r->threshold);
    dl_json_key_text(json, "warning", r->warning);
    dl_json_key(json, "alerts");
    dl_json_open(json, '[');
    for (uint32_t k = 0; k < r->alert_count; k++) {
        dl_json_open(json, '{');
        dl_json_key_bool(json, "raised", r->alerts[k].raised);
        dl_json_key_uint(json, "event", r->alerts[k].event);
        dl_json_key_int(json, "time", r->alerts[k].time);
        dl_json_key_number(json, "statistic", r->alerts[k].statistic);
        dl_json_key_text(json, "feature", r->alerts[k].feature);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
    dl_json_key_uint(json, "alerts_left_out", r->alerts_left_out);
    dl_json_close(json, '}');
}

static void report_json(const struct dl_dataset *dataset, const struct dl_drift_offline *r,
                        const struct scored *scored)
{
    struct dl_buf buf = {0};
    struct dl_json json = dl_json_of(&buf);

    dl_json_open(&json, '{');
    dl_json_key(&json, "data");
    dl_json_open(&json, '{');
    dl_json_key_text(&json, "file", dataset->path);
    dl_json_key_text(&json, "hash", dataset->hash);
    dl_json_key_uint(&json, "edges", dataset->event_count);
    dl_json_key_uint(&json, "nodes", dataset->node_count);
    dl_json_key_uint(&json, "timestamps", dataset->timestamp_count);
    dl_json_key_text(&json, "time_unit", dl_time_unit_name(dataset->time_unit));
    dl_json_close(&json, '}');
    span_json(&json, "before", dataset, r->before, r->rows_before);
    span_json(&json, "after", dataset, r->after, r->rows_after);
    dl_json_key_number(&json, "mmd2", r->test.mmd2);
    dl_json_key_number(&json, "p_value", r->test.p_value);
    dl_json_key_number(&json, "null_p95", r->test.null_p95);
    dl_json_key_number(&json, "kernel_width", r->test.width);
    dl_json_key_uint(&json, "block_rows", r->block_rows);
    dl_json_key_uint(&json, "permutations", r->permutations);
    dl_json_key(&json, "features");
    dl_json_open(&json, '[');
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        const struct dl_drift_offline_feature *f = &r->features[c];
        dl_json_open(&json, '{');
        dl_json_key_text(&json, "name", f->name);
        dl_json_key_number(&json, "before", f->before_mean);
        dl_json_key_number(&json, "after", f->after_mean);
        dl_json_key_number(&json, "sd", f->sd);
        dl_json_key_number(&json, "distance", f->distance);
        dl_json_key_number(&json, "share", f->share);
        dl_json_close(&json, '}');
    }
    dl_json_close(&json, ']');
    monitor_json(&json, r);
    model_json(&json, scored);
    dl_json_close(&json, '}');
    dl_buf_u8(&buf, '\n');
    fwrite(buf.data, 1, buf.size, stdout);
    dl_buf_free(&buf);
}

static int write_plot(const char *path, const struct dl_dataset *dataset,
                      const struct dl_drift_offline *result, struct dl_error *error)
{
    struct dl_buf svg = {0};
    dl_drift_offline_plot(dataset, result, &svg);
    FILE *out = svg.failed ? NULL : fopen(path, "w");
    int failed = !out || fwrite(svg.data, 1, svg.size, out) != svg.size;
    if (out) failed |= fclose(out) != 0;
    dl_buf_free(&svg);
    return failed ? dl_error_set(error, DL_ERR_IO, "%s: could not write the picture: %s", path,
                                 strerror(errno))
                  : DL_OK;
}

/* ---- the command ------------------------------------------------------------------------ */

int dl_cmd_drift(int argc, char **argv)
{
    struct arguments a;
    struct dl_dataset *dataset = NULL;
    struct dl_drift_offline *result = NULL;
    struct dl_error error = {{0}};
    struct dl_progress_line line;
    struct scored scored = {0};

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--renew") == 0) return dl_cmd_drift_renew(argc, argv);
    int done, status, code = parse(argc, argv, &a, &done);
    if (done || code != DL_EXIT_OK) return code;
    dl_progress_line_init(&line, stderr);
    struct dl_progress progress = dl_progress_line_hook(&line);
    result = malloc(sizeof *result);
    status = result ? DL_OK : dl_error_set(&error, DL_ERR_NOMEM, "out of memory");
    if (status == DL_OK) status = dl_dataset_load(a.file, &a.data, &progress, &dataset, &error);
    if (status == DL_OK)
        status = dl_drift_offline_run(dataset, &a.drift, &progress, result, &error);
    if (status == DL_OK && a.model)
        status = score_span(&a, dataset, result->after, &progress, &scored, &error);
    dl_progress_line_end(&line);
    if (status == DL_OK) {
        if (a.json)
            report_json(dataset, result, &scored);
        else
            report_text(dataset, result, &scored);
        if (a.plot) status = write_plot(a.plot, dataset, result, &error);
    }
    if (status != DL_OK) fprintf(stderr, "driftline drift: %s\n", error.text);
    dl_dataset_free(dataset);
    free(result);
    return status == DL_OK ? DL_EXIT_OK : DL_EXIT_FAILED;
}
