/* The two-sample test. Kernel values are summed once for every pair of blocks;
 * a permutation then only adds up a small matrix. */
#include "model/two_sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/mmd.h"
#include "model/mmd_kernels.h"

struct blocks {
    uint32_t count, a; /* blocks in all; the first `a` are of the first sample */
    uint32_t rows;     /* of a block */
    double *sums;      /* (count, count): kernel values between two blocks, i ≠ j */
};

/* Unbiased MMD² when blocks order[0..a-1] are the first sample. */
static double statistic(const struct blocks *blocks, const uint32_t *order)
{
    double aa = 0, ab = 0, bb = 0;
    for (uint32_t i = 0; i < blocks->count; i++) {
        const double *row = blocks->sums + (size_t)order[i] * blocks->count;
        for (uint32_t j = 0; j < blocks->count; j++) {
            double sum = row[order[j]];
            if (i < blocks->a && j < blocks->a)
                aa += sum;
            else if (i >= blocks->a && j >= blocks->a)
                bb += sum;
            else
                ab += sum;
        }
    }
    const double n = (double)blocks->a * blocks->rows;
    const double m = (double)(blocks->count - blocks->a) * blocks->rows;
    return aa / (n * (n - 1)) + bb / (m * (m - 1)) - ab / (n * m);
}

static void fill_sums(struct blocks *blocks, const struct dl_mmd_kernels *kernels,
                      const float *rows, float *packed, uint32_t columns, double width)
{
    /* Each block is packed for the kernel on its own, its tail padded. */
    const uint32_t packs = (blocks->rows + DL_MMD_BLOCK - 1) / DL_MMD_BLOCK;
    const size_t stride = (size_t)packs * columns * DL_MMD_BLOCK;
    const float scale = (float)(-1.4426950408889634 / (8 * width * width));
    for (uint32_t b = 0; b < blocks->count; b++)
        for (uint32_t i = 0; i < packs * DL_MMD_BLOCK; i++)
            for (uint32_t c = 0; c < columns; c++)
                packed[b * stride + ((size_t)(i / DL_MMD_BLOCK) * columns + c) * DL_MMD_BLOCK +
                       i % DL_MMD_BLOCK] = i < blocks->rows
                                               ? rows[((size_t)b * blocks->rows + i) * columns + c]
                                               : DL_MMD_PAD;
    for (uint32_t x = 0; x < blocks->count; x++)
        for (uint32_t y = 0; y < blocks->count; y++) {
            int64_t sum = 0;
            for (uint32_t i = 0; i < blocks->rows; i++)
                sum += kernels->kernel_sum(packed + y * stride, packs, columns,
                                           rows + ((size_t)x * blocks->rows + i) * columns, scale);
            double value = (double)sum / DL_MMD_KERNEL_ONE;
            /* A row's kernel with itself is 1 and does not count. */
            blocks->sums[(size_t)x * blocks->count + y] = x == y ? value - blocks->rows : value;
        }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int dl_two_sample_test(const struct dl_two_sample_config *config, const float *a, uint32_t rows_a,
                       const float *b, uint32_t rows_b, struct dl_two_sample *result,
                       struct dl_error *error)
{
    const uint32_t L = config->block_rows, columns = config->columns;
    struct blocks blocks = {.rows = L};
    struct dl_mmd *mmd = NULL;
    float *rows = NULL, *packed = NULL;
    double *null = NULL;
    uint32_t *order = NULL;
    int status = DL_OK;

    *result = (struct dl_two_sample){.p_value = 1};
    if (!L || !config->permutations || config->permutations > 1000000 ||
        rows_a > DL_TWO_SAMPLE_ROWS_MAX || rows_b > DL_TWO_SAMPLE_ROWS_MAX || rows_a / L < 2 ||
        rows_b / L < 2)
        return dl_error_set(error, DL_ERR_INVALID,
                            "two samples of %u and %u rows: it takes 2 blocks of %u each, and up "
                            "to %d rows",
                            rows_a, rows_b, L, DL_TWO_SAMPLE_ROWS_MAX);
    result->blocks_a = blocks.a = rows_a / L;
    result->blocks_b = rows_b / L;
    blocks.count = blocks.a + result->blocks_b;
    const size_t packs = (L + DL_MMD_BLOCK - 1) / DL_MMD_BLOCK;
    rows = malloc((size_t)blocks.count * L * columns * sizeof *rows);
    packed = malloc(blocks.count * packs * DL_MMD_BLOCK * columns * sizeof *packed);
    blocks.sums = malloc((size_t)blocks.count * blocks.count * sizeof *blocks.sums);
    null = malloc(config->permutations * sizeof *null);
    order = malloc(blocks.count * sizeof *order);
    if (!rows || !packed || !blocks.sums || !null || !order) {
        status = dl_error_set(error, DL_ERR_NOMEM, "two samples: out of memory");
        goto done;
    }
    memcpy(rows, a, (size_t)blocks.a * L * columns * sizeof *rows);
    memcpy(rows + (size_t)blocks.a * L * columns, b,
           (size_t)result->blocks_b * L * columns * sizeof *rows);
    /* The statistic's own machinery checks the rows and chooses the width. */
    struct dl_mmd_config form = {
        .form = DL_MMD_EXACT, .columns = columns, .window = 2, .reference_max = 2};
    status = dl_mmd_new(&form, rows, blocks.count * L, &mmd, error);
    if (status) goto done;
    result->width = dl_mmd_width(mmd);
    fill_sums(&blocks, dl_mmd_kernels_best(), rows, packed, columns, result->width);
    for (uint32_t i = 0; i < blocks.count; i++) order[i] = i;
    result->mmd2 = statistic(&blocks, order);

    struct dl_rng rng;
    uint32_t as_far = 0;
    dl_rng_seed(&rng, config->seed);
    for (uint32_t p = 0; p < config->permutations; p++) {
        for (uint32_t i = blocks.count - 1; i > 0; i--) {
            uint32_t j = (uint32_t)dl_rng_below(&rng, i + 1), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        null[p] = statistic(&blocks, order);
        as_far += null[p] >= result->mmd2;
    }
    result->p_value = (1.0 + as_far) / (1.0 + config->permutations);
    qsort(null, config->permutations, sizeof *null, compare_doubles);
    result->null_p95 = null[(uint32_t)(0.95 * (config->permutations - 1))];
done:
    dl_mmd_free(mmd);
    free(rows);
    free(packed);
    free(blocks.sums);
    free(null);
    free(order);
    return status;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* 2 ∫ (F − G)² over the merged values. */
double dl_two_sample_energy(float *x, uint32_t count_x, float *y, uint32_t count_y)
{
    if (!count_x || !count_y) return 0;
    qsort(x, count_x, sizeof *x, compare_floats);
    qsort(y, count_y, sizeof *y, compare_floats);
    uint32_t i = 0, j = 0;
    double area = 0, last = x[0] < y[0] ? x[0] : y[0];
    while (i < count_x || j < count_y) {
        double at = j == count_y || (i < count_x && x[i] <= y[j]) ? x[i] : y[j];
        double gap = (double)i / count_x - (double)j / count_y;
        area += gap * gap * (at - last);
        last = at;
        if (j == count_y || (i < count_x && x[i] <= y[j]))
            i++;
        else
            j++;
    }
    return 2 * area;
}
