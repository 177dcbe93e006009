/* EdgeEvent from JSON by a mapping of JSON pointers, and out of CloudEvents'
 * JSON envelope. One scan validates the text and notes where the mapped values
 * are; then each is converted. Numbers stay text until then, so integers of
 * any length are taken losslessly as names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/event_decoder.h"
#include "proto/text.h"

/* A mapped place may not be shown in full: it comes from the configuration,
 * and 128 bytes are the limit there. */
struct place {
    char text[DL_MAPPING_BYTES_MAX + 32];
};

int dl_event_json_prepare(struct dl_event_decoder *decoder, struct dl_error *error)
{
    static const char *const members[DL_CE_COUNT] = {
        "/specversion", "/data", "/data_base64", "/id", "/source", "/time", "/datacontenttype"};
    static const char *const usual[] = {"/src",    "/dst", "/time",    "/type",
                                        "/weight", "/id",  "/features"};
    const struct dl_event_mapping *mapping = &decoder->config.mapping;
    const char *paths[DL_JSON_POINTERS_MAX];
    uint32_t n = 0;
    const char *const mapped[] = {mapping->src,  mapping->dst,    mapping->time,
                                  mapping->type, mapping->weight, mapping->id};
    for (uint32_t f = DL_FIELD_SRC; f < DL_FIELD_FEATURES; f++) {
        const char *path = mapped[f][0] ? mapped[f] : usual[f];
        if (strcmp(path, "-") == 0) {
            if (f <= DL_FIELD_TIME)
                return dl_error_set(error, DL_ERR_INVALID,
                                    "mapping of %s is \"-\", but it is needed",
                                    dl_event_field_names[f]);
            continue;
        }
        decoder->pointer_field[n] = (uint8_t)f;
        paths[n++] = path;
    }
    for (uint32_t k = 0; k < (mapping->feature_count ? mapping->feature_count : 1); k++) {
        const char *path = mapping->feature_count ? mapping->features[k] : "/features";
        if (strcmp(path, "-") == 0) continue;
        decoder->pointer_field[n] = (uint8_t)(DL_FIELD_FEATURES + k);
        paths[n++] = path;
    }
    decoder->pointer_count = n;
    for (uint32_t m = 0; m < DL_CE_COUNT; m++) paths[n++] = members[m];
    decoder->pointers = calloc(n, sizeof *decoder->pointers);
    if (!decoder->pointers) return dl_error_set(error, DL_ERR_NOMEM, "no memory for JSON pointers");
    for (uint32_t i = 0; i < n; i++) {
        int status = dl_json_pointer_compile(paths[i], &decoder->pointers[i], error);
        uint32_t f = i < decoder->pointer_count ? decoder->pointer_field[i] : 0;
        if (f > DL_FIELD_FEATURES) f = DL_FIELD_FEATURES;
        if (status) return dl_error_wrap(error, status, "mapping of %s", dl_event_field_names[f]);
    }
    return DL_OK;
}

static const char *configured(const struct dl_event_decoder *decoder, uint32_t field)
{
    const struct dl_event_mapping *m = &decoder->config.mapping;
    const char *const mapped[] = {m->src, m->dst, m->time, m->type, m->weight, m->id};
    if (field >= DL_FIELD_FEATURES)
        return m->feature_count ? m->features[field - DL_FIELD_FEATURES] : "";
    return mapped[field];
}

/* "src" or "src (/user/id)", for messages. */
static const char *place_of(const struct dl_event_decoder *decoder, uint32_t field,
                            struct place *place)
{
    const char *name = dl_event_field_names[field < DL_FIELD_FEATURES ? field : DL_FIELD_FEATURES];
    const char *path = configured(decoder, field);
    if (decoder->config.mapping.feature_count > 1 && field >= DL_FIELD_FEATURES)
        snprintf(place->text, sizeof place->text, "features[%" PRIu32 "] (%s)",
                 field - DL_FIELD_FEATURES, path);
    else if (path[0])
        snprintf(place->text, sizeof place->text, "%s (%s)", name, path);
    else
        snprintf(place->text, sizeof place->text, "%s", name);
    return place->text;
}

static int wrong_kind(const struct dl_event_decoder *decoder, uint32_t field,
                      const struct dl_json_value *value, const char *wanted,
                      const struct dl_decode_fault *fault)
{
    struct place place;
    return dl_event_fail(
        fault, (enum dl_event_field)(field < DL_FIELD_FEATURES ? field : DL_FIELD_FEATURES),
        DL_ERR_INVALID, "%s is %s, %s is wanted", place_of(decoder, field, &place),
        dl_json_kind_name(value->kind), wanted);
}

/* A string's bytes: borrowed, or unescaped into the decoder's text. */
static int take_string(struct dl_event_decoder *decoder, uint32_t field,
                       const struct dl_json_value *value, size_t size_max, struct dl_slice *out,
                       const struct dl_decode_fault *fault)
{
    *out = value->text;
    if (!value->escaped) return DL_OK;
    uint8_t *to = decoder->text + decoder->text_size;
    size_t room = sizeof decoder->text - decoder->text_size;
    if (size_max > room) size_max = room;
    long size = dl_json_unescape(value->text, to, size_max);
    struct place place;
    if (size == DL_ERR_TOO_LARGE)
        return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_TOO_LARGE,
                             "%s is more than %zu bytes long", place_of(decoder, field, &place),
                             size_max);
    if (size < 0)
        return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_INVALID,
                             "%s holds an unpaired surrogate", place_of(decoder, field, &place));
    *out = dl_slice_of(to, (size_t)size);
    decoder->text_size += (uint32_t)size;
    return DL_OK;
}

/* A node or an id: a string, or an integer as its text. */
static int take_name(struct dl_event_decoder *decoder, uint32_t field,
                     const struct dl_json_value *value, struct dl_slice *out,
                     const struct dl_decode_fault *fault)
{
    if (value->kind == DL_JSON_STRING)
        return take_string(decoder, field, value, DL_NAME_BYTES_MAX, out, fault);
    if (value->kind != DL_JSON_NUMBER)
        return wrong_kind(decoder, field, value, "a string or an integer", fault);
    if (!dl_text_is_integer(value->text)) {
        struct place place;
        char shown[64];
        return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_INVALID,
                             "%s is %s, a string or an integer is wanted",
                             place_of(decoder, field, &place), dl_text_quote(value->text, shown));
    }
    *out = value->text;
    if (out->size == 2 && memcmp(out->data, "-0", 2) == 0) *out = dl_slice_of(out->data + 1, 1);
    return DL_OK;
}

static int take_number(struct dl_event_decoder *decoder, uint32_t field,
                       const struct dl_json_value *value, uint32_t index, float *out,
                       const struct dl_decode_fault *fault)
{
    enum dl_event_field plain =
        field < DL_FIELD_FEATURES ? (enum dl_event_field)field : DL_FIELD_FEATURES;
    switch (value->kind) {
    case DL_JSON_NUMBER:
    case DL_JSON_STRING:
        return dl_event_set_number(value->text, plain, index, out, fault);
    case DL_JSON_TRUE:
        *out = 1;
        return DL_OK;
    case DL_JSON_FALSE:
        *out = 0;
        return DL_OK;
    default:
        return wrong_kind(decoder, field, value, "a number", fault);
    }
}

static int take_features(struct dl_event_decoder *decoder, const struct dl_json_value *value,
                         struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    if (value->kind != DL_JSON_ARRAY)
        return wrong_kind(decoder, DL_FIELD_FEATURES, value, "an array of numbers", fault);
    struct dl_json_value element;
    size_t at = 0;
    while (dl_json_array_next(value->text, &at, &element)) {
        if (event->feature_count == DL_EVENT_FEATURES_MAX)
            return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_TOO_LARGE,
                                 "features are more than %d", DL_EVENT_FEATURES_MAX);
        if (element.kind != DL_JSON_NUMBER && element.kind != DL_JSON_STRING)
            return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_INVALID,
                                 "features[%" PRIu32 "] is %s, a number is wanted",
                                 event->feature_count, dl_json_kind_name(element.kind));
        int status = dl_event_set_number(element.text, DL_FIELD_FEATURES, event->feature_count,
                                         &event->features[event->feature_count], fault);
        if (status) return status;
        event->feature_count++;
    }
    return DL_OK;
}

static int take_value(struct dl_event_decoder *decoder, uint32_t field,
                      const struct dl_json_value *value, struct dl_edge_event *event, int *has_time,
                      const struct dl_decode_fault *fault)
{
    struct dl_slice text;
    struct place place;
    int status;
    if (value->kind == DL_JSON_ABSENT || value->kind == DL_JSON_NULL) {
        int required = field <= DL_FIELD_DST ||
                       (field >= DL_FIELD_FEATURES && decoder->config.mapping.feature_count > 1);
        /* A missing time may still come from an envelope; finish knows. */
        if (!required) return DL_OK;
        return dl_event_fail(fault,
                             field <= DL_FIELD_DST ? (enum dl_event_field)field : DL_FIELD_FEATURES,
                             DL_ERR_INVALID, "%s is %s", place_of(decoder, field, &place),
                             value->kind == DL_JSON_NULL ? "null" : "missing");
    }
    switch (field) {
    case DL_FIELD_SRC:
        return take_name(decoder, field, value, &event->src, fault);
    case DL_FIELD_DST:
        return take_name(decoder, field, value, &event->dst, fault);
    case DL_FIELD_ID:
        return take_name(decoder, field, value, &event->id, fault);
    case DL_FIELD_TIME:
        if (value->kind != DL_JSON_STRING && value->kind != DL_JSON_NUMBER)
            return wrong_kind(
                decoder, field, value,
                decoder->config.time.unit == DL_TIME_ISO8601 ? "a date" : "a whole number", fault);
        status = take_string(decoder, field, value, 128, &text, fault);
        if (status) return status;
        *has_time = 1;
        return dl_event_set_time(decoder, text, event, fault);
    case DL_FIELD_TYPE:
        if (value->kind == DL_JSON_STRING)
            return take_string(decoder, field, value, DL_TYPE_BYTES_MAX, &event->type, fault);
        if (value->kind == DL_JSON_ARRAY || value->kind == DL_JSON_OBJECT)
            return wrong_kind(decoder, field, value, "a string", fault);
        event->type = value->text; /* a number, true, false */
        return DL_OK;
    case DL_FIELD_WEIGHT:
        event->has_weight = 1;
        return take_number(decoder, field, value, 0, &event->weight, fault);
    default:
        if (decoder->config.mapping.feature_count <= 1 && value->kind == DL_JSON_ARRAY)
            return take_features(decoder, value, event, fault);
        if (decoder->config.mapping.feature_count == 0)
            return wrong_kind(decoder, field, value, "an array of numbers", fault);
        status = take_number(decoder, field, value, field - DL_FIELD_FEATURES,
                             &event->features[event->feature_count], fault);
        event->feature_count++;
        return status;
    }
}

/* ---- CloudEvents --------------------------------------------------------------- */

static int base64_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Strict: padded, no line breaks. 1, or 0 if it is not base64. */
static int base64_decode(struct dl_slice text, struct dl_buf *out)
{
    if (text.size % 4) return 0;
    for (size_t i = 0; i < text.size; i += 4) {
        const uint8_t *in = text.data + i;
        int last = i + 4 == text.size;
        int pad = last ? (in[3] == '=') + (in[3] == '=' && in[2] == '=') : 0;
        uint32_t bits = 0;
        for (int j = 0; j < 4; j++) {
            int digit = j >= 4 - pad ? 0 : base64_digit(in[j]);
            if (digit < 0) return 0;
            bits = bits << 6 | (uint32_t)digit;
        }
        /* The bits that padding leaves over must be zero. */
        if ((pad == 1 && bits & 0xff) || (pad == 2 && bits & 0xffff)) return 0;
        uint8_t bytes[3] = {(uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)bits};
        dl_buf_append(out, bytes, (size_t)(3 - pad));
    }
    return 1;
}

/* The text of an envelope's string member without escapes; empty otherwise.
 * Escaped ones are rare, and their place is the decoder's text. */
static struct dl_slice member_text(struct dl_event_decoder *decoder,
                                   const struct dl_json_value *value)
{
    struct dl_slice text = {0};
    if (value->kind != DL_JSON_STRING) return text;
    if (!value->escaped) return value->text;
    size_t room = sizeof decoder->text - decoder->text_size;
    uint8_t *to = decoder->text + decoder->text_size;
    long size = dl_json_unescape(value->text, to, room < 300 ? room : 300);
    if (size < 0) return text;
    decoder->text_size += (uint32_t)size;
    return dl_slice_of(to, (size_t)size);
}

static int decode_envelope(struct dl_event_decoder *decoder, const struct dl_json_value *members,
                           struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    /* The scan of the data reuses the values, so what is needed comes first. */
    struct dl_json_value data = members[DL_CE_DATA], base64 = members[DL_CE_DATA_BASE64];
    struct dl_slice type = member_text(decoder, &members[DL_CE_CONTENT_TYPE]);
    struct dl_slice time = member_text(decoder, &members[DL_CE_TIME]);
    struct dl_slice source = member_text(decoder, &members[DL_CE_SOURCE]);
    dl_event_keep_envelope(decoder, source, member_text(decoder, &members[DL_CE_ID]), time);
    uint8_t kept_time[64];
    if (decoder->envelope_time.size && members[DL_CE_TIME].escaped) {
        if (time.size > sizeof kept_time) time.size = sizeof kept_time;
        memcpy(kept_time, time.data, time.size);
        decoder->envelope_time = dl_slice_of(kept_time, time.size);
    }
    int status;
    if (base64.kind != DL_JSON_ABSENT) {
        enum dl_event_format format = dl_event_format_of(decoder, type);
        dl_buf_clear(&decoder->payload);
        if (base64.kind != DL_JSON_STRING || base64.escaped ||
            !base64_decode(base64.text, &decoder->payload))
            return dl_event_fail_message(fault, DL_ERR_INVALID,
                                         "message is a CloudEvent whose data_base64 is not base64");
        if (decoder->payload.failed)
            return dl_event_fail_message(fault, DL_ERR_NOMEM, "no memory for a CloudEvent's data");
        if (decoder->payload.size == 0)
            return dl_event_fail_message(fault, DL_ERR_INVALID,
                                         "message is a CloudEvent with empty data");
        status =
            dl_event_decode_as(decoder, format, dl_buf_slice(&decoder->payload), 0, event, fault);
    } else if (data.kind == DL_JSON_OBJECT || data.kind == DL_JSON_ARRAY) {
        status = dl_event_decode_json(decoder, data.text, 0, event, fault);
    } else {
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message is a CloudEvent whose data is %s, an object or "
                                     "data_base64 is wanted",
                                     dl_json_kind_name(data.kind));
    }
    if (status == DL_OK && event->id.size == 0) event->id = decoder->envelope_id;
    decoder->envelope_time = (struct dl_slice){0};
    return status;
}

int dl_event_decode_json(struct dl_event_decoder *decoder, struct dl_slice message, int unwrap,
                         struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    uint32_t count = decoder->pointer_count;
    const struct dl_json_value *members = decoder->values + count;
    int status = dl_json_scan(message, decoder->pointers, count + (unwrap ? DL_CE_COUNT : 0),
                              decoder->values, fault->error);
    if (status) {
        *fault->field = "message";
        return status;
    }
    decoder->text_size = 0;
    if (unwrap && members[DL_CE_SPECVERSION].kind == DL_JSON_STRING &&
        (members[DL_CE_DATA].kind != DL_JSON_ABSENT ||
         members[DL_CE_DATA_BASE64].kind != DL_JSON_ABSENT))
        return decode_envelope(decoder, members, event, fault);
    event->src = event->dst = event->type = event->id = (struct dl_slice){0};
    event->time = 0;
    event->weight = 1;
    event->has_weight = 0;
    event->feature_count = 0;
    int has_time = 0;
    for (uint32_t i = 0; i < count; i++) {
        status = take_value(decoder, decoder->pointer_field[i], &decoder->values[i], event,
                            &has_time, fault);
        if (status) return status;
    }
    return dl_event_finish(decoder, event, has_time, fault);
}
