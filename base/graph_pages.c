/* The temporal graph as pages of bytes (see graph.h), and forgetting.
 *
 *   every page   version u8 | current-to u64 | body
 *   feed         counts, times, snapshots, timestamps, recent destinations
 *   nodes        for each node with events: index u8, state, window oldest first
 *   pairs        for each used entry: set u8, way u8, key u64, both directions
 *
 * Integers are little-endian. Reading checks every field that could break the
 * state's rules, so a page that passes can be used without further doubt. */
#include "base/check.h"
#include "base/graph_internal.h"

#include <math.h>
#include <stdlib.h>

#define PAGE_VERSION 1

/* ---- dirty pages --------------------------------------------------------------- */

static uint32_t kind_pages(const struct dl_graph *graph, uint8_t kind)
{
    return kind == DL_PAGE_FEED    ? 1
           : kind == DL_PAGE_NODES ? graph->page_count
                                   : graph->table.pages;
}

static int is_dirty(const struct dl_graph *graph, struct dl_page_id page)
{
    switch (page.kind) {
    case DL_PAGE_FEED:
        return graph->feed_dirty;
    case DL_PAGE_NODES:
        return graph->pages_dirty[page.index];
    default:
        return graph->table.dirty[page.index];
    }
}

uint32_t dl_graph_pages_dirty(const struct dl_graph *graph)
{
    return graph->dirty_count;
}

int dl_graph_page_dirty_next(struct dl_graph *graph, struct dl_page_id *page)
{
    if (graph->dirty_count == 0) return 0;
    struct dl_page_id *at = &graph->cursor;
    for (;;) {
        at->index++;
        while (at->index >= kind_pages(graph, at->kind)) {
            at->kind = (uint8_t)((at->kind + 1) % DL_PAGE_KINDS);
            at->index = 0;
        }
        if (is_dirty(graph, *at)) {
            *page = *at;
            return 1;
        }
    }
}

/* ---- writing --------------------------------------------------------------------- */

static void write_feed(const struct dl_graph *graph, struct dl_buf *out)
{
    const struct dl_feed_state *f = &graph->feed;
    dl_buf_u64(out, f->events);
    dl_buf_u32(out, f->ordinal);
    dl_buf_u32(out, f->nodes);
    dl_buf_u32(out, f->destinations);
    dl_buf_u64(out, (uint64_t)f->first_time);
    dl_buf_u64(out, (uint64_t)f->last_time);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        const struct dl_snapshot *s = &f->snapshots[i];
        dl_buf_u64(out, (uint64_t)s->time);
        dl_buf_u32(out, s->ordinal);
        dl_buf_u32(out, s->events);
        dl_buf_u32(out, s->out_max);
        dl_buf_u32(out, s->in_max);
    }
    dl_buf_u32(out, graph->timestamp_count);
    for (int i = 0; i < TIMESTAMPS_KEPT; i++) {
        dl_buf_u64(out, (uint64_t)graph->timestamps[i].time);
        dl_buf_u32(out, graph->timestamps[i].ordinal);
    }
    dl_buf_u64(out, graph->recent_count);
    for (int i = 0; i < RECENT_KEPT; i++) dl_buf_u32(out, graph->recent[i]);
}

static void write_state(const struct dl_node_state *s, struct dl_buf *out)
{
    dl_buf_u64(out, s->events);
    dl_buf_u64(out, s->events_out);
    dl_buf_u64(out, s->events_in);
    dl_buf_u64(out, (uint64_t)s->first_time);
    dl_buf_u64(out, (uint64_t)s->last_time);
    dl_buf_u64(out, (uint64_t)s->last_out_time);
    dl_buf_u64(out, (uint64_t)s->last_in_time);
    dl_buf_u64(out, s->first_seq);
    dl_buf_u64(out, s->last_seq);
    dl_buf_u64(out, s->last_out_seq);
    dl_buf_u64(out, s->last_in_seq);
    dl_buf_u64(out, s->first_in_seq);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        dl_buf_u32(out, s->groups[i].ordinal);
        dl_buf_u32(out, s->groups[i].out);
        dl_buf_u32(out, s->groups[i].in);
        dl_buf_f32(out, s->groups[i].weight_in_max);
    }
    for (int h = 0; h < DL_RATE_HORIZONS; h++) dl_buf_f32(out, s->rate_out[h]);
    for (int h = 0; h < DL_RATE_HORIZONS; h++) dl_buf_f32(out, s->rate_in[h]);
}

static void write_nodes(const struct dl_graph *graph, uint32_t page, struct dl_buf *out)
{
    uint32_t fc = graph->config.feature_count;
    for (uint32_t i = 0; i < NODES_A_PAGE; i++) {
        const struct node *n = &graph->pages[page]->nodes[i];
        if (n->state.events == 0) continue;
        dl_buf_u8(out, (uint8_t)i);
        write_state(&n->state, out);
        dl_buf_u16(out, (uint16_t)n->count);
        for (uint32_t k = 0; k < n->count; k++) {
            uint32_t slot = (n->start + k) % n->capacity;
            const struct dl_interaction *x = &n->ring[slot];
            dl_buf_u64(out, (uint64_t)x->time);
            dl_buf_u64(out, x->seq);
            dl_buf_u32(out, x->peer);
            dl_buf_u32(out, x->ordinal);
            dl_buf_f32(out, x->weight);
            dl_buf_u16(out, x->type);
            dl_buf_u8(out, x->out);
            for (uint32_t f = 0; f < fc; f++) dl_buf_f32(out, n->features[(size_t)slot * fc + f]);
        }
    }
}

static void write_pairs(const struct dl_graph *graph, uint32_t page, struct dl_buf *out)
{
    const struct pair_table *t = &graph->table;
    for (uint32_t set = 0; set < SETS_A_PAGE; set++) {
        for (uint32_t way = 0; way < WAYS; way++) {
            size_t at = ((size_t)page * SETS_A_PAGE + set) * WAYS + way;
            if (t->keys[at] == 0) continue;
            const struct dl_pair_state *p = &t->pairs[at];
            dl_buf_u8(out, (uint8_t)set);
            dl_buf_u8(out, (uint8_t)way);
            dl_buf_u64(out, t->keys[at]);
            dl_buf_u32(out, p->flags_ordinal);
            for (int d = 0; d < 2; d++) {
                dl_buf_u32(out, p->count[d]);
                dl_buf_u32(out, p->last_ordinal[d]);
                dl_buf_u64(out, (uint64_t)p->last_time[d]);
                dl_buf_u64(out, p->last_seq[d]);
                dl_buf_f32(out, p->last_weight[d]);
                dl_buf_f32(out, p->decayed[d]);
                dl_buf_u8(out, p->flags[d]);
            }
        }
    }
}

void dl_graph_page_write(struct dl_graph *graph, struct dl_page_id page, struct dl_buf *out)
{
    DL_CHECK(page.kind < DL_PAGE_KINDS && page.index < kind_pages(graph, page.kind));
    int was_dirty = is_dirty(graph, page);
    dl_buf_u8(out, PAGE_VERSION);
    dl_buf_u64(out, graph->feed.events);
    if (page.kind == DL_PAGE_FEED) {
        write_feed(graph, out);
        graph->feed_dirty = 0;
    } else if (page.kind == DL_PAGE_NODES) {
        if (graph->pages[page.index]) {
            write_nodes(graph, page.index, out);
            graph->pages_dirty[page.index] = 0;
        }
    } else {
        write_pairs(graph, page.index, out);
        graph->table.dirty[page.index] = 0;
    }
    graph->dirty_count -= (uint32_t)was_dirty;
}

/* ---- reading ---------------------------------------------------------------------- */

static int corrupt(struct dl_error *error, struct dl_page_id page, const char *what)
{
    static const char *const kinds[] = {"feed", "node", "pair"};
    return dl_error_set(error, DL_ERR_CORRUPT, "%s page %u: %s", kinds[page.kind], page.index,
                        what);
}

static int read_feed(struct dl_graph *graph, struct dl_reader *in)
{
    struct dl_feed_state *f = &graph->feed;
    f->events = dl_read_u64(in);
    f->ordinal = dl_read_u32(in);
    f->nodes = dl_read_u32(in);
    f->destinations = dl_read_u32(in);
    f->first_time = (int64_t)dl_read_u64(in);
    f->last_time = (int64_t)dl_read_u64(in);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        struct dl_snapshot *s = &f->snapshots[i];
        s->time = (int64_t)dl_read_u64(in);
        s->ordinal = dl_read_u32(in);
        s->events = dl_read_u32(in);
        s->out_max = dl_read_u32(in);
        s->in_max = dl_read_u32(in);
    }
    graph->timestamp_count = dl_read_u32(in);
    for (int i = 0; i < TIMESTAMPS_KEPT; i++) {
        graph->timestamps[i].time = (int64_t)dl_read_u64(in);
        graph->timestamps[i].ordinal = dl_read_u32(in);
    }
    graph->recent_count = dl_read_u64(in);
    for (int i = 0; i < RECENT_KEPT; i++) graph->recent[i] = dl_read_u32(in);
    return !in->failed;
}

static int all_finite(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

static int read_state(struct dl_node_state *s, struct dl_reader *in)
{
    s->events = dl_read_u64(in);
    s->events_out = dl_read_u64(in);
    s->events_in = dl_read_u64(in);
    s->first_time = (int64_t)dl_read_u64(in);
    s->last_time = (int64_t)dl_read_u64(in);
    s->last_out_time = (int64_t)dl_read_u64(in);
    s->last_in_time = (int64_t)dl_read_u64(in);
    s->first_seq = dl_read_u64(in);
    s->last_seq = dl_read_u64(in);
    s->last_out_seq = dl_read_u64(in);
    s->last_in_seq = dl_read_u64(in);
    s->first_in_seq = dl_read_u64(in);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        s->groups[i].ordinal = dl_read_u32(in);
        s->groups[i].out = dl_read_u32(in);
        s->groups[i].in = dl_read_u32(in);
        s->groups[i].weight_in_max = dl_read_f32(in);
        if (!isfinite(s->groups[i].weight_in_max)) return 0;
        if (i > 0 && s->groups[i].ordinal && s->groups[i].ordinal >= s->groups[i - 1].ordinal)
            return 0;
    }
    for (int h = 0; h < DL_RATE_HORIZONS; h++) s->rate_out[h] = dl_read_f32(in);
    for (int h = 0; h < DL_RATE_HORIZONS; h++) s->rate_in[h] = dl_read_f32(in);
    return !in->failed && s->events > 0 && all_finite(s->rate_out, DL_RATE_HORIZONS) &&
           all_finite(s->rate_in, DL_RATE_HORIZONS);
}

static const char *read_nodes(struct dl_graph *graph, uint32_t page, struct dl_reader *in,
                              int *status)
{
    uint32_t fc = graph->config.feature_count;
    int index_before = -1;
    while (dl_reader_left(in) > 0) {
        struct node *n;
        int index = dl_read_u8(in);
        if (index <= index_before || index >= NODES_A_PAGE) return "node index out of order";
        index_before = index;
        *status = dl_graph_node_ensure(graph, page * NODES_A_PAGE + (uint32_t)index, &n);
        if (*status != DL_OK) return "node id above nodes_max, or out of memory";
        if (!read_state(&n->state, in)) return "node state cut short or out of range";
        uint32_t count = dl_read_u16(in);
        if (in->failed || count > graph->config.window) return "window longer than configured";
        *status = dl_graph_window_reserve(graph, n, count);
        if (*status != DL_OK) return "out of memory for a window";
        n->start = 0;
        n->count = 0;
        for (uint32_t k = 0; k < count; k++) {
            struct dl_interaction x = {.time = (int64_t)dl_read_u64(in)};
            x.seq = dl_read_u64(in);
            x.peer = dl_read_u32(in);
            x.ordinal = dl_read_u32(in);
            x.weight = dl_read_f32(in);
            x.type = dl_read_u16(in);
            x.out = dl_read_u8(in);
            if (in->failed) return "window cut short";
            if (x.peer >= graph->config.nodes_max || x.out > 1 || !isfinite(x.weight) ||
                (k > 0 && x.time < n->ring[k - 1].time))
                return "window entry out of range";
            for (uint32_t f = 0; f < fc; f++) {
                float value = dl_read_f32(in);
                if (!isfinite(value)) return "event feature is not a finite number";
                n->features[(size_t)k * fc + f] = value;
            }
            n->ring[k] = x;
            n->count++;
        }
    }
    return in->failed ? "cut short" : NULL;
}

static const char *read_pairs(struct dl_graph *graph, uint32_t page, struct dl_reader *in)
{
    struct pair_table *t = &graph->table;
    while (dl_reader_left(in) > 0) {
        struct dl_pair_state p = {0};
        uint32_t set = dl_read_u8(in), way = dl_read_u8(in);
        uint64_t key = dl_read_u64(in);
        p.flags_ordinal = dl_read_u32(in);
        for (int d = 0; d < 2; d++) {
            p.count[d] = dl_read_u32(in);
            p.last_ordinal[d] = dl_read_u32(in);
            p.last_time[d] = (int64_t)dl_read_u64(in);
            p.last_seq[d] = dl_read_u64(in);
            p.last_weight[d] = dl_read_f32(in);
            p.decayed[d] = dl_read_f32(in);
            p.flags[d] = dl_read_u8(in);
        }
        if (in->failed) return "cut short";
        if (set >= SETS_A_PAGE || way >= WAYS || key == 0 || !all_finite(p.last_weight, 2) ||
            !all_finite(p.decayed, 2))
            return "pair out of range";
        uint32_t low = (uint32_t)((key - 1) >> 32), high = (uint32_t)(key - 1);
        if (dl_pair_table_set(t, low, high) != page * SETS_A_PAGE + set)
            return "pair in the wrong set; was the store written with another pairs_max?";
        size_t at = ((size_t)page * SETS_A_PAGE + set) * WAYS + way;
        t->count += t->keys[at] == 0;
        t->keys[at] = key;
        t->last_seqs[at] = dl_pair_last_seq(&p);
        t->pairs[at] = p;
    }
    return NULL;
}

int dl_graph_page_read(struct dl_graph *graph, struct dl_page_id page, struct dl_slice bytes,
                       struct dl_error *error)
{
    struct dl_reader in = dl_reader_of(bytes);
    const char *what = NULL;
    int status = DL_OK;
    if (page.kind >= DL_PAGE_KINDS)
        return dl_error_set(error, DL_ERR_CORRUPT, "page of unknown kind %u", page.kind);
    if (dl_read_u8(&in) != PAGE_VERSION) return corrupt(error, page, "unknown version");
    uint64_t current_to = dl_read_u64(&in);
    if (in.failed) return corrupt(error, page, "cut short");
    if (page.kind == DL_PAGE_FEED) {
        if (page.index != 0 || !read_feed(graph, &in) || dl_reader_left(&in) != 0 ||
            graph->feed.events != current_to)
            what = "cut short or out of range";
    } else if (page.kind == DL_PAGE_NODES) {
        struct node *first;
        if (page.index > (UINT32_MAX - 1) / NODES_A_PAGE ||
            (status = dl_graph_node_ensure(graph, page.index * NODES_A_PAGE, &first)) != DL_OK) {
            what = "node id above nodes_max, or out of memory";
        } else {
            what = read_nodes(graph, page.index, &in, &status);
            graph->pages[page.index]->current_to = current_to;
        }
    } else {
        if (page.index >= graph->table.pages) {
            what = "beyond the configured pairs_max";
        } else {
            what = read_pairs(graph, page.index, &in);
            graph->table.current_to[page.index] = current_to;
        }
    }
    if (!what) return DL_OK;
    corrupt(error, page, what);
    return status == DL_ERR_NOMEM ? status : DL_ERR_CORRUPT;
}

int dl_graph_replay_end(struct dl_graph *graph)
{
    /* The destinations' order follows from the nodes; the count with it. */
    return dl_graph_destinations_renew(graph);
}

/* ---- forgetting ---------------------------------------------------------------------- */

static void window_forget(struct dl_graph *graph, struct node *n, uint32_t id, uint32_t forgotten)
{
    uint32_t fc = graph->config.feature_count, kept = 0;
    for (uint32_t i = 0; i < n->count; i++) {
        uint32_t from = (n->start + i) % n->capacity, to = (n->start + kept) % n->capacity;
        if (n->ring[from].peer == forgotten) continue;
        n->ring[to] = n->ring[from];
        if (fc)
            memmove(n->features + (size_t)to * fc, n->features + (size_t)from * fc,
                    fc * sizeof(float));
        kept++;
    }
    if (kept != n->count) dl_graph_mark_node(graph, id);
    n->count = kept;
}

static void pairs_forget(struct dl_graph *graph, uint32_t node)
{
    struct pair_table *t = &graph->table;
    size_t entries = ((size_t)t->set_mask + 1) * WAYS;
    for (size_t at = 0; at < entries; at++) {
        if (t->keys[at] == 0) continue;
        uint64_t key = t->keys[at] - 1;
        if ((uint32_t)(key >> 32) != node && (uint32_t)key != node) continue;
        t->keys[at] = 0;
        t->pairs[at] = (struct dl_pair_state){0};
        t->count--;
        dl_graph_mark_pair_set(graph, (uint32_t)(at / WAYS));
    }
}

int dl_graph_forget(struct dl_graph *graph, uint32_t node)
{
    struct node *n = dl_graph_node_slot(graph, node);
    if (!n || n->state.events == 0) return DL_ERR_NOT_FOUND;
    struct node before = *n;
    *n = (struct node){0};
    if (dl_graph_destinations_renew(graph) != DL_OK) {
        *n = before;
        return DL_ERR_NOMEM;
    }
    if (before.ring)
        dl_slab_give(&graph->slab, before.ring, dl_graph_window_bytes(graph, before.capacity));
    dl_graph_mark_node(graph, node);
    for (uint32_t p = 0; p < graph->page_count; p++)
        for (uint32_t i = 0; graph->pages[p] && i < NODES_A_PAGE; i++)
            window_forget(graph, &graph->pages[p]->nodes[i], p * NODES_A_PAGE + i, node);
    pairs_forget(graph, node);
    uint64_t kept = graph->recent_count < RECENT_KEPT ? graph->recent_count : RECENT_KEPT, to = 0;
    uint32_t recent[RECENT_KEPT];
    for (uint64_t i = graph->recent_count - kept; i < graph->recent_count; i++)
        if (graph->recent[i % RECENT_KEPT] != node) recent[to++] = graph->recent[i % RECENT_KEPT];
    memcpy(graph->recent, recent, to * sizeof *recent);
    graph->recent_count = to;
    graph->feed.nodes--;
    if (!graph->feed_dirty) {
        graph->feed_dirty = 1;
        graph->dirty_count++;
    }
    return DL_OK;
}
