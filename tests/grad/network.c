/* Every gradient of the network by central differences in double precision,
 * for each switch of the architecture. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model/network.h"
#include "tests/support/feed.h"

#define STEP 1e-5
#define QUERIES 2

struct setting {
    struct dl_network_config config;
    struct dl_encoding encoding;
    struct dl_graph *graph;
    struct dl_query queries[QUERIES];
    const struct dl_query *query_at[QUERIES];
    float labels[QUERIES][FEED_NODES];
    const float *labels_at[QUERIES];
};

static struct dl_network_config small(void)
{
    struct dl_network_config config = dl_network_config_default;
    strcpy(config.architecture, "diffdyg");
    config.window = 5;
    config.width = 8;
    config.layers = 2;
    config.feature_count = 2;
    return config;
}

static void prepare(struct setting *setting, struct dl_network_config config)
{
    setting->config = config;
    setting->encoding = (struct dl_encoding){.gap = 7, .weight_mean = 0.3, .weight_sd = 1.4};
    for (uint32_t i = 0; i < config.feature_count; i++) {
        setting->encoding.feature_mean[i] = 0.1;
        setting->encoding.feature_sd[i] = 0.9;
    }
    setting->graph = feed_new(3, config.window, config.feature_count, 60, 6);
    for (uint32_t q = 0; q < QUERIES; q++) {
        /* One at the last event's own time, one after it; the candidates include
         * the source itself and nodes without history. */
        feed_query(setting->graph, config.window, q, q == 0 ? FEED_NODES : 5, q == 0 ? 0 : 9,
                   &setting->queries[q]);
        setting->query_at[q] = &setting->queries[q];
        for (int i = 0; i < FEED_NODES; i++)
            setting->labels[q][i] = i % 3 == 0 ? 1.0f : i % 3 == 1 ? 0.0f : 0.25f;
        setting->labels_at[q] = setting->labels[q];
    }
}

static void release(struct setting *setting)
{
    for (int q = 0; q < QUERIES; q++) dl_query_deinit(&setting->queries[q]);
    dl_graph_free(setting->graph);
}

/* Compares the gradient of every `stride`th value of every parameter;
 * `dropout_seed` 0 turns dropout off. */
static void check(struct dl_network_config config, uint64_t dropout_seed, uint64_t stride)
{
    struct setting setting;
    struct dl_network *network;
    struct dl_workspace *workspace;
    struct dl_error error;
    prepare(&setting, config);
    cr_assert_eq(dl_network_new(&config, &setting.encoding, 11, &network, &error), DL_OK, "%s",
                 error.text);
    cr_assert_eq(dl_workspace_new(network, &workspace), DL_OK);
    dl_real *values = dl_network_values(network);
    uint64_t total = dl_network_parameter_count(network);
    struct dl_rng rng;
    dl_rng_seed(&rng, 5);
    /* Away from the starting point, where norms are all ones and λ is λ0. */
    for (uint64_t i = 0; i < total; i++) values[i] += 0.2 * dl_rng_normal(&rng);
    dl_network_updated(network);
    dl_real *gradients = dl_network_gradients(network);
    memset(gradients, 0, total * sizeof *gradients);
    dl_network_train(network, workspace, setting.query_at, setting.labels_at, QUERIES, 0.7,
                     dropout_seed, gradients);
    dl_real *scrap = calloc(total, sizeof *scrap);
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(network, &parameters);
    for (uint32_t p = 0; p < count; p++) {
        double largest = 0, worst = 0;
        uint64_t size = (uint64_t)parameters[p].rows * parameters[p].columns;
        for (uint64_t i = size > stride ? p % stride : 0; i < size; i += stride) {
            dl_real *value = &parameters[p].value[i], before = *value;
            double loss[2];
            for (int s = 0; s < 2; s++) {
                *value = before + (s ? STEP : -STEP);
                dl_network_updated(network);
                loss[s] = dl_network_train(network, workspace, setting.query_at, setting.labels_at,
                                           QUERIES, 0.7, dropout_seed, scrap);
            }
            *value = before;
            double numeric = (loss[1] - loss[0]) / (2 * STEP);
            double off = fabs(numeric - parameters[p].gradient[i]);
            worst = off > worst ? off : worst;
            largest = fabs(numeric) > largest ? fabs(numeric) : largest;
        }
        cr_expect(worst <= 1e-6 * (1 + largest), "%s: off by %g where the largest is %g",
                  parameters[p].name, worst, largest);
        cr_expect(largest > 1e-9 || stride > 1, "%s: has no effect on the loss",
                  parameters[p].name);
    }
    free(scrap);
    dl_workspace_free(workspace);
    dl_network_free(network);
    release(&setting);
}

Test(network_gradient, of_differential_attention_with_all_encodings)
{
    check(small(), 0, 1);
}

Test(network_gradient, of_softmax_attention)
{
    struct dl_network_config config = small();
    config.differential = 0;
    check(config, 0, 7);
}

Test(network_gradient, without_encodings)
{
    struct dl_network_config config = small();
    config.rope = config.time_encoding = config.cooccurrence = 0;
    config.pair_memory = config.arrival_age = 0;
    config.feature_count = 0;
    check(config, 0, 7);
}

Test(network_gradient, with_time_encoding_alone)
{
    struct dl_network_config config = small();
    config.cooccurrence = 0;
    check(config, 0, 7);
}

Test(network_gradient, with_cooccurrence_alone)
{
    struct dl_network_config config = small();
    config.time_encoding = 0;
    check(config, 0, 7);
}

Test(network_gradient, under_dropout)
{
    struct dl_network_config config = small();
    config.dropout = 0.3f;
    check(config, 77, 7);
}

Test(network_gradient, of_several_batches_and_wide_heads)
{
    struct dl_network_config config = small();
    config.window = 20; /* three pairs a batch */
    config.width = 12;
    config.heads = 3;
    config.layers = 1;
    check(config, 0, 7);
}

Test(network_gradient, of_windows_encoded_apart)
{
    struct dl_network_config config = small();
    strcpy(config.architecture, "diffdyg-cached");
    check(config, 0, 1);
}

Test(network_gradient, of_windows_encoded_apart_under_dropout_in_several_batches)
{
    struct dl_network_config config = small();
    strcpy(config.architecture, "diffdyg-cached");
    config.window = 40; /* three windows a batch */
    config.dropout = 0.3f;
    config.differential = 0;
    check(config, 77, 7);
}

Test(network_gradient, of_the_pair_stage_alone)
{
    struct dl_network_config config = small();
    strcpy(config.architecture, "mlp");
    config.dropout = 0.3f;
    check(config, 77, 1);
}
