#include "service/grpc.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <zlib.h>

/* ---- statuses ------------------------------------------------------------------- */

static const char *const status_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};
#define STATUS_COUNT ((int)(sizeof(status_names) / sizeof(status_names[0])))

const char *dl_grpc_status_name(int status)
{
    if (status < 0 || status >= STATUS_COUNT) return "UNKNOWN";
    return status_names[status];
}

enum dl_grpc_status dl_grpc_status_of(int status)
{
    switch (status) {
    case DL_OK:
        return DL_GRPC_OK;
    case DL_ERR_INVALID:
        return DL_GRPC_INVALID_ARGUMENT;
    case DL_ERR_TOO_LARGE:
    case DL_ERR_FULL:
        return DL_GRPC_RESOURCE_EXHAUSTED;
    case DL_ERR_NOT_FOUND:
        return DL_GRPC_NOT_FOUND;
    case DL_ERR_CORRUPT:
        return DL_GRPC_DATA_LOSS;
    case DL_ERR_VERSION:
        return DL_GRPC_FAILED_PRECONDITION;
    case DL_ERR_UNAVAILABLE:
        return DL_GRPC_UNAVAILABLE;
    case DL_ERR_EXISTS:
        return DL_GRPC_ALREADY_EXISTS;
    case DL_ERR_LATE:
        return DL_GRPC_OUT_OF_RANGE;
    case DL_ERR_CANCELLED:
        return DL_GRPC_CANCELLED;
    case DL_ERR_DENIED:
        return DL_GRPC_PERMISSION_DENIED;
    case DL_ERR_UNSUPPORTED:
        return DL_GRPC_UNIMPLEMENTED;
    default:
        return DL_GRPC_INTERNAL;
    }
}

int dl_grpc_status_to(int grpc_status)
{
    switch (grpc_status) {
    case DL_GRPC_OK:
        return DL_OK;
    case DL_GRPC_INVALID_ARGUMENT:
        return DL_ERR_INVALID;
    case DL_GRPC_FAILED_PRECONDITION:
        return DL_ERR_VERSION;
    case DL_GRPC_NOT_FOUND:
        return DL_ERR_NOT_FOUND;
    case DL_GRPC_ALREADY_EXISTS:
        return DL_ERR_EXISTS;
    case DL_GRPC_RESOURCE_EXHAUSTED:
        return DL_ERR_FULL;
    case DL_GRPC_OUT_OF_RANGE:
        return DL_ERR_LATE;
    case DL_GRPC_CANCELLED:
    case DL_GRPC_DEADLINE_EXCEEDED:
        return DL_ERR_CANCELLED;
    case DL_GRPC_PERMISSION_DENIED:
    case DL_GRPC_UNAUTHENTICATED:
        return DL_ERR_DENIED;
    case DL_GRPC_UNIMPLEMENTED:
        return DL_ERR_UNSUPPORTED;
    case DL_GRPC_UNAVAILABLE:
    case DL_GRPC_ABORTED:
        return DL_ERR_UNAVAILABLE;
    case DL_GRPC_DATA_LOSS:
        return DL_ERR_CORRUPT;
    default:
        return DL_ERR_IO;
    }
}

enum dl_grpc_status dl_grpc_status_of_http(int http_status)
{
    switch (http_status) {
    case 400:
        return DL_GRPC_INTERNAL;
    case 401:
        return DL_GRPC_UNAUTHENTICATED;
    case 403:
        return DL_GRPC_PERMISSION_DENIED;
    case 404:
        return DL_GRPC_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return DL_GRPC_UNAVAILABLE;
    default:
        return DL_GRPC_UNKNOWN;
    }
}

enum dl_grpc_status dl_grpc_status_parse(struct dl_slice text)
{
    int value = 0;
    if (text.size == 0 || text.size > 2) return DL_GRPC_UNKNOWN;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return DL_GRPC_UNKNOWN;
        value = value * 10 + (text.data[i] - '0');
    }
    return value < STATUS_COUNT ? (enum dl_grpc_status)value : DL_GRPC_UNKNOWN;
}

/* ---- compression -------------------------------------------------------------------- */

static int is_text(struct dl_slice slice, const char *text)
{
    return slice.size == strlen(text) && memcmp(slice.data, text, slice.size) == 0;
}

int dl_grpc_encoding_parse(struct dl_slice name, enum dl_grpc_encoding *encoding)
{
    if (name.size == 0 || is_text(name, "identity"))
        *encoding = DL_GRPC_IDENTITY;
    else if (is_text(name, "gzip"))
        *encoding = DL_GRPC_GZIP;
    else if (is_text(name, "deflate"))
        *encoding = DL_GRPC_DEFLATE;
    else
        return DL_ERR_UNSUPPORTED;
    return DL_OK;
}

int dl_grpc_accepts_gzip(struct dl_slice list)
{
    size_t at = 0;
    while (at < list.size) {
        while (at < list.size && (list.data[at] == ' ' || list.data[at] == ',')) at++;
        size_t start = at;
        while (at < list.size && list.data[at] != ' ' && list.data[at] != ',') at++;
        if (is_text(dl_slice_of(list.data + start, at - start), "gzip")) return 1;
    }
    return 0;
}

/* zlib's window bits: 15, and 16 more for the gzip container. */
static int window_bits(enum dl_grpc_encoding encoding)
{
    return encoding == DL_GRPC_GZIP ? 15 + 16 : 15;
}

int dl_grpc_decompress(enum dl_grpc_encoding encoding, struct dl_slice in, size_t size_max,
                       struct dl_buf *out)
{
    z_stream stream = {0};
    int status = DL_OK, code;
    size_t start = out->size;
    if (in.size > UINT_MAX) return DL_ERR_TOO_LARGE;
    if (inflateInit2(&stream, window_bits(encoding)) != Z_OK) return DL_ERR_NOMEM;
    stream.next_in = (Bytef *)in.data;
    stream.avail_in = (uInt)in.size;
    do {
        /* One byte beyond the limit tells "exactly at" from "above". */
        size_t room = size_max - (out->size - start) + 1;
        size_t step = room < 16384 ? room : 16384;
        if (dl_buf_reserve(out, step) != DL_OK) {
            status = DL_ERR_NOMEM;
            break;
        }
        stream.next_out = out->data + out->size;
        stream.avail_out = (uInt)step;
        code = inflate(&stream, Z_NO_FLUSH);
        out->size += step - stream.avail_out;
        if (out->size - start > size_max)
            status = DL_ERR_TOO_LARGE;
        else if (code == Z_MEM_ERROR)
            status = DL_ERR_NOMEM;
        else if (code != Z_OK && code != Z_STREAM_END)
            status = DL_ERR_CORRUPT; /* also Z_BUF_ERROR: the stream is cut short */
    } while (status == DL_OK && code != Z_STREAM_END);
    if (status == DL_OK && stream.avail_in > 0) status = DL_ERR_CORRUPT;
    inflateEnd(&stream);
    return status;
}

int dl_grpc_compress(struct dl_slice in, struct dl_buf *out)
{
    z_stream stream = {0};
    if (in.size > UINT_MAX / 2) return DL_ERR_NOMEM;
    /* Level 1: the network is seldom slower than a higher level. */
    if (deflateInit2(&stream, 1, Z_DEFLATED, window_bits(DL_GRPC_GZIP), 8, Z_DEFAULT_STRATEGY) !=
        Z_OK)
        return DL_ERR_NOMEM;
    uLong bound = deflateBound(&stream, (uLong)in.size);
    int status = dl_buf_reserve(out, bound);
    if (status == DL_OK) {
        stream.next_in = (Bytef *)in.data;
        stream.avail_in = (uInt)in.size;
        stream.next_out = out->data + out->size;
        stream.avail_out = (uInt)bound;
        if (deflate(&stream, Z_FINISH) != Z_STREAM_END)
            status = DL_ERR_NOMEM;
        else
            out->size += bound - stream.avail_out;
    }
    deflateEnd(&stream);
    return status;
}

/* ---- framing ---------------------------------------------------------------------------- */

void dl_grpc_prefix(uint8_t prefix[DL_GRPC_PREFIX_BYTES], int compressed, uint32_t size)
{
    prefix[0] = compressed ? 1 : 0;
    prefix[1] = (uint8_t)(size >> 24);
    prefix[2] = (uint8_t)(size >> 16);
    prefix[3] = (uint8_t)(size >> 8);
    prefix[4] = (uint8_t)size;
}

void dl_grpc_reader_deinit(struct dl_grpc_reader *reader)
{
    dl_buf_free(&reader->partial);
    dl_buf_free(&reader->plain);
}

int dl_grpc_reader_at_boundary(const struct dl_grpc_reader *reader)
{
    return reader->prefix_have == 0;
}

size_t dl_grpc_reader_memory(const struct dl_grpc_reader *reader)
{
    return reader->partial.capacity + reader->plain.capacity;
}

static struct dl_slice cut(struct dl_slice *in, size_t size)
{
    struct dl_slice front = {in->data, size};
    in->data += size;
    in->size -= size;
    return front;
}

static int check_prefix(struct dl_grpc_reader *reader, struct dl_error *error)
{
    const uint8_t *prefix = reader->prefix;
    reader->size = (uint32_t)prefix[1] << 24 | (uint32_t)prefix[2] << 16 |
                   (uint32_t)prefix[3] << 8 | prefix[4];
    if (prefix[0] > 1)
        return dl_error_set(error, DL_ERR_CORRUPT, "message flag %u is neither 0 nor 1", prefix[0]);
    if (prefix[0] == 1 && reader->encoding == DL_GRPC_IDENTITY)
        return dl_error_set(error, DL_ERR_INVALID,
                            "a message is flagged as compressed, but grpc-encoding names none");
    if (reader->size > reader->message_bytes_max)
        return dl_error_set(error, DL_ERR_TOO_LARGE,
                            "message of %u bytes is larger than the limit of %zu", reader->size,
                            reader->message_bytes_max);
    return DL_OK;
}

static int decompress(struct dl_grpc_reader *reader, struct dl_slice *message,
                      struct dl_error *error)
{
    dl_buf_clear(&reader->plain);
    int status =
        dl_grpc_decompress(reader->encoding, *message, reader->message_bytes_max, &reader->plain);
    *message = dl_buf_slice(&reader->plain);
    if (status == DL_ERR_TOO_LARGE)
        return dl_error_set(error, status,
                            "message is larger than the limit of %zu bytes when decompressed",
                            reader->message_bytes_max);
    if (status == DL_ERR_CORRUPT)
        return dl_error_set(error, status, "compressed message does not decompress");
    if (status != DL_OK) return dl_error_set(error, status, "out of memory");
    return 1;
}

int dl_grpc_reader_next(struct dl_grpc_reader *reader, struct dl_slice *in,
                        struct dl_slice *message, struct dl_error *error)
{
    while (reader->prefix_have < DL_GRPC_PREFIX_BYTES) {
        if (in->size == 0) return 0;
        reader->prefix[reader->prefix_have++] = *cut(in, 1).data;
        if (reader->prefix_have < DL_GRPC_PREFIX_BYTES) continue;
        int status = check_prefix(reader, error);
        if (status != DL_OK) return status;
        dl_buf_clear(&reader->partial);
    }
    if (reader->partial.size == 0 && in->size >= reader->size) {
        *message = cut(in, reader->size); /* whole in this piece: no copy */
    } else {
        size_t missing = reader->size - reader->partial.size;
        size_t take = missing < in->size ? missing : in->size;
        dl_buf_append(&reader->partial, in->data, take);
        cut(in, take);
        if (reader->partial.failed) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        if (take < missing) return 0;
        *message = dl_buf_slice(&reader->partial);
    }
    reader->prefix_have = 0;
    return reader->prefix[0] ? decompress(reader, message, error) : 1;
}

/* ---- header values -------------------------------------------------------------------------- */

static const struct {
    char letter;
    int64_t ns;
} timeout_units[] = {
    {'n', 1},          {'u', 1000},        {'m', 1000 * 1000},
    {'S', 1000000000}, {'M', 60000000000}, {'H', 3600000000000},
};
#define TIMEOUT_UNITS (sizeof(timeout_units) / sizeof(timeout_units[0]))
#define TIMEOUT_DIGITS_MAX 99999999

int dl_grpc_timeout_parse(struct dl_slice text, int64_t *timeout_ns)
{
    int64_t value = 0;
    if (text.size < 2 || text.size > 9) return DL_ERR_INVALID;
    for (size_t i = 0; i + 1 < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return DL_ERR_INVALID;
        value = value * 10 + (text.data[i] - '0');
    }
    for (size_t i = 0; i < TIMEOUT_UNITS; i++) {
        if (text.data[text.size - 1] != timeout_units[i].letter) continue;
        if (__builtin_mul_overflow(value, timeout_units[i].ns, timeout_ns)) *timeout_ns = INT64_MAX;
        return DL_OK;
    }
    return DL_ERR_INVALID;
}

void dl_grpc_timeout_format(int64_t timeout_ns, char text[16])
{
    int64_t left = timeout_ns > 0 ? timeout_ns : 0;
    size_t unit = 0;
    /* The largest unit that divides it, else the smallest that fits. */
    for (size_t i = TIMEOUT_UNITS; i-- > 0;) {
        if (left % timeout_units[i].ns == 0 && left / timeout_units[i].ns <= TIMEOUT_DIGITS_MAX) {
            unit = i;
            break;
        }
    }
    while (unit + 1 < TIMEOUT_UNITS &&
           left / timeout_units[unit].ns + (left % timeout_units[unit].ns != 0) >
               TIMEOUT_DIGITS_MAX)
        unit++;
    int64_t ns = timeout_units[unit].ns;
    unsigned count = (unsigned)(left / ns + (left % ns != 0));
    snprintf(text, 16, "%u%c", count, timeout_units[unit].letter);
}

static int hex_value(uint8_t digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

void dl_grpc_percent_encode(struct dl_slice text, struct dl_buf *out)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.size; i++) {
        uint8_t byte = text.data[i];
        if (byte >= 0x20 && byte <= 0x7e && byte != '%') {
            dl_buf_u8(out, byte);
        } else {
            uint8_t escape[3] = {'%', (uint8_t)hex[byte >> 4], (uint8_t)hex[byte & 15]};
            dl_buf_append(out, escape, 3);
        }
    }
}

void dl_grpc_percent_decode(struct dl_slice text, struct dl_buf *out)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '%' && i + 2 < text.size) {
            int high = hex_value(text.data[i + 1]), low = hex_value(text.data[i + 2]);
            if (high >= 0 && low >= 0) {
                dl_buf_u8(out, (uint8_t)(high << 4 | low));
                i += 2;
                continue;
            }
        }
        dl_buf_u8(out, text.data[i]);
    }
}

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void dl_grpc_base64_encode(struct dl_slice bytes, struct dl_buf *out)
{
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t group = (uint32_t)bytes.data[i] << 16;
        if (left > 1) group |= (uint32_t)bytes.data[i + 1] << 8;
        if (left > 2) group |= bytes.data[i + 2];
        uint8_t digits[4] = {(uint8_t)base64_digits[group >> 18],
                             (uint8_t)base64_digits[group >> 12 & 63],
                             left > 1 ? (uint8_t)base64_digits[group >> 6 & 63] : '=',
                             left > 2 ? (uint8_t)base64_digits[group & 63] : '='};
        dl_buf_append(out, digits, 4);
    }
}

int dl_grpc_base64_decode(struct dl_slice text, struct dl_buf *out)
{
    uint32_t group = 0;
    int bits = 0;
    while (text.size > 0 && text.data[text.size - 1] == '=') text.size--;
    if (text.size % 4 == 1) return DL_ERR_INVALID;
    for (size_t i = 0; i < text.size; i++) {
        const char *digit = text.data[i] ? strchr(base64_digits, text.data[i]) : NULL;
        if (!digit) return DL_ERR_INVALID;
        group = group << 6 | (uint32_t)(digit - base64_digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            dl_buf_u8(out, (uint8_t)(group >> bits));
        }
    }
    return out->failed ? DL_ERR_NOMEM : DL_OK;
}

int dl_grpc_content_type(struct dl_slice value)
{
    static const char base[] = "application/grpc";
    size_t size = sizeof(base) - 1;
    if (value.size < size || memcmp(value.data, base, size) != 0) return 0;
    if (value.size == size || value.data[size] == ';') return 1;
    if (value.data[size] != '+') return 0;
    struct dl_slice format = {value.data + size + 1, value.size - size - 1};
    const uint8_t *parameters = memchr(format.data, ';', format.size);
    if (parameters) format.size = (size_t)(parameters - format.data);
    return is_text(format, "proto") ? 1 : 2;
}
