/* The whole RPC service over a backend in memory, for tests with stock clients:
 * answers are simple functions of what was asked, so that a test can foretell
 * them. Takes the program's own configuration flags, prints its address, serves
 * until SIGTERM or the end of its standard input.
 *
 *   node "slow"     answers after a minute (or never, if cancelled)
 *   node "busy"     refuses with DL_ERR_FULL
 *   node "nobody"   is not known
 *   ingest          each event becomes a Score; of type "alert" an Alert, too;
 *                   of type "not-ready" and "ready" turn the health */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "service/rpc_methods.h"

#define ANSWER_MS 1
#define SLOW_MS 60000

static uv_loop_t loop;
static struct dl_rpc_server *server;
static struct dl_backend_listener *listeners;
static uint64_t events, alerts, broken_events, cancelled;
static int ready = 1;
static struct dl_alert standing;
static int has_standing;

/* ---- answering later ------------------------------------------------------------------ */

struct pending {
    uv_timer_t timer;
    struct dl_backend_job *job;
    union dl_backend_result result;
    void *owned[2];
    struct pending *next, **at;
};
static struct pending *pendings;

static void on_pending_closed(uv_handle_t *handle)
{
    struct pending *pending = (struct pending *)handle;
    free(pending->owned[0]);
    free(pending->owned[1]);
    free(pending);
}

static void settle(struct pending *pending)
{
    struct dl_error error = {"cancelled"};
    *pending->at = pending->next;
    if (pending->next) pending->next->at = pending->at;
    if (atomic_load(&pending->job->cancelled)) {
        cancelled++;
        pending->job->done(pending->job, DL_ERR_CANCELLED, &error, NULL);
    } else {
        pending->job->done(pending->job, DL_OK, NULL, &pending->result);
    }
    uv_close((uv_handle_t *)&pending->timer, on_pending_closed);
}

static void on_pending(uv_timer_t *timer)
{
    settle((struct pending *)timer);
}

static struct pending *later(struct dl_backend_job *job, struct dl_slice node)
{
    struct pending *pending = calloc(1, sizeof(*pending));
    uv_timer_init(&loop, &pending->timer);
    pending->job = job;
    pending->at = &pendings;
    pending->next = pendings;
    if (pendings) pendings->at = &pending->next;
    pendings = pending;
    int slow = dl_slice_equal(node, dl_slice_text("slow"));
    uv_timer_start(&pending->timer, on_pending, slow ? SLOW_MS : ANSWER_MS, 0);
    return pending;
}

static int refused(struct dl_slice node, struct dl_error *error)
{
    if (!dl_slice_equal(node, dl_slice_text("busy"))) return 0;
    dl_error_set(error, DL_ERR_FULL, "256 requests are being scored; try again later");
    return 1;
}

static uint64_t history_of(struct dl_slice node)
{
    return dl_slice_equal(node, dl_slice_text("nobody")) ? 0 : node.size;
}

static const struct dl_slice version = {(const uint8_t *)"0123456789abcdef", 16};

/* ---- the operations ----------------------------------------------------------------------- */

static struct dl_slice keep(char **text, struct dl_slice name)
{
    struct dl_slice kept = {(uint8_t *)*text, name.size};
    memcpy(*text, name.data, name.size);
    *text += name.size;
    return kept;
}

static void fill_score(struct dl_score *score, struct dl_slice src, struct dl_slice dst,
                       int64_t time)
{
    score->src = src;
    score->dst = dst;
    score->time = time;
    score->seq = events;
    score->src_history = history_of(src);
    score->dst_history = history_of(dst);
    score->probability = 1.0 / (double)(1 + src.size + dst.size);
    score->surprise_bits = (double)(src.size + dst.size);
    score->model_version = version;
}

static int score(void *context, const struct dl_backend_score_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    size_t bytes = 1;
    (void)context;
    if (refused(request->pairs[0].src, error)) return DL_ERR_FULL;
    struct pending *pending = later(job, request->pairs[0].src);
    for (uint32_t i = 0; i < request->pair_count; i++)
        bytes += request->pairs[i].src.size + request->pairs[i].dst.size;
    struct dl_score *scores = calloc(request->pair_count, sizeof(*scores));
    char *text = malloc(bytes);
    pending->owned[0] = scores;
    pending->owned[1] = text;
    for (uint32_t i = 0; i < request->pair_count; i++) {
        const struct dl_backend_pair *pair = &request->pairs[i];
        fill_score(&scores[i], keep(&text, pair->src), keep(&text, pair->dst),
                   pair->has_time ? pair->time : request->time);
    }
    pending->result.scores = (struct dl_backend_scores){request->pair_count, scores};
    return DL_OK;
}

static int top_k(void *context, const struct dl_backend_top_k_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    if (refused(request->node, error)) return DL_ERR_FULL;
    struct pending *pending = later(job, request->node);
    uint32_t count = request->candidate_count ? request->candidate_count : request->k;
    if (count > request->k) count = request->k;
    struct dl_candidate *list = calloc(count, sizeof(*list));
    char *text = malloc(count * DL_NAME_BYTES_MAX);
    pending->owned[0] = list;
    pending->owned[1] = text;
    for (uint32_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "node%u", i);
        list[i] = (struct dl_candidate){
            .node = keep(&text,
                         request->candidate_count ? request->candidates[i] : dl_slice_text(name)),
            .probability = 1.0 / (1 + i),
            .share = 1.0 / count,
            .origin = request->candidate_count ? DL_FROM_CALLER : DL_FROM_WINDOW | DL_FROM_POPULAR,
            .history = i,
        };
    }
    pending->result.prediction = (struct dl_prediction){.time = request->time,
                                                        .seq = events,
                                                        .history = history_of(request->node),
                                                        .scored = count,
                                                        .candidate_count = count,
                                                        .candidates = list,
                                                        .model_version = version};
    return DL_OK;
}

static const float features[2] = {0.5f, -1};

static int get_window(void *context, const struct dl_backend_window_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_backend_interaction list[3];
    uint32_t count = request->count_max && request->count_max < 3 ? request->count_max : 3;
    union dl_backend_result result = {.window = {.window_max = 64, .time_unit = DL_TIME_MS}};
    (void)context;
    (void)error;
    for (uint32_t i = 0; i < count; i++)
        list[i] = (struct dl_backend_interaction){.peer = dl_slice_text("peer"),
                                                  .time = 1000 - i,
                                                  .seq = 10 - i,
                                                  .type = dl_slice_text(i ? "" : "pay"),
                                                  .weight = 2,
                                                  .out = i % 2 == 0,
                                                  .feature_count = 2,
                                                  .features = features};
    if (history_of(request->node) > 0) {
        result.window.known = 1;
        result.window.events = 3;
        result.window.events_out = 2;
        result.window.events_in = 1;
        result.window.first_time = 998;
        result.window.last_time = 1000;
        result.window.interaction_count = count;
        result.window.interactions = list;
    }
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int explain(void *context, const struct dl_backend_explain_request *request,
                   struct dl_backend_job *job, struct dl_error *error)
{
    static const double weights[] = {0.1, 0.2, 0.3, 0.4}, entropy[] = {0.5, 0.6};
    struct dl_backend_token tokens[] = {
        {.side = 0, .self = 1, .weight = 0.75, .ratio_to_uniform = 1.5},
        {.side = 1,
         .event = {.peer = request->src, .time = 7, .weight = 1, .out = 0},
         .weight = 0.25,
         .ratio_to_uniform = 0.5,
         .weights = request->per_head ? weights : NULL},
    };
    union dl_backend_result result = {.explanation = {.time_unit = DL_TIME_MS,
                                                      .layers = 2,
                                                      .heads = 2,
                                                      .tokens = 2,
                                                      .entropy_nats = entropy,
                                                      .entropy_uniform_nats = 0.7,
                                                      .token_list = tokens}};
    (void)context;
    (void)error;
    fill_score(&result.explanation.score, request->src, request->dst, request->time);
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int get_drift(void *context, const struct dl_backend_drift_request *request,
                     struct dl_backend_job *job, struct dl_error *error)
{
    static const struct dl_alert_feature moved[] = {
        {.name = "gap", .share = 0.75, .before = 1, .now = 2},
        {.name = "degree", .share = 0.25, .before = 3, .now = 4}};
    struct dl_backend_quality quality = {.pairs = 100, .ap = 0.9, .auc = 0.8, .mrr = 0.7};
    union dl_backend_result result = {.drift = {.ready = 1,
                                                .reason = "",
                                                .statistic = 0.02,
                                                .threshold = 0.01,
                                                .p_value = 0.001,
                                                .window = 500,
                                                .reference_size = 1000,
                                                .alert_raised = has_standing,
                                                .feature_count = 2,
                                                .features = moved,
                                                .quality = &quality,
                                                .alert_count = has_standing && request->alerts_max,
                                                .alerts = &standing,
                                                .reference_origin = "model",
                                                .seq = events,
                                                .time = 5,
                                                .time_unit = DL_TIME_MS}};
    (void)context;
    (void)error;
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int renew_reference(void *context, const struct dl_backend_renew_request *request,
                           struct dl_backend_job *job, struct dl_error *error)
{
    (void)request;
    union dl_backend_result result = {.renewed = {1000, events, has_standing}};
    (void)context;
    (void)error;
    has_standing = 0;
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int get_model(void *context, struct dl_backend_job *job, struct dl_error *error)
{
    static struct dl_model_info info = {.config = {.architecture = "diffdyg",
                                                   .window = 8,
                                                   .width = 32,
                                                   .heads = 2,
                                                   .layers = 2,
                                                   .differential = 1},
                                        .calibration = {1.25, -0.5},
                                        .time_unit = DL_TIME_MS,
                                        .ties = "stream",
                                        .negatives = "random",
                                        .data_hash = "00ff",
                                        .validation_ap = 0.95,
                                        .validation_entropy = {0.5, 0.25},
                                        .version = "0123456789abcdef",
                                        .parameters = 12345};
    union dl_backend_result result = {.model = {&info, 1000, "avx2"}};
    (void)context;
    (void)error;
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int forget(void *context, const struct dl_backend_forget_request *request,
                  struct dl_backend_job *job, struct dl_error *error)
{
    union dl_backend_result result = {
        .forgotten = {history_of(request->node) > 0, history_of(request->node)}};
    (void)context;
    (void)error;
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

/* ---- ingest and the live streams ------------------------------------------------------------- */

static void publish(const struct dl_edge_event *event)
{
    struct dl_score record = {0};
    struct dl_candidate candidates[] = {{.node = event->dst, .probability = 0.9, .share = 0.6},
                                        {.node = event->src, .probability = 0.4, .share = 0.4}};
    fill_score(&record, event->src, event->dst, event->time);
    struct dl_prediction prediction = {.node = event->src,
                                       .time = event->time,
                                       .seq = events,
                                       .scored = 2,
                                       .candidate_count = 2,
                                       .candidates = candidates,
                                       .model_version = version};
    int alert = dl_slice_equal(event->type, dl_slice_text("alert"));
    if (dl_slice_equal(event->type, dl_slice_text("not-ready"))) ready = 0;
    if (dl_slice_equal(event->type, dl_slice_text("ready"))) ready = 1;
    if (alert) {
        has_standing = 1;
        standing = (struct dl_alert){.number = ++alerts,
                                     .kind = DL_ALERT_TEMPORAL_SHIFT,
                                     .raised = 1,
                                     .time = event->time,
                                     .seq = events,
                                     .statistic = 0.5,
                                     .threshold = 0.1,
                                     .reason = "gaps doubled"};
    }
    for (struct dl_backend_listener *l = listeners; l; l = l->next) {
        l->score(l, &record);
        l->prediction(l, &prediction);
        if (alert) l->alert(l, &standing);
    }
    events++;
}

static int ingest(void *context, const struct dl_backend_ingest_request *request,
                  struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    if (refused(request->events[0].src, error)) return DL_ERR_FULL;
    for (uint32_t i = 0; i < request->event_count; i++) publish(&request->events[i]);
    struct pending *pending = later(job, request->events[0].src);
    pending->result.ingested = (struct dl_backend_ingested){
        .accepted = request->event_count, .seq = events, .first_reason = ""};
    return DL_OK;
}

static void ingest_broken(void *context, uint32_t count, const struct dl_backend_broken *broken)
{
    (void)context;
    for (uint32_t i = 0; i < count; i++) broken_events += broken[i].reason[0] != 0;
}

static void listen_to(void *context, struct dl_backend_listener *listener)
{
    (void)context;
    listener->next = listeners;
    listeners = listener;
}

static void unlisten(void *context, struct dl_backend_listener *listener)
{
    (void)context;
    if (listeners == listener) listeners = listener->next;
}

static int is_ready(void *context, struct dl_error *error)
{
    (void)context;
    (void)error;
    return ready;
}

static const struct dl_backend backend = {.score = score,
                                          .top_k = top_k,
                                          .get_window = get_window,
                                          .explain = explain,
                                          .get_drift = get_drift,
                                          .renew_reference = renew_reference,
                                          .get_model = get_model,
                                          .forget = forget,
                                          .ingest = ingest,
                                          .ingest_broken = ingest_broken,
                                          .listen = listen_to,
                                          .unlisten = unlisten,
                                          .ready = is_ready};

/* ---- the program --------------------------------------------------------------------------------
 */

static uv_signal_t terminate;
static uv_pipe_t input;

static void on_server_closed(void *context)
{
    (void)context;
    while (pendings) {
        uv_timer_stop(&pendings->timer);
        settle(pendings);
    }
    uv_close((uv_handle_t *)&terminate, NULL);
    if (!uv_is_closing((uv_handle_t *)&input)) uv_close((uv_handle_t *)&input, NULL);
}

static void on_drained(void *context)
{
    (void)context;
    dl_rpc_server_close(server, on_server_closed, NULL);
}

static void on_terminate(uv_signal_t *handle, int number)
{
    (void)handle;
    (void)number;
    dl_rpc_server_drain(server, 5000, on_drained, NULL);
}

static void on_input_allocate(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    static char bytes[64];
    (void)handle;
    (void)size;
    *buffer = uv_buf_init(bytes, sizeof(bytes));
}

static void on_input(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    (void)buffer;
    if (size >= 0) return;
    uv_close((uv_handle_t *)stream, NULL);
    dl_rpc_server_close(server, on_server_closed, NULL);
}

int main(int argc, char **argv)
{
    struct dl_config config;
    struct dl_rpc_methods *methods;
    struct dl_metrics *metrics;
    struct dl_service_metrics service;
    struct dl_error error = {""};
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    int status = dl_config_load(&config, &argc, argv, &error);
    if (status == DL_OK) status = dl_metrics_new(&metrics);
    if (status == DL_OK) status = dl_service_metrics_init(metrics, &service, &error);
    if (status == DL_OK)
        status = dl_rpc_methods_open(&loop, &config, &backend, &service, &server, &methods, &error);
    if (status != DL_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    uv_signal_init(&loop, &terminate);
    uv_signal_start(&terminate, on_terminate, SIGTERM);
    uv_pipe_init(&loop, &input, 0);
    if (uv_pipe_open(&input, 0) == 0)
        uv_read_start((uv_stream_t *)&input, on_input_allocate, on_input);
    printf("%s\n", dl_rpc_server_address(server));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    fprintf(stderr, "broken %" PRIu64 ", cancelled %" PRIu64 "\n", broken_events, cancelled);
    dl_metrics_free(metrics);
    dl_config_deinit(&config);
    return 0;
}
