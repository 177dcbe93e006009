/* Growable buffer and bounds-checked reader. */
#include "base/bytes.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void dl_buf_free(struct dl_buf *buf)
{
    free(buf->data);
    *buf = (struct dl_buf){0};
}

void dl_buf_clear(struct dl_buf *buf)
{
    buf->size = 0;
    buf->failed = 0;
}

int dl_buf_reserve(struct dl_buf *buf, size_t extra)
{
    if (buf->failed) return DL_ERR_NOMEM;
    if (extra <= buf->capacity - buf->size) return DL_OK;
    size_t need = buf->size + extra;
    size_t capacity = buf->capacity ? buf->capacity : 64;
    if (need < buf->size || need > SIZE_MAX / 2) goto fail;
    while (capacity < need) capacity *= 2;
    uint8_t *data = realloc(buf->data, capacity);
    if (!data) goto fail;
    buf->data = data;
    buf->capacity = capacity;
    return DL_OK;
fail:
    buf->failed = 1;
    return DL_ERR_NOMEM;
}

void dl_buf_append(struct dl_buf *buf, const void *data, size_t size)
{
    if (size == 0 || dl_buf_reserve(buf, size) != DL_OK) return;
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
}

void dl_buf_text(struct dl_buf *buf, const char *text)
{
    dl_buf_append(buf, text, strlen(text));
}

void dl_buf_printf(struct dl_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size >= 0 && dl_buf_reserve(buf, (size_t)size + 1) == DL_OK) {
        vsnprintf((char *)buf->data + buf->size, (size_t)size + 1, format, again);
        buf->size += (size_t)size;
    }
    va_end(again);
}

static void put_le(struct dl_buf *buf, uint64_t value, int bytes)
{
    uint8_t out[8];
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
    dl_buf_append(buf, out, (size_t)bytes);
}

void dl_buf_u8(struct dl_buf *buf, uint8_t value)
{
    dl_buf_append(buf, &value, 1);
}
void dl_buf_u16(struct dl_buf *buf, uint16_t value)
{
    put_le(buf, value, 2);
}
void dl_buf_u32(struct dl_buf *buf, uint32_t value)
{
    put_le(buf, value, 4);
}
void dl_buf_u64(struct dl_buf *buf, uint64_t value)
{
    put_le(buf, value, 8);
}

void dl_buf_f32(struct dl_buf *buf, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    dl_buf_u32(buf, bits);
}

void dl_buf_f64(struct dl_buf *buf, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, 8);
    dl_buf_u64(buf, bits);
}

void dl_buf_varint(struct dl_buf *buf, uint64_t value)
{
    uint8_t out[10];
    int n = 0;
    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    dl_buf_append(buf, out, (size_t)n);
}

static uint64_t get_le(struct dl_reader *reader, int bytes)
{
    if (reader->failed || dl_reader_left(reader) < (size_t)bytes) {
        reader->failed = 1;
        return 0;
    }
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)reader->at[i] << (8 * i);
    reader->at += bytes;
    return value;
}

uint8_t dl_read_u8(struct dl_reader *reader)
{
    return (uint8_t)get_le(reader, 1);
}
uint16_t dl_read_u16(struct dl_reader *reader)
{
    return (uint16_t)get_le(reader, 2);
}
uint32_t dl_read_u32(struct dl_reader *reader)
{
    return (uint32_t)get_le(reader, 4);
}
uint64_t dl_read_u64(struct dl_reader *reader)
{
    return get_le(reader, 8);
}

float dl_read_f32(struct dl_reader *reader)
{
    uint32_t bits = dl_read_u32(reader);
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

double dl_read_f64(struct dl_reader *reader)
{
    uint64_t bits = dl_read_u64(reader);
    double value;
    memcpy(&value, &bits, 8);
    return value;
}

uint64_t dl_read_varint(struct dl_reader *reader)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = dl_read_u8(reader);
        if (reader->failed) return 0;
        if (shift == 63 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    reader->failed = 1;
    return 0;
}

struct dl_slice dl_read_slice(struct dl_reader *reader, size_t size)
{
    if (reader->failed || dl_reader_left(reader) < size) {
        reader->failed = 1;
        return (struct dl_slice){NULL, 0};
    }
    struct dl_slice slice = {reader->at, size};
    reader->at += size;
    return slice;
}
