#include <math.h>

#include "driftline/v1/records.pb-c.h"
#include "proto/json_scan.h"
#include "proto/record_codec.h"
#include "support.h"
#include "tables.h"

static const struct {
    const struct dl_message_type *type;
    const ProtobufCMessageDescriptor *descriptor;
} records[] = {
    {&dl_score_type, &driftline__v1__score__descriptor},
    {&dl_prediction_type, &driftline__v1__prediction__descriptor},
    {&dl_alert_type, &driftline__v1__alert__descriptor},
    {&dl_dead_letter_type, &driftline__v1__dead_letter__descriptor},
};

Test(record_codec, tables_agree_with_the_proto_files)
{
    for (size_t i = 0; i < 4; i++) expect_table_agrees(records[i].type, records[i].descriptor);
}

Test(record_codec, random_records_survive_protobuf_c)
{
    for (size_t i = 0; i < 4; i++)
        expect_round_trips(records[i].type, records[i].descriptor, i, 3000);
}

static struct dl_score a_score(void)
{
    return (struct dl_score){.src = dl_slice_text("a\"b"),
                             .dst = dl_slice_text("c"),
                             .time = INT64_C(1790000000123456789),
                             .seq = 7,
                             .probability = 0.25,
                             .surprise_bits = 2,
                             .src_history = 3,
                             .pair_history = 1,
                             .model_version = dl_slice_text("00112233445566ff"),
                             .position = {.topic = "events", .partition = 2, .offset = 99}};
}

Test(record_codec, a_score_reads_as_written_by_protobuf_c)
{
    struct dl_score score = a_score();
    struct dl_buf out = {0};
    dl_record_encode_score(&score, DL_RECORD_PROTOBUF, &out);
    Driftline__V1__Score *back = driftline__v1__score__unpack(NULL, out.size, out.data);
    cr_assert_not_null(back);
    cr_expect_str_eq(back->src, "a\"b");
    cr_expect_eq(back->time, INT64_C(1790000000123456789));
    cr_expect_eq(back->probability, 0.25);
    cr_expect_eq(back->src_history, 3);
    cr_expect_null(back->quality);
    cr_expect_str_eq(back->position->topic, "events");
    cr_expect_eq(back->position->offset, 99);
    driftline__v1__score__free_unpacked(back, NULL);

    score.has_negative = 1;
    score.negative = dl_slice_text("n");
    score.negative_probability = 0.5;
    score.rank_times_2 = 5;
    score.negatives = 20;
    dl_buf_clear(&out);
    dl_record_encode_score(&score, DL_RECORD_PROTOBUF, &out);
    back = driftline__v1__score__unpack(NULL, out.size, out.data);
    cr_assert_not_null(back);
    cr_assert_not_null(back->quality);
    cr_expect_str_eq(back->quality->negative, "n");
    cr_expect_eq(back->quality->rank_times_2, 5);
    driftline__v1__score__free_unpacked(back, NULL);

    struct dl_score mine;
    struct dl_arena arena = {0};
    cr_assert_eq(dl_record_decode_score(dl_buf_slice(&out), &mine, &arena, NULL), DL_OK);
    cr_expect(mine.has_negative);
    cr_expect_eq(mine.negatives, 20);
    expect_slice(mine.src, "a\"b");
    cr_expect_eq(mine.seq, 7, "the quality message leaves the score alone");
    dl_arena_deinit(&arena);
    dl_buf_free(&out);
}

Test(record_codec, json_is_stable_and_readable)
{
    struct dl_score score = a_score();
    struct dl_buf out = {0};
    dl_record_encode_score(&score, DL_RECORD_JSON, &out);
    expect_slice(dl_buf_slice(&out),
                 "{\"src\":\"a\\\"b\",\"dst\":\"c\",\"time\":1790000000123456789,\"seq\":7,"
                 "\"probability\":0.25,\"surprise_bits\":2,\"src_history\":3,\"dst_history\":0,"
                 "\"pair_history\":1,\"model_version\":\"00112233445566ff\","
                 "\"position\":{\"topic\":\"events\",\"partition\":2,\"offset\":99}}");

    const struct dl_candidate candidates[] = {
        {.node = dl_slice_text("x"), .probability = 0.9, .share = 0.6, .origin = 5, .history = 4},
        {.node = dl_slice_text("y"), .probability = 0.1, .share = 0.4, .pair_history = 2}};
    struct dl_prediction prediction = {.node = dl_slice_text("n"),
                                       .time = -5,
                                       .seq = UINT64_MAX,
                                       .history = 1,
                                       .scored = 2,
                                       .candidate_count = 2,
                                       .candidates = candidates};
    dl_buf_clear(&out);
    dl_record_encode_prediction(&prediction, DL_RECORD_JSON, &out);
    expect_slice(dl_buf_slice(&out),
                 "{\"node\":\"n\",\"time\":-5,\"seq\":18446744073709551615,\"history\":1,"
                 "\"scored\":2,\"candidates\":[{\"node\":\"x\",\"probability\":0.9,\"share\":0.6,"
                 "\"origin\":[\"window\",\"popular\"],\"history\":4,\"pair_history\":0},"
                 "{\"node\":\"y\",\"probability\":0.1,\"share\":0.4,\"origin\":[],\"history\":0,"
                 "\"pair_history\":2}],\"position\":{\"partition\":0,\"offset\":0}}");

    static const float before[] = {0.5f, 0.5f}, now[] = {0, 1};
    const struct dl_alert_feature moved[] = {{.name = "gap",
                                              .share = 0.75,
                                              .before = 1.5,
                                              .now = 2.5,
                                              .low = -1,
                                              .high = 4,
                                              .before_bins = 2,
                                              .now_bins = 2,
                                              .before_histogram = before,
                                              .now_histogram = now}};
    struct dl_alert alert = {.number = 1,
                             .kind = DL_ALERT_TEMPORAL_SHIFT,
                             .severity = DL_SEVERITY_CRITICAL,
                             .raised = 1,
                             .statistic = 0.5,
                             .threshold = NAN,
                             .window = 500,
                             .reason = "gap moved",
                             .feature_count = 1,
                             .features = moved};
    dl_buf_clear(&out);
    dl_record_encode_alert(&alert, DL_RECORD_JSON, &out);
    expect_slice(dl_buf_slice(&out),
                 "{\"number\":1,\"kind\":\"temporal_shift\",\"raised\":true,\"time\":0,\"seq\":0,"
                 "\"statistic\":0.5,\"threshold\":null,\"p_value\":0,\"window\":500,"
                 "\"reason\":\"gap moved\",\"features\":[{\"name\":\"gap\",\"share\":0.75,"
                 "\"before\":1.5,\"now\":2.5,\"low\":-1,\"high\":4,"
                 "\"before_histogram\":[0.5,0.5],\"now_histogram\":[0,1]}],"
                 "\"position\":{\"partition\":0,\"offset\":0},\"severity\":\"critical\"}");

    struct dl_dead_letter letter = {.payload = dl_slice_of("\0\xff{", 3),
                                    .reason = "src is missing",
                                    .field = "src",
                                    .received_us = 5};
    dl_buf_clear(&out);
    dl_record_encode_dead_letter(&letter, DL_RECORD_JSON, &out);
    expect_slice(dl_buf_slice(&out),
                 "{\"payload\":\"AP97\",\"reason\":\"src is missing\","
                 "\"field\":\"src\",\"position\":{\"partition\":0,\"offset\":0},"
                 "\"received_us\":5}");
    cr_expect_eq(dl_json_scan(dl_buf_slice(&out), NULL, 0, NULL, NULL), DL_OK);
    dl_buf_free(&out);
}

Test(record_codec, protobuf_turns_into_the_same_json)
{
    struct dl_score score = a_score();
    struct dl_buf wire = {0}, direct = {0}, by_wire = {0};
    score.has_negative = 1;
    score.negative = dl_slice_text("n");
    dl_record_encode_score(&score, DL_RECORD_PROTOBUF, &wire);
    dl_record_encode_score(&score, DL_RECORD_JSON, &direct);
    struct dl_error error = {""};
    cr_assert_eq(dl_message_to_json(&dl_score_type, dl_buf_slice(&wire), &by_wire, &error), DL_OK,
                 "%s", error.text);
    cr_expect(dl_slice_equal(dl_buf_slice(&direct), dl_buf_slice(&by_wire)));
    wire.size -= 3;
    cr_expect_eq(dl_message_to_json(&dl_score_type, dl_buf_slice(&wire), &by_wire, &error),
                 DL_ERR_INVALID);
    cr_expect(strstr(error.text, "truncated"), "%s", error.text);
    dl_buf_free(&wire);
    dl_buf_free(&direct);
    dl_buf_free(&by_wire);
}

Test(record_codec, long_submessages_get_long_lengths)
{
    struct dl_candidate candidates[1000];
    for (int i = 0; i < 1000; i++)
        candidates[i] = (struct dl_candidate){.node = dl_slice_text("a node with a long name"),
                                              .probability = 1.0 / (i + 1)};
    struct dl_prediction prediction = {
        .node = dl_slice_text("n"), .candidate_count = 1000, .candidates = candidates};
    struct dl_buf wire = {0};
    dl_record_encode_prediction(&prediction, DL_RECORD_PROTOBUF, &wire);
    Driftline__V1__Prediction *back = driftline__v1__prediction__unpack(NULL, wire.size, wire.data);
    cr_assert_not_null(back);
    cr_expect_eq(back->n_candidates, 1000);
    cr_expect_eq(back->candidates[999]->probability, 1.0 / 1000);
    driftline__v1__prediction__free_unpacked(back, NULL);
    dl_buf_free(&wire);
}

Test(record_codec, alert_kinds_have_names)
{
    cr_expect_str_eq(dl_alert_kind_name(DL_ALERT_FEED_STALLED), "feed_stalled");
    cr_expect_str_eq(dl_alert_kind_name(DL_ALERT_FEED_FAST), "feed_fast");
    cr_expect_str_eq(dl_alert_kind_name((enum dl_alert_kind)77), "unknown");
}
