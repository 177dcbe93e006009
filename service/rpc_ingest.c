/* Ingest: a client streams batches of events. One batch of a stream is with the
 * backend at a time; until it is durable the client's window is not renewed, so
 * a client cannot run ahead of the store. */
#include "service/rpc_methods_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

struct ingest {
    struct dl_rpc_call *call;
    struct dl_rpc_entry *entry;
    struct dl_rpc_job *job; /* the batch that is with the backend */
    uint64_t accepted, rejected, repeated, seq;
    char first_reason[200];
};

static void note_rejected(struct ingest *ingest, uint64_t count, const char *reason)
{
    if (count > 0 && ingest->rejected == 0)
        snprintf(ingest->first_reason, sizeof(ingest->first_reason), "%s", reason ? reason : "");
    ingest->rejected += count;
}

static void on_begin(void *context, struct dl_rpc_call *call)
{
    struct ingest *ingest = calloc(1, sizeof(*ingest));
    if (!ingest) {
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    ingest->call = call;
    ingest->entry = context;
    dl_rpc_call_set_user(call, ingest);
}

/* A failure in mid-stream: what was acknowledged before it stays. */
static void fail(struct ingest *ingest, int status, const struct dl_error *cause)
{
    struct dl_error error;
    dl_error_set(&error, status, "%s; %" PRIu64 " events of this stream before are durable",
                 cause && cause->text[0] ? cause->text : dl_status_name(status), ingest->accepted);
    dl_rpc_call_fail(ingest->call, status, &error);
}

static void on_done(struct dl_backend_job *backend_job, int status, const struct dl_error *error,
                    const union dl_backend_result *result)
{
    struct dl_rpc_job *job = (struct dl_rpc_job *)backend_job;
    if (!dl_rpc_job_alive(job)) return;
    struct ingest *ingest = job->owner;
    ingest->job = NULL;
    if (job->entry->seconds)
        dl_histogram_observe(job->entry->seconds,
                             (double)(dl_clock_monotonic_ns() - job->begun_ns) * 1e-9);
    free(job);
    if (status != DL_OK) {
        fail(ingest, status, error);
        return;
    }
    ingest->accepted += result->ingested.accepted;
    ingest->repeated += result->ingested.repeated;
    ingest->seq = result->ingested.seq;
    note_rejected(ingest, result->ingested.rejected, result->ingested.first_reason);
    dl_rpc_call_proceed(ingest->call);
}

/* Names that the decoder made (integers as text) live until its next call only. */
static int keep_text(struct dl_arena *arena, struct dl_slice bytes, struct dl_slice *text)
{
    uintptr_t at = (uintptr_t)text->data, start = (uintptr_t)bytes.data;
    if (text->size == 0 || (at >= start && at + text->size <= start + bytes.size)) return DL_OK;
    uint8_t *copy = dl_arena_take(arena, text->size);
    if (!copy) return DL_ERR_NOMEM;
    memcpy(copy, text->data, text->size);
    text->data = copy;
    return DL_OK;
}

struct batch {
    uint32_t event_count, broken_count;
    struct dl_edge_event *events;
    struct dl_backend_broken *broken;
};

static int decode(struct ingest *ingest, const struct dl_msg_ingest_request *request,
                  struct batch *batch)
{
    struct dl_arena *arena = &ingest->entry->methods->arena;
    batch->events = dl_arena_take(arena, request->event_count * sizeof(*batch->events));
    batch->broken = dl_arena_take(arena, request->event_count * sizeof(*batch->broken));
    if (!batch->events || !batch->broken) return DL_ERR_NOMEM;
    for (uint32_t i = 0; i < request->event_count; i++) {
        struct dl_edge_event *event = &batch->events[batch->event_count];
        const char *field = "";
        struct dl_error error = {""};
        int status = dl_event_decode(ingest->entry->methods->decoder, request->events[i], event,
                                     &field, &error);
        if (status == DL_ERR_NOMEM) return status;
        if (status == DL_OK) {
            if (keep_text(arena, request->events[i], &event->src) != DL_OK ||
                keep_text(arena, request->events[i], &event->dst) != DL_OK)
                return DL_ERR_NOMEM;
            batch->event_count++;
            continue;
        }
        size_t size = strlen(error.text) + 1;
        char *reason = dl_arena_take(arena, size);
        if (!reason) return DL_ERR_NOMEM;
        memcpy(reason, error.text, size);
        batch->broken[batch->broken_count++] =
            (struct dl_backend_broken){request->events[i], reason, field};
    }
    return DL_OK;
}

static void submit(struct ingest *ingest, const struct batch *batch)
{
    const struct dl_backend *backend = &ingest->entry->methods->backend;
    struct dl_backend_ingest_request request = {batch->event_count, batch->events};
    struct dl_slice none = {NULL, 0};
    struct dl_error error = {"out of memory for the events"};
    struct dl_rpc_job *job = dl_rpc_job_new(ingest->entry, ingest->call, none, none);
    if (!job) {
        fail(ingest, DL_ERR_NOMEM, &error);
        return;
    }
    job->job.done = on_done;
    job->owner = ingest;
    ingest->job = job;
    dl_rpc_call_hold(ingest->call);
    int status = backend->ingest(backend->context, &request, &job->job, &error);
    if (status == DL_OK) return;
    ingest->job = NULL;
    free(job);
    fail(ingest, status, &error);
}

static void on_message(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_rpc_entry *entry = context;
    struct ingest *ingest = dl_rpc_call_get_user(call);
    const struct dl_backend *backend = &entry->methods->backend;
    struct dl_msg_ingest_request request = {0};
    struct batch batch = {0};
    struct dl_error error = {"out of memory for the events"};
    if (!backend->ingest) {
        dl_rpc_call_finish(call, DL_GRPC_UNIMPLEMENTED, "this service takes no events by RPC");
        return;
    }
    if (dl_rpc_request(entry, call, bytes, &request) != DL_OK) return;
    if (decode(ingest, &request, &batch) != DL_OK) {
        fail(ingest, DL_ERR_NOMEM, &error);
        return;
    }
    if (batch.broken_count > 0) {
        note_rejected(ingest, batch.broken_count, batch.broken[0].reason);
        if (backend->ingest_broken)
            backend->ingest_broken(backend->context, batch.broken_count, batch.broken);
    }
    if (batch.event_count > 0) submit(ingest, &batch);
}

static void on_half_closed(void *context, struct dl_rpc_call *call)
{
    struct dl_rpc_entry *entry = context;
    struct ingest *ingest = dl_rpc_call_get_user(call);
    struct dl_msg_ingest_response response = {.accepted = ingest->accepted,
                                              .rejected = ingest->rejected,
                                              .repeated = ingest->repeated,
                                              .seq = ingest->seq,
                                              .first_reason = ingest->first_reason};
    if (dl_rpc_reply(entry->methods, call, &dl_msg_ingest_response_type, &response) == DL_OK)
        dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static void on_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct ingest *ingest = dl_rpc_call_get_user(call);
    (void)context;
    (void)end;
    if (!ingest) return;
    if (ingest->job) {
        /* Events that are with the engine are taken in all the same. */
        ingest->job->call = NULL;
    }
    free(ingest);
}

void dl_rpc_ingest_handlers(struct dl_rpc_method *method)
{
    method->begin = on_begin;
    method->message = on_message;
    method->half_closed = on_half_closed;
    method->closed = on_closed;
}
