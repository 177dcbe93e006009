/* The tables of the published records. */
#include "proto/record_codec.h"

#include "proto/message_tables.h"

#define T struct dl_position
static const struct dl_field position_fields[] = {
    {DL_FIELD(1, CHARS, topic), .limit = sizeof(((T *)0)->topic)},
    {DL_FIELD(2, I32, partition)},
    {DL_FIELD(3, I64, offset)},
};
#undef T
const struct dl_message_type dl_position_type =
    DL_TYPE("driftline.v1.SourcePosition", struct dl_position, position_fields);

/* Live quality is a message of its own on the wire, and part of the score in
 * memory: its fields are offsets into the score, and its size is none. */
#define T struct dl_score
static const struct dl_field quality_fields[] = {
    {DL_FIELD(1, STRING, negative)},
    {DL_FIELD(2, DOUBLE, negative_probability)},
    {DL_FIELD(3, U32, rank_times_2)},
    {DL_FIELD(4, U32, negatives)},
};
static const struct dl_message_type quality_type = {.name = "driftline.v1.LiveQuality",
                                                    .size = 0,
                                                    .field_count = DL_TABLE_COUNT(quality_fields),
                                                    .fields = quality_fields};
static const struct dl_field score_fields[] = {
    {DL_FIELD(1, STRING, src)},
    {DL_FIELD(2, STRING, dst)},
    {DL_FIELD(3, I64, time)},
    {DL_FIELD(4, U64, seq)},
    {DL_FIELD(5, DOUBLE, probability)},
    {DL_FIELD(6, DOUBLE, surprise_bits)},
    {DL_FIELD(7, U64, src_history)},
    {DL_FIELD(8, U64, dst_history)},
    {DL_FIELD(9, U32, pair_history)},
    {DL_FIELD(10, STRING, id)},
    {.name = "quality",
     .number = 11,
     .kind = DL_KIND_MESSAGE,
     .offset = 0,
     .present = offsetof(T, has_negative),
     .type = &quality_type},
    {DL_FIELD(12, STRING, model_version)},
    {DL_FIELD(13, MESSAGE, position), .type = &dl_position_type},
};
#undef T
const struct dl_message_type dl_score_type =
    DL_TYPE("driftline.v1.Score", struct dl_score, score_fields);

static const struct dl_enum_name origin_names[] = {{DL_FROM_WINDOW, "window"},
                                                   {DL_FROM_PEERS, "peers"},
                                                   {DL_FROM_POPULAR, "popular"},
                                                   {DL_FROM_CALLER, "caller"}};
#define T struct dl_candidate
static const struct dl_field candidate_fields[] = {
    {DL_FIELD(1, STRING, node)},
    {DL_FIELD(2, DOUBLE, probability)},
    {DL_FIELD(3, DOUBLE, share)},
    {DL_FIELD(4, FLAGS, origin), .enum_names = origin_names,
     .enum_count = DL_TABLE_COUNT(origin_names)},
    {DL_FIELD(5, U64, history)},
    {DL_FIELD(6, U32, pair_history)},
};
#undef T
const struct dl_message_type dl_candidate_type =
    DL_TYPE("driftline.v1.Candidate", struct dl_candidate, candidate_fields);

#define T struct dl_prediction
static const struct dl_field prediction_fields[] = {
    {DL_FIELD(1, STRING, node)},
    {DL_FIELD(2, I64, time)},
    {DL_FIELD(3, U64, seq)},
    {DL_FIELD(4, U64, history)},
    {DL_FIELD(5, U32, scored)},
    {DL_LIST(6, MESSAGES, candidates, candidate_count), .type = &dl_candidate_type},
    {DL_FIELD(7, STRING, model_version)},
    {DL_FIELD(8, MESSAGE, position), .type = &dl_position_type},
};
#undef T
const struct dl_message_type dl_prediction_type =
    DL_TYPE("driftline.v1.Prediction", struct dl_prediction, prediction_fields);

#define T struct dl_alert_feature
static const struct dl_field alert_feature_fields[] = {
    {DL_FIELD(1, CSTRING, name)},
    {DL_FIELD(2, DOUBLE, share)},
    {DL_FIELD(3, DOUBLE, before)},
    {DL_FIELD(4, DOUBLE, now)},
    {DL_FIELD(5, DOUBLE, low)},
    {DL_FIELD(6, DOUBLE, high)},
    {DL_LIST(7, FLOATS, before_histogram, before_bins)},
    {DL_LIST(8, FLOATS, now_histogram, now_bins)},
};
#undef T
const struct dl_message_type dl_alert_feature_type =
    DL_TYPE("driftline.v1.AlertFeature", struct dl_alert_feature, alert_feature_fields);

static const struct dl_enum_name kind_names[] = {
    {0, "unspecified"},
    {DL_ALERT_TEMPORAL_SHIFT, "temporal_shift"},
    {DL_ALERT_ATTENTION_DISPERSION, "attention_dispersion"},
    {DL_ALERT_QUALITY_DROP, "quality_drop"},
    {DL_ALERT_SURPRISE, "surprise"},
    {DL_ALERT_FEED_STALLED, "feed_stalled"},
    {DL_ALERT_FEED_FAST, "feed_fast"},
    {DL_ALERT_REFERENCE_RENEWED, "reference_renewed"}};
static const struct dl_enum_name severity_names[] = {{0, "unspecified"},
                                                     {DL_SEVERITY_INFO, "info"},
                                                     {DL_SEVERITY_WARNING, "warning"},
                                                     {DL_SEVERITY_CRITICAL, "critical"}};
#define T struct dl_alert
static const struct dl_field alert_fields[] = {
    {DL_FIELD(1, U64, number)},
    {DL_FIELD(2, ENUM, kind), .enum_names = kind_names, .enum_count = DL_TABLE_COUNT(kind_names)},
    {DL_FIELD(3, BOOL, raised)},
    {DL_FIELD(4, I64, time)},
    {DL_FIELD(5, U64, seq)},
    {DL_FIELD(6, DOUBLE, statistic)},
    {DL_FIELD(7, DOUBLE, threshold)},
    {DL_FIELD(8, DOUBLE, p_value)},
    {DL_FIELD(9, U32, window)},
    {DL_FIELD(10, CSTRING, reason)},
    {DL_LIST(11, MESSAGES, features, feature_count), .type = &dl_alert_feature_type},
    {DL_FIELD(12, STRING, node)},
    {DL_FIELD(13, STRING, model_version)},
    {DL_FIELD(14, MESSAGE, position), .type = &dl_position_type},
    {DL_FIELD(15, ENUM, severity), .enum_names = severity_names,
     .enum_count = DL_TABLE_COUNT(severity_names)},
};
#undef T
const struct dl_message_type dl_alert_type =
    DL_TYPE("driftline.v1.Alert", struct dl_alert, alert_fields);

#define T struct dl_dead_letter
static const struct dl_field dead_letter_fields[] = {
    {DL_FIELD(1, BYTES, key)},
    {DL_FIELD(2, BYTES, payload)},
    {DL_FIELD(3, CSTRING, reason)},
    {DL_FIELD(4, CSTRING, field)},
    {DL_FIELD(5, MESSAGE, position), .type = &dl_position_type},
    {DL_FIELD(6, I64, received_us)},
};
#undef T
const struct dl_message_type dl_dead_letter_type =
    DL_TYPE("driftline.v1.DeadLetter", struct dl_dead_letter, dead_letter_fields);

/* ---- functions ------------------------------------------------------------------ */

int dl_record_format_parse(struct dl_slice name, enum dl_record_format *format)
{
    if (dl_slice_equal(name, dl_slice_text("protobuf")))
        *format = DL_RECORD_PROTOBUF;
    else if (dl_slice_equal(name, dl_slice_text("json")))
        *format = DL_RECORD_JSON;
    else
        return DL_ERR_INVALID;
    return DL_OK;
}

static void encode(const struct dl_message_type *type, const void *record,
                   enum dl_record_format format, struct dl_buf *out)
{
    if (format == DL_RECORD_JSON)
        dl_message_json(type, record, out);
    else
        dl_message_encode(type, record, out);
}

void dl_record_encode_score(const struct dl_score *score, enum dl_record_format format,
                            struct dl_buf *out)
{
    encode(&dl_score_type, score, format, out);
}

void dl_record_encode_prediction(const struct dl_prediction *prediction,
                                 enum dl_record_format format, struct dl_buf *out)
{
    encode(&dl_prediction_type, prediction, format, out);
}

void dl_record_encode_alert(const struct dl_alert *alert, enum dl_record_format format,
                            struct dl_buf *out)
{
    encode(&dl_alert_type, alert, format, out);
}

void dl_record_encode_dead_letter(const struct dl_dead_letter *letter, enum dl_record_format format,
                                  struct dl_buf *out)
{
    encode(&dl_dead_letter_type, letter, format, out);
}

int dl_record_decode_score(struct dl_slice bytes, struct dl_score *score, struct dl_arena *arena,
                           struct dl_error *error)
{
    *score = (struct dl_score){0};
    return dl_message_decode(&dl_score_type, bytes, score, arena, error);
}

int dl_record_decode_prediction(struct dl_slice bytes, struct dl_prediction *prediction,
                                struct dl_arena *arena, struct dl_error *error)
{
    *prediction = (struct dl_prediction){0};
    return dl_message_decode(&dl_prediction_type, bytes, prediction, arena, error);
}

int dl_record_decode_alert(struct dl_slice bytes, struct dl_alert *alert, struct dl_arena *arena,
                           struct dl_error *error)
{
    *alert = (struct dl_alert){0};
    int status = dl_message_decode(&dl_alert_type, bytes, alert, arena, error);
    if (!alert->reason) alert->reason = "";
    return status;
}

int dl_record_decode_dead_letter(struct dl_slice bytes, struct dl_dead_letter *letter,
                                 struct dl_arena *arena, struct dl_error *error)
{
    *letter = (struct dl_dead_letter){0};
    int status = dl_message_decode(&dl_dead_letter_type, bytes, letter, arena, error);
    if (!letter->reason) letter->reason = "";
    if (!letter->field) letter->field = "";
    return status;
}

const char *dl_alert_severity_name(enum dl_alert_severity severity)
{
    for (size_t i = 1; i < DL_TABLE_COUNT(severity_names); i++)
        if (severity_names[i].value == (uint32_t)severity) return severity_names[i].name;
    return "unknown";
}

const char *dl_alert_kind_name(enum dl_alert_kind kind)
{
    for (size_t i = 1; i < DL_TABLE_COUNT(kind_names); i++)
        if (kind_names[i].value == (uint32_t)kind) return kind_names[i].name;
    return "unknown";
}
