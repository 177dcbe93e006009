/* Queries: copies of the state that a score depends on. */
#include "base/query.h"

#include <math.h>
#include <stdlib.h>

void dl_query_deinit(struct dl_query *query)
{
    free(query->candidates);
    free(query->pairs);
    free(query->between);
    free(query->interactions);
    free(query->feature_memory);
    free(query->encoding_memory);
    free(query->between_source);
    *query = (struct dl_query){0};
}

/* Side number `index` uses row `index` of the window memory; the source is row 0. */
static void point_side(struct dl_query *query, struct dl_side *side, size_t index)
{
    side->window = query->interactions + index * query->window_max;
    side->features = query->feature_count
                         ? query->feature_memory + index * query->window_max * query->feature_count
                         : NULL;
}

static int resize(struct dl_query *query, uint32_t capacity)
{
    size_t rows = (size_t)capacity + 1;
    size_t feature_bytes = rows * query->window_max * query->feature_count * sizeof(float);
    struct dl_side *candidates =
        realloc(query->candidates, (capacity ? capacity : 1) * sizeof *candidates);
    if (candidates) query->candidates = candidates;
    struct dl_pair_state *pairs = realloc(query->pairs, (capacity ? capacity : 1) * sizeof *pairs);
    if (pairs) query->pairs = pairs;
    struct dl_between *between =
        realloc(query->between, (capacity ? capacity : 1) * sizeof *between);
    if (between) query->between = between;
    struct dl_interaction *interactions =
        realloc(query->interactions, rows * query->window_max * sizeof *interactions);
    if (interactions) query->interactions = interactions;
    float *features = query->feature_memory;
    if (feature_bytes) {
        features = realloc(query->feature_memory, feature_bytes);
        if (features) query->feature_memory = features;
    }
    if (!candidates || !pairs || !between || !interactions || (feature_bytes && !features))
        return DL_ERR_NOMEM;
    query->candidate_capacity = capacity;
    point_side(query, &query->source, 0);
    for (uint32_t i = 0; i < query->candidate_count; i++)
        point_side(query, &query->candidates[i], (size_t)i + 1);
    return DL_OK;
}

static void fill_side(struct dl_query *query, const struct dl_graph *graph, struct dl_side *side,
                      size_t index, uint32_t node)
{
    side->node = node;
    side->encoding = NULL;
    point_side(query, side, index);
    const struct dl_node_state *state = node == DL_NODE_NONE ? NULL : dl_graph_node(graph, node);
    if (!state) {
        side->state = (struct dl_node_state){0};
        side->window_count = 0;
        return;
    }
    side->state = *state;
    side->window_count =
        dl_graph_window(graph, node, query->window_max, (struct dl_interaction *)side->window,
                        (float *)side->features);
}

int dl_query_begin(struct dl_query *query, const struct dl_graph *graph, uint32_t window_max,
                   uint32_t source, int64_t time)
{
    uint32_t feature_count = dl_graph_get_config(graph)->feature_count;
    query->candidate_count = 0;
    query->encoding_width = 0;
    if (!query->interactions || query->window_max != window_max ||
        query->feature_count != feature_count) {
        query->window_max = window_max;
        query->feature_count = feature_count;
        if (resize(query, query->candidate_capacity ? query->candidate_capacity : 1) != DL_OK)
            return DL_ERR_NOMEM;
    }
    query->time = time;
    query->ordinal = dl_graph_ordinal_at(graph, time);
    query->feed = *dl_graph_feed(graph);
    fill_side(query, graph, &query->source, 0, source);
    if (!query->between_source) query->between_source = malloc(sizeof *query->between_source);
    if (!query->between_source) return DL_ERR_NOMEM;
    dl_between_begin(query->between_source, graph, source, query->ordinal);
    memcpy(query->distinct, query->between_source->distinct, sizeof query->distinct);
    return DL_OK;
}

int dl_query_add(struct dl_query *query, const struct dl_graph *graph, uint32_t candidate)
{
    uint32_t index = query->candidate_count;
    if (index >= DL_CANDIDATES_MAX) return DL_ERR_TOO_LARGE;
    if (index == query->candidate_capacity && resize(query, index * 2) != DL_OK)
        return DL_ERR_NOMEM;
    fill_side(query, graph, &query->candidates[index], (size_t)index + 1, candidate);
    if (query->source.node == DL_NODE_NONE || candidate == DL_NODE_NONE)
        query->pairs[index] = (struct dl_pair_state){0};
    else
        dl_graph_pair(graph, query->source.node, candidate, &query->pairs[index]);
    dl_between_find(query->between_source, graph, candidate, &query->between[index]);
    query->candidate_count++;
    return DL_OK;
}

int dl_query_make_encodings(struct dl_query *query, uint32_t width)
{
    const size_t sides = (size_t)query->candidate_count + 1, needed = sides * width;
    if (needed > query->encoding_capacity) {
        float *memory = realloc(query->encoding_memory, needed * sizeof *memory);
        if (!memory) return DL_ERR_NOMEM;
        query->encoding_memory = memory;
        query->encoding_capacity = needed;
    }
    query->encoding_width = width;
    for (size_t i = 0; i < sides; i++) {
        struct dl_side *side = i ? &query->candidates[i - 1] : &query->source;
        side->encoding = query->encoding_memory + i * width;
        side->encoding[0] = NAN;
    }
    return DL_OK;
}

void dl_query_seal(struct dl_query *query)
{
    free(query->between_source);
    query->between_source = NULL;
}

int dl_query_copy(const struct dl_query *from, struct dl_query *to)
{
    *to = *from;
    to->candidates = NULL;
    to->pairs = NULL;
    to->between = NULL;
    to->interactions = NULL;
    to->feature_memory = NULL;
    to->encoding_memory = NULL;
    to->between_source = NULL;
    to->encoding_capacity = to->encoding_width = 0;
    to->candidate_count = 0;
    to->candidate_capacity = 0;
    /* Rows only as long as the longest window in use. */
    uint32_t longest = from->source.window_count;
    for (uint32_t i = 0; i < from->candidate_count; i++)
        if (from->candidates[i].window_count > longest) longest = from->candidates[i].window_count;
    to->window_max = longest ? longest : 1;
    if (resize(to, from->candidate_count) != DL_OK) {
        dl_query_deinit(to);
        return DL_ERR_NOMEM;
    }
    to->candidate_count = from->candidate_count;
    for (size_t row = 0; row <= from->candidate_count; row++) {
        const struct dl_side *a = row ? &from->candidates[row - 1] : &from->source;
        struct dl_side *b = row ? &to->candidates[row - 1] : &to->source;
        *b = *a;
        b->encoding = NULL;
        point_side(to, b, row);
        memcpy((struct dl_interaction *)b->window, a->window, a->window_count * sizeof *a->window);
        if (a->features)
            memcpy((float *)b->features, a->features,
                   (size_t)a->window_count * from->feature_count * sizeof(float));
        if (row) to->pairs[row - 1] = from->pairs[row - 1];
        if (row) to->between[row - 1] = from->between[row - 1];
    }
    return DL_OK;
}
