/* The service: store, model, engine, workers, source, sink, RPC and HTTP put
 * together on one loop. `serve`, `demo` and `ingest` run it.
 *
 * Start: whatever is wrong with configuration, store or model ends the start
 * with one line. A broker that is away is waited for.
 * End (dl_service_stop, SIGTERM, SIGINT): the source stops, the open batch is
 * scored and stored, RPC drains, the outbox is published for at most
 * drain_ms, pages are written, everything is closed. A second signal ends at
 * once. */
#ifndef DL_SERVICE_SERVICE_H
#define DL_SERVICE_SERVICE_H

#include <uv.h>

#include "service/config.h"
#include "service/engine.h"

struct dl_service;

struct dl_service_options {
    const struct dl_config *config; /* borrowed */
    struct dl_model *model; /* a reference that is taken over the load of model.path; may be NULL */
    int handle_signals;     /* SIGTERM, SIGINT: stop; SIGHUP: reload; SIGPIPE: ignored */
    int stop_at_end;        /* file and standard input: stop when all is taken in */
    int no_model;           /* only take history in */
    int64_t drain_ms;       /* 0: 10 s */
    void (*stopped)(void *context); /* everything is closed; may be NULL */
    void *context;
};

int dl_service_new(uv_loop_t *loop, const struct dl_service_options *options,
                   struct dl_service **service, struct dl_error *error);
/* Begins the end; `stopped` is called when it is done, and the loop then has
 * nothing left of the service's. */
void dl_service_stop(struct dl_service *service);
/* After `stopped`. */
void dl_service_free(struct dl_service *service);

/* Why it stopped by itself, or NULL. */
const char *dl_service_failure(const struct dl_service *service);

struct dl_engine *dl_service_engine(struct dl_service *service);
struct dl_service_metrics *dl_service_metrics(struct dl_service *service);
/* "127.0.0.1:50051" or "" when it is off. */
const char *dl_service_rpc_address(const struct dl_service *service);
/* "http://127.0.0.1:9464/" or "". */
const char *dl_service_http_url(const struct dl_service *service);
/* 1 and "" when progress is possible; else 0 and why. */
int dl_service_ready(const struct dl_service *service, struct dl_error *error);
/* File and standard input: bytes read, size (0: unknown), records, dead letters. */
void dl_service_progress(const struct dl_service *service, uint64_t *read_bytes,
                         uint64_t *total_bytes, uint64_t *records, uint64_t *broken,
                         const char **first_reason);

#endif
