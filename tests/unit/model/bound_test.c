/* The oracle bound: by hand, and against the figures of the evaluation protocol. */
#include <criterion/criterion.h>

#include "feed.h"
#include "model/bound.h"

Test(bound, of_two_sources_worked_out_by_hand)
{
    /* At time 9, source 0 has one edge and source 1 two. */
    struct dl_dataset *d = feed_begin();
    feed_add(d, 0, 10, 1, 1);
    feed_add(d, 0, 10, 9, 1);
    feed_add(d, 1, 10, 9, 1);
    feed_add(d, 1, 11, 9, 1);
    feed_finish(d);
    struct dl_pairs pairs;
    struct dl_pass pass;
    struct dl_error error;
    cr_assert_eq(dl_pairs_init(&pairs, d), DL_OK);
    cr_assert_eq(dl_pass_init(&pass, d, DL_TIES_STREAM, 0, 1, &error), DL_OK);
    const uint64_t positions[] = {1, 2, 3};
    uint32_t u0 = d->events[1].src, u1 = d->events[2].src;
    uint32_t a = d->events[2].dst, b = d->events[3].dst;
    /* (0, 11) is no edge at 9; (1, 11) and (1, 10) are. */
    const struct dl_edge negatives[] = {{u0, b}, {u1, b}, {u1, a}};
    struct dl_bound bound;
    cr_assert_eq(
        dl_bound_compute(&pass, &pairs, DL_TIES_STRICT, positions, 3, negatives, 1, &bound), DL_OK);
    /* Scores: positives 1, 1/2, 1/2; negatives 0, 1/2, 1/2. */
    cr_expect_float_eq(bound.ap_pooled, 1.0 / 3 + 2.0 / 3 * 3 / 5, 1e-12);
    cr_assert_eq(
        dl_bound_compute(&pass, &pairs, DL_TIES_SHUFFLE, positions, 3, negatives, 1, &bound),
        DL_OK);
    /* After (1, 10) has come, only (1, 11) is left: positives 1, 1/2, 1; the
     * negatives 0, 1/2 and, gone by, 0. */
    cr_expect_float_eq(bound.ap_pooled, 2.0 / 3 + 1.0 / 3 * 3 / 4, 1e-12);
    cr_assert_eq(
        dl_bound_compute(&pass, &pairs, DL_TIES_STREAM, positions, 3, negatives, 1, &bound), DL_OK);
    cr_expect_float_eq(bound.ap_pooled, 1, 1e-12);
    dl_pass_deinit(&pass);
    dl_pairs_deinit(&pairs);
    dl_dataset_free(d);
}

/* Ten draws on the test span, as `evaluate` makes them. */
static double measured(const char *file, enum dl_ties ties)
{
    struct dl_dataset *d = feed_measured(file);
    struct dl_pairs pairs;
    struct dl_pass pass;
    struct dl_split split;
    struct dl_error error;
    struct dl_bound bound;
    cr_assert_eq(dl_split_make(d, &split, &error), DL_OK);
    cr_assert_eq(dl_pairs_init(&pairs, d), DL_OK);
    cr_assert_eq(dl_pass_init(&pass, d, ties, 0, 1, &error), DL_OK);
    struct dl_negatives draws = {.dataset = d, .pairs = &pairs, .pool_end = d->event_count};
    uint64_t begin = split.begin[DL_SPLIT_TEST], count = d->event_count - begin;
    uint64_t *positions = malloc(count * sizeof *positions);
    struct dl_edge *negatives = malloc(10 * count * sizeof *negatives);
    for (uint64_t i = 0; i < count; i++) {
        positions[i] = begin + i;
        for (uint32_t k = 0; k < 10; k++)
            negatives[k * count + i] = dl_negatives_draw(&draws, DL_NEGATIVES_RANDOM,
                                                         dl_pass_event(&pass, begin + i), k, 0, 0);
    }
    cr_assert_eq(dl_bound_compute(&pass, &pairs, ties, positions, count, negatives, 10, &bound),
                 DL_OK);
    free(positions);
    free(negatives);
    dl_pass_deinit(&pass);
    dl_pairs_deinit(&pairs);
    dl_dataset_free(d);
    return bound.ap_pooled;
}

#define WITHIN(low, value, high)                                                                   \
    do {                                                                                           \
        double bound_ = (value);                                                                   \
        cr_expect(bound_ >= (low) && bound_ <= (high), "%.4f", bound_);                            \
    } while (0)

/* One draw of US Legis moves by up to ±0.0065; the mean of ten by about a third. */
Test(bound, us_legis)
{
    WITHIN(0.832, measured("uslegis.csv.gz", DL_TIES_STRICT), 0.840);
    WITHIN(0.933, measured("uslegis.csv.gz", DL_TIES_SHUFFLE), 0.940);
}
Test(bound, can_parl)
{
    WITHIN(0.949, measured("canparl.csv.gz", DL_TIES_STRICT), 0.954);
    WITHIN(0.979, measured("canparl.csv.gz", DL_TIES_SHUFFLE), 0.983);
}
Test(bound, uci)
{
    WITHIN(0.9985, measured("uci.csv.gz", DL_TIES_STRICT), 1.0);
    WITHIN(0.9985, measured("uci.csv.gz", DL_TIES_SHUFFLE), 1.0);
}
Test(bound, un_vote)
{
    WITHIN(0.711, measured("unvote.csv.gz", DL_TIES_STRICT), 0.715);
    WITHIN(0.880, measured("unvote.csv.gz", DL_TIES_SHUFFLE), 0.884);
}
