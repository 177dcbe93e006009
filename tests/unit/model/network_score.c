/* Scoring and training as callers see them: batching, tiers, configuration. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/network.h"
#include "model/optimizer.h"
#include "tests/support/feed.h"

static const struct dl_encoding encoding = {.gap = 7, .weight_mean = 0.3, .weight_sd = 1.4};

static struct dl_network *network_of(const struct dl_network_config *config)
{
    struct dl_network *network = NULL;
    struct dl_error error;
    cr_assert_eq(dl_network_new(config, &encoding, 11, &network, &error), DL_OK, "%s", error.text);
    return network;
}

static const char *const architectures[] = {"diffdyg", "diffdyg-cached", "mlp"};
#define ARCHITECTURES (sizeof architectures / sizeof *architectures)

static void scores_alike_alone(const char *architecture, const char *tier, uint32_t window)
{
    struct dl_network_config config = dl_network_config_default;
    strcpy(config.architecture, architecture);
    config.window = window;
    setenv("DRIFTLINE_KERNELS", tier, 1);
    struct dl_network *network;
    struct dl_error error;
    int status = dl_network_new(&config, &encoding, 11, &network, &error);
    if (status == DL_ERR_UNSUPPORTED) return; /* not this processor's */
    cr_assert_eq(status, DL_OK, "%s", error.text);
    struct dl_workspace *workspace;
    cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
    struct dl_graph *graph = feed_new(9, 40, 0, 300, 12);
    struct dl_query all;
    feed_query(graph, 40, 3, FEED_NODES, 2, &all);
    for (uint32_t i = 0; i < 60; i++) /* over several batches */
        cr_assert_eq(dl_query_add(&all, graph, i % FEED_NODES), DL_OK);
    float logits[FEED_NODES + 60], alone;
    dl_network_score(network, workspace, &all, logits, NULL);
    for (uint32_t i = 0; i < all.candidate_count; i++) {
        struct dl_query one = {0};
        cr_assert_eq(dl_query_begin(&one, graph, 40, 3, all.time), DL_OK);
        cr_assert_eq(dl_query_add(&one, graph, all.candidates[i].node), DL_OK);
        dl_network_score(network, workspace, &one, &alone, NULL);
        cr_assert_eq(memcmp(&alone, &logits[i], sizeof alone), 0,
                     "%s, %s, W %u, candidate %u: %a alone, %a in a batch", architecture, tier,
                     window, i, alone, logits[i]);
        dl_query_deinit(&one);
    }
    dl_query_deinit(&all);
    dl_graph_free(graph);
    dl_workspace_free(workspace);
    dl_network_free(network);
}

Test(network, scores_a_pair_alike_in_any_company)
{
    static const uint32_t windows[] = {1, 5, 8, 32};
    static const char *const tiers[] = {"c", "avx2", "avx512"};
    for (size_t a = 0; a < ARCHITECTURES; a++)
        for (size_t t = 0; t < 3; t++)
            for (size_t w = 0; w < 4; w++)
                scores_alike_alone(architectures[a], tiers[t], windows[w]);
}

Test(network, scores_alike_with_every_tier)
{
    static const char *const tiers[] = {"c", "avx2", "avx512"};
    float logits[3][FEED_NODES];
    struct dl_graph *graph = feed_new(9, 32, 0, 300, 12);
    struct dl_query query;
    feed_query(graph, 32, 3, FEED_NODES, 2, &query);
    for (int t = 0; t < 3; t++) {
        setenv("DRIFTLINE_KERNELS", tiers[t], 1);
        struct dl_network_config config = dl_network_config_default;
        strcpy(config.architecture, "diffdyg");
        config.window = 32;
        struct dl_network *network;
        struct dl_error error;
        int status = dl_network_new(&config, &encoding, 11, &network, &error);
        if (status == DL_ERR_UNSUPPORTED) continue;
        cr_assert_eq(status, DL_OK, "%s", error.text);
        struct dl_workspace *workspace;
        cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
        dl_network_score(network, workspace, &query, logits[t], NULL);
        for (int i = 0; i < FEED_NODES; i++)
            cr_expect_float_eq(logits[t][i], logits[0][i], 2e-5, "%s: candidate %d", tiers[t], i);
        dl_workspace_free(workspace);
        dl_network_free(network);
    }
    dl_query_deinit(&query);
    dl_graph_free(graph);
}

Test(network, does_not_depend_on_the_store_keeping_more_than_it_reads)
{
    for (size_t a = 0; a < ARCHITECTURES; a++) {
        struct dl_network_config config = dl_network_config_default;
        strcpy(config.architecture, architectures[a]);
        struct dl_network *network = network_of(&config);
        struct dl_workspace *workspace;
        cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
        struct dl_graph *graph = feed_new(9, 64, 0, 300, 12);
        float logits[2][FEED_NODES];
        for (int i = 0; i < 2; i++) {
            struct dl_query query;
            feed_query(graph, i == 0 ? dl_network_config_default.window : 64, 3, FEED_NODES, 2,
                       &query);
            dl_network_score(network, workspace, &query, logits[i], NULL);
            dl_query_deinit(&query);
        }
        cr_expect_arr_eq(logits[0], logits[1], sizeof logits[0]);
        dl_graph_free(graph);
        dl_workspace_free(workspace);
        dl_network_free(network);
    }
}

static void learns_by_heart(const char *architecture)
{
    struct dl_network_config config = dl_network_config_default;
    strcpy(config.architecture, architecture);
    struct dl_network *network = network_of(&config);
    struct dl_workspace *workspace;
    struct dl_adamw *adamw;
    cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
    cr_assert_eq(dl_adamw_new(network, &adamw), DL_OK);
    struct dl_graph *graph = feed_new(9, 8, 0, 300, 12);
    struct dl_query query;
    feed_query(graph, 8, 3, 12, 2, &query);
    const struct dl_query *queries[] = {&query};
    const float labels[12] = {1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 1, 0}, *labels_at[] = {labels};
    uint64_t total = dl_network_parameter_count(network);
    dl_real *gradients = dl_network_gradients(network);
    double first = 0, last = 0;
    for (int step = 0; step < 200; step++) {
        memset(gradients, 0, total * sizeof *gradients);
        last = dl_network_train(network, workspace, queries, labels_at, 1, 1.0f / 12, 0, gradients);
        if (step == 0) first = last;
        dl_adamw_step(adamw, network, gradients,
                      dl_schedule_cosine((uint64_t)step, 200, 10, 3e-3, 0.1), 0.01, 1);
    }
    cr_expect(first > 0.4 && last < 0.05, "%s: loss from %g to %g", architecture, first, last);
    dl_query_deinit(&query);
    dl_graph_free(graph);
    dl_adamw_free(adamw);
    dl_workspace_free(workspace);
    dl_network_free(network);
}

Test(network, learns_a_small_set_by_heart)
{
    for (size_t a = 0; a < ARCHITECTURES; a++) learns_by_heart(architectures[a]);
}

Test(network, refuses_a_bad_configuration)
{
    struct dl_network *network;
    struct dl_error error;
    struct dl_network_config config = dl_network_config_default;
    config.width = 30;
    config.heads = 4;
    cr_expect_eq(dl_network_new(&config, &encoding, 1, &network, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "width 30") != NULL, "%s", error.text);
    config = dl_network_config_default;
    config.window = DL_WINDOW_MAX + 1;
    cr_expect_eq(dl_network_new(&config, &encoding, 1, &network, &error), DL_ERR_INVALID);
    config = dl_network_config_default;
    strcpy(config.architecture, "gcn");
    cr_expect_eq(dl_network_new(&config, &encoding, 1, &network, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "gcn") != NULL, "%s", error.text);
    config = dl_network_config_default;
    struct dl_encoding bad = encoding;
    bad.gap = 0;
    cr_expect_eq(dl_network_new(&config, &bad, 1, &network, &error), DL_ERR_INVALID);
    setenv("DRIFTLINE_KERNELS", "sse", 1);
    cr_expect_eq(dl_network_new(&config, &encoding, 1, &network, &error), DL_ERR_INVALID);
    cr_expect_null(network);
}
