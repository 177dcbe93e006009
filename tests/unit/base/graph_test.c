/* The temporal graph against a trivial model that keeps every event. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/graph.h"
#include "base/query.h"
#include "base/rng.h"

#define NODES 40
#define EVENTS 3000
#define W 8

static const struct dl_graph_config small = {
    .window = W, .feature_count = 2, .nodes_max = 1000, .pairs_max = 4096};

static struct dl_graph *graph_new(const struct dl_graph_config *config)
{
    struct dl_graph *graph = NULL;
    struct dl_error error;
    cr_assert_eq(dl_graph_new(config, &graph, &error), DL_OK);
    return graph;
}

/* Mostly in order, some equal times, some late, some self-loops. */
static void make_feed(uint64_t seed, struct dl_event *events, float (*features)[2])
{
    struct dl_rng rng;
    int64_t now = 100;
    dl_rng_seed(&rng, seed);
    for (int i = 0; i < EVENTS; i++) {
        now += (int64_t)dl_rng_below(&rng, 3);
        int64_t time = dl_rng_below(&rng, 10) == 0 ? now - (int64_t)dl_rng_below(&rng, 50) : now;
        features[i][0] = (float)i;
        features[i][1] = -(float)i;
        events[i] = (struct dl_event){.time = time,
                                      .src = (uint32_t)dl_rng_below(&rng, NODES),
                                      .dst = (uint32_t)dl_rng_below(&rng, NODES / 2),
                                      .type = (uint16_t)dl_rng_below(&rng, 3),
                                      .weight = (float)dl_rng_uniform(&rng),
                                      .features = features[i]};
    }
}

static struct dl_event events[EVENTS];
static float features[EVENTS][2];

static int newest_first(const void *a, const void *b)
{
    const struct dl_event *x = &events[*(const int *)a], *y = &events[*(const int *)b];
    if (x->time != y->time) return x->time > y->time ? -1 : 1;
    return *(const int *)a > *(const int *)b ? -1 : 1;
}

static void check_window(const struct dl_graph *graph, uint32_t node, int count)
{
    int mine[EVENTS], n = 0;
    struct dl_interaction window[W];
    float values[W * 2];
    for (int i = 0; i < count; i++)
        if (events[i].src == node || events[i].dst == node) mine[n++] = i;
    qsort(mine, (size_t)n, sizeof *mine, newest_first);
    if (n > W) n = W;
    int64_t age_max = dl_graph_get_config(graph)->age_max;
    while (age_max && n && events[mine[0]].time - events[mine[n - 1]].time > age_max) n--;
    cr_assert_eq(dl_graph_window(graph, node, W, window, values), (uint32_t)n);
    for (int k = 0; k < n; k++) {
        const struct dl_event *e = &events[mine[k]];
        cr_assert_eq(window[k].seq, (uint64_t)mine[k], "node %u entry %d", node, k);
        cr_assert_eq(window[k].time, e->time);
        cr_assert_eq(window[k].out, e->src == node);
        cr_assert_eq(window[k].peer, e->src == node ? e->dst : e->src);
        cr_assert_eq(window[k].type, e->type);
        cr_assert_eq(window[k].weight, e->weight);
        cr_assert_eq(values[2 * k], (float)mine[k]);
    }
}

Test(graph, windows_and_pairs_equal_those_of_a_model_that_keeps_everything)
{
    struct dl_graph *graph = graph_new(&small);
    make_feed(1, events, features);
    for (int i = 0; i < EVENTS; i++) {
        cr_assert_eq(dl_graph_apply(graph, &events[i]), DL_OK);
        if (i % 97 == 0)
            for (uint32_t node = 0; node < NODES; node++) check_window(graph, node, i + 1);
    }
    for (uint32_t u = 0; u < NODES; u++) {
        for (uint32_t v = 0; v < NODES; v++) {
            struct dl_pair_state pair;
            uint32_t there = 0, back = 0;
            for (int i = 0; i < EVENTS; i++) {
                there += events[i].src == u && events[i].dst == v;
                back += u != v && events[i].src == v && events[i].dst == u;
            }
            cr_assert_eq(dl_graph_pair(graph, u, v, &pair), there + back > 0);
            cr_assert_eq(pair.count[0], there);
            cr_assert_eq(pair.count[1], back);
        }
        const struct dl_node_state *state = dl_graph_node(graph, u);
        uint64_t out = 0, in = 0, all = 0;
        for (int i = 0; i < EVENTS; i++) {
            out += events[i].src == u;
            in += events[i].dst == u;
            all += events[i].src == u || events[i].dst == u;
        }
        cr_assert_eq(state ? state->events_out : 0, out);
        cr_assert_eq(state ? state->events_in : 0, in);
        cr_assert_eq(state ? state->events : 0, all);
    }
    dl_graph_free(graph);
}

Test(graph, what_is_too_old_beside_a_nodes_newest_leaves_its_window)
{
    struct dl_graph_config config = small;
    config.age_max = 60;
    struct dl_graph *graph = graph_new(&config);
    uint32_t shortest = W;
    make_feed(6, events, features);
    for (int i = 0; i < EVENTS; i++) {
        cr_assert_eq(dl_graph_apply(graph, &events[i]), DL_OK);
        if (i % 97 == 0)
            for (uint32_t node = 0; node < NODES; node++) check_window(graph, node, i + 1);
    }
    for (uint32_t node = 0; node < NODES; node++) {
        struct dl_interaction window[W];
        uint32_t n = dl_graph_window(graph, node, W, window, NULL);
        if (n < shortest) shortest = n;
    }
    cr_assert_lt(shortest, W, "the test drops nothing");
    dl_graph_free(graph);
}

Test(graph, destination_list_is_in_order_of_first_appearance)
{
    struct dl_graph *graph = graph_new(&small);
    make_feed(2, events, features);
    uint32_t order[NODES], n = 0;
    for (int i = 0; i < EVENTS; i++) {
        uint32_t k = 0;
        while (k < n && order[k] != events[i].dst) k++;
        if (k == n) order[n++] = events[i].dst;
        dl_graph_apply(graph, &events[i]);
    }
    cr_assert_eq(dl_graph_feed(graph)->destinations, n);
    for (uint32_t k = 0; k < n; k++) cr_assert_eq(dl_graph_destination(graph, k), order[k]);
    dl_graph_free(graph);
}

Test(graph, rates_equal_the_sum_of_decayed_events)
{
    struct dl_graph *graph = graph_new(&small);
    make_feed(3, events, features);
    for (int i = 0; i < 500; i++) dl_graph_apply(graph, &events[i]);
    for (uint32_t node = 0; node < NODES; node++) {
        const struct dl_node_state *s = dl_graph_node(graph, node);
        if (!s || !s->events_in) continue;
        for (int h = 0; h < DL_RATE_HORIZONS; h++) {
            double horizon = pow(2, 7 + 3 * h), sum = 0;
            for (int i = 0; i < 500; i++)
                if (events[i].dst == node) sum += exp(-(double)(499 - i) / horizon);
            double got = s->rate_in[h] * dl_node_rate_decay(499 - s->last_in_seq, h);
            cr_assert_float_eq(got, sum, 1e-4 * (1 + sum));
        }
    }
    dl_graph_free(graph);
}

static void pages_equal(struct dl_graph *a, struct dl_graph *b)
{
    struct dl_buf x = {0}, y = {0};
    for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++) {
        for (uint32_t index = 0; index < (kind == DL_PAGE_PAIRS ? 4u : 1u); index++) {
            struct dl_page_id page = {kind, index};
            dl_buf_clear(&x);
            dl_buf_clear(&y);
            dl_graph_page_write(a, page, &x);
            dl_graph_page_write(b, page, &y);
            cr_assert(dl_slice_equal(dl_buf_slice(&x), dl_buf_slice(&y)), "kind %u page %u differs",
                      kind, index);
        }
    }
    dl_buf_free(&x);
    dl_buf_free(&y);
}

/* Pages written at different times, then the log from the oldest needed event
 * on: the state equals that of a run without interruption. */
Test(graph, recovers_from_pages_of_different_age_and_the_log)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct dl_graph *live = graph_new(&small), *again = graph_new(&small);
        struct dl_rng rng;
        struct dl_buf stored[DL_PAGE_KINDS][4] = {0};
        uint64_t round_started = 0, replay_from = 0;
        uint32_t round_left = 0;
        struct dl_error error;
        dl_rng_seed(&rng, seed);
        make_feed(seed + 10, events, features);
        for (int i = 0; i < EVENTS; i++) {
            cr_assert_eq(dl_graph_apply(live, &events[i]), DL_OK);
            struct dl_page_id page;
            if (dl_rng_below(&rng, 5) || !dl_graph_page_dirty_next(live, &page)) continue;
            if (round_left == 0) { /* a new round: all that is dirty now gets its turn */
                replay_from = round_started;
                round_started = dl_graph_feed(live)->events;
                round_left = dl_graph_pages_dirty(live);
            }
            dl_buf_clear(&stored[page.kind][page.index]);
            dl_graph_page_write(live, page, &stored[page.kind][page.index]);
            round_left--;
        }
        for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++)
            for (uint32_t index = 0; index < 4; index++)
                if (stored[kind][index].size)
                    cr_assert_eq(dl_graph_page_read(again, (struct dl_page_id){kind, index},
                                                    dl_buf_slice(&stored[kind][index]), &error),
                                 DL_OK, "%s", error.text);
        for (uint64_t seq = replay_from; seq < EVENTS; seq++)
            cr_assert_eq(dl_graph_replay(again, &events[seq], seq, &error), DL_OK, "%s",
                         error.text);
        cr_assert_eq(dl_graph_replay_end(again), DL_OK);
        cr_assert_gt(replay_from, 0, "the test did not exercise pages");
        pages_equal(live, again);
        for (uint32_t k = 0; k < dl_graph_feed(live)->destinations; k++)
            cr_assert_eq(dl_graph_destination(live, k), dl_graph_destination(again, k));
        for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++)
            for (uint32_t index = 0; index < 4; index++) dl_buf_free(&stored[kind][index]);
        dl_graph_free(live);
        dl_graph_free(again);
    }
}

Test(graph, refuses_every_truncation_of_a_page)
{
    struct dl_graph *graph = graph_new(&small);
    make_feed(4, events, features);
    for (int i = 0; i < 200; i++) dl_graph_apply(graph, &events[i]);
    for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++) {
        struct dl_buf bytes = {0};
        struct dl_error error;
        struct dl_page_id page = {kind, 0};
        dl_graph_page_write(graph, page, &bytes);
        int refused = 0;
        for (size_t size = 0; size < bytes.size; size++) {
            struct dl_graph *other = graph_new(&small);
            refused += dl_graph_page_read(other, page, dl_slice_of(bytes.data, size), &error) != 0;
            dl_graph_free(other);
        }
        /* Node and pair pages may end between two entries. */
        cr_assert_geq(refused, kind == DL_PAGE_FEED ? (int)bytes.size : (int)bytes.size / 2);
        dl_buf_free(&bytes);
    }
    dl_graph_free(graph);
}

Test(graph, a_gap_in_the_log_is_corruption)
{
    struct dl_graph *graph = graph_new(&small);
    struct dl_error error;
    make_feed(5, events, features);
    cr_assert_eq(dl_graph_replay(graph, &events[0], 1, &error), DL_ERR_CORRUPT);
    dl_graph_free(graph);
}

static void assert_forgotten(const struct dl_graph *graph, uint32_t gone)
{
    struct dl_interaction window[W];
    struct dl_pair_state pair;
    cr_assert_null(dl_graph_node(graph, gone));
    for (uint32_t node = 0; node < NODES; node++) {
        uint32_t count = dl_graph_window(graph, node, W, window, NULL);
        for (uint32_t k = 0; k < count; k++) cr_assert_neq(window[k].peer, gone);
        cr_assert_eq(dl_graph_pair(graph, gone, node, &pair), 0);
    }
}

Test(graph, forgets_a_node_everywhere)
{
    struct dl_graph *graph = graph_new(&small);
    make_feed(6, events, features);
    for (int i = 0; i < 1000; i++) dl_graph_apply(graph, &events[i]);
    uint32_t destinations = dl_graph_feed(graph)->destinations;
    dl_graph_forget(graph, 3);
    dl_graph_forget(graph, 3);
    assert_forgotten(graph, 3);
    cr_assert_eq(dl_graph_feed(graph)->destinations, destinations - 1);
    while (dl_graph_forget_step(graph, 1)) assert_forgotten(graph, 3);
    assert_forgotten(graph, 3);
    for (int i = 1000; i < 1200; i++) cr_assert_eq(dl_graph_apply(graph, &events[i]), DL_OK);
    dl_graph_free(graph);
}

static void assert_same_page(struct dl_graph *at_once, struct dl_graph *by_and_by,
                             struct dl_page_id page)
{
    struct dl_buf a = {0}, b = {0};
    dl_graph_page_write(at_once, page, &a);
    dl_graph_page_write(by_and_by, page, &b);
    cr_assert(dl_slice_equal(dl_buf_slice(&a), dl_buf_slice(&b)), "page %u of kind %u", page.index,
              page.kind);
    dl_graph_page_mark(at_once, page);
    dl_graph_page_mark(by_and_by, page);
    dl_buf_free(&a);
    dl_buf_free(&b);
}

/* However far the windows were looked through when events and pages came. */
Test(graph, forgetting_by_and_by_is_forgetting_at_once)
{
    make_feed(7, events, features);
    for (int every = 1; every < 40; every += 6) {
        struct dl_graph *at_once = graph_new(&small), *by_and_by = graph_new(&small);
        struct dl_page_id page;
        for (int i = 0; i < 800; i++) {
            dl_graph_apply(at_once, &events[i]);
            dl_graph_apply(by_and_by, &events[i]);
        }
        for (uint32_t node = 3; node < 5; node++) {
            dl_graph_forget(at_once, node);
            dl_graph_forget(by_and_by, node);
        }
        while (dl_graph_forget_step(at_once, UINT32_MAX)) continue;
        for (int i = 800; i < 1000; i++) {
            if (events[i].src == 3 || events[i].dst == 3) continue;
            if (events[i].src == 4 || events[i].dst == 4) continue;
            dl_graph_apply(at_once, &events[i]);
            dl_graph_apply(by_and_by, &events[i]);
            if (i % every == 0) dl_graph_forget_step(by_and_by, 1);
            if (i % 10 == 0 && dl_graph_page_dirty_next(by_and_by, &page))
                assert_same_page(at_once, by_and_by, page);
        }
        uint32_t pages = dl_graph_pages_dirty(at_once);
        cr_assert_eq(dl_graph_pages_dirty(by_and_by), pages);
        for (uint32_t i = 0; i < pages; i++) {
            cr_assert(dl_graph_page_dirty_next(at_once, &page));
            assert_same_page(at_once, by_and_by, page);
        }
        dl_graph_free(at_once);
        dl_graph_free(by_and_by);
    }
}

Test(graph, popular_destinations_come_most_frequent_first)
{
    struct dl_graph *graph = graph_new(&small);
    uint32_t named[] = {1, 2, 2, 3, 3, 3, 1, 2, 2}, out[8];
    for (int i = 0; i < 9; i++) {
        struct dl_event e = {.time = i, .src = 0, .dst = named[i], .weight = 1};
        dl_graph_apply(graph, &e);
    }
    cr_assert_eq(dl_graph_popular_destinations(graph, 8, out), 3u);
    cr_assert_eq(out[0], 2u);
    cr_assert_eq(out[1], 3u);
    cr_assert_eq(out[2], 1u);
    dl_graph_free(graph);
}

Test(graph, refuses_a_node_above_the_maximum_and_changes_nothing)
{
    struct dl_graph *graph = graph_new(&small);
    struct dl_event e = {.time = 1, .src = 0, .dst = 1000, .weight = 1};
    cr_assert_eq(dl_graph_apply(graph, &e), DL_ERR_FULL);
    cr_assert_eq(dl_graph_feed(graph)->events, 0u);
    cr_assert_null(dl_graph_node(graph, 0));
    dl_graph_free(graph);
}

Test(query, copies_what_the_graph_held_when_it_was_made)
{
    struct dl_graph *graph = graph_new(&small);
    struct dl_query query = {0}, copy;
    make_feed(7, events, features);
    for (int i = 0; i < 300; i++) dl_graph_apply(graph, &events[i]);
    cr_assert_eq(dl_query_begin(&query, graph, 4, 5, 10000), DL_OK);
    for (uint32_t v = 0; v < 20; v++) cr_assert_eq(dl_query_add(&query, graph, v), DL_OK);
    cr_assert_eq(dl_query_add(&query, graph, DL_NODE_NONE), DL_OK);
    cr_assert_eq(dl_query_copy(&query, &copy), DL_OK);
    cr_assert_eq(query.ordinal, dl_graph_feed(graph)->ordinal + 1);
    for (int i = 300; i < 600; i++) dl_graph_apply(graph, &events[i]);
    for (uint32_t v = 0; v < 20; v++) {
        const struct dl_side *side = &copy.candidates[v];
        int n = 0, mine[EVENTS];
        for (int i = 0; i < 300; i++)
            if (events[i].src == v || events[i].dst == v) mine[n++] = i;
        qsort(mine, (size_t)n, sizeof *mine, newest_first);
        cr_assert_eq(side->window_count, (uint32_t)(n < 4 ? n : 4));
        for (uint32_t k = 0; k < side->window_count; k++) {
            cr_assert_eq(side->window[k].seq, (uint64_t)mine[k]);
            cr_assert_eq(side->features[2 * k], (float)mine[k]);
        }
    }
    cr_assert_eq(copy.candidates[20].window_count, 0u);
    dl_query_deinit(&copy);
    dl_query_deinit(&query);
    dl_graph_free(graph);
}
