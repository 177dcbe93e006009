/* Thresholds: the run length that is asked for is the one that is met. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/mmd.h"
#include "model/run_length.h"

#define COLUMNS 3

/* Autoregressive normal rows with deviation 1; phi = 0: independent. */
struct source {
    struct dl_rng rng;
    double phi, shift, state[COLUMNS];
};

static void source_start(struct source *source, uint64_t seed, double phi, double shift)
{
    dl_rng_seed(&source->rng, seed);
    source->phi = phi;
    source->shift = shift;
    for (int c = 0; c < COLUMNS; c++) source->state[c] = dl_rng_normal(&source->rng);
}

static void source_next(struct source *source, float *row)
{
    const double fresh = sqrt(1 - source->phi * source->phi);
    for (int c = 0; c < COLUMNS; c++) {
        source->state[c] = source->phi * source->state[c] + fresh * dl_rng_normal(&source->rng);
        row[c] = (float)(source->state[c] + source->shift);
    }
}

static double mean_run(struct dl_mmd *mmd, double threshold, double phi, double shift, int runs,
                       uint64_t seed)
{
    const uint32_t window = dl_mmd_get_config(mmd)->window;
    double total = 0;
    for (int r = 0; r < runs; r++) {
        struct source source;
        float row[COLUMNS];
        source_start(&source, seed + (uint64_t)r, phi, 0);
        dl_mmd_clear(mmd);
        for (uint32_t i = 0; i + 1 < window; i++) {
            source_next(&source, row);
            dl_mmd_push(mmd, row);
        }
        source.shift = shift;
        double run = 0;
        do {
            source_next(&source, row);
            dl_mmd_push(mmd, row);
            run++;
        } while (dl_mmd_value(mmd) < threshold && run < 100000);
        total += run;
    }
    return total / runs;
}

/* Means over several references, since each one has its own luck. */
static void run_lengths(enum dl_mmd_form form, double phi, uint32_t rows, double *in_control,
                        double *shifted)
{
    enum { REFERENCES = 12, RUNS = 170 };
    float *reference = malloc(rows * COLUMNS * sizeof *reference);
    *in_control = *shifted = 0;
    for (uint64_t k = 0; k < REFERENCES; k++) {
        struct source source;
        source_start(&source, 1000 + k, phi, 0);
        for (uint32_t i = 0; i < rows; i++) source_next(&source, reference + i * COLUMNS);
        struct dl_mmd_config config = {.form = form,
                                       .columns = COLUMNS,
                                       .window = 40,
                                       .fourier = 256,
                                       .reference_max = 1000,
                                       .seed = k};
        struct dl_run_length_config ask = {.events = 200, .seed = 5};
        struct dl_run_length got;
        struct dl_mmd *mmd;
        cr_assert_eq(dl_mmd_new(&config, reference, rows, &mmd, NULL), 0);
        cr_assert_eq(dl_run_length_calibrate(mmd, reference, rows, &ask, &got, NULL), 0);
        cr_assert_eq(got.continued, 0);
        cr_assert_leq(fabs(got.achieved - 200), 4, "achieved %g", got.achieved);
        *in_control += mean_run(mmd, got.threshold, phi, 0, RUNS, 777 * (k + 1)) / REFERENCES;
        *shifted += mean_run(mmd, got.threshold, phi, 1, RUNS, 99 * (k + 1)) / REFERENCES;
        dl_mmd_free(mmd);
    }
    free(reference);
}

Test(run_length, is_met_on_independent_rows)
{
    for (int form = 0; form < 2; form++) {
        double in_control, shifted;
        run_lengths((enum dl_mmd_form)form, 0, 800, &in_control, &shifted);
        cr_log_warn(
            "independent, form %d: asked 200, measured %.1f; shift of 1 sd found after %.1f", form,
            in_control, shifted);
        cr_assert(in_control > 180 && in_control < 220, "form %d: %g", form, in_control);
        cr_assert_lt(shifted, 40, "form %d", form);
    }
}

Test(run_length, is_met_on_dependent_rows)
{
    double in_control, shifted;
    run_lengths(DL_MMD_FOURIER, 0.6, 3200, &in_control, &shifted);
    cr_log_warn("AR(1) 0.6: asked 200, measured %.1f; shift of 1 sd found after %.1f", in_control,
                shifted);
    cr_assert(in_control > 150 && in_control < 250, "%g", in_control);
    cr_assert_lt(shifted, 50);
}

Test(run_length, knows_dependence_and_warns)
{
    static float reference[6000 * COLUMNS];
    struct dl_mmd_config config = {
        .form = DL_MMD_FOURIER, .columns = COLUMNS, .window = 200, .fourier = 256};
    struct dl_run_length_config ask = {.events = 10000, .simulated_max = 20000};
    struct dl_run_length got;
    double times[2];
    for (int k = 0; k < 2; k++) {
        struct source source;
        source_start(&source, 5, k ? 0.95 : 0, 0);
        for (int i = 0; i < 6000; i++) source_next(&source, reference + i * COLUMNS);
        struct dl_mmd *mmd;
        cr_assert_eq(dl_mmd_new(&config, reference, 6000, &mmd, NULL), 0);
        cr_assert_eq(dl_run_length_calibrate(mmd, reference, 6000, &ask, &got, NULL), 0);
        times[k] = got.autocorrelation;
        cr_assert_eq(got.warning[0] != 0, k, "%s", got.warning);
        cr_assert_geq(got.threshold, got.largest_real);
        dl_mmd_free(mmd);
    }
    cr_assert_lt(times[0], 1.5);
    cr_assert_gt(times[1], 8);
}

Test(run_length, p_values_are_honest)
{
    static float reference[1000 * COLUMNS];
    struct source source;
    source_start(&source, 8, 0, 0);
    for (int i = 0; i < 1000; i++) source_next(&source, reference + i * COLUMNS);
    struct dl_mmd_config config = {
        .form = DL_MMD_FOURIER, .columns = COLUMNS, .window = 50, .fourier = 256};
    struct dl_run_length_config ask = {.events = 500, .seed = 1};
    struct dl_run_length got;
    struct dl_mmd *mmd;
    cr_assert_eq(dl_mmd_new(&config, reference, 1000, &mmd, NULL), 0);
    cr_assert_eq(dl_run_length_calibrate(mmd, reference, 1000, &ask, &got, NULL), 0);
    int below[3] = {0};
    for (int look = 0; look < 2000; look++) {
        float row[COLUMNS];
        for (int i = 0; i < 50; i++) {
            source_next(&source, row);
            dl_mmd_push(mmd, row);
        }
        double p = dl_run_length_p_value(&got, dl_mmd_value(mmd));
        below[0] += p <= 0.01, below[1] += p <= 0.05, below[2] += p <= 0.5;
    }
    dl_mmd_free(mmd);
    cr_assert(below[0] < 45 && below[1] > 50 && below[1] < 170 && below[2] > 800 && below[2] < 1200,
              "%d %d %d", below[0], below[1], below[2]);
    cr_assert_eq(dl_run_length_p_value(&got, 100), 1.0 / (DL_RUN_LENGTH_QUANTILES + 1));
    cr_assert_eq(dl_run_length_p_value(&got, -100), 1.0);
}
