/* Drift features: each says what it claims to say, and none grows with age. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "model/drift_features.h"

#define HOUR_MS 3600000
#define NOON (12 * (int64_t)HOUR_MS)

static struct dl_graph *graph;
static float raw[DL_DRIFT_COLUMNS];

static void setup(void)
{
    struct dl_error error;
    cr_assert_eq(dl_graph_new(&dl_graph_config_default, &graph, &error), 0, "%s", error.text);
}
static void teardown(void)
{
    dl_graph_free(graph);
}

static void look(uint32_t src, uint32_t dst, int64_t time, float weight)
{
    struct dl_event event = {.time = time, .src = src, .dst = dst, .weight = weight};
    dl_drift_features(graph, &event, 1000, DL_TIME_MS, raw);
}

static void happen(uint32_t src, uint32_t dst, int64_t time)
{
    struct dl_event event = {.time = time, .src = src, .dst = dst, .weight = 1};
    cr_assert_eq(dl_graph_apply(graph, &event), 0);
}

static void near(int column, double expected)
{
    cr_assert(fabs(raw[column] - expected) < 1e-4, "%s is %g, expected %g",
              dl_drift_column_names[column], (double)raw[column], expected);
}

TestSuite(drift_features, .init = setup, .fini = teardown);

Test(drift_features, of_the_very_first_event_are_new_and_have_no_ages)
{
    look(3, 4, NOON, 0);
    near(DL_DRIFT_SRC_NEW, 1), near(DL_DRIFT_DST_NEW, 1), near(DL_DRIFT_PAIR_NEW, 1);
    near(DL_DRIFT_GAP, 0);
    near(DL_DRIFT_HOUR_COS, -1), near(DL_DRIFT_HOUR_SIN, 0);
    cr_assert(isnan(raw[DL_DRIFT_SRC_AGE]) && isnan(raw[DL_DRIFT_PAIR_AGE]) &&
              isnan(raw[DL_DRIFT_REPEATS]) && isnan(raw[DL_DRIFT_COMMON]));
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
        cr_assert(isnan(raw[c]) || isfinite(raw[c]), "%s", dl_drift_column_names[c]);
}

Test(drift_features, tell_ages_repeats_and_common_peers)
{
    happen(1, 2, NOON);        /* seq 0 */
    happen(2, 1, NOON + 1000); /* 1 */
    happen(1, 3, NOON + 2000); /* 2 */
    happen(4, 3, NOON + 3000); /* 3 */
    happen(4, 2, NOON + 4000); /* 4 */
    look(1, 2, NOON + 7000, -3);
    near(DL_DRIFT_GAP, log1p(3));
    near(DL_DRIFT_SRC_AGE, log1p(5));
    near(DL_DRIFT_PAIR_AGE, log1p(6));
    near(DL_DRIFT_SRC_AGE_EVENTS, log(3)), near(DL_DRIFT_DST_AGE_EVENTS, log(1));
    near(DL_DRIFT_PAIR_AGE_EVENTS, log(4));
    near(DL_DRIFT_SRC_NEW, 0), near(DL_DRIFT_PAIR_NEW, 0);
    near(DL_DRIFT_REPEATS, 2.0 / 3);
    /* 1 met 3 (beside 2); 2 met 4 (beside 1): nobody in common. */
    near(DL_DRIFT_COMMON, 0);
    near(DL_DRIFT_WEIGHT, -log1p(3));
    /* 1 and 4 both met 2 and 3. */
    look(1, 4, NOON + 7000, 1);
    near(DL_DRIFT_COMMON, 1);
    near(DL_DRIFT_PAIR_NEW, 1);
    /* Two events out of 1, decayed over about a thousand events. */
    near(DL_DRIFT_SRC_RATE, log1p(exp(-4 / 1024.0) + exp(-2 / 1024.0)));
}

Test(drift_features, forget_what_is_beyond_the_horizon)
{
    happen(1, 2, 0);
    for (int i = 0; i < DL_DRIFT_HORIZON_EVENTS; i++) {
        happen(10 + (uint32_t)(i % 5), 20 + (uint32_t)(i % 7), i + 1);
        if (i == DL_DRIFT_HORIZON_EVENTS - 2) {
            look(1, 2, NOON, 1);
            near(DL_DRIFT_PAIR_NEW, 0);
            near(DL_DRIFT_PAIR_AGE_EVENTS, log(DL_DRIFT_HORIZON_EVENTS));
        }
    }
    look(1, 2, NOON, 1);
    near(DL_DRIFT_SRC_NEW, 1), near(DL_DRIFT_PAIR_NEW, 1);
}

Test(drift_features, are_finite_for_times_at_both_ends)
{
    happen(1, 2, INT64_MIN);
    look(1, 2, INT64_MAX, 1e30f);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
        cr_assert(isfinite(raw[c]), "%s", dl_drift_column_names[c]);
    look(1, 2, INT64_MIN, 1);
    near(DL_DRIFT_GAP, 0);
}

/* ---- references ----------------------------------------------------------------- */

static float rows[20000][DL_DRIFT_COLUMNS];

static void fill_rows(void)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, 4);
    for (int i = 0; i < 20000; i++)
        for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
            rows[i][c] = c == 0 ? (float)i : c == 1 ? 7 : (float)(10 + 3 * dl_rng_normal(&rng));
}

Test(drift_features, reference_spreads_stretches_over_the_second_half)
{
    struct dl_drift_builder *builder;
    struct dl_reference reference;
    struct dl_error error;
    fill_rows();
    const uint64_t events = 60000;
    cr_assert_eq(dl_drift_builder_new(events, &builder), 0);
    for (uint64_t i = 0; i < events; i++) {
        rows[i % 20000][0] = (float)i;
        dl_drift_builder_offer(builder, i, rows[i % 20000]);
    }
    cr_assert_eq(dl_drift_builder_finish(builder, &reference, &error), 0, "%s", error.text);
    cr_assert_eq(reference.rows, DL_DRIFT_SEGMENTS * DL_DRIFT_SEGMENT_ROWS);
    cr_assert_eq(reference.segment_rows, DL_DRIFT_SEGMENT_ROWS);
    cr_assert_eq(reference.events_before, events / 2);
    cr_assert_eq(dl_drift_reference_check(&reference, &error), 0, "%s", error.text);
    /* Column 0 held the event's index. */
    double previous = -1;
    for (uint32_t i = 0; i < reference.rows; i++) {
        double index = reference.values[i * DL_DRIFT_COLUMNS] * reference.sd[0] + reference.mean[0];
        cr_assert(index > events / 2.0 - 1 && index < (double)events);
        if (i % DL_DRIFT_SEGMENT_ROWS) cr_assert(fabs(index - previous - 1) < 0.1, "row %u", i);
        previous = index;
    }
    cr_assert(previous > (double)events - 2);
    cr_assert(fabs(reference.mean[3] - 10) < 0.2 && fabs(reference.sd[3] - 3) < 0.2);
    cr_assert_gt(reference.sd[1], 0); /* it never moved */
    dl_drift_reference_deinit(&reference);
    dl_drift_builder_free(builder);
}

Test(drift_features, reference_of_a_short_span_is_one_stretch)
{
    struct dl_drift_builder *builder;
    struct dl_reference reference;
    struct dl_error error;
    fill_rows();
    cr_assert_eq(dl_drift_builder_new(1000, &builder), 0);
    for (uint64_t i = 0; i < 1000; i++) dl_drift_builder_offer(builder, i, rows[i]);
    cr_assert_eq(dl_drift_builder_finish(builder, &reference, &error), 0);
    cr_assert(reference.rows == 250 && reference.segment_rows == 0 &&
              reference.events_before == 750);
    dl_drift_reference_deinit(&reference);
    dl_drift_builder_free(builder);

    cr_assert_eq(dl_drift_builder_new(0, &builder), 0);
    dl_drift_builder_offer(builder, 0, rows[0]);
    cr_assert_eq(dl_drift_builder_finish(builder, &reference, &error), DL_ERR_INVALID);
    dl_drift_builder_free(builder);
}

Test(drift_features, reference_of_another_version_is_refused)
{
    struct dl_reference reference;
    struct dl_error error;
    fill_rows();
    cr_assert_eq(dl_drift_reference_build(rows[0], 100, 0, 0, &reference, &error), 0);
    reference.names[4][0] = 'X';
    cr_assert_eq(dl_drift_reference_check(&reference, &error), DL_ERR_VERSION);
    cr_assert_not_null(strstr(error.text, "pair_age"));
    reference.names[4][0] = 'p';
    reference.sd[2] = 0;
    cr_assert_eq(dl_drift_reference_check(&reference, &error), DL_ERR_INVALID);
    reference.sd[2] = 1;
    reference.values[17] = NAN;
    cr_assert_eq(dl_drift_reference_check(&reference, &error), DL_ERR_INVALID);
    reference.values[17] = 0;
    reference.segment_rows = 33;
    cr_assert_eq(dl_drift_reference_check(&reference, &error), DL_ERR_INVALID);
    dl_drift_reference_deinit(&reference);
}

Test(drift_features, standardising_clips_and_fills_in)
{
    struct dl_reference reference;
    struct dl_error error;
    float row[DL_DRIFT_COLUMNS], z[DL_DRIFT_COLUMNS];
    fill_rows();
    cr_assert_eq(dl_drift_reference_build(rows[0], 1000, 0, 0, &reference, &error), 0);
    memcpy(row, rows[0], sizeof row);
    row[2] = NAN, row[3] = INFINITY, row[4] = -1e30f, row[5] = (float)reference.mean[5];
    dl_drift_standardise(&reference, row, z);
    cr_assert(z[2] == 0 && z[3] == DL_DRIFT_CLIP && z[4] == -DL_DRIFT_CLIP && fabsf(z[5]) < 1e-5f);
    dl_drift_reference_deinit(&reference);
}
