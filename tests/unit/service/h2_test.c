/* HTTP/2 connections in memory: what a peer may and may not do. */
#include <stdio.h>
#include <stdlib.h>

#include <criterion/criterion.h>

#include "service/h2.h"

struct side {
    struct dl_h2 *h2;
    struct dl_h2_stream *stream; /* the newest */
    unsigned headers, trailers, ended, closed;
    int flags;
    uint32_t code;
    size_t data_bytes, header_count;
    int keep; /* do not consume */
    char path[64];
};

static void on_headers(void *context, struct dl_h2_stream *stream,
                       const struct dl_h2_header *headers, size_t count, int flags)
{
    struct side *side = context;
    side->headers++;
    side->stream = stream;
    side->flags = flags;
    side->header_count = count;
    for (size_t i = 0; i < count; i++)
        if (dl_slice_equal(headers[i].name, dl_slice_text(":path")))
            snprintf(side->path, sizeof(side->path), "%.*s", (int)headers[i].value.size,
                     (const char *)headers[i].value.data);
}

static void on_trailers(void *context, struct dl_h2_stream *stream,
                        const struct dl_h2_header *headers, size_t count)
{
    (void)stream;
    (void)headers;
    (void)count;
    ((struct side *)context)->trailers++;
}

static void on_data(void *context, struct dl_h2_stream *stream, struct dl_slice bytes)
{
    struct side *side = context;
    side->data_bytes += bytes.size;
    if (!side->keep) dl_h2_consume(side->h2, stream, bytes.size);
}

static void on_end(void *context, struct dl_h2_stream *stream)
{
    (void)stream;
    ((struct side *)context)->ended++;
}

static void on_closed(void *context, struct dl_h2_stream *stream, uint32_t code)
{
    struct side *side = context;
    side->closed++;
    side->code = code;
    if (side->stream == stream) side->stream = NULL;
}

static const struct dl_h2_events events = {.headers = on_headers,
                                           .trailers = on_trailers,
                                           .data = on_data,
                                           .end = on_end,
                                           .closed = on_closed};

static struct side server, client;
static int64_t now_ms;

static void setup(void)
{
    memset(&server, 0, sizeof(server));
    memset(&client, 0, sizeof(client));
    now_ms = 0;
    cr_assert_eq(dl_h2_new(&dl_h2_config_server, &events, &server, 0, &server.h2), DL_OK);
    cr_assert_eq(dl_h2_new(&dl_h2_config_client, &events, &client, 0, &client.h2), DL_OK);
}

static void teardown(void)
{
    dl_h2_free(server.h2);
    dl_h2_free(client.h2);
}

TestSuite(h2, .init = setup, .fini = teardown);

static int move(struct side *from, struct side *to)
{
    struct dl_slice bytes;
    cr_assert_eq(dl_h2_take(from->h2, &bytes), DL_OK);
    if (bytes.size) dl_h2_receive(to->h2, bytes, now_ms, NULL);
    return bytes.size > 0;
}

static void pump(void)
{
    while (move(&client, &server) | move(&server, &client)) {
    }
}

#define H(n, v)                                                                                    \
    {                                                                                              \
        {(const uint8_t *)(n), sizeof(n) - 1},                                                     \
        {                                                                                          \
            (const uint8_t *)(v), sizeof(v) - 1                                                    \
        }                                                                                          \
    }
static const struct dl_h2_header request[] = {H(":method", "POST"), H(":scheme", "http"),
                                              H(":path", "/a/b"), H(":authority", "x")};
static const struct dl_h2_header answer[] = {H(":status", "200")};
static const struct dl_h2_header trailer[] = {H("grpc-status", "0")};

static struct dl_h2_block *block_of(size_t size)
{
    struct dl_h2_block *block = dl_h2_block_new(size);
    memset(block->data, 'x', size);
    return block;
}

Test(h2, request_and_answer_with_trailers)
{
    struct dl_h2_stream *stream;
    cr_assert_eq(dl_h2_request(client.h2, request, 4, NULL, &stream), DL_OK);
    dl_h2_push(client.h2, stream, block_of(100000));
    dl_h2_finish(client.h2, stream, NULL, 0);
    pump();
    cr_assert_str_eq(server.path, "/a/b");
    cr_assert_eq(server.data_bytes, 100000);
    cr_assert_eq(server.ended, 1);
    dl_h2_respond(server.h2, server.stream, answer, 1, 0);
    dl_h2_push(server.h2, server.stream, block_of(50000));
    dl_h2_push(server.h2, server.stream, block_of(3));
    dl_h2_finish(server.h2, server.stream, trailer, 1);
    pump();
    cr_assert_eq(client.headers, 1);
    cr_assert_eq(client.data_bytes, 50003);
    cr_assert_eq(client.trailers, 1);
    cr_assert_eq(client.closed, 1);
    cr_assert_eq(server.closed, 1);
    cr_assert_eq(server.code, DL_H2_NO_ERROR);
    cr_assert_eq(dl_h2_stream_count(server.h2), 0);
}

Test(h2, early_answer_ends_the_upload)
{
    struct dl_h2_stream *stream;
    dl_h2_request(client.h2, request, 4, NULL, &stream);
    dl_h2_push(client.h2, stream, block_of(10));
    pump();
    dl_h2_respond(server.h2, server.stream, answer, 1, 1);
    pump();
    cr_assert_eq(server.closed, 1);
    cr_assert_eq(client.closed, 1);
    cr_assert_eq(client.code, DL_H2_NO_ERROR);
}

Test(h2, peer_stops_at_the_window_until_bytes_are_consumed)
{
    struct dl_h2_stream *stream;
    server.keep = 1;
    dl_h2_request(client.h2, request, 4, NULL, &stream);
    dl_h2_push(client.h2, stream, block_of(1000000));
    dl_h2_finish(client.h2, stream, NULL, 0);
    pump();
    cr_assert_eq(server.data_bytes, dl_h2_config_server.stream_window);
    cr_assert_eq(stream->queued_bytes, 1000000 - server.data_bytes);
    server.keep = 0;
    dl_h2_consume(server.h2, server.stream, server.stream->unconsumed);
    pump();
    cr_assert_eq(server.data_bytes, 1000000);
}

Test(h2, streams_that_end_unconsumed_give_the_connection_window_back)
{
    server.keep = 1;
    for (int i = 0; i < 100; i++) {
        struct dl_h2_stream *stream;
        cr_assert_eq(dl_h2_request(client.h2, request, 4, NULL, &stream), DL_OK);
        dl_h2_push(client.h2, stream, block_of(100000));
        dl_h2_finish(client.h2, stream, NULL, 0);
        pump();
        cr_assert_eq(server.data_bytes, (size_t)(i + 1) * 100000, "stream %d", i);
        dl_h2_respond(server.h2, server.stream, answer, 1, 1);
        pump();
    }
}

Test(h2, drops_the_oldest_that_is_not_on_its_way)
{
    struct dl_h2_stream *stream;
    dl_h2_request(client.h2, request, 4, NULL, &stream);
    client.keep = 1;
    pump();
    dl_h2_respond(server.h2, server.stream, answer, 1, 0);
    size_t window = dl_h2_config_client.stream_window;
    dl_h2_push(server.h2, server.stream, block_of(window + 10)); /* will be cut */
    dl_h2_push(server.h2, server.stream, block_of(7));
    dl_h2_push(server.h2, server.stream, block_of(8));
    pump();
    cr_assert_eq(server.stream->queued_blocks, 3);
    cr_assert(dl_h2_drop_oldest(server.stream));
    cr_assert_eq(server.stream->queued_bytes, 10 + 8);
    cr_assert(dl_h2_drop_oldest(server.stream));
    cr_assert_not(dl_h2_drop_oldest(server.stream), "the cut one stays");
    dl_h2_push(server.h2, server.stream, block_of(9));
    dl_h2_finish(server.h2, server.stream, trailer, 1);
    client.keep = 0;
    dl_h2_consume(client.h2, client.stream, client.stream->unconsumed);
    pump();
    cr_assert_eq(client.data_bytes, window + 10 + 9);
    cr_assert_eq(client.trailers, 1);
}

Test(h2, large_header_lists_are_flagged)
{
    static char value[20000];
    struct dl_h2_header headers[5];
    struct dl_h2_stream *stream;
    memcpy(headers, request, sizeof(request));
    memset(value, 'v', sizeof(value));
    headers[4] = (struct dl_h2_header){dl_slice_text("x-long"), dl_slice_of(value, sizeof(value))};
    dl_h2_request(client.h2, headers, 5, NULL, &stream);
    pump();
    cr_assert_eq(server.headers, 1);
    cr_assert(server.flags & DL_H2_TOO_LARGE);
    cr_assert_eq(server.header_count, 4);
}

Test(h2, what_is_not_http2_is_an_error)
{
    struct dl_error error = {""};
    cr_assert_eq(
        dl_h2_receive(server.h2, dl_slice_text("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0, &error),
        DL_ERR_INVALID);
    cr_assert(error.text[0]);
}

static void raw_frame(struct dl_buf *out, size_t size, uint8_t type, uint8_t flags, uint32_t id)
{
    uint8_t head[9] = {
        (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size,      type,       flags,
        (uint8_t)(id >> 24),   (uint8_t)(id >> 16),  (uint8_t)(id >> 8), (uint8_t)id};
    dl_buf_append(out, head, 9);
}

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static int receive(struct dl_buf *bytes)
{
    int status = dl_h2_receive(server.h2, dl_buf_slice(bytes), now_ms, NULL);
    struct dl_slice out;
    do {
        dl_h2_take(server.h2, &out);
    } while (out.size);
    dl_buf_clear(bytes);
    return status;
}

Test(h2, ping_flood_ends_the_connection_and_patience_does_not)
{
    struct dl_buf bytes = {0};
    uint32_t burst = dl_h2_config_server.control_burst;
    dl_buf_text(&bytes, preface);
    raw_frame(&bytes, 0, 4, 0, 0);
    cr_assert_eq(receive(&bytes), DL_OK);
    for (int second = 0; second < 100; second++) {
        now_ms += 1000;
        for (int i = 0; i < 50; i++) {
            raw_frame(&bytes, 8, 6, 0, 0);
            dl_buf_u64(&bytes, 0);
        }
        cr_assert_eq(receive(&bytes), DL_OK, "50 PINGs a second are fine");
    }
    for (uint32_t i = 0; i < burst + 10; i++) {
        raw_frame(&bytes, 8, 6, 0, 0);
        dl_buf_u64(&bytes, 0);
    }
    cr_assert_eq(receive(&bytes), DL_ERR_INVALID);
    cr_assert(dl_h2_is_done(server.h2));
    dl_buf_free(&bytes);
}

Test(h2, priority_flood_ends_the_connection)
{
    struct dl_buf bytes = {0};
    dl_buf_text(&bytes, preface);
    raw_frame(&bytes, 0, 4, 0, 0);
    for (uint32_t i = 0; i < dl_h2_config_server.control_burst + 10; i++) {
        raw_frame(&bytes, 5, 2, 0, 2 * i + 1);
        dl_buf_u32(&bytes, 0);
        dl_buf_u8(&bytes, 1);
    }
    cr_assert_eq(receive(&bytes), DL_ERR_INVALID);
    cr_assert(dl_h2_is_done(server.h2));
    dl_buf_free(&bytes);
}

Test(h2, rapid_reset_ends_the_connection)
{
    struct dl_error error = {""};
    int status = DL_OK;
    unsigned opened = 0;
    for (; opened < 5000 && status == DL_OK; opened++) {
        struct dl_h2_stream *stream;
        struct dl_slice bytes;
        if (dl_h2_request(client.h2, request, 4, NULL, &stream) != DL_OK) break;
        dl_h2_take(client.h2, &bytes);
        status = dl_h2_receive(server.h2, bytes, 0, &error);
        while (status == DL_OK && (dl_h2_take(client.h2, &bytes), bytes.size))
            status = dl_h2_receive(server.h2, bytes, 0, &error);
        dl_h2_reset(client.h2, stream, DL_H2_CANCEL);
        while (status == DL_OK && (dl_h2_take(client.h2, &bytes), bytes.size))
            status = dl_h2_receive(server.h2, bytes, 0, &error);
    }
    cr_assert_eq(status, DL_ERR_INVALID);
    cr_assert_leq(opened, dl_h2_config_server.reset_burst + 5);
    cr_assert_geq(opened, dl_h2_config_server.reset_burst - 5);
    cr_assert(strstr(error.text, "flood"));
    cr_assert_leq(dl_h2_stream_count(server.h2), 1);
}

Test(h2, peer_that_breaks_its_own_streams_is_counted_too)
{
    struct dl_buf bytes = {0};
    int status = DL_OK;
    unsigned opened = 0;
    dl_buf_text(&bytes, preface);
    raw_frame(&bytes, 0, 4, 0, 0);
    cr_assert_eq(receive(&bytes), DL_OK);
    /* A request, then a WINDOW_UPDATE of zero: a stream error that we must reset. */
    static const uint8_t block[] = {0x83, 0x86, 0x84, 0x41, 0x01, 'x'};
    for (; opened < 5000 && status == DL_OK; opened++) {
        uint32_t id = opened * 2 + 1;
        raw_frame(&bytes, sizeof(block), 1, 4, id);
        dl_buf_append(&bytes, block, sizeof(block));
        raw_frame(&bytes, 4, 8, 0, id);
        dl_buf_u32(&bytes, 0);
        status = receive(&bytes);
        if (dl_h2_is_done(server.h2)) break;
    }
    cr_assert_leq(opened, dl_h2_config_server.reset_burst + 5);
    cr_assert(dl_h2_is_done(server.h2));
    dl_buf_free(&bytes);
}

Test(h2, drain_admits_then_refuses_then_ends)
{
    struct dl_h2_stream *stream;
    dl_h2_request(client.h2, request, 4, NULL, &stream);
    pump();
    dl_h2_drain(server.h2);
    cr_assert_not(dl_h2_is_drained(server.h2));
    pump();
    cr_assert(dl_h2_is_drained(server.h2));
    dl_h2_close(server.h2);
    pump();
    cr_assert_not(dl_h2_is_done(server.h2), "a stream is open");
    cr_assert_eq(dl_h2_request(client.h2, request, 4, NULL, &stream), DL_ERR_UNAVAILABLE);
    dl_h2_respond(server.h2, server.stream, answer, 1, 1);
    pump();
    cr_assert(dl_h2_is_done(server.h2));
}

Test(h2, ping_tells_the_living)
{
    dl_h2_ping(server.h2);
    cr_assert_eq(dl_h2_pings_unanswered(server.h2), 1);
    pump();
    cr_assert_eq(dl_h2_pings_unanswered(server.h2), 0);
}
