/* The inner loops of the rolling MMD: plain C, and AVX2 where the machine has
 * it. Both round to the same fixed point and agree to 2 units of it; which one
 * runs is decided once per statistic. */
#ifndef DL_MODEL_MMD_KERNELS_H
#define DL_MODEL_MMD_KERNELS_H

#include <stdint.h>

#define DL_MMD_FEATURE_ONE 32767    /* fixed point of a Fourier feature: 1.0 */
#define DL_MMD_KERNEL_ONE (1 << 24) /* fixed point of a kernel value: 1.0 */
#define DL_MMD_BLOCK 8              /* rows of a block of the exact form */
#define DL_MMD_PAD 1.0e9f           /* an empty row: its kernel with anything real is 0 */

struct dl_mmd;

struct dl_mmd_kernels {
    const char *name;
    /* Fourier features of a row. frequencies (columns, count) in turns per unit;
     * out: count cosines, then count sines. count is a multiple of 16. */
    void (*features)(const float *frequencies, uint32_t count, uint32_t columns, const float *row,
                     int16_t *out);
    /* sums += add − remove, all (count), a multiple of 16; then *self = sums · sums
     * and *cross = sums · mean. */
    void (*replace)(int32_t *sums, const int16_t *add, const int16_t *remove, const float *mean,
                    uint32_t count, double *self, double *cross);
    /* Sum over blocks of DL_MMD_BLOCK rows, (blocks, columns, DL_MMD_BLOCK), of
     * (e + e⁴ + e¹⁶)/3 with e = 2^(scale · |row − y|²), scale < 0. Symmetric in
     * row and y to the last bit. */
    int64_t (*kernel_sum)(const float *blocks, uint32_t block_count, uint32_t columns,
                          const float *row, float scale);
};

extern const struct dl_mmd_kernels dl_mmd_kernels_c;
/* NULL where the build has none. */
extern const struct dl_mmd_kernels *const dl_mmd_kernels_avx2;

/* The fastest tier that this machine runs. */
const struct dl_mmd_kernels *dl_mmd_kernels_best(void);

/* Forces a tier on an empty statistic, for tests and benchmarks. */
void dl_mmd_set_kernels(struct dl_mmd *mmd, const struct dl_mmd_kernels *kernels);

#endif
