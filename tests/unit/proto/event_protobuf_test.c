/* The hand-written decoder against protobuf-c's, and every broken message. */
#include <stdio.h>

#include "base/rng.h"
#include "driftline/v1/event.pb-c.h"
#include "support.h"

static struct dl_slice packed(const Driftline__V1__EdgeEvent *event, uint8_t *bytes)
{
    return dl_slice_of(bytes, driftline__v1__edge_event__pack(event, bytes));
}

static Driftline__V1__EdgeEvent plain(void)
{
    Driftline__V1__EdgeEvent event = DRIFTLINE__V1__EDGE_EVENT__INIT;
    event.source_case = DRIFTLINE__V1__EDGE_EVENT__SOURCE_SRC;
    event.src = (char *)"alice";
    event.destination_case = DRIFTLINE__V1__EDGE_EVENT__DESTINATION_DST;
    event.dst = (char *)"bob";
    event.when_case = DRIFTLINE__V1__EDGE_EVENT__WHEN_TIME;
    event.time = INT64_C(1790000000123);
    return event;
}

static struct dl_event_decoder *protobuf_decoder(void)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_MS);
    return decoder_of(&config);
}

Test(event_protobuf, decodes_all_fields)
{
    struct dl_event_decoder *decoder = protobuf_decoder();
    Driftline__V1__EdgeEvent message = plain();
    float features[3] = {1.5f, -2, 1e-30f};
    uint8_t bytes[512];
    message.type = (char *)"transfer";
    message.amount_case = DRIFTLINE__V1__EDGE_EVENT__AMOUNT_WEIGHT;
    message.weight = 12.25f;
    message.features = features;
    message.n_features = 3;
    message.id = (char *)"e-1";
    struct dl_edge_event event = decoded(decoder, packed(&message, bytes));
    expect_slice(event.src, "alice");
    expect_slice(event.dst, "bob");
    cr_expect_eq(event.time, INT64_C(1790000000123));
    expect_slice(event.type, "transfer");
    cr_expect(event.has_weight);
    cr_expect_eq(event.weight, 12.25f);
    cr_expect_eq(event.feature_count, 3);
    cr_expect_arr_eq(event.features, features, sizeof features);
    expect_slice(event.id, "e-1");
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, defaults_are_weight_one_and_nothing_else)
{
    struct dl_event_decoder *decoder = protobuf_decoder();
    Driftline__V1__EdgeEvent message = plain();
    uint8_t bytes[512];
    struct dl_edge_event event = decoded(decoder, packed(&message, bytes));
    cr_expect_not(event.has_weight);
    cr_expect_eq(event.weight, 1.0f);
    cr_expect_eq(event.feature_count, 0);
    cr_expect_eq(event.type.size + event.id.size, 0);
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, integers_become_decimal_text)
{
    struct dl_event_decoder *decoder = protobuf_decoder();
    Driftline__V1__EdgeEvent message = plain();
    uint8_t bytes[512];
    message.source_case = DRIFTLINE__V1__EDGE_EVENT__SOURCE_SRC_NUMBER;
    message.src_number = INT64_MIN;
    message.destination_case = DRIFTLINE__V1__EDGE_EVENT__DESTINATION_DST_NUMBER;
    message.dst_number = INT64_MAX;
    struct dl_edge_event event = decoded(decoder, packed(&message, bytes));
    expect_slice(event.src, "-9223372036854775808");
    expect_slice(event.dst, "9223372036854775807");
    message.src_number = 0;
    event = decoded(decoder, packed(&message, bytes));
    expect_slice(event.src, "0");
    dl_event_decoder_free(decoder);
}

static void put_random_text(struct dl_rng *rng, char *text, uint32_t size_max)
{
    uint32_t size = (uint32_t)dl_rng_below(rng, size_max + 1);
    for (uint32_t i = 0; i < size; i++) text[i] = (char)(' ' + dl_rng_below(rng, 95));
    text[size] = 0;
}

Test(event_protobuf, agrees_with_protobuf_c_on_random_events)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_TICKS);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_rng rng;
    dl_rng_seed(&rng, 11);
    static uint8_t bytes[4096];
    for (int round = 0; round < 50000; round++) {
        char src[260], dst[260], type[70], id[260];
        float features[DL_EVENT_FEATURES_MAX];
        Driftline__V1__EdgeEvent message = plain();
        put_random_text(&rng, src, 256);
        put_random_text(&rng, dst, 30);
        put_random_text(&rng, type, 64);
        put_random_text(&rng, id, 256);
        message.src = src;
        message.dst = dst;
        message.type = type;
        message.id = id;
        message.time = (int64_t)(dl_rng_u64(&rng) >> dl_rng_below(&rng, 64));
        if (dl_rng_below(&rng, 2)) message.time = -message.time;
        message.n_features = dl_rng_below(&rng, DL_EVENT_FEATURES_MAX + 1);
        message.features = features;
        for (size_t i = 0; i < message.n_features; i++)
            features[i] = (float)dl_rng_normal(&rng) * 100;
        if (dl_rng_below(&rng, 2)) {
            message.amount_case = DRIFTLINE__V1__EDGE_EVENT__AMOUNT_WEIGHT;
            message.weight = (float)dl_rng_normal(&rng);
        }
        struct dl_slice wire = packed(&message, bytes);
        if (!src[0] || !dst[0]) {
            expect_refused(decoder, wire, src[0] ? "dst" : "src", "is missing or empty");
            continue;
        }
        struct dl_edge_event event = decoded(decoder, wire);
        expect_slice(event.src, src);
        expect_slice(event.dst, dst);
        expect_slice(event.type, type);
        expect_slice(event.id, id);
        cr_assert_eq(event.time, message.time);
        cr_assert_eq(event.feature_count, message.n_features);
        cr_assert_arr_eq(event.features, features, 4 * message.n_features);
        cr_assert_eq(event.has_weight, message.amount_case != 0);
        if (event.has_weight) cr_assert_eq(event.weight, message.weight);
        /* The encoder writes what protobuf-c reads as the same event. */
        struct dl_buf out = {0};
        dl_event_encode_protobuf(&event, &out);
        Driftline__V1__EdgeEvent *back =
            driftline__v1__edge_event__unpack(NULL, out.size, out.data);
        cr_assert_not_null(back);
        cr_assert_str_eq(back->src, src);
        cr_assert_str_eq(back->dst, dst);
        cr_assert_str_eq(back->type, type);
        cr_assert_str_eq(back->id, id);
        cr_assert_eq(back->time, message.time);
        cr_assert_eq(back->n_features, message.n_features);
        if (back->n_features) cr_assert_arr_eq(back->features, features, 4 * message.n_features);
        driftline__v1__edge_event__free_unpacked(back, NULL);
        dl_buf_free(&out);
    }
    dl_event_decoder_free(decoder);
}

#define WIRE(text) dl_slice_of(text, sizeof text - 1)
#define NAMES                                                                                      \
    "\x0a\x01"                                                                                     \
    "a"                                                                                            \
    "\x12\x01"                                                                                     \
    "b"

Test(event_protobuf, follows_the_rules_of_the_wire)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_TICKS);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event = decoded(decoder, WIRE(NAMES "\x18\x05\x0a\x01"
                                                             "c"));
    expect_slice(event.src, "c"); /* the last one counts */
    event = decoded(decoder, WIRE(NAMES "\x18\x05\x40\x07"));
    expect_slice(event.src, "7");
    event = decoded(decoder, WIRE("\x40\x07" NAMES "\x18\x05"));
    expect_slice(event.src, "a");
    /* features single and packed, in pieces */
    event = decoded(decoder, WIRE(NAMES "\x18\x05\x35\0\0\x80\x3f\x32\x04\0\0\0\x40\x32\x00"));
    cr_expect_eq(event.feature_count, 2);
    cr_expect_eq(event.features[0], 1.0f);
    cr_expect_eq(event.features[1], 2.0f);
    /* a tag written longer than needed, unknown fields of each wire type */
    event = decoded(decoder, WIRE(NAMES "\x98\x80\x00\x05"
                                        "\x78\x01"
                                        "\x79"
                                        "12345678"
                                        "\x7a\x02zz"
                                        "\x7d"
                                        "1234"
                                        "\x82\x06\x01x"));
    cr_expect_eq(event.time, 5);
    event = decoded(decoder, WIRE(NAMES "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    cr_expect_eq(event.time, -1);
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, names_what_is_broken)
{
    struct dl_event_decoder *decoder = protobuf_decoder();
    expect_refused(decoder, dl_slice_of(NULL, 0), "message", "empty");
    expect_refused(decoder,
                   WIRE("\x0a\x05"
                        "ab"),
                   "src", "truncated");
    expect_refused(decoder, WIRE(NAMES "\x18"), "time", "truncated");
    expect_refused(decoder, WIRE(NAMES "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), "time",
                   "truncated or broken");
    expect_refused(decoder, WIRE(NAMES "\x2d\x00"), "weight", "truncated");
    expect_refused(decoder, WIRE(NAMES "\x35\x00"), "features", "truncated");
    expect_refused(decoder, WIRE(NAMES "\x80"), "message", "truncated in a field's tag");
    expect_refused(decoder, WIRE(NAMES "\x7a\x10z"), "message", "runs past the end");
    expect_refused(decoder, WIRE(NAMES "\x08\x01"), "src", "wire type 0");
    expect_refused(decoder,
                   WIRE(NAMES "\x1a\x01"
                              "5"),
                   "time", "wire type 2");
    expect_refused(decoder, WIRE(NAMES "\x00\x01"), "message", "no field number");
    expect_refused(decoder, WIRE(NAMES "\x7b\x7c"), "message", "wire type 3");
    expect_refused(decoder, WIRE("{\"src\":1}"), "message", "not protobuf");
    expect_refused(decoder, WIRE(NAMES), "time", "missing");
    expect_refused(decoder,
                   WIRE("\x12\x01"
                        "b"),
                   "src", "missing");
    expect_refused(decoder,
                   WIRE("\x0a\x00\x12\x01"
                        "b"),
                   "src", "missing or empty");
    expect_refused(decoder,
                   WIRE("\x0a\x01"
                        "a"),
                   "dst", "missing");
    expect_refused(decoder,
                   WIRE(NAMES "\x18\x01\x32\x03"
                              "abc"),
                   "features", "multiple of 4");
    expect_refused(decoder, WIRE(NAMES "\x18\x01\x32\x08\0\0\0\0\0\0\xc0\x7f"), "features",
                   "features[1] is NaN");
    expect_refused(decoder, WIRE(NAMES "\x18\x01\x35\0\0\x80\xff"), "features",
                   "features[0] is minus infinity");
    expect_refused(decoder, WIRE(NAMES "\x18\x01\x2d\0\0\x80\x7f"), "weight", "weight is infinite");
    expect_refused(decoder,
                   WIRE("\x0a\x02"
                        "a\xff"
                        "\x12\x01"
                        "b"),
                   "src", "UTF-8");
    expect_refused(decoder,
                   WIRE("\x0a\x02"
                        "a\0"
                        "\x12\x01"
                        "b"),
                   "src", "NUL");
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, every_truncation_is_refused_or_a_whole_event)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_TICKS);
    struct dl_event_decoder *decoder = decoder_of(&config);
    const struct dl_slice whole = WIRE(NAMES "\x18\x05\x22\x04type\x2d\0\0\x80\x3f\x3a\x02id");
    for (size_t size = 0; size < whole.size; size++) {
        struct dl_edge_event event;
        const char *field;
        int status = dl_event_decode(decoder, dl_slice_of(whole.data, size), &event, &field, NULL);
        int at_field_end = size == 8 || size == 14 || size == 19;
        cr_expect_eq(status == DL_OK, at_field_end, "%zu", size);
    }
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, limits_are_exact)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_TICKS);
    struct dl_event_decoder *decoder = decoder_of(&config);
    static char name[1024 * 1024 + 1];
    static uint8_t bytes[1024 * 1024 + 600];
    float features[DL_EVENT_FEATURES_MAX + 1] = {0};
    Driftline__V1__EdgeEvent message = plain();
    memset(name, 'n', 256);
    message.src = name;
    decoded(decoder, packed(&message, bytes));
    name[256] = 'n';
    expect_refused(decoder, packed(&message, bytes), "src", "257 bytes long, the limit is 256");
    message = plain();
    message.id = name;
    expect_refused(decoder, packed(&message, bytes), "id", "257 bytes long");
    message = plain();
    name[65] = 0;
    message.type = name;
    expect_refused(decoder, packed(&message, bytes), "type", "65 bytes long, the limit is 64");
    name[64] = 0;
    decoded(decoder, packed(&message, bytes));
    message = plain();
    message.features = features;
    message.n_features = DL_EVENT_FEATURES_MAX;
    decoded(decoder, packed(&message, bytes));
    message.n_features++;
    expect_refused(decoder, packed(&message, bytes), "features", "the limit is 32");
    message = plain();
    memset(name, 'n', sizeof name - 1);
    message.dst = name;
    expect_refused(decoder, packed(&message, bytes), "message", "the limit is 1048576");
    name[1000000] = 0;
    expect_refused(decoder, packed(&message, bytes), "dst", "1000000 bytes long");
    dl_event_decoder_free(decoder);

    config.feature_count = 2;
    decoder = decoder_of(&config);
    message = plain();
    message.features = features;
    message.n_features = 3;
    expect_refused(decoder, packed(&message, bytes), "features",
                   "3 features, the source is configured for 2");
    message.n_features = 2;
    decoded(decoder, packed(&message, bytes));
    dl_event_decoder_free(decoder);
}

Test(event_protobuf, unwraps_schema_registry_framing)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_CONFLUENT, DL_TIME_TICKS);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event = decoded(decoder, WIRE("\0\0\0\0\x2a\0" NAMES "\x18\x05"));
    expect_slice(event.src, "a");
    event = decoded(decoder, WIRE("\0\0\0\0\x2a\x02\0" NAMES "\x18\x05"));
    expect_slice(event.dst, "b");
    expect_refused(decoder, WIRE(NAMES "\x18\x05"), "message", "begins with 0x0a");
    expect_refused(decoder, WIRE("\0\0\0\0"), "message", "too short");
    expect_refused(decoder, WIRE("\0\0\0\0\x2a\x02\x02" NAMES "\x18\x05"), "message",
                   "not number 0 of its schema (schema id 42)");
    expect_refused(decoder, WIRE("\0\0\0\0\x2a\x04\0\0" NAMES "\x18\x05"), "message",
                   "not number 0");
    expect_refused(decoder, WIRE("\0\0\0\0\x2a\x02"), "message", "truncated");
    dl_event_decoder_free(decoder);
    config.confluent_schema_id = 7;
    config.confluent_message_index = 1;
    decoder = decoder_of(&config);
    expect_refused(decoder, WIRE("\0\0\0\0\x2a\x02\x02" NAMES "\x18\x05"), "message",
                   "schema id 42, the source is configured for 7");
    decoded(decoder, WIRE("\0\0\0\0\x07\x02\x02" NAMES "\x18\x05"));
    dl_event_decoder_free(decoder);
}

static void expect_time(enum dl_time_unit unit, int64_t time, const char *text)
{
    struct dl_time_rules rules;
    struct dl_error error = {""};
    dl_time_rules_init(&rules, unit, NOW_US);
    int status = dl_time_rules_check(&rules, time, &error);
    if (!text) {
        cr_expect_eq(status, DL_OK, "%s: %s", dl_time_unit_name(unit), error.text);
        return;
    }
    cr_expect_eq(status, DL_ERR_INVALID, "%lld %s", (long long)time, dl_time_unit_name(unit));
    cr_expect(strstr(error.text, text), "\"%s\" lacks \"%s\"", error.text, text);
}

Test(time_rules, name_the_likely_unit)
{
    static const int64_t now[] = {0, 1790000000, 1790000000000, 1790000000000000,
                                  1790000000000000000};
    for (int is = DL_TIME_S; is <= DL_TIME_NS; is++) {
        for (int set = DL_TIME_S; set <= DL_TIME_NS; set++) {
            char text[64];
            snprintf(text, sizeof text, "looks like %s, the source is configured as %s",
                     dl_time_unit_name((enum dl_time_unit)is),
                     dl_time_unit_name((enum dl_time_unit)set));
            expect_time((enum dl_time_unit)set, now[is], is == set ? NULL : text);
        }
    }
}

Test(time_rules, bound_what_is_plausible)
{
    expect_time(DL_TIME_S, 86400, NULL);
    expect_time(DL_TIME_S, 86399, "before 1970-01-02");
    expect_time(DL_TIME_S, 0, "set source.time_unit: ticks");
    expect_time(DL_TIME_MS, -1, "before 1970-01-02");
    expect_time(DL_TIME_S, INT64_C(1790000000) + 3155760000, NULL);
    expect_time(DL_TIME_S, INT64_C(1790000000) + 3155760001, "after 2126");
    expect_time(DL_TIME_NS, INT64_MAX, "after 2126");
    expect_time(DL_TIME_ISO8601, INT64_C(1790000000000000), NULL);
    expect_time(DL_TIME_ISO8601, 1790000000, "before 1970-01-02");
    expect_time(DL_TIME_TICKS, INT64_MIN, NULL);
    struct dl_time_rules rules;
    dl_time_rules_init(&rules, DL_TIME_S, NOW_US);
    rules.plausible = 0;
    cr_expect_eq(dl_time_rules_check(&rules, -5, NULL), DL_OK);
}

Test(time_rules, the_decoder_applies_them)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_S);
    struct dl_event_decoder *decoder = decoder_of(&config);
    uint8_t bytes[512];
    Driftline__V1__EdgeEvent message = plain();
    message.time = 1700000000000;
    expect_refused(decoder, packed(&message, bytes), "time",
                   "time 1700000000000 looks like ms, the source is configured as s; set "
                   "source.time_unit: ms");
    message.time = 100000; /* 1970-01-02: unlikely, but nothing speaks against it */
    decoded(decoder, packed(&message, bytes));
    dl_event_decoder_free(decoder);
}
