/* Blocks of a few sizes out of large chunks, for structures that are made by
 * the hundred thousand and touched at random.
 *
 * Chunks of 2 MiB are asked for as huge pages: a random access then costs one
 * cache miss and not a page walk as well, and fetching ahead works (processors
 * may drop a prefetch that would need a walk). Blocks begin on a cache line.
 * A block that is given back is used again for the same size; chunks go back
 * to the system with the slab alone. Not thread-safe. */
#ifndef DL_BASE_SLAB_H
#define DL_BASE_SLAB_H

#include <stddef.h>

#define DL_SLAB_SIZES_MAX 16

struct dl_slab {
    struct dl_slab_chunk *chunks; /* the one being cut up first */
    size_t used;                  /* bytes of it */
    size_t total;                 /* bytes of all chunks */
    int size_count;
    size_t sizes[DL_SLAB_SIZES_MAX];
    void *unused[DL_SLAB_SIZES_MAX]; /* lists of blocks given back, by size */
};

/* Zero-initialised is empty. */
void dl_slab_deinit(struct dl_slab *slab);
/* Not zeroed. size <= 1 MiB; at most DL_SLAB_SIZES_MAX different ones. NULL:
 * out of memory. */
void *dl_slab_take(struct dl_slab *slab, size_t size);
/* NULL is allowed. `size` as it was taken. */
void dl_slab_give(struct dl_slab *slab, void *block, size_t size);

/* Zeroed memory for one large table; huge pages where it is large enough, and
 * not resident before it is touched. NULL: out of memory. */
void *dl_table_alloc(size_t count, size_t size);
/* NULL is allowed. `count` and `size` as it was allocated. */
void dl_table_free(void *table, size_t count, size_t size);

#endif
