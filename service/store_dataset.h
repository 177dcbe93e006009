/* A store's edge log as a recorded feed, to learn from. */
#ifndef DL_SERVICE_STORE_DATASET_H
#define DL_SERVICE_STORE_DATASET_H

#include "model/dataset.h"

/* Reads every event that the log holds; the store may be in use. What the log
 * does not keep (events beyond its bounds, forgotten ones) is not there. Errors
 * name the file. */
int dl_store_dataset_load(const char *path, struct dl_dataset **dataset, struct dl_error *error);

#endif
