/* Live streams. A record is encoded once, when the first subscriber that wants
 * it is met, and shared by all. Only the count of dropped records, the message's
 * last field, differs: it is appended to a copy for those who lost something. */
#include "service/rpc_methods_private.h"

#include <stdlib.h>
#include <string.h>

enum kind { PREDICTIONS, SCORES, ALERTS };

struct dl_rpc_subscriber {
    struct dl_rpc_call *call;
    struct dl_rpc_entry *entry;
    enum kind kind;
    struct dl_rpc_subscriber *previous, *next;
    double min;             /* probability or bits */
    struct dl_rpc_job *job; /* asking for the standing alerts */
    uint32_t node_count;
    struct dl_slice *nodes; /* sorted; names follow in the same block */
};

static enum kind kind_of(enum dl_msg_method_id id)
{
    if (id == DL_METHOD_SUBSCRIBE_PREDICTIONS) return PREDICTIONS;
    return id == DL_METHOD_SUBSCRIBE_SCORES ? SCORES : ALERTS;
}

/* ---- filters ----------------------------------------------------------------------------- */

static int compare_names(const void *left, const void *right)
{
    const struct dl_slice *a = left, *b = right;
    int order = memcmp(a->data, b->data, a->size < b->size ? a->size : b->size);
    if (order) return order;
    return (a->size > b->size) - (a->size < b->size);
}

static int keep_nodes(struct dl_rpc_subscriber *subscriber, uint32_t count,
                      const struct dl_slice *nodes)
{
    size_t bytes = 0;
    if (count == 0) return DL_OK;
    for (uint32_t i = 0; i < count; i++) bytes += nodes[i].size;
    subscriber->nodes = malloc(count * sizeof(*subscriber->nodes) + bytes);
    if (!subscriber->nodes) return DL_ERR_NOMEM;
    uint8_t *text = (uint8_t *)(subscriber->nodes + count);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(text, nodes[i].data, nodes[i].size);
        subscriber->nodes[i] = dl_slice_of(text, nodes[i].size);
        text += nodes[i].size;
    }
    subscriber->node_count = count;
    qsort(subscriber->nodes, count, sizeof(*subscriber->nodes), compare_names);
    return DL_OK;
}

static int wants(const struct dl_rpc_subscriber *subscriber, struct dl_slice node)
{
    if (subscriber->node_count == 0) return 1;
    return node.size > 0 && bsearch(&node, subscriber->nodes, subscriber->node_count, sizeof(node),
                                    compare_names) != NULL;
}

/* ---- sending -------------------------------------------------------------------------------- */

static struct dl_h2_block *encode(struct dl_rpc_methods *methods,
                                  const struct dl_message_type *type, const void *message)
{
    struct dl_h2_block *block = NULL;
    dl_buf_clear(&methods->scratch);
    dl_message_encode(type, message, &methods->scratch);
    if (methods->scratch.failed)
        dl_buf_free(&methods->scratch);
    else
        block = dl_rpc_message_new(dl_buf_slice(&methods->scratch));
    return block;
}

/* The field `dropped` = 2 of all three messages, a varint. */
#define DROPPED_TAG 0x10

static struct dl_h2_block *on_dropped(void *context, struct dl_rpc_call *call,
                                      const struct dl_h2_block *message, uint64_t count)
{
    struct dl_buf *out = &((struct dl_rpc_entry *)context)->methods->scratch;
    (void)call;
    dl_buf_clear(out);
    dl_buf_append(out, message->data + DL_GRPC_PREFIX_BYTES, message->size - DL_GRPC_PREFIX_BYTES);
    dl_buf_u8(out, DROPPED_TAG);
    dl_buf_varint(out, count);
    if (out->failed) {
        dl_buf_free(out);
        return NULL;
    }
    return dl_rpc_message_new(dl_buf_slice(out));
}

/* Borrows the block; NULL: there was no memory for it, and the subscriber
 * misses it. */
static void send_block(struct dl_rpc_subscriber *subscriber, struct dl_h2_block *block)
{
    if (block) dl_rpc_call_send_shared(subscriber->call, dl_h2_block_ref(block));
}

static void on_score(struct dl_backend_listener *listener, const struct dl_score *score)
{
    struct dl_rpc_methods *methods =
        (void *)((char *)listener - offsetof(struct dl_rpc_methods, listener));
    struct dl_h2_block *block = NULL;
    for (struct dl_rpc_subscriber *s = methods->subscribers[SCORES]; s; s = s->next) {
        if (score->surprise_bits < s->min) continue;
        if (!wants(s, score->src) && !wants(s, score->dst)) continue;
        if (!block) {
            struct dl_msg_score_message message = {.score = *score};
            block = encode(methods, &dl_msg_score_message_type, &message);
        }
        send_block(s, block);
    }
    dl_h2_block_unref(block);
}

/* Candidates stand best first. */
static uint32_t candidates_above(const struct dl_prediction *prediction, double min)
{
    uint32_t count = 0;
    while (count < prediction->candidate_count && prediction->candidates[count].probability >= min)
        count++;
    return count;
}

static void on_prediction(struct dl_backend_listener *listener,
                          const struct dl_prediction *prediction)
{
    struct dl_rpc_methods *methods =
        (void *)((char *)listener - offsetof(struct dl_rpc_methods, listener));
    struct dl_h2_block *whole = NULL;
    for (struct dl_rpc_subscriber *s = methods->subscribers[PREDICTIONS]; s; s = s->next) {
        struct dl_msg_prediction_message message = {.prediction = *prediction};
        uint32_t count = candidates_above(prediction, s->min);
        if (!wants(s, prediction->node) || (count == 0 && s->min > 0)) continue;
        if (count == prediction->candidate_count) {
            if (!whole) whole = encode(methods, &dl_msg_prediction_message_type, &message);
            send_block(s, whole);
        } else {
            message.prediction.candidate_count = count;
            struct dl_h2_block *cut = encode(methods, &dl_msg_prediction_message_type, &message);
            send_block(s, cut);
            dl_h2_block_unref(cut);
        }
    }
    dl_h2_block_unref(whole);
}

static void on_alert(struct dl_backend_listener *listener, const struct dl_alert *alert)
{
    struct dl_rpc_methods *methods =
        (void *)((char *)listener - offsetof(struct dl_rpc_methods, listener));
    struct dl_h2_block *block = NULL;
    for (struct dl_rpc_subscriber *s = methods->subscribers[ALERTS]; s; s = s->next) {
        if (!block) {
            struct dl_msg_alert_message message = {.alert = *alert};
            block = encode(methods, &dl_msg_alert_message_type, &message);
        }
        send_block(s, block);
    }
    dl_h2_block_unref(block);
}

void dl_rpc_subscribe_listen(struct dl_rpc_methods *methods)
{
    methods->listener.score = on_score;
    methods->listener.prediction = on_prediction;
    methods->listener.alert = on_alert;
    if (methods->backend.listen)
        methods->backend.listen(methods->backend.context, &methods->listener);
}

/* ---- standing alerts ---------------------------------------------------------------------------
 */

/* Raised, and no newer record of its kind clears it. Alerts come newest first. */
static int stands(const struct dl_backend_drift *drift, uint32_t index)
{
    const struct dl_alert *alert = &drift->alerts[index];
    if (!alert->raised) return 0;
    if (alert->kind == DL_ALERT_SURPRISE || alert->kind == DL_ALERT_REFERENCE_RENEWED)
        return 0; /* moments */
    for (uint32_t i = 0; i < index; i++)
        if (drift->alerts[i].kind == alert->kind) return 0;
    return 1;
}

static void on_standing(struct dl_backend_job *backend_job, int status,
                        const struct dl_error *error, const union dl_backend_result *result)
{
    struct dl_rpc_job *job = (struct dl_rpc_job *)backend_job;
    if (!dl_rpc_job_alive(job)) return;
    struct dl_rpc_subscriber *subscriber = job->owner;
    (void)error; /* without a drift monitor there are no alerts to tell */
    for (uint32_t i = status == DL_OK ? result->drift.alert_count : 0; i-- > 0;) {
        if (!stands(&result->drift, i)) continue;
        struct dl_msg_alert_message message = {.alert = result->drift.alerts[i]};
        struct dl_h2_block *block =
            encode(subscriber->entry->methods, &dl_msg_alert_message_type, &message);
        send_block(subscriber, block);
        dl_h2_block_unref(block);
    }
    subscriber->job = NULL;
    free(job);
}

static void ask_standing(struct dl_rpc_subscriber *subscriber)
{
    const struct dl_backend *backend = &subscriber->entry->methods->backend;
    struct dl_backend_drift_request request = {DL_MSG_ALERTS_MAX};
    struct dl_slice none = {NULL, 0};
    struct dl_error error = {""};
    if (!backend->get_drift) return;
    struct dl_rpc_job *job = dl_rpc_job_new(subscriber->entry, subscriber->call, none, none);
    if (!job) return;
    job->job.done = on_standing;
    job->owner = subscriber;
    subscriber->job = job;
    if (backend->get_drift(backend->context, &request, &job->job, &error) == DL_OK) return;
    subscriber->job = NULL;
    free(job);
}

/* ---- subscribing
 * ---------------------------------------------------------------------------------- */

union request {
    struct dl_msg_subscribe_predictions predictions;
    struct dl_msg_subscribe_scores scores;
    struct dl_msg_subscribe_alerts alerts;
};

static void on_subscribe(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_rpc_entry *entry = context;
    struct dl_rpc_methods *methods = entry->methods;
    union request request;
    int status = DL_OK;
    memset(&request, 0, sizeof(request));
    if (dl_rpc_request(entry, call, bytes, &request) != DL_OK) return;
    if (methods->draining) {
        dl_rpc_call_finish(call, DL_GRPC_UNAVAILABLE, "the server is shutting down");
        return;
    }
    struct dl_rpc_subscriber *subscriber = calloc(1, sizeof(*subscriber));
    if (subscriber) {
        subscriber->call = call;
        subscriber->entry = entry;
        subscriber->kind = kind_of(entry->id);
        if (subscriber->kind == PREDICTIONS) {
            subscriber->min = request.predictions.probability_min;
            status =
                keep_nodes(subscriber, request.predictions.node_count, request.predictions.nodes);
        } else if (subscriber->kind == SCORES) {
            subscriber->min = request.scores.surprise_bits_min;
            status = keep_nodes(subscriber, request.scores.node_count, request.scores.nodes);
        }
    }
    if (!subscriber || status != DL_OK) {
        free(subscriber);
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    subscriber->next = methods->subscribers[subscriber->kind];
    if (subscriber->next) subscriber->next->previous = subscriber;
    methods->subscribers[subscriber->kind] = subscriber;
    methods->stream_count++;
    dl_rpc_call_set_user(call, subscriber);
    dl_rpc_call_accept(call);
    if (subscriber->kind == ALERTS && request.alerts.include_standing) ask_standing(subscriber);
}

static void on_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct dl_rpc_methods *methods = ((struct dl_rpc_entry *)context)->methods;
    struct dl_rpc_subscriber *subscriber = dl_rpc_call_get_user(call);
    (void)end;
    if (!subscriber) return;
    if (subscriber->job) {
        atomic_store(&subscriber->job->job.cancelled, 1);
        subscriber->job->call = NULL; /* `done` frees it */
    }
    if (subscriber->previous)
        subscriber->previous->next = subscriber->next;
    else
        methods->subscribers[subscriber->kind] = subscriber->next;
    if (subscriber->next) subscriber->next->previous = subscriber->previous;
    methods->stream_count--;
    free(subscriber->nodes);
    free(subscriber);
}

void dl_rpc_subscribe_handlers(struct dl_rpc_method *method)
{
    method->message = on_subscribe;
    method->dropped = on_dropped;
    method->closed = on_closed;
}

void dl_rpc_subscribe_drain(struct dl_rpc_methods *methods)
{
    for (int kind = 0; kind < DL_RPC_STREAM_KINDS; kind++)
        for (struct dl_rpc_subscriber *s = methods->subscribers[kind]; s; s = s->next)
            dl_rpc_call_finish(s->call, DL_GRPC_UNAVAILABLE, "the server is shutting down");
}
