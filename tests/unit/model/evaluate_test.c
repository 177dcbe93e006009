/* Evaluation with scorers whose right answers are known. */
#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#include "feed.h"
#include "model/baseline_edgebank.h"
#include "model/evaluate.h"

static struct dl_evaluate_result run(const struct dl_dataset *d, const struct dl_scorer *scorer,
                                     const struct dl_evaluate_options *options)
{
    struct dl_evaluate_result result;
    struct dl_error error = {{0}};
    cr_assert_eq(dl_evaluate_run(d, scorer, options, &result, &error), DL_OK, "%s", error.text);
    return result;
}

static void score_constant(const void *self, void *workspace, const struct dl_query *query,
                           dl_real *scores, struct dl_attention *attention)
{
    (void)self, (void)workspace, (void)attention;
    for (uint32_t i = 0; i < query->candidate_count; i++) scores[i] = 1;
}
static const struct dl_scorer constant = {.name = "constant", .window = 1, .score = score_constant};

Test(evaluate, a_constant_score_is_worth_one_half)
{
    struct dl_dataset *d = feed_communities(2000, 1);
    struct dl_evaluate_result r = run(d, &constant, &dl_evaluate_options_default);
    cr_expect_eq(r.scored, 300);
    cr_expect_float_eq(r.ap_pooled.mean, 0.5, 1e-12);
    cr_expect_float_eq(r.auc_batch_mean.mean, 0.5, 1e-12);
    cr_expect_float_eq(r.mrr, 1.0 / 51, 1e-12);
    cr_expect_float_eq(r.hits_at_10, 0, 0);
    cr_expect_eq(r.ranked, 300);
    dl_dataset_free(d);
}

Test(evaluate, a_pair_seen_before_tells_communities_apart)
{
    struct dl_dataset *d = feed_communities(3000, 1);
    struct dl_evaluate_options options = dl_evaluate_options_default;
    struct dl_evaluate_result r = run(d, &dl_scorer_edgebank, &options);
    /* 4 of 24 destinations are a source's own: 1/6 of the negatives pass. */
    cr_expect_float_eq(r.auc_pooled.mean, 1 - 1.0 / 12, 0.02);
    cr_expect(r.ap_pooled.sd > 0);
    options.negatives = DL_NEGATIVES_HISTORICAL;
    r = run(d, &dl_scorer_edgebank, &options);
    cr_expect(r.auc_pooled.mean < 0.75);
    dl_dataset_free(d);
}

/* Remembers what it saw of each query, to check it against the protocol. */
struct witness {
    const struct dl_dataset *dataset;
    int strict;
    int wrong;
};
static void score_witness(const void *self, void *workspace, const struct dl_query *query,
                          dl_real *scores, struct dl_attention *attention)
{
    struct witness *witness = (struct witness *)self;
    (void)workspace, (void)attention;
    for (uint32_t i = 0; i < query->source.window_count; i++)
        if (query->source.window[i].time > query->time - witness->strict) witness->wrong++;
    uint64_t earlier = 0;
    while (witness->dataset->events[earlier].time < query->time) earlier++;
    if (witness->strict ? query->feed.events != earlier : query->feed.events < earlier)
        witness->wrong++;
    for (uint32_t i = 0; i < query->candidate_count; i++) scores[i] = 0;
}

Test(evaluate, shows_each_event_its_own_past_and_no_more)
{
    struct dl_dataset *d = feed_communities(1000, 10);
    for (int ties = 0; ties < 3; ties++) {
        struct witness witness = {d, ties == DL_TIES_STRICT, 0};
        struct dl_scorer scorer = {
            .name = "witness", .self = &witness, .window = 8, .score = score_witness};
        struct dl_evaluate_options options = dl_evaluate_options_default;
        options.ties = (enum dl_ties)ties;
        options.threads = 1;
        run(d, &scorer, &options);
        cr_expect_eq(witness.wrong, 0, "tie policy %s", dl_ties_name(options.ties));
    }
    dl_dataset_free(d);
}

Test(evaluate, does_not_depend_on_threads)
{
    struct dl_dataset *d = feed_communities(2000, 10);
    static const enum dl_negatives_kind kinds[] = {DL_NEGATIVES_RANDOM, DL_NEGATIVES_HISTORICAL,
                                                   DL_NEGATIVES_INDUCTIVE, DL_NEGATIVES_CLEAN};
    for (int k = 0; k < 4; k++) {
        struct dl_evaluate_options options = dl_evaluate_options_default;
        options.ties = DL_TIES_SHUFFLE;
        options.negatives = kinds[k];
        options.threads = 1;
        struct dl_evaluate_result a = run(d, &dl_scorer_pair_recency, &options);
        options.threads = 3;
        struct dl_evaluate_result b = run(d, &dl_scorer_pair_recency, &options);
        a.seconds = b.seconds = 0;
        cr_expect_eq(memcmp(&a, &b, sizeof a), 0);
    }
    dl_dataset_free(d);
}

Test(evaluate, scores_an_even_sample_and_inductive_edges)
{
    struct dl_dataset *d = feed_communities(2000, 1);
    struct dl_evaluate_options options = dl_evaluate_options_default;
    options.limit = 37;
    cr_expect_eq(run(d, &dl_scorer_edgebank, &options).scored, 37);
    options.limit = 0;
    options.inductive = 1;
    uint64_t scored = run(d, &dl_scorer_edgebank, &options).scored;
    cr_expect(scored > 0 && scored < 150);
    dl_dataset_free(d);
}

static void score_nan(const void *self, void *workspace, const struct dl_query *query,
                      dl_real *scores, struct dl_attention *attention)
{
    (void)self, (void)workspace, (void)attention;
    for (uint32_t i = 0; i < query->candidate_count; i++) scores[i] = (dl_real)NAN;
}

Test(evaluate, refuses_scores_that_are_no_numbers_and_bad_options)
{
    struct dl_dataset *d = feed_communities(500, 1);
    struct dl_scorer scorer = {.name = "nan", .window = 1, .score = score_nan};
    struct dl_evaluate_options options = dl_evaluate_options_default;
    struct dl_evaluate_result result;
    struct dl_error error;
    cr_expect_eq(dl_evaluate_run(d, &scorer, &options, &result, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "finite"));
    options.draws = 0;
    cr_expect_eq(dl_evaluate_run(d, &constant, &options, &result, &error), DL_ERR_INVALID);
    options.draws = 1;
    options.only_seen = 1;
    options.ties = DL_TIES_SHUFFLE;
    cr_expect_eq(dl_evaluate_run(d, &constant, &options, &result, &error), DL_ERR_INVALID);
    dl_dataset_free(d);
}

/* Measured elsewhere: 0.967 random, 0.898 historical (batch mean, strict). */
Test(evaluate, pair_recency_on_uci)
{
    struct dl_dataset *d = feed_measured("uci.csv.gz");
    struct dl_evaluate_options options = dl_evaluate_options_default;
    options.ties = DL_TIES_STRICT;
    options.candidates = 0;
    struct dl_evaluate_result r = run(d, &dl_scorer_pair_recency, &options);
    cr_expect_float_eq(r.ap_batch_mean.mean, 0.967, 0.01, "%.4f", r.ap_batch_mean.mean);
    options.negatives = DL_NEGATIVES_HISTORICAL;
    r = run(d, &dl_scorer_pair_recency, &options);
    cr_expect_float_eq(r.ap_batch_mean.mean, 0.898, 0.02, "%.4f", r.ap_batch_mean.mean);
    dl_dataset_free(d);
}
