/* Names to dense ids and back: 0, 1, 2, ... in order of first appearance.
 *
 * A key is a namespace byte and a name; bipartite feeds keep sources in
 * namespace 0 and destinations in 1, all others use 0. Ids are shared by the
 * namespaces. Not thread-safe. Grows by doubling; `count_max` bounds it. */
#ifndef DL_BASE_DICTIONARY_H
#define DL_BASE_DICTIONARY_H

#include <stdint.h>

#include "base/bytes.h"

struct dl_dictionary;

/* DL_OK or DL_ERR_NOMEM. */
int dl_dictionary_new(uint32_t count_max, struct dl_dictionary **dictionary);
void dl_dictionary_free(struct dl_dictionary *dictionary);

uint32_t dl_dictionary_count(const struct dl_dictionary *dictionary);

/* DL_OK and the id, or DL_ERR_NOT_FOUND. */
int dl_dictionary_find(const struct dl_dictionary *dictionary, uint8_t space, struct dl_slice name,
                       uint32_t *id);
/* Finds or adds; *added says which. DL_OK, DL_ERR_FULL, DL_ERR_NOMEM. */
int dl_dictionary_intern(struct dl_dictionary *dictionary, uint8_t space, struct dl_slice name,
                         uint32_t *id, int *added);
/* Gives an id another key, which must not be in use; the old name's bytes are
 * overwritten. DL_OK, DL_ERR_EXISTS, DL_ERR_NOMEM. */
int dl_dictionary_rename(struct dl_dictionary *dictionary, uint32_t id, uint8_t space,
                         struct dl_slice name);
/* The name of an id, borrowed until the next intern. id < count. */
struct dl_slice dl_dictionary_name(const struct dl_dictionary *dictionary, uint32_t id);
uint8_t dl_dictionary_space(const struct dl_dictionary *dictionary, uint32_t id);

#endif
