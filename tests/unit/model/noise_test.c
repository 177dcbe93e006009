/* Irrelevant neighbours in a query's windows. */
#include <criterion/criterion.h>
#include <string.h>

#include "model/noise.h"

enum { WINDOW = 12, NODES = 1000, REAL = 8 };

static void make(struct dl_graph **graph, struct dl_query *query)
{
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_error error;
    config.feature_count = 1;
    cr_assert_eq(dl_graph_new(&config, graph, &error), DL_OK);
    for (uint32_t i = 0; i < REAL; i++) {
        float feature = (float)i;
        struct dl_event event = {
            .src = 1, .dst = 2, .time = 10 + i, .weight = (float)i, .features = &feature};
        cr_assert_eq(dl_graph_apply(*graph, &event), DL_OK);
    }
    cr_assert_eq(dl_query_begin(query, *graph, WINDOW, 1, 50), DL_OK);
    cr_assert_eq(dl_query_add(query, *graph, 2), DL_OK);
    cr_assert_eq(dl_query_add(query, *graph, 3), DL_OK); /* unknown: no window */
}

/* The real ones that are left, which must stand in order, newest first. */
static uint32_t real_ones(const struct dl_side *side, uint32_t partner)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < side->window_count; i++) {
        if (i > 0) cr_assert_geq(side->window[i - 1].time, side->window[i].time);
        cr_assert_eq(side->features[i], side->window[i].weight);
        if (side->window[i].peer != partner) continue;
        cr_assert_eq(side->window[i].time, 10 + REAL - 1 - found);
        found++;
    }
    return found;
}

Test(noise, stands_among_the_real_neighbours_which_keep_their_order)
{
    struct dl_graph *graph;
    struct dl_query query = {0}, same = {0};
    make(&graph, &query);
    cr_assert_eq(dl_noise_add(&query, 4, NODES, 7), DL_OK);
    cr_assert_eq(query.source.window_count, WINDOW);
    cr_assert_eq(real_ones(&query.source, 2), REAL);
    cr_assert_eq(real_ones(&query.candidates[0], 1), REAL);
    cr_assert_eq(query.candidates[1].window_count, 0);
    cr_assert_eq(query.pairs[0].count[0], REAL);

    dl_graph_free(graph);
    make(&graph, &same);
    cr_assert_eq(dl_noise_add(&same, 4, NODES, 7), DL_OK);
    cr_assert_eq(
        memcmp(same.source.window, query.source.window, WINDOW * sizeof *query.source.window), 0);
    dl_query_deinit(&same);
    dl_query_deinit(&query);
    dl_graph_free(graph);
}

Test(noise, pushes_out_the_oldest_where_the_window_is_full)
{
    struct dl_graph *graph;
    struct dl_query query = {0};
    make(&graph, &query);
    cr_assert_eq(dl_noise_add(&query, 500, NODES, 7), DL_OK);
    cr_assert_eq(query.source.window_count, WINDOW);
    cr_assert_lt(real_ones(&query.source, 2), REAL);
    dl_query_deinit(&query);
    dl_graph_free(graph);
}
