/* Irrelevant neighbours. */
#include "model/noise.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static void disturb(struct dl_query *query, struct dl_side *side, struct dl_interaction *old,
                    float *old_features, uint32_t neighbours, uint32_t node_count, uint64_t seed)
{
    struct dl_interaction *window = (struct dl_interaction *)side->window;
    float *features = (float *)side->features;
    const uint32_t fc = query->feature_count;
    uint32_t real = 0, noise = neighbours, count = side->window_count, at = 0;
    struct dl_rng rng;

    if (count == 0) return;
    memcpy(old, window, count * sizeof *old);
    if (features) memcpy(old_features, features, (size_t)count * fc * sizeof *features);
    dl_rng_seed(&rng, dl_draw64(seed, side->node, 0));
    for (uint64_t left; at < query->window_max && (left = (uint64_t)count - real + noise) > 0;
         at++) {
        int foreign = dl_rng_below(&rng, left) < noise;
        uint32_t from = foreign ? (real ? real - 1 : 0) : real;
        window[at] = old[from];
        if (features)
            memcpy(features + (size_t)at * fc, old_features + (size_t)from * fc,
                   fc * sizeof *features);
        if (foreign) {
            window[at].peer = (uint32_t)dl_rng_below(&rng, node_count);
            noise--;
        } else {
            real++;
        }
    }
    side->window_count = at;
}

int dl_noise_add(struct dl_query *query, uint32_t neighbours, uint32_t node_count, uint64_t seed)
{
    struct dl_interaction *old = malloc(query->window_max * sizeof *old);
    float *features =
        malloc(((size_t)query->window_max * query->feature_count + 1) * sizeof *features);
    int status = old && features ? DL_OK : DL_ERR_NOMEM;
    if (status == DL_OK) {
        disturb(query, &query->source, old, features, neighbours, node_count, seed);
        for (uint32_t i = 0; i < query->candidate_count; i++)
            disturb(query, &query->candidates[i], old, features, neighbours, node_count, seed);
    }
    free(old);
    free(features);
    return status;
}
