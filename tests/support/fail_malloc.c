/* malloc and its family with a countdown, in front of glibc's own. */
#include "tests/support/fail_malloc.h"

#include <errno.h>
#include <stddef.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *block, size_t size);
void *aligned_alloc(size_t alignment, size_t size);

static _Thread_local uint64_t left;
static _Thread_local int stuck_after, fired;

static int fails(void)
{
    if (left > 0 && --left == 0)
        fired = 1;
    else if (!(fired && stuck_after))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __libc_memalign(alignment, size);
}

int fail_malloc_available(void)
{
    return 1;
}

void fail_malloc_set(uint64_t after, int stuck)
{
    left = after;
    stuck_after = stuck;
    fired = 0;
}

int fail_malloc_fired(void)
{
    return fired;
}

#else

int fail_malloc_available(void)
{
    return 0;
}

void fail_malloc_set(uint64_t after, int stuck)
{
    (void)after;
    (void)stuck;
}

int fail_malloc_fired(void)
{
    return 0;
}

#endif
