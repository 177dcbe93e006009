/* Reading columns. */
#include "model/reading.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SD 1e-6   /* below: the column does not vary */
#define LEAST_STEP 1e-4 /* in standard deviations; narrower ones are left out */
#define LARGEST 1e9     /* of a file's numbers */

static dl_real clip(dl_real x, dl_real low, dl_real high)
{
    return x < low ? low : x > high ? high : x;
}

void dl_reading_plain(struct dl_reading *reading)
{
    memset(reading, 0, sizeof *reading);
    for (int i = 0; i < DL_READING_COLUMNS; i++) reading->scale[i] = 1;
}

/* ---- fitting ------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    dl_real x = *(const dl_real *)a, y = *(const dl_real *)b;
    return (x > y) - (x < y);
}

/* Column `c` from its `count` values; `there` has room for as many. */
static void fit_column(struct dl_reading *reading, int c, const dl_real *rows, uint32_t count,
                       dl_real *there)
{
    double sum = 0, squares = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const dl_real x = rows[(size_t)i * DL_READING_COLUMNS + (size_t)c];
        sum += (double)x;
        if (x != 0) there[n++] = x;
    }
    const double mean = sum / count;
    for (uint32_t i = 0; i < count; i++) {
        double off = (double)rows[(size_t)i * DL_READING_COLUMNS + (size_t)c] - mean;
        squares += off * off;
    }
    const double sd = sqrt(squares / count);
    reading->mean[c] = (dl_real)mean;
    if (sd < LEAST_SD || n == 0) return;
    reading->scale[c] = (dl_real)(1 / sd);
    qsort(there, n, sizeof *there, by_value);
    for (int k = 0; k < DL_READING_STEPS; k++) {
        double from = (double)there[(uint64_t)(n - 1) * (unsigned)k / DL_READING_STEPS];
        double to = (double)there[(uint64_t)(n - 1) * (unsigned)(k + 1) / DL_READING_STEPS];
        if (to - from < LEAST_STEP * sd) continue;
        reading->start[k][c] = (dl_real)((from - mean) / sd);
        reading->slope[k][c] = (dl_real)(sd / (to - from));
    }
}

int dl_reading_fit(struct dl_reading *reading, const dl_real *rows, uint32_t count)
{
    dl_real *there = malloc(count * sizeof *there);
    if (there == NULL) return DL_ERR_NOMEM;
    memset(reading, 0, sizeof *reading);
    for (int c = 0; c < DL_READING_COLUMNS; c++) fit_column(reading, c, rows, count, there);
    free(there);
    return DL_OK;
}

int dl_reading_check(const struct dl_reading *reading, const char *file, struct dl_error *error)
{
    const dl_real *values = (const dl_real *)(const void *)reading;
    for (int row = 0; row < DL_READING_ROWS; row++) {
        const int is_factor = row == 1 || row >= 2 + DL_READING_STEPS;
        for (int c = 0; c < DL_READING_COLUMNS; c++) {
            const double x = (double)values[row * DL_READING_COLUMNS + c];
            if (fabs(x) <= LARGEST && !(is_factor && x < 0)) continue;
            return dl_error_set(
                error, DL_ERR_CORRUPT,
                "%s: encoding.reading: row %d, column %d is %g; %s expected; train the "
                "model anew",
                file, row, c, x, is_factor ? "a factor of 0 to 1e9" : "a number within 1e9");
        }
    }
    return DL_OK;
}

/* ---- reading ------------------------------------------------------------------------- */

void dl_reading_standardise(const struct dl_reading *reading, int side, dl_real *columns)
{
    const dl_real *mean = reading->mean + side * DL_SELF_COLUMNS;
    const dl_real *scale = reading->scale + side * DL_SELF_COLUMNS;
    for (int c = 0; c < DL_SELF_COLUMNS; c++)
        columns[c] = clip((columns[c] - mean[c]) * scale[c], -DL_READING_CLIP, DL_READING_CLIP);
}

void dl_reading_steps(const struct dl_reading *reading, const dl_real *z, dl_real *to)
{
    for (int k = 0; k < DL_READING_STEPS; k++, to += DL_READING_COLUMNS) {
        const dl_real *start = reading->start[k], *slope = reading->slope[k];
        for (int c = 0; c < DL_READING_COLUMNS; c++)
            to[c] = clip((z[c] - start[c]) * slope[c], 0, 1) / 2;
    }
}
