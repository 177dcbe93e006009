/* driftline ingest: take recorded history into a store, nothing published. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model/dataset.h"
#include "service/commands.h"
#include "service/config.h"
#include "service/log.h"
#include "service/progress.h"
#include "service/service.h"
#include "service/version.h"

static void help(void)
{
    printf(
        "usage: driftline ingest FILE --store FILE --time-unit UNIT [flags]\n"
        "\n"
        "Takes recorded events (CSV with a header line, or --encoding json: one object a\n"
        "line; .gz is read as it is) into the store's windows and log. Nothing is scored or\n"
        "published; a service that is started on the store then knows the past. Give the\n"
        "same --config as for serve, so that window, features and time unit agree. Run again\n"
        "it goes on where it stopped.\n"
        "\n"
        "  --destinations FILE   fix the list that live quality draws its negatives from to\n"
        "                        the destinations of this CSV file, in order of appearance\n"
        "                        (else it grows with the feed)\n"
        "  --json                one JSON object at the end\n"
        "\n"
        "examples:\n"
        "  driftline ingest history.csv --store edges.db --time-unit ms\n"
        "  driftline ingest logins.csv.gz --config driftline.yaml --map src=user --map dst=host\n"
        "\n");
    dl_config_print_help(stdout);
}

struct run {
    uv_loop_t loop;
    uv_timer_t timer;
    struct dl_service *service;
    struct dl_progress_line line;
    uint64_t read_bytes, total_bytes, records, broken;
    const char *first_reason;
    char reason[800];
    uint64_t events;
    uint32_t nodes;
};

static void look(struct run *run)
{
    const char *reason = NULL;
    uint64_t read_bytes, total_bytes, records;
    dl_service_progress(run->service, &read_bytes, &total_bytes, &records, &run->broken, &reason);
    if (read_bytes) { /* zeros once the source is closed */
        run->read_bytes = read_bytes;
        run->total_bytes = total_bytes;
        run->records = records;
    }
    if (reason) snprintf(run->reason, sizeof run->reason, "%s", reason);
    run->events = dl_graph_feed(dl_engine_graph(dl_service_engine(run->service)))->events;
    run->nodes = dl_graph_feed(dl_engine_graph(dl_service_engine(run->service)))->nodes;
}

static void on_timer(uv_timer_t *timer)
{
    struct run *run = timer->data;
    look(run);
    /* Records left, from the bytes left. */
    uint64_t total =
        run->total_bytes && run->read_bytes
            ? (uint64_t)((double)run->records * (double)run->total_bytes / (double)run->read_bytes)
            : 0;
    dl_progress_line_advance(&run->line, "taking in", run->records, total, "events");
}

static void on_stopped(void *context)
{
    struct run *run = context;
    look(run);
    uv_close((uv_handle_t *)&run->timer, NULL);
}

static int take_value(int *argc, char **argv, const char *name, const char **value)
{
    for (int at = 1; at + 1 < *argc; at++) {
        if (strcmp(argv[at], name) != 0) continue;
        *value = argv[at + 1];
        memmove(argv + at, argv + at + 2, (size_t)(*argc - at - 1) * sizeof *argv);
        *argc -= 2;
        return 1;
    }
    return 0;
}

static int take_flag(int *argc, char **argv, const char *name)
{
    for (int at = 1; at < *argc; at++) {
        if (strcmp(argv[at], name) != 0) continue;
        memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv);
        (*argc)--;
        return 1;
    }
    return 0;
}

/* The destinations of `path` become the store's list; names not seen yet get ids. */
static int fix_destinations(const struct dl_config *config, const char *path,
                            struct dl_error *error)
{
    struct dl_dataset_options data = {.time_unit_given = 1,
                                      .time_unit = config->source.time_unit,
                                      .bipartite = config->source.bipartite};
    if (config->source.mapping.src[0]) data.src = config->source.mapping.src;
    if (config->source.mapping.dst[0]) data.dst = config->source.mapping.dst;
    if (config->source.mapping.time[0]) data.time = config->source.mapping.time;
    if (config->source.mapping.weight[0]) data.weight = config->source.mapping.weight;
    struct dl_store_options options = dl_store_options_default;
    struct dl_dataset *dataset = NULL;
    struct dl_store *store = NULL;
    struct dl_dictionary *nodes = NULL, *types = NULL;
    uint32_t *list = NULL;
    int status = dl_dataset_load(path, &data, NULL, &dataset, error);
    if (status != DL_OK) return status;
    options.adopt = 1;
    options.create = 0;
    status = dl_store_open(config->store.path, &options, &store, error);
    if (status != DL_OK) goto done;
    list = malloc((dataset->destination_count + 1) * sizeof *list);
    if (!list || dl_dictionary_new((uint32_t)config->store.nodes_max, &nodes) != DL_OK ||
        dl_dictionary_new(UINT16_MAX - 1, &types) != DL_OK) {
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for the destinations");
        goto done;
    }
    status = dl_store_load_names(store, nodes, types, error);
    if (status == DL_OK) status = dl_store_begin(store, error);
    for (uint32_t i = 0; status == DL_OK && i < dataset->destination_count; i++) {
        uint32_t theirs = dataset->destinations[i];
        int added;
        status = dl_dictionary_intern(nodes, dl_dictionary_space(dataset->nodes, theirs),
                                      dl_dictionary_name(dataset->nodes, theirs), &list[i], &added);
        if (status != DL_OK)
            dl_error_set(error, status, "more nodes than store.nodes_max");
        else if (added)
            status = dl_store_add_node(store, list[i], dl_dictionary_space(nodes, list[i]),
                                       dl_dictionary_name(nodes, list[i]), error);
    }
    if (status == DL_OK)
        status = dl_store_put_destinations(store, list, dataset->destination_count, error);
    if (status == DL_OK)
        status = dl_store_commit(store, error);
    else
        dl_store_rollback(store);
done:
    dl_store_close(store);
    dl_dictionary_free(nodes);
    dl_dictionary_free(types);
    dl_dataset_free(dataset);
    free(list);
    return status;
}

static int run_ingest(const struct dl_config *config, const char *destinations, int json,
                      struct dl_error *error)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    struct dl_service_options options = {.config = config,
                                         .handle_signals = 1,
                                         .stop_at_end = 1,
                                         .no_model = 1,
                                         .stopped = on_stopped,
                                         .context = run};
    int64_t begun_ns = dl_clock_monotonic_ns();
    uv_loop_init(&run->loop);
    int status = dl_service_new(&run->loop, &options, &run->service, error);
    if (status == DL_OK) {
        dl_progress_line_init(&run->line, stderr);
        uv_timer_init(&run->loop, &run->timer);
        run->timer.data = run;
        uv_timer_start(&run->timer, on_timer, 200, 200);
        uv_run(&run->loop, UV_RUN_DEFAULT);
        dl_progress_line_end(&run->line);
        if (dl_service_failure(run->service))
            status = dl_error_set(error, DL_ERR_IO, "%s", dl_service_failure(run->service));
        dl_service_free(run->service);
        uv_run(&run->loop, UV_RUN_NOWAIT);
    }
    uv_loop_close(&run->loop);
    if (status == DL_OK && destinations) status = fix_destinations(config, destinations, error);
    double seconds = (double)(dl_clock_monotonic_ns() - begun_ns) / 1e9;
    if (status == DL_OK && json)
        printf("{\"store\":\"%s\",\"records\":%" PRIu64 ",\"events\":%" PRIu64
               ",\"nodes\":%u,\"broken\":%" PRIu64 ",\"seconds\":%.3f}\n",
               config->store.path, run->records, run->events, run->nodes, run->broken, seconds);
    else if (status == DL_OK)
        printf("%s: %" PRIu64 " records read, the store holds %" PRIu64
               " events of %u nodes (%.1f s)\n",
               config->store.path, run->records, run->events, run->nodes, seconds);
    if (status == DL_OK && run->broken)
        status =
            dl_error_set(error, DL_ERR_INVALID,
                         "%" PRIu64 " records could not be read and were left out; the first: %s",
                         run->broken, run->reason);
    free(run);
    return status;
}

int dl_cmd_ingest(int argc, char **argv)
{
    struct dl_config config;
    struct dl_error error = {""};
    const char *destinations = NULL, *path = NULL;
    if (take_flag(&argc, argv, "--help") || take_flag(&argc, argv, "-h")) {
        help();
        return DL_EXIT_OK;
    }
    int json = take_flag(&argc, argv, "--json");
    take_value(&argc, argv, "--destinations", &destinations);
    for (int at = 1; at < argc && !path; at++) {
        /* The first word that is no flag and no flag's value. */
        if (argv[at][0] == '-') {
            if (!strchr(argv[at], '=')) at++;
            continue;
        }
        path = argv[at];
        memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv);
        argc--;
    }
    if (!path) {
        fprintf(stderr, "driftline ingest: which file? (driftline ingest FILE --store FILE)\n");
        return DL_EXIT_USAGE;
    }
    /* The file is the source, whatever the configuration file says. Put at the
     * end, where the last one wins; the encoding is the operator's if given. */
    char *words[128], source[4200], encoding[] = "--encoding", csv[] = "csv";
    char kind[] = "source.kind=file", set[] = "--set", set2[] = "--set";
    int count = 0;
    snprintf(source, sizeof source, "source.path=%s", path);
    if (argc > 110) {
        fprintf(stderr, "driftline ingest: too many flags\n");
        return DL_EXIT_USAGE;
    }
    words[count++] = argv[0];
    words[count++] = encoding;
    words[count++] = csv;
    for (int at = 1; at < argc; at++) words[count++] = argv[at];
    words[count++] = set;
    words[count++] = kind;
    words[count++] = set2;
    words[count++] = source;
    words[count] = NULL;
    int code = DL_EXIT_USAGE;
    int status = dl_config_load(&config, &count, words, &error);
    if (count > 1) {
        fprintf(stderr, "driftline ingest: %s is no flag of this command (--help lists them)\n",
                words[1]);
    } else if (status != DL_OK) {
        for (size_t k = 0; k < config.problems.count; k++)
            fprintf(stderr, "driftline ingest: %s\n", config.problems.items[k]);
        if (config.problems.count == 0) fprintf(stderr, "driftline ingest: %s\n", error.text);
    } else if (!dl_config_is_set(&config, "store.path") ||
               !dl_config_is_set(&config, "source.time_unit")) {
        fprintf(stderr, "driftline ingest: %s: say so with %s, or with --config FILE\n",
                dl_config_is_set(&config, "store.path") ? "what are the times in?"
                                                        : "into which store?",
                dl_config_is_set(&config, "store.path") ? "--time-unit UNIT" : "--store FILE");
    } else {
        dl_log_setup(config.log.level == DL_LOG_INFO ? DL_LOG_WARN : config.log.level,
                     config.log.format);
        code = DL_EXIT_OK;
        if (run_ingest(&config, destinations, json, &error) != DL_OK) {
            fprintf(stderr, "driftline ingest: %s\n", error.text);
            code = DL_EXIT_FAILED;
        }
    }
    dl_config_deinit(&config);
    return code;
}
