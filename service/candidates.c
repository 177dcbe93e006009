/* Candidate generation over windows, peers' windows and recent popularity. */
#include "service/candidates.h"
#include "base/query.h"
#include "base/rng.h"

#include <stdlib.h>

#define OWN_MAX 256  /* interactions of the node's own window that are looked at */
#define PEER_MAX 16  /* interactions of each peer */
#define PEERS_MAX 64 /* distinct peers that are followed */
#define POPULAR_MAX 1024

void dl_candidate_set_deinit(struct dl_candidate_set *set)
{
    free(set->nodes);
    free(set->origins);
    free(set->slots);
    *set = (struct dl_candidate_set){0};
}

/* Room for `capacity` members; keeps those that are there. */
static int reserve(struct dl_candidate_set *set, uint32_t capacity)
{
    if (capacity <= set->capacity) return DL_OK;
    uint32_t mask = 63;
    while (mask < capacity * 2) mask = mask * 2 + 1;
    uint32_t *nodes = realloc(set->nodes, capacity * sizeof *nodes);
    if (nodes) set->nodes = nodes;
    uint8_t *origins = realloc(set->origins, capacity);
    if (origins) set->origins = origins;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!nodes || !origins || !slots) {
        free(slots);
        return DL_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t at = (uint32_t)dl_mix64(nodes[i]) & mask;
        while (slots[at]) at = (at + 1) & mask;
        slots[at] = i + 1;
    }
    free(set->slots);
    set->slots = slots;
    set->slot_mask = mask;
    set->capacity = capacity;
    return DL_OK;
}

/* A known member only gains the origin; a new one needs room below `max`. */
static void add(struct dl_candidate_set *set, uint32_t node, uint8_t origin, uint32_t max)
{
    uint32_t at = (uint32_t)dl_mix64(node) & set->slot_mask;
    while (set->slots[at] && set->nodes[set->slots[at] - 1] != node) at = (at + 1) & set->slot_mask;
    if (set->slots[at]) {
        set->origins[set->slots[at] - 1] |= origin;
    } else if (set->count < max) {
        set->nodes[set->count] = node;
        set->origins[set->count] = origin;
        set->slots[at] = ++set->count;
    }
}

int dl_candidates_begin(struct dl_candidate_set *set, uint32_t capacity)
{
    if (reserve(set, capacity ? capacity : 1) != DL_OK) return DL_ERR_NOMEM;
    set->count = 0;
    memset(set->slots, 0, ((size_t)set->slot_mask + 1) * sizeof *set->slots);
    return DL_OK;
}

int dl_candidates_add(struct dl_candidate_set *set, uint32_t node)
{
    if (set->count >= DL_CANDIDATES_MAX) return DL_ERR_TOO_LARGE;
    if (set->count == set->capacity && reserve(set, set->capacity * 2) != DL_OK)
        return DL_ERR_NOMEM;
    add(set, node, DL_FROM_CALLER, set->capacity);
    return DL_OK;
}

static int was_destination(const struct dl_graph *graph, uint32_t node)
{
    const struct dl_node_state *state = dl_graph_node(graph, node);
    return state && state->events_in > 0;
}

/* Distinct peers of a node, newest first. */
static uint32_t peers_of(const struct dl_graph *graph, uint32_t node, uint32_t interactions,
                         uint32_t *peers, uint32_t max)
{
    struct dl_interaction window[OWN_MAX];
    uint32_t count = dl_graph_window(graph, node, interactions, window, NULL), found = 0;
    for (uint32_t i = 0; i < count && found < max; i++) {
        uint32_t k = 0;
        while (k < found && peers[k] != window[i].peer) k++;
        if (k == found) peers[found++] = window[i].peer;
    }
    return found;
}

int dl_candidates_draw(const struct dl_graph *graph, uint32_t node, int bipartite, uint32_t max,
                       struct dl_candidate_set *set)
{
    struct dl_interaction own[OWN_MAX], theirs[PEER_MAX];
    uint32_t peers[PEERS_MAX], further[PEER_MAX], popular[POPULAR_MAX];
    if (max > DL_CANDIDATES_MAX) max = DL_CANDIDATES_MAX;
    if (dl_candidates_begin(set, max) != DL_OK) return DL_ERR_NOMEM;

    uint32_t own_count = dl_graph_window(graph, node, OWN_MAX, own, NULL);
    for (uint32_t i = 0; i < own_count; i++)
        if (own[i].peer != node && was_destination(graph, own[i].peer))
            add(set, own[i].peer, DL_FROM_WINDOW, max);

    uint32_t peer_count = peers_of(graph, node, OWN_MAX, peers, PEERS_MAX);
    for (uint32_t p = 0; p < peer_count; p++) {
        if (!bipartite) {
            uint32_t count = dl_graph_window(graph, peers[p], PEER_MAX, theirs, NULL);
            for (uint32_t i = 0; i < count; i++)
                if (theirs[i].peer != node && was_destination(graph, theirs[i].peer))
                    add(set, theirs[i].peer, DL_FROM_PEERS, max);
            continue;
        }
        uint32_t middle = peers_of(graph, peers[p], PEER_MAX, further, PEER_MAX);
        for (uint32_t m = 0; m < middle; m++) {
            if (further[m] == node) continue;
            uint32_t count = dl_graph_window(graph, further[m], PEER_MAX / 2, theirs, NULL);
            for (uint32_t i = 0; i < count; i++)
                if (theirs[i].out) add(set, theirs[i].peer, DL_FROM_PEERS, max);
        }
    }

    uint32_t popular_count = dl_graph_popular_destinations(graph, POPULAR_MAX, popular);
    for (uint32_t i = 0; i < popular_count; i++)
        if (popular[i] != node) add(set, popular[i], DL_FROM_POPULAR, max);
    return DL_OK;
}
