/* Plain C structs to protobuf, from protobuf, and to JSON, by tables.
 *
 * A message type is a table of fields: name, number, kind, and where the value
 * stands in the struct. One encoder, one decoder and one JSON writer serve all
 * of them. The tables agree with the .proto files: a test compares each with
 * the descriptors that protoc-c generates.
 *
 * Why not protobuf-c's own structs: their strings end in NUL where ours are
 * borrowed slices, and unpacking allocates for each submessage before any limit of ours is
 * looked at, so that a small hostile message takes much memory. */
#ifndef DL_PROTO_MESSAGE_H
#define DL_PROTO_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "proto/arena.h"

enum dl_field_kind {
    DL_KIND_STRING,  /* struct dl_slice: UTF-8 without NUL */
    DL_KIND_BYTES,   /* struct dl_slice */
    DL_KIND_CSTRING, /* const char *, NULL like "" */
    DL_KIND_CHARS,   /* char[limit] with its NUL, in place */
    DL_KIND_BOOL,    /* int */
    DL_KIND_ENUM,    /* a C enum or int of 4 bytes */
    DL_KIND_FLAGS,   /* uint32_t of or-ed values; in JSON a list of names */
    DL_KIND_U32,
    DL_KIND_I32,
    DL_KIND_U64,
    DL_KIND_I64,
    DL_KIND_FLOAT,
    DL_KIND_DOUBLE,
    DL_KIND_MESSAGE, /* a struct in place */
    /* repeated: a const pointer, and a uint32_t count elsewhere */
    DL_KIND_STRINGS,    /* const struct dl_slice * */
    DL_KIND_BYTES_LIST, /* const struct dl_slice * */
    DL_KIND_FLOATS,
    DL_KIND_DOUBLES,
    DL_KIND_MESSAGES
};

enum dl_field_flags {
    DL_FIELD_REQUIRED = 1, /* must be there: a string that is not empty, a list with an element */
    DL_FIELD_FINITE = 2,   /* a number that may not be NaN or infinite */
    DL_FIELD_NONEMPTY = 4  /* a list of strings, none of which is empty; the list may be */
};

#define DL_FIELD_NOWHERE UINT32_MAX

struct dl_message_type;

/* A value of an enum and the name that JSON gives it. */
struct dl_enum_name {
    uint32_t value;
    const char *name;
};

struct dl_field {
    const char *name; /* as in the .proto */
    uint8_t number;   /* 1..63 */
    uint8_t kind;     /* enum dl_field_kind */
    uint8_t flags;
    uint8_t enum_count;
    uint32_t offset; /* of the value in the struct */
    uint32_t count;  /* repeated: offset of the count */
    /* Offset of an int that says whether the field is there; else a scalar is
     * left out when it is zero, and a submessage is always there. */
    uint32_t present;
    /* When decoding, if not 0: most bytes of a string or of each string of a
     * list (CHARS: its array), largest number. */
    uint32_t limit;
    uint32_t count_limit; /* repeated: most elements; 0: as many as the bytes hold */
    const struct dl_message_type *type;
    const struct dl_enum_name *enum_names;
};

struct dl_message_type {
    const char *name;              /* such as driftline.v1.Score */
    uint32_t size;                 /* of the struct */
    uint32_t field_count;          /* at most 63 */
    const struct dl_field *fields; /* in order of their numbers */
};

/* Appends the message. Fields in order of number, so equal structs give equal
 * bytes. Check out->failed at the end. */
void dl_message_encode(const struct dl_message_type *type, const void *message, struct dl_buf *out);

/* Decodes hostile bytes into the zeroed struct. Strings borrow from `bytes`;
 * lists are taken from `arena`. Unknown fields are skipped; a field given twice
 * is the last one. DL_OK; DL_ERR_INVALID, DL_ERR_TOO_LARGE with a line that
 * names the field, such as "pairs[17].src is missing or empty"; DL_ERR_NOMEM. */
int dl_message_decode(const struct dl_message_type *type, struct dl_slice bytes, void *message,
                      struct dl_arena *arena, struct dl_error *error);

/* Appends one JSON object without spaces or line ends; see records.proto for
 * the rules. */
void dl_message_json(const struct dl_message_type *type, const void *message, struct dl_buf *out);

/* Protobuf to JSON by way of the struct. */
int dl_message_to_json(const struct dl_message_type *type, struct dl_slice bytes,
                       struct dl_buf *out, struct dl_error *error);

#endif
