/* A CSV header line and then lines. What is decoded is encoded and decoded to
 * the same. */
#include "base/check.h"
#include "proto/event_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dl_slice next_line(struct dl_slice *rest)
{
    const uint8_t *end = rest->size ? memchr(rest->data, '\n', rest->size) : NULL;
    size_t size = end ? (size_t)(end - rest->data) + 1 : rest->size;
    struct dl_slice line = dl_slice_of(rest->data, size);
    *rest = dl_slice_of(rest->data + size, rest->size - size);
    return line;
}

static struct dl_event_decoder *new_decoder(void)
{
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder;
    dl_event_decoder_config_init(&config, 0);
    config.format = DL_FORMAT_CSV;
    config.time.unit = DL_TIME_TICKS;
    DL_CHECK(dl_event_decoder_new(&config, &decoder, NULL) == DL_OK);
    return decoder;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dl_slice rest = dl_slice_of(data, size);
    struct dl_event_decoder *decoder = new_decoder(), *second = new_decoder();
    struct dl_buf out = {0};
    struct dl_error error = {""};
    if (size && dl_event_decoder_csv_header(decoder, next_line(&rest), &error) == DL_OK) {
        while (rest.size) {
            struct dl_edge_event event, again;
            const char *field = NULL;
            error.text[0] = 0;
            int status = dl_event_decode(decoder, next_line(&rest), &event, &field, &error);
            if (status) {
                DL_CHECK(field && error.text[0]);
                continue;
            }
            dl_buf_clear(&out);
            dl_event_encode_csv_header(event.feature_count, &out);
            DL_CHECK(dl_event_decoder_csv_header(second, dl_buf_slice(&out), NULL) == DL_OK);
            dl_buf_clear(&out);
            dl_event_encode_csv(&event, DL_TIME_TICKS, &out);
            DL_CHECK(dl_event_decode(second, dl_buf_slice(&out), &again, &field, &error) == DL_OK);
            DL_CHECK(dl_slice_equal(event.src, again.src) && dl_slice_equal(event.dst, again.dst));
            DL_CHECK(dl_slice_equal(event.id, again.id) && dl_slice_equal(event.type, again.type));
            DL_CHECK(event.time == again.time && event.weight == again.weight);
            DL_CHECK(event.has_weight == again.has_weight);
            DL_CHECK(event.feature_count == again.feature_count);
            for (uint32_t i = 0; i < event.feature_count; i++)
                DL_CHECK(event.features[i] == again.features[i]);
        }
    }
    dl_buf_free(&out);
    dl_event_decoder_free(decoder);
    dl_event_decoder_free(second);
    return 0;
}
