/* Every RPC message and record from bytes. The first byte picks the type. What
 * is decoded, protobuf-c takes as well; it is encoded, decoded and encoded to
 * the same bytes; and its JSON is JSON. */
#include <stdlib.h>

#include "base/check.h"
#include "driftline/v1/service.pb-c.h"
#include "grpc/health/v1/health.pb-c.h"
#include "proto/json_scan.h"
#include "proto/record_codec.h"
#include "proto/rpc_messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
    const struct dl_message_type *type;
    const ProtobufCMessageDescriptor *descriptor; /* NULL: protobuf-c looks deeper than we do */
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
    {&dl_msg_ingest_request_type, NULL},
    {&dl_msg_ingest_response_type, &driftline__v1__ingest_response__descriptor},
    {&dl_msg_subscribe_predictions_type, &driftline__v1__subscribe_predictions_request__descriptor},
    {&dl_msg_subscribe_scores_type, &driftline__v1__subscribe_scores_request__descriptor},
    {&dl_msg_subscribe_alerts_type, &driftline__v1__subscribe_alerts_request__descriptor},
    {&dl_msg_prediction_message_type, &driftline__v1__prediction_message__descriptor},
    {&dl_msg_score_message_type, &driftline__v1__score_message__descriptor},
    {&dl_msg_alert_message_type, &driftline__v1__alert_message__descriptor},
    {&dl_msg_health_request_type, &grpc__health__v1__health_check_request__descriptor},
    {&dl_msg_health_response_type, &grpc__health__v1__health_check_response__descriptor},
    {&dl_dead_letter_type, &driftline__v1__dead_letter__descriptor},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    size_t which = data[0] % (sizeof messages / sizeof *messages);
    const struct dl_message_type *type = messages[which].type;
    struct dl_slice bytes = dl_slice_of(data + 1, size - 1);
    struct dl_arena arena = {0};
    struct dl_buf first = {0}, second = {0}, json = {0};
    struct dl_error error = {""};
    void *message = dl_arena_take(&arena, type->size), *again = dl_arena_take(&arena, type->size);
    DL_CHECK(message && again);
    int status = dl_message_decode(type, bytes, message, &arena, &error);
    if (status) {
        DL_CHECK(error.text[0]);
    } else {
        if (messages[which].descriptor) {
            ProtobufCMessage *theirs =
                protobuf_c_message_unpack(messages[which].descriptor, NULL, bytes.size, bytes.data);
            DL_CHECK(theirs != NULL);
            protobuf_c_message_free_unpacked(theirs, NULL);
        }
        dl_message_encode(type, message, &first);
        status = dl_message_decode(type, dl_buf_slice(&first), again, &arena, &error);
        DL_CHECK(status == DL_OK);
        dl_message_encode(type, again, &second);
        DL_CHECK(dl_slice_equal(dl_buf_slice(&first), dl_buf_slice(&second)));
        dl_message_json(type, message, &json);
        DL_CHECK(dl_json_scan(dl_buf_slice(&json), NULL, 0, NULL, &error) == DL_OK);
    }
    dl_buf_free(&first);
    dl_buf_free(&second);
    dl_buf_free(&json);
    dl_arena_deinit(&arena);
    return 0;
}
