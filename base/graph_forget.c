/* Forgetting nodes and edges (graph.h). A node's own things go at once; its peers'
 * windows, which are most of the memory, when their turn comes: in order of pages, or
 * before they change or are written. Reads leave the node out until then. */
#include "base/graph_internal.h"

static int run_names(const struct dl_interaction *run, uint32_t count, uint32_t peer)
{
    int named = 0;
    for (uint32_t i = 0; i < count; i++) named |= run[i].peer == peer;
    return named;
}

/* Most windows do not: without branches it goes at the speed of the memory. */
static int window_names(const struct node *n, uint32_t peer)
{
    uint32_t first = n->capacity - n->start;
    if (first > n->count) first = n->count;
    return run_names(n->ring + n->start, first, peer) || run_names(n->ring, n->count - first, peer);
}

/* Interactions with `forgotten` below `before_seq` leave the node's window. */
static void window_forget(struct dl_graph *graph, struct node *n, uint32_t id, uint32_t forgotten,
                          uint64_t before_seq)
{
    uint32_t fc = graph->config.feature_count, kept = 0;
    if (n->count == 0 || !window_names(n, forgotten)) return;
    for (uint32_t i = 0, from = n->start, to = n->start; i < n->count; i++) {
        if (n->ring[from].peer != forgotten || n->ring[from].seq >= before_seq) {
            if (to != from) {
                n->ring[to] = n->ring[from];
                if (fc)
                    memcpy(n->features + (size_t)to * fc, n->features + (size_t)from * fc,
                           fc * sizeof(float));
            }
            if (++to == n->capacity) to = 0;
            kept++;
        }
        if (++from == n->capacity) from = 0;
    }
    if (kept != n->count) dl_graph_mark_node(graph, id);
    n->count = kept;
}

static void pair_clear(struct dl_graph *graph, size_t at)
{
    struct pair_table *t = &graph->table;
    t->keys[at] = 0;
    t->pairs[at] = (struct dl_pair_state){0};
    t->count--;
    dl_graph_mark_pair_set(graph, (uint32_t)(at / WAYS));
}

static void pairs_forget(struct dl_graph *graph, uint32_t node)
{
    const struct pair_table *t = &graph->table;
    size_t entries = ((size_t)t->set_mask + 1) * WAYS;
    for (size_t at = 0; at < entries; at++) {
        uint64_t key = t->keys[at] - 1;
        if (t->keys[at] && ((uint32_t)(key >> 32) == node || (uint32_t)key == node))
            pair_clear(graph, at);
    }
}

static void destination_forget(struct dl_graph *graph, uint32_t node)
{
    uint32_t *list = graph->destinations, count = graph->feed.destinations, kept = 0;
    if (!list) return; /* dl_graph_replay_end makes it */
    for (uint32_t i = 0; i < count; i++)
        if (list[i] != node) list[kept++] = list[i];
    graph->feed.destinations = kept;
}

static void recent_forget(struct dl_graph *graph, uint32_t node)
{
    uint64_t kept = graph->recent_count < RECENT_KEPT ? graph->recent_count : RECENT_KEPT, to = 0;
    uint32_t recent[RECENT_KEPT];
    for (uint64_t i = graph->recent_count - kept; i < graph->recent_count; i++)
        if (graph->recent[i % RECENT_KEPT] != node) recent[to++] = graph->recent[i % RECENT_KEPT];
    memcpy(graph->recent, recent, to * sizeof *recent);
    graph->recent_count = to;
}

int dl_graph_is_forgotten(const struct dl_graph *graph, uint32_t node)
{
    for (uint32_t i = 0; i < graph->forgotten_count; i++)
        if (graph->forgotten[i] == node) return 1;
    return 0;
}

void dl_graph_sweep_node(struct dl_graph *graph, struct node *node, uint32_t id)
{
    if (id / NODES_A_PAGE < graph->sweep_page) return;
    for (uint32_t i = 0; i < graph->forgotten_count; i++)
        window_forget(graph, node, id, graph->forgotten[i], UINT64_MAX);
}

void dl_graph_sweep_page(struct dl_graph *graph, uint32_t page)
{
    for (uint32_t i = 0; graph->pages[page] && i < NODES_A_PAGE; i++)
        dl_graph_sweep_node(graph, &graph->pages[page]->nodes[i], page * NODES_A_PAGE + i);
}

int dl_graph_forget_step(struct dl_graph *graph, uint32_t pages)
{
    if (graph->forgotten_count == 0) return 0;
    for (; pages > 0 && graph->sweep_page < graph->page_count; pages--) {
        dl_graph_sweep_page(graph, graph->sweep_page);
        graph->sweep_page++;
    }
    if (graph->sweep_page < graph->page_count) return 1;
    graph->forgotten_count = 0;
    return 0;
}

void dl_graph_forget(struct dl_graph *graph, uint32_t node)
{
    struct node *n = dl_graph_node_slot(graph, node);
    if (graph->forgotten_count == FORGOTTEN_MAX || (graph->forgotten_count && graph->sweep_page))
        dl_graph_forget_step(graph, UINT32_MAX); /* the one before goes first */
    graph->forgotten[graph->forgotten_count++] = node;
    graph->sweep_page = 0;
    if (n && n->state.events) {
        destination_forget(graph, node);
        if (n->ring) dl_slab_give(&graph->slab, n->ring, dl_graph_window_bytes(graph, n->capacity));
        *n = (struct node){0};
        dl_graph_mark_node(graph, node);
        graph->feed.nodes--;
    }
    pairs_forget(graph, node);
    recent_forget(graph, node);
    if (!graph->feed_dirty) {
        graph->feed_dirty = 1;
        graph->dirty_count++;
    }
}

void dl_graph_forget_edges(struct dl_graph *graph, uint32_t u, uint32_t v, uint64_t before_seq)
{
    struct node *a = dl_graph_node_slot(graph, u), *b = dl_graph_node_slot(graph, v);
    const struct pair_table *t = &graph->table;
    if (a) window_forget(graph, a, u, v, before_seq);
    if (b && u != v) window_forget(graph, b, v, u, before_seq);
    size_t first = (size_t)dl_pair_table_set(t, u, v) * WAYS;
    for (size_t at = first; at < first + WAYS; at++) {
        uint64_t key = t->keys[at] - 1;
        uint32_t x = (uint32_t)(key >> 32), y = (uint32_t)key;
        if (t->keys[at] == 0 || !((x == u && y == v) || (x == v && y == u))) continue;
        /* One with later events was begun anew since. */
        const struct dl_pair_state *pair = &t->pairs[at];
        if ((pair->count[0] && pair->last_seq[0] >= before_seq) ||
            (pair->count[1] && pair->last_seq[1] >= before_seq))
            continue;
        pair_clear(graph, at);
    }
}
