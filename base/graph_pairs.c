/* The pair table: a set-associative cache of what happened between two nodes.
 * A pair's set is decided by its hash; a full set gives up its least recently
 * used pair. So memory is fixed, and what is kept depends on the events alone. */
#include "base/graph_internal.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

static uint64_t key_of(uint32_t u, uint32_t v)
{
    uint32_t low = u < v ? u : v, high = u < v ? v : u;
    return ((uint64_t)low << 32) | high;
}

int dl_pair_table_init(struct pair_table *table, uint32_t pairs_max)
{
    uint64_t sets = SETS_A_PAGE;
    while (sets * WAYS < pairs_max) sets *= 2;
    table->set_mask = (uint32_t)(sets - 1);
    table->pages = (uint32_t)(sets / SETS_A_PAGE);
    table->entries = sets * WAYS;
    table->keys = dl_table_alloc(table->entries, sizeof *table->keys);
    table->last_seqs = dl_table_alloc(table->entries, sizeof *table->last_seqs);
    table->pairs = dl_table_alloc(table->entries, sizeof *table->pairs);
    table->current_to = calloc(table->pages, sizeof *table->current_to);
    table->dirty = calloc(table->pages, 1);
    if (!table->keys || !table->last_seqs || !table->pairs || !table->current_to || !table->dirty)
        return DL_ERR_NOMEM;
    return DL_OK;
}

void dl_pair_table_deinit(struct pair_table *table)
{
    dl_table_free(table->keys, table->entries, sizeof *table->keys);
    dl_table_free(table->last_seqs, table->entries, sizeof *table->last_seqs);
    dl_table_free(table->pairs, table->entries, sizeof *table->pairs);
    free(table->current_to);
    free(table->dirty);
}

uint32_t dl_pair_table_set(const struct pair_table *table, uint32_t u, uint32_t v)
{
    return (uint32_t)dl_mix64(key_of(u, v)) & table->set_mask;
}

uint64_t dl_pair_last_seq(const struct dl_pair_state *pair)
{
    uint64_t a = pair->count[0] ? pair->last_seq[0] : 0;
    uint64_t b = pair->count[1] ? pair->last_seq[1] : 0;
    return a > b ? a : b;
}

/* Moves the directed flags and the decayed counts on to `ordinal`. */
static void advance(struct dl_pair_state *pair, uint32_t ordinal)
{
    uint32_t lag = ordinal - pair->flags_ordinal;
    for (int d = 0; d < 2; d++) {
        pair->flags[d] = lag < 8 ? (uint8_t)(pair->flags[d] << lag) : 0;
        pair->decayed[d] = lag < 64 ? ldexpf(pair->decayed[d], -(int)lag) : 0;
    }
    pair->flags_ordinal = ordinal;
}

/* The first way that holds `key` (0: that is free), or -1. */
static int find_way(const uint64_t *keys, uint64_t key)
{
    uint32_t found = 0; /* without an early exit, so that the loop becomes vector code */
    for (int i = 0; i < WAYS; i++) found |= (uint32_t)(keys[i] == key) << i;
    return found ? __builtin_ctz(found) : -1;
}

/* The free or, in a full set, the least recently used way. */
static int way_to_use(const struct pair_table *table, size_t first)
{
    const uint64_t *last_seqs = table->last_seqs + first;
    int way = find_way(table->keys + first, 0);
    if (way >= 0) return way;
    way = 0;
    for (int i = 1; i < WAYS; i++)
        if (last_seqs[i] < last_seqs[way]) way = i;
    return way;
}

void dl_pair_table_prefetch_keys(const struct pair_table *table, const struct dl_event *event)
{
    size_t first = (size_t)dl_pair_table_set(table, event->src, event->dst) * WAYS;
    __builtin_prefetch(table->keys + first);
    __builtin_prefetch(table->keys + first + WAYS / 2);
    __builtin_prefetch(table->last_seqs + first, 1);
    __builtin_prefetch(table->last_seqs + first + WAYS / 2, 1);
}

void dl_pair_table_prefetch_pair(const struct pair_table *table, const struct dl_event *event)
{
    size_t first = (size_t)dl_pair_table_set(table, event->src, event->dst) * WAYS;
    int way = find_way(table->keys + first, key_of(event->src, event->dst) + 1);
    if (way < 0) way = way_to_use(table, first);
    const char *pair = (const char *)&table->pairs[first + (size_t)way];
    __builtin_prefetch(pair, 1);
    __builtin_prefetch(pair + sizeof(struct dl_pair_state) - 1, 1);
}

void dl_pair_table_apply(struct pair_table *table, const struct dl_event *event, uint64_t seq)
{
    uint64_t key = key_of(event->src, event->dst) + 1;
    size_t first = (size_t)dl_pair_table_set(table, event->src, event->dst) * WAYS;
    uint64_t *keys = table->keys + first, *last_seqs = table->last_seqs + first;
    int way = find_way(keys, key);
    if (way < 0) {
        way = way_to_use(table, first);
        if (keys[way])
            table->evicted++;
        else
            table->count++;
        keys[way] = key;
        table->pairs[first + (size_t)way] = (struct dl_pair_state){0};
    }
    last_seqs[way] = seq;

    struct dl_pair_state *pair = &table->pairs[first + (size_t)way];
    int d = event->src <= event->dst ? 0 : 1;
    if (pair->count[d] == 0 || event->time >= pair->last_time[d]) {
        pair->last_time[d] = event->time;
        pair->last_ordinal[d] = event->ordinal;
        pair->last_weight[d] = event->weight;
    }
    if (pair->count[d] < UINT32_MAX) pair->count[d]++;
    pair->last_seq[d] = seq;
    if (event->ordinal >= pair->flags_ordinal) advance(pair, event->ordinal);
    uint32_t lag = pair->flags_ordinal - event->ordinal;
    if (lag < 8) pair->flags[d] |= (uint8_t)(1u << lag);
    if (lag < 64) pair->decayed[d] += ldexpf(1, -(int)lag);
}

int dl_pair_table_get(const struct pair_table *table, uint32_t u, uint32_t v,
                      struct dl_pair_state *pair)
{
    uint64_t key = key_of(u, v) + 1;
    size_t first = (size_t)dl_pair_table_set(table, u, v) * WAYS;
    for (size_t i = first; i < first + WAYS; i++) {
        if (table->keys[i] != key) continue;
        *pair = table->pairs[i];
        if (u > v) {
            const struct dl_pair_state *p = &table->pairs[i];
            for (int d = 0; d < 2; d++) {
                pair->count[d] = p->count[1 - d];
                pair->last_ordinal[d] = p->last_ordinal[1 - d];
                pair->last_time[d] = p->last_time[1 - d];
                pair->last_seq[d] = p->last_seq[1 - d];
                pair->last_weight[d] = p->last_weight[1 - d];
                pair->decayed[d] = p->decayed[1 - d];
                pair->flags[d] = p->flags[1 - d];
            }
        }
        return 1;
    }
    *pair = (struct dl_pair_state){0};
    return 0;
}
