/* Model files: there and back, and every way to be refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/digest.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "tests/support/feed.h"

static char path[64];
static struct dl_network *network;
static struct dl_model_info info;
static struct dl_reference reference;
static char names[2][32] = {"age", "novelty"};
static float reference_values[6] = {0, 1, 2, 3, 4, 5};
static double reference_mean[2] = {1, 2}, reference_sd[2] = {3, 4};

static void setup(void)
{
    struct dl_error error;
    snprintf(path, sizeof path, "/tmp/driftline-model-%ld.safetensors", (long)getpid());
    info = (struct dl_model_info){.config = dl_network_config_default,
                                  .encoding = {.gap = 7, .weight_mean = 0.3, .weight_sd = 1.4},
                                  .calibration = {1.25, -0.1},
                                  .time_unit = DL_TIME_MS,
                                  .ties = "stream",
                                  .negatives = "mixed",
                                  .seed = UINT64_MAX,
                                  .data_edges = 60396,
                                  .trained_until = -5,
                                  .validation_ap = 0.9,
                                  .validation_entropy = {0.5, 0.25},
                                  .epochs = 6};
    memset(info.config.architecture, 0, sizeof info.config.architecture);
    strcpy(info.config.architecture, "diffdyg");
    info.config.feature_count = 2;
    info.config.rope = 0;
    info.encoding.has_reading = 1;
    dl_reading_plain(&info.encoding.reading);
    info.encoding.reading.scaling[DL_READING_MEAN][3] = 0.25f;
    info.encoding.feature_mean[1] = 0.1;
    info.encoding.feature_sd[0] = info.encoding.feature_sd[1] = 1.0 / 3;
    memset(info.data_hash, 'a', 64);
    reference = (struct dl_reference){.rows = 3,
                                      .columns = 2,
                                      .names = names,
                                      .values = reference_values,
                                      .mean = reference_mean,
                                      .sd = reference_sd,
                                      .segment_rows = 3,
                                      .events_before = 5000000000};
    cr_assert_eq(dl_network_new(&info.config, &info.encoding, 11, &network, &error), DL_OK, "%s",
                 error.text);
}

static void teardown(void)
{
    dl_network_free(network);
    unlink(path);
}

static struct dl_buf file_bytes(void)
{
    struct dl_buf bytes = {0};
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    for (int c; (c = fgetc(file)) != EOF;) dl_buf_u8(&bytes, (uint8_t)c);
    fclose(file);
    return bytes;
}

static struct dl_model *load(void)
{
    struct dl_model *model;
    struct dl_error error = {{0}};
    cr_assert_eq(dl_model_load(path, &model, &error), DL_OK, "%s", error.text);
    return model;
}

static void save(void)
{
    struct dl_error error = {{0}};
    cr_assert_eq(dl_model_save(path, network, &info, &reference, &error), DL_OK, "%s", error.text);
}

TestSuite(model, .init = setup, .fini = teardown);

Test(model, comes_back_as_it_was)
{
    char hash[DL_DIGEST_HEX_SIZE];
    save();
    struct dl_model *model = load();
    const struct dl_model_info *got = dl_model_get_info(model);
    cr_assert_eq(dl_digest_file_sha256_hex(path, hash, NULL), DL_OK);
    hash[16] = '\0';
    cr_expect_str_eq(got->version, hash);
    cr_expect_eq(got->parameters, dl_network_parameter_count(network));
    struct dl_model_info expected = info;
    memcpy(expected.version, got->version, sizeof expected.version);
    expected.parameters = got->parameters;
    cr_expect_eq(memcmp(&got->config, &expected.config, sizeof expected.config), 0);
    cr_expect_eq(memcmp(&got->encoding, &expected.encoding, sizeof expected.encoding), 0);
    cr_expect_eq(got->time_unit, DL_TIME_MS);
    cr_expect_eq(got->seed, UINT64_MAX);
    cr_expect_eq(got->trained_until, -5);
    cr_expect_str_eq(got->ties, "stream");
    cr_expect_str_eq(got->negatives, "mixed");
    cr_expect_str_eq(got->data_hash, expected.data_hash);
    cr_expect_eq(got->validation_ap, 0.9);
    cr_expect_arr_eq(got->validation_entropy, expected.validation_entropy,
                     sizeof expected.validation_entropy);
    const struct dl_reference *back = dl_model_get_reference(model);
    cr_assert_not_null(back);
    cr_expect_eq(back->rows, 3);
    cr_expect_str_eq(back->names[0], "age");
    cr_expect_str_eq(back->names[1], "novelty");
    cr_expect_arr_eq(back->values, reference_values, sizeof reference_values);
    cr_expect_arr_eq(back->sd, reference_sd, sizeof reference_sd);
    cr_expect_eq(back->segment_rows, 3u);
    cr_expect_eq(back->events_before, 5000000000u);
    cr_expect_float_eq(dl_model_probability(model, 0.08), 0.5, 1e-12);
    dl_model_unref(model);
}

Test(model, scores_to_the_last_bit_as_before)
{
    save();
    struct dl_model *model = dl_model_ref(load());
    dl_model_unref(model);
    struct dl_graph *graph = feed_new(9, 8, 2, 300, 12);
    struct dl_query query;
    float logits[2][FEED_NODES];
    feed_query(graph, 8, 3, FEED_NODES, 2, &query);
    const struct dl_network *networks[2] = {network, dl_model_get_network(model)};
    for (int i = 0; i < 2; i++) {
        struct dl_workspace *workspace;
        cr_assert_eq(dl_workspace_new(networks[i], &workspace), DL_OK);
        dl_network_score(networks[i], workspace, &query, logits[i], NULL);
        dl_workspace_free(workspace);
    }
    cr_expect_arr_eq(logits[0], logits[1], sizeof logits[0]);
    dl_query_deinit(&query);
    dl_graph_free(graph);
    dl_model_unref(model);
}

Test(model, may_have_no_reference)
{
    struct dl_error error;
    cr_assert_eq(dl_model_save(path, network, &info, NULL, &error), DL_OK);
    struct dl_model *model = load();
    cr_expect_null(dl_model_get_reference(model));
    dl_model_unref(model);
}

/* Saves a network of that architecture in place of the suite's. */
static void save_as(const char *architecture)
{
    struct dl_error error;
    dl_network_free(network);
    strcpy(info.config.architecture, architecture);
    cr_assert_eq(dl_network_new(&info.config, &info.encoding, 11, &network, &error), DL_OK, "%s",
                 error.text);
    info.config = *dl_network_get_config(network);
    save();
}

static void refuses_any_part(void)
{
    struct dl_buf bytes = file_bytes();
    for (size_t size = 0; size < bytes.size; size += size < 6000 ? 1 : 997) {
        struct dl_model *model;
        struct dl_error error = {{0}};
        uint8_t *exact = malloc(size + 1);
        memcpy(exact, bytes.data, size);
        int status = dl_model_load_bytes(dl_slice_of(exact, size), "m", &model, &error);
        cr_assert_eq(status, DL_ERR_CORRUPT, "%zu bytes: %s", size, dl_status_name(status));
        cr_assert(strlen(error.text) > 10 && !strchr(error.text, '\n'));
        free(exact);
    }
    dl_buf_free(&bytes);
}

Test(model, is_refused_when_cut_short_anywhere)
{
    save();
    refuses_any_part();
    save_as("diffdyg-cached");
    refuses_any_part();
    save_as("mlp");
    refuses_any_part();
}

/* Loads the saved file with the first `from` replaced by `to` of equal length. */
static void refuses_edit(const char *from, const char *to, int status, const char *message)
{
    struct dl_buf bytes = file_bytes();
    struct dl_model *model;
    struct dl_error error = {{0}};
    cr_assert_eq(strlen(from), strlen(to));
    uint8_t *at = memmem(bytes.data, bytes.size, from, strlen(from));
    cr_assert_not_null(at, "%s", from);
    memcpy(at, to, strlen(to));
    int got = dl_model_load_bytes(dl_buf_slice(&bytes), "m", &model, &error);
    cr_expect_eq(got, status, "%s: %s (%s)", to, dl_status_name(got), error.text);
    cr_expect(strstr(error.text, message) != NULL, "%s: '%s'", to, error.text);
    if (got == DL_OK) dl_model_unref(model);
    dl_buf_free(&bytes);
}

Test(model, is_refused_with_metadata_that_does_not_fit)
{
    save();
    refuses_edit("driftline-model/1", "driftline-model/9", DL_ERR_VERSION, "driftline-model/9");
    refuses_edit("\"format\":", "\"farmot\":", DL_ERR_CORRUPT, "not a driftline model");
    refuses_edit("\"window\":\"8\"", "\"window\":\"0\"", DL_ERR_CORRUPT, "window is 0");
    refuses_edit("\"width\":\"32\"", "\"width\":\"99\"", DL_ERR_CORRUPT, "width 99");
    refuses_edit("\"width\":\"32\"", "\"width\":\"-2\"", DL_ERR_CORRUPT, "'width'");
    refuses_edit("\"width\":\"32\"", "\"width\":\"40\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"layers\":\"2\"", "\"layers\":\"1\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"layers\":\"2\"", "\"layers\":\"9\"", DL_ERR_CORRUPT, "layers 9");
    refuses_edit("\"heads\":\"2\"", "\"heads\":\"0\"", DL_ERR_CORRUPT, "heads is 0");
    refuses_edit("\"rope\":\"off\"", "\"rope\":\"yes\"", DL_ERR_CORRUPT,
                 "'rope' has the value 'yes'");
    refuses_edit("\"encoding.gap\":\"7\"", "\"encoding.gap\":\"0\"", DL_ERR_CORRUPT, "gap is 0");
    refuses_edit("\"1.25\"", "\"1.2x\"", DL_ERR_CORRUPT, "calibration.scale");
    refuses_edit("\"time_unit\":\"ms\"", "\"time_unit\":\"mm\"", DL_ERR_CORRUPT, "time_unit");
    refuses_edit("\"architecture\":\"diffdyg\"", "\"architecture\":\"diffgyd\"", DL_ERR_CORRUPT,
                 "diffgyd");
    refuses_edit("\"head.0.bias\"", "\"head.9.bias\"", DL_ERR_CORRUPT, "head.0.bias is missing");
    refuses_edit("\"drift.mean\"", "\"drift.maen\"", DL_ERR_CORRUPT, "drift.maen");
    refuses_edit("age,novelty", "age_novelty", DL_ERR_CORRUPT, "drift.names");
    refuses_edit("age,novelty", ",agenovelty", DL_ERR_CORRUPT, "drift.names");
}

Test(model, of_two_stages_comes_back_or_is_refused)
{
    save_as("diffdyg-cached");
    dl_model_unref(load());
    refuses_edit("\"width\":\"32\"", "\"width\":\"40\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"layers\":\"2\"", "\"layers\":\"0\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"heads\":\"2\"", "\"heads\":\"0\"", DL_ERR_CORRUPT, "heads is 0");
    refuses_edit("\"pair.0.bias\"", "\"pair.9.bias\"", DL_ERR_CORRUPT, "pair.0.bias is missing");
    save_as("mlp");
    struct dl_model *model = load();
    cr_expect_eq(dl_model_get_info(model)->config.layers, 0);
    dl_model_unref(model);
    refuses_edit("\"width\":\"32\"", "\"width\":\"40\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"layers\":\"0\"", "\"layers\":\"9\"", DL_ERR_CORRUPT, "layers 9");
    refuses_edit("\"layers\":\"0\"", "\"layers\":\"1\"", DL_ERR_CORRUPT, "shape");
    refuses_edit("\"architecture\":\"mlp\"", "\"architecture\":\"mpl\"", DL_ERR_CORRUPT, "mpl");
}

static void refuses_number(const char *name, size_t place, float value, const char *message)
{
    struct dl_buf bytes = file_bytes();
    struct dl_safetensors *tensors;
    struct dl_model *model;
    struct dl_error error = {{0}};
    cr_assert_eq(dl_safetensors_parse(dl_buf_slice(&bytes), "m", DL_MODEL_HEADER_BYTES_MAX,
                                      &tensors, &error),
                 DL_OK);
    const struct dl_tensor *tensor = dl_safetensors_find(tensors, name);
    cr_assert_not_null(tensor);
    memcpy((uint8_t *)(uintptr_t)tensor->data.data + 4 * place, &value, 4);
    dl_safetensors_free(tensors);
    cr_expect_eq(dl_model_load_bytes(dl_buf_slice(&bytes), "m", &model, &error), DL_ERR_CORRUPT);
    cr_expect(strstr(error.text, message) != NULL, "'%s'", error.text);
    dl_buf_free(&bytes);
}

Test(model, is_refused_with_columns_that_cannot_be_read)
{
    save();
    refuses_number("encoding.scaling", 5, __builtin_nanf(""), "encoding.scaling");
    refuses_number("encoding.scaling", 5, 2e9f,
                   "m: encoding.scaling: row 0, column 5 is 2e+09; a number within 1e9 expected");
    refuses_number("encoding.scaling", DL_READING_COLUMNS + 5, -1,
                   "row 1, column 5 is -1; a factor of 0 to 1e9 expected");
    refuses_number("encoding.steps", 5, -3e9f, "encoding.steps: row 0, column 5");
    refuses_number("encoding.steps", DL_READING_STEPS * DL_READING_STEPPED + 5, -0.5f,
                   "row 6, column 5 is -0.5; a factor");
    refuses_edit("\"encoding.steps\"", "\"encoding.stpes\"", DL_ERR_CORRUPT,
                 "encoding.steps is missing");
}

static void refuses_infinity(const char *message)
{
    struct dl_buf bytes = file_bytes();
    struct dl_reader reader = dl_reader_of(dl_buf_slice(&bytes));
    size_t header = (size_t)dl_read_u64(&reader);
    const float infinite = __builtin_inff();
    struct dl_model *model;
    struct dl_error error;
    memcpy(bytes.data + 8 + header + 40, &infinite, 4);
    cr_expect_eq(dl_model_load_bytes(dl_buf_slice(&bytes), "m", &model, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, message);
    dl_buf_free(&bytes);
}

Test(model, is_refused_with_weights_that_are_not_numbers)
{
    save();
    refuses_infinity("m: token.weight: value 10 is not a finite number");
    save_as("diffdyg-cached");
    refuses_infinity("m: token.weight: value 10 is not a finite number");
    save_as("mlp");
    refuses_infinity("m: pair.0.weight: value 10 is not a finite number");
}

Test(model, is_not_written_when_training_diverged)
{
    struct dl_error error;
    dl_network_values(network)[3] = __builtin_nanf("");
    cr_expect_eq(dl_model_save(path, network, &info, NULL, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "diverged") != NULL, "%s", error.text);
    cr_expect_neq(access(path, F_OK), 0);
    dl_network_updated(network);
}

Test(model, says_why_it_cannot_read_or_write)
{
    struct dl_model *model;
    struct dl_error error;
    cr_expect_eq(dl_model_load("/nonexistent/m.safetensors", &model, &error), DL_ERR_NOT_FOUND);
    cr_expect_str_eq(error.text, "/nonexistent/m.safetensors: No such file or directory");
    cr_expect_eq(dl_model_load("/tmp", &model, &error), DL_ERR_IO);
    cr_expect_eq(dl_model_save("/nonexistent/m.safetensors", network, &info, NULL, &error),
                 DL_ERR_IO);
}
