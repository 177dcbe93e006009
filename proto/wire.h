/* Protobuf's wire format: reading from a cursor and writing into a buffer.
 * Used inside proto/ alone. */
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

/* ---- reading ------------------------------------------------------------------
 * Each function returns 1, or 0 where the bytes end too early or are broken. */

struct dl_wire_cursor {
    const uint8_t *at, *end;
};

static inline int dl_wire_read_varint_slow(struct dl_wire_cursor *c, int bytes_max, uint64_t *value)
{
    uint64_t result = 0;
    for (int shift = 0; shift < 7 * bytes_max; shift += 7) {
        if (c->at == c->end) return 0;
        uint8_t byte = *c->at++;
        if (shift < 64) result |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = result;
            return 1;
        }
    }
    return 0;
}

/* The varint at the beginning of eight little-endian bytes: its length, or 0 if
 * it is longer. The first byte without the high bit is the last; then the
 * groups of seven bits are moved together, pairwise. */
static inline size_t dl_wire_gather_varint(uint64_t word, uint64_t *value)
{
    uint64_t last = ~word & 0x8080808080808080ull;
    if (!last) return 0;
    word &= (last ^ (last - 1)) & 0x7f7f7f7f7f7f7f7full;
    word = (word & 0x007f007f007f007full) | (word & 0x7f007f007f007f00ull) >> 1;
    word = (word & 0x00003fff00003fffull) | (word & 0x3fff00003fff0000ull) >> 2;
    *value = (word & 0x000000000fffffffull) | (word & 0x0fffffff00000000ull) >> 4;
    return ((size_t)__builtin_ctzll(last) >> 3) + 1;
}

static inline int dl_wire_read_varint(struct dl_wire_cursor *c, uint64_t *value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* Times are six or seven bytes long: at once where there is room. */
    if (c->end - c->at >= 8) {
        uint64_t word;
        memcpy(&word, c->at, 8);
        size_t size = dl_wire_gather_varint(word, value);
        c->at += size;
        if (size) return 1;
    }
#endif
    return dl_wire_read_varint_slow(c, 10, value);
}

/* Tags and lengths are 32-bit numbers: five bytes at most, as other decoders
 * have it. */
static inline int dl_wire_read_short(struct dl_wire_cursor *c, uint64_t *value)
{
    if (c->at < c->end && *c->at < 0x80) {
        *value = *c->at++;
        return 1;
    }
    return dl_wire_read_varint_slow(c, 5, value);
}

static inline int dl_wire_read_bytes(struct dl_wire_cursor *c, struct dl_slice *slice)
{
    uint64_t size;
    if (!dl_wire_read_short(c, &size) || size > (size_t)(c->end - c->at)) return 0;
    *slice = dl_slice_of(c->at, (size_t)size);
    c->at += size;
    return 1;
}

static inline int dl_wire_read_fixed32(struct dl_wire_cursor *c, uint32_t *bits)
{
    if (c->end - c->at < 4) return 0;
    memcpy(bits, c->at, 4);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    *bits = __builtin_bswap32(*bits);
#endif
    c->at += 4;
    return 1;
}

static inline int dl_wire_read_fixed64(struct dl_wire_cursor *c, uint64_t *bits)
{
    if (c->end - c->at < 8) return 0;
    memcpy(bits, c->at, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    *bits = __builtin_bswap64(*bits);
#endif
    c->at += 8;
    return 1;
}

/* The value of a field nobody knows. */
static inline int dl_wire_skip(struct dl_wire_cursor *c, uint64_t tag)
{
    uint64_t wide;
    uint32_t narrow;
    struct dl_slice slice;
    switch (tag & 7) {
    case DL_WIRE_VARINT:
        return dl_wire_read_varint(c, &wide);
    case DL_WIRE_BYTES:
        return dl_wire_read_bytes(c, &slice);
    case DL_WIRE_FIXED64:
        return dl_wire_read_fixed64(c, &wide);
    case DL_WIRE_FIXED32:
        return dl_wire_read_fixed32(c, &narrow);
    default:
        return 0; /* groups are long gone from protobuf */
    }
}

/* ---- writing --------------------------------------------------------------------
 * Check out->failed at the end. */

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
