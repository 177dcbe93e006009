#include "service/rpc_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES_MAX (16u * 1024 * 1024)
#define COMPRESS_BYTES_MIN 256
#define TEXT_BYTES_MAX 2048

struct dl_rpc_client {
    struct dl_h2 *h2;
    char *authority, *authorization;
    int tls, gzip;
    size_t message_bytes_max;
    struct dl_rpc_client_call *calls;
    int64_t now_ms;
    struct dl_buf scratch;
};

struct dl_rpc_client_call {
    struct dl_rpc_client *client;
    struct dl_h2_stream *stream;
    const struct dl_rpc_client_events *events;
    void *context;
    struct dl_rpc_client_call *previous, *next;
    struct dl_grpc_reader reader;
    int64_t deadline_ms;
    int status;            /* what the call will finish with; -1: not known yet */
    unsigned int gone : 1; /* reset by us, or ended by the server */
    char text[TEXT_BYTES_MAX];
};

static void decide(struct dl_rpc_client_call *call, int status, const char *text)
{
    if (call->status >= 0) return;
    call->status = status;
    snprintf(call->text, sizeof(call->text), "%s", text);
}

static void give_up(struct dl_rpc_client_call *call, int status, const char *text)
{
    decide(call, status, text);
    if (call->gone) return;
    call->gone = 1;
    dl_h2_reset(call->client->h2, call->stream, DL_H2_CANCEL);
}

/* ---- what the server says ------------------------------------------------------------- */

/* The server has said its last. If we have not, the rest is not wanted. */
static void server_ended(struct dl_rpc_client_call *call)
{
    if (!call->gone && !call->stream->ended)
        dl_h2_reset(call->client->h2, call->stream, DL_H2_NO_ERROR);
    call->gone = 1;
}

static struct dl_slice header_value(const struct dl_h2_header *headers, size_t count,
                                    const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (dl_slice_equal(headers[i].name, dl_slice_text(name))) return headers[i].value;
    return (struct dl_slice){NULL, 0};
}

/* grpc-status and grpc-message, of trailers or of a trailers-only answer. */
static void read_status(struct dl_rpc_client_call *call, const struct dl_h2_header *headers,
                        size_t count)
{
    struct dl_slice status = header_value(headers, count, "grpc-status");
    struct dl_slice message = header_value(headers, count, "grpc-message");
    struct dl_buf *text = &call->client->scratch;
    if (!status.data) {
        decide(call, DL_GRPC_UNKNOWN, "the server ended the call without a status");
        return;
    }
    dl_buf_clear(text);
    dl_grpc_percent_decode(message, text);
    dl_buf_u8(text, 0);
    decide(call, dl_grpc_status_parse(status), text->failed ? "" : (const char *)text->data);
}

static void on_headers(void *context, struct dl_h2_stream *stream,
                       const struct dl_h2_header *headers, size_t count, int flags)
{
    struct dl_rpc_client_call *call = stream->user;
    (void)context;
    if (flags & DL_H2_TOO_LARGE) {
        give_up(call, DL_GRPC_RESOURCE_EXHAUSTED, "the answer's headers are too large");
        return;
    }
    if (flags & DL_H2_LAST) server_ended(call);
    struct dl_slice type = header_value(headers, count, "content-type");
    struct dl_slice http = header_value(headers, count, ":status");
    if (dl_grpc_content_type(type) != 1 || !dl_slice_equal(http, dl_slice_text("200"))) {
        char text[96];
        int number = 0;
        for (size_t i = 0; i < http.size && i < 3; i++) number = number * 10 + (http.data[i] - '0');
        snprintf(text, sizeof(text), "the peer is no gRPC server (HTTP status %d)", number);
        give_up(call, dl_grpc_status_of_http(number), text);
        return;
    }
    if (flags & DL_H2_LAST) {
        read_status(call, headers, count);
        return;
    }
    if (dl_grpc_encoding_parse(header_value(headers, count, "grpc-encoding"),
                               &call->reader.encoding) != DL_OK)
        give_up(call, DL_GRPC_INTERNAL, "the answer is in an unknown grpc-encoding");
}

static void on_trailers(void *context, struct dl_h2_stream *stream,
                        const struct dl_h2_header *headers, size_t count)
{
    struct dl_rpc_client_call *call = stream->user;
    (void)context;
    server_ended(call);
    if (!dl_grpc_reader_at_boundary(&call->reader))
        decide(call, DL_GRPC_INTERNAL, "the answer ends within a message");
    read_status(call, headers, count);
}

static void on_data(void *context, struct dl_h2_stream *stream, struct dl_slice bytes)
{
    struct dl_rpc_client *client = context;
    struct dl_rpc_client_call *call = stream->user;
    dl_h2_consume(client->h2, stream, bytes.size);
    while (!call->gone) {
        struct dl_slice message;
        struct dl_error error = {""};
        int status = dl_grpc_reader_next(&call->reader, &bytes, &message, &error);
        if (status == 0) break;
        if (status < 0) {
            give_up(call,
                    status == DL_ERR_TOO_LARGE ? DL_GRPC_RESOURCE_EXHAUSTED : DL_GRPC_INTERNAL,
                    error.text);
            break;
        }
        call->events->message(call->context, call, message);
    }
}

static void on_end(void *context, struct dl_h2_stream *stream)
{
    struct dl_rpc_client_call *call = stream->user;
    (void)context;
    server_ended(call);
    decide(call, DL_GRPC_UNKNOWN, "the server ended the call without a status");
}

static int status_of_code(uint32_t code, const char **text)
{
    switch (code) {
    case DL_H2_REFUSED_STREAM:
        *text = "the server refused the call; try again";
        return DL_GRPC_UNAVAILABLE;
    case DL_H2_CANCEL:
        *text = "the call was broken off";
        return DL_GRPC_CANCELLED;
    case DL_H2_ENHANCE_YOUR_CALM:
        *text = "the server asks for fewer calls";
        return DL_GRPC_RESOURCE_EXHAUSTED;
    case DL_H2_NO_ERROR:
    default:
        *text = "the server broke the call off";
        return DL_GRPC_INTERNAL;
    }
}

static void on_closed(void *context, struct dl_h2_stream *stream, uint32_t code)
{
    struct dl_rpc_client_call *call = stream->user;
    struct dl_rpc_client *client = context;
    if (!call) return;
    const char *text;
    int status = status_of_code(code, &text);
    decide(call, status, text);
    call->gone = 1;
    stream->user = NULL;
    if (call->previous)
        call->previous->next = call->next;
    else
        client->calls = call->next;
    if (call->next) call->next->previous = call->previous;
    call->events->finished(call->context, call, call->status, call->text);
    dl_grpc_reader_deinit(&call->reader);
    free(call);
}

static const struct dl_h2_events h2_events = {
    .headers = on_headers,
    .trailers = on_trailers,
    .data = on_data,
    .end = on_end,
    .closed = on_closed,
};

/* ---- public: the connection ------------------------------------------------------------- */

int dl_rpc_client_new(const struct dl_rpc_client_config *config, int64_t now_ms,
                      struct dl_rpc_client **result)
{
    struct dl_rpc_client *client = calloc(1, sizeof(*client));
    int status = DL_ERR_NOMEM;
    if (!client) return status;
    client->now_ms = now_ms;
    client->tls = config->tls;
    client->gzip = config->gzip;
    client->message_bytes_max =
        config->message_bytes_max ? config->message_bytes_max : MESSAGE_BYTES_MAX;
    client->authority = strdup(config->authority);
    if (config->token && config->token[0] &&
        asprintf(&client->authorization, "Bearer %s", config->token) < 0)
        client->authorization = NULL;
    if (client->authority && (client->authorization || !config->token || !config->token[0]))
        status = dl_h2_new(&dl_h2_config_client, &h2_events, client, now_ms, &client->h2);
    if (status != DL_OK) {
        dl_rpc_client_free(client);
        return status;
    }
    *result = client;
    return DL_OK;
}

void dl_rpc_client_free(struct dl_rpc_client *client)
{
    if (!client) return;
    for (struct dl_rpc_client_call *call = client->calls; call; call = call->next)
        decide(call, DL_GRPC_UNAVAILABLE, "the connection is lost");
    dl_h2_free(client->h2);
    dl_buf_free(&client->scratch);
    if (client->authorization) explicit_bzero(client->authorization, strlen(client->authorization));
    free(client->authorization);
    free(client->authority);
    free(client);
}

int dl_rpc_client_receive(struct dl_rpc_client *client, struct dl_slice bytes, int64_t now_ms,
                          struct dl_error *error)
{
    client->now_ms = now_ms;
    return dl_h2_receive(client->h2, bytes, now_ms, error);
}

int dl_rpc_client_take(struct dl_rpc_client *client, struct dl_slice *bytes)
{
    return dl_h2_take(client->h2, bytes);
}

int dl_rpc_client_is_done(const struct dl_rpc_client *client)
{
    return dl_h2_is_done(client->h2);
}

void dl_rpc_client_tick(struct dl_rpc_client *client, int64_t now_ms)
{
    client->now_ms = now_ms;
    for (struct dl_rpc_client_call *call = client->calls; call; call = call->next)
        if (call->deadline_ms <= now_ms)
            give_up(call, DL_GRPC_DEADLINE_EXCEEDED, "the deadline passed before the answer came");
}

int64_t dl_rpc_client_next_ms(const struct dl_rpc_client *client)
{
    int64_t next_ms = INT64_MAX;
    for (struct dl_rpc_client_call *call = client->calls; call; call = call->next)
        if (!call->gone && call->deadline_ms < next_ms) next_ms = call->deadline_ms;
    return next_ms;
}

void dl_rpc_client_close(struct dl_rpc_client *client)
{
    dl_h2_close(client->h2);
}

/* ---- public: calls ------------------------------------------------------------------------ */

#define HEADER(name_text, value_text)                                                              \
    ((struct dl_h2_header){{(const uint8_t *)(name_text), sizeof(name_text) - 1},                  \
                           dl_slice_text(value_text)})

int dl_rpc_client_start(struct dl_rpc_client *client, const char *path, int64_t timeout_ms,
                        const struct dl_rpc_client_events *events, void *context,
                        struct dl_rpc_client_call **result)
{
    struct dl_h2_header headers[12];
    size_t count = 0;
    char timeout[16];
    struct dl_rpc_client_call *call = calloc(1, sizeof(*call));
    if (!call) return DL_ERR_NOMEM;
    call->client = client;
    call->events = events;
    call->context = context;
    call->status = -1;
    call->reader.message_bytes_max = client->message_bytes_max;
    call->deadline_ms = timeout_ms > 0 ? client->now_ms + timeout_ms : INT64_MAX;
    headers[count++] = HEADER(":method", "POST");
    headers[count++] = HEADER(":scheme", client->tls ? "https" : "http");
    headers[count++] = HEADER(":path", path);
    headers[count++] = HEADER(":authority", client->authority);
    headers[count++] = HEADER("te", "trailers");
    headers[count++] = HEADER("content-type", "application/grpc");
    headers[count++] = HEADER("user-agent", "driftline");
    headers[count++] = HEADER("grpc-accept-encoding", "identity,deflate,gzip");
    if (client->gzip) headers[count++] = HEADER("grpc-encoding", "gzip");
    if (client->authorization) headers[count++] = HEADER("authorization", client->authorization);
    if (timeout_ms > 0) {
        int64_t timeout_ns;
        if (__builtin_mul_overflow(timeout_ms, 1000000, &timeout_ns)) timeout_ns = INT64_MAX;
        dl_grpc_timeout_format(timeout_ns, timeout);
        headers[count++] = HEADER("grpc-timeout", timeout);
    }
    int status = dl_h2_request(client->h2, headers, count, call, &call->stream);
    if (status != DL_OK) {
        free(call);
        return status;
    }
    call->next = client->calls;
    if (call->next) call->next->previous = call;
    client->calls = call;
    *result = call;
    return DL_OK;
}

int dl_rpc_client_send(struct dl_rpc_client_call *call, struct dl_slice message)
{
    struct dl_rpc_client *client = call->client;
    int compressed = client->gzip && message.size >= COMPRESS_BYTES_MIN;
    if (call->gone) return DL_ERR_CANCELLED;
    if (compressed) {
        dl_buf_clear(&client->scratch);
        int status = dl_grpc_compress(message, &client->scratch);
        if (status != DL_OK) return status;
        message = dl_buf_slice(&client->scratch);
    }
    if (message.size > UINT32_MAX) return DL_ERR_NOMEM;
    struct dl_h2_block *block = dl_h2_block_new(DL_GRPC_PREFIX_BYTES + message.size);
    if (!block) return DL_ERR_NOMEM;
    dl_grpc_prefix(block->data, compressed, (uint32_t)message.size);
    if (message.size) memcpy(block->data + DL_GRPC_PREFIX_BYTES, message.data, message.size);
    return dl_h2_push(client->h2, call->stream, block);
}

size_t dl_rpc_client_queued(const struct dl_rpc_client_call *call)
{
    return call->stream->queued_bytes;
}

int dl_rpc_client_end(struct dl_rpc_client_call *call)
{
    if (call->gone) return DL_ERR_CANCELLED;
    return dl_h2_finish(call->client->h2, call->stream, NULL, 0);
}

void dl_rpc_client_cancel(struct dl_rpc_client_call *call)
{
    give_up(call, DL_GRPC_CANCELLED, "the call was cancelled");
}
