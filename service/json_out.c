/* The JSON writer. */
#include "service/json_out.h"

#include <inttypes.h>
#include <math.h>

static void before_value(struct dl_json *json)
{
    if (json->comma) dl_buf_text(json->out, ",");
    json->comma = 1;
}

void dl_json_open(struct dl_json *json, char bracket)
{
    before_value(json);
    dl_buf_append(json->out, &bracket, 1);
    json->comma = 0;
}

void dl_json_close(struct dl_json *json, char bracket)
{
    dl_buf_append(json->out, &bracket, 1);
    json->comma = 1;
}

void dl_json_key(struct dl_json *json, const char *key)
{
    before_value(json);
    dl_buf_printf(json->out, "\"%s\":", key);
    json->comma = 0;
}

/* Bytes of a well-formed UTF-8 character at `at`, or 0. Overlong forms,
 * surrogates and values above U+10FFFF are not well-formed. */
static size_t character_length(const uint8_t *at, size_t left)
{
    uint8_t first = at[0];
    if (first < 0x80) return 1;
    size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
    if (length == 0 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] >= 0xA0) ||
        (first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] >= 0x90))
        return 0;
    return length;
}

void dl_json_slice(struct dl_json *json, struct dl_slice text)
{
    before_value(json);
    dl_buf_text(json->out, "\"");
    for (size_t i = 0; i < text.size;) {
        const uint8_t *at = text.data + i;
        size_t length = character_length(at, text.size - i);
        if (length == 0)
            dl_buf_text(json->out, "\xEF\xBF\xBD");
        else if (*at == '"' || *at == '\\')
            dl_buf_append(json->out, (const char[]){'\\', (char)*at}, 2);
        else if (*at < 0x20 || *at == 0x7F)
            dl_buf_printf(json->out, "\\u%04x", *at);
        else
            dl_buf_append(json->out, at, length);
        i += length ? length : 1;
    }
    dl_buf_text(json->out, "\"");
}

void dl_json_text(struct dl_json *json, const char *text)
{
    dl_json_slice(json, dl_slice_text(text));
}

void dl_json_number(struct dl_json *json, double value)
{
    before_value(json);
    if (isfinite(value))
        dl_buf_printf(json->out, "%.9g", value);
    else
        dl_buf_text(json->out, "null");
}

void dl_json_int(struct dl_json *json, int64_t value)
{
    before_value(json);
    dl_buf_printf(json->out, "%" PRId64, value);
}

void dl_json_uint(struct dl_json *json, uint64_t value)
{
    before_value(json);
    dl_buf_printf(json->out, "%" PRIu64, value);
}

void dl_json_bool(struct dl_json *json, int value)
{
    before_value(json);
    dl_buf_text(json->out, value ? "true" : "false");
}

void dl_json_null(struct dl_json *json)
{
    before_value(json);
    dl_buf_text(json->out, "null");
}

void dl_json_key_slice(struct dl_json *json, const char *key, struct dl_slice text)
{
    dl_json_key(json, key);
    dl_json_slice(json, text);
}

void dl_json_key_text(struct dl_json *json, const char *key, const char *text)
{
    dl_json_key(json, key);
    dl_json_text(json, text);
}

void dl_json_key_number(struct dl_json *json, const char *key, double value)
{
    dl_json_key(json, key);
    dl_json_number(json, value);
}

void dl_json_key_int(struct dl_json *json, const char *key, int64_t value)
{
    dl_json_key(json, key);
    dl_json_int(json, value);
}

void dl_json_key_uint(struct dl_json *json, const char *key, uint64_t value)
{
    dl_json_key(json, key);
    dl_json_uint(json, value);
}

void dl_json_key_bool(struct dl_json *json, const char *key, int value)
{
    dl_json_key(json, key);
    dl_json_bool(json, value);
}
