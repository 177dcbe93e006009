/* The scoring workers: a fixed number of threads that score queries against an
 * immutable model. Jobs hold copies of all they need, so results do not depend
 * on how many workers there are, or on which of them takes what.
 *
 * A job is an array of queries. Workers take its queries one by one; when the
 * last is scored, the job's `done` is called on the loop's thread. Interactive
 * jobs go before batch jobs.
 *
 * Thread: submit and the callbacks belong to the loop's thread. */
#ifndef DL_SERVICE_WORKERS_H
#define DL_SERVICE_WORKERS_H

#include <stdatomic.h>
#include <stdint.h>

#include <uv.h>

#include "base/query.h"
#include "base/status.h"
#include "model/model.h"

struct dl_scoring {
    /* Filled in by the caller, and kept until `done`: */
    struct dl_model *model; /* a reference that the caller holds */
    uint32_t query_count;
    struct dl_query *const *queries;       /* (query_count) */
    float *const *logits;                  /* (query_count), each (candidate_count) */
    struct dl_attention *const *attention; /* (query_count) of NULL or (candidate_count); or NULL */
    int interactive;
    const atomic_int *cancelled; /* NULL, or where the caller may say so */
    void (*done)(struct dl_scoring *job);
    void *owner;
    /* Set before `done`: the time from the first query taken to the last scored. */
    int64_t started_ns, ended_ns;
    /* The pool's own: */
    uint32_t taken;
    atomic_uint_least32_t left;
    struct dl_scoring *next;
};

struct dl_workers;

/* Starts the workers, 1..256. `loop` may be NULL: then nothing is called back
 * by itself and dl_workers_wait does it (for tools and tests). */
int dl_workers_new(uv_loop_t *loop, uint32_t count, struct dl_workers **out,
                   struct dl_error *error);
/* Waits for the jobs under way, drops those not begun (their `done` is not
 * called) and ends the workers. The loop must run once more to close the
 * handle. */
void dl_workers_free(struct dl_workers *workers);

void dl_workers_submit(struct dl_workers *workers, struct dl_scoring *job);
/* Blocks until every submitted job is done, calling `done` on this thread. */
void dl_workers_wait(struct dl_workers *workers);
uint32_t dl_workers_pending(const struct dl_workers *workers);

#endif
