/* The codecs when memory runs out: each allocation failing in turn, ours and
 * those of protobuf-c and yajl. A call that could not do its work says so, one that
 * says it did has the right result, and afterwards all is as good as new. */
#include <criterion/criterion.h>

#include "base/record.h"
#include "proto/event_codec.h"
#include "proto/record_codec.h"
#include "tests/support/fail_malloc.h"

#define NOW_US INT64_C(1790000000000000)

static const struct dl_edge_event wanted = {.src = {(const uint8_t *)"alice", 5},
                                            .dst = {(const uint8_t *)"bob", 3},
                                            .time = 1790000000,
                                            .type = {(const uint8_t *)"call", 4},
                                            .weight = 2.5f,
                                            .has_weight = 1,
                                            .feature_count = 2,
                                            .features = {1, 2},
                                            .id = {(const uint8_t *)"id-1", 4}};

static int same_event(const struct dl_edge_event *event)
{
    return dl_slice_equal(event->src, wanted.src) && dl_slice_equal(event->dst, wanted.dst) &&
           dl_slice_equal(event->type, wanted.type) && dl_slice_equal(event->id, wanted.id) &&
           event->time == wanted.time && event->weight == wanted.weight &&
           event->feature_count == 2 && event->features[1] == 2;
}

/* Encodes an event and decodes it again, as a message and as a CloudEvent. */
static int event_there_and_back(enum dl_event_format format)
{
    static const char cloud[] =
        "{\"specversion\":\"1.0\",\"id\":\"x\",\"source\":\"s\",\"type\":\"t\",\"data\":"
        "{\"src\":\"alice\",\"dst\":\"bob\",\"time\":1790000000,\"type\":\"call\",\"weight\":2.5,"
        "\"features\":[1,2],\"id\":\"id-1\"}}";
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder = NULL;
    struct dl_edge_event event;
    struct dl_buf bytes = {0}, header = {0};
    struct dl_error error = {""};
    const char *field = "";
    dl_event_decoder_config_init(&config, NOW_US);
    config.format = format;
    config.feature_count = 2;
    dl_time_rules_init(&config.time, DL_TIME_S, NOW_US);
    int status = dl_event_decoder_new(&config, &decoder, &error);
    if (status == DL_OK && format == DL_FORMAT_PROTOBUF)
        dl_event_encode_protobuf(&wanted, &bytes);
    else if (status == DL_OK && format == DL_FORMAT_JSON)
        dl_event_encode_json(&wanted, DL_TIME_S, &bytes);
    else if (status == DL_OK) {
        dl_event_encode_csv_header(2, &header);
        dl_event_encode_csv(&wanted, DL_TIME_S, &bytes);
    }
    if (status == DL_OK && (bytes.failed || header.failed)) status = DL_ERR_NOMEM;
    if (status == DL_OK && format == DL_FORMAT_CSV)
        status = dl_event_decoder_csv_header(decoder, dl_buf_slice(&header), &error);
    if (status == DL_OK)
        status = dl_event_decode(decoder, dl_buf_slice(&bytes), &event, &field, &error);
    if (status == DL_OK) cr_assert(same_event(&event));
    if (status == DL_OK && format == DL_FORMAT_JSON) {
        status = dl_event_decode(decoder, dl_slice_text(cloud), &event, &field, &error);
        if (status == DL_OK) cr_assert(same_event(&event));
    }
    dl_event_decoder_free(decoder);
    dl_buf_free(&bytes);
    dl_buf_free(&header);
    return status;
}

static int records_there_and_back(void)
{
    struct dl_candidate candidate = {
        .node = wanted.dst, .probability = 0.5, .share = 1, .origin = 1};
    struct dl_alert_feature feature = {.name = "gap"};
    struct dl_score score = {.src = wanted.src, .dst = wanted.dst, .time = 7, .probability = 0.25};
    struct dl_prediction prediction = {
        .node = wanted.src, .time = 7, .candidate_count = 1, .candidates = &candidate};
    struct dl_alert alert = {.number = 3,
                             .kind = DL_ALERT_TEMPORAL_SHIFT,
                             .raised = 1,
                             .reason = "it moved",
                             .feature_count = 1,
                             .features = &feature};
    struct dl_dead_letter letter = {.payload = wanted.src, .reason = "broken", .field = "src"};
    struct dl_buf bytes[8] = {{0}};
    struct dl_arena arena = {0};
    struct dl_error error = {""};
    struct dl_score score_back;
    struct dl_prediction prediction_back;
    struct dl_alert alert_back;
    struct dl_dead_letter letter_back;
    int status = DL_OK;
    for (int format = 0; format < 2; format++) {
        enum dl_record_format as = format ? DL_RECORD_JSON : DL_RECORD_PROTOBUF;
        dl_record_encode_score(&score, as, &bytes[4 * format]);
        dl_record_encode_prediction(&prediction, as, &bytes[4 * format + 1]);
        dl_record_encode_alert(&alert, as, &bytes[4 * format + 2]);
        dl_record_encode_dead_letter(&letter, as, &bytes[4 * format + 3]);
    }
    for (int i = 0; i < 8; i++)
        if (bytes[i].failed) status = DL_ERR_NOMEM;
    if (status == DL_OK)
        status = dl_record_decode_score(dl_buf_slice(&bytes[0]), &score_back, &arena, &error);
    if (status == DL_OK)
        status =
            dl_record_decode_prediction(dl_buf_slice(&bytes[1]), &prediction_back, &arena, &error);
    if (status == DL_OK)
        status = dl_record_decode_alert(dl_buf_slice(&bytes[2]), &alert_back, &arena, &error);
    if (status == DL_OK)
        status =
            dl_record_decode_dead_letter(dl_buf_slice(&bytes[3]), &letter_back, &arena, &error);
    if (status == DL_OK) {
        cr_assert(dl_slice_equal(score_back.dst, wanted.dst));
        cr_assert(prediction_back.candidate_count == 1 &&
                  dl_slice_equal(prediction_back.candidates[0].node, wanted.dst));
        cr_assert_str_eq(alert_back.reason, "it moved");
        cr_assert_str_eq(letter_back.reason, "broken");
    }
    dl_arena_deinit(&arena);
    for (int i = 0; i < 8; i++) dl_buf_free(&bytes[i]);
    return status;
}

/* Runs it with each allocation failing, once or from there on. */
static void fail_in_turn(int (*live)(void), int allocations_at_least)
{
    if (!fail_malloc_available()) cr_skip_test("sanitizers have an allocator of their own");
    for (int stuck = 0; stuck < 2; stuck++) {
        int failed = 0, fired = 1;
        for (uint64_t after = 1; fired; after++) {
            fail_malloc_set(after, stuck);
            int status = live();
            fired = fail_malloc_fired();
            fail_malloc_set(0, 0);
            if (fired && status != DL_OK) failed++;
            if (status != DL_OK)
                cr_assert(fired, "allocation %lu: %d", (unsigned long)after, status);
            if (status != DL_OK)
                cr_assert_eq(status, DL_ERR_NOMEM, "allocation %lu", (unsigned long)after);
            cr_assert_eq(live(), DL_OK);
        }
        cr_assert_geq(failed, allocations_at_least);
    }
}

static int protobuf(void)
{
    return event_there_and_back(DL_FORMAT_PROTOBUF);
}

static int json(void)
{
    return event_there_and_back(DL_FORMAT_JSON);
}

static int csv(void)
{
    return event_there_and_back(DL_FORMAT_CSV);
}

Test(proto_memory, every_allocation_for_a_protobuf_event_fails)
{
    fail_in_turn(protobuf, 2);
}

Test(proto_memory, every_allocation_for_a_json_event_fails)
{
    fail_in_turn(json, 2);
}

Test(proto_memory, every_allocation_for_a_csv_event_fails)
{
    fail_in_turn(csv, 2);
}

Test(proto_memory, every_allocation_for_a_record_fails)
{
    fail_in_turn(records_there_and_back, 8);
}
