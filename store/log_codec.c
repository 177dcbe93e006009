/* Encoding and decoding of a log block. */
#include "store/log_codec.h"

#include "base/status.h"

enum { VERSION = 1, TAGS_KNOWN = 63 };

static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_f32(uint8_t *at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(bits >> (8 * i));
    return at + 4;
}

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
            /* Wraps around in uint64: any two int64 times have a difference. */
            uint64_t delta = (uint64_t)event->time - (uint64_t)time;
            at = put_varint(at, (delta << 1) ^ (uint64_t) - (int64_t)(delta >> 63));
            time = event->time;
        }
        if (event->ordinal != ordinal) {
            *tag |= DL_LOG_ORDINAL;
            int64_t delta = (int64_t)event->ordinal - (int64_t)ordinal;
            at = put_varint(at, delta < 0 ? ~((uint64_t)delta << 1) : (uint64_t)delta << 1);
            ordinal = event->ordinal;
        }
        at = put_varint(at, event->src);
        at = put_varint(at, event->dst);
        if (event->type != 0) {
            *tag |= DL_LOG_TYPE;
            at = put_varint(at, event->type);
        }
        if (event->weight != 1.0f) { /* NaN too */
            *tag |= DL_LOG_WEIGHT;
            at = put_f32(at, event->weight);
        }
        if (event->features && feature_count > 0) {
            *tag |= DL_LOG_FEATURES;
            for (uint32_t k = 0; k < feature_count; k++) at = put_f32(at, event->features[k]);
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
    /* Ids are short: one or two bytes are the common case. */
    if (reader->at < reader->end && !reader->failed && *reader->at < 0x80) {
        uint64_t value = *reader->at++;
        if (value > max) reader->failed = 1;
        return value;
    }
    uint64_t value = dl_read_varint(reader);
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
        uint64_t delta = take_varint(in, UINT64_MAX);
        delta = (delta >> 1) ^ (uint64_t) - (int64_t)(delta & 1);
        int64_t time = (int64_t)((uint64_t)reader->time + delta);
        reader->ordinal += time > reader->time;
        reader->time = time;
    }
    if (tag & DL_LOG_ORDINAL) {
        uint64_t delta = take_varint(in, (uint64_t)UINT32_MAX << 1 | 1);
        delta = (delta >> 1) ^ (uint64_t) - (int64_t)(delta & 1);
        reader->ordinal += (uint32_t)delta; /* modulo 2^32: back as well as on */
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
