/* Chunks are cut from the front; a chunk's header is its first cache line. */
#include "base/slab.h"
#include "base/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LINE = 64, CHUNK_FIRST = 64 << 10, CHUNK_MOST = 2 << 20, BLOCK_MOST = 1 << 20 };

struct dl_slab_chunk {
    struct dl_slab_chunk *next;
    size_t size;
};

static size_t round_up(size_t size, size_t to)
{
    return (size + to - 1) / to * to;
}

static void *chunk_alloc(size_t size)
{
    void *memory = aligned_alloc(size >= CHUNK_MOST ? CHUNK_MOST : LINE, size);
    if (memory && size >= CHUNK_MOST) (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish */
    return memory;
}

void *dl_table_alloc(size_t count, size_t size)
{
    if (size && count > SIZE_MAX / 2 / size) return NULL;
    if (count * size < CHUNK_MOST) return calloc(count ? count : 1, size ? size : 1);
    /* Fresh pages are zero. One huge page more is mapped, so that an aligned
     * range can be cut out of it. */
    size_t bytes = round_up(count * size, CHUNK_MOST);
    char *mapped =
        mmap(NULL, bytes + CHUNK_MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    char *table = (char *)round_up((uintptr_t)mapped, CHUNK_MOST);
    if (table > mapped) munmap(mapped, (size_t)(table - mapped));
    munmap(table + bytes, CHUNK_MOST - (size_t)(table - mapped));
    (void)madvise(table, bytes, MADV_HUGEPAGE); /* a wish */
    return table;
}

void dl_table_free(void *table, size_t count, size_t size)
{
    if (!table) return;
    if (count * size < CHUNK_MOST)
        free(table);
    else
        munmap(table, round_up(count * size, CHUNK_MOST));
}

void dl_slab_deinit(struct dl_slab *slab)
{
    while (slab->chunks) {
        struct dl_slab_chunk *next = slab->chunks->next;
        free(slab->chunks);
        slab->chunks = next;
    }
    *slab = (struct dl_slab){0};
}

static int size_index(struct dl_slab *slab, size_t size)
{
    int i = 0;
    while (i < slab->size_count && slab->sizes[i] != size) i++;
    if (i == slab->size_count) {
        DL_CHECK(i < DL_SLAB_SIZES_MAX && size <= BLOCK_MOST);
        slab->sizes[slab->size_count++] = size;
    }
    return i;
}

/* Small slabs have small chunks: each as large as all before, up to the most. */
static int add_chunk(struct dl_slab *slab, size_t block)
{
    size_t size = slab->total < CHUNK_FIRST ? CHUNK_FIRST : slab->total;
    if (size > CHUNK_MOST || block + LINE > size) size = CHUNK_MOST;
    struct dl_slab_chunk *chunk = chunk_alloc(size);
    if (!chunk) return 0;
    chunk->next = slab->chunks;
    chunk->size = size;
    slab->chunks = chunk;
    slab->used = LINE;
    slab->total += size;
    return 1;
}

void *dl_slab_take(struct dl_slab *slab, size_t size)
{
    size = round_up(size ? size : 1, LINE);
    int index = size_index(slab, size);
    void *block = slab->unused[index];
    if (block) {
        memcpy(&slab->unused[index], block, sizeof block);
        return block;
    }
    /* What is left of the chunk before is lost: less than a block. */
    if ((!slab->chunks || slab->used + size > slab->chunks->size) && !add_chunk(slab, size))
        return NULL;
    block = (char *)slab->chunks + slab->used;
    slab->used += size;
    return block;
}

void dl_slab_give(struct dl_slab *slab, void *block, size_t size)
{
    if (!block) return;
    int index = size_index(slab, round_up(size ? size : 1, LINE));
    memcpy(block, &slab->unused[index], sizeof block);
    slab->unused[index] = block;
}
