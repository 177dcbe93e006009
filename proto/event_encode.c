/* An edge event to bytes: protobuf, JSON by the default mapping, CSV. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "proto/event_codec.h"
#include "proto/json_scan.h"
#include "proto/text.h"
#include "proto/wire.h"

void dl_event_encode_protobuf(const struct dl_edge_event *event, struct dl_buf *out)
{
    dl_wire_bytes(out, 1, event->src);
    dl_wire_bytes(out, 2, event->dst);
    dl_wire_varint(out, 3, (uint64_t)event->time);
    if (event->type.size) dl_wire_bytes(out, 4, event->type);
    if (event->has_weight) dl_wire_float(out, 5, event->weight);
    if (event->feature_count) {
        dl_wire_tag(out, 6, DL_WIRE_BYTES);
        dl_buf_varint(out, 4 * event->feature_count);
        for (uint32_t i = 0; i < event->feature_count; i++) dl_buf_f32(out, event->features[i]);
    }
    if (event->id.size) dl_wire_bytes(out, 7, event->id);
}

static void put_json_text(struct dl_buf *out, const char *name, struct dl_slice text)
{
    dl_buf_printf(out, ",\"%s\":", name);
    dl_json_put_string(out, text);
}

static void put_time(struct dl_buf *out, int64_t time, enum dl_time_unit unit, const char *quote)
{
    char text[40];
    if (unit != DL_TIME_ISO8601) {
        dl_buf_printf(out, "%" PRId64, time);
        return;
    }
    dl_time_format(time, unit, text);
    dl_buf_text(out, quote);
    dl_buf_text(out, text);
    dl_buf_text(out, quote);
}

void dl_event_encode_json(const struct dl_edge_event *event, enum dl_time_unit unit,
                          struct dl_buf *out)
{
    char number[32];
    dl_buf_text(out, "{\"src\":");
    dl_json_put_string(out, event->src);
    put_json_text(out, "dst", event->dst);
    dl_buf_text(out, ",\"time\":");
    put_time(out, event->time, unit, "\"");
    if (event->type.size) put_json_text(out, "type", event->type);
    if (event->has_weight) {
        dl_buf_text(out, ",\"weight\":");
        dl_buf_text(out, dl_text_from_float(event->weight, number));
    }
    for (uint32_t i = 0; i < event->feature_count; i++) {
        dl_buf_text(out, i ? "," : ",\"features\":[");
        dl_buf_text(out, dl_text_from_float(event->features[i], number));
    }
    if (event->feature_count) dl_buf_u8(out, ']');
    if (event->id.size) put_json_text(out, "id", event->id);
    dl_buf_u8(out, '}');
}

static void put_csv_text(struct dl_buf *out, struct dl_slice text)
{
    int plain = 1;
    for (size_t i = 0; i < text.size && plain; i++)
        plain = text.data[i] != '"' && text.data[i] != ',' && text.data[i] != '\n' &&
                text.data[i] != '\r';
    /* Spaces at the ends belong to the text; some readers would trim them. */
    if (text.size && (text.data[0] == ' ' || text.data[text.size - 1] == ' ')) plain = 0;
    if (plain) {
        dl_buf_append(out, text.data, text.size);
        return;
    }
    dl_buf_u8(out, '"');
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == '"') dl_buf_u8(out, '"');
        dl_buf_u8(out, text.data[i]);
    }
    dl_buf_u8(out, '"');
}

void dl_event_encode_csv(const struct dl_edge_event *event, enum dl_time_unit unit,
                         struct dl_buf *out)
{
    char number[32];
    put_csv_text(out, event->src);
    dl_buf_u8(out, ',');
    put_csv_text(out, event->dst);
    dl_buf_u8(out, ',');
    put_time(out, event->time, unit, "");
    dl_buf_u8(out, ',');
    put_csv_text(out, event->type);
    dl_buf_u8(out, ',');
    if (event->has_weight) dl_buf_text(out, dl_text_from_float(event->weight, number));
    dl_buf_u8(out, ',');
    put_csv_text(out, event->id);
    for (uint32_t i = 0; i < event->feature_count; i++) {
        dl_buf_u8(out, ',');
        dl_buf_text(out, dl_text_from_float(event->features[i], number));
    }
}

void dl_event_encode_csv_header(uint32_t feature_count, struct dl_buf *out)
{
    dl_buf_text(out, "src,dst,time,type,weight,id");
    for (uint32_t i = 0; i < feature_count; i++) dl_buf_printf(out, ",f%" PRIu32, i);
}
