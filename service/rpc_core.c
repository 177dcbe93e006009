/* How it works. A connection is a dl_h2 with a list of calls. A call is made
 * when a request's headers are in order, and freed when its stream closes; in
 * between it is in one of these states:
 *
 *   reading ──message(s)──> answering ──finish──> finished ──stream closed──> freed
 *      │                        │
 *      └──── over (deadline, limit, drain): `closed` was told, the status is on its way ────> freed
 *
 * Deadlines stand in a heap over all calls. Everything slower (handshakes, idle
 * connections, answers that nobody reads) is looked at once a second. */
#include "service/rpc_core_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define SCAN_MS 1000
#define DRAIN_WAIT_MS 1000 /* for the answer to the PING between the two GOAWAYs */

const struct dl_rpc_config dl_rpc_config_default = {
    .h2 = {.server = 1,
           .streams_max = 128,
           .header_bytes_max = 16 * 1024,
           .stream_window = 256 * 1024,
           .connection_window = 1024 * 1024,
           .reset_burst = 1000,
           .reset_rate = 200,
           .control_burst = 1000,
           .control_rate = 100},
    .connections_max = 1024,
    .message_bytes_max = 4 * 1024 * 1024,
    .connection_memory_bytes_max = 16 * 1024 * 1024,
    .memory_bytes_max = 256 * 1024 * 1024,
    .queue_messages_max = 1024,
    .queue_bytes_max = 4 * 1024 * 1024,
    .handshake_ms = 10 * 1000,
    .request_ms = 60 * 1000,
    .linger_ms = 60 * 1000,
    .keepalive_ms = 60 * 1000,
    .keepalive_timeout_ms = 20 * 1000,
    .idle_ms = 30 * 60 * 1000,
};

/* ---- deadline heap ---------------------------------------------------------------- */

static void heap_put(struct dl_rpc *rpc, uint32_t index, struct dl_rpc_call *call)
{
    rpc->heap[index] = call;
    call->heap_index = index;
}

static void heap_rise(struct dl_rpc *rpc, uint32_t index)
{
    struct dl_rpc_call *call = rpc->heap[index];
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (rpc->heap[parent]->deadline_ms <= call->deadline_ms) break;
        heap_put(rpc, index, rpc->heap[parent]);
        index = parent;
    }
    heap_put(rpc, index, call);
}

static void heap_sink(struct dl_rpc *rpc, uint32_t index)
{
    struct dl_rpc_call *call = rpc->heap[index];
    for (;;) {
        uint32_t child = index * 2 + 1;
        if (child >= rpc->heap_count) break;
        if (child + 1 < rpc->heap_count &&
            rpc->heap[child + 1]->deadline_ms < rpc->heap[child]->deadline_ms)
            child++;
        if (call->deadline_ms <= rpc->heap[child]->deadline_ms) break;
        heap_put(rpc, index, rpc->heap[child]);
        index = child;
    }
    heap_put(rpc, index, call);
}

int dl_rpc_deadline_add(struct dl_rpc *rpc, struct dl_rpc_call *call)
{
    if (rpc->heap_count == rpc->heap_capacity) {
        uint32_t capacity = rpc->heap_capacity ? rpc->heap_capacity * 2 : 64;
        void *heap = realloc(rpc->heap, capacity * sizeof(*rpc->heap));
        if (!heap) return DL_ERR_NOMEM;
        rpc->heap = heap;
        rpc->heap_capacity = capacity;
    }
    rpc->heap[rpc->heap_count] = call;
    heap_rise(rpc, rpc->heap_count++);
    return DL_OK;
}

void dl_rpc_deadline_remove(struct dl_rpc *rpc, struct dl_rpc_call *call)
{
    uint32_t index = call->heap_index;
    if (index == DL_RPC_NOT_IN_HEAP) return;
    call->heap_index = DL_RPC_NOT_IN_HEAP;
    struct dl_rpc_call *last = rpc->heap[--rpc->heap_count];
    if (last == call) return;
    heap_put(rpc, index, last);
    heap_rise(rpc, index);
    heap_sink(rpc, last->heap_index);
}

/* ---- public: the server --------------------------------------------------------------- */

int dl_rpc_new(const struct dl_rpc_config *config, struct dl_rpc **result)
{
    struct dl_rpc *rpc = calloc(1, sizeof(*rpc));
    if (!rpc) return DL_ERR_NOMEM;
    rpc->config = *config;
    rpc->config.h2.server = 1;
    rpc->drain_until_ms = INT64_MAX;
    if (config->calls_rate &&
        dl_rpc_rate_new(config->calls_rate, config->calls_burst, &rpc->rate) != DL_OK) {
        free(rpc);
        return DL_ERR_NOMEM;
    }
    *result = rpc;
    return DL_OK;
}

void dl_rpc_free(struct dl_rpc *rpc)
{
    if (!rpc) return;
    DL_CHECK(!rpc->connections);
    free(rpc->heap);
    dl_rpc_rate_free(rpc->rate);
    dl_buf_free(&rpc->scratch);
    free(rpc);
}

const struct dl_rpc_method *dl_rpc_find_method(const struct dl_rpc *rpc, struct dl_slice path)
{
    for (uint32_t i = 0; i < rpc->method_count; i++)
        if (dl_slice_equal(path, dl_slice_text(rpc->methods[i].path))) return &rpc->methods[i];
    return NULL;
}

int dl_rpc_register(struct dl_rpc *rpc, const struct dl_rpc_method *method)
{
    if (dl_rpc_find_method(rpc, dl_slice_text(method->path))) return DL_ERR_EXISTS;
    if (rpc->method_count == DL_RPC_METHODS_MAX) return DL_ERR_FULL;
    rpc->methods[rpc->method_count++] = *method;
    return DL_OK;
}

uint32_t dl_rpc_method_count(const struct dl_rpc *rpc)
{
    return rpc->method_count;
}

const struct dl_rpc_method *dl_rpc_method_at(const struct dl_rpc *rpc, uint32_t index)
{
    DL_CHECK(index < rpc->method_count);
    return &rpc->methods[index];
}

const struct dl_rpc_stats *dl_rpc_get_stats(const struct dl_rpc *rpc)
{
    return &rpc->stats;
}

int64_t dl_rpc_next_ms(const struct dl_rpc *rpc)
{
    int64_t next = rpc->connections ? rpc->scan_ms : INT64_MAX;
    if (rpc->heap_count > 0 && rpc->heap[0]->deadline_ms < next) next = rpc->heap[0]->deadline_ms;
    return next;
}

static void fire_deadlines(struct dl_rpc *rpc)
{
    while (rpc->heap_count > 0 && rpc->heap[0]->deadline_ms <= rpc->now_ms)
        dl_rpc_end_call(rpc->heap[0], DL_RPC_DEADLINE, DL_GRPC_DEADLINE_EXCEEDED,
                        "the deadline passed before the answer was ready");
}

static void drain_connection(struct dl_rpc_connection *connection)
{
    if (connection->drain != DRAIN_NONE) return;
    connection->drain = DRAIN_NOTICE;
    connection->drain_ms = connection->rpc->now_ms;
    dl_h2_drain(connection->h2);
    dl_rpc_wake(connection);
}

static void advance_drain(struct dl_rpc_connection *connection)
{
    if (connection->drain != DRAIN_NOTICE) return;
    if (!dl_h2_is_drained(connection->h2) &&
        connection->rpc->now_ms - connection->drain_ms < DRAIN_WAIT_MS)
        return;
    connection->drain = DRAIN_CLOSED;
    dl_h2_close(connection->h2);
    dl_rpc_wake(connection);
}

static void break_connection(struct dl_rpc_connection *connection, enum dl_h2_code code)
{
    if (connection->broken) return;
    connection->broken = 1;
    connection->rpc->stats.connection_errors++;
    dl_h2_terminate(connection->h2, code);
    dl_rpc_wake(connection);
}

static void scan_calls(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    const struct dl_rpc_config *config = &rpc->config;
    for (struct dl_rpc_call *call = connection->calls, *next; call; call = next) {
        next = call->next;
        if (call->finished) {
            if (rpc->now_ms - call->finished_ms > config->linger_ms) {
                dl_h2_reset(connection->h2, call->stream, DL_H2_CANCEL);
                dl_rpc_wake(connection);
            }
        } else if (rpc->now_ms >= rpc->drain_until_ms) {
            dl_rpc_end_call(call, DL_RPC_CANCELLED, DL_GRPC_UNAVAILABLE,
                            "the server is shutting down");
        } else if (!call->method->client_streaming && call->messages == 0 &&
                   rpc->now_ms - call->begun_ms > config->request_ms) {
            dl_rpc_end_callf(call, DL_GRPC_DEADLINE_EXCEEDED,
                             "the request was not complete within %lld s",
                             (long long)(config->request_ms / 1000));
        }
    }
}

static void scan_connection(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    const struct dl_rpc_config *config = &rpc->config;
    int64_t now_ms = rpc->now_ms;
    if (!dl_h2_is_established(connection->h2)) {
        if (now_ms - connection->opened_ms > config->handshake_ms)
            break_connection(connection, DL_H2_NO_ERROR);
        return;
    }
    scan_calls(connection);
    if (config->idle_ms && connection->call_count == 0 &&
        now_ms - connection->idle_since_ms > config->idle_ms)
        drain_connection(connection);
    advance_drain(connection);
    if (!config->keepalive_ms) return;
    if (dl_h2_pings_unanswered(connection->h2) > 0) {
        if (now_ms - connection->ping_ms > config->keepalive_timeout_ms &&
            connection->received_ms < connection->ping_ms)
            break_connection(connection, DL_H2_NO_ERROR);
    } else if (now_ms - connection->received_ms > config->keepalive_ms) {
        connection->ping_ms = now_ms;
        dl_h2_ping(connection->h2);
        dl_rpc_wake(connection);
    }
}

void dl_rpc_tick(struct dl_rpc *rpc, int64_t now_ms)
{
    rpc->now_ms = now_ms;
    fire_deadlines(rpc);
    if (now_ms < rpc->scan_ms && now_ms < rpc->drain_until_ms) return;
    rpc->scan_ms = now_ms + SCAN_MS;
    for (struct dl_rpc_connection *c = rpc->connections; c; c = c->next) scan_connection(c);
}

void dl_rpc_drain(struct dl_rpc *rpc, int64_t grace_ms, int64_t now_ms)
{
    rpc->now_ms = now_ms;
    if (!rpc->draining || now_ms + grace_ms < rpc->drain_until_ms)
        rpc->drain_until_ms = now_ms + grace_ms;
    rpc->draining = 1;
    for (struct dl_rpc_connection *c = rpc->connections; c; c = c->next) drain_connection(c);
}

int dl_rpc_is_draining(const struct dl_rpc *rpc)
{
    return rpc->draining;
}

/* ---- public: connections --------------------------------------------------------------- */

int dl_rpc_connection_new(struct dl_rpc *rpc, void *io, const char *peer, int64_t now_ms,
                          struct dl_rpc_connection **result)
{
    rpc->now_ms = now_ms;
    if (rpc->draining || rpc->stats.connections >= rpc->config.connections_max) {
        rpc->stats.connections_refused++;
        return DL_ERR_FULL;
    }
    struct dl_rpc_connection *connection = calloc(1, sizeof(*connection));
    if (!connection) return DL_ERR_NOMEM;
    connection->rpc = rpc;
    connection->io = io;
    connection->opened_ms = connection->received_ms = connection->idle_since_ms = now_ms;
    connection->client = dl_rpc_rate_client(peer);
    snprintf(connection->peer, sizeof(connection->peer), "%s", peer);
    int status = dl_h2_new(&rpc->config.h2, &dl_rpc_h2_events, connection, now_ms, &connection->h2);
    if (status != DL_OK) {
        free(connection);
        return status;
    }
    if (!rpc->connections) rpc->scan_ms = now_ms + SCAN_MS;
    connection->next = rpc->connections;
    if (connection->next) connection->next->previous = connection;
    rpc->connections = connection;
    rpc->stats.connections++;
    rpc->stats.connections_total++;
    *result = connection;
    return DL_OK;
}

void dl_rpc_connection_free(struct dl_rpc_connection *connection)
{
    if (!connection) return;
    struct dl_rpc *rpc = connection->rpc;
    connection->receiving = 1; /* no more wake-ups */
    dl_h2_free(connection->h2);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        rpc->connections = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    rpc->stats.connections--;
    free(connection);
}

int dl_rpc_connection_receive(struct dl_rpc_connection *connection, struct dl_slice bytes,
                              int64_t now_ms, struct dl_error *error)
{
    struct dl_rpc *rpc = connection->rpc;
    rpc->now_ms = now_ms;
    connection->received_ms = now_ms;
    connection->receiving = 1;
    int status = dl_h2_receive(connection->h2, bytes, now_ms, error);
    connection->receiving = 0;
    advance_drain(connection);
    if (status != DL_OK && !connection->broken) {
        connection->broken = 1;
        rpc->stats.connection_errors++;
    }
    return status;
}

int dl_rpc_connection_take(struct dl_rpc_connection *connection, struct dl_slice *bytes)
{
    connection->receiving = 1; /* closed calls may make handlers act on this connection */
    int status = dl_h2_take(connection->h2, bytes);
    connection->receiving = 0;
    return status;
}

int dl_rpc_connection_is_done(const struct dl_rpc_connection *connection)
{
    return connection->broken || dl_h2_is_done(connection->h2);
}

void *dl_rpc_connection_io(const struct dl_rpc_connection *connection)
{
    return connection->io;
}

const char *dl_rpc_connection_peer(const struct dl_rpc_connection *connection)
{
    return connection->peer;
}
