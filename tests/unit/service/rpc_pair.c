#include "tests/unit/service/rpc_pair.h"

#include <stdio.h>

static void on_wake(void *io, struct dl_rpc_connection *connection)
{
    (void)connection;
    ((struct pair *)io)->woken++;
}

static void on_begin(void *context, struct dl_rpc_call *call)
{
    struct pair_seen *seen = context;
    seen->begun++;
    seen->call = call;
}

static void on_message(void *context, struct dl_rpc_call *call, struct dl_slice request)
{
    struct pair_seen *seen = context;
    seen->messages++;
    seen->bytes += request.size;
    if (seen->hold) dl_rpc_call_hold(call);
    if (!seen->answer) return;
    dl_rpc_call_send(call, request);
    if (!dl_rpc_call_method(call)->client_streaming) dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static void on_half_closed(void *context, struct dl_rpc_call *call)
{
    struct pair_seen *seen = context;
    seen->half_closed++;
    if (seen->answer) dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static void on_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct pair_seen *seen = context;
    seen->closed++;
    seen->end = end;
    if (seen->call == call) seen->call = NULL;
}

/* "text" becomes "COUNT lost, text". */
static struct dl_h2_block *on_dropped(void *context, struct dl_rpc_call *call,
                                      const struct dl_h2_block *message, uint64_t count)
{
    char text[64];
    (void)context;
    (void)call;
    int size = snprintf(text, sizeof(text), "%u lost, %.*s", (unsigned)count,
                        (int)(message->size - DL_GRPC_PREFIX_BYTES),
                        (const char *)message->data + DL_GRPC_PREFIX_BYTES);
    return dl_rpc_message_new(dl_slice_of(text, (size_t)size));
}

void pair_init(struct pair *pair)
{
    memset(pair, 0, sizeof(*pair));
    pair->now_ms = 1000;
    pair->config = dl_rpc_config_default;
    pair->config.wake = on_wake;
    pair->seen.answer = 1;
}

void pair_open(struct pair *pair)
{
    static const struct {
        const char *path;
        int client, server;
        uint32_t roles;
    } kinds[] = {
        {"/t.T/Unary", 0, 0, DL_RPC_READ},
        {"/t.T/Stream", 0, 1, DL_RPC_SUBSCRIBE},
        {"/t.T/Gather", 1, 0, DL_RPC_INGEST},
        {"/t.T/Both", 1, 1, 0},
    };
    struct dl_rpc_client_config client = {.authority = "here:1", .token = "secret"};
    cr_assert_eq(dl_rpc_new(&pair->config, &pair->rpc), DL_OK);
    for (size_t i = 0; i < 4; i++) {
        struct dl_rpc_method method = {.path = kinds[i].path,
                                       .client_streaming = kinds[i].client,
                                       .server_streaming = kinds[i].server,
                                       .roles = kinds[i].roles,
                                       .begin = on_begin,
                                       .message = on_message,
                                       .half_closed = on_half_closed,
                                       .closed = on_closed,
                                       .dropped = kinds[i].server ? on_dropped : NULL,
                                       .context = &pair->seen};
        cr_assert_eq(dl_rpc_register(pair->rpc, &method), DL_OK);
    }
    cr_assert_eq(dl_rpc_connection_new(pair->rpc, pair, "test", pair->now_ms, &pair->connection),
                 DL_OK);
    pair->server_open = 1;
    cr_assert_eq(dl_rpc_client_new(&client, pair->now_ms, &pair->client), DL_OK);
}

static int to_server(struct pair *pair)
{
    struct dl_slice bytes;
    cr_assert_eq(dl_rpc_client_take(pair->client, &bytes), DL_OK);
    if (!pair->server_open) return 0;
    int any = bytes.size > 0;
    while (bytes.size > 0) {
        size_t step = pair->chunk && pair->chunk < bytes.size ? pair->chunk : bytes.size;
        dl_rpc_connection_receive(pair->connection, dl_slice_of(bytes.data, step), pair->now_ms,
                                  NULL);
        bytes.data += step;
        bytes.size -= step;
    }
    return any;
}

static int to_client(struct pair *pair)
{
    struct dl_slice bytes;
    if (!pair->server_open) return 0;
    cr_assert_eq(dl_rpc_connection_take(pair->connection, &bytes), DL_OK);
    if (bytes.size) dl_rpc_client_receive(pair->client, bytes, pair->now_ms, NULL);
    int any = bytes.size > 0;
    if (!any && dl_rpc_connection_is_done(pair->connection)) {
        dl_rpc_connection_free(pair->connection);
        pair->connection = NULL;
        pair->server_open = 0;
    }
    return any;
}

void pair_pump(struct pair *pair)
{
    for (;;) {
        int any = to_server(pair);
        any |= to_client(pair);
        if (!any) break;
    }
}

void pair_pass(struct pair *pair, int64_t ms)
{
    int64_t until_ms = pair->now_ms + ms;
    while (pair->now_ms < until_ms) {
        pair->now_ms += until_ms - pair->now_ms < 1000 ? until_ms - pair->now_ms : 1000;
        dl_rpc_tick(pair->rpc, pair->now_ms);
        dl_rpc_client_tick(pair->client, pair->now_ms);
        pair_pump(pair);
    }
}

void pair_close(struct pair *pair)
{
    dl_rpc_connection_free(pair->connection);
    dl_rpc_client_free(pair->client);
    cr_assert_eq(dl_rpc_get_stats(pair->rpc)->calls, 0);
    cr_assert_eq(pair->seen.begun, pair->seen.closed, "every call is closed exactly once");
    dl_rpc_free(pair->rpc);
}

static void on_client_message(void *context, struct dl_rpc_client_call *call,
                              struct dl_slice message)
{
    struct pair_heard *heard = context;
    size_t size = message.size < sizeof(heard->last) - 1 ? message.size : sizeof(heard->last) - 1;
    (void)call;
    if (heard->messages++ == 0)
        snprintf(heard->first, sizeof(heard->first), "%.*s", (int)message.size,
                 (const char *)message.data);
    heard->last_size = message.size;
    if (size) memcpy(heard->last, message.data, size);
    heard->last[size] = 0;
}

static void on_client_finished(void *context, struct dl_rpc_client_call *call, int status,
                               const char *text)
{
    struct pair_heard *heard = context;
    (void)call;
    heard->finished++;
    heard->status = status;
    snprintf(heard->text, sizeof(heard->text), "%s", text);
}

const struct dl_rpc_client_events pair_events = {on_client_message, on_client_finished};

struct dl_rpc_client_call *pair_call(struct pair *pair, const char *path, const char *message,
                                     int64_t timeout_ms, struct pair_heard *heard)
{
    struct dl_rpc_client_call *call;
    memset(heard, 0, sizeof(*heard));
    heard->status = -1;
    cr_assert_eq(dl_rpc_client_start(pair->client, path, timeout_ms, &pair_events, heard, &call),
                 DL_OK);
    if (message) {
        cr_assert_eq(dl_rpc_client_send(call, dl_slice_text(message)), DL_OK);
        cr_assert_eq(dl_rpc_client_end(call), DL_OK);
    }
    return call;
}
