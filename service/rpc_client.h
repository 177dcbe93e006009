/* A gRPC client without I/O: one connection, any number of calls. The bytes
 * come and go through rpc_dial.c (a socket) or a test (memory); time is an
 * argument, in milliseconds of the monotonic clock. One thread. */
#ifndef DL_SERVICE_RPC_CLIENT_H
#define DL_SERVICE_RPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "service/grpc.h"
#include "service/h2.h"

struct dl_rpc_client;
struct dl_rpc_client_call;

struct dl_rpc_client_config {
    const char *authority;    /* host:port */
    int tls;                  /* for :scheme alone */
    const char *token;        /* bearer token, NULL or "": none */
    int gzip;                 /* compress requests of 256 bytes and more */
    size_t message_bytes_max; /* of an answer; 0: 16 MiB */
};

/* What a call hears. `finished` comes exactly once, last; the call is gone when
 * it returns. */
struct dl_rpc_client_events {
    void (*message)(void *context, struct dl_rpc_client_call *call, struct dl_slice message);
    /* status: enum dl_grpc_status; text: the server's words, or ours when it had none. */
    void (*finished)(void *context, struct dl_rpc_client_call *call, int status, const char *text);
};

/* DL_OK or DL_ERR_NOMEM. The config's texts are copied. */
int dl_rpc_client_new(const struct dl_rpc_client_config *config, int64_t now_ms,
                      struct dl_rpc_client **client);
/* Calls that are left finish with UNAVAILABLE first. Not from within an event. */
void dl_rpc_client_free(struct dl_rpc_client *client);
int dl_rpc_client_receive(struct dl_rpc_client *client, struct dl_slice bytes, int64_t now_ms,
                          struct dl_error *error);
int dl_rpc_client_take(struct dl_rpc_client *client, struct dl_slice *bytes);
int dl_rpc_client_is_done(const struct dl_rpc_client *client);
/* Ends calls whose deadline has passed. */
void dl_rpc_client_tick(struct dl_rpc_client *client, int64_t now_ms);
/* The earliest deadline; INT64_MAX: none. */
int64_t dl_rpc_client_next_ms(const struct dl_rpc_client *client);
/* Says goodbye: no further calls. */
void dl_rpc_client_close(struct dl_rpc_client *client);

/* Begins a call of "/package.Service/Method". timeout_ms 0: no deadline.
 * `events` and `context` are borrowed for its life. DL_OK, DL_ERR_UNAVAILABLE
 * (the server takes no more calls), DL_ERR_NOMEM. */
int dl_rpc_client_start(struct dl_rpc_client *client, const char *path, int64_t timeout_ms,
                        const struct dl_rpc_client_events *events, void *context,
                        struct dl_rpc_client_call **call);
/* Sends a request message (copied). DL_OK, DL_ERR_NOMEM, DL_ERR_CANCELLED (the
 * server has ended the call already; `finished` follows). */
int dl_rpc_client_send(struct dl_rpc_client_call *call, struct dl_slice message);
/* Bytes given to dl_rpc_client_send that have not left yet: for pacing. */
size_t dl_rpc_client_queued(const struct dl_rpc_client_call *call);
/* No further request messages. */
int dl_rpc_client_end(struct dl_rpc_client_call *call);
/* Gives the call up; `finished` follows with CANCELLED. */
void dl_rpc_client_cancel(struct dl_rpc_client_call *call);

#endif
