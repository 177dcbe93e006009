/* gRPC's parsers: message framing with decompression, cut anywhere, and the
 * header values. What the reader yields must not depend on how the body was
 * cut, and nothing may exceed its limit. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service/grpc.h"

#define MESSAGE_BYTES_MAX 600

/* All messages, each behind its size, and the status that it ended with. */
static int read_all(struct dl_slice body, size_t piece, enum dl_grpc_encoding encoding,
                    struct dl_buf *seen)
{
    struct dl_grpc_reader reader = {.message_bytes_max = MESSAGE_BYTES_MAX, .encoding = encoding};
    int status = 0;
    while (body.size > 0 && status >= 0) {
        struct dl_slice in = {body.data, piece < body.size ? piece : body.size}, message;
        struct dl_error error = {""};
        body.data += in.size;
        body.size -= in.size;
        while ((status = dl_grpc_reader_next(&reader, &in, &message, &error)) == 1) {
            DL_CHECK(message.size <= MESSAGE_BYTES_MAX);
            dl_buf_u32(seen, (uint32_t)message.size);
            dl_buf_append(seen, message.data, message.size);
        }
        DL_CHECK(status < 0 || in.size == 0);
        DL_CHECK(status == 0 || error.text[0]);
        DL_CHECK(dl_grpc_reader_memory(&reader) <= 64 * 1024);
    }
    if (status == 0) status = dl_grpc_reader_at_boundary(&reader) ? 0 : 1;
    dl_grpc_reader_deinit(&reader);
    return status;
}

static void check_reader(struct dl_slice body, size_t piece, enum dl_grpc_encoding encoding)
{
    struct dl_buf whole = {0}, cut = {0};
    int first = read_all(body, body.size, encoding, &whole);
    int second = read_all(body, piece, encoding, &cut);
    DL_CHECK(first == second);
    DL_CHECK(dl_slice_equal(dl_buf_slice(&whole), dl_buf_slice(&cut)));
    dl_buf_free(&whole);
    dl_buf_free(&cut);
}

static void check_values(struct dl_slice text)
{
    struct dl_buf one = {0}, two = {0};
    int64_t timeout_ns;
    char written[16];
    enum dl_grpc_encoding encoding;
    dl_grpc_percent_encode(text, &one);
    dl_grpc_percent_decode(dl_buf_slice(&one), &two);
    DL_CHECK(dl_slice_equal(dl_buf_slice(&two), text));
    dl_buf_clear(&two);
    dl_grpc_percent_decode(text, &two);
    DL_CHECK(two.size <= text.size);
    dl_buf_clear(&one);
    dl_buf_clear(&two);
    dl_grpc_base64_encode(text, &one);
    DL_CHECK(dl_grpc_base64_decode(dl_buf_slice(&one), &two) == DL_OK);
    DL_CHECK(dl_slice_equal(dl_buf_slice(&two), text));
    dl_grpc_base64_decode(text, &two);
    if (dl_grpc_timeout_parse(text, &timeout_ns) == DL_OK) {
        int64_t again_ns;
        dl_grpc_timeout_format(timeout_ns, written);
        DL_CHECK(dl_grpc_timeout_parse(dl_slice_text(written), &again_ns) == DL_OK);
        DL_CHECK(again_ns >= timeout_ns);
    }
    dl_grpc_content_type(text);
    dl_grpc_accepts_gzip(text);
    dl_grpc_encoding_parse(text, &encoding);
    DL_CHECK(dl_grpc_status_name((int)dl_grpc_status_parse(text)));
    dl_buf_free(&one);
    dl_buf_free(&two);
}

/* Compresses a part of the input, so that decompression is reached. */
static void check_gzip(struct dl_slice text)
{
    struct dl_buf body = {0}, packed = {0}, seen = {0};
    uint8_t prefix[DL_GRPC_PREFIX_BYTES];
    DL_CHECK(dl_grpc_compress(text, &packed) == DL_OK);
    dl_grpc_prefix(prefix, 1, (uint32_t)packed.size);
    dl_buf_append(&body, prefix, sizeof(prefix));
    dl_buf_append(&body, packed.data, packed.size);
    int status = read_all(dl_buf_slice(&body), 7, DL_GRPC_GZIP, &seen);
    if (packed.size <= MESSAGE_BYTES_MAX && text.size <= MESSAGE_BYTES_MAX) {
        DL_CHECK(status == 0 && seen.size == 4 + text.size);
        DL_CHECK(text.size == 0 || memcmp(seen.data + 4, text.data, text.size) == 0);
    } else {
        DL_CHECK(status == DL_ERR_TOO_LARGE);
    }
    dl_buf_free(&body);
    dl_buf_free(&packed);
    dl_buf_free(&seen);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    struct dl_slice rest = {data + 2, size - 2};
    check_reader(rest, 1 + data[1] % 32, (enum dl_grpc_encoding)(data[0] % 3));
    check_values(rest);
    if (data[0] >= 192) check_gzip(rest);
    return 0;
}
