/* The alarm threshold of a rolling MMD: how high the statistic must stand so
 * that, on a feed that stays as the reference was, alarms lie a wanted
 * number of events apart on average.
 *
 * How. The reference's own rows, in time order, are strung together again in
 * random blocks (the circular block bootstrap of Politis and Romano 1992, taken
 * within each stretch of consecutive rows), so that events depend on each other
 * as they really do, and the statistic is run over that stream. A row of the
 * stream is compared with the reference without its neighbourhood, so that
 * nothing is its own reference. Blocks are ten times as long as dependence
 * between neighbours lasts; where the reference's real windows then still
 * differ more from each other than those of the stream do, whole stretches are
 * strung together instead. Thresholds are read off the simulated stream;
 * beyond its length the logarithm of the run length grows linearly with the
 * threshold, and the line is continued.
 *
 * Slow movement within the training span is not in short blocks, and cycles are
 * cut up by them. So the statistic of every real window of the reference is
 * taken too, against the other stretches; where more events are asked than the
 * reference has rows, the distribution is moved and scaled towards theirs, and
 * the threshold is never set below the largest of them. */
#ifndef DL_MODEL_RUN_LENGTH_H
#define DL_MODEL_RUN_LENGTH_H

#include <stdint.h>

#include "base/status.h"
#include "model/mmd.h"

#define DL_RUN_LENGTH_QUANTILES 512
/* Effective rows of the reference for each row of the window, below which the
 * run length cannot be promised. */
#define DL_RUN_LENGTH_WINDOWS_MIN 20

struct dl_run_length_config {
    double events;          /* asked: mean events between false alarms, >= the window */
    uint32_t consecutive;   /* an alarm is so many looks in a row at or above it; 0: 1 */
    uint32_t segment_rows;  /* consecutive rows; 0: all rows are consecutive */
    uint32_t simulated_max; /* events to simulate; 0: 150,000 */
    uint64_t seed;
};

struct dl_run_length {
    double threshold;
    double asked, achieved; /* events; achieved by the simulated stream at this threshold, or its
                               lower bound asked where the line was continued */
    int continued;          /* 1: the threshold lies beyond what was simulated */
    double largest_real;    /* statistic of the farthest real window of the reference */
    uint32_t block_rows;    /* of the bootstrap */
    double autocorrelation; /* rows: the integrated autocorrelation time used */
    double effective_rows;  /* reference rows / autocorrelation */
    char warning[200];      /* why the run length cannot be promised, or "" */
    /* The statistic's distribution for one look, no shift: quantiles, ascending. */
    double null[DL_RUN_LENGTH_QUANTILES];
};

/* Uses `mmd` (its window is cleared before and after) and the rows it was made
 * from, reference (rows, columns). Some 20 to 200 ms. Deterministic.
 * DL_ERR_INVALID with detail (too few rows: at least 2 windows' worth are
 * wanted, 32 are needed), DL_ERR_NOMEM. */
int dl_run_length_calibrate(struct dl_mmd *mmd, const float *reference, uint32_t rows,
                            const struct dl_run_length_config *config, struct dl_run_length *result,
                            struct dl_error *error);

/* The probability that one look on an unshifted feed shows this much or more:
 * by the quantiles, never below 1 / (DL_RUN_LENGTH_QUANTILES + 1). */
double dl_run_length_p_value(const struct dl_run_length *run_length, double statistic);

#endif
