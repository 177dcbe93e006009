/* Borrowed byte ranges and a growable buffer. */
#ifndef DL_BASE_BYTES_H
#define DL_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that somebody else owns. Not NUL-terminated. data may be NULL when size is 0. */
struct dl_slice {
    const uint8_t *data;
    size_t size;
};

static inline struct dl_slice dl_slice_of(const void *data, size_t size)
{
    return (struct dl_slice){(const uint8_t *)data, size};
}
static inline struct dl_slice dl_slice_text(const char *text)
{
    return (struct dl_slice){(const uint8_t *)text, strlen(text)};
}
static inline int dl_slice_equal(struct dl_slice a, struct dl_slice b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

/* A growable buffer. Zero-initialised is empty and valid. After a failed
 * allocation `failed` stays set and later appends do nothing, so a writer can
 * append freely and check once at the end. */
struct dl_buf {
    uint8_t *data;
    size_t size, capacity;
    int failed;
};

void dl_buf_free(struct dl_buf *buf);
/* Empties it and keeps the memory. */
void dl_buf_clear(struct dl_buf *buf);
/* Makes room for `extra` more bytes. DL_OK or DL_ERR_NOMEM. */
int dl_buf_reserve(struct dl_buf *buf, size_t extra);
void dl_buf_append(struct dl_buf *buf, const void *data, size_t size);
void dl_buf_text(struct dl_buf *buf, const char *text);
void dl_buf_printf(struct dl_buf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fixed-width little-endian integers and IEEE floats, and LEB128 varints. */
void dl_buf_u8(struct dl_buf *buf, uint8_t value);
void dl_buf_u16(struct dl_buf *buf, uint16_t value);
void dl_buf_u32(struct dl_buf *buf, uint32_t value);
void dl_buf_u64(struct dl_buf *buf, uint64_t value);
void dl_buf_f32(struct dl_buf *buf, float value);
void dl_buf_f64(struct dl_buf *buf, double value);
void dl_buf_varint(struct dl_buf *buf, uint64_t value);

/* The same without a check, for loops that reserved the most they can need:
 * write at `at`, return what follows. A varint takes up to 10 bytes. */
static inline uint8_t *dl_put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}
static inline uint8_t *dl_put_f32(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(bits >> (8 * i));
    return at + 4;
}

/* Differences as varints: small ones of either sign become small numbers. They
 * are taken modulo 2^64, so any two values have one. */
static inline uint64_t dl_zigzag(uint64_t difference)
{
    return (difference << 1) ^ (uint64_t)((int64_t)difference >> 63);
}
static inline uint64_t dl_unzigzag(uint64_t value)
{
    return (value >> 1) ^ (uint64_t) - (int64_t)(value & 1);
}

static inline struct dl_slice dl_buf_slice(const struct dl_buf *buf)
{
    return (struct dl_slice){buf->data, buf->size};
}

/* A reader over a slice. `failed` is set by the first read past the end and
 * all later reads give zero; check it once at the end. */
struct dl_reader {
    const uint8_t *at, *end;
    int failed;
};

static inline struct dl_reader dl_reader_of(struct dl_slice slice)
{
    return (struct dl_reader){slice.data, slice.data ? slice.data + slice.size : NULL, 0};
}
static inline size_t dl_reader_left(const struct dl_reader *reader)
{
    return (size_t)(reader->end - reader->at);
}
uint8_t dl_read_u8(struct dl_reader *reader);
uint16_t dl_read_u16(struct dl_reader *reader);
uint32_t dl_read_u32(struct dl_reader *reader);
uint64_t dl_read_u64(struct dl_reader *reader);
float dl_read_f32(struct dl_reader *reader);
double dl_read_f64(struct dl_reader *reader);
uint64_t dl_read_varint(struct dl_reader *reader);
/* The same, faster where most are short. */
static inline uint64_t dl_take_varint(struct dl_reader *reader)
{
    if (reader->at < reader->end && *reader->at < 0x80 && !reader->failed) return *reader->at++;
    return dl_read_varint(reader);
}
/* Borrows `size` bytes; an empty slice past the end. */
struct dl_slice dl_read_slice(struct dl_reader *reader, size_t size);

#endif
