/* The edge log of a store as a data set. */
#include "service/store_dataset.h"

#include <string.h>

#include "store/store.h"

struct reading {
    struct dl_dataset *dataset;
    struct dl_dictionary *nodes;
    struct dl_error *error;
};

static int take_event(void *user, uint64_t seq, const struct dl_event *event)
{
    struct reading *reading = user;
    uint32_t names = dl_dictionary_count(reading->nodes);
    (void)seq;
    if (event->src >= names || event->dst >= names)
        return dl_error_set(reading->error, DL_ERR_CORRUPT,
                            "an event of the log names a node that the store does not have; run "
                            "driftline check --store");
    struct dl_edge_event edge = {.src = dl_dictionary_name(reading->nodes, event->src),
                                 .dst = dl_dictionary_name(reading->nodes, event->dst),
                                 .time = event->time,
                                 .weight = event->weight,
                                 .has_weight = 1};
    if (event->features) {
        edge.feature_count = reading->dataset->feature_count;
        memcpy(edge.features, event->features, edge.feature_count * sizeof *edge.features);
    }
    return dl_dataset_add(reading->dataset, &edge, reading->error);
}

int dl_store_dataset_load(const char *path, struct dl_dataset **dataset, struct dl_error *error)
{
    struct dl_store_options options = dl_store_options_default;
    struct dl_store *store = NULL;
    struct dl_dictionary *types = NULL;
    struct reading reading = {.error = error};

    options.read_only = options.adopt = 1;
    options.create = 0;
    int status = dl_store_open(path, &options, &store, error);
    if (status != DL_OK) return status;
    const struct dl_store_config *config = dl_store_get_config(store);
    const struct dl_dataset_options how = {.time_unit_given = 1,
                                           .time_unit = config->time_unit,
                                           .feature_count = config->feature_count,
                                           .bipartite = config->namespaces == 2};
    if (dl_dictionary_new(DL_DATASET_NODES_MAX, &reading.nodes) != DL_OK ||
        dl_dictionary_new(UINT16_MAX, &types) != DL_OK) {
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        goto done;
    }
    if ((status = dl_store_load_names(store, reading.nodes, types, error)) != DL_OK) goto done;
    if ((status = dl_dataset_begin(path, &how, &reading.dataset, error)) != DL_OK) goto done;
    status = dl_store_log_read(store, 0, take_event, &reading, error);
    if (status == DL_OK) status = dl_dataset_finish(reading.dataset, error);
    if (status != DL_OK) goto done;
    *dataset = reading.dataset;
    reading.dataset = NULL;
done:
    if (status != DL_OK) dl_error_wrap(error, status, "%s", path);
    dl_dataset_free(reading.dataset);
    dl_dictionary_free(types);
    dl_dictionary_free(reading.nodes);
    dl_store_close(store);
    return status;
}
