/* The encoder, the decoder and the JSON writer for all message types.
 *
 * Decoding a message looks at its fields twice: first to count the elements of
 * each list, check the counts against their limits and take memory of exactly
 * that size; then to fill everything in. */
#include "proto/message.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "proto/json_scan.h"
#include "proto/text.h"
#include "proto/wire.h"

#define FIELDS_MAX 64

/* ---- the struct's members ------------------------------------------------------ */

static const void *place(const void *message, uint32_t offset)
{
    return (const char *)message + offset;
}

static uint32_t load32(const void *message, uint32_t offset)
{
    uint32_t value;
    memcpy(&value, place(message, offset), sizeof value);
    return value;
}

static uint64_t load64(const void *message, uint32_t offset)
{
    uint64_t value;
    memcpy(&value, place(message, offset), sizeof value);
    return value;
}

static float load_float(const void *message, uint32_t offset)
{
    float value;
    memcpy(&value, place(message, offset), sizeof value);
    return value;
}

static double load_double(const void *message, uint32_t offset)
{
    double value;
    memcpy(&value, place(message, offset), sizeof value);
    return value;
}

static const void *load_pointer(const void *message, uint32_t offset)
{
    const void *value;
    memcpy(&value, place(message, offset), sizeof value);
    return value;
}

static struct dl_slice load_text(const struct dl_field *field, const void *message)
{
    struct dl_slice slice;
    switch (field->kind) {
    case DL_KIND_CSTRING: {
        const char *text = load_pointer(message, field->offset);
        return text ? dl_slice_text(text) : (struct dl_slice){0};
    }
    case DL_KIND_CHARS:
        return dl_slice_text(place(message, field->offset));
    default:
        memcpy(&slice, place(message, field->offset), sizeof slice);
        return slice;
    }
}

static int is_present(const struct dl_field *field, const void *message)
{
    return field->present == DL_FIELD_NOWHERE || load32(message, field->present) != 0;
}

/* ---- protobuf out --------------------------------------------------------------- */

/* Scalars without presence are left out when they are zero. */
static void encode_number(const struct dl_field *field, const void *message, struct dl_buf *out)
{
    int always = field->present != DL_FIELD_NOWHERE;
    uint64_t bits;
    switch (field->kind) {
    case DL_KIND_BOOL:
        bits = load32(message, field->offset) != 0;
        break;
    case DL_KIND_I32:
    case DL_KIND_ENUM: /* negative values take ten bytes, as protobuf has it */
        bits = (uint64_t)(int64_t)(int32_t)load32(message, field->offset);
        break;
    case DL_KIND_U32:
    case DL_KIND_FLAGS:
        bits = load32(message, field->offset);
        break;
    case DL_KIND_FLOAT:
        /* By bits: minus zero is not the default. */
        if (always || load32(message, field->offset))
            dl_wire_float(out, field->number, load_float(message, field->offset));
        return;
    case DL_KIND_DOUBLE:
        if (always || load64(message, field->offset))
            dl_wire_double(out, field->number, load_double(message, field->offset));
        return;
    default:
        bits = load64(message, field->offset);
        break;
    }
    if (always || bits) dl_wire_varint(out, field->number, bits);
}

static void encode_list(const struct dl_field *field, const void *message, struct dl_buf *out)
{
    uint32_t count = load32(message, field->count);
    const void *list = load_pointer(message, field->offset);
    if (count == 0) return;
    if (field->kind == DL_KIND_FLOATS || field->kind == DL_KIND_DOUBLES) {
        int wide = field->kind == DL_KIND_DOUBLES;
        dl_wire_tag(out, field->number, DL_WIRE_BYTES);
        dl_buf_varint(out, (uint64_t)count * (wide ? 8 : 4));
        for (uint32_t i = 0; i < count; i++) {
            if (wide)
                dl_buf_f64(out, ((const double *)list)[i]);
            else
                dl_buf_f32(out, ((const float *)list)[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (field->kind == DL_KIND_MESSAGES) {
            size_t begin = dl_wire_begin(out, field->number);
            dl_message_encode(field->type, (const char *)list + (size_t)i * field->type->size, out);
            dl_wire_end(out, begin);
        } else {
            dl_wire_bytes(out, field->number, ((const struct dl_slice *)list)[i]);
        }
    }
}

void dl_message_encode(const struct dl_message_type *type, const void *message, struct dl_buf *out)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        if (!is_present(field, message)) continue;
        if (field->kind == DL_KIND_MESSAGE) {
            size_t begin = dl_wire_begin(out, field->number);
            dl_message_encode(field->type, place(message, field->offset), out);
            dl_wire_end(out, begin);
        } else if (field->kind >= DL_KIND_STRINGS) {
            encode_list(field, message, out);
        } else if (field->kind <= DL_KIND_CHARS) {
            struct dl_slice text = load_text(field, message);
            if (text.size || field->present != DL_FIELD_NOWHERE)
                dl_wire_bytes(out, field->number, text);
        } else {
            encode_number(field, message, out);
        }
    }
}

/* ---- protobuf in ---------------------------------------------------------------- */

static const struct dl_field *find_field(const struct dl_message_type *type, uint64_t number,
                                         uint32_t *index)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        if (type->fields[i].number != number) continue;
        *index = i;
        return &type->fields[i];
    }
    return NULL;
}

static enum dl_wire_type wire_of(const struct dl_field *field)
{
    switch (field->kind) {
    case DL_KIND_BOOL:
    case DL_KIND_ENUM:
    case DL_KIND_FLAGS:
    case DL_KIND_U32:
    case DL_KIND_I32:
    case DL_KIND_U64:
    case DL_KIND_I64:
        return DL_WIRE_VARINT;
    case DL_KIND_FLOAT:
    case DL_KIND_FLOATS:
        return DL_WIRE_FIXED32;
    case DL_KIND_DOUBLE:
    case DL_KIND_DOUBLES:
        return DL_WIRE_FIXED64;
    default:
        return DL_WIRE_BYTES;
    }
}

static size_t element_size(const struct dl_field *field)
{
    switch (field->kind) {
    case DL_KIND_FLOATS:
        return 4;
    case DL_KIND_DOUBLES:
        return 8;
    case DL_KIND_MESSAGES:
        return field->type->size;
    default:
        return sizeof(struct dl_slice);
    }
}

/* The next field's tag. 1; 0 at the end; -1 if it is broken. */
static int next_tag(struct dl_wire_cursor *c, uint64_t *tag)
{
    if (c->at == c->end) return 0;
    if (!dl_wire_read_short(c, tag)) return -1;
    return *tag >> 3 == 0 || *tag >> 3 > 0x1fffffff ? -1 : 1;
}

static int is_packed(const struct dl_field *field, uint64_t tag)
{
    return (tag & 7) == DL_WIRE_BYTES &&
           (field->kind == DL_KIND_FLOATS || field->kind == DL_KIND_DOUBLES);
}

static int truncated(const struct dl_message_type *type, const struct dl_field *field,
                     struct dl_error *error)
{
    return dl_error_set(error, DL_ERR_INVALID, "%s is truncated or not protobuf%s%s", type->name,
                        field ? " at " : "", field ? field->name : "");
}

/* First look: the wire types, and how long each list is. */
static int count_elements(const struct dl_message_type *type, struct dl_slice bytes,
                          uint64_t counts[FIELDS_MAX], struct dl_error *error)
{
    struct dl_wire_cursor c = {bytes.data, bytes.data + bytes.size};
    uint64_t tag;
    int more;
    while ((more = next_tag(&c, &tag)) > 0) {
        uint32_t i = 0;
        const struct dl_field *field = find_field(type, tag >> 3, &i);
        const uint8_t *at = c.at;
        if (!field) {
            if (!dl_wire_skip(&c, tag)) return truncated(type, NULL, error);
            continue;
        }
        if ((tag & 7) != wire_of(field) && !is_packed(field, tag))
            return dl_error_set(error, DL_ERR_INVALID, "%s has wire type %d, not that of %s",
                                field->name, (int)(tag & 7), type->name);
        if (!dl_wire_skip(&c, tag)) return truncated(type, field, error);
        if (is_packed(field, tag)) {
            struct dl_wire_cursor inside = {at, c.at};
            struct dl_slice packed = {0};
            dl_wire_read_bytes(&inside, &packed);
            if (packed.size % element_size(field)) return truncated(type, field, error);
            counts[i] += packed.size / element_size(field);
        } else {
            counts[i]++;
        }
    }
    return more < 0 ? truncated(type, NULL, error) : DL_OK;
}

static int take_lists(const struct dl_message_type *type, const uint64_t counts[FIELDS_MAX],
                      void *message, struct dl_arena *arena, struct dl_error *error)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        if (field->kind < DL_KIND_STRINGS || counts[i] == 0) continue;
        if (field->count_limit && counts[i] > field->count_limit)
            return dl_error_set(error, DL_ERR_TOO_LARGE,
                                "%s has %" PRIu64 " elements, the limit is %" PRIu32, field->name,
                                counts[i], field->count_limit);
        size_t bytes;
        if (__builtin_mul_overflow(counts[i], element_size(field), &bytes)) bytes = SIZE_MAX;
        const void *list = bytes == SIZE_MAX ? NULL : dl_arena_take(arena, bytes);
        if (!list)
            return dl_error_set(error, DL_ERR_NOMEM, "no memory for %" PRIu64 " elements of %s",
                                counts[i], field->name);
        memcpy((char *)message + field->offset, &list, sizeof list);
    }
    return DL_OK;
}

/* "src" of a message, "nodes[3]" of a list. */
static const char *name_of(const struct dl_field *field, uint32_t index, char out[80])
{
    if (field->kind < DL_KIND_STRINGS)
        snprintf(out, 80, "%s", field->name);
    else
        snprintf(out, 80, "%s[%" PRIu32 "]", field->name, index);
    return out;
}

static int check_text(const struct dl_field *field, uint32_t index, struct dl_slice text,
                      struct dl_error *error)
{
    char shown[64], name[80];
    if (field->kind == DL_KIND_BYTES || field->kind == DL_KIND_BYTES_LIST) return DL_OK;
    size_t limit = field->kind == DL_KIND_CHARS ? field->limit - 1 : field->limit;
    if (limit && text.size > limit)
        return dl_error_set(
            error, DL_ERR_TOO_LARGE, "%s is %zu bytes long, the limit is %zu (\"%s\")",
            name_of(field, index, name), text.size, limit, dl_text_quote(text, shown));
    if (!dl_text_name_valid(text))
        return dl_error_set(error, DL_ERR_INVALID, "%s \"%s\" is not UTF-8 without NUL",
                            name_of(field, index, name), dl_text_quote(text, shown));
    if (text.size == 0 && field->flags & (DL_FIELD_REQUIRED | DL_FIELD_NONEMPTY))
        return dl_error_set(error, DL_ERR_INVALID, "%s is missing or empty",
                            name_of(field, index, name));
    return DL_OK;
}

static int check_double(const struct dl_field *field, double value, struct dl_error *error)
{
    if (!(field->flags & DL_FIELD_FINITE) || isfinite(value)) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "%s is not a finite number", field->name);
}

static int decode_text(const struct dl_field *field, struct dl_slice text, char *to,
                       struct dl_arena *arena, struct dl_error *error)
{
    int status = check_text(field, 0, text, error);
    if (status) return status;
    if (field->kind == DL_KIND_CHARS) {
        memset(to, 0, field->limit);
        if (text.size) memcpy(to, text.data, text.size);
    } else if (field->kind == DL_KIND_CSTRING) {
        char *copy = dl_arena_take(arena, text.size + 1);
        if (!copy) return dl_error_set(error, DL_ERR_NOMEM, "no memory for %s", field->name);
        if (text.size) memcpy(copy, text.data, text.size);
        const void *pointer = copy;
        memcpy(to, &pointer, sizeof pointer);
    } else {
        memcpy(to, &text, sizeof text);
    }
    return DL_OK;
}

static int decode_varint(const struct dl_field *field, uint64_t value, char *to,
                         struct dl_error *error)
{
    uint32_t narrow = (uint32_t)value;
    if (field->kind == DL_KIND_BOOL) narrow = value != 0;
    /* As protobuf has it, 32-bit numbers take the low bits of a longer one;
     * here that would let an absurd number pass for a small one. */
    if ((field->kind == DL_KIND_U32 || field->kind == DL_KIND_FLAGS) &&
        (value > UINT32_MAX || (field->limit && value > field->limit)))
        return dl_error_set(error, DL_ERR_INVALID, "%s is %" PRIu64 ", the limit is %" PRIu32,
                            field->name, value, field->limit ? field->limit : UINT32_MAX);
    if (field->kind == DL_KIND_U64 || field->kind == DL_KIND_I64)
        memcpy(to, &value, 8);
    else
        memcpy(to, &narrow, 4);
    return DL_OK;
}

static int decode_element(const struct dl_field *field, uint32_t index, struct dl_slice bytes,
                          char *list, struct dl_arena *arena, struct dl_error *error)
{
    if (field->kind == DL_KIND_MESSAGES) {
        void *element = list + (size_t)index * field->type->size;
        int status = dl_message_decode(field->type, bytes, element, arena, error);
        if (!status || !error) return status;
        char text[sizeof error->text], name[80];
        memcpy(text, error->text, sizeof text);
        return dl_error_set(error, status, "%s.%.400s", name_of(field, index, name), text);
    }
    int status = check_text(field, index, bytes, error);
    if (!status) memcpy(list + (size_t)index * sizeof bytes, &bytes, sizeof bytes);
    return status;
}

static void decode_packed(const struct dl_field *field, struct dl_slice bytes, char *list,
                          uint64_t *done)
{
    struct dl_wire_cursor c = {bytes.data, bytes.data + bytes.size};
    while (c.at < c.end) {
        uint32_t narrow = 0;
        uint64_t wide = 0;
        if (field->kind == DL_KIND_FLOATS) {
            dl_wire_read_fixed32(&c, &narrow);
            memcpy(list + 4 * (*done)++, &narrow, 4);
        } else {
            dl_wire_read_fixed64(&c, &wide);
            memcpy(list + 8 * (*done)++, &wide, 8);
        }
    }
}

/* Second look, one field: the value behind the tag, whose shape the first look
 * has checked. `done`: elements of this list so far. */
static int decode_field(const struct dl_field *field, uint64_t tag, struct dl_wire_cursor *c,
                        void *message, uint64_t *done, struct dl_arena *arena,
                        struct dl_error *error)
{
    char *to = (char *)message + field->offset;
    struct dl_slice bytes = {0};
    uint64_t wide = 0;
    uint32_t narrow = 0;
    float number;
    double precise;
    char *list =
        (char *)(uintptr_t)(field->kind >= DL_KIND_STRINGS ? load_pointer(message, field->offset)
                                                           : NULL);
    switch (tag & 7) {
    case DL_WIRE_VARINT:
        dl_wire_read_varint(c, &wide);
        break;
    case DL_WIRE_FIXED64:
        dl_wire_read_fixed64(c, &wide);
        break;
    case DL_WIRE_FIXED32:
        dl_wire_read_fixed32(c, &narrow);
        break;
    default:
        dl_wire_read_bytes(c, &bytes);
        break;
    }
    switch (field->kind) {
    case DL_KIND_FLOAT:
        memcpy(&number, &narrow, 4);
        memcpy(to, &number, 4);
        return check_double(field, (double)number, error);
    case DL_KIND_DOUBLE:
        memcpy(&precise, &wide, 8);
        memcpy(to, &precise, 8);
        return check_double(field, precise, error);
    case DL_KIND_MESSAGE: {
        memset(to, 0, field->type->size);
        int status = dl_message_decode(field->type, bytes, to, arena, error);
        if (!status || !error) return status;
        char text[sizeof error->text];
        memcpy(text, error->text, sizeof text);
        return dl_error_set(error, status, "%s.%.400s", field->name, text);
    }
    case DL_KIND_FLOATS:
    case DL_KIND_DOUBLES:
        if (is_packed(field, tag))
            decode_packed(field, bytes, list, done);
        else if (field->kind == DL_KIND_FLOATS)
            memcpy(list + 4 * (*done)++, &narrow, 4);
        else
            memcpy(list + 8 * (*done)++, &wide, 8);
        return DL_OK;
    case DL_KIND_STRINGS:
    case DL_KIND_BYTES_LIST:
    case DL_KIND_MESSAGES:
        return decode_element(field, (uint32_t)(*done)++, bytes, list, arena, error);
    case DL_KIND_STRING:
    case DL_KIND_BYTES:
    case DL_KIND_CSTRING:
    case DL_KIND_CHARS:
        return decode_text(field, bytes, to, arena, error);
    default:
        return decode_varint(field, wide, to, error);
    }
}

int dl_message_decode(const struct dl_message_type *type, struct dl_slice bytes, void *message,
                      struct dl_arena *arena, struct dl_error *error)
{
    static const uint8_t nothing[1];
    uint64_t counts[FIELDS_MAX] = {0}, done[FIELDS_MAX] = {0}, tag;
    DL_CHECK(type->field_count < FIELDS_MAX);
    if (!bytes.data) bytes.data = nothing;
    int status = count_elements(type, bytes, counts, error);
    if (status) return status;
    status = take_lists(type, counts, message, arena, error);
    if (status) return status;
    struct dl_wire_cursor c = {bytes.data, bytes.data + bytes.size};
    while (next_tag(&c, &tag) > 0) {
        uint32_t i = 0;
        const struct dl_field *field = find_field(type, tag >> 3, &i);
        if (!field) {
            dl_wire_skip(&c, tag);
            continue;
        }
        status = decode_field(field, tag, &c, message, &done[i], arena, error);
        if (status) return status;
    }
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        uint32_t count = (uint32_t)counts[i], there = counts[i] != 0;
        if (field->kind >= DL_KIND_STRINGS)
            memcpy((char *)message + field->count, &count, sizeof count);
        /* Several fields may hang on one presence (those of a oneof do not). */
        if (there && field->present != DL_FIELD_NOWHERE)
            memcpy((char *)message + field->present, &there, sizeof there);
        if (!there && field->flags & DL_FIELD_REQUIRED)
            return dl_error_set(error, DL_ERR_INVALID, "%s is missing or empty", field->name);
    }
    return DL_OK;
}

/* ---- JSON out ------------------------------------------------------------------- */

static void put_base64(struct dl_buf *out, struct dl_slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    dl_buf_u8(out, '"');
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t bits = (uint32_t)bytes.data[i] << 16;
        if (left > 1) bits |= (uint32_t)bytes.data[i + 1] << 8;
        if (left > 2) bits |= bytes.data[i + 2];
        char text[4] = {digits[bits >> 18], digits[bits >> 12 & 63],
                        left > 1 ? digits[bits >> 6 & 63] : '=',
                        left > 2 ? digits[bits & 63] : '='};
        dl_buf_append(out, text, 4);
    }
    dl_buf_u8(out, '"');
}

static void put_double(struct dl_buf *out, double value)
{
    char text[32];
    dl_buf_text(out, dl_text_from_double(value, text));
}

static void put_float(struct dl_buf *out, float value)
{
    char text[32];
    dl_buf_text(out, dl_text_from_float(value, text));
}

static void put_i64(struct dl_buf *out, int64_t value)
{
    uint8_t text[20];
    dl_buf_append(out, text, dl_text_from_int64(value, text));
}

static void json_enum(const struct dl_field *field, uint32_t value, struct dl_buf *out)
{
    for (uint32_t i = 0; i < field->enum_count; i++) {
        if (field->enum_names[i].value != value) continue;
        dl_json_put_string(out, dl_slice_text(field->enum_names[i].name));
        return;
    }
    put_i64(out, (int32_t)value);
}

static void json_flags(const struct dl_field *field, uint32_t value, struct dl_buf *out)
{
    const char *comma = "";
    dl_buf_u8(out, '[');
    for (uint32_t i = 0; i < field->enum_count; i++) {
        if (!(value & field->enum_names[i].value)) continue;
        dl_buf_text(out, comma);
        dl_json_put_string(out, dl_slice_text(field->enum_names[i].name));
        comma = ",";
    }
    dl_buf_u8(out, ']');
}

static void json_list(const struct dl_field *field, const void *message, struct dl_buf *out)
{
    uint32_t count = load32(message, field->count);
    const void *list = load_pointer(message, field->offset);
    dl_buf_u8(out, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i) dl_buf_u8(out, ',');
        switch (field->kind) {
        case DL_KIND_FLOATS:
            put_float(out, ((const float *)list)[i]);
            break;
        case DL_KIND_DOUBLES:
            put_double(out, ((const double *)list)[i]);
            break;
        case DL_KIND_STRINGS:
            dl_json_put_string(out, ((const struct dl_slice *)list)[i]);
            break;
        case DL_KIND_BYTES_LIST:
            put_base64(out, ((const struct dl_slice *)list)[i]);
            break;
        default:
            dl_message_json(field->type, (const char *)list + (size_t)i * field->type->size, out);
        }
    }
    dl_buf_u8(out, ']');
}

static void json_value(const struct dl_field *field, const void *message, struct dl_buf *out)
{
    uint32_t offset = field->offset;
    char text[24];
    switch (field->kind) {
    case DL_KIND_BYTES:
        put_base64(out, load_text(field, message));
        break;
    case DL_KIND_STRING:
    case DL_KIND_CSTRING:
    case DL_KIND_CHARS:
        dl_json_put_string(out, load_text(field, message));
        break;
    case DL_KIND_BOOL:
        dl_buf_text(out, load32(message, offset) ? "true" : "false");
        break;
    case DL_KIND_ENUM:
        json_enum(field, load32(message, offset), out);
        break;
    case DL_KIND_FLAGS:
        json_flags(field, load32(message, offset), out);
        break;
    case DL_KIND_U32:
        put_i64(out, load32(message, offset));
        break;
    case DL_KIND_I32:
        put_i64(out, (int32_t)load32(message, offset));
        break;
    case DL_KIND_U64:
        snprintf(text, sizeof text, "%" PRIu64, load64(message, offset));
        dl_buf_text(out, text);
        break;
    case DL_KIND_I64:
        put_i64(out, (int64_t)load64(message, offset));
        break;
    case DL_KIND_FLOAT:
        put_float(out, load_float(message, offset));
        break;
    case DL_KIND_DOUBLE:
        put_double(out, load_double(message, offset));
        break;
    case DL_KIND_MESSAGE:
        dl_message_json(field->type, place(message, offset), out);
        break;
    default:
        json_list(field, message, out);
        break;
    }
}

void dl_message_json(const struct dl_message_type *type, const void *message, struct dl_buf *out)
{
    const char *before = "{\"";
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        if (!is_present(field, message)) continue;
        if (field->kind <= DL_KIND_CHARS && load_text(field, message).size == 0) continue;
        dl_buf_text(out, before);
        dl_buf_text(out, field->name);
        dl_buf_text(out, "\":");
        json_value(field, message, out);
        before = ",\"";
    }
    dl_buf_text(out, *before == '{' ? "{}" : "}");
}

int dl_message_to_json(const struct dl_message_type *type, struct dl_slice bytes,
                       struct dl_buf *out, struct dl_error *error)
{
    struct dl_arena arena = {0};
    void *message = dl_arena_take(&arena, type->size);
    int status = message ? dl_message_decode(type, bytes, message, &arena, error)
                         : dl_error_set(error, DL_ERR_NOMEM, "no memory for a message");
    if (status == DL_OK) {
        dl_message_json(type, message, out);
        if (out->failed) status = dl_error_set(error, DL_ERR_NOMEM, "no memory for JSON");
    }
    dl_arena_deinit(&arena);
    return status;
}
