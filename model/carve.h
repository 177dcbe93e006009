/* One block of memory cut into arrays. The same code runs twice: first on an
 * carve without memory, which only measures, then on one that has it. */
#ifndef DL_MODEL_CARVE_H
#define DL_MODEL_CARVE_H

#include <stddef.h>
#include <stdint.h>

#define DL_CARVE_ALIGN 64

struct dl_carve {
    uint8_t *base; /* NULL: measuring */
    size_t used;
};

/* Room for `count` elements of `size` bytes, 64-byte aligned; NULL when measuring. */
static inline void *dl_carve_take(struct dl_carve *carve, size_t count, size_t size)
{
    void *at = carve->base ? carve->base + carve->used : NULL;
    carve->used += (count * size + DL_CARVE_ALIGN - 1) / DL_CARVE_ALIGN * DL_CARVE_ALIGN;
    return at;
}

#endif
