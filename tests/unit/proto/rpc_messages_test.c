#include <stdio.h>

#include "driftline/v1/service.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "proto/record_codec.h"
#include "proto/rpc_messages.h"
#include "support.h"
#include "tables.h"

static const struct {
    const struct dl_message_type *type;
    const ProtobufCMessageDescriptor *descriptor;
} messages[] = {
    {&dl_msg_score_request_type, &driftline__v1__score_request__descriptor},
    {&dl_msg_score_response_type, &driftline__v1__score_response__descriptor},
    {&dl_msg_top_k_request_type, &driftline__v1__top_krequest__descriptor},
    {&dl_msg_top_k_response_type, &driftline__v1__top_kresponse__descriptor},
    {&dl_msg_window_request_type, &driftline__v1__get_window_request__descriptor},
    {&dl_msg_window_response_type, &driftline__v1__get_window_response__descriptor},
    {&dl_msg_explain_request_type, &driftline__v1__explain_request__descriptor},
    {&dl_msg_explain_response_type, &driftline__v1__explain_response__descriptor},
    {&dl_msg_drift_request_type, &driftline__v1__get_drift_request__descriptor},
    {&dl_msg_drift_response_type, &driftline__v1__get_drift_response__descriptor},
    {&dl_msg_renew_request_type, &driftline__v1__renew_reference_request__descriptor},
    {&dl_msg_renew_response_type, &driftline__v1__renew_reference_response__descriptor},
    {&dl_msg_model_request_type, &driftline__v1__get_model_request__descriptor},
    {&dl_msg_model_response_type, &driftline__v1__get_model_response__descriptor},
    {&dl_msg_forget_request_type, &driftline__v1__forget_request__descriptor},
    {&dl_msg_forget_response_type, &driftline__v1__forget_response__descriptor},
    {&dl_msg_ingest_request_type, &driftline__v1__ingest_request__descriptor},
    {&dl_msg_ingest_response_type, &driftline__v1__ingest_response__descriptor},
    {&dl_msg_subscribe_predictions_type, &driftline__v1__subscribe_predictions_request__descriptor},
    {&dl_msg_subscribe_scores_type, &driftline__v1__subscribe_scores_request__descriptor},
    {&dl_msg_subscribe_alerts_type, &driftline__v1__subscribe_alerts_request__descriptor},
    {&dl_msg_prediction_message_type, &driftline__v1__prediction_message__descriptor},
    {&dl_msg_score_message_type, &driftline__v1__score_message__descriptor},
    {&dl_msg_alert_message_type, &driftline__v1__alert_message__descriptor},
    {&dl_msg_health_request_type, &grpc__health__v1__health_check_request__descriptor},
    {&dl_msg_health_response_type, &grpc__health__v1__health_check_response__descriptor},
};
#define COUNT (sizeof messages / sizeof *messages)

Test(rpc_messages, tables_agree_with_the_proto_files)
{
    for (size_t i = 0; i < COUNT; i++)
        expect_table_agrees(messages[i].type, messages[i].descriptor);
}

Test(rpc_messages, random_messages_survive_protobuf_c)
{
    for (size_t i = 0; i < COUNT; i++)
        expect_round_trips(messages[i].type, messages[i].descriptor, 100 + i, 1000);
}

Test(rpc_messages, methods_are_those_of_the_service)
{
    const ProtobufCServiceDescriptor *service = &driftline__v1__link_prediction__descriptor;
    cr_assert_eq(service->n_methods, DL_METHOD_SUBSCRIBE_ALERTS + 1);
    for (unsigned i = 0; i < service->n_methods; i++) {
        char path[128];
        snprintf(path, sizeof path, "/%s/%s", service->name, service->methods[i].name);
        enum dl_msg_method_id id = dl_msg_method_find(dl_slice_text(path));
        cr_assert_lt(id, DL_METHOD_COUNT, "%s", path);
        cr_expect_str_eq(dl_msg_methods[id].request->name, service->methods[i].input->name);
        cr_expect_str_eq(dl_msg_methods[id].response->name, service->methods[i].output->name);
    }
    cr_expect_eq(dl_msg_method_find(dl_slice_text("/grpc.health.v1.Health/Watch")),
                 DL_METHOD_HEALTH_WATCH);
    cr_expect_eq(dl_msg_method_find(dl_slice_text("/nobody/Knows")), DL_METHOD_COUNT);
    cr_expect_eq(dl_msg_method_find(dl_slice_of(NULL, 0)), DL_METHOD_COUNT);
}

/* ---- limits ------------------------------------------------------------------------ */

static char *name_of_size(size_t size)
{
    static char name[4096];
    memset(name, 'n', size);
    name[size] = 0;
    return name;
}

static void expect_decode(const struct dl_message_type *type, const struct dl_buf *wire, int wanted,
                          const char *text)
{
    static union {
        struct dl_msg_score_request score;
        struct dl_msg_top_k_request top_k;
        struct dl_msg_subscribe_scores subscribe;
        struct dl_msg_ingest_request ingest;
        struct dl_msg_drift_request drift;
    } message;
    struct dl_arena arena = {0};
    struct dl_error error = {""};
    memset(&message, 0, sizeof message);
    int status = dl_message_decode(type, dl_buf_slice(wire), &message, &arena, &error);
    cr_expect_eq(status, wanted, "%s: %d %s", type->name, status, error.text);
    cr_expect(strstr(error.text, text), "\"%s\" lacks \"%s\"", error.text, text);
    dl_arena_deinit(&arena);
}

Test(rpc_messages, a_score_request_is_bounded)
{
    static struct dl_msg_pair pairs[DL_MSG_PAIRS_MAX + 1];
    struct dl_msg_score_request request = {.pair_count = DL_MSG_PAIRS_MAX, .pairs = pairs};
    struct dl_buf wire = {0};
    for (int i = 0; i <= DL_MSG_PAIRS_MAX; i++)
        pairs[i] = (struct dl_msg_pair){dl_slice_text("a"), dl_slice_text("b"), 0, 0};
    dl_message_encode(&dl_msg_score_request_type, &request, &wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_OK, "");
    request.pair_count++;
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_score_request_type, &request, &wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_ERR_TOO_LARGE,
                  "pairs has 10001 elements, the limit is 10000");
    request.pair_count = 18;
    pairs[17].dst = (struct dl_slice){0};
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_score_request_type, &request, &wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_ERR_INVALID,
                  "pairs[17].dst is missing or empty");
    pairs[17].dst = dl_slice_text(name_of_size(257));
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_score_request_type, &request, &wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_ERR_TOO_LARGE,
                  "pairs[17].dst is 257 bytes long, the limit is 256");
    pairs[17].dst = dl_slice_text("\xff");
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_score_request_type, &request, &wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_ERR_INVALID, "pairs[17].dst \"\\xff\"");
    dl_buf_clear(&wire);
    expect_decode(&dl_msg_score_request_type, &wire, DL_ERR_INVALID, "pairs is missing");
    dl_buf_free(&wire);
}

Test(rpc_messages, other_requests_are_bounded)
{
    static struct dl_slice names[DL_MSG_CANDIDATES_MAX + 1];
    struct dl_buf wire = {0};
    for (int i = 0; i <= DL_MSG_CANDIDATES_MAX; i++) names[i] = dl_slice_text("c");
    struct dl_msg_top_k_request top = {.node = dl_slice_text("n"),
                                       .k = DL_MSG_K_MAX,
                                       .candidate_count = DL_MSG_CANDIDATES_MAX,
                                       .candidates = names};
    dl_message_encode(&dl_msg_top_k_request_type, &top, &wire);
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_OK, "");
    top.candidate_count++;
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_top_k_request_type, &top, &wire);
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_ERR_TOO_LARGE, "the limit is 4096");
    top.candidate_count = 2;
    names[1] = (struct dl_slice){0};
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_top_k_request_type, &top, &wire);
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_ERR_INVALID, "candidates[1] is missing");
    top.candidate_count = 0;
    top.k++;
    dl_buf_clear(&wire);
    dl_message_encode(&dl_msg_top_k_request_type, &top, &wire);
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_ERR_INVALID,
                  "k is 1001, the limit is 1000");
    dl_buf_clear(&wire);
    dl_buf_append(&wire, "\x0a\x01n\x10\x81\x80\x80\x80\x80\x80\x01", 11); /* k = 2^42 + 1 */
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_ERR_INVALID, "the limit is 1000");
    dl_buf_clear(&wire);
    dl_buf_append(&wire, "\x0a\x01n\x12\x01n", 6);
    expect_decode(&dl_msg_top_k_request_type, &wire, DL_ERR_INVALID, "k has wire type 2");
    dl_buf_clear(&wire);
    dl_buf_append(&wire, "\x11\0\0\0\0\0\0\xf8\x7f", 9);
    expect_decode(&dl_msg_subscribe_scores_type, &wire, DL_ERR_INVALID,
                  "surprise_bits_min is not a finite number");
    dl_buf_clear(&wire);
    expect_decode(&dl_msg_ingest_request_type, &wire, DL_ERR_INVALID, "events is missing");
    for (int i = 0; i <= DL_MSG_INGEST_MAX; i++) dl_buf_append(&wire, "\x0a\0", 2);
    expect_decode(&dl_msg_ingest_request_type, &wire, DL_ERR_TOO_LARGE, "the limit is 1000");
    dl_buf_clear(&wire);
    dl_buf_append(&wire, "\x08\xe9\x07", 3);
    expect_decode(&dl_msg_drift_request_type, &wire, DL_ERR_INVALID, "alerts_max is 1001");
    dl_buf_free(&wire);
}

Test(rpc_messages, a_hostile_list_takes_no_memory_before_its_limit)
{
    struct dl_buf wire = {0};
    for (int i = 0; i < 500000; i++) dl_buf_append(&wire, "\x0a\0", 2);
    struct dl_msg_score_request request = {0};
    struct dl_arena arena = {0};
    cr_expect_eq(
        dl_message_decode(&dl_msg_score_request_type, dl_buf_slice(&wire), &request, &arena, NULL),
        DL_ERR_TOO_LARGE);
    cr_expect_eq(arena.total, 0);
    dl_buf_free(&wire);
}

Test(rpc_messages, a_response_reads_as_json)
{
    const float features[] = {0.5f, 2};
    const struct dl_msg_interaction past[] = {{.peer = dl_slice_text("b"),
                                               .direction = DL_MSG_DIRECTION_OUT,
                                               .time = 5,
                                               .seq = 1,
                                               .weight = 1,
                                               .feature_count = 2,
                                               .features = features}};
    struct dl_msg_window_response window = {.node = dl_slice_text("a"),
                                            .known = 1,
                                            .events = 1,
                                            .events_out = 1,
                                            .first_time = 5,
                                            .last_time = 5,
                                            .interaction_count = 1,
                                            .interactions = past,
                                            .window_max = 64,
                                            .time_unit = "s"};
    struct dl_buf wire = {0}, json = {0};
    dl_message_encode(&dl_msg_window_response_type, &window, &wire);
    cr_assert_eq(dl_message_to_json(&dl_msg_window_response_type, dl_buf_slice(&wire), &json, NULL),
                 DL_OK);
    expect_slice(dl_buf_slice(&json),
                 "{\"node\":\"a\",\"known\":true,\"events\":1,\"events_out\":1,\"events_in\":0,"
                 "\"first_time\":5,\"last_time\":5,\"interactions\":[{\"peer\":\"b\","
                 "\"direction\":\"out\",\"time\":5,\"seq\":1,\"weight\":1,\"features\":[0.5,2]}],"
                 "\"window_max\":64,\"time_unit\":\"s\"}");
    dl_buf_clear(&json);
    dl_message_json(&dl_msg_model_request_type, &(struct dl_msg_empty){0}, &json);
    expect_slice(dl_buf_slice(&json), "{}");
    dl_buf_free(&wire);
    dl_buf_free(&json);
}
