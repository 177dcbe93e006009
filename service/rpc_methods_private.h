/* What the files of the RPC methods share: rpc_methods.c (opening, unary
 * calls), rpc_answers.c (results to messages), rpc_subscribe.c, rpc_ingest.c,
 * rpc_builtin.c (health and reflection). For nobody else. */
#ifndef DL_SERVICE_RPC_METHODS_PRIVATE_H
#define DL_SERVICE_RPC_METHODS_PRIVATE_H

#include "proto/arena.h"
#include "proto/event_codec.h"
#include "proto/rpc_messages.h"
#include "service/rpc_methods.h"
#include "service/tls_tokens.h"

struct dl_rpc_subscriber;
struct dl_rpc_watcher;

/* A method's handler context. */
struct dl_rpc_entry {
    struct dl_rpc_methods *methods;
    enum dl_msg_method_id id;
    const char *label;            /* in metrics */
    struct dl_counter *ended[17]; /* by status; made at first use */
    struct dl_histogram *seconds;
};

enum { DL_RPC_STREAM_KINDS = 3 }; /* predictions, scores, alerts */

struct dl_rpc_methods {
    struct dl_backend backend;
    const struct dl_config *config;
    struct dl_service_metrics *metrics; /* may be NULL */
    struct dl_rpc_server *server;
    struct dl_rpc *rpc;
    struct dl_tokens *tokens; /* NULL: everybody may do everything */
    struct dl_rpc_entry entries[DL_METHOD_COUNT];
    struct dl_counter *unknown[17];
    struct dl_backend_listener listener;
    struct dl_rpc_subscriber *subscribers[DL_RPC_STREAM_KINDS];
    uint32_t stream_count;
    struct dl_rpc_watcher *watchers;
    struct dl_event_decoder *decoder; /* of ingested events */
    struct dl_arena arena;            /* of one request, until the next */
    struct dl_arena answer_arena;     /* of one answer; it may come while the request is asked */
    struct dl_buf scratch;            /* one encoded message */
    int draining;
};

/* A job with the backend on behalf of a call. The backend may outlive the call
 * and even the methods: then call is NULL and only the job itself is touched. */
struct dl_rpc_job {
    struct dl_backend_job job; /* first */
    struct dl_rpc_call *call;
    struct dl_rpc_entry *entry;
    int64_t begun_ns;
    void *owner;          /* ingest: the stream; subscriptions: the subscriber */
    struct dl_slice a, b; /* names of the request; in `text` */
    uint8_t text[];
};

/* NULL: no memory. Becomes the call's user. */
struct dl_rpc_job *dl_rpc_job_new(struct dl_rpc_entry *entry, struct dl_rpc_call *call,
                                  struct dl_slice a, struct dl_slice b);
/* After a backend function: a refusal fails the call and frees the job. */
void dl_rpc_job_started(struct dl_rpc_job *job, int status, const struct dl_error *error);
/* To be called first by `done`: 0 when the call is over; the job is freed then. */
int dl_rpc_job_alive(struct dl_rpc_job *job);
/* Detaches the job from its call and frees it. */
void dl_rpc_job_free(struct dl_rpc_job *job);

/* Encodes and sends one message. DL_OK or DL_ERR_NOMEM, on which the call has
 * been failed. */
int dl_rpc_reply(struct dl_rpc_methods *methods, struct dl_rpc_call *call,
                 const struct dl_message_type *type, const void *message);
/* Decodes a request into the zeroed struct (arena of the methods), or fails the
 * call with INVALID_ARGUMENT. */
int dl_rpc_request(struct dl_rpc_entry *entry, struct dl_rpc_call *call, struct dl_slice bytes,
                   void *request);

/* rpc_answers.c: sends the answer of a job that succeeded. */
void dl_rpc_answer(struct dl_rpc_job *job, const union dl_backend_result *result);

/* The handlers of each kind, by dl_rpc_entry as context. */
void dl_rpc_subscribe_handlers(struct dl_rpc_method *method);
void dl_rpc_ingest_handlers(struct dl_rpc_method *method);
void dl_rpc_health_handlers(struct dl_rpc_method *method, int watch);
void dl_rpc_reflection_handlers(struct dl_rpc_method *method);

/* Publishing to subscribers; set up as the backend's listener. */
void dl_rpc_subscribe_listen(struct dl_rpc_methods *methods);
/* A drain begins: streams that never end by themselves end now. */
void dl_rpc_subscribe_drain(struct dl_rpc_methods *methods);
void dl_rpc_health_drain(struct dl_rpc_methods *methods);
/* Tells watchers if something has changed. */
void dl_rpc_health_tick(struct dl_rpc_methods *methods);

#endif
