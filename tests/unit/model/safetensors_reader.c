/* The safetensors reader against files that are right, wrong and hostile. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "model/safetensors.h"

/* A file of this header and `data_size` bytes 1, 2, 3, ... */
static struct dl_buf file_of(const char *header, size_t data_size)
{
    struct dl_buf file = {0};
    dl_buf_u64(&file, strlen(header));
    dl_buf_text(&file, header);
    for (size_t i = 0; i < data_size; i++) dl_buf_u8(&file, (uint8_t)(i + 1));
    return file;
}

static void refuses(int status, const char *message, const char *header, size_t data_size)
{
    struct dl_safetensors *tensors;
    struct dl_error error = {{0}};
    struct dl_buf file = file_of(header, data_size);
    /* An exact copy, so that the sanitizer sees a read past the end. */
    uint8_t *exact = malloc(file.size);
    memcpy(exact, file.data, file.size);
    int got = dl_safetensors_parse(dl_slice_of(exact, file.size), "file", 4096, &tensors, &error);
    cr_expect_eq(got, status, "%s: %s (%s)", header, dl_status_name(got), error.text);
    cr_expect(strstr(error.text, message) != NULL, "%s: '%s'", header, error.text);
    cr_expect(strchr(error.text, '\n') == NULL);
    cr_expect_null(tensors);
    free(exact);
    dl_buf_free(&file);
}

Test(safetensors, reads_what_it_writes)
{
    struct dl_safetensors_writer writer = {0};
    struct dl_buf file = {0};
    struct dl_safetensors *tensors;
    struct dl_error error = {{0}};
    const float a[6] = {1, 2, 3, 4, 5, 6};
    const double b[2] = {-0.5, 1e300};
    float values[6];
    double numbers[2];
    dl_safetensors_add_text(&writer, "say", "\"quoted\\\" \n and \xc3\xa9");
    dl_safetensors_add_text(&writer, "empty", "");
    dl_safetensors_add_tensor(&writer, "z.first", DL_DTYPE_F32, 2, 3, a);
    dl_safetensors_add_tensor(&writer, "a.second", DL_DTYPE_F64, 1, 2, b);
    dl_safetensors_add_tensor(&writer, "nothing", DL_DTYPE_F32, 0, 3, NULL);
    cr_assert_eq(dl_safetensors_write(&writer, &file), DL_OK);
    cr_assert_eq(dl_safetensors_parse(dl_buf_slice(&file), "file", 4096, &tensors, &error), DL_OK,
                 "%s", error.text);
    cr_expect_eq(dl_safetensors_count(tensors), 3);
    cr_expect_str_eq(dl_safetensors_metadata(tensors, "say"), "\"quoted\\\" \n and \xc3\xa9");
    cr_expect_str_eq(dl_safetensors_metadata(tensors, "empty"), "");
    cr_expect_null(dl_safetensors_metadata(tensors, "other"));
    cr_expect_eq(dl_safetensors_floats(tensors, "z.first", 2, 3, values, &error), DL_OK);
    cr_expect_arr_eq(values, a, sizeof a);
    cr_expect_eq(dl_safetensors_doubles(tensors, "a.second", 1, 2, numbers, &error), DL_OK);
    cr_expect_arr_eq(numbers, b, sizeof b);
    cr_expect_eq(dl_safetensors_floats(tensors, "nothing", 0, 3, values, &error), DL_OK);
    dl_safetensors_free(tensors);
    dl_safetensors_writer_deinit(&writer);
    dl_buf_free(&file);
}

Test(safetensors, may_hold_nothing)
{
    struct dl_safetensors *tensors;
    struct dl_error error;
    struct dl_buf file = file_of("{}", 0);
    cr_assert_eq(dl_safetensors_parse(dl_buf_slice(&file), "file", 4096, &tensors, &error), DL_OK);
    cr_expect_eq(dl_safetensors_count(tensors), 0);
    cr_expect_null(dl_safetensors_find(tensors, "a"));
    cr_expect_null(dl_safetensors_metadata(tensors, "a"));
    dl_safetensors_free(tensors);
    dl_buf_free(&file);
}

#define T(dtype, shape, offsets)                                                                   \
    "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

Test(safetensors, refuses_what_is_not_the_format)
{
    refuses(DL_ERR_CORRUPT, "not valid JSON", "", 0);
    refuses(DL_ERR_CORRUPT, "not valid JSON", "{", 0);
    refuses(DL_ERR_CORRUPT, "not valid JSON", "{}{}", 0);
    refuses(DL_ERR_CORRUPT, "not valid JSON", "{\"a\":", 0);
    refuses(DL_ERR_CORRUPT, "structure", "[]", 0);
    refuses(DL_ERR_CORRUPT, "structure", "7", 0);
    refuses(DL_ERR_CORRUPT, "structure", "{\"a\":1}", 0);
    refuses(DL_ERR_CORRUPT, "structure", "{\"a\":null}", 0);
    refuses(DL_ERR_CORRUPT, "structure", "{\"__metadata__\":{\"a\":{}}}", 0);
    refuses(DL_ERR_CORRUPT, "structure", "{\"__metadata__\":{\"a\":[1]}}", 0);
    refuses(DL_ERR_CORRUPT, "two __metadata__", "{\"__metadata__\":{},\"__metadata__\":{}}", 0);
    refuses(DL_ERR_CORRUPT, "stands twice", "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0);
    refuses(DL_ERR_CORRUPT, "is missing", "{\"a\":{}}", 0);
    refuses(DL_ERR_CORRUPT, "is missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4);
    refuses(DL_ERR_CORRUPT, "other than", "{\"a\":{\"type\":\"F32\"}}", 4);
    refuses(DL_ERR_CORRUPT, "stands twice", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 4);
    refuses(DL_ERR_UNSUPPORTED, "dtype other", "{\"a\":" T("BF16", "2", "0,4") "}", 4);
    refuses(DL_ERR_CORRUPT, "empty or too long", "{\"\":" T("F32", "1", "0,4") "}", 4);
    refuses(DL_ERR_CORRUPT, "two tensors",
            "{\"a\":" T("F32", "1", "0,4") ",\"a\":" T("F32", "1", "4,8") "}", 8);
}

Test(safetensors, refuses_offsets_and_shapes_that_do_not_fit)
{
    refuses(DL_ERR_CORRUPT, "outside", "{\"a\":" T("F32", "2", "0,8") "}", 7);
    refuses(DL_ERR_CORRUPT, "outside", "{\"a\":" T("F32", "1", "8,4") "}", 8);
    refuses(DL_ERR_CORRUPT, "outside",
            "{\"a\":" T("F32", "1", "999999999999990,999999999999994") "}", 8);
    refuses(DL_ERR_CORRUPT, "do not match", "{\"a\":" T("F32", "3", "0,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "do not match",
            "{\"a\":" T("F32", "999999999999999,999999999999999", "0,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "do not match",
            /* 2^64 elements and two, modulo 2^64 */
            "{\"a\":" T("U8", "4294967296,4294967296", "0,0") "}", 0);
    refuses(DL_ERR_CORRUPT, "out of range", "{\"a\":" T("F32", "99999999999999999999", "0,8") "}",
            8);
    refuses(DL_ERR_CORRUPT, "whole number", "{\"a\":" T("F32", "-2", "0,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "whole number", "{\"a\":" T("F32", "2.0", "0,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "dimensions", "{\"a\":" T("F32", "1,1,1,1,2", "0,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "two offsets", "{\"a\":" T("F32", "2", "0,4,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "two offsets", "{\"a\":" T("F32", "2", "0") "}", 8);
    refuses(DL_ERR_CORRUPT, "overlaps",
            "{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F32", "2", "4,12") "}", 12);
    refuses(DL_ERR_CORRUPT, "gap",
            "{\"a\":" T("F32", "1", "0,4") ",\"b\":" T("F32", "1", "8,12") "}", 12);
    refuses(DL_ERR_CORRUPT, "gap", "{\"a\":" T("F32", "1", "4,8") "}", 8);
    refuses(DL_ERR_CORRUPT, "after the last", "{\"a\":" T("F32", "1", "0,4") "}", 8);
    refuses(DL_ERR_CORRUPT, "after the last", "{}", 1);
}

Test(safetensors, refuses_a_header_beyond_the_file_or_the_limit)
{
    struct dl_safetensors *tensors;
    struct dl_error error;
    struct dl_buf file = {0};
    dl_buf_u64(&file, UINT64_MAX);
    dl_buf_text(&file, "{}");
    cr_expect_eq(dl_safetensors_parse(dl_buf_slice(&file), "file", 4096, &tensors, &error),
                 DL_ERR_CORRUPT);
    for (size_t size = 0; size < 8; size++)
        cr_expect_eq(
            dl_safetensors_parse(dl_slice_of(file.data, size), "file", 4096, &tensors, &error),
            DL_ERR_CORRUPT);
    dl_buf_clear(&file);
    dl_buf_u64(&file, 5000);
    for (int i = 0; i < 5000; i++) dl_buf_text(&file, " ");
    cr_expect_eq(dl_safetensors_parse(dl_buf_slice(&file), "file", 4096, &tensors, &error),
                 DL_ERR_TOO_LARGE);
    cr_expect(strstr(error.text, "5000") != NULL, "%s", error.text);
    dl_buf_free(&file);
}

Test(safetensors, refuses_numbers_of_another_shape_or_kind)
{
    struct dl_safetensors *tensors;
    struct dl_error error;
    float values[8];
    struct dl_buf file =
        file_of("{\"f\":" T("F32", "2,1", "0,8") ",\"u\":" T("U32", "1,1", "8,12") ",\"n\":" T(
                    "F32", "1,1", "12,16") ",\"d\":" T("F64", "1,1", "16,24") "}",
                24);
    const float nan = __builtin_nanf("");
    const double big = 1e39;
    memcpy(file.data + file.size - 12, &nan, 4);
    memcpy(file.data + file.size - 8, &big, 8);
    cr_assert_eq(dl_safetensors_parse(dl_buf_slice(&file), "file", 4096, &tensors, &error), DL_OK,
                 "%s", error.text);
    cr_expect_eq(dl_safetensors_floats(tensors, "f", 2, 1, values, &error), DL_OK);
    cr_expect_eq(dl_safetensors_floats(tensors, "f", 1, 2, values, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, "file: f has shape (2, 1) of 2 dimensions; (1, 2) is needed");
    cr_expect_eq(dl_safetensors_floats(tensors, "u", 1, 1, values, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, "file: u is U32; F32 or F64 is needed");
    cr_expect_eq(dl_safetensors_floats(tensors, "n", 1, 1, values, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, "file: n: value 0 is not a finite number");
    cr_expect_eq(dl_safetensors_floats(tensors, "d", 1, 1, values, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, "file: d: value 0 overflows a float");
    cr_expect_eq(dl_safetensors_floats(tensors, "x", 1, 1, values, &error), DL_ERR_CORRUPT);
    cr_expect_str_eq(error.text, "file: tensor x is missing");
    dl_safetensors_free(tensors);
    dl_buf_free(&file);
}
