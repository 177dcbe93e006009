/* Metrics against values worked out by hand and against definitions. */
#include <criterion/criterion.h>

#include <math.h>

#include "base/rng.h"
#include "model/metrics.h"

Test(metrics, ap_and_auc_of_a_small_case)
{
    /* scikit-learn: y = 1 0 1 0, scores .9 .8 .7 .1 -> AP 0.8333, AUC 0.75 */
    const double p[] = {0.7, 0.9}, n[] = {0.1, 0.8};
    double ap, auc;
    cr_assert_eq(dl_metrics_ranking(p, 2, n, 2, &ap, &auc), DL_OK);
    cr_expect_float_eq(ap, (1.0 + 2.0 / 3) / 2, 1e-12);
    cr_expect_float_eq(auc, 0.75, 1e-12);
}

Test(metrics, ties_count_as_one_step)
{
    const double p[] = {1, 1, 0}, n[] = {1, 0, 0};
    double ap, auc;
    cr_assert_eq(dl_metrics_ranking(p, 3, n, 3, &ap, &auc), DL_OK);
    cr_expect_float_eq(ap, (2.0 / 3) * (2.0 / 3) + (1.0 / 3) * 0.5, 1e-12);
    cr_expect_float_eq(auc, (2 * (2 + 0.5) + 1 * (2 * 0.5)) / 9, 1e-12);
}

Test(metrics, an_empty_side_is_no_number)
{
    const double one[] = {1};
    double ap, auc;
    cr_assert_eq(dl_metrics_ranking(one, 1, one, 0, &ap, &auc), DL_OK);
    cr_expect(isnan(ap) && isnan(auc));
}

/* The definitions, the slow way. */
static void slow(const double *p, int np, const double *n, int nn, double *ap, double *auc)
{
    *ap = *auc = 0;
    for (int i = 0; i < np; i++) {
        double tp = 0, all = 0;
        for (int j = 0; j < np; j++) tp += p[j] >= p[i];
        all = tp;
        for (int j = 0; j < nn; j++) {
            all += n[j] >= p[i];
            *auc += (p[i] > n[j]) + 0.5 * (p[i] == n[j]);
        }
        *ap += tp / all / np;
    }
    *auc /= (double)np * nn;
}

Test(metrics, agree_with_the_definitions_on_random_scores_with_ties)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, 4);
    for (int round = 0; round < 50; round++) {
        double p[90], n[120], ap, auc, slow_ap, slow_auc;
        int np = 1 + (int)dl_rng_below(&rng, 90), nn = 1 + (int)dl_rng_below(&rng, 120);
        for (int i = 0; i < np; i++) p[i] = (double)dl_rng_below(&rng, 20) + 3;
        for (int i = 0; i < nn; i++) n[i] = (double)dl_rng_below(&rng, 20);
        slow(p, np, n, nn, &slow_ap, &slow_auc);
        cr_assert_eq(dl_metrics_ranking(p, (uint64_t)np, n, (uint64_t)nn, &ap, &auc), DL_OK);
        cr_assert_float_eq(ap, slow_ap, 1e-12);
        cr_assert_float_eq(auc, slow_auc, 1e-12);
    }
}

Test(metrics, batch_mean_takes_each_batch_by_itself)
{
    const double p[] = {5, 6, 1}, n[] = {4, 7, 0};
    double ap, auc, a, b, ignored;
    cr_assert_eq(dl_metrics_batches(p, n, 3, 2, &ap, &auc), DL_OK);
    dl_metrics_ranking(p, 2, n, 2, &a, &ignored);
    dl_metrics_ranking(p + 2, 1, n + 2, 1, &b, &ignored);
    cr_expect_float_eq(ap, (a + b) / 2, 1e-12);
}

Test(metrics, mid_rank_puts_ties_in_the_middle)
{
    const double others[] = {3, 2, 2, 1};
    cr_expect_float_eq(dl_metrics_mid_rank(2, others, 4), 3, 0);
    cr_expect_float_eq(dl_metrics_mid_rank(9, others, 4), 1, 0);
    cr_expect_float_eq(dl_metrics_mid_rank(0, others, 4), 5, 0);
}

Test(metrics, calibration_error_is_the_weighted_gap)
{
    struct dl_reliability r = {0};
    for (int i = 0; i < 10; i++) dl_metrics_reliability_add(&r, 0.25, i < 5);
    for (int i = 0; i < 30; i++) dl_metrics_reliability_add(&r, 1.0, 1);
    cr_expect_float_eq(dl_metrics_ece(&r), 0.25 * 10 / 40, 1e-12);
    cr_expect_eq(r.bins[2].count, 10);
    cr_expect_eq(r.bins[DL_RELIABILITY_BINS - 1].count, 30);
}

Test(metrics, spread_is_the_sample_deviation)
{
    const double values[] = {1, 2, 3, 4};
    double mean, sd;
    dl_metrics_spread(values, 4, &mean, &sd);
    cr_expect_float_eq(mean, 2.5, 1e-12);
    cr_expect_float_eq(sd, sqrt(5.0 / 3), 1e-12);
    dl_metrics_spread(values, 1, &mean, &sd);
    cr_expect_float_eq(sd, 0, 0);
}
