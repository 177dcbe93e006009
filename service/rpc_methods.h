/* The RPC service of driftline: driftline.v1.LinkPrediction, grpc.health.v1 and
 * server reflection on a dl_rpc_server, answered by a backend. */
#ifndef DL_SERVICE_RPC_METHODS_H
#define DL_SERVICE_RPC_METHODS_H

#include <uv.h>

#include "base/status.h"
#include "service/backend.h"
#include "service/config.h"
#include "service/metrics.h"
#include "service/rpc_server.h"

struct dl_rpc_methods;

/* Opens the server that `config->rpc` describes and registers every method.
 * `backend` is copied (NULL: it comes with dl_rpc_methods_attach, before the loop
 * turns; so a port that is taken is found before there is a backend); its context, `config` and
 * `metrics` (may be NULL) are borrowed for the server's life. The methods end with the server
 * (dl_rpc_server_close): afterwards no call of theirs reaches the backend, and
 * the engine may answer or drop the jobs that are still with it at any time.
 * Errors as dl_rpc_server_open, and those of the tokens file. */
int dl_rpc_methods_open(uv_loop_t *loop, const struct dl_config *config,
                        const struct dl_backend *backend, struct dl_service_metrics *metrics,
                        struct dl_rpc_server **server, struct dl_rpc_methods **methods,
                        struct dl_error *error);

void dl_rpc_methods_attach(struct dl_rpc_methods *methods, const struct dl_backend *backend);

/* Reads the tokens file again. On an error the old tokens stay. */
int dl_rpc_methods_reload_tokens(struct dl_rpc_methods *methods, struct dl_error *error);

#endif
