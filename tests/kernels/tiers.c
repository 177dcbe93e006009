/* Every kernel of every tier that this processor has against plain C, at sizes
 * around the vector widths, unaligned, between canaries; tolerances are those of
 * the table in kernels.h. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "model/kernels/kernels.h"
#include "tests/support/guarded.h"

#define EPSILON 5.9604645e-8 /* 2^−24 */

static const size_t sizes[] = {0, 1, 2, 3, 6, 7, 8, 9, 12, 15, 16, 17, 18, 31, 32, 33, 64, 66, 100};
#define SIZES (sizeof sizes / sizeof *sizes)

static const struct dl_kernels *c;
static struct dl_rng rng;

/* Calls `check` for each faster tier; says so where there is none. */
static void with_each_tier(void (*check)(const struct dl_kernels *tier))
{
    int tried = 0;
    c = dl_kernels_named("c");
    for (int i = 1; dl_kernels_names[i] != NULL; i++) {
        const struct dl_kernels *tier = dl_kernels_named(dl_kernels_names[i]);
        if (tier == NULL) continue;
        dl_rng_seed(&rng, 1);
        check(tier);
        tried++;
    }
    if (tried == 0) cr_skip("this processor has none of the faster tiers");
}

static struct guarded noise(size_t count)
{
    struct guarded array = guarded_new(count);
    for (size_t i = 0; i < count; i++) array.at[i] = (float)dl_rng_normal(&rng);
    return array;
}

static struct guarded copy(const struct guarded *from)
{
    struct guarded array = guarded_new(from->count);
    memcpy(array.at, from->at, from->count * sizeof(float));
    return array;
}

/* All elements within relative · |expected| + absolute. Frees both. */
static void same(const struct dl_kernels *tier, const char *what, size_t n,
                 struct guarded *expected, struct guarded *got, double relative, double absolute)
{
    cr_assert(guarded_intact(got), "%s: %s of %zu wrote before its array", tier->name, what, n);
    for (size_t i = 0; i < expected->count; i++) {
        double x = (double)expected->at[i], y = (double)got->at[i];
        cr_assert(fabs(x - y) <= relative * fabs(x) + absolute,
                  "%s: %s of %zu, element %zu: %.9g, plain C %.9g", tier->name, what, n, i, y, x);
    }
    guarded_free(expected);
    guarded_free(got);
}

/* ---- matrix product ---------------------------------------------------------------------- */

/* Fills rows of `row` floats with a marker between the n that are used, so that
 * a store past them shows. */
static struct guarded rows_of(size_t rows, size_t n, size_t row)
{
    struct guarded array = guarded_new(rows ? (rows - 1) * row + n : 0);
    for (size_t i = 0; i < array.count; i++) array.at[i] = 77;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < n; j++) array.at[i * row + j] = (float)dl_rng_normal(&rng);
    return array;
}

static void gemm_once(const struct dl_kernels *tier, size_t m, size_t n, size_t k, int transposed,
                      int packed, int bias, int accumulate)
{
    size_t a_row = transposed ? m + 1 : k + 3, b_row = n + 2, c_row = n + 1;
    struct guarded a = transposed ? rows_of(k, m, a_row) : rows_of(m, k, a_row);
    struct guarded b = rows_of(k, n, b_row), bias_values = noise(n);
    struct guarded panels = guarded_new(dl_packed_size(k, n));
    struct guarded expected = rows_of(m, n, c_row), got = copy(&expected);
    c->pack_rows(k, n, b.at, b_row, panels.at);
    struct dl_gemm gemm = {.m = m,
                           .n = n,
                           .k = k,
                           .a = a.at,
                           .a_row = transposed ? 1 : a_row,
                           .a_column = transposed ? a_row : 1,
                           .b = packed ? panels.at : b.at,
                           .b_row = packed ? DL_PANEL : b_row,
                           .b_panel = packed ? DL_PANEL * k : DL_PANEL,
                           .c_row = c_row,
                           .bias = bias ? bias_values.at : NULL,
                           .accumulate = accumulate};
    gemm.c = expected.at;
    c->gemm(&gemm);
    gemm.c = got.at;
    tier->gemm(&gemm);
    double each = (double)(k + 2) * 2 * EPSILON;
    same(tier, "gemm", m * n * k, &expected, &got, each, each * (double)(k + 8));
    guarded_free(&a);
    guarded_free(&b);
    guarded_free(&bias_values);
    guarded_free(&panels);
}

static void check_gemm(const struct dl_kernels *tier)
{
    static const size_t few[] = {0, 1, 5, 6, 7, 12, 13, 18, 33};
    static const size_t columns[] = {0, 1, 7, 8, 9, 15, 16, 17, 18, 31, 32, 33, 66};
    static const size_t depths[] = {0, 1, 2, 16, 33};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
            for (size_t p = 0; p < sizeof depths / sizeof *depths; p++)
                for (int form = 0; form < 16; form++)
                    gemm_once(tier, few[i], columns[j], depths[p], form & 1, form >> 1 & 1,
                              form >> 2 & 1, form >> 3 & 1);
    gemm_once(tier, 700, 40, 64, 0, 1, 1, 0); /* several blocks of rows */
    gemm_once(tier, 64, 64, 900, 1, 0, 0, 1); /* a weight's gradient */
}

Test(kernels, gemm)
{
    with_each_tier(check_gemm);
}

/* An element may not depend on how many rows and columns are computed with it. */
static void check_gemm_alone(const struct dl_kernels *tier)
{
    enum { M = 29, N = 50, K = 37 };
    struct guarded a = noise(M * K), b = noise(K * N), panels = guarded_new(dl_packed_size(K, N));
    struct guarded whole = guarded_new(M * N), one = guarded_new(1);
    tier->pack_rows(K, N, b.at, N, panels.at);
    struct dl_gemm gemm = {.m = M,
                           .n = N,
                           .k = K,
                           .a = a.at,
                           .a_row = K,
                           .a_column = 1,
                           .b = panels.at,
                           .b_row = DL_PANEL,
                           .b_panel = DL_PANEL * K,
                           .c = whole.at,
                           .c_row = N};
    tier->gemm(&gemm);
    for (size_t i = 0; i < M; i++) {
        for (size_t j = 0; j < N; j++) {
            gemm = (struct dl_gemm){.m = 1,
                                    .n = 1,
                                    .k = K,
                                    .a = a.at + i * K,
                                    .a_row = K,
                                    .a_column = 1,
                                    .b = b.at + j,
                                    .b_row = N,
                                    .b_panel = DL_PANEL,
                                    .c = one.at,
                                    .c_row = 1};
            tier->gemm(&gemm);
            cr_assert_eq(memcmp(one.at, &whole.at[i * N + j], sizeof(float)), 0,
                         "%s: element (%zu, %zu)", tier->name, i, j);
        }
    }
    guarded_free(&a);
    guarded_free(&b);
    guarded_free(&panels);
    guarded_free(&whole);
    guarded_free(&one);
}

Test(kernels, gemm_element_does_not_depend_on_its_company)
{
    with_each_tier(check_gemm_alone);
}

static void check_pack(const struct dl_kernels *tier)
{
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < SIZES; j++) {
            size_t k = sizes[i], n = sizes[j];
            struct guarded rows = rows_of(k, n, n + 3), columns = rows_of(n, k, k + 1);
            struct guarded expected = guarded_new(dl_packed_size(k, n)), got = copy(&expected);
            c->pack_rows(k, n, rows.at, n + 3, expected.at);
            tier->pack_rows(k, n, rows.at, n + 3, got.at);
            same(tier, "pack_rows", k * n, &expected, &got, 0, 0);
            expected = guarded_new(dl_packed_size(k, n));
            got = copy(&expected);
            c->pack_transposed(k, n, columns.at, k + 1, expected.at);
            tier->pack_transposed(k, n, columns.at, k + 1, got.at);
            same(tier, "pack_transposed", k * n, &expected, &got, 0, 0);
            guarded_free(&rows);
            guarded_free(&columns);
        }
    }
}

Test(kernels, packing)
{
    with_each_tier(check_pack);
}

/* ---- elements ------------------------------------------------------------------------------- */

static void check_elements(const struct dl_kernels *tier)
{
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        for (int round = 0; round < 3; round++) {
            struct guarded x = noise(n), dy = noise(n);
            for (size_t i = 0; i < n; i++) x.at[i] *= round == 0 ? 1 : round == 1 ? 10 : 1e-3f;
            struct guarded expected = guarded_new(n), got = guarded_new(n);
            c->gelu(n, x.at, expected.at);
            tier->gelu(n, x.at, got.at);
            same(tier, "gelu", n, &expected, &got, 2e-6, 1e-6);
            expected = copy(&dy), got = copy(&dy); /* in place */
            c->gelu_backward(n, x.at, expected.at, expected.at);
            tier->gelu_backward(n, x.at, got.at, got.at);
            same(tier, "gelu_backward", n, &expected, &got, 2e-6, 1e-5);
            expected = guarded_new(n), got = copy(&x);
            c->exp(n, x.at, expected.at);
            tier->exp(n, got.at, got.at);
            same(tier, "exp", n, &expected, &got, 3e-7, 0);
            expected = copy(&dy), got = copy(&dy);
            c->add(n, x.at, expected.at);
            tier->add(n, x.at, got.at);
            same(tier, "add", n, &expected, &got, 0, 0);
            expected = copy(&dy), got = copy(&dy);
            c->dropout(n, 0xfffffff0u, 20000, 1.5f, expected.at);
            tier->dropout(n, 0xfffffff0u, 20000, 1.5f, got.at);
            same(tier, "dropout", n, &expected, &got, 0, 0);
            double sum = c->square_sum(n, x.at);
            cr_assert_float_eq(tier->square_sum(n, x.at), sum, 1e-6 * sum);
            guarded_free(&x);
            guarded_free(&dy);
        }
    }
}

Test(kernels, elementwise)
{
    with_each_tier(check_elements);
}

static void check_range(const struct dl_kernels *tier)
{
    enum { N = 20000 };
    struct guarded x = guarded_new(N), expected = guarded_new(N), got = guarded_new(N);
    for (int i = 0; i < N; i++) x.at[i] = -87.0f + 175.0f * (float)i / (N - 1);
    c->exp(N, x.at, expected.at);
    tier->exp(N, x.at, got.at);
    same(tier, "exp over its range", N, &expected, &got, 3e-7, 0);
    struct guarded far = guarded_new(4);
    far.at[0] = -1e9f, far.at[1] = 1e9f, far.at[2] = -INFINITY, far.at[3] = NAN;
    tier->exp(4, far.at, far.at);
    cr_expect(far.at[0] >= 0 && far.at[0] < 1e-37f && far.at[2] >= 0 && far.at[2] < 1e-37f);
    cr_expect(far.at[1] > 1e38f && isnan(far.at[3]));
    guarded_free(&far);
    for (int i = 0; i < N; i++)
        x.at[i] = (i % 2 ? 1e5f : 12.0f) * (2 * (float)dl_rng_uniform(&rng) - 1);
    struct guarded sine = guarded_new(N), sine_got = guarded_new(N);
    expected = guarded_new(N), got = guarded_new(N);
    c->cos_sin(N, x.at, expected.at, sine.at);
    tier->cos_sin(N, x.at, got.at, sine_got.at);
    same(tier, "cos over its range", N, &expected, &got, 0, 2e-6);
    same(tier, "sin over its range", N, &sine, &sine_got, 0, 2e-6);
    guarded_free(&x);
    for (size_t s = 0; s < SIZES; s++) {
        x = noise(sizes[s]);
        expected = guarded_new(sizes[s]), got = guarded_new(sizes[s]);
        c->cos_sin(sizes[s], x.at, expected.at, NULL);
        tier->cos_sin(sizes[s], x.at, got.at, NULL);
        same(tier, "cos", sizes[s], &expected, &got, 0, 2e-6);
        guarded_free(&x);
    }
}

Test(kernels, exp_and_cosine_over_their_range)
{
    with_each_tier(check_range);
}

/* The share that is dropped, and no pattern between neighbours or keys. */
Test(kernels, dropout_drops_its_share)
{
    enum { N = 100000 };
    static float x[2][N];
    c = dl_kernels_named("c");
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < N; i++) x[k][i] = 1;
        c->dropout(N, k ? 12345 : 12346 + N, 6554, 1.25f, x[k]);
    }
    int dropped = 0, neighbours = 0, both = 0;
    for (int i = 0; i < N; i++) {
        cr_assert(x[0][i] == 0 || x[0][i] == 1.25f);
        dropped += x[0][i] == 0;
        neighbours += i > 0 && x[0][i] == 0 && x[0][i - 1] == 0;
        both += x[0][i] == 0 && x[1][i] == 0;
    }
    /* Five standard deviations about a tenth and a hundredth. */
    cr_expect(abs(dropped - 10000) < 475, "%d", dropped);
    cr_expect(abs(neighbours - 1000) < 160, "%d", neighbours);
    cr_expect(abs(both - 1000) < 160, "%d", both);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What stands in the padding is nobody's business. */
static void level_padding(const struct guarded *from, struct guarded *to, size_t n, size_t columns,
                          size_t row)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = columns; j < dl_padded(columns); j++)
            to->at[i * row + j] = from->at[i * row + j];
}

/* Two softmaxes side by side, the second from any column on. */
static void softmax_once(const struct dl_kernels *tier, size_t n, size_t columns)
{
    const size_t both = 2 * columns, row = dl_padded(columns + dl_padded(columns)) + 3;
    struct guarded x = rows_of(n + 1, row, row), other = rows_of(n + 1, row, row);
    for (size_t i = 0; i < x.count; i++) x.at[i] *= 8;
    struct guarded expected = copy(&x), got = copy(&x);
    c->softmax(n, both, 0.25f, expected.at, row);
    tier->softmax(n, both, 0.25f, got.at, row);
    for (size_t j = 0; j < both && n > 0; j++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)expected.at[i * row + j];
        cr_assert_float_eq(sum * (double)expected.at[n * row + j], 1, 1e-6);
    }
    struct guarded a = copy(&expected);
    level_padding(&expected, &got, n + 1, both, row);
    same(tier, "softmax", n, &expected, &got, 4e-6, 1e-9);
    expected = copy(&other), got = copy(&other);
    float sum = c->softmax_backward(n, columns, 0.5f, a.at + columns, other.at, expected.at, row);
    float sum_got = tier->softmax_backward(n, columns, 0.5f, a.at + columns, got.at, got.at, row);
    cr_assert_float_eq(sum_got, sum, 1e-5 * (double)(columns + 1));
    level_padding(&expected, &got, n, columns, row);
    same(tier, "softmax_backward", n, &expected, &got, 1e-5, 1e-5);
    for (int maps = 1; maps <= 2; maps++) {
        const float *second = maps == 2 ? a.at + columns : NULL;
        expected = copy(&other), got = copy(&other);
        c->difference(n, columns, 0.3f, a.at, second, expected.at, row);
        tier->difference(n, columns, 0.3f, a.at, second, got.at, row);
        level_padding(&expected, &got, n, columns, row);
        same(tier, "difference", n, &expected, &got, 4e-6, 1e-6);
    }
    guarded_free(&a);
    guarded_free(&x);
    guarded_free(&other);
}

static void check_softmax(const struct dl_kernels *tier)
{
    for (size_t s = 0; s < SIZES; s++)
        for (size_t t = 0; t < SIZES; t++) softmax_once(tier, sizes[s], sizes[t]);
}

Test(kernels, softmax_and_its_gradient)
{
    with_each_tier(check_softmax);
}

static void rmsnorm_once(const struct dl_kernels *tier, size_t rows, size_t n, int has_gain,
                         int accumulate)
{
    size_t row = n + 3;
    struct guarded x = rows_of(rows, n, row), dy = rows_of(rows, n, row), gain = noise(n);
    struct guarded inverse = guarded_new(rows), inverse_got = guarded_new(rows);
    struct guarded expected = rows_of(rows, n, row), got = copy(&expected);
    const float *gain_at = has_gain ? gain.at : NULL;
    c->rmsnorm(rows, n, x.at, row, gain_at, 0.7f, expected.at, row, inverse.at);
    tier->rmsnorm(rows, n, x.at, row, gain_at, 0.7f, got.at, row, inverse_got.at);
    same(tier, "rmsnorm", n, &expected, &got, 1e-5, 1e-5);
    expected = copy(&inverse);
    same(tier, "rmsnorm's factors", n, &expected, &inverse_got, 1e-5, 0);
    expected = rows_of(rows, n, row), got = copy(&expected);
    struct guarded dgain = noise(n), dgain_got = copy(&dgain);
    c->rmsnorm_backward(rows, n, x.at, row, gain_at, 0.7f, inverse.at, dy.at, row, expected.at, row,
                        accumulate, has_gain ? dgain.at : NULL);
    tier->rmsnorm_backward(rows, n, x.at, row, gain_at, 0.7f, inverse.at, dy.at, row, got.at, row,
                           accumulate, has_gain ? dgain_got.at : NULL);
    /* n = 1 makes a sign of x, whose slope is a difference of equal numbers. */
    same(tier, "rmsnorm_backward", n, &expected, &got, 1e-5, n == 1 ? 1e-2 : 2e-5);
    same(tier, "rmsnorm's gain", n, &dgain, &dgain_got, 1e-5, 1e-5);
    guarded_free(&x);
    guarded_free(&dy);
    guarded_free(&gain);
    guarded_free(&inverse);
}

static void check_rmsnorm(const struct dl_kernels *tier)
{
    for (size_t s = 1; s < SIZES; s++)
        for (size_t rows = 0; rows < 18; rows += rows < 4 ? 1 : 5)
            for (int form = 0; form < 4; form++)
                rmsnorm_once(tier, rows, sizes[s], form & 1, form >> 1);
}

Test(kernels, rmsnorm_and_its_gradient)
{
    with_each_tier(check_rmsnorm);
}

static void check_rotate(const struct dl_kernels *tier)
{
    static const uint32_t position[3] = {2, 0, 3};
    for (size_t s = 0; s < SIZES; s++) {
        size_t h = sizes[s], heads = 3, row = heads * 2 * h + 5;
        struct guarded cosine = guarded_new(4 * h), sine = guarded_new(4 * h);
        for (size_t i = 0; i < 4 * h; i++) {
            double angle = dl_rng_normal(&rng);
            cosine.at[i] = (float)cos(angle), sine.at[i] = (float)sin(angle);
        }
        struct guarded start = rows_of(3, heads * 2 * h, row);
        struct guarded expected = copy(&start), got = copy(&start);
        c->rotate(3, heads, h, expected.at, row, position, cosine.at, sine.at, 1);
        tier->rotate(3, heads, h, got.at, row, position, cosine.at, sine.at, 1);
        struct guarded back = copy(&got);
        same(tier, "rotate", h, &expected, &got, 2 * EPSILON, 1e-6);
        tier->rotate(3, heads, h, back.at, row, position, cosine.at, sine.at, -1);
        same(tier, "rotate there and back", h, &start, &back, 1e-6, 2e-6);
        guarded_free(&cosine);
        guarded_free(&sine);
    }
}

Test(kernels, rotation)
{
    with_each_tier(check_rotate);
}

static void check_column_sums(const struct dl_kernels *tier)
{
    for (size_t s = 0; s < SIZES; s++) {
        for (size_t rows = 0; rows < 40; rows += 13) {
            size_t n = sizes[s], row = n + 2;
            struct guarded x = rows_of(rows, n, row), expected = noise(n), got = copy(&expected);
            c->column_sums(rows, n, x.at, row, expected.at);
            tier->column_sums(rows, n, x.at, row, got.at);
            same(tier, "column_sums", n, &expected, &got, 0,
                 (double)(rows + 1) * 2 * EPSILON * (double)(rows + 4));
            guarded_free(&x);
        }
    }
}

Test(kernels, column_sums)
{
    with_each_tier(check_column_sums);
}

static void check_adamw(const struct dl_kernels *tier)
{
    const struct dl_adamw_step step = {.rate = 2e-3f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.999f,
                                       .epsilon = 1e-8f,
                                       .decay = 0.01f,
                                       .scale = 0.5f,
                                       .correction1 = 0.271f,
                                       .correction2 = 0.002997f};
    for (size_t s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        struct guarded gradient = noise(n), state[2][3];
        for (int i = 0; i < 3; i++) {
            state[0][i] = noise(n);
            for (size_t j = 0; j < n && i == 1; j++) state[0][i].at[j] *= state[0][i].at[j];
            state[1][i] = copy(&state[0][i]);
        }
        c->adamw(n, &step, gradient.at, state[0][0].at, state[0][1].at, state[0][2].at);
        tier->adamw(n, &step, gradient.at, state[1][0].at, state[1][1].at, state[1][2].at);
        for (int i = 0; i < 3; i++) same(tier, "adamw", n, &state[0][i], &state[1][i], 1e-6, 1e-7);
        guarded_free(&gradient);
    }
}

Test(kernels, adamw)
{
    with_each_tier(check_adamw);
}

/* ---- choice ---------------------------------------------------------------------------------- */

Test(kernels, are_chosen_by_the_environment)
{
    const struct dl_kernels *kernels;
    struct dl_error error;
    setenv("DRIFTLINE_KERNELS", "c", 1);
    cr_assert_eq(dl_kernels_choose(&kernels, &error), DL_OK);
    cr_expect_str_eq(kernels->name, "c");
    setenv("DRIFTLINE_KERNELS", "mmx", 1);
    cr_expect_eq(dl_kernels_choose(&kernels, &error), DL_ERR_INVALID);
    cr_expect_str_eq(error.text,
                     "DRIFTLINE_KERNELS=mmx: unknown tier; use c, avx2, avx512 or neon");
    unsetenv("DRIFTLINE_KERNELS");
    cr_assert_eq(dl_kernels_choose(&kernels, &error), DL_OK);
    cr_expect_eq(dl_kernels_named(kernels->name), kernels);
}
