/* Reading columns. */
#include "model/reading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define LEAST_SD 1e-6   /* below: the column does not vary */
#define LEAST_STEP 1e-4 /* in standard deviations; narrower ones are left out */
#define LARGEST 1e9     /* of a file's numbers */

/* Runs of columns that have steps. */
static const struct {
    uint8_t first, end;
} stepped[] = {
    {DL_SELF_NOW_COUNT, DL_SELF_LAG_1},
    {DL_SELF_LAG, DL_SELF_PREVIOUS_LAG_1},
    {DL_SELF_PREVIOUS_LAG, DL_SELF_OUT},
    {DL_SELF_OUT_SHARE, DL_SELF_RING_ACTIVE},
    {DL_SELF_RING_OUT, DL_SELF_PAIR},
    {DL_SELF_PAIR_LAG, DL_SELF_PAIR_MUTUAL},
    {DL_SELF_PAIR_LAGS, DL_SELF_PAIR_FLAGS},
    {DL_SELF_COMMON, DL_SELF_COMPANY},
    {DL_SELF_COMPANY, DL_SELF_ORDER}, /* from here on the candidate's alone */
    {DL_SELF_ORDER_AFTER, DL_SELF_ORDER_SAME_SOURCE},
};
#define RUNS (sizeof stepped / sizeof *stepped)
#define SHARED_RUNS (RUNS - 2)

/* Copies the columns that have steps, and returns how many they are. */
static int gather(const dl_real *columns, dl_real *to)
{
    int count = 0;
    for (size_t r = 0; r < SHARED_RUNS + RUNS; r++) {
        const size_t run = r < SHARED_RUNS ? r : r - SHARED_RUNS;
        const dl_real *side = r < SHARED_RUNS ? columns : columns + DL_SELF_COLUMNS;
        const int size = stepped[run].end - stepped[run].first;
        memcpy(to + count, side + stepped[run].first, (size_t)size * sizeof *to);
        count += size;
    }
    return count;
}

/* In this form a compiler makes it a maximum and a minimum, without branches. */
static dl_real clip(dl_real x, dl_real low, dl_real high)
{
    x = x > low ? x : low;
    return x < high ? x : high;
}

void dl_reading_plain(struct dl_reading *reading)
{
    memset(reading, 0, sizeof *reading);
    for (int c = 0; c < DL_READING_COLUMNS; c++) reading->scaling[DL_READING_SCALE][c] = 1;
}

/* ---- fitting ------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    dl_real x = *(const dl_real *)a, y = *(const dl_real *)b;
    return (x > y) - (x < y);
}

/* Mean and scale of column `c`. */
static void fit_column(struct dl_reading *reading, int c, const dl_real *rows, uint32_t count)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += (double)rows[(size_t)i * DL_READING_COLUMNS + (size_t)c];
    const double mean = sum / count;
    for (uint32_t i = 0; i < count; i++) {
        double off = (double)rows[(size_t)i * DL_READING_COLUMNS + (size_t)c] - mean;
        squares += off * off;
    }
    const double sd = sqrt(squares / count);
    reading->scaling[DL_READING_MEAN][c] = (dl_real)mean;
    reading->scaling[DL_READING_SCALE][c] = sd < LEAST_SD ? 0 : (dl_real)(1 / sd);
}

/* Steps of stepped column `j`, which is column `c`, between the quantiles of the
 * values that are not 0; `there` has room for `count` of them. */
static void fit_steps(struct dl_reading *reading, int j, int c, const dl_real *rows, uint32_t count,
                      dl_real *there)
{
    const double mean = (double)reading->scaling[DL_READING_MEAN][c];
    const double scale = (double)reading->scaling[DL_READING_SCALE][c];
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const dl_real x = rows[(size_t)i * DL_READING_COLUMNS + (size_t)c];
        if (x != 0) there[n++] = x;
    }
    if (n == 0) return;
    qsort(there, n, sizeof *there, by_value);
    for (uint64_t k = 0; k < DL_READING_STEPS; k++) {
        const double from = (double)there[(n - 1) * k / DL_READING_STEPS];
        const double to = (double)there[(n - 1) * (k + 1) / DL_READING_STEPS];
        const double width = (to - from) * scale;
        if (width < LEAST_STEP) continue;
        reading->steps[DL_READING_START][k][j] = (dl_real)((from - mean) * scale);
        reading->steps[DL_READING_SLOPE][k][j] = (dl_real)(1 / width);
    }
}

int dl_reading_fit(struct dl_reading *reading, const dl_real *rows, uint32_t count)
{
    dl_real places[DL_READING_COLUMNS], which[DL_READING_STEPPED];
    dl_real *there = malloc(count * sizeof *there);
    if (there == NULL) return DL_ERR_NOMEM;
    memset(reading, 0, sizeof *reading);
    for (int c = 0; c < DL_READING_COLUMNS; c++) {
        fit_column(reading, c, rows, count);
        places[c] = (dl_real)c;
    }
    DL_CHECK(gather(places, which) == DL_READING_STEPPED);
    for (int j = 0; j < DL_READING_STEPPED; j++)
        fit_steps(reading, j, (int)which[j], rows, count, there);
    free(there);
    return DL_OK;
}

/* ---- files -------------------------------------------------------------------------- */

/* The matrices of a file, each row of which is one of numbers or of factors. */
static int check_rows(const char *file, const char *tensor, const dl_real *values, int rows,
                      int columns, int first_factor, struct dl_error *error)
{
    for (int row = 0; row < rows; row++) {
        for (int c = 0; c < columns; c++) {
            const double x = (double)values[row * columns + c];
            const int is_factor = row >= first_factor;
            if (fabs(x) <= LARGEST && !(is_factor && x < 0)) continue;
            return dl_error_set(error, DL_ERR_CORRUPT,
                                "%s: %s: row %d, column %d is %g; %s expected; train the model "
                                "anew",
                                file, tensor, row, c, x,
                                is_factor ? "a factor of 0 to 1e9" : "a number within 1e9");
        }
    }
    return DL_OK;
}

int dl_reading_check(const struct dl_reading *reading, const char *file, struct dl_error *error)
{
    int status = check_rows(file, DL_READING_SCALING_TENSOR, reading->scaling[0], 2,
                            DL_READING_COLUMNS, 1, error);
    if (status) return status;
    return check_rows(file, DL_READING_STEPS_TENSOR, reading->steps[0][0], 2 * DL_READING_STEPS,
                      DL_READING_STEPPED, DL_READING_STEPS, error);
}

/* ---- reading ------------------------------------------------------------------------- */

void dl_reading_standardise(const struct dl_reading *reading, int side, dl_real *restrict columns)
{
    const dl_real *mean = reading->scaling[DL_READING_MEAN] + side * DL_SELF_COLUMNS;
    const dl_real *scale = reading->scaling[DL_READING_SCALE] + side * DL_SELF_COLUMNS;
    for (int c = 0; c < DL_SELF_COLUMNS; c++)
        columns[c] = clip((columns[c] - mean[c]) * scale[c], -DL_READING_CLIP, DL_READING_CLIP);
}

void dl_reading_steps(const struct dl_reading *restrict reading, const dl_real *restrict z,
                      dl_real *restrict to)
{
    dl_real x[DL_READING_STEPPED];
    gather(z, x);
    for (int k = 0; k < DL_READING_STEPS; k++, to += DL_READING_STEPPED) {
        const dl_real *start = reading->steps[DL_READING_START][k];
        const dl_real *slope = reading->steps[DL_READING_SLOPE][k];
        for (int j = 0; j < DL_READING_STEPPED; j++)
            to[j] = clip((x[j] - start[j]) * slope[j], 0, 1) / 2;
    }
}
