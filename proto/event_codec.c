/* The part of event decoding that all formats share: set-up, time rules,
 * mapping, the checks at the end, CloudEvents in binary mode. */
#include "proto/event_codec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "proto/event_decoder.h"
#include "proto/text.h"

const char *const dl_event_field_names[DL_FIELD_FEATURES + 1] = {"src",    "dst", "time",    "type",
                                                                 "weight", "id",  "features"};

/* ---- names ------------------------------------------------------------------- */

static const char *const format_names[] = {"protobuf", "confluent", "json", "csv"};

const char *dl_event_format_name(enum dl_event_format format)
{
    return format_names[format];
}

int dl_event_format_parse(struct dl_slice name, enum dl_event_format *format)
{
    for (int i = 0; i < 4; i++) {
        if (dl_slice_equal(name, dl_slice_text(format_names[i]))) {
            *format = (enum dl_event_format)i;
            return DL_OK;
        }
    }
    return DL_ERR_INVALID;
}

/* ---- faults ------------------------------------------------------------------ */

static int fail(const struct dl_decode_fault *fault, const char *name, int status,
                const char *format, va_list args)
{
    *fault->field = name;
    if (fault->error) vsnprintf(fault->error->text, sizeof fault->error->text, format, args);
    return status;
}

int dl_event_fail(const struct dl_decode_fault *fault, enum dl_event_field field, int status,
                  const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = fail(fault, dl_event_field_names[field], status, format, args);
    va_end(args);
    return status;
}

int dl_event_fail_message(const struct dl_decode_fault *fault, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    status = fail(fault, "message", status, format, args);
    va_end(args);
    return status;
}

/* ---- times ------------------------------------------------------------------- */

#define DAY_S INT64_C(86400)
#define CENTURY_S (INT64_C(36525) * DAY_S)
/* A wall-clock time before 1980 is possible, but if another unit makes a later
 * one of it, that unit is more likely. */
#define SURE_MIN_S INT64_C(315532800)

void dl_time_rules_init(struct dl_time_rules *rules, enum dl_time_unit unit, int64_t wall_us)
{
    int64_t wall_s = wall_us > 0 ? wall_us / 1000000 : INT64_C(1790000000);
    *rules = (struct dl_time_rules){
        .unit = unit, .plausible = 1, .min_s = DAY_S, .max_s = wall_s + CENTURY_S};
}

static int64_t clamp_mul(int64_t a, int64_t b)
{
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product)) return product;
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}

static int within(int64_t time, int64_t min_s, int64_t max_s, enum dl_time_unit unit)
{
    int64_t per_second = dl_time_unit_per_second(unit);
    return time >= clamp_mul(min_s, per_second) && time <= clamp_mul(max_s, per_second);
}

static int64_t sure_min_s(const struct dl_time_rules *rules)
{
    return rules->min_s > SURE_MIN_S ? rules->min_s : SURE_MIN_S;
}

int dl_time_rules_check(const struct dl_time_rules *rules, int64_t time, struct dl_error *error)
{
    if (rules->unit == DL_TIME_TICKS || !rules->plausible) return DL_OK;
    if (within(time, sure_min_s(rules), rules->max_s, rules->unit)) return DL_OK;
    const char *name = dl_time_unit_name(rules->unit);
    if (rules->unit != DL_TIME_ISO8601) {
        for (enum dl_time_unit unit = DL_TIME_S; unit <= DL_TIME_NS; unit++) {
            if (unit == rules->unit || !within(time, sure_min_s(rules), rules->max_s, unit))
                continue;
            return dl_error_set(error, DL_ERR_INVALID,
                                "time %" PRId64 " looks like %s, the source is configured as %s; "
                                "set source.time_unit: %s",
                                time, dl_time_unit_name(unit), name, dl_time_unit_name(unit));
        }
    }
    if (within(time, rules->min_s, rules->max_s, rules->unit)) return DL_OK;
    char text[40], limit[40];
    int early = time < clamp_mul(rules->min_s, dl_time_unit_per_second(rules->unit));
    dl_time_format(time, rules->unit, text);
    dl_time_format(early ? rules->min_s : rules->max_s, DL_TIME_S, limit);
    return dl_error_set(error, DL_ERR_INVALID,
                        "time %" PRId64 " (%s) is not plausible: %s %s; for times that are not "
                        "wall-clock set source.time_unit: ticks",
                        time, text, early ? "before" : "after", limit);
}

/* ---- mapping ----------------------------------------------------------------- */

static int set_path(char *to, const char *where, size_t size, const char *field,
                    struct dl_error *error)
{
    if (size > DL_MAPPING_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE, "mapping of %s is longer than %d bytes", field,
                            DL_MAPPING_BYTES_MAX);
    memcpy(to, where, size);
    to[size] = 0;
    return DL_OK;
}

int dl_event_mapping_set(struct dl_event_mapping *mapping, const char *field, const char *where,
                         struct dl_error *error)
{
    char *const places[] = {mapping->src,  mapping->dst,    mapping->time,
                            mapping->type, mapping->weight, mapping->id};
    for (int i = DL_FIELD_SRC; i < DL_FIELD_FEATURES; i++)
        if (strcmp(field, dl_event_field_names[i]) == 0)
            return set_path(places[i], where, strlen(where), field, error);
    if (strcmp(field, "features") != 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "mapping of unknown field \"%.40s\"; the fields are src, dst, time, "
                            "type, weight, features and id",
                            field);
    for (;;) {
        size_t size = strcspn(where, ",");
        if (mapping->feature_count == DL_EVENT_FEATURES_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE, "mapping of more than %d features",
                                DL_EVENT_FEATURES_MAX);
        int status = set_path(mapping->features[mapping->feature_count], where, size, field, error);
        if (status) return status;
        mapping->feature_count++;
        if (!where[size]) return DL_OK;
        where += size + 1;
    }
}

/* ---- set-up ------------------------------------------------------------------ */

void dl_event_decoder_config_init(struct dl_event_decoder_config *config, int64_t wall_us)
{
    *config = (struct dl_event_decoder_config){.format = DL_FORMAT_JSON,
                                               .csv_separator = ',',
                                               .message_bytes_max = DL_MESSAGE_BYTES_MAX,
                                               .feature_count = -1,
                                               .cloudevents = 1};
    dl_time_rules_init(&config->time, DL_TIME_MS, wall_us);
}

int dl_event_decoder_new(const struct dl_event_decoder_config *config,
                         struct dl_event_decoder **decoder, struct dl_error *error)
{
    if (config->message_bytes_max < 1 || config->message_bytes_max > DL_MESSAGE_BYTES_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "message limit of %" PRIu32 " bytes is not within 1 and %d",
                            config->message_bytes_max, DL_MESSAGE_BYTES_MAX);
    if (config->feature_count < -1 || config->feature_count > DL_EVENT_FEATURES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "%" PRId32 " features are not within 0 and %d",
                            config->feature_count, DL_EVENT_FEATURES_MAX);
    if (config->format == DL_FORMAT_CSV &&
        (config->csv_separator == 0 || config->csv_separator == '"' ||
         config->csv_separator == '\n' || config->csv_separator == '\r'))
        return dl_error_set(error, DL_ERR_INVALID,
                            "CSV separator must be a character other than a quote or a line end");
    struct dl_event_decoder *d = calloc(1, sizeof *d);
    if (!d) return dl_error_set(error, DL_ERR_NOMEM, "no memory for an event decoder");
    d->config = *config;
    d->time_sure_min = INT64_MIN;
    d->time_sure_max = INT64_MAX;
    if (config->time.unit != DL_TIME_TICKS && config->time.plausible) {
        int64_t per_second = dl_time_unit_per_second(config->time.unit);
        d->time_sure_min = clamp_mul(sure_min_s(&config->time), per_second);
        d->time_sure_max = clamp_mul(config->time.max_s, per_second);
    }
    int status = config->format == DL_FORMAT_CSV ? DL_OK : dl_event_json_prepare(d, error);
    if (status) {
        dl_event_decoder_free(d);
        return status;
    }
    *decoder = d;
    return DL_OK;
}

void dl_event_decoder_free(struct dl_event_decoder *decoder)
{
    if (!decoder) return;
    free(decoder->pointers);
    dl_buf_free(&decoder->payload);
    free(decoder);
}

/* ---- what formats share ------------------------------------------------------ */

int dl_event_set_time(const struct dl_event_decoder *decoder, struct dl_slice text,
                      struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    char shown[64];
    enum dl_time_unit unit = decoder->config.time.unit;
    int64_t as_date;
    int is_date = dl_time_parse_iso8601(text, &as_date) == DL_OK;
    if (unit == DL_TIME_ISO8601) {
        if (!is_date)
            return dl_event_fail(fault, DL_FIELD_TIME, DL_ERR_INVALID,
                                 "time \"%s\" is not an ISO 8601 date such as "
                                 "2026-11-30T20:58:32Z",
                                 dl_text_quote(text, shown));
        event->time = as_date;
        return DL_OK;
    }
    const char *name = dl_time_unit_name(unit);
    switch (dl_text_parse_int64(text, &event->time)) {
    case DL_NUMBER_OK:
        return DL_OK;
    case DL_NUMBER_FRACTION:
        return dl_event_fail(fault, DL_FIELD_TIME, DL_ERR_INVALID,
                             "time %s is not a whole number of %s", dl_text_quote(text, shown),
                             name);
    case DL_NUMBER_RANGE:
        return dl_event_fail(fault, DL_FIELD_TIME, DL_ERR_INVALID, "time %s does not fit 64 bits",
                             dl_text_quote(text, shown));
    default:
        return dl_event_fail(fault, DL_FIELD_TIME, DL_ERR_INVALID,
                             is_date ? "time \"%s\" is a date, the source is configured as %s; set "
                                       "source.time_unit: iso8601"
                                     : "time \"%s\" is not a number of %s",
                             dl_text_quote(text, shown), name);
    }
}

int dl_event_set_number(struct dl_slice text, enum dl_event_field field, uint32_t index,
                        float *value, const struct dl_decode_fault *fault)
{
    int result = dl_text_parse_float(text, value);
    if (result == DL_NUMBER_OK) return DL_OK;
    char shown[64], place[24];
    if (field == DL_FIELD_FEATURES)
        snprintf(place, sizeof place, "features[%" PRIu32 "]", index);
    else
        snprintf(place, sizeof place, "%s", dl_event_field_names[field]);
    return dl_event_fail(fault, field, DL_ERR_INVALID,
                         result == DL_NUMBER_RANGE ? "%s \"%s\" does not fit a 32-bit float"
                                                   : "%s \"%s\" is not a finite number",
                         place, dl_text_quote(text, shown));
}

static int check_name(struct dl_slice name, enum dl_event_field field, size_t size_max,
                      const struct dl_decode_fault *fault)
{
    char shown[64];
    if (name.size > size_max)
        return dl_event_fail(
            fault, field, DL_ERR_TOO_LARGE, "%s is %zu bytes long, the limit is %zu (\"%s\")",
            dl_event_field_names[field], name.size, size_max, dl_text_quote(name, shown));
    if (!dl_text_name_valid(name))
        return dl_event_fail(fault, field, DL_ERR_INVALID, "%s \"%s\" is not UTF-8 without NUL",
                             dl_event_field_names[field], dl_text_quote(name, shown));
    return DL_OK;
}

static int check_node(struct dl_slice name, enum dl_event_field field,
                      const struct dl_decode_fault *fault)
{
    if (name.size == 0)
        return dl_event_fail(fault, field, DL_ERR_INVALID, "%s is missing or empty",
                             dl_event_field_names[field]);
    return check_name(name, field, DL_NAME_BYTES_MAX, fault);
}

int dl_event_finish(const struct dl_event_decoder *decoder, struct dl_edge_event *event,
                    int has_time, const struct dl_decode_fault *fault)
{
    int status;
    if ((status = check_node(event->src, DL_FIELD_SRC, fault))) return status;
    if ((status = check_node(event->dst, DL_FIELD_DST, fault))) return status;
    if (event->type.size &&
        (status = check_name(event->type, DL_FIELD_TYPE, DL_TYPE_BYTES_MAX, fault)))
        return status;
    if (event->id.size &&
        (status = check_name(event->id, DL_FIELD_ID, DL_EVENT_ID_BYTES_MAX, fault)))
        return status;
    if (!has_time) {
        if (decoder->config.time.unit != DL_TIME_ISO8601 || !decoder->envelope_time.size)
            return dl_event_fail(fault, DL_FIELD_TIME, DL_ERR_INVALID, "time is missing");
        if ((status = dl_event_set_time(decoder, decoder->envelope_time, event, fault)))
            return status;
    }
    if (event->time < decoder->time_sure_min || event->time > decoder->time_sure_max) {
        status = dl_time_rules_check(&decoder->config.time, event->time, fault->error);
        if (status) {
            *fault->field = dl_event_field_names[DL_FIELD_TIME];
            return status;
        }
    }
    if (decoder->config.feature_count >= 0 &&
        event->feature_count != (uint32_t)decoder->config.feature_count)
        return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_INVALID,
                             "%" PRIu32 " features, the source is configured for %" PRId32,
                             event->feature_count, decoder->config.feature_count);
    return DL_OK;
}

/* ---- decoding ---------------------------------------------------------------- */

int dl_event_decode_as(struct dl_event_decoder *decoder, enum dl_event_format format,
                       struct dl_slice message, int unwrap, struct dl_edge_event *event,
                       const struct dl_decode_fault *fault)
{
    switch (format) {
    case DL_FORMAT_PROTOBUF:
        return dl_event_decode_protobuf(decoder, message, event, fault);
    case DL_FORMAT_CONFLUENT:
        return dl_event_decode_confluent(decoder, message, event, fault);
    case DL_FORMAT_JSON:
        return dl_event_decode_json(decoder, message, unwrap, event, fault);
    case DL_FORMAT_CSV:
        return dl_event_decode_csv(decoder, message, event, fault);
    }
    return DL_ERR_UNSUPPORTED;
}

static inline int check_size(const struct dl_event_decoder *decoder, struct dl_slice message,
                             const struct dl_decode_fault *fault)
{
    if (message.size == 0)
        return dl_event_fail_message(fault, DL_ERR_INVALID, "message is empty (a tombstone?)");
    if (message.size > decoder->config.message_bytes_max)
        return dl_event_fail_message(fault, DL_ERR_TOO_LARGE,
                                     "message is %zu bytes long, the limit is %" PRIu32,
                                     message.size, decoder->config.message_bytes_max);
    return DL_OK;
}

int dl_event_decode(struct dl_event_decoder *decoder, struct dl_slice message,
                    struct dl_edge_event *event, const char **field, struct dl_error *error)
{
    struct dl_decode_fault fault = {field, error};
    decoder->envelope_time = (struct dl_slice){0};
    int status = check_size(decoder, message, &fault);
    if (status) return status;
    if (decoder->config.format == DL_FORMAT_PROTOBUF)
        return dl_event_decode_protobuf(decoder, message, event, &fault);
    return dl_event_decode_as(decoder, decoder->config.format, message, decoder->config.cloudevents,
                              event, &fault);
}

static int header_is(struct dl_slice name, const char *wanted)
{
    size_t size = strlen(wanted);
    if (name.size != size) return 0;
    for (size_t i = 0; i < size; i++) {
        uint8_t c = name.data[i];
        if (c >= 'A' && c <= 'Z') c |= 0x20;
        if (c == '-' && i == 2) c = '_'; /* ce-id over HTTP, ce_id in Kafka */
        if (c != (uint8_t)wanted[i]) return 0;
    }
    return 1;
}

/* "application/json; charset=utf-8" is "application/json". */
static int content_is(struct dl_slice type, const char *wanted)
{
    size_t size = strlen(wanted);
    if (type.size < size || strncasecmp((const char *)type.data, wanted, size) != 0) return 0;
    return type.size == size || type.data[size] == ';' || type.data[size] == ' ';
}

static int content_ends(struct dl_slice type, const char *suffix)
{
    size_t end = 0, size = strlen(suffix);
    while (end < type.size && type.data[end] != ';' && type.data[end] != ' ') end++;
    return end >= size && strncasecmp((const char *)type.data + end - size, suffix, size) == 0;
}

enum dl_event_format dl_event_format_of(const struct dl_event_decoder *decoder,
                                        struct dl_slice content_type)
{
    enum dl_event_format format = decoder->config.format;
    /* Without pointers (a CSV source) there is nothing to read JSON by. */
    if (decoder->pointers &&
        (content_is(content_type, "application/json") || content_is(content_type, "text/json") ||
         content_ends(content_type, "+json")))
        return DL_FORMAT_JSON;
    if (content_is(content_type, "application/protobuf") ||
        content_is(content_type, "application/x-protobuf") ||
        content_is(content_type, "application/vnd.google.protobuf"))
        return format == DL_FORMAT_CONFLUENT ? format : DL_FORMAT_PROTOBUF;
    return format;
}

void dl_event_keep_envelope(struct dl_event_decoder *decoder, struct dl_slice source,
                            struct dl_slice id, struct dl_slice time)
{
    decoder->envelope_time = time;
    decoder->envelope_id = (struct dl_slice){0};
    /* An id is unique for its source alone. What does not fit is no id: never
     * a shortened one, which could make two events look like one. */
    if (id.size == 0 || source.size + 1 + id.size > sizeof decoder->envelope_text) return;
    uint8_t *text = decoder->envelope_text;
    if (source.size) memcpy(text, source.data, source.size);
    text[source.size] = ' ';
    memcpy(text + source.size + 1, id.data, id.size);
    decoder->envelope_id = dl_slice_of(text, source.size + 1 + id.size);
    if (!dl_text_name_valid(decoder->envelope_id)) decoder->envelope_id = (struct dl_slice){0};
}

int dl_event_decode_headers(struct dl_event_decoder *decoder, const struct dl_event_header *headers,
                            uint32_t header_count, struct dl_slice message,
                            struct dl_edge_event *event, const char **field, struct dl_error *error)
{
    if (!decoder->config.cloudevents || header_count == 0)
        return dl_event_decode(decoder, message, event, field, error);
    struct dl_slice version = {0}, id = {0}, source = {0}, time = {0}, type = {0};
    for (uint32_t i = 0; i < header_count; i++) {
        struct dl_slice name = headers[i].name, value = headers[i].value;
        if (header_is(name, "ce_specversion"))
            version = value;
        else if (header_is(name, "ce_id"))
            id = value;
        else if (header_is(name, "ce_source"))
            source = value;
        else if (header_is(name, "ce_time"))
            time = value;
        else if (header_is(name, "content-type") || header_is(name, "content_type"))
            type = value;
    }
    struct dl_decode_fault fault = {field, error};
    decoder->envelope_time = (struct dl_slice){0};
    int status = check_size(decoder, message, &fault);
    if (status) return status;
    if (content_is(type, "application/cloudevents+json")) {
        if (!decoder->pointers)
            return dl_event_fail_message(&fault, DL_ERR_INVALID,
                                         "message is a structured CloudEvent, the source is "
                                         "configured as csv; set source.format: json");
        return dl_event_decode_json(decoder, message, 1, event, &fault);
    }
    if (!version.size) return dl_event_decode(decoder, message, event, field, error);
    dl_event_keep_envelope(decoder, source, id, time);
    status =
        dl_event_decode_as(decoder, dl_event_format_of(decoder, type), message, 0, event, &fault);
    if (status == DL_OK && event->id.size == 0) event->id = decoder->envelope_id;
    return status;
}
