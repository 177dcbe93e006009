/* Trains a link scorer on the training span of a recorded feed.
 *
 * Each epoch goes through the feed once, in time order, under the tie policy;
 * at randomly chosen events it copies out a query with the true destination and
 * a negative. The copies are then learnt from in random order. After each
 * epoch a fixed sample of the validation span decides whether to go on; the
 * best weights are kept and calibrated. The same seed gives the same weights,
 * bit for bit, whatever the number of threads. */
#ifndef DL_MODEL_TRAIN_H
#define DL_MODEL_TRAIN_H

#include <stdint.h>

#include "model/dataset.h"
#include "model/model.h"
#include "model/progress.h"
#include "model/split.h"

#define DL_TRAIN_EPOCHS_MAX 1000
#define DL_TRAIN_POSITIVES_MAX 1000000 /* an epoch; their queries are held in memory */
#define DL_TRAIN_BATCH_MAX 10000

struct dl_train_options {
    struct dl_network_config
        network; /* `train` sets feature_count and arrival_age, and no steps with `strict` */
    enum dl_ties ties;
    double historical_share; /* of negatives that are whole past edges: 0 random, 0.1 mixed */
    uint32_t epochs;
    uint32_t positives; /* true edges an epoch, at most those of the span */
    uint32_t batch;     /* true edges a step, with as many negatives */
    double rate;        /* peak learning rate */
    double weight_decay, clip_norm, rate_floor;
    uint32_t warmup_steps;
    double averaging; /* the kept weights are a running mean over about 1 / (1 − averaging) steps */
    uint32_t patience;          /* epochs without a better validation AP before it stops */
    uint32_t validation_events; /* the fixed sample */
    uint64_t seed;
    uint32_t threads; /* 0: one for each processor */
    int hold_out;     /* keep the nodes of dl_split_hold_out(seed) out of training */
    struct dl_progress progress;
};

/* stream, a tenth historical, 20 epochs of 8,000 in batches of 100, lr 2e-3 with a
 * cosine down to a tenth, all of it unless nothing is better for 10: chosen on validation
 * (docs/EVALUATION.md). */
extern const struct dl_train_options dl_train_options_default;

struct dl_train_report {
    uint32_t epochs, best_epoch; /* run; best, from 1 */
    double loss;                 /* mean of the last epoch */
    uint64_t pairs;              /* learnt from, all epochs */
    double pairs_per_second;     /* in the learning steps alone */
    double seconds;
};

/* Fills *network (the caller frees it), *info but for what load sets, and
 * *report. DL_ERR_INVALID with detail for a feed or options that cannot be
 * used or a loss that is no finite number, DL_ERR_NOMEM, DL_ERR_CANCELLED. */
int dl_train_run(const struct dl_dataset *dataset, const struct dl_train_options *options,
                 struct dl_network **network, struct dl_model_info *info,
                 struct dl_train_report *report, struct dl_error *error);

/* The drift reference of the training span (drift_features.h). Free it with
 * dl_drift_reference_deinit. DL_ERR_INVALID with detail if the span is too short. */
int dl_train_reference(const struct dl_dataset *dataset, double gap, struct dl_reference *reference,
                       struct dl_error *error);

#endif
