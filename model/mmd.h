/* Rolling maximum mean discrepancy: how far the last N events lie from a
 * reference sample, as the unbiased squared MMD of Gretton et al., "A Kernel
 * Two-Sample Test" (JMLR 2012), lemma 6, kept up to date event by event.
 *
 *   MMD² = Σ_{i≠j} k(x_i, x_j) / N(N−1)  −  2/N Σ_i K(x_i)  +  R
 *   K(x) = mean over the reference of k(x, y);  R = mean of k(y, y'), y ≠ y'
 *
 * Kernel: the mean of three Gaussians whose widths are half, once and twice
 * the median distance within the reference. Two forms:
 *
 *   exact    k itself. A new event costs 2N + n kernel values; n is the size of
 *            the reference sample, thinned to reference_max rows.
 *   fourier  k replaced by D random Fourier features (Rahimi and Recht 2007):
 *            D/2 frequencies drawn from the kernel's spectrum, a cosine and a
 *            sine each. Independent of N and n; the reference is used whole.
 *
 * Every sum is one of integers (kernel values and features are rounded to
 * fixed point when they are made), so the value depends on what the window
 * holds and on nothing that went before: no rounding drifts in, and a window
 * filled anew from saved rows gives the same value to the last bit.
 *
 * Rows are standardised features, expected within about ±4. One thread at a
 * time. Memory is fixed at creation. */
#ifndef DL_MODEL_MMD_H
#define DL_MODEL_MMD_H

#include <stdint.h>

#include "base/status.h"

#define DL_MMD_COLUMNS_MAX 64
#define DL_MMD_WINDOW_MAX 32768
#define DL_MMD_ROWS_MAX 65536
#define DL_MMD_FOURIER_MAX 4096

enum dl_mmd_form { DL_MMD_FOURIER = 0, DL_MMD_EXACT = 1 };

struct dl_mmd_config {
    enum dl_mmd_form form;
    uint32_t columns;       /* 1..DL_MMD_COLUMNS_MAX */
    uint32_t window;        /* N, 2..DL_MMD_WINDOW_MAX */
    uint32_t fourier;       /* D, a multiple of 32 up to DL_MMD_FOURIER_MAX; 256 is good */
    uint32_t reference_max; /* exact: rows kept of the reference, strided; 1,000 is good */
    double width;           /* > 0 sets the middle width; 0: the median heuristic */
    uint64_t seed;          /* of the frequencies */
};

struct dl_mmd;

/* `reference` (rows, columns) is copied. DL_ERR_INVALID with detail (sizes out
 * of range, fewer than 2 rows, a value that is not finite), DL_ERR_NOMEM. */
int dl_mmd_new(const struct dl_mmd_config *config, const float *reference, uint32_t rows,
               struct dl_mmd **mmd, struct dl_error *error);
void dl_mmd_free(struct dl_mmd *mmd);
const struct dl_mmd_config *dl_mmd_get_config(const struct dl_mmd *mmd);
/* The middle kernel width in use. */
double dl_mmd_width(const struct dl_mmd *mmd);

/* Takes a row (columns) into the window; the oldest leaves when it is full. */
void dl_mmd_push(struct dl_mmd *mmd, const float *row);
/* Empties the window. */
void dl_mmd_clear(struct dl_mmd *mmd);
/* Rows in the window, up to N. */
uint32_t dl_mmd_count(const struct dl_mmd *mmd);
/* Unbiased MMD² of the rows in the window; 0 with fewer than 2. May be
 * slightly negative where nothing differs. */
double dl_mmd_value(const struct dl_mmd *mmd);

/* ---- the parts, for calibration ------------------------------------------ */

/* As push, leaving the cross term alone (the exact form then saves n kernel
 * values); dl_mmd_value must not be asked until the next clear. */
void dl_mmd_push_self(struct dl_mmd *mmd, const float *row);
/* The first and the last term of the formula above. */
double dl_mmd_self_term(const struct dl_mmd *mmd);
double dl_mmd_reference_term(const struct dl_mmd *mmd);
/* K(row) over the reference without its rows first..last (indexes into the
 * reference given at creation, inclusive; first > last leaves out none). */
double dl_mmd_cross_without(struct dl_mmd *mmd, const float *row, uint32_t first, uint32_t last);
/* The kernel itself, in the form at hand. */
double dl_mmd_kernel(struct dl_mmd *mmd, const float *a, const float *b);

#endif
