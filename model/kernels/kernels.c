/* Chooses a tier of kernels at run time. Tables are built anew for each call
 * of a once-guard, so that no lock is taken afterwards. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "model/kernels/kernels.h"

#if defined(__x86_64__) && !defined(DL_REAL_DOUBLE)
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif
#if defined(__aarch64__) && !defined(DL_REAL_DOUBLE)
#define HAVE_NEON 1
#else
#define HAVE_NEON 0
#endif

enum { TIER_C, TIER_AVX2, TIER_AVX512, TIER_NEON, TIERS };

const char *const dl_kernels_names[] = {"c", "avx2", "avx512", "neon", NULL};

static struct dl_kernels tables[TIERS];
static int present[TIERS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void fill_tables(void)
{
    dl_kernels_fill_c(&tables[TIER_C]);
    present[TIER_C] = 1;
#if HAVE_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[TIER_AVX2] = tables[TIER_C];
        dl_kernels_fill_avx2(&tables[TIER_AVX2]);
        dl_kernels_fill_avx2_rows(&tables[TIER_AVX2]);
        present[TIER_AVX2] = 1;
    }
    if (present[TIER_AVX2] && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw")) {
        tables[TIER_AVX512] = tables[TIER_AVX2];
        dl_kernels_fill_avx512(&tables[TIER_AVX512]);
        dl_kernels_fill_avx512_rows(&tables[TIER_AVX512]);
        present[TIER_AVX512] = 1;
    }
#endif
#if HAVE_NEON /* every such processor has it */
    tables[TIER_NEON] = tables[TIER_C];
    dl_kernels_fill_neon(&tables[TIER_NEON]);
    present[TIER_NEON] = 1;
#endif
}

const struct dl_kernels *dl_kernels_named(const char *name)
{
    pthread_once(&once, fill_tables);
    for (int i = 0; i < TIERS; i++) {
        if (strcmp(dl_kernels_names[i], name) == 0) return present[i] ? &tables[i] : NULL;
    }
    return NULL;
}

int dl_kernels_choose(const struct dl_kernels **kernels, struct dl_error *error)
{
    pthread_once(&once, fill_tables);
    const char *name = getenv("DRIFTLINE_KERNELS");
    if (name == NULL || name[0] == '\0') {
        int best = TIERS - 1;
        while (!present[best]) best--;
        *kernels = &tables[best];
        return DL_OK;
    }
    for (int i = 0; i < TIERS; i++) {
        if (strcmp(dl_kernels_names[i], name) != 0) continue;
        if (!present[i])
            return dl_error_set(error, DL_ERR_UNSUPPORTED,
                                "DRIFTLINE_KERNELS=%s: not available on this processor; unset it",
                                name);
        *kernels = &tables[i];
        return DL_OK;
    }
    return dl_error_set(error, DL_ERR_INVALID,
                        "DRIFTLINE_KERNELS=%.32s: unknown tier; use c, avx2, avx512 or neon", name);
}
