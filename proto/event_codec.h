/* Bytes of a message to an edge event, and back.
 *
 * A decoder belongs to one source (a topic, a file, a stream) and to one
 * thread. It is set up once from a configuration and then decodes without
 * allocating (base64 data of CloudEvents apart, whose buffer is kept).
 *
 *   decoder_config --new--> decoder --decode(message)--> dl_edge_event
 *                                   \--> status + field + one line
 *
 * What is accepted:
 *   protobuf    driftline.v1.EdgeEvent
 *   confluent   the same behind 0x00, 4-byte schema id, zigzag message indexes
 *   json        one JSON text; JSON pointers say where the fields are
 *   csv         one line; a header line says which column is what
 * and CloudEvents around any of them: structured (a JSON envelope) or binary
 * (ce_ headers).
 *
 * Every byte is hostile: all limits of base/event.h and of the configuration
 * are checked here. */
#ifndef DL_PROTO_EVENT_CODEC_H
#define DL_PROTO_EVENT_CODEC_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/status.h"

#define DL_MESSAGE_BYTES_MAX (1024 * 1024) /* default and highest limit of one message */
#define DL_MAPPING_BYTES_MAX 128           /* one JSON pointer or column name */

enum dl_event_format { DL_FORMAT_PROTOBUF, DL_FORMAT_CONFLUENT, DL_FORMAT_JSON, DL_FORMAT_CSV };

/* "protobuf", "confluent", "json", "csv". */
const char *dl_event_format_name(enum dl_event_format format);
/* DL_OK, or DL_ERR_INVALID for an unknown name. */
int dl_event_format_parse(struct dl_slice name, enum dl_event_format *format);

/* ---- times ------------------------------------------------------------------ */

/* What times are believable. Wall-clock units only; `ticks` takes any int64. */
struct dl_time_rules {
    enum dl_time_unit unit;
    int plausible;        /* 1 (default): refuse what is outside, or fits another unit better */
    int64_t min_s, max_s; /* seconds since 1970; default 1970-01-02 and a century from now */
};

/* The defaults. `wall_us`: now, microseconds since 1970; 0: some day in 2026. */
void dl_time_rules_init(struct dl_time_rules *rules, enum dl_time_unit unit, int64_t wall_us);

/* DL_OK, or DL_ERR_INVALID with one line such as "time 1700000000000 looks
 * like ms, the source is configured as s; set source.time_unit: ms". */
int dl_time_rules_check(const struct dl_time_rules *rules, int64_t time, struct dl_error *error);

/* ---- mapping ---------------------------------------------------------------- */

/* Where the fields of an event are: JSON pointers ("/user/id") or CSV column
 * names. Empty: the default ("/src", "/dst", "/time", "/type", "/weight",
 * "/features", "/id"; CSV: see dl_event_decoder_csv_header). "-": there is
 * none. `features` is one JSON pointer to an array of numbers, or one pointer
 * or column for each feature. */
struct dl_event_mapping {
    char src[DL_MAPPING_BYTES_MAX + 1], dst[DL_MAPPING_BYTES_MAX + 1];
    char time[DL_MAPPING_BYTES_MAX + 1], type[DL_MAPPING_BYTES_MAX + 1];
    char weight[DL_MAPPING_BYTES_MAX + 1], id[DL_MAPPING_BYTES_MAX + 1];
    uint32_t feature_count;
    char features[DL_EVENT_FEATURES_MAX][DL_MAPPING_BYTES_MAX + 1];
};

/* Sets one entry by name: dl_event_mapping_set(&m, "src", "/user/id", &error).
 * `features` may hold several, separated by commas, and adds to those that are
 * there. DL_OK; DL_ERR_INVALID (unknown field), DL_ERR_TOO_LARGE. */
int dl_event_mapping_set(struct dl_event_mapping *mapping, const char *field, const char *where,
                         struct dl_error *error);

/* ---- decoder ---------------------------------------------------------------- */

struct dl_event_decoder_config {
    enum dl_event_format format;
    struct dl_time_rules time;
    struct dl_event_mapping mapping;  /* json and csv */
    char csv_separator;               /* ',' by default */
    uint32_t message_bytes_max;       /* 1..DL_MESSAGE_BYTES_MAX */
    int32_t feature_count;            /* features each event must have; -1: any */
    uint32_t confluent_schema_id;     /* accept this one only; 0: any */
    uint32_t confluent_message_index; /* which top-level message of the schema; 0: the first */
    int cloudevents;                  /* 1 (default): unwrap CloudEvents where there are some */
};

/* JSON, ms, default mapping, any number of features, `wall_us` as above. */
void dl_event_decoder_config_init(struct dl_event_decoder_config *config, int64_t wall_us);

struct dl_event_decoder;

/* Copies the configuration. DL_OK; DL_ERR_INVALID (a pointer that does not
 * parse, a limit out of range); DL_ERR_NOMEM. */
int dl_event_decoder_new(const struct dl_event_decoder_config *config,
                         struct dl_event_decoder **decoder, struct dl_error *error);
void dl_event_decoder_free(struct dl_event_decoder *decoder);

/* CSV only, before the first line: which column is what, from the header line.
 * Columns that the mapping does not name are found as src|source|u,
 * dst|destination|target|v, time|t|ts|timestamp, type, weight|w, id, and
 * features as f0,f1,... or feature_0,feature_1,... (from 0 or 1). Other columns
 * are left alone. DL_OK, DL_ERR_INVALID (a column is missing, with the names
 * that are there), DL_ERR_TOO_LARGE. */
int dl_event_decoder_csv_header(struct dl_event_decoder *decoder, struct dl_slice line,
                                struct dl_error *error);

/* Decodes one message. Slices of *event borrow from `message` and from the
 * decoder, until its next call. On failure returns DL_ERR_INVALID,
 * DL_ERR_TOO_LARGE or DL_ERR_NOMEM, sets *field to the name of the field that
 * is wrong (src, dst, time, type, weight, features, id, or message; a constant) and
 * writes one line; *event is then undefined. */
int dl_event_decode(struct dl_event_decoder *decoder, struct dl_slice message,
                    struct dl_edge_event *event, const char **field, struct dl_error *error);

/* A message header (Kafka, HTTP). */
struct dl_event_header {
    struct dl_slice name, value;
};

/* The same for a message with headers. With ce_specversion (or ce-specversion)
 * among them the message is a CloudEvent in binary mode: `content-type` may
 * say JSON or protobuf, ce_id is the event's id unless the mapping finds one,
 * and ce_time its time where the unit is iso8601 and the payload has none. */
int dl_event_decode_headers(struct dl_event_decoder *decoder, const struct dl_event_header *headers,
                            uint32_t header_count, struct dl_slice message,
                            struct dl_edge_event *event, const char **field,
                            struct dl_error *error);

/* ---- encoder ---------------------------------------------------------------- */

/* Appends the event. Check out->failed at the end. */
void dl_event_encode_protobuf(const struct dl_edge_event *event, struct dl_buf *out);
/* As read by the default mapping, without a line end. Times of iso8601 are
 * written as text. */
void dl_event_encode_json(const struct dl_edge_event *event, enum dl_time_unit unit,
                          struct dl_buf *out);
/* Columns src,dst,time,type,weight,id,f0..f(feature_count − 1), without a line
 * end; fields are quoted where they must be. */
void dl_event_encode_csv(const struct dl_edge_event *event, enum dl_time_unit unit,
                         struct dl_buf *out);
void dl_event_encode_csv_header(uint32_t feature_count, struct dl_buf *out);

#endif
