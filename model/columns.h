/* The columns of tokens: what the model is told, by name.
 *
 * Units. Elapsed times are in median gaps between the feed's distinct
 * timestamps; lags count distinct timestamps; ages count events of the feed.
 * L(x) = log(1 + x)/4. z(w) = standardised sign(w)·log1p(|w|). Flags are 0 or 1;
 * what does not exist is 0. Ages, rates and orders are 0 without `arrival_age`,
 * all of the pair without `pair_memory`, peers in common (the company too)
 * without `cooccurrence`. */
#ifndef DL_MODEL_COLUMNS_H
#define DL_MODEL_COLUMNS_H

#include <stdint.h>

#include "base/between.h"
#include "base/graph.h"

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

#endif
