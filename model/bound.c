/* The oracle bound: one sweep over the timestamps that counts, for each source
 * and pair, how many events of the timestamp are (still) to come. */
#include "model/bound.h"

#include <stdlib.h>
#include <string.h>

#include "base/query.h"
#include "model/metrics.h"

struct counts {
    uint32_t *out;  /* (node_count) events of the timestamp by source */
    uint32_t *pair; /* (pair_count) by pair */
};

static double oracle(const struct counts *counts, const struct dl_pairs *pairs, enum dl_ties ties,
                     const struct dl_event *next, struct dl_edge edge)
{
    if (edge.dst == DL_NODE_NONE) return 0;
    if (ties == DL_TIES_STREAM) return edge.src == next->src && edge.dst == next->dst;
    uint32_t pair = dl_pairs_find(pairs, edge.src, edge.dst);
    if (pair == DL_PAIR_NONE || counts->pair[pair] == 0) return 0;
    return (double)counts->pair[pair] / (double)counts->out[edge.src];
}

/* scores: (1 + draws, count): positives, then negatives by draw. */
static int score_all(const struct dl_pass *pass, const struct dl_pairs *pairs, enum dl_ties ties,
                     const uint64_t *positions, uint64_t count, const struct dl_edge *negatives,
                     uint32_t draws, double *scores)
{
    const struct dl_dataset *dataset = pass->dataset;
    struct counts counts = {calloc(dataset->node_count, sizeof(uint32_t)),
                            calloc(pairs->pair_count, sizeof(uint32_t))};
    uint64_t scored = 0, end;
    int status = DL_ERR_NOMEM;

    if (!counts.out || !counts.pair) goto done;
    for (uint64_t begin = 0; begin < dataset->event_count && scored < count; begin = end) {
        int64_t now = dataset->events[begin].time;
        for (end = begin; end < dataset->event_count && dataset->events[end].time == now; end++) {
            counts.out[dataset->events[end].src]++;
            counts.pair[pairs->pair_of[end]]++;
        }
        for (uint64_t position = begin; position < end; position++) {
            uint64_t index = dl_pass_event(pass, position);
            const struct dl_event *event = &dataset->events[index];
            if (scored < count && positions[scored] == position) {
                struct dl_edge edge = {event->src, event->dst};
                scores[scored] = oracle(&counts, pairs, ties, event, edge);
                for (uint32_t d = 0; d < draws; d++)
                    scores[(d + 1) * count + scored] = oracle(
                        &counts, pairs, ties, event, negatives[(uint64_t)d * count + scored]);
                scored++;
            }
            if (ties == DL_TIES_SHUFFLE) {
                counts.out[event->src]--;
                counts.pair[pairs->pair_of[index]]--;
            }
        }
        for (uint64_t i = begin; i < end; i++) {
            counts.out[dataset->events[i].src] = 0;
            counts.pair[pairs->pair_of[i]] = 0;
        }
    }
    status = DL_OK;
done:
    free(counts.out);
    free(counts.pair);
    return status;
}

int dl_bound_compute(const struct dl_pass *pass, const struct dl_pairs *pairs, enum dl_ties ties,
                     const uint64_t *positions, uint64_t count, const struct dl_edge *negatives,
                     uint32_t draws, struct dl_bound *bound)
{
    double *scores = malloc((1 + (uint64_t)draws) * (count + 1) * sizeof *scores);
    double ap, auc;
    int status = DL_ERR_NOMEM;

    memset(bound, 0, sizeof *bound);
    if (!scores) return DL_ERR_NOMEM;
    if ((status = score_all(pass, pairs, ties, positions, count, negatives, draws, scores)) !=
        DL_OK)
        goto done;
    for (uint32_t d = 1; d <= draws; d++) {
        status = dl_metrics_ranking(scores, count, scores + d * count, count, &ap, &auc);
        if (status != DL_OK) goto done;
        bound->ap_pooled += ap / draws;
    }
    for (uint64_t i = 0; i < (1 + (uint64_t)draws) * count; i++) scores[i] = scores[i] > 0;
    for (uint32_t d = 1; d <= draws; d++) {
        status =
            dl_metrics_batches(scores, scores + d * count, count, DL_NEGATIVES_BATCH, &ap, &auc);
        if (status != DL_OK) goto done;
        bound->edge_oracle_batch_mean += ap / draws;
    }
done:
    free(scores);
    return status;
}
