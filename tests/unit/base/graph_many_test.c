/* Absorbing many events at a time, and the memory behind it. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/graph.h"
#include "base/rng.h"
#include "base/slab.h"

static const struct dl_graph_config config = {
    .window = 20, .feature_count = 1, .nodes_max = 5000, .pairs_max = 1024};

static void make_feed(uint64_t seed, struct dl_event *events, uint32_t count)
{
    static float features[1] = {0.5f};
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    for (uint32_t i = 0; i < count; i++)
        events[i] = (struct dl_event){.time = (int64_t)(i / 3 + dl_rng_below(&rng, 4)),
                                      .src = (uint32_t)dl_rng_below(&rng, 200 + i / 4),
                                      .dst = (uint32_t)dl_rng_below(&rng, 100),
                                      .weight = (float)dl_rng_uniform(&rng),
                                      .features = i % 2 ? features : NULL};
}

static void assert_same(struct dl_graph *a, struct dl_graph *b, uint32_t nodes)
{
    struct dl_buf x = {0}, y = {0};
    for (uint8_t kind = 0; kind < DL_PAGE_KINDS; kind++) {
        uint32_t pages = kind == DL_PAGE_FEED ? 1 : kind == DL_PAGE_NODES ? nodes / 64 : 1;
        for (uint32_t index = 0; index < pages; index++) {
            dl_buf_clear(&x);
            dl_buf_clear(&y);
            dl_graph_page_write(a, (struct dl_page_id){kind, index}, &x);
            dl_graph_page_write(b, (struct dl_page_id){kind, index}, &y);
            cr_assert(dl_slice_equal(dl_buf_slice(&x), dl_buf_slice(&y)), "page %u/%u", kind,
                      index);
        }
    }
    dl_buf_free(&x);
    dl_buf_free(&y);
}

/* More pairs than the table holds, so that eviction is exercised as well. */
Test(graph_many, is_the_same_as_one_at_a_time)
{
    static struct dl_event events[6000];
    struct dl_graph *one, *many, *again;
    make_feed(11, events, 6000);
    cr_assert_eq(dl_graph_new(&config, &one, NULL), DL_OK);
    cr_assert_eq(dl_graph_new(&config, &many, NULL), DL_OK);
    cr_assert_eq(dl_graph_new(&config, &again, NULL), DL_OK);
    for (int i = 0; i < 6000; i++) cr_assert_eq(dl_graph_apply(one, &events[i]), DL_OK);
    for (uint32_t at = 0, step = 0; at < 6000; at += step) {
        uint32_t applied = 0;
        step = at % 97 + 1 > 6000 - at ? 6000 - at : at % 97 + 1;
        cr_assert_eq(dl_graph_apply_many(many, events + at, step, &applied), DL_OK);
        cr_assert_eq(applied, step);
    }
    cr_assert_eq(dl_graph_replay_many(again, events, 6000, 0, NULL), DL_OK);
    cr_assert_eq(dl_graph_replay_end(again), DL_OK);
    assert_same(one, many, 1600);
    assert_same(one, again, 1600);
    dl_graph_free(one);
    dl_graph_free(many);
    dl_graph_free(again);
}

Test(graph_many, stops_at_the_first_that_fails)
{
    static struct dl_event events[100];
    struct dl_graph *graph;
    uint32_t applied = 0;
    make_feed(12, events, 100);
    events[60].dst = config.nodes_max;
    cr_assert_eq(dl_graph_new(&config, &graph, NULL), DL_OK);
    cr_assert_eq(dl_graph_apply_many(graph, events, 100, &applied), DL_ERR_FULL);
    cr_assert_eq(applied, 60u);
    cr_assert_eq(dl_graph_feed(graph)->events, 60u);
    dl_graph_free(graph);
}

Test(slab, gives_blocks_of_their_own_and_uses_returned_ones_again)
{
    struct dl_slab slab = {0};
    enum { BLOCKS = 3000 };
    static char *blocks[BLOCKS];
    static const size_t sizes[] = {1, 64, 200, 5000, 70000};
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % 5];
        blocks[i] = dl_slab_take(&slab, size);
        cr_assert_not_null(blocks[i]);
        cr_assert_eq((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], i & 255, size);
    }
    for (int i = 0; i < BLOCKS; i++) {
        size_t size = sizes[i % 5];
        cr_assert_eq((unsigned char)blocks[i][0], i & 255);
        cr_assert_eq((unsigned char)blocks[i][size - 1], i & 255);
        dl_slab_give(&slab, blocks[i], size);
    }
    size_t total = slab.total;
    for (int i = 0; i < BLOCKS; i++) cr_assert_not_null(dl_slab_take(&slab, sizes[i % 5]));
    cr_assert_eq(slab.total, total);
    dl_slab_deinit(&slab);
}

Test(slab, tables_are_zeroed_and_may_be_large)
{
    for (size_t count = 1; count < 9000000; count = count * 7 + 1) {
        uint64_t *table = dl_table_alloc(count, sizeof *table);
        cr_assert_not_null(table);
        for (size_t i = 0; i < count; i += 511) cr_assert_eq(table[i], 0);
        table[count - 1] = 1;
        dl_table_free(table, count, sizeof *table);
    }
    cr_assert_null(dl_table_alloc(SIZE_MAX / 8, 64));
}
