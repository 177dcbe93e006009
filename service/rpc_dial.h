/* A gRPC client for commands: one connection on a blocking socket, one call at
 * a time. Name resolution, TLS, deadlines; what is said is rpc_client's. */
#ifndef DL_SERVICE_RPC_DIAL_H
#define DL_SERVICE_RPC_DIAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_rpc_dial;

struct dl_rpc_target {
    const char *server; /* "host:port", "[::1]:50051" */
    const char *token;  /* bearer token, NULL or "": none */
    int tls;
    const char *ca;         /* PEM, NULL: the system's */
    const char *cert, *key; /* for mTLS, NULL: none */
    int gzip;               /* compress requests */
    int64_t connect_ms;     /* 0: 10 s */
};

/* Connects. DL_ERR_INVALID (address), DL_ERR_UNAVAILABLE (cannot be reached),
 * DL_ERR_DENIED (certificate), DL_ERR_IO with a line that names the server. */
int dl_rpc_dial_open(const struct dl_rpc_target *target, struct dl_rpc_dial **dial,
                     struct dl_error *error);
void dl_rpc_dial_close(struct dl_rpc_dial *dial);

/* What a call hears: return 0 to go on, 1 to have the call ended (as a
 * success), a negative status to have it ended with that. */
typedef int dl_rpc_on_message(void *context, struct dl_slice message, struct dl_error *error);

/* Calls "/package.Service/Method" with `count` request messages and waits until
 * it has ended. timeout_ms 0: no deadline. DL_OK; what on_message returned; or
 * the server's status as one of ours (dl_grpc_status_to) with its name and text
 * in *error; DL_ERR_UNAVAILABLE when the connection is lost. *grpc_status (may
 * be NULL) is the gRPC status. */
int dl_rpc_dial_call(struct dl_rpc_dial *dial, const char *path, const struct dl_slice *requests,
                     size_t count, int64_t timeout_ms, dl_rpc_on_message *on_message, void *context,
                     int *grpc_status, struct dl_error *error);

#endif
