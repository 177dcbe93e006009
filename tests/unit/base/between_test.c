/* What two nodes have in common, on a feed small enough to count by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/query.h"

enum { U = 1, V = 2, X = 3, Y = 4, Z = 5, OTHER = 6 };

static struct dl_graph *graph_of(const uint32_t edges[][3], int count)
{
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_graph *graph = NULL;
    struct dl_error error;
    cr_assert_eq(dl_graph_new(&config, &graph, &error), DL_OK);
    for (int i = 0; i < count; i++) {
        struct dl_event event = {
            .src = edges[i][0], .dst = edges[i][1], .time = edges[i][2], .weight = 1};
        cr_assert_eq(dl_graph_apply(graph, &event), DL_OK);
    }
    return graph;
}

static struct dl_between between_of(const uint32_t edges[][3], int count, uint32_t source,
                                    uint32_t candidate, int64_t time)
{
    struct dl_graph *graph = graph_of(edges, count);
    struct dl_query query = {0};
    cr_assert_eq(dl_query_begin(&query, graph, 4, source, time), DL_OK);
    cr_assert_eq(dl_query_add(&query, graph, OTHER), DL_OK); /* leaves nothing behind */
    cr_assert_eq(dl_query_add(&query, graph, candidate), DL_OK);
    struct dl_between between = query.between[1];
    dl_query_deinit(&query);
    dl_graph_free(graph);
    return between;
}

Test(between, counts_peers_by_the_way_through_them)
{
    static const uint32_t edges[][3] = {{U, X, 1}, {X, V, 1}, {V, Y, 2}, {Y, U, 2},
                                        {U, Z, 3}, {V, Z, 3}, {X, V, 3}, {OTHER, X, 3}};
    struct dl_between between = between_of(edges, 8, U, V, 3);
    cr_assert_eq(between.ways[DL_WAY_FORTH], 1);
    cr_assert_eq(between.ways[DL_WAY_BACK], 1);
    cr_assert_eq(between.ways[DL_WAY_CO_SOURCE], 1);
    cr_assert_eq(between.ways[DL_WAY_CO_TARGET], 0);
    cr_assert_eq(between.shared, 3);
    /* At time 3 alone: u to z, v to z; x to v, but u to x is older. */
    cr_assert_eq(between.ways_now[DL_WAY_FORTH], 0);
    cr_assert_eq(between.ways_now[DL_WAY_BACK], 0);
    cr_assert_eq(between.ways_now[DL_WAY_CO_SOURCE], 1);
    /* Newest first, u has z, y, x and v has x, z, y: places (0, 1), (1, 2), (2, 0). */
    cr_assert_float_eq(between.shared_recent, 1 / sqrt(2) + 1 / sqrt(6) + 1 / sqrt(3), 1e-6);
    /* v is a source to y and z, a destination of x twice. */
    cr_assert_float_eq(between.distinct[DL_AS_SOURCE], 1, 1e-6);
    cr_assert_float_eq(between.distinct[DL_AS_DESTINATION], 0.5, 1e-6);
}

Test(between, finds_the_company_of_the_source)
{
    /* u and y go to x and to z; y is met twice, OTHER once; v is named by y, OTHER, and X. */
    static const uint32_t edges[][3] = {{U, X, 1},     {Y, X, 1}, {U, Z, 2},     {Y, Z, 2},
                                        {OTHER, Z, 2}, {Y, V, 3}, {OTHER, V, 3}, {X, V, 3}};
    struct dl_between between = between_of(edges, 8, U, V, 4);
    cr_assert_float_eq(between.company, 3, 1e-6);
    cr_assert_float_eq(between.company_mean, 1, 1e-6);
    cr_assert_float_eq(between.company_share, 2.0 / 3, 1e-6);
}

Test(between, follows_the_order_in_which_destinations_came_before)
{
    /* y went to z, x, v; now u has come to x. */
    static const uint32_t edges[][3] = {{Y, Z, 1}, {Y, X, 1}, {Y, V, 1}, {U, X, 1}};
    struct dl_between after = between_of(edges, 4, U, V, 1);
    cr_assert(after.has_order && after.is_next && after.same_source);
    cr_assert_eq(after.order, 1);
    struct dl_between before = between_of(edges, 4, U, Z, 1);
    cr_assert(before.has_order && !before.is_next && before.same_source);
    cr_assert_eq(before.order, -1);
    struct dl_between never = between_of(edges, 4, U, Y, 1);
    cr_assert(never.has_order && !never.same_source);
    cr_assert_eq(never.order, 0);
    /* Nobody had named z before y did: there is no order to follow. */
    cr_assert_not(between_of(edges, 1, Y, X, 1).has_order);
}

Test(between, knows_nothing_of_unknown_nodes)
{
    static const uint32_t edges[][3] = {{U, X, 1}, {Y, X, 1}, {U, X, 2}};
    struct dl_between between = between_of(edges, 3, U, DL_NODE_NONE, 3);
    cr_assert_eq(between.shared + between.ways[0] + between.ways[3], 0);
    cr_assert_eq(between.order, 0);
    between = between_of(edges, 3, DL_NODE_NONE, X, 3);
    cr_assert_not(between.has_order);
    cr_assert_eq(between.shared, 0);
}
