/* How long work in this library tells its caller how far it is. */
#ifndef DL_MODEL_PROGRESS_H
#define DL_MODEL_PROGRESS_H

#include <stdint.h>

/* Zero-initialised is silent. Called on the caller's thread only. */
struct dl_progress {
    void *context;
    /* `done` of `total` units ("events", "pairs") of `stage`; often called, so
     * the receiver thins out. */
    void (*advance)(void *context, const char *stage, uint64_t done, uint64_t total,
                    const char *unit);
    /* One finished line for people. */
    void (*note)(void *context, const char *text);
    /* Non-zero: stop soon with DL_ERR_CANCELLED. May be NULL. */
    int (*cancelled)(void *context);
};

static inline void dl_progress_advance(const struct dl_progress *progress, const char *stage,
                                       uint64_t done, uint64_t total, const char *unit)
{
    if (progress && progress->advance)
        progress->advance(progress->context, stage, done, total, unit);
}
static inline int dl_progress_cancelled(const struct dl_progress *progress)
{
    return progress && progress->cancelled && progress->cancelled(progress->context);
}
void dl_progress_note(const struct dl_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
