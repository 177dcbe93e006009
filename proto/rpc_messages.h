/* The messages of driftline/v1/service.proto, grpc.health.v1 and server
 * reflection as plain structs, for the server and for the client alike.
 *
 * Each struct dl_msg_x has a table dl_msg_x_type; dl_message_encode,
 * dl_message_decode, dl_message_json and dl_message_to_json (message.h) do the
 * rest. Limits of requests are in the tables, so that decoding one checks
 * them: names are 1 to 256 bytes, and so on, with the field named.
 *
 * What a field means stands in service.proto; here are only shapes. Text and
 * lists are borrowed: by an encoder from whoever fills the struct, after
 * decoding from the message's bytes and the arena. */
#ifndef DL_PROTO_RPC_MESSAGES_H
#define DL_PROTO_RPC_MESSAGES_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/record.h"
#include "proto/message.h"

#define DL_MSG_PAIRS_MAX 10000
#define DL_MSG_CANDIDATES_MAX 4096
#define DL_MSG_K_MAX 1000
#define DL_MSG_K_DEFAULT 10
#define DL_MSG_ALERTS_MAX 1000
#define DL_MSG_ALERTS_DEFAULT 20
#define DL_MSG_INGEST_MAX 1000
#define DL_MSG_NODES_MAX 4096

/* ---- Score ----------------------------------------------------------------------- */

struct dl_msg_pair {
    struct dl_slice src, dst;
    int has_time; /* else the request's */
    int64_t time;
};

struct dl_msg_score_request {
    uint32_t pair_count; /* 1..DL_MSG_PAIRS_MAX */
    const struct dl_msg_pair *pairs;
    int has_time;
    int64_t time;
};

struct dl_msg_pair_score {
    double probability, surprise_bits;
    uint64_t src_history, dst_history;
    uint32_t pair_history;
    int src_known, dst_known;
};

struct dl_msg_score_response {
    uint32_t score_count;
    const struct dl_msg_pair_score *scores;
    struct dl_slice model_version;
    uint64_t seq;
};

/* ---- TopK ------------------------------------------------------------------------ */

struct dl_msg_top_k_request {
    struct dl_slice node;
    uint32_t k; /* 0: DL_MSG_K_DEFAULT */
    int has_time;
    int64_t time;
    uint32_t candidate_count;
    const struct dl_slice *candidates; /* none of them empty */
    int only_given;
};

struct dl_msg_top_k_response {
    struct dl_slice node;
    int known;
    int64_t time;
    uint64_t history;
    uint32_t scored;
    uint32_t candidate_count;
    const struct dl_candidate *candidates;
    struct dl_slice model_version;
    uint64_t seq;
};

/* ---- GetWindow ------------------------------------------------------------------- */

struct dl_msg_window_request {
    struct dl_slice node;
    uint32_t limit; /* 0: the whole window */
};

enum dl_msg_direction { DL_MSG_DIRECTION_OUT = 1, DL_MSG_DIRECTION_IN = 2 };

struct dl_msg_interaction {
    struct dl_slice peer;
    enum dl_msg_direction direction;
    int64_t time;
    uint64_t seq;
    struct dl_slice type;
    float weight;
    uint32_t feature_count;
    const float *features;
};

struct dl_msg_window_response {
    struct dl_slice node;
    int known;
    uint64_t events, events_out, events_in;
    int64_t first_time, last_time;
    uint32_t interaction_count;
    const struct dl_msg_interaction *interactions;
    uint32_t window_max;
    const char *time_unit;
};

/* ---- Explain --------------------------------------------------------------------- */

struct dl_msg_explain_request {
    struct dl_slice src, dst;
    int has_time;
    int64_t time;
    int per_head;
};

enum dl_msg_side { DL_MSG_SIDE_SRC = 1, DL_MSG_SIDE_DST = 2 };

struct dl_msg_attended {
    enum dl_msg_side side;
    int summary;
    int has_interaction; /* not of a summary */
    struct dl_msg_interaction interaction;
    double attention, over_uniform;
    int sink;
    uint32_t per_head_count; /* layers x heads, or 0 */
    const double *per_head;
};

struct dl_msg_explain_response {
    struct dl_slice src, dst;
    int64_t time;
    struct dl_msg_pair_score score;
    uint32_t token_count;
    const struct dl_msg_attended *tokens;
    uint32_t layers, heads;
    uint32_t entropy_count; /* layers */
    const double *entropy_nats;
    double entropy_uniform_nats;
    struct dl_slice model_version;
    const char *time_unit;
};

/* ---- GetDrift, RenewReference ---------------------------------------------------- */

struct dl_msg_drift_request {
    uint32_t alerts_max; /* 0: DL_MSG_ALERTS_DEFAULT */
};

struct dl_msg_quality {
    uint64_t pairs;
    double ap, auc, mrr;
    uint64_t recent_pairs;
    double recent_ap, recent_auc, recent_mrr;
    double trained_ap, trained_auc, trained_mrr;
};

struct dl_msg_drift_response {
    int ready;
    const char *reason;
    double statistic, threshold, p_value;
    uint32_t window, reference_size;
    int alert_raised;
    uint32_t feature_count;
    const struct dl_alert_feature *features;
    int has_quality;
    struct dl_msg_quality quality;
    uint32_t alert_count;
    const struct dl_alert *alerts;
    const char *reference_origin;
    uint64_t reference_seq;
    uint64_t events;
    int64_t time;
    const char *time_unit;
    double run_length_asked, run_length_achieved;
    const char *warning;
};

#define DL_MSG_REASON_BYTES_MAX 120

struct dl_msg_renew_request {
    struct dl_slice reason;
};

struct dl_msg_renew_response {
    uint32_t reference_size;
    uint64_t reference_seq;
    int alert_cleared;
};

/* ---- GetModel -------------------------------------------------------------------- */

struct dl_msg_validation {
    double ap, auc, mrr, ece;
    uint32_t entropy_count; /* layers */
    const double *entropy_nats;
};

struct dl_msg_model_response {
    const char *version, *architecture;
    uint32_t window, width, layers, heads;
    uint64_t parameters;
    int differential;
    const char *time_unit, *ties, *negatives;
    uint64_t seed;
    int64_t trained_until;
    const char *data_hash;
    uint64_t data_edges, data_nodes, data_timestamps;
    double calibration_scale, calibration_shift;
    struct dl_msg_validation validation;
    double train_seconds;
    uint32_t epochs;
    uint32_t reference_size;
    const char *kernels;
};

/* ---- Forget, Ingest -------------------------------------------------------------- */

struct dl_msg_forget_request {
    struct dl_slice node, peer;
};

struct dl_msg_forget_response {
    int found;
    uint64_t events;
};

/* Events stay bytes of driftline.v1.EdgeEvent: each goes through an event
 * decoder (event_codec.h), so that a broken one does not spoil the others. */
struct dl_msg_ingest_request {
    uint32_t event_count; /* 1..DL_MSG_INGEST_MAX */
    const struct dl_slice *events;
};

struct dl_msg_ingest_response {
    uint64_t accepted, rejected, repeated, seq;
    const char *first_reason;
};

/* ---- Subscribe ------------------------------------------------------------------- */

struct dl_msg_subscribe_predictions {
    uint32_t node_count;
    const struct dl_slice *nodes;
    double probability_min;
};

struct dl_msg_subscribe_scores {
    uint32_t node_count;
    const struct dl_slice *nodes;
    double surprise_bits_min;
};

struct dl_msg_subscribe_alerts {
    int include_standing;
};

struct dl_msg_prediction_message {
    struct dl_prediction prediction;
    uint64_t dropped;
};

struct dl_msg_score_message {
    struct dl_score score;
    uint64_t dropped;
};

struct dl_msg_alert_message {
    struct dl_alert alert;
    uint64_t dropped;
};

/* RenewReferenceRequest and GetModelRequest: no fields. */
struct dl_msg_empty {
    char none;
};

/* ---- grpc.health.v1 -------------------------------------------------------------- */

struct dl_msg_health_request {
    struct dl_slice service; /* empty: the whole server */
};

enum dl_msg_health {
    DL_MSG_HEALTH_UNKNOWN = 0,
    DL_MSG_HEALTH_SERVING = 1,
    DL_MSG_HEALTH_NOT_SERVING = 2,
    DL_MSG_HEALTH_SERVICE_UNKNOWN = 3 /* by Watch only */
};

struct dl_msg_health_response {
    enum dl_msg_health status;
};

/* ---- the tables ------------------------------------------------------------------ */

extern const struct dl_message_type dl_msg_score_request_type, dl_msg_score_response_type,
    dl_msg_top_k_request_type, dl_msg_top_k_response_type, dl_msg_window_request_type,
    dl_msg_window_response_type, dl_msg_explain_request_type, dl_msg_explain_response_type,
    dl_msg_drift_request_type, dl_msg_drift_response_type, dl_msg_renew_request_type,
    dl_msg_renew_response_type, dl_msg_model_request_type, dl_msg_model_response_type,
    dl_msg_forget_request_type, dl_msg_forget_response_type, dl_msg_ingest_request_type,
    dl_msg_ingest_response_type, dl_msg_subscribe_predictions_type, dl_msg_subscribe_scores_type,
    dl_msg_subscribe_alerts_type, dl_msg_prediction_message_type, dl_msg_score_message_type,
    dl_msg_alert_message_type, dl_msg_health_request_type, dl_msg_health_response_type;

/* ---- methods --------------------------------------------------------------------- */

enum dl_msg_method_id {
    DL_METHOD_SCORE,
    DL_METHOD_TOP_K,
    DL_METHOD_GET_WINDOW,
    DL_METHOD_EXPLAIN,
    DL_METHOD_GET_DRIFT,
    DL_METHOD_RENEW_REFERENCE,
    DL_METHOD_GET_MODEL,
    DL_METHOD_FORGET,
    DL_METHOD_INGEST,
    DL_METHOD_SUBSCRIBE_PREDICTIONS,
    DL_METHOD_SUBSCRIBE_SCORES,
    DL_METHOD_SUBSCRIBE_ALERTS,
    DL_METHOD_HEALTH_CHECK,
    DL_METHOD_HEALTH_WATCH,
    DL_METHOD_REFLECTION_V1,      /* bytes to bytes: reflection.h */
    DL_METHOD_REFLECTION_V1ALPHA, /* the same */
    DL_METHOD_COUNT
};

struct dl_msg_method {
    const char *path;                                 /* "/driftline.v1.LinkPrediction/Score" */
    const struct dl_message_type *request, *response; /* NULL for reflection */
    int client_streams, server_streams;
};

/* By dl_msg_method_id. */
extern const struct dl_msg_method dl_msg_methods[DL_METHOD_COUNT];

/* The method of a request's :path, or DL_METHOD_COUNT. */
enum dl_msg_method_id dl_msg_method_find(struct dl_slice path);

#endif
