/* Small recorded feeds for tests of the model library. */
#ifndef DL_TESTS_UNIT_MODEL_FEED_H
#define DL_TESTS_UNIT_MODEL_FEED_H

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>

#include "model/dataset.h"

/* Adds an event between nodes that are named by their numbers. */
static inline void feed_add(struct dl_dataset *dataset, unsigned src, unsigned dst, int64_t time,
                            float weight)
{
    char src_name[16], dst_name[16];
    struct dl_error error = {{0}};
    snprintf(src_name, sizeof src_name, "%u", src);
    snprintf(dst_name, sizeof dst_name, "%u", dst);
    struct dl_edge_event event = {.src = dl_slice_text(src_name),
                                  .dst = dl_slice_text(dst_name),
                                  .time = time,
                                  .weight = weight,
                                  .has_weight = 1};
    cr_assert_eq(dl_dataset_add(dataset, &event, &error), DL_OK, "%s", error.text);
}

static inline struct dl_dataset *feed_begin(void)
{
    struct dl_dataset_options options = {.time_unit_given = 1, .time_unit = DL_TIME_TICKS};
    struct dl_dataset *dataset = NULL;
    struct dl_error error = {{0}};
    cr_assert_eq(dl_dataset_begin("test feed", &options, &dataset, &error), DL_OK, "%s",
                 error.text);
    return dataset;
}

static inline void feed_finish(struct dl_dataset *dataset)
{
    struct dl_error error = {{0}};
    cr_assert_eq(dl_dataset_finish(dataset, &error), DL_OK, "%s", error.text);
}

/* A feed with something to learn: each source keeps returning to the few
 * destinations of its own community, one event a tick or `per_tick` of them. */
static inline struct dl_dataset *feed_communities(unsigned events, unsigned per_tick)
{
    struct dl_dataset *dataset = feed_begin();
    uint64_t state = 12345;
    for (unsigned i = 0; i < events; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned src = (unsigned)(state >> 33) % 24;
        unsigned dst = 24 + (src % 6) * 4 + (unsigned)(state >> 50) % 4;
        feed_add(dataset, src, dst, i / per_tick, (float)(1 + i % 3));
    }
    feed_finish(dataset);
    return dataset;
}

/* A measured data set from the folder that DRIFTLINE_DATA names, or a skip. */
static inline struct dl_dataset *feed_measured(const char *file)
{
    const char *folder = getenv("DRIFTLINE_DATA");
    struct dl_dataset_options options = {.time_unit_given = 1, .time_unit = DL_TIME_TICKS};
    struct dl_dataset *dataset = NULL;
    struct dl_error error = {{0}};
    char path[1024];

    if (!folder) cr_skip_test("DRIFTLINE_DATA is not set: %s is not tested\n", file);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert_eq(dl_dataset_load(path, &options, NULL, &dataset, &error), DL_OK, "%s", error.text);
    return dataset;
}

#endif
