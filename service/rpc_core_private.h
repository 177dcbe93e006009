/* What the files of the gRPC server's core share: rpc_core.c (server,
 * connections, time), rpc_request.c (what the client says), rpc_call.c (what we
 * answer). For nobody else. */
#ifndef DL_SERVICE_RPC_CORE_PRIVATE_H
#define DL_SERVICE_RPC_CORE_PRIVATE_H

#include "service/rpc_core.h"
#include "service/rpc_rate.h"

#define DL_RPC_METHODS_MAX 64
#define DL_RPC_PEER_BYTES_MAX 64

struct dl_rpc {
    struct dl_rpc_config config;
    struct dl_rpc_method methods[DL_RPC_METHODS_MAX];
    uint32_t method_count;
    struct dl_rpc_connection *connections;
    struct dl_rpc_call **heap; /* by deadline_ms, smallest first */
    uint32_t heap_count, heap_capacity;
    size_t memory_bytes;
    int64_t now_ms; /* as of the last entry from outside */
    int64_t scan_ms;
    int draining;
    int64_t drain_until_ms;
    struct dl_rpc_stats stats;
    struct dl_rpc_rate *rate; /* NULL: no limit */
    struct dl_buf scratch;    /* compression, status text */
};

enum drain_step { DRAIN_NONE, DRAIN_NOTICE, DRAIN_CLOSED };

struct dl_rpc_connection {
    struct dl_rpc *rpc;
    struct dl_h2 *h2;
    void *io;
    struct dl_rpc_connection *previous, *next;
    struct dl_rpc_call *calls;
    uint32_t call_count;
    size_t memory_bytes;
    int64_t opened_ms, received_ms, idle_since_ms, ping_ms;
    int64_t drain_ms;
    enum drain_step drain;
    int receiving; /* within dl_h2_receive: the caller takes what there is */
    int broken;    /* closed as soon as what there is was taken */
    int denied;    /* said so */
    uint64_t client;
    char peer[DL_RPC_PEER_BYTES_MAX];
};

#define DL_RPC_NOT_IN_HEAP UINT32_MAX

struct dl_rpc_call {
    struct dl_rpc_connection *connection;
    const struct dl_rpc_method *method;
    struct dl_h2_stream *stream;
    struct dl_rpc_call *previous, *next;
    void *user;
    struct dl_grpc_reader reader;
    struct dl_buf
        backlog; /* body bytes that came while held; never more than the stream's window */
    size_t backlog_used;
    size_t memory_bytes; /* as counted in the connection and in rpc */
    int64_t deadline_ms; /* INT64_MAX: none */
    uint32_t heap_index;
    int64_t begun_ms, finished_ms;
    uint32_t messages; /* received */
    uint64_t dropped, dropped_told;
    unsigned int gzip : 1, headers_sent : 1, finished : 1, told : 1, held : 1, half_closed : 1,
        half_closed_told : 1, pumping : 1;
};

static inline void dl_rpc_wake(struct dl_rpc_connection *connection)
{
    struct dl_rpc *rpc = connection->rpc;
    if (!connection->receiving && rpc->config.wake) rpc->config.wake(connection->io, connection);
}

/* rpc_core.c */
int dl_rpc_deadline_add(struct dl_rpc *rpc, struct dl_rpc_call *call);
void dl_rpc_deadline_remove(struct dl_rpc *rpc, struct dl_rpc_call *call);
/* NULL: there is none. */
const struct dl_rpc_method *dl_rpc_find_method(const struct dl_rpc *rpc, struct dl_slice path);

/* rpc_request.c */
extern const struct dl_h2_events dl_rpc_h2_events;

/* rpc_call.c */
void dl_rpc_count_end(struct dl_rpc *rpc, const struct dl_rpc_method *method,
                      enum dl_grpc_status status);
/* A plain HTTP answer to what is not gRPC at all. */
void dl_rpc_answer_http(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                        const char *http_status);
/* Refuses a request that did not become a call. retry_ms: when to try again, 0: not said. */
void dl_rpc_refuse(struct dl_rpc_connection *connection, struct dl_h2_stream *stream,
                   const struct dl_rpc_method *method, enum dl_grpc_status status,
                   const char *message, int64_t retry_ms);
/* The handler hears of the end, once. */
void dl_rpc_tell_closed(struct dl_rpc_call *call, enum dl_rpc_end end);
/* Ends a call that its handler did not end. */
void dl_rpc_end_call(struct dl_rpc_call *call, enum dl_rpc_end end, enum dl_grpc_status status,
                     const char *message);
/* The same, cancelled, with a formatted message. */
void dl_rpc_end_callf(struct dl_rpc_call *call, enum dl_grpc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
