/* How it works. nghttp2 keeps the protocol's state; these files keep, for each
 * stream, a list of blocks that nghttp2 pulls from as the peer's windows
 * allow. A pull on an empty list defers the stream, a push resumes it. Header
 * blocks cannot interleave on a connection, so one buffer gathers the block
 * that is coming in. Windows are given back only as the reader consumes.
 *
 * Floods. What costs us more than it costs the peer draws on token buckets:
 * resets (with streams that the peer breaks on purpose, so that we reset them)
 * and control frames. What waits to be sent is bounded by the caller, who
 * stops reading while the socket does not take what was taken here. */
#include "service/h2_private.h"

#include <stdlib.h>

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

/* Opaque data of our two kinds of PING. */
const uint8_t dl_h2_ping_drain[8] = {'d', 'r', 'a', 'i', 'n', 0, 0, 0};
const uint8_t dl_h2_ping_alive[8] = {'a', 'l', 'i', 'v', 'e', 0, 0, 0};

/* ---- floods -------------------------------------------------------------------- */

static void bucket_init(struct dl_h2_bucket *bucket, uint32_t burst, uint32_t rate, int64_t now_ms)
{
    bucket->burst = burst;
    bucket->rate = rate;
    bucket->tokens_milli = (int64_t)burst * 1000;
    bucket->at_ms = now_ms;
}

/* Takes a token. 1 if there was one. */
static int bucket_spend(struct dl_h2_bucket *bucket, int64_t now_ms)
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

void dl_h2_spend(struct dl_h2 *h2, struct dl_h2_bucket *bucket)
{
    if (h2->flooded || bucket_spend(bucket, h2->now_ms)) return;
    h2->flooded = 1;
    nghttp2_session_terminate_session(h2->session, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* ---- construction ------------------------------------------------------------------- */

static int set_callbacks(nghttp2_session_callbacks **result)
{
    nghttp2_session_callbacks *callbacks;
    int code = nghttp2_session_callbacks_new(&callbacks);
    if (code != 0) return dl_h2_status_of(code);
    dl_h2_set_receive_callbacks(callbacks);
    dl_h2_set_send_callbacks(callbacks);
    *result = callbacks;
    return DL_OK;
}

static int open_session(struct dl_h2 *h2)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int status = set_callbacks(&callbacks);
    if (status == DL_OK) status = dl_h2_status_of(nghttp2_option_new(&option));
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
        status = dl_h2_status_of(nghttp2_session_server_new2(&h2->session, callbacks, h2, option));
    else
        status = dl_h2_status_of(nghttp2_session_client_new2(&h2->session, callbacks, h2, option));
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
    return dl_h2_status_of(code);
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
        dl_h2_stream_free(h2, stream);
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
    return size < 0 ? dl_h2_status_of((int)size) : DL_OK;
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

/* ---- public: the connection ------------------------------------------------------------ */

void dl_h2_drain(struct dl_h2 *h2)
{
    nghttp2_submit_shutdown_notice(h2->session);
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, dl_h2_ping_drain);
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
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, dl_h2_ping_alive);
}

int dl_h2_pings_unanswered(const struct dl_h2 *h2)
{
    return h2->pings_unanswered;
}
