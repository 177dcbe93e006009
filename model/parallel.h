/* A small team of threads that works through numbered items. Items are handed
 * out in order to whichever thread is free, so an item's result must depend on
 * the item alone; then results do not depend on the number of threads. */
#ifndef DL_MODEL_PARALLEL_H
#define DL_MODEL_PARALLEL_H

#include <stdint.h>

#define DL_THREADS_MAX 256

struct dl_parallel;

/* `threads` including the caller; 0: one for each processor this process may
 * use. DL_OK, DL_ERR_NOMEM, DL_ERR_UNAVAILABLE (no thread to be had). */
int dl_parallel_new(uint32_t threads, struct dl_parallel **parallel);
void dl_parallel_free(struct dl_parallel *parallel);
uint32_t dl_parallel_threads(const struct dl_parallel *parallel);

/* Calls work(context, item, thread) once for each item in [0, count), thread in
 * [0, threads); returns when all are done. */
void dl_parallel_run(struct dl_parallel *parallel, uint32_t count,
                     void (*work)(void *context, uint32_t item, uint32_t thread), void *context);

#endif
