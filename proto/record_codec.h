/* Scores, predictions, alerts and dead letters (base/record.h) to protobuf and
 * to JSON, and back. The messages are those of driftline/v1/records.proto. */
#ifndef DL_PROTO_RECORD_CODEC_H
#define DL_PROTO_RECORD_CODEC_H

#include "base/record.h"
#include "proto/message.h"

enum dl_record_format { DL_RECORD_PROTOBUF, DL_RECORD_JSON };

/* "protobuf", "json". DL_OK, or DL_ERR_INVALID for an unknown name. */
int dl_record_format_parse(struct dl_slice name, enum dl_record_format *format);

/* Append one record. Equal records give equal bytes. Check out->failed. */
void dl_record_encode_score(const struct dl_score *score, enum dl_record_format format,
                            struct dl_buf *out);
void dl_record_encode_prediction(const struct dl_prediction *prediction,
                                 enum dl_record_format format, struct dl_buf *out);
void dl_record_encode_alert(const struct dl_alert *alert, enum dl_record_format format,
                            struct dl_buf *out);
void dl_record_encode_dead_letter(const struct dl_dead_letter *letter, enum dl_record_format format,
                                  struct dl_buf *out);

/* Decode protobuf into the record. Text borrows from `bytes`, lists and C
 * strings from `arena`. Errors as dl_message_decode. */
int dl_record_decode_score(struct dl_slice bytes, struct dl_score *score, struct dl_arena *arena,
                           struct dl_error *error);
int dl_record_decode_prediction(struct dl_slice bytes, struct dl_prediction *prediction,
                                struct dl_arena *arena, struct dl_error *error);
int dl_record_decode_alert(struct dl_slice bytes, struct dl_alert *alert, struct dl_arena *arena,
                           struct dl_error *error);
int dl_record_decode_dead_letter(struct dl_slice bytes, struct dl_dead_letter *letter,
                                 struct dl_arena *arena, struct dl_error *error);

/* "temporal_shift", "attention_dispersion", ...; "unknown" for another value. */
const char *dl_alert_kind_name(enum dl_alert_kind kind);
/* "info", "warning" or "critical". */
const char *dl_alert_severity_name(enum dl_alert_severity severity);

/* The tables, for dl_message_json, dl_message_to_json and messages that hold
 * records. */
extern const struct dl_message_type dl_score_type, dl_prediction_type, dl_alert_type,
    dl_dead_letter_type, dl_candidate_type, dl_alert_feature_type, dl_position_type;

#endif
