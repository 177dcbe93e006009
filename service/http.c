/* The HTTP server: one libmicrohttpd daemon without threads, driven by the
 * loop.
 *
 *   happy path   epoll descriptor readable or timer due -> MHD_run -> accept()
 *                -> the route's handler -> answer at once, or suspend until
 *                the engine's job is done and resume then
 *   failures     bad request: 4xx by a handler; engine full or away: 503;
 *                client gone: its request lives on until its job is back
 *   closing      http->closing is set: handlers answer 503, streams end; when
 *                no job is out and the last answers have left (or half a second
 *                is over), the daemon stops, the loop's handles close, all is freed */
#include "service/http.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "service/http_private.h"
#include "service/web_assets.h"

#define CONNECTIONS_DEFAULT 512
#define CONNECTION_MEMORY_BYTES (16 * 1024)
#define CONNECTION_TIMEOUT_S 60u
#define SAMPLE_INTERVAL_MS 1000
#define RUN_INTERVAL_MS 250 /* at least so often the daemon looks around */
#define CLOSING_STEP_MS 10
#define CLOSING_GRACE_NS 500000000 /* for the last answers to leave */

const char http_json_type[] = "application/json";

/* ---- answers ------------------------------------------------------------------ */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    /* Fails only when memory is short; the answer then goes without. */
    (void)MHD_add_response_header(response, name, value);
}

static void add_security_headers(struct MHD_Response *response)
{
    add_header(response, "Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
               "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'");
    add_header(response, "X-Content-Type-Options", "nosniff");
    add_header(response, "X-Frame-Options", "DENY");
    add_header(response, "Referrer-Policy", "no-referrer");
    add_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    add_header(response, "Cross-Origin-Resource-Policy", "same-origin");
}

void http_answer(struct http_request *request, int code, const char *content_type)
{
    request->code = code;
    request->content_type = content_type;
    request->answered = 1;
    if (request->suspended && request->connection) {
        request->suspended = 0;
        MHD_resume_connection(request->connection);
        http_wake(request->http);
    }
}

void http_answer_error(struct http_request *request, int code, const char *text)
{
    dl_buf_clear(&request->body);
    struct dl_json json = dl_json_of(&request->body);
    dl_json_open(&json, '{');
    dl_json_key_text(&json, "error", text);
    dl_json_close(&json, '}');
    dl_buf_text(&request->body, "\n");
    http_answer(request, code, http_json_type);
}

static void count_request(struct http_request *request)
{
    char code[12];
    snprintf(code, sizeof code, "%d", request->code);
    struct dl_service_metrics *service = request->http->service;
    dl_counter_add(
        dl_metrics_counter(service->http_requests_total, DL_LABELS(request->label, code)), 1);
}

/* Hands the finished answer to libmicrohttpd. */
static enum MHD_Result queue_answer(struct http_request *request)
{
    struct MHD_Response *response = request->response;
    if (!request->counted) {
        request->counted = 1;
        count_request(request);
    }
    if (!response) {
        if (request->body.failed || request->body.size > HTTP_ANSWER_BYTES_MAX) return MHD_NO;
        response = MHD_create_response_from_buffer_with_free_callback(request->body.size,
                                                                      request->body.data, free);
        if (!response) return MHD_NO;
        request->body = (struct dl_buf){0};
        add_header(response, "Cache-Control", "no-store");
    }
    request->response = NULL;
    if (request->content_type) add_header(response, "Content-Type", request->content_type);
    if (request->allow) add_header(response, "Allow", request->allow);
    if (request->code == MHD_HTTP_SERVICE_UNAVAILABLE) add_header(response, "Retry-After", "2");
    if (request->code == MHD_HTTP_UNAUTHORIZED) add_header(response, "WWW-Authenticate", "Bearer");
    if (request->cookie[0]) add_header(response, "Set-Cookie", request->cookie);
    if (request->listening) add_header(response, "Cache-Control", "no-store");
    add_security_headers(response);
    enum MHD_Result queued =
        MHD_queue_response(request->connection, (unsigned)request->code, response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- the routes that need no engine -------------------------------------------- */

static void answer_text(struct http_request *request, int code, const char *text)
{
    dl_buf_text(&request->body, text);
    dl_buf_text(&request->body, "\n");
    http_answer(request, code, "text/plain; charset=utf-8");
}

static void get_healthz(struct http_request *request)
{
    answer_text(request, MHD_HTTP_OK, "ok");
}

static void get_readyz(struct http_request *request)
{
    const struct dl_backend *backend = request->http->backend;
    struct dl_error error = {""};
    if (!backend->ready || backend->ready(backend->context, &error))
        answer_text(request, MHD_HTTP_OK, "ready");
    else
        answer_text(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                    error.text[0] ? error.text : "not ready");
}

static void get_metrics(struct http_request *request)
{
    struct dl_http *http = request->http;
    struct dl_error error;
    const char *accept =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    enum dl_metrics_format format = dl_metrics_negotiate(accept);
    dl_service_metrics_process(http->service);
    if (http->backend->ready)
        dl_gauge_set(http->service->ready, http->backend->ready(http->backend->context, &error));
    dl_metrics_write(http->metrics, format, &request->body);
    http_answer(request, MHD_HTTP_OK, dl_metrics_content_type(format));
}

static const struct http_route plain_routes[] = {
    {"/healthz", HTTP_GET, 0, 0, get_healthz},
    {"/readyz", HTTP_GET, 0, 0, get_readyz},
    {"/metrics", HTTP_GET, 0, DL_RPC_READ, get_metrics},
    {"/api/session", HTTP_GET, 1, 0, http_session_handle},
    {"/api/login", HTTP_POST, 1, 0, http_login_handle},
    {"/api/logout", HTTP_POST, 1, 0, http_logout_handle},
};

static void answer_asset(struct http_request *request, const struct dl_web_asset *asset)
{
    const char *known = MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND,
                                                    MHD_HTTP_HEADER_IF_NONE_MATCH);
    int same = known && strcmp(known, asset->etag) == 0;
    request->response = MHD_create_response_from_buffer(same ? 0 : asset->content.size,
                                                        (void *)(uintptr_t)asset->content.data,
                                                        MHD_RESPMEM_PERSISTENT);
    if (!request->response) {
        http_answer_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
        return;
    }
    add_header(request->response, "ETag", asset->etag);
    add_header(request->response, "Cache-Control", "no-cache");
    http_answer(request, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, asset->content_type);
}

/* ---- who may ask ------------------------------------------------------------------ */

static const char *header(const struct http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const struct dl_token *http_token(struct http_request *request)
{
    return dl_http_access_find(request->http->access,
                               header(request, MHD_HTTP_HEADER_AUTHORIZATION),
                               header(request, MHD_HTTP_HEADER_COOKIE), dl_clock_monotonic_ns());
}

/* The token's name and the client's address. */
static void note_caller(struct http_request *request, const struct dl_token *token)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char host[NI_MAXHOST] = "?";
    if (info && info->client_addr)
        getnameinfo(info->client_addr,
                    info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                             : sizeof(struct sockaddr_in),
                    host, sizeof host, NULL, 0, NI_NUMERICHOST);
    snprintf(request->by, sizeof request->by, "http %.40s%s%s", host,
             token && token->name[0] ? ", token " : "", token ? token->name : "");
}

/* 1, or 0 after an answer. */
static int check_role(struct http_request *request, uint32_t role)
{
    struct dl_http *http = request->http;
    if (http->tls && !dl_http_tls_is_client_known(http->tls, request->connection)) {
        http_answer_error(request, MHD_HTTP_FORBIDDEN,
                          "a client certificate of the authorities in http.tls_ca is needed");
        return 0;
    }
    const struct dl_token *token = http_token(request);
    note_caller(request, token);
    if (!role || !dl_http_access_is_on(http->access)) return 1;
    if (!token) {
        http_answer_error(request, MHD_HTTP_UNAUTHORIZED,
                          header(request, MHD_HTTP_HEADER_AUTHORIZATION)
                              ? "the bearer token is not known"
                              : "a bearer token is needed");
        return 0;
    }
    if (!(token->roles & role)) {
        http_answer_error(request, MHD_HTTP_FORBIDDEN, "the token's roles do not allow this");
        return 0;
    }
    return 1;
}

/* 1, or 0 after an answer. */
static int check_allowed(struct http_request *request)
{
    const char *host = header(request, MHD_HTTP_HEADER_HOST);
    const char *origin = header(request, MHD_HTTP_HEADER_ORIGIN);
    const char *type = header(request, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (request->http->loopback && host && !dl_http_host_is_loopback(host)) {
        http_answer_error(request, MHD_HTTP_FORBIDDEN,
                          "this server listens on a loopback address and answers only to Host "
                          "localhost, 127.x.x.x or [::1]; let a proxy send one of these");
        return 0;
    }
    if (!request->is_post) return 1;
    if (origin) {
        const char *authority = strstr(origin, "://");
        if (!authority || !host || strcmp(authority + 3, host) != 0) {
            http_answer_error(request, MHD_HTTP_FORBIDDEN, "requests of other origins are refused");
            return 0;
        }
    }
    /* A form of another site cannot send this type without being asked first. */
    if (!type || strncasecmp(type, http_json_type, sizeof http_json_type - 1) != 0) {
        http_answer_error(request, MHD_HTTP_UNSUPPORTED_MEDIA_TYPE,
                          "send Content-Type: application/json");
        return 0;
    }
    return 1;
}

/* ---- requests ---------------------------------------------------------------------- */

static const struct http_route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof plain_routes / sizeof *plain_routes; i++)
        if (strcmp(path, plain_routes[i].path) == 0) return &plain_routes[i];
    for (uint32_t i = 0; i < http_api_route_count; i++)
        if (strcmp(path, http_api_routes[i].path) == 0) return &http_api_routes[i];
    return NULL;
}

static struct http_request *request_new(struct dl_http *http, struct MHD_Connection *connection)
{
    struct http_request *request = calloc(1, sizeof *request);
    if (!request) return NULL;
    request->http = http;
    request->connection = connection;
    request->label = "other";
    request->next_request = http->requests;
    if (http->requests) http->requests->previous_request = request;
    http->requests = request;
    return request;
}

static void request_free(struct http_request *request)
{
    struct dl_http *http = request->http;
    if (request->previous_request)
        request->previous_request->next_request = request->next_request;
    else
        http->requests = request->next_request;
    if (request->next_request) request->next_request->previous_request = request->previous_request;
    if (request->response) MHD_destroy_response(request->response);
    dl_buf_free(&request->body);
    dl_buf_free(&request->upload);
    free(request);
}

void http_request_release(struct http_request *request)
{
    if (!request->connection && !request->pending && !request->held) request_free(request);
}

static void dispatch(struct http_request *request, const char *path, const char *method)
{
    int get = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
    request->is_post = strcmp(method, MHD_HTTP_METHOD_POST) == 0;
    request->route = find_route(path);
    const struct dl_web_asset *asset = request->route ? NULL : dl_web_asset_find(path);
    if (!request->route && !asset) {
        http_answer_error(request, MHD_HTTP_NOT_FOUND,
                          "no such page; see /, /metrics, /healthz, /readyz and /api/status");
        return;
    }
    request->label = request->route ? request->route->path : asset->path;
    unsigned methods = request->route ? request->route->methods : HTTP_GET;
    unsigned asked = get ? HTTP_GET : request->is_post ? HTTP_POST : 0;
    if (!(methods & asked)) {
        request->allow = methods == HTTP_POST ? "POST" : "GET, HEAD";
        http_answer_error(request, MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed");
        return;
    }
    if (request->http->closing) {
        http_answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE, "shutting down");
        return;
    }
    if (asset) {
        if (check_role(request, 0)) answer_asset(request, asset);
        return;
    }
    if (request->route->guarded && !check_allowed(request)) return;
    if (!check_role(request, request->route->role)) return;
    request->route->handle(request);
}

static enum MHD_Result refuse_large(struct http_request *request)
{
    char text[64];
    snprintf(text, sizeof text, "the body is larger than %d bytes", HTTP_BODY_BYTES_MAX);
    request->started = 1;
    http_answer_error(request, MHD_HTTP_CONTENT_TOO_LARGE, text);
    return queue_answer(request);
}

static enum MHD_Result access_handler(void *context, struct MHD_Connection *connection,
                                      const char *path, const char *method, const char *version,
                                      const char *upload, size_t *upload_size, void **request_place)
{
    struct http_request *request = *request_place;
    (void)version;
    if (!request) {
        request = *request_place = request_new(context, connection);
        if (!request) return MHD_NO;
        const char *length = header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
        if (length && strtoull(length, NULL, 10) > HTTP_BODY_BYTES_MAX)
            return refuse_large(request);
        return MHD_YES;
    }
    if (*upload_size > 0) {
        dl_buf_append(&request->upload, upload, *upload_size);
        *upload_size = 0;
        /* A chunked body that goes on and on: nobody would read an answer. */
        return request->upload.failed || request->upload.size > HTTP_BODY_BYTES_MAX ? MHD_NO
                                                                                    : MHD_YES;
    }
    if (!request->started) {
        request->started = 1;
        dispatch(request, path, method);
    }
    if (request->answered) return queue_answer(request);
    request->suspended = 1;
    MHD_suspend_connection(connection);
    return MHD_YES;
}

static void request_completed(void *context, struct MHD_Connection *connection,
                              void **request_place, enum MHD_RequestTerminationCode code)
{
    struct http_request *request = *request_place;
    (void)context, (void)connection, (void)code;
    if (!request) return;
    *request_place = NULL;
    request->connection = NULL;
    request->suspended = request->waiting = 0;
    if (request->listening)
        dl_gauge_set(request->http->service->http_listeners, --request->http->listeners);
    request->listening = 0;
    if (request->pending) atomic_store(&request->job.cancelled, 1);
    http_request_release(request);
}

/* ---- the loop ------------------------------------------------------------------------ */

static void finish_closing(struct dl_http *http);

static void on_timer(uv_timer_t *timer);

static void run_daemon(struct dl_http *http)
{
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    MHD_run(http->daemon);
    /* At its connection limit MHD stops listening and says nothing of when it
     * would listen again: that takes a run after the connections were freed. */
    if (MHD_get_timeout(http->daemon, &timeout_ms) != MHD_YES || timeout_ms > RUN_INTERVAL_MS)
        timeout_ms = RUN_INTERVAL_MS;
    uv_timer_start(&http->timer, on_timer, timeout_ms, 0);
    if (!http->closing) return;
    uv_timer_start(&http->timer, on_timer, CLOSING_STEP_MS, 0);
    finish_closing(http);
}

static void on_timer(uv_timer_t *timer)
{
    run_daemon(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run_daemon(poll->data);
}

void http_wake(struct dl_http *http)
{
    if (http->daemon) uv_timer_start(&http->timer, on_timer, 0, 0);
}

static void on_sample(uv_timer_t *timer)
{
    struct dl_http *http = timer->data;
    int64_t wall_us = dl_clock_wall_us();
    dl_live_expire(&http->live, wall_us / 1000);
    if (dl_history_sample(http->history, wall_us, dl_clock_monotonic_ns()))
        http_events_publish_sample(http);
}

/* ---- what the engine tells ------------------------------------------------------------- */

static struct dl_http *http_of(struct dl_backend_listener *listener)
{
    return (struct dl_http *)((char *)listener - offsetof(struct dl_http, listener));
}

static void on_score(struct dl_backend_listener *listener, const struct dl_score *score)
{
    dl_live_score(&http_of(listener)->live, score, dl_clock_wall_us() / 1000);
}

static void on_alert(struct dl_backend_listener *listener, const struct dl_alert *alert)
{
    struct dl_http *http = http_of(listener);
    dl_live_alert(&http->live, alert->number, dl_clock_wall_us() / 1000);
    http_events_publish_alert(http, alert);
}

/* ---- opening ------------------------------------------------------------------------------ */

/* "host:port" into its parts; the host of "[::1]:80" without brackets. */
static int split_address(const char *listen, char *host, size_t host_size, char *port,
                         size_t port_size, struct dl_error *error)
{
    const char *colon = strrchr(listen, ':');
    const char *start = listen, *end = colon;
    if (colon && listen[0] == '[') {
        start = listen + 1;
        end = strchr(listen, ']');
        if (!end || end + 1 != colon) colon = NULL;
    }
    if (!colon || end == start || (size_t)(end - start) >= host_size ||
        strlen(colon + 1) >= port_size || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        colon[1] == 0 || strtol(colon + 1, NULL, 10) > 65535)
        return dl_error_set(error, DL_ERR_INVALID,
                            "http.listen: \"%s\" is not an address and port such as 127.0.0.1:9464",
                            listen);
    snprintf(host, host_size, "%.*s", (int)(end - start), start);
    snprintf(port, port_size, "%s", colon + 1);
    return DL_OK;
}

static int address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    uint32_t bits = ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
    return bits >> 24 == 127;
}

/* A listening socket, its port, and whether it is loopback. */
static int listen_on(const struct dl_http_options *options, struct dl_http *http, int *fd,
                     struct dl_error *error)
{
    char host[256], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    struct sockaddr_storage bound;
    socklen_t bound_size = sizeof bound;
    int one = 1, s = -1;
    int status = split_address(options->listen, host, sizeof host, port, sizeof port, error);
    if (status) return status;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return dl_error_set(error, DL_ERR_INVALID, "http.listen: \"%s\": %s", options->listen,
                            gai_strerror(failed));
    http->loopback = address_is_loopback(found->ai_addr);
    if (!http->loopback && !http->tls && !options->plain_text_anywhere) {
        status = dl_error_set(error, DL_ERR_DENIED,
                              "http.listen: %s is not a loopback address, and this would be plain "
                              "text; set http.tls_cert and http.tls_key, listen on 127.0.0.1, or "
                              "set http.plain_text: anywhere if the network is trusted",
                              options->listen);
        goto done;
    }
    s = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) ||
        bind(s, found->ai_addr, found->ai_addrlen) || listen(s, 511) ||
        getsockname(s, (struct sockaddr *)&bound, &bound_size)) {
        status =
            dl_error_set(error, DL_ERR_IO, "http.listen: %s: %s", options->listen, strerror(errno));
        goto done;
    }
    http->port =
        ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&bound)->sin6_port
                                          : ((struct sockaddr_in *)(void *)&bound)->sin_port);
    snprintf(http->url, sizeof http->url, strchr(host, ':') ? "%s://[%.60s]:%u/" : "%s://%.60s:%u/",
             http->tls ? "https" : "http", host, http->port);
    *fd = s;
    s = -1;
done:
    if (s >= 0) close(s);
    freeaddrinfo(found);
    return status;
}

/* What libmicrohttpd would print concerns single clients and is counted anyway. */
static void discard_log(void *context, const char *format, va_list arguments)
{
    (void)context, (void)format, (void)arguments;
}

static void start_handles(struct dl_http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    DL_CHECK(info && uv_poll_init(http->loop, &http->poll, info->epoll_fd) == 0);
    DL_CHECK(uv_timer_init(http->loop, &http->timer) == 0);
    DL_CHECK(uv_timer_init(http->loop, &http->sampler) == 0);
    http->poll.data = http->timer.data = http->sampler.data = http;
    http->handles_open = 3;
    uv_poll_start(&http->poll, UV_READABLE, on_poll);
    uv_timer_start(&http->timer, on_timer, RUN_INTERVAL_MS, 0);
    uv_timer_start(&http->sampler, on_sample, 0, SAMPLE_INTERVAL_MS);
    http_wake(http);
}

static void http_free(struct dl_http *http)
{
    dl_http_tls_free(http->tls);
    dl_http_access_free(http->access);
    dl_history_free(http->history);
    dl_live_deinit(&http->live);
    dl_buf_free(&http->scratch);
    for (uint32_t i = 0; i < DL_HISTORY_TIERS; i++) dl_buf_free(&http->series[i]);
    free(http);
}

void dl_http_attach(struct dl_http *http)
{
    if (http->backend->listen) http->backend->listen(http->backend->context, &http->listener);
}

int dl_http_open(struct uv_loop_s *loop, const struct dl_http_options *options,
                 struct dl_http **http, struct dl_error *error)
{
    int fd = -1;
    struct dl_http *made = calloc(1, sizeof *made);
    if (!made) return dl_error_set(error, DL_ERR_NOMEM, "http: out of memory");
    unsigned connections =
        options->connections_max ? options->connections_max : CONNECTIONS_DEFAULT;
    made->loop = loop;
    made->backend = options->backend;
    made->metrics = options->metrics;
    made->service = options->service;
    made->started_us = dl_clock_wall_us();
    made->listeners_max = options->listeners_max ? options->listeners_max : (connections + 1) / 2;
    snprintf(made->version, sizeof made->version, "%s", options->version);
    int status = DL_OK;
    if (options->tls_cert && options->tls_cert[0])
        status = dl_http_tls_new(options->tls_cert, options->tls_key, options->tls_ca, &made->tls,
                                 error);
    if (!status) status = listen_on(options, made, &fd, error);
    if (!status)
        status = dl_http_access_new(options->tokens_file, options->tokens_key, made->port,
                                    &made->access, error);
    if (status) goto failed;
    status = dl_live_init(&made->live, options->time_unit);
    if (!status) status = dl_history_new(options->service, &made->history);
    if (status) {
        dl_error_set(error, status, "http: out of memory");
        goto failed;
    }
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    struct MHD_OptionItem tls[] = {{MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    if (made->tls) {
        flags |= MHD_USE_TLS;
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK, 0,
                                         dl_http_tls_callback(made->tls)};
        tls[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0,
                                         (void *)(uintptr_t)dl_http_tls_priorities};
        if (dl_http_tls_trust(made->tls)[0])
            tls[2] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0,
                                             (void *)(uintptr_t)dl_http_tls_trust(made->tls)};
    }
    made->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, access_handler, made, MHD_OPTION_EXTERNAL_LOGGER, discard_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, connections,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, CONNECTION_TIMEOUT_S, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_COMPLETED, request_completed, made, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    if (!made->daemon) {
        status =
            dl_error_set(error, DL_ERR_IO, "http: the server did not start on %s", options->listen);
        goto failed;
    }
    dl_gauge_set(options->service->http_listeners, 0);
    start_handles(made);
    made->listener.score = on_score;
    made->listener.alert = on_alert;
    dl_http_attach(made);
    *http = made;
    return DL_OK;
failed:
    if (fd >= 0) close(fd);
    http_free(made);
    return status;
}

int dl_http_reload(struct dl_http *http, struct dl_error *error)
{
    struct dl_error tls = {""}, tokens = {""};
    int of_tls = http->tls ? dl_http_tls_reload(http->tls, &tls) : DL_OK;
    int of_tokens = dl_http_access_reload(http->access, &tokens);
    if (of_tls == DL_OK && of_tokens == DL_OK) return DL_OK;
    return dl_error_set(error, of_tls != DL_OK ? of_tls : of_tokens, "%s%s%s", tls.text,
                        of_tls != DL_OK && of_tokens != DL_OK ? "; " : "", tokens.text);
}

const char *dl_http_url(const struct dl_http *http)
{
    return http->url;
}

uint16_t dl_http_port(const struct dl_http *http)
{
    return http->port;
}

struct dl_history *dl_http_history(struct dl_http *http)
{
    return http->history;
}

/* ---- closing -------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct dl_http *http = handle->data;
    if (--http->handles_open > 0) return;
    void (*closed)(void *) = http->closed;
    void *context = http->closed_context;
    http_free(http);
    if (closed) closed(context);
}

static void finish_closing(struct dl_http *http)
{
    if (!http->daemon || http->jobs > 0) return;
    if (http->requests && dl_clock_monotonic_ns() < http->closing_until_ns) return;
    struct MHD_Daemon *daemon = http->daemon;
    http->daemon = NULL;
    uv_close((uv_handle_t *)&http->poll, on_handle_closed);
    uv_close((uv_handle_t *)&http->timer, on_handle_closed);
    uv_close((uv_handle_t *)&http->sampler, on_handle_closed);
    MHD_stop_daemon(daemon);
    DL_CHECK(http->requests == NULL);
}

void dl_http_close(struct dl_http *http, void (*closed)(void *context), void *context)
{
    http->closing = 1;
    http->closing_until_ns = dl_clock_monotonic_ns() + CLOSING_GRACE_NS;
    http->closed = closed;
    http->closed_context = context;
    if (http->backend->unlisten) http->backend->unlisten(http->backend->context, &http->listener);
    for (struct http_request *request = http->requests; request; request = request->next_request)
        if (request->pending) atomic_store(&request->job.cancelled, 1);
    http_events_wake(http);
    http_wake(http);
}
