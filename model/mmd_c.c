/* The inner loops of the rolling MMD in plain C: the reference that the other
 * tiers are compared with. Written without branches so that a compiler may
 * vectorise it. */
#include "model/mmd_kernels.h"

#include <math.h>
#include <string.h>

/* sin(2πs) for |s| <= 1/4: the Taylor polynomial, within 6e-8. */
static inline float sine_of_turns(float s)
{
    float q = s * s;
    float p = -15.094642577f;
    p = p * q + 42.058693945f;
    p = p * q - 76.705859753f;
    p = p * q + 81.605249276f;
    p = p * q - 41.341702241f;
    p = p * q + 6.2831853072f;
    return p * s;
}

static void features_c(const float *frequencies, uint32_t count, uint32_t columns, const float *row,
                       int16_t *out)
{
    const float magic = 12582912.0f; /* 1.5 · 2^23: adding and taking it off rounds to integers */
    for (uint32_t f0 = 0; f0 < count; f0 += 16) {
        float turns[16] = {0};
        for (uint32_t c = 0; c < columns; c++) {
            const float *w = frequencies + (size_t)c * count + f0;
            for (int k = 0; k < 16; k++) turns[k] += w[k] * row[c];
        }
        for (int k = 0; k < 16; k++) {
            float u = turns[k];
            float r = u - ((u + magic) - magic); /* −1/2 .. 1/2 */
            float a = fabsf(r);
            float cosine = sine_of_turns(0.25f - a);
            float sine = sine_of_turns(0.25f - fabsf(a - 0.25f));
            cosine = cosine * DL_MMD_FEATURE_ONE;
            sine = copysignf(sine, r) * DL_MMD_FEATURE_ONE;
            out[f0 + k] = (int16_t)(int32_t)((cosine + magic) - magic);
            out[count + f0 + k] = (int16_t)(int32_t)((sine + magic) - magic);
        }
    }
}

static void replace_c(int32_t *sums, const int16_t *add, const int16_t *remove, const float *mean,
                      uint32_t count, double *self, double *cross)
{
    float squares[16] = {0}, products[16] = {0};
    for (uint32_t i = 0; i < count; i += 16) {
        for (int k = 0; k < 16; k++) {
            int32_t sum = sums[i + k] + add[i + k] - remove[i + k];
            sums[i + k] = sum;
            float s = (float)sum;
            squares[k] += s * s;
            products[k] += s * mean[i + k];
        }
    }
    *self = *cross = 0;
    for (int k = 0; k < 16; k++) {
        *self += squares[k];
        *cross += products[k];
    }
}

/* 2^t for t <= 0, 0 far below. */
static inline float power_of_two(float t)
{
    const float magic = 12582912.0f;
    t = t < -126.0f ? -126.0f : t;
    float n = (t + magic) - magic;
    float f = t - n;
    float p = 1.5252733804e-5f;
    p = p * f + 1.5403530394e-4f;
    p = p * f + 1.3333558146e-3f;
    p = p * f + 9.6181291076e-3f;
    p = p * f + 5.5504108665e-2f;
    p = p * f + 2.4022650696e-1f;
    p = p * f + 6.9314718056e-1f;
    p = p * f + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static int64_t kernel_sum_c(const float *blocks, uint32_t block_count, uint32_t columns,
                            const float *row, float scale)
{
    int64_t total = 0;
    for (uint32_t b = 0; b < block_count; b++) {
        const float *y = blocks + (size_t)b * columns * DL_MMD_BLOCK;
        float d2[DL_MMD_BLOCK] = {0};
        for (uint32_t c = 0; c < columns; c++, y += DL_MMD_BLOCK) {
            for (int k = 0; k < DL_MMD_BLOCK; k++) {
                float d = row[c] - y[k];
                d2[k] += d * d;
            }
        }
        for (int k = 0; k < DL_MMD_BLOCK; k++) {
            float e = power_of_two(scale * d2[k]);
            float e2 = e * e, e4 = e2 * e2, e8 = e4 * e4;
            float value = (e + e4 + e8 * e8) * (1.0f / 3.0f);
            total += (int32_t)(value * DL_MMD_KERNEL_ONE + 0.5f);
        }
    }
    return total;
}

const struct dl_mmd_kernels dl_mmd_kernels_c = {"c", features_c, replace_c, kernel_sum_c};
