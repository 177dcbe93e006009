/* Encoding and decoding of a log block. */
#include "store/log_codec.h"

#include "base/status.h"

enum { VERSION = 1, TAGS_KNOWN = 63 };

int dl_log_encode(const struct dl_event *events, uint32_t count, uint32_t feature_count,
                  struct dl_buf *out)
{
    dl_buf_u8(out, VERSION);
    dl_buf_varint(out, feature_count);
    size_t most = (size_t)count * (DL_LOG_EVENT_BYTES_MAX + 4 * (size_t)feature_count);
    if (dl_buf_reserve(out, most) != DL_OK) return DL_ERR_NOMEM;

    /* Reserved for the worst case, so the loop writes without a check. */
    uint8_t *at = out->data + out->size;
    int64_t time = 0;
    uint32_t ordinal = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct dl_event *event = &events[i];
        uint8_t *tag = at++;
        *tag = 0;
        if (event->src == DL_LOG_FORGOTTEN && event->dst == DL_LOG_FORGOTTEN) {
            *tag = DL_LOG_HOLE;
            continue;
        }
        if (event->time == time) {
            *tag |= DL_LOG_SAME_TIME;
        } else {
            ordinal += event->time > time;
            at = dl_put_varint(at, dl_zigzag((uint64_t)event->time - (uint64_t)time));
            time = event->time;
        }
        if (event->ordinal != ordinal) {
            *tag |= DL_LOG_ORDINAL;
            at = dl_put_varint(at, dl_zigzag((uint64_t)event->ordinal - ordinal));
            ordinal = event->ordinal;
        }
        at = dl_put_varint(at, event->src);
        at = dl_put_varint(at, event->dst);
        if (event->type != 0) {
            *tag |= DL_LOG_TYPE;
            at = dl_put_varint(at, event->type);
        }
        if (event->weight != 1.0f) { /* NaN too */
            *tag |= DL_LOG_WEIGHT;
            at = dl_put_f32(at, event->weight);
        }
        if (event->features && feature_count > 0) {
            *tag |= DL_LOG_FEATURES;
            for (uint32_t k = 0; k < feature_count; k++) at = dl_put_f32(at, event->features[k]);
        }
    }
    out->size = (size_t)(at - out->data);
    return DL_OK;
}

int dl_log_reader_init(struct dl_log_reader *reader, struct dl_slice block, uint32_t count,
                       uint32_t feature_count)
{
    *reader = (struct dl_log_reader){
        .reader = dl_reader_of(block), .left = count, .feature_count = feature_count};
    uint8_t version = dl_read_u8(&reader->reader);
    uint64_t features = dl_read_varint(&reader->reader);
    if (reader->reader.failed) return DL_ERR_CORRUPT;
    if (version != VERSION) return DL_ERR_VERSION;
    if (features != feature_count || feature_count > DL_EVENT_FEATURES_MAX) return DL_ERR_CORRUPT;
    return DL_OK;
}

/* A varint of at most `max`; sets `failed` beyond it. */
static uint64_t take_varint(struct dl_reader *reader, uint64_t max)
{
    uint64_t value = dl_take_varint(reader);
    if (value > max) reader->failed = 1;
    return value;
}

int dl_log_next(struct dl_log_reader *reader, struct dl_event *event)
{
    struct dl_reader *in = &reader->reader;
    if (reader->left == 0) return dl_reader_left(in) == 0 ? 0 : DL_ERR_CORRUPT;
    reader->left--;
    uint8_t tag = dl_read_u8(in);
    if (in->failed || tag > TAGS_KNOWN) return DL_ERR_CORRUPT;
    if (tag & DL_LOG_HOLE) return tag == DL_LOG_HOLE ? 2 : DL_ERR_CORRUPT;
    if (!(tag & DL_LOG_SAME_TIME)) {
        int64_t time = (int64_t)((uint64_t)reader->time + dl_unzigzag(dl_take_varint(in)));
        reader->ordinal += time > reader->time;
        reader->time = time;
    }
    if (tag & DL_LOG_ORDINAL) {
        /* Modulo 2^32: back as well as on. */
        reader->ordinal += (uint32_t)dl_unzigzag(take_varint(in, (uint64_t)UINT32_MAX << 1 | 1));
    }
    event->time = reader->time;
    event->ordinal = reader->ordinal;
    event->src = (uint32_t)take_varint(in, UINT32_MAX - 1);
    event->dst = (uint32_t)take_varint(in, UINT32_MAX - 1);
    event->type = tag & DL_LOG_TYPE ? (uint16_t)take_varint(in, UINT16_MAX) : 0;
    event->weight = tag & DL_LOG_WEIGHT ? dl_read_f32(in) : 1.0f;
    event->features = NULL;
    if (tag & DL_LOG_FEATURES) {
        for (uint32_t k = 0; k < reader->feature_count; k++) reader->features[k] = dl_read_f32(in);
        event->features = reader->features;
    }
    return in->failed ? DL_ERR_CORRUPT : 1;
}
