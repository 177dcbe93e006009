/* The temporal graph as pages of bytes (see graph.h).
 *
 *   every page   version u8 | current-to u64 | body
 *   feed         counts, times, snapshots, timestamps, recent destinations
 *   nodes        base time; for each node with events: index u8, state, window
 *                oldest first
 *   pairs        base time; for each used entry: set u8, way u8, both ids, the
 *                directions that had events
 *
 * Pages make up most of what a checkpoint writes, so node and pair pages hold
 * varints of differences: to the entry before, to current-to, to the base time
 * (the feed's last). Integers of the feed page are little-endian. Reading checks every field that
 * could break the state's rules, so a page that passes can be used without further doubt. */
#include "base/check.h"
#include "base/graph_internal.h"

#include <math.h>
#include <stdlib.h>

#define PAGE_VERSION 2

/* Of an interaction, and of a direction of a pair: what differs from the usual. */
enum { TAG_OUT = 1, TAG_WEIGHT = 2, TAG_TYPE = 4, TAG_FEATURES = 8, TAGS = 15 };
/* The most that a node's state, an interaction without its features, and a pair take. */
enum {
    STATE_BYTES = 12 * 10 + DL_GROUP_RING * 20 + 8 * DL_RATE_HORIZONS + 8,
    INTERACTION_BYTES = 1 + 10 + 10 + 5 + 10 + 4 + 3,
    PAIR_BYTES = 3 + 5 + 5 + 5 + 2 * (5 + 10 + 10 + 10 + 4 + 4 + 1)
};

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

void dl_graph_pages_dirty_list(const struct dl_graph *graph, struct dl_page_id *pages)
{
    uint32_t count = 0;
    for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++) {
        for (uint32_t index = 0; index < kind_pages(graph, kind); index++) {
            struct dl_page_id page = {kind, index};
            if (is_dirty(graph, page)) pages[count++] = page;
        }
    }
    DL_CHECK(count == graph->dirty_count);
}

int dl_graph_page_is_dirty(const struct dl_graph *graph, struct dl_page_id page)
{
    return is_dirty(graph, page);
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

/* Where differences start. */
struct base {
    uint64_t time, seq;
};

static uint8_t *put_difference(uint8_t *at, uint64_t value, uint64_t from)
{
    return dl_put_varint(at, dl_zigzag(value - from));
}

static uint8_t *put_state(uint8_t *at, const struct dl_node_state *s, struct base base)
{
    at = dl_put_varint(at, s->events);
    at = dl_put_varint(at, s->events_out);
    at = dl_put_varint(at, s->events_in);
    at = put_difference(at, (uint64_t)s->first_time, base.time);
    at = put_difference(at, (uint64_t)s->last_time, base.time);
    at = put_difference(at, (uint64_t)s->last_out_time, base.time);
    at = put_difference(at, (uint64_t)s->last_in_time, base.time);
    at = put_difference(at, s->first_seq, base.seq);
    at = put_difference(at, s->last_seq, base.seq);
    at = put_difference(at, s->last_out_seq, base.seq);
    at = put_difference(at, s->last_in_seq, base.seq);
    at = put_difference(at, s->first_in_seq, base.seq);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        at = dl_put_varint(at, s->groups[i].ordinal);
        if (s->groups[i].ordinal == 0) break; /* newest first: the rest is empty too */
        at = dl_put_varint(at, s->groups[i].out);
        at = dl_put_varint(at, s->groups[i].in);
        at = dl_put_f32(at, s->groups[i].weight_in_max);
    }
    for (int h = 0; h < DL_RATE_HORIZONS; h++) at = dl_put_f32(at, s->rate_out[h]);
    for (int h = 0; h < DL_RATE_HORIZONS; h++) at = dl_put_f32(at, s->rate_in[h]);
    return at;
}

static uint8_t *put_window(uint8_t *at, const struct node *n, uint32_t feature_count,
                           struct base base)
{
    uint32_t ordinal = 0, slot = n->start;
    at = dl_put_varint(at, n->count);
    for (uint32_t k = 0; k < n->count; k++) {
        const struct dl_interaction *x = &n->ring[slot];
        const float *features = feature_count ? n->features + (size_t)slot * feature_count : NULL;
        int any = 0;
        for (uint32_t f = 0; f < feature_count; f++) any |= features[f] != 0;
        uint8_t *tag = at++;
        *tag = (uint8_t)((x->out ? TAG_OUT : 0) | (x->weight != 1.0f ? TAG_WEIGHT : 0) |
                         (x->type ? TAG_TYPE : 0) | (any ? TAG_FEATURES : 0));
        at = put_difference(at, (uint64_t)x->time, base.time);
        at = put_difference(at, x->seq, base.seq);
        at = dl_put_varint(at, x->peer);
        at = put_difference(at, x->ordinal, ordinal);
        if (x->weight != 1.0f) at = dl_put_f32(at, x->weight);
        if (x->type) at = dl_put_varint(at, x->type);
        for (uint32_t f = 0; any && f < feature_count; f++) at = dl_put_f32(at, features[f]);
        base = (struct base){(uint64_t)x->time, x->seq};
        ordinal = x->ordinal;
        if (++slot == n->capacity) slot = 0;
    }
    return at;
}

static void write_nodes(const struct dl_graph *graph, uint32_t page, struct dl_buf *out)
{
    uint32_t fc = graph->config.feature_count;
    struct base base = {(uint64_t)graph->feed.last_time, graph->feed.events};
    dl_buf_u64(out, base.time);
    for (uint32_t i = 0; i < NODES_A_PAGE; i++) {
        const struct node *n = &graph->pages[page]->nodes[i];
        if (n->state.events == 0) continue;
        size_t most = STATE_BYTES + (size_t)n->count * (INTERACTION_BYTES + 4 * (size_t)fc);
        if (dl_buf_reserve(out, most) != DL_OK) return;
        uint8_t *at = out->data + out->size;
        *at++ = (uint8_t)i;
        at = put_state(at, &n->state, base);
        at = put_window(at, n, fc, base);
        out->size = (size_t)(at - out->data);
    }
}

static uint8_t *put_direction(uint8_t *at, const struct dl_pair_state *p, int d, struct base base)
{
    uint8_t *tag = at++;
    *tag = p->last_weight[d] != 1.0f ? TAG_WEIGHT : 0;
    at = dl_put_varint(at, p->count[d]);
    at = put_difference(at, p->last_ordinal[d], p->flags_ordinal);
    at = put_difference(at, (uint64_t)p->last_time[d], base.time);
    at = put_difference(at, p->last_seq[d], base.seq);
    if (p->last_weight[d] != 1.0f) at = dl_put_f32(at, p->last_weight[d]);
    at = dl_put_f32(at, p->decayed[d]);
    *at++ = p->flags[d];
    return at;
}

static void write_pairs(const struct dl_graph *graph, uint32_t page, struct dl_buf *out)
{
    const struct pair_table *t = &graph->table;
    struct base base = {(uint64_t)graph->feed.last_time, graph->feed.events};
    dl_buf_u64(out, base.time);
    for (uint32_t set = 0; set < SETS_A_PAGE; set++) {
        if (dl_buf_reserve(out, (size_t)WAYS * PAIR_BYTES) != DL_OK) return;
        uint8_t *to = out->data + out->size;
        for (uint32_t way = 0; way < WAYS; way++) {
            size_t at = ((size_t)page * SETS_A_PAGE + set) * WAYS + way;
            if (t->keys[at] == 0) continue;
            const struct dl_pair_state *p = &t->pairs[at];
            *to++ = (uint8_t)set;
            *to++ = (uint8_t)way;
            *to++ = (uint8_t)((p->count[0] ? 1 : 0) | (p->count[1] ? 2 : 0));
            to = dl_put_varint(to, (t->keys[at] - 1) >> 32);
            to = dl_put_varint(to, (uint32_t)(t->keys[at] - 1));
            to = dl_put_varint(to, p->flags_ordinal);
            for (int d = 0; d < 2; d++)
                if (p->count[d]) to = put_direction(to, p, d, base);
        }
        out->size = (size_t)(to - out->data);
    }
}

void dl_graph_page_write(struct dl_graph *graph, struct dl_page_id page, struct dl_buf *out)
{
    DL_CHECK(page.kind < DL_PAGE_KINDS && page.index < kind_pages(graph, page.kind));
    if (page.kind == DL_PAGE_NODES && graph->forgotten_count)
        dl_graph_sweep_page(graph, page.index);
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

void dl_graph_page_mark(struct dl_graph *graph, struct dl_page_id page)
{
    DL_CHECK(page.kind < DL_PAGE_KINDS && page.index < kind_pages(graph, page.kind));
    if (is_dirty(graph, page)) return;
    if (page.kind == DL_PAGE_FEED)
        graph->feed_dirty = 1;
    else if (page.kind == DL_PAGE_NODES)
        graph->pages_dirty[page.index] = 1;
    else
        graph->table.dirty[page.index] = 1;
    graph->dirty_count++;
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
    for (int i = 0; i < RECENT_KEPT; i++) {
        graph->recent[i] = dl_read_u32(in);
        if (graph->recent[i] >= graph->config.nodes_max) return 0;
    }
    return !in->failed;
}

static int all_finite(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

static uint64_t take_difference(struct dl_reader *in, uint64_t from)
{
    return from + dl_unzigzag(dl_take_varint(in));
}

static uint32_t take_u32(struct dl_reader *in)
{
    uint64_t value = dl_take_varint(in);
    if (value > UINT32_MAX) in->failed = 1;
    return (uint32_t)value;
}

static int read_state(struct dl_node_state *s, struct dl_reader *in, struct base base)
{
    *s = (struct dl_node_state){.events = dl_take_varint(in)};
    s->events_out = dl_take_varint(in);
    s->events_in = dl_take_varint(in);
    s->first_time = (int64_t)take_difference(in, base.time);
    s->last_time = (int64_t)take_difference(in, base.time);
    s->last_out_time = (int64_t)take_difference(in, base.time);
    s->last_in_time = (int64_t)take_difference(in, base.time);
    s->first_seq = take_difference(in, base.seq);
    s->last_seq = take_difference(in, base.seq);
    s->last_out_seq = take_difference(in, base.seq);
    s->last_in_seq = take_difference(in, base.seq);
    s->first_in_seq = take_difference(in, base.seq);
    for (int i = 0; i < DL_GROUP_RING; i++) {
        struct dl_group *g = &s->groups[i];
        g->ordinal = take_u32(in);
        if (g->ordinal == 0) break;
        g->out = take_u32(in);
        g->in = take_u32(in);
        g->weight_in_max = dl_read_f32(in);
        if (!isfinite(g->weight_in_max) || (i > 0 && g->ordinal >= s->groups[i - 1].ordinal))
            return 0;
    }
    for (int h = 0; h < DL_RATE_HORIZONS; h++) s->rate_out[h] = dl_read_f32(in);
    for (int h = 0; h < DL_RATE_HORIZONS; h++) s->rate_in[h] = dl_read_f32(in);
    return !in->failed && s->events > 0 && all_finite(s->rate_out, DL_RATE_HORIZONS) &&
           all_finite(s->rate_in, DL_RATE_HORIZONS);
}

/* Into a window that is empty and has room for `count`. */
static const char *read_window(const struct dl_graph *graph, struct node *n, uint32_t count,
                               struct dl_reader *in, struct base base)
{
    uint32_t fc = graph->config.feature_count, ordinal = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint8_t tag = dl_read_u8(in);
        struct dl_interaction x = {.time = (int64_t)take_difference(in, base.time),
                                   .out = (tag & TAG_OUT) != 0};
        x.seq = take_difference(in, base.seq);
        x.peer = take_u32(in);
        x.ordinal = (uint32_t)take_difference(in, ordinal);
        x.weight = tag & TAG_WEIGHT ? dl_read_f32(in) : 1.0f;
        uint64_t type = tag & TAG_TYPE ? dl_take_varint(in) : 0;
        x.type = (uint16_t)type;
        if (in->failed) return "window cut short";
        if (tag > TAGS || x.peer >= graph->config.nodes_max || type > UINT16_MAX ||
            !isfinite(x.weight) || (k > 0 && x.time < n->ring[k - 1].time))
            return "window entry out of range";
        for (uint32_t f = 0; f < fc; f++) {
            float value = tag & TAG_FEATURES ? dl_read_f32(in) : 0;
            if (in->failed || !isfinite(value)) return "event feature is not a finite number";
            n->features[(size_t)k * fc + f] = value;
        }
        n->ring[k] = x;
        n->count++;
        base = (struct base){(uint64_t)x.time, x.seq};
        ordinal = x.ordinal;
    }
    return NULL;
}

static const char *read_nodes(struct dl_graph *graph, uint32_t page, struct dl_reader *in,
                              uint64_t current_to, int *status)
{
    int index_before = -1;
    struct base base = {dl_read_u64(in), current_to};
    while (dl_reader_left(in) > 0) {
        struct node *n;
        int index = dl_read_u8(in);
        if (index <= index_before || index >= NODES_A_PAGE) return "node index out of order";
        index_before = index;
        *status = dl_graph_node_ensure(graph, page * NODES_A_PAGE + (uint32_t)index, &n);
        if (*status != DL_OK) return "node id above nodes_max, or out of memory";
        if (!read_state(&n->state, in, base)) return "node state cut short or out of range";
        uint32_t count = take_u32(in);
        if (in->failed || count > graph->config.window) return "window longer than configured";
        *status = dl_graph_window_reserve(graph, n, count);
        if (*status != DL_OK) return "out of memory for a window";
        n->start = 0;
        n->count = 0;
        const char *what = read_window(graph, n, count, in, base);
        if (what) return what;
    }
    return in->failed ? "cut short" : NULL;
}

static void read_direction(struct dl_pair_state *p, int d, struct dl_reader *in, struct base base)
{
    uint8_t tag = dl_read_u8(in);
    p->count[d] = take_u32(in);
    p->last_ordinal[d] = (uint32_t)take_difference(in, p->flags_ordinal);
    p->last_time[d] = (int64_t)take_difference(in, base.time);
    p->last_seq[d] = take_difference(in, base.seq);
    p->last_weight[d] = tag & TAG_WEIGHT ? dl_read_f32(in) : 1.0f;
    p->decayed[d] = dl_read_f32(in);
    p->flags[d] = dl_read_u8(in);
    if (p->count[d] == 0 || (tag & ~TAG_WEIGHT)) in->failed = 1;
}

static const char *read_pairs(struct dl_graph *graph, uint32_t page, struct dl_reader *in,
                              uint64_t current_to)
{
    struct pair_table *t = &graph->table;
    struct base base = {dl_read_u64(in), current_to};
    while (dl_reader_left(in) > 0) {
        struct dl_pair_state p = {0};
        uint32_t set = dl_read_u8(in), way = dl_read_u8(in), directions = dl_read_u8(in);
        uint32_t low = take_u32(in), high = take_u32(in);
        p.flags_ordinal = take_u32(in);
        for (int d = 0; d < 2; d++)
            if (directions >> d & 1) read_direction(&p, d, in, base);
        if (in->failed) return "cut short or out of range";
        if (set >= SETS_A_PAGE || way >= WAYS || directions < 1 || directions > 3 || low > high ||
            high == UINT32_MAX || !all_finite(p.last_weight, 2) || !all_finite(p.decayed, 2))
            return "pair out of range";
        if (dl_pair_table_set(t, low, high) != page * SETS_A_PAGE + set)
            return "pair in the wrong set; was the store written with another pairs_max?";
        size_t at = ((size_t)page * SETS_A_PAGE + set) * WAYS + way;
        t->count += t->keys[at] == 0;
        t->keys[at] = ((uint64_t)low << 32 | high) + 1;
        t->last_seqs[at] = dl_pair_last_seq(&p);
        t->pairs[at] = p;
    }
    return in->failed ? "cut short" : NULL;
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
            what = read_nodes(graph, page.index, &in, current_to, &status);
            graph->pages[page.index]->current_to = current_to;
        }
    } else {
        if (page.index >= graph->table.pages) {
            what = "beyond the configured pairs_max";
        } else {
            what = read_pairs(graph, page.index, &in, current_to);
            graph->table.current_to[page.index] = current_to;
        }
    }
    if (!what) return DL_OK;
    corrupt(error, page, what);
    return status == DL_ERR_NOMEM ? status : DL_ERR_CORRUPT;
}

int dl_graph_replay_end(struct dl_graph *graph)
{
    dl_graph_forget_step(graph, UINT32_MAX);
    /* Forgetting may have come between the writing of the feed's page and the nodes'. */
    graph->feed.nodes = 0;
    for (uint32_t p = 0; p < graph->page_count; p++)
        for (uint32_t i = 0; graph->pages[p] && i < NODES_A_PAGE; i++)
            graph->feed.nodes += graph->pages[p]->nodes[i].state.events > 0;
    /* The destinations' order follows from the nodes; the count with it. */
    return dl_graph_destinations_renew(graph);
}
