/* EdgeEvent from JSON and CloudEvents. What our scanner takes, yajl takes as
 * well; what is decoded is encoded and decoded to the same. The first byte
 * picks the configuration, one bit an option. */
#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "base/check.h"
#include "proto/event_codec.h"
#include "proto/json_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OPTIONS 8

static struct dl_event_decoder *new_decoder(int options)
{
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder;
    dl_event_decoder_config_init(&config, 0);
    config.time.unit = options & 1 ? DL_TIME_ISO8601 : DL_TIME_TICKS;
    config.time.plausible = 0;
    config.cloudevents = options >> 1 & 1;
    if (options & 4) {
        dl_event_mapping_set(&config.mapping, "src", "/a/b", NULL);
        dl_event_mapping_set(&config.mapping, "dst", "/a/1", NULL);
        dl_event_mapping_set(&config.mapping, "time", "/t", NULL);
        dl_event_mapping_set(&config.mapping, "features", "/f,/a/g", NULL);
    }
    DL_CHECK(dl_event_decoder_new(&config, &decoder, NULL) == DL_OK);
    return decoder;
}

static int yajl_takes(struct dl_slice text)
{
    yajl_handle handle = yajl_alloc(NULL, NULL, NULL);
    int fine = yajl_parse(handle, text.data, text.size) == yajl_status_ok &&
               yajl_complete_parse(handle) == yajl_status_ok;
    yajl_free(handle);
    return fine;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dl_event_decoder *decoders[OPTIONS];
    if (!decoders[0])
        for (int i = 0; i < OPTIONS; i++) decoders[i] = new_decoder(i);
    if (size == 0) return 0;
    int options = data[0] % OPTIONS;
    struct dl_slice message = dl_slice_of(data + 1, size - 1);
    struct dl_edge_event event, again;
    struct dl_error error = {""};
    const char *field = NULL;
    if (dl_json_scan(message, NULL, 0, NULL, NULL) == DL_OK) DL_CHECK(yajl_takes(message));
    int status;
    if (data[0] & 0x80) {
        const struct dl_event_header headers[] = {
            {dl_slice_text("ce_specversion"), dl_slice_text("1.0")},
            {dl_slice_text("ce_id"), dl_slice_text("7")},
            {dl_slice_text("ce_time"), dl_slice_text("2026-11-30")},
            {dl_slice_text("content-type"),
             dl_slice_text(data[0] & 0x40 ? "application/protobuf" : "application/json")}};
        status =
            dl_event_decode_headers(decoders[options], headers, 4, message, &event, &field, &error);
    } else {
        status = dl_event_decode(decoders[options], message, &event, &field, &error);
    }
    if (status) {
        DL_CHECK(field && error.text[0]);
        return 0;
    }
    DL_CHECK(event.src.size && event.src.size <= DL_NAME_BYTES_MAX);
    DL_CHECK(event.dst.size && event.dst.size <= DL_NAME_BYTES_MAX);
    DL_CHECK(event.feature_count <= DL_EVENT_FEATURES_MAX);
    enum dl_time_unit unit = options & 1 ? DL_TIME_ISO8601 : DL_TIME_TICKS;
    struct dl_buf out = {0};
    dl_event_encode_json(&event, unit, &out);
    DL_CHECK(yajl_takes(dl_buf_slice(&out)));
    /* Dates beyond the year 9999 are written as numbers, which is no date. */
    if (unit == DL_TIME_TICKS ||
        (event.time >= 0 && event.time < INT64_C(253402300800) * 1000000)) {
        struct dl_event_decoder *plain = decoders[options & 1];
        uint8_t src[DL_NAME_BYTES_MAX], dst[DL_NAME_BYTES_MAX];
        memcpy(src, event.src.data, event.src.size);
        memcpy(dst, event.dst.data, event.dst.size);
        status = dl_event_decode(plain, dl_buf_slice(&out), &again, &field, &error);
        DL_CHECK(status == DL_OK);
        DL_CHECK(dl_slice_equal(again.src, dl_slice_of(src, event.src.size)));
        DL_CHECK(dl_slice_equal(again.dst, dl_slice_of(dst, event.dst.size)));
        DL_CHECK(again.time == event.time && again.weight == event.weight);
        DL_CHECK(again.feature_count == event.feature_count);
        for (uint32_t i = 0; i < event.feature_count; i++)
            DL_CHECK(again.features[i] == event.features[i]);
    }
    dl_buf_free(&out);
    return 0;
}
