/* Platt scaling (Platt 1999, with the Newton method of Lin, Lin and Weng 2007):
 * a logistic regression of labels on logits, so that scores read as
 * probabilities. */
#ifndef DL_MODEL_CALIBRATION_H
#define DL_MODEL_CALIBRATION_H

#include <stdint.h>

#include "base/status.h"
#include "model/model.h"

/* Fits P = 1 / (1 + exp(−(scale·z + shift))) to logits of positives and
 * negatives, at the odds of the two counts. scale stays positive, so the order
 * of scores is kept. DL_OK, or DL_ERR_INVALID where a side is empty. */
int dl_calibration_fit(const double *positives, uint64_t positive_count, const double *negatives,
                       uint64_t negative_count, struct dl_calibration *calibration);

double dl_calibration_probability(const struct dl_calibration *calibration, double logit);

#endif
