/* Dictionary, bytes, clock, random numbers, statuses. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/dictionary.h"
#include "base/rng.h"
#include "base/status.h"

Test(dictionary, gives_dense_ids_in_order_and_finds_them_again)
{
    struct dl_dictionary *d;
    char name[32];
    uint32_t id;
    int added;
    cr_assert_eq(dl_dictionary_new(100000, &d), DL_OK);
    for (uint32_t i = 0; i < 50000; i++) {
        int size = snprintf(name, sizeof name, "node-%u", i * 7);
        cr_assert_eq(dl_dictionary_intern(d, i % 2, dl_slice_of(name, (size_t)size), &id, &added),
                     DL_OK);
        cr_assert(added && id == i);
    }
    for (uint32_t i = 0; i < 50000; i++) {
        int size = snprintf(name, sizeof name, "node-%u", i * 7);
        struct dl_slice slice = dl_slice_of(name, (size_t)size);
        cr_assert_eq(dl_dictionary_find(d, i % 2, slice, &id), DL_OK);
        cr_assert_eq(id, i);
        cr_assert_eq(dl_dictionary_find(d, 1 - i % 2, slice, &id), DL_ERR_NOT_FOUND);
        cr_assert(dl_slice_equal(dl_dictionary_name(d, i), slice));
    }
    dl_dictionary_free(d);
}

Test(dictionary, is_bounded)
{
    struct dl_dictionary *d;
    uint32_t id;
    cr_assert_eq(dl_dictionary_new(2, &d), DL_OK);
    cr_assert_eq(dl_dictionary_intern(d, 0, dl_slice_text("a"), &id, NULL), DL_OK);
    cr_assert_eq(dl_dictionary_intern(d, 0, dl_slice_text(""), &id, NULL), DL_OK);
    cr_assert_eq(dl_dictionary_intern(d, 0, dl_slice_text("b"), &id, NULL), DL_ERR_FULL);
    cr_assert_eq(dl_dictionary_intern(d, 0, dl_slice_text("a"), &id, NULL), DL_OK);
    cr_assert_eq(id, 0u);
    dl_dictionary_free(d);
}

Test(bytes, what_is_written_is_read_back)
{
    struct dl_buf buf = {0};
    uint64_t varints[] = {0, 1, 127, 128, 300, UINT32_MAX, UINT64_MAX};
    dl_buf_u8(&buf, 200);
    dl_buf_u16(&buf, 60000);
    dl_buf_u32(&buf, 4000000000u);
    dl_buf_u64(&buf, UINT64_MAX - 1);
    dl_buf_f32(&buf, -1.5f);
    dl_buf_f64(&buf, 1e300);
    for (int i = 0; i < 7; i++) dl_buf_varint(&buf, varints[i]);
    dl_buf_printf(&buf, "%s-%d", "x", 5);
    struct dl_reader in = dl_reader_of(dl_buf_slice(&buf));
    cr_assert_eq(dl_read_u8(&in), 200);
    cr_assert_eq(dl_read_u16(&in), 60000);
    cr_assert_eq(dl_read_u32(&in), 4000000000u);
    cr_assert_eq(dl_read_u64(&in), UINT64_MAX - 1);
    cr_assert_eq(dl_read_f32(&in), -1.5f);
    cr_assert_eq(dl_read_f64(&in), 1e300);
    for (int i = 0; i < 7; i++) cr_assert_eq(dl_read_varint(&in), varints[i]);
    cr_assert(dl_slice_equal(dl_read_slice(&in, 3), dl_slice_text("x-5")));
    cr_assert_eq(in.failed, 0);
    cr_assert_eq(dl_read_u8(&in), 0);
    cr_assert_eq(in.failed, 1);
    dl_buf_free(&buf);
}

Test(bytes, a_varint_of_more_than_64_bits_fails)
{
    uint8_t bytes[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02};
    struct dl_reader in = dl_reader_of(dl_slice_of(bytes, sizeof bytes));
    dl_read_varint(&in);
    cr_assert_eq(in.failed, 1);
}

Test(clock, parses_iso_8601_and_writes_it_back)
{
    struct {
        const char *text;
        int64_t us;
    } good[] = {{"1970-01-01", 0},
                {"2026-11-30T20:58:32Z", 1796072312000000},
                {"2026-11-30T21:58:32+01:00", 1796072312000000},
                {"2026-11-30T20:58:32.123456Z", 1796072312123456},
                {"2026-11-30 20:58:32.5", 1796072312500000},
                {"2024-02-29T00:00Z", 1709164800000000},
                {"1969-12-31T23:59:59Z", -1000000}};
    const char *bad[] = {"",         "2026-13-01",       "2026-02-29",
                         "2026-1-1", "2026-01-01T25:00", "2026-01-01T00:00:00X",
                         "12345"};
    int64_t us;
    char text[40];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_assert_eq(dl_time_parse_iso8601(dl_slice_text(good[i].text), &us), DL_OK, "%s",
                     good[i].text);
        cr_assert_eq(us, good[i].us, "%s gives %lld", good[i].text, (long long)us);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(dl_time_parse_iso8601(dl_slice_text(bad[i]), &us), DL_ERR_INVALID, "%s",
                     bad[i]);
    dl_time_format(1796072312123, DL_TIME_MS, text);
    cr_assert_str_eq(text, "2026-11-30T20:58:32.123Z");
    dl_time_format(42, DL_TIME_TICKS, text);
    cr_assert_str_eq(text, "42");
}

Test(rng, bounded_draws_are_uniform_and_repeatable)
{
    struct dl_rng a, b;
    int count[10] = {0};
    dl_rng_seed(&a, 7);
    dl_rng_seed(&b, 7);
    for (int i = 0; i < 100000; i++) {
        uint64_t x = dl_rng_below(&a, 10);
        cr_assert_eq(x, dl_rng_below(&b, 10));
        count[x]++;
    }
    for (int i = 0; i < 10; i++) cr_assert(count[i] > 9500 && count[i] < 10500);
    for (int i = 0; i < 10; i++) count[i] = 0;
    for (uint64_t i = 0; i < 100000; i++) count[dl_bounded64(dl_draw64(1, i, 0), 10)]++;
    for (int i = 0; i < 10; i++) cr_assert(count[i] > 9500 && count[i] < 10500);
}

Test(status, wraps_detail_in_its_context)
{
    struct dl_error error;
    cr_assert_eq(dl_error_set(&error, DL_ERR_INVALID, "value %d", 5), DL_ERR_INVALID);
    cr_assert_eq(dl_error_wrap(&error, DL_ERR_INVALID, "line %d", 3), DL_ERR_INVALID);
    cr_assert_str_eq(error.text, "line 3: value 5");
    cr_assert_eq(dl_error_set(NULL, DL_ERR_IO, "nobody reads this"), DL_ERR_IO);
}
