/* What the files of an HTTP/2 connection share: h2.c (connections), h2_stream.c
 * (streams and what is sent on them), h2_receive.c (what comes in). For nobody
 * else. */
#ifndef DL_SERVICE_H2_PRIVATE_H
#define DL_SERVICE_H2_PRIVATE_H

#include <nghttp2/nghttp2.h>

#include "service/h2.h"

struct dl_h2_bucket {
    uint32_t burst, rate; /* tokens, tokens a second */
    int64_t tokens_milli; /* thousandths of a token */
    int64_t at_ms;
};

struct dl_h2_header_offset {
    size_t name, name_size, value, value_size;
};

struct dl_h2 {
    nghttp2_session *session;
    struct dl_h2_config config;
    const struct dl_h2_events *events;
    void *context;
    int64_t now_ms;
    struct dl_h2_bucket resets, controls;
    /* The header block that is coming in. */
    struct dl_buf header_text;
    struct dl_h2_header_offset *header_offsets;
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

static inline int dl_h2_status_of(int code)
{
    if (code == 0) return DL_OK;
    return code == NGHTTP2_ERR_NOMEM ? DL_ERR_NOMEM : DL_ERR_INVALID;
}

static inline struct dl_h2_stream *dl_h2_stream_of(struct dl_h2 *h2, int32_t id)
{
    return nghttp2_session_get_stream_user_data(h2->session, id);
}

/* h2.c: takes a token; without one the connection ends with ENHANCE_YOUR_CALM. */
void dl_h2_spend(struct dl_h2 *h2, struct dl_h2_bucket *bucket);
/* Opaque data of our two kinds of PING. */
extern const uint8_t dl_h2_ping_drain[8], dl_h2_ping_alive[8];

/* h2_stream.c. NULL: no memory. */
struct dl_h2_stream *dl_h2_stream_new(struct dl_h2 *h2, int32_t id);
void dl_h2_stream_free(struct dl_h2 *h2, struct dl_h2_stream *stream);
void dl_h2_set_send_callbacks(nghttp2_session_callbacks *callbacks);

/* h2_receive.c */
void dl_h2_set_receive_callbacks(nghttp2_session_callbacks *callbacks);

#endif
