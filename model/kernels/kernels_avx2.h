/* What the AVX2 tier's two files share. A tail shorter than a vector goes through
 * masked loads and the same arithmetic, so an element's value does not depend on
 * where it stands. */
#ifndef DL_MODEL_KERNELS_AVX2_H
#define DL_MODEL_KERNELS_AVX2_H

#include <immintrin.h>

#include "model/kernels/kernels.h"

#define LANES 8
#define INLINE static inline __attribute__((always_inline))

/* All ones in the first `count` lanes, count 0..8. */
INLINE __m256i mask_of(size_t count)
{
    static const int32_t ones[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256((const __m256i *)(ones + LANES - (count < LANES ? count : LANES)));
}

/* Masked stores are slow on some processors, so whole vectors avoid them:
 * `masked` is a constant at every call. */
INLINE __m256 load(const float *x, const int masked, __m256i mask)
{
    return masked ? _mm256_maskload_ps(x, mask) : _mm256_loadu_ps(x);
}

INLINE void store(float *x, const int masked, __m256i mask, __m256 value)
{
    if (masked)
        _mm256_maskstore_ps(x, mask, value);
    else
        _mm256_storeu_ps(x, value);
}

/* Transposes 8 rows of 8 held in registers. */
INLINE void transpose(__m256 r[LANES])
{
    __m256 t[LANES], u[LANES];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

#endif
