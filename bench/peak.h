/* What one core can do at most: fused multiply-adds that touch no memory. */
#ifndef DL_BENCH_PEAK_H
#define DL_BENCH_PEAK_H

#include <stdint.h>
#include <time.h>

/* Floating-point operations a second with 8 lanes of float, best of `rounds`;
 * 0 where the processor has no AVX2. */
double dl_bench_peak_flops(int rounds);

/* Processor time of this thread: other processes do not count. */
static inline double dl_bench_cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
