/* A team of threads: the caller posts a job by raising `generation`, everybody
 * takes items from one counter, the last one out wakes the caller. */
#include "model/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/status.h"

struct member {
    struct dl_parallel *team;
    uint32_t thread;
    pthread_t id;
};

struct dl_parallel {
    pthread_mutex_t lock;
    pthread_cond_t posted, finished;
    uint64_t generation;
    int stopping;
    uint32_t threads, started, busy;
    uint32_t count;
    atomic_uint next;
    void (*work)(void *context, uint32_t item, uint32_t thread);
    void *context;
    struct member *members;
};

static void take_items(struct dl_parallel *team, uint32_t thread)
{
    for (;;) {
        uint32_t item = atomic_fetch_add(&team->next, 1);
        if (item >= team->count) return;
        team->work(team->context, item, thread);
    }
}

static void *member_main(void *argument)
{
    struct member *self = argument;
    struct dl_parallel *team = self->team;
    uint64_t seen = 0;

    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (!team->stopping && team->generation == seen)
            pthread_cond_wait(&team->posted, &team->lock);
        if (team->stopping) break;
        seen = team->generation;
        pthread_mutex_unlock(&team->lock);
        take_items(team, self->thread);
        pthread_mutex_lock(&team->lock);
        if (--team->busy == 0) pthread_cond_signal(&team->finished);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static uint32_t processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (uint32_t)count : 1;
}

int dl_parallel_new(uint32_t threads, struct dl_parallel **parallel)
{
    struct dl_parallel *team = calloc(1, sizeof *team);
    if (!team) return DL_ERR_NOMEM;
    team->threads = threads ? threads : processors();
    if (team->threads > DL_THREADS_MAX) team->threads = DL_THREADS_MAX;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->posted, NULL);
    pthread_cond_init(&team->finished, NULL);
    team->started = 1;
    team->members = calloc(team->threads, sizeof *team->members);
    if (!team->members) {
        dl_parallel_free(team);
        return DL_ERR_NOMEM;
    }
    for (uint32_t i = 1; i < team->threads; i++) {
        team->members[i].team = team;
        team->members[i].thread = i;
        if (pthread_create(&team->members[i].id, NULL, member_main, &team->members[i]) != 0) {
            dl_parallel_free(team);
            return DL_ERR_UNAVAILABLE;
        }
        team->started++;
    }
    *parallel = team;
    return DL_OK;
}

void dl_parallel_free(struct dl_parallel *parallel)
{
    if (!parallel) return;
    pthread_mutex_lock(&parallel->lock);
    parallel->stopping = 1;
    pthread_cond_broadcast(&parallel->posted);
    pthread_mutex_unlock(&parallel->lock);
    for (uint32_t i = 1; i < parallel->started; i++) pthread_join(parallel->members[i].id, NULL);
    pthread_cond_destroy(&parallel->posted);
    pthread_cond_destroy(&parallel->finished);
    pthread_mutex_destroy(&parallel->lock);
    free(parallel->members);
    free(parallel);
}

uint32_t dl_parallel_threads(const struct dl_parallel *parallel)
{
    return parallel->threads;
}

void dl_parallel_run(struct dl_parallel *parallel, uint32_t count,
                     void (*work)(void *context, uint32_t item, uint32_t thread), void *context)
{
    if (parallel->threads == 1 || count < 2) {
        for (uint32_t item = 0; item < count; item++) work(context, item, 0);
        return;
    }
    pthread_mutex_lock(&parallel->lock);
    parallel->work = work;
    parallel->context = context;
    parallel->count = count;
    atomic_store(&parallel->next, 0);
    parallel->busy = parallel->threads - 1;
    parallel->generation++;
    pthread_cond_broadcast(&parallel->posted);
    pthread_mutex_unlock(&parallel->lock);

    take_items(parallel, 0);

    pthread_mutex_lock(&parallel->lock);
    while (parallel->busy > 0) pthread_cond_wait(&parallel->finished, &parallel->lock);
    pthread_mutex_unlock(&parallel->lock);
}
