/* The two-sample test: right size on dependent rows, and it finds what differs. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "model/two_sample.h"

#define COLUMNS 3
#define ROWS 400

/* Stretches of `block` rows, autoregressive within. */
static void draw(struct dl_rng *rng, double phi, double shift, uint32_t block, float *rows)
{
    for (int c = 0; c < COLUMNS; c++) {
        double x = 0;
        for (uint32_t i = 0; i < ROWS; i++) {
            x = i % block ? phi * x + sqrt(1 - phi * phi) * dl_rng_normal(rng) : dl_rng_normal(rng);
            rows[i * COLUMNS + c] = (float)(x + shift);
        }
    }
}

static double p_value(struct dl_rng *rng, double phi, double shift, uint32_t block_rows)
{
    float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
    struct dl_two_sample_config config = {COLUMNS, block_rows, 199, 3};
    struct dl_two_sample result;
    draw(rng, phi, 0, 20, a);
    draw(rng, phi, shift, 20, b);
    cr_assert_eq(dl_two_sample_test(&config, a, ROWS, b, ROWS, &result, NULL), 0);
    return result.p_value;
}

/* Sanitizers look for bad accesses, not for the level; runs are slow there. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LEVEL_RUNS 20
#else
#define LEVEL_RUNS 200
#endif

Test(two_sample, keeps_its_level_on_dependent_rows)
{
    struct dl_rng rng;
    int blocks = 0, rows = 0;
    dl_rng_seed(&rng, 1);
    for (int k = 0; k < LEVEL_RUNS; k++) blocks += p_value(&rng, 0.8, 0, 20) <= 0.05;
    for (int k = 0; k < LEVEL_RUNS / 5; k++) rows += p_value(&rng, 0.8, 0, 1) <= 0.05;
    /* 5 % of 200 is 10, with a deviation of 3; single rows call almost everything shifted. */
    cr_assert(blocks <= LEVEL_RUNS / 20 + 10, "%d of %d", blocks, LEVEL_RUNS);
    cr_assert(rows >= LEVEL_RUNS / 10, "%d of %d", rows, LEVEL_RUNS / 5);
}

Test(two_sample, finds_a_shift)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, 2);
    for (int k = 0; k < 20; k++) cr_assert_leq(p_value(&rng, 0.5, 0.7, 20), 0.05);
}

Test(two_sample, agrees_with_the_formula)
{
    float a[ROWS * COLUMNS], b[ROWS * COLUMNS];
    struct dl_rng rng;
    struct dl_two_sample result;
    struct dl_two_sample_config config = {COLUMNS, 9, 19, 3}; /* a padded block */
    dl_rng_seed(&rng, 4);
    draw(&rng, 0, 0, 20, a);
    draw(&rng, 0, 0.5, 20, b);
    cr_assert_eq(dl_two_sample_test(&config, a, 60, b, 50, &result, NULL), 0);
    cr_assert(result.blocks_a == 6 && result.blocks_b == 5);
    double sums[3] = {0};
    for (int i = 0; i < 99; i++)
        for (int j = 0; j < 99; j++) {
            if (i == j) continue;
            const float *x = i < 54 ? a + i * COLUMNS : b + (i - 54) * COLUMNS;
            const float *y = j < 54 ? a + j * COLUMNS : b + (j - 54) * COLUMNS;
            double d2 = 0, k = 0;
            for (int c = 0; c < COLUMNS; c++) d2 += pow((double)x[c] - y[c], 2);
            for (int w = -1; w <= 1; w++)
                k += exp(-d2 / (2 * pow(result.width * pow(2, w), 2))) / 3;
            sums[(i >= 54) + (j >= 54)] += k;
        }
    double expected = sums[0] / (54.0 * 53) + sums[2] / (45.0 * 44) - sums[1] / (54.0 * 45);
    cr_assert(fabs(expected - result.mmd2) < 1e-6, "%g %g", expected, result.mmd2);
    cr_assert_eq(dl_two_sample_test(&config, a, 17, b, 50, &result, NULL), DL_ERR_INVALID);
}

Test(two_sample, energy_distance_agrees_with_the_formula)
{
    float x[30], y[20];
    struct dl_rng rng;
    dl_rng_seed(&rng, 5);
    for (int i = 0; i < 30; i++) x[i] = (float)(int)(4 * dl_rng_normal(&rng));
    for (int i = 0; i < 20; i++) y[i] = (float)(int)(4 * dl_rng_normal(&rng) + 2);
    double xy = 0, xx = 0, yy = 0;
    for (int i = 0; i < 30; i++)
        for (int j = 0; j < 20; j++) xy += fabs((double)x[i] - y[j]) / 600;
    for (int i = 0; i < 30; i++)
        for (int j = 0; j < 30; j++) xx += fabs((double)x[i] - x[j]) / 900;
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 20; j++) yy += fabs((double)y[i] - y[j]) / 400;
    double got = dl_two_sample_energy(x, 30, y, 20);
    cr_assert(fabs(got - (2 * xy - xx - yy)) < 1e-9, "%g %g", got, 2 * xy - xx - yy);
    cr_assert_eq(dl_two_sample_energy(x, 0, y, 20), 0);
}
