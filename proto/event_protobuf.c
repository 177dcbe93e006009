/* EdgeEvent from protobuf, by hand: the hot path of ingest. One pass, no
 * allocation, strings borrowed. Every known field has a one-byte tag, so the
 * switch is over that byte; whatever else comes is skipped by its wire type.
 * As protobuf wants it: the last value of a field counts, features may come
 * packed, single, or in pieces, and unknown fields are fine. */
#include <inttypes.h>

#include "proto/event_decoder.h"
#include "proto/text.h"
#include "proto/wire.h"

#define TAG(number, wire) ((number) << 3 | (wire))

#define EXPONENT_BITS 0x7f800000u

static inline int is_finite(uint32_t bits)
{
    return (bits & EXPONENT_BITS) != EXPONENT_BITS;
}

static __attribute__((cold, noinline)) int broken(const struct dl_wire_cursor *c,
                                                  const uint8_t *start, uint64_t tag,
                                                  const struct dl_decode_fault *fault)
{
    static const uint8_t fields[] = {
        DL_FIELD_NONE,   DL_FIELD_SRC,      DL_FIELD_DST, DL_FIELD_TIME, DL_FIELD_TYPE,
        DL_FIELD_WEIGHT, DL_FIELD_FEATURES, DL_FIELD_ID,  DL_FIELD_SRC,  DL_FIELD_DST};
    static const uint8_t wires[] = {0,
                                    DL_WIRE_BYTES,
                                    DL_WIRE_BYTES,
                                    DL_WIRE_VARINT,
                                    DL_WIRE_BYTES,
                                    DL_WIRE_FIXED32,
                                    DL_WIRE_BYTES,
                                    DL_WIRE_BYTES,
                                    DL_WIRE_VARINT,
                                    DL_WIRE_VARINT};
    uint64_t number = tag >> 3, wire = tag & 7;
    size_t offset = (size_t)(c->at - start);
    if (number == 0 || number > 0x1fffffff)
        return dl_event_fail_message(
            fault, DL_ERR_INVALID, "message is not protobuf: no field number at byte %zu", offset);
    uint8_t field = number <= 9 ? fields[number] : DL_FIELD_NONE;
    if (field != DL_FIELD_NONE && wire != wires[number] &&
        !(field == DL_FIELD_FEATURES && wire == DL_WIRE_FIXED32))
        return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_INVALID,
                             "%s (field %" PRIu64 ") has wire type %" PRIu64
                             ", not that of driftline.v1.EdgeEvent; is the source protobuf of "
                             "another message?",
                             dl_event_field_names[field], number, wire);
    if (wire == 3 || wire == 4 || wire > 5)
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message is not protobuf: field %" PRIu64
                                     " has wire type %" PRIu64 " at byte %zu",
                                     number, wire, offset);
    if (field != DL_FIELD_NONE)
        return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_INVALID,
                             "message is truncated or broken in %s: %zu bytes, field %" PRIu64
                             " runs past the end",
                             dl_event_field_names[field], (size_t)(c->end - start), number);
    return dl_event_fail_message(fault, DL_ERR_INVALID,
                                 "message is truncated or broken: %zu bytes, field %" PRIu64
                                 " runs past the end",
                                 (size_t)(c->end - start), number);
}

static int fail_number(const char *place, uint32_t index, enum dl_event_field field, float value,
                       const struct dl_decode_fault *fault)
{
    const char *what = value != value ? "NaN" : value > 0 ? "infinite" : "minus infinity";
    if (field == DL_FIELD_FEATURES)
        return dl_event_fail(fault, field, DL_ERR_INVALID,
                             "%s[%" PRIu32 "] is %s, a finite number is wanted", place, index,
                             what);
    return dl_event_fail(fault, field, DL_ERR_INVALID, "%s is %s, a finite number is wanted", place,
                         what);
}

static int too_many(uint64_t count, const struct dl_decode_fault *fault)
{
    return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_TOO_LARGE,
                         "%" PRIu64 " features or more, the limit is %d", count,
                         DL_EVENT_FEATURES_MAX);
}

static __attribute__((cold, noinline)) int
fail_features(const struct dl_edge_event *event, size_t count, const struct dl_decode_fault *fault)
{
    for (uint32_t i = event->feature_count; i < event->feature_count + count; i++) {
        uint32_t bits;
        memcpy(&bits, &event->features[i], 4);
        if (!is_finite(bits))
            return fail_number("features", i, DL_FIELD_FEATURES, event->features[i], fault);
    }
    return DL_ERR_INVALID;
}

/* Copies and checks four at a time. */
static inline int add_features(struct dl_edge_event *event, struct dl_slice packed,
                               const struct dl_decode_fault *fault)
{
    typedef uint32_t lanes __attribute__((vector_size(16)));
    size_t count = packed.size / 4, i = 0;
    float *to = event->features + event->feature_count;
    if (packed.size % 4)
        return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_INVALID,
                             "features are %zu bytes long, not a multiple of 4", packed.size);
    if (count > DL_EVENT_FEATURES_MAX - event->feature_count)
        return too_many(event->feature_count + count, fault);
    uint32_t odd = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    lanes odds = {0};
    for (; i + 4 <= count; i += 4) {
        lanes bits;
        memcpy(&bits, packed.data + 4 * i, 16);
        memcpy(to + i, &bits, 16);
        odds |= (lanes)((bits & EXPONENT_BITS) == EXPONENT_BITS);
    }
    uint64_t halves[2];
    memcpy(halves, &odds, 16);
    odd = (halves[0] | halves[1]) != 0;
#endif
    for (; i < count; i++) {
        struct dl_wire_cursor c = {packed.data + 4 * i, packed.data + packed.size};
        uint32_t bits = 0;
        dl_wire_read_fixed32(&c, &bits);
        memcpy(to + i, &bits, 4);
        odd |= !is_finite(bits);
    }
    if (odd) return fail_features(event, count, fault);
    event->feature_count += (uint32_t)count;
    return DL_OK;
}

/* If the next field has this tag and is whole, takes it. Otherwise nothing
 * moves, and the loop over all tags finds out what is wrong. */
static inline int take_bytes(struct dl_wire_cursor *c, uint8_t tag, struct dl_slice *slice)
{
    if (c->at == c->end || *c->at != tag) return 0;
    struct dl_wire_cursor next = {c->at + 1, c->end};
    if (!dl_wire_read_bytes(&next, slice)) return 0;
    *c = next;
    return 1;
}

/* As dl_wire_read_varint, but within a message that begins at `start`: where
 * fewer than eight bytes are left, the last eight bytes of the message are read
 * and those before the number shifted out. The time often stands last. */
static inline int read_varint_within(struct dl_wire_cursor *c, const uint8_t *start,
                                     uint64_t *value)
{
    size_t left = (size_t)(c->end - c->at);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (left < 8 && left > 0 && c->end - start >= 8) {
        uint64_t word;
        memcpy(&word, c->end - 8, 8);
        word >>= 8 * (8 - left);
        size_t size = dl_wire_gather_varint(word, value);
        /* Zeros shifted in look like a last byte. */
        if (size == 0 || size > left) return 0;
        c->at += size;
        return 1;
    }
#endif
    (void)start;
    (void)left;
    return dl_wire_read_varint(c, value);
}

/* Encoders write fields in the order of their numbers. Going through them in
 * that order, each a branch that the processor learns, takes the usual event
 * without a jump through a table. Stops before the first field that is out of
 * order, unusual or broken. */
static inline void take_usual_fields(struct dl_wire_cursor *c, const uint8_t *start,
                                     struct dl_edge_event *event, int *has_time)
{
    struct dl_slice slice;
    struct dl_wire_cursor next;
    uint64_t value;
    uint32_t bits;
    take_bytes(c, TAG(1, DL_WIRE_BYTES), &event->src);
    take_bytes(c, TAG(2, DL_WIRE_BYTES), &event->dst);
    if (c->at < c->end && *c->at == TAG(3, DL_WIRE_VARINT)) {
        next = (struct dl_wire_cursor){c->at + 1, c->end};
        if (read_varint_within(&next, start, &value)) {
            event->time = (int64_t)value;
            *has_time = 1;
            *c = next;
        }
    }
    take_bytes(c, TAG(4, DL_WIRE_BYTES), &event->type);
    if (c->at < c->end && *c->at == TAG(5, DL_WIRE_FIXED32)) {
        next = (struct dl_wire_cursor){c->at + 1, c->end};
        if (dl_wire_read_fixed32(&next, &bits) && is_finite(bits)) {
            memcpy(&event->weight, &bits, 4);
            event->has_weight = 1;
            *c = next;
        }
    }
    next = *c;
    if (take_bytes(&next, TAG(6, DL_WIRE_BYTES), &slice) && slice.size % 4 == 0 &&
        slice.size <= 4 * DL_EVENT_FEATURES_MAX) {
        const char *ignored;
        const struct dl_decode_fault nobody = {&ignored, NULL};
        if (add_features(event, slice, &nobody) == DL_OK) *c = next;
    }
    take_bytes(c, TAG(7, DL_WIRE_BYTES), &event->id);
}

/* All fields in any order, from `c` on. */
static __attribute__((noinline)) int decode_fields(struct dl_event_decoder *decoder,
                                                   struct dl_slice message, struct dl_wire_cursor c,
                                                   struct dl_edge_event *event, int has_time,
                                                   const struct dl_decode_fault *fault)
{
    uint64_t value, tag;
    uint32_t bits;
    struct dl_slice slice;
    int status;
    /* Integer names are written out at the end, when it is known which counts. */
    int64_t src_number = 0, dst_number = 0;
    int src_is_number = 0, dst_is_number = 0;

    while (c.at < c.end) {
        tag = *c.at++;
        if (tag >= 0x80) {
            c.at--;
            if (!dl_wire_read_short(&c, &tag))
                return dl_event_fail_message(fault, DL_ERR_INVALID,
                                             "message is truncated in a field's tag after %zu "
                                             "bytes",
                                             message.size);
        }
        switch (tag) {
        case TAG(1, DL_WIRE_BYTES):
            if (!dl_wire_read_bytes(&c, &event->src)) return broken(&c, message.data, tag, fault);
            src_is_number = 0;
            break;
        case TAG(2, DL_WIRE_BYTES):
            if (!dl_wire_read_bytes(&c, &event->dst)) return broken(&c, message.data, tag, fault);
            dst_is_number = 0;
            break;
        case TAG(3, DL_WIRE_VARINT):
            if (!dl_wire_read_varint(&c, &value)) return broken(&c, message.data, tag, fault);
            event->time = (int64_t)value;
            has_time = 1;
            break;
        case TAG(4, DL_WIRE_BYTES):
            if (!dl_wire_read_bytes(&c, &event->type)) return broken(&c, message.data, tag, fault);
            break;
        case TAG(5, DL_WIRE_FIXED32):
            if (!dl_wire_read_fixed32(&c, &bits)) return broken(&c, message.data, tag, fault);
            memcpy(&event->weight, &bits, 4);
            if (!is_finite(bits))
                return fail_number("weight", 0, DL_FIELD_WEIGHT, event->weight, fault);
            event->has_weight = 1;
            break;
        case TAG(6, DL_WIRE_BYTES):
            if (!dl_wire_read_bytes(&c, &slice)) return broken(&c, message.data, tag, fault);
            status = add_features(event, slice, fault);
            if (status) return status;
            break;
        case TAG(6, DL_WIRE_FIXED32):
            if (c.end - c.at < 4) return broken(&c, message.data, tag, fault);
            status = add_features(event, dl_slice_of(c.at, 4), fault);
            if (status) return status;
            c.at += 4;
            break;
        case TAG(7, DL_WIRE_BYTES):
            if (!dl_wire_read_bytes(&c, &event->id)) return broken(&c, message.data, tag, fault);
            break;
        case TAG(8, DL_WIRE_VARINT):
            if (!dl_wire_read_varint(&c, &value)) return broken(&c, message.data, tag, fault);
            src_number = (int64_t)value;
            src_is_number = 1;
            break;
        case TAG(9, DL_WIRE_VARINT):
            if (!dl_wire_read_varint(&c, &value)) return broken(&c, message.data, tag, fault);
            dst_number = (int64_t)value;
            dst_is_number = 1;
            break;
        default:
            /* Fields up to 9 are known; here they have the wrong wire type. */
            if (tag < TAG(10, 0) || tag >> 3 > 0x1fffffff || !dl_wire_skip(&c, tag))
                return broken(&c, message.data, tag, fault);
        }
    }
    if (src_is_number)
        event->src = dl_slice_of(decoder->text, dl_text_from_int64(src_number, decoder->text));
    if (dst_is_number)
        event->dst =
            dl_slice_of(decoder->text + 20, dl_text_from_int64(dst_number, decoder->text + 20));
    return dl_event_finish(decoder, event, has_time, fault);
}

int dl_event_decode_protobuf(struct dl_event_decoder *decoder, struct dl_slice message,
                             struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    struct dl_wire_cursor c = {message.data, message.data + message.size};
    int has_time = 0;
    event->src = event->dst = event->type = event->id = (struct dl_slice){0};
    event->time = 0;
    event->weight = 1;
    event->has_weight = 0;
    event->feature_count = 0;
    take_usual_fields(&c, message.data, event, &has_time);
    if (c.at == c.end && dl_event_is_sure(decoder, event, has_time)) return DL_OK;
    return decode_fields(decoder, message, c, event, has_time, fault);
}

/* Schema registry framing: 0x00, the schema's id (4 bytes, big-endian), then
 * which message of the schema: a zigzag count and as many zigzag indexes, from
 * the top level down; the usual path [0] is written as a lone 0x00. */
int dl_event_decode_confluent(struct dl_event_decoder *decoder, struct dl_slice message,
                              struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    struct dl_wire_cursor c = {message.data, message.data + message.size};
    const struct dl_event_decoder_config *config = &decoder->config;
    if (message.size < 6)
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message of %zu bytes is too short for schema registry "
                                     "framing (0x00, 4 bytes, indexes)",
                                     message.size);
    if (c.at[0] != 0)
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message begins with 0x%02x, not with the 0x00 of schema "
                                     "registry framing; set source.format: protobuf if there is "
                                     "none",
                                     c.at[0]);
    uint32_t schema = (uint32_t)c.at[1] << 24 | (uint32_t)c.at[2] << 16 | (uint32_t)c.at[3] << 8 |
                      (uint32_t)c.at[4];
    if (config->confluent_schema_id && schema != config->confluent_schema_id)
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "schema id %" PRIu32 ", the source is configured for %" PRIu32,
                                     schema, config->confluent_schema_id);
    c.at += 5;
    uint64_t count, index = 0;
    if (!dl_wire_read_varint(&c, &count))
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message is truncated in its schema indexes");
    /* Zigzag: odd is negative, and a nested message is no event of ours. */
    if (count == 2 && !dl_wire_read_varint(&c, &index))
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message is truncated in its schema indexes");
    if ((count != 0 && count != 2) || index % 2 || index / 2 != config->confluent_message_index)
        return dl_event_fail_message(fault, DL_ERR_INVALID,
                                     "message is not number %" PRIu32
                                     " of its schema (schema id %" PRIu32 ")",
                                     config->confluent_message_index, schema);
    return dl_event_decode_protobuf(decoder, dl_slice_of(c.at, (size_t)(c.end - c.at)), event,
                                    fault);
}
