/* EdgeBank and pair recency. */
#include "model/baseline_edgebank.h"

#include <string.h>

static void score_edgebank(const void *self, void *workspace, const struct dl_query *query,
                           dl_real *scores, struct dl_attention *attention)
{
    (void)self, (void)workspace, (void)attention;
    for (uint32_t i = 0; i < query->candidate_count; i++) scores[i] = query->pairs[i].count[0] > 0;
}

static double freshness(uint64_t feed_events, uint64_t last_seq)
{
    return 1 / (1 + (double)(feed_events - last_seq));
}

static void score_pair_recency(const void *self, void *workspace, const struct dl_query *query,
                               dl_real *scores, struct dl_attention *attention)
{
    (void)self, (void)workspace, (void)attention;
    uint64_t events = query->feed.events;
    for (uint32_t i = 0; i < query->candidate_count; i++) {
        const struct dl_pair_state *pair = &query->pairs[i];
        const struct dl_node_state *state = &query->candidates[i].state;
        double best = state->events_in ? freshness(events, state->last_in_seq) : 0;
        for (int d = 0; d < 2; d++) {
            if (pair->count[d] == 0) continue;
            double seen = 2 + freshness(events, pair->last_seq[d]);
            if (seen > best) best = seen;
        }
        scores[i] = (dl_real)best;
    }
}

const struct dl_scorer dl_scorer_edgebank = {
    .name = "edgebank", .window = 1, .score = score_edgebank};
const struct dl_scorer dl_scorer_pair_recency = {
    .name = "pair-recency", .window = 1, .score = score_pair_recency};

const struct dl_scorer *dl_baseline_find(const char *name)
{
    if (strcmp(name, dl_scorer_edgebank.name) == 0) return &dl_scorer_edgebank;
    if (strcmp(name, dl_scorer_pair_recency.name) == 0) return &dl_scorer_pair_recency;
    return NULL;
}
