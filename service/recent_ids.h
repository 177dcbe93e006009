/* The ids of the most recent events, to know a repeated event by. Ids are kept
 * as 64-bit hashes under a key of the store's own, so that nobody can make an id
 * that passes for another's. Bounded: the last `horizon` ids, in order.
 * The loop's thread. */
#ifndef DL_SERVICE_RECENT_IDS_H
#define DL_SERVICE_RECENT_IDS_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_recent_ids;

/* horizon: 1 to 2^30. DL_OK, DL_ERR_NOMEM. */
int dl_recent_ids_new(uint32_t horizon, struct dl_recent_ids **ids);
void dl_recent_ids_free(struct dl_recent_ids *ids);

uint64_t dl_recent_ids_hash(uint64_t key, struct dl_slice id);
/* 1: among the last `horizon`; else 0, and it is remembered. */
int dl_recent_ids_add(struct dl_recent_ids *ids, uint64_t hash);
uint32_t dl_recent_ids_count(const struct dl_recent_ids *ids);

#endif
