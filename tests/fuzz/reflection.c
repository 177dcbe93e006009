/* Server reflection: whatever is asked, the answer is a message that protobuf-c
 * reads and that holds an answer or an error. */
#include "base/check.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "proto/reflection.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dl_buf out = {0};
    struct dl_error error = {""};
    if (dl_reflection_answer(dl_slice_of(data, size), &out, &error) == DL_OK) {
        /* The request is echoed as it came; protobuf-c reads its extension
         * question, which is of no interest here. */
        Grpc__Reflection__V1__ServerReflectionRequest *request =
            grpc__reflection__v1__server_reflection_request__unpack(NULL, size, data);
        if (request) {
            Grpc__Reflection__V1__ServerReflectionResponse *response =
                grpc__reflection__v1__server_reflection_response__unpack(NULL, out.size, out.data);
            DL_CHECK(response && response->message_response_case != 0);
            grpc__reflection__v1__server_reflection_response__free_unpacked(response, NULL);
            grpc__reflection__v1__server_reflection_request__free_unpacked(request, NULL);
        }
    } else {
        DL_CHECK(error.text[0]);
    }
    dl_buf_free(&out);
    return 0;
}
