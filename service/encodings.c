/* Keys and encodings apart, so that a search stays in one line of memory. */
#include "service/encodings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

#define WAYS 4

struct key {
    uint64_t events; /* of the node when its window was encoded; 0: free */
    uint32_t node;
    uint32_t used; /* the clock's reading */
};

struct dl_encodings {
    uint32_t width;
    uint64_t set_mask;
    struct key *keys; /* (sets, WAYS) */
    float *values;    /* (sets, WAYS, width) */
    uint32_t clock;   /* turns over; then what is old looks new once */
    struct dl_encodings_figures figures;
};

int dl_encodings_new(uint32_t width, uint64_t bytes, struct dl_encodings **encodings)
{
    const uint64_t each = WAYS * (sizeof(struct key) + width * sizeof(float));
    uint64_t sets = 1;
    struct dl_encodings *made = calloc(1, sizeof *made);
    DL_CHECK(width > 0);
    if (made == NULL) return DL_ERR_NOMEM;
    while (2 * sets * each <= bytes) sets *= 2;
    made->width = width;
    made->set_mask = sets - 1;
    made->keys = calloc(sets * WAYS, sizeof *made->keys);
    made->values = malloc(sets * WAYS * width * sizeof *made->values);
    if (made->keys == NULL || made->values == NULL) {
        dl_encodings_free(made);
        return DL_ERR_NOMEM;
    }
    *encodings = made;
    return DL_OK;
}

void dl_encodings_free(struct dl_encodings *encodings)
{
    if (encodings == NULL) return;
    free(encodings->keys);
    free(encodings->values);
    free(encodings);
}

void dl_encodings_clear(struct dl_encodings *encodings)
{
    memset(encodings->keys, 0, (encodings->set_mask + 1) * WAYS * sizeof *encodings->keys);
}

/* The node's place: where it is, or else the one to give up. */
static size_t place_of(const struct dl_encodings *encodings, uint32_t node)
{
    const size_t first = (dl_mix64(node) & encodings->set_mask) * WAYS;
    size_t oldest = first;
    for (size_t i = first; i < first + WAYS; i++) {
        const struct key *key = &encodings->keys[i], *worst = &encodings->keys[oldest];
        if (key->events > 0 && key->node == node) return i;
        if (worst->events > 0 && (key->events == 0 || key->used < worst->used)) oldest = i;
    }
    return oldest;
}

static void fill_side(struct dl_encodings *encodings, const struct dl_side *side)
{
    if (side->window_count == 0) return;
    const size_t at = place_of(encodings, side->node);
    struct key *key = &encodings->keys[at];
    if (key->node != side->node || key->events != side->state.events) {
        encodings->figures.misses++;
        return;
    }
    encodings->figures.hits++;
    key->used = ++encodings->clock;
    memcpy(side->encoding, encodings->values + at * encodings->width,
           encodings->width * sizeof(float));
}

int dl_encodings_fill(struct dl_encodings *encodings, struct dl_query *query)
{
    int status = dl_query_make_encodings(query, encodings->width);
    if (status != DL_OK) return status;
    fill_side(encodings, &query->source);
    for (uint32_t i = 0; i < query->candidate_count; i++)
        fill_side(encodings, &query->candidates[i]);
    return DL_OK;
}

static void keep_side(struct dl_encodings *encodings, const struct dl_side *side)
{
    if (side->window_count == 0 || isnan(side->encoding[0])) return;
    const size_t at = place_of(encodings, side->node);
    struct key *key = &encodings->keys[at];
    /* An older state of a node never takes the place of a newer one. */
    if (key->node == side->node && key->events >= side->state.events) return;
    *key = (struct key){side->state.events, side->node, ++encodings->clock};
    memcpy(encodings->values + at * encodings->width, side->encoding,
           encodings->width * sizeof(float));
}

void dl_encodings_keep(struct dl_encodings *encodings, const struct dl_query *query)
{
    DL_CHECK(query->encoding_width == encodings->width);
    keep_side(encodings, &query->source);
    for (uint32_t i = 0; i < query->candidate_count; i++)
        keep_side(encodings, &query->candidates[i]);
}

struct dl_encodings_figures dl_encodings_get_figures(const struct dl_encodings *encodings)
{
    return encodings->figures;
}
