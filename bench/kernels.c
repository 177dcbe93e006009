/* Matrix kernels beside OpenBLAS and the multiply-add peak, one core. Ours take
 * the right-hand matrix packed, as inference does with its weights; the packing
 * is not counted. Each figure is the best of many short rounds in turn, in
 * processor time of the thread. */
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "bench/peak.h"
#include "model/kernels/kernels.h"

#define ROUNDS 60
#define FLOPS_A_ROUND 40e6

struct shape {
    size_t m, n, k;
    double ours, theirs; /* best, flops a second */
};

static float *noise(size_t count)
{
    struct dl_rng rng;
    float *values = aligned_alloc(64, (count * sizeof *values + 63) / 64 * 64);
    DL_CHECK(values != NULL);
    dl_rng_seed(&rng, count);
    for (size_t i = 0; i < count; i++) values[i] = (float)dl_rng_normal(&rng);
    return values;
}

static void measure(const struct dl_kernels *kernels, struct shape *shape)
{
    const size_t m = shape->m, n = shape->n, k = shape->k;
    float *a = noise(m * k), *b = noise(k * n), *ours = noise(m * n), *theirs = noise(m * n);
    float *packed = noise(dl_packed_size(k, n));
    kernels->pack_rows(k, n, b, n, packed);
    const struct dl_gemm gemm = {.m = m,
                                 .n = n,
                                 .k = k,
                                 .a = a,
                                 .a_row = k,
                                 .a_column = 1,
                                 .b = packed,
                                 .b_row = DL_PANEL,
                                 .b_panel = DL_PANEL * k,
                                 .c = ours,
                                 .c_row = n};
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    const int repeats = (int)(FLOPS_A_ROUND / flops) + 1;
    for (int round = 0; round < ROUNDS; round++) {
        double start = dl_bench_cpu_s();
        for (int i = 0; i < repeats; i++) kernels->gemm(&gemm);
        double middle = dl_bench_cpu_s();
        for (int i = 0; i < repeats; i++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, 1, a,
                        (int)k, b, (int)n, 0, theirs, (int)n);
        double end = dl_bench_cpu_s();
        shape->ours = fmax(shape->ours, flops * repeats / (middle - start));
        shape->theirs = fmax(shape->theirs, flops * repeats / (end - middle));
    }
    for (size_t i = 0; i < m * n; i++) DL_CHECK(fabsf(ours[i] - theirs[i]) < 1e-3f);
    free(a);
    free(b);
    free(ours);
    free(theirs);
    free(packed);
}

int main(void)
{
    struct shape shapes[] = {{64, 128, 128, 0, 0}, {64, 64, 16, 0, 0}, {144, 160, 32, 0, 0},
                             {132, 320, 64, 0, 0}, {18, 24, 16, 0, 0}, {66, 72, 32, 0, 0},
                             {18, 16, 18, 0, 0},   {66, 32, 66, 0, 0}};
    const struct dl_kernels *kernels;
    struct dl_error error;
    if (dl_kernels_choose(&kernels, &error)) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    double peak = dl_bench_peak_flops(20);
    printf("tier %s, one core, multiply-add peak %.1f GFLOP/s (8 lanes)\n", kernels->name,
           peak / 1e9);
    printf("%-14s %10s %8s %10s %8s\n", "m n k", "GFLOP/s", "of peak", "OpenBLAS", "ratio");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape *shape = &shapes[i];
        measure(kernels, shape);
        char name[32];
        snprintf(name, sizeof name, "%zu %zu %zu", shape->m, shape->n, shape->k);
        printf("%-14s %10.1f %8.2f %10.1f %8.2f\n", name, shape->ours / 1e9, shape->ours / peak,
               shape->theirs / 1e9, shape->ours / shape->theirs);
    }
    printf("kernels: %.2f of peak at 64 128 128, %.2f x OpenBLAS; %.2f x at 64 64 16 (target 0.90, "
           "1.25 x, 1.8 x; OpenBLAS %.1f and %.1f GFLOP/s, peak %.1f)\n",
           shapes[0].ours / peak, shapes[0].ours / shapes[0].theirs,
           shapes[1].ours / shapes[1].theirs, shapes[0].theirs / 1e9, shapes[1].theirs / 1e9,
           peak / 1e9);
    return 0;
}
