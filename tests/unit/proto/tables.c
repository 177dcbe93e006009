#include "tables.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

static int expected_type(const struct dl_field *field)
{
    switch (field->kind) {
    case DL_KIND_STRING:
    case DL_KIND_CSTRING:
    case DL_KIND_CHARS:
    case DL_KIND_STRINGS:
        return PROTOBUF_C_TYPE_STRING;
    case DL_KIND_BYTES:
        return PROTOBUF_C_TYPE_BYTES;
    case DL_KIND_BOOL:
        return PROTOBUF_C_TYPE_BOOL;
    case DL_KIND_ENUM:
        return PROTOBUF_C_TYPE_ENUM;
    case DL_KIND_FLAGS:
    case DL_KIND_U32:
        return PROTOBUF_C_TYPE_UINT32;
    case DL_KIND_I32:
        return PROTOBUF_C_TYPE_INT32;
    case DL_KIND_U64:
        return PROTOBUF_C_TYPE_UINT64;
    case DL_KIND_I64:
        return PROTOBUF_C_TYPE_INT64;
    case DL_KIND_FLOAT:
    case DL_KIND_FLOATS:
        return PROTOBUF_C_TYPE_FLOAT;
    case DL_KIND_DOUBLE:
    case DL_KIND_DOUBLES:
        return PROTOBUF_C_TYPE_DOUBLE;
    default:
        return PROTOBUF_C_TYPE_MESSAGE;
    }
}

/* "ALERT_KIND_TEMPORAL_SHIFT" ends in "temporal_shift", whatever the case. */
static int ends_with_name(const char *long_name, const char *name)
{
    size_t a = strlen(long_name), b = strlen(name);
    if (a < b) return 0;
    for (size_t i = 0; i < b; i++)
        if (tolower((unsigned char)long_name[a - b + i]) != name[i]) return 0;
    return 1;
}

void expect_table_agrees(const struct dl_message_type *type,
                         const ProtobufCMessageDescriptor *descriptor)
{
    cr_expect_str_eq(type->name, descriptor->name);
    cr_expect_eq(type->field_count, descriptor->n_fields, "%s", type->name);
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        const ProtobufCFieldDescriptor *other =
            protobuf_c_message_descriptor_get_field(descriptor, field->number);
        cr_assert_not_null(other, "%s has no field %d", type->name, field->number);
        cr_expect_str_eq(field->name, other->name, "%s", type->name);
        cr_expect(i == 0 || type->fields[i - 1].number < field->number, "order of %s", type->name);
        int repeated = field->kind >= DL_KIND_STRINGS;
        cr_expect_eq(repeated, other->label == PROTOBUF_C_LABEL_REPEATED, "%s.%s", type->name,
                     field->name);
        if (field->kind == DL_KIND_BYTES_LIST)
            cr_expect(other->type == PROTOBUF_C_TYPE_BYTES ||
                      other->type == PROTOBUF_C_TYPE_MESSAGE);
        else
            cr_expect_eq(expected_type(field), (int)other->type, "%s.%s", type->name, field->name);
        if (field->kind == DL_KIND_FLOATS || field->kind == DL_KIND_DOUBLES)
            cr_expect(other->flags & PROTOBUF_C_FIELD_FLAG_PACKED || repeated);
        if (field->type) expect_table_agrees(field->type, other->descriptor);
        if (field->kind == DL_KIND_ENUM) {
            const ProtobufCEnumDescriptor *names = other->descriptor;
            cr_expect_eq(field->enum_count, names->n_values, "%s.%s", type->name, field->name);
            for (uint32_t v = 0; v < field->enum_count; v++) {
                const ProtobufCEnumValue *value =
                    protobuf_c_enum_descriptor_get_value(names, (int)field->enum_names[v].value);
                cr_assert_not_null(value);
                cr_expect(ends_with_name(value->name, field->enum_names[v].name), "%s and %s",
                          value->name, field->enum_names[v].name);
            }
        }
    }
}

/* ---- random structs ----------------------------------------------------------------- */

static struct dl_slice random_text(struct dl_rng *rng, uint32_t size_max, struct dl_arena *arena,
                                   int required)
{
    uint32_t size = (uint32_t)dl_rng_below(rng, size_max + 1);
    if (size == 0 && required) size = 1;
    uint8_t *text = dl_arena_take(arena, size + 1);
    for (uint32_t i = 0; i < size; i++) text[i] = (uint8_t)('!' + dl_rng_below(rng, 90));
    return dl_slice_of(text, size);
}

static double random_number(struct dl_rng *rng)
{
    return dl_rng_below(rng, 4) ? dl_rng_normal(rng) : 0;
}

static uint64_t random_bits(struct dl_rng *rng)
{
    return dl_rng_below(rng, 4) ? dl_rng_u64(rng) >> dl_rng_below(rng, 64) : 0;
}

static void fill(const struct dl_message_type *type, char *message, struct dl_rng *rng,
                 struct dl_arena *arena);

static void fill_list(const struct dl_field *field, char *message, struct dl_rng *rng,
                      struct dl_arena *arena)
{
    int required = field->flags & DL_FIELD_REQUIRED;
    uint32_t count = (uint32_t)dl_rng_below(rng, 5) + (required != 0);
    size_t size = field->kind == DL_KIND_FLOATS     ? 4
                  : field->kind == DL_KIND_DOUBLES  ? 8
                  : field->kind == DL_KIND_MESSAGES ? field->type->size
                                                    : sizeof(struct dl_slice);
    char *list = dl_arena_take(arena, size * count);
    for (uint32_t i = 0; i < count; i++) {
        char *to = list + size * i;
        float narrow = (float)random_number(rng);
        double wide = random_number(rng);
        if (field->kind == DL_KIND_FLOATS)
            memcpy(to, &narrow, 4);
        else if (field->kind == DL_KIND_DOUBLES)
            memcpy(to, &wide, 8);
        else if (field->kind == DL_KIND_MESSAGES)
            fill(field->type, to, rng, arena);
        else if (field->kind == DL_KIND_STRINGS)
            *(struct dl_slice *)(void *)to = random_text(rng, 20, arena, 1);
        /* else an empty message or empty bytes */
    }
    const void *pointer = list;
    memcpy(message + field->offset, &pointer, sizeof pointer);
    memcpy(message + field->count, &count, sizeof count);
}

static void fill(const struct dl_message_type *type, char *message, struct dl_rng *rng,
                 struct dl_arena *arena)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const struct dl_field *field = &type->fields[i];
        char *to = message + field->offset;
        if (field->present != DL_FIELD_NOWHERE) {
            int present = (int)dl_rng_below(rng, 2);
            memcpy(message + field->present, &present, sizeof present);
            if (!present) continue;
        }
        uint64_t bits = random_bits(rng);
        uint32_t narrow_bits = (uint32_t)bits;
        if (field->limit) narrow_bits %= field->limit + 1;
        int flag = (int)(bits & 1);
        float narrow = (float)random_number(rng);
        double wide = random_number(rng);
        struct dl_slice text;
        const void *pointer;
        switch (field->kind) {
        case DL_KIND_STRING:
        case DL_KIND_BYTES:
            text = random_text(rng, field->limit && field->limit < 200 ? field->limit : 200, arena,
                               field->flags & DL_FIELD_REQUIRED);
            memcpy(to, &text, sizeof text);
            break;
        case DL_KIND_CSTRING:
            text = random_text(rng, 20, arena, 0);
            pointer = text.data;
            memcpy(to, &pointer, sizeof pointer);
            break;
        case DL_KIND_CHARS:
            text = random_text(rng, field->limit - 1, arena, 0);
            memcpy(to, text.data, text.size + 1);
            break;
        case DL_KIND_BOOL:
            memcpy(to, &flag, 4);
            break;
        case DL_KIND_ENUM:
        case DL_KIND_FLAGS:
        case DL_KIND_U32:
        case DL_KIND_I32:
            memcpy(to, &narrow_bits, 4);
            break;
        case DL_KIND_U64:
        case DL_KIND_I64:
            memcpy(to, &bits, 8);
            break;
        case DL_KIND_FLOAT:
            memcpy(to, &narrow, 4);
            break;
        case DL_KIND_DOUBLE:
            memcpy(to, &wide, 8);
            break;
        case DL_KIND_MESSAGE:
            fill(field->type, to, rng, arena);
            break;
        default:
            fill_list(field, message, rng, arena);
            break;
        }
    }
}

/* protobuf-c keeps one member of a oneof, our struct all: leave one. */
static void keep_one_of_each(const struct dl_message_type *type,
                             const ProtobufCMessageDescriptor *descriptor, char *message)
{
    for (uint32_t i = 0; i < type->field_count; i++) {
        const ProtobufCFieldDescriptor *a =
            protobuf_c_message_descriptor_get_field(descriptor, type->fields[i].number);
        if (!(a->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) continue;
        for (uint32_t j = i + 1; j < type->field_count; j++) {
            const ProtobufCFieldDescriptor *b =
                protobuf_c_message_descriptor_get_field(descriptor, type->fields[j].number);
            int zero = 0, there;
            if (!(b->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) ||
                a->quantifier_offset != b->quantifier_offset)
                continue;
            memcpy(&there, message + type->fields[i].present, sizeof there);
            if (there) memcpy(message + type->fields[j].present, &zero, sizeof zero);
        }
    }
    for (uint32_t i = 0; i < type->field_count; i++) {
        const ProtobufCFieldDescriptor *a =
            protobuf_c_message_descriptor_get_field(descriptor, type->fields[i].number);
        if (type->fields[i].kind == DL_KIND_MESSAGE)
            keep_one_of_each(type->fields[i].type, a->descriptor, message + type->fields[i].offset);
    }
}

static void try_broken(const struct dl_message_type *type, struct dl_slice bytes,
                       struct dl_rng *rng)
{
    struct dl_arena arena = {0};
    void *message = calloc(1, type->size + 1);
    /* Exactly sized copies, so that a read past the end is seen. */
    for (int i = 0; i < 8; i++) {
        size_t size = dl_rng_below(rng, bytes.size + 1);
        uint8_t *copy = malloc(size + 1);
        struct dl_error error = {""};
        if (size) memcpy(copy, bytes.data, size);
        if (i >= 4 && size) copy[dl_rng_below(rng, size)] ^= (uint8_t)(1u << dl_rng_below(rng, 8));
        copy = realloc(copy, size ? size : 1);
        int status = dl_message_decode(type, dl_slice_of(copy, size), message, &arena, &error);
        cr_assert(status == DL_OK || error.text[0]);
        memset(message, 0, type->size);
        dl_arena_reset(&arena);
        free(copy);
    }
    free(message);
    dl_arena_deinit(&arena);
}

void expect_round_trips(const struct dl_message_type *type,
                        const ProtobufCMessageDescriptor *descriptor, uint64_t seed, int rounds)
{
    struct dl_rng rng;
    struct dl_arena arena = {0};
    struct dl_buf ours = {0}, again = {0}, theirs = {0};
    dl_rng_seed(&rng, seed);
    for (int round = 0; round < rounds; round++) {
        char *message = dl_arena_take(&arena, type->size), *back;
        fill(type, message, &rng, &arena);
        keep_one_of_each(type, descriptor, message);
        dl_buf_clear(&ours);
        dl_message_encode(type, message, &ours);
        ProtobufCMessage *unpacked =
            protobuf_c_message_unpack(descriptor, NULL, ours.size, ours.data);
        cr_assert_not_null(unpacked, "%s", type->name);
        dl_buf_clear(&theirs);
        dl_buf_reserve(&theirs, protobuf_c_message_get_packed_size(unpacked) + 1);
        theirs.size = protobuf_c_message_pack(unpacked, theirs.data);
        protobuf_c_message_free_unpacked(unpacked, NULL);
        cr_assert(dl_slice_equal(dl_buf_slice(&ours), dl_buf_slice(&theirs)),
                  "%s, round %d: protobuf-c writes other bytes", type->name, round);
        back = dl_arena_take(&arena, type->size);
        struct dl_error error = {""};
        cr_assert_eq(dl_message_decode(type, dl_buf_slice(&theirs), back, &arena, &error), DL_OK,
                     "%s: %s", type->name, error.text);
        dl_buf_clear(&again);
        dl_message_encode(type, back, &again);
        cr_assert(dl_slice_equal(dl_buf_slice(&ours), dl_buf_slice(&again)),
                  "%s, round %d: not the same after decoding", type->name, round);
        try_broken(type, dl_buf_slice(&ours), &rng);
        dl_arena_reset(&arena);
    }
    dl_arena_deinit(&arena);
    dl_buf_free(&ours);
    dl_buf_free(&again);
    dl_buf_free(&theirs);
}
