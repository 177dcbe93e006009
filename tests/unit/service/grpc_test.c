#include <stdlib.h>

#include <criterion/criterion.h>

#include "service/grpc.h"

static int64_t timeout_ns(const char *text)
{
    int64_t value = -1;
    return dl_grpc_timeout_parse(dl_slice_text(text), &value) == DL_OK ? value : -1;
}

Test(grpc_timeout, reads_every_unit)
{
    cr_assert_eq(timeout_ns("7n"), 7);
    cr_assert_eq(timeout_ns("7u"), 7000);
    cr_assert_eq(timeout_ns("100m"), 100000000);
    cr_assert_eq(timeout_ns("5S"), 5000000000);
    cr_assert_eq(timeout_ns("2M"), 120000000000);
    cr_assert_eq(timeout_ns("1H"), 3600000000000);
    cr_assert_eq(timeout_ns("0n"), 0);
    cr_assert_eq(timeout_ns("99999999H"), INT64_MAX, "saturates");
}

Test(grpc_timeout, refuses_what_is_malformed)
{
    const char *bad[] = {"",    "S",          "5",   "5s",   "-5S", "+5S",
                         "5 S", "123456789S", "5SS", "0x5S", "5.0S"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_eq(timeout_ns(bad[i]), -1, "%s", bad[i]);
}

Test(grpc_timeout, written_form_reads_back_no_shorter)
{
    int64_t values[] = {0,         1,          999,         1000,           99999999,
                        100000001, 1500000000, 60000000000, 86400000000000, 123456789012345,
                        INT64_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        char text[16];
        dl_grpc_timeout_format(values[i], text);
        int64_t back = timeout_ns(text);
        cr_assert_geq(back, values[i], "%s", text);
        cr_assert(back == INT64_MAX || back - values[i] <= values[i] / 99999, "%s", text);
    }
}

Test(grpc_message, percent_encoding_is_reversible_for_every_byte)
{
    uint8_t bytes[256];
    struct dl_buf encoded = {0}, decoded = {0};
    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    dl_grpc_percent_encode(dl_slice_of(bytes, 256), &encoded);
    for (size_t i = 0; i < encoded.size; i++)
        cr_assert(encoded.data[i] >= 0x20 && encoded.data[i] <= 0x7e);
    dl_grpc_percent_decode(dl_buf_slice(&encoded), &decoded);
    cr_assert_eq(decoded.size, 256);
    cr_assert_arr_eq(decoded.data, bytes, 256);
    dl_buf_free(&encoded);
    dl_buf_free(&decoded);
}

Test(grpc_message, malformed_escapes_stay)
{
    struct dl_buf decoded = {0};
    dl_grpc_percent_decode(dl_slice_text("100% %zz %4 %41%"), &decoded);
    dl_buf_u8(&decoded, 0);
    cr_assert_str_eq((char *)decoded.data, "100% %zz %4 A%");
    dl_buf_free(&decoded);
}

Test(grpc_metadata, base64_with_and_without_padding)
{
    const char *plain[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    const char *coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < 7; i++) {
        struct dl_buf out = {0}, back = {0};
        dl_grpc_base64_encode(dl_slice_text(plain[i]), &out);
        cr_assert(dl_slice_equal(dl_buf_slice(&out), dl_slice_text(coded[i])));
        while (out.size && out.data[out.size - 1] == '=') out.size--;
        cr_assert_eq(dl_grpc_base64_decode(dl_buf_slice(&out), &back), DL_OK);
        cr_assert(dl_slice_equal(dl_buf_slice(&back), dl_slice_text(plain[i])));
        dl_buf_free(&out);
        dl_buf_free(&back);
    }
    struct dl_buf bad = {0};
    cr_assert_eq(dl_grpc_base64_decode(dl_slice_text("A"), &bad), DL_ERR_INVALID);
    cr_assert_eq(dl_grpc_base64_decode(dl_slice_text("Zm9*"), &bad), DL_ERR_INVALID);
    cr_assert_eq(dl_grpc_base64_decode(dl_slice_of("Zm9\0", 4), &bad), DL_ERR_INVALID);
    dl_buf_free(&bad);
}

Test(grpc_content_type, tells_grpc_from_the_rest)
{
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc")), 1);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc+proto")), 1);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc;charset=utf-8")), 1);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc+proto;v=1")), 1);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc+json")), 2);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/grpc-web")), 0);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("application/json")), 0);
    cr_assert_eq(dl_grpc_content_type(dl_slice_text("")), 0);
}

Test(grpc_encoding, finds_gzip_in_a_list)
{
    cr_assert(dl_grpc_accepts_gzip(dl_slice_text("identity, deflate, gzip")));
    cr_assert(dl_grpc_accepts_gzip(dl_slice_text("gzip")));
    cr_assert_not(dl_grpc_accepts_gzip(dl_slice_text("identity,xgzip")));
    cr_assert_not(dl_grpc_accepts_gzip(dl_slice_text("")));
}

/* ---- framing ------------------------------------------------------------------------- */

static void frame(struct dl_buf *out, int flag, const char *text)
{
    uint8_t prefix[DL_GRPC_PREFIX_BYTES];
    dl_grpc_prefix(prefix, 0, (uint32_t)strlen(text));
    prefix[0] = (uint8_t)flag;
    dl_buf_append(out, prefix, sizeof(prefix));
    dl_buf_text(out, text);
}

Test(grpc_reader, cuts_messages_wherever_the_pieces_end)
{
    struct dl_buf body = {0};
    const char *texts[] = {"first", "", "the third message"};
    for (size_t i = 0; i < 3; i++) frame(&body, 0, texts[i]);
    for (size_t piece = 1; piece <= body.size; piece++) {
        struct dl_grpc_reader reader = {.message_bytes_max = 100};
        size_t seen = 0;
        for (size_t at = 0; at < body.size; at += piece) {
            size_t left = body.size - at;
            struct dl_slice in = {body.data + at, piece < left ? piece : left}, message;
            while (dl_grpc_reader_next(&reader, &in, &message, NULL) == 1) {
                cr_assert(dl_slice_equal(message, dl_slice_text(texts[seen])));
                seen++;
            }
            cr_assert_eq(in.size, 0);
        }
        cr_assert_eq(seen, 3);
        cr_assert(dl_grpc_reader_at_boundary(&reader));
        dl_grpc_reader_deinit(&reader);
    }
    dl_buf_free(&body);
}

static int first_status(int flag, const char *text, enum dl_grpc_encoding encoding, size_t max)
{
    struct dl_buf body = {0};
    struct dl_grpc_reader reader = {.message_bytes_max = max, .encoding = encoding};
    struct dl_slice message;
    struct dl_error error = {""};
    frame(&body, flag, text);
    struct dl_slice in = dl_buf_slice(&body);
    int status = dl_grpc_reader_next(&reader, &in, &message, &error);
    if (status < 0) cr_assert(error.text[0]);
    dl_buf_free(&body);
    dl_grpc_reader_deinit(&reader);
    return status;
}

Test(grpc_reader, refuses_what_breaks_the_contract)
{
    cr_assert_eq(first_status(0, "1234", DL_GRPC_IDENTITY, 4), 1);
    cr_assert_eq(first_status(0, "12345", DL_GRPC_IDENTITY, 4), DL_ERR_TOO_LARGE);
    cr_assert_eq(first_status(2, "1234", DL_GRPC_IDENTITY, 4), DL_ERR_CORRUPT);
    cr_assert_eq(first_status(1, "1234", DL_GRPC_IDENTITY, 4), DL_ERR_INVALID);
    cr_assert_eq(first_status(1, "1234", DL_GRPC_GZIP, 4), DL_ERR_CORRUPT);
    cr_assert_eq(first_status(1, "", DL_GRPC_GZIP, 4), DL_ERR_CORRUPT);
}

Test(grpc_reader, takes_no_memory_for_what_did_not_come)
{
    struct dl_grpc_reader reader = {.message_bytes_max = 1u << 30};
    uint8_t prefix[DL_GRPC_PREFIX_BYTES + 1] = {0};
    dl_grpc_prefix(prefix, 0, 1u << 30);
    struct dl_slice in = {prefix, sizeof(prefix)}, message;
    cr_assert_eq(dl_grpc_reader_next(&reader, &in, &message, NULL), 0);
    cr_assert_lt(dl_grpc_reader_memory(&reader), 4096);
    dl_grpc_reader_deinit(&reader);
}

Test(grpc_compression, gzip_comes_back_and_bombs_are_cut)
{
    size_t size = 1000000;
    uint8_t *zeros = calloc(1, size);
    struct dl_buf packed = {0}, plain = {0};
    cr_assert_eq(dl_grpc_compress(dl_slice_of(zeros, size), &packed), DL_OK);
    cr_assert_lt(packed.size, size / 100);
    struct dl_slice in = dl_buf_slice(&packed);
    cr_assert_eq(dl_grpc_decompress(DL_GRPC_GZIP, in, size, &plain), DL_OK);
    cr_assert_eq(plain.size, size);
    cr_assert_eq(memcmp(plain.data, zeros, size), 0);
    dl_buf_clear(&plain);
    cr_assert_eq(dl_grpc_decompress(DL_GRPC_GZIP, in, size - 1, &plain), DL_ERR_TOO_LARGE);
    dl_buf_free(&plain);
    cr_assert_eq(dl_grpc_decompress(DL_GRPC_GZIP, in, 1000, &plain), DL_ERR_TOO_LARGE);
    cr_assert_lt(plain.capacity, 100000, "memory stays near the limit");
    in.size--;
    dl_buf_clear(&plain);
    cr_assert_eq(dl_grpc_decompress(DL_GRPC_GZIP, in, size, &plain), DL_ERR_CORRUPT);
    dl_buf_text(&packed, "tail");
    dl_buf_clear(&plain);
    cr_assert_eq(dl_grpc_decompress(DL_GRPC_GZIP, dl_buf_slice(&packed), size, &plain),
                 DL_ERR_CORRUPT);
    dl_buf_free(&packed);
    dl_buf_free(&plain);
    free(zeros);
}

Test(grpc_status, ours_and_theirs_agree)
{
    cr_assert_str_eq(dl_grpc_status_name(4), "DEADLINE_EXCEEDED");
    cr_assert_str_eq(dl_grpc_status_name(17), "UNKNOWN");
    cr_assert_str_eq(dl_grpc_status_name(-1), "UNKNOWN");
    cr_assert_eq(dl_grpc_status_parse(dl_slice_text("16")), DL_GRPC_UNAUTHENTICATED);
    cr_assert_eq(dl_grpc_status_parse(dl_slice_text("17")), DL_GRPC_UNKNOWN);
    cr_assert_eq(dl_grpc_status_parse(dl_slice_text("-1")), DL_GRPC_UNKNOWN);
    cr_assert_eq(dl_grpc_status_parse(dl_slice_text("")), DL_GRPC_UNKNOWN);
    for (int status = 0; status >= DL_ERR_UNSUPPORTED; status--) {
        enum dl_grpc_status there = dl_grpc_status_of(status);
        cr_assert_eq(there == DL_GRPC_OK, status == DL_OK);
        cr_assert_eq(dl_grpc_status_to((int)there) == DL_OK, status == DL_OK);
    }
}
