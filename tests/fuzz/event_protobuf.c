/* EdgeEvent from protobuf: what our decoder takes, protobuf-c takes as well and
 * finds the same in it; what it takes is encoded and decoded to the same. The
 * first byte says whether schema registry framing is expected. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "driftline/v1/event.pb-c.h"
#include "proto/event_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dl_event_decoder *new_decoder(enum dl_event_format format)
{
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder;
    dl_event_decoder_config_init(&config, 0);
    config.format = format;
    config.time.unit = DL_TIME_TICKS;
    DL_CHECK(dl_event_decoder_new(&config, &decoder, NULL) == DL_OK);
    return decoder;
}

static void check_text(struct dl_slice text, const char *theirs)
{
    DL_CHECK(dl_slice_equal(text, dl_slice_text(theirs)));
}

static void compare(const struct dl_edge_event *event, const Driftline__V1__EdgeEvent *theirs)
{
    char number[32];
    if (theirs->source_case == DRIFTLINE__V1__EDGE_EVENT__SOURCE_SRC_NUMBER) {
        snprintf(number, sizeof number, "%lld", (long long)theirs->src_number);
        check_text(event->src, number);
    } else {
        check_text(event->src, theirs->src);
    }
    if (theirs->destination_case == DRIFTLINE__V1__EDGE_EVENT__DESTINATION_DST_NUMBER) {
        snprintf(number, sizeof number, "%lld", (long long)theirs->dst_number);
        check_text(event->dst, number);
    } else {
        check_text(event->dst, theirs->dst);
    }
    DL_CHECK(theirs->when_case == DRIFTLINE__V1__EDGE_EVENT__WHEN_TIME);
    DL_CHECK(event->time == theirs->time);
    check_text(event->type, theirs->type);
    check_text(event->id, theirs->id);
    DL_CHECK(event->has_weight == (theirs->amount_case != 0));
    if (event->has_weight) DL_CHECK(event->weight == theirs->weight);
    DL_CHECK(event->feature_count == theirs->n_features);
    for (uint32_t i = 0; i < event->feature_count; i++)
        DL_CHECK(event->features[i] == theirs->features[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct dl_event_decoder *plain, *framed;
    if (!plain) {
        plain = new_decoder(DL_FORMAT_PROTOBUF);
        framed = new_decoder(DL_FORMAT_CONFLUENT);
    }
    struct dl_edge_event event, again;
    struct dl_error error = {""};
    const char *field = NULL;
    if (size == 0) return 0;
    int is_framed = data[0] & 1;
    struct dl_slice message = dl_slice_of(data + 1, size - 1);
    int status = dl_event_decode(is_framed ? framed : plain, message, &event, &field, &error);
    if (status) {
        DL_CHECK(field && error.text[0]);
        return 0;
    }
    if (is_framed) {
        /* 0x00, id, then one index byte, or a count and an index */
        size_t skip = message.data[5] == 0 ? 6 : 7;
        message = dl_slice_of(message.data + skip, message.size - skip);
    }
    Driftline__V1__EdgeEvent *theirs =
        driftline__v1__edge_event__unpack(NULL, message.size, message.data);
    DL_CHECK(theirs != NULL);
    compare(&event, theirs);
    struct dl_buf out = {0};
    dl_event_encode_protobuf(&event, &out);
    struct dl_edge_event kept = event;
    static uint8_t names[2][DL_NAME_BYTES_MAX];
    memcpy(names[0], event.src.data, event.src.size);
    memcpy(names[1], event.dst.data, event.dst.size);
    kept.src.data = names[0];
    kept.dst.data = names[1];
    DL_CHECK(dl_event_decode(plain, dl_buf_slice(&out), &again, &field, &error) == DL_OK);
    DL_CHECK(dl_slice_equal(again.src, kept.src) && dl_slice_equal(again.dst, kept.dst));
    compare(&again, theirs);
    dl_buf_free(&out);
    driftline__v1__edge_event__free_unpacked(theirs, NULL);
    return 0;
}
