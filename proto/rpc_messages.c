/* The tables of the RPC messages, and of the methods. */
#include "proto/rpc_messages.h"

#include "proto/message_tables.h"
#include "proto/record_codec.h"

#define PACKAGE "driftline.v1."
/* A node that must be named, and one that need not be. */
#define NODE .flags = DL_FIELD_REQUIRED, .limit = DL_NAME_BYTES_MAX
#define NODE_OR_NONE .limit = DL_NAME_BYTES_MAX

/* ---- Score ----------------------------------------------------------------------- */

#define T struct dl_msg_pair
static const struct dl_field pair_fields[] = {
    {DL_FIELD(1, STRING, src), NODE},
    {DL_FIELD(2, STRING, dst), NODE},
    {DL_FIELD_IF(3, I64, time, has_time)},
};
#undef T
static const struct dl_message_type pair_type =
    DL_TYPE(PACKAGE "Pair", struct dl_msg_pair, pair_fields);

#define T struct dl_msg_score_request
static const struct dl_field score_request_fields[] = {
    {DL_LIST(1, MESSAGES, pairs, pair_count), .type = &pair_type, .flags = DL_FIELD_REQUIRED,
     .count_limit = DL_MSG_PAIRS_MAX},
    {DL_FIELD_IF(2, I64, time, has_time)},
};
#undef T
const struct dl_message_type dl_msg_score_request_type =
    DL_TYPE(PACKAGE "ScoreRequest", struct dl_msg_score_request, score_request_fields);

#define T struct dl_msg_pair_score
static const struct dl_field pair_score_fields[] = {
    {DL_FIELD(1, DOUBLE, probability)}, {DL_FIELD(2, DOUBLE, surprise_bits)},
    {DL_FIELD(3, U64, src_history)},    {DL_FIELD(4, U64, dst_history)},
    {DL_FIELD(5, U32, pair_history)},   {DL_FIELD(6, BOOL, src_known)},
    {DL_FIELD(7, BOOL, dst_known)},
};
#undef T
static const struct dl_message_type pair_score_type =
    DL_TYPE(PACKAGE "PairScore", struct dl_msg_pair_score, pair_score_fields);

#define T struct dl_msg_score_response
static const struct dl_field score_response_fields[] = {
    {DL_LIST(1, MESSAGES, scores, score_count), .type = &pair_score_type},
    {DL_FIELD(2, STRING, model_version)},
    {DL_FIELD(3, U64, seq)},
};
#undef T
const struct dl_message_type dl_msg_score_response_type =
    DL_TYPE(PACKAGE "ScoreResponse", struct dl_msg_score_response, score_response_fields);

/* ---- TopK ------------------------------------------------------------------------ */

#define T struct dl_msg_top_k_request
static const struct dl_field top_k_request_fields[] = {
    {DL_FIELD(1, STRING, node), NODE},
    {DL_FIELD(2, U32, k), .limit = DL_MSG_K_MAX},
    {DL_FIELD_IF(3, I64, time, has_time)},
    {DL_LIST(4, STRINGS, candidates, candidate_count), .flags = DL_FIELD_NONEMPTY,
     .limit = DL_NAME_BYTES_MAX, .count_limit = DL_MSG_CANDIDATES_MAX},
    {DL_FIELD(5, BOOL, only_given)},
};
#undef T
const struct dl_message_type dl_msg_top_k_request_type =
    DL_TYPE(PACKAGE "TopKRequest", struct dl_msg_top_k_request, top_k_request_fields);

#define T struct dl_msg_top_k_response
static const struct dl_field top_k_response_fields[] = {
    {DL_FIELD(1, STRING, node)},
    {DL_FIELD(2, BOOL, known)},
    {DL_FIELD(3, I64, time)},
    {DL_FIELD(4, U64, history)},
    {DL_FIELD(5, U32, scored)},
    {DL_LIST(6, MESSAGES, candidates, candidate_count), .type = &dl_candidate_type},
    {DL_FIELD(7, STRING, model_version)},
    {DL_FIELD(8, U64, seq)},
};
#undef T
const struct dl_message_type dl_msg_top_k_response_type =
    DL_TYPE(PACKAGE "TopKResponse", struct dl_msg_top_k_response, top_k_response_fields);

/* ---- GetWindow ------------------------------------------------------------------- */

#define T struct dl_msg_window_request
static const struct dl_field window_request_fields[] = {
    {DL_FIELD(1, STRING, node), NODE},
    {DL_FIELD(2, U32, limit)},
};
#undef T
const struct dl_message_type dl_msg_window_request_type =
    DL_TYPE(PACKAGE "GetWindowRequest", struct dl_msg_window_request, window_request_fields);

static const struct dl_enum_name direction_names[] = {
    {0, "unspecified"}, {DL_MSG_DIRECTION_OUT, "out"}, {DL_MSG_DIRECTION_IN, "in"}};
#define T struct dl_msg_interaction
static const struct dl_field interaction_fields[] = {
    {DL_FIELD(1, STRING, peer)},
    {DL_FIELD(2, ENUM, direction), .enum_names = direction_names,
     .enum_count = DL_TABLE_COUNT(direction_names)},
    {DL_FIELD(3, I64, time)},
    {DL_FIELD(4, U64, seq)},
    {DL_FIELD(5, STRING, type)},
    {DL_FIELD(6, FLOAT, weight)},
    {DL_LIST(7, FLOATS, features, feature_count)},
};
#undef T
static const struct dl_message_type interaction_type =
    DL_TYPE(PACKAGE "Interaction", struct dl_msg_interaction, interaction_fields);

#define T struct dl_msg_window_response
static const struct dl_field window_response_fields[] = {
    {DL_FIELD(1, STRING, node)},
    {DL_FIELD(2, BOOL, known)},
    {DL_FIELD(3, U64, events)},
    {DL_FIELD(4, U64, events_out)},
    {DL_FIELD(5, U64, events_in)},
    {DL_FIELD(6, I64, first_time)},
    {DL_FIELD(7, I64, last_time)},
    {DL_LIST(8, MESSAGES, interactions, interaction_count), .type = &interaction_type},
    {DL_FIELD(9, U32, window_max)},
    {DL_FIELD(10, CSTRING, time_unit)},
};
#undef T
const struct dl_message_type dl_msg_window_response_type =
    DL_TYPE(PACKAGE "GetWindowResponse", struct dl_msg_window_response, window_response_fields);

/* ---- Explain --------------------------------------------------------------------- */

#define T struct dl_msg_explain_request
static const struct dl_field explain_request_fields[] = {
    {DL_FIELD(1, STRING, src), NODE},
    {DL_FIELD(2, STRING, dst), NODE},
    {DL_FIELD_IF(3, I64, time, has_time)},
    {DL_FIELD(4, BOOL, per_head)},
};
#undef T
const struct dl_message_type dl_msg_explain_request_type =
    DL_TYPE(PACKAGE "ExplainRequest", struct dl_msg_explain_request, explain_request_fields);

static const struct dl_enum_name side_names[] = {
    {0, "unspecified"}, {DL_MSG_SIDE_SRC, "src"}, {DL_MSG_SIDE_DST, "dst"}};
#define T struct dl_msg_attended
static const struct dl_field attended_fields[] = {
    {DL_FIELD(1, ENUM, side), .enum_names = side_names, .enum_count = DL_TABLE_COUNT(side_names)},
    {DL_FIELD(2, BOOL, summary)},
    {DL_FIELD_IF(3, MESSAGE, interaction, has_interaction), .type = &interaction_type},
    {DL_FIELD(4, DOUBLE, attention)},
    {DL_FIELD(5, DOUBLE, over_uniform)},
    {DL_FIELD(6, BOOL, sink)},
    {DL_LIST(7, DOUBLES, per_head, per_head_count)},
};
#undef T
static const struct dl_message_type attended_type =
    DL_TYPE(PACKAGE "Attended", struct dl_msg_attended, attended_fields);

#define T struct dl_msg_explain_response
static const struct dl_field explain_response_fields[] = {
    {DL_FIELD(1, STRING, src)},
    {DL_FIELD(2, STRING, dst)},
    {DL_FIELD(3, I64, time)},
    {DL_FIELD(4, MESSAGE, score), .type = &pair_score_type},
    {DL_LIST(5, MESSAGES, tokens, token_count), .type = &attended_type},
    {DL_FIELD(6, U32, layers)},
    {DL_FIELD(7, U32, heads)},
    {DL_LIST(8, DOUBLES, entropy_nats, entropy_count)},
    {DL_FIELD(9, DOUBLE, entropy_uniform_nats)},
    {DL_FIELD(10, STRING, model_version)},
    {DL_FIELD(11, CSTRING, time_unit)},
};
#undef T
const struct dl_message_type dl_msg_explain_response_type =
    DL_TYPE(PACKAGE "ExplainResponse", struct dl_msg_explain_response, explain_response_fields);

/* ---- GetDrift, RenewReference ---------------------------------------------------- */

#define T struct dl_msg_drift_request
static const struct dl_field drift_request_fields[] = {
    {DL_FIELD(1, U32, alerts_max), .limit = DL_MSG_ALERTS_MAX},
};
#undef T
const struct dl_message_type dl_msg_drift_request_type =
    DL_TYPE(PACKAGE "GetDriftRequest", struct dl_msg_drift_request, drift_request_fields);

#define T struct dl_msg_quality
static const struct dl_field quality_fields[] = {
    {DL_FIELD(1, U64, pairs)},           {DL_FIELD(2, DOUBLE, ap)},
    {DL_FIELD(3, DOUBLE, auc)},          {DL_FIELD(4, DOUBLE, mrr)},
    {DL_FIELD(5, U64, recent_pairs)},    {DL_FIELD(6, DOUBLE, recent_ap)},
    {DL_FIELD(7, DOUBLE, recent_auc)},   {DL_FIELD(8, DOUBLE, recent_mrr)},
    {DL_FIELD(9, DOUBLE, trained_ap)},   {DL_FIELD(10, DOUBLE, trained_auc)},
    {DL_FIELD(11, DOUBLE, trained_mrr)},
};
#undef T
static const struct dl_message_type quality_type =
    DL_TYPE(PACKAGE "Quality", struct dl_msg_quality, quality_fields);

#define T struct dl_msg_drift_response
static const struct dl_field drift_response_fields[] = {
    {DL_FIELD(1, BOOL, ready)},
    {DL_FIELD(2, CSTRING, reason)},
    {DL_FIELD(3, DOUBLE, statistic)},
    {DL_FIELD(4, DOUBLE, threshold)},
    {DL_FIELD(5, DOUBLE, p_value)},
    {DL_FIELD(6, U32, window)},
    {DL_FIELD(7, U32, reference_size)},
    {DL_FIELD(8, BOOL, alert_raised)},
    {DL_LIST(9, MESSAGES, features, feature_count), .type = &dl_alert_feature_type},
    {DL_FIELD_IF(10, MESSAGE, quality, has_quality), .type = &quality_type},
    {DL_LIST(11, MESSAGES, alerts, alert_count), .type = &dl_alert_type},
    {DL_FIELD(12, CSTRING, reference_origin)},
    {DL_FIELD(13, U64, reference_seq)},
    {DL_FIELD(14, U64, events)},
    {DL_FIELD(15, I64, time)},
    {DL_FIELD(16, CSTRING, time_unit)},
    {DL_FIELD(17, DOUBLE, run_length_asked)},
    {DL_FIELD(18, DOUBLE, run_length_achieved)},
    {DL_FIELD(19, CSTRING, warning)},
};
#undef T
const struct dl_message_type dl_msg_drift_response_type =
    DL_TYPE(PACKAGE "GetDriftResponse", struct dl_msg_drift_response, drift_response_fields);

#define T struct dl_msg_renew_request
static const struct dl_field renew_request_fields[] = {
    {DL_FIELD(1, STRING, reason), .limit = DL_MSG_REASON_BYTES_MAX},
};
#undef T
const struct dl_message_type dl_msg_renew_request_type =
    DL_TYPE(PACKAGE "RenewReferenceRequest", struct dl_msg_renew_request, renew_request_fields);

#define T struct dl_msg_renew_response
static const struct dl_field renew_response_fields[] = {
    {DL_FIELD(1, U32, reference_size)},
    {DL_FIELD(2, U64, reference_seq)},
    {DL_FIELD(3, BOOL, alert_cleared)},
};
#undef T
const struct dl_message_type dl_msg_renew_response_type =
    DL_TYPE(PACKAGE "RenewReferenceResponse", struct dl_msg_renew_response, renew_response_fields);

/* ---- GetModel -------------------------------------------------------------------- */

const struct dl_message_type dl_msg_model_request_type = {.name = PACKAGE "GetModelRequest",
                                                          .size = sizeof(struct dl_msg_empty)};

#define T struct dl_msg_validation
static const struct dl_field validation_fields[] = {
    {DL_FIELD(1, DOUBLE, ap)},
    {DL_FIELD(2, DOUBLE, auc)},
    {DL_FIELD(3, DOUBLE, mrr)},
    {DL_FIELD(4, DOUBLE, ece)},
    {DL_LIST(5, DOUBLES, entropy_nats, entropy_count)},
};
#undef T
static const struct dl_message_type validation_type =
    DL_TYPE(PACKAGE "Validation", struct dl_msg_validation, validation_fields);

#define T struct dl_msg_model_response
static const struct dl_field model_response_fields[] = {
    {DL_FIELD(1, CSTRING, version)},
    {DL_FIELD(2, CSTRING, architecture)},
    {DL_FIELD(3, U32, window)},
    {DL_FIELD(4, U32, width)},
    {DL_FIELD(5, U32, layers)},
    {DL_FIELD(6, U32, heads)},
    {DL_FIELD(7, U64, parameters)},
    {DL_FIELD(8, BOOL, differential)},
    {DL_FIELD(9, CSTRING, time_unit)},
    {DL_FIELD(10, CSTRING, ties)},
    {DL_FIELD(11, CSTRING, negatives)},
    {DL_FIELD(12, U64, seed)},
    {DL_FIELD(13, I64, trained_until)},
    {DL_FIELD(14, CSTRING, data_hash)},
    {DL_FIELD(15, U64, data_edges)},
    {DL_FIELD(16, U64, data_nodes)},
    {DL_FIELD(17, U64, data_timestamps)},
    {DL_FIELD(18, DOUBLE, calibration_scale)},
    {DL_FIELD(19, DOUBLE, calibration_shift)},
    {DL_FIELD(20, MESSAGE, validation), .type = &validation_type},
    {DL_FIELD(21, DOUBLE, train_seconds)},
    {DL_FIELD(22, U32, epochs)},
    {DL_FIELD(23, U32, reference_size)},
    {DL_FIELD(24, CSTRING, kernels)},
};
#undef T
const struct dl_message_type dl_msg_model_response_type =
    DL_TYPE(PACKAGE "GetModelResponse", struct dl_msg_model_response, model_response_fields);

/* ---- Forget, Ingest -------------------------------------------------------------- */

#define T struct dl_msg_forget_request
static const struct dl_field forget_request_fields[] = {
    {DL_FIELD(1, STRING, node), NODE},
    {DL_FIELD(2, STRING, peer), NODE_OR_NONE},
};
#undef T
const struct dl_message_type dl_msg_forget_request_type =
    DL_TYPE(PACKAGE "ForgetRequest", struct dl_msg_forget_request, forget_request_fields);

#define T struct dl_msg_forget_response
static const struct dl_field forget_response_fields[] = {
    {DL_FIELD(1, BOOL, found)},
    {DL_FIELD(2, U64, events)},
};
#undef T
const struct dl_message_type dl_msg_forget_response_type =
    DL_TYPE(PACKAGE "ForgetResponse", struct dl_msg_forget_response, forget_response_fields);

#define T struct dl_msg_ingest_request
static const struct dl_field ingest_request_fields[] = {
    {DL_LIST(1, BYTES_LIST, events, event_count), .flags = DL_FIELD_REQUIRED,
     .count_limit = DL_MSG_INGEST_MAX},
};
#undef T
const struct dl_message_type dl_msg_ingest_request_type =
    DL_TYPE(PACKAGE "IngestRequest", struct dl_msg_ingest_request, ingest_request_fields);

#define T struct dl_msg_ingest_response
static const struct dl_field ingest_response_fields[] = {
    {DL_FIELD(1, U64, accepted)},         {DL_FIELD(2, U64, rejected)},
    {DL_FIELD(3, U64, repeated)},         {DL_FIELD(4, U64, seq)},
    {DL_FIELD(5, CSTRING, first_reason)},
};
#undef T
const struct dl_message_type dl_msg_ingest_response_type =
    DL_TYPE(PACKAGE "IngestResponse", struct dl_msg_ingest_response, ingest_response_fields);

/* ---- Subscribe ------------------------------------------------------------------- */

#define NODES_OF_A_SUBSCRIBER                                                                      \
    DL_LIST(1, STRINGS, nodes, node_count),                                                        \
        .flags = DL_FIELD_NONEMPTY, .limit = DL_NAME_BYTES_MAX, .count_limit = DL_MSG_NODES_MAX

#define T struct dl_msg_subscribe_predictions
static const struct dl_field subscribe_predictions_fields[] = {
    {NODES_OF_A_SUBSCRIBER},
    {DL_FIELD(2, DOUBLE, probability_min), .flags = DL_FIELD_FINITE},
};
#undef T
const struct dl_message_type dl_msg_subscribe_predictions_type =
    DL_TYPE(PACKAGE "SubscribePredictionsRequest", struct dl_msg_subscribe_predictions,
            subscribe_predictions_fields);

#define T struct dl_msg_subscribe_scores
static const struct dl_field subscribe_scores_fields[] = {
    {NODES_OF_A_SUBSCRIBER},
    {DL_FIELD(2, DOUBLE, surprise_bits_min), .flags = DL_FIELD_FINITE},
};
#undef T
const struct dl_message_type dl_msg_subscribe_scores_type = DL_TYPE(
    PACKAGE "SubscribeScoresRequest", struct dl_msg_subscribe_scores, subscribe_scores_fields);

#define T struct dl_msg_subscribe_alerts
static const struct dl_field subscribe_alerts_fields[] = {
    {DL_FIELD(1, BOOL, include_standing)},
};
#undef T
const struct dl_message_type dl_msg_subscribe_alerts_type = DL_TYPE(
    PACKAGE "SubscribeAlertsRequest", struct dl_msg_subscribe_alerts, subscribe_alerts_fields);

#define T struct dl_msg_prediction_message
static const struct dl_field prediction_message_fields[] = {
    {DL_FIELD(1, MESSAGE, prediction), .type = &dl_prediction_type},
    {DL_FIELD(2, U64, dropped)},
};
#undef T
const struct dl_message_type dl_msg_prediction_message_type = DL_TYPE(
    PACKAGE "PredictionMessage", struct dl_msg_prediction_message, prediction_message_fields);

#define T struct dl_msg_score_message
static const struct dl_field score_message_fields[] = {
    {DL_FIELD(1, MESSAGE, score), .type = &dl_score_type},
    {DL_FIELD(2, U64, dropped)},
};
#undef T
const struct dl_message_type dl_msg_score_message_type =
    DL_TYPE(PACKAGE "ScoreMessage", struct dl_msg_score_message, score_message_fields);

#define T struct dl_msg_alert_message
static const struct dl_field alert_message_fields[] = {
    {DL_FIELD(1, MESSAGE, alert), .type = &dl_alert_type},
    {DL_FIELD(2, U64, dropped)},
};
#undef T
const struct dl_message_type dl_msg_alert_message_type =
    DL_TYPE(PACKAGE "AlertMessage", struct dl_msg_alert_message, alert_message_fields);

/* ---- health ---------------------------------------------------------------------- */

#define T struct dl_msg_health_request
static const struct dl_field health_request_fields[] = {
    {DL_FIELD(1, STRING, service), .limit = 256},
};
#undef T
const struct dl_message_type dl_msg_health_request_type = DL_TYPE(
    "grpc.health.v1.HealthCheckRequest", struct dl_msg_health_request, health_request_fields);

static const struct dl_enum_name health_names[] = {
    {DL_MSG_HEALTH_UNKNOWN, "unknown"},
    {DL_MSG_HEALTH_SERVING, "serving"},
    {DL_MSG_HEALTH_NOT_SERVING, "not_serving"},
    {DL_MSG_HEALTH_SERVICE_UNKNOWN, "service_unknown"}};
#define T struct dl_msg_health_response
static const struct dl_field health_response_fields[] = {
    {DL_FIELD(1, ENUM, status), .enum_names = health_names,
     .enum_count = DL_TABLE_COUNT(health_names)},
};
#undef T
const struct dl_message_type dl_msg_health_response_type = DL_TYPE(
    "grpc.health.v1.HealthCheckResponse", struct dl_msg_health_response, health_response_fields);

/* ---- methods --------------------------------------------------------------------- */

#define SERVICE "/driftline.v1.LinkPrediction/"
#define HEALTH "/grpc.health.v1.Health/"

const struct dl_msg_method dl_msg_methods[DL_METHOD_COUNT] = {
    [DL_METHOD_SCORE] = {SERVICE "Score", &dl_msg_score_request_type, &dl_msg_score_response_type,
                         0, 0},
    [DL_METHOD_TOP_K] = {SERVICE "TopK", &dl_msg_top_k_request_type, &dl_msg_top_k_response_type, 0,
                         0},
    [DL_METHOD_GET_WINDOW] = {SERVICE "GetWindow", &dl_msg_window_request_type,
                              &dl_msg_window_response_type, 0, 0},
    [DL_METHOD_EXPLAIN] = {SERVICE "Explain", &dl_msg_explain_request_type,
                           &dl_msg_explain_response_type, 0, 0},
    [DL_METHOD_GET_DRIFT] = {SERVICE "GetDrift", &dl_msg_drift_request_type,
                             &dl_msg_drift_response_type, 0, 0},
    [DL_METHOD_RENEW_REFERENCE] = {SERVICE "RenewReference", &dl_msg_renew_request_type,
                                   &dl_msg_renew_response_type, 0, 0},
    [DL_METHOD_GET_MODEL] = {SERVICE "GetModel", &dl_msg_model_request_type,
                             &dl_msg_model_response_type, 0, 0},
    [DL_METHOD_FORGET] = {SERVICE "Forget", &dl_msg_forget_request_type,
                          &dl_msg_forget_response_type, 0, 0},
    [DL_METHOD_INGEST] = {SERVICE "Ingest", &dl_msg_ingest_request_type,
                          &dl_msg_ingest_response_type, 1, 0},
    [DL_METHOD_SUBSCRIBE_PREDICTIONS] = {SERVICE "SubscribePredictions",
                                         &dl_msg_subscribe_predictions_type,
                                         &dl_msg_prediction_message_type, 0, 1},
    [DL_METHOD_SUBSCRIBE_SCORES] = {SERVICE "SubscribeScores", &dl_msg_subscribe_scores_type,
                                    &dl_msg_score_message_type, 0, 1},
    [DL_METHOD_SUBSCRIBE_ALERTS] = {SERVICE "SubscribeAlerts", &dl_msg_subscribe_alerts_type,
                                    &dl_msg_alert_message_type, 0, 1},
    [DL_METHOD_HEALTH_CHECK] = {HEALTH "Check", &dl_msg_health_request_type,
                                &dl_msg_health_response_type, 0, 0},
    [DL_METHOD_HEALTH_WATCH] = {HEALTH "Watch", &dl_msg_health_request_type,
                                &dl_msg_health_response_type, 0, 1},
    [DL_METHOD_REFLECTION_V1] = {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", NULL,
                                 NULL, 1, 1},
    [DL_METHOD_REFLECTION_V1ALPHA] = {"/grpc.reflection.v1alpha.ServerReflection/"
                                      "ServerReflectionInfo",
                                      NULL, NULL, 1, 1},
};

enum dl_msg_method_id dl_msg_method_find(struct dl_slice path)
{
    for (int i = 0; i < DL_METHOD_COUNT; i++)
        if (dl_slice_equal(path, dl_slice_text(dl_msg_methods[i].path)))
            return (enum dl_msg_method_id)i;
    return DL_METHOD_COUNT;
}
