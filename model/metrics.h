/* Ranking and calibration metrics. Thread: any. */
#ifndef DL_MODEL_METRICS_H
#define DL_MODEL_METRICS_H

#include <stdint.h>

#include "base/status.h"

/* Average precision (the step-wise area under precision and recall, as
 * scikit-learn computes it) and the area under the ROC curve, of scores of
 * positives against scores of negatives. Equal scores count as one step in AP
 * and as half in AUC, so their order does not matter. Both NaN where a side is
 * empty. DL_OK or DL_ERR_NOMEM. */
int dl_metrics_ranking(const double *positives, uint64_t positive_count, const double *negatives,
                       uint64_t negative_count, double *ap, double *auc);

/* The mean of the same over consecutive batches of `batch` positives and their
 * `batch` negatives (the last may be smaller). Both arrays: (count). */
int dl_metrics_batches(const double *positives, const double *negatives, uint64_t count,
                       uint64_t batch, double *ap, double *auc);

/* Mid-rank of `score` among `count` others: 1 + higher + equal / 2. */
double dl_metrics_mid_rank(double score, const double *others, uint64_t count);

#define DL_RELIABILITY_BINS 10

/* Probabilities in equal bins of [0, 1] and how often the event came true. */
struct dl_reliability {
    struct {
        uint64_t count, positives;
        double probability_sum;
    } bins[DL_RELIABILITY_BINS];
};

void dl_metrics_reliability_add(struct dl_reliability *reliability, double probability, int label);
/* Expected calibration error: mean |frequency − probability| over bins, weighted by count. */
double dl_metrics_ece(const struct dl_reliability *reliability);

/* Mean and sample standard deviation (0 for one value). */
void dl_metrics_spread(const double *values, uint32_t count, double *mean, double *sd);

#endif
