/* Blocks in a list; what does not fit the newest gets a new one. */
#include "proto/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096
#define ALIGNMENT 16

struct dl_arena_block {
    struct dl_arena_block *older;
    size_t size;
    _Alignas(ALIGNMENT) uint8_t bytes[];
};

void *dl_arena_take(struct dl_arena *arena, size_t size)
{
    if (size > DL_ARENA_BYTES_MAX) return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!arena->blocks || size > arena->blocks->size - arena->used) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        if (room > DL_ARENA_BYTES_MAX - arena->total) return NULL;
        struct dl_arena_block *block = malloc(sizeof *block + room);
        if (!block) return NULL;
        block->older = arena->blocks;
        block->size = room;
        arena->blocks = block;
        arena->used = 0;
        arena->total += room;
    }
    uint8_t *bytes = arena->blocks->bytes + arena->used;
    arena->used += size;
    return memset(bytes, 0, size);
}

void dl_arena_reset(struct dl_arena *arena)
{
    while (arena->blocks && arena->blocks->older) {
        struct dl_arena_block *block = arena->blocks;
        arena->blocks = block->older;
        arena->total -= block->size;
        free(block);
    }
    arena->used = 0;
}

void dl_arena_deinit(struct dl_arena *arena)
{
    dl_arena_reset(arena);
    free(arena->blocks);
    *arena = (struct dl_arena){0};
}
