/* The gRPC server's core as a hostile client sees it. The input is a list of
 * operations, so that most of what is tried gets past the frame headers:
 *
 *   0  raw bytes: length, bytes
 *   1  a frame: type, flags, stream, length, payload
 *   2  a request's HEADERS: stream, method, flags
 *   3  a message: stream, flags, length, bytes
 *   4  time passes: 2 ^ byte ms
 *   5  the server's handlers do what they have put off
 *   6  the server drains
 *   7  take only so many pieces of output, then go on
 *
 * After each the server's output is read, and its bounds are checked. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service/rpc_core.h"

#define CALLS_MAX 256
#define OUTPUT_BYTES_MAX (8u << 20)

static struct dl_rpc_call *open_calls[CALLS_MAX];
static int64_t begun, closed;

static int index_of(const struct dl_rpc_call *call)
{
    for (int i = 0; i < CALLS_MAX; i++)
        if (open_calls[i] == call) return i;
    return -1;
}

static void on_begin(void *context, struct dl_rpc_call *call)
{
    int free_slot = index_of(NULL);
    (void)context;
    DL_CHECK(index_of(call) < 0);
    begun++;
    if (free_slot >= 0) open_calls[free_slot] = call;
}

static void on_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    int slot = index_of(call);
    (void)context;
    (void)end;
    closed++;
    if (slot >= 0) open_calls[slot] = NULL;
}

static void on_echo(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    dl_rpc_call_send(call, request);
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static void on_later(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    (void)call;
    (void)request;
}

static void on_stream(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    for (int i = 0; i < 20; i++) dl_rpc_call_send(call, request);
}

static void on_gather(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    if (request.size % 2) dl_rpc_call_hold(call);
}

static void on_gather_end(void *context, struct dl_rpc_call *call)
{
    (void)context;
    dl_rpc_call_send(call, dl_slice_text("done"));
    dl_rpc_call_finish(call, DL_GRPC_OK, "fine");
}

static struct dl_h2_block *on_dropped(void *context, struct dl_rpc_call *call,
                                      const struct dl_h2_block *message, uint64_t count)
{
    (void)context;
    (void)call;
    (void)message;
    return dl_rpc_message_new(dl_slice_of(&count, sizeof(count)));
}

static const struct dl_rpc_method methods[] = {
    {.path = "/f.F/Echo", .begin = on_begin, .message = on_echo, .closed = on_closed},
    {.path = "/f.F/Later", .begin = on_begin, .message = on_later, .closed = on_closed},
    {.path = "/f.F/Stream",
     .server_streaming = 1,
     .begin = on_begin,
     .message = on_stream,
     .closed = on_closed,
     .dropped = on_dropped},
    {.path = "/f.F/Gather",
     .client_streaming = 1,
     .begin = on_begin,
     .message = on_gather,
     .half_closed = on_gather_end,
     .closed = on_closed},
};
#define METHODS (sizeof(methods) / sizeof(methods[0]))

struct run {
    struct dl_rpc *rpc;
    struct dl_rpc_connection *connection;
    int64_t now_ms;
    size_t output_bytes;
    int over;
};

static void take(struct run *run, int pieces)
{
    struct dl_slice bytes;
    while (pieces-- > 0) {
        if (dl_rpc_connection_take(run->connection, &bytes) != DL_OK) {
            run->over = 1;
            return;
        }
        if (bytes.size == 0) break;
        run->output_bytes += bytes.size;
        DL_CHECK(run->output_bytes < OUTPUT_BYTES_MAX);
    }
    if (dl_rpc_connection_is_done(run->connection)) run->over = 1;
}

static void give(struct run *run, const void *data, size_t size)
{
    struct dl_error error;
    if (run->over) return;
    int status =
        dl_rpc_connection_receive(run->connection, dl_slice_of(data, size), run->now_ms, &error);
    if (status != DL_OK) run->over = 1;
}

static void frame(struct run *run, uint8_t type, uint8_t flags, uint32_t stream, const void *data,
                  size_t size)
{
    uint8_t head[9] = {0, (uint8_t)(size >> 8),    (uint8_t)size,          type,           flags,
                       0, (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    give(run, head, sizeof(head));
    give(run, data, size);
}

/* A literal header field without indexing. */
static void header(struct dl_buf *block, const char *name, const char *value)
{
    dl_buf_u8(block, 0);
    dl_buf_u8(block, (uint8_t)strlen(name));
    dl_buf_text(block, name);
    dl_buf_u8(block, (uint8_t)strlen(value));
    dl_buf_text(block, value);
}

static void request(struct run *run, uint32_t stream, uint8_t method, uint8_t flags)
{
    static const char *const timeouts[] = {"1n", "5m", "1S", "99999999H", "x"};
    static const char *const encodings[] = {"gzip", "deflate", "identity", "snappy"};
    struct dl_buf block = {0};
    header(&block, ":method", flags & 0x80 ? "GET" : "POST");
    header(&block, ":scheme", "http");
    header(&block, ":path", method < METHODS ? methods[method].path : "/f.F/Nothing");
    header(&block, ":authority", "f");
    header(&block, "content-type", flags & 0x40 ? "text/html" : "application/grpc");
    if (flags & 0x02) header(&block, "grpc-timeout", timeouts[method / 8 % 5]);
    if (flags & 0x08) header(&block, "grpc-encoding", encodings[method / 64 % 4]);
    if (flags & 0x10) header(&block, "grpc-accept-encoding", "gzip,identity");
    frame(run, 1, 0x04 | (flags & 1), stream, block.data, block.size);
    dl_buf_free(&block);
}

static void message(struct run *run, uint32_t stream, uint8_t flags, struct dl_slice bytes)
{
    struct dl_buf body = {0};
    uint8_t prefix[DL_GRPC_PREFIX_BYTES];
    uint32_t size = (uint32_t)bytes.size + (flags & 2 ? 100 : 0);
    dl_grpc_prefix(prefix, flags & 4, size);
    dl_buf_append(&body, prefix, sizeof(prefix));
    dl_buf_append(&body, bytes.data, bytes.size);
    frame(run, 0, flags & 1, stream, body.data, body.size);
    dl_buf_free(&body);
}

static void catch_up(void)
{
    for (int i = 0; i < CALLS_MAX; i++) {
        struct dl_rpc_call *call = open_calls[i];
        if (!call) continue;
        const struct dl_rpc_method *method = dl_rpc_call_method(call);
        if (method->client_streaming)
            dl_rpc_call_proceed(call);
        else if (i % 2)
            dl_rpc_call_finish(call, DL_GRPC_ABORTED, "100 % done\n");
        else if (dl_rpc_call_send(call, dl_slice_text("late")) == DL_OK)
            dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
    }
}

static void operate(struct run *run, struct dl_reader *reader)
{
    uint8_t operation = dl_read_u8(reader);
    uint8_t a, b, c, size;
    struct dl_slice bytes;
    switch (operation % 8) {
    case 0:
        size = dl_read_u8(reader);
        bytes =
            dl_read_slice(reader, size < dl_reader_left(reader) ? size : dl_reader_left(reader));
        give(run, bytes.data, bytes.size);
        break;
    case 1:
    case 3:
        a = operation % 8 == 1 ? dl_read_u8(reader) : 0;
        b = dl_read_u8(reader);
        c = dl_read_u8(reader);
        size = dl_read_u8(reader);
        bytes =
            dl_read_slice(reader, size < dl_reader_left(reader) ? size : dl_reader_left(reader));
        if (operation % 8 == 1)
            frame(run, a % 12, b, c, bytes.data, bytes.size);
        else
            message(run, c, b, bytes);
        break;
    case 2:
        a = dl_read_u8(reader);
        b = dl_read_u8(reader);
        c = dl_read_u8(reader);
        request(run, a, b, c);
        break;
    case 4:
        run->now_ms += (int64_t)1 << dl_read_u8(reader) % 20;
        dl_rpc_tick(run->rpc, run->now_ms);
        break;
    case 5:
        catch_up();
        break;
    case 6:
        dl_rpc_drain(run->rpc, dl_read_u8(reader) * 100, run->now_ms);
        break;
    case 7:
        take(run, dl_read_u8(reader) % 4);
        return;
    }
    if (!run->over && operation < 128) take(run, INT32_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    struct dl_rpc_config config = dl_rpc_config_default;
    struct run run = {.now_ms = 1};
    struct dl_reader reader = dl_reader_of(dl_slice_of(data, size));
    uint8_t how = dl_read_u8(&reader);
    config.message_bytes_max = 1024;
    config.connection_memory_bytes_max = 8192;
    config.memory_bytes_max = 16384;
    config.queue_messages_max = 8;
    config.queue_bytes_max = 4096;
    config.h2.streams_max = 16;
    config.h2.header_bytes_max = 1024;
    config.h2.reset_burst = 20;
    config.h2.control_burst = 20;
    if (how & 2) config.calls_rate = config.calls_burst = 5;
    begun = closed = 0;
    memset(open_calls, 0, sizeof(open_calls));
    if (dl_rpc_new(&config, &run.rpc) != DL_OK) return 0;
    for (size_t i = 0; i < METHODS; i++) dl_rpc_register(run.rpc, &methods[i]);
    if (dl_rpc_connection_new(run.rpc, NULL, "fuzz", run.now_ms, &run.connection) == DL_OK) {
        if (how & 1) {
            give(&run, preface, sizeof(preface) - 1);
            frame(&run, 4, 0, 0, "", 0);
        }
        while (!reader.failed && dl_reader_left(&reader) > 0 && !run.over) {
            operate(&run, &reader);
            const struct dl_rpc_stats *stats = dl_rpc_get_stats(run.rpc);
            DL_CHECK(stats->calls <= config.h2.streams_max + 1);
        }
        dl_rpc_connection_free(run.connection);
    }
    DL_CHECK(begun == closed);
    DL_CHECK(dl_rpc_get_stats(run.rpc)->calls == 0);
    dl_rpc_free(run.rpc);
    return 0;
}
