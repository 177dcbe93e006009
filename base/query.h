/* A query: one source, one query time and some candidates, with copies of all
 * that a model may look at, so that scoring runs on any thread while the graph
 * moves on. The memory is the query's own and is reused between queries. */
#ifndef DL_BASE_QUERY_H
#define DL_BASE_QUERY_H

#include <stdint.h>

#include "base/between.h"
#include "base/graph.h"

#define DL_CANDIDATES_MAX 65536 /* candidates of one query */

/* One endpoint as of the query. */
struct dl_side {
    uint32_t node;
    uint32_t window_count;
    const struct dl_interaction *window; /* (window_count), newest first */
    const float *features;               /* (window_count, feature_count), or NULL */
    /* (encoding_width) what a model makes of the window alone, the first NaN while
     * that is not known; or NULL. Whoever scores the query fills it in. */
    float *encoding;
    struct dl_node_state state;
};

struct dl_query {
    int64_t time;
    uint32_t ordinal; /* of the query time */
    uint32_t feature_count;
    struct dl_feed_state feed;
    struct dl_side source;
    uint32_t candidate_count;
    struct dl_side *candidates;  /* (candidate_count) */
    struct dl_pair_state *pairs; /* (candidate_count), direction 0: source to candidate */
    struct dl_between *between;  /* (candidate_count) */
    float distinct[2];           /* of the source, as a dl_between's of its candidate */
    uint32_t encoding_width;     /* 0: no side has room for one */
    /* private */
    uint32_t window_max, candidate_capacity;
    struct dl_interaction *interactions; /* (1 + candidate_capacity, window_max) */
    float *feature_memory;
    struct dl_between_source *between_source; /* of begin, for add */
    float *encoding_memory;
    size_t encoding_capacity; /* floats */
};

/* Zero-initialised is empty. */
void dl_query_deinit(struct dl_query *query);

/* Starts a query: copies the source and the feed's state. `window_max`: how
 * many interactions a side at most. `node` may be unknown to the graph
 * (DL_NODE_NONE or an id without events): an empty side. DL_OK, DL_ERR_NOMEM. */
#define DL_NODE_NONE UINT32_MAX
int dl_query_begin(struct dl_query *query, const struct dl_graph *graph, uint32_t window_max,
                   uint32_t source, int64_t time);
/* Adds a candidate. DL_OK, DL_ERR_NOMEM, DL_ERR_TOO_LARGE. Pointers to earlier
 * candidates may move. */
int dl_query_add(struct dl_query *query, const struct dl_graph *graph, uint32_t candidate);
/* No candidate is added any more: frees what only that needs, most of the
 * query's own size. For queries that wait in numbers. */
void dl_query_seal(struct dl_query *query);
/* Gives each side room for an encoding, none known. After the last candidate;
 * a query begun anew has none again. DL_OK, DL_ERR_NOMEM. */
int dl_query_make_encodings(struct dl_query *query, uint32_t width);
/* A deep copy, but for encodings, of exactly the size it needs (for training sets). */
int dl_query_copy(const struct dl_query *from, struct dl_query *to);

#endif
