/* The peak of one core: ten independent chains of fused multiply-adds. */
#include "bench/peak.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define CHAINS 10
#define STEPS 3000000

double dl_bench_peak_flops(int rounds)
{
    double best = 0;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    for (int round = 0; round < rounds; round++) {
        __m256 sum[CHAINS];
        const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-9f);
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_set1_ps((float)i);
        double start = dl_bench_cpu_s();
        for (int step = 0; step < STEPS; step++) {
#pragma GCC unroll 10
            for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_fmadd_ps(sum[i], x, y);
        }
        double seconds = dl_bench_cpu_s() - start;
        volatile float keep = 0;
        for (int i = 0; i < CHAINS; i++) keep += _mm256_cvtss_f32(sum[i]);
        double flops = (double)STEPS * CHAINS * 16 / seconds;
        best = flops > best ? flops : best;
    }
    return best;
}

#else

double dl_bench_peak_flops(int rounds)
{
    (void)rounds;
    return 0;
}

#endif
