/* The HTTP side as a hostile client sees it, without sockets: libmicrohttpd's
 * functions that the server uses are defined here, and call it as the library
 * would. The first byte picks a server, one that asks for tokens or one that
 * does not; what follows is a list of requests, each
 *
 *   how       1 byte: what the engine does, whether the client stays
 *   head      "METHOD /path?arguments\nName: value\n...", up to an empty line;
 *             "Cookie: @" stands for the cookie that was set last
 *   body      if `how` says so: a byte that says how long, then its bytes
 *
 * Checked for every answer: one of the codes that are documented, the security
 * headers, JSON where it says so, no guarded page for a foreign Host or without
 * a token, no renewal for a foreign page; and in the end nothing is left. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/check.h"
#include "proto/json_scan.h"
#include "service/http_private.h"

#define TOKEN "0123456789abcdef"
#define FIELDS_MAX 16
#define OPEN_MAX 8
#define BODY_BYTES_MAX (2 * HTTP_BODY_BYTES_MAX)

enum { ENGINE_LATER = 1, ENGINE_REFUSES = 2, CLIENT_LEAVES = 4, HAS_BODY = 8, ENGINE_WORKS = 16 };

/* ---- what stands for libmicrohttpd ----------------------------------------------- */

struct MHD_Daemon {
    int asks_for_tokens;
    union MHD_DaemonInfo info;
    MHD_AccessHandlerCallback handler;
    void *handler_context;
    MHD_RequestCompletedCallback completed;
    void *completed_context;
};

struct MHD_Response {
    int references;
    uint64_t size;
    void *data;
    MHD_ContentReaderFreeCallback free_data;
    MHD_ContentReaderCallback reader;
    void *reader_context;
    int is_json, security_headers;
};

struct field {
    const char *name, *value; /* terminated; value may be NULL, and hold zeros */
    size_t value_size;
};

struct MHD_Connection {
    const struct MHD_Daemon *daemon;
    int open, suspended, resumed;
    void *request;
    struct MHD_Response *response;
    char text[4096 + 1];
    char *method, *path;
    struct field headers[FIELDS_MAX], arguments[FIELDS_MAX];
    uint32_t header_count, argument_count;
};

static struct MHD_Daemon daemons[2]; /* without tokens, with */
static uint32_t daemon_count;
static char cookie[256]; /* set last */
static struct MHD_Connection connections[OPEN_MAX];

struct MHD_Daemon *MHD_start_daemon(unsigned flags, uint16_t port, MHD_AcceptPolicyCallback accept,
                                    void *accept_context, MHD_AccessHandlerCallback handler,
                                    void *handler_context, ...)
{
    va_list list;
    enum MHD_OPTION option;
    (void)flags, (void)port, (void)accept, (void)accept_context;
    DL_CHECK(daemon_count < 2);
    struct MHD_Daemon *daemon = &daemons[daemon_count];
    daemon->asks_for_tokens = (int)daemon_count++;
    daemon->handler = handler;
    daemon->handler_context = handler_context;
    va_start(list, handler_context);
    while ((option = va_arg(list, enum MHD_OPTION)) != MHD_OPTION_END) {
        if (option == MHD_OPTION_NOTIFY_COMPLETED) {
            daemon->completed = va_arg(list, MHD_RequestCompletedCallback);
            daemon->completed_context = va_arg(list, void *);
        } else if (option == MHD_OPTION_EXTERNAL_LOGGER) {
            (void)va_arg(list, void *);
            (void)va_arg(list, void *);
        } else if (option == MHD_OPTION_CONNECTION_MEMORY_LIMIT) {
            (void)va_arg(list, size_t);
        } else {
            (void)va_arg(list, int);
        }
    }
    va_end(list);
    DL_CHECK(daemon->completed);
    return daemon;
}

void MHD_stop_daemon(struct MHD_Daemon *daemon)
{
    (void)daemon;
}

enum MHD_Result MHD_run(struct MHD_Daemon *daemon)
{
    (void)daemon;
    return MHD_YES;
}

enum MHD_Result MHD_get_timeout(struct MHD_Daemon *daemon, MHD_UNSIGNED_LONG_LONG *timeout)
{
    (void)daemon, (void)timeout;
    return MHD_NO;
}

const union MHD_DaemonInfo *MHD_get_daemon_info(struct MHD_Daemon *daemon,
                                                enum MHD_DaemonInfoType type, ...)
{
    int ends[2]; /* nothing ever comes */
    (void)type;
    DL_CHECK(pipe(ends) == 0);
    daemon->info.epoll_fd = ends[0];
    return &daemon->info;
}

const union MHD_ConnectionInfo *MHD_get_connection_info(struct MHD_Connection *connection,
                                                        enum MHD_ConnectionInfoType type, ...)
{
    DL_CHECK(connection->open && type == MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return NULL;
}

void MHD_suspend_connection(struct MHD_Connection *connection)
{
    DL_CHECK(connection->open && !connection->suspended);
    connection->suspended = 1;
}

void MHD_resume_connection(struct MHD_Connection *connection)
{
    DL_CHECK(connection->open && connection->suspended);
    connection->suspended = 0;
    connection->resumed = 1;
}

enum MHD_Result MHD_lookup_connection_value_n(struct MHD_Connection *connection,
                                              enum MHD_ValueKind kind, const char *key,
                                              size_t key_size, const char **value, size_t *size)
{
    int header = kind == MHD_HEADER_KIND;
    const struct field *fields = header ? connection->headers : connection->arguments;
    uint32_t count = header ? connection->header_count : connection->argument_count;
    DL_CHECK(connection->open && strlen(key) == key_size);
    for (uint32_t i = 0; i < count; i++) {
        if (header ? strcasecmp(fields[i].name, key) : strcmp(fields[i].name, key)) continue;
        *value = fields[i].value;
        *size = fields[i].value_size;
        return MHD_YES;
    }
    return MHD_NO;
}

const char *MHD_lookup_connection_value(struct MHD_Connection *connection, enum MHD_ValueKind kind,
                                        const char *key)
{
    const char *value = NULL;
    size_t size;
    MHD_lookup_connection_value_n(connection, kind, key, strlen(key), &value, &size);
    return value;
}

static struct MHD_Response *response_new(uint64_t size, void *data,
                                         MHD_ContentReaderFreeCallback free_data)
{
    struct MHD_Response *response = calloc(1, sizeof *response);
    DL_CHECK(response);
    *response =
        (struct MHD_Response){.references = 1, .size = size, .data = data, .free_data = free_data};
    return response;
}

struct MHD_Response *MHD_create_response_from_buffer(size_t size, void *data,
                                                     enum MHD_ResponseMemoryMode mode)
{
    DL_CHECK(mode == MHD_RESPMEM_PERSISTENT);
    return response_new(size, data, NULL);
}

struct MHD_Response *
MHD_create_response_from_buffer_with_free_callback(size_t size, void *data,
                                                   MHD_ContentReaderFreeCallback free_data)
{
    return response_new(size, data, free_data);
}

struct MHD_Response *MHD_create_response_from_callback(uint64_t size, size_t block_size,
                                                       MHD_ContentReaderCallback reader,
                                                       void *reader_context,
                                                       MHD_ContentReaderFreeCallback free_data)
{
    (void)block_size;
    struct MHD_Response *response = response_new(size, NULL, free_data);
    response->reader = reader;
    response->reader_context = reader_context;
    return response;
}

enum MHD_Result MHD_add_response_header(struct MHD_Response *response, const char *name,
                                        const char *value)
{
    static const char *const wanted[] = {"Content-Security-Policy", "X-Content-Type-Options",
                                         "X-Frame-Options"};
    DL_CHECK(!strpbrk(name, "\r\n") && !strpbrk(value, "\r\n"));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        response->security_headers += strcmp(name, wanted[i]) == 0;
    if (strcmp(name, "Set-Cookie") == 0) {
        DL_CHECK(strstr(value, "; HttpOnly") && strstr(value, "; SameSite=Strict"));
        snprintf(cookie, sizeof cookie, "%.*s", (int)strcspn(value, ";"), value);
    }
    if (strcmp(name, "Content-Type") == 0) response->is_json = strcmp(value, http_json_type) == 0;
    return MHD_YES;
}

void MHD_destroy_response(struct MHD_Response *response)
{
    if (--response->references > 0) return;
    if (response->free_data) response->free_data(response->data);
    free(response);
}

/* Whether a page of this address may be read by scripts that reached it by `host`. */
static int is_this_machine(const char *host)
{
    char name[4096]; /* longer than any input */
    size_t size = strlen(host);
    while (size > 0 && host[size - 1] >= '0' && host[size - 1] <= '9') size--;
    size = size > 0 && host[size - 1] == ':' ? size - 1 : strlen(host);
    if (size >= sizeof name) size = sizeof name - 1;
    snprintf(name, sizeof name, "%.*s", (int)size, host);
    size = strlen(name);
    if (strcmp(name, "[::1]") == 0 || strcasecmp(name, "localhost") == 0) return 1;
    if (size > 10 && strcasecmp(name + size - 10, ".localhost") == 0) return 1;
    /* A name of digits and dots is no name of the domain system. */
    return strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == size;
}

static int is_for_readers(const char *path)
{
    static const char *const free_for_all[] = {"/api/session", "/api/login", "/api/logout"};
    for (size_t i = 0; i < sizeof free_for_all / sizeof *free_for_all; i++)
        if (strcmp(path, free_for_all[i]) == 0) return 0;
    return strcmp(path, "/metrics") == 0 || strncmp(path, "/api/", 5) == 0;
}

enum MHD_Result MHD_queue_response(struct MHD_Connection *connection, unsigned code,
                                   struct MHD_Response *response)
{
    static const unsigned codes[] = {200, 304, 400, 401, 403, 404, 405,
                                     409, 413, 415, 500, 501, 503};
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
    struct dl_error error;
    int known = 0;
    DL_CHECK(connection->open && !connection->suspended && !connection->response);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) known |= code == codes[i];
    DL_CHECK(known);
    DL_CHECK(response->security_headers == 3);
    DL_CHECK(response->reader || response->size <= HTTP_ANSWER_BYTES_MAX);
    if (response->is_json)
        DL_CHECK(dl_json_scan(dl_slice_of(response->data, response->size), NULL, 0, NULL, &error) ==
                 DL_OK);
    if (code == 200 && strncmp(connection->path, "/api/", 5) == 0 && host)
        DL_CHECK(is_this_machine(host));
    if (code == 200 && connection->daemon->asks_for_tokens && is_for_readers(connection->path)) {
        const char *token =
            MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization");
        const char *session = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Cookie");
        DL_CHECK(token ? strstr(token, TOKEN) != NULL : session && cookie[0]);
    }
    connection->response = response;
    response->references++;
    return MHD_YES;
}

/* ---- the engine -------------------------------------------------------------------- */

static struct {
    int how;
    struct dl_backend_job *waiting[OPEN_MAX];
    uint32_t waiting_count, renewed;
    struct dl_backend_listener *listener;
    uint8_t name[DL_NAME_BYTES_MAX]; /* the last one asked for */
    size_t name_size;
} engine;

static const char *const features_names[] = {"activity", "gap"};

static void answer_job(struct dl_backend_job *job, int refused)
{
    static const int statuses[] = {DL_ERR_FULL, DL_ERR_NOT_FOUND, DL_ERR_DENIED, DL_ERR_NOMEM};
    struct dl_slice name = {engine.name, engine.name_size};
    struct dl_error error = {"the queue is \"full\"\n"};
    if (atomic_load(&job->cancelled)) {
        job->done(job, DL_ERR_CANCELLED, &error, NULL);
        return;
    }
    if (refused) {
        job->done(job, statuses[engine.name_size % 4], &error, NULL);
        return;
    }
    /* Which of them a job is for is its own affair: all are filled alike. */
    void (*answer)(struct dl_backend_job *, struct dl_slice) = job->engine;
    answer(job, name);
}

static void answer_drift(struct dl_backend_job *job, struct dl_slice name)
{
    struct dl_alert_feature moved[] = {{features_names[0], 0.7, 1.5, 4.0},
                                       {features_names[1], 0.3, -1e300, 1e300}};
    struct dl_alert alert = {.raised = 1,
                             .kind = (enum dl_alert_kind)(name.size % 5),
                             .number = 3,
                             .node = name,
                             .reason = "why",
                             .feature_count = 2,
                             .features = moved};
    struct dl_backend_quality quality = {.pairs = 9, .ap = 0.5};
    union dl_backend_result result = {.drift = {.ready = name.size % 2 == 0,
                                                .reason = "too few events",
                                                .statistic = 0.25,
                                                .feature_count = 2,
                                                .features = moved,
                                                .quality = name.size % 3 ? &quality : NULL,
                                                .alert_count = 1,
                                                .alerts = &alert,
                                                .reference_origin = "model",
                                                .time = INT64_MIN,
                                                .time_unit = DL_TIME_ISO8601}};
    job->done(job, DL_OK, NULL, &result);
}

static void answer_renewed(struct dl_backend_job *job, struct dl_slice name)
{
    union dl_backend_result result = {.renewed = {.reference_size = 500}};
    (void)name;
    job->done(job, DL_OK, NULL, &result);
}

static void answer_model(struct dl_backend_job *job, struct dl_slice name)
{
    struct dl_model_info info = {.time_unit = DL_TIME_MS, .version = "0123456789abcdef"};
    union dl_backend_result result = {.model = {.info = &info, .kernels = NULL}};
    (void)name;
    job->done(job, DL_OK, NULL, &result);
}

static void answer_window(struct dl_backend_job *job, struct dl_slice name)
{
    float features[] = {0.5f, -1e38f};
    struct dl_backend_interaction events[] = {
        {.peer = name, .time = INT64_MAX, .type = name, .weight = 1e38f, .out = 1},
        {.peer = name, .time = -1, .feature_count = 2, .features = features}};
    union dl_backend_result result = {.window = {.known = name.size != 3,
                                                 .time_unit = DL_TIME_ISO8601,
                                                 .interaction_count = 2,
                                                 .interactions = events}};
    job->done(job, DL_OK, NULL, &result);
}

static void answer_top_k(struct dl_backend_job *job, struct dl_slice name)
{
    struct dl_candidate candidates[] = {{.node = name, .probability = 0.875, .origin = 255}};
    union dl_backend_result result = {
        .prediction = {.node = name, .candidate_count = 1, .candidates = candidates}};
    job->done(job, DL_OK, NULL, &result);
}

static void answer_explain(struct dl_backend_job *job, struct dl_slice name)
{
    double entropy[] = {0.5, 1.5};
    struct dl_backend_token tokens[] = {{.self = 1, .weight = 0.75},
                                        {.side = 1, .event = {.peer = name, .type = name}}};
    union dl_backend_result result = {.explanation = {.score = {.src = name, .dst = name},
                                                      .time_unit = DL_TIME_TICKS,
                                                      .layers = 2,
                                                      .tokens = 2,
                                                      .entropy_nats = entropy,
                                                      .token_list = tokens}};
    job->done(job, DL_OK, NULL, &result);
}

static int take_job(struct dl_backend_job *job, struct dl_slice name,
                    void (*answer)(struct dl_backend_job *, struct dl_slice),
                    struct dl_error *error)
{
    DL_CHECK(name.size <= sizeof engine.name);
    if (name.size) memcpy(engine.name, name.data, name.size);
    engine.name_size = name.size;
    job->engine = (void *)(uintptr_t)answer;
    if (engine.how & ENGINE_REFUSES && !(engine.how & ENGINE_LATER))
        return dl_error_set(error, DL_ERR_FULL, "the queue is full");
    if (engine.how & ENGINE_LATER && engine.waiting_count < OPEN_MAX)
        engine.waiting[engine.waiting_count++] = job;
    else
        answer_job(job, 0);
    return DL_OK;
}

static void work(void)
{
    uint32_t count = engine.waiting_count;
    for (uint32_t i = 0; i < count; i++) {
        struct dl_backend_job *job = engine.waiting[0];
        memmove(engine.waiting, engine.waiting + 1,
                --engine.waiting_count * sizeof *engine.waiting);
        answer_job(job, engine.how & ENGINE_REFUSES);
    }
}

static int drift(void *context, const struct dl_backend_drift_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    DL_CHECK(request->alerts_max >= 1 && request->alerts_max <= DL_BACKEND_ALERTS_MAX);
    return take_job(job, dl_slice_of(engine.name, engine.name_size), answer_drift, error);
}

static int renew(void *context, const struct dl_backend_renew_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)request;
    engine.renewed++;
    return take_job(job, (struct dl_slice){0}, answer_renewed, error);
}

static int model(void *context, struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    return take_job(job, (struct dl_slice){0}, answer_model, error);
}

static int window(void *context, const struct dl_backend_window_request *request,
                  struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    DL_CHECK(request->node.size >= 1);
    return take_job(job, request->node, answer_window, error);
}

static int top_k(void *context, const struct dl_backend_top_k_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    DL_CHECK(request->node.size >= 1 && request->k >= 1 && request->k <= DL_BACKEND_K_MAX);
    return take_job(job, request->node, answer_top_k, error);
}

static int explain(void *context, const struct dl_backend_explain_request *request,
                   struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    DL_CHECK(request->src.size >= 1 && request->dst.size >= 1);
    return take_job(job, request->dst, answer_explain, error);
}

static void listen_to(void *context, struct dl_backend_listener *listener)
{
    (void)context;
    engine.listener = listener;
}

static int ready(void *context, struct dl_error *error)
{
    (void)context;
    if (engine.how & ENGINE_REFUSES) dl_error_set(error, DL_ERR_UNAVAILABLE, "not \"now\"\n");
    return !(engine.how & ENGINE_REFUSES);
}

static const struct dl_backend backend = {.get_drift = drift,
                                          .renew_reference = renew,
                                          .get_model = model,
                                          .get_window = window,
                                          .top_k = top_k,
                                          .explain = explain,
                                          .listen = listen_to,
                                          .ready = ready};

/* What the feed brings goes to the event streams. */
static void publish(struct dl_http *http)
{
    struct dl_slice name = {engine.name, engine.name_size};
    struct dl_score score = {.src = name, .dst = name, .surprise_bits = (double)name.size};
    struct dl_alert alert = {.raised = 1, .number = 1, .node = name, .reason = "why"};
    engine.listener->score(engine.listener, &score);
    engine.listener->alert(engine.listener, &alert);
    http_events_publish_sample(http);
}

/* ---- requests ------------------------------------------------------------------------ */

/* Undoes %XX and '+' in place, as the library does; may yield zeros. */
static size_t unescape(char *text)
{
    char *out = text;
    for (char *in = text; *in; in++) {
        unsigned byte;
        if (*in == '%' && in[1] && in[2] && sscanf(in + 1, "%2x", &byte) == 1) {
            *out++ = (char)byte;
            in += 2;
        } else {
            *out++ = (char)(*in == '+' ? ' ' : *in);
        }
    }
    *out = 0;
    return (size_t)(out - text);
}

static void parse_arguments(struct MHD_Connection *connection, char *text)
{
    while (text && connection->argument_count < FIELDS_MAX) {
        struct field *field = &connection->arguments[connection->argument_count++];
        char *name = strsep(&text, "&");
        char *value = strchr(name, '=');
        if (value) *value++ = 0;
        unescape(name);
        *field = (struct field){name, value, value ? unescape(value) : 0};
    }
}

static void parse_head(struct MHD_Connection *connection, struct dl_slice head)
{
    char *rest = connection->text;
    DL_CHECK(head.size < sizeof connection->text);
    memcpy(rest, head.data, head.size);
    rest[head.size] = 0;
    for (size_t i = 0; i < head.size; i++)
        if (!rest[i]) rest[i] = '?'; /* the library refuses zeros */
    char *line = strsep(&rest, "\n");
    connection->method = strsep(&line, " ");
    connection->path = line ? line : "";
    char *arguments = strchr(connection->path, '?');
    if (arguments) *arguments++ = 0;
    if (line) unescape(connection->path);
    parse_arguments(connection, arguments);
    while (rest && connection->header_count < FIELDS_MAX) {
        char *name = strsep(&rest, "\n"), *value = strchr(name, ':');
        if (!value) continue;
        *value++ = 0;
        while (*value == ' ') value++;
        if (strcmp(value, "@") == 0) value = cookie;
        connection->headers[connection->header_count++] =
            (struct field){name, value, strlen(value)};
    }
}

static enum MHD_Result call(struct MHD_Connection *connection, const char *upload, size_t *size)
{
    return connection->daemon->handler(connection->daemon->handler_context, connection,
                                       connection->path, connection->method, "HTTP/1.1", upload,
                                       size, &connection->request);
}

static void complete(struct MHD_Connection *connection)
{
    connection->daemon->completed(connection->daemon->completed_context, connection,
                                  &connection->request, MHD_REQUEST_TERMINATED_COMPLETED_OK);
    if (connection->response) MHD_destroy_response(connection->response);
    connection->open = 0;
}

/* Reads what an event stream has, in small pieces. */
static int read_stream(struct MHD_Connection *connection)
{
    char piece[512];
    struct MHD_Response *response = connection->response;
    for (int i = 0; i < 100 && !connection->suspended; i++) {
        size_t room = 1 + (size_t)(i * 37) % sizeof piece;
        ssize_t got = response->reader(response->reader_context, 0, piece, room);
        if (got < 0) return 0;
        DL_CHECK((size_t)got <= room);
    }
    return 1;
}

/* Goes on with a connection for as long as it can. */
static void advance(struct MHD_Connection *connection)
{
    size_t none = 0;
    connection->resumed = 0;
    if (!connection->response && call(connection, NULL, &none) != MHD_YES) {
        complete(connection);
        return;
    }
    if (!connection->response)
        DL_CHECK(connection->suspended);
    else if (!connection->response->reader || !read_stream(connection))
        complete(connection);
}

static void advance_all(void)
{
    for (int i = 0; i < OPEN_MAX; i++)
        while (connections[i].open && connections[i].resumed) advance(&connections[i]);
}

/* 1 if the head and the body were taken. */
static int send_body(struct MHD_Connection *connection, struct dl_slice body)
{
    while (body.size > 0) {
        size_t chunk = body.size < 1000 ? body.size : 1000, left = chunk;
        if (call(connection, (const char *)body.data, &left) != MHD_YES) return 0;
        if (left == chunk) return connection->response != NULL;
        body.data += chunk - left;
        body.size -= chunk - left;
    }
    return 1;
}

static void begin(struct MHD_Connection *connection, struct dl_slice head, struct dl_slice body,
                  const struct MHD_Daemon *daemon)
{
    size_t none = 0;
    uint32_t renewed = engine.renewed;
    memset(connection, 0, offsetof(struct MHD_Connection, text));
    connection->header_count = connection->argument_count = 0;
    connection->daemon = daemon;
    connection->open = 1;
    parse_head(connection, head);
    /* Takes ten times as long as all else, so it is not asked for often. */
    if (strcmp(connection->path, "/metrics") == 0 && engine.how < 224) connection->path = "/readyz";
    const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "host");
    const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "origin");
    const char *type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "content-type");
    if (call(connection, NULL, &none) != MHD_YES || !send_body(connection, body)) {
        complete(connection);
        return;
    }
    if (connection->response)
        complete(connection);
    else
        advance(connection);
    if (engine.renewed == renewed) return;
    DL_CHECK(type && strncasecmp(type, "application/json", 16) == 0);
    if (origin)
        DL_CHECK(host && strlen(origin) > strlen(host) + 3 &&
                 strcmp(origin + strlen(origin) - strlen(host), host) == 0);
}

static struct dl_http *http_open(uv_loop_t *loop, const char *tokens_file)
{
    static struct dl_service_metrics service;
    static struct dl_metrics *metrics;
    struct dl_http *http;
    struct dl_error error;
    if (!metrics) {
        DL_CHECK(dl_metrics_new(&metrics) == DL_OK);
        DL_CHECK(dl_service_metrics_init(metrics, &service, &error) == DL_OK);
    }
    struct dl_http_options options = {.listen = "127.0.0.1:0",
                                      .tokens_file = tokens_file,
                                      .tokens_key = "tokens",
                                      .listeners_max = 2,
                                      .backend = &backend,
                                      .metrics = metrics,
                                      .service = &service,
                                      .time_unit = DL_TIME_MS,
                                      .version = "0"};
    DL_CHECK(dl_http_open(loop, &options, &http, &error) == DL_OK);
    for (int i = 1; i < 5; i++)
        dl_history_sample(dl_http_history(http), i * 1000000, i * INT64_C(1000000000));
    return http;
}

static struct dl_http *servers[2];
static struct dl_backend_listener *listeners[2];

static void open_servers(void)
{
    static uv_loop_t loop;
    char path[] = "/tmp/driftline-fuzz-XXXXXX";
    static const char text[] = TOKEN " read,subscribe # reader\nadmin" TOKEN " all\n";
    int fd = mkstemp(path);
    DL_CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    DL_CHECK(uv_loop_init(&loop) == 0);
    for (int i = 0; i < 2; i++) {
        servers[i] = http_open(&loop, i ? path : "");
        listeners[i] = engine.listener;
    }
    close(fd);
    unlink(path);
}

static struct dl_slice take_slice(const uint8_t **data, size_t *size, size_t count)
{
    struct dl_slice taken = {*data, count < *size ? count : *size};
    *data += taken.size;
    *size -= taken.size;
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t zeros[BODY_BYTES_MAX];
    if (!servers[0]) open_servers();
    if (size == 0) return 0;
    const int which = *data++ & 1;
    struct dl_http *http = servers[which];
    size--;
    engine.name_size = 0;
    engine.listener = listeners[which];
    cookie[0] = 0;
    while (size > 1) {
        struct MHD_Connection *connection = connections;
        while (connection < connections + OPEN_MAX && connection->open) connection++;
        if (connection == connections + OPEN_MAX) break;
        engine.how = *data++;
        size--;
        const uint8_t *end = memmem(data, size, "\n\n", 2);
        struct dl_slice body = {0},
                        head = take_slice(&data, &size, end ? (size_t)(end - data) : size);
        take_slice(&data, &size, 2);
        if (engine.how & HAS_BODY && size > 0) {
            size_t count = take_slice(&data, &size, 1).data[0];
            body = count < 255 ? take_slice(&data, &size, count) : dl_slice_of(zeros, sizeof zeros);
        }
        if (head.size >= sizeof connection->text) break;
        begin(connection, head, body, &daemons[which]);
        if (engine.how & CLIENT_LEAVES && connection->open) complete(connection);
        if (engine.how & ENGINE_WORKS) work();
        if (http->listeners > 0) publish(http);
        DL_CHECK(http->listeners <= 2);
        advance_all();
    }
    while (engine.waiting_count > 0) {
        work();
        advance_all();
    }
    for (int i = 0; i < OPEN_MAX; i++)
        if (connections[i].open) complete(&connections[i]);
    DL_CHECK(http->jobs == 0 && http->listeners == 0 && http->requests == NULL);
    return 0;
}
