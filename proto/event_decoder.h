/* The inside of an event decoder, shared by the formats' files. */
#ifndef DL_PROTO_EVENT_DECODER_H
#define DL_PROTO_EVENT_DECODER_H

#include "proto/event_codec.h"
#include "proto/json_scan.h"
#include "proto/text.h"

#define DL_CSV_COLUMNS_MAX 256

/* Fields of an event. Columns and pointers of features are FIELD_FEATURES + k. */
enum dl_event_field {
    DL_FIELD_SRC,
    DL_FIELD_DST,
    DL_FIELD_TIME,
    DL_FIELD_TYPE,
    DL_FIELD_WEIGHT,
    DL_FIELD_ID,
    DL_FIELD_FEATURES,
    DL_FIELD_NONE = 255
};

extern const char *const dl_event_field_names[DL_FIELD_FEATURES + 1];

/* Pointers behind the mapped ones: members of a CloudEvents envelope. */
enum dl_envelope_member {
    DL_CE_SPECVERSION,
    DL_CE_DATA,
    DL_CE_DATA_BASE64,
    DL_CE_ID,
    DL_CE_SOURCE,
    DL_CE_TIME,
    DL_CE_CONTENT_TYPE,
    DL_CE_COUNT
};

struct dl_event_decoder {
    struct dl_event_decoder_config config;
    /* Where decimal text and unescaped strings live: at most one of each of
     * src, dst, type, id, and one number at a time. */
    uint8_t text[4 * DL_NAME_BYTES_MAX + 512];
    uint32_t text_size;
    /* json: the mapped pointers, then DL_CE_COUNT of CloudEvents */
    uint32_t pointer_count;
    struct dl_json_pointer *pointers;
    uint8_t pointer_field[DL_JSON_POINTERS_MAX];
    struct dl_json_value values[DL_JSON_POINTERS_MAX];
    /* csv */
    uint32_t column_count; /* 0: no header yet */
    uint8_t column_field[DL_CSV_COLUMNS_MAX];
    uint32_t csv_feature_count;
    /* Times that need no closer look. */
    int64_t time_sure_min, time_sure_max;
    /* CloudEvents: decoded base64 */
    struct dl_buf payload;
    /* what the envelope says, for where the payload is silent */
    struct dl_slice envelope_id, envelope_time;
    uint8_t envelope_text[DL_EVENT_ID_BYTES_MAX];
};

/* Where a failed decode says what went wrong. */
struct dl_decode_fault {
    const char **field;
    struct dl_error *error;
};

/* Names the field and formats the line. Returns `status`. */
int dl_event_fail(const struct dl_decode_fault *fault, enum dl_event_field field, int status,
                  const char *format, ...) __attribute__((format(printf, 4, 5), cold, noinline));
int dl_event_fail_message(const struct dl_decode_fault *fault, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold, noinline));

/* ---- conversions of the text formats ---- */

int dl_event_set_time(const struct dl_event_decoder *decoder, struct dl_slice text,
                      struct dl_edge_event *event, const struct dl_decode_fault *fault);
/* `index`: which feature; ignored for the weight. */
int dl_event_set_number(struct dl_slice text, enum dl_event_field field, uint32_t index,
                        float *value, const struct dl_decode_fault *fault);

/* What every format ends with: names, limits, the time's plausibility, the
 * number of features. `has_time`: a time was found. */
int dl_event_finish(const struct dl_event_decoder *decoder, struct dl_edge_event *event,
                    int has_time, const struct dl_decode_fault *fault);

/* 1 if the event needs no closer look: what dl_event_finish would let pass,
 * without its calls. */
static inline int dl_event_is_sure(const struct dl_event_decoder *decoder,
                                   const struct dl_edge_event *event, int has_time)
{
    return has_time && event->src.size - 1 < DL_NAME_BYTES_MAX &&
           event->dst.size - 1 < DL_NAME_BYTES_MAX && event->type.size <= DL_TYPE_BYTES_MAX &&
           event->id.size <= DL_EVENT_ID_BYTES_MAX && event->time >= decoder->time_sure_min &&
           event->time <= decoder->time_sure_max &&
           (decoder->config.feature_count < 0 ||
            event->feature_count == (uint32_t)decoder->config.feature_count) &&
           dl_text_is_plain(event->src) && dl_text_is_plain(event->dst) &&
           (event->type.size == 0 || dl_text_is_plain(event->type)) &&
           (event->id.size == 0 || dl_text_is_plain(event->id));
}

/* Turns what dl_event_decode_json finds in an envelope back to the format of
 * its data. */
int dl_event_decode_as(struct dl_event_decoder *decoder, enum dl_event_format format,
                       struct dl_slice message, int unwrap, struct dl_edge_event *event,
                       const struct dl_decode_fault *fault);
/* The format that a content type names, else the configured one. */
enum dl_event_format dl_event_format_of(const struct dl_event_decoder *decoder,
                                        struct dl_slice content_type);
/* Keeps source and id of an envelope as the event's id where it has none. */
void dl_event_keep_envelope(struct dl_event_decoder *decoder, struct dl_slice source,
                            struct dl_slice id, struct dl_slice time);

int dl_event_decode_protobuf(struct dl_event_decoder *decoder, struct dl_slice message,
                             struct dl_edge_event *event, const struct dl_decode_fault *fault);
int dl_event_decode_confluent(struct dl_event_decoder *decoder, struct dl_slice message,
                              struct dl_edge_event *event, const struct dl_decode_fault *fault);
int dl_event_decode_json(struct dl_event_decoder *decoder, struct dl_slice message, int unwrap,
                         struct dl_edge_event *event, const struct dl_decode_fault *fault);
int dl_event_decode_csv(struct dl_event_decoder *decoder, struct dl_slice message,
                        struct dl_edge_event *event, const struct dl_decode_fault *fault);

/* The json format's set-up. */
int dl_event_json_prepare(struct dl_event_decoder *decoder, struct dl_error *error);

#endif
