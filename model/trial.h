/* A trial of a model that was read: files whose weights are all numbers may still score none.
 * Any thread. */
#ifndef DL_MODEL_TRIAL_H
#define DL_MODEL_TRIAL_H

#include "model/model.h"

/* Scores pairs of a few made-up events. DL_ERR_CORRUPT with a line that names `name` when a
 * score is no finite number; DL_ERR_NOMEM. */
int dl_model_try(const struct dl_model *model, const char *name, struct dl_error *error);

#endif
