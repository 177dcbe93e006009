/* What the server says: answers, refusals, statuses, and the functions that
 * handlers use. */
#include "service/rpc_core_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COMPRESS_BYTES_MIN 256     /* smaller answers do not gain */
#define STATUS_TEXT_BYTES_MAX 1024 /* of grpc-message, before encoding */

/* ---- answering ---------------------------------------------------------------------- */

#define HEADER(name_text, value_slice)                                                             \
    ((struct dl_h2_header){{(const uint8_t *)(name_text), sizeof(name_text) - 1}, (value_slice)})
#define HEADER_TEXT(name_text, value_text)                                                         \
    {                                                                                              \
        {(const uint8_t *)(name_text), sizeof(name_text) - 1},                                     \
        {                                                                                          \
            (const uint8_t *)(value_text), sizeof(value_text) - 1                                  \
        }                                                                                          \
    }

void dl_rpc_count_end(struct dl_rpc *rpc, const struct dl_rpc_method *method,
                      enum dl_grpc_status status)
{
    rpc->stats.finished[status]++;
    if (rpc->config.ended) rpc->config.ended(rpc->config.ended_context, method, status);
}

/* A plain HTTP answer to what is not gRPC at all. */
void dl_rpc_answer_http(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
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
                               enum dl_grpc_status status, const char *message, int64_t retry_ms)
{
    char number[4], wait[24];
    struct dl_h2_header headers[6] = {HEADER_TEXT(":status", "200"),
                                      HEADER_TEXT("content-type", "application/grpc"),
                                      HEADER_TEXT("grpc-accept-encoding", "identity,deflate,gzip")};
    size_t count = 3 + status_headers(connection->rpc, status, message, number, headers + 3);
    if (retry_ms > 0) { /* what the retry policies of stock clients go by */
        snprintf(wait, sizeof(wait), "%lld", (long long)retry_ms);
        headers[count++] = HEADER("grpc-retry-pushback-ms", dl_slice_text(wait));
    }
    if (dl_h2_respond(connection->h2, stream, headers, count, 1) != DL_OK)
        dl_h2_reset(connection->h2, stream, DL_H2_INTERNAL_ERROR);
}

/* Refuses a request that did not become a call. */
void dl_rpc_refuse(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                   const struct dl_rpc_method *method, enum dl_grpc_status status,
                   const char *message, int64_t retry_ms)
{
    dl_rpc_count_end(connection->rpc, method, status);
    send_trailers_only(connection, stream, status, message, retry_ms);
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
void dl_rpc_tell_closed(struct dl_rpc_call *call, enum dl_rpc_end end)
{
    if (call->told) return;
    call->told = 1;
    dl_rpc_deadline_remove(call->connection->rpc, call);
    if (call->method->closed) call->method->closed(call->method->context, call, end);
}

static void finish(struct dl_rpc_call *call, enum dl_grpc_status status, const char *message)
{
    struct dl_rpc_connection *connection = call->connection;
    if (call->finished) return;
    call->finished = 1;
    call->finished_ms = connection->rpc->now_ms;
    dl_rpc_deadline_remove(connection->rpc, call);
    dl_rpc_count_end(connection->rpc, call->method, status);
    if (!call->headers_sent) {
        send_trailers_only(connection, call->stream, status, message, 0);
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
    dl_rpc_wake(connection);
}

/* Ends a call that its handler did not end. What is queued and not on its way
 * is dropped: nobody waits for it. */
void dl_rpc_end_call(struct dl_rpc_call *call, enum dl_rpc_end end, enum dl_grpc_status status,
                     const char *message)
{
    if (call->finished) return;
    dl_rpc_tell_closed(call, end);
    if (call->headers_sent)
        while (dl_h2_drop_oldest(call->stream)) {
        }
    finish(call, status, message);
}

void dl_rpc_end_callf(struct dl_rpc_call *call, enum dl_grpc_status status, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    dl_rpc_end_call(call, DL_RPC_CANCELLED, status, text);
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
    dl_rpc_wake(call->connection);
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
    dl_rpc_wake(call->connection);
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
