/* A JSON scanner that validates a whole text and picks out the values at some
 * JSON pointers (RFC 6901) on the way. Values are borrowed slices of the text,
 * numbers stay text, nothing is allocated. Strict RFC 8259: valid UTF-8, no
 * comments, no trailing commas. Repeated keys: the last one counts. */
#ifndef DL_PROTO_JSON_SCAN_H
#define DL_PROTO_JSON_SCAN_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_JSON_DEPTH_MAX 32
#define DL_JSON_POINTERS_MAX 64
#define DL_JSON_POINTER_BYTES_MAX 128
#define DL_JSON_TOKENS_MAX 8

enum dl_json_kind {
    DL_JSON_ABSENT = 0,
    DL_JSON_NULL,
    DL_JSON_FALSE,
    DL_JSON_TRUE,
    DL_JSON_NUMBER,
    DL_JSON_STRING,
    DL_JSON_ARRAY,
    DL_JSON_OBJECT
};

/* "null", "a boolean", "a number" ... for messages. */
const char *dl_json_kind_name(enum dl_json_kind kind);

struct dl_json_value {
    enum dl_json_kind kind;
    int escaped;          /* a string with backslashes: needs dl_json_unescape */
    struct dl_slice text; /* a string without its quotes, else the whole value */
};

/* One compiled pointer. */
struct dl_json_pointer {
    uint32_t token_count;
    struct {
        uint32_t size;
        int32_t index; /* as an array index, or -1 */
        uint8_t text[DL_JSON_POINTER_BYTES_MAX];
    } tokens[DL_JSON_TOKENS_MAX];
};

/* Compiles "/user/id". DL_OK; DL_ERR_INVALID or DL_ERR_TOO_LARGE with detail. */
int dl_json_pointer_compile(const char *text, struct dl_json_pointer *pointer,
                            struct dl_error *error);

/* Validates `text` and fills values[i] for pointers[i], i < count <=
 * DL_JSON_POINTERS_MAX. DL_OK; DL_ERR_INVALID or DL_ERR_TOO_LARGE (nesting) with the byte
 * offset in the detail. */
int dl_json_scan(struct dl_slice text, const struct dl_json_pointer *pointers, uint32_t count,
                 struct dl_json_value *values, struct dl_error *error);

/* Walks an array that dl_json_scan has validated: *at starts as 0; returns 1
 * and the next element, or 0 at the end. */
int dl_json_array_next(struct dl_slice array, size_t *at, struct dl_json_value *element);

/* Decodes the escapes of a validated string into `out`. Returns the length, or
 * DL_ERR_TOO_LARGE (more than `capacity` bytes), DL_ERR_INVALID (an unpaired
 * surrogate). */
long dl_json_unescape(struct dl_slice text, uint8_t *out, size_t capacity);

/* Appends a string with its quotes, escaped. Invalid UTF-8 becomes U+FFFD. */
void dl_json_put_string(struct dl_buf *out, struct dl_slice text);

#endif
