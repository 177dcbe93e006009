/* Scoring a handful of made-up events: weights may each be a number and still give none. */
#include "model/trial.h"

#include <math.h>

#include "base/graph.h"
#include "base/query.h"
#include "model/network.h"

#define NODES 4
#define EVENTS 12

static int take_events(struct dl_graph *graph, const struct dl_model_info *info, float *features)
{
    const double gap = info->encoding.gap;
    int status = DL_OK;
    for (uint32_t f = 0; f < info->config.feature_count; f++) features[f] = 1;
    for (uint32_t i = 0; status == DL_OK && i < EVENTS; i++) {
        struct dl_event event = {.time = (int64_t)(i * (gap < 1e12 ? gap : 1e12)),
                                 .src = i % NODES,
                                 .dst = (i * i + 1) % NODES,
                                 .weight = 1 + (float)(i % 3),
                                 .features = info->config.feature_count ? features : NULL};
        status = dl_graph_apply(graph, &event);
    }
    return status;
}

int dl_model_try(const struct dl_model *model, const char *name, struct dl_error *error)
{
    const struct dl_model_info *info = dl_model_get_info(model);
    const struct dl_network *network = dl_model_get_network(model);
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_query query = {0};
    struct dl_graph *graph = NULL;
    struct dl_workspace *workspace = NULL;
    dl_real logits[NODES];
    float features[DL_EVENT_FEATURES_MAX];
    config.window = info->config.window;
    config.feature_count = info->config.feature_count;
    config.nodes_max = NODES;
    config.pairs_max = 1024;
    int status = dl_graph_new(&config, &graph, error);
    if (status != DL_OK) return status;
    status = take_events(graph, info, features);
    if (status == DL_OK) status = dl_workspace_new(network, &workspace);
    if (status == DL_OK)
        status =
            dl_query_begin(&query, graph, info->config.window, 0, dl_graph_feed(graph)->last_time);
    for (uint32_t v = 1; status == DL_OK && v < NODES; v++) status = dl_query_add(&query, graph, v);
    if (status != DL_OK) {
        dl_error_set(error, status, "%s: out of memory for a trial of the model", name);
        goto done;
    }
    dl_query_seal(&query);
    dl_network_score(network, workspace, &query, logits, NULL);
    for (uint32_t i = 0; status == DL_OK && i < query.candidate_count; i++)
        if (!isfinite((double)logits[i]) || !isfinite(dl_model_probability(model, logits[i])))
            status = dl_error_set(error, DL_ERR_CORRUPT,
                                  "%s: the model gives a score that is no finite number: some of "
                                  "its weights are far too large; train it again",
                                  name);
done:
    dl_query_deinit(&query);
    dl_workspace_free(workspace);
    dl_graph_free(graph);
    return status;
}
