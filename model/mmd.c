/* Rolling MMD, exact and by random Fourier features. See mmd.h for the formula.
 *
 *   Fourier  ring of the window's features, int16 (N, D); their sums, int32 (D);
 *            the reference's mean, float (D)
 *   exact    the window and the reference as blocks of 8 rows, column by column;
 *            empty rows lie so far away that their kernel is 0
 *
 * The exact form removes a row by computing again the very kernel values that
 * it added: the kernel is symmetric to the last bit, so integer sums return to
 * what they were. */
#include "model/mmd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "model/mmd_kernels.h"

#define MEDIAN_ROWS 400 /* rows that the median heuristic looks at */

struct dl_mmd {
    struct dl_mmd_config config;
    const struct dl_mmd_kernels *kernels;
    double width;
    uint32_t head, count; /* next slot; rows in the window */
    uint32_t rows;        /* of the reference as given */
    float *reference;     /* (rows, columns) */
    double reference_term;

    /* fourier */
    float *frequencies;                   /* (columns, D/2) */
    int16_t *ring;                        /* (N, D) */
    int16_t *zeros;                       /* (D) */
    int16_t *scratch;                     /* (D) */
    int32_t *sums;                        /* (D) */
    float *mean;                          /* (D): the reference's */
    int64_t *reference_sums;              /* (D) */
    int64_t *without;                     /* (D): sums over rows without_first..without_last */
    uint32_t without_first, without_last; /* first > last: none */
    double self, cross;

    /* exact */
    float *window_blocks;    /* (⌈N/8⌉, columns, 8) */
    float *reference_blocks; /* (⌈kept/8⌉, columns, 8) */
    uint32_t kept;           /* rows of the reference in use: number k is row k·rows/kept */
    int64_t *cross_of;       /* (N): kernel sum over the reference */
    int64_t self_sum, cross_sum;
    int64_t identity; /* kernel of a row with itself */
    float *one_block; /* (columns, 8) */
    float scale;
};

static uint32_t blocks_of(uint32_t rows)
{
    return (rows + DL_MMD_BLOCK - 1) / DL_MMD_BLOCK;
}

static void *allocate(size_t count, size_t size)
{
    return calloc(count ? count : 1, size);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median distance between strided rows; 1 where all rows are equal. */
static int median_width(const struct dl_mmd *mmd, double *width)
{
    const uint32_t columns = mmd->config.columns;
    uint32_t taken = mmd->rows < MEDIAN_ROWS ? mmd->rows : MEDIAN_ROWS;
    size_t pairs = (size_t)taken * (taken - 1) / 2, at = 0;
    double *distances = allocate(pairs, sizeof *distances);
    if (!distances) return DL_ERR_NOMEM;
    for (uint32_t i = 0; i < taken; i++) {
        const float *x = mmd->reference + (size_t)((uint64_t)i * mmd->rows / taken) * columns;
        for (uint32_t j = 0; j < i; j++) {
            const float *y = mmd->reference + (size_t)((uint64_t)j * mmd->rows / taken) * columns;
            double d2 = 0;
            for (uint32_t c = 0; c < columns; c++)
                d2 += ((double)x[c] - y[c]) * ((double)x[c] - y[c]);
            distances[at++] = d2;
        }
    }
    qsort(distances, pairs, sizeof *distances, compare_doubles);
    double median = sqrt(distances[pairs / 2]);
    if (!(median > 0)) {
        /* More than half of the pairs coincide: the mean distance still tells rows apart. */
        double sum = 0;
        for (size_t i = 0; i < pairs; i++) sum += sqrt(distances[i]);
        median = sum / (double)pairs;
    }
    *width = median > 0 ? median : 1.0;
    free(distances);
    return DL_OK;
}

static void block_set(float *blocks, uint32_t columns, uint32_t slot, const float *row)
{
    float *at =
        blocks + (size_t)(slot / DL_MMD_BLOCK) * columns * DL_MMD_BLOCK + slot % DL_MMD_BLOCK;
    for (uint32_t c = 0; c < columns; c++) at[c * DL_MMD_BLOCK] = row ? row[c] : DL_MMD_PAD;
}

static void block_get(const float *blocks, uint32_t columns, uint32_t slot, float *row)
{
    const float *at =
        blocks + (size_t)(slot / DL_MMD_BLOCK) * columns * DL_MMD_BLOCK + slot % DL_MMD_BLOCK;
    for (uint32_t c = 0; c < columns; c++) row[c] = at[c * DL_MMD_BLOCK];
}

/* ---- Fourier -------------------------------------------------------------- */

static double fourier_unit(const struct dl_mmd *mmd)
{
    return (double)DL_MMD_FEATURE_ONE * DL_MMD_FEATURE_ONE * (mmd->config.fourier / 2);
}

static void fourier_features(const struct dl_mmd *mmd, const float *row, int16_t *out)
{
    mmd->kernels->features(mmd->frequencies, mmd->config.fourier / 2, mmd->config.columns, row,
                           out);
}

/* The spectrum of a Gaussian of width σ is normal with deviation 1/σ; the three
 * widths take turns. */
static void fourier_draw(struct dl_mmd *mmd)
{
    static const double factors[3] = {0.5, 1.0, 2.0};
    const uint32_t half = mmd->config.fourier / 2;
    struct dl_rng rng;
    dl_rng_seed(&rng, mmd->config.seed);
    for (uint32_t f = 0; f < half; f++) {
        double sigma = mmd->width * factors[f % 3];
        for (uint32_t c = 0; c < mmd->config.columns; c++)
            mmd->frequencies[(size_t)c * half + f] =
                (float)(dl_rng_normal(&rng) / (sigma * 6.283185307179586));
    }
}

static void fourier_prepare(struct dl_mmd *mmd)
{
    const uint32_t D = mmd->config.fourier;
    const double n = mmd->rows;
    memset(mmd->reference_sums, 0, D * sizeof *mmd->reference_sums);
    for (uint32_t i = 0; i < mmd->rows; i++) {
        fourier_features(mmd, mmd->reference + (size_t)i * mmd->config.columns, mmd->scratch);
        for (uint32_t k = 0; k < D; k++) mmd->reference_sums[k] += mmd->scratch[k];
    }
    double squares = 0;
    for (uint32_t k = 0; k < D; k++) {
        double sum = (double)mmd->reference_sums[k];
        squares += sum * sum;
        mmd->mean[k] = (float)(sum / n);
    }
    mmd->reference_term = (squares / fourier_unit(mmd) - n) / (n * (n - 1));
    memset(mmd->without, 0, D * sizeof *mmd->without);
    mmd->without_first = 1;
    mmd->without_last = 0;
}

static void without_add(struct dl_mmd *mmd, uint32_t row, int sign)
{
    fourier_features(mmd, mmd->reference + (size_t)row * mmd->config.columns, mmd->scratch);
    for (uint32_t k = 0; k < mmd->config.fourier; k++) mmd->without[k] += sign * mmd->scratch[k];
}

/* Moves the range that is left out, reusing what overlaps. */
static void without_move(struct dl_mmd *mmd, uint32_t first, uint32_t last)
{
    if (first > last) first = 1, last = 0;
    const int had = mmd->without_first <= mmd->without_last;
    if (first > last || !had || last < mmd->without_first || first > mmd->without_last) {
        memset(mmd->without, 0, mmd->config.fourier * sizeof *mmd->without);
        for (uint32_t i = first; first <= last && i <= last; i++) without_add(mmd, i, 1);
    } else {
        for (uint32_t i = mmd->without_first; i < first; i++) without_add(mmd, i, -1);
        for (uint32_t i = mmd->without_last; i > last; i--) without_add(mmd, i, -1);
        for (uint32_t i = first; i < mmd->without_first; i++) without_add(mmd, i, 1);
        for (uint32_t i = last; i > mmd->without_last; i--) without_add(mmd, i, 1);
    }
    mmd->without_first = first;
    mmd->without_last = last;
}

/* ---- exact ------------------------------------------------------------------ */

static int64_t window_sum(const struct dl_mmd *mmd, const float *row)
{
    return mmd->kernels->kernel_sum(mmd->window_blocks, blocks_of(mmd->config.window),
                                    mmd->config.columns, row, mmd->scale);
}

static int64_t reference_sum(const struct dl_mmd *mmd, const float *row)
{
    return mmd->kernels->kernel_sum(mmd->reference_blocks, blocks_of(mmd->kept),
                                    mmd->config.columns, row, mmd->scale);
}

static int64_t pair_kernel(struct dl_mmd *mmd, const float *a, const float *b)
{
    block_set(mmd->one_block, mmd->config.columns, 0, b);
    return mmd->kernels->kernel_sum(mmd->one_block, 1, mmd->config.columns, a, mmd->scale);
}

static uint32_t kept_row(const struct dl_mmd *mmd, uint32_t k)
{
    return (uint32_t)((uint64_t)k * mmd->rows / mmd->kept);
}

static void exact_prepare(struct dl_mmd *mmd)
{
    const uint32_t columns = mmd->config.columns, kept = mmd->kept;
    for (uint32_t k = 0; k < blocks_of(kept) * DL_MMD_BLOCK; k++)
        block_set(mmd->reference_blocks, columns, k,
                  k < kept ? mmd->reference + (size_t)kept_row(mmd, k) * columns : NULL);
    for (uint32_t k = 0; k < DL_MMD_BLOCK; k++) block_set(mmd->one_block, columns, k, NULL);
    mmd->identity = pair_kernel(mmd, mmd->reference, mmd->reference);
    int64_t total = 0;
    for (uint32_t k = 0; k < kept; k++)
        total +=
            reference_sum(mmd, mmd->reference + (size_t)kept_row(mmd, k) * columns) - mmd->identity;
    mmd->reference_term = (double)total / DL_MMD_KERNEL_ONE / ((double)kept * (kept - 1));
}

/* ---- life --------------------------------------------------------------------- */

static int config_check(const struct dl_mmd_config *config, const float *reference, uint32_t rows,
                        struct dl_error *error)
{
    if (config->columns < 1 || config->columns > DL_MMD_COLUMNS_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "drift statistic: %u columns; it takes 1 to %d",
                            config->columns, DL_MMD_COLUMNS_MAX);
    if (config->window < 2 || config->window > DL_MMD_WINDOW_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift statistic: a window of %u events; it takes 2 to %d",
                            config->window, DL_MMD_WINDOW_MAX);
    if (rows < 2 || rows > DL_MMD_ROWS_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift statistic: a reference of %u rows; it takes 2 to %d", rows,
                            DL_MMD_ROWS_MAX);
    if (config->form == DL_MMD_FOURIER &&
        (config->fourier < 32 || config->fourier % 32 || config->fourier > DL_MMD_FOURIER_MAX))
        return dl_error_set(
            error, DL_ERR_INVALID,
            "drift statistic: %u Fourier features; it takes a multiple of 32 up to %d",
            config->fourier, DL_MMD_FOURIER_MAX);
    if (config->form == DL_MMD_EXACT && config->reference_max < 2)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift statistic: reference_max is %u; it must be at least 2",
                            config->reference_max);
    for (size_t i = 0; i < (size_t)rows * config->columns; i++)
        if (!isfinite(reference[i]) || fabsf(reference[i]) > 1e6f)
            return dl_error_set(error, DL_ERR_INVALID,
                                "drift statistic: row %zu, column %zu of the reference is %g; "
                                "rows must be standardised",
                                i / config->columns, i % config->columns, (double)reference[i]);
    return DL_OK;
}

int dl_mmd_new(const struct dl_mmd_config *config, const float *reference, uint32_t rows,
               struct dl_mmd **result, struct dl_error *error)
{
    *result = NULL;
    int status = config_check(config, reference, rows, error);
    if (status) return status;
    const uint32_t columns = config->columns, N = config->window, D = config->fourier;
    struct dl_mmd *mmd = calloc(1, sizeof *mmd);
    if (!mmd) goto nomem;
    mmd->config = *config;
    mmd->rows = rows;
    mmd->kernels = dl_mmd_kernels_best();
    mmd->reference = allocate((size_t)rows * columns, sizeof *mmd->reference);
    if (!mmd->reference) goto nomem;
    memcpy(mmd->reference, reference, (size_t)rows * columns * sizeof *reference);
    if (config->width > 0)
        mmd->width = config->width;
    else if (median_width(mmd, &mmd->width))
        goto nomem;
    if (config->form == DL_MMD_FOURIER) {
        mmd->frequencies = allocate((size_t)columns * (D / 2), sizeof *mmd->frequencies);
        mmd->ring = allocate((size_t)N * D, sizeof *mmd->ring);
        mmd->zeros = allocate(D, sizeof *mmd->zeros);
        mmd->scratch = allocate(D, sizeof *mmd->scratch);
        mmd->sums = allocate(D, sizeof *mmd->sums);
        mmd->mean = allocate(D, sizeof *mmd->mean);
        mmd->reference_sums = allocate(D, sizeof *mmd->reference_sums);
        mmd->without = allocate(D, sizeof *mmd->without);
        if (!mmd->frequencies || !mmd->ring || !mmd->zeros || !mmd->scratch || !mmd->sums ||
            !mmd->mean || !mmd->reference_sums || !mmd->without)
            goto nomem;
        fourier_draw(mmd);
    } else {
        mmd->kept = rows < config->reference_max ? rows : config->reference_max;
        const size_t block = (size_t)columns * DL_MMD_BLOCK;
        mmd->window_blocks = allocate(blocks_of(N) * block, sizeof *mmd->window_blocks);
        mmd->reference_blocks =
            allocate(blocks_of(mmd->kept) * block, sizeof *mmd->reference_blocks);
        mmd->one_block = allocate(block, sizeof *mmd->one_block);
        mmd->cross_of = allocate(N, sizeof *mmd->cross_of);
        if (!mmd->window_blocks || !mmd->reference_blocks || !mmd->one_block || !mmd->cross_of)
            goto nomem;
        /* The widest Gaussian, as a power of two: −1 / (2 (2σ)²) · log2(e). */
        mmd->scale = (float)(-1.4426950408889634 / (8.0 * mmd->width * mmd->width));
    }
    dl_mmd_set_kernels(mmd, mmd->kernels);
    *result = mmd;
    return DL_OK;
nomem:
    dl_mmd_free(mmd);
    return dl_error_set(error, DL_ERR_NOMEM, "drift statistic: out of memory");
}

void dl_mmd_free(struct dl_mmd *mmd)
{
    if (!mmd) return;
    free(mmd->reference);
    free(mmd->frequencies);
    free(mmd->ring);
    free(mmd->zeros);
    free(mmd->scratch);
    free(mmd->sums);
    free(mmd->mean);
    free(mmd->reference_sums);
    free(mmd->without);
    free(mmd->window_blocks);
    free(mmd->reference_blocks);
    free(mmd->one_block);
    free(mmd->cross_of);
    free(mmd);
}

const struct dl_mmd_kernels *dl_mmd_kernels_best(void)
{
    if (dl_mmd_kernels_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return dl_mmd_kernels_avx2;
    return &dl_mmd_kernels_c;
}

void dl_mmd_set_kernels(struct dl_mmd *mmd, const struct dl_mmd_kernels *kernels)
{
    mmd->kernels = kernels;
    if (mmd->config.form == DL_MMD_FOURIER)
        fourier_prepare(mmd);
    else
        exact_prepare(mmd);
    dl_mmd_clear(mmd);
}

const struct dl_mmd_config *dl_mmd_get_config(const struct dl_mmd *mmd)
{
    return &mmd->config;
}

double dl_mmd_width(const struct dl_mmd *mmd)
{
    return mmd->width;
}

void dl_mmd_clear(struct dl_mmd *mmd)
{
    mmd->head = mmd->count = 0;
    mmd->self = mmd->cross = 0;
    mmd->self_sum = mmd->cross_sum = 0;
    if (mmd->config.form == DL_MMD_FOURIER) {
        memset(mmd->sums, 0, mmd->config.fourier * sizeof *mmd->sums);
        return;
    }
    for (uint32_t k = 0; k < blocks_of(mmd->config.window) * DL_MMD_BLOCK; k++)
        block_set(mmd->window_blocks, mmd->config.columns, k, NULL);
}

/* ---- the rolling update --------------------------------------------------------- */

static void push(struct dl_mmd *mmd, const float *row, int with_cross)
{
    const uint32_t N = mmd->config.window, slot = mmd->head;
    const int full = mmd->count == N;
    if (mmd->config.form == DL_MMD_FOURIER) {
        const uint32_t D = mmd->config.fourier;
        int16_t *place = mmd->ring + (size_t)slot * D;
        fourier_features(mmd, row, mmd->scratch);
        mmd->kernels->replace(mmd->sums, mmd->scratch, full ? place : mmd->zeros, mmd->mean, D,
                              &mmd->self, &mmd->cross);
        memcpy(place, mmd->scratch, D * sizeof *place);
    } else {
        const uint32_t columns = mmd->config.columns;
        if (full) {
            float old[DL_MMD_COLUMNS_MAX] = {0};
            block_get(mmd->window_blocks, columns, slot, old);
            mmd->self_sum -= 2 * (window_sum(mmd, old) - mmd->identity);
            block_set(mmd->window_blocks, columns, slot, NULL);
            mmd->cross_sum -= mmd->cross_of[slot];
        }
        mmd->self_sum += 2 * window_sum(mmd, row);
        block_set(mmd->window_blocks, columns, slot, row);
        mmd->cross_of[slot] = with_cross ? reference_sum(mmd, row) : 0;
        mmd->cross_sum += mmd->cross_of[slot];
    }
    mmd->head = slot + 1 == N ? 0 : slot + 1;
    if (!full) mmd->count++;
}

void dl_mmd_push(struct dl_mmd *mmd, const float *row)
{
    push(mmd, row, 1);
}

void dl_mmd_push_self(struct dl_mmd *mmd, const float *row)
{
    push(mmd, row, 0);
}

uint32_t dl_mmd_count(const struct dl_mmd *mmd)
{
    return mmd->count;
}

double dl_mmd_self_term(const struct dl_mmd *mmd)
{
    const double n = mmd->count;
    if (mmd->count < 2) return 0;
    if (mmd->config.form == DL_MMD_FOURIER)
        return (mmd->self / fourier_unit(mmd) - n) / (n * (n - 1));
    return (double)mmd->self_sum / DL_MMD_KERNEL_ONE / (n * (n - 1));
}

double dl_mmd_reference_term(const struct dl_mmd *mmd)
{
    return mmd->reference_term;
}

double dl_mmd_value(const struct dl_mmd *mmd)
{
    if (mmd->count < 2) return 0;
    const double n = mmd->count;
    double cross = mmd->config.form == DL_MMD_FOURIER
                       ? mmd->cross / fourier_unit(mmd) / n
                       : (double)mmd->cross_sum / DL_MMD_KERNEL_ONE / (n * mmd->kept);
    return dl_mmd_self_term(mmd) - 2.0 * cross + mmd->reference_term;
}

double dl_mmd_cross_without(struct dl_mmd *mmd, const float *row, uint32_t first, uint32_t last)
{
    DL_CHECK(first > last || last < mmd->rows);
    if (mmd->config.form == DL_MMD_FOURIER) {
        without_move(mmd, first, last);
        const double left = mmd->rows - (first <= last ? last - first + 1.0 : 0.0);
        fourier_features(mmd, row, mmd->scratch);
        double sum = 0;
        for (uint32_t k = 0; k < mmd->config.fourier; k++)
            sum += (double)mmd->scratch[k] * (double)(mmd->reference_sums[k] - mmd->without[k]);
        return left > 0 ? sum / fourier_unit(mmd) / left : mmd->reference_term;
    }
    int64_t sum = reference_sum(mmd, row);
    uint32_t left = mmd->kept;
    if (first <= last) {
        uint32_t k = (uint32_t)((uint64_t)first * mmd->kept / mmd->rows);
        for (; k < mmd->kept && kept_row(mmd, k) <= last; k++) {
            if (kept_row(mmd, k) < first) continue;
            sum -= pair_kernel(mmd, row,
                               mmd->reference + (size_t)kept_row(mmd, k) * mmd->config.columns);
            left--;
        }
    }
    return left ? (double)sum / DL_MMD_KERNEL_ONE / left : mmd->reference_term;
}

double dl_mmd_kernel(struct dl_mmd *mmd, const float *a, const float *b)
{
    if (mmd->config.form == DL_MMD_EXACT) return (double)pair_kernel(mmd, a, b) / DL_MMD_KERNEL_ONE;
    const uint32_t D = mmd->config.fourier;
    fourier_features(mmd, a, mmd->scratch);
    double sum = 0;
    int16_t other[DL_MMD_FOURIER_MAX];
    fourier_features(mmd, b, other);
    for (uint32_t k = 0; k < D; k++) sum += (double)mmd->scratch[k] * other[k];
    return sum / fourier_unit(mmd);
}
