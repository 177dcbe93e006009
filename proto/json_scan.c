/* Strict JSON scanner. One recursive descent with a depth limit; the set of
 * pointers that lead into the current value travels down as a bit mask, so
 * that a value nobody asked for is only validated. */
#include "proto/json_scan.h"

#include <limits.h>

#include "base/check.h"
#include "proto/text.h"

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

struct scan {
    const uint8_t *start, *at, *end;
    const struct dl_json_pointer *pointers;
    struct dl_json_value *values;
    struct dl_error *error;
};

const char *dl_json_kind_name(enum dl_json_kind kind)
{
    static const char *const names[] = {"absent",   "null",     "a boolean", "a boolean",
                                        "a number", "a string", "an array",  "an object"};
    return names[kind];
}

int dl_json_pointer_compile(const char *text, struct dl_json_pointer *pointer,
                            struct dl_error *error)
{
    *pointer = (struct dl_json_pointer){0};
    if (strlen(text) > DL_JSON_POINTER_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE, "JSON pointer is longer than %d bytes",
                            DL_JSON_POINTER_BYTES_MAX);
    if (*text && *text != '/')
        return dl_error_set(error, DL_ERR_INVALID,
                            "JSON pointer \"%s\" does not begin with '/'; write \"/%s\"", text,
                            text);
    while (*text == '/') {
        if (pointer->token_count == DL_JSON_TOKENS_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE, "JSON pointer has more than %d parts",
                                DL_JSON_TOKENS_MAX);
        uint32_t t = pointer->token_count++;
        uint32_t n = 0;
        for (text++; *text && *text != '/'; text++) {
            char c = *text;
            if (c == '~') {
                text++;
                if (*text != '0' && *text != '1')
                    return dl_error_set(
                        error, DL_ERR_INVALID,
                        "JSON pointer: '~' must be written ~0 and '/' inside a name ~1");
                c = *text == '0' ? '~' : '/';
            }
            pointer->tokens[t].text[n++] = (uint8_t)c;
        }
        pointer->tokens[t].size = n;
        pointer->tokens[t].index = -1;
        struct dl_slice token = dl_slice_of(pointer->tokens[t].text, n);
        int64_t index;
        if (n && n <= 9 && token.data[0] != '-' && (n == 1 || token.data[0] != '0') &&
            dl_text_is_integer(token) && dl_text_parse_int64(token, &index) == DL_NUMBER_OK)
            pointer->tokens[t].index = (int32_t)index;
    }
    return DL_OK;
}

static int broken(struct scan *s, const char *what)
{
    if (s->at >= s->end)
        return dl_error_set(s->error, DL_ERR_INVALID,
                            "message is not JSON: it ends after %zu bytes where %s was expected",
                            (size_t)(s->end - s->start), what);
    char shown[64];
    size_t left = (size_t)(s->end - s->at);
    return dl_error_set(s->error, DL_ERR_INVALID,
                        "message is not JSON: byte %zu (\"%s\") where %s was expected",
                        (size_t)(s->at - s->start),
                        dl_text_quote(dl_slice_of(s->at, left < 12 ? left : 12), shown), what);
}

static inline void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t'))
        s->at++;
}

static int is_hex(uint8_t c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* At the opening quote. */
static int scan_string(struct scan *s, struct dl_json_value *value)
{
    const uint8_t *at = ++s->at;
    const uint8_t *begin = at;
    value->kind = DL_JSON_STRING;
    value->escaped = 0;
    for (;;) {
        while (s->end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            uint64_t quote = word ^ (ONES * '"'), slash = word ^ (ONES * '\\');
            /* Borrows may flag a byte above a real hit as well: only "no hit" is relied on. */
            uint64_t hit = (quote - ONES) | (slash - ONES) | (word - ONES * 0x20) | word;
            if (hit & HIGHS) break;
            at += 8;
        }
        s->at = at;
        if (at == s->end) return broken(s, "a closing '\"'");
        uint8_t c = *at;
        if (c == '"') {
            value->text = dl_slice_of(begin, (size_t)(at - begin));
            s->at = at + 1;
            return DL_OK;
        }
        if (c < 0x20) return broken(s, "an escaped control character");
        if (c == '\\') {
            value->escaped = 1;
            if (s->end - at < 2) return broken(s, "an escape");
            c = at[1];
            if (c == 'u') {
                if (s->end - at < 6 || !is_hex(at[2]) || !is_hex(at[3]) || !is_hex(at[4]) ||
                    !is_hex(at[5]))
                    return broken(s, "\\u and four hexadecimal digits");
                at += 6;
            } else if (memchr("\"\\/bfnrt", c, 8)) {
                at += 2;
            } else {
                return broken(s, "a known escape");
            }
        } else if (c >= 0x80) {
            int n = dl_text_utf8_sequence(at, s->end);
            if (!n) return broken(s, "valid UTF-8");
            at += n;
        } else {
            at++;
        }
    }
}

static int scan_number(struct scan *s, struct dl_json_value *value)
{
    const uint8_t *begin = s->at;
#define DIGIT() (s->at < s->end && *s->at >= '0' && *s->at <= '9')
    if (*s->at == '-') s->at++;
    if (!DIGIT()) return broken(s, "a digit");
    if (*s->at == '0')
        s->at++;
    else
        while (DIGIT()) s->at++;
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!DIGIT()) return broken(s, "a digit");
        while (DIGIT()) s->at++;
    }
    if (s->at < s->end && (*s->at | 0x20) == 'e') {
        s->at++;
        if (s->at < s->end && (*s->at == '-' || *s->at == '+')) s->at++;
        if (!DIGIT()) return broken(s, "a digit");
        while (DIGIT()) s->at++;
    }
#undef DIGIT
    value->kind = DL_JSON_NUMBER;
    value->text = dl_slice_of(begin, (size_t)(s->at - begin));
    return DL_OK;
}

static int scan_word(struct scan *s, const char *word, enum dl_json_kind kind,
                     struct dl_json_value *value)
{
    size_t size = strlen(word);
    if ((size_t)(s->end - s->at) < size || memcmp(s->at, word, size) != 0)
        return broken(s, "a value");
    value->kind = kind;
    value->text = dl_slice_of(s->at, size);
    s->at += size;
    return DL_OK;
}

/* Pointers of `mask` whose part at `depth` is `key` (or `index`, if key is
 * NULL): those that end there go to *done, the others stay in the result. */
static uint64_t descend(const struct scan *s, uint64_t mask, uint32_t depth,
                        const struct dl_slice *key, int32_t index, uint64_t *done)
{
    uint64_t on = 0;
    *done = 0;
    for (uint64_t rest = mask; rest; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(rest);
        const struct dl_json_pointer *pointer = &s->pointers[i];
        if (key ? pointer->tokens[depth].size != key->size ||
                      memcmp(pointer->tokens[depth].text, key->data, key->size) != 0
                : pointer->tokens[depth].index != index)
            continue;
        if (pointer->token_count == depth + 1)
            *done |= 1ull << i;
        else
            on |= 1ull << i;
    }
    return on;
}

static int scan_value(struct scan *s, uint32_t depth, uint64_t mask, struct dl_json_value *value);

static int scan_child(struct scan *s, uint32_t depth, uint64_t on, uint64_t done)
{
    struct dl_json_value value = {0};
    for (uint64_t rest = done | on; rest; rest &= rest - 1)
        s->values[__builtin_ctzll(rest)] = (struct dl_json_value){0};
    int status = scan_value(s, depth + 1, on, &value);
    for (; done; done &= done - 1) s->values[__builtin_ctzll(done)] = value;
    return status;
}

static int scan_object(struct scan *s, uint32_t depth, uint64_t mask)
{
    s->at++;
    skip_space(s);
    if (s->at < s->end && *s->at == '}') {
        s->at++;
        return DL_OK;
    }
    for (;;) {
        struct dl_json_value key = {0};
        uint8_t plain[DL_JSON_POINTER_BYTES_MAX];
        uint64_t done = 0, on = 0;
        if (s->at == s->end || *s->at != '"') return broken(s, "a quoted name");
        int status = scan_string(s, &key);
        if (status) return status;
        if (mask) {
            if (key.escaped) {
                /* A name that is too long for any pointer matches none. */
                long size = dl_json_unescape(key.text, plain, sizeof plain);
                key.text = dl_slice_of(plain, size < 0 ? 0 : (size_t)size);
                if (size >= 0) on = descend(s, mask, depth, &key.text, -1, &done);
            } else {
                on = descend(s, mask, depth, &key.text, -1, &done);
            }
        }
        skip_space(s);
        if (s->at == s->end || *s->at != ':') return broken(s, "':'");
        s->at++;
        status = scan_child(s, depth, on, done);
        if (status) return status;
        skip_space(s);
        if (s->at < s->end && *s->at == ',') {
            s->at++;
            skip_space(s);
            continue;
        }
        if (s->at < s->end && *s->at == '}') {
            s->at++;
            return DL_OK;
        }
        return broken(s, "',' or '}'");
    }
}

static int scan_array(struct scan *s, uint32_t depth, uint64_t mask)
{
    s->at++;
    skip_space(s);
    if (s->at < s->end && *s->at == ']') {
        s->at++;
        return DL_OK;
    }
    for (int32_t index = 0;; index += index < INT32_MAX) {
        uint64_t done = 0;
        uint64_t on = mask ? descend(s, mask, depth, NULL, index, &done) : 0;
        int status = scan_child(s, depth, on, done);
        if (status) return status;
        skip_space(s);
        if (s->at < s->end && *s->at == ',') {
            s->at++;
            continue;
        }
        if (s->at < s->end && *s->at == ']') {
            s->at++;
            return DL_OK;
        }
        return broken(s, "',' or ']'");
    }
}

static int scan_value(struct scan *s, uint32_t depth, uint64_t mask, struct dl_json_value *value)
{
    if (depth > DL_JSON_DEPTH_MAX)
        return dl_error_set(s->error, DL_ERR_TOO_LARGE,
                            "message is nested deeper than %d levels at byte %zu",
                            DL_JSON_DEPTH_MAX, (size_t)(s->at - s->start));
    skip_space(s);
    if (s->at == s->end) return broken(s, "a value");
    const uint8_t *begin = s->at;
    int status;
    switch (*s->at) {
    case '"':
        return scan_string(s, value);
    case '{':
        status = scan_object(s, depth, mask);
        value->kind = DL_JSON_OBJECT;
        break;
    case '[':
        status = scan_array(s, depth, mask);
        value->kind = DL_JSON_ARRAY;
        break;
    case 't':
        return scan_word(s, "true", DL_JSON_TRUE, value);
    case 'f':
        return scan_word(s, "false", DL_JSON_FALSE, value);
    case 'n':
        return scan_word(s, "null", DL_JSON_NULL, value);
    case '-':
        if (s->end - s->at > 1 && s->at[1] == 'I')
            return broken(s, "a finite number (JSON has no Infinity)");
        return scan_number(s, value);
    case 'N':
        return broken(s, "a finite number (JSON has no NaN)");
    case 'I':
        return broken(s, "a finite number (JSON has no Infinity)");
    default:
        if (*s->at < '0' || *s->at > '9') return broken(s, "a value");
        return scan_number(s, value);
    }
    value->text = dl_slice_of(begin, (size_t)(s->at - begin));
    return status;
}

int dl_json_scan(struct dl_slice text, const struct dl_json_pointer *pointers, uint32_t count,
                 struct dl_json_value *values, struct dl_error *error)
{
    static const uint8_t none[1];
    DL_CHECK(count <= DL_JSON_POINTERS_MAX);
    struct scan s = {.start = text.data ? text.data : none,
                     .pointers = pointers,
                     .values = values,
                     .error = error};
    s.at = s.start;
    s.end = s.start + text.size;
    uint64_t mask = 0;
    for (uint32_t i = 0; i < count; i++) {
        values[i] = (struct dl_json_value){0};
        if (pointers[i].token_count) mask |= 1ull << i;
    }
    struct dl_json_value whole = {0};
    int status = scan_value(&s, 0, mask, &whole);
    if (status) return status;
    skip_space(&s);
    if (s.at != s.end) return broken(&s, "the end of the message");
    for (uint32_t i = 0; i < count; i++)
        if (pointers[i].token_count == 0) values[i] = whole;
    return DL_OK;
}

int dl_json_array_next(struct dl_slice array, size_t *at, struct dl_json_value *element)
{
    struct scan s = {.start = array.data, .at = array.data + *at, .end = array.data + array.size};
    if (s.at == s.end) return 0;
    s.at++; /* '[' or ',' */
    skip_space(&s);
    if (s.at == s.end || *s.at == ']') return 0;
    *element = (struct dl_json_value){0};
    int status = scan_value(&s, 0, 0, element);
    DL_CHECK(status == DL_OK);
    skip_space(&s);
    *at = (size_t)(s.at - s.start);
    return 1;
}

static uint32_t hex4(const uint8_t *at)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
}

static uint32_t put_utf8(uint32_t code, uint8_t out[4])
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

long dl_json_unescape(struct dl_slice text, uint8_t *out, size_t capacity)
{
    size_t size = 0;
    const uint8_t *at = text.data, *end = text.data + text.size;
    while (at < end) {
        uint8_t piece[4] = {*at};
        uint32_t n = 1;
        if (*at != '\\') {
            at++;
        } else if (at[1] == 'u') {
            uint32_t code = hex4(at + 2);
            at += 6;
            if (code >= 0xdc00 && code < 0xe000) return DL_ERR_INVALID;
            if (code >= 0xd800 && code < 0xdc00) {
                if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return DL_ERR_INVALID;
                uint32_t low = hex4(at + 2);
                if (low < 0xdc00 || low >= 0xe000) return DL_ERR_INVALID;
                code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
                at += 6;
            }
            n = put_utf8(code, piece);
        } else {
            switch (at[1]) {
            case 'b':
                piece[0] = '\b';
                break;
            case 'f':
                piece[0] = '\f';
                break;
            case 'n':
                piece[0] = '\n';
                break;
            case 'r':
                piece[0] = '\r';
                break;
            case 't':
                piece[0] = '\t';
                break;
            default:
                piece[0] = at[1];
                break; /* " \ / */
            }
            at += 2;
        }
        if (n > capacity - size) return DL_ERR_TOO_LARGE;
        memcpy(out + size, piece, n);
        size += n;
    }
    return (long)size;
}

void dl_json_put_string(struct dl_buf *out, struct dl_slice text)
{
    static const char hex[] = "0123456789abcdef";
    dl_buf_u8(out, '"');
    size_t plain = 0;
    for (size_t i = 0; i < text.size;) {
        uint8_t c = text.data[i];
        size_t step = 1;
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && c != 0x7f) {
            i++;
            continue;
        }
        if (c >= 0x80) {
            int n = dl_text_utf8_sequence(text.data + i, text.data + text.size);
            if (n) {
                i += (size_t)n;
                continue;
            }
        }
        dl_buf_append(out, text.data + plain, i - plain);
        if (c >= 0x80) {
            dl_buf_text(out, "\xef\xbf\xbd");
        } else if (c == '"' || c == '\\') {
            dl_buf_u8(out, '\\');
            dl_buf_u8(out, c);
        } else if (c == '\n') {
            dl_buf_text(out, "\\n");
        } else if (c == '\t') {
            dl_buf_text(out, "\\t");
        } else {
            uint8_t escape[6] = {'\\', 'u', '0', '0', (uint8_t)hex[c >> 4], (uint8_t)hex[c & 15]};
            dl_buf_append(out, escape, 6);
        }
        i += step;
        plain = i;
    }
    dl_buf_append(out, text.data + plain, text.size - plain);
    dl_buf_u8(out, '"');
}
