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
 * ALREADY_EXISTS; VERSION FAILED_PRECONDITION (no model is loaded, or it does not
 * fit); CORRUPT DATA_LOSS; others INTERNAL. */
#ifndef DL_SERVICE_BACKEND_H
#define DL_SERVICE_BACKEND_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/record.h"
#include "base/status.h"
#include "model/model.h"

/* Limits of proto/driftline/v1/service.proto. */
#define DL_BACKEND_PAIRS_MAX 10000     /* pairs of one Score */
#define DL_BACKEND_CANDIDATES_MAX 4096 /* candidates a caller may name in one TopK */
#define DL_BACKEND_K_MAX 1000          /* candidates one TopK returns */
#define DL_BACKEND_ALERTS_MAX 1000     /* alerts one GetDrift returns */
#define DL_BACKEND_INGEST_MAX 1000     /* events of one ingest batch */

/* ---- requests ------------------------------------------------------------ */

struct dl_backend_pair {
    struct dl_slice src, dst; /* names, checked: 1..DL_NAME_BYTES_MAX bytes */
    int has_time;             /* else the request's time */
    int64_t time;
};

struct dl_backend_score_request {
    uint32_t pair_count; /* 1..DL_BACKEND_PAIRS_MAX */
    const struct dl_backend_pair *pairs;
    int has_time; /* else the newest event time of the feed */
    int64_t time; /* query time, in the feed's unit; an earlier one hides no events */
};

struct dl_backend_top_k_request {
    struct dl_slice node;
    uint32_t k;               /* 1..DL_BACKEND_K_MAX */
    uint32_t candidate_count; /* the caller's own, beside the drawn ones */
    const struct dl_slice *candidates;
    int only_candidates; /* score the caller's list alone */
    int has_time;
    int64_t time;
};

struct dl_backend_window_request {
    struct dl_slice node;
    uint32_t count_max; /* 0: the whole window */
};

struct dl_backend_explain_request {
    struct dl_slice src, dst;
    int per_head; /* also fill dl_backend_token.weights */
    int has_time;
    int64_t time;
};

struct dl_backend_forget_request {
    struct dl_slice node; /* this node, everywhere; or, with peer, the edges between the two */
    struct dl_slice peer; /* empty: the whole node */
};

struct dl_backend_drift_request {
    uint32_t alerts_max; /* 1..DL_BACKEND_ALERTS_MAX */
};

#define DL_BACKEND_REASON_BYTES_MAX 120

struct dl_backend_renew_request {
    const char *by;         /* who asks, as far as the caller knows: "rpc 10.0.0.7:4711" */
    struct dl_slice reason; /* why, in their words: at most DL_BACKEND_REASON_BYTES_MAX; or empty */
};

struct dl_backend_ingest_request {
    uint32_t event_count; /* 1..DL_BACKEND_INGEST_MAX */
    const struct dl_edge_event *events;
};

/* An event that came by ingest and could not be decoded: for a dead letter. */
struct dl_backend_broken {
    struct dl_slice payload;    /* its bytes */
    const char *reason, *field; /* as in dl_dead_letter */
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
    int known; /* 0: no event of the node was ever seen; the rest is 0 */
    uint64_t events, events_out, events_in; /* of the node, all time */
    int64_t first_time, last_time;
    uint32_t window_max; /* W */
    enum dl_time_unit time_unit;
    uint32_t interaction_count;
    const struct dl_backend_interaction *interactions; /* newest first */
};

/* One token of a scored pair and the attention that it received. */
struct dl_backend_token {
    int side; /* 0: source's side, 1: candidate's side */
    int self; /* 1: the endpoint's own token (its summary); event is then empty */
    struct dl_backend_interaction event;
    double weight;           /* averaged over layers and heads; all tokens sum to 1 */
    double ratio_to_uniform; /* weight · tokens */
    int sink;                /* received more than mean + 3 σ (16 tokens and more) */
    const double *weights;   /* (layers, heads) if asked for, else NULL */
};

struct dl_backend_explanation {
    struct dl_score score; /* of the pair, as dl_backend_scores */
    enum dl_time_unit time_unit;
    uint32_t layers, heads, tokens;            /* tokens: valid ones of the pair */
    const double *entropy_nats;                /* (layers) */
    double entropy_uniform_nats;               /* that of an even spread */
    const struct dl_backend_token *token_list; /* (tokens), heaviest first */
};

/* Running averages over scored events. */
struct dl_backend_quality {
    uint64_t pairs; /* that they rest on */
    double ap, auc, mrr;
    uint64_t recent_pairs;
    double recent_ap, recent_auc, recent_mrr;
    double trained_ap, trained_auc, trained_mrr; /* of the model's validation */
};

struct dl_backend_drift {
    int ready;          /* 0: no statistic yet, and why: */
    const char *reason; /* one line, "" when ready */
    double statistic, threshold, p_value;
    uint32_t window;         /* events in the recent window */
    uint32_t reference_size; /* rows */
    int alert_raised;        /* a temporal-shift alert stands */
    uint32_t feature_count;
    const struct dl_alert_feature *features; /* all, the one that moved most first */
    const char *warning; /* why the run length cannot be promised, or "" (NULL too) */
    double run_length_asked, run_length_achieved; /* events between false alarms */
    const struct dl_backend_quality *quality;     /* NULL: predict.quality is off */
    uint32_t alert_count;
    const struct dl_alert *alerts; /* of all kinds, newest first */
    const char *reference_origin;  /* "model", "renewed" or "" */
    uint64_t reference_seq;        /* index of the event at which it was renewed */
    uint64_t seq;                  /* events of the state */
    int64_t time;                  /* newest event time */
    enum dl_time_unit time_unit;
};

struct dl_backend_renewed {
    uint32_t reference_size; /* rows */
    uint64_t reference_seq;
    int alert_cleared; /* an alert stood */
};

/* What GetModel tells: the file's metadata and how it is run here. */
struct dl_backend_model {
    const struct dl_model_info *info;
    uint32_t reference_size; /* rows of the drift reference; 0: none */
    const char *kernels;     /* the tier in use */
};

struct dl_backend_forgotten {
    int found;       /* 0: nothing was known of it */
    uint64_t events; /* removed from the log */
};

struct dl_backend_ingested {
    uint32_t accepted; /* durable now */
    uint32_t rejected; /* dead-lettered */
    uint32_t repeated; /* known by their id, left out; the three sum to the request's events */
    uint64_t seq;      /* index after the last accepted event */
    const char *first_reason; /* why the first rejected one was, or "" */
};

union dl_backend_result {
    struct dl_backend_scores scores;
    struct dl_prediction prediction; /* top_k; seq: events of the state */
    struct dl_backend_window window;
    struct dl_backend_explanation explanation;
    struct dl_backend_drift drift;
    struct dl_backend_renewed renewed;
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
    int (*get_drift)(void *context, const struct dl_backend_drift_request *request,
                     struct dl_backend_job *job, struct dl_error *error);
    int (*renew_reference)(void *context, const struct dl_backend_renew_request *request,
                           struct dl_backend_job *job, struct dl_error *error);
    int (*get_model)(void *context, struct dl_backend_job *job, struct dl_error *error);
    int (*forget)(void *context, const struct dl_backend_forget_request *request,
                  struct dl_backend_job *job, struct dl_error *error);
    int (*ingest)(void *context, const struct dl_backend_ingest_request *request,
                  struct dl_backend_job *job, struct dl_error *error);
    /* Events of an ingest that are no events, 1..DL_BACKEND_INGEST_MAX; the
     * caller counts them as rejected. The engine dead-letters what its own
     * bounded queue takes. */
    void (*ingest_broken)(void *context, uint32_t count, const struct dl_backend_broken *broken);
    void (*listen)(void *context, struct dl_backend_listener *listener);
    void (*unlisten)(void *context, struct dl_backend_listener *listener);
    /* 1: progress is possible (health SERVING), else 0 and why in *error. */
    int (*ready)(void *context, struct dl_error *error);
};

#endif
