/* Worker threads over two job lists (interactive first) and a list of finished
 * jobs that the loop empties. One mutex guards all three; scoring itself holds
 * no lock. */
#include "service/workers.h"
#include "base/check.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>

struct list {
    struct dl_scoring *first, *last;
};

struct dl_workers {
    pthread_mutex_t mutex;
    pthread_cond_t work, finished;
    struct list interactive, batch, done;
    uint32_t pending; /* submitted and not called back yet; the loop's thread */
    int stopping;
    uint32_t count;
    pthread_t *threads;
    uv_async_t *async; /* NULL without a loop */
};

static void push(struct list *list, struct dl_scoring *job)
{
    job->next = NULL;
    if (list->last)
        list->last->next = job;
    else
        list->first = job;
    list->last = job;
}

static struct dl_scoring *pop(struct list *list)
{
    struct dl_scoring *job = list->first;
    if (!job) return NULL;
    list->first = job->next;
    if (!list->first) list->last = NULL;
    return job;
}

/* The next query of the first job; a job whose last query is taken leaves its
 * list. Called with the mutex held. */
static struct dl_scoring *take(struct dl_workers *workers, uint32_t *index)
{
    struct list *list = workers->interactive.first ? &workers->interactive : &workers->batch;
    struct dl_scoring *job = list->first;
    if (!job) return NULL;
    if (job->taken == 0) job->started_ns = dl_clock_monotonic_ns();
    *index = job->taken++;
    if (job->taken == job->query_count) pop(list);
    return job;
}

/* Called with the mutex held. */
static void finish(struct dl_workers *workers, struct dl_scoring *job)
{
    job->ended_ns = dl_clock_monotonic_ns();
    push(&workers->done, job);
    pthread_cond_signal(&workers->finished);
    if (workers->async) uv_async_send(workers->async);
}

static void *work(void *argument)
{
    struct dl_workers *workers = argument;
    struct dl_model *model = NULL; /* the one that `workspace` is for */
    struct dl_workspace *workspace = NULL;
    pthread_mutex_lock(&workers->mutex);
    for (;;) {
        uint32_t index;
        struct dl_scoring *job = take(workers, &index);
        if (!job) {
            if (workers->stopping) break;
            pthread_cond_wait(&workers->work, &workers->mutex);
            continue;
        }
        pthread_mutex_unlock(&workers->mutex);
        if (job->model != model) {
            dl_workspace_free(workspace);
            dl_model_unref(model);
            model = dl_model_ref(job->model);
            /* A worker without its workspace could only drop work. */
            DL_CHECK(dl_workspace_new(dl_model_get_network(model), &workspace) == DL_OK);
        }
        if (!job->cancelled || !atomic_load(job->cancelled))
            dl_network_score(dl_model_get_network(model), workspace, job->queries[index],
                             job->logits[index], job->attention ? job->attention[index] : NULL);
        pthread_mutex_lock(&workers->mutex);
        if (atomic_fetch_sub(&job->left, 1) == 1) finish(workers, job);
    }
    pthread_mutex_unlock(&workers->mutex);
    dl_workspace_free(workspace);
    dl_model_unref(model);
    return NULL;
}

static void call_back(struct dl_workers *workers)
{
    for (;;) {
        pthread_mutex_lock(&workers->mutex);
        struct dl_scoring *job = pop(&workers->done);
        pthread_mutex_unlock(&workers->mutex);
        if (!job) return;
        workers->pending--;
        job->done(job);
    }
}

static void on_async(uv_async_t *async)
{
    call_back(async->data);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

int dl_workers_new(uv_loop_t *loop, uint32_t count, struct dl_workers **out, struct dl_error *error)
{
    struct dl_workers *workers = calloc(1, sizeof *workers);
    if (!workers) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the workers");
    pthread_mutex_init(&workers->mutex, NULL);
    pthread_cond_init(&workers->work, NULL);
    pthread_cond_init(&workers->finished, NULL);
    workers->threads = calloc(count, sizeof *workers->threads);
    if (!workers->threads) goto fail;
    if (loop) {
        workers->async = malloc(sizeof *workers->async);
        if (!workers->async) goto fail;
        if (uv_async_init(loop, workers->async, on_async) != 0) {
            free(workers->async);
            workers->async = NULL;
            goto fail;
        }
        workers->async->data = workers;
        /* The pool alone keeps no loop running. */
        uv_unref((uv_handle_t *)workers->async);
    }
    for (; workers->count < count; workers->count++)
        if (pthread_create(&workers->threads[workers->count], NULL, work, workers) != 0) goto fail;
    *out = workers;
    return DL_OK;
fail:
    dl_workers_free(workers);
    return dl_error_set(error, DL_ERR_NOMEM, "cannot start %u scoring workers; lower model.workers",
                        count);
}

void dl_workers_free(struct dl_workers *workers)
{
    if (!workers) return;
    pthread_mutex_lock(&workers->mutex);
    workers->stopping = 1;
    /* A job that was begun is finished by whoever holds its queries; the rest is dropped. */
    workers->interactive = workers->batch = (struct list){0};
    pthread_cond_broadcast(&workers->work);
    pthread_mutex_unlock(&workers->mutex);
    for (uint32_t i = 0; i < workers->count; i++) pthread_join(workers->threads[i], NULL);
    if (workers->async) {
        workers->async->data = NULL;
        uv_close((uv_handle_t *)workers->async, on_closed);
    }
    pthread_cond_destroy(&workers->work);
    pthread_cond_destroy(&workers->finished);
    pthread_mutex_destroy(&workers->mutex);
    free(workers->threads);
    free(workers);
}

void dl_workers_submit(struct dl_workers *workers, struct dl_scoring *job)
{
    job->taken = 0;
    job->started_ns = job->ended_ns = 0;
    atomic_init(&job->left, job->query_count);
    workers->pending++;
    pthread_mutex_lock(&workers->mutex);
    if (job->query_count == 0) {
        finish(workers, job);
    } else {
        push(job->interactive ? &workers->interactive : &workers->batch, job);
        pthread_cond_broadcast(&workers->work);
    }
    pthread_mutex_unlock(&workers->mutex);
}

void dl_workers_wait(struct dl_workers *workers)
{
    while (workers->pending) {
        pthread_mutex_lock(&workers->mutex);
        while (!workers->done.first) pthread_cond_wait(&workers->finished, &workers->mutex);
        pthread_mutex_unlock(&workers->mutex);
        call_back(workers);
    }
}

uint32_t dl_workers_pending(const struct dl_workers *workers)
{
    return workers->pending;
}
