/* Writing protobuf's wire format into a buffer. Used by the encoders of
 * proto/ alone. Check out->failed at the end. */
#ifndef DL_PROTO_WIRE_H
#define DL_PROTO_WIRE_H

#include <stdint.h>

#include "base/bytes.h"

enum dl_wire_type {
    DL_WIRE_VARINT = 0,
    DL_WIRE_FIXED64 = 1,
    DL_WIRE_BYTES = 2,
    DL_WIRE_FIXED32 = 5
};

static inline void dl_wire_tag(struct dl_buf *out, uint32_t number, enum dl_wire_type type)
{
    dl_buf_varint(out, (uint64_t)number << 3 | (uint64_t)type);
}

static inline void dl_wire_varint(struct dl_buf *out, uint32_t number, uint64_t value)
{
    dl_wire_tag(out, number, DL_WIRE_VARINT);
    dl_buf_varint(out, value);
}

static inline void dl_wire_bytes(struct dl_buf *out, uint32_t number, struct dl_slice bytes)
{
    dl_wire_tag(out, number, DL_WIRE_BYTES);
    dl_buf_varint(out, bytes.size);
    dl_buf_append(out, bytes.data, bytes.size);
}

static inline void dl_wire_float(struct dl_buf *out, uint32_t number, float value)
{
    dl_wire_tag(out, number, DL_WIRE_FIXED32);
    dl_buf_f32(out, value);
}

static inline void dl_wire_double(struct dl_buf *out, uint32_t number, double value)
{
    dl_wire_tag(out, number, DL_WIRE_FIXED64);
    dl_buf_f64(out, value);
}

/* A message inside a message: begin, write its fields, end. One byte is kept
 * for the length; a longer one moves the content up. */
static inline size_t dl_wire_begin(struct dl_buf *out, uint32_t number)
{
    dl_wire_tag(out, number, DL_WIRE_BYTES);
    dl_buf_u8(out, 0);
    return out->size;
}

static inline void dl_wire_end(struct dl_buf *out, size_t begin)
{
    if (out->failed) return;
    size_t size = out->size - begin, extra = 0;
    for (size_t rest = size; rest >= 0x80; rest >>= 7) extra++;
    if (extra) {
        if (dl_buf_reserve(out, extra)) return;
        memmove(out->data + begin + extra, out->data + begin, size);
        out->size += extra;
    }
    uint8_t *at = out->data + begin - 1;
    for (size_t rest = size;; rest >>= 7) {
        if (rest < 0x80) {
            *at = (uint8_t)rest;
            break;
        }
        *at++ = (uint8_t)(rest | 0x80);
    }
}

#endif
