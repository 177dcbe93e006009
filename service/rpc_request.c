/* What the client says: a request's headers, its messages, its end. */
#include "service/rpc_core_private.h"

#include <stdlib.h>
#include <string.h>

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

static struct dl_rpc_call *call_new(struct dl_rpc_connection *connection,
                                    struct dl_h2_stream *stream, const struct dl_rpc_method *method)
{
    struct dl_rpc_call *call = calloc(1, sizeof(*call));
    if (!call) return NULL;
    call->connection = connection;
    call->method = method;
    call->stream = stream;
    call->deadline_ms = INT64_MAX;
    call->heap_index = DL_RPC_NOT_IN_HEAP;
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

/* Who calls, and whether he may. */
static enum dl_grpc_status check_caller(struct dl_rpc_connection *connection,
                                        struct dl_slice authorization,
                                        const struct dl_rpc_method *method, int64_t *retry_ms,
                                        struct dl_error *error)
{
    struct dl_rpc *rpc = connection->rpc;
    uint64_t client = connection->client;
    uint32_t roles = DL_RPC_ALL;
    enum dl_grpc_status status = DL_GRPC_OK;
    if (method->roles == 0) return DL_GRPC_OK; /* health: also for those who were too eager */
    if (rpc->config.authorize)
        roles = rpc->config.authorize(rpc->config.authorize_context, authorization, &client);
    /* Unknown tokens count as well, by address: that also slows down guessing. */
    *retry_ms = rpc->rate ? dl_rpc_rate_take(rpc->rate, client, rpc->now_ms) : 0;
    if (*retry_ms > 0) {
        dl_error_set(error, 0, "more than %u calls a second (rpc.calls_rate); try again in %lld ms",
                     rpc->config.calls_rate, (long long)*retry_ms);
        return DL_GRPC_RESOURCE_EXHAUSTED;
    }
    if (roles == 0) {
        dl_error_set(error, 0, "%s",
                     authorization.size ? "the bearer token is not known"
                                        : "a bearer token is needed");
        status = DL_GRPC_UNAUTHENTICATED;
    } else if (!(roles & method->roles)) {
        dl_error_set(error, 0, "the token's roles do not allow %s", method->path);
        status = DL_GRPC_PERMISSION_DENIED;
    }
    if (status != DL_GRPC_OK && !connection->denied && rpc->config.denied)
        rpc->config.denied(rpc->config.authorize_context, connection->peer, error->text);
    connection->denied |= status != DL_GRPC_OK;
    return status;
}

/* Everything that may be wrong with the headers, in the order in which a
 * client should hear of it. Returns the status, DL_GRPC_OK if nothing is. */
static enum dl_grpc_status check_head(struct dl_rpc_connection *connection,
                                      const struct request_head *head,
                                      const struct dl_rpc_method **method,
                                      enum dl_grpc_encoding *encoding, int64_t *timeout_ns,
                                      int64_t *retry_ms, struct dl_error *error)
{
    struct dl_rpc *rpc = connection->rpc;
    int path_shown = head->path.size < 200 ? (int)head->path.size : 200;
    *timeout_ns = INT64_MAX;
    *method = dl_rpc_find_method(rpc, head->path);
    if (!*method) {
        dl_error_set(error, 0, "unknown method %.*s", path_shown, (const char *)head->path.data);
        return DL_GRPC_UNIMPLEMENTED;
    }
    enum dl_grpc_status status =
        check_caller(connection, head->authorization, *method, retry_ms, error);
    if (status != DL_GRPC_OK) return status;
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
    int64_t timeout_ns, retry_ms = 0;
    struct dl_error error = {""};
    if (flags & DL_H2_TOO_LARGE) {
        dl_rpc_refuse(connection, stream, NULL, DL_GRPC_RESOURCE_EXHAUSTED,
                      "the request's headers are larger than the limit", 0);
        return;
    }
    read_head(headers, count, &head);
    if (!dl_slice_equal(head.method, dl_slice_text("POST"))) {
        dl_rpc_answer_http(connection, stream, "405");
        return;
    }
    int type = dl_grpc_content_type(head.content_type);
    if (type == 0) {
        dl_rpc_answer_http(connection, stream, "415");
        return;
    }
    if (type == 2) {
        dl_rpc_refuse(connection, stream, NULL, DL_GRPC_UNIMPLEMENTED,
                      "only application/grpc and application/grpc+proto are supported", 0);
        return;
    }
    enum dl_grpc_status status =
        check_head(connection, &head, &method, &encoding, &timeout_ns, &retry_ms, &error);
    if (status != DL_GRPC_OK) {
        dl_rpc_refuse(connection, stream, method, status, error.text, retry_ms);
        return;
    }
    struct dl_rpc_call *call = call_new(connection, stream, method);
    if (!call) {
        dl_rpc_refuse(connection, stream, method, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory", 0);
        return;
    }
    call->reader.encoding = encoding;
    /* We compress for those who compress; that a client could decompress is no
     * sign that it gains. */
    call->gzip = encoding == DL_GRPC_GZIP && dl_grpc_accepts_gzip(head.accept_encoding);
    if (timeout_ns < INT64_MAX / 2) {
        call->deadline_ms = rpc->now_ms + timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
        if (dl_rpc_deadline_add(rpc, call) != DL_OK) {
            dl_rpc_end_call(call, DL_RPC_CANCELLED, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
            return;
        }
    }
    if (method->begin) method->begin(method->context, call);
    if (flags & DL_H2_LAST) {
        if (!method->client_streaming) {
            dl_rpc_end_callf(call, DL_GRPC_UNIMPLEMENTED,
                             "%s needs a request message, none was sent", method->path);
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
            dl_rpc_end_call(call, DL_RPC_CANCELLED, code, error.text);
            break;
        }
        /* Also of those that are answered at once, if both came together. */
        if (!method->client_streaming && (call->messages > 0 || bytes->size > 0)) {
            dl_rpc_end_callf(call, DL_GRPC_UNIMPLEMENTED,
                             "%s takes one request message, more were sent", method->path);
            break;
        }
        call->messages++;
        call->connection->rpc->stats.messages_in++;
        method->message(method->context, call, message);
    }
}

static void tell_half_closed(struct dl_rpc_call *call)
{
    if (call->finished || call->held || !call->half_closed || call->half_closed_told) return;
    if (!dl_grpc_reader_at_boundary(&call->reader)) {
        dl_rpc_end_call(call, DL_RPC_CANCELLED, DL_GRPC_INTERNAL,
                        "the request ends within a message");
        return;
    }
    if (!call->method->client_streaming) {
        if (call->messages == 0)
            dl_rpc_end_callf(call, DL_GRPC_UNIMPLEMENTED,
                             "%s needs a request message, none was sent", call->method->path);
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
        dl_rpc_end_call(call, DL_RPC_CANCELLED, DL_GRPC_RESOURCE_EXHAUSTED,
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
        dl_rpc_count_end(rpc, call->method, DL_GRPC_CANCELLED);
        dl_rpc_tell_closed(call, DL_RPC_CANCELLED);
    } else {
        dl_rpc_tell_closed(call, code == DL_H2_NO_ERROR ? DL_RPC_FINISHED : DL_RPC_CANCELLED);
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

const struct dl_h2_events dl_rpc_h2_events = {
    .headers = on_headers,
    .trailers = on_trailers,
    .data = on_data,
    .end = on_end,
    .starting = on_starting,
    .closed = on_closed,
};

/* ---- backpressure, for handlers ------------------------------------------------------------ */

void dl_rpc_call_hold(struct dl_rpc_call *call)
{
    call->held = 1;
}

void dl_rpc_call_proceed(struct dl_rpc_call *call)
{
    if (!call->held) return;
    call->held = 0;
    pump(call);
    if (!call->finished) dl_rpc_wake(call->connection);
}
