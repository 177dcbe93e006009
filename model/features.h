/* What the model is told of a pair: its tokens, as numbers.
 *
 * A pair has a sequence of tokens without padding: the source's own token, the
 * source's window newest first, the candidate's own token, the candidate's
 * window newest first. Where a window is short the sequence is, so nothing
 * needs a mask.
 *
 * Units. Elapsed times are in median gaps between the feed's distinct
 * timestamps; lags count distinct timestamps; ages count events of the feed.
 * L(x) = log(1 + x)/4. z(w) = standardised sign(w)·log1p(|w|). Flags are 0 or 1;
 * what does not exist is 0. Ages, rates and orders are 0 without `arrival_age`,
 * all of the pair without `pair_memory`, peers in common (the company too)
 * without `cooccurrence`. */
#ifndef DL_MODEL_FEATURES_H
#define DL_MODEL_FEATURES_H

#include "base/query.h"
#include "model/carve.h"
#include "model/network.h"

/* Columns of a window token before the event's features and the encodings. */
enum dl_token_column {
    DL_TOKEN_WEIGHT,    /* z(weight) */
    DL_TOKEN_DIRECTION, /* +1 the node was the source, −1 the destination */
    DL_TOKEN_OTHER,     /* the neighbour is the other endpoint of the pair */
    DL_TOKEN_ELAPSED,   /* L(elapsed) */
    DL_TOKEN_LAG_0,     /* at the query's own timestamp */
    DL_TOKEN_LAG_1,     /* at the timestamp before it */
    DL_TOKEN_AGE,       /* L(age) */
    DL_TOKEN_COLUMNS
};

#define DL_RING_LAGS DL_GROUP_RING /* lags 0, 1, ... of the ring columns */
#define DL_FLAG_LAGS 4             /* lags of the pair's flags */

/* Columns of a side's own token. "Group": the node's events at its latest
 * timestamp; "previous": the group before. now: the group is at the query's
 * timestamp. Columns from DL_SELF_PAIR on speak of the pair. */
enum dl_self_column {
    DL_SELF_HISTORY, /* has any */
    DL_SELF_NOW,
    DL_SELF_NOW_COUNT,      /* now · L(events) */
    DL_SELF_NOW_OUT,        /* now · outgoing share */
    DL_SELF_LAG_1,          /* lag = 1 */
    DL_SELF_LAG,            /* L(lag) */
    DL_SELF_BEFORE_COUNT,   /* (1 − now) · L(events) */
    DL_SELF_BEFORE_OUT,     /* (1 − now) · outgoing share */
    DL_SELF_PREVIOUS_LAG_1, /* now · previous at lag 1 */
    DL_SELF_PREVIOUS_LAG,   /* now · L(previous lag) */
    DL_SELF_PREVIOUS_COUNT, /* now · L(previous events) */
    DL_SELF_PREVIOUS_OUT,   /* now · previous outgoing share */
    DL_SELF_TOTAL,          /* L(all events)/2 */
    /* The node's history as source and as destination. */
    DL_SELF_OUT,         /* was a source */
    DL_SELF_IN,          /* was a destination */
    DL_SELF_OUT_SHARE,   /* of its events */
    DL_SELF_OUT_ELAPSED, /* L(elapsed since its last as source) */
    DL_SELF_IN_ELAPSED,  /* as destination */
    DL_SELF_OUT_AGE,     /* L(age) likewise */
    DL_SELF_IN_AGE,
    DL_SELF_FIRST_ELAPSED, /* L(elapsed since its first) */
    DL_SELF_FIRST_AGE,     /* L(age of its first) */
    DL_SELF_TENURE,        /* that age as a share of the feed */
    DL_SELF_RATE_OUT,      /* L(decayed rate), each horizon */
    DL_SELF_RATE_IN = DL_SELF_RATE_OUT + DL_RATE_HORIZONS,
    /* Its part in the timestamps at lags 0, 1, ... */
    DL_SELF_RING_ACTIVE = DL_SELF_RATE_IN + DL_RATE_HORIZONS,
    DL_SELF_RING_OUT = DL_SELF_RING_ACTIVE + DL_RING_LAGS, /* of the largest of any node there */
    DL_SELF_RING_IN = DL_SELF_RING_OUT + DL_RING_LAGS,
    DL_SELF_RING_WEIGHT = DL_SELF_RING_IN + DL_RING_LAGS, /* z(largest weight in) */
    /* Pair memory: the last event between the two, either direction. */
    DL_SELF_PAIR = DL_SELF_RING_WEIGHT + DL_RING_LAGS, /* there is one */
    DL_SELF_PAIR_LAG_0,                                /* at the query's timestamp */
    DL_SELF_PAIR_LAG_1,                                /* at the one before */
    DL_SELF_PAIR_OUT,                                  /* this side was its source */
    DL_SELF_PAIR_LAG,                                  /* L(lag) */
    DL_SELF_PAIR_WEIGHT,                               /* z(weight) */
    DL_SELF_PAIR_COUNT,                                /* L(events between the two) */
    DL_SELF_PAIR_SHARE,                                /* share of them with this side as source */
    DL_SELF_PAIR_RANK,   /* 1/(1 + place of the other in this window, newest 0) */
    DL_SELF_PAIR_MUTUAL, /* both directions exist */
    /* By direction, [0] from this side to the other, [1] back. */
    DL_SELF_PAIR_EXISTS,                            /* [2] */
    DL_SELF_PAIR_LAGS = DL_SELF_PAIR_EXISTS + 2,    /* [2] L(lag) */
    DL_SELF_PAIR_ELAPSED = DL_SELF_PAIR_LAGS + 2,   /* [2] L(elapsed) */
    DL_SELF_PAIR_AGE = DL_SELF_PAIR_ELAPSED + 2,    /* [2] L(age) */
    DL_SELF_PAIR_COUNTS = DL_SELF_PAIR_AGE + 2,     /* [2] L(events) */
    DL_SELF_PAIR_DECAYED = DL_SELF_PAIR_COUNTS + 2, /* [2] L(events, halved a timestamp) */
    DL_SELF_PAIR_FLAGS = DL_SELF_PAIR_DECAYED + 2,  /* [2][4] an event at lag 0, 1, 2, 3 */
    /* Peers that stand in both windows. */
    DL_SELF_COMMON = DL_SELF_PAIR_FLAGS + 2 * DL_FLAG_LAGS, /* L(distinct ones) */
    DL_SELF_COMMON_RANK, /* 1/(1 + place of the newest in this window) */
    /* From the longer history (base/between.h), seen from this side. */
    DL_SELF_DISTINCT,                            /* [2] distinct peers an event, out and in */
    DL_SELF_WAYS = DL_SELF_DISTINCT + 2,         /* L(peers between the two), each way */
    DL_SELF_WAYS_NOW = DL_SELF_WAYS + DL_WAYS,   /* with both events at the query's timestamp */
    DL_SELF_SHARED = DL_SELF_WAYS_NOW + DL_WAYS, /* L(peers), either direction */
    DL_SELF_SHARED_RECENT,                       /* weighted by recency */
    /* The candidate's side alone: the source's company among its sources, and
     * its place after the source's newest destination in the order of a time
     * before. */
    DL_SELF_COMPANY,           /* L(sum) */
    DL_SELF_COMPANY_MEAN,      /* L(mean) */
    DL_SELF_COMPANY_SHARE,     /* share of its events */
    DL_SELF_ORDER,             /* there is such a time */
    DL_SELF_ORDER_NEXT,        /* it came next */
    DL_SELF_ORDER_AFTER,       /* L(events after) */
    DL_SELF_ORDER_BEFORE,      /* L(events before) */
    DL_SELF_ORDER_SAME_SOURCE, /* both events had the same source */
    DL_SELF_ORDER_SAME_AFTER,  /* and it came after */
    DL_SELF_COLUMNS
};

/* The name of a column, such as "rate_in.3". */
void dl_token_column_name(uint32_t column, char name[32]);
void dl_self_column_name(uint32_t column, char name[32]);

/* Since the newest event of a window, for a side that is encoded by itself:
 * L(elapsed), L(age). */
#define DL_SINCE_COLUMNS 2

#define DL_TIME_COLUMNS 16 /* width of the time encoding */
#define DL_SEEN_COLUMNS 16 /* width of the co-occurrence encoding */
/* Longer elapsed times look alike to the time encoding: a phase beyond is noise. */
#define DL_ELAPSED_MAX 1000

/* Where things stand in a window token's row. */
struct dl_token_layout {
    uint32_t features; /* first event feature */
    uint32_t time;     /* first column of the time encoding (columns if switched off) */
    uint32_t seen;     /* first column of the co-occurrence encoding (likewise) */
    uint32_t columns;
};
struct dl_token_layout dl_token_layout_of(const struct dl_network_config *config);

/* How a batch holds windows. */
enum dl_batch_form {
    DL_BATCH_JOINT, /* as tokens of the pair, in one sequence with the other window */
    DL_BATCH_APART  /* each side's by itself, named once however many pairs it is in */
};

/* A window that is encoded by itself. */
struct dl_batch_side {
    const struct dl_side *side;
    const struct dl_query *query; /* that it belongs to */
    uint64_t place;               /* for dropout */
};

/* Several pairs. Joint: their tokens, one after the other; window tokens and own
 * tokens are kept apart, as they go through different maps. */
struct dl_batch {
    const struct dl_network_config *config;
    const struct dl_encoding *encoding;
    struct dl_token_layout layout;
    enum dl_batch_form form;
    uint32_t pairs_max, rows_max; /* joint: 2 · pairs_max · (W + 1) rows */
    uint32_t pairs, rows;         /* rows: of the sequences, 2 · pairs and all window tokens */
    uint32_t window_rows;         /* window tokens that are kept below: all but shared ones */
    uint32_t *start;              /* (pairs + 1): first row of each pair */
    uint32_t *source_rows;        /* (pairs): rows of the source's side */
    uint32_t *tokens;             /* (pairs): of the pair, own tokens included */
    uint64_t *place;              /* (pairs): for dropout */
    uint32_t *position;           /* (rows): place in its side, 0 is the own token */
    dl_real *self;                /* (2 pairs, DL_SELF_COLUMNS) */
    dl_real *token;   /* (window rows, layout.columns); the encodings' columns are the model's */
    dl_real *elapsed; /* (window rows), clipped to DL_ELAPSED_MAX */
    uint16_t *seen;   /* (window rows, 2): how often the neighbour stands in the source's and
                         the candidate's window */
    /* Joint, when scoring: most tokens of the source are the same in each of a
     * query's pairs. Those that differ are in `token`; of the others there is one
     * in source_token, which row's position − 1 is its index. */
    int shares;
    uint8_t *shared;      /* (rows) */
    uint16_t *plain_seen; /* (W, 2): of source_token; no peer stands in the other window */
    int source_is_new;    /* set by begin, for the architecture to clear */
    /* Apart. */
    uint32_t sides;
    struct dl_batch_side *side; /* (2 pairs_max) */
    uint32_t *pair_sides;       /* (pairs, 2): their windows in `side` */
    dl_real *since;             /* (2 pairs, DL_SINCE_COLUMNS) */
    uint32_t source_side;       /* of the present query, or UINT32_MAX: not named yet */
    /* The present query's source, which all its pairs share. */
    const struct dl_query *query;
    uint32_t source_count; /* of window tokens */
    dl_real *source_self, *source_token, *source_elapsed;
    uint32_t *peers[2];    /* (W): neighbours in the source's and the candidate's window */
    uint16_t *source_seen; /* (W): how often each stands in the source's own window */
};

/* Cuts a batch for `pairs_max` pairs out of the carve. */
void dl_batch_carve(struct dl_batch *batch, struct dl_carve *carve,
                    const struct dl_network_config *config, const struct dl_encoding *encoding,
                    uint32_t pairs_max, enum dl_batch_form form);
void dl_batch_clear(struct dl_batch *batch);
/* Makes `query` the present one, until the next call. */
void dl_batch_begin(struct dl_batch *batch, const struct dl_query *query);
/* Appends candidate `index` of the present query. pairs < pairs_max. */
void dl_batch_add(struct dl_batch *batch, uint32_t index, uint64_t place);
/* The tokens of a window by itself, with elapsed times, lags and ages as of its
 * newest event: token (n, layout.columns) but for the encodings' columns,
 * elapsed (n), seen (n): how often each neighbour stands in it. Returns n ≤ W. */
uint32_t dl_batch_window(const struct dl_batch *batch, const struct dl_batch_side *side,
                         dl_real *token, dl_real *elapsed, uint16_t *seen);

#endif
