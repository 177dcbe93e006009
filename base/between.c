/* What two nodes have in common. */
#include "base/between.h"

#include <math.h>
#include <string.h>

#include "base/query.h"
#include "base/rng.h"

enum { OUT = 1, IN = 2 };
enum { PEER_SLOTS = 4 * DL_HISTORY, COMPANY_SLOTS = 2 * DL_COMPANY_PEERS * DL_COMPANY_HISTORY };

/* Distinct nodes by linear counting: a bit for each hash. */
#define SKETCH_WORDS 4

static uint32_t history_of(const struct dl_graph *graph, uint32_t node, uint32_t max,
                           struct dl_interaction *window)
{
    return node == DL_NODE_NONE ? 0 : dl_graph_window(graph, node, max, window, NULL);
}

/* The slot of a peer, or the free one where it would stand. */
static uint8_t *peer_slot(struct dl_between_source *source, uint32_t peer, uint64_t hash)
{
    uint32_t at = (uint32_t)hash % PEER_SLOTS;
    while (source->peer_slots[at] && source->peers[source->peer_slots[at] - 1].peer != peer)
        at = (at + 1) % PEER_SLOTS;
    return &source->peer_slots[at];
}

static uint16_t *company_slot(struct dl_between_source *source, uint32_t node, uint64_t hash)
{
    uint32_t at = (uint32_t)hash % COMPANY_SLOTS;
    while (source->company_slots[at] && source->company[source->company_slots[at] - 1] != node)
        at = (at + 1) % COMPANY_SLOTS;
    return &source->company_slots[at];
}

/* ---- the source's side ------------------------------------------------------------------ */

struct sketch {
    uint64_t bits[2][SKETCH_WORDS];
    uint32_t events[2];
};

static void sketch_add(struct sketch *sketch, int role, uint64_t hash)
{
    sketch->bits[role][hash / 64 % SKETCH_WORDS] |= UINT64_C(1) << (hash % 64);
    sketch->events[role]++;
}

static void sketch_distinct(const struct sketch *sketch, float distinct[2])
{
    for (int role = 0; role < 2; role++) {
        int ones = 0;
        for (int w = 0; w < SKETCH_WORDS; w++) ones += __builtin_popcountll(sketch->bits[role][w]);
        distinct[role] = sketch->events[role] ? (float)ones / (float)sketch->events[role] : 0;
    }
}

static void find_company(struct dl_between_source *source, const struct dl_graph *graph)
{
    struct dl_interaction theirs[DL_COMPANY_HISTORY];
    uint32_t followed = 0;

    for (uint32_t i = 0; i < source->peer_count && followed < DL_COMPANY_PEERS; i++) {
        if (!(source->peers[i].ways & OUT)) continue;
        uint32_t count = history_of(graph, source->peers[i].peer, DL_COMPANY_HISTORY, theirs);
        followed++;
        for (uint32_t k = 0; k < count; k++) {
            if (theirs[k].out || theirs[k].peer == source->node) continue;
            uint16_t *slot = company_slot(source, theirs[k].peer, dl_mix64(theirs[k].peer));
            if (*slot == 0) {
                source->company[source->company_count] = theirs[k].peer;
                source->company_times[source->company_count] = 0;
                *slot = (uint16_t)++source->company_count;
            }
            source->company_times[*slot - 1]++;
        }
    }
}

/* The event before the newest one that named the source's newest destination. */
static void find_order(struct dl_between_source *source, const struct dl_graph *graph,
                       const struct dl_interaction *newest)
{
    struct dl_interaction window[DL_HISTORY];
    uint32_t count = history_of(graph, newest->peer, DL_HISTORY, window);
    for (uint32_t i = 0; i < count; i++) {
        if (window[i].out || window[i].seq >= newest->seq) continue;
        source->has_order = 1;
        source->order_seq = window[i].seq;
        source->order_source = window[i].peer;
        return;
    }
}

void dl_between_begin(struct dl_between_source *source, const struct dl_graph *graph, uint32_t node,
                      uint32_t ordinal)
{
    struct dl_interaction window[DL_HISTORY];
    uint32_t count = history_of(graph, node, DL_HISTORY, window), newest_out = count;
    struct sketch sketch = {0};

    source->node = node;
    source->ordinal = ordinal;
    source->peer_count = source->company_count = 0;
    source->has_order = 0;
    memset(source->peer_slots, 0, sizeof source->peer_slots);
    memset(source->company_slots, 0, sizeof source->company_slots);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = dl_mix64(window[i].peer);
        uint8_t *slot = peer_slot(source, window[i].peer, hash), way = window[i].out ? OUT : IN;
        if (*slot == 0) {
            memset(&source->peers[source->peer_count], 0, sizeof source->peers[0]);
            source->peers[source->peer_count].peer = window[i].peer;
            source->peers[source->peer_count].rank = (uint16_t)i;
            *slot = (uint8_t)++source->peer_count;
        }
        source->peers[*slot - 1].ways |= way;
        if (window[i].ordinal == ordinal) source->peers[*slot - 1].ways_now |= way;
        if (window[i].out && newest_out == count) newest_out = i;
        sketch_add(&sketch, window[i].out ? DL_AS_SOURCE : DL_AS_DESTINATION, hash >> 32);
    }
    sketch_distinct(&sketch, source->distinct);
    if (newest_out == count) return; /* never a source */
    find_company(source, graph);
    find_order(source, graph, &window[newest_out]);
}

/* ---- a candidate ------------------------------------------------------------------------ */

/* `ours` of u and x, `theirs` of v and x. */
static void add_ways(uint16_t ways[DL_WAYS], uint8_t ours, uint8_t theirs)
{
    ways[DL_WAY_FORTH] = (uint16_t)(ways[DL_WAY_FORTH] + ((ours & OUT) && (theirs & IN)));
    ways[DL_WAY_BACK] = (uint16_t)(ways[DL_WAY_BACK] + ((ours & IN) && (theirs & OUT)));
    ways[DL_WAY_CO_SOURCE] = (uint16_t)(ways[DL_WAY_CO_SOURCE] + ((ours & OUT) && (theirs & OUT)));
    ways[DL_WAY_CO_TARGET] = (uint16_t)(ways[DL_WAY_CO_TARGET] + ((ours & IN) && (theirs & IN)));
}

void dl_between_find(struct dl_between_source *source, const struct dl_graph *graph,
                     uint32_t candidate, struct dl_between *between)
{
    struct dl_interaction window[DL_HISTORY];
    uint32_t count = history_of(graph, candidate, DL_HISTORY, window), newest_in = count;
    uint8_t touched[DL_HISTORY];
    uint32_t touched_count = 0, named = 0, of_company = 0, times = 0;
    struct sketch sketch = {0};

    *between = (struct dl_between){0};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t hash = dl_mix64(window[i].peer);
        uint8_t at = *peer_slot(source, window[i].peer, hash), way = window[i].out ? OUT : IN;
        sketch_add(&sketch, window[i].out ? DL_AS_SOURCE : DL_AS_DESTINATION, hash >> 32);
        if (!window[i].out) {
            if (newest_in == count) newest_in = i;
            if (window[i].peer != source->node) {
                uint16_t met = *company_slot(source, window[i].peer, hash);
                named++;
                of_company += met > 0;
                times += met > 0 ? source->company_times[met - 1] : 0;
            }
        }
        if (at == 0) continue;
        if (source->peers[at - 1].theirs == 0) {
            touched[touched_count++] = at;
            between->shared_recent +=
                1 / sqrtf((float)(1 + i) * (float)(1 + source->peers[at - 1].rank));
        }
        source->peers[at - 1].theirs |= way;
        if (window[i].ordinal == source->ordinal) source->peers[at - 1].theirs_now |= way;
    }
    between->shared = (uint16_t)touched_count;
    for (uint32_t i = 0; i < touched_count; i++) {
        uint8_t at = touched[i];
        add_ways(between->ways, source->peers[at - 1].ways, source->peers[at - 1].theirs);
        add_ways(between->ways_now, source->peers[at - 1].ways_now,
                 source->peers[at - 1].theirs_now);
        source->peers[at - 1].theirs = source->peers[at - 1].theirs_now = 0;
    }
    sketch_distinct(&sketch, between->distinct);
    between->company = (float)times;
    if (named) {
        between->company_mean = (float)times / (float)named;
        between->company_share = (float)of_company / (float)named;
    }
    between->has_order = (uint8_t)source->has_order;
    if (!source->has_order || newest_in == count) return;
    between->order = (int64_t)(window[newest_in].seq - source->order_seq);
    between->is_next = between->order == 1;
    between->same_source = window[newest_in].peer == source->order_source;
}
