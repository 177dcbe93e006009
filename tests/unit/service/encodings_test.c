/* The cache of window encodings: what it knows, and that no score depends on it. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/network.h"
#include "service/encodings.h"
#include "tests/support/feed.h"

#define WINDOW 8
#define WIDTH 32

static struct dl_graph *graph;
static struct dl_network *network;
static struct dl_workspace *workspace;
static struct dl_encodings *encodings;

static void setup(void)
{
    const struct dl_encoding encoding = {.gap = 7, .weight_mean = 0.3, .weight_sd = 1.4};
    struct dl_network_config config = dl_network_config_default;
    struct dl_error error = {{0}};
    strcpy(config.architecture, "diffdyg-cached");
    cr_assert_eq(dl_network_new(&config, &encoding, 11, &network, &error), DL_OK, "%s", error.text);
    cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
    cr_assert_eq(dl_network_encoding_width(network), WIDTH);
    cr_assert_eq(dl_encodings_new(WIDTH, 1 << 20, &encodings), DL_OK);
    graph = feed_new(9, WINDOW, 0, 300, 12);
}

static void teardown(void)
{
    dl_encodings_free(encodings);
    dl_workspace_free(workspace);
    dl_network_free(network);
    dl_graph_free(graph);
}

TestSuite(encodings, .init = setup, .fini = teardown);

static void query_all(struct dl_query *query, uint32_t source)
{
    feed_query(graph, WINDOW, source, FEED_NODES, 2, query);
}

static void apply(uint32_t src, uint32_t dst)
{
    struct dl_event event = {
        .time = dl_graph_feed(graph)->last_time + 1, .src = src, .dst = dst, .weight = 1};
    cr_assert_eq(dl_graph_apply(graph, &event), DL_OK);
}

/* Scores a query with the cache, checks it against a score without, and returns
 * how many windows had to be encoded. */
static uint64_t score_and_keep(uint32_t source)
{
    struct dl_query query, plain;
    float logits[2][FEED_NODES];
    uint64_t before = dl_encodings_get_figures(encodings).misses;
    query_all(&query, source);
    query_all(&plain, source);
    cr_assert_eq(dl_encodings_fill(encodings, &query), DL_OK);
    dl_network_score(network, workspace, &query, logits[0], NULL);
    dl_encodings_keep(encodings, &query);
    dl_network_score(network, workspace, &plain, logits[1], NULL);
    cr_assert_eq(memcmp(logits[0], logits[1], sizeof logits[0]), 0, "source %u", source);
    dl_query_deinit(&query);
    dl_query_deinit(&plain);
    return dl_encodings_get_figures(encodings).misses - before;
}

Test(encodings, change_no_score_and_are_made_again_when_the_window_changes)
{
    /* The source among the candidates too, as it is not known until it comes back. */
    cr_expect_eq(score_and_keep(3), 13);
    cr_expect_eq(score_and_keep(3), 0);
    cr_expect_eq(score_and_keep(4), 0);
    apply(3, 5);
    cr_expect_eq(score_and_keep(4), 2);
    cr_expect_eq(score_and_keep(3), 0);
    apply(6, 6);
    cr_expect_eq(score_and_keep(1), 1);
    dl_encodings_clear(encodings);
    cr_expect_eq(score_and_keep(3), 13);
}

Test(encodings, of_an_older_window_do_not_replace_newer_ones)
{
    struct dl_query old;
    float logits[FEED_NODES];
    query_all(&old, 3);
    cr_assert_eq(dl_encodings_fill(encodings, &old), DL_OK);
    apply(3, 5);
    cr_expect_eq(score_and_keep(3), 13);
    dl_network_score(network, workspace, &old, logits, NULL);
    dl_encodings_keep(encodings, &old);
    cr_expect_eq(score_and_keep(3), 0);
    dl_query_deinit(&old);
}

Test(encodings, drop_what_was_used_least_recently_when_there_is_no_room)
{
    struct dl_encodings *small;
    struct dl_query query;
    cr_assert_eq(dl_encodings_new(WIDTH, 1, &small), DL_OK); /* one set of four */
    for (uint32_t node = 0; node < 6; node++) {
        query = (struct dl_query){0};
        cr_assert_eq(dl_query_begin(&query, graph, WINDOW, node, 1000), DL_OK);
        cr_assert_eq(dl_encodings_fill(small, &query), DL_OK);
        for (int i = 0; i < WIDTH; i++) query.source.encoding[i] = (float)node;
        dl_encodings_keep(small, &query);
        dl_query_deinit(&query);
    }
    for (uint32_t node = 0; node < 6; node++) {
        query = (struct dl_query){0};
        cr_assert_eq(dl_query_begin(&query, graph, WINDOW, node, 1000), DL_OK);
        cr_assert_eq(dl_encodings_fill(small, &query), DL_OK);
        cr_expect_eq(!isnan(query.source.encoding[0]), node >= 2, "node %u", node);
        if (node >= 2) cr_expect_eq(query.source.encoding[WIDTH - 1], (float)node);
        dl_query_deinit(&query);
    }
    dl_encodings_free(small);
}
