/* What RPC and HTTP ask of the engine: one table of functions with a context.
 * The engine implements it; a test implements it in memory.
 *
 * How an operation goes. The caller owns a `struct dl_backend_job` with `done`
 * set, and keeps it until `done` was called. An operation either
 *   - returns a negative status with a line in *error: refused, `done` is never called; or
 *   - returns DL_OK: `done` is called exactly once, before the operation
 *     returns or later, always on the loop's thread.
 * Requests and all they point to are borrowed until the operation returns; an
 * engine that answers later copies what it needs. Results are borrowed until
 * `done` returns.
 *
 * A caller that lost interest sets `cancelled`; the engine may look at it (any
 * thread) to skip work that has not begun, and then calls `done` with
 * DL_ERR_CANCELLED. Work past `deadline_ns` may be skipped in the same way.
 *
 * Bounds. The caller checks the limits below before it asks, the engine has
 * its own bounded queue and refuses with DL_ERR_FULL when that is full.
 *
 * Statuses and what they become on the wire: DL_ERR_INVALID INVALID_ARGUMENT;
 * NOT_FOUND NOT_FOUND; TOO_LARGE and FULL RESOURCE_EXHAUSTED; UNAVAILABLE
 * UNAVAILABLE; CANCELLED CANCELLED or DEADLINE_EXCEEDED; UNSUPPORTED
 * UNIMPLEMENTED; DENIED PERMISSION_DENIED; LATE OUT_OF_RANGE; EXISTS
 * ALREADY_EXISTS; CORRUPT and VERSION DATA_LOSS; others INTERNAL. */
#ifndef DL_SERVICE_BACKEND_H
#define DL_SERVICE_BACKEND_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/record.h"
#include "base/status.h"

#define DL_BACKEND_PAIRS_MAX 10000      /* pairs of one Score */
#define DL_BACKEND_CANDIDATES_MAX 10000 /* candidates a caller may name in one TopK */
#define DL_BACKEND_K_MAX 1000           /* candidates one TopK returns */
#define DL_BACKEND_INGEST_MAX 10000     /* events of one ingest batch */

/* ---- requests ------------------------------------------------------------ */

struct dl_backend_pair {
    struct dl_slice src, dst; /* names, checked: 1..DL_NAME_BYTES_MAX bytes */
};

struct dl_backend_score_request {
    uint32_t pair_count; /* 1..DL_BACKEND_PAIRS_MAX */
    const struct dl_backend_pair *pairs;
    int has_time; /* else: the feed's clock */
    int64_t time; /* query time, in the feed's unit */
};

struct dl_backend_top_k_request {
    struct dl_slice node;
    uint32_t k;               /* 1..DL_BACKEND_K_MAX */
    uint32_t candidate_count; /* the caller's own, beside the drawn ones */
    const struct dl_slice *candidates;
    int only_candidates;     /* score the caller's list alone */
    uint32_t candidates_max; /* drawn at most; 0: the configured default */
    int has_time;
    int64_t time;
};

struct dl_backend_window_request {
    struct dl_slice node;
    uint32_t count_max; /* 0: the whole window */
};

struct dl_backend_explain_request {
    struct dl_slice src, dst;
    uint32_t count_max;    /* tokens returned, the heaviest first; 0: all */
    int by_layer_and_head; /* also fill dl_backend_token.weights */
    int has_time;
    int64_t time;
};

struct dl_backend_forget_request {
    struct dl_slice node; /* this node, everywhere; or, with peer, the edges between the two */
    struct dl_slice peer; /* empty: the whole node */
};

struct dl_backend_ingest_request {
    uint32_t event_count; /* 1..DL_BACKEND_INGEST_MAX */
    const struct dl_edge_event *events;
};

/* ---- results ------------------------------------------------------------- */

struct dl_backend_scores {
    uint32_t score_count; /* as many as pairs, in their order */
    /* src, dst, time, probability, surprise_bits, the three histories and
     * model_version are filled in; seq is the number of events of the state. */
    const struct dl_score *scores;
};

/* One past event as the asked node sees it. */
struct dl_backend_interaction {
    struct dl_slice peer;
    int64_t time;
    uint64_t seq;
    struct dl_slice type; /* empty: none */
    float weight;
    int out; /* 1: the node was the source */
    uint32_t feature_count;
    const float *features; /* (feature_count) */
};

struct dl_backend_window {
    struct dl_slice node;
    uint64_t events, events_out, events_in; /* of the node, all time */
    int64_t first_time, last_time;
    uint32_t window_max; /* W */
    uint32_t interaction_count;
    const struct dl_backend_interaction *interactions; /* newest first */
};

/* One token of a scored pair and the attention that it received. */
struct dl_backend_token {
    int side; /* 0: source's side, 1: candidate's side */
    int self; /* 1: the endpoint's own token; event is then empty but for peer = the endpoint */
    struct dl_backend_interaction event;
    double weight;           /* averaged over layers and heads; all tokens sum to 1 */
    double ratio_to_uniform; /* weight · tokens */
    int sink;                /* received more than mean + 3 σ (16 tokens and more) */
    const double *weights;   /* (layers, heads) if asked for, else NULL */
};

struct dl_backend_explanation {
    struct dl_score score;          /* of the pair, as dl_backend_scores */
    uint32_t layers, heads, tokens; /* tokens: valid ones of the pair */
    double entropy, top5_share;     /* means over layers */
    uint32_t token_count;
    const struct dl_backend_token *token_list; /* heaviest first */
};

struct dl_backend_feature {
    const char *name;
    double share; /* of the statistic */
    double before, now;
};

struct dl_backend_drift {
    int ready;   /* 0: the window is not full yet; statistic is then 0 */
    int shifted; /* an alert of this kind stands */
    double statistic, threshold, p_value;
    uint32_t window, window_filled; /* events */
    uint32_t reference_rows;
    const char *reference_origin; /* "model", "renewed", "feed" */
    int64_t reference_time;       /* event time at which it was taken */
    uint64_t alerts;              /* raised so far, all kinds */
    uint32_t feature_count;
    const struct dl_backend_feature *features; /* those that moved most, first */
    /* Attention over recent predictions; NaN: nothing yet. */
    double attention_entropy, attention_entropy_reference, attention_top5_share;
    /* Live quality (predict.quality = on); NaN: off or nothing yet. */
    double live_ap, live_auc, live_mrr;
    uint64_t quality_events;
    int64_t time; /* feed clock */
    uint64_t seq; /* events of the state */
};

struct dl_backend_model {
    struct dl_slice version;
    const char *architecture; /* "diffdyg" */
    int differential;
    uint64_t parameters;
    uint32_t window, width, heads, layers, feature_count;
    enum dl_time_unit time_unit;
    const char *ties, *negatives, *data_hash;
    uint64_t data_edges, data_nodes;
    int64_t trained_until;
    double validation_ap, validation_auc, validation_mrr, validation_ece;
    int64_t loaded_us;       /* wall-clock */
    const char *description; /* one readable line */
};

struct dl_backend_forgotten {
    uint64_t events_removed; /* interactions removed from windows */
};

struct dl_backend_ingested {
    uint32_t accepted, duplicates, rejected; /* sum: events of the request */
    uint64_t seq; /* events of the state afterwards; all accepted ones are durable */
    /* The first rejected one, if any. */
    uint32_t rejected_index;
    const char *rejected_reason;
};

union dl_backend_result {
    struct dl_backend_scores scores;
    struct dl_prediction prediction; /* top_k; seq: events of the state */
    struct dl_backend_window window;
    struct dl_backend_explanation explanation;
    struct dl_backend_drift drift; /* get_drift and renew_reference (the state after) */
    struct dl_backend_model model;
    struct dl_backend_forgotten forgotten;
    struct dl_backend_ingested ingested;
};

struct dl_backend_job {
    /* `result` is NULL unless status is DL_OK; `error` is NULL if it is. */
    void (*done)(struct dl_backend_job *job, int status, const struct dl_error *error,
                 const union dl_backend_result *result);
    int64_t deadline_ns; /* dl_clock_monotonic_ns time; INT64_MAX: none */
    atomic_int cancelled;
    void *engine; /* the engine's own, while pending */
};

/* ---- the live streams ---------------------------------------------------- */

/* Hears every record, once each, in order, when it is durable. Called on the
 * loop's thread; must copy what it keeps and must not call back into the
 * engine. */
struct dl_backend_listener {
    void (*score)(struct dl_backend_listener *listener, const struct dl_score *score);
    void (*prediction)(struct dl_backend_listener *listener,
                       const struct dl_prediction *prediction);
    void (*alert)(struct dl_backend_listener *listener, const struct dl_alert *alert);
    struct dl_backend_listener *next; /* the engine's own */
};

/* ---- the table ------------------------------------------------------------ */

/* Any function may be NULL: that operation is UNIMPLEMENTED. */
struct dl_backend {
    void *context;
    int (*score)(void *context, const struct dl_backend_score_request *request,
                 struct dl_backend_job *job, struct dl_error *error);
    int (*top_k)(void *context, const struct dl_backend_top_k_request *request,
                 struct dl_backend_job *job, struct dl_error *error);
    int (*get_window)(void *context, const struct dl_backend_window_request *request,
                      struct dl_backend_job *job, struct dl_error *error);
    int (*explain)(void *context, const struct dl_backend_explain_request *request,
                   struct dl_backend_job *job, struct dl_error *error);
    int (*get_drift)(void *context, struct dl_backend_job *job, struct dl_error *error);
    int (*renew_reference)(void *context, struct dl_backend_job *job, struct dl_error *error);
    int (*get_model)(void *context, struct dl_backend_job *job, struct dl_error *error);
    int (*forget)(void *context, const struct dl_backend_forget_request *request,
                  struct dl_backend_job *job, struct dl_error *error);
    int (*ingest)(void *context, const struct dl_backend_ingest_request *request,
                  struct dl_backend_job *job, struct dl_error *error);
    void (*listen)(void *context, struct dl_backend_listener *listener);
    void (*unlisten)(void *context, struct dl_backend_listener *listener);
    /* 1: progress is possible (health SERVING), else 0 and why in *error. */
    int (*ready)(void *context, struct dl_error *error);
};

#endif
