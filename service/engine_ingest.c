/* Events that come by RPC: copied, offered when there is room, and answered
 * when the batch that holds their last one is durable. The queue is bounded;
 * beyond it a caller is told to try again. */
#include "service/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

#define INGEST_JOBS_MAX 64
#define BROKEN_MAX 1024 /* dead letters that wait for room */

struct ingest_job {
    struct dl_backend_job *job;
    struct dl_edge_event *events; /* slices point into `text` */
    uint32_t count, offered, rejected, repeated;
    uint64_t due; /* the number of the batch that its last event is in */
    struct dl_buf text;
    char first_reason[200];
    struct ingest_job *next;
};

/* A message of an ingest that was no event. */
struct ingest_broken {
    struct ingest_broken *next;
    const char *field; /* a constant */
    size_t payload_size;
    char reason[sizeof(struct dl_error)];
    uint8_t payload[];
};

static void free_job(struct ingest_job *job)
{
    dl_buf_free(&job->text);
    free(job->events);
    free(job);
}

static struct dl_slice copy_text(struct dl_buf *text, struct dl_slice slice)
{
    size_t at = text->size;
    dl_buf_append(text, slice.data, slice.size);
    return dl_slice_of(text->data + at, slice.size);
}

static struct ingest_job *copy_request(const struct dl_backend_ingest_request *request)
{
    struct ingest_job *job = calloc(1, sizeof *job);
    size_t bytes = 0;
    if (!job) return NULL;
    job->count = request->event_count;
    job->events = malloc(job->count * sizeof *job->events);
    for (uint32_t i = 0; i < job->count; i++) {
        const struct dl_edge_event *e = &request->events[i];
        bytes += e->src.size + e->dst.size + e->type.size + e->id.size;
    }
    /* Reserved at once, so that the slices never move. */
    if (!job->events || dl_buf_reserve(&job->text, bytes ? bytes : 1) != DL_OK) {
        free_job(job);
        return NULL;
    }
    for (uint32_t i = 0; i < job->count; i++) {
        struct dl_edge_event *e = &job->events[i];
        *e = request->events[i];
        e->src = copy_text(&job->text, e->src);
        e->dst = copy_text(&job->text, e->dst);
        e->type = copy_text(&job->text, e->type);
        e->id = copy_text(&job->text, e->id);
    }
    return job;
}

static void answer(struct dl_engine *engine, struct ingest_job *job, int status)
{
    struct dl_error error = {"the service stopped before the events were durable; send them again"};
    union dl_backend_result result = {
        .ingested = {.accepted = job->count - job->rejected - job->repeated,
                     .repeated = job->repeated,
                     .rejected = job->rejected,
                     .seq = dl_graph_feed(engine->graph)->events,
                     .first_reason = job->first_reason}};
    job->job->done(job->job, status, status == DL_OK ? NULL : &error,
                   status == DL_OK ? &result : NULL);
    free_job(job);
}

int dl_engine_ingest(void *context, const struct dl_backend_ingest_request *request,
                     struct dl_backend_job *backend_job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    if (engine->ingest_count >= INGEST_JOBS_MAX)
        return dl_error_set(error, DL_ERR_FULL, "%d ingest batches are waiting; try again later",
                            INGEST_JOBS_MAX);
    struct ingest_job *job = copy_request(request);
    if (!job)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for %u events",
                            request->event_count);
    job->job = backend_job;
    if (engine->ingest_last)
        engine->ingest_last->next = job;
    else
        engine->ingest_first = job;
    engine->ingest_last = job;
    engine->ingest_count++;
    dl_engine_ingest_pump(engine);
    return DL_OK;
}

void dl_engine_ingest_broken(void *context, uint32_t count, const struct dl_backend_broken *broken)
{
    struct dl_engine *engine = context;
    for (uint32_t i = 0; i < count && engine->broken_count < BROKEN_MAX; i++) {
        struct ingest_broken *entry = malloc(sizeof *entry + broken[i].payload.size);
        if (!entry) break; /* the caller was told of it already */
        entry->next = NULL;
        entry->field = broken[i].field;
        entry->payload_size = broken[i].payload.size;
        snprintf(entry->reason, sizeof entry->reason, "%s", broken[i].reason);
        if (entry->payload_size)
            memcpy(entry->payload, broken[i].payload.data, entry->payload_size);
        if (engine->broken_last)
            engine->broken_last->next = entry;
        else
            engine->broken_first = entry;
        engine->broken_last = entry;
        engine->broken_count++;
    }
    dl_engine_ingest_pump(engine);
}

static int offer_broken(struct dl_engine *engine)
{
    int any = 0;
    while (engine->broken_first && !engine->failed && dl_engine_room(engine) > 0) {
        struct ingest_broken *entry = engine->broken_first;
        struct dl_arrival arrival = {.topic = "",
                                     .received_ns = dl_clock_monotonic_ns(),
                                     .wall_us = dl_clock_wall_us(),
                                     .payload = dl_slice_of(entry->payload, entry->payload_size)};
        dl_engine_offer_broken(engine, &arrival, entry->reason, entry->field);
        engine->broken_first = entry->next;
        if (!engine->broken_first) engine->broken_last = NULL;
        engine->broken_count--;
        free(entry);
        any = 1;
    }
    return any;
}

/* Offering may fill a batch, and without a model that commits at once: answers
 * wait until the loop over the jobs is left. */
void dl_engine_ingest_pump(struct dl_engine *engine)
{
    if (engine->ingest_pumping) return;
    engine->ingest_pumping = 1;
    int any = offer_broken(engine);
    for (struct ingest_job *job = engine->ingest_first; job && !engine->failed; job = job->next) {
        while (job->offered < job->count && dl_engine_room(engine) > 0) {
            struct dl_arrival arrival = {
                .topic = "", .received_ns = dl_clock_monotonic_ns(), .wall_us = dl_clock_wall_us()};
            any = 1;
            job->due = engine->batches_committed + 1;
            if (dl_engine_offer(engine, &arrival, &job->events[job->offered++]) != DL_OK) break;
            job->repeated += (uint32_t)engine->last_repeated;
            if (engine->last_reason[0] && job->rejected++ == 0)
                memcpy(job->first_reason, engine->last_reason, sizeof job->first_reason);
        }
        if (job->offered < job->count) break;
    }
    engine->ingest_pumping = 0;
    if (any) dl_engine_flush(engine);
    if (any && !dl_engine_busy(engine)) dl_engine_ingest_committed(engine);
}

void dl_engine_ingest_committed(struct dl_engine *engine)
{
    if (engine->ingest_pumping || engine->failed) return;
    /* An answer may bring the next job at once, whose events are in the next batch. */
    while (engine->ingest_first && engine->ingest_first->offered == engine->ingest_first->count &&
           engine->ingest_first->due <= engine->batches_committed) {
        struct ingest_job *job = engine->ingest_first;
        engine->ingest_first = job->next;
        if (!engine->ingest_first) engine->ingest_last = NULL;
        engine->ingest_count--;
        answer(engine, job, DL_OK);
    }
    if (engine->ingest_first || engine->broken_first) dl_engine_ingest_pump(engine);
}

void dl_engine_ingest_end(struct dl_engine *engine)
{
    if (engine->ingest_pumping) return; /* the batch failed while events were being offered */
    while (engine->ingest_first) {
        struct ingest_job *job = engine->ingest_first;
        engine->ingest_first = job->next;
        engine->ingest_count--;
        answer(engine, job, DL_ERR_UNAVAILABLE);
    }
    engine->ingest_last = NULL;
    while (engine->broken_first) {
        struct ingest_broken *entry = engine->broken_first;
        engine->broken_first = entry->next;
        free(entry);
    }
    engine->broken_last = NULL;
    engine->broken_count = 0;
}
