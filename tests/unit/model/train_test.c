/* Training: it learns, it repeats itself, and it says what it cannot do. */
#include <criterion/criterion.h>

#include <string.h>

#include "feed.h"
#include "model/drift_features.h"
#include "model/evaluate.h"
#include "model/train.h"

static struct dl_train_options small(void)
{
    struct dl_train_options options = dl_train_options_default;
    options.network = dl_network_config_default;
    options.network.window = 4;
    options.network.width = 16;
    options.network.layers = 1;
    options.epochs = 3;
    options.positives = 600;
    options.validation_events = 200;
    options.threads = 1;
    return options;
}

static struct dl_network *train(const struct dl_dataset *d, const struct dl_train_options *options,
                                struct dl_model_info *info)
{
    struct dl_network *network = NULL;
    struct dl_train_report report;
    struct dl_error error = {{0}};
    cr_assert_eq(dl_train_run(d, options, &network, info, &report, &error), DL_OK, "%s",
                 error.text);
    cr_assert(report.pairs > 0 && report.best_epoch >= 1);
    return network;
}

Test(train, learns_communities)
{
    struct dl_dataset *d = feed_communities(4000, 5);
    for (int ties = 0; ties < 3; ties++) {
        struct dl_train_options options = small();
        struct dl_model_info info;
        options.ties = (enum dl_ties)ties;
        options.epochs = 4;
        options.positives = 1500;
        options.validation_events = 600;
        struct dl_network *network = train(d, &options, &info);
        struct dl_scorer scorer = dl_scorer_network(network, &info.calibration);
        struct dl_evaluate_options measure = dl_evaluate_options_default;
        struct dl_evaluate_result result;
        struct dl_error error;
        measure.ties = options.ties;
        measure.negatives = DL_NEGATIVES_CLEAN;
        cr_assert_eq(dl_evaluate_run(d, &scorer, &measure, &result, &error), DL_OK);
        /* Even a scorer that knows the communities cannot tell apart the 3 of 24
         * destinations in the own one: AUC is at most 1 − (3/23)/2 or so. */
        cr_expect(result.auc_pooled.mean > 0.88, "%s: %.4f", info.ties, result.auc_pooled.mean);
        /* Probabilities are meant for random negatives. */
        measure.negatives = DL_NEGATIVES_RANDOM;
        cr_assert_eq(dl_evaluate_run(d, &scorer, &measure, &result, &error), DL_OK);
        cr_expect(result.ece < 0.08, "%s: %.4f", info.ties, result.ece);
        /* With random negatives, a sixth of them its own: at most about 6/7. */
        cr_expect(info.validation_ap > 0.8, "%.4f", info.validation_ap);
        cr_expect_str_eq(info.ties, dl_ties_name(options.ties));
        cr_expect_eq(info.config.arrival_age, ties != DL_TIES_STRICT);
        dl_network_free(network);
    }
    dl_dataset_free(d);
}

static void same_for_any_threads(const char *architecture)
{
    struct dl_dataset *d = feed_communities(2000, 5);
    struct dl_train_options options = small();
    struct dl_model_info info[3];
    struct dl_network *network[3];
    static const uint32_t threads[3] = {1, 2, 5};
    strcpy(options.network.architecture, architecture);
    options.epochs = 2;
    for (int i = 0; i < 3; i++) {
        options.threads = threads[i];
        network[i] = train(d, &options, &info[i]);
    }
    uint64_t bytes = dl_network_parameter_count(network[0]) * sizeof(dl_real);
    for (int i = 1; i < 3; i++) {
        cr_expect_eq(memcmp(dl_network_values(network[0]), dl_network_values(network[i]), bytes),
                     0);
        cr_expect_eq(info[0].calibration.scale, info[i].calibration.scale);
        cr_expect_eq(info[0].validation_mrr, info[i].validation_mrr);
    }
    options.seed = 1;
    struct dl_network *other = train(d, &options, &info[0]);
    cr_expect_neq(memcmp(dl_network_values(other), dl_network_values(network[0]), bytes), 0);
    dl_network_free(other);
    for (int i = 0; i < 3; i++) dl_network_free(network[i]);
    dl_dataset_free(d);
}

Test(train, gives_the_same_weights_for_any_number_of_threads)
{
    same_for_any_threads("diffdyg");
    same_for_any_threads("diffdyg-cached");
    same_for_any_threads("mlp");
}

Test(train, works_with_fewer_events_than_it_may_take)
{
    struct dl_dataset *d = feed_communities(60, 2);
    struct dl_train_options options = small();
    struct dl_model_info info;
    options.hold_out = 1;
    dl_network_free(train(d, &options, &info));
    dl_dataset_free(d);
}

Test(train, says_what_cannot_be)
{
    struct dl_dataset *d = feed_communities(60, 60); /* one timestamp */
    struct dl_network *network = NULL;
    struct dl_model_info info;
    struct dl_train_report report;
    struct dl_error error;
    struct dl_train_options options = small();
    cr_expect_eq(dl_train_run(d, &options, &network, &info, &report, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "too few to split"), "%s", error.text);
    dl_dataset_free(d);
    d = feed_communities(600, 1);
    options.epochs = 0;
    cr_expect_eq(dl_train_run(d, &options, &network, &info, &report, &error), DL_ERR_INVALID);
    options = small();
    options.network.width = 17;
    cr_expect_eq(dl_train_run(d, &options, &network, &info, &report, &error), DL_ERR_INVALID);
    cr_expect_null(network);
    dl_dataset_free(d);
}

static int always(void *context)
{
    (void)context;
    return 1;
}

Test(train, stops_when_asked_to)
{
    struct dl_dataset *d = feed_communities(600, 1);
    struct dl_network *network = NULL;
    struct dl_model_info info;
    struct dl_train_report report;
    struct dl_error error;
    struct dl_train_options options = small();
    options.progress.cancelled = always;
    cr_expect_eq(dl_train_run(d, &options, &network, &info, &report, &error), DL_ERR_CANCELLED);
    dl_dataset_free(d);
}

Test(train, leaves_a_drift_reference_of_the_training_span)
{
    struct dl_dataset *d = feed_communities(2000, 1);
    struct dl_reference reference = {0};
    struct dl_error error = {{0}};
    cr_assert_eq(dl_train_reference(d, 1, &reference, &error), DL_OK, "%s", error.text);
    cr_expect_eq(reference.columns, DL_DRIFT_COLUMNS);
    cr_expect(reference.rows >= 64);
    cr_expect_eq(dl_drift_reference_check(&reference, &error), DL_OK, "%s", error.text);
    dl_drift_reference_deinit(&reference);
    dl_dataset_free(d);
}
