/* The log block's encoding and the checksum. */
#include <criterion/criterion.h>
#include <math.h>

#include "base/rng.h"
#include "base/status.h"
#include "store/crc32c.h"
#include "store/log_codec.h"

enum { COUNT = 2000 };

static struct dl_event events[COUNT];
static float features[COUNT][DL_EVENT_FEATURES_MAX];

static uint32_t any_u32(struct dl_rng *rng, uint32_t max)
{
    /* All magnitudes, both ends included. */
    uint64_t bits = dl_rng_u64(rng) >> dl_rng_below(rng, 64);
    return dl_rng_below(rng, 8) == 0 ? max : (uint32_t)(bits % ((uint64_t)max + 1));
}

static void make(uint64_t seed, uint32_t feature_count)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    int64_t time = 0;
    uint32_t ordinal = 0;
    for (int i = 0; i < COUNT; i++) {
        switch (dl_rng_below(&rng, 4)) {
        case 0:
            break;
        case 1:
            time = (int64_t)((uint64_t)time + 1);
            ordinal++;
            break;
        case 2:
            time = (int64_t)dl_rng_u64(&rng);
            ordinal = any_u32(&rng, UINT32_MAX);
            break;
        default:
            time = dl_rng_below(&rng, 2) ? INT64_MAX : INT64_MIN;
        }
        events[i] = (struct dl_event){.time = time,
                                      .ordinal = ordinal,
                                      .src = any_u32(&rng, UINT32_MAX - 1),
                                      .dst = any_u32(&rng, UINT32_MAX - 1),
                                      .type = (uint16_t)any_u32(&rng, UINT16_MAX),
                                      .weight = dl_rng_below(&rng, 2) ? 1 : (float)i - 0.5f};
        for (uint32_t k = 0; k < feature_count; k++) features[i][k] = (float)i * 3 + (float)k;
        if (dl_rng_below(&rng, 2)) events[i].features = features[i];
        if (dl_rng_below(&rng, 20) == 0) events[i].src = events[i].dst = DL_LOG_FORGOTTEN;
    }
}

static void assert_reads_back(const struct dl_buf *block, uint32_t feature_count)
{
    struct dl_log_reader reader;
    struct dl_event event;
    cr_assert_eq(dl_log_reader_init(&reader, dl_buf_slice(block), COUNT, feature_count), DL_OK);
    for (int i = 0; i < COUNT; i++) {
        const struct dl_event *e = &events[i];
        int got = dl_log_next(&reader, &event);
        if (e->src == DL_LOG_FORGOTTEN) {
            cr_assert_eq(got, 2);
            continue;
        }
        cr_assert_eq(got, 1, "event %d", i);
        cr_assert_eq(event.time, e->time);
        cr_assert_eq(event.ordinal, e->ordinal, "event %d", i);
        cr_assert_eq(event.src, e->src);
        cr_assert_eq(event.dst, e->dst);
        cr_assert_eq(event.type, e->type);
        cr_assert_eq(event.weight, e->weight);
        cr_assert_eq(event.features != NULL, e->features && feature_count > 0);
        if (event.features)
            cr_assert_arr_eq(event.features, e->features, feature_count * sizeof(float));
    }
    cr_assert_eq(dl_log_next(&reader, &event), 0);
}

Test(log_codec, gives_back_every_event_at_every_magnitude)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint32_t feature_count = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 3 : DL_EVENT_FEATURES_MAX;
        struct dl_buf block = {0};
        make(seed, feature_count);
        cr_assert_eq(dl_log_encode(events, COUNT, feature_count, &block), DL_OK);
        assert_reads_back(&block, feature_count);
        dl_buf_free(&block);
    }
}

Test(log_codec, an_ordinary_event_takes_few_bytes)
{
    struct dl_buf block = {0};
    for (int i = 0; i < COUNT; i++)
        events[i] = (struct dl_event){.time = 1700000000000 + i / 2,
                                      .ordinal = 1 + (uint32_t)i / 2,
                                      .src = (uint32_t)i * 7 % 10000,
                                      .dst = (uint32_t)i * 13 % 10000,
                                      .weight = 1};
    cr_assert_eq(dl_log_encode(events, COUNT, 0, &block), DL_OK);
    cr_assert_leq(block.size, (size_t)COUNT * 6);
    dl_buf_free(&block);
}

/* Reads to the end; returns the last status. */
static int read_all(struct dl_slice bytes, uint32_t count, uint32_t feature_count)
{
    struct dl_log_reader reader;
    struct dl_event event;
    int got = dl_log_reader_init(&reader, bytes, count, feature_count);
    if (got != DL_OK) return got;
    while ((got = dl_log_next(&reader, &event)) > 0) continue;
    return got;
}

Test(log_codec, refuses_every_truncation_and_survives_every_flip)
{
    struct dl_buf block = {0};
    make(3, 2);
    cr_assert_eq(dl_log_encode(events, 50, 2, &block), DL_OK);
    cr_assert_eq(read_all(dl_buf_slice(&block), 50, 2), DL_OK);
    cr_assert_eq(read_all(dl_buf_slice(&block), 49, 2), DL_ERR_CORRUPT);
    cr_assert_eq(read_all(dl_buf_slice(&block), 51, 2), DL_ERR_CORRUPT);
    cr_assert_eq(read_all(dl_buf_slice(&block), 50, 3), DL_ERR_CORRUPT);
    for (size_t size = 0; size < block.size; size++)
        cr_assert_lt(read_all(dl_slice_of(block.data, size), 50, 2), 0, "size %zu", size);
    uint8_t version = block.data[0];
    block.data[0] = 99;
    cr_assert_eq(read_all(dl_buf_slice(&block), 50, 2), DL_ERR_VERSION);
    block.data[0] = version;
    for (size_t i = 0; i < block.size * 8; i++) { /* must end, in bounds; the checksum finds it */
        block.data[i / 8] ^= (uint8_t)(1 << i % 8);
        (void)read_all(dl_buf_slice(&block), 50, 2);
        block.data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    dl_buf_free(&block);
}

Test(crc32c, equals_the_published_value_and_its_portable_form)
{
    static uint8_t bytes[300];
    struct dl_rng rng;
    cr_assert_eq(dl_crc32c(0, "123456789", 9), 0xe3069283);
    cr_assert_eq(dl_crc32c_portable(0, "123456789", 9), 0xe3069283);
    dl_rng_seed(&rng, 1);
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)dl_rng_u64(&rng);
    for (size_t start = 0; start < 9; start++) {
        for (size_t size = 0; size + start <= 200; size++) {
            uint32_t whole = dl_crc32c(0, bytes + start, size);
            cr_assert_eq(whole, dl_crc32c_portable(0, bytes + start, size));
            uint32_t parts = dl_crc32c(0, bytes + start, size / 3);
            cr_assert_eq(whole, dl_crc32c(parts, bytes + start + size / 3, size - size / 3));
        }
    }
}
