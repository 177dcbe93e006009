/* Negative samplers. */
#include <criterion/criterion.h>

#include "base/negative.h"
#include "base/query.h"
#include "feed.h"
#include "model/negatives.h"
#include "model/split.h"

static struct dl_dataset *data;
static struct dl_pairs pairs;
static struct dl_negatives negatives;
static struct dl_split split;

static void set_up(void)
{
    struct dl_error error;
    data = feed_communities(2000, 20);
    cr_assert_eq(dl_pairs_init(&pairs, data), DL_OK);
    cr_assert_eq(dl_split_make(data, &split, &error), DL_OK);
    negatives = (struct dl_negatives){.dataset = data,
                                      .pairs = &pairs,
                                      .seed = 3,
                                      .train_end = split.end[DL_SPLIT_TRAIN],
                                      .pool_end = data->event_count};
}
static void tear_down(void)
{
    dl_pairs_deinit(&pairs);
    dl_dataset_free(data);
}
TestSuite(negatives, .init = set_up, .fini = tear_down);

static int occurs(uint32_t src, uint32_t dst, int64_t from, int64_t to)
{
    for (uint64_t i = 0; i < data->event_count; i++) {
        const struct dl_event *e = &data->events[i];
        if (e->src == src && e->dst == dst && e->time >= from && e->time <= to) return 1;
    }
    return 0;
}

Test(negatives, pairs_agree_with_a_search_through_all_events)
{
    for (uint32_t u = 0; u < data->node_count; u++) {
        for (uint32_t v = 0; v < data->node_count; v += 3) {
            uint32_t pair = dl_pairs_find(&pairs, u, v);
            cr_assert_eq(dl_pairs_count(&pairs, pair, 20, 40) > 0, occurs(u, v, 20, 40));
            cr_assert_eq(pair != DL_PAIR_NONE, occurs(u, v, 0, 1000));
        }
    }
}

Test(negatives, random_draws_are_those_of_the_service)
{
    for (uint32_t draw = 0; draw < DL_LIVE_NEGATIVES; draw++) {
        struct dl_edge edge = dl_negatives_draw(&negatives, DL_NEGATIVES_RANDOM, 1234, draw, 0, 0);
        cr_assert_eq(edge.src, data->events[1234].src);
        cr_assert_eq(
            edge.dst,
            data->destinations[dl_bounded64(dl_draw64(3, 1234, draw), data->destination_count)]);
    }
}

Test(negatives, random_draws_reach_every_destination_evenly)
{
    uint32_t hits[64] = {0};
    for (uint64_t event = 0; event < 2000; event++)
        for (uint32_t draw = 0; draw < 12; draw++)
            hits[dl_negatives_draw(&negatives, DL_NEGATIVES_RANDOM, event, draw, 0, 0).dst]++;
    for (uint32_t i = 0; i < data->destination_count; i++) {
        double expected = 24000.0 / data->destination_count;
        cr_expect(hits[data->destinations[i]] > 0.8 * expected &&
                  hits[data->destinations[i]] < 1.2 * expected);
    }
}

Test(negatives, only_seen_draws_from_the_past)
{
    negatives.only_seen = 1;
    cr_expect_eq(dl_negatives_draw(&negatives, DL_NEGATIVES_RANDOM, 0, 0, 0, 0).dst, DL_NODE_NONE);
    for (uint64_t event = 1; event < 40; event++) {
        struct dl_edge edge = dl_negatives_draw(&negatives, DL_NEGATIVES_RANDOM, event, 0, 0, 0);
        int found = 0;
        for (uint64_t i = 0; i < event; i++) found |= data->events[i].dst == edge.dst;
        cr_assert(found);
    }
}

Test(negatives, clean_draws_are_no_edges_at_that_time)
{
    for (uint64_t event = 0; event < 2000; event += 7) {
        const struct dl_event *at = &data->events[event];
        struct dl_edge edge = dl_negatives_draw(&negatives, DL_NEGATIVES_CLEAN, event, 0, 0, 0);
        cr_assert_eq(edge.src, at->src);
        cr_assert_neq(edge.dst, DL_NODE_NONE);
        cr_assert_not(occurs(edge.src, edge.dst, at->time, at->time));
        edge = dl_negatives_rank_draw(&negatives, event, 5);
        cr_assert_not(occurs(edge.src, edge.dst, at->time, at->time));
    }
}

Test(negatives, historical_draws_were_edges_before_the_batch_and_not_in_it)
{
    int same_source = 0;
    for (uint64_t event = 1500; event < 1900; event++) {
        int64_t from = 75, to = 85;
        struct dl_edge edge =
            dl_negatives_draw(&negatives, DL_NEGATIVES_HISTORICAL, event, 1, from, to);
        if (occurs(edge.src, edge.dst, 0, from - 1) && !occurs(edge.src, edge.dst, from, to)) {
            same_source += edge.src == data->events[event].src;
            continue;
        }
        /* Only the stated fallback may break the rule. */
        struct dl_edge random = dl_negatives_draw(&negatives, DL_NEGATIVES_RANDOM, event, 1, 0, 0);
        cr_assert_eq(edge.src, random.src);
        cr_assert_eq(edge.dst, random.dst);
    }
    cr_expect(same_source < 100, "the source should be drawn too");
}

Test(negatives, inductive_draws_were_not_seen_in_training)
{
    struct dl_dataset *d = feed_begin();
    for (unsigned t = 0; t < 100; t++) {
        feed_add(d, 1, 2, t, 1);
        if (t > 75) feed_add(d, 100 + t, 3, t, 1); /* new pairs after training */
    }
    feed_finish(d);
    struct dl_pairs p;
    struct dl_error error;
    cr_assert_eq(dl_pairs_init(&p, d), DL_OK);
    cr_assert_eq(dl_split_make(d, &split, &error), DL_OK);
    struct dl_negatives n = {.dataset = d,
                             .pairs = &p,
                             .seed = 1,
                             .train_end = split.end[DL_SPLIT_TRAIN],
                             .pool_end = d->event_count};
    for (uint64_t event = d->event_count - 20; event < d->event_count; event++) {
        struct dl_edge edge = dl_negatives_draw(&n, DL_NEGATIVES_INDUCTIVE, event, 0, 90, 99);
        uint32_t pair = dl_pairs_find(&p, edge.src, edge.dst);
        cr_assert_neq(pair, DL_PAIR_NONE);
        cr_assert(p.first[pair] >= n.train_end);
        cr_assert(d->events[p.first[pair]].time < 90);
    }
    dl_pairs_deinit(&p);
    dl_dataset_free(d);
}

Test(negatives, past_draws_for_training_come_from_the_past)
{
    for (uint64_t event = 200; event < 1400; event += 11) {
        int64_t now = data->events[event].time;
        struct dl_edge edge = dl_negatives_past_draw(&negatives, event, 0);
        cr_assert(!occurs(edge.src, edge.dst, now, now) || edge.src == data->events[event].src);
    }
}
