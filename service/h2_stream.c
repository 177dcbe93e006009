/* Streams and what is sent on them: a list of blocks that nghttp2 pulls from. */
#include "service/h2_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

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

/* ---- streams --------------------------------------------------------------------- */

struct dl_h2_stream *dl_h2_stream_new(struct dl_h2 *h2, int32_t id)
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

void dl_h2_stream_free(struct dl_h2 *h2, struct dl_h2_stream *stream)
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
            dl_h2_spend(h2, &h2->resets);
        return 0;
    }
    if (!h2->config.server || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    /* The response is complete before the request: the rest of it is not wanted. */
    struct dl_h2_stream *stream = dl_h2_stream_of(h2, frame->hd.stream_id);
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
        dl_h2_stream_free(h2, stream);
        break;
    }
    return 0;
}

void dl_h2_set_send_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_send);
}

/* ---- public: streams ------------------------------------------------------------------ */

int dl_h2_respond(struct dl_h2 *h2, struct dl_h2_stream *stream, const struct dl_h2_header *headers,
                  size_t count, int last)
{
    nghttp2_nv nvs[HEADERS_OUT_MAX];
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_pull};
    count = nvs_of(headers, count, nvs);
    return dl_h2_status_of(
        nghttp2_submit_response(h2->session, stream->id, nvs, count, last ? NULL : &provider));
}

int dl_h2_request(struct dl_h2 *h2, const struct dl_h2_header *headers, size_t count, void *user,
                  struct dl_h2_stream **result)
{
    nghttp2_nv nvs[HEADERS_OUT_MAX];
    if (!nghttp2_session_check_request_allowed(h2->session)) return DL_ERR_UNAVAILABLE;
    struct dl_h2_stream *stream = dl_h2_stream_new(h2, 0);
    if (!stream) return DL_ERR_NOMEM;
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_pull};
    count = nvs_of(headers, count, nvs);
    int32_t id = nghttp2_submit_request(h2->session, NULL, nvs, count, &provider, stream);
    if (id < 0) {
        dl_h2_stream_free(h2, stream);
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
