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

static int add_features(struct dl_edge_event *event, struct dl_slice packed,
                        const struct dl_decode_fault *fault)
{
    size_t count = packed.size / 4;
    if (packed.size % 4)
        return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_INVALID,
                             "features are %zu bytes long, not a multiple of 4", packed.size);
    if (count > DL_EVENT_FEATURES_MAX - event->feature_count)
        return too_many(event->feature_count + count, fault);
    float *to = event->features + event->feature_count;
    uint32_t odd = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, packed.data + 4 * i, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        bits = __builtin_bswap32(bits);
#endif
        memcpy(to + i, &bits, 4);
        odd |= (bits & EXPONENT_BITS) == EXPONENT_BITS;
    }
    for (size_t i = 0; odd && i < count; i++) {
        uint32_t bits;
        memcpy(&bits, to + i, 4);
        if (!is_finite(bits))
            return fail_number("features", event->feature_count + (uint32_t)i, DL_FIELD_FEATURES,
                               to[i], fault);
    }
    event->feature_count += (uint32_t)count;
    return DL_OK;
}

int dl_event_decode_protobuf(struct dl_event_decoder *decoder, struct dl_slice message,
                             struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    struct dl_wire_cursor c = {message.data, message.data + message.size};
    uint64_t value, tag;
    uint32_t bits;
    struct dl_slice slice;
    int has_time = 0, status;
    /* Integer names are written out at the end, when it is known which counts. */
    int64_t src_number = 0, dst_number = 0;
    int src_is_number = 0, dst_is_number = 0;

    event->src = event->dst = event->type = event->id = (struct dl_slice){0};
    event->time = 0;
    event->weight = 1;
    event->has_weight = 0;
    event->feature_count = 0;
    while (c.at < c.end) {
        tag = *c.at++;
        if (tag >= 0x80) {
            c.at--;
            if (!dl_wire_read_varint_slow(&c, &tag))
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
