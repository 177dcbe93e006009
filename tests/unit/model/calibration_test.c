/* Platt scaling. */
#include <criterion/criterion.h>

#include <math.h>

#include "base/rng.h"
#include "model/calibration.h"
#include "model/metrics.h"

Test(calibration, finds_the_scale_and_shift_that_made_the_labels)
{
    enum { COUNT = 40000 };
    static double positives[COUNT], negatives[COUNT];
    uint64_t p = 0, n = 0;
    struct dl_rng rng;
    struct dl_calibration fitted;
    dl_rng_seed(&rng, 1);
    for (int i = 0; i < COUNT; i++) {
        double z = 3 * dl_rng_normal(&rng);
        double probability = 1 / (1 + exp(-(0.5 * z - 0.7)));
        if (dl_rng_uniform(&rng) < probability)
            positives[p++] = z;
        else
            negatives[n++] = z;
    }
    cr_assert_eq(dl_calibration_fit(positives, p, negatives, n, &fitted), DL_OK);
    cr_expect_float_eq(fitted.scale, 0.5, 0.02);
    cr_expect_float_eq(fitted.shift, -0.7, 0.05);
    struct dl_reliability reliability = {0};
    for (uint64_t i = 0; i < p; i++)
        dl_metrics_reliability_add(&reliability, dl_calibration_probability(&fitted, positives[i]),
                                   1);
    for (uint64_t i = 0; i < n; i++)
        dl_metrics_reliability_add(&reliability, dl_calibration_probability(&fitted, negatives[i]),
                                   0);
    cr_expect(dl_metrics_ece(&reliability) < 0.01);
}

Test(calibration, stays_finite_on_separable_logits)
{
    const double positives[] = {500, 600, 700}, negatives[] = {-500, -600, -900};
    struct dl_calibration fitted;
    cr_assert_eq(dl_calibration_fit(positives, 3, negatives, 3, &fitted), DL_OK);
    double high = dl_calibration_probability(&fitted, 600);
    double low = dl_calibration_probability(&fitted, -600);
    cr_expect(high > 0.7 && high < 1, "%g", high);
    cr_expect(low < 0.3 && low > 0, "%g", low);
}

Test(calibration, keeps_the_order_even_when_scores_mislead)
{
    const double positives[] = {-1, -2, -3}, negatives[] = {1, 2, 3};
    struct dl_calibration fitted;
    cr_assert_eq(dl_calibration_fit(positives, 3, negatives, 3, &fitted), DL_OK);
    cr_expect(fitted.scale > 0);
    cr_expect_float_eq(dl_calibration_probability(&fitted, 0), 0.5, 1e-6);
}

Test(calibration, refuses_an_empty_side)
{
    const double one[] = {1};
    struct dl_calibration fitted;
    cr_expect_eq(dl_calibration_fit(one, 1, one, 0, &fitted), DL_ERR_INVALID);
}
