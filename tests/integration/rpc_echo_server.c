/* A gRPC server with a few methods on raw bytes, for the transport tests with
 * stock clients and for the benchmark. Prints its address, then serves until
 * SIGTERM (graceful) or the end of its standard input.
 *
 *   rpc-echo [--listen HOST:PORT] [--tls CERT KEY [CA]] [--queue MESSAGES] [--idle MS] */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "service/rpc_server.h"

static uv_loop_t loop;
static struct dl_rpc_server *server;
static unsigned cancelled, past_deadline;

static void text_of(struct dl_slice bytes, char text[256])
{
    size_t size = bytes.size < 255 ? bytes.size : 255;
    memcpy(text, bytes.data, size);
    text[size] = 0;
}

/* ---- Unary: the same bytes ---- */

static void on_unary(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    dl_rpc_call_send(call, request);
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

/* ---- Sleep: "MS" -> "slept" after so long ---- */

struct sleeper {
    uv_timer_t timer;
    struct dl_rpc_call *call;
};

static void on_sleeper_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_sleep_over(uv_timer_t *timer)
{
    struct sleeper *sleeper = (struct sleeper *)timer;
    dl_rpc_call_send(sleeper->call, dl_slice_text("slept"));
    dl_rpc_call_finish(sleeper->call, DL_GRPC_OK, NULL);
}

static void on_sleep(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    char text[256];
    (void)context;
    text_of(request, text);
    struct sleeper *sleeper = calloc(1, sizeof(*sleeper));
    uv_timer_init(&loop, &sleeper->timer);
    sleeper->call = call;
    dl_rpc_call_set_user(call, sleeper);
    uv_timer_start(&sleeper->timer, on_sleep_over, strtoull(text, NULL, 10), 0);
}

static void on_sleep_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct sleeper *sleeper = dl_rpc_call_get_user(call);
    (void)context;
    if (end == DL_RPC_CANCELLED) cancelled++;
    if (end == DL_RPC_DEADLINE) past_deadline++;
    if (sleeper) uv_close((uv_handle_t *)&sleeper->timer, on_sleeper_closed);
}

/* ---- Count: "COUNT SIZE" -> so many messages; the last says how many were dropped ---- */

static void on_count(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    char text[256];
    unsigned count = 0, size = 0;
    (void)context;
    text_of(request, text);
    if (sscanf(text, "%u %u", &count, &size) != 2) {
        dl_rpc_call_finish(call, DL_GRPC_INVALID_ARGUMENT, "wanted COUNT SIZE");
        return;
    }
    dl_rpc_call_accept(call);
    char *body = malloc(size + 32);
    for (unsigned i = 0; i < count; i++) {
        int head = snprintf(body, 32, "%u ", i);
        memset(body + head, 'x', size);
        dl_rpc_call_send(call, dl_slice_of(body, (size_t)head + size));
    }
    int head = snprintf(body, 32, "dropped %" PRIu64, dl_rpc_call_dropped(call));
    dl_rpc_call_send(call, dl_slice_of(body, (size_t)head));
    free(body);
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

/* ---- Collect: any messages -> "COUNT BYTES"; each is held for a turn of the loop ---- */

struct collector {
    uv_timer_t timer;
    struct dl_rpc_call *call;
    uint64_t count, bytes;
};

static void on_collect_begin(void *context, struct dl_rpc_call *call)
{
    struct collector *collector = calloc(1, sizeof(*collector));
    (void)context;
    uv_timer_init(&loop, &collector->timer);
    collector->call = call;
    dl_rpc_call_set_user(call, collector);
}

static void on_collect_turn(uv_timer_t *timer)
{
    dl_rpc_call_proceed(((struct collector *)timer)->call);
}

static void on_collect(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    struct collector *collector = dl_rpc_call_get_user(call);
    (void)context;
    collector->count++;
    collector->bytes += request.size;
    dl_rpc_call_hold(call);
    uv_timer_start(&collector->timer, on_collect_turn, 0, 0);
}

static void on_collect_end(void *context, struct dl_rpc_call *call)
{
    struct collector *collector = dl_rpc_call_get_user(call);
    char text[64];
    (void)context;
    snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, collector->count, collector->bytes);
    dl_rpc_call_send(call, dl_slice_text(text));
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

/* ---- Chat: each message comes back ---- */

static void on_chat(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    (void)context;
    dl_rpc_call_send(call, request);
}

static void on_chat_end(void *context, struct dl_rpc_call *call)
{
    (void)context;
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

/* ---- Fail: "CODE TEXT" -> that status ---- */

static void on_fail(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    char text[256], *rest;
    (void)context;
    text_of(request, text);
    long code = strtol(text, &rest, 10);
    dl_rpc_call_finish(call, (enum dl_grpc_status)code, *rest ? rest + 1 : NULL);
}

/* ---- Tell: what happened so far ---- */

static void on_tell(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    const struct dl_rpc_stats *stats = dl_rpc_get_stats(dl_rpc_server_rpc(server));
    char text[256];
    (void)context;
    (void)request;
    snprintf(text, sizeof(text), "cancelled %u deadline %u connections %u calls %u errors %" PRIu64,
             cancelled, past_deadline, stats->connections, stats->calls, stats->connection_errors);
    dl_rpc_call_send(call, dl_slice_text(text));
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static const struct dl_rpc_method methods[] = {
    {.path = "/echo.Echo/Unary", .message = on_unary},
    {.path = "/echo.Echo/Sleep", .message = on_sleep, .closed = on_sleep_closed},
    {.path = "/echo.Echo/Count", .message = on_count, .server_streaming = 1},
    {.path = "/echo.Echo/Collect",
     .begin = on_collect_begin,
     .message = on_collect,
     .half_closed = on_collect_end,
     .closed = on_sleep_closed,
     .client_streaming = 1},
    {.path = "/echo.Echo/Chat",
     .message = on_chat,
     .half_closed = on_chat_end,
     .client_streaming = 1,
     .server_streaming = 1},
    {.path = "/echo.Echo/Fail", .message = on_fail},
    {.path = "/echo.Echo/Tell", .message = on_tell},
};

static uv_signal_t terminate;
static uv_pipe_t input;

static void on_server_closed(void *context)
{
    (void)context;
    uv_close((uv_handle_t *)&terminate, NULL);
    if (!uv_is_closing((uv_handle_t *)&input)) uv_close((uv_handle_t *)&input, NULL);
}

static void on_drained(void *context)
{
    (void)context;
    dl_rpc_server_close(server, on_server_closed, NULL);
}

static void on_terminate(uv_signal_t *signal, int number)
{
    (void)signal;
    (void)number;
    dl_rpc_server_drain(server, 5000, on_drained, NULL);
}

static void on_input_allocate(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    static char bytes[64];
    (void)handle;
    (void)size;
    *buffer = uv_buf_init(bytes, sizeof(bytes));
}

static void on_input(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    (void)buffer;
    if (size >= 0) return;
    uv_close((uv_handle_t *)stream, NULL);
    dl_rpc_server_close(server, on_server_closed, NULL);
}

int main(int argc, char **argv)
{
    struct dl_rpc_server_config config = {.listen = "127.0.0.1:0", .rpc = dl_rpc_config_default};
    struct dl_error error;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--listen") == 0 && i + 1 < argc) {
            config.listen = argv[++i];
        } else if (strcmp(argv[i], "--tls") == 0 && i + 2 < argc) {
            config.tls_cert = argv[++i];
            config.tls_key = argv[++i];
            if (i + 1 < argc && argv[i + 1][0] != '-') config.tls_ca = argv[++i];
        } else if (strcmp(argv[i], "--queue") == 0 && i + 1 < argc) {
            config.rpc.queue_messages_max = (uint32_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--idle") == 0 && i + 1 < argc) {
            config.rpc.idle_ms = atoi(argv[++i]);
        } else {
            fprintf(stderr, "rpc-echo: unknown argument %s\n", argv[i]);
            return 2;
        }
    }
    config.rpc.connections_max = 20000;
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    if (dl_rpc_server_open(&loop, &config, &server, &error) != DL_OK) {
        fprintf(stderr, "rpc-echo: %s\n", error.text);
        uv_run(&loop, UV_RUN_DEFAULT);
        uv_loop_close(&loop);
        return 1;
    }
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        dl_rpc_register(dl_rpc_server_rpc(server), &methods[i]);
    uv_signal_init(&loop, &terminate);
    uv_signal_start(&terminate, on_terminate, SIGTERM);
    uv_pipe_init(&loop, &input, 0);
    if (uv_pipe_open(&input, 0) == 0)
        uv_read_start((uv_stream_t *)&input, on_input_allocate, on_input);
    printf("%s\n", dl_rpc_server_address(server));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    return 0;
}
