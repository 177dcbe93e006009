/* How own tokens' columns are read: standardised, and cut into steps, by what
 * the training span held (piecewise-linear encoding, Gorishniy and others,
 * arXiv 2203.05556). Where raw columns differ hundredfold in spread and matter
 * at some values alone, a small network learns slowly what trees see at once.
 *
 *   z = clip((x − mean) · scale, ±DL_READING_CLIP)
 *   step k of z = clip((z − start_k) · slope_k, 0, 1) / 2
 *
 * A column that never varied in training has a scale of 0: it is not read. The
 * steps lie between quantiles of the values that are not 0, as 0 says that
 * there is none. Half the height was chosen on validation: the full one
 * learns more of what the training span alone has. */
#ifndef DL_MODEL_READING_H
#define DL_MODEL_READING_H

#include "base/status.h"
#include "model/columns.h"
#include "model/real.h"

#define DL_READING_STEPS 6
#define DL_READING_CLIP 10

#define DL_READING_COLUMNS (2 * DL_SELF_COLUMNS) /* the source's, the candidate's */
/* Those of both sides that have steps: all but flags, and on the source's side
 * what only the candidate's has. */
#define DL_READING_STEPPED 149

/* Two matrices, as a file has them. */
enum { DL_READING_MEAN, DL_READING_SCALE };
enum { DL_READING_START, DL_READING_SLOPE };
struct dl_reading {
    dl_real scaling[2][DL_READING_COLUMNS];
    dl_real steps[2][DL_READING_STEPS][DL_READING_STEPPED];
};
#define DL_READING_SCALING_TENSOR "encoding.scaling"
#define DL_READING_STEPS_TENSOR "encoding.steps" /* (2 · DL_READING_STEPS, DL_READING_STEPPED) */

/* Columns as they are (but clipped), no steps: for networks that were not trained. */
void dl_reading_plain(struct dl_reading *reading);
/* From `count` > 0 rows of plain columns (count, DL_READING_COLUMNS). DL_OK, DL_ERR_NOMEM. */
int dl_reading_fit(struct dl_reading *reading, const dl_real *rows, uint32_t count);
/* Whether the numbers of `file` can be read by: DL_OK or DL_ERR_CORRUPT with detail. */
int dl_reading_check(const struct dl_reading *reading, const char *file, struct dl_error *error);

/* Standardises the columns of a side (0 the source, 1 the candidate) in place. */
void dl_reading_standardise(const struct dl_reading *reading, int side, dl_real *columns);
/* The steps of both sides' standardised columns: z (DL_READING_COLUMNS), to
 * (DL_READING_STEPS, DL_READING_STEPPED). */
void dl_reading_steps(const struct dl_reading *reading, const dl_real *z, dl_real *to);

#endif
