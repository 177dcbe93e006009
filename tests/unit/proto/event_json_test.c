#include "support.h"

static struct dl_event_decoder_config json_config(enum dl_time_unit unit)
{
    return config_of(DL_FORMAT_JSON, unit);
}

static void map(struct dl_event_decoder_config *config, const char *field, const char *where)
{
    struct dl_error error;
    cr_assert_eq(dl_event_mapping_set(&config->mapping, field, where, &error), DL_OK, "%s",
                 error.text);
}

Test(event_json, decodes_by_the_default_mapping)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_S);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event =
        decoded(decoder,
                dl_slice_text("{\"src\":\"alice\",\"dst\":123456789012345678901,"
                              "\"time\":1790000000,\"type\":\"pay\",\"weight\":2.5,"
                              "\"features\":[1,-2.5e1,\"3\"],\"id\":17,\"other\":[{\"x\":null}]}"));
    expect_slice(event.src, "alice");
    expect_slice(event.dst, "123456789012345678901"); /* 21 digits, losslessly */
    cr_expect_eq(event.time, 1790000000);
    expect_slice(event.type, "pay");
    cr_expect_eq(event.weight, 2.5f);
    cr_expect(event.has_weight);
    cr_expect_eq(event.feature_count, 3);
    cr_expect_eq(event.features[0], 1.0f);
    cr_expect_eq(event.features[1], -25.0f);
    cr_expect_eq(event.features[2], 3.0f);
    expect_slice(event.id, "17");
    event = decoded(decoder, dl_slice_text("{\"src\":-0,\"dst\":\"b\",\"time\":\"1790000000\","
                                           "\"type\":null,\"weight\":null,\"id\":null}"));
    expect_slice(event.src, "0");
    cr_expect_not(event.has_weight);
    cr_expect_eq(event.weight, 1.0f);
    cr_expect_eq(event.type.size + event.id.size + event.feature_count, 0);
    dl_event_decoder_free(decoder);
}

Test(event_json, decodes_by_a_mapping)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_MS);
    map(&config, "src", "/user/id");
    map(&config, "dst", "/items/0/sku");
    map(&config, "time", "/meta/at");
    map(&config, "weight", "/amount");
    map(&config, "features", "/price,/meta/vip");
    map(&config, "features", "/qty");
    map(&config, "id", "-");
    struct dl_event_decoder *decoder = decoder_of(&config);
    const char *good = "{\"user\":{\"id\":\"u\\u00e9\\\"\",\"src\":1},\"items\":[{\"sku\":77}],"
                       "\"meta\":{\"at\":1790000000000,\"vip\":true},\"amount\":\"12.50\","
                       "\"price\":9.75,\"qty\":3,\"id\":\"ignored\"}";
    struct dl_edge_event event = decoded(decoder, dl_slice_text(good));
    expect_slice(event.src, "u\xc3\xa9\"");
    expect_slice(event.dst, "77");
    cr_expect_eq(event.time, INT64_C(1790000000000));
    cr_expect_eq(event.weight, 12.5f);
    cr_expect_eq(event.feature_count, 3);
    cr_expect_eq(event.features[0], 9.75f);
    cr_expect_eq(event.features[1], 1.0f);
    cr_expect_eq(event.features[2], 3.0f);
    cr_expect_eq(event.id.size, 0);
    expect_refused(decoder, dl_slice_text("{\"items\":[]}"), "src", "src (/user/id) is missing");
    expect_refused(decoder,
                   dl_slice_text("{\"user\":{\"id\":1},\"items\":[{\"sku\":2}],\"meta\":{\"at\":"
                                 "1790000000000,\"vip\":1},\"price\":1}"),
                   "features", "features[2] (/qty) is missing");
    dl_event_decoder_free(decoder);
}

Test(event_json, reads_dates)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_ISO8601);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event = decoded(
        decoder,
        dl_slice_text("{\"src\":1,\"dst\":2,\"time\":\"2026-11-30T20:58:32.123456+01:00\"}"));
    cr_expect_eq(event.time, INT64_C(1796068712123456));
    expect_refused(decoder, dl_slice_text("{\"src\":1,\"dst\":2,\"time\":\"yesterday\"}"), "time",
                   "time \"yesterday\" is not an ISO 8601 date");
    expect_refused(decoder, dl_slice_text("{\"src\":1,\"dst\":2,\"time\":1790000000}"), "time",
                   "not an ISO 8601 date");
    dl_event_decoder_free(decoder);
}

Test(event_json, names_what_is_wrong)
{
    static const struct {
        const char *message, *field, *text;
    } cases[] = {
        {"{\"src\":1,\"dst\":2,\"time\":1790000000000}", "time", "looks like ms"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000.5}", "time", "not a whole number of s"},
        {"{\"src\":1,\"dst\":2,\"time\":1e30}", "time", "does not fit 64 bits"},
        {"{\"src\":1,\"dst\":2,\"time\":\"2026-11-30\"}", "time", "set source.time_unit: iso8601"},
        {"{\"src\":1,\"dst\":2,\"time\":\"soon\"}", "time", "not a number of s"},
        {"{\"src\":1,\"dst\":2,\"time\":[]}", "time", "time is an array"},
        {"{\"src\":1,\"dst\":2}", "time", "time is missing"},
        {"{\"src\":1,\"dst\":2,\"time\":null}", "time", "time is missing"},
        {"{\"dst\":2,\"time\":1790000000}", "src", "src is missing"},
        {"{\"src\":null,\"dst\":2,\"time\":1790000000}", "src", "src is null"},
        {"{\"src\":\"\",\"dst\":2,\"time\":1790000000}", "src", "missing or empty"},
        {"{\"src\":true,\"dst\":2,\"time\":1790000000}", "src", "src is a boolean"},
        {"{\"src\":{},\"dst\":2,\"time\":1790000000}", "src", "src is an object"},
        {"{\"src\":1.5,\"dst\":2,\"time\":1790000000}", "src", "src is 1.5"},
        {"{\"src\":1,\"dst\":1e3,\"time\":1790000000}", "dst", "dst is 1e3"},
        {"{\"src\":\"a\\u0000b\",\"dst\":2,\"time\":1790000000}", "src", "NUL"},
        {"{\"src\":\"\\ud800\",\"dst\":2,\"time\":1790000000}", "src", "unpaired surrogate"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"weight\":\"much\"}", "weight",
         "weight \"much\" is not a finite number"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"weight\":\"NaN\"}", "weight", "not a finite"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"weight\":1e39}", "weight", "32-bit float"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"weight\":{}}", "weight",
         "weight is an object"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"features\":[0,NaN]}", "message",
         "JSON has no NaN"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"features\":[0,null]}", "features",
         "features[1] is null"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"features\":[0,\"x\"]}", "features",
         "features[1] \"x\""},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"features\":5}", "features",
         "features is a number, an array of numbers is wanted"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"type\":[]}", "type", "type is an array"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000,\"id\":1.5}", "id", "id is 1.5"},
        {"{\"src\":1,\"dst\":2,\"time\":1790000000", "message", "ends after 34 bytes"},
        {"{\"src\":1 \"dst\":2}", "message", "byte 9"},
        {"not json", "message", "not JSON"},
        {"17", "src", "missing"},
        {"[]", "src", "missing"},
    };
    struct dl_event_decoder_config config = json_config(DL_TIME_S);
    struct dl_event_decoder *decoder = decoder_of(&config);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(decoder, dl_slice_text(cases[i].message), cases[i].field, cases[i].text);
    dl_event_decoder_free(decoder);
}

Test(event_json, a_megabyte_of_name_is_refused_by_name)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_S);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_buf message = {0};
    for (int escaped = 0; escaped < 2; escaped++) {
        dl_buf_clear(&message);
        dl_buf_text(&message, escaped ? "{\"src\":\"\\n" : "{\"src\":\"");
        for (int i = 0; i < 1000000; i++) dl_buf_u8(&message, 'x');
        dl_buf_text(&message, "\",\"dst\":1,\"time\":1790000000}");
        expect_refused(decoder, dl_buf_slice(&message), "src",
                       escaped ? "more than 256 bytes" : "1000000 bytes long, the limit is 256");
    }
    for (int i = 0; i < 100000; i++) dl_buf_u8(&message, ' ');
    expect_refused(decoder, dl_buf_slice(&message), "message", "the limit is 1048576");
    dl_buf_free(&message);
    dl_event_decoder_free(decoder);
}

Test(event_json, refuses_bad_mappings)
{
    struct dl_event_decoder *decoder;
    struct dl_error error;
    struct dl_event_decoder_config config = json_config(DL_TIME_S);
    map(&config, "src", "user");
    cr_expect_eq(dl_event_decoder_new(&config, &decoder, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "mapping of src: JSON pointer \"user\""), "%s", error.text);
    config = json_config(DL_TIME_S);
    map(&config, "time", "-");
    cr_expect_eq(dl_event_decoder_new(&config, &decoder, &error), DL_ERR_INVALID);
    cr_expect_eq(dl_event_mapping_set(&config.mapping, "who", "/a", &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "unknown field \"who\""), "%s", error.text);
    config = json_config(DL_TIME_S);
    config.message_bytes_max = DL_MESSAGE_BYTES_MAX + 1;
    cr_expect_eq(dl_event_decoder_new(&config, &decoder, &error), DL_ERR_INVALID);
}

/* ---- CloudEvents ---------------------------------------------------------------- */

#define ENVELOPE "\"specversion\":\"1.0\",\"type\":\"t\",\"source\":\"/shop\",\"id\":\"e7\""

Test(cloudevents, structured_json_is_unwrapped)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_S);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event =
        decoded(decoder, dl_slice_text("{" ENVELOPE ",\"data\":{\"src\":\"a\",\"dst\":\"b\","
                                       "\"time\":1790000000}}"));
    expect_slice(event.src, "a");
    expect_slice(event.id, "/shop e7");
    cr_expect_eq(event.type.size, 0, "the envelope's type is not the event's");
    event = decoded(decoder, dl_slice_text("{" ENVELOPE ",\"data\":{\"src\":\"a\",\"dst\":\"b\","
                                           "\"time\":1790000000,\"id\":\"own\"}}"));
    expect_slice(event.id, "own");
    event =
        decoded(decoder, dl_slice_text("{" ENVELOPE ",\"data_base64\":"
                                       "\"eyJzcmMiOjEsImRzdCI6MiwidGltZSI6MTc5MDAwMDAwMH0=\"}"));
    expect_slice(event.dst, "2");
    /* protobuf inside: NAMES and time 1790000000 */
    event = decoded(decoder, dl_slice_text("{" ENVELOPE ",\"datacontenttype\":"
                                           "\"application/protobuf\",\"data_base64\":"
                                           "\"CgFhEgFiGID3xNUG\"}"));
    expect_slice(event.src, "a");
    cr_expect_eq(event.time, 1790000000);
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"data\":\"text\"}"), "message",
                   "whose data is a string");
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"data_base64\":\"a!==\"}"), "message",
                   "not base64");
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"data_base64\":\"\"}"), "message",
                   "empty data");
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"data\":{\"src\":1,\"dst\":2}}"), "time",
                   "missing");
    dl_event_decoder_free(decoder);
    config.cloudevents = 0;
    decoder = decoder_of(&config);
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"data\":{\"src\":1}}"), "src", "missing");
    dl_event_decoder_free(decoder);
}

Test(cloudevents, the_envelopes_time_stands_in_for_a_date)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_ISO8601);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_edge_event event =
        decoded(decoder, dl_slice_text("{" ENVELOPE ",\"time\":\"2026-11-30T20:58:32Z\","
                                       "\"data\":{\"src\":1,\"dst\":2}}"));
    cr_expect_eq(event.time, INT64_C(1796072312000000));
    event = decoded(decoder, dl_slice_text("{" ENVELOPE ",\"time\":\"2026-11-30T20:58:32\\u005a\","
                                           "\"data\":{\"src\":1,\"dst\":2}}"));
    cr_expect_eq(event.time, INT64_C(1796072312000000));
    /* nothing is left over from one message to the next */
    expect_refused(decoder, dl_slice_text("{" ENVELOPE ",\"time\":\"2026-11-30\",\"data\":5}"),
                   "message", "whose data is a number");
    expect_refused(decoder, dl_slice_text("{\"src\":1,\"dst\":2}"), "time", "missing");
    dl_event_decoder_free(decoder);
}

static struct dl_event_header header(const char *name, const char *value)
{
    return (struct dl_event_header){dl_slice_text(name), dl_slice_text(value)};
}

Test(cloudevents, binary_mode_comes_by_headers)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_ISO8601);
    struct dl_event_decoder *decoder = decoder_of(&config);
    const struct dl_event_header headers[] = {
        header("trace", "x"),
        header("ce_specversion", "1.0"),
        header("ce_id", "e7"),
        header("ce_source", "/shop"),
        header("CE-time", "2026-11-30T20:58:32Z"),
        header("content-type", "application/json; charset=utf-8")};
    struct dl_edge_event event;
    const char *field;
    struct dl_error error = {""};
    struct dl_slice message = dl_slice_text("{\"src\":1,\"dst\":2}");
    cr_assert_eq(dl_event_decode_headers(decoder, headers, 6, message, &event, &field, &error),
                 DL_OK, "%s", error.text);
    expect_slice(event.id, "/shop e7");
    cr_expect_eq(event.time, INT64_C(1796072312000000));
    /* the same payload without the CloudEvents headers has no time */
    cr_expect_eq(dl_event_decode_headers(decoder, headers, 1, message, &event, &field, &error),
                 DL_ERR_INVALID);
    cr_expect_str_eq(field, "time");
    dl_event_decoder_free(decoder);

    config = config_of(DL_FORMAT_PROTOBUF, DL_TIME_S);
    decoder = decoder_of(&config);
    const struct dl_event_header structured[] = {
        header("content-type", "application/cloudevents+json")};
    message = dl_slice_text("{" ENVELOPE ",\"data\":{\"src\":1,\"dst\":2,\"time\":1790000000}}");
    cr_assert_eq(dl_event_decode_headers(decoder, structured, 1, message, &event, &field, &error),
                 DL_OK, "%s", error.text);
    expect_slice(event.dst, "2");
    dl_event_decoder_free(decoder);
}

Test(event_json, encodes_what_it_decodes)
{
    struct dl_event_decoder_config config = json_config(DL_TIME_ISO8601);
    struct dl_event_decoder *decoder = decoder_of(&config);
    const char *text = "{\"src\":\"a\\\"\xc3\xa9\",\"dst\":\"42\",\"time\":\"2026-11-30T20:58:32."
                       "123456Z\",\"type\":\"t\",\"weight\":0.1,\"features\":[1,2.5],\"id\":\"i\"}";
    struct dl_edge_event event = decoded(decoder, dl_slice_text(text));
    struct dl_buf out = {0};
    dl_event_encode_json(&event, DL_TIME_ISO8601, &out);
    expect_slice(dl_buf_slice(&out), text);
    dl_buf_free(&out);
    dl_event_decoder_free(decoder);
}
