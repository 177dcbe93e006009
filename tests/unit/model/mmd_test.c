/* The rolling MMD against the formula written out in double precision. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/mmd.h"
#include "model/mmd_kernels.h"

#define COLUMNS 5
#define REFERENCE 120
#define WINDOW 37
#define STREAM 400

static struct dl_mmd_config config_of(enum dl_mmd_form form)
{
    return (struct dl_mmd_config){.form = form,
                                  .columns = COLUMNS,
                                  .window = WINDOW,
                                  .fourier = 256,
                                  .reference_max = 1000,
                                  .seed = 7};
}

static void draw_rows(uint64_t seed, uint32_t rows, uint32_t columns, double shift, float *out)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    for (uint32_t i = 0; i < rows * columns; i++) out[i] = (float)(dl_rng_normal(&rng) + shift);
}

static double gaussians(const float *a, const float *b, uint32_t columns, double width)
{
    double d2 = 0;
    for (uint32_t c = 0; c < columns; c++) d2 += ((double)a[c] - b[c]) * ((double)a[c] - b[c]);
    double sum = 0;
    for (int k = -1; k <= 1; k++) {
        double sigma = width * pow(2, k);
        sum += exp(-d2 / (2 * sigma * sigma));
    }
    return sum / 3;
}

/* The unbiased estimate by the kernel function at hand. */
static double brute_force(struct dl_mmd *mmd, const float *window, uint32_t n,
                          const float *reference, uint32_t m, uint32_t columns, int true_kernel)
{
    const double width = dl_mmd_width(mmd);
#define KERNEL(a, b) (true_kernel ? gaussians(a, b, columns, width) : dl_mmd_kernel(mmd, a, b))
    double xx = 0, xy = 0, yy = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < n; j++)
            if (i != j) xx += KERNEL(window + i * columns, window + j * columns);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < m; j++)
            xy += KERNEL(window + i * columns, reference + j * columns);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t j = 0; j < m; j++)
            if (i != j) yy += KERNEL(reference + i * columns, reference + j * columns);
#undef KERNEL
    return xx / ((double)n * (n - 1)) - 2 * xy / ((double)n * m) + yy / ((double)m * (m - 1));
}

static double worst_difference(enum dl_mmd_form form, const struct dl_mmd_kernels *kernels)
{
    static float reference[REFERENCE * COLUMNS], stream[STREAM * COLUMNS];
    draw_rows(1, REFERENCE, COLUMNS, 0, reference);
    draw_rows(2, STREAM, COLUMNS, 0.4, stream);
    struct dl_mmd_config config = config_of(form);
    struct dl_mmd *mmd;
    cr_assert_eq(dl_mmd_new(&config, reference, REFERENCE, &mmd, NULL), 0);
    if (kernels) dl_mmd_set_kernels(mmd, kernels);
    double worst = 0;
    for (uint32_t i = 0; i < STREAM; i++) {
        dl_mmd_push(mmd, stream + i * COLUMNS);
        uint32_t n = i + 1 < WINDOW ? i + 1 : WINDOW;
        cr_assert_eq(dl_mmd_count(mmd), n);
        if (n < 2 || i % 13) continue;
        double expected = brute_force(mmd, stream + (i + 1 - n) * COLUMNS, n, reference, REFERENCE,
                                      COLUMNS, form == DL_MMD_EXACT);
        double difference = fabs(expected - dl_mmd_value(mmd));
        if (difference > worst) worst = difference;
    }
    dl_mmd_free(mmd);
    return worst;
}

Test(mmd, exact_agrees_with_brute_force)
{
    double worst = worst_difference(DL_MMD_EXACT, NULL);
    cr_assert_lt(worst, 1e-6, "worst difference %g", worst);
    worst = worst_difference(DL_MMD_EXACT, &dl_mmd_kernels_c);
    cr_assert_lt(worst, 1e-6, "plain C: worst difference %g", worst);
}

Test(mmd, fourier_agrees_with_brute_force_on_its_own_kernel)
{
    double worst = worst_difference(DL_MMD_FOURIER, NULL);
    cr_assert_lt(worst, 1e-6, "worst difference %g", worst);
    worst = worst_difference(DL_MMD_FOURIER, &dl_mmd_kernels_c);
    cr_assert_lt(worst, 1e-6, "plain C: worst difference %g", worst);
}

Test(mmd, fourier_kernel_approaches_the_exact_one)
{
    float rows[40 * COLUMNS];
    draw_rows(3, 40, COLUMNS, 0, rows);
    struct dl_mmd_config config = config_of(DL_MMD_FOURIER);
    config.fourier = 4096;
    struct dl_mmd *mmd;
    cr_assert_eq(dl_mmd_new(&config, rows, 40, &mmd, NULL), 0);
    double squares = 0;
    for (uint32_t i = 0; i < 40; i++) {
        double difference = dl_mmd_kernel(mmd, rows, rows + i * COLUMNS) -
                            gaussians(rows, rows + i * COLUMNS, COLUMNS, dl_mmd_width(mmd));
        squares += difference * difference;
    }
    dl_mmd_free(mmd);
    /* 2,048 frequencies: a standard error of at most 1/sqrt(2 · 2048) = 0.016. */
    cr_assert_lt(sqrt(squares / 40), 0.02);
}

static void tiers_agree(uint32_t columns, uint32_t count, uint32_t blocks)
{
    if (!dl_mmd_kernels_avx2 || !__builtin_cpu_supports("avx2")) return;
    const struct dl_mmd_kernels *a = &dl_mmd_kernels_c, *b = dl_mmd_kernels_avx2;
    float *frequencies = malloc(sizeof(float) * columns * count + 4);
    float *rows = malloc(sizeof(float) * columns * blocks * 8 + 4), row[64];
    float *mean = malloc(sizeof(float) * count * 2 + 4);
    draw_rows(11, count, columns, 0, frequencies);
    draw_rows(12, blocks * 8, columns, 0, rows);
    draw_rows(13, 1, columns, 1, row);
    draw_rows(14, count * 2, 1, 0, mean);
    /* A canary after each output. */
    int16_t *fa = calloc(count * 2 + 1, sizeof *fa), *fb = calloc(count * 2 + 1, sizeof *fb);
    int32_t *sa = calloc(count * 2 + 1, sizeof *sa), *sb = calloc(count * 2 + 1, sizeof *sb);
    fa[count * 2] = fb[count * 2] = 12345;
    sa[count * 2] = sb[count * 2] = 12345;
    a->features(frequencies, count, columns, row, fa);
    b->features(frequencies, count, columns, row, fb);
    for (uint32_t i = 0; i < count * 2; i++)
        cr_assert_leq(abs(fa[i] - fb[i]), 2, "feature %u of %u", i, count);
    int16_t *zeros = calloc(count * 2 + 1, sizeof *zeros);
    double self_a, self_b, cross_a, cross_b;
    a->replace(sa, fa, zeros, mean, count * 2, &self_a, &cross_a);
    b->replace(sb, fa, zeros, mean, count * 2, &self_b, &cross_b);
    cr_assert_eq(memcmp(sa, sb, count * 2 * sizeof *sa), 0);
    cr_assert_leq(fabs(self_a - self_b), 1e-6 * self_a + 1e-9);
    cr_assert_leq(fabs(cross_a - cross_b), 1e-5 * sqrt(self_a * count) + 1e-9);
    int64_t ka = a->kernel_sum(rows, blocks, columns, row, -0.1f);
    int64_t kb = b->kernel_sum(rows, blocks, columns, row, -0.1f);
    cr_assert_leq(llabs(ka - kb), 16 * 8 * (long long)blocks, "%lld %lld", (long long)ka,
                  (long long)kb);
    cr_assert_eq(fa[count * 2] + fb[count * 2] + sa[count * 2] + sb[count * 2], 4 * 12345);
    free(frequencies), free(rows), free(mean), free(fa), free(fb), free(sa), free(sb), free(zeros);
}

Test(mmd, tiers_agree_at_all_sizes)
{
    const uint32_t columns[] = {1, 2, 3, 7, 8, 16, 17, 64};
    const uint32_t counts[] = {0, 16, 32, 48, 64, 80, 128, 144};
    const uint32_t blocks[] = {0, 1, 2, 63, 64, 65, 129};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        for (size_t j = 0; j < sizeof counts / sizeof *counts; j++)
            tiers_agree(columns[i], counts[j], blocks[(i + j) % 7]);
}

/* What the window held before must leave no trace. */
static void refill(enum dl_mmd_form form)
{
    static float reference[REFERENCE * COLUMNS], stream[STREAM * COLUMNS];
    draw_rows(1, REFERENCE, COLUMNS, 0, reference);
    draw_rows(2, STREAM, COLUMNS, 1, stream);
    struct dl_mmd_config config = config_of(form);
    struct dl_mmd *old, *fresh;
    cr_assert_eq(dl_mmd_new(&config, reference, REFERENCE, &old, NULL), 0);
    cr_assert_eq(dl_mmd_new(&config, reference, REFERENCE, &fresh, NULL), 0);
    for (int round = 0; round < 50; round++)
        for (uint32_t i = 0; i < STREAM; i++) dl_mmd_push(old, stream + i * COLUMNS);
    for (uint32_t i = STREAM - WINDOW; i < STREAM; i++) dl_mmd_push(fresh, stream + i * COLUMNS);
    double a = dl_mmd_value(old), b = dl_mmd_value(fresh);
    cr_assert_eq(memcmp(&a, &b, sizeof a), 0, "%.17g %.17g", a, b);
    dl_mmd_clear(old);
    cr_assert_eq(dl_mmd_value(old), 0);
    dl_mmd_free(old);
    dl_mmd_free(fresh);
}

Test(mmd, depends_on_what_the_window_holds_to_the_last_bit)
{
    refill(DL_MMD_EXACT);
    refill(DL_MMD_FOURIER);
}

static void leave_out(enum dl_mmd_form form)
{
    static float reference[REFERENCE * COLUMNS];
    draw_rows(1, REFERENCE, COLUMNS, 0, reference);
    struct dl_mmd_config config = config_of(form);
    config.reference_max = 50; /* thinned: only every few rows count in the exact form */
    struct dl_mmd *mmd;
    cr_assert_eq(dl_mmd_new(&config, reference, REFERENCE, &mmd, NULL), 0);
    const uint32_t ranges[][2] = {{1, 0}, {0, 9}, {5, 30}, {5, 30}, {20, 40}, {90, 119}, {3, 3}};
    const uint32_t kept = form == DL_MMD_EXACT ? 50 : REFERENCE;
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        const float *row = reference + 60 * COLUMNS;
        double sum = 0;
        uint32_t left = 0;
        for (uint32_t k = 0; k < kept; k++) {
            uint32_t i = k * REFERENCE / kept;
            if (i >= ranges[r][0] && i <= ranges[r][1]) continue;
            sum += dl_mmd_kernel(mmd, row, reference + i * COLUMNS);
            left++;
        }
        double got = dl_mmd_cross_without(mmd, row, ranges[r][0], ranges[r][1]);
        cr_assert_leq(fabs(sum / left - got), 1e-6, "range %zu: %g %g", r, sum / left, got);
    }
    dl_mmd_free(mmd);
}

Test(mmd, leaves_out_a_stretch_of_the_reference)
{
    leave_out(DL_MMD_EXACT);
    leave_out(DL_MMD_FOURIER);
}

Test(mmd, is_near_zero_without_a_shift_and_large_with_one)
{
    static float reference[REFERENCE * COLUMNS], stream[WINDOW * COLUMNS];
    draw_rows(1, REFERENCE, COLUMNS, 0, reference);
    for (int form = 0; form < 2; form++) {
        struct dl_mmd_config config = config_of((enum dl_mmd_form)form);
        struct dl_mmd *mmd;
        cr_assert_eq(dl_mmd_new(&config, reference, REFERENCE, &mmd, NULL), 0);
        draw_rows(21, WINDOW, COLUMNS, 0, stream);
        for (uint32_t i = 0; i < WINDOW; i++) dl_mmd_push(mmd, stream + i * COLUMNS);
        double without = dl_mmd_value(mmd);
        draw_rows(22, WINDOW, COLUMNS, 1, stream);
        for (uint32_t i = 0; i < WINDOW; i++) dl_mmd_push(mmd, stream + i * COLUMNS);
        double with = dl_mmd_value(mmd);
        cr_assert_lt(fabs(without), 0.02);
        cr_assert_gt(with, 0.1);
        dl_mmd_free(mmd);
    }
}

Test(mmd, refuses_what_it_cannot_use)
{
    float rows[4 * COLUMNS] = {0};
    struct dl_mmd *mmd;
    struct dl_error error;
    struct dl_mmd_config config = config_of(DL_MMD_FOURIER);
    cr_assert_eq(dl_mmd_new(&config, rows, 1, &mmd, &error), DL_ERR_INVALID);
    config.fourier = 33;
    cr_assert_eq(dl_mmd_new(&config, rows, 4, &mmd, &error), DL_ERR_INVALID);
    config = config_of(DL_MMD_EXACT);
    config.window = 1;
    cr_assert_eq(dl_mmd_new(&config, rows, 4, &mmd, &error), DL_ERR_INVALID);
    config = config_of(DL_MMD_EXACT);
    rows[7] = NAN;
    cr_assert_eq(dl_mmd_new(&config, rows, 4, &mmd, &error), DL_ERR_INVALID);
    cr_assert_not_null(strstr(error.text, "row 1, column 2"));
    /* All rows equal: a width of 1, and a statistic of 0. */
    rows[7] = 0;
    cr_assert_eq(dl_mmd_new(&config, rows, 4, &mmd, &error), 0);
    for (int i = 0; i < 60; i++) dl_mmd_push(mmd, rows);
    cr_assert_eq(dl_mmd_width(mmd), 1.0);
    cr_assert_lt(fabs(dl_mmd_value(mmd)), 1e-6);
    dl_mmd_free(mmd);
}
