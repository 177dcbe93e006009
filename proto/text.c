/* UTF-8, decimal numbers and quoting. */
#include "proto/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

static uint64_t load8(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

int dl_text_utf8_sequence(const uint8_t *at, const uint8_t *end)
{
    size_t left = (size_t)(end - at);
    uint8_t lead = at[0];
    if (lead < 0xc2) return 0;
    if (lead < 0xe0) return left >= 2 && (at[1] & 0xc0) == 0x80 ? 2 : 0;
    if (lead < 0xf0) {
        if (left < 3 || (at[1] & 0xc0) != 0x80 || (at[2] & 0xc0) != 0x80) return 0;
        if (lead == 0xe0 && at[1] < 0xa0) return 0; /* overlong */
        if (lead == 0xed && at[1] > 0x9f) return 0; /* surrogate */
        return 3;
    }
    if (lead > 0xf4 || left < 4) return 0;
    if ((at[1] & 0xc0) != 0x80 || (at[2] & 0xc0) != 0x80 || (at[3] & 0xc0) != 0x80) return 0;
    if (lead == 0xf0 && at[1] < 0x90) return 0; /* overlong */
    if (lead == 0xf4 && at[1] > 0x8f) return 0; /* beyond U+10FFFF */
    return 4;
}

/* `reject_nul` is a constant in both callers. */
static inline int utf8_valid(struct dl_slice text, int reject_nul)
{
    const uint8_t *at = text.data;
    size_t left = text.size;
    while (left) {
        if (left >= 8) {
            uint64_t word = load8(at);
            /* A high bit: a byte that is not ASCII, or (by the borrow) a zero byte. */
            uint64_t odd = reject_nul ? (word | (word - ONES)) & HIGHS : word & HIGHS;
            if (!odd) {
                at += 8;
                left -= 8;
                continue;
            }
        }
        if (*at < 0x80) {
            if (reject_nul && *at == 0) return 0;
            at++;
            left--;
            continue;
        }
        int n = dl_text_utf8_sequence(at, at + left);
        if (!n) return 0;
        at += n;
        left -= (size_t)n;
    }
    return 1;
}

int dl_text_utf8_valid(struct dl_slice text)
{
    return utf8_valid(text, 0);
}

int dl_text_name_valid(struct dl_slice text)
{
    return utf8_valid(text, 1);
}

const char *dl_text_quote(struct dl_slice text, char out[64])
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (n > 40) {
            memcpy(out + n, "...", 3);
            n += 3;
            break;
        }
        uint8_t c = text.data[i];
        int length = c >= 0x80 ? dl_text_utf8_sequence(text.data + i, text.data + text.size)
                               : c >= 0x20 && c < 0x7f && c != '\\';
        if (length) {
            memcpy(out + n, text.data + i, (size_t)length);
            n += (size_t)length;
            i += (size_t)length - 1;
        } else {
            out[n++] = '\\';
            out[n++] = 'x';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    out[n] = 0;
    return out;
}

int dl_text_is_integer(struct dl_slice text)
{
    size_t i = text.size && text.data[0] == '-';
    if (i == text.size) return 0;
    for (; i < text.size; i++)
        if (text.data[i] < '0' || text.data[i] > '9') return 0;
    return 1;
}

uint32_t dl_text_from_int64(int64_t value, uint8_t out[20])
{
    uint8_t digits[20];
    uint32_t n = 0, size = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do digits[n++] = (uint8_t)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) out[size++] = '-';
    while (n) out[size++] = digits[--n];
    return size;
}

/* Whole numbers are common, and printing them as such is both short and exact. */
static int from_whole(double value, char out[32])
{
    if (!(fabs(value) < 1e15) || value != (double)(int64_t)value) return 0;
    if (value == 0 && signbit(value)) return 0;
    uint32_t n = dl_text_from_int64((int64_t)value, (uint8_t *)out);
    out[n] = 0;
    return 1;
}

const char *dl_text_from_float(float value, char out[32])
{
    if (!isfinite(value)) return strcpy(out, "null");
    if (from_whole((double)value, out)) return out;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(out, 32, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value) break;
    }
    return out;
}

const char *dl_text_from_double(double value, char out[32])
{
    if (!isfinite(value)) return strcpy(out, "null");
    if (from_whole(value, out)) return out;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value) break;
    }
    return out;
}

/* A decimal number taken apart: sign, up to 19 significant digits, and the
 * power of ten of the last of them. */
struct decimal {
    int negative;
    uint64_t digits;
    int exact; /* no digit was dropped */
    int64_t exponent;
};

/* Takes the digits at *at into *digits, at most 19 significant ones. Returns how
 * many were taken in; *dropped counts the others, *exact falls to 0 if one of
 * those was not zero. */
static inline int64_t take_digits(const uint8_t **at, const uint8_t *end, uint64_t *digits,
                                  int64_t *dropped, int *exact)
{
    const uint8_t *from = *at, *p = from;
    uint64_t value = *digits;
    /* Below this bound one more digit fits 19. */
    while (p < end && (uint8_t)(*p - '0') < 10 && value < UINT64_C(1000000000000000000))
        value = value * 10 + (uint64_t)(*p++ - '0');
    int64_t taken = p - from;
    for (; p < end && (uint8_t)(*p - '0') < 10; p++) {
        *exact = *exact && *p == '0';
        ++*dropped;
    }
    *digits = value;
    *at = p;
    return taken;
}

static int take_apart(struct dl_slice text, struct decimal *decimal)
{
    const uint8_t *at = text.data, *end = text.data + text.size;
    uint64_t digits = 0;
    int64_t exponent = 0, dropped = 0, dropped_fraction = 0, seen;
    int exact = 1, negative = 0;
    if (text.size == 0) return DL_NUMBER_SYNTAX;
    if (text.size > DL_NUMBER_BYTES_MAX) return DL_NUMBER_RANGE;
    if (*at == '-' || *at == '+') negative = *at++ == '-';
    seen = take_digits(&at, end, &digits, &dropped, &exact);
    seen += dropped;
    exponent = dropped;
    if (at < end && *at == '.') {
        at++;
        int64_t taken = take_digits(&at, end, &digits, &dropped_fraction, &exact);
        exponent -= taken;
        seen += taken + dropped_fraction;
    }
    if (!seen) return DL_NUMBER_SYNTAX;
    if (at < end && (*at | 0x20) == 'e') {
        int64_t power = 0;
        int down = 0;
        at++;
        if (at < end && (*at == '-' || *at == '+')) down = *at++ == '-';
        if (at == end) return DL_NUMBER_SYNTAX;
        for (; at < end && (uint8_t)(*at - '0') < 10; at++)
            if (power < 1000000) power = power * 10 + (*at - '0');
        exponent += down ? -power : power;
    }
    *decimal = (struct decimal){negative, digits, exact, exponent};
    return at == end ? DL_NUMBER_OK : DL_NUMBER_SYNTAX;
}

int dl_text_parse_int64(struct dl_slice text, int64_t *value)
{
    struct decimal decimal;
    int result = take_apart(text, &decimal);
    if (result) return result;
    uint64_t digits = decimal.digits;
    if (!decimal.exact) return decimal.exponent > 0 ? DL_NUMBER_RANGE : DL_NUMBER_FRACTION;
    if (digits == 0) {
        *value = 0;
        return DL_NUMBER_OK;
    }
    int64_t exponent = decimal.exponent;
    for (; exponent < 0; exponent++) {
        if (digits % 10) return DL_NUMBER_FRACTION;
        digits /= 10;
    }
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(digits, 10u, &digits)) return DL_NUMBER_RANGE;
    uint64_t limit = (uint64_t)INT64_MAX + (uint64_t)decimal.negative;
    if (digits > limit) return DL_NUMBER_RANGE;
    *value = (int64_t)(decimal.negative ? 0 - digits : digits);
    return DL_NUMBER_OK;
}

int dl_text_parse_float(struct dl_slice text, float *value)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal decimal;
    double number;
    int result = take_apart(text, &decimal);
    if (result) return result;
    if (decimal.digits == 0) {
        number = 0;
    } else if (decimal.exact && decimal.digits <= (1ull << 53) && decimal.exponent >= -22 &&
               decimal.exponent <= 22) {
        /* Both operands are exact doubles, so the one rounding is the right one. */
        number = (double)decimal.digits;
        number = decimal.exponent < 0 ? number / powers[-decimal.exponent]
                                      : number * powers[decimal.exponent];
    } else {
        char copy[DL_NUMBER_BYTES_MAX + 1];
        memcpy(copy, text.data, text.size);
        copy[text.size] = 0;
        number = fabs(strtod(copy, NULL));
    }
    if (decimal.negative) number = -number;
    *value = (float)number;
    return isfinite(*value) ? DL_NUMBER_OK : DL_NUMBER_RANGE;
}
