/* "Did you mean ...?": the nearest known name to one that is not known. */
#ifndef DL_SERVICE_SUGGEST_H
#define DL_SERVICE_SUGGEST_H

#include <stddef.h>

/* How many letters must be inserted, removed, replaced or swapped with their
 * neighbour to turn one into the other (optimal string alignment). Texts of
 * more than 64 letters count as infinitely far (UINT_MAX). */
unsigned dl_suggest_distance(const char *a, const char *b);

/* The nearest of `names` to `name`, or NULL if none is near enough to be what
 * was meant (a third of its letters, at least two, may differ). Borrowed. */
const char *dl_suggest_nearest(const char *name, const char *const *names, size_t count);

#endif
