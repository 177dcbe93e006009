/* The temporal graph: absorbing events, and reading what was absorbed.
 *
 * Happy path of apply: find or make both nodes and make room (all that can
 * fail), then change feed, nodes and pair. Each of the three depends on the
 * event and on itself alone, which is what lets pages be checkpointed at
 * different times (see graph.h). */
#include "base/graph.h"
#include "base/check.h"
#include "base/graph_internal.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

const struct dl_graph_config dl_graph_config_default = {
    .window = 64, .feature_count = 0, .nodes_max = 1u << 24, .pairs_max = 1u << 20};

static const float rate_horizon[DL_RATE_HORIZONS] = {128, 1024, 8192, 65536};

float dl_node_rate_decay(uint64_t age_events, int horizon)
{
    return expf(-(float)age_events / rate_horizon[horizon]);
}

int dl_graph_new(const struct dl_graph_config *config, struct dl_graph **graph,
                 struct dl_error *error)
{
    if (config->window < 1 || config->window > DL_WINDOW_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "window is %u; it must be 1 to %d",
                            config->window, DL_WINDOW_MAX);
    if (config->feature_count > DL_EVENT_FEATURES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "features is %u; at most %d are kept an event",
                            config->feature_count, DL_EVENT_FEATURES_MAX);
    if (config->nodes_max < 1 || config->nodes_max > UINT32_MAX - 1 || config->pairs_max > 1u << 30)
        return dl_error_set(error, DL_ERR_INVALID,
                            "nodes_max is %u and pairs_max %u; nodes_max must be at least 1, "
                            "pairs_max at most %u",
                            config->nodes_max, config->pairs_max, 1u << 30);
    struct dl_graph *g = calloc(1, sizeof *g);
    if (!g) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the graph");
    g->config = *config;
    if (dl_pair_table_init(&g->table, config->pairs_max) != DL_OK) {
        dl_graph_free(g);
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for %u pairs; lower pairs_max",
                            config->pairs_max);
    }
    *graph = g;
    return DL_OK;
}

void dl_graph_free(struct dl_graph *graph)
{
    if (!graph) return;
    dl_slab_deinit(&graph->slab);
    free(graph->pages);
    free(graph->pages_dirty);
    free(graph->destinations);
    dl_pair_table_deinit(&graph->table);
    free(graph);
}

const struct dl_graph_config *dl_graph_get_config(const struct dl_graph *graph)
{
    return &graph->config;
}

const struct dl_feed_state *dl_graph_feed(const struct dl_graph *graph)
{
    return &graph->feed;
}

/* ---- nodes and windows ---------------------------------------------------- */

struct node *dl_graph_node_slot(const struct dl_graph *graph, uint32_t node)
{
    uint32_t page = node / NODES_A_PAGE;
    if (page >= graph->page_count || !graph->pages[page]) return NULL;
    return &graph->pages[page]->nodes[node % NODES_A_PAGE];
}

int dl_graph_node_ensure(struct dl_graph *graph, uint32_t node, struct node **slot)
{
    if (node >= graph->config.nodes_max) return DL_ERR_FULL;
    uint32_t page = node / NODES_A_PAGE;
    if (page >= graph->page_count) {
        uint32_t count = graph->page_count ? graph->page_count : 16;
        while (count <= page) count *= 2;
        struct node_page **pages = realloc(graph->pages, count * sizeof(*pages));
        if (!pages) return DL_ERR_NOMEM;
        graph->pages = pages;
        uint8_t *dirty = realloc(graph->pages_dirty, count);
        if (!dirty) return DL_ERR_NOMEM;
        graph->pages_dirty = dirty;
        memset(pages + graph->page_count, 0, (count - graph->page_count) * sizeof(*pages));
        memset(dirty + graph->page_count, 0, count - graph->page_count);
        graph->page_count = count;
    }
    if (!graph->pages[page]) {
        struct node_page *fresh = dl_slab_take(&graph->slab, sizeof *fresh);
        if (!fresh) return DL_ERR_NOMEM;
        memset(fresh, 0, sizeof *fresh);
        graph->pages[page] = fresh;
    }
    *slot = &graph->pages[page]->nodes[node % NODES_A_PAGE];
    return DL_OK;
}

void dl_graph_mark_node(struct dl_graph *graph, uint32_t node)
{
    uint8_t *dirty = &graph->pages_dirty[node / NODES_A_PAGE];
    if (!*dirty) {
        *dirty = 1;
        graph->dirty_count++;
    }
}

void dl_graph_mark_pair_set(struct dl_graph *graph, uint32_t set)
{
    uint8_t *dirty = &graph->table.dirty[set / SETS_A_PAGE];
    if (!*dirty) {
        *dirty = 1;
        graph->dirty_count++;
    }
}

static uint32_t slot_at(const struct node *node, uint32_t index)
{
    uint32_t at = node->start + index;
    return at < node->capacity ? at : at - node->capacity;
}

size_t dl_graph_window_bytes(const struct dl_graph *graph, uint32_t capacity)
{
    return capacity * (sizeof(struct dl_interaction) + graph->config.feature_count * sizeof(float));
}

int dl_graph_window_reserve(struct dl_graph *graph, struct node *node, uint32_t count)
{
    uint32_t window = graph->config.window, features = graph->config.feature_count;
    if (count > window) count = window;
    if (count <= node->capacity) return DL_OK;
    uint32_t capacity = node->capacity ? node->capacity : 4;
    while (capacity < count) capacity *= 2;
    if (capacity > window) capacity = window;
    struct dl_interaction *ring =
        dl_slab_take(&graph->slab, dl_graph_window_bytes(graph, capacity));
    if (!ring) return DL_ERR_NOMEM;
    float *values = (float *)(ring + capacity);
    for (uint32_t i = 0; i < node->count; i++) {
        uint32_t from = slot_at(node, i);
        ring[i] = node->ring[from];
        if (features)
            memcpy(values + (size_t)i * features, node->features + (size_t)from * features,
                   features * sizeof(float));
    }
    if (node->ring)
        dl_slab_give(&graph->slab, node->ring, dl_graph_window_bytes(graph, node->capacity));
    node->ring = ring;
    node->features = features ? values : NULL;
    node->capacity = capacity;
    node->start = 0;
    return DL_OK;
}

static int is_too_old(const struct dl_graph *graph, int64_t time, int64_t newest)
{
    int64_t age_max = graph->config.age_max;
    return age_max > 0 && newest > time && (uint64_t)newest - (uint64_t)time > (uint64_t)age_max;
}

/* Event-time order, ties by arrival; the oldest goes when the window is full, and
 * all that are too old beside the newest. Depends on the node's own events alone. */
static void window_insert(const struct dl_graph *graph, struct node *node,
                          const struct dl_interaction *interaction, const float *features)
{
    uint32_t fc = graph->config.feature_count;
    if (node->count &&
        is_too_old(graph, interaction->time, node->ring[slot_at(node, node->count - 1)].time))
        return;
    while (node->count && is_too_old(graph, node->ring[node->start].time, interaction->time)) {
        node->start = slot_at(node, 1);
        node->count--;
    }
    uint32_t at = node->count;
    while (at > 0 && node->ring[slot_at(node, at - 1)].time > interaction->time) at--;
    if (node->count == graph->config.window) {
        if (at == 0) return;
        node->start = slot_at(node, 1);
        node->count--;
        at--;
    }
    for (uint32_t i = node->count; i > at; i--) {
        uint32_t to = slot_at(node, i), from = slot_at(node, i - 1);
        node->ring[to] = node->ring[from];
        if (fc)
            memcpy(node->features + (size_t)to * fc, node->features + (size_t)from * fc,
                   fc * sizeof(float));
    }
    uint32_t slot = slot_at(node, at);
    node->ring[slot] = *interaction;
    if (fc) {
        if (features)
            memcpy(node->features + (size_t)slot * fc, features, fc * sizeof(float));
        else
            memset(node->features + (size_t)slot * fc, 0, fc * sizeof(float));
    }
    node->count++;
}

/* The node's group at `ordinal`, made if it belongs among the newest; else NULL. */
static struct dl_group *group_at(struct dl_node_state *state, uint32_t ordinal)
{
    struct dl_group *g = state->groups;
    int at = 0;
    while (at < DL_GROUP_RING && g[at].ordinal > ordinal) at++;
    if (at == DL_GROUP_RING) return NULL;
    if (g[at].ordinal != ordinal) {
        memmove(g + at + 1, g + at, (size_t)(DL_GROUP_RING - 1 - at) * sizeof *g);
        g[at] = (struct dl_group){.ordinal = ordinal};
    }
    return &g[at];
}

/* One more event in the decayed counts that stood as of `last` (if `any`). */
static void rates_add(float rates[DL_RATE_HORIZONS], int any, uint64_t last, uint64_t seq)
{
    for (int h = 0; h < DL_RATE_HORIZONS; h++)
        rates[h] = 1 + (any ? rates[h] * dl_node_rate_decay(seq - last, h) : 0);
}

static void node_state_apply(struct dl_node_state *s, const struct dl_event *event, uint64_t seq,
                             int as_source, int as_destination)
{
    if (s->events == 0) {
        s->first_time = event->time;
        s->first_seq = seq;
    }
    if (s->events == 0 || event->time > s->last_time) s->last_time = event->time;
    s->last_seq = seq;
    s->events++;
    struct dl_group *group = group_at(s, event->ordinal);
    if (as_source) {
        rates_add(s->rate_out, s->events_out > 0, s->last_out_seq, seq);
        if (s->events_out == 0 || event->time > s->last_out_time) s->last_out_time = event->time;
        s->last_out_seq = seq;
        s->events_out++;
        if (group) group->out++;
    }
    if (as_destination) {
        rates_add(s->rate_in, s->events_in > 0, s->last_in_seq, seq);
        if (s->events_in == 0) s->first_in_seq = seq;
        if (s->events_in == 0 || event->time > s->last_in_time) s->last_in_time = event->time;
        s->last_in_seq = seq;
        s->events_in++;
        if (group) {
            if (group->in == 0 || event->weight > group->weight_in_max)
                group->weight_in_max = event->weight;
            group->in++;
        }
    }
}

static void node_apply(struct dl_graph *graph, struct node *node, uint32_t id,
                       const struct dl_event *event, uint64_t seq, int as_source,
                       int as_destination)
{
    struct dl_interaction interaction = {.time = event->time,
                                         .seq = seq,
                                         .peer = as_source ? event->dst : event->src,
                                         .ordinal = event->ordinal,
                                         .weight = event->weight,
                                         .type = event->type,
                                         .out = (uint8_t)as_source};
    if (graph->forgotten_count) dl_graph_sweep_node(graph, node, id);
    window_insert(graph, node, &interaction, event->features);
    node_state_apply(&node->state, event, seq, as_source, as_destination);
    dl_graph_mark_node(graph, id);
}

/* ---- the feed -------------------------------------------------------------- */

uint32_t dl_graph_ordinal_at(const struct dl_graph *graph, int64_t time)
{
    const struct dl_feed_state *feed = &graph->feed;
    if (feed->ordinal == 0 || time > feed->last_time) return feed->ordinal + 1;
    uint32_t kept =
        graph->timestamp_count < TIMESTAMPS_KEPT ? graph->timestamp_count : TIMESTAMPS_KEPT;
    uint32_t ordinal = feed->ordinal;
    for (uint32_t i = 0; i < kept; i++) {
        const struct timestamp *t =
            &graph->timestamps[(graph->timestamp_count - 1 - i) % TIMESTAMPS_KEPT];
        ordinal = t->ordinal;
        if (t->time <= time) break;
    }
    return ordinal;
}

static struct dl_snapshot *snapshot_at(struct dl_feed_state *feed, uint32_t ordinal)
{
    for (int i = 0; i < DL_GROUP_RING; i++)
        if (feed->snapshots[i].ordinal == ordinal) return &feed->snapshots[i];
    return NULL;
}

/* The nodes were changed already: their groups give the snapshot's maxima. */
static void feed_apply(struct dl_graph *graph, const struct dl_event *event, uint64_t seq,
                       const struct dl_node_state *src, const struct dl_node_state *dst)
{
    struct dl_feed_state *feed = &graph->feed;
    if (feed->events == 0) feed->first_time = event->time;
    if (feed->ordinal == 0 || event->time > feed->last_time) {
        feed->last_time = event->time;
        feed->ordinal = event->ordinal;
        memmove(feed->snapshots + 1, feed->snapshots,
                (DL_GROUP_RING - 1) * sizeof *feed->snapshots);
        feed->snapshots[0] = (struct dl_snapshot){.time = event->time, .ordinal = event->ordinal};
        graph->timestamps[graph->timestamp_count++ % TIMESTAMPS_KEPT] =
            (struct timestamp){event->time, event->ordinal};
    }
    struct dl_snapshot *snapshot = snapshot_at(feed, event->ordinal);
    if (snapshot) {
        snapshot->events++;
        for (int i = 0; i < DL_GROUP_RING; i++) {
            if (src->groups[i].ordinal == event->ordinal && src->groups[i].out > snapshot->out_max)
                snapshot->out_max = src->groups[i].out;
            if (dst->groups[i].ordinal == event->ordinal && dst->groups[i].in > snapshot->in_max)
                snapshot->in_max = dst->groups[i].in;
        }
    }
    if (src->first_seq == seq) feed->nodes++;
    if (src != dst && dst->first_seq == seq) feed->nodes++;
    if (dst->first_in_seq == seq) feed->destinations++;
    graph->recent[graph->recent_count++ % RECENT_KEPT] = event->dst;
    feed->events = seq + 1;
    if (!graph->feed_dirty) {
        graph->feed_dirty = 1;
        graph->dirty_count++;
    }
}

/* ---- apply ------------------------------------------------------------------ */

static int ensure_endpoints(struct dl_graph *graph, const struct dl_event *event, struct node **src,
                            struct node **dst)
{
    int status = dl_graph_node_ensure(graph, event->src, src);
    if (status == DL_OK) status = dl_graph_node_ensure(graph, event->dst, dst);
    if (status == DL_OK) status = dl_graph_window_reserve(graph, *src, (*src)->count + 1);
    if (status == DL_OK) status = dl_graph_window_reserve(graph, *dst, (*dst)->count + 1);
    return status;
}

static void apply_nodes(struct dl_graph *graph, const struct dl_event *event, uint64_t seq,
                        struct node *src, struct node *dst, int source_too, int destination_too)
{
    if (src == dst) {
        if (source_too) node_apply(graph, src, event->src, event, seq, 1, 1);
        return;
    }
    if (source_too) node_apply(graph, src, event->src, event, seq, 1, 0);
    if (destination_too) node_apply(graph, dst, event->dst, event, seq, 0, 1);
}

int dl_graph_apply(struct dl_graph *graph, struct dl_event *event)
{
    struct node *src, *dst;
    int status = ensure_endpoints(graph, event, &src, &dst);
    if (status != DL_OK) return status;
    if (graph->feed.destinations == graph->destination_capacity) {
        uint32_t capacity = graph->destination_capacity ? graph->destination_capacity * 2 : 64;
        uint32_t *grown = realloc(graph->destinations, capacity * sizeof *grown);
        if (!grown) return DL_ERR_NOMEM;
        graph->destinations = grown;
        graph->destination_capacity = capacity;
    }
    uint64_t seq = graph->feed.events;
    event->ordinal = dl_graph_ordinal_at(graph, event->time);
    if (dst->state.events_in == 0) graph->destinations[graph->feed.destinations] = event->dst;
    apply_nodes(graph, event, seq, src, dst, 1, 1);
    dl_pair_table_apply(&graph->table, event, seq);
    dl_graph_mark_pair_set(graph, dl_pair_table_set(&graph->table, event->src, event->dst));
    feed_apply(graph, event, seq, &src->state, &dst->state);
    return DL_OK;
}

/* An event touches some dozen cache lines all over the memory. Fetched ahead
 * in two steps, because where a window ends is only known once its node is
 * there, they arrive while earlier events are absorbed. */
enum { FETCH_NODES_AHEAD = 12, FETCH_REST_AHEAD = 6 };

/* Inlined by force: to gcc a function that only prefetches has no effect, and
 * it drops the call. */
#define INLINED static inline __attribute__((always_inline))

INLINED void prefetch_node(const struct dl_graph *graph, uint32_t id)
{
    const char *node = (const char *)dl_graph_node_slot(graph, id);
    if (!node) return;
    for (size_t at = 0; at < sizeof(struct node); at += 64) __builtin_prefetch(node + at, 1);
}

INLINED void prefetch_window(const struct dl_graph *graph, uint32_t id)
{
    const struct node *node = dl_graph_node_slot(graph, id);
    if (!node || node->capacity == 0) return;
    __builtin_prefetch(&node->ring[slot_at(node, node->count % node->capacity)], 1);
    if (node->count) __builtin_prefetch(&node->ring[slot_at(node, node->count - 1)]);
}

/* While `event[0]` is absorbed, what the later ones touch is on its way. */
INLINED void prefetch_ahead(const struct dl_graph *graph, const struct dl_event *event,
                            uint32_t left)
{
    if (left > FETCH_NODES_AHEAD) {
        const struct dl_event *later = event + FETCH_NODES_AHEAD;
        prefetch_node(graph, later->src);
        prefetch_node(graph, later->dst);
        dl_pair_table_prefetch_keys(&graph->table, later);
    }
    if (left > FETCH_REST_AHEAD) {
        const struct dl_event *later = event + FETCH_REST_AHEAD;
        prefetch_window(graph, later->src);
        prefetch_window(graph, later->dst);
        dl_pair_table_prefetch_pair(&graph->table, later);
    }
}

int dl_graph_apply_many(struct dl_graph *graph, struct dl_event *events, uint32_t count,
                        uint32_t *applied)
{
    int status = DL_OK;
    uint32_t i = 0;
    for (; i < count; i++) {
        prefetch_ahead(graph, &events[i], count - i);
        status = dl_graph_apply(graph, &events[i]);
        if (status != DL_OK) break;
    }
    *applied = i;
    return status;
}

int dl_graph_replay(struct dl_graph *graph, const struct dl_event *event, uint64_t seq,
                    struct dl_error *error)
{
    struct node *src, *dst;
    if (seq > graph->feed.events)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "the log jumps to event %llu where %llu should follow",
                            (unsigned long long)seq, (unsigned long long)graph->feed.events);
    int status = ensure_endpoints(graph, event, &src, &dst);
    if (status != DL_OK)
        return dl_error_set(
            error, status, "event %llu of the log names node %u: %s", (unsigned long long)seq,
            event->src > event->dst ? event->src : event->dst, dl_status_name(status));
    apply_nodes(graph, event, seq, src, dst,
                seq >= graph->pages[event->src / NODES_A_PAGE]->current_to,
                seq >= graph->pages[event->dst / NODES_A_PAGE]->current_to);
    uint32_t set = dl_pair_table_set(&graph->table, event->src, event->dst);
    if (seq >= graph->table.current_to[set / SETS_A_PAGE]) {
        dl_pair_table_apply(&graph->table, event, seq);
        dl_graph_mark_pair_set(graph, set);
    }
    if (seq == graph->feed.events) feed_apply(graph, event, seq, &src->state, &dst->state);
    return DL_OK;
}

int dl_graph_replay_many(struct dl_graph *graph, const struct dl_event *events, uint32_t count,
                         uint64_t first_seq, struct dl_error *error)
{
    int status = DL_OK;
    for (uint32_t i = 0; i < count && status == DL_OK; i++) {
        prefetch_ahead(graph, &events[i], count - i);
        status = dl_graph_replay(graph, &events[i], first_seq + i, error);
    }
    return status;
}

/* ---- reading ----------------------------------------------------------------- */

const struct dl_node_state *dl_graph_node(const struct dl_graph *graph, uint32_t node)
{
    const struct node *slot = dl_graph_node_slot(graph, node);
    return slot && slot->state.events ? &slot->state : NULL;
}

uint32_t dl_graph_window(const struct dl_graph *graph, uint32_t node, uint32_t max,
                         struct dl_interaction *out, float *features)
{
    const struct node *slot = dl_graph_node_slot(graph, node);
    if (!slot) return 0;
    uint32_t fc = graph->config.feature_count;
    uint32_t count = 0;
    for (uint32_t i = 0; i < slot->count && count < max; i++) {
        uint32_t from = slot_at(slot, slot->count - 1 - i);
        if (graph->forgotten_count && dl_graph_is_forgotten(graph, slot->ring[from].peer)) continue;
        out[count] = slot->ring[from];
        if (features && fc)
            memcpy(features + (size_t)count * fc, slot->features + (size_t)from * fc,
                   fc * sizeof(float));
        count++;
    }
    return count;
}

int dl_graph_pair(const struct dl_graph *graph, uint32_t u, uint32_t v, struct dl_pair_state *pair)
{
    return dl_pair_table_get(&graph->table, u, v, pair);
}

uint64_t dl_graph_pairs(const struct dl_graph *graph)
{
    return graph->table.count;
}

struct popular {
    uint32_t node, count, newest; /* newest: age in events of the latest */
};

static int by_popularity(const void *a, const void *b)
{
    const struct popular *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->newest < y->newest ? -1 : x->newest > y->newest;
}

uint32_t dl_graph_popular_destinations(const struct dl_graph *graph, uint32_t max, uint32_t *out)
{
    struct popular found[RECENT_KEPT];
    uint16_t slots[2 * RECENT_KEPT] = {0}; /* index + 1 into found */
    uint32_t kept = graph->recent_count < RECENT_KEPT ? (uint32_t)graph->recent_count : RECENT_KEPT;
    uint32_t count = 0;
    for (uint32_t age = 0; age < kept; age++) {
        uint32_t node = graph->recent[(graph->recent_count - 1 - age) % RECENT_KEPT];
        uint32_t at = (uint32_t)dl_mix64(node) % (2 * RECENT_KEPT);
        while (slots[at] && found[slots[at] - 1].node != node) at = (at + 1) % (2 * RECENT_KEPT);
        if (slots[at]) {
            found[slots[at] - 1].count++;
        } else {
            found[count] = (struct popular){node, 1, age};
            slots[at] = (uint16_t)++count;
        }
    }
    qsort(found, count, sizeof *found, by_popularity);
    if (count > max) count = max;
    for (uint32_t i = 0; i < count; i++) out[i] = found[i].node;
    return count;
}

static int by_first_in_seq(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

int dl_graph_destinations_renew(struct dl_graph *graph)
{
    uint32_t count = 0, at = 0;
    for (uint32_t p = 0; p < graph->page_count; p++)
        for (int i = 0; graph->pages[p] && i < NODES_A_PAGE; i++)
            count += graph->pages[p]->nodes[i].state.events_in > 0;
    uint64_t(*order)[2] = malloc((count ? count : 1) * sizeof *order);
    uint32_t *list = malloc((count ? count : 1) * sizeof *list);
    if (!order || !list) {
        free(order);
        free(list);
        return DL_ERR_NOMEM;
    }
    for (uint32_t p = 0; p < graph->page_count; p++) {
        for (uint32_t i = 0; graph->pages[p] && i < NODES_A_PAGE; i++) {
            const struct dl_node_state *state = &graph->pages[p]->nodes[i].state;
            if (state->events_in == 0) continue;
            order[at][0] = state->first_in_seq;
            order[at++][1] = p * NODES_A_PAGE + i;
        }
    }
    qsort(order, count, sizeof *order, by_first_in_seq);
    for (uint32_t i = 0; i < count; i++) list[i] = (uint32_t)order[i][1];
    free(order);
    free(graph->destinations);
    graph->destinations = list;
    graph->destination_capacity = count ? count : 1;
    graph->feed.destinations = count;
    return DL_OK;
}

uint32_t dl_graph_destination(const struct dl_graph *graph, uint32_t index)
{
    DL_CHECK(index < graph->feed.destinations);
    return graph->destinations[index];
}
