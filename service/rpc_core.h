/* A gRPC server without I/O: methods, connections, calls. The bytes come and
 * go through rpc_server.c (sockets) or a test (memory); time is an argument,
 * in milliseconds of the monotonic clock.
 *
 * Methods are registered by path. For each call the method's handler hears
 *
 *   begin         the headers are accepted (may be NULL)
 *   message       a request message; once for methods that take one
 *   half_closed   the client has sent its last one (only if client_streaming)
 *   closed        exactly once, last: finished and sent, or cancelled (client,
 *                 deadline, connection). The call must not be used after it.
 *
 * and answers, at once or later, with dl_rpc_call_send and dl_rpc_call_finish.
 * After finish only `closed` follows. All of it on one thread; every
 * dl_rpc_call function may be called from within a handler.
 *
 * Bounds: connections, streams of a connection, header and message sizes, the
 * bytes of unfinished requests (a connection, all together), the queue of each
 * answering stream, calls a second of a client, idle and stalled connections. What is
 * beyond a bound is refused with RESOURCE_EXHAUSTED or closed, and counted. */
#ifndef DL_SERVICE_RPC_CORE_H
#define DL_SERVICE_RPC_CORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "service/grpc.h"
#include "service/h2.h"

/* What a caller may do. */
enum dl_rpc_role {
    DL_RPC_READ = 1,
    DL_RPC_SUBSCRIBE = 2,
    DL_RPC_INGEST = 4,
    DL_RPC_ADMIN = 8, /* forget, renew the reference */
    DL_RPC_ALL = 15
};

struct dl_rpc;
struct dl_rpc_connection;
struct dl_rpc_call;

enum dl_rpc_end {
    DL_RPC_FINISHED,  /* the handler's own finish; its answer was sent */
    DL_RPC_CANCELLED, /* by the client, or the connection is gone, or a limit was broken */
    DL_RPC_DEADLINE   /* grpc-timeout ran out */
};

struct dl_rpc_method {
    const char *path; /* "/package.Service/Method" */
    int client_streaming, server_streaming;
    uint32_t roles; /* dl_rpc_role: the caller needs one of them; 0: open to all */
    void (*begin)(void *context, struct dl_rpc_call *call);
    void (*message)(void *context, struct dl_rpc_call *call, struct dl_slice request);
    void (*half_closed)(void *context, struct dl_rpc_call *call);
    void (*closed)(void *context, struct dl_rpc_call *call, enum dl_rpc_end end);
    /* Server-streaming, may be NULL: `count` messages were dropped between the
     * last one that was sent and `message`, which is about to be. Returns a
     * message (as dl_rpc_message_new) that says so, to be sent in its place, or
     * NULL for no memory; then the count goes to the next one. */
    struct dl_h2_block *(*dropped)(void *context, struct dl_rpc_call *call,
                                   const struct dl_h2_block *message, uint64_t count);
    void *context;
};

struct dl_rpc_config {
    struct dl_h2_config h2;
    uint32_t connections_max;
    size_t message_bytes_max;           /* a request message, decompressed */
    size_t connection_memory_bytes_max; /* unfinished requests of a connection */
    size_t memory_bytes_max;            /* unfinished requests of all */
    uint32_t queue_messages_max;        /* of a server-streaming answer */
    size_t queue_bytes_max;
    uint32_t calls_rate, calls_burst; /* a client's calls a second (rpc_rate.h); 0: no limit */
    int64_t handshake_ms;             /* until the client's SETTINGS have come */
    int64_t request_ms;               /* until a lone request message is complete */
    int64_t linger_ms;                /* for a finished answer that the client does not read */
    int64_t keepalive_ms;             /* silence after which we PING; 0: never */
    int64_t keepalive_timeout_ms;
    int64_t idle_ms; /* without calls, until the connection is closed; 0: never */
    /* Roles of a caller by its `authorization` header (empty: none sent). NULL:
     * everybody has all. 0: unknown. Must not keep the slice. May set *client,
     * which is the address's number, to the caller's own. */
    uint32_t (*authorize)(void *context, struct dl_slice authorization, uint64_t *client);
    /* A connection's first call that its caller may not make, with the reason. May be NULL. */
    void (*denied)(void *context, const char *peer, const char *why);
    void *authorize_context;
    /* A call got its status (that of the server: the client may hear another).
     * `method` is NULL for one that is not registered. May be NULL. */
    void (*ended)(void *context, const struct dl_rpc_method *method, enum dl_grpc_status status);
    void *ended_context;
    /* A connection has bytes to take that no dl_rpc_connection_receive is
     * about to fetch. May be NULL. */
    void (*wake)(void *io, struct dl_rpc_connection *connection);
};

/* 1,024 connections, 128 streams, 4 MiB a message, 16 and 256 MiB of unfinished
 * requests, queues of 1,024 messages and 4 MiB, no rate limit, 10 s handshake,
 * 60 s request and linger, keepalive 60 + 20 s, idle 30 min. */
extern const struct dl_rpc_config dl_rpc_config_default;

/* Running totals, for metrics. */
struct dl_rpc_stats {
    uint64_t connections_total, connections_refused;
    uint32_t connections; /* now */
    uint32_t calls;       /* now */
    uint64_t calls_total;
    uint64_t finished[17]; /* by gRPC status */
    uint64_t messages_in, messages_out, messages_dropped;
    uint64_t connection_errors; /* protocol errors, floods, time-outs */
};

/* DL_OK or DL_ERR_NOMEM. */
int dl_rpc_new(const struct dl_rpc_config *config, struct dl_rpc **rpc);
/* Every connection must have been freed. */
void dl_rpc_free(struct dl_rpc *rpc);
/* Registers a method; `method` is copied, its path borrowed. DL_OK,
 * DL_ERR_EXISTS, DL_ERR_FULL. */
int dl_rpc_register(struct dl_rpc *rpc, const struct dl_rpc_method *method);
uint32_t dl_rpc_method_count(const struct dl_rpc *rpc);
const struct dl_rpc_method *dl_rpc_method_at(const struct dl_rpc *rpc, uint32_t index);
const struct dl_rpc_stats *dl_rpc_get_stats(const struct dl_rpc *rpc);

/* Fires deadlines and time-outs; may end connections (see is_done). To be
 * called at dl_rpc_next_ms or later, and whenever convenient. */
void dl_rpc_tick(struct dl_rpc *rpc, int64_t now_ms);
/* When dl_rpc_tick has something to do next; INT64_MAX: nothing. */
int64_t dl_rpc_next_ms(const struct dl_rpc *rpc);

/* Begins the graceful end of every connection, in two steps: a GOAWAY that
 * still admits calls on their way, then one that does not. Calls are let
 * finish until `grace_ms` from now, then ended with UNAVAILABLE. */
void dl_rpc_drain(struct dl_rpc *rpc, int64_t grace_ms, int64_t now_ms);
int dl_rpc_is_draining(const struct dl_rpc *rpc);

/* ---- connections ----------------------------------------------------------------- */

/* `io` is handed to `wake`; `peer` is copied (for messages). DL_OK, DL_ERR_FULL
 * (too many connections, or draining), DL_ERR_NOMEM. */
int dl_rpc_connection_new(struct dl_rpc *rpc, void *io, const char *peer, int64_t now_ms,
                          struct dl_rpc_connection **connection);
/* Cancels its calls. Not from within a handler. */
void dl_rpc_connection_free(struct dl_rpc_connection *connection);
/* As dl_h2_receive: on an error, take what is left to say and close. */
int dl_rpc_connection_receive(struct dl_rpc_connection *connection, struct dl_slice bytes,
                              int64_t now_ms, struct dl_error *error);
/* As dl_h2_take. */
int dl_rpc_connection_take(struct dl_rpc_connection *connection, struct dl_slice *bytes);
/* 1 when it is to be closed once what was taken is written. */
int dl_rpc_connection_is_done(const struct dl_rpc_connection *connection);
void *dl_rpc_connection_io(const struct dl_rpc_connection *connection);
const char *dl_rpc_connection_peer(const struct dl_rpc_connection *connection);

/* ---- calls, for handlers --------------------------------------------------------- */

void dl_rpc_call_set_user(struct dl_rpc_call *call, void *user);
void *dl_rpc_call_get_user(const struct dl_rpc_call *call);
const struct dl_rpc_method *dl_rpc_call_method(const struct dl_rpc_call *call);
const char *dl_rpc_call_peer(const struct dl_rpc_call *call);
/* In dl_clock_monotonic_ns time; INT64_MAX: none. */
int64_t dl_rpc_call_deadline_ns(const struct dl_rpc_call *call);

/* Sends the response's headers before the first message, so that a subscriber
 * knows that it is one. */
void dl_rpc_call_accept(struct dl_rpc_call *call);
/* Sends a message (copied). On a full queue a server-streaming call loses the
 * oldest message that is not yet on its way (see `dropped`). DL_OK,
 * DL_ERR_NOMEM, DL_ERR_CANCELLED (the call is over; wait for `closed`). */
int dl_rpc_call_send(struct dl_rpc_call *call, struct dl_slice message);
/* The same with a message that many calls share: a block made by
 * dl_rpc_message_new. Takes over the caller's reference. A call that answers
 * compressed sends it uncompressed all the same. */
int dl_rpc_call_send_shared(struct dl_rpc_call *call, struct dl_h2_block *block);
/* Messages that this call has lost so far. */
uint64_t dl_rpc_call_dropped(const struct dl_rpc_call *call);
/* A framed message, NULL if out of memory; its payload begins at
 * data + DL_GRPC_PREFIX_BYTES. */
struct dl_h2_block *dl_rpc_message_new(struct dl_slice message);
/* Ends the call. `message` is for people; NULL or "" for none. Ignored if the
 * call is over. */
void dl_rpc_call_finish(struct dl_rpc_call *call, enum dl_grpc_status status, const char *message);
/* The same with one of our statuses and its detail (NULL is allowed). */
void dl_rpc_call_fail(struct dl_rpc_call *call, int status, const struct dl_error *error);

/* Backpressure on a client-streaming call: after hold, no further `message`
 * comes and the client's window is not renewed, until proceed. */
void dl_rpc_call_hold(struct dl_rpc_call *call);
void dl_rpc_call_proceed(struct dl_rpc_call *call);

#endif
