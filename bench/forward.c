/* The whole model's speed on one core: scoring and training of batched pairs.
 *
 *   forward WINDOW WIDTH SECONDS [OUT]
 *
 * prints one line of JSON. With OUT, first writes weights, inputs and logits of
 * some pairs for a rival to repeat. Ours counts from the query on, so building
 * the input columns is in; windows are all full. FLOPs are those of the model's
 * matrix products. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/graph.h"
#include "base/rng.h"
#include "bench/peak.h"
#include "model/architecture.h"
#include "model/model.h"
#include "model/optimizer.h"
#include "model/safetensors.h"

#define NODES 225
#define EVENTS 60000
#define QUERIES 16
#define CANDIDATES 50
#define STEPS 8
#define STEP_QUERIES 50 /* of training: a true edge and a negative each */

struct bench {
    struct dl_network *network;
    struct dl_workspace *workspace;
    struct dl_graph *graph;
    struct dl_query queries[QUERIES];
    struct dl_query samples[STEPS * STEP_QUERIES];
    const struct dl_query *sample_at[STEPS * STEP_QUERIES];
    const float *labels_at[STEP_QUERIES];
};

static void draw_query(struct bench *bench, struct dl_query *query, uint32_t window, uint32_t node,
                       uint32_t candidates, int64_t time, struct dl_rng *rng)
{
    DL_CHECK(dl_query_begin(query, bench->graph, window, node, time) == DL_OK);
    for (uint32_t i = 0; i < candidates; i++)
        DL_CHECK(dl_query_add(query, bench->graph, (uint32_t)dl_rng_below(rng, NODES)) == DL_OK);
}

static void prepare(struct bench *bench, uint32_t window, uint32_t width)
{
    struct dl_network_config config = dl_network_config_default;
    struct dl_graph_config graph_config = dl_graph_config_default;
    const struct dl_encoding encoding = {.gap = 10, .weight_mean = 1.2, .weight_sd = 0.4};
    struct dl_error error = {{0}};
    struct dl_rng rng;
    int64_t time = 0;
    strcpy(config.architecture, "diffdyg");
    config.window = window;
    config.width = width;
    graph_config.window = window;
    graph_config.nodes_max = NODES;
    if (dl_network_new(&config, &encoding, 1, &bench->network, &error) ||
        dl_graph_new(&graph_config, &bench->graph, &error)) {
        fprintf(stderr, "%s\n", error.text);
        exit(1);
    }
    DL_CHECK(dl_workspace_new(bench->network, &bench->workspace) == DL_OK);
    dl_rng_seed(&rng, 1);
    for (int i = 0; i < EVENTS; i++) {
        if (dl_rng_below(&rng, 5000) == 0) time += 10;
        struct dl_event event = {.time = time,
                                 .src = (uint32_t)dl_rng_below(&rng, NODES),
                                 .dst = (uint32_t)dl_rng_below(&rng, NODES),
                                 .weight = 1 + (float)dl_rng_below(&rng, 5)};
        DL_CHECK(dl_graph_apply(bench->graph, &event) == DL_OK);
    }
    for (uint32_t q = 0; q < QUERIES; q++)
        draw_query(bench, &bench->queries[q], window, q, CANDIDATES, time + 1, &rng);
    for (uint32_t q = 0; q < STEPS * STEP_QUERIES; q++) {
        draw_query(bench, &bench->samples[q], window, q % NODES, 2, time + 1, &rng);
        bench->sample_at[q] = &bench->samples[q];
    }
    static const float labels[2] = {1, 0};
    for (int q = 0; q < STEP_QUERIES; q++) bench->labels_at[q] = labels;
}

static void release(struct bench *bench)
{
    for (int q = 0; q < QUERIES; q++) dl_query_deinit(&bench->queries[q]);
    for (int q = 0; q < STEPS * STEP_QUERIES; q++) dl_query_deinit(&bench->samples[q]);
    dl_graph_free(bench->graph);
    dl_workspace_free(bench->workspace);
    dl_network_free(bench->network);
}

/* Of the matrix products, for one pair with full windows. */
static double flops_of(const struct dl_network_config *config)
{
    double d = config->width, w = 2.0 * config->window, n = w + 2, maps = 2;
    double tokens = w * dl_token_layout_of(config).columns * d + 2.0 * DL_SELF_COLUMNS * d;
    double layer = n * d * (2 * maps + 1) * d /* projections */
                   + maps * n * n * d         /* scores, all heads */
                   + n * n * d                /* values */
                   + n * d * d                /* output */
                   + 4 * n * d * d;           /* feed-forward */
    return 2 * (tokens + config->layers * layer + 2 * d * d + d);
}

static double score_rate(struct bench *bench)
{
    static dl_real logits[CANDIDATES];
    double start = dl_bench_cpu_s();
    for (int q = 0; q < QUERIES; q++)
        dl_network_score(bench->network, bench->workspace, &bench->queries[q], logits, NULL);
    return QUERIES * CANDIDATES / (dl_bench_cpu_s() - start);
}

/* Steps of 50 true edges with a negative each, as `train` takes them; dropout on. */
static double train_rate(struct bench *bench, struct dl_adamw *adamw)
{
    dl_real *gradients = dl_network_gradients(bench->network);
    size_t size = dl_network_parameter_count(bench->network) * sizeof *gradients;
    double start = dl_bench_cpu_s();
    for (uint32_t step = 0; step < STEPS; step++) {
        memset(gradients, 0, size);
        dl_network_train(bench->network, bench->workspace, bench->sample_at + step * STEP_QUERIES,
                         bench->labels_at, STEP_QUERIES, (dl_real)0.01, step + 1, gradients);
        dl_adamw_step(adamw, bench->network, gradients, 1e-3, 0.01, 1);
    }
    return STEPS * STEP_QUERIES * 2 / (dl_bench_cpu_s() - start);
}

/* Everything a rival needs: weights, input columns of `pairs` pairs, logits. */
static void write_inputs(struct bench *bench, const char *path)
{
    struct dl_safetensors_writer writer = {0};
    struct dl_buf file = {0};
    const struct dl_parameter *parameters;
    const struct dl_query *query = &bench->queries[0];
    const struct dl_batch *batch = &bench->workspace->batch;
    uint32_t count = dl_network_parameters(bench->network, &parameters);
    const uint32_t rows = 2 * dl_network_get_config(bench->network)->window;
    const uint32_t columns = batch->layout.columns;
    dl_real logits[CANDIDATES];
    float *token = calloc((size_t)CANDIDATES * rows * columns, sizeof *token);
    float *self = calloc((size_t)CANDIDATES * 2 * DL_SELF_COLUMNS, sizeof *self);
    float *elapsed = calloc((size_t)CANDIDATES * rows, sizeof *elapsed);
    float *seen = calloc((size_t)CANDIDATES * rows * 2, sizeof *seen);
    DL_CHECK(token && self && elapsed && seen);
    for (uint32_t i = 0; i < CANDIDATES; i++) {
        dl_batch_begin(&bench->workspace->batch, query);
        dl_batch_clear(&bench->workspace->batch);
        dl_batch_add(&bench->workspace->batch, i, 0);
        DL_CHECK(batch->window_rows == rows); /* full windows */
        memcpy(token + (size_t)i * rows * columns, batch->token, rows * columns * sizeof *token);
        memcpy(self + (size_t)i * 2 * DL_SELF_COLUMNS, batch->self,
               2 * DL_SELF_COLUMNS * sizeof *self);
        memcpy(elapsed + (size_t)i * rows, batch->elapsed, rows * sizeof *elapsed);
        for (uint32_t r = 0; r < 2 * rows; r++) seen[(size_t)i * 2 * rows + r] = batch->seen[r];
    }
    dl_network_score(bench->network, bench->workspace, query, logits, NULL);
    for (uint32_t p = 0; p < count; p++)
        dl_safetensors_add_tensor(&writer, parameters[p].name, DL_DTYPE_F32, parameters[p].rows,
                                  parameters[p].columns, parameters[p].value);
    dl_safetensors_add_tensor(&writer, "in.token", DL_DTYPE_F32, (uint64_t)CANDIDATES * rows,
                              columns, token);
    dl_safetensors_add_tensor(&writer, "in.self", DL_DTYPE_F32, 2 * CANDIDATES, DL_SELF_COLUMNS,
                              self);
    dl_safetensors_add_tensor(&writer, "in.elapsed", DL_DTYPE_F32, (uint64_t)CANDIDATES * rows, 1,
                              elapsed);
    dl_safetensors_add_tensor(&writer, "in.seen", DL_DTYPE_F32, (uint64_t)CANDIDATES * rows, 2,
                              seen);
    dl_safetensors_add_tensor(&writer, "out.logits", DL_DTYPE_F32, CANDIDATES, 1, logits);
    DL_CHECK(dl_safetensors_write(&writer, &file) == DL_OK);
    FILE *out = fopen(path, "wb");
    if (out == NULL || fwrite(file.data, 1, file.size, out) != file.size || fclose(out) != 0) {
        fprintf(stderr, "%s: cannot write\n", path);
        exit(1);
    }
    dl_safetensors_writer_deinit(&writer);
    dl_buf_free(&file);
    free(token);
    free(self);
    free(elapsed);
    free(seen);
}

int main(int count, char **arguments)
{
    struct bench bench = {0};
    if (count < 4) {
        fprintf(stderr, "usage: forward WINDOW WIDTH SECONDS [OUT]\n");
        return 2;
    }
    prepare(&bench, (uint32_t)atoi(arguments[1]), (uint32_t)atoi(arguments[2]));
    if (count > 4) write_inputs(&bench, arguments[4]);
    struct dl_adamw *adamw;
    DL_CHECK(dl_adamw_new(bench.network, &adamw) == DL_OK);
    double score = 0, train = 0, end = dl_bench_cpu_s() + atof(arguments[3]);
    do {
        double rate = score_rate(&bench);
        score = rate > score ? rate : score;
        rate = train_rate(&bench, adamw);
        train = rate > train ? rate : train;
    } while (dl_bench_cpu_s() < end);
    const struct dl_network_config *config = dl_network_get_config(bench.network);
    printf("{\"tier\": \"%s\", \"window\": %u, \"width\": %u, \"score\": %.0f, \"train\": %.0f, "
           "\"flops\": %.0f, \"peak\": %.0f}\n",
           bench.network->kernels->name, config->window, config->width, score, train,
           flops_of(config), dl_bench_peak_flops(10));
    dl_adamw_free(adamw);
    release(&bench);
    return 0;
}
