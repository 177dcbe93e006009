/* A small JSON writer over a growable buffer: it puts the commas, escapes the
 * text, and keeps numbers valid. The caller keeps objects and arrays balanced;
 * a failed allocation shows in out->failed. */
#ifndef DL_SERVICE_JSON_OUT_H
#define DL_SERVICE_JSON_OUT_H

#include <stdint.h>

#include "base/bytes.h"

struct dl_json {
    struct dl_buf *out;
    int comma; /* the next value follows another one */
};

static inline struct dl_json dl_json_of(struct dl_buf *out)
{
    return (struct dl_json){out, 0};
}

/* '{' '[' and '}' ']'. */
void dl_json_open(struct dl_json *json, char bracket);
void dl_json_close(struct dl_json *json, char bracket);
/* A key (plain ASCII without quotes); its value comes next. */
void dl_json_key(struct dl_json *json, const char *key);

/* Text: bytes that are not UTF-8 become U+FFFD. */
void dl_json_slice(struct dl_json *json, struct dl_slice text);
void dl_json_text(struct dl_json *json, const char *text);
/* Nine significant digits; NaN and infinities become null. */
void dl_json_number(struct dl_json *json, double value);
void dl_json_int(struct dl_json *json, int64_t value);
void dl_json_uint(struct dl_json *json, uint64_t value);
void dl_json_bool(struct dl_json *json, int value);
void dl_json_null(struct dl_json *json);

/* A key with its value. */
void dl_json_key_slice(struct dl_json *json, const char *key, struct dl_slice text);
void dl_json_key_text(struct dl_json *json, const char *key, const char *text);
void dl_json_key_number(struct dl_json *json, const char *key, double value);
void dl_json_key_int(struct dl_json *json, const char *key, int64_t value);
void dl_json_key_uint(struct dl_json *json, const char *key, uint64_t value);
void dl_json_key_bool(struct dl_json *json, const char *key, int value);

#endif
