/* Distinct pairs of a feed: an open-addressing table and, by pair, the events. */
#include "model/pairs.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static uint64_t slot_of(const struct dl_pairs *pairs, uint32_t src, uint32_t dst)
{
    return dl_mix64((uint64_t)src << 32 | dst) & pairs->slot_mask;
}

int dl_pairs_init(struct dl_pairs *pairs, const struct dl_dataset *dataset)
{
    uint64_t count = dataset->event_count, slots = 1024, slot;
    uint64_t *fill = NULL;

    memset(pairs, 0, sizeof *pairs);
    pairs->dataset = dataset;
    while (slots < 2 * count) slots *= 2;
    pairs->slot_mask = slots - 1;
    pairs->slots = calloc(slots, sizeof *pairs->slots);
    pairs->first = malloc(count * sizeof *pairs->first);
    pairs->pair_of = malloc(count * sizeof *pairs->pair_of);
    pairs->occurrences = malloc(count * sizeof *pairs->occurrences);
    if (!pairs->slots || !pairs->first || !pairs->pair_of || !pairs->occurrences)
        return DL_ERR_NOMEM;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t src = dataset->events[i].src, dst = dataset->events[i].dst, pair;
        slot = slot_of(pairs, src, dst);
        while ((pair = pairs->slots[slot]) != 0 &&
               (dl_pairs_src(pairs, pair - 1) != src || dl_pairs_dst(pairs, pair - 1) != dst))
            slot = (slot + 1) & pairs->slot_mask;
        if (pair == 0) {
            pairs->first[pairs->pair_count] = i;
            pair = pairs->slots[slot] = ++pairs->pair_count;
        }
        pairs->pair_of[i] = pair - 1;
    }
    pairs->offset = calloc((uint64_t)pairs->pair_count + 1, sizeof *pairs->offset);
    fill = malloc(pairs->pair_count * sizeof *fill);
    if (!pairs->offset || !fill) {
        free(fill);
        return DL_ERR_NOMEM;
    }
    for (uint64_t i = 0; i < count; i++) pairs->offset[pairs->pair_of[i] + 1]++;
    for (uint32_t p = 0; p < pairs->pair_count; p++) pairs->offset[p + 1] += pairs->offset[p];
    memcpy(fill, pairs->offset, pairs->pair_count * sizeof *fill);
    for (uint64_t i = 0; i < count; i++)
        pairs->occurrences[fill[pairs->pair_of[i]]++] = (uint32_t)i;
    free(fill);
    return DL_OK;
}

void dl_pairs_deinit(struct dl_pairs *pairs)
{
    free(pairs->first);
    free(pairs->offset);
    free(pairs->occurrences);
    free(pairs->pair_of);
    free(pairs->slots);
    memset(pairs, 0, sizeof *pairs);
}

uint32_t dl_pairs_src(const struct dl_pairs *pairs, uint32_t pair)
{
    return pairs->dataset->events[pairs->first[pair]].src;
}

uint32_t dl_pairs_dst(const struct dl_pairs *pairs, uint32_t pair)
{
    return pairs->dataset->events[pairs->first[pair]].dst;
}

uint32_t dl_pairs_find(const struct dl_pairs *pairs, uint32_t src, uint32_t dst)
{
    uint64_t slot;
    uint32_t pair;

    slot = slot_of(pairs, src, dst);
    while ((pair = pairs->slots[slot]) != 0) {
        if (dl_pairs_src(pairs, pair - 1) == src && dl_pairs_dst(pairs, pair - 1) == dst)
            return pair - 1;
        slot = (slot + 1) & pairs->slot_mask;
    }
    return DL_PAIR_NONE;
}

/* Occurrences of the pair with a time below `time`, or up to it. */
static uint64_t occurrences_until(const struct dl_pairs *pairs, uint32_t pair, int64_t time,
                                  int inclusive)
{
    uint64_t low = pairs->offset[pair], high = pairs->offset[pair + 1];

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int64_t at = pairs->dataset->events[pairs->occurrences[middle]].time;
        if (at < time || (inclusive && at == time))
            low = middle + 1;
        else
            high = middle;
    }
    return low - pairs->offset[pair];
}

uint32_t dl_pairs_count(const struct dl_pairs *pairs, uint32_t pair, int64_t from, int64_t to)
{
    if (pair == DL_PAIR_NONE || from > to) return 0;
    return (uint32_t)(occurrences_until(pairs, pair, to, 1) -
                      occurrences_until(pairs, pair, from, 0));
}

uint32_t dl_pairs_before(const struct dl_pairs *pairs, uint64_t event)
{
    uint32_t low = 0, high = pairs->pair_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (pairs->first[middle] < event)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
