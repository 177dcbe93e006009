/* Reflection over the compiled-in descriptor set. The set is our own build's,
 * so its bytes are trusted; the request's are not. Names are looked up by
 * walking the set: it is small, and nobody asks often. */
#include "proto/reflection.h"

#include "base/check.h"
#include "proto/text.h"
#include "proto/wire.h"

static const uint8_t descriptor_set[] = {
#include "descriptors.inc"
};

#define NAME_BYTES_MAX 1024
#define FILES_MAX 32

/* gRPC status codes of error_response. */
enum { CODE_INVALID_ARGUMENT = 3, CODE_NOT_FOUND = 5 };

/* Field numbers of google/protobuf/descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    ANY_NAME = 1, /* of a message, a field, an enum, a service, a method */
    MESSAGE_FIELD = 2,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    MESSAGE_ONEOF = 8,
    ENUM_VALUE = 2,
    SERVICE_METHOD = 2
};

/* ---- walking descriptors --------------------------------------------------------- */

/* Next length-delimited field number `number` of a descriptor. 1, or 0 at the end. */
static int next_field(struct dl_wire_cursor *c, uint32_t number, struct dl_slice *value)
{
    uint64_t tag;
    while (c->at < c->end) {
        int fine = dl_wire_read_short(c, &tag);
        DL_CHECK(fine);
        if (tag == ((uint64_t)number << 3 | DL_WIRE_BYTES)) return dl_wire_read_bytes(c, value);
        fine = dl_wire_skip(c, tag);
        DL_CHECK(fine);
    }
    return 0;
}

static struct dl_wire_cursor cursor_of(struct dl_slice bytes)
{
    return (struct dl_wire_cursor){bytes.data, bytes.data + bytes.size};
}

static struct dl_slice field_of(struct dl_slice descriptor, uint32_t number)
{
    struct dl_wire_cursor c = cursor_of(descriptor);
    struct dl_slice value = {0};
    next_field(&c, number, &value);
    return value;
}

/* Takes "name" or "name." off the front of *symbol. 1: it was there. *whole:
 * nothing is left. */
static int strip(struct dl_slice *symbol, struct dl_slice name, int *whole)
{
    if (name.size == 0 || symbol->size < name.size ||
        memcmp(symbol->data, name.data, name.size) != 0)
        return 0;
    *whole = symbol->size == name.size;
    if (*whole) return 1;
    if (symbol->data[name.size] != '.') return 0;
    *symbol = dl_slice_of(symbol->data + name.size + 1, symbol->size - name.size - 1);
    return 1;
}

static int child_is(struct dl_slice descriptor, uint32_t number, struct dl_slice symbol)
{
    struct dl_wire_cursor c = cursor_of(descriptor);
    struct dl_slice child;
    while (next_field(&c, number, &child))
        if (dl_slice_equal(field_of(child, ANY_NAME), symbol)) return 1;
    return 0;
}

/* Is `symbol` (without the scope) an enum among these, or a value of one? */
static int enums_hold(struct dl_slice scope, uint32_t number, struct dl_slice symbol)
{
    struct dl_wire_cursor c = cursor_of(scope);
    struct dl_slice child;
    while (next_field(&c, number, &child)) {
        struct dl_slice rest = symbol;
        int whole;
        /* A value belongs to the scope around its enum. */
        if (child_is(child, ENUM_VALUE, symbol)) return 1;
        if (strip(&rest, field_of(child, ANY_NAME), &whole) && whole) return 1;
    }
    return 0;
}

/* Depth is that of nested messages in our own files. */
static int messages_hold(struct dl_slice scope, uint32_t number, struct dl_slice symbol)
{
    struct dl_wire_cursor c = cursor_of(scope);
    struct dl_slice child;
    while (next_field(&c, number, &child)) {
        struct dl_slice rest = symbol;
        int whole;
        if (!strip(&rest, field_of(child, ANY_NAME), &whole)) continue;
        if (whole || child_is(child, MESSAGE_FIELD, rest) || child_is(child, MESSAGE_ONEOF, rest) ||
            enums_hold(child, MESSAGE_ENUM, rest) || messages_hold(child, MESSAGE_NESTED, rest))
            return 1;
    }
    return 0;
}

static int file_holds(struct dl_slice file, struct dl_slice symbol)
{
    int whole;
    if (!strip(&symbol, field_of(file, FILE_PACKAGE), &whole) || whole) return 0;
    if (messages_hold(file, FILE_MESSAGE, symbol) || enums_hold(file, FILE_ENUM, symbol)) return 1;
    struct dl_wire_cursor c = cursor_of(file);
    struct dl_slice service;
    while (next_field(&c, FILE_SERVICE, &service)) {
        struct dl_slice rest = symbol;
        if (!strip(&rest, field_of(service, ANY_NAME), &whole)) continue;
        if (whole || child_is(service, SERVICE_METHOD, rest)) return 1;
    }
    return 0;
}

static int find_file(struct dl_slice name, struct dl_slice symbol, struct dl_slice *file)
{
    struct dl_wire_cursor c = cursor_of(dl_reflection_descriptors());
    while (next_field(&c, SET_FILE, file))
        if (name.size ? dl_slice_equal(field_of(*file, FILE_NAME), name)
                      : file_holds(*file, symbol))
            return 1;
    return 0;
}

/* ---- answering ------------------------------------------------------------------- */

/* Response fields. */
enum {
    RESPONSE_HOST = 1,
    RESPONSE_REQUEST = 2,
    RESPONSE_FILES = 4,
    RESPONSE_SERVICES = 6,
    RESPONSE_ERROR = 7
};

static void put_error(struct dl_buf *out, int code, const char *text)
{
    size_t begin = dl_wire_begin(out, RESPONSE_ERROR);
    dl_wire_varint(out, 1, (uint64_t)code);
    dl_wire_bytes(out, 2, dl_slice_text(text));
    dl_wire_end(out, begin);
}

/* The file, then all it imports, each once. */
static void put_files(struct dl_buf *out, struct dl_slice file)
{
    struct dl_slice files[FILES_MAX] = {file};
    uint32_t count = 1;
    size_t begin = dl_wire_begin(out, RESPONSE_FILES);
    for (uint32_t i = 0; i < count; i++) {
        dl_wire_bytes(out, 1, files[i]);
        struct dl_wire_cursor c = cursor_of(files[i]);
        struct dl_slice import, imported;
        while (next_field(&c, FILE_DEPENDENCY, &import)) {
            uint32_t j = 0;
            while (j < count && !dl_slice_equal(field_of(files[j], FILE_NAME), import)) j++;
            if (j < count || !find_file(import, (struct dl_slice){0}, &imported)) continue;
            DL_CHECK(count < FILES_MAX);
            files[count++] = imported;
        }
    }
    dl_wire_end(out, begin);
}

static void put_services(struct dl_buf *out)
{
    struct dl_wire_cursor files = cursor_of(dl_reflection_descriptors());
    struct dl_slice file, service;
    size_t begin = dl_wire_begin(out, RESPONSE_SERVICES);
    while (next_field(&files, SET_FILE, &file)) {
        struct dl_slice package = field_of(file, FILE_PACKAGE);
        struct dl_wire_cursor c = cursor_of(file);
        while (next_field(&c, FILE_SERVICE, &service)) {
            struct dl_slice name = field_of(service, ANY_NAME);
            size_t entry = dl_wire_begin(out, 1);
            dl_wire_tag(out, 1, DL_WIRE_BYTES);
            dl_buf_varint(out, package.size + 1 + name.size);
            dl_buf_append(out, package.data, package.size);
            dl_buf_u8(out, '.');
            dl_buf_append(out, name.data, name.size);
            dl_wire_end(out, entry);
        }
    }
    dl_wire_end(out, begin);
}

struct dl_slice dl_reflection_descriptors(void)
{
    return dl_slice_of(descriptor_set, sizeof descriptor_set);
}

/* What was asked: the last member of the oneof, as protobuf has it. */
struct question {
    struct dl_slice host, text;
    uint64_t number; /* of the member; 0: none */
};

static int read_question(struct dl_slice request, struct question *question, struct dl_error *error)
{
    static const uint8_t nothing[1];
    if (!request.data) request.data = nothing;
    struct dl_wire_cursor c = cursor_of(request);
    *question = (struct question){0};
    while (c.at < c.end) {
        uint64_t tag;
        struct dl_slice text = {0};
        int fine = dl_wire_read_short(&c, &tag) && tag >> 3;
        int known = fine && (tag >> 3 == 1 || (tag >> 3 >= 3 && tag >> 3 <= 7));
        if (known)
            fine = (tag & 7) == DL_WIRE_BYTES && dl_wire_read_bytes(&c, &text);
        else
            fine = fine && dl_wire_skip(&c, tag);
        if (!fine)
            return dl_error_set(error, DL_ERR_INVALID,
                                "ServerReflectionRequest is truncated or not protobuf");
        if (!known) continue;
        if (text.size > NAME_BYTES_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE,
                                "ServerReflectionRequest has a name of %zu bytes, the limit is %d",
                                text.size, NAME_BYTES_MAX);
        if (tag >> 3 != 5 && !dl_text_utf8_valid(text))
            return dl_error_set(error, DL_ERR_INVALID,
                                "ServerReflectionRequest has a name that is not UTF-8");
        if (tag >> 3 == 1) {
            question->host = text;
        } else {
            question->number = tag >> 3;
            question->text = text;
        }
    }
    return DL_OK;
}

int dl_reflection_answer(struct dl_slice request, struct dl_buf *response, struct dl_error *error)
{
    struct question question;
    struct dl_slice file, text, none = {0};
    int status = read_question(request, &question, error);
    if (status) return status;
    text = question.text;
    if (question.host.size) dl_wire_bytes(response, RESPONSE_HOST, question.host);
    dl_wire_bytes(response, RESPONSE_REQUEST, request);
    switch (question.number) {
    case 3: /* file_by_filename */
        if (text.size && find_file(text, none, &file))
            put_files(response, file);
        else
            put_error(response, CODE_NOT_FOUND, "no such file");
        break;
    case 4: /* file_containing_symbol */
        if (find_file(none, text, &file))
            put_files(response, file);
        else
            put_error(response, CODE_NOT_FOUND, "no such symbol");
        break;
    case 5: /* file_containing_extension */
    case 6: /* all_extension_numbers_of_type */
        put_error(response, CODE_NOT_FOUND, "there are no extensions");
        break;
    case 7: /* list_services */
        put_services(response);
        break;
    default:
        put_error(response, CODE_INVALID_ARGUMENT, "nothing was asked");
        break;
    }
    return response->failed ? dl_error_set(error, DL_ERR_NOMEM, "no memory for descriptors")
                            : DL_OK;
}
