/* How the cost of scoring grows with the window, the width and the number of
 * candidates: the joint model, the two stages with every window encoded anew
 * (cold) and with every encoding at hand (warm), and the pair stage alone.
 *
 * Full windows, queries ready-made, processor time of one thread, the best of
 * several rounds in turn; printed as Markdown tables of µs and, in brackets, the
 * ratio to the joint model at W 8, d 32 measured in the same rounds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "bench/peak.h"
#include "model/network.h"

#define NODES 225
#define EVENTS 60000
#define WINDOW_MAX 128
#define CANDIDATES 100
#define ROUNDS 7
#define ROUND_S 0.02

enum { JOINT, COLD, WARM, ALONE, FORMS };
static const char *const architectures[FORMS] = {"diffdyg", "diffdyg-cached", "diffdyg-cached",
                                                 "mlp"};

struct row {
    uint32_t window, width, candidates;
    struct dl_network *networks[FORMS];
    struct dl_workspace *workspaces[FORMS];
    struct dl_query query;
    double best_s[FORMS]; /* of one query */
};

static struct dl_graph *make_graph(int64_t *time)
{
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_graph *graph;
    struct dl_rng rng;
    config.window = WINDOW_MAX;
    config.nodes_max = NODES;
    DL_CHECK(dl_graph_new(&config, &graph, NULL) == DL_OK);
    dl_rng_seed(&rng, 1);
    *time = 0;
    for (int i = 0; i < EVENTS; i++) {
        if (dl_rng_below(&rng, 5000) == 0) *time += 10;
        struct dl_event event = {.time = *time,
                                 .src = (uint32_t)dl_rng_below(&rng, NODES),
                                 .dst = (uint32_t)dl_rng_below(&rng, NODES),
                                 .weight = 1 + (float)dl_rng_below(&rng, 5)};
        DL_CHECK(dl_graph_apply(graph, &event) == DL_OK);
    }
    return graph;
}

static void prepare(struct row *row, const struct dl_graph *graph, int64_t time)
{
    const struct dl_encoding encoding = {.gap = 10, .weight_mean = 1.2, .weight_sd = 0.4};
    struct dl_error error = {{0}};
    for (int f = 0; f < FORMS; f++) {
        struct dl_network_config config = dl_network_config_default;
        snprintf(config.architecture, sizeof config.architecture, "%s", architectures[f]);
        config.window = row->window;
        config.width = row->width;
        if (dl_network_new(&config, &encoding, 1, &row->networks[f], &error)) {
            fprintf(stderr, "%s\n", error.text);
            exit(1);
        }
        DL_CHECK(dl_workspace_new(row->networks[f], &row->workspaces[f]) == DL_OK);
        row->best_s[f] = INFINITY;
    }
    DL_CHECK(dl_query_begin(&row->query, graph, row->window, 0, time + 1) == DL_OK);
    for (uint32_t i = 0; i < row->candidates; i++)
        DL_CHECK(dl_query_add(&row->query, graph, 1 + i * 7 % (NODES - 1)) == DL_OK);
}

static void measure(struct row *row, int form, float *logits)
{
    int count = 0;
    if (form == WARM) {
        DL_CHECK(dl_query_make_encodings(&row->query, row->width) == DL_OK);
        dl_network_score(row->networks[WARM], row->workspaces[WARM], &row->query, logits, NULL);
    } else {
        row->query.encoding_width = 0; /* nobody looks at what is there */
    }
    double start = dl_bench_cpu_s(), took;
    do {
        dl_network_score(row->networks[form], row->workspaces[form], &row->query, logits, NULL);
        count++;
    } while ((took = dl_bench_cpu_s() - start) < ROUND_S);
    if (took / count < row->best_s[form]) row->best_s[form] = took / count;
}

/* The number that a table's rows differ by. */
static uint32_t row_value(const struct row *row, const char *what)
{
    return what[0] == 'W' ? row->window : what[0] == 'd' ? row->width : row->candidates;
}

static void print(const char *title, const char *what, const struct row *rows, int count,
                  double unit_s, int by_pair)
{
    printf("\n| %s | joint | two stages, cold | two stages, warm | pair stage alone |\n"
           "|---|---|---|---|---|\n",
           title);
    for (int r = 0; r < count; r++) {
        const struct row *row = &rows[r];
        printf("| %s %u |", what, row_value(row, what));
        for (int f = 0; f < FORMS; f++) {
            double one_s = by_pair ? row->best_s[f] / row->candidates : row->best_s[f];
            printf(" %.*f (%.2f) |", one_s < 1e-5 ? 2 : 1, 1e6 * one_s, one_s / unit_s);
        }
        printf("\n");
    }
}

int main(void)
{
    static struct row windows[] = {{.window = 4},  {.window = 8},  {.window = 16},
                                   {.window = 32}, {.window = 64}, {.window = 128}};
    static struct row widths[] = {{.width = 16}, {.width = 32}, {.width = 64}, {.width = 128}};
    static struct row counts[] = {
        {.candidates = 1}, {.candidates = 10}, {.candidates = 100}, {.candidates = 1000}};
    static struct {
        struct row *rows;
        int count;
    } tables[] = {{windows, 6}, {widths, 4}, {counts, 4}};
    static float logits[1000];
    int64_t time;
    struct dl_graph *graph = make_graph(&time);
    for (int t = 0; t < 3; t++) {
        for (int r = 0; r < tables[t].count; r++) {
            struct row *row = &tables[t].rows[r];
            if (!row->window) row->window = 8;
            if (!row->width) row->width = 32;
            if (!row->candidates) row->candidates = CANDIDATES;
            prepare(row, graph, time);
        }
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int t = 0; t < 3; t++)
            for (int r = 0; r < tables[t].count; r++)
                for (int f = 0; f < FORMS; f++) measure(&tables[t].rows[r], f, logits);
    const double unit_s = windows[1].best_s[JOINT] / CANDIDATES;
    print("window, d 32: µs a pair", "W", windows, 6, unit_s, 1);
    print("width, W 8: µs a pair", "d", widths, 4, unit_s, 1);
    print("candidates, W 8, d 32: µs a request", "n", counts, 4, unit_s, 0);
    printf("\ngrowth: sixteen times the window costs the joint model %.1f and the warm two stages "
           "%.1f times as much a pair (no target; the joint model at W 8, d 32, %.1f us a pair)\n",
           windows[5].best_s[JOINT] / windows[1].best_s[JOINT],
           windows[5].best_s[WARM] / windows[1].best_s[WARM], 1e6 * unit_s);
    for (int t = 0; t < 3; t++) {
        for (int r = 0; r < tables[t].count; r++) {
            struct row *row = &tables[t].rows[r];
            for (int f = 0; f < FORMS; f++) {
                dl_workspace_free(row->workspaces[f]);
                dl_network_free(row->networks[f]);
            }
            dl_query_deinit(&row->query);
        }
    }
    dl_graph_free(graph);
    return 0;
}
