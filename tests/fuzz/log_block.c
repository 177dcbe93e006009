/* A blob of the edge log. What is read is encoded and read to the same. The
 * first two bytes are the count and the features. */
#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"
#include "store/log_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { COUNT_MAX = 255 };

static struct dl_event events[COUNT_MAX];
static float features[COUNT_MAX][DL_EVENT_FEATURES_MAX];

/* How many were read, or a negative status. */
static int read_all(struct dl_slice block, uint32_t count, uint32_t feature_count)
{
    struct dl_log_reader reader;
    int got = dl_log_reader_init(&reader, block, count, feature_count), n = 0;
    if (got != DL_OK) return got;
    while ((got = dl_log_next(&reader, &events[n])) > 0) {
        if (got == 2) {
            events[n] = (struct dl_event){.src = DL_LOG_FORGOTTEN, .dst = DL_LOG_FORGOTTEN};
        } else if (events[n].features) {
            memcpy(features[n], events[n].features, feature_count * sizeof(float));
            events[n].features = features[n];
        }
        n++;
    }
    return got < 0 ? got : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    uint32_t count = data[0], feature_count = data[1] % (DL_EVENT_FEATURES_MAX + 1);
    int n = read_all(dl_slice_of(data + 2, size - 2), count, feature_count);
    if (n < 0) return 0;
    struct dl_buf first = {0}, second = {0};
    DL_CHECK((uint32_t)n == count);
    DL_CHECK(dl_log_encode(events, count, feature_count, &first) == DL_OK);
    DL_CHECK(read_all(dl_buf_slice(&first), count, feature_count) == n);
    DL_CHECK(dl_log_encode(events, count, feature_count, &second) == DL_OK);
    DL_CHECK(dl_slice_equal(dl_buf_slice(&first), dl_buf_slice(&second)));
    dl_buf_free(&first);
    dl_buf_free(&second);
    return 0;
}
