/* The JSON behind the dashboard. Each route asks the engine for one or two
 * things, one after the other, and writes what comes back; what the engine
 * cannot say becomes null, so that the page shows the rest. */
#include "service/http_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define K_DEFAULT 20
#define K_MAX 100
#define ALERTS_MAX 100

/* ---- asking the engine -------------------------------------------------------- */

static void job_done(struct dl_backend_job *job, int status, const struct dl_error *error,
                     const union dl_backend_result *result);

static struct http_request *request_of(struct dl_backend_job *job)
{
    return (struct http_request *)((char *)job - offsetof(struct http_request, job));
}

static void prepare(struct http_request *request, http_next *next)
{
    memset(&request->job, 0, sizeof request->job);
    request->job.done = job_done;
    request->job.deadline_ns = dl_clock_monotonic_ns() + HTTP_JOB_TIMEOUT_NS;
    request->next = next;
    request->pending = 1;
    request->http->jobs++;
}

static void settle(struct http_request *request)
{
    request->pending = 0;
    request->http->jobs--;
}

/* Refused: the answer will not come through job_done. */
static void check_refused(struct http_request *request, int status, const struct dl_error *error)
{
    if (status == DL_OK) return;
    settle(request);
    request->next(request, status, error, NULL);
}

/* Asks for one of the backend's operations; `next` gets the result. */
#define ASK(request, next, operation, ...)                                                         \
    do {                                                                                           \
        const struct dl_backend *backend_ = (request)->http->backend;                              \
        struct dl_error why_ = {""};                                                               \
        prepare(request, next);                                                                    \
        int asked_ = backend_->operation                                                           \
                         ? backend_->operation(backend_->context, __VA_ARGS__, &why_)              \
                         : dl_error_set(&why_, DL_ERR_UNSUPPORTED,                                 \
                                        "this service does not offer " #operation);                \
        check_refused(request, asked_, &why_);                                                     \
    } while (0)

static int code_of(int status)
{
    switch (status) {
    case DL_ERR_INVALID:
    case DL_ERR_TOO_LARGE:
    case DL_ERR_LATE:
        return MHD_HTTP_BAD_REQUEST;
    case DL_ERR_NOT_FOUND:
        return MHD_HTTP_NOT_FOUND;
    case DL_ERR_DENIED:
        return MHD_HTTP_FORBIDDEN;
    case DL_ERR_EXISTS:
        return MHD_HTTP_CONFLICT;
    case DL_ERR_FULL:
    case DL_ERR_CANCELLED:
    case DL_ERR_UNAVAILABLE:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    case DL_ERR_UNSUPPORTED:
        return MHD_HTTP_NOT_IMPLEMENTED;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

static void job_done(struct dl_backend_job *job, int status, const struct dl_error *error,
                     const union dl_backend_result *result)
{
    static const struct dl_error none = {""};
    struct http_request *request = request_of(job);
    settle(request);
    request->held++;
    request->next(request, status, error ? error : &none, result);
    request->held--;
    http_request_release(request);
}

static void fail(struct http_request *request, int status, const struct dl_error *error)
{
    http_answer_error(request, code_of(status),
                      error->text[0] ? error->text : dl_status_name(status));
}

static struct dl_json *begin(struct http_request *request)
{
    dl_buf_clear(&request->body);
    request->json = dl_json_of(&request->body);
    dl_json_open(&request->json, '{');
    return &request->json;
}

static void finish(struct http_request *request)
{
    dl_json_close(&request->json, '}');
    dl_buf_text(&request->body, "\n");
    http_answer(request, MHD_HTTP_OK, http_json_type);
}

/* ---- parameters ---------------------------------------------------------------- */

/* 1 and a copy of a node's name, or 0 after an answer that says what is wrong. */
static int name_parameter(struct http_request *request, const char *key, char *name, size_t *size)
{
    const char *value = NULL;
    char text[160];
    if (MHD_lookup_connection_value_n(request->connection, MHD_GET_ARGUMENT_KIND, key, strlen(key),
                                      &value, size) != MHD_YES ||
        !value || *size == 0)
        snprintf(text, sizeof text, "the parameter \"%s\" is missing: a node's name", key);
    else if (*size > DL_NAME_BYTES_MAX)
        snprintf(text, sizeof text,
                 "the parameter \"%s\" has %zu bytes; a node's name has at most %d", key, *size,
                 DL_NAME_BYTES_MAX);
    else {
        memcpy(name, value, *size);
        return 1;
    }
    http_answer_error(request, MHD_HTTP_BAD_REQUEST, text);
    return 0;
}

static int count_parameter(struct http_request *request, const char *key, uint32_t absent,
                           uint32_t low, uint32_t high, uint32_t *count)
{
    const char *value =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, key);
    char *end = NULL, text[160];
    *count = absent;
    if (!value) return 1;
    unsigned long read = strtoul(value, &end, 10);
    if (value[0] >= '0' && value[0] <= '9' && *end == 0 && read >= low && read <= high) {
        *count = (uint32_t)read;
        return 1;
    }
    snprintf(text, sizeof text, "the parameter \"%s\" must be a number from %u to %u", key, low,
             high);
    http_answer_error(request, MHD_HTTP_BAD_REQUEST, text);
    return 0;
}

/* ---- status --------------------------------------------------------------------- */

static void write_model(struct dl_json *json, const struct dl_backend_model *model)
{
    const struct dl_model_info *info = model->info;
    dl_json_open(json, '{');
    dl_json_key_text(json, "version", info->version);
    dl_json_key_text(json, "architecture", info->config.architecture);
    dl_json_key_bool(json, "differential", info->config.differential);
    dl_json_key_uint(json, "parameters", info->parameters);
    dl_json_key_uint(json, "window", info->config.window);
    dl_json_key_uint(json, "width", info->config.width);
    dl_json_key_uint(json, "heads", info->config.heads);
    dl_json_key_uint(json, "layers", info->config.layers);
    dl_json_key_text(json, "ties", info->ties);
    dl_json_key_text(json, "negatives", info->negatives);
    dl_json_key_text(json, "data_hash", info->data_hash);
    dl_json_key_uint(json, "data_edges", info->data_edges);
    dl_json_key_uint(json, "data_nodes", info->data_nodes);
    dl_live_write_time(json, "trained_until", info->trained_until, info->time_unit);
    dl_json_key_number(json, "validation_average_precision", info->validation_ap);
    dl_json_key_number(json, "validation_auc", info->validation_auc);
    dl_json_key_number(json, "validation_mrr", info->validation_mrr);
    dl_json_key_number(json, "validation_calibration_error", info->validation_ece);
    dl_json_key_uint(json, "reference_size", model->reference_size);
    dl_json_key_text(json, "kernels", model->kernels ? model->kernels : "");
    dl_json_close(json, '}');
}

static void status_drift(struct http_request *request, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    struct dl_json *json = &request->json;
    (void)error;
    dl_json_key(json, "feed");
    if (status == DL_OK) {
        dl_json_open(json, '{');
        dl_json_key_text(json, "time_unit", dl_time_unit_name(result->drift.time_unit));
        dl_json_key_uint(json, "events", result->drift.seq);
        dl_live_write_time(json, "time", result->drift.time, result->drift.time_unit);
        dl_json_close(json, '}');
    } else {
        dl_json_null(json);
    }
    finish(request);
}

static void status_model(struct http_request *request, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    struct dl_http *http = request->http;
    struct dl_json *json = begin(request);
    struct dl_error why = {""};
    int64_t now_us = dl_clock_wall_us();
    int ready = !http->backend->ready || http->backend->ready(http->backend->context, &why);
    (void)error;
    dl_json_key_text(json, "version", http->version);
    dl_json_key_int(json, "now_ms", now_us / 1000);
    dl_json_key_int(json, "started_ms", http->started_us / 1000);
    dl_json_key_bool(json, "ready", ready);
    dl_json_key_text(json, "reason", ready ? "" : why.text);
    dl_json_key_uint(json, "listeners", http->listeners);
    dl_json_key(json, "model");
    if (status == DL_OK)
        write_model(json, &result->model);
    else
        dl_json_null(json);
    struct dl_backend_drift_request ask = {.alerts_max = 1};
    ASK(request, status_drift, get_drift, &ask, &request->job);
}

static void get_status(struct http_request *request)
{
    ASK(request, status_model, get_model, &request->job);
}

/* ---- drift, quality, alerts -------------------------------------------------------- */

static void drift_done(struct http_request *request, int status, const struct dl_error *error,
                       const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    const struct dl_backend_drift *drift = &result->drift;
    const struct dl_service_metrics *service = request->http->service;
    struct dl_json *json = begin(request);
    dl_json_key_bool(json, "ready", drift->ready);
    dl_json_key_text(json, "reason", drift->ready || !drift->reason ? "" : drift->reason);
    dl_json_key_bool(json, "alert_raised", drift->alert_raised);
    dl_json_key_number(json, "statistic", drift->ready ? drift->statistic : NAN);
    dl_json_key_number(json, "threshold", drift->threshold);
    dl_json_key_number(json, "p_value", drift->ready ? drift->p_value : NAN);
    dl_json_key_uint(json, "window", drift->window);
    dl_json_key_uint(json, "reference_size", drift->reference_size);
    dl_json_key_text(json, "reference_origin",
                     drift->reference_origin ? drift->reference_origin : "");
    dl_json_key_uint(json, "reference_seq", drift->reference_seq);
    dl_json_key_number(json, "run_length_asked", drift->run_length_asked);
    dl_json_key_number(json, "run_length_achieved", drift->run_length_achieved);
    dl_json_key_text(json, "warning", drift->warning ? drift->warning : "");
    dl_json_key_number(json, "attention_entropy_ratio",
                       dl_metrics_gauge_mean(service->attention_entropy_ratio));
    dl_json_key_number(json, "attention_top5_ratio",
                       dl_metrics_gauge_mean(service->attention_top5_ratio));
    dl_json_key_number(json, "attention_sink_movement_ratio",
                       dl_gauge_get(service->attention_sink_movement_ratio));
    dl_json_key_uint(json, "seq", drift->seq);
    dl_live_write_time(json, "time", drift->time, drift->time_unit);
    dl_live_write_features(json, drift->feature_count, drift->features);
    finish(request);
}

static void get_drift(struct http_request *request)
{
    struct dl_backend_drift_request ask = {.alerts_max = 1};
    ASK(request, drift_done, get_drift, &ask, &request->job);
}

static void renew_done(struct http_request *request, int status, const struct dl_error *error,
                       const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    struct dl_json *json = begin(request);
    dl_json_key_uint(json, "reference_size", result->renewed.reference_size);
    dl_json_key_uint(json, "reference_seq", result->renewed.reference_seq);
    dl_json_key_bool(json, "alert_cleared", result->renewed.alert_cleared);
    finish(request);
}

static void renew_drift(struct http_request *request)
{
    char reason[DL_BACKEND_REASON_BYTES_MAX + 1];
    if (!http_body_text(request, "/reason", reason, sizeof reason)) return;
    struct dl_backend_renew_request ask = {request->by, dl_slice_text(reason)};
    ASK(request, renew_done, renew_reference, &ask, &request->job);
}

static void write_figures(struct dl_json *json, double ap, double auc, double mrr)
{
    dl_json_key_number(json, "average_precision", ap);
    dl_json_key_number(json, "auc", auc);
    dl_json_key_number(json, "mrr", mrr);
}

static void quality_done(struct http_request *request, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    struct dl_json *json = begin(request);
    const struct dl_backend_quality *quality = result->drift.quality;
    dl_json_key_bool(json, "on", quality != NULL);
    if (quality) {
        dl_json_key(json, "recent");
        dl_json_open(json, '{');
        write_figures(json, quality->recent_ap, quality->recent_auc, quality->recent_mrr);
        dl_json_key_number(json, "calibration_error",
                           dl_gauge_get(request->http->service->quality_calibration_error));
        dl_json_key_uint(json, "pairs", quality->recent_pairs);
        dl_json_close(json, '}');
        dl_json_key(json, "all");
        dl_json_open(json, '{');
        write_figures(json, quality->ap, quality->auc, quality->mrr);
        dl_json_key_uint(json, "pairs", quality->pairs);
        dl_json_close(json, '}');
        dl_json_key(json, "trained");
        dl_json_open(json, '{');
        write_figures(json, quality->trained_ap, quality->trained_auc, quality->trained_mrr);
        dl_json_close(json, '}');
    }
    finish(request);
}

static void get_quality(struct http_request *request)
{
    struct dl_backend_drift_request ask = {.alerts_max = 1};
    ASK(request, quality_done, get_drift, &ask, &request->job);
}

/* The engine keeps the alerts over restarts; the wall clock at which one came
 * is known for those of this start alone. */
static void alerts_done(struct http_request *request, int status, const struct dl_error *error,
                        const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    const struct dl_backend_drift *drift = &result->drift;
    struct dl_json *json = begin(request);
    dl_json_key_bool(json, "alert_raised", drift->alert_raised);
    dl_json_key(json, "alerts");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < drift->alert_count; i++)
        dl_live_write_alert(&request->http->live, &drift->alerts[i], drift->time_unit, json);
    dl_json_close(json, ']');
    finish(request);
}

static void get_alerts(struct http_request *request)
{
    struct dl_backend_drift_request ask = {.alerts_max = ALERTS_MAX};
    ASK(request, alerts_done, get_drift, &ask, &request->job);
}

/* ---- what the server itself remembers ----------------------------------------------- */

static void get_surprises(struct http_request *request)
{
    struct dl_json *json = begin(request);
    dl_json_key_int(json, "span_seconds", DL_LIVE_SURPRISE_AGE_MS / 1000);
    dl_json_key(json, "surprises");
    dl_live_write_surprises(&request->http->live, json);
    finish(request);
}

static void get_nodes(struct http_request *request)
{
    struct dl_json *json = begin(request);
    dl_json_key(json, "nodes");
    dl_live_write_nodes(&request->http->live, json);
    finish(request);
}

/* A tier's text takes milliseconds to write and stays the same until the tier
 * gains a point; many dashboards may ask at once when the service restarts. */
static const struct dl_buf *encode_series(struct dl_http *http, uint32_t tier)
{
    struct dl_buf *encoded = &http->series[tier];
    uint64_t points = dl_history_gained(http->history, tier);
    if (encoded->size > 0 && !encoded->failed && http->series_points[tier] == points)
        return encoded;
    dl_buf_clear(encoded);
    struct dl_json json = dl_json_of(encoded);
    dl_history_write(http->history, tier, &json);
    dl_buf_text(encoded, "\n");
    http->series_points[tier] = points;
    return encoded;
}

static void get_series(struct http_request *request)
{
    static const char *const spans[DL_HISTORY_TIERS] = {"15m", "3h", "24h"};
    const char *span =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "span");
    uint32_t tier = 0;
    while (span && tier < DL_HISTORY_TIERS && strcmp(span, spans[tier]) != 0) tier++;
    if (tier == DL_HISTORY_TIERS) {
        http_answer_error(request, MHD_HTTP_BAD_REQUEST,
                          "the parameter \"span\" must be 15m, 3h or 24h");
        return;
    }
    const struct dl_buf *encoded = encode_series(request->http, tier);
    dl_buf_clear(&request->body);
    dl_buf_append(&request->body, encoded->data, encoded->size);
    request->body.failed |= encoded->failed;
    http_answer(request, MHD_HTTP_OK, http_json_type);
}

/* ---- a node -------------------------------------------------------------------------- */

static void write_interaction(struct dl_json *json, const struct dl_backend_interaction *event,
                              enum dl_time_unit unit)
{
    dl_json_key_slice(json, "peer", event->peer);
    dl_live_write_time(json, "time", event->time, unit);
    dl_json_key_uint(json, "seq", event->seq);
    dl_json_key_text(json, "direction", event->out ? "out" : "in");
    if (event->type.size) dl_json_key_slice(json, "type", event->type);
    dl_json_key_number(json, "weight", (double)event->weight);
    if (event->feature_count) {
        dl_json_key(json, "features");
        dl_json_open(json, '[');
        for (uint32_t i = 0; i < event->feature_count; i++)
            dl_json_number(json, (double)event->features[i]);
        dl_json_close(json, ']');
    }
}

static void write_origin(struct dl_json *json, uint32_t origin)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } origins[] = {{DL_FROM_WINDOW, "window"},
                   {DL_FROM_PEERS, "peers"},
                   {DL_FROM_POPULAR, "popular"},
                   {DL_FROM_CALLER, "caller"}};
    dl_json_open(json, '[');
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        if (origin & origins[i].bit) dl_json_text(json, origins[i].name);
    dl_json_close(json, ']');
}

static void write_prediction(struct dl_json *json, const struct dl_prediction *prediction,
                             enum dl_time_unit unit)
{
    dl_json_open(json, '{');
    dl_live_write_time(json, "time", prediction->time, unit);
    dl_json_key_uint(json, "history", prediction->history);
    dl_json_key_uint(json, "scored", prediction->scored);
    dl_json_key_slice(json, "model_version", prediction->model_version);
    dl_json_key(json, "candidates");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < prediction->candidate_count; i++) {
        const struct dl_candidate *candidate = &prediction->candidates[i];
        dl_json_open(json, '{');
        dl_json_key_slice(json, "node", candidate->node);
        dl_json_key_number(json, "probability", candidate->probability);
        dl_json_key_number(json, "share", candidate->share);
        dl_json_key(json, "origin");
        write_origin(json, candidate->origin);
        dl_json_key_uint(json, "history", candidate->history);
        dl_json_key_uint(json, "pair_history", candidate->pair_history);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
    dl_json_close(json, '}');
}

static void node_predicted(struct http_request *request, int status, const struct dl_error *error,
                           const union dl_backend_result *result)
{
    struct dl_json *json = &request->json;
    dl_json_key(json, "prediction");
    if (status == DL_OK) {
        write_prediction(json, &result->prediction, request->time_unit);
    } else {
        dl_json_null(json);
        dl_json_key_text(json, "prediction_error",
                         error->text[0] ? error->text : dl_status_name(status));
    }
    finish(request);
}

static void node_window(struct http_request *request, int status, const struct dl_error *error,
                        const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    struct dl_json *json = begin(request);
    const struct dl_backend_window *window = &result->window;
    dl_json_key_slice(json, "name", dl_slice_of(request->src, request->src_size));
    dl_json_key_bool(json, "known", window->known);
    request->time_unit = window->time_unit;
    dl_json_key_text(json, "time_unit", dl_time_unit_name(window->time_unit));
    dl_json_key_uint(json, "events", window->events);
    dl_json_key_uint(json, "events_out", window->events_out);
    dl_json_key_uint(json, "events_in", window->events_in);
    dl_live_write_time(json, "first_time", window->first_time, request->time_unit);
    dl_live_write_time(json, "last_time", window->last_time, request->time_unit);
    dl_json_key_uint(json, "window_max", window->window_max);
    dl_json_key(json, "window");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < window->interaction_count; i++) {
        dl_json_open(json, '{');
        write_interaction(json, &window->interactions[i], request->time_unit);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
    struct dl_backend_top_k_request ask = {.node = dl_slice_of(request->src, request->src_size),
                                           .k = request->k};
    ASK(request, node_predicted, top_k, &ask, &request->job);
}

static void get_node(struct http_request *request)
{
    if (!name_parameter(request, "name", request->src, &request->src_size) ||
        !count_parameter(request, "k", K_DEFAULT, 1, K_MAX, &request->k) ||
        !count_parameter(request, "count", 0, 0, 1024, &request->count))
        return;
    struct dl_backend_window_request ask = {.node = dl_slice_of(request->src, request->src_size),
                                            .count_max = request->count};
    ASK(request, node_window, get_window, &ask, &request->job);
}

static void explain_done(struct http_request *request, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    if (status != DL_OK) {
        fail(request, status, error);
        return;
    }
    struct dl_json *json = begin(request);
    const struct dl_backend_explanation *explanation = &result->explanation;
    dl_json_key_slice(json, "src", explanation->score.src);
    dl_json_key_slice(json, "dst", explanation->score.dst);
    dl_json_key_number(json, "probability", explanation->score.probability);
    dl_json_key_number(json, "surprise_bits", explanation->score.surprise_bits);
    dl_json_key_uint(json, "layers", explanation->layers);
    dl_json_key_uint(json, "heads", explanation->heads);
    dl_json_key_uint(json, "tokens", explanation->tokens);
    dl_json_key_number(json, "entropy_uniform_nats", explanation->entropy_uniform_nats);
    dl_json_key(json, "entropy_nats");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < explanation->layers; i++)
        dl_json_number(json, explanation->entropy_nats[i]);
    dl_json_close(json, ']');
    dl_json_key(json, "attention");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < explanation->tokens; i++) {
        const struct dl_backend_token *token = &explanation->token_list[i];
        dl_json_open(json, '{');
        dl_json_key_text(json, "side", token->side ? "dst" : "src");
        dl_json_key_bool(json, "self", token->self);
        if (!token->self) write_interaction(json, &token->event, explanation->time_unit);
        dl_json_key_number(json, "attention_share", token->weight);
        dl_json_key_number(json, "ratio_to_uniform", token->ratio_to_uniform);
        dl_json_key_bool(json, "sink", token->sink);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
    finish(request);
}

static void get_explain(struct http_request *request)
{
    if (!name_parameter(request, "src", request->src, &request->src_size) ||
        !name_parameter(request, "dst", request->dst, &request->dst_size))
        return;
    struct dl_backend_explain_request ask = {.src = dl_slice_of(request->src, request->src_size),
                                             .dst = dl_slice_of(request->dst, request->dst_size)};
    ASK(request, explain_done, explain, &ask, &request->job);
}

const struct http_route http_api_routes[] = {
    {"/api/status", HTTP_GET, 1, DL_RPC_READ, get_status},
    {"/api/series", HTTP_GET, 1, DL_RPC_READ, get_series},
    {"/api/drift", HTTP_GET, 1, DL_RPC_READ, get_drift},
    {"/api/drift/renew", HTTP_POST, 1, DL_RPC_ADMIN, renew_drift},
    {"/api/quality", HTTP_GET, 1, DL_RPC_READ, get_quality},
    {"/api/alerts", HTTP_GET, 1, DL_RPC_READ, get_alerts},
    {"/api/surprises", HTTP_GET, 1, DL_RPC_READ, get_surprises},
    {"/api/nodes", HTTP_GET, 1, DL_RPC_READ, get_nodes},
    {"/api/node", HTTP_GET, 1, DL_RPC_READ, get_node},
    {"/api/explain", HTTP_GET, 1, DL_RPC_READ, get_explain},
    {"/api/events", HTTP_GET, 1, DL_RPC_SUBSCRIBE, http_events_handle},
};
const uint32_t http_api_route_count = sizeof http_api_routes / sizeof *http_api_routes;
