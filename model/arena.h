/* One block of memory cut into arrays. The same code runs twice: first on an
 * arena without memory, which only measures, then on one that has it. */
#ifndef DL_MODEL_ARENA_H
#define DL_MODEL_ARENA_H

#include <stddef.h>
#include <stdint.h>

#define DL_ARENA_ALIGN 64

struct dl_arena {
    uint8_t *base; /* NULL: measuring */
    size_t used;
};

/* Room for `count` elements of `size` bytes, 64-byte aligned; NULL when measuring. */
static inline void *dl_arena_take(struct dl_arena *arena, size_t count, size_t size)
{
    void *at = arena->base ? arena->base + arena->used : NULL;
    arena->used += (count * size + DL_ARENA_ALIGN - 1) / DL_ARENA_ALIGN * DL_ARENA_ALIGN;
    return at;
}

#endif
