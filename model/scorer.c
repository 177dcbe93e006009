/* A network as a scorer. */
#include "model/scorer.h"

static int workspace_new(const void *self, void **workspace)
{
    struct dl_workspace *made;
    int status = dl_workspace_new(self, &made);
    if (status == DL_OK) *workspace = made;
    return status;
}

static void workspace_free(void *workspace)
{
    dl_workspace_free(workspace);
}

static void score(const void *self, void *workspace, const struct dl_query *query, dl_real *scores,
                  struct dl_attention *attention)
{
    dl_network_score(self, workspace, query, scores, attention);
}

struct dl_scorer dl_scorer_network(const struct dl_network *network,
                                   const struct dl_calibration *calibration)
{
    const struct dl_network_config *config = dl_network_get_config(network);
    return (struct dl_scorer){.name = config->architecture,
                              .self = network,
                              .window = config->window,
                              .layers = config->layers,
                              .calibration = calibration,
                              .workspace_new = workspace_new,
                              .workspace_free = workspace_free,
                              .score = score};
}
