/* Model files as hostile input: whatever the bytes, a file is loaded whole or
 * refused with one line. */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "model/model.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(int status, const struct dl_error *error)
{
    DL_CHECK(status < 0);
    DL_CHECK(memchr(error->text, 0, sizeof error->text) != NULL);
    DL_CHECK(error->text[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dl_error error = {{0}};
    struct dl_safetensors *tensors;
    struct dl_model *model;
    int status = dl_safetensors_parse(dl_slice_of(data, size), "fuzz", 1 << 16, &tensors, &error);
    if (status) {
        check_message(status, &error);
    } else {
        for (uint32_t i = 0; i < dl_safetensors_count(tensors); i++) {
            const struct dl_tensor *tensor = dl_safetensors_at(tensors, i);
            /* Every byte of every tensor may be read. */
            volatile uint8_t sum = 0;
            for (size_t j = 0; j < tensor->data.size; j++) sum ^= tensor->data.data[j];
            DL_CHECK(dl_safetensors_find(tensors, tensor->name) == tensor);
        }
        dl_safetensors_free(tensors);
    }
    status = dl_model_load_bytes(dl_slice_of(data, size), "fuzz", &model, &error);
    if (status)
        check_message(status, &error);
    else
        dl_model_unref(model);
    return 0;
}
