/* Arrays that end at a page that may not be touched, with a canary before them:
 * a kernel that reads or writes past its extent faults, one that writes before
 * it is told by guarded_intact. Their alignment follows from their length. */
#ifndef DL_TESTS_GUARDED_H
#define DL_TESTS_GUARDED_H

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

#define CANARY_BYTES 64
#define CANARY 0xa5

struct guarded {
    uint8_t *memory;
    size_t size; /* of the mapping */
    float *at;   /* (count) */
    size_t count;
};

static inline struct guarded guarded_new(size_t count)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = count * sizeof(float);
    size_t pages = (bytes + CANARY_BYTES + page - 1) / page;
    struct guarded made = {.size = (pages + 1) * page, .count = count};
    made.memory = mmap(NULL, made.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DL_CHECK(made.memory != MAP_FAILED);
    DL_CHECK(mprotect(made.memory + pages * page, page, PROT_NONE) == 0);
    made.at = (float *)(void *)(made.memory + pages * page - bytes);
    memset((uint8_t *)made.at - CANARY_BYTES, CANARY, CANARY_BYTES);
    return made;
}

static inline int guarded_intact(const struct guarded *array)
{
    const uint8_t *canary = (const uint8_t *)array->at - CANARY_BYTES;
    for (int i = 0; i < CANARY_BYTES; i++)
        if (canary[i] != CANARY) return 0;
    return 1;
}

static inline void guarded_free(struct guarded *array)
{
    munmap(array->memory, array->size);
}

#endif
