/* How columns are read. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "model/reading.h"

#define ROWS 400

/* Column 0 never varies, 1 is a flag, 2 runs from 1 to 100 in three of four rows
 * and is 0 in the fourth, 3 stands far off with the same shape as 2. */
static void make(dl_real *rows)
{
    for (int i = 0; i < ROWS; i++) {
        dl_real *row = rows + i * DL_READING_COLUMNS;
        row[0] = 7;
        row[1] = (dl_real)(i % 2);
        row[2] = i % 4 ? (dl_real)(1 + 99.0 * i / (ROWS - 1)) : 0;
        row[DL_SELF_COLUMNS + 3] = 1000 + row[2];
    }
}

static void fit(struct dl_reading *reading, dl_real *rows)
{
    make(rows);
    cr_assert_eq(dl_reading_fit(reading, rows, ROWS), DL_OK);
}

Test(reading, standardises_what_it_was_fitted_to)
{
    dl_real *rows = calloc(ROWS, DL_READING_COLUMNS * sizeof *rows);
    struct dl_reading reading;
    fit(&reading, rows);
    const int columns[] = {1, 2, DL_SELF_COLUMNS + 3};
    for (int i = 0; i < ROWS; i++)
        for (int s = 0; s < 2; s++)
            dl_reading_standardise(&reading, s,
                                   rows + i * DL_READING_COLUMNS + s * DL_SELF_COLUMNS);
    for (int k = 0; k < 3; k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < ROWS; i++) {
            double z = (double)rows[i * DL_READING_COLUMNS + columns[k]];
            sum += z;
            squares += z * z;
        }
        cr_expect_float_eq(sum / ROWS, 0, 1e-4);
        cr_expect_float_eq(squares / ROWS, 1, 1e-4);
    }
    /* Columns that say the same of both sides are read alike. */
    for (int i = 0; i < ROWS; i++)
        cr_expect_float_eq(rows[i * DL_READING_COLUMNS + 2],
                           rows[i * DL_READING_COLUMNS + DL_SELF_COLUMNS + 3], 1e-3);
    free(rows);
}

Test(reading, leaves_out_what_never_varied_and_clips_what_lies_far_out)
{
    dl_real *rows = calloc(ROWS, DL_READING_COLUMNS * sizeof *rows),
            steps[DL_READING_STEPS * DL_READING_STEPPED];
    struct dl_reading reading;
    fit(&reading, rows);
    rows[0] = 99, rows[1] = (dl_real)1e30, rows[2] = (dl_real)-1e30;
    dl_reading_standardise(&reading, 0, rows);
    cr_expect_eq(rows[0], 0);
    cr_expect_eq(rows[1], DL_READING_CLIP);
    cr_expect_eq(rows[2], -DL_READING_CLIP);
    dl_reading_steps(&reading, rows, steps);
    for (int k = 0; k < DL_READING_STEPS; k++) {
        cr_expect_eq(steps[k * DL_READING_STEPPED + 5], 0, "of a column that never varied");
    }
    free(rows);
}

Test(reading, has_steps_between_quantiles_of_what_is_there)
{
    dl_real *rows = calloc(ROWS, DL_READING_COLUMNS * sizeof *rows),
            steps[DL_READING_STEPS * DL_READING_STEPPED];
    struct dl_reading reading;
    fit(&reading, rows);
    const double at[] = {0, 1, 13.5, 25.8, 50.5, 75.2, 100, 5000};
    const double expected[] = {0, 0, 0.75, 1.5, 3, 4.5, 6, 6}; /* sixths that lie below */
    for (int i = 0; i < 8; i++) {
        make(rows);
        rows[2] = (dl_real)at[i];
        dl_reading_standardise(&reading, 0, rows);
        dl_reading_steps(&reading, rows, steps);
        double sum = 0;
        for (int k = 0; k < DL_READING_STEPS; k++) sum += 2 * (double)steps[k * DL_READING_STEPPED];
        cr_expect_float_eq(sum, expected[i], 0.05, "at %g: %g", at[i], sum);
    }
    free(rows);
}

Test(reading, plainly_takes_columns_as_they_are)
{
    struct dl_reading reading;
    dl_real columns[DL_READING_COLUMNS] = {0, 1, -2.5, 9},
            steps[DL_READING_STEPS * DL_READING_STEPPED];
    dl_reading_plain(&reading);
    dl_reading_standardise(&reading, 0, columns);
    cr_expect_eq(columns[1], 1);
    cr_expect_eq(columns[2], (dl_real)-2.5);
    cr_expect_eq(columns[3], 9);
    dl_reading_steps(&reading, columns, steps);
    for (int i = 0; i < DL_READING_STEPS * DL_READING_STEPPED; i++) cr_expect_eq(steps[i], 0);
}
