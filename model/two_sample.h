/* Do two samples come from one distribution? The exact unbiased MMD² between
 * them, with a p-value by permutation of whole blocks of consecutive rows:
 * neighbours in time resemble each other, and single rows, permuted freely,
 * would call any feed shifted. */
#ifndef DL_MODEL_TWO_SAMPLE_H
#define DL_MODEL_TWO_SAMPLE_H

#include <stdint.h>

#include "base/status.h"

#define DL_TWO_SAMPLE_ROWS_MAX 16384

struct dl_two_sample_config {
    uint32_t columns;
    uint32_t block_rows;   /* consecutive rows that stay together, >= 1 */
    uint32_t permutations; /* 1..1,000,000 */
    uint64_t seed;
};

struct dl_two_sample {
    double mmd2;     /* unbiased, of the rows in whole blocks */
    double p_value;  /* (1 + permutations at least as far) / (1 + permutations) */
    double null_p95; /* 95 % of the permutations lie below */
    double width;    /* middle kernel width: median distance of the pooled rows */
    uint32_t blocks_a, blocks_b;
};

/* a (rows_a, columns), b (rows_b, columns): standardised rows in time order,
 * consecutive within each block_rows. What does not fill a block is left out.
 * DL_ERR_INVALID with detail (fewer than 2 blocks of either), DL_ERR_NOMEM. */
int dl_two_sample_test(const struct dl_two_sample_config *config, const float *a, uint32_t rows_a,
                       const float *b, uint32_t rows_b, struct dl_two_sample *result,
                       struct dl_error *error);

/* Squared energy distance 2 E|X−Y| − E|X−X'| − E|Y−Y'| of two samples of
 * numbers, by sorting; not corrected for noise. Sorts both. 0 where either is
 * empty. */
double dl_two_sample_energy(float *x, uint32_t count_x, float *y, uint32_t count_y);

#endif
