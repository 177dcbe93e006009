/* Ranking many candidates of one node: a cached encoder with a warm cache beside
 * the joint model on the same pairs, one core.
 *
 *   topk [WINDOW WIDTH [REQUESTS]]
 *
 * A request is what TopK asks of the engine: the query is copied out of the
 * graph, known encodings are filled in, the rest encoded, all candidates scored,
 * and the new encodings kept. Between requests the feed goes on, which changes
 * windows. All in processor time of the one thread; weights are untrained. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "bench/peak.h"
#include "model/network.h"
#include "service/encodings.h"

#define NODES 20000
#define EVENTS 400000
#define CANDIDATES 1000
#define EVENTS_BETWEEN 10
#define RATE_TARGET 250000.0
#define P99_TARGET_MS 5.0

struct bench {
    struct dl_graph *graph;
    struct dl_rng rng;
    int64_t time;
    struct dl_network *cached, *joint;
    struct dl_workspace *cached_workspace, *joint_workspace;
    struct dl_encodings *encodings;
    struct dl_query query;
    uint32_t window;
};

/* Squared, so that some nodes are much busier than others. */
static uint32_t draw_node(struct bench *bench)
{
    double x = dl_rng_uniform(&bench->rng);
    return (uint32_t)(x * x * NODES);
}

static void apply(struct bench *bench, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct dl_event event = {.time = ++bench->time,
                                 .src = draw_node(bench),
                                 .dst = draw_node(bench),
                                 .weight = 1 + (float)dl_rng_below(&bench->rng, 5)};
        DL_CHECK(dl_graph_apply(bench->graph, &event) == DL_OK);
    }
}

static struct dl_network *make(const char *architecture, uint32_t window, uint32_t width,
                               struct dl_workspace **workspace)
{
    const struct dl_encoding encoding = {.gap = 1, .weight_mean = 1.2, .weight_sd = 0.4};
    struct dl_network_config config = dl_network_config_default;
    struct dl_network *network;
    struct dl_error error = {{0}};
    snprintf(config.architecture, sizeof config.architecture, "%s", architecture);
    config.window = window;
    config.width = width;
    if (dl_network_new(&config, &encoding, 1, &network, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    DL_CHECK(dl_workspace_new(network, workspace) == DL_OK);
    return network;
}

static void ask(struct bench *bench, uint32_t candidates)
{
    DL_CHECK(dl_query_begin(&bench->query, bench->graph, bench->window, draw_node(bench),
                            bench->time) == DL_OK);
    for (uint32_t i = 0; i < candidates; i++)
        DL_CHECK(dl_query_add(&bench->query, bench->graph, draw_node(bench)) == DL_OK);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **arguments)
{
    struct bench bench = {.window = count > 1 ? (uint32_t)atoi(arguments[1]) : 8};
    const uint32_t width = count > 2 ? (uint32_t)atoi(arguments[2]) : 32;
    const int requests = count > 3 ? atoi(arguments[3]) : 2000;
    struct dl_graph_config graph_config = dl_graph_config_default;
    float *logits = malloc(CANDIDATES * sizeof *logits);
    double *took_s = malloc((size_t)requests * sizeof *took_s);
    DL_CHECK(logits && took_s && requests > 0);
    graph_config.window = bench.window;
    graph_config.nodes_max = NODES;
    DL_CHECK(dl_graph_new(&graph_config, &bench.graph, NULL) == DL_OK);
    dl_rng_seed(&bench.rng, 1);
    bench.cached = make("diffdyg-cached", bench.window, width, &bench.cached_workspace);
    bench.joint = make("diffdyg", bench.window, width, &bench.joint_workspace);
    DL_CHECK(dl_encodings_new(dl_network_encoding_width(bench.cached), DL_ENCODINGS_BYTES,
                              &bench.encodings) == DL_OK);
    apply(&bench, EVENTS);
    struct dl_encodings_figures before = {0};
    double cached_s = 0, joint_s = 0, joint_pairs = 0;
    for (int r = -requests / 4; r < requests;
         r++) { /* a quarter as many first, to warm the cache */
        if (r == 0) before = dl_encodings_get_figures(bench.encodings);
        apply(&bench, EVENTS_BETWEEN);
        double start = dl_bench_cpu_s();
        ask(&bench, CANDIDATES);
        DL_CHECK(dl_encodings_fill(bench.encodings, &bench.query) == DL_OK);
        dl_network_score(bench.cached, bench.cached_workspace, &bench.query, logits, NULL);
        dl_encodings_keep(bench.encodings, &bench.query);
        if (r < 0) continue;
        took_s[r] = dl_bench_cpu_s() - start;
        cached_s += took_s[r];
        if (r % 20) continue; /* the rival is slow: the same pairs, of every twentieth request */
        start = dl_bench_cpu_s();
        dl_network_score(bench.joint, bench.joint_workspace, &bench.query, logits, NULL);
        joint_s += dl_bench_cpu_s() - start;
        joint_pairs += CANDIDATES;
    }
    struct dl_encodings_figures after = dl_encodings_get_figures(bench.encodings);
    double hits = (double)(after.hits - before.hits),
           misses = (double)(after.misses - before.misses);
    double rate = requests * (double)CANDIDATES / cached_s, rival = joint_pairs / joint_s;
    qsort(took_s, (size_t)requests, sizeof *took_s, by_size);
    double p50_ms = 1e3 * took_s[requests / 2], p99_ms = 1e3 * took_s[requests * 99 / 100];
    printf("W %u, d %u: %d requests of %d candidates, %d events between two, hit rate "
           "%.4f; p50 %.2f ms, p99 %.2f ms\n",
           bench.window, width, requests, CANDIDATES, EVENTS_BETWEEN, hits / (hits + misses),
           p50_ms, p99_ms);
    printf("topk: %.0f candidates/s a core, hit rate %.3f, p99 of %d candidates %.2f ms (target "
           "%.0f and %.0f ms; joint DiffDyG on the same pairs %.0f candidates/s, ratio %.1f)\n",
           rate, hits / (hits + misses), CANDIDATES, p99_ms, RATE_TARGET, P99_TARGET_MS, rival,
           rate / rival);
    dl_query_deinit(&bench.query);
    dl_encodings_free(bench.encodings);
    dl_workspace_free(bench.cached_workspace);
    dl_workspace_free(bench.joint_workspace);
    dl_network_free(bench.cached);
    dl_network_free(bench.joint);
    dl_graph_free(bench.graph);
    free(logits);
    free(took_s);
    return 0;
}
