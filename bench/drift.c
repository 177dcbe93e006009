/* The drift statistic's cost an event: 16 features, a reference of 1,000 rows,
 * a window of 500, on one thread. Counted: one push (the new row in, the oldest
 * out) and the statistic's value, for every event. Not counted: making the
 * rows. The rival is the same algorithm in plain C, compiled by the same
 * compiler at -O3 without instruction-set flags. Forms and tiers alternate; time
 * is the thread's own (the machine may be shared), and the medians of the runs
 * are reported. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/rng.h"
#include "model/mmd.h"
#include "model/mmd_kernels.h"

#define COLUMNS 16
#define REFERENCE 1000
#define WINDOW 500
#define FOURIER 256
#define ROWS 8192 /* distinct rows that are pushed in turn */
#define RUNS 7

static double sink;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static double microseconds(struct dl_mmd *mmd, const float *rows, uint32_t events)
{
    const double begun = now_us();
    for (uint32_t i = 0; i < events; i++) {
        dl_mmd_push(mmd, rows + (size_t)(i % ROWS) * COLUMNS);
        sink += dl_mmd_value(mmd);
    }
    return (now_us() - begun) / events;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static float reference[REFERENCE * COLUMNS], rows[ROWS * COLUMNS];
    struct dl_rng rng;
    dl_rng_seed(&rng, 1);
    for (int i = 0; i < REFERENCE * COLUMNS; i++) reference[i] = (float)dl_rng_normal(&rng);
    for (int i = 0; i < ROWS * COLUMNS; i++) rows[i] = (float)dl_rng_normal(&rng);

    const struct dl_mmd_kernels *tiers[2] = {dl_mmd_kernels_best(), &dl_mmd_kernels_c};
    struct dl_mmd *mmd[2][2];
    double times[2][2][RUNS];
    for (int form = 0; form < 2; form++)
        for (int tier = 0; tier < 2; tier++) {
            struct dl_mmd_config config = {.form = form ? DL_MMD_EXACT : DL_MMD_FOURIER,
                                           .columns = COLUMNS,
                                           .window = WINDOW,
                                           .fourier = FOURIER,
                                           .reference_max = REFERENCE,
                                           .seed = 1};
            DL_CHECK(dl_mmd_new(&config, reference, REFERENCE, &mmd[form][tier], NULL) == 0);
            dl_mmd_set_kernels(mmd[form][tier], tiers[tier]);
            microseconds(mmd[form][tier], rows, 2 * WINDOW);
        }
    for (int run = 0; run < RUNS; run++)
        for (int form = 0; form < 2; form++)
            for (int tier = 0; tier < 2; tier++)
                times[form][tier][run] = microseconds(mmd[form][tier], rows, form ? 20000 : 400000);
    for (int form = 0; form < 2; form++)
        for (int tier = 0; tier < 2; tier++) {
            qsort(times[form][tier], RUNS, sizeof(double), compare);
            printf("  %-8s %-5s %.3f us an event (%.3f to %.3f over %d runs)\n",
                   form ? "exact" : "fourier", tiers[tier]->name, times[form][tier][RUNS / 2],
                   times[form][tier][0], times[form][tier][RUNS - 1], RUNS);
            dl_mmd_free(mmd[form][tier]);
        }
    printf("  %d features, reference %d, window %d, %d Fourier features; gcc %s; one thread\n",
           COLUMNS, REFERENCE, WINDOW, FOURIER, __VERSION__);
    printf("drift: Fourier %.3f us an event, exact %.2f us (target Fourier <= 0.6 us; plain C in "
           "the same run: Fourier %.3f us, exact %.2f us)\n",
           times[0][0][RUNS / 2], times[1][0][RUNS / 2], times[0][1][RUNS / 2],
           times[1][1][RUNS / 2]);
    return sink == 12345;
}
