/* The inside of the temporal graph, shared by graph*.c alone. */
#ifndef DL_BASE_GRAPH_INTERNAL_H
#define DL_BASE_GRAPH_INTERNAL_H

#include "base/graph.h"
#include "base/slab.h"

#define NODES_A_PAGE 64
#define WAYS 16 /* entries of a pair set */
#define SETS_A_PAGE 64
#define TIMESTAMPS_KEPT 64
#define RECENT_KEPT 1024
#define FORGOTTEN_MAX 2 /* a name may be a source and a destination */

/* A node's window is a ring: oldest at `start`, `count` entries, sorted by
 * time. The features of entry i stand at features + i·feature_count. */
struct node {
    struct dl_node_state state;
    struct dl_interaction *ring;
    float *features;
    uint32_t capacity, start, count;
};

struct node_page {
    struct node nodes[NODES_A_PAGE];
    uint64_t current_to; /* for recovery: events below this are in it */
};

/* Direction 0 is from the smaller id to the larger. */
struct pair_table {
    uint32_t set_mask;
    size_t entries;
    uint64_t *keys;              /* (sets, WAYS): key + 1, 0 free */
    uint64_t *last_seqs;         /* (sets, WAYS): of either direction; beside the keys, so that
                                    finding the least recently used reads two lines, not 18 */
    struct dl_pair_state *pairs; /* (sets, WAYS) */
    uint32_t pages;
    uint64_t *current_to; /* (pages) */
    uint8_t *dirty;       /* (pages) */
    uint64_t count, evicted;
};

struct timestamp {
    int64_t time;
    uint32_t ordinal;
};

struct dl_graph {
    struct dl_graph_config config;
    struct dl_feed_state feed;
    uint64_t feed_current_to;
    int feed_dirty;
    struct timestamp timestamps[TIMESTAMPS_KEPT]; /* ring of the newest, by ordinal */
    uint32_t timestamp_count;                     /* ever */
    uint32_t recent[RECENT_KEPT];                 /* ring of the newest events' destinations */
    uint64_t recent_count;                        /* ever */
    struct dl_slab slab;                          /* node pages and windows */
    struct node_page **pages;
    uint8_t *pages_dirty; /* apart from the pages: dense, so it stays in the cache */
    uint32_t page_count;
    uint32_t *destinations; /* (feed.destinations) in order of first_in_seq */
    uint32_t destination_capacity;
    struct pair_table table;
    uint32_t forgotten[FORGOTTEN_MAX]; /* (forgotten_count) windows from sweep_page on may name */
    uint32_t forgotten_count, sweep_page;
    uint32_t dirty_count;
    struct dl_page_id cursor; /* round robin over dirty pages */
};

/* Bytes of a window's block: the ring and, behind it, the features. */
size_t dl_graph_window_bytes(const struct dl_graph *graph, uint32_t capacity);
struct node *dl_graph_node_slot(const struct dl_graph *graph, uint32_t node); /* NULL: no page */
int dl_graph_node_ensure(struct dl_graph *graph, uint32_t node, struct node **slot);
/* Room for one more interaction (and for `count` at least). */
int dl_graph_window_reserve(struct dl_graph *graph, struct node *node, uint32_t count);
void dl_graph_mark_node(struct dl_graph *graph, uint32_t node);
/* While nodes are being forgotten: what the node's window must not hold any more goes. */
void dl_graph_sweep_node(struct dl_graph *graph, struct node *node, uint32_t id);
void dl_graph_sweep_page(struct dl_graph *graph, uint32_t page);
int dl_graph_is_forgotten(const struct dl_graph *graph, uint32_t node);
int dl_graph_destinations_renew(struct dl_graph *graph);

int dl_pair_table_init(struct pair_table *table, uint32_t pairs_max);
void dl_pair_table_deinit(struct pair_table *table);
uint32_t dl_pair_table_set(const struct pair_table *table, uint32_t u, uint32_t v);
uint64_t dl_pair_last_seq(const struct dl_pair_state *pair);
/* Fetches what apply will touch; the second step needs the first to have arrived. */
void dl_pair_table_prefetch_keys(const struct pair_table *table, const struct dl_event *event);
void dl_pair_table_prefetch_pair(const struct pair_table *table, const struct dl_event *event);
void dl_pair_table_apply(struct pair_table *table, const struct dl_event *event, uint64_t seq);
int dl_pair_table_get(const struct pair_table *table, uint32_t u, uint32_t v,
                      struct dl_pair_state *pair);
void dl_graph_mark_pair_set(struct dl_graph *graph, uint32_t set);

#endif
