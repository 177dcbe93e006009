/* Makes an allocation of this thread fail on request: ours and those of the
 * libraries that use malloc. The program's malloc, calloc, realloc and
 * aligned_alloc are replaced by ones that count and pass on. */
#ifndef DL_TESTS_FAIL_MALLOC_H
#define DL_TESTS_FAIL_MALLOC_H

#include <stdint.h>

/* 0 in sanitizer builds, which have an allocator of their own: tests that need
 * it must say that they are skipped. */
int fail_malloc_available(void);
/* Allocation number `after` from now on fails (1: the next), once; with
 * `stuck` all later ones too. 0: none. */
void fail_malloc_set(uint64_t after, int stuck);
/* Whether it happened since the last set. */
int fail_malloc_fired(void);

#endif
