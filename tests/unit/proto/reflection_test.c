#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "proto/reflection.h"
#include "support.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

static response_t *ask(request_t *request)
{
    uint8_t bytes[2048];
    struct dl_buf out = {0};
    struct dl_error error = {""};
    size_t size = grpc__reflection__v1__server_reflection_request__pack(request, bytes);
    cr_assert_eq(dl_reflection_answer(dl_slice_of(bytes, size), &out, &error), DL_OK, "%s",
                 error.text);
    response_t *response =
        grpc__reflection__v1__server_reflection_response__unpack(NULL, out.size, out.data);
    cr_assert_not_null(response);
    cr_assert_not_null(response->original_request);
    dl_buf_free(&out);
    return response;
}

static void done(response_t *response)
{
    grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
}

static size_t files_for(const char *name, const char *symbol)
{
    request_t request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    if (name) {
        request.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME;
        request.file_by_filename = (char *)name;
    } else {
        request.message_request_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
        request.file_containing_symbol = (char *)symbol;
    }
    response_t *response = ask(&request);
    size_t count = 0;
    if (response->message_response_case ==
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE)
        count = response->file_descriptor_response->n_file_descriptor_proto;
    else
        cr_expect_eq(response->error_response->error_code, 5);
    done(response);
    return count;
}

Test(reflection, lists_all_services)
{
    request_t request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.host = (char *)"here";
    request.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    request.list_services = (char *)"";
    response_t *response = ask(&request);
    cr_expect_str_eq(response->valid_host, "here");
    cr_assert_eq(
        response->message_response_case,
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE);
    static const char *const wanted[] = {"driftline.v1.LinkPrediction", "grpc.health.v1.Health",
                                         "grpc.reflection.v1.ServerReflection",
                                         "grpc.reflection.v1alpha.ServerReflection"};
    Grpc__Reflection__V1__ListServiceResponse *list = response->list_services_response;
    cr_assert_eq(list->n_service, 4);
    for (size_t i = 0; i < 4; i++) {
        int found = 0;
        for (size_t j = 0; j < 4; j++) found += strcmp(list->service[j]->name, wanted[i]) == 0;
        cr_expect_eq(found, 1, "%s", wanted[i]);
    }
    done(response);
}

Test(reflection, finds_files_with_their_imports)
{
    cr_expect_eq(files_for("driftline/v1/service.proto", NULL), 3);
    cr_expect_eq(files_for("driftline/v1/event.proto", NULL), 1);
    cr_expect_eq(files_for("grpc/health/v1/health.proto", NULL), 1);
    cr_expect_eq(files_for("driftline/v1", NULL), 0);
    cr_expect_eq(files_for("", NULL), 0);
}

Test(reflection, finds_symbols_of_every_kind)
{
    static const char *const there[] = {"driftline.v1.LinkPrediction",
                                        "driftline.v1.LinkPrediction.TopK",
                                        "driftline.v1.EdgeEvent",
                                        "driftline.v1.EdgeEvent.src",
                                        "driftline.v1.EdgeEvent.source",
                                        "driftline.v1.Direction",
                                        "driftline.v1.DIRECTION_OUT",
                                        "grpc.health.v1.HealthCheckResponse.ServingStatus",
                                        "grpc.health.v1.HealthCheckResponse.SERVING",
                                        "grpc.reflection.v1.ServerReflection"};
    static const char *const not_there[] = {"",
                                            "driftline.v1",
                                            "driftline.v1.",
                                            "driftline.v1.Nobody",
                                            "driftline.v1.EdgeEven",
                                            "driftline.v1.EdgeEvent.",
                                            "driftline.v1.EdgeEvent.src.src",
                                            "driftline.v1.LinkPrediction.Nothing",
                                            "LinkPrediction"};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        cr_expect_gt(files_for(NULL, there[i]), 0, "%s", there[i]);
    for (size_t i = 0; i < sizeof not_there / sizeof *not_there; i++)
        cr_expect_eq(files_for(NULL, not_there[i]), 0, "%s", not_there[i]);
}

Test(reflection, refuses_what_is_no_question)
{
    struct dl_buf out = {0};
    struct dl_error error = {""};
    cr_expect_eq(dl_reflection_answer(dl_slice_of("\x3a\x05x", 3), &out, &error), DL_ERR_INVALID);
    cr_expect_eq(dl_reflection_answer(dl_slice_of("\x38\x05", 2), &out, &error), DL_ERR_INVALID);
    cr_expect_eq(dl_reflection_answer(dl_slice_of("\x22\x01\xff", 3), &out, &error),
                 DL_ERR_INVALID);
    static uint8_t large[2000] = {0x22, 0xcd, 0x0f};
    memset(large + 3, 'x', sizeof large - 3);
    cr_expect_eq(dl_reflection_answer(dl_slice_of(large, sizeof large), &out, &error),
                 DL_ERR_TOO_LARGE);
    dl_buf_clear(&out);
    cr_expect_eq(dl_reflection_answer(dl_slice_of(NULL, 0), &out, &error), DL_OK);
    /* both versions read the same */
    Grpc__Reflection__V1alpha__ServerReflectionResponse *response =
        grpc__reflection__v1alpha__server_reflection_response__unpack(NULL, out.size, out.data);
    cr_assert_not_null(response);
    cr_expect_eq(response->error_response->error_code, 3);
    grpc__reflection__v1alpha__server_reflection_response__free_unpacked(response, NULL);
    dl_buf_free(&out);
}
