/* Splits, tie policies and passes. */
#include <criterion/criterion.h>

#include <string.h>

#include "feed.h"
#include "model/split.h"

static struct dl_dataset *at_times(const int64_t *times, unsigned count)
{
    struct dl_dataset *dataset = feed_begin();
    for (unsigned i = 0; i < count; i++) feed_add(dataset, i, i + 1, times[i], 1);
    feed_finish(dataset);
    return dataset;
}

Test(split, cuts_at_the_quantiles_of_the_times)
{
    int64_t times[11];
    for (int i = 0; i < 11; i++) times[i] = 10 * i;
    struct dl_dataset *d = at_times(times, 11);
    struct dl_split split;
    struct dl_error error;
    cr_assert_eq(dl_split_make(d, &split, &error), DL_OK);
    /* q70 = 70, q85 = 85 by linear interpolation. */
    cr_expect_eq(split.end[DL_SPLIT_TRAIN], 8);
    cr_expect_eq(split.end[DL_SPLIT_VALIDATION], 9);
    cr_expect_eq(split.end[DL_SPLIT_TEST], 11);
    dl_dataset_free(d);
}

Test(split, keeps_a_timestamp_together)
{
    const int64_t times[] = {1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 4, 4};
    struct dl_dataset *d = at_times(times, 13);
    struct dl_split split;
    struct dl_error error;
    cr_assert_eq(dl_split_make(d, &split, &error), DL_OK);
    for (int part = 1; part < 3; part++)
        cr_expect_neq(d->events[split.begin[part]].time, d->events[split.begin[part] - 1].time);
    dl_dataset_free(d);
}

Test(split, refuses_a_feed_of_one_timestamp)
{
    const int64_t times[] = {5, 5, 5, 5};
    struct dl_dataset *d = at_times(times, 4);
    struct dl_split split;
    struct dl_error error;
    cr_expect_eq(dl_split_make(d, &split, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "validation"));
    dl_dataset_free(d);
}

Test(split, holds_out_a_tenth_that_occurs_later)
{
    struct dl_dataset *d = feed_communities(500, 1);
    struct dl_split split;
    struct dl_error error;
    uint8_t a[64], b[64];
    uint32_t count, marked = 0;
    cr_assert_eq(dl_split_make(d, &split, &error), DL_OK);
    cr_assert(d->node_count <= 64);
    cr_assert_eq(dl_split_hold_out(d, &split, 7, a, &count), DL_OK);
    cr_expect_eq(count, d->node_count / 10);
    for (uint32_t i = 0; i < d->node_count; i++) marked += a[i];
    cr_expect_eq(marked, count);
    cr_assert_eq(dl_split_hold_out(d, &split, 7, b, &count), DL_OK);
    cr_expect_eq(memcmp(a, b, d->node_count), 0);
    cr_assert_eq(dl_split_hold_out(d, &split, 8, b, &count), DL_OK);
    cr_expect_neq(memcmp(a, b, d->node_count), 0);
    dl_dataset_free(d);
}

Test(pass, strict_shows_smaller_times_only)
{
    struct dl_dataset *d = feed_communities(100, 5);
    struct dl_pass pass;
    struct dl_error error;
    cr_assert_eq(dl_pass_init(&pass, d, DL_TIES_STRICT, 0, 8, &error), DL_OK);
    for (uint64_t p = 0; p < d->event_count; p++) {
        cr_assert_eq(dl_pass_seek(&pass, p, &error), DL_OK);
        cr_assert_eq(dl_graph_feed(pass.graph)->events, p / 5 * 5);
    }
    dl_pass_deinit(&pass);
    dl_dataset_free(d);
}

Test(pass, stream_shows_all_that_came_before)
{
    struct dl_dataset *d = feed_communities(100, 5);
    struct dl_pass pass;
    struct dl_error error;
    cr_assert_eq(dl_pass_init(&pass, d, DL_TIES_STREAM, 0, 8, &error), DL_OK);
    for (uint64_t p = 0; p < d->event_count; p++) {
        cr_assert_eq(dl_pass_seek(&pass, p, &error), DL_OK);
        cr_assert_eq(dl_graph_feed(pass.graph)->events, p);
        cr_assert_eq(dl_pass_event(&pass, p), p);
    }
    dl_pass_deinit(&pass);
    dl_dataset_free(d);
}

Test(pass, shuffle_permutes_inside_a_timestamp_by_seed)
{
    struct dl_dataset *d = feed_communities(100, 10);
    struct dl_pass a, b, c;
    struct dl_error error;
    uint8_t seen[100] = {0};
    int moved = 0, differ = 0;
    cr_assert_eq(dl_pass_init(&a, d, DL_TIES_SHUFFLE, 1, 8, &error), DL_OK);
    cr_assert_eq(dl_pass_init(&b, d, DL_TIES_SHUFFLE, 1, 8, &error), DL_OK);
    cr_assert_eq(dl_pass_init(&c, d, DL_TIES_SHUFFLE, 2, 8, &error), DL_OK);
    for (uint64_t p = 0; p < 100; p++) {
        uint64_t event = dl_pass_event(&a, p);
        cr_assert_eq(event / 10, p / 10);
        cr_assert_eq(event, dl_pass_event(&b, p));
        moved += event != p;
        differ += event != dl_pass_event(&c, p);
        seen[event]++;
    }
    for (int i = 0; i < 100; i++) cr_assert_eq(seen[i], 1);
    cr_expect(moved > 50);
    cr_expect(differ > 50);
    dl_pass_deinit(&a);
    dl_pass_deinit(&b);
    dl_pass_deinit(&c);
    dl_dataset_free(d);
}

Test(pass, leaves_out_marked_nodes)
{
    struct dl_dataset *d = feed_communities(100, 1);
    struct dl_pass pass;
    struct dl_error error;
    uint8_t marked[64] = {0};
    uint64_t touched = 0;
    marked[d->events[0].src] = 1;
    for (uint64_t i = 0; i < 100; i++)
        touched += marked[d->events[i].src] || marked[d->events[i].dst];
    cr_assert_eq(dl_pass_init(&pass, d, DL_TIES_STREAM, 0, 8, &error), DL_OK);
    pass.left_out = marked;
    cr_assert_eq(dl_pass_seek(&pass, 100, &error), DL_OK);
    cr_expect_eq(dl_graph_feed(pass.graph)->events, 100 - touched);
    dl_pass_deinit(&pass);
    dl_dataset_free(d);
}
