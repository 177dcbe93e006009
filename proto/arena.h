/* Memory of one decoded message: taken in pieces, given back as a whole.
 * Zero-initialised is empty; one message's memory can be used again for the
 * next. Bounded, so that a hostile message cannot grow it. */
#ifndef DL_PROTO_ARENA_H
#define DL_PROTO_ARENA_H

#include <stddef.h>

#define DL_ARENA_BYTES_MAX (64u * 1024 * 1024)

struct dl_arena_block;

struct dl_arena {
    struct dl_arena_block *blocks; /* newest first */
    size_t used;                   /* of the newest */
    size_t total;                  /* bytes of all blocks */
};

/* Zeroed and aligned to 16 bytes; NULL if there is none or the bound is
 * reached. `size` 0 gives a pointer that may not be read. */
void *dl_arena_take(struct dl_arena *arena, size_t size);
/* Forgets what was taken; keeps one block. */
void dl_arena_reset(struct dl_arena *arena);
void dl_arena_deinit(struct dl_arena *arena);

#endif
