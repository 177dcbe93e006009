/* driftline check: are this configuration, and the store, the model and the
 * brokers it names, fit to serve? One line for each that is; one line on
 * standard error for all that is wrong, with its place. */
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"
#include "service/commands.h"
#include "service/config.h"
#include "service/json_out.h"
#include "service/kafka_probe.h"
#include "service/line_source.h"
#include "service/log.h"
#include "store/store.h"

#define BROKER_TIMEOUT_MS 5000

struct check {
    struct dl_config config;
    bool print, markdown, integrity, offline, json;
    bool alone; /* --store or --model without a configuration: only those */
    unsigned problems;
    struct dl_buf out;
    struct dl_json document;
};

static void help(void)
{
    printf(
        "usage: driftline check --config FILE [flags]\n"
        "       driftline check --store FILE | --model FILE\n"
        "\n"
        "Says whether driftline serve can run: the configuration is valid, the store opens\n"
        "and was made for the same settings, the model loads and fits, the brokers answer\n"
        "and have the topics. What is wrong is said with its place, one line each. With a\n"
        "store or a model alone, that file is checked in full.\n"
        "\n"
        "  --integrity           read the whole store: every checksum and every count\n"
        "  --offline             do not ask the brokers\n"
        "  --print               print the configuration in force, with where each value is from\n"
        "  --markdown            print the table of keys as Markdown\n"
        "  --json                print one JSON object\n"
        "\n"
        "Exit codes: 0 fit, 1 something named by the configuration is not, 2 the\n"
        "configuration or the flags are wrong.\n"
        "\n");
    dl_config_print_help(stdout);
}

/* ---- findings ------------------------------------------------------------------ */

static void problem(struct check *check, const char *part, const char *text)
{
    if (check->json && check->problems == 0) {
        dl_json_key(&check->document, "problems");
        dl_json_open(&check->document, '[');
    }
    check->problems++;
    if (check->json) {
        dl_json_open(&check->document, '{');
        dl_json_key_text(&check->document, "part", part);
        dl_json_key_text(&check->document, "text", text);
        dl_json_close(&check->document, '}');
    } else {
        fprintf(stderr, "driftline check: %s: %s\n", part, text);
    }
}

static void good(const struct check *check, const char *part, const char *text)
{
    if (!check->json) printf("ok  %-14s %s\n", part, text);
}

/* ---- the store ------------------------------------------------------------------- */

static void report_store(struct check *check, const struct dl_store_report *report)
{
    char text[700];
    snprintf(text, sizeof text,
             "%.200s: %" PRIu64 " nodes, %" PRIu64 " events in the log (%" PRIu64 " to %" PRIu64
             "), %" PRIu64 " pages, %" PRIu64 " outbox rows, schema %d, window %u, %u features, "
             "time in %s, %" PRIu64 " bytes",
             check->config.store.path, report->nodes, report->log_events, report->log_first_seq,
             report->log_next_seq, report->pages, report->outbox_rows, (int)report->schema_version,
             report->config.window, report->config.feature_count,
             dl_time_unit_name(report->config.time_unit), report->file_bytes + report->wal_bytes);
    good(check, "store", text);
}

static void check_store(struct check *check)
{
    const struct dl_config *config = &check->config;
    struct dl_store_options options = dl_store_options_default;
    struct dl_store *store = NULL;
    struct dl_error error = {{0}};
    char text[700];
    if (!check->alone && access(config->store.path, F_OK) != 0) {
        char folder[DL_STORE_PATH_BYTES_MAX + 1];
        snprintf(folder, sizeof folder, "%s", config->store.path);
        char *slash = strrchr(folder, '/');
        snprintf(slash ? slash : folder, 2, slash ? "/" : ".");
        if (access(folder, W_OK | X_OK) != 0) {
            snprintf(text, sizeof text, "%.300s: nothing can be made in its folder: %s",
                     config->store.path, strerror(errno));
            problem(check, "store", text);
            return;
        }
        snprintf(text, sizeof text, "%.300s is not there yet; serve will make it",
                 config->store.path);
        good(check, "store", text);
        return;
    }
    options.read_only = 1;
    options.create = 0;
    options.adopt = check->alone;
    options.config = (struct dl_store_config){.time_unit = config->source.time_unit,
                                              .window = (uint32_t)config->store.window,
                                              .feature_count = (uint32_t)config->store.features,
                                              .namespaces = config->source.bipartite ? 2 : 1};
    if (dl_store_open(config->store.path, &options, &store, &error)) {
        problem(check, "store", error.text);
        return;
    }
    if (check->integrity || check->alone) {
        struct dl_store_report report = {0};
        if (dl_store_check(store, &report, &error))
            problem(check, "store", error.text);
        else if (report.problems) {
            snprintf(text, sizeof text, "%.200s: %" PRIu64 " problems; the first: %.400s",
                     config->store.path, report.problems, report.problem);
            problem(check, "store", text);
        } else {
            report_store(check, &report);
        }
    } else {
        struct dl_store_stats stats;
        dl_store_get_stats(store, &stats);
        snprintf(text, sizeof text, "%.300s: %" PRIu64 " nodes, %" PRIu64 " events taken in",
                 config->store.path, stats.nodes, stats.log_next_seq);
        good(check, "store", text);
    }
    dl_store_close(store);
}

/* ---- the model --------------------------------------------------------------------- */

static void check_model_fits(struct check *check, const struct dl_model_info *info)
{
    const struct dl_config *config = &check->config;
    char text[300];
    if (info->config.window > config->store.window) {
        snprintf(text, sizeof text,
                 "it reads windows of %u interactions, but store.window is %" PRIu64
                 "; set store.window to at least %u in a new store",
                 info->config.window, config->store.window, info->config.window);
        problem(check, "model", text);
    }
    if (info->config.feature_count > config->store.features) {
        snprintf(text, sizeof text,
                 "it reads %u features of each event, but store.features is %" PRIu64,
                 info->config.feature_count, config->store.features);
        problem(check, "model", text);
    }
    if (info->time_unit != config->source.time_unit) {
        snprintf(text, sizeof text,
                 "it was trained on times in %s, but source.time_unit is %s; train with "
                 "--time-unit %s",
                 dl_time_unit_name(info->time_unit), dl_time_unit_name(config->source.time_unit),
                 dl_time_unit_name(config->source.time_unit));
        problem(check, "model", text);
    }
}

static void check_source(struct check *check)
{
    const struct dl_config *config = &check->config;
    struct dl_error error = {{0}};
    if (config->source.kind != DL_SOURCE_FILE) return;
    if (dl_line_source_check(config, &error)) {
        dl_error_wrap(&error, DL_ERR_INVALID, "source.path");
        problem(check, "source", error.text);
    } else {
        good(check, "source", config->source.path);
    }
}

static void check_model(struct check *check)
{
    struct dl_model *model = NULL;
    struct dl_error error = {{0}};
    char text[700];
    if (!*check->config.model.path) {
        if (!check->alone)
            good(check, "model", "none is named (model.path): events are taken in, not scored");
        return;
    }
    if (dl_model_load(check->config.model.path, &model, &error)) {
        problem(check, "model", error.text);
        return;
    }
    const struct dl_model_info *info = dl_model_get_info(model);
    unsigned before = check->problems;
    if (!check->alone) check_model_fits(check, info);
    if (check->problems == before) {
        snprintf(text, sizeof text,
                 "%.200s: %s, version %s, window %u, %" PRIu64 " parameters, time in %s, trained "
                 "on %" PRIu64 " events, validation AP %.3f",
                 check->config.model.path, info->config.architecture, info->version,
                 info->config.window, info->parameters, dl_time_unit_name(info->time_unit),
                 info->data_edges, info->validation_ap);
        good(check, "model", text);
    }
    dl_model_unref(model);
}

/* ---- the brokers --------------------------------------------------------------------- */

/* Two services of one identity fence each other; which of them is meant to be there
 * only people know. */
static void check_group(struct check *check, const struct dl_kafka_probe *probe)
{
    char text[900], identity[300];
    const char *instance = dl_config_kafka_get(&check->config, "group.instance.id");
    if (probe->twins == 0) return;
    if (instance)
        snprintf(identity, sizeof identity, "with kafka.group.instance.id %.200s", instance);
    else
        snprintf(identity, sizeof identity, "without a kafka.group.instance.id, as here");
    snprintf(
        text, sizeof text,
        "group %s has %d member%s now, %d of them %s (at %s): unless that is this service, set "
        "kafka.group.id (another service) or kafka.group.instance.id (another instance)",
        probe->group, probe->members, probe->members == 1 ? "" : "s", probe->twins, identity,
        probe->twin_host);
    good(check, "kafka", text);
}

static void check_brokers(struct check *check)
{
    struct dl_kafka_probe probe;
    struct dl_error error = {{0}};
    char text[700];
    const char *brokers = dl_config_kafka_get(&check->config, "bootstrap.servers");
    if (!brokers || check->offline) return;
    if (dl_kafka_probe(&check->config, BROKER_TIMEOUT_MS, &probe, &error)) {
        problem(check, "kafka", error.text);
    } else if (*probe.missing) {
        snprintf(text, sizeof text, "%.200s: there is no topic %s; make it, or mend source.topics",
                 brokers, probe.missing);
        problem(check, "kafka", text);
    } else {
        snprintf(text, sizeof text, "%.200s: %d broker%s, %d source topic%s with %d partition%s",
                 brokers, probe.brokers, probe.brokers == 1 ? "" : "s", probe.topics,
                 probe.topics == 1 ? "" : "s", probe.partitions, probe.partitions == 1 ? "" : "s");
        good(check, "kafka", text);
        check_group(check, &probe);
    }
}

/* ---- the command ------------------------------------------------------------------------ */

/* Takes the flags of this command out of argv; the others are the configuration's. */
static int own_flags(struct check *check, int *argc, char **argv)
{
    int kept = 1;
    bool configured = getenv("DRIFTLINE_CONFIG") != NULL, file = false, value = false;
    for (int at = 1; at < *argc; at++) {
        const struct {
            const char *name;
            bool *value;
        } flags[] = {{"--print", &check->print},
                     {"--markdown", &check->markdown},
                     {"--integrity", &check->integrity},
                     {"--offline", &check->offline},
                     {"--json", &check->json}};
        bool taken = false;
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++)
            if (strcmp(argv[at], flags[k].name) == 0) *flags[k].value = taken = true;
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) return 1;
        if (taken) continue;
        bool names_file =
            strncmp(argv[at], "--store", 7) == 0 || strncmp(argv[at], "--model", 7) == 0;
        configured |= !names_file && !value;
        file |= names_file;
        value = names_file && !strchr(argv[at], '='); /* the next word is its value */
        argv[kept++] = argv[at];
    }
    *argc = kept;
    argv[kept] = NULL;
    check->alone = file && !configured;
    return 0;
}

/* DL_EXIT_OK when the configuration is valid. */
static int load(struct check *check, int argc, char **argv)
{
    struct dl_error error = {{0}};
    int code = DL_EXIT_OK, status = dl_config_init(&check->config);
    if (!status && (status = dl_config_read_args(&check->config, &argc, argv, &error))) {
        problem(check, "configuration", error.text); /* the file itself cannot be read */
        return DL_EXIT_USAGE;
    }
    /* A file alone needs none of what a Kafka source needs. */
    if (!status && check->alone)
        status = dl_config_set(&check->config, "source.kind", "stdin", "check");
    if (!status) status = dl_config_finish(&check->config, &error);
    for (int at = 1; at < argc; at++) {
        fprintf(stderr, "driftline check: %s is no flag of this command (--help lists them)\n",
                argv[at]);
        code = DL_EXIT_USAGE;
    }
    if (code || !status) return code;
    for (size_t k = 0; k < check->config.problems.count; k++)
        problem(check, "configuration", check->config.problems.items[k]);
    if (check->config.problems.count == 0) problem(check, "configuration", error.text);
    return DL_EXIT_USAGE;
}

int dl_cmd_check(int argc, char **argv)
{
    struct check check = {0};
    int code = DL_EXIT_OK;
    if (own_flags(&check, &argc, argv)) {
        help();
        return DL_EXIT_OK;
    }
    if (check.markdown) {
        dl_config_print_markdown(stdout);
        return DL_EXIT_OK;
    }
    dl_log_setup(DL_LOG_ERROR, DL_LOG_TEXT); /* findings are this command's, not the log's */
    check.document = dl_json_of(&check.out);
    if (check.json) dl_json_open(&check.document, '{');
    code = load(&check, argc, argv);
    if (code == DL_EXIT_OK) {
        if (check.print) dl_config_print(&check.config, stdout);
        if (!check.alone)
            good(&check, "configuration",
                 *check.config.path ? check.config.path : "from the environment and flags");
        if (!check.alone || dl_config_is_set(&check.config, "store.path")) check_store(&check);
        check_model(&check);
        if (!check.alone) check_source(&check);
        if (!check.alone) check_brokers(&check);
        code = check.problems ? DL_EXIT_FAILED : DL_EXIT_OK;
    }
    if (check.json) {
        if (check.problems) dl_json_close(&check.document, ']');
        dl_json_key_bool(&check.document, "ok", code == DL_EXIT_OK);
        dl_json_close(&check.document, '}');
        dl_buf_u8(&check.out, '\n');
        if (!check.out.failed) fwrite(check.out.data, 1, check.out.size, stdout);
    }
    dl_buf_free(&check.out);
    dl_config_deinit(&check.config);
    return code;
}
