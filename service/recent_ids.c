/* A ring of hashes and an open-addressing table over it. */
#include "service/recent_ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

struct dl_recent_ids {
    uint32_t horizon, count, oldest; /* ring: `count` from `oldest` on */
    uint64_t *ring;                  /* (horizon) */
    uint32_t mask;
    uint32_t *slots; /* place in the ring + 1; 0: free */
};

int dl_recent_ids_new(uint32_t horizon, struct dl_recent_ids **out)
{
    uint32_t slots = 16;
    while (slots < 2 * horizon) slots *= 2;
    struct dl_recent_ids *ids = calloc(1, sizeof *ids);
    if (!ids) return DL_ERR_NOMEM;
    ids->horizon = horizon;
    ids->mask = slots - 1;
    ids->ring = malloc(horizon * sizeof *ids->ring);
    ids->slots = calloc(slots, sizeof *ids->slots);
    if (!ids->ring || !ids->slots) {
        dl_recent_ids_free(ids);
        return DL_ERR_NOMEM;
    }
    *out = ids;
    return DL_OK;
}

void dl_recent_ids_free(struct dl_recent_ids *ids)
{
    if (!ids) return;
    free(ids->ring);
    free(ids->slots);
    free(ids);
}

uint64_t dl_recent_ids_hash(uint64_t key, struct dl_slice id)
{
    uint64_t hash = dl_mix64(key ^ id.size);
    for (size_t i = 0; i < id.size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, id.data + i, id.size - i < 8 ? id.size - i : 8);
        hash = dl_mix64(hash ^ word) + key;
    }
    return hash;
}

static uint32_t find(const struct dl_recent_ids *ids, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & ids->mask;
    while (ids->slots[at] && ids->ring[ids->slots[at] - 1] != hash) at = (at + 1) & ids->mask;
    return at;
}

/* Frees a slot and moves those behind it up, so that no search stops early. */
static void free_slot(struct dl_recent_ids *ids, uint32_t hole)
{
    for (uint32_t at = (hole + 1) & ids->mask; ids->slots[at]; at = (at + 1) & ids->mask) {
        uint32_t home = (uint32_t)ids->ring[ids->slots[at] - 1] & ids->mask;
        if (((at - home) & ids->mask) < ((at - hole) & ids->mask)) continue;
        ids->slots[hole] = ids->slots[at];
        hole = at;
    }
    ids->slots[hole] = 0;
}

int dl_recent_ids_add(struct dl_recent_ids *ids, uint64_t hash)
{
    if (ids->slots[find(ids, hash)]) return 1;
    if (ids->count == ids->horizon) {
        free_slot(ids, find(ids, ids->ring[ids->oldest]));
        ids->oldest = ids->oldest + 1 == ids->horizon ? 0 : ids->oldest + 1;
        ids->count--;
    }
    uint32_t place = (uint32_t)(((uint64_t)ids->oldest + ids->count) % ids->horizon);
    ids->ring[place] = hash;
    ids->count++;
    ids->slots[find(ids, hash)] = place + 1;
    return 0;
}

uint32_t dl_recent_ids_count(const struct dl_recent_ids *ids)
{
    return ids->count;
}
