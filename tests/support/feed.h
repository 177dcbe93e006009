/* A small made-up feed with snapshots, repeats, self-loops and weights, and
 * queries on it, for tests of the model. Header only, as the gradient tests are
 * built apart. */
#ifndef DL_TESTS_FEED_H
#define DL_TESTS_FEED_H

#include <stdlib.h>

#include "base/check.h"
#include "base/graph.h"
#include "base/query.h"
#include "base/rng.h"

#define FEED_NODES 14 /* nodes 12 and 13 have no events */

/* Absorbs `count` events, about `per_time` at each timestamp. */
static inline struct dl_graph *feed_new(uint64_t seed, uint32_t window, uint32_t feature_count,
                                        uint32_t count, uint32_t per_time)
{
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_graph *graph;
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    config.window = window;
    config.feature_count = feature_count;
    config.nodes_max = 1024;
    config.pairs_max = 1024;
    DL_CHECK(dl_graph_new(&config, &graph, NULL) == DL_OK);
    int64_t time = 100;
    for (uint32_t i = 0; i < count; i++) {
        if (dl_rng_below(&rng, per_time) == 0) time += 1 + (int64_t)dl_rng_below(&rng, 20);
        float features[DL_EVENT_FEATURES_MAX];
        for (uint32_t f = 0; f < feature_count; f++) features[f] = (float)dl_rng_normal(&rng);
        struct dl_event event = {.time = time,
                                 .src = (uint32_t)dl_rng_below(&rng, 12),
                                 .dst = (uint32_t)dl_rng_below(&rng, 8),
                                 .weight = (float)dl_rng_normal(&rng) * 3,
                                 .features = feature_count ? features : NULL};
        DL_CHECK(dl_graph_apply(graph, &event) == DL_OK);
    }
    return graph;
}

/* Source `source` against nodes 0..candidates−1, `after` the last event. */
static inline void feed_query(const struct dl_graph *graph, uint32_t window, uint32_t source,
                              uint32_t candidates, int64_t after, struct dl_query *query)
{
    *query = (struct dl_query){0};
    int64_t time = dl_graph_feed(graph)->last_time + after;
    DL_CHECK(dl_query_begin(query, graph, window, source, time) == DL_OK);
    for (uint32_t i = 0; i < candidates; i++) DL_CHECK(dl_query_add(query, graph, i) == DL_OK);
}

#endif
