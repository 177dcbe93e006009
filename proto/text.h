/* Text from outside: UTF-8, decimal numbers, and quoting for messages to
 * people. Used by the codecs of proto/ alone. No allocation, no locale. */
#ifndef DL_PROTO_TEXT_H
#define DL_PROTO_TEXT_H

#include <stdint.h>

#include "base/bytes.h"

#define DL_NUMBER_BYTES_MAX 400 /* longest decimal number that is read */

/* 1 if the bytes are valid UTF-8 (no overlong forms, no surrogates). */
int dl_text_utf8_valid(struct dl_slice text);

/* 1 if the bytes are valid UTF-8 and hold no NUL: what a name must be. */
int dl_text_name_valid(struct dl_slice text);

/* 1 if there are only ASCII bytes other than NUL: the usual name, told apart
 * quickly. 0 says nothing. A byte is such a one if it is above zero as a signed
 * number; the last step overlaps the one before it instead of going byte by
 * byte. */
static inline __attribute__((always_inline)) int dl_text_is_plain(struct dl_slice text)
{
    typedef int8_t lanes __attribute__((vector_size(16)));
    const uint8_t *at = text.data;
    size_t size = text.size;
    if (size >= 16) {
        lanes odd = {0}, bytes;
        uint64_t halves[2];
        for (size_t i = 0; i + 16 <= size; i += 16) {
            memcpy(&bytes, at + i, 16);
            odd |= bytes < 1;
        }
        memcpy(&bytes, at + size - 16, 16);
        odd |= bytes < 1;
        memcpy(halves, &odd, 16);
        return (halves[0] | halves[1]) == 0;
    }
    if (size >= 8) {
        const uint64_t ones = 0x0101010101010101ull, highs = 0x8080808080808080ull;
        uint64_t a, b;
        memcpy(&a, at, 8);
        memcpy(&b, at + size - 8, 8);
        return ((a | (a - ones) | b | (b - ones)) & highs) == 0;
    }
    if (size >= 4) {
        const uint32_t ones = 0x01010101u, highs = 0x80808080u;
        uint32_t a, b;
        memcpy(&a, at, 4);
        memcpy(&b, at + size - 4, 4);
        return ((a | (a - ones) | b | (b - ones)) & highs) == 0;
    }
    for (size_t i = 0; i < size; i++)
        if ((int8_t)at[i] < 1) return 0;
    return 1;
}

/* Length 2..4 of the multi-byte UTF-8 sequence at `at`, or 0 if it is broken. */
int dl_text_utf8_sequence(const uint8_t *at, const uint8_t *end);

/* Text cut to about 40 bytes with unprintable bytes as \xNN, for error
 * messages. Always terminated. Returns `out`. */
const char *dl_text_quote(struct dl_slice text, char out[64]);

/* 1 if the text is an integer: optional '-', digits. */
int dl_text_is_integer(struct dl_slice text);

/* Results of the parsers below. */
enum dl_number_result {
    DL_NUMBER_OK = 0,
    DL_NUMBER_SYNTAX = -1,  /* not a decimal number */
    DL_NUMBER_RANGE = -2,   /* does not fit */
    DL_NUMBER_FRACTION = -3 /* integer asked, and it has a fraction */
};

/* A decimal number that is whole, such as 1700000000, 1.7e9 or 12.0, to int64
 * without loss. */
int dl_text_parse_int64(struct dl_slice text, int64_t *value);

/* A finite decimal number, rounded to the nearest float by way of double. NaN
 * and infinities in any spelling are DL_NUMBER_SYNTAX. */
int dl_text_parse_float(struct dl_slice text, float *value);

/* The shortest decimal text (up to the usual 9 and 17 digits) that reads back
 * as the same value; a value that is not finite is "null". Returns `out`. */
const char *dl_text_from_float(float value, char out[32]);
const char *dl_text_from_double(double value, char out[32]);

/* Writes the decimal text of `value` to `out` and returns its length. */
uint32_t dl_text_from_int64(int64_t value, uint8_t out[20]);

#endif
