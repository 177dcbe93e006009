/* Networks: configuration checks, memory, batching and the loss; the layers are
 * the architectures'. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/architecture.h"

const struct dl_network_config dl_network_config_default = {
    .architecture = "diffdyg-cached",
    .window = 8,
    .width = 32,
    .heads = 2,
    .layers = 2,
    .differential = 1,
    .rope = 1,
    .time_encoding = 1,
    .cooccurrence = 1,
    .pair_memory = 1,
    .steps = 1,
    .arrival_age = 1,
    .dropout = 0.1f,
};

static const struct dl_architecture *const architectures[] = {
    &dl_architecture_diffdyg, &dl_architecture_diffdyg_cached, &dl_architecture_mlp};

static const struct dl_architecture *find(const char *name)
{
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (strcmp(architectures[i]->name, name) == 0) return architectures[i];
    return NULL;
}

static int check_range(const char *name, uint32_t value, uint32_t low, uint32_t high,
                       struct dl_error *error)
{
    if (value >= low && value <= high) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "network: %s is %u; use %u to %u", name, value, low,
                        high);
}

static int check_config(const struct dl_network_config *config, struct dl_error *error)
{
    if (memchr(config->architecture, 0, sizeof config->architecture) == NULL ||
        find(config->architecture) == NULL)
        return dl_error_set(
            error, DL_ERR_INVALID,
            "network: unknown architecture '%.31s'; use diffdyg, diffdyg-cached or mlp",
            config->architecture);
    int status = check_range("window", config->window, 1, DL_WINDOW_MAX, error);
    if (!status) status = check_range("width", config->width, 8, 512, error);
    const int has_layers = !status && find(config->architecture)->has_layers;
    if (has_layers) status = check_range("heads", config->heads, 1, 16, error);
    if (!status && has_layers)
        status = check_range("layers", config->layers, 1, DL_LAYERS_MAX, error);
    if (!status)
        status =
            check_range("feature_count", config->feature_count, 0, DL_EVENT_FEATURES_MAX, error);
    if (status) return status;
    if (has_layers && config->width % (2 * config->heads) != 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "network: width %u is not a multiple of twice the %u heads",
                            config->width, config->heads);
    if (!(config->dropout >= 0 && config->dropout <= 0.9f))
        return dl_error_set(error, DL_ERR_INVALID, "network: dropout is %g; use 0 to 0.9",
                            (double)config->dropout);
    return DL_OK;
}

static int check_encoding(const struct dl_network_config *config,
                          const struct dl_encoding *encoding, struct dl_error *error)
{
    if (!(isfinite(encoding->gap) && encoding->gap > 0))
        return dl_error_set(error, DL_ERR_INVALID,
                            "network: the median time gap is %g; it must be above 0",
                            encoding->gap);
    int good =
        isfinite(encoding->weight_mean) && isfinite(encoding->weight_sd) && encoding->weight_sd > 0;
    for (uint32_t i = 0; i < config->feature_count; i++)
        good = good && isfinite(encoding->feature_mean[i]) && isfinite(encoding->feature_sd[i]) &&
               encoding->feature_sd[i] > 0;
    if (good) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID,
                        "network: means must be finite and standard deviations above 0");
}

int dl_network_new(const struct dl_network_config *config, const struct dl_encoding *encoding,
                   uint64_t seed, struct dl_network **network, struct dl_error *error)
{
    *network = NULL;
    int status = check_config(config, error);
    if (!status) status = check_encoding(config, encoding, error);
    if (status) return status;
    struct dl_network *made = calloc(1, sizeof *made);
    if (made == NULL) return dl_error_set(error, DL_ERR_NOMEM, "network: out of memory");
    made->config = *config;
    made->encoding = *encoding;
    if (!encoding->has_reading) dl_reading_plain(&made->encoding.reading);
    made->encoding.has_reading = 1;
    made->architecture = find(config->architecture);
    if (!made->architecture->has_layers) {
        made->config.layers = made->config.heads = 0;
        made->config.differential = made->config.rope = made->config.time_encoding = 0;
    }
    status = dl_kernels_choose(&made->kernels, error);
    if (status) goto fail;
    status = made->architecture->plan_new(made);
    if (status) {
        dl_error_set(error, status, "network: out of memory");
        goto fail;
    }
    made->values = calloc(made->parameters.total, sizeof *made->values);
    made->gradients = calloc(made->parameters.total, sizeof *made->gradients);
    if (made->values == NULL || made->gradients == NULL) {
        status = dl_error_set(error, DL_ERR_NOMEM, "network: out of memory for %zu parameters",
                              made->parameters.total);
        goto fail;
    }
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    dl_parameters_bind(&made->parameters, made->values, made->gradients, &rng);
    dl_network_updated(made);
    *network = made;
    return DL_OK;
fail:
    dl_network_free(made);
    return status;
}

void dl_network_free(struct dl_network *network)
{
    if (network == NULL) return;
    if (network->plan != NULL) network->architecture->plan_free(network);
    free(network->values);
    free(network->gradients);
    free(network);
}

const struct dl_network_config *dl_network_get_config(const struct dl_network *network)
{
    return &network->config;
}

const struct dl_encoding *dl_network_get_encoding(const struct dl_network *network)
{
    return &network->encoding;
}

uint32_t dl_network_parameters(const struct dl_network *network,
                               const struct dl_parameter **parameters)
{
    *parameters = network->parameters.items;
    return network->parameters.count;
}

uint64_t dl_network_parameter_count(const struct dl_network *network)
{
    return network->parameters.total;
}

dl_real *dl_network_values(struct dl_network *network)
{
    network->is_current = 0;
    return network->values;
}

dl_real *dl_network_gradients(struct dl_network *network)
{
    return network->gradients;
}

void dl_network_updated(struct dl_network *network)
{
    network->architecture->update(network);
    network->is_current = 1;
}

int dl_network_fit_reading(struct dl_network *network, const struct dl_query *const *queries,
                           uint32_t count)
{
    const size_t size = DL_READING_COLUMNS * sizeof(dl_real);
    struct dl_encoding plain = network->encoding;
    struct dl_batch batch;
    struct dl_carve carve = {0};
    uint32_t pairs = 0, row = 0;

    for (uint32_t q = 0; q < count; q++) pairs += queries[q]->candidate_count;
    dl_reading_plain(&plain.reading);
    dl_batch_carve(&batch, &carve, &network->config, &plain, 1, DL_BATCH_APART);
    dl_real *rows = malloc((pairs + 1) * size);
    uint8_t *memory = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    int status = rows && memory ? DL_OK : DL_ERR_NOMEM;
    if (status == DL_OK) {
        carve = (struct dl_carve){.base = memory};
        dl_batch_carve(&batch, &carve, &network->config, &plain, 1, DL_BATCH_APART);
        for (uint32_t q = 0; q < count; q++) {
            dl_batch_begin(&batch, queries[q]);
            for (uint32_t i = 0; i < queries[q]->candidate_count; i++, row++) {
                dl_batch_clear(&batch);
                dl_batch_add(&batch, i, 0);
                memcpy(rows + (size_t)row * DL_READING_COLUMNS, batch.self, size);
            }
        }
        status = dl_reading_fit(&network->encoding.reading, rows, pairs);
    }
    free(rows);
    free(memory);
    return status;
}

/* ---- workspaces -------------------------------------------------------------- */

static void carve_all(const struct dl_network *network, struct dl_workspace *workspace,
                      struct dl_carve *carve)
{
    network->architecture->batch_carve(network, &workspace->batch, carve);
    const uint32_t pairs = workspace->batch.pairs_max;
    workspace->labels = dl_carve_take(carve, pairs, sizeof *workspace->labels);
    workspace->logits = dl_carve_take(carve, pairs, sizeof(dl_real));
    workspace->dlogits = dl_carve_take(carve, pairs, sizeof(dl_real));
    network->architecture->carve(network, workspace, carve);
}

int dl_workspace_new(const struct dl_network *network, struct dl_workspace **workspace)
{
    *workspace = NULL;
    struct dl_workspace *made = calloc(1, sizeof *made);
    if (made == NULL) return DL_ERR_NOMEM;
    struct dl_carve carve = {0};
    carve_all(network, made, &carve);
    /* Pages that a workspace never touches (training's, when it only scores)
     * cost address space alone. */
    made->memory = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    if (made->memory == NULL) {
        free(made);
        return DL_ERR_NOMEM;
    }
    carve = (struct dl_carve){.base = made->memory};
    carve_all(network, made, &carve);
    *workspace = made;
    return DL_OK;
}

void dl_workspace_free(struct dl_workspace *workspace)
{
    if (workspace == NULL) return;
    free(workspace->memory);
    free(workspace);
}

void dl_dropout(const struct dl_network *network, uint64_t place, uint64_t block, size_t count,
                dl_real *x)
{
    const uint32_t limit = (uint32_t)((double)network->config.dropout * 65536);
    const dl_real scale = (dl_real)(65536.0 / (65536.0 - (double)limit));
    uint32_t key = (uint32_t)(dl_mix64(place ^ dl_mix64(block + 1)) >> 32);
    network->kernels->dropout(count, key, limit, scale, x);
}

/* ---- scoring and training ----------------------------------------------------- */

static void clear_attention(struct dl_attention *attention, const struct dl_batch *batch,
                            uint32_t layers, uint32_t heads)
{
    for (uint32_t p = 0; p < batch->pairs; p++) {
        struct dl_attention *one = &attention[p];
        memset(one->entropy, 0, sizeof one->entropy);
        memset(one->top5_share, 0, sizeof one->top5_share);
        one->tokens = batch->tokens[p];
        if (one->tokens > one->token_capacity) continue;
        const size_t all = (size_t)layers * one->tokens;
        if (one->received) memset(one->received, 0, all * sizeof *one->received);
        if (one->received_by_head)
            memset(one->received_by_head, 0, all * heads * sizeof *one->received_by_head);
    }
}

void dl_network_score(const struct dl_network *network, struct dl_workspace *workspace,
                      const struct dl_query *query, dl_real *logits, struct dl_attention *attention)
{
    DL_CHECK(network->is_current);
    const struct dl_architecture *architecture = network->architecture;
    struct dl_batch *batch = &workspace->batch;
    batch->carries = query->candidate_count > 1;
    dl_batch_begin(batch, query);
    for (uint32_t first = 0; first < query->candidate_count; first += batch->pairs) {
        dl_batch_clear(batch);
        for (uint32_t i = first;
             i < query->candidate_count && !architecture->batch_is_full(network, batch, 0); i++)
            dl_batch_add(batch, i, 0);
        struct dl_attention *observed = attention ? attention + first : NULL;
        if (observed)
            clear_attention(observed, batch, network->config.layers, network->config.heads);
        architecture->forward(network, workspace, NULL, logits + first, observed);
    }
}

uint32_t dl_network_encoding_width(const struct dl_network *network)
{
    return network->architecture->keeps_encodings ? network->config.width : 0;
}

/* Loss and its slope for one logit z and label y, each times `weight`:
 * −y log σ(z) − (1 − y) log σ(−z) = max(z, 0) − y z + log(1 + e^−|z|);  σ(z) − y. */
static double cross_entropy(dl_real z, float y, dl_real weight, dl_real *slope)
{
    double x = (double)z, tail = exp(-fabs(x));
    double probability = x >= 0 ? 1 / (1 + tail) : tail / (1 + tail);
    *slope = (dl_real)((double)weight * (probability - (double)y));
    return (double)weight * ((x > 0 ? x : 0) - (double)y * x + log1p(tail));
}

static double train_batch(const struct dl_network *network, struct dl_workspace *workspace,
                          dl_real pair_weight, const struct dl_pass *pass, dl_real *gradients)
{
    double loss = 0;
    network->architecture->forward(network, workspace, pass, workspace->logits, NULL);
    for (uint32_t p = 0; p < workspace->batch.pairs; p++)
        loss += cross_entropy(workspace->logits[p], workspace->labels[p], pair_weight,
                              &workspace->dlogits[p]);
    network->architecture->backward(network, workspace, pass, gradients);
    return loss;
}

double dl_network_train(const struct dl_network *network, struct dl_workspace *workspace,
                        const struct dl_query *const *queries, const float *const *labels,
                        uint32_t count, dl_real pair_weight, uint64_t dropout_seed,
                        dl_real *gradients)
{
    DL_CHECK(network->is_current);
    struct dl_batch *batch = &workspace->batch;
    const struct dl_pass pass = {.has_dropout = dropout_seed != 0 && network->config.dropout > 0};
    double loss = 0;
    batch->carries = 0;
    dl_batch_clear(batch);
    for (uint32_t q = 0; q < count; q++) {
        dl_batch_begin(batch, queries[q]);
        for (uint32_t i = 0; i < queries[q]->candidate_count; i++) {
            workspace->labels[batch->pairs] = labels[q][i];
            dl_batch_add(batch, i, dl_draw64(dropout_seed, q, i));
            if (!network->architecture->batch_is_full(network, batch, 1)) continue;
            loss += train_batch(network, workspace, pair_weight, &pass, gradients);
            dl_batch_clear(batch);
        }
    }
    if (batch->pairs > 0) loss += train_batch(network, workspace, pair_weight, &pass, gradients);
    return loss;
}
