/* What comes in: header blocks, data, the ends of streams, and what is counted
 * against floods. */
#include "service/h2_private.h"

#include <stdlib.h>
#include <string.h>

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct dl_h2 *h2 = user;
    dl_buf_clear(&h2->header_text);
    h2->header_count = 0;
    h2->header_bytes = 0;
    if (h2->config.server && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        struct dl_h2_stream *stream = dl_h2_stream_new(h2, frame->hd.stream_id);
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
    struct dl_h2_header_offset *offset = &h2->header_offsets[h2->header_count];
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
        const struct dl_h2_header_offset *offset = &h2->header_offsets[i];
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
    const struct dl_h2_header_offset *offset = &h2->header_offsets[0];
    const uint8_t *text = h2->header_text.data;
    return offset->name_size == 7 && memcmp(text + offset->name, ":status", 7) == 0 &&
           offset->value_size == 3 && text[offset->value] == '1';
}

static void receive_headers(struct dl_h2 *h2, const nghttp2_frame *frame)
{
    struct dl_h2_stream *stream = dl_h2_stream_of(h2, frame->hd.stream_id);
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
    if (head->type == NGHTTP2_PRIORITY) dl_h2_spend(h2, &h2->controls);
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
        struct dl_h2_stream *stream = dl_h2_stream_of(h2, frame->hd.stream_id);
        int last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if (frame->hd.length == 0 && !last) dl_h2_spend(h2, &h2->controls);
        if (stream && last) {
            stream->peer_ended = 1;
            h2->events->end(h2->context, stream);
        }
        break;
    }
    case NGHTTP2_RST_STREAM:
        if (h2->config.server) dl_h2_spend(h2, &h2->resets);
        break;
    case NGHTTP2_PING:
        if (!(frame->hd.flags & NGHTTP2_FLAG_ACK)) {
            dl_h2_spend(h2, &h2->controls);
        } else if (memcmp(frame->ping.opaque_data, dl_h2_ping_drain, 8) == 0) {
            h2->drain_ping_answered = 1;
        } else if (memcmp(frame->ping.opaque_data, dl_h2_ping_alive, 8) == 0) {
            h2->pings_unanswered = 0;
        }
        break;
    case NGHTTP2_SETTINGS:
        h2->established = 1;
        dl_h2_spend(h2, &h2->controls);
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
    dl_h2_spend(h2, &h2->controls);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    struct dl_h2 *h2 = user;
    struct dl_h2_stream *stream = dl_h2_stream_of(h2, id);
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
    struct dl_h2_stream *stream = dl_h2_stream_of(h2, id);
    if (!stream) return 0;
    nghttp2_session_set_stream_user_data(session, id, NULL);
    /* The stream's share of the connection's window would else be lost. */
    if (stream->unconsumed) nghttp2_session_consume_connection(session, stream->unconsumed);
    /* A server's stream whose headers never came whole was never announced. */
    if (stream->headers_done || !h2->config.server) h2->events->closed(h2->context, stream, code);
    dl_h2_stream_free(h2, stream);
    return 0;
}

void dl_h2_set_receive_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame_recv);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
}
