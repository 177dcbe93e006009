/* driftline demo: everything in one process, on an in-process Kafka broker,
 * with a simulated feed that shifts.
 *
 *   simulator ──> first part: a model is trained on it and the store learns it
 *             └─> the rest: a thread publishes it to topic `edges` at a steady
 *                 rate; the service follows as it would a real one
 *
 * The in-process broker keeps 5 MiB a partition; a feed that is followed live
 * never needs more. */
#include <dirent.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "model/dataset.h"
#include "model/train.h"
#include "proto/event_codec.h"
#include "service/commands.h"
#include "service/config.h"
#include "service/flags.h"
#include "service/kafka_embedded.h"
#include "service/kafka_feed.h"
#include "service/log.h"
#include "service/progress.h"
#include "service/service.h"
#include "service/simulator.h"

#define TOPIC "edges"

struct demo {
    /* flags */
    uint64_t seconds;  /* 0: until a signal */
    uint64_t history;  /* events that the model is trained on */
    double rate;       /* events a second */
    uint64_t shift_at; /* live events before the shift; UINT64_MAX: none */
    uint32_t shift_count;
    enum dl_shift_kind shifts[DL_SIMULATOR_SHIFTS_MAX]; /* all at the same event */
    char shift_names[160];
    uint64_t seed;
    uint64_t threads;
    const char *rpc_listen, *http_listen;
    int json;

    char folder[PATH_MAX - 64];
    struct dl_simulator *simulator;
    struct dl_progress_line line;
    struct dl_model *model;
    struct dl_config config;
    struct dl_kafka_embedded *broker;
    struct dl_kafka_feed *feed;
    uv_loop_t loop;
    uv_timer_t timer;
    struct dl_service *service;
    struct dl_backend_listener listener;
    pthread_t feeder;
    atomic_int stop_feeding;
    int feeding, announced;
    int64_t begun_ns, end_ns;

    /* what was seen */
    uint64_t shift_seq; /* sequence number of the first event after the shift */
    uint64_t scores, predictions, raised, raised_before, cleared;
    int64_t delay_events; /* of the first shift alert after the shift; -1: none */
};

static void help(void)
{
    printf("usage: driftline demo [flags]\n"
           "\n"
           "Runs everything in one process: an in-process Kafka broker, a simulated feed, a model\n"
           "trained on the feed's first part, the service with RPC and the dashboard. After a\n"
           "while the people of the feed change their habits: watch the drift alert come. Renew\n"
           "the reference on the dashboard and it clears.\n"
           "\n"
           "  --seconds N           end after N seconds of live feed, with a summary\n"
           "  --rate N              events a second (default 50)\n"
           "  --history N           events that the model is trained on (default 20000)\n"
           "  --shift KIND,...      rate, partners, communities, time-of-day, weight, or none\n"
           "                        (default partners,weight: new partners, other amounts)\n"
           "  --shift-after N       live events before the shift (default: 40 %% of --seconds, or\n"
           "                        2000)\n"
           "  --http ADDRESS        of the dashboard (default 127.0.0.1:8080, or any free port if "
           "it is\n"
           "                        taken; port 0: any free one)\n"
           "  --rpc ADDRESS         of gRPC (default 127.0.0.1:50051, likewise)\n"
           "  --seed N              another feed (default 1)\n"
           "  --threads N           for training (default: all processors)\n"
           "  --json                JSON lines: one when ready, one as summary\n");
}

/* ---- the past ------------------------------------------------------------------------- */

/* The model's history, as recorded feed. */
static int record_history(struct demo *demo, struct dl_dataset **out, struct dl_error *error)
{
    struct dl_dataset_options options = {.time_unit_given = 1, .time_unit = DL_TIME_MS};
    struct dl_dataset *dataset = NULL;
    struct dl_edge_event event;
    int status = dl_dataset_begin("simulated feed", &options, &dataset, error);
    for (uint64_t i = 0; status == DL_OK && i < demo->history; i++) {
        dl_simulator_next(demo->simulator, &event);
        status = dl_dataset_add(dataset, &event, error);
    }
    if (status == DL_OK) status = dl_dataset_finish(dataset, error);
    if (status == DL_OK)
        *out = dataset;
    else
        dl_dataset_free(dataset);
    return status;
}

static int train_model(struct demo *demo, const struct dl_dataset *dataset, struct dl_error *error)
{
    struct dl_train_options options = dl_train_options_default;
    struct dl_network *network = NULL;
    struct dl_model_info info = {0};
    struct dl_train_report report;
    struct dl_reference reference = {0};
    char path[PATH_MAX];
    options.network = dl_network_config_default;
    options.ties = DL_TIES_STREAM;
    options.epochs = 3;
    options.positives = 6000;
    options.batch = 50; /* short training: more steps */
    options.validation_events = 3000;
    options.seed = demo->seed;
    options.threads = (uint32_t)demo->threads;
    options.progress = dl_progress_line_hook(&demo->line);
    int status = dl_train_run(dataset, &options, &network, &info, &report, error);
    if (status == DL_OK) status = dl_train_reference(dataset, info.encoding.gap, &reference, error);
    snprintf(path, sizeof path, "%s/model.safetensors", demo->folder);
    if (status == DL_OK) status = dl_model_save(path, network, &info, &reference, error);
    if (status == DL_OK) status = dl_model_load(path, &demo->model, error);
    dl_drift_reference_deinit(&reference);
    dl_network_free(network);
    return status;
}

/* The same history into the store, through an engine without a model. */
static int store_history(struct demo *demo, const struct dl_dataset *dataset,
                         struct dl_error *error)
{
    struct dl_store_options options = dl_store_options_default;
    struct dl_store *store = NULL;
    struct dl_engine *engine = NULL;
    options.config = (struct dl_store_config){
        .time_unit = DL_TIME_MS, .window = (uint32_t)demo->config.store.window, .namespaces = 1};
    int status = dl_store_open(demo->config.store.path, &options, &store, error);
    struct dl_engine_parts parts = {.config = &demo->config, .store = store};
    if (status == DL_OK) status = dl_engine_new(&parts, &engine, error);
    for (uint64_t i = 0; status == DL_OK && i < dataset->event_count; i++) {
        const struct dl_event *from = &dataset->events[i];
        struct dl_edge_event event = {.src = dl_dictionary_name(dataset->nodes, from->src),
                                      .dst = dl_dictionary_name(dataset->nodes, from->dst),
                                      .time = from->time,
                                      .weight = from->weight,
                                      .has_weight = 1};
        struct dl_arrival arrival = {.topic = ""};
        status = dl_engine_offer(engine, &arrival, &event);
        if (status != DL_OK) dl_error_set(error, status, "%s", dl_engine_failure(engine));
    }
    if (status == DL_OK) {
        dl_engine_flush(engine);
        status = dl_engine_checkpoint(engine, error);
    }
    dl_engine_free(engine);
    dl_store_close(store);
    return status;
}

/* ---- the present ------------------------------------------------------------------------- */

static void *feed(void *argument)
{
    struct demo *demo = argument;
    struct dl_buf out = {0};
    struct dl_edge_event event;
    int64_t begun_ns = dl_clock_monotonic_ns();
    for (uint64_t sent = 0; !atomic_load(&demo->stop_feeding); sent++) {
        int64_t due_ns = begun_ns + (int64_t)((double)sent / demo->rate * 1e9);
        for (int64_t left_ns; (left_ns = due_ns - dl_clock_monotonic_ns()) > 0;) {
            struct timespec rest = {0, left_ns < 50000000 ? left_ns : 50000000};
            nanosleep(&rest, NULL);
            if (atomic_load(&demo->stop_feeding)) break;
        }
        dl_simulator_next(demo->simulator, &event);
        dl_buf_clear(&out);
        dl_event_encode_json(&event, DL_TIME_MS, &out);
        while (!out.failed && !atomic_load(&demo->stop_feeding) &&
               dl_kafka_feed_send(demo->feed, event.src, dl_buf_slice(&out), NULL) == DL_ERR_FULL)
            dl_kafka_feed_poll(demo->feed, 50);
        dl_kafka_feed_poll(demo->feed, 0);
    }
    dl_buf_free(&out);
    return NULL;
}

static void on_score(struct dl_backend_listener *listener, const struct dl_score *score)
{
    struct demo *demo = (struct demo *)((char *)listener - offsetof(struct demo, listener));
    (void)score;
    demo->scores++;
}

static void on_prediction(struct dl_backend_listener *listener,
                          const struct dl_prediction *prediction)
{
    struct demo *demo = (struct demo *)((char *)listener - offsetof(struct demo, listener));
    (void)prediction;
    demo->predictions++;
}

static void on_alert(struct dl_backend_listener *listener, const struct dl_alert *alert)
{
    struct demo *demo = (struct demo *)((char *)listener - offsetof(struct demo, listener));
    if (alert->kind != DL_ALERT_TEMPORAL_SHIFT) return;
    if (!alert->raised) {
        demo->cleared++;
        return;
    }
    demo->raised++;
    if (demo->shift_count == 0 || alert->seq < demo->shift_seq)
        demo->raised_before++;
    else if (demo->delay_events < 0)
        demo->delay_events = (int64_t)(alert->seq - demo->shift_seq);
}

static void announce(struct demo *demo)
{
    demo->announced = 1;
    if (demo->json)
        printf("{\"ready\":true,\"dashboard\":\"%s\",\"grpc\":\"%s\",\"kafka\":\"%s\","
               "\"topic\":\"%s\"}\n",
               dl_service_http_url(demo->service), dl_service_rpc_address(demo->service),
               dl_kafka_embedded_address(demo->broker), TOPIC);
    else
        printf("driftline demo ready: dashboard %s  gRPC %s  Kafka %s/%s\n",
               dl_service_http_url(demo->service), dl_service_rpc_address(demo->service),
               dl_kafka_embedded_address(demo->broker), TOPIC);
    fflush(stdout);
    if (!demo->seconds)
        fprintf(stderr, "the shift comes after %" PRIu64 " live events (%.0f s); Ctrl-C ends\n",
                demo->shift_seq - demo->history,
                (double)(demo->shift_seq - demo->history) / demo->rate);
    demo->begun_ns = dl_clock_monotonic_ns();
    demo->end_ns = demo->seconds ? demo->begun_ns + (int64_t)demo->seconds * 1000000000 : INT64_MAX;
    if (pthread_create(&demo->feeder, NULL, feed, demo) == 0) demo->feeding = 1;
}

static void on_timer(uv_timer_t *timer)
{
    struct demo *demo = timer->data;
    struct dl_error error;
    if (!demo->announced) {
        if (dl_service_ready(demo->service, &error)) announce(demo);
        return;
    }
    if (demo->seconds) {
        int64_t passed = (dl_clock_monotonic_ns() - demo->begun_ns) / 1000000000;
        dl_progress_line_advance(&demo->line, "running", (uint64_t)passed, demo->seconds, "s");
    }
    if (dl_clock_monotonic_ns() >= demo->end_ns && !atomic_load(&demo->stop_feeding)) {
        /* The feed ends first, so that the summary counts whole. */
        atomic_store(&demo->stop_feeding, 1);
        demo->end_ns = dl_clock_monotonic_ns() + 1500000000;
    } else if (dl_clock_monotonic_ns() >= demo->end_ns) {
        demo->end_ns = INT64_MAX;
        dl_service_stop(demo->service);
    }
}

static void on_stopped(void *context)
{
    struct demo *demo = context;
    uv_close((uv_handle_t *)&demo->timer, NULL);
}

/* ---- putting it together -------------------------------------------------------------------- */

static int open_broker(struct demo *demo, struct dl_error *error)
{
    static const char *const topics[] = {TOPIC, "driftline.scores", "driftline.predictions",
                                         "driftline.alerts", "driftline.dead-letters"};
    int status =
        dl_kafka_embedded_open(topics, sizeof topics / sizeof *topics, &demo->broker, error);
    if (status != DL_OK) return status;
    return dl_kafka_feed_open(dl_kafka_embedded_address(demo->broker), TOPIC, NULL, 0, &demo->feed,
                              error);
}

/* The usual port, or any free one where somebody listens already. */
static const char *free_address(int port)
{
    static char text[2][24];
    char *out = text[port == 8080];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int taken = probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) == 0;
    if (probe >= 0) close(probe);
    snprintf(out, sizeof text[0], "127.0.0.1:%d", taken ? 0 : port);
    return out;
}

static int configure(struct demo *demo, struct dl_error *error)
{
    char store[PATH_MAX];
    const char *keys[][2] = {
        {"source.kind", "kafka"},
        {"source.topics", TOPIC},
        {"source.encoding", "json"},
        {"source.time_unit", "ms"},
        {"source.future_skew", "off"},
        {"store.path", store},
        {"store.synchronous", "normal"},
        {"predict.encoding", "json"},
        {"predict.candidates_max", "100"},
        {"kafka.group.id", "driftline-demo"},
        {"kafka.fetch.wait.max.ms", "10"},
        {"log.level", "warn"},
        {"kafka.bootstrap.servers", dl_kafka_embedded_address(demo->broker)},
        {"http.listen", demo->http_listen ? demo->http_listen : free_address(8080)},
        {"rpc.listen", demo->rpc_listen ? demo->rpc_listen : free_address(50051)}};
    snprintf(store, sizeof store, "%s/demo.db", demo->folder);
    int status = dl_config_init(&demo->config);
    for (size_t i = 0; status == DL_OK && i < sizeof keys / sizeof *keys; i++)
        status = dl_config_set(&demo->config, keys[i][0], keys[i][1], "driftline demo");
    if (status == DL_OK) status = dl_config_finish(&demo->config, error);
    if (status == DL_OK) dl_log_setup(demo->config.log.level, demo->config.log.format);
    return status;
}

static int make_simulator(struct demo *demo, struct dl_error *error)
{
    struct dl_simulator_config config = dl_simulator_config_default;
    config.seed = demo->seed;
    if (demo->shift_at == UINT64_MAX)
        demo->shift_at =
            demo->seconds ? (uint64_t)(0.4 * (double)demo->seconds * demo->rate) : 2000;
    demo->shift_seq = demo->history + demo->shift_at;
    config.shift_count = demo->shift_count;
    for (uint32_t i = 0; i < demo->shift_count; i++)
        config.shifts[i] = (struct dl_shift){.kind = demo->shifts[i], .index = demo->shift_seq};
    return dl_simulator_new(&config, &demo->simulator, error);
}

static void summarise(struct demo *demo, uint64_t events, const struct dl_quality_figures *quality,
                      double seconds)
{
    uint64_t live = events - demo->history;
    if (demo->json) {
        printf("{\"seconds\":%.1f,\"events\":%" PRIu64 ",\"scores\":%" PRIu64
               ",\"predictions\":%" PRIu64 ",\"alerts_raised\":%" PRIu64
               ",\"alerts_before_shift\":%" PRIu64 ",\"alerts_cleared\":%" PRIu64
               ",\"shift\":\"%s\",\"shift_at\":%" PRIu64 ",\"delay_events\":%" PRId64
               ",\"live_ap\":%.4f,\"live_auc\":%.4f,\"live_mrr\":%.4f}\n",
               seconds, live, demo->scores, demo->predictions, demo->raised, demo->raised_before,
               demo->cleared, demo->shift_names, demo->shift_at, demo->delay_events, quality->ap,
               quality->auc, quality->mrr);
        return;
    }
    printf("%" PRIu64 " events in %.0f s: %" PRIu64 " scores, %" PRIu64 " predictions\n", live,
           seconds, demo->scores, demo->predictions);
    printf("live AP %.4f, AUC %.4f, MRR among 20 %.4f\n", quality->ap, quality->auc, quality->mrr);
    if (demo->shift_count == 0)
        printf("no shift was planted: %" PRIu64 " alerts\n", demo->raised);
    else if (events <= demo->shift_seq)
        printf("ended before the planted shift (live event %" PRIu64 "): %" PRIu64 " alerts\n",
               demo->shift_at, demo->raised);
    else if (demo->delay_events < 0)
        printf("planted shift (%s) at live event %" PRIu64 ": no alert in %" PRIu64
               " events; %" PRIu64 " before it\n",
               demo->shift_names, demo->shift_at, events - demo->shift_seq, demo->raised_before);
    else
        printf("planted shift (%s) at live event %" PRIu64 ": alert after %" PRId64
               " events (%.1f s); %" PRIu64 " before it, %" PRIu64 " cleared\n",
               demo->shift_names, demo->shift_at, demo->delay_events,
               (double)demo->delay_events / demo->rate, demo->raised_before, demo->cleared);
}

static int run_service(struct demo *demo, struct dl_error *error)
{
    struct dl_service_options options = {.config = &demo->config,
                                         .model = demo->model,
                                         .handle_signals = 1,
                                         .stopped = on_stopped,
                                         .context = demo};
    struct dl_backend backend;
    uv_loop_init(&demo->loop);
    int status = dl_service_new(&demo->loop, &options, &demo->service, error);
    if (status != DL_OK) {
        uv_loop_close(&demo->loop);
        return status;
    }
    dl_engine_backend(dl_service_engine(demo->service), &backend);
    demo->listener = (struct dl_backend_listener){
        .score = on_score, .prediction = on_prediction, .alert = on_alert};
    backend.listen(backend.context, &demo->listener);
    uv_timer_init(&demo->loop, &demo->timer);
    demo->timer.data = demo;
    uv_timer_start(&demo->timer, on_timer, 100, 100);
    uv_run(&demo->loop, UV_RUN_DEFAULT);
    dl_progress_line_end(&demo->line);
    atomic_store(&demo->stop_feeding, 1);
    if (demo->feeding) pthread_join(demo->feeder, NULL);
    if (dl_service_failure(demo->service))
        status = dl_error_set(error, DL_ERR_IO, "%s", dl_service_failure(demo->service));
    struct dl_engine *engine = dl_service_engine(demo->service);
    struct dl_quality_figures quality;
    dl_quality_figures(dl_engine_quality(engine), &quality);
    if (demo->announced)
        summarise(demo, dl_graph_feed(dl_engine_graph(engine))->events, &quality,
                  (double)(dl_clock_monotonic_ns() - demo->begun_ns) / 1e9);
    dl_service_free(demo->service);
    uv_run(&demo->loop, UV_RUN_NOWAIT);
    uv_loop_close(&demo->loop);
    return status;
}

static void remove_folder(const char *folder)
{
    char path[PATH_MAX + 256];
    DIR *entries = opendir(folder);
    if (!entries) return;
    for (struct dirent *entry; (entry = readdir(entries));) {
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(entries);
    rmdir(folder);
}

static int run(struct demo *demo, struct dl_error *error)
{
    const char *base = getenv("TMPDIR");
    struct dl_dataset *dataset = NULL;
    snprintf(demo->folder, sizeof demo->folder, "%s/driftline-demo-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(demo->folder))
        return dl_error_set(error, DL_ERR_IO, "cannot make a folder under %s",
                            base ? base : "/tmp");
    dl_progress_line_init(&demo->line, stderr);
    int status = make_simulator(demo, error);
    if (status == DL_OK) status = open_broker(demo, error);
    if (status == DL_OK) status = configure(demo, error);
    if (status == DL_OK) status = record_history(demo, &dataset, error);
    if (status == DL_OK) status = train_model(demo, dataset, error);
    if (status == DL_OK) status = store_history(demo, dataset, error);
    dl_progress_line_end(&demo->line);
    dl_dataset_free(dataset);
    if (status == DL_OK) status = run_service(demo, error);
    dl_kafka_feed_close(demo->feed);
    dl_kafka_embedded_close(demo->broker);
    dl_model_unref(demo->model);
    dl_simulator_free(demo->simulator);
    dl_config_deinit(&demo->config);
    remove_folder(demo->folder);
    return status;
}

static const struct option options[] = {{"seconds", required_argument, NULL, 's'},
                                        {"rate", required_argument, NULL, 'r'},
                                        {"history", required_argument, NULL, 'n'},
                                        {"shift", required_argument, NULL, 'k'},
                                        {"shift-after", required_argument, NULL, 'a'},
                                        {"http", required_argument, NULL, 'w'},
                                        {"rpc", required_argument, NULL, 'p'},
                                        {"seed", required_argument, NULL, 'e'},
                                        {"threads", required_argument, NULL, 't'},
                                        {"json", no_argument, NULL, 'j'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

/* "partners,weight", or "none". */
static int take_shifts(struct demo *demo, const char *value, struct dl_error *error)
{
    demo->shift_count = 0;
    snprintf(demo->shift_names, sizeof demo->shift_names, "%s", value);
    if (strcmp(value, "none") == 0) return DL_OK;
    for (const char *at = value; *at && demo->shift_count < DL_SIMULATOR_SHIFTS_MAX;) {
        size_t size = strcspn(at, ",");
        if (dl_shift_kind_parse(dl_slice_of(at, size), &demo->shifts[demo->shift_count++]) != DL_OK)
            return dl_error_set(error, DL_ERR_INVALID,
                                "--shift %s: rate, partners, communities, time-of-day, weight "
                                "(several with commas) or none is expected",
                                value);
        at += size + (at[size] == ',');
    }
    return DL_OK;
}

static int take_option(int code, char *value, void *context, struct dl_error *error)
{
    struct demo *demo = context;
    switch (code) {
    case 's':
        return dl_flag_uint("seconds", value, 1, 864000, &demo->seconds, error);
    case 'r':
        return dl_flag_number("rate", value, 0.1, 100000, &demo->rate, error);
    case 'n':
        return dl_flag_uint("history", value, 2000, 10000000, &demo->history, error);
    case 'k':
        return take_shifts(demo, value, error);
    case 'a':
        return dl_flag_uint("shift-after", value, 0, 1000000000, &demo->shift_at, error);
    case 'w':
        demo->http_listen = value;
        return DL_OK;
    case 'p':
        demo->rpc_listen = value;
        return DL_OK;
    case 'e':
        return dl_flag_uint("seed", value, 0, UINT64_MAX / 2, &demo->seed, error);
    case 't':
        return dl_flag_uint("threads", value, 0, 256, &demo->threads, error);
    case 'j':
        demo->json = 1;
        return DL_OK;
    default:
        return DL_ERR_INVALID;
    }
}

int dl_cmd_demo(int argc, char **argv)
{
    struct demo *demo = calloc(1, sizeof *demo);
    struct dl_error error = {""};
    int result = DL_EXIT_OK;
    if (!demo) return DL_EXIT_FAILED;
    demo->history = 20000;
    demo->rate = 50;
    demo->shift_at = UINT64_MAX;
    take_shifts(demo, "partners,weight", NULL);
    demo->seed = 1;
    demo->delay_events = -1;
    int flags = dl_flags_read("demo", argc, argv, options, help, take_option, demo);
    if (flags != DL_FLAGS_GO_ON) {
        free(demo);
        return flags == DL_FLAGS_HELPED ? DL_EXIT_OK : DL_EXIT_USAGE;
    }
    if (result == DL_EXIT_OK && optind < argc) {
        fprintf(stderr, "driftline demo: %s: no argument is expected\n", argv[optind]);
        result = DL_EXIT_USAGE;
    }
    if (result == DL_EXIT_OK && run(demo, &error) != DL_OK) {
        fprintf(stderr, "driftline demo: %s\n", error.text);
        result = DL_EXIT_FAILED;
    }
    free(demo);
    return result;
}
