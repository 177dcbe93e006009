/* How it works. A connection is a dl_h2 with a list of calls. A call is made
 * when a request's headers are in order, and freed when its stream closes; in
 * between it is in one of these states:
 *
 *   reading ──message(s)──> answering ──finish──> finished ──stream closed──> freed
 *      │                        │
 *      └──── over (deadline, limit, drain): `closed` was told, the status is on its way ────> freed
 *
 * Deadlines stand in a heap over all calls. Everything slower (handshakes, idle
 * connections, answers that nobody reads) is looked at once a second. */
#include "service/rpc_core.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define METHODS_MAX 64
#define PEER_BYTES_MAX 64
#define SCAN_MS 1000
#define DRAIN_WAIT_MS 1000         /* for the answer to the PING between the two GOAWAYs */
#define COMPRESS_BYTES_MIN 256     /* smaller answers do not gain */
#define STATUS_TEXT_BYTES_MAX 1024 /* of grpc-message, before encoding */

const struct dl_rpc_config dl_rpc_config_default = {
    .h2 = {.server = 1,
           .streams_max = 128,
           .header_bytes_max = 16 * 1024,
           .stream_window = 256 * 1024,
           .connection_window = 1024 * 1024,
           .reset_burst = 1000,
           .reset_rate = 200,
           .control_burst = 1000,
           .control_rate = 100},
    .connections_max = 1024,
    .message_bytes_max = 4 * 1024 * 1024,
    .connection_memory_bytes_max = 16 * 1024 * 1024,
    .memory_bytes_max = 256 * 1024 * 1024,
    .queue_messages_max = 1024,
    .queue_bytes_max = 4 * 1024 * 1024,
    .handshake_ms = 10 * 1000,
    .request_ms = 60 * 1000,
    .linger_ms = 60 * 1000,
    .keepalive_ms = 60 * 1000,
    .keepalive_timeout_ms = 20 * 1000,
    .idle_ms = 30 * 60 * 1000,
};

struct dl_rpc {
    struct dl_rpc_config config;
    struct dl_rpc_method methods[METHODS_MAX];
    uint32_t method_count;
    struct dl_rpc_connection *connections;
    struct dl_rpc_call **heap; /* by deadline_ms, smallest first */
    uint32_t heap_count, heap_capacity;
    size_t memory_bytes;
    int64_t now_ms; /* as of the last entry from outside */
    int64_t scan_ms;
    int draining;
    int64_t drain_until_ms;
    struct dl_rpc_stats stats;
    struct dl_buf scratch; /* compression, status text */
};

enum drain_step { DRAIN_NONE, DRAIN_NOTICE, DRAIN_CLOSED };

struct dl_rpc_connection {
    struct dl_rpc *rpc;
    struct dl_h2 *h2;
    void *io;
    struct dl_rpc_connection *previous, *next;
    struct dl_rpc_call *calls;
    uint32_t call_count;
    size_t memory_bytes;
    int64_t opened_ms, received_ms, idle_since_ms, ping_ms;
    int64_t drain_ms;
    enum drain_step drain;
    int receiving; /* within dl_h2_receive: the caller takes what there is */
    int broken;    /* closed as soon as what there is was taken */
    int64_t rate_tokens_milli, rate_ms;
    char peer[PEER_BYTES_MAX];
};

#define NOT_IN_HEAP UINT32_MAX

struct dl_rpc_call {
    struct dl_rpc_connection *connection;
    const struct dl_rpc_method *method;
    struct dl_h2_stream *stream;
    struct dl_rpc_call *previous, *next;
    void *user;
    struct dl_grpc_reader reader;
    struct dl_buf
        backlog; /* body bytes that came while held; never more than the stream's window */
    size_t backlog_used;
    size_t memory_bytes; /* as counted in the connection and in rpc */
    int64_t deadline_ms; /* INT64_MAX: none */
    uint32_t heap_index;
    int64_t begun_ms, finished_ms;
    uint32_t messages; /* received */
    uint64_t dropped, dropped_told;
    unsigned int gzip : 1, headers_sent : 1, finished : 1, told : 1, held : 1, half_closed : 1,
        half_closed_told : 1, pumping : 1;
};

/* ---- deadline heap ---------------------------------------------------------------- */

static void heap_put(struct dl_rpc *rpc, uint32_t index, struct dl_rpc_call *call)
{
    rpc->heap[index] = call;
    call->heap_index = index;
}

static void heap_rise(struct dl_rpc *rpc, uint32_t index)
{
    struct dl_rpc_call *call = rpc->heap[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (rpc->heap[parent]->deadline_ms <= call->deadline_ms) break;
        heap_put(rpc, index, rpc->heap[parent]);
        index = parent;
    }
    heap_put(rpc, index, call);
}

static void heap_sink(struct dl_rpc *rpc, uint32_t index)
{
    struct dl_rpc_call *call = rpc->heap[index];
    for (;;) {
        uint32_t child = index * 2 + 1;
        if (child >= rpc->heap_count) break;
        if (child + 1 < rpc->heap_count &&
            rpc->heap[child + 1]->deadline_ms < rpc->heap[child]->deadline_ms)
            child++;
        if (call->deadline_ms <= rpc->heap[child]->deadline_ms) break;
        heap_put(rpc, index, rpc->heap[child]);
        index = child;
    }
    heap_put(rpc, index, call);
}

static int heap_add(struct dl_rpc *rpc, struct dl_rpc_call *call)
{
    if (rpc->heap_count == rpc->heap_capacity) {
        uint32_t capacity = rpc->heap_capacity ? rpc->heap_capacity * 2 : 64;
        void *heap = realloc(rpc->heap, capacity * sizeof(*rpc->heap));
        if (!heap) return DL_ERR_NOMEM;
        rpc->heap = heap;
        rpc->heap_capacity = capacity;
    }
    rpc->heap[rpc->heap_count] = call;
    heap_rise(rpc, rpc->heap_count++);
    return DL_OK;
}

static void heap_remove(struct dl_rpc *rpc, struct dl_rpc_call *call)
{
    uint32_t index = call->heap_index;
    if (index == NOT_IN_HEAP) return;
    call->heap_index = NOT_IN_HEAP;
    struct dl_rpc_call *last = rpc->heap[--rpc->heap_count];
    if (last == call) return;
    heap_put(rpc, index, last);
    heap_rise(rpc, index);
    heap_sink(rpc, last->heap_index);
}

/* ---- answering ---------------------------------------------------------------------- */

static void wake(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    if (!connection->receiving && rpc->config.wake) rpc->config.wake(connection->io, connection);
}

#define HEADER(name_text, value_slice)                                                             \
    ((struct dl_h2_header){{(const uint8_t *)(name_text), sizeof(name_text) - 1}, (value_slice)})
#define HEADER_TEXT(name_text, value_text)                                                         \
    {                                                                                              \
        {(const uint8_t *)(name_text), sizeof(name_text) - 1},                                     \
        {                                                                                          \
            (const uint8_t *)(value_text), sizeof(value_text) - 1                                  \
        }                                                                                          \
    }

static void count_end(struct dl_rpc *rpc, const struct dl_rpc_method *method,
                      enum dl_grpc_status status)
{
    rpc->stats.finished[status]++;
    if (rpc->config.ended) rpc->config.ended(rpc->config.ended_context, method, status);
}

/* A plain HTTP answer to what is not gRPC at all. */
static void answer_http(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                        const char *http_status)
{
    struct dl_h2_header headers[] = {HEADER(":status", dl_slice_text(http_status))};
    dl_h2_respond(connection->h2, stream, headers, 1, 1);
}

/* grpc-status and grpc-message; the text stands in rpc->scratch. */
static size_t status_headers(struct dl_rpc *rpc, enum dl_grpc_status status, const char *message,
                             char number[4], struct dl_h2_header *headers)
{
    size_t count = 0;
    snprintf(number, 4, "%d", (int)status);
    headers[count++] = HEADER("grpc-status", dl_slice_text(number));
    if (message && message[0]) {
        struct dl_slice text = dl_slice_text(message);
        if (text.size > STATUS_TEXT_BYTES_MAX) text.size = STATUS_TEXT_BYTES_MAX;
        dl_buf_clear(&rpc->scratch);
        dl_grpc_percent_encode(text, &rpc->scratch);
        if (!rpc->scratch.failed)
            headers[count++] = HEADER("grpc-message", dl_buf_slice(&rpc->scratch));
    }
    return count;
}

static void send_trailers_only(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                               enum dl_grpc_status status, const char *message)
{
    char number[4];
    struct dl_h2_header headers[5] = {HEADER_TEXT(":status", "200"),
                                      HEADER_TEXT("content-type", "application/grpc"),
                                      HEADER_TEXT("grpc-accept-encoding", "identity,deflate,gzip")};
    size_t count = 3 + status_headers(connection->rpc, status, message, number, headers + 3);
    if (dl_h2_respond(connection->h2, stream, headers, count, 1) != DL_OK)
        dl_h2_reset(connection->h2, stream, DL_H2_INTERNAL_ERROR);
}

/* Refuses a request that did not become a call. */
static void refuse(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                   const struct dl_rpc_method *method, enum dl_grpc_status status,
                   const char *message)
{
    count_end(connection->rpc, method, status);
    send_trailers_only(connection, stream, status, message);
}

static int send_headers(struct dl_rpc_call *call)
{
    static const struct dl_h2_header headers[] = {
        HEADER_TEXT(":status", "200"),
        HEADER_TEXT("content-type", "application/grpc"),
        HEADER_TEXT("grpc-encoding", "gzip"),
    };
    if (call->headers_sent) return DL_OK;
    int status = dl_h2_respond(call->connection->h2, call->stream, headers, call->gzip ? 3 : 2, 0);
    if (status == DL_OK) call->headers_sent = 1;
    return status;
}

/* The handler hears of the end, once. */
static void tell_closed(struct dl_rpc_call *call, enum dl_rpc_end end)
{
    if (call->told) return;
    call->told = 1;
    heap_remove(call->connection->rpc, call);
    if (call->method->closed) call->method->closed(call->method->context, call, end);
}

static void finish(struct dl_rpc_call *call, enum dl_grpc_status status, const char *message)
{
    struct dl_rpc_connection *connection = call->connection;
    if (call->finished) return;
    call->finished = 1;
    call->finished_ms = connection->rpc->now_ms;
    heap_remove(connection->rpc, call);
    count_end(connection->rpc, call->method, status);
    if (!call->headers_sent) {
        send_trailers_only(connection, call->stream, status, message);
    } else if (status == DL_GRPC_OK && (!message || !message[0])) {
        static const struct dl_h2_header fine[] = {
            {{(const uint8_t *)"grpc-status", 11}, {(const uint8_t *)"0", 1}}};
        dl_h2_finish_lasting(connection->h2, call->stream, fine, 1);
    } else {
        char number[4];
        struct dl_h2_header trailers[2];
        size_t count = status_headers(connection->rpc, status, message, number, trailers);
        if (dl_h2_finish(connection->h2, call->stream, trailers, count) != DL_OK)
            dl_h2_reset(connection->h2, call->stream, DL_H2_INTERNAL_ERROR);
    }
    wake(connection);
}

/* Ends a call that its handler did not end. What is queued and not on its way
 * is dropped: nobody waits for it. */
static void end_call(struct dl_rpc_call *call, enum dl_rpc_end end, enum dl_grpc_status status,
                     const char *message)
{
    if (call->finished) return;
    tell_closed(call, end);
    if (call->headers_sent)
        while (dl_h2_drop_oldest(call->stream)) {
        }
    finish(call, status, message);
}

static void end_callf(struct dl_rpc_call *call, enum dl_grpc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void end_callf(struct dl_rpc_call *call, enum dl_grpc_status status, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    end_call(call, DL_RPC_CANCELLED, status, text);
}

/* ---- requests: headers ------------------------------------------------------------- */

struct request_head {
    struct dl_slice method, path, content_type, timeout, encoding, accept_encoding, authorization;
};

static void read_head(const struct dl_h2_header *headers, size_t count, struct request_head *head)
{
    const struct {
        const char *name;
        struct dl_slice *value;
    } wanted[] = {
        {":method", &head->method},
        {":path", &head->path},
        {"content-type", &head->content_type},
        {"grpc-timeout", &head->timeout},
        {"grpc-encoding", &head->encoding},
        {"grpc-accept-encoding", &head->accept_encoding},
        {"authorization", &head->authorization},
    };
    memset(head, 0, sizeof(*head));
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < sizeof(wanted) / sizeof(wanted[0]); j++) {
            if (headers[i].name.size == strlen(wanted[j].name) &&
                memcmp(headers[i].name.data, wanted[j].name, headers[i].name.size) == 0) {
                *wanted[j].value = headers[i].value;
                break;
            }
        }
    }
}

static const struct dl_rpc_method *find_method(const struct dl_rpc *rpc, struct dl_slice path)
{
    for (uint32_t i = 0; i < rpc->method_count; i++)
        if (dl_slice_equal(path, dl_slice_text(rpc->methods[i].path))) return &rpc->methods[i];
    return NULL;
}

static int within_rate(struct dl_rpc_connection *connection)
{
    const struct dl_rpc_config *config = &connection->rpc->config;
    int64_t full = (int64_t)config->calls_burst * 1000;
    if (config->calls_rate == 0) return 1;
    connection->rate_tokens_milli +=
        (connection->rpc->now_ms - connection->rate_ms) * config->calls_rate;
    connection->rate_ms = connection->rpc->now_ms;
    if (connection->rate_tokens_milli > full) connection->rate_tokens_milli = full;
    if (connection->rate_tokens_milli < 1000) return 0;
    connection->rate_tokens_milli -= 1000;
    return 1;
}

static struct dl_rpc_call *call_new(struct dl_rpc_connection *connection,
                                    struct dl_h2_stream *stream, const struct dl_rpc_method *method)
{
    struct dl_rpc_call *call = calloc(1, sizeof(*call));
    if (!call) return NULL;
    call->connection = connection;
    call->method = method;
    call->stream = stream;
    call->deadline_ms = INT64_MAX;
    call->heap_index = NOT_IN_HEAP;
    call->begun_ms = connection->rpc->now_ms;
    call->reader.message_bytes_max = connection->rpc->config.message_bytes_max;
    call->next = connection->calls;
    if (call->next) call->next->previous = call;
    connection->calls = call;
    connection->call_count++;
    connection->rpc->stats.calls++;
    connection->rpc->stats.calls_total++;
    stream->user = call;
    return call;
}

/* Everything that may be wrong with the headers, in the order in which a
 * client should hear of it. Returns the status, DL_GRPC_OK if nothing is. */
static enum dl_grpc_status check_head(struct dl_rpc_connection *connection,
                                      const struct request_head *head,
                                      const struct dl_rpc_method **method,
                                      enum dl_grpc_encoding *encoding, int64_t *timeout_ns,
                                      struct dl_error *error)
{
    struct dl_rpc *rpc = connection->rpc;
    int path_shown = head->path.size < 200 ? (int)head->path.size : 200;
    *timeout_ns = INT64_MAX;
    *method = find_method(rpc, head->path);
    if (!*method) {
        dl_error_set(error, 0, "unknown method %.*s", path_shown, (const char *)head->path.data);
        return DL_GRPC_UNIMPLEMENTED;
    }
    if (rpc->config.authorize && (*method)->roles) {
        uint32_t roles = rpc->config.authorize(rpc->config.authorize_context, head->authorization);
        if (roles == 0) {
            dl_error_set(error, 0, "%s",
                         head->authorization.size ? "the bearer token is not known"
                                                  : "a bearer token is needed");
            return DL_GRPC_UNAUTHENTICATED;
        }
        if (!(roles & (*method)->roles)) {
            dl_error_set(error, 0, "the token's roles do not allow %s", (*method)->path);
            return DL_GRPC_PERMISSION_DENIED;
        }
    }
    if (!within_rate(connection)) {
        dl_error_set(error, 0, "more than %u calls a second on one connection",
                     rpc->config.calls_rate);
        return DL_GRPC_RESOURCE_EXHAUSTED;
    }
    if (dl_grpc_encoding_parse(head->encoding, encoding) != DL_OK) {
        dl_error_set(error, 0, "grpc-encoding %.*s is not supported; use identity, gzip or deflate",
                     head->encoding.size < 32 ? (int)head->encoding.size : 32,
                     (const char *)head->encoding.data);
        return DL_GRPC_UNIMPLEMENTED;
    }
    if (head->timeout.size && dl_grpc_timeout_parse(head->timeout, timeout_ns) != DL_OK) {
        dl_error_set(error, 0, "grpc-timeout is malformed");
        return DL_GRPC_INTERNAL;
    }
    return DL_GRPC_OK;
}

static void on_headers(void *context, struct dl_h2_stream *stream,
                       const struct dl_h2_header *headers, size_t count, int flags)
{
    struct dl_rpc_connection *connection = context;
    struct dl_rpc *rpc = connection->rpc;
    struct request_head head;
    const struct dl_rpc_method *method;
    enum dl_grpc_encoding encoding = DL_GRPC_IDENTITY;
    int64_t timeout_ns;
    struct dl_error error = {""};
    if (flags & DL_H2_TOO_LARGE) {
        refuse(connection, stream, NULL, DL_GRPC_RESOURCE_EXHAUSTED,
               "the request's headers are larger than the limit");
        return;
    }
    read_head(headers, count, &head);
    if (!dl_slice_equal(head.method, dl_slice_text("POST"))) {
        answer_http(connection, stream, "405");
        return;
    }
    int type = dl_grpc_content_type(head.content_type);
    if (type == 0) {
        answer_http(connection, stream, "415");
        return;
    }
    if (type == 2) {
        refuse(connection, stream, NULL, DL_GRPC_UNIMPLEMENTED,
               "only application/grpc and application/grpc+proto are supported");
        return;
    }
    enum dl_grpc_status status =
        check_head(connection, &head, &method, &encoding, &timeout_ns, &error);
    if (status != DL_GRPC_OK) {
        refuse(connection, stream, method, status, error.text);
        return;
    }
    struct dl_rpc_call *call = call_new(connection, stream, method);
    if (!call) {
        refuse(connection, stream, method, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    call->reader.encoding = encoding;
    /* We compress for those who compress; that a client could decompress is no
     * sign that it gains. */
    call->gzip = encoding == DL_GRPC_GZIP && dl_grpc_accepts_gzip(head.accept_encoding);
    if (timeout_ns < INT64_MAX / 2) {
        call->deadline_ms = rpc->now_ms + timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
        if (heap_add(rpc, call) != DL_OK) {
            end_call(call, DL_RPC_CANCELLED, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
            return;
        }
    }
    if (method->begin) method->begin(method->context, call);
    if (flags & DL_H2_LAST) {
        if (!method->client_streaming) {
            end_callf(call, DL_GRPC_INTERNAL, "%s needs a request message, none was sent",
                      method->path);
            return;
        }
        call->half_closed = call->half_closed_told = 1;
        if (!call->finished && method->half_closed) method->half_closed(method->context, call);
    }
}

/* ---- requests: body ------------------------------------------------------------------ */

static void count_memory(struct dl_rpc_call *call)
{
    size_t now = dl_grpc_reader_memory(&call->reader) + call->backlog.capacity;
    call->connection->memory_bytes += now - call->memory_bytes;
    call->connection->rpc->memory_bytes += now - call->memory_bytes;
    call->memory_bytes = now;
}

static int memory_exceeded(const struct dl_rpc_call *call)
{
    const struct dl_rpc *rpc = call->connection->rpc;
    return call->connection->memory_bytes > rpc->config.connection_memory_bytes_max ||
           rpc->memory_bytes > rpc->config.memory_bytes_max;
}

/* Hands the messages in *bytes to the handler until it holds the call. */
static void read_messages(struct dl_rpc_call *call, struct dl_slice *bytes)
{
    const struct dl_rpc_method *method = call->method;
    while (!call->finished && !call->held) {
        struct dl_slice message;
        struct dl_error error = {""};
        int status = dl_grpc_reader_next(&call->reader, bytes, &message, &error);
        if (status == 0) break;
        if (status < 0) {
            enum dl_grpc_status code = status == DL_ERR_TOO_LARGE || status == DL_ERR_NOMEM
                                           ? DL_GRPC_RESOURCE_EXHAUSTED
                                           : DL_GRPC_INTERNAL;
            end_call(call, DL_RPC_CANCELLED, code, error.text);
            break;
        }
        if (call->messages++ > 0 && !method->client_streaming) {
            end_callf(call, DL_GRPC_INTERNAL, "%s takes one request message, more were sent",
                      method->path);
            break;
        }
        call->connection->rpc->stats.messages_in++;
        method->message(method->context, call, message);
    }
}

static void tell_half_closed(struct dl_rpc_call *call)
{
    if (call->finished || call->held || !call->half_closed || call->half_closed_told) return;
    if (!dl_grpc_reader_at_boundary(&call->reader)) {
        end_call(call, DL_RPC_CANCELLED, DL_GRPC_INTERNAL, "the request ends within a message");
        return;
    }
    if (!call->method->client_streaming) {
        if (call->messages == 0)
            end_callf(call, DL_GRPC_INTERNAL, "%s needs a request message, none was sent",
                      call->method->path);
        return;
    }
    call->half_closed_told = 1;
    if (call->method->half_closed) call->method->half_closed(call->method->context, call);
}

/* Works off what came while the call was held. */
static void pump(struct dl_rpc_call *call)
{
    if (call->pumping) return; /* proceed within message: the loop below goes on */
    call->pumping = 1;
    while (!call->finished && !call->held && call->backlog_used < call->backlog.size) {
        struct dl_slice bytes = {call->backlog.data + call->backlog_used,
                                 call->backlog.size - call->backlog_used};
        size_t before = bytes.size;
        read_messages(call, &bytes);
        call->backlog_used += before - bytes.size;
        if (!call->finished) dl_h2_consume(call->connection->h2, call->stream, before - bytes.size);
    }
    if (call->backlog_used == call->backlog.size) {
        dl_buf_clear(&call->backlog);
        call->backlog_used = 0;
    }
    call->pumping = 0;
    tell_half_closed(call);
}

static void on_data(void *context, struct dl_h2_stream *stream, struct dl_slice bytes)
{
    struct dl_rpc_connection *connection = context;
    struct dl_rpc_call *call = stream->user;
    if (!call || call->finished) {
        dl_h2_consume(connection->h2, stream, bytes.size);
        return;
    }
    size_t before = bytes.size;
    if (call->backlog.size == 0 && !call->pumping) {
        call->pumping = 1;
        read_messages(call, &bytes);
        call->pumping = 0;
        size_t taken = call->finished ? before : before - bytes.size;
        dl_h2_consume(connection->h2, stream, taken);
    }
    if (!call->finished && bytes.size > 0) dl_buf_append(&call->backlog, bytes.data, bytes.size);
    count_memory(call);
    if (call->backlog.failed || memory_exceeded(call))
        end_call(call, DL_RPC_CANCELLED, DL_GRPC_RESOURCE_EXHAUSTED,
                 "the unfinished requests take more memory than the limit");
}

static void on_end(void *context, struct dl_h2_stream *stream)
{
    struct dl_rpc_call *call = stream->user;
    (void)context;
    if (!call) return;
    call->half_closed = 1;
    if (call->backlog.size == 0) tell_half_closed(call);
}

static void on_trailers(void *context, struct dl_h2_stream *stream,
                        const struct dl_h2_header *headers, size_t count)
{
    (void)headers;
    (void)count;
    on_end(context, stream);
}

static struct dl_h2_block *on_starting(void *context, struct dl_h2_stream *stream,
                                       const struct dl_h2_block *block)
{
    struct dl_rpc_call *call = stream->user;
    (void)context;
    if (!call || call->told || call->dropped == call->dropped_told || !call->method->dropped)
        return NULL;
    struct dl_h2_block *other = call->method->dropped(call->method->context, call, block,
                                                      call->dropped - call->dropped_told);
    if (other) call->dropped_told = call->dropped;
    return other;
}

static void on_closed(void *context, struct dl_h2_stream *stream, uint32_t code)
{
    struct dl_rpc_connection *connection = context;
    struct dl_rpc_call *call = stream->user;
    struct dl_rpc *rpc = connection->rpc;
    if (!call) return;
    if (!call->finished) {
        call->finished = 1;
        count_end(rpc, call->method, DL_GRPC_CANCELLED);
        tell_closed(call, DL_RPC_CANCELLED);
    } else {
        tell_closed(call, code == DL_H2_NO_ERROR ? DL_RPC_FINISHED : DL_RPC_CANCELLED);
    }
    stream->user = NULL;
    dl_grpc_reader_deinit(&call->reader);
    dl_buf_free(&call->backlog);
    connection->memory_bytes -= call->memory_bytes;
    rpc->memory_bytes -= call->memory_bytes;
    if (call->previous)
        call->previous->next = call->next;
    else
        connection->calls = call->next;
    if (call->next) call->next->previous = call->previous;
    connection->call_count--;
    rpc->stats.calls--;
    connection->idle_since_ms = rpc->now_ms;
    free(call);
}

static const struct dl_h2_events h2_events = {
    .headers = on_headers,
    .trailers = on_trailers,
    .data = on_data,
    .end = on_end,
    .starting = on_starting,
    .closed = on_closed,
};

/* ---- public: the server --------------------------------------------------------------- */

int dl_rpc_new(const struct dl_rpc_config *config, struct dl_rpc **result)
{
    struct dl_rpc *rpc = calloc(1, sizeof(*rpc));
    if (!rpc) return DL_ERR_NOMEM;
    rpc->config = *config;
    rpc->config.h2.server = 1;
    rpc->drain_until_ms = INT64_MAX;
    *result = rpc;
    return DL_OK;
}

void dl_rpc_free(struct dl_rpc *rpc)
{
    if (!rpc) return;
    DL_CHECK(!rpc->connections);
    free(rpc->heap);
    dl_buf_free(&rpc->scratch);
    free(rpc);
}

int dl_rpc_register(struct dl_rpc *rpc, const struct dl_rpc_method *method)
{
    if (find_method(rpc, dl_slice_text(method->path))) return DL_ERR_EXISTS;
    if (rpc->method_count == METHODS_MAX) return DL_ERR_FULL;
    rpc->methods[rpc->method_count++] = *method;
    return DL_OK;
}

uint32_t dl_rpc_method_count(const struct dl_rpc *rpc)
{
    return rpc->method_count;
}

const struct dl_rpc_method *dl_rpc_method_at(const struct dl_rpc *rpc, uint32_t index)
{
    DL_CHECK(index < rpc->method_count);
    return &rpc->methods[index];
}

const struct dl_rpc_stats *dl_rpc_get_stats(const struct dl_rpc *rpc)
{
    return &rpc->stats;
}

int64_t dl_rpc_next_ms(const struct dl_rpc *rpc)
{
    int64_t next = rpc->connections ? rpc->scan_ms : INT64_MAX;
    if (rpc->heap_count > 0 && rpc->heap[0]->deadline_ms < next) next = rpc->heap[0]->deadline_ms;
    return next;
}

static void fire_deadlines(struct dl_rpc *rpc)
{
    while (rpc->heap_count > 0 && rpc->heap[0]->deadline_ms <= rpc->now_ms)
        end_call(rpc->heap[0], DL_RPC_DEADLINE, DL_GRPC_DEADLINE_EXCEEDED,
                 "the deadline passed before the answer was ready");
}

static void drain_connection(struct dl_rpc_connection *connection)
{
    if (connection->drain != DRAIN_NONE) return;
    connection->drain = DRAIN_NOTICE;
    connection->drain_ms = connection->rpc->now_ms;
    dl_h2_drain(connection->h2);
    wake(connection);
}

static void advance_drain(struct dl_rpc_connection *connection)
{
    if (connection->drain != DRAIN_NOTICE) return;
    if (!dl_h2_is_drained(connection->h2) &&
        connection->rpc->now_ms - connection->drain_ms < DRAIN_WAIT_MS)
        return;
    connection->drain = DRAIN_CLOSED;
    dl_h2_close(connection->h2);
    wake(connection);
}

static void break_connection(struct dl_rpc_connection *connection, enum dl_h2_code code)
{
    if (connection->broken) return;
    connection->broken = 1;
    connection->rpc->stats.connection_errors++;
    dl_h2_terminate(connection->h2, code);
    wake(connection);
}

static void scan_calls(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    const struct dl_rpc_config *config = &rpc->config;
    for (struct dl_rpc_call *call = connection->calls, *next; call; call = next) {
        next = call->next;
        if (call->finished) {
            if (rpc->now_ms - call->finished_ms > config->linger_ms) {
                dl_h2_reset(connection->h2, call->stream, DL_H2_CANCEL);
                wake(connection);
            }
        } else if (rpc->now_ms >= rpc->drain_until_ms) {
            end_call(call, DL_RPC_CANCELLED, DL_GRPC_UNAVAILABLE, "the server is shutting down");
        } else if (!call->method->client_streaming && call->messages == 0 &&
                   rpc->now_ms - call->begun_ms > config->request_ms) {
            end_callf(call, DL_GRPC_DEADLINE_EXCEEDED, "the request was not complete within %lld s",
                      (long long)(config->request_ms / 1000));
        }
    }
}

static void scan_connection(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    const struct dl_rpc_config *config = &rpc->config;
    int64_t now_ms = rpc->now_ms;
    if (!dl_h2_is_established(connection->h2)) {
        if (now_ms - connection->opened_ms > config->handshake_ms)
            break_connection(connection, DL_H2_NO_ERROR);
        return;
    }
    scan_calls(connection);
    if (config->idle_ms && connection->call_count == 0 &&
        now_ms - connection->idle_since_ms > config->idle_ms)
        drain_connection(connection);
    advance_drain(connection);
    if (!config->keepalive_ms) return;
    if (dl_h2_pings_unanswered(connection->h2) > 0) {
        if (now_ms - connection->ping_ms > config->keepalive_timeout_ms &&
            connection->received_ms < connection->ping_ms)
            break_connection(connection, DL_H2_NO_ERROR);
    } else if (now_ms - connection->received_ms > config->keepalive_ms) {
        connection->ping_ms = now_ms;
        dl_h2_ping(connection->h2);
        wake(connection);
    }
}

void dl_rpc_tick(struct dl_rpc *rpc, int64_t now_ms)
{
    rpc->now_ms = now_ms;
    fire_deadlines(rpc);
    if (now_ms < rpc->scan_ms && now_ms < rpc->drain_until_ms) return;
    rpc->scan_ms = now_ms + SCAN_MS;
    for (struct dl_rpc_connection *c = rpc->connections; c; c = c->next) scan_connection(c);
}

void dl_rpc_drain(struct dl_rpc *rpc, int64_t grace_ms, int64_t now_ms)
{
    rpc->now_ms = now_ms;
    if (!rpc->draining || now_ms + grace_ms < rpc->drain_until_ms)
        rpc->drain_until_ms = now_ms + grace_ms;
    rpc->draining = 1;
    for (struct dl_rpc_connection *c = rpc->connections; c; c = c->next) drain_connection(c);
}

int dl_rpc_is_draining(const struct dl_rpc *rpc)
{
    return rpc->draining;
}

/* ---- public: connections --------------------------------------------------------------- */

int dl_rpc_connection_new(struct dl_rpc *rpc, void *io, const char *peer, int64_t now_ms,
                          struct dl_rpc_connection **result)
{
    rpc->now_ms = now_ms;
    if (rpc->draining || rpc->stats.connections >= rpc->config.connections_max) {
        rpc->stats.connections_refused++;
        return DL_ERR_FULL;
    }
    struct dl_rpc_connection *connection = calloc(1, sizeof(*connection));
    if (!connection) return DL_ERR_NOMEM;
    connection->rpc = rpc;
    connection->io = io;
    connection->opened_ms = connection->received_ms = connection->idle_since_ms = now_ms;
    connection->rate_ms = now_ms;
    connection->rate_tokens_milli = (int64_t)rpc->config.calls_burst * 1000;
    snprintf(connection->peer, sizeof(connection->peer), "%s", peer);
    int status = dl_h2_new(&rpc->config.h2, &h2_events, connection, now_ms, &connection->h2);
    if (status != DL_OK) {
        free(connection);
        return status;
    }
    if (!rpc->connections) rpc->scan_ms = now_ms + SCAN_MS;
    connection->next = rpc->connections;
    if (connection->next) connection->next->previous = connection;
    rpc->connections = connection;
    rpc->stats.connections++;
    rpc->stats.connections_total++;
    *result = connection;
    return DL_OK;
}

void dl_rpc_connection_free(struct dl_rpc_connection *connection)
{
    if (!connection) return;
    struct dl_rpc *rpc = connection->rpc;
    connection->receiving = 1; /* no more wake-ups */
    dl_h2_free(connection->h2);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        rpc->connections = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    rpc->stats.connections--;
    free(connection);
}

int dl_rpc_connection_receive(struct dl_rpc_connection *connection, struct dl_slice bytes,
                              int64_t now_ms, struct dl_error *error)
{
    struct dl_rpc *rpc = connection->rpc;
    rpc->now_ms = now_ms;
    connection->received_ms = now_ms;
    connection->receiving = 1;
    int status = dl_h2_receive(connection->h2, bytes, now_ms, error);
    connection->receiving = 0;
    advance_drain(connection);
    if (status != DL_OK && !connection->broken) {
        connection->broken = 1;
        rpc->stats.connection_errors++;
    }
    return status;
}

int dl_rpc_connection_take(struct dl_rpc_connection *connection, struct dl_slice *bytes)
{
    connection->receiving = 1; /* closed calls may make handlers act on this connection */
    int status = dl_h2_take(connection->h2, bytes);
    connection->receiving = 0;
    return status;
}

int dl_rpc_connection_is_done(const struct dl_rpc_connection *connection)
{
    return connection->broken || dl_h2_is_done(connection->h2);
}

void *dl_rpc_connection_io(const struct dl_rpc_connection *connection)
{
    return connection->io;
}

const char *dl_rpc_connection_peer(const struct dl_rpc_connection *connection)
{
    return connection->peer;
}

/* ---- public: calls ------------------------------------------------------------------------ */

void dl_rpc_call_set_user(struct dl_rpc_call *call, void *user)
{
    call->user = user;
}

void *dl_rpc_call_get_user(const struct dl_rpc_call *call)
{
    return call->user;
}

const struct dl_rpc_method *dl_rpc_call_method(const struct dl_rpc_call *call)
{
    return call->method;
}

const char *dl_rpc_call_peer(const struct dl_rpc_call *call)
{
    return call->connection->peer;
}

int64_t dl_rpc_call_deadline_ns(const struct dl_rpc_call *call)
{
    return call->deadline_ms == INT64_MAX ? INT64_MAX : call->deadline_ms * 1000000;
}

void dl_rpc_call_accept(struct dl_rpc_call *call)
{
    if (call->finished) return;
    send_headers(call);
    wake(call->connection);
}

struct dl_h2_block *dl_rpc_message_new(struct dl_slice message)
{
    if (message.size > UINT32_MAX) return NULL;
    struct dl_h2_block *block = dl_h2_block_new(DL_GRPC_PREFIX_BYTES + message.size);
    if (!block) return NULL;
    dl_grpc_prefix(block->data, 0, (uint32_t)message.size);
    if (message.size) memcpy(block->data + DL_GRPC_PREFIX_BYTES, message.data, message.size);
    return block;
}

static struct dl_h2_block *compressed_message(struct dl_rpc *rpc, struct dl_slice message)
{
    dl_buf_clear(&rpc->scratch);
    if (dl_grpc_compress(message, &rpc->scratch) != DL_OK) return NULL;
    struct dl_h2_block *block = dl_rpc_message_new(dl_buf_slice(&rpc->scratch));
    if (block) block->data[0] = 1;
    return block;
}

int dl_rpc_call_send_shared(struct dl_rpc_call *call, struct dl_h2_block *block)
{
    struct dl_rpc *rpc = call->connection->rpc;
    struct dl_h2_stream *stream = call->stream;
    if (!block) return DL_ERR_NOMEM;
    if (call->finished) {
        dl_h2_block_unref(block);
        return DL_ERR_CANCELLED;
    }
    int status = send_headers(call);
    if (status != DL_OK) {
        dl_h2_block_unref(block);
        return status;
    }
    if (call->method->server_streaming) {
        while (stream->queued_blocks >= rpc->config.queue_messages_max ||
               (stream->queued_blocks > 0 &&
                stream->queued_bytes + block->size > rpc->config.queue_bytes_max)) {
            if (!dl_h2_drop_oldest(stream)) break;
            rpc->stats.messages_dropped++;
            call->dropped++;
        }
    }
    rpc->stats.messages_out++;
    status = dl_h2_push(call->connection->h2, stream, block);
    wake(call->connection);
    return status;
}

uint64_t dl_rpc_call_dropped(const struct dl_rpc_call *call)
{
    return call->dropped;
}

int dl_rpc_call_send(struct dl_rpc_call *call, struct dl_slice message)
{
    struct dl_h2_block *block = NULL;
    if (call->finished) return DL_ERR_CANCELLED;
    if (call->gzip && message.size >= COMPRESS_BYTES_MIN)
        block = compressed_message(call->connection->rpc, message);
    if (!block) block = dl_rpc_message_new(message);
    return dl_rpc_call_send_shared(call, block);
}

void dl_rpc_call_finish(struct dl_rpc_call *call, enum dl_grpc_status status, const char *message)
{
    finish(call, status, message);
}

void dl_rpc_call_fail(struct dl_rpc_call *call, int status, const struct dl_error *error)
{
    finish(call, dl_grpc_status_of(status), error ? error->text : dl_status_name(status));
}

void dl_rpc_call_hold(struct dl_rpc_call *call)
{
    call->held = 1;
}

void dl_rpc_call_proceed(struct dl_rpc_call *call)
{
    if (!call->held) return;
    call->held = 0;
    pump(call);
    if (!call->finished) wake(call->connection);
}
