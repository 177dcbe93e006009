/* How it works. nghttp2 keeps the protocol's state; this file keeps, for each
 * stream, a list of blocks that nghttp2 pulls from as the peer's windows
 * allow. A pull on an empty list defers the stream, a push resumes it. Header
 * blocks cannot interleave on a connection, so one buffer gathers the block
 * that is coming in. Windows are given back only as the reader consumes.
 *
 * Floods. What costs us more than it costs the peer draws on token buckets:
 * resets (with streams that the peer breaks on purpose, so that we reset them)
 * and control frames. What waits to be sent is bounded by the caller, who
 * stops reading while the socket does not take what was taken here. */
#include "service/h2.h"

#include <stdlib.h>
#include <string.h>

#include <nghttp2/nghttp2.h>

#include "base/check.h"

const struct dl_h2_config dl_h2_config_server = {
    .server = 1,
    .streams_max = 128,
    .header_bytes_max = 16 * 1024,
    .stream_window = 256 * 1024,
    .connection_window = 1024 * 1024,
    .reset_burst = 1000,
    .reset_rate = 200,
    .control_burst = 1000,
    .control_rate = 100,
};
const struct dl_h2_config dl_h2_config_client = {
    .server = 0,
    .streams_max = 0,
    .header_bytes_max = 16 * 1024,
    .stream_window = 1024 * 1024,
    .connection_window = 4 * 1024 * 1024,
    .reset_burst = 1000,
    .reset_rate = 200,
    .control_burst = 1000,
    .control_rate = 100,
};

struct bucket {
    uint32_t burst, rate; /* tokens, tokens a second */
    int64_t tokens_milli; /* thousandths of a token */
    int64_t at_ms;
};

struct header_offset {
    size_t name, name_size, value, value_size;
};

struct dl_h2 {
    nghttp2_session *session;
    struct dl_h2_config config;
    const struct dl_h2_events *events;
    void *context;
    int64_t now_ms;
    struct bucket resets, controls;
    /* The header block that is coming in. */
    struct dl_buf header_text;
    struct header_offset *header_offsets;
    struct dl_h2_header *headers; /* same capacity; filled in at the block's end */
    size_t header_count, header_capacity;
    size_t header_bytes; /* names, values and 32 each; goes on counting past the limit */
    struct dl_h2_stream *streams;
    uint32_t stream_count;
    int established;
    int flooded;
    int drain_ping_answered;
    int pings_unanswered;
};

/* Opaque data of our two kinds of PING. */
static const uint8_t ping_drain[8] = {'d', 'r', 'a', 'i', 'n', 0, 0, 0};
static const uint8_t ping_alive[8] = {'a', 'l', 'i', 'v', 'e', 0, 0, 0};

/* ---- blocks -------------------------------------------------------------------- */

struct dl_h2_block *dl_h2_block_new(size_t size)
{
    struct dl_h2_block *block = malloc(sizeof(*block) + size);
    if (!block) return NULL;
    block->references = 1;
    block->size = size;
    return block;
}

struct dl_h2_block *dl_h2_block_ref(struct dl_h2_block *block)
{
    block->references++;
    return block;
}

void dl_h2_block_unref(struct dl_h2_block *block)
{
    if (block && --block->references == 0) free(block);
}

/* ---- helpers -------------------------------------------------------------------- */

static void bucket_init(struct bucket *bucket, uint32_t burst, uint32_t rate, int64_t now_ms)
{
    bucket->burst = burst;
    bucket->rate = rate;
    bucket->tokens_milli = (int64_t)burst * 1000;
    bucket->at_ms = now_ms;
}

/* Takes a token. 1 if there was one. */
static int bucket_spend(struct bucket *bucket, int64_t now_ms)
{
    int64_t full = (int64_t)bucket->burst * 1000;
    int64_t passed_ms = now_ms - bucket->at_ms;
    if (passed_ms > 0) {
        if (passed_ms > 3600 * 1000) passed_ms = 3600 * 1000;
        bucket->tokens_milli += passed_ms * bucket->rate;
        if (bucket->tokens_milli > full) bucket->tokens_milli = full;
        bucket->at_ms = now_ms;
    }
    if (bucket->tokens_milli < 1000) return 0;
    bucket->tokens_milli -= 1000;
    return 1;
}

static void spend(struct dl_h2 *h2, struct bucket *bucket)
{
    if (h2->flooded || bucket_spend(bucket, h2->now_ms)) return;
    h2->flooded = 1;
    nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

static struct dl_h2_stream *stream_new(struct dl_h2 *h2, int32_t id)
{
    struct dl_h2_stream *stream = calloc(1, sizeof(*stream));
    if (!stream) return NULL;
    stream->id = id;
    stream->next = h2->streams;
    if (stream->next) stream->next->previous = stream;
    h2->streams = stream;
    h2->stream_count++;
    return stream;
}

static void item_free(struct dl_h2_stream *stream, struct dl_h2_item *item)
{
    dl_h2_block_unref(item->block);
    if (item == &stream->own)
        item->block = NULL;
    else
        free(item);
}

static void stream_drop_queue(struct dl_h2_stream *stream)
{
    struct dl_h2_item *item = stream->head;
    while (item) {
        struct dl_h2_item *next = item->next;
        item_free(stream, item);
        item = next;
    }
    stream->head = stream->tail = NULL;
    stream->head_sent = 0;
    stream->queued_bytes = 0;
    stream->queued_blocks = 0;
}

static void stream_free(struct dl_h2 *h2, struct dl_h2_stream *stream)
{
    stream_drop_queue(stream);
    dl_buf_free(&stream->trailers);
    if (stream->previous)
        stream->previous->next = stream->next;
    else
        h2->streams = stream->next;
    if (stream->next) stream->next->previous = stream->previous;
    h2->stream_count--;
    free(stream);
}

static struct dl_h2_stream *stream_of(struct dl_h2 *h2, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h2->session, id);
}

static nghttp2_nv nv_of(struct dl_slice name, struct dl_slice value)
{
    nghttp2_nv nv = {(uint8_t *)name.data, (uint8_t *)value.data, name.size, value.size,
                     NGHTTP2_NV_FLAG_NONE};
    return nv;
}

#define HEADERS_OUT_MAX 32

static size_t nvs_of(const struct dl_h2_header *headers, size_t count,
                     nghttp2_nv nvs[HEADERS_OUT_MAX])
{
    DL_CHECK(count <= HEADERS_OUT_MAX);
    for (size_t i = 0; i < count; i++) nvs[i] = nv_of(headers[i].name, headers[i].value);
    return count;
}

static int status_of(int code)
{
    if (code == 0) return DL_OK;
    return code == NGHTTP2_ERR_NOMEM ? DL_ERR_NOMEM : DL_ERR_INVALID;
}

/* ---- sending ---------------------------------------------------------------------- */

static int submit_trailers(struct dl_h2 *h2, struct dl_h2_stream *stream)
{
    nghttp2_nv nvs[HEADERS_OUT_MAX];
    if (stream->lasting_trailers) {
        nvs_of(stream->lasting_trailers, stream->trailer_count, nvs);
        return nghttp2_submit_trailer(h2->session, stream->id, nvs, stream->trailer_count);
    }
    struct dl_reader reader = dl_reader_of(dl_buf_slice(&stream->trailers));
    for (uint32_t i = 0; i < stream->trailer_count; i++) {
        struct dl_slice name = dl_read_slice(&reader, dl_read_u32(&reader));
        struct dl_slice value = dl_read_slice(&reader, dl_read_u32(&reader));
        nvs[i] = nv_of(name, value);
    }
    return nghttp2_submit_trailer(h2->session, stream->id, nvs, stream->trailer_count);
}

static void start_block(struct dl_h2 *h2, struct dl_h2_stream *stream, struct dl_h2_item *item)
{
    if (!h2->events->starting) return;
    struct dl_h2_block *other = h2->events->starting(h2->context, stream, item->block);
    if (!other) return;
    stream->queued_bytes += other->size - item->block->size;
    dl_h2_block_unref(item->block);
    item->block = other;
}

static ssize_t on_pull(nghttp2_session *session, int32_t id, uint8_t *out, size_t size,
                       uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct dl_h2 *h2 = user;
    struct dl_h2_stream *stream = source->ptr;
    size_t filled = 0;
    (void)session;
    (void)id;
    while (stream->head && filled < size) {
        struct dl_h2_item *item = stream->head;
        if (stream->head_sent == 0) start_block(h2, stream, item);
        size_t left = item->block->size - stream->head_sent;
        size_t take = left < size - filled ? left : size - filled;
        memcpy(out + filled, item->block->data + stream->head_sent, take);
        filled += take;
        stream->head_sent += take;
        stream->queued_bytes -= take;
        if (stream->head_sent < item->block->size) break;
        stream->head = item->next;
        if (!stream->head) stream->tail = NULL;
        stream->head_sent = 0;
        stream->queued_blocks--;
        item_free(stream, item);
    }
    if (!stream->head && stream->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->has_trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            if (submit_trailers(h2, stream) != 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        }
        return (ssize_t)filled;
    }
    if (filled == 0) {
        stream->deferred = 1;
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)filled;
}

static void resume(struct dl_h2 *h2, struct dl_h2_stream *stream)
{
    if (!stream->deferred) return;
    stream->deferred = 0;
    nghttp2_session_resume_data(h2->session, stream->id);
}

static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct dl_h2 *h2 = user;
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        /* A peer that breaks its own streams makes us reset them: the same
         * work for us as a reset of its own. */
        uint32_t code = frame->rst_stream.error_code;
        if (h2->config.server &&
            (code == NGHTTP2_PROTOCOL_ERROR || code == NGHTTP2_FLOW_CONTROL_ERROR ||
             code == NGHTTP2_STREAM_CLOSED || code == NGHTTP2_REFUSED_STREAM))
            spend(h2, &h2->resets);
        return 0;
    }
    if (!h2->config.server || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    /* The response is complete before the request: the rest of it is not wanted. */
    struct dl_h2_stream *stream = stream_of(h2, frame->hd.stream_id);
    if (stream && !stream->peer_ended)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, stream->id, NGHTTP2_NO_ERROR);
    return 0;
}

/* A request that was still waiting to be sent when the peer said GOAWAY never
 * becomes a stream of nghttp2's, so no close would be reported for it. */
static int on_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int code,
                             void *user)
{
    struct dl_h2 *h2 = user;
    (void)session;
    (void)code;
    if (h2->config.server || frame->hd.type != NGHTTP2_HEADERS ||
        frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    for (struct dl_h2_stream *stream = h2->streams; stream; stream = stream->next) {
        if (stream->id != frame->hd.stream_id) continue;
        h2->events->closed(h2->context, stream, DL_H2_REFUSED_STREAM);
        stream_free(h2, stream);
        break;
    }
    return 0;
}

/* ---- receiving -------------------------------------------------------------------- */

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct dl_h2 *h2 = user;
    dl_buf_clear(&h2->header_text);
    h2->header_count = 0;
    h2->header_bytes = 0;
    if (h2->config.server && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        struct dl_h2_stream *stream = stream_new(h2, frame->hd.stream_id);
        if (!stream) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
        nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    }
    return 0;
}

static int grow_headers(struct dl_h2 *h2)
{
    size_t capacity = h2->header_capacity ? h2->header_capacity * 2 : 32;
    void *offsets = realloc(h2->header_offsets, capacity * sizeof(*h2->header_offsets));
    if (!offsets) return DL_ERR_NOMEM;
    h2->header_offsets = offsets;
    void *headers = realloc(h2->headers, capacity * sizeof(*h2->headers));
    if (!headers) return DL_ERR_NOMEM;
    h2->headers = headers;
    h2->header_capacity = capacity;
    return DL_OK;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_size, const uint8_t *value, size_t value_size, uint8_t flags,
                     void *user)
{
    struct dl_h2 *h2 = user;
    (void)session;
    (void)frame;
    (void)flags;
    h2->header_bytes += name_size + value_size + 32;
    if (h2->header_bytes > h2->config.header_bytes_max) {
        /* A little over is answered politely; far over (a small block can name
         * a large entry many times) is cut off. */
        return h2->header_bytes / 4 > h2->config.header_bytes_max
                   ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
                   : 0;
    }
    if (h2->header_count == h2->header_capacity && grow_headers(h2) != DL_OK)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    struct header_offset *offset = &h2->header_offsets[h2->header_count];
    offset->name = h2->header_text.size;
    offset->name_size = name_size;
    dl_buf_append(&h2->header_text, name, name_size);
    offset->value = h2->header_text.size;
    offset->value_size = value_size;
    dl_buf_append(&h2->header_text, value, value_size);
    if (h2->header_text.failed) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    h2->header_count++;
    return 0;
}

static void deliver_headers(struct dl_h2 *h2, struct dl_h2_stream *stream, int last)
{
    const uint8_t *text = h2->header_text.data;
    int flags = last ? DL_H2_LAST : 0;
    if (h2->header_bytes > h2->config.header_bytes_max) flags |= DL_H2_TOO_LARGE;
    for (size_t i = 0; i < h2->header_count; i++) {
        const struct header_offset *offset = &h2->header_offsets[i];
        h2->headers[i].name = dl_slice_of(text + offset->name, offset->name_size);
        h2->headers[i].value = dl_slice_of(text + offset->value, offset->value_size);
    }
    if (!stream->headers_done) {
        stream->headers_done = 1;
        h2->events->headers(h2->context, stream, h2->headers, h2->header_count, flags);
    } else {
        h2->events->trailers(h2->context, stream, h2->headers, h2->header_count);
    }
}

/* Informational responses (1xx) precede the real one. */
static int is_informational(const struct dl_h2 *h2)
{
    if (h2->header_count == 0) return 0;
    const struct header_offset *offset = &h2->header_offsets[0];
    const uint8_t *text = h2->header_text.data;
    return offset->name_size == 7 && memcmp(text + offset->name, ":status", 7) == 0 &&
           offset->value_size == 3 && text[offset->value] == '1';
}

static void receive_headers(struct dl_h2 *h2, const nghttp2_frame *frame)
{
    struct dl_h2_stream *stream = stream_of(h2, frame->hd.stream_id);
    if (!stream || stream->refused) return;
    int last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (!h2->config.server && !stream->headers_done && !last && is_informational(h2)) return;
    if (last) stream->peer_ended = 1;
    deliver_headers(h2, stream, last);
}

/* Priorities are declined, so nghttp2 skips these frames without a further word. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *head, void *user)
{
    struct dl_h2 *h2 = user;
    (void)session;
    if (head->type == NGHTTP2_PRIORITY) spend(h2, &h2->controls);
    return 0;
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct dl_h2 *h2 = user;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
        receive_headers(h2, frame);
        break;
    case NGHTTP2_DATA: {
        struct dl_h2_stream *stream = stream_of(h2, frame->hd.stream_id);
        int last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if (frame->hd.length == 0 && !last) spend(h2, &h2->controls);
        if (stream && last) {
            stream->peer_ended = 1;
            h2->events->end(h2->context, stream);
        }
        break;
    }
    case NGHTTP2_RST_STREAM:
        if (h2->config.server) spend(h2, &h2->resets);
        break;
    case NGHTTP2_PING:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) {
            spend(h2, &h2->controls);
        } else if (memcmp(frame->ping.opaque_data, ping_drain, 8) == 0) {
            h2->drain_ping_answered = 1;
        } else if (memcmp(frame->ping.opaque_data, ping_alive, 8) == 0) {
            h2->pings_unanswered = 0;
        }
        break;
    case NGHTTP2_SETTINGS:
        h2->established = 1;
        spend(h2, &h2->controls);
        break;
    case NGHTTP2_GOAWAY:
        if (h2->events->goaway) h2->events->goaway(h2->context, frame->goaway.error_code);
        break;
    default:
        break;
    }
    return 0;
}

static int on_invalid_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, int code,
                                 void *user)
{
    struct dl_h2 *h2 = user;
    (void)session;
    (void)frame;
    (void)code;
    spend(h2, &h2->controls);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    struct dl_h2 *h2 = user;
    struct dl_h2_stream *stream = stream_of(h2, id);
    (void)flags;
    if (!stream || stream->refused) {
        nghttp2_session_consume(session, id, size);
        return 0;
    }
    stream->unconsumed += size;
    h2->events->data(h2->context, stream, dl_slice_of(data, size));
    return 0;
}

static int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    struct dl_h2 *h2 = user;
    struct dl_h2_stream *stream = stream_of(h2, id);
    if (!stream) return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    /* The stream's share of the connection's window would else be lost. */
    if (stream->unconsumed) nghttp2_session_consume_connection(session, stream->unconsumed);
    /* A server's stream whose headers never came whole was never announced. */
    if (stream->headers_done || !h2->config.server) h2->events->closed(h2->context, stream, code);
    stream_free(h2, stream);
    return 0;
}

/* ---- construction ------------------------------------------------------------------- */

static int set_callbacks(nghttp2_session_callbacks **result)
{
    nghttp2_session_callbacks *callbacks;
    int code = nghttp2_session_callbacks_new(&callbacks);
    if (code != 0) return status_of(code);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_send);
    *result = callbacks;
    return DL_OK;
}

static int open_session(struct dl_h2 *h2)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int status = set_callbacks(&callbacks);
    if (status == DL_OK) status = status_of(nghttp2_option_new(&option));
    if (status != DL_OK) goto out;
    nghttp2_option_set_no_auto_window_update(option, 1);
    /* Closed streams are kept for priorities only, which gRPC does not use. */
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_server_fallback_rfc7540_priorities(option, 0);
    /* A space around a value harms nobody; other servers let it pass. */
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
    /* Our own bucket counts resets, by the time that it is given. */
    nghttp2_option_set_stream_reset_rate_limit(option, 1u << 30, 1u << 30);
    if (h2->config.server)
        status = status_of(nghttp2_session_server_new2(&h2->session, callbacks, h2, option));
    else
        status = status_of(nghttp2_session_client_new2(&h2->session, callbacks, h2, option));
out:
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return status;
}

static int submit_settings(struct dl_h2 *h2)
{
    const struct dl_h2_config *config = &h2->config;
    nghttp2_settings_entry entries[5];
    size_t count = 0;
    if (config->server) {
        entries[count++] =
            (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, config->streams_max};
        entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1};
    } else {
        entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    }
    entries[count++] =
        (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, config->stream_window};
    entries[count++] =
        (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, config->header_bytes_max};
    int code = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, entries, count);
    if (code == 0)
        code = nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)config->connection_window);
    return status_of(code);
}

int dl_h2_new(const struct dl_h2_config *config, const struct dl_h2_events *events, void *context,
              int64_t now_ms, struct dl_h2 **result)
{
    struct dl_h2 *h2 = calloc(1, sizeof(*h2));
    if (!h2) return DL_ERR_NOMEM;
    h2->config = *config;
    h2->events = events;
    h2->context = context;
    h2->now_ms = now_ms;
    bucket_init(&h2->resets, config->reset_burst, config->reset_rate, now_ms);
    bucket_init(&h2->controls, config->control_burst, config->control_rate, now_ms);
    int status = open_session(h2);
    if (status == DL_OK) status = submit_settings(h2);
    if (status != DL_OK) {
        dl_h2_free(h2);
        return status;
    }
    *result = h2;
    return DL_OK;
}

void dl_h2_free(struct dl_h2 *h2)
{
    if (!h2) return;
    while (h2->streams) {
        struct dl_h2_stream *stream = h2->streams;
        nghttp2_session_set_stream_user_data(h2->session, stream->id, NULL);
        if (stream->headers_done || !h2->config.server)
            h2->events->closed(h2->context, stream, DL_H2_CANCEL);
        stream_free(h2, stream);
    }
    nghttp2_session_del(h2->session);
    dl_buf_free(&h2->header_text);
    free(h2->header_offsets);
    free(h2->headers);
    free(h2);
}

/* ---- public: bytes ------------------------------------------------------------------ */

int dl_h2_receive(struct dl_h2 *h2, struct dl_slice bytes, int64_t now_ms, struct dl_error *error)
{
    h2->now_ms = now_ms;
    ssize_t read = nghttp2_session_mem_recv(h2->session, bytes.data, bytes.size);
    if (read == NGHTTP2_ERR_NOMEM) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    if (read == NGHTTP2_ERR_BAD_CLIENT_MAGIC)
        return dl_error_set(error, DL_ERR_INVALID,
                            "the peer does not speak HTTP/2 (for TLS, set rpc.tls_cert)");
    if (read < 0)
        return dl_error_set(error, DL_ERR_INVALID, "HTTP/2: %s", nghttp2_strerror((int)read));
    if (h2->flooded)
        return dl_error_set(error, DL_ERR_INVALID,
                            "the peer flooded the connection with resets or control frames");
    return DL_OK;
}

int dl_h2_take(struct dl_h2 *h2, struct dl_slice *bytes)
{
    const uint8_t *data = NULL;
    ssize_t size = nghttp2_session_mem_send(h2->session, &data);
    *bytes = dl_slice_of(data, size > 0 ? (size_t)size : 0);
    return size < 0 ? status_of((int)size) : DL_OK;
}

int dl_h2_is_done(const struct dl_h2 *h2)
{
    return !nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session);
}

int dl_h2_is_established(const struct dl_h2 *h2)
{
    return h2->established;
}

uint32_t dl_h2_stream_count(const struct dl_h2 *h2)
{
    return h2->stream_count;
}

/* ---- public: streams ------------------------------------------------------------------ */

int dl_h2_respond(struct dl_h2 *h2, struct dl_h2_stream *stream, const struct dl_h2_header *headers,
                  size_t count, int last)
{
    nghttp2_nv nvs[HEADERS_OUT_MAX];
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_pull};
    count = nvs_of(headers, count, nvs);
    return status_of(
        nghttp2_submit_response(h2->session, stream->id, nvs, count, last ? NULL : &provider));
}

int dl_h2_request(struct dl_h2 *h2, const struct dl_h2_header *headers, size_t count, void *user,
                  struct dl_h2_stream **result)
{
    nghttp2_nv nvs[HEADERS_OUT_MAX];
    if (!nghttp2_session_check_request_allowed(h2->session)) return DL_ERR_UNAVAILABLE;
    struct dl_h2_stream *stream = stream_new(h2, 0);
    if (!stream) return DL_ERR_NOMEM;
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_pull};
    count = nvs_of(headers, count, nvs);
    int32_t id = nghttp2_submit_request(h2->session, NULL, nvs, count, &provider, stream);
    if (id < 0) {
        stream_free(h2, stream);
        return id == NGHTTP2_ERR_NOMEM ? DL_ERR_NOMEM : DL_ERR_UNAVAILABLE;
    }
    stream->id = id;
    stream->user = user;
    *result = stream;
    return DL_OK;
}

int dl_h2_push(struct dl_h2 *h2, struct dl_h2_stream *stream, struct dl_h2_block *block)
{
    DL_CHECK(!stream->ended);
    struct dl_h2_item *item = stream->own.block ? malloc(sizeof(*item)) : &stream->own;
    if (!item) {
        dl_h2_block_unref(block);
        return DL_ERR_NOMEM;
    }
    item->block = block;
    item->next = NULL;
    if (stream->tail)
        stream->tail->next = item;
    else
        stream->head = item;
    stream->tail = item;
    stream->queued_bytes += block->size;
    stream->queued_blocks++;
    resume(h2, stream);
    return DL_OK;
}

int dl_h2_drop_oldest(struct dl_h2_stream *stream)
{
    struct dl_h2_item *before = stream->head_sent > 0 ? stream->head : NULL;
    struct dl_h2_item *item = before ? before->next : stream->head;
    if (!item) return 0;
    if (before)
        before->next = item->next;
    else
        stream->head = item->next;
    if (stream->tail == item) stream->tail = before;
    stream->queued_bytes -= item->block->size;
    stream->queued_blocks--;
    item_free(stream, item);
    return 1;
}

int dl_h2_finish(struct dl_h2 *h2, struct dl_h2_stream *stream, const struct dl_h2_header *trailers,
                 size_t count)
{
    DL_CHECK(!stream->ended && count <= HEADERS_OUT_MAX);
    for (size_t i = 0; i < count; i++) {
        dl_buf_u32(&stream->trailers, (uint32_t)trailers[i].name.size);
        dl_buf_append(&stream->trailers, trailers[i].name.data, trailers[i].name.size);
        dl_buf_u32(&stream->trailers, (uint32_t)trailers[i].value.size);
        dl_buf_append(&stream->trailers, trailers[i].value.data, trailers[i].value.size);
    }
    if (stream->trailers.failed) return DL_ERR_NOMEM;
    stream->trailer_count = (uint32_t)count;
    stream->has_trailers = count > 0;
    stream->ended = 1;
    resume(h2, stream);
    return DL_OK;
}

void dl_h2_finish_lasting(struct dl_h2 *h2, struct dl_h2_stream *stream,
                          const struct dl_h2_header *trailers, size_t count)
{
    DL_CHECK(!stream->ended && count <= HEADERS_OUT_MAX);
    stream->lasting_trailers = trailers;
    stream->trailer_count = (uint32_t)count;
    stream->has_trailers = count > 0;
    stream->ended = 1;
    resume(h2, stream);
}

void dl_h2_reset(struct dl_h2 *h2, struct dl_h2_stream *stream, enum dl_h2_code code)
{
    stream_drop_queue(stream);
    stream->refused = 1;
    if (stream->unconsumed) dl_h2_consume(h2, stream, stream->unconsumed);
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, stream->id, code);
}

void dl_h2_consume(struct dl_h2 *h2, struct dl_h2_stream *stream, size_t size)
{
    if (size > stream->unconsumed) size = stream->unconsumed; /* a reset gave it back already */
    if (size == 0) return;
    stream->unconsumed -= size;
    /* A window that nobody will use any more need not be given back; the
     * connection's must be. */
    if (stream->peer_ended)
        nghttp2_session_consume_connection(h2->session, size);
    else
        nghttp2_session_consume(h2->session, stream->id, size);
}

/* ---- public: the connection ------------------------------------------------------------ */

void dl_h2_drain(struct dl_h2 *h2)
{
    nghttp2_submit_shutdown_notice(h2->session);
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, ping_drain);
}

int dl_h2_is_drained(const struct dl_h2 *h2)
{
    return h2->drain_ping_answered;
}

void dl_h2_close(struct dl_h2 *h2)
{
    nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h2->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
}

void dl_h2_terminate(struct dl_h2 *h2, enum dl_h2_code code)
{
    nghttp2_session_terminate_session(h2->session, code);
}

void dl_h2_ping(struct dl_h2 *h2)
{
    h2->pings_unanswered++;
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, ping_alive);
}

int dl_h2_pings_unanswered(const struct dl_h2 *h2)
{
    return h2->pings_unanswered;
}
