/* What the model is told of a pair: its tokens, as numbers.
 *
 * A pair has a sequence of tokens without padding: the source's own token, the
 * source's window newest first, the candidate's own token, the candidate's
 * window newest first. Where a window is short the sequence is, so nothing
 * needs a mask.
 *
 * What the columns say, and in which units: columns.h. */
#ifndef DL_MODEL_FEATURES_H
#define DL_MODEL_FEATURES_H

#include "base/query.h"
#include "model/carve.h"
#include "model/columns.h"
#include "model/network.h"

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

/* A row that is like no earlier one. */
#define DL_ROW_OWN UINT32_MAX

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
    uint32_t window_rows;  /* window tokens that are kept below: those of rows of their own */
    uint32_t *start;       /* (pairs + 1): first row of each pair */
    uint32_t *source_rows; /* (pairs): rows of the source's side */
    uint32_t *tokens;      /* (pairs): of the pair, own tokens included */
    uint64_t *place;       /* (pairs): for dropout */
    uint32_t *position;    /* (rows): place in its side, 0 is the own token */
    dl_real *self;         /* (2 pairs, DL_SELF_COLUMNS), standardised */
    dl_real *token;   /* (window rows, layout.columns); the encodings' columns are the model's */
    dl_real *elapsed; /* (window rows), clipped to DL_ELAPSED_MAX */
    uint16_t *seen;   /* (window rows, 2): how often the neighbour stands in the source's and
                         the candidate's window */
    /* Joint: most tokens of the source are plain, that is the same in each of a
     * query's pairs. A row is like an earlier one of the batch, or, when plain
     * tokens are carried over batches, like one of source_token. */
    int carries;
    uint32_t *like;       /* (rows): that row, or DL_ROW_OWN */
    uint32_t *plain_row;  /* (W): the first of the present query in the batch, or DL_ROW_OWN */
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
