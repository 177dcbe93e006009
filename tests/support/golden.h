/* Compares the model with the golden tensors of tests/golden/diffdyg.py. The
 * queries there are made up field by field, so they are rebuilt here without a
 * graph. Header only, as the float and the double build both use it. */
#ifndef DL_TESTS_GOLDEN_H
#define DL_TESTS_GOLDEN_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "model/network.h"
#include "model/optimizer.h"
#include "model/safetensors.h"

#define GOLDEN_QUERIES 2
#define GOLDEN_CANDIDATES 5
#define GOLDEN_STEPS 10

struct golden {
    struct dl_buf bytes;
    struct dl_safetensors *tensors;
    struct dl_network_config config;
    struct dl_encoding encoding;
    struct dl_query queries[GOLDEN_QUERIES];
    struct dl_side candidates[GOLDEN_QUERIES][GOLDEN_CANDIDATES];
    struct dl_pair_state pairs[GOLDEN_QUERIES][GOLDEN_CANDIDATES];
    struct dl_between between[GOLDEN_QUERIES][GOLDEN_CANDIDATES];
    struct dl_interaction *events[GOLDEN_QUERIES];
    float *features[GOLDEN_QUERIES];
    float labels[GOLDEN_QUERIES][GOLDEN_CANDIDATES];
    struct dl_network *network;
    struct dl_workspace *workspace;
};

/* All numbers of a tensor; the caller frees them. */
static inline double *golden_numbers(const struct golden *golden, const char *name)
{
    const struct dl_tensor *tensor = dl_safetensors_find(golden->tensors, name);
    cr_assert_not_null(tensor, "%s is missing", name);
    double *values = malloc((tensor->shape[0] * tensor->shape[1] + 1) * sizeof *values);
    struct dl_error error = {{0}};
    cr_assert_eq(dl_safetensors_doubles(golden->tensors, name, tensor->shape[0], tensor->shape[1],
                                        values, &error),
                 DL_OK, "%s", error.text);
    return values;
}

static inline void golden_copy(const struct golden *golden, const char *name, int count,
                               dl_real *to)
{
    double *values = golden_numbers(golden, name);
    for (int i = 0; i < count; i++) to[i] = (dl_real)values[i];
    free(values);
}

static inline double golden_setting(const struct golden *golden, const char *key)
{
    const char *text = dl_safetensors_metadata(golden->tensors, key);
    cr_assert_not_null(text, "%s is missing", key);
    return atof(text);
}

static inline void golden_side(const double *row, struct dl_side *side)
{
    struct dl_node_state *state = &side->state;
    side->node = (uint32_t)row[0];
    side->window_count = (uint32_t)row[1];
    state->events = (uint64_t)row[2];
    state->events_out = (uint64_t)row[3];
    state->events_in = (uint64_t)row[4];
    state->first_time = (int64_t)row[5];
    state->last_out_time = (int64_t)row[6];
    state->last_in_time = (int64_t)row[7];
    state->first_seq = (uint64_t)row[8];
    state->last_out_seq = (uint64_t)row[9];
    state->last_in_seq = (uint64_t)row[10];
    row += 11;
    for (int g = 0; g < DL_GROUP_RING; g++, row += 4) {
        state->groups[g].ordinal = (uint32_t)row[0];
        state->groups[g].out = (uint32_t)row[1];
        state->groups[g].in = (uint32_t)row[2];
        state->groups[g].weight_in_max = (float)row[3];
    }
    for (int h = 0; h < DL_RATE_HORIZONS; h++) {
        state->rate_out[h] = (float)row[h];
        state->rate_in[h] = (float)row[DL_RATE_HORIZONS + h];
    }
}

static inline void golden_pair(const double *row, struct dl_pair_state *pair)
{
    for (int way = 0; way < 2; way++) {
        pair->count[way] = (uint32_t)row[way];
        pair->last_ordinal[way] = (uint32_t)row[2 + way];
        pair->last_time[way] = (int64_t)row[4 + way];
        pair->last_seq[way] = (uint64_t)row[6 + way];
        pair->last_weight[way] = (float)row[8 + way];
        pair->decayed[way] = (float)row[10 + way];
        pair->flags[way] = (uint8_t)row[12 + way];
    }
    pair->flags_ordinal = (uint32_t)row[14];
}

static inline void golden_between(const double *row, struct dl_between *between)
{
    for (int way = 0; way < DL_WAYS; way++) {
        between->ways[way] = (uint16_t)row[way];
        between->ways_now[way] = (uint16_t)row[DL_WAYS + way];
    }
    row += 2 * DL_WAYS;
    between->shared = (uint16_t)row[0];
    between->shared_recent = (float)row[1];
    between->company = (float)row[2];
    between->company_mean = (float)row[3];
    between->company_share = (float)row[4];
    between->distinct[DL_AS_SOURCE] = (float)row[5];
    between->distinct[DL_AS_DESTINATION] = (float)row[6];
    between->has_order = (uint8_t)row[7];
    between->is_next = (uint8_t)row[8];
    between->same_source = (uint8_t)row[9];
    between->order = (int64_t)row[10];
}

static inline void golden_query(struct golden *golden, int q)
{
    static const char *const parts[] = {"scalars", "snapshots", "sides",  "events",
                                        "pairs",   "labels",    "between"};
    const uint32_t feature_count = golden->config.feature_count;
    struct dl_query *query = &golden->queries[q];
    double *data[7];
    for (int i = 0; i < 7; i++) {
        char name[64];
        snprintf(name, sizeof name, "query.%d.%s", q, parts[i]);
        data[i] = golden_numbers(golden, name);
        if (strcmp(parts[i], "events") != 0) continue;
        uint64_t count = dl_safetensors_find(golden->tensors, name)->shape[0];
        golden->events[q] = calloc(count, sizeof **golden->events);
        golden->features[q] = calloc(count * feature_count + 1, sizeof **golden->features);
        for (uint64_t e = 0; e < count; e++) {
            const double *row = data[i] + e * (6 + feature_count);
            golden->events[q][e] = (struct dl_interaction){.time = (int64_t)row[0],
                                                           .seq = (uint64_t)row[1],
                                                           .peer = (uint32_t)row[2],
                                                           .ordinal = (uint32_t)row[3],
                                                           .weight = (float)row[4],
                                                           .out = (uint8_t)row[5]};
            for (uint32_t f = 0; f < feature_count; f++)
                golden->features[q][e * feature_count + f] = (float)row[6 + f];
        }
    }
    query->time = (int64_t)data[0][0];
    query->ordinal = (uint32_t)data[0][1];
    query->feed.events = (uint64_t)data[0][2];
    query->distinct[DL_AS_SOURCE] = (float)data[0][3];
    query->distinct[DL_AS_DESTINATION] = (float)data[0][4];
    query->feature_count = feature_count;
    for (int s = 0; s < DL_GROUP_RING; s++)
        query->feed.snapshots[s] = (struct dl_snapshot){.ordinal = (uint32_t)data[1][3 * s],
                                                        .out_max = (uint32_t)data[1][3 * s + 1],
                                                        .in_max = (uint32_t)data[1][3 * s + 2]};
    const int side_columns = 11 + 4 * DL_GROUP_RING + 2 * DL_RATE_HORIZONS;
    size_t at = 0;
    query->candidate_count = GOLDEN_CANDIDATES;
    query->candidates = golden->candidates[q];
    query->pairs = golden->pairs[q];
    query->between = golden->between[q];
    for (int s = 0; s <= GOLDEN_CANDIDATES; s++) {
        struct dl_side *side = s == 0 ? &query->source : &query->candidates[s - 1];
        golden_side(data[2] + s * side_columns, side);
        side->window = golden->events[q] + at;
        side->features = feature_count ? golden->features[q] + at * feature_count : NULL;
        at += side->window_count;
        if (s > 0) golden_pair(data[4] + (s - 1) * 15, &query->pairs[s - 1]);
        if (s > 0) golden_between(data[6] + (s - 1) * 19, &query->between[s - 1]);
        if (s > 0) golden->labels[q][s - 1] = (float)data[5][s - 1];
    }
    for (int i = 0; i < 7; i++) free(data[i]);
}

static inline void golden_open(struct golden *golden, const char *path)
{
    struct dl_error error = {{0}};
    *golden = (struct golden){0};
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s: run the tests from the project's folder", path);
    for (int c; (c = fgetc(file)) != EOF;) dl_buf_u8(&golden->bytes, (uint8_t)c);
    fclose(file);
    cr_assert_eq(
        dl_safetensors_parse(dl_buf_slice(&golden->bytes), path, 1 << 20, &golden->tensors, &error),
        DL_OK, "%s", error.text);
    struct dl_network_config *config = &golden->config;
    snprintf(config->architecture, sizeof config->architecture, "%s",
             dl_safetensors_metadata(golden->tensors, "architecture"));
    config->window = (uint32_t)golden_setting(golden, "window");
    config->width = (uint32_t)golden_setting(golden, "width");
    config->heads = (uint32_t)golden_setting(golden, "heads");
    config->layers = (uint32_t)golden_setting(golden, "layers");
    config->feature_count = (uint32_t)golden_setting(golden, "features");
    config->differential = (int)golden_setting(golden, "differential");
    config->rope = (int)golden_setting(golden, "rope");
    config->time_encoding = (int)golden_setting(golden, "time_encoding");
    config->cooccurrence = (int)golden_setting(golden, "cooccurrence");
    config->pair_memory = (int)golden_setting(golden, "pair_memory");
    config->arrival_age = (int)golden_setting(golden, "arrival_age");
    config->steps = (int)golden_setting(golden, "steps");
    golden->encoding.gap = golden_setting(golden, "gap");
    golden->encoding.weight_mean = golden_setting(golden, "mean");
    golden->encoding.weight_sd = golden_setting(golden, "sd");
    for (int f = 0; f < DL_EVENT_FEATURES_MAX; f++) {
        golden->encoding.feature_mean[f] = 0.1;
        golden->encoding.feature_sd[f] = 0.9;
    }
    golden_copy(golden, DL_READING_SCALING_TENSOR, 2 * DL_READING_COLUMNS,
                golden->encoding.reading.scaling[0]);
    golden_copy(golden, DL_READING_STEPS_TENSOR, 2 * DL_READING_STEPS * DL_READING_STEPPED,
                golden->encoding.reading.steps[0][0]);
    golden->encoding.has_reading = 1;
    for (int q = 0; q < GOLDEN_QUERIES; q++) golden_query(golden, q);
    cr_assert_eq(dl_network_new(config, &golden->encoding, 1, &golden->network, &error), DL_OK,
                 "%s", error.text);
    cr_assert_eq(dl_workspace_new(golden->network, &golden->workspace), DL_OK);
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(golden->network, &parameters);
    dl_network_values(golden->network);
    for (uint32_t p = 0; p < count; p++) {
        char name[96];
        snprintf(name, sizeof name, "start/%s", parameters[p].name);
        const struct dl_tensor *tensor = dl_safetensors_find(golden->tensors, name);
        cr_assert(tensor && tensor->shape[0] == parameters[p].rows &&
                      tensor->shape[1] == parameters[p].columns,
                  "%s: missing or of another shape", name);
        double *values = golden_numbers(golden, name);
        for (uint64_t i = 0; i < tensor->shape[0] * tensor->shape[1]; i++)
            parameters[p].value[i] = (dl_real)values[i];
        free(values);
    }
    dl_network_updated(golden->network);
}

static inline void golden_close(struct golden *golden)
{
    for (int q = 0; q < GOLDEN_QUERIES; q++) {
        free(golden->events[q]);
        free(golden->features[q]);
    }
    dl_workspace_free(golden->workspace);
    dl_network_free(golden->network);
    dl_safetensors_free(golden->tensors);
    dl_buf_free(&golden->bytes);
}

/* Logits and what the attention looked like. */
static inline void golden_check_scores(struct golden *golden, double tolerance)
{
    const uint32_t layers = golden->config.layers;
    double *logits = golden_numbers(golden, "logits");
    double *entropy = layers ? golden_numbers(golden, "entropy") : NULL;
    double *share = layers ? golden_numbers(golden, "top5_share") : NULL;
    double *received = layers ? golden_numbers(golden, "received") : NULL, *at = received;
    double *by_head = layers ? golden_numbers(golden, "received_by_head") : NULL;
    double *head_at = by_head;
    for (int q = 0; q < GOLDEN_QUERIES; q++) {
        dl_real got[GOLDEN_CANDIDATES];
        struct dl_attention attention[GOLDEN_CANDIDATES];
        float rows[GOLDEN_CANDIDATES][DL_LAYERS_MAX * 64];
        float heads[GOLDEN_CANDIDATES][DL_LAYERS_MAX * 2 * 64];
        cr_assert(golden->config.heads <= 2);
        for (int i = 0; i < GOLDEN_CANDIDATES; i++)
            attention[i] = (struct dl_attention){
                .token_capacity = 64, .received = rows[i], .received_by_head = heads[i]};
        dl_network_score(golden->network, golden->workspace, &golden->queries[q], got, attention);
        for (int i = 0; i < GOLDEN_CANDIDATES; i++) {
            int pair = q * GOLDEN_CANDIDATES + i;
            cr_expect_float_eq((double)got[i], logits[pair], tolerance, "logit %d: %.9g, not %.9g",
                               pair, (double)got[i], logits[pair]);
            for (uint32_t l = 0; l < layers; l++) {
                cr_expect_float_eq(attention[i].entropy[l], entropy[(uint32_t)pair * layers + l],
                                   10 * tolerance, "entropy of pair %d, layer %u", pair, l);
                cr_expect_float_eq(attention[i].top5_share[l], share[(uint32_t)pair * layers + l],
                                   10 * tolerance, "share of pair %d, layer %u", pair, l);
            }
            for (uint32_t t = 0; t < layers * attention[i].tokens; t++, at++)
                cr_expect_float_eq((double)rows[i][t], *at, 10 * tolerance + 1e-7,
                                   "attention received in pair %d, %u", pair, t);
            for (uint32_t t = 0; t < layers * golden->config.heads * attention[i].tokens;
                 t++, head_at++)
                cr_expect_float_eq((double)heads[i][t], *head_at, 10 * tolerance + 1e-7,
                                   "attention received by head in pair %d, %u", pair, t);
        }
    }
    free(logits);
    free(entropy);
    free(share);
    free(received);
    free(by_head);
}

/* Every parameter's gradient, or value, against the tensors named `prefix`/.... */
static inline void golden_check_tensors(struct golden *golden, const char *prefix, int gradients,
                                        double tolerance)
{
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(golden->network, &parameters);
    for (uint32_t p = 0; p < count; p++) {
        char name[96];
        snprintf(name, sizeof name, "%s/%s", prefix, parameters[p].name);
        double *expected = golden_numbers(golden, name), worst = 0, largest = 0;
        const dl_real *got = gradients ? parameters[p].gradient : parameters[p].value;
        for (uint64_t i = 0; i < (uint64_t)parameters[p].rows * parameters[p].columns; i++) {
            worst = fmax(worst, fabs((double)got[i] - expected[i]));
            largest = fmax(largest, fabs(expected[i]));
        }
        cr_expect(worst <= tolerance * (1 + largest), "%s is off by %g, largest %g", name, worst,
                  largest);
        free(expected);
    }
}

/* Loss, gradients and ten steps of AdamW. */
static inline void golden_check_training(struct golden *golden, double tolerance,
                                         double tolerance_end)
{
    const struct dl_query *queries[GOLDEN_QUERIES];
    const float *labels[GOLDEN_QUERIES];
    for (int q = 0; q < GOLDEN_QUERIES; q++) {
        queries[q] = &golden->queries[q];
        labels[q] = golden->labels[q];
    }
    double *losses = golden_numbers(golden, "losses");
    struct dl_adamw *adamw;
    cr_assert_eq(dl_adamw_new(golden->network, &adamw), DL_OK);
    dl_real *gradients = dl_network_gradients(golden->network);
    for (int step = 0; step <= GOLDEN_STEPS; step++) {
        memset(gradients, 0, dl_network_parameter_count(golden->network) * sizeof *gradients);
        double loss =
            dl_network_train(golden->network, golden->workspace, queries, labels, GOLDEN_QUERIES,
                             (dl_real)1 / (GOLDEN_QUERIES * GOLDEN_CANDIDATES), 0, gradients);
        cr_expect_float_eq(loss, losses[step], step == 0 ? tolerance : tolerance_end,
                           "loss of step %d: %.9g, not %.9g", step, loss, losses[step]);
        if (step == 0) golden_check_tensors(golden, "gradient", 1, tolerance);
        if (step < GOLDEN_STEPS) dl_adamw_step(adamw, golden->network, gradients, 2e-3, 0.01, 1.0);
    }
    golden_check_tensors(golden, "end", 0, tolerance_end);
    dl_adamw_free(adamw);
    free(losses);
}

#endif
