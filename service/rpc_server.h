/* The sockets of the gRPC server: a libuv listener, its connections, and TLS
 * if asked for. What is said on them is rpc_core's. Everything on the loop's
 * thread. */
#ifndef DL_SERVICE_RPC_SERVER_H
#define DL_SERVICE_RPC_SERVER_H

#include <stdint.h>

#include <uv.h>

#include "base/status.h"
#include "service/rpc_core.h"

struct dl_rpc_server;

struct dl_rpc_server_config {
    const char *listen; /* "127.0.0.1:50051", "[::1]:0", "0.0.0.0:50051"; port 0: any free one */
    /* Plain text beyond the loopback interface must be asked for. */
    int plain_text_anywhere;
    const char *tls_cert, *tls_key, *tls_ca; /* NULL or "": none */
    int64_t write_stall_ms;   /* a client that takes nothing for so long is cut off; 0: 30 s */
    struct dl_rpc_config rpc; /* wake is set by the server */
    /* For those who register methods; any may be NULL. A drain begins; about
     * once a second while there are connections, and when one has gone; the
     * server's memory is about to go (no call is left). */
    void (*draining)(void *context);
    void (*tick)(void *context);
    void (*freeing)(void *context);
    void *context;
};

/* Opens the listener. DL_ERR_INVALID (address, plain text), DL_ERR_IO (in use,
 * certificate) with a line that names the address or the file. */
int dl_rpc_server_open(uv_loop_t *loop, const struct dl_rpc_server_config *config,
                       struct dl_rpc_server **server, struct dl_error *error);
/* For registering methods; do so before the loop runs. */
struct dl_rpc *dl_rpc_server_rpc(struct dl_rpc_server *server);
/* The address in use, "127.0.0.1:50051". */
const char *dl_rpc_server_address(const struct dl_rpc_server *server);
uint16_t dl_rpc_server_port(const struct dl_rpc_server *server);
/* Reads the certificates again, for new connections. On an error the old ones
 * stay. DL_OK without TLS. */
int dl_rpc_server_reload_tls(struct dl_rpc_server *server, struct dl_error *error);

/* The graceful end: no new connections, GOAWAY, calls may finish for
 * `grace_ms`. `drained` is called once, when the last connection has gone. */
void dl_rpc_server_drain(struct dl_rpc_server *server, int64_t grace_ms,
                         void (*drained)(void *context), void *context);
/* Closes what is left at once; `closed` is called from the loop when the
 * server's memory is gone. May be called during a drain, also from `drained`. */
void dl_rpc_server_close(struct dl_rpc_server *server, void (*closed)(void *context),
                         void *context);

#endif
