#include <math.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "proto/json_scan.h"
#include "proto/text.h"
#include "support.h"

static int utf8(const char *text)
{
    return dl_text_utf8_valid(dl_slice_text(text));
}

Test(text, utf8_takes_valid_and_refuses_broken)
{
    cr_expect(utf8(""));
    cr_expect(utf8("plain ascii that is longer than eight bytes"));
    cr_expect(utf8("gr\xc3\xbc\xc3\x9f"
                   "e \xe2\x82\xac \xf0\x9f\x98\x80"));
    cr_expect(utf8("\xed\x9f\xbf"));
    cr_expect(utf8("\xf4\x8f\xbf\xbf"));
    cr_expect_not(utf8("12345678\x80"));
    cr_expect_not(utf8("\xc3"), "truncated");
    cr_expect_not(utf8("\xc0\xaf"), "overlong");
    cr_expect_not(utf8("\xe0\x9f\xbf"), "overlong");
    cr_expect_not(utf8("\xf0\x8f\xbf\xbf"), "overlong");
    cr_expect_not(utf8("\xed\xa0\x80"), "surrogate");
    cr_expect_not(utf8("\xf4\x90\x80\x80"), "beyond U+10FFFF");
    cr_expect_not(utf8("\xff"));
}

Test(text, a_name_holds_no_nul_wherever_it_stands)
{
    for (size_t at = 0; at < 20; at++) {
        uint8_t name[20];
        memset(name, 'a', sizeof name);
        cr_expect(dl_text_name_valid(dl_slice_of(name, 20)));
        name[at] = 0;
        cr_expect_not(dl_text_name_valid(dl_slice_of(name, 20)), "at %zu", at);
        name[at] = 1;
        cr_expect(dl_text_name_valid(dl_slice_of(name, 20)), "at %zu", at);
    }
}

static int64_t whole(const char *text)
{
    int64_t value = -77;
    cr_expect_eq(dl_text_parse_int64(dl_slice_text(text), &value), DL_NUMBER_OK, "%s", text);
    return value;
}

static int whole_result(const char *text)
{
    int64_t value;
    return dl_text_parse_int64(dl_slice_text(text), &value);
}

Test(text, integers_are_read_without_loss)
{
    cr_expect_eq(whole("0"), 0);
    cr_expect_eq(whole("-0"), 0);
    cr_expect_eq(whole("9223372036854775807"), INT64_MAX);
    cr_expect_eq(whole("-9223372036854775808"), INT64_MIN);
    cr_expect_eq(whole("1.7e9"), 1700000000);
    cr_expect_eq(whole("12.000"), 12);
    cr_expect_eq(whole("1200e-2"), 12);
    cr_expect_eq(whole("0e999999999999"), 0);
    cr_expect_eq(whole("9007199254740993"), INT64_C(9007199254740993), "not by way of double");
    cr_expect_eq(whole_result("9223372036854775808"), DL_NUMBER_RANGE);
    cr_expect_eq(whole_result("123456789012345678901"), DL_NUMBER_RANGE);
    cr_expect_eq(whole_result("1e19"), DL_NUMBER_RANGE);
    cr_expect_eq(whole_result("1e999999"), DL_NUMBER_RANGE);
    cr_expect_eq(whole_result("1.5"), DL_NUMBER_FRACTION);
    cr_expect_eq(whole_result("1e-1"), DL_NUMBER_FRACTION);
    cr_expect_eq(whole_result("1.00000000000000000000001"), DL_NUMBER_FRACTION);
    for (size_t i = 0; i < 11; i++) {
        static const char *const bad[] = {"",   "-",  ".",     "e5",  "1e", "1e+",
                                          "0x", "1 ", "1.2.3", "nan", "inf"};
        cr_expect_eq(whole_result(bad[i]), DL_NUMBER_SYNTAX, "\"%s\"", bad[i]);
    }
}

Test(text, floats_agree_with_strtod_rounded_to_float)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, 7);
    for (int i = 0; i < 200000; i++) {
        char text[64];
        uint64_t r = dl_rng_u64(&rng);
        int digits = 1 + (int)(r % 19), exponent = (int)(r >> 8 & 63) - 32;
        uint64_t high = dl_rng_u64(&rng) >> dl_rng_below(&rng, 64);
        snprintf(text, sizeof text, "%s%" PRIu64 ".%0*" PRIu64 "e%d", r >> 20 & 1 ? "-" : "", high,
                 digits, dl_rng_u64(&rng) % 1000, exponent);
        float value, wanted = (float)strtod(text, NULL);
        int result = dl_text_parse_float(dl_slice_text(text), &value);
        if (isinf(wanted)) {
            cr_assert_eq(result, DL_NUMBER_RANGE, "%s", text);
        } else {
            cr_assert_eq(result, DL_NUMBER_OK, "%s", text);
            cr_assert_eq(value, wanted, "%s", text);
        }
    }
}

Test(text, numbers_printed_read_back_the_same)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, 8);
    char text[32];
    for (int i = 0; i < 100000; i++) {
        uint64_t bits = dl_rng_u64(&rng);
        double wide;
        float narrow, back;
        memcpy(&wide, &bits, 8);
        memcpy(&narrow, &bits, 4);
        if (isfinite(wide))
            cr_assert_eq(strtod(dl_text_from_double(wide, text), NULL), wide, "%s", text);
        else
            cr_assert_str_eq(dl_text_from_double(wide, text), "null");
        if (isfinite(narrow)) {
            dl_text_from_float(narrow, text);
            cr_assert_eq(dl_text_parse_float(dl_slice_text(text), &back), DL_NUMBER_OK, "%s", text);
            cr_assert_eq(back, narrow, "%s", text);
        }
    }
    cr_expect_str_eq(dl_text_from_double(0.1, text), "0.1");
    cr_expect_str_eq(dl_text_from_double(3, text), "3");
    cr_expect_str_eq(dl_text_from_float(2.5f, text), "2.5");
}

Test(text, quotes_stay_short_and_printable)
{
    char shown[64];
    cr_expect_str_eq(dl_text_quote(dl_slice_text("a\nb\\\x7f"), shown), "a\\x0ab\\x5c\\x7f");
    uint8_t bytes[200];
    memset(bytes, 0xff, sizeof bytes);
    dl_text_quote(dl_slice_of(bytes, sizeof bytes), shown);
    cr_expect_lt(strlen(shown), 63);
    memset(bytes, 'x', sizeof bytes);
    dl_text_quote(dl_slice_of(bytes, sizeof bytes), shown);
    cr_expect_str_eq(shown + strlen(shown) - 3, "...");
}

static int scans(const char *text)
{
    struct dl_error error;
    return dl_json_scan(dl_slice_text(text), NULL, 0, NULL, &error) == DL_OK;
}

Test(json_scan, is_strict)
{
    static const char *const good[] = {"{}",
                                       "[]",
                                       " [1, -0, 0.5e+3, true, false, null] ",
                                       "\"a\\u00e9\\n\\/\"",
                                       "{\"a\":{\"b\":[{},[]]}}",
                                       "-1.5E-7",
                                       "\"a string of more than eight bytes \\\\ and on\""};
    static const char *const bad[] = {
        "",         "{",        "[1,]",       "{\"a\":1,}",  "{a:1}", "01",
        "1.",       ".5",       "+1",         "1e",          "tru",   "nullx",
        "[1 2]",    "\"\x01\"", "\"\\x\"",    "\"\\u12\"",   "\"abc", "{\"a\" 1}",
        "{\"a\"}",  "[NaN]",    "[Infinity]", "[-Infinity]", "1 2",   "'a'",
        "\"\xff\"", "// c\n1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect(scans(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect_not(scans(bad[i]), "%s", bad[i]);
}

Test(json_scan, limits_nesting)
{
    char text[200];
    memset(text, '[', 100);
    memset(text + 100, ']', 100);
    struct dl_error error;
    cr_expect_eq(dl_json_scan(dl_slice_of(text, 200), NULL, 0, NULL, &error), DL_ERR_TOO_LARGE);
    cr_expect(strstr(error.text, "nested deeper than 32"), "%s", error.text);
    cr_expect_eq(dl_json_scan(dl_slice_of(text + 68, 64), NULL, 0, NULL, &error), DL_OK);
}

static struct dl_json_value at_pointer(const char *text, const char *pointer)
{
    static struct dl_json_pointer compiled;
    struct dl_json_value value;
    struct dl_error error;
    cr_assert_eq(dl_json_pointer_compile(pointer, &compiled, &error), DL_OK, "%s", error.text);
    cr_assert_eq(dl_json_scan(dl_slice_text(text), &compiled, 1, &value, &error), DL_OK, "%s",
                 error.text);
    return value;
}

Test(json_scan, finds_values_by_pointer)
{
    const char *text = "{\"a\":{\"b\":[10,{\"c\":\"x\"},20]},\"a/b\":1,\"m~n\":2,\"\":3,"
                       "\"\\u0061\\u00e9\":4,\"a\":{\"b\":[10,{\"c\":\"y\"},30]}}";
    expect_slice(at_pointer(text, "/a/b/1/c").text, "y");
    expect_slice(at_pointer(text, "/a/b/2").text, "30");
    expect_slice(at_pointer(text, "/a~1b").text, "1");
    expect_slice(at_pointer(text, "/m~0n").text, "2");
    expect_slice(at_pointer(text, "/").text, "3");
    expect_slice(at_pointer(text, "/a\xc3\xa9").text, "4");
    cr_expect_eq(at_pointer(text, "").kind, DL_JSON_OBJECT);
    cr_expect_eq(at_pointer(text, "/a/b/3").kind, DL_JSON_ABSENT);
    cr_expect_eq(at_pointer(text, "/a/b/01").kind, DL_JSON_ABSENT);
    cr_expect_eq(at_pointer("{\"a\":{\"b\":1},\"a\":2}", "/a/b").kind, DL_JSON_ABSENT,
                 "the last of repeated keys counts");
    struct dl_json_pointer pointer;
    cr_expect_lt(dl_json_pointer_compile("a", &pointer, NULL), 0);
    cr_expect_lt(dl_json_pointer_compile("/a~2", &pointer, NULL), 0);
    cr_expect_lt(dl_json_pointer_compile("/a~", &pointer, NULL), 0);
    cr_expect_lt(dl_json_pointer_compile("/1/2/3/4/5/6/7/8/9", &pointer, NULL), 0);
}

Test(json_scan, unescapes_and_escapes)
{
    uint8_t out[16];
    struct dl_slice text = dl_slice_text("\\u00e9\\ud83d\\ude00\\n\\\"");
    long size = dl_json_unescape(text, out, sizeof out);
    cr_assert_eq(size, 8);
    cr_expect_arr_eq(out, "\xc3\xa9\xf0\x9f\x98\x80\n\"", 8);
    cr_expect_eq(dl_json_unescape(text, out, 7), DL_ERR_TOO_LARGE);
    cr_expect_eq(dl_json_unescape(dl_slice_text("\\ud83d"), out, 16), DL_ERR_INVALID);
    cr_expect_eq(dl_json_unescape(dl_slice_text("\\ud83d\\u0041"), out, 16), DL_ERR_INVALID);
    cr_expect_eq(dl_json_unescape(dl_slice_text("\\ude00"), out, 16), DL_ERR_INVALID);
    struct dl_buf buf = {0};
    dl_json_put_string(&buf, dl_slice_text("a\"\\\n\x01\xc3\xa9\xff!"));
    expect_slice(dl_buf_slice(&buf), "\"a\\\"\\\\\\n\\u0001\xc3\xa9\xef\xbf\xbd!\"");
    dl_buf_free(&buf);
}
