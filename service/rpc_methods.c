#include "service/rpc_methods_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/log.h"

/* ---- jobs -------------------------------------------------------------------------- */

static void on_done(struct dl_backend_job *backend_job, int status, const struct dl_error *error,
                    const union dl_backend_result *result)
{
    struct dl_rpc_job *job = (struct dl_rpc_job *)backend_job;
    if (!dl_rpc_job_alive(job)) return;
    if (status != DL_OK)
        dl_rpc_call_fail(job->call, status, error);
    else
        dl_rpc_answer(job, result);
    if (job->entry->seconds)
        dl_histogram_observe(job->entry->seconds,
                             (double)(dl_clock_monotonic_ns() - job->begun_ns) * 1e-9);
    dl_rpc_job_free(job);
}

struct dl_rpc_job *dl_rpc_job_new(struct dl_rpc_entry *entry, struct dl_rpc_call *call,
                                  struct dl_slice a, struct dl_slice b)
{
    struct dl_rpc_job *job = calloc(1, sizeof(*job) + a.size + b.size);
    if (!job) return NULL;
    job->job.done = on_done;
    job->job.deadline_ns = dl_rpc_call_deadline_ns(call);
    job->call = call;
    job->entry = entry;
    job->begun_ns = dl_clock_monotonic_ns();
    job->a = dl_slice_of(job->text, a.size);
    job->b = dl_slice_of(job->text + a.size, b.size);
    if (a.size) memcpy(job->text, a.data, a.size);
    if (b.size) memcpy(job->text + a.size, b.data, b.size);
    return job;
}

void dl_rpc_job_started(struct dl_rpc_job *job, int status, const struct dl_error *error)
{
    if (status == DL_OK) return; /* it may be done and gone already */
    dl_rpc_call_fail(job->call, status, error);
    dl_rpc_job_free(job);
}

int dl_rpc_job_alive(struct dl_rpc_job *job)
{
    if (job->call) return 1;
    free(job);
    return 0;
}

void dl_rpc_job_free(struct dl_rpc_job *job)
{
    if (dl_rpc_call_get_user(job->call) == job) dl_rpc_call_set_user(job->call, NULL);
    free(job);
}

/* ---- messages ------------------------------------------------------------------------ */

int dl_rpc_reply(struct dl_rpc_methods *methods, struct dl_rpc_call *call,
                 const struct dl_message_type *type, const void *message)
{
    dl_buf_clear(&methods->scratch);
    dl_message_encode(type, message, &methods->scratch);
    int status = methods->scratch.failed ? DL_ERR_NOMEM
                                         : dl_rpc_call_send(call, dl_buf_slice(&methods->scratch));
    if (methods->scratch.failed) dl_buf_free(&methods->scratch); /* and usable again */
    if (status == DL_ERR_NOMEM) {
        struct dl_error error = {"out of memory for the answer"};
        dl_rpc_call_fail(call, status, &error);
    }
    return status;
}

int dl_rpc_request(struct dl_rpc_entry *entry, struct dl_rpc_call *call, struct dl_slice bytes,
                   void *request)
{
    struct dl_error error = {""};
    struct dl_arena *arena = &entry->methods->arena;
    dl_arena_reset(arena);
    int status =
        dl_message_decode(dl_msg_methods[entry->id].request, bytes, request, arena, &error);
    if (status == DL_ERR_NOMEM)
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED, error.text);
    else if (status != DL_OK)
        dl_rpc_call_finish(call, DL_GRPC_INVALID_ARGUMENT, error.text);
    return status;
}

/* ---- unary calls ------------------------------------------------------------------------ */

union request {
    struct dl_msg_score_request score;
    struct dl_msg_top_k_request top_k;
    struct dl_msg_window_request window;
    struct dl_msg_explain_request explain;
    struct dl_msg_drift_request drift;
    struct dl_msg_renew_request renew;
    struct dl_msg_forget_request forget;
    struct dl_msg_empty empty;
};

static const struct dl_slice no_name = {NULL, 0};

/* The names that the answer repeats. */
static void names_of(enum dl_msg_method_id id, const union request *request, struct dl_slice *a,
                     struct dl_slice *b)
{
    *a = *b = no_name;
    if (id == DL_METHOD_TOP_K) *a = request->top_k.node;
    if (id == DL_METHOD_GET_WINDOW) *a = request->window.node;
    if (id == DL_METHOD_EXPLAIN) {
        *a = request->explain.src;
        *b = request->explain.dst;
    }
}

static int ask_score(struct dl_rpc_methods *methods, const struct dl_msg_score_request *from,
                     struct dl_rpc_job *job, struct dl_error *error)
{
    struct dl_backend_pair *pairs =
        dl_arena_take(&methods->arena, from->pair_count * sizeof(*pairs));
    struct dl_backend_score_request request = {from->pair_count, pairs, from->has_time, from->time};
    if (!pairs) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the pairs");
    for (uint32_t i = 0; i < from->pair_count; i++)
        pairs[i] = (struct dl_backend_pair){from->pairs[i].src, from->pairs[i].dst,
                                            from->pairs[i].has_time, from->pairs[i].time};
    return methods->backend.score(methods->backend.context, &request, &job->job, error);
}

static int ask_top_k(struct dl_rpc_methods *methods, const struct dl_msg_top_k_request *from,
                     struct dl_rpc_job *job, struct dl_error *error)
{
    struct dl_backend_top_k_request request = {.node = from->node,
                                               .k = from->k ? from->k : DL_MSG_K_DEFAULT,
                                               .candidate_count = from->candidate_count,
                                               .candidates = from->candidates,
                                               .only_candidates = from->only_given,
                                               .has_time = from->has_time,
                                               .time = from->time};
    if (from->only_given && from->candidate_count == 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "only_given is set, so candidates must name at least one");
    return methods->backend.top_k(methods->backend.context, &request, &job->job, error);
}

/* Passes the request on. What the backend does not have is UNIMPLEMENTED. */
static int ask(struct dl_rpc_methods *methods, enum dl_msg_method_id id,
               const union request *request, struct dl_rpc_job *job, struct dl_error *error)
{
    const struct dl_backend *backend = &methods->backend;
    void *context = backend->context;
    switch (id) {
    case DL_METHOD_SCORE:
        if (!backend->score) break;
        return ask_score(methods, &request->score, job, error);
    case DL_METHOD_TOP_K:
        if (!backend->top_k) break;
        return ask_top_k(methods, &request->top_k, job, error);
    case DL_METHOD_GET_WINDOW:
        if (!backend->get_window) break;
        return backend->get_window(
            context,
            &(struct dl_backend_window_request){request->window.node, request->window.limit},
            &job->job, error);
    case DL_METHOD_EXPLAIN:
        if (!backend->explain) break;
        return backend->explain(
            context,
            &(struct dl_backend_explain_request){.src = request->explain.src,
                                                 .dst = request->explain.dst,
                                                 .per_head = request->explain.per_head,
                                                 .has_time = request->explain.has_time,
                                                 .time = request->explain.time},
            &job->job, error);
    case DL_METHOD_GET_DRIFT: {
        uint32_t alerts_max = request->drift.alerts_max;
        struct dl_backend_drift_request drift = {alerts_max ? alerts_max : DL_MSG_ALERTS_DEFAULT};
        if (!backend->get_drift) break;
        return backend->get_drift(context, &drift, &job->job, error);
    }
    case DL_METHOD_RENEW_REFERENCE: {
        char by[80];
        snprintf(by, sizeof by, "rpc %s", dl_rpc_call_peer(job->call));
        if (!backend->renew_reference) break;
        return backend->renew_reference(
            context, &(struct dl_backend_renew_request){by, request->renew.reason}, &job->job,
            error);
    }
    case DL_METHOD_GET_MODEL:
        if (!backend->get_model) break;
        return backend->get_model(context, &job->job, error);
    case DL_METHOD_FORGET:
        if (!backend->forget) break;
        return backend->forget(
            context,
            &(struct dl_backend_forget_request){request->forget.node, request->forget.peer},
            &job->job, error);
    default:
        break;
    }
    return dl_error_set(error, DL_ERR_UNSUPPORTED, "this service does not offer %s",
                        dl_msg_methods[id].path);
}

static void on_message(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_rpc_entry *entry = context;
    struct dl_error error = {""};
    union request request;
    struct dl_slice a, b;
    memset(&request, 0, sizeof(request));
    if (dl_rpc_request(entry, call, bytes, &request) != DL_OK) return;
    names_of(entry->id, &request, &a, &b);
    struct dl_rpc_job *job = dl_rpc_job_new(entry, call, a, b);
    if (!job) {
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory for the request");
        return;
    }
    dl_rpc_call_set_user(call, job);
    int status = ask(entry->methods, entry->id, &request, job, &error);
    dl_rpc_job_started(job, status, &error);
}

static void on_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct dl_rpc_job *job = dl_rpc_call_get_user(call);
    (void)context;
    (void)end;
    if (!job) return;
    atomic_store(&job->job.cancelled, 1);
    job->call = NULL; /* `done` frees it */
}

/* ---- metrics -------------------------------------------------------------------------------- */

static void on_ended(void *context, const struct dl_rpc_method *method, enum dl_grpc_status status)
{
    struct dl_rpc_methods *methods = context;
    struct dl_rpc_entry *entry = method ? method->context : NULL;
    struct dl_counter **counter = entry ? &entry->ended[status] : &methods->unknown[status];
    if (!methods->metrics) return;
    if (!*counter)
        *counter = dl_metrics_counter(
            methods->metrics->rpc_requests_total,
            DL_LABELS(entry ? entry->label : "unknown", dl_grpc_status_name((int)status)));
    dl_counter_add(*counter, 1);
}

static void on_tick(void *context)
{
    struct dl_rpc_methods *methods = context;
    dl_rpc_health_tick(methods);
    if (!methods->metrics) return;
    dl_gauge_set(methods->metrics->rpc_connections,
                 (double)dl_rpc_get_stats(methods->rpc)->connections);
    dl_gauge_set(methods->metrics->rpc_streams, (double)methods->stream_count);
}

/* ---- opening ------------------------------------------------------------------------------------
 */

static uint32_t on_authorize(void *context, struct dl_slice authorization, uint64_t *client)
{
    const struct dl_rpc_methods *methods = context;
    if (!methods->tokens) return DL_RPC_ALL;
    const struct dl_token *token = dl_tokens_find(methods->tokens, authorization);
    if (token) memcpy(client, token->hash, sizeof(*client));
    return token ? token->roles : 0;
}

static void on_denied(void *context, const char *peer, const char *why)
{
    (void)context;
    DL_WARN("rpc", "%s: a call was refused: %s", peer, why);
}

static void free_methods(struct dl_rpc_methods *methods)
{
    dl_event_decoder_free(methods->decoder);
    dl_tokens_free(methods->tokens);
    dl_arena_deinit(&methods->arena);
    dl_arena_deinit(&methods->answer_arena);
    dl_buf_free(&methods->scratch);
    free(methods);
}

static void on_drain(void *context)
{
    struct dl_rpc_methods *methods = context;
    methods->draining = 1;
    dl_rpc_health_drain(methods);
    dl_rpc_subscribe_drain(methods);
}

static void on_free(void *context)
{
    struct dl_rpc_methods *methods = context;
    if (methods->backend.unlisten)
        methods->backend.unlisten(methods->backend.context, &methods->listener);
    free_methods(methods);
}

static uint32_t roles_of(enum dl_msg_method_id id)
{
    switch (id) {
    case DL_METHOD_RENEW_REFERENCE:
    case DL_METHOD_FORGET:
        return DL_RPC_ADMIN;
    case DL_METHOD_INGEST:
        return DL_RPC_INGEST;
    case DL_METHOD_SUBSCRIBE_PREDICTIONS:
    case DL_METHOD_SUBSCRIBE_SCORES:
    case DL_METHOD_SUBSCRIBE_ALERTS:
        return DL_RPC_SUBSCRIBE;
    case DL_METHOD_HEALTH_CHECK:
    case DL_METHOD_HEALTH_WATCH:
        return 0; /* those who ask (load balancers) have no token */
    case DL_METHOD_REFLECTION_V1:
    case DL_METHOD_REFLECTION_V1ALPHA:
        return DL_RPC_ALL; /* any of them */
    default:
        return DL_RPC_READ;
    }
}

static void set_handlers(struct dl_rpc_method *method, enum dl_msg_method_id id)
{
    switch (id) {
    case DL_METHOD_INGEST:
        dl_rpc_ingest_handlers(method);
        break;
    case DL_METHOD_SUBSCRIBE_PREDICTIONS:
    case DL_METHOD_SUBSCRIBE_SCORES:
    case DL_METHOD_SUBSCRIBE_ALERTS:
        dl_rpc_subscribe_handlers(method);
        break;
    case DL_METHOD_HEALTH_CHECK:
    case DL_METHOD_HEALTH_WATCH:
        dl_rpc_health_handlers(method, id == DL_METHOD_HEALTH_WATCH);
        break;
    case DL_METHOD_REFLECTION_V1:
    case DL_METHOD_REFLECTION_V1ALPHA:
        dl_rpc_reflection_handlers(method);
        break;
    default:
        method->message = on_message;
        method->closed = on_closed;
        break;
    }
}

/* "Score" for driftline's own, "grpc.health.v1.Health/Check" for the others. */
static const char *label_of(const char *path)
{
    static const char own[] = "/driftline.v1.LinkPrediction/";
    return strncmp(path, own, sizeof(own) - 1) == 0 ? path + sizeof(own) - 1 : path + 1;
}

static int register_all(struct dl_rpc_methods *methods, struct dl_error *error)
{
    for (int id = 0; id < DL_METHOD_COUNT; id++) {
        struct dl_rpc_entry *entry = &methods->entries[id];
        const struct dl_msg_method *known = &dl_msg_methods[id];
        struct dl_rpc_method method = {.path = known->path,
                                       .client_streaming = known->client_streams,
                                       .server_streaming = known->server_streams,
                                       .roles = roles_of((enum dl_msg_method_id)id),
                                       .context = entry};
        entry->methods = methods;
        entry->id = (enum dl_msg_method_id)id;
        entry->label = label_of(known->path);
        if (methods->metrics && !known->server_streams)
            entry->seconds = dl_metrics_histogram(methods->metrics->rpc_duration_seconds,
                                                  DL_LABELS(entry->label));
        set_handlers(&method, entry->id);
        int status = dl_rpc_register(methods->rpc, &method);
        if (status != DL_OK) return dl_error_set(error, status, "cannot register %s", known->path);
    }
    return DL_OK;
}

static int open_decoder(struct dl_rpc_methods *methods, struct dl_error *error)
{
    struct dl_event_decoder_config config;
    dl_event_decoder_config_init(&config, dl_clock_wall_us());
    dl_time_rules_init(&config.time, methods->config->source.time_unit, dl_clock_wall_us());
    config.format = DL_FORMAT_PROTOBUF;
    config.cloudevents = 0;
    config.feature_count = (int32_t)methods->config->store.features;
    return dl_event_decoder_new(&config, &methods->decoder, error);
}

int dl_rpc_methods_reload_tokens(struct dl_rpc_methods *methods, struct dl_error *error)
{
    struct dl_tokens *tokens;
    if (!methods->config->rpc.tokens_file[0]) return DL_OK;
    int status =
        dl_tokens_read(methods->config->rpc.tokens_file, "rpc.tokens_file", &tokens, error);
    if (status != DL_OK) return status;
    dl_tokens_free(methods->tokens);
    methods->tokens = tokens;
    return DL_OK;
}

void dl_rpc_methods_attach(struct dl_rpc_methods *methods, const struct dl_backend *backend)
{
    methods->backend = *backend;
    dl_rpc_subscribe_listen(methods);
    on_tick(methods);
}

int dl_rpc_methods_open(uv_loop_t *loop, const struct dl_config *config,
                        const struct dl_backend *backend, struct dl_service_metrics *metrics,
                        struct dl_rpc_server **server, struct dl_rpc_methods **result,
                        struct dl_error *error)
{
    struct dl_rpc_methods *methods = calloc(1, sizeof(*methods));
    if (!methods) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the RPC methods");
    methods->config = config;
    methods->metrics = metrics;
    struct dl_rpc_server_config options = {
        .listen = config->rpc.listen,
        .plain_text_anywhere = config->rpc.plain_text == DL_PLAIN_ANYWHERE,
        .tls_cert = config->rpc.tls_cert,
        .tls_key = config->rpc.tls_key,
        .tls_ca = config->rpc.tls_ca,
        .rpc = dl_rpc_config_default,
        .draining = on_drain,
        .tick = on_tick,
        .freeing = on_free,
        .context = methods,
    };
    options.rpc.connections_max = (uint32_t)config->rpc.connections_max;
    options.rpc.calls_rate = (uint32_t)config->rpc.calls_rate;
    options.rpc.calls_burst = (uint32_t)config->rpc.calls_burst;
    options.rpc.h2.streams_max = (uint32_t)config->rpc.streams_max;
    options.rpc.message_bytes_max = (size_t)config->rpc.message_bytes_max;
    if (options.rpc.connection_memory_bytes_max < 2 * options.rpc.message_bytes_max)
        options.rpc.connection_memory_bytes_max = 2 * options.rpc.message_bytes_max;
    if (options.rpc.memory_bytes_max < 4 * options.rpc.message_bytes_max)
        options.rpc.memory_bytes_max = 4 * options.rpc.message_bytes_max;
    options.rpc.authorize = on_authorize;
    options.rpc.denied = on_denied;
    options.rpc.authorize_context = methods;
    options.rpc.ended = on_ended;
    options.rpc.ended_context = methods;
    int status = dl_rpc_methods_reload_tokens(methods, error);
    if (status == DL_OK) status = open_decoder(methods, error);
    if (status == DL_OK) status = dl_rpc_server_open(loop, &options, &methods->server, error);
    if (status != DL_OK) {
        free_methods(methods);
        return status;
    }
    methods->rpc = dl_rpc_server_rpc(methods->server);
    status = register_all(methods, error);
    if (status != DL_OK) {
        dl_rpc_server_close(methods->server, NULL, NULL); /* frees the methods, too */
        return status;
    }
    if (backend) dl_rpc_methods_attach(methods, backend);
    DL_INFO("rpc", "listening on %s%s%s", dl_rpc_server_address(methods->server),
            config->rpc.tls_cert[0] ? ", TLS" : "", methods->tokens ? ", bearer tokens" : "");
    *server = methods->server;
    *result = methods;
    return DL_OK;
}
