/* The inside of the engine, shared by engine*.c alone. */
#ifndef DL_SERVICE_ENGINE_INTERNAL_H
#define DL_SERVICE_ENGINE_INTERNAL_H

#include "service/candidates.h"
#include "service/encodings.h"
#include "service/engine.h"
#include "service/recent_ids.h"
#include "service/watch.h"

#define POSITION_TOPICS_MAX 65536   /* partitions followed */
#define OUTBOX_ROWS_MAX 200000      /* above this no more is taken in */
#define JOURNAL_EVENTS_MAX 1024     /* monitors are saved whole after so many events */
#define QUERY_BYTES_MAX (64u << 20) /* what the queries of one batch may take */
#define RENEWALS_MAX 16
#define NO_QUERY UINT32_MAX

/* ITEM_PASSED: nothing comes of it but its position. */
enum item_kind { ITEM_EVENT, ITEM_BROKEN, ITEM_LATE, ITEM_REPEATED, ITEM_PASSED };

/* A prediction to make: its query, and where its candidates came from. */
struct pending_prediction {
    uint32_t query; /* NO_QUERY: none */
    uint32_t node;
    uint64_t history;
    size_t origins_at; /* in batch.bytes: candidate_count bytes */
};

/* One message of the batch. */
struct item {
    enum item_kind kind;
    uint32_t position; /* index into engine.positions, or UINT32_MAX */
    int64_t offset;
    int64_t received_ns, wall_us;
    int quiet;    /* readers have what comes of it */
    int followed; /* as in dl_arrival */
    /* events */
    struct dl_event event;
    uint64_t seq;
    uint64_t src_history, dst_history;
    uint32_t pair_history;
    uint32_t score_query;     /* NO_QUERY: no model */
    uint32_t negatives;       /* candidates of that query after the first */
    uint32_t attention_query; /* the same edge alone, with attention; NO_QUERY: not sampled */
    struct pending_prediction predictions[2];
    float drift[DL_DRIFT_COLUMNS];
    int has_drift;
    /* bytes in batch.bytes */
    size_t id_at, id_size, key_at, key_size, payload_at, payload_size, reason_at;
    size_t headers_at, headers_size; /* as dl_store_headers_put */
    const char *field;
    uint32_t alerts_from, alerts_to; /* in batch.alerts, once it is built */
};

struct position {
    char topic[250];
    int32_t partition;
    int64_t next_offset;     /* to read: after all that was offered; -1: nothing was */
    int64_t published_below; /* readers have what came of offsets below */
    int dirty;               /* to be written with this batch */
};

/* Ids of recent events (engine_ids.c). */
struct ids {
    struct dl_recent_ids *recent; /* NULL: repeats are not looked for */
    uint64_t key;
    uint64_t first, next;  /* segments in the store */
    struct dl_buf segment; /* the last one, while it is open */
    int segment_open, dirty;
};

struct batch {
    uint32_t count, capacity;
    struct item *items;
    struct dl_buf bytes; /* ids, keys, payloads, reasons, origins; items hold offsets */
    uint32_t first_new_node, first_new_type;
    uint64_t first_seq;
    struct dl_event *events; /* (capacity) those absorbed, in order, for the log */
    float *features;         /* (capacity, feature_count) */
    uint32_t event_count;
    /* queries, reused from batch to batch */
    uint32_t query_count, query_capacity;
    struct dl_query **queries;
    float **logits;
    uint32_t *logit_capacity;
    struct dl_attention **attention;     /* (query_capacity): NULL, or what a query is to fill */
    struct dl_attention *attention_pool; /* (attention_capacity) */
    uint32_t attention_count, attention_capacity;
    int64_t begun_ns;
    /* the records, built at commit */
    struct dl_score *scores; /* (capacity) */
    uint32_t score_count;
    struct dl_prediction *predictions; /* (2 capacity) */
    uint32_t prediction_count;
    struct dl_candidate *candidates; /* (2 capacity, top_k) */
    uint32_t alert_count, alert_capacity;
    struct alert_copy *alerts;
};

/* An alert outlives the monitor's callback until the listeners heard it. */
struct alert_copy {
    struct dl_alert alert;
    char reason[DL_DRIFT_REASON_MAX];
    struct dl_alert_feature features[DL_DRIFT_TOP];
    float histograms[DL_DRIFT_TOP][2][DL_DRIFT_BINS];
};

/* Who asks for a new drift reference, and why. */
struct renewal {
    struct dl_backend_job *job;
    char note[232]; /* fits an alert's reason with a few words before it */
};

/* What of the monitors the store has; restored when a transaction fails. */
struct saved {
    uint64_t drift_generation, watch_generation;
    uint32_t journal_count, journal_events;
};

struct dl_engine {
    struct dl_engine_parts parts;
    const struct dl_config *config;
    struct dl_store *store;
    struct dl_graph *graph;
    struct dl_dictionary *nodes, *types;
    struct dl_model *model;
    uint32_t window;                /* interactions a side that the model reads */
    struct dl_encodings *encodings; /* of windows, or NULL: the model has no use for them */
    uint64_t encodings_epoch;       /* grows when all that were made lose their meaning */
    uint64_t batch_epoch;           /* when the batch went to the workers */
    struct dl_drift_monitor *drift;
    int drift_muted; /* restoring: alerts were published before */
    struct dl_quality *quality;
    struct dl_watch *watch;
    struct saved saved;
    uint32_t *frozen; /* destination list, or NULL: the graph's own */
    uint32_t frozen_count;
    uint64_t alert_number;
    struct position *positions;
    uint32_t position_count, position_capacity, position_last;
    struct batch batch;
    struct dl_scoring scoring;
    int scoring_now; /* the batch is with the workers */
    int alerts_off;  /* another instance publishes those on the feed */
    int followed;    /* its message is another instance's */
    int quiet;       /* records of a quiet item are being written: none is published */
    struct dl_candidate_set candidates;
    struct ids ids;
    struct dl_buf record, headers, name; /* scratch for encoding */
    struct dl_backend_listener *listeners;
    uint32_t jobs;                                 /* backend jobs with the workers */
    uint64_t job_bytes;                            /* that their queries hold, at most */
    struct ingest_job *ingest_first, *ingest_last; /* waiting for room or for their commit */
    uint32_t ingest_count;
    uint64_t batches_committed;
    struct renewal renewals[RENEWALS_MAX]; /* waiting for the batch to end */
    uint32_t renewal_count;
    int ingest_pumping;
    struct ingest_broken *broken_first, *broken_last; /* dead letters of RPC waiting for room */
    uint32_t broken_count;
    struct forget_job *forget_first; /* the first is under way, or waits for the batch to end */
    int forget_waits;                /* for room on the disk */
    char last_reason[200];           /* of the message offered last, if it became a dead letter */
    int last_repeated;               /* it was a repeat */
    int64_t loaded_us;               /* wall-clock time at which the model came */
    int waiting;                     /* the batch could not be stored as the disk is full */
    int failed;
    struct dl_error failure; /* why it failed or waits */
};

/* engine.c */
/* 0: the model gave some pair no number. */
int dl_engine_scores_finite(const struct dl_scoring *job);
int dl_engine_fail(struct dl_engine *engine, int status, const char *what,
                   const struct dl_error *error);
struct dl_query *dl_engine_query(struct dl_engine *engine, uint32_t *index);

/* engine_commit.c */
void dl_engine_commit(struct dl_engine *engine);
/* Clears what the present model's monitors have raised. Not while busy. */
int dl_engine_clear_alerts(struct dl_engine *engine, const char *reason, struct dl_error *error);

/* engine_records.c */
/* Records of the scored batch, once; what fails has failed the engine. */
void dl_engine_build(struct dl_engine *engine);
/* Their rows, within the transaction; may be tried again. */
int dl_engine_put_records(struct dl_engine *engine, struct dl_error *error);
void dl_engine_set_position(const struct dl_engine *engine, const struct item *item,
                            struct dl_position *position);
/* Of the model that is served. */
struct dl_slice dl_engine_version(const struct dl_engine *engine);
/* 1 and the attention of an item that was sampled, else 0. */
int dl_engine_attention(const struct dl_engine *engine, const struct item *item,
                        struct dl_watch_attention *attention);
#define DL_ENGINE_TOP_MAX 1000
/* The best top_k (at most DL_ENGINE_TOP_MAX) of a query scored by `model`, best
 * first, and their places in the query; returns how many. A node that the
 * dictionary does not know has no name. */
uint32_t dl_engine_rank(const struct dl_engine *engine, const struct dl_model *model,
                        const struct dl_query *query, const float *logits, const uint8_t *origins,
                        uint32_t top_k, struct dl_candidate *best, uint32_t *places);

/* engine_alerts.c */
void dl_engine_on_alert(void *context, const struct dl_alert *alert);
/* An act of someone, for the alert history. */
void dl_engine_on_renewal(struct dl_engine *engine, const char *note);
void dl_engine_on_surprise(struct dl_engine *engine, const struct dl_score *score);
/* Gives the alerts from `from` on the item's position (NULL: none) and sets the
 * pointers of all, which may have moved while the list grew. */
void dl_engine_settle_alerts(struct dl_engine *engine, uint32_t from, const struct item *item);
/* Told once, never cleared. */
int dl_engine_is_single(enum dl_alert_kind kind);

/* engine_drift.c, for the backend's table. */
int dl_engine_get_drift(void *context, const struct dl_backend_drift_request *request,
                        struct dl_backend_job *job, struct dl_error *error);
int dl_engine_ask_renewal(void *context, const struct dl_backend_renew_request *request,
                          struct dl_backend_job *job, struct dl_error *error);

/* engine_ingest.c */
int dl_engine_ingest(void *context, const struct dl_backend_ingest_request *request,
                     struct dl_backend_job *job, struct dl_error *error);
void dl_engine_ingest_broken(void *context, uint32_t count, const struct dl_backend_broken *broken);
void dl_engine_ingest_pump(struct dl_engine *engine);      /* offers what waits */
void dl_engine_ingest_committed(struct dl_engine *engine); /* answers what is durable */
void dl_engine_ingest_end(struct dl_engine *engine);       /* answers the rest: cancelled */

/* engine_encodings.c */
int dl_engine_encodings_start(struct dl_engine *engine, struct dl_error *error); /* for the model */
/* All windows changed, or may have, otherwise than by events. */
void dl_engine_encodings_forget(struct dl_engine *engine);
/* Before queries go to the workers; *epoch goes to `keep` when they are back.
 * DL_OK, DL_ERR_NOMEM. */
int dl_engine_encodings_fill(struct dl_engine *engine, struct dl_query *const *queries,
                             uint32_t count, uint64_t *epoch);
void dl_engine_encodings_keep(struct dl_engine *engine, struct dl_query *const *queries,
                              uint32_t count, uint64_t epoch);

/* engine_backend.c */
void dl_engine_renewals(struct dl_engine *engine); /* those that waited for the batch to end */

/* engine_ids.c */
int dl_engine_ids_load(struct dl_engine *engine, struct dl_error *error);
void dl_engine_ids_deinit(struct dl_engine *engine);
/* 1: an event with the id was taken in; else it is remembered. */
int dl_engine_ids_repeated(struct dl_engine *engine, struct dl_slice id);
int dl_engine_ids_save(struct dl_engine *engine, struct dl_error *error); /* in the transaction */
void dl_engine_ids_saved(struct dl_engine *engine);                       /* it was committed */

/* engine_forget.c */
int dl_engine_forget(void *context, const struct dl_backend_forget_request *request,
                     struct dl_backend_job *job, struct dl_error *error);
int dl_engine_forget_load(struct dl_engine *engine, struct dl_error *error); /* begun earlier */

/* engine_state.c */
int dl_engine_load(struct dl_engine *engine, struct dl_error *error);
int dl_engine_drift_start(struct dl_engine *engine, struct dl_error *error);
int dl_engine_watch_start(struct dl_engine *engine, struct dl_error *error);
int dl_engine_save_monitors(struct dl_engine *engine, struct dl_error *error);
uint32_t dl_engine_find_position(struct dl_engine *engine, const char *topic, int32_t partition,
                                 int add);

#endif
