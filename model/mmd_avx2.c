/* The inner loops of the rolling MMD for AVX2 and FMA. Reads and writes whole
 * vectors inside the stated sizes only; needs no alignment. */
#include "model/mmd_kernels.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

static inline __m256 sine_of_turns(__m256 s)
{
    __m256 q = _mm256_mul_ps(s, s);
    __m256 p = _mm256_set1_ps(-15.094642577f);
    p = _mm256_fmadd_ps(p, q, _mm256_set1_ps(42.058693945f));
    p = _mm256_fmadd_ps(p, q, _mm256_set1_ps(-76.705859753f));
    p = _mm256_fmadd_ps(p, q, _mm256_set1_ps(81.605249276f));
    p = _mm256_fmadd_ps(p, q, _mm256_set1_ps(-41.341702241f));
    p = _mm256_fmadd_ps(p, q, _mm256_set1_ps(6.2831853072f));
    return _mm256_mul_ps(p, s);
}

static inline void sine_cosine(__m256 u, __m256i *cosine, __m256i *sine)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), quarter = _mm256_set1_ps(0.25f);
    const __m256 one = _mm256_set1_ps(DL_MMD_FEATURE_ONE);
    __m256 r = _mm256_sub_ps(u, _mm256_round_ps(u, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    __m256 a = _mm256_andnot_ps(sign, r);
    __m256 fold = _mm256_andnot_ps(sign, _mm256_sub_ps(a, quarter));
    __m256 c = sine_of_turns(_mm256_sub_ps(quarter, a));
    __m256 s = sine_of_turns(_mm256_sub_ps(quarter, fold));
    s = _mm256_xor_ps(s, _mm256_and_ps(r, sign));
    *cosine = _mm256_cvtps_epi32(_mm256_mul_ps(c, one));
    *sine = _mm256_cvtps_epi32(_mm256_mul_ps(s, one));
}

static inline void store16(int16_t *out, __m256i low, __m256i high)
{
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)out, packed);
}

static void features_avx2(const float *frequencies, uint32_t count, uint32_t columns,
                          const float *row, int16_t *out)
{
    uint32_t f = 0;
    for (; f + 64 <= count; f += 64) {
        __m256 u[8];
        for (int k = 0; k < 8; k++) u[k] = _mm256_setzero_ps();
        const float *w = frequencies + f;
        for (uint32_t c = 0; c < columns; c++, w += count) {
            __m256 x = _mm256_broadcast_ss(row + c);
            for (int k = 0; k < 8; k++) u[k] = _mm256_fmadd_ps(_mm256_loadu_ps(w + 8 * k), x, u[k]);
        }
        for (int k = 0; k < 8; k += 2) {
            __m256i c0, s0, c1, s1;
            sine_cosine(u[k], &c0, &s0);
            sine_cosine(u[k + 1], &c1, &s1);
            store16(out + f + 8 * k, c0, c1);
            store16(out + count + f + 8 * k, s0, s1);
        }
    }
    for (; f < count; f += 16) {
        __m256 u0 = _mm256_setzero_ps(), u1 = u0;
        const float *w = frequencies + f;
        for (uint32_t c = 0; c < columns; c++, w += count) {
            __m256 x = _mm256_broadcast_ss(row + c);
            u0 = _mm256_fmadd_ps(_mm256_loadu_ps(w), x, u0);
            u1 = _mm256_fmadd_ps(_mm256_loadu_ps(w + 8), x, u1);
        }
        __m256i c0, s0, c1, s1;
        sine_cosine(u0, &c0, &s0);
        sine_cosine(u1, &c1, &s1);
        store16(out + f, c0, c1);
        store16(out + count + f, s0, s1);
    }
}

static inline double sum_lanes(__m256 v)
{
    float lanes[8];
    _mm256_storeu_ps(lanes, v);
    double sum = 0;
    for (int k = 0; k < 8; k++) sum += lanes[k];
    return sum;
}

static void replace_avx2(int32_t *sums, const int16_t *add, const int16_t *remove,
                         const float *mean, uint32_t count, double *self, double *cross)
{
    __m256 squares[2], products[2];
    squares[0] = squares[1] = products[0] = products[1] = _mm256_setzero_ps();
    for (uint32_t i = 0; i < count; i += 16) {
        for (uint32_t k = 0; k < 2; k++) {
            const uint32_t at = i + 8 * k;
            __m256i in =
                _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(add + at)));
            __m256i out = _mm256_cvtepi16_epi32(
                _mm_loadu_si128((const __m128i *)(const void *)(remove + at)));
            __m256i sum = _mm256_loadu_si256((const __m256i *)(const void *)(sums + at));
            sum = _mm256_add_epi32(sum, _mm256_sub_epi32(in, out));
            _mm256_storeu_si256((__m256i *)(void *)(sums + at), sum);
            __m256 s = _mm256_cvtepi32_ps(sum);
            squares[k] = _mm256_fmadd_ps(s, s, squares[k]);
            products[k] = _mm256_fmadd_ps(s, _mm256_loadu_ps(mean + at), products[k]);
        }
    }
    *self = sum_lanes(squares[0]) + sum_lanes(squares[1]);
    *cross = sum_lanes(products[0]) + sum_lanes(products[1]);
}

static inline __m256 power_of_two(__m256 t)
{
    t = _mm256_max_ps(t, _mm256_set1_ps(-126.0f));
    __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 f = _mm256_sub_ps(t, n);
    __m256 p = _mm256_set1_ps(1.5252733804e-5f);
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.5403530394e-4f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.3333558146e-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(9.6181291076e-3f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(5.5504108665e-2f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(2.4022650696e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(6.9314718056e-1f));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0f));
    __m256i bits =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(bits));
}

static int64_t kernel_sum_avx2(const float *blocks, uint32_t block_count, uint32_t columns,
                               const float *row, float scale)
{
    const __m256 factor = _mm256_set1_ps(scale);
    const __m256 third = _mm256_set1_ps((float)DL_MMD_KERNEL_ONE / 3.0f);
    int64_t total = 0;
    /* A lane holds at most 127 kernel values of 2^24. */
    for (uint32_t b0 = 0; b0 < block_count; b0 += 64) {
        const uint32_t b1 = b0 + 64 < block_count ? b0 + 64 : block_count;
        __m256i sum = _mm256_setzero_si256();
        for (uint32_t b = b0; b < b1; b++) {
            const float *y = blocks + (size_t)b * columns * DL_MMD_BLOCK;
            __m256 d2 = _mm256_setzero_ps(), d3 = d2;
            uint32_t c = 0;
            for (; c + 2 <= columns; c += 2, y += 2 * DL_MMD_BLOCK) {
                __m256 d = _mm256_sub_ps(_mm256_broadcast_ss(row + c), _mm256_loadu_ps(y));
                __m256 g = _mm256_sub_ps(_mm256_broadcast_ss(row + c + 1),
                                         _mm256_loadu_ps(y + DL_MMD_BLOCK));
                d2 = _mm256_fmadd_ps(d, d, d2);
                d3 = _mm256_fmadd_ps(g, g, d3);
            }
            if (c < columns) {
                __m256 d = _mm256_sub_ps(_mm256_broadcast_ss(row + c), _mm256_loadu_ps(y));
                d2 = _mm256_fmadd_ps(d, d, d2);
            }
            __m256 e = power_of_two(_mm256_mul_ps(factor, _mm256_add_ps(d2, d3)));
            __m256 e2 = _mm256_mul_ps(e, e), e4 = _mm256_mul_ps(e2, e2);
            __m256 e8 = _mm256_mul_ps(e4, e4);
            __m256 value = _mm256_mul_ps(_mm256_fmadd_ps(e8, e8, _mm256_add_ps(e, e4)), third);
            sum = _mm256_add_epi32(sum, _mm256_cvtps_epi32(value));
        }
        int32_t lanes[8];
        _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
        for (int k = 0; k < 8; k++) total += lanes[k];
    }
    return total;
}

static const struct dl_mmd_kernels table = {"avx2", features_avx2, replace_avx2, kernel_sum_avx2};
const struct dl_mmd_kernels *const dl_mmd_kernels_avx2 = &table;

#else

const struct dl_mmd_kernels *const dl_mmd_kernels_avx2 = 0;

#endif
