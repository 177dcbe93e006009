/* Rings over the engine's live streams. */
#include "service/http_live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record_codec.h"

#define NODE_INTERVAL_MS 100 /* a name is noted at most this often, so a busy feed pays nothing */

static void name_set(struct dl_live_name *name, struct dl_slice from)
{
    size_t size = from.size < DL_NAME_BYTES_MAX ? from.size : DL_NAME_BYTES_MAX;
    name->size = (uint16_t)size;
    if (size) memcpy(name->bytes, from.data, size);
}

static struct dl_slice name_get(const struct dl_live_name *name)
{
    return dl_slice_of(name->bytes, name->size);
}

int dl_live_init(struct dl_live *live, enum dl_time_unit time_unit)
{
    memset(live, 0, sizeof *live);
    live->time_unit = time_unit;
    live->stream = malloc(DL_LIVE_STREAM_BYTES);
    return live->stream ? DL_OK : DL_ERR_NOMEM;
}

void dl_live_deinit(struct dl_live *live)
{
    free(live->stream);
    live->stream = NULL;
}

void dl_live_alert(struct dl_live *live, uint64_t number, int64_t wall_ms)
{
    live->alerts[live->alert_next] = (struct dl_live_alert){number, wall_ms};
    live->alert_next = (live->alert_next + 1) % DL_LIVE_ALERTS;
    if (live->alert_count < DL_LIVE_ALERTS) live->alert_count++;
}

static void note_node(struct dl_live *live, struct dl_slice name, int64_t wall_ms)
{
    if (wall_ms - live->node_taken_ms < NODE_INTERVAL_MS && live->node_count == DL_LIVE_NODES)
        return;
    live->node_taken_ms = wall_ms;
    for (uint32_t i = 0; i < live->node_count; i++)
        if (dl_slice_equal(name_get(&live->nodes[i]), name)) return;
    name_set(&live->nodes[live->node_next], name);
    live->node_next = (live->node_next + 1) % DL_LIVE_NODES;
    if (live->node_count < DL_LIVE_NODES) live->node_count++;
}

static void note_surprise(struct dl_live *live, const struct dl_score *score, int64_t wall_ms)
{
    struct dl_live_surprise *to = NULL;
    if (live->surprise_count < DL_LIVE_SURPRISES) {
        to = &live->surprises[live->surprise_count++];
    } else {
        to = &live->surprises[0];
        for (uint32_t i = 1; i < live->surprise_count; i++)
            if (live->surprises[i].bits < to->bits) to = &live->surprises[i];
        if (score->surprise_bits <= to->bits) return;
    }
    to->wall_ms = wall_ms;
    to->time = score->time;
    to->bits = score->surprise_bits;
    to->probability = score->probability;
    to->seq = score->seq;
    to->pair_history = score->pair_history;
    name_set(&to->src, score->src);
    name_set(&to->dst, score->dst);
}

void dl_live_score(struct dl_live *live, const struct dl_score *score, int64_t wall_ms)
{
    note_node(live, score->src, wall_ms);
    /* A first event is no surprise: nothing was known of its source. */
    if (score->surprise_bits >= 1 && score->src_history > 0) note_surprise(live, score, wall_ms);
}

void dl_live_expire(struct dl_live *live, int64_t wall_ms)
{
    for (uint32_t i = 0; i < live->surprise_count;) {
        if (wall_ms - live->surprises[i].wall_ms > DL_LIVE_SURPRISE_AGE_MS)
            live->surprises[i] = live->surprises[--live->surprise_count];
        else
            i++;
    }
}

/* ---- the stream ------------------------------------------------------------ */

static void stream_put(struct dl_live *live, const void *data, size_t size)
{
    size_t at = live->stream_end % DL_LIVE_STREAM_BYTES;
    size_t first = size < DL_LIVE_STREAM_BYTES - at ? size : DL_LIVE_STREAM_BYTES - at;
    memcpy(live->stream + at, data, first);
    memcpy(live->stream, (const uint8_t *)data + first, size - first);
    live->stream_end += size;
}

int dl_live_publish(struct dl_live *live, const char *event, struct dl_slice data)
{
    char head[64];
    int head_size = snprintf(head, sizeof head, "event: %s\ndata: ", event);
    size_t total = (size_t)head_size + data.size + 2;
    if (total > DL_LIVE_STREAM_BYTES) return 0;
    if (live->stream_end + total - live->stream_start > DL_LIVE_STREAM_BYTES)
        live->stream_start = live->stream_end + total - DL_LIVE_STREAM_BYTES;
    stream_put(live, head, (size_t)head_size);
    stream_put(live, data.data, data.size);
    stream_put(live, "\n\n", 2);
    return 1;
}

int64_t dl_live_read(const struct dl_live *live, uint64_t *at, uint8_t *out, size_t max)
{
    if (*at < live->stream_start) return -1;
    uint64_t left = live->stream_end - *at;
    size_t size = left < max ? (size_t)left : max;
    size_t from = *at % DL_LIVE_STREAM_BYTES;
    size_t first = size < DL_LIVE_STREAM_BYTES - from ? size : DL_LIVE_STREAM_BYTES - from;
    memcpy(out, live->stream + from, first);
    memcpy(out + first, live->stream, size - first);
    *at += size;
    return (int64_t)size;
}

/* ---- JSON ------------------------------------------------------------------- */

void dl_live_write_time(struct dl_json *json, const char *key, int64_t time, enum dl_time_unit unit)
{
    char text[40], text_key[64];
    dl_time_format(time, unit, text);
    snprintf(text_key, sizeof text_key, "%s_text", key);
    dl_json_key_int(json, key, time);
    dl_json_key_text(json, text_key, text);
}

static void write_alert_clock(const struct dl_live *live, uint64_t number, struct dl_json *json)
{
    dl_json_key(json, "wall_ms");
    for (uint32_t i = 0; i < live->alert_count; i++) {
        if (live->alerts[i].number != number) continue;
        dl_json_int(json, live->alerts[i].wall_ms);
        return;
    }
    dl_json_null(json);
}

static void write_histogram(struct dl_json *json, const char *key, uint32_t bins,
                            const float *shares)
{
    dl_json_key(json, key);
    dl_json_open(json, '[');
    for (uint32_t b = 0; b < bins; b++) dl_json_number(json, round((double)shares[b] * 1e4) / 1e4);
    dl_json_close(json, ']');
}

void dl_live_write_features(struct dl_json *json, uint32_t count,
                            const struct dl_alert_feature *features)
{
    dl_json_key(json, "features");
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < count; i++) {
        dl_json_open(json, '{');
        dl_json_key_text(json, "name", features[i].name);
        dl_json_key_number(json, "share", features[i].share);
        dl_json_key_number(json, "before", features[i].before);
        dl_json_key_number(json, "now", features[i].now);
        dl_json_key_number(json, "low", features[i].low);
        dl_json_key_number(json, "high", features[i].high);
        write_histogram(json, "before_histogram", features[i].before_bins,
                        features[i].before_histogram);
        write_histogram(json, "now_histogram", features[i].now_bins, features[i].now_histogram);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
}

void dl_live_write_alert(const struct dl_live *live, const struct dl_alert *alert,
                         enum dl_time_unit unit, struct dl_json *json)
{
    dl_json_open(json, '{');
    dl_json_key_uint(json, "number", alert->number);
    dl_json_key_text(json, "kind", dl_alert_kind_name(alert->kind));
    dl_json_key_text(json, "severity", dl_alert_severity_name(alert->severity));
    dl_json_key_bool(json, "raised", alert->raised);
    write_alert_clock(live, alert->number, json);
    dl_live_write_time(json, "time", alert->time, unit);
    dl_json_key_uint(json, "seq", alert->seq);
    dl_json_key_number(json, "statistic", alert->statistic);
    dl_json_key_number(json, "threshold", alert->threshold);
    dl_json_key_number(json, "p_value", alert->p_value);
    dl_json_key_uint(json, "window", alert->window);
    dl_json_key_text(json, "reason", alert->reason ? alert->reason : "");
    if (alert->node.size) dl_json_key_slice(json, "node", alert->node);
    dl_live_write_features(json, alert->feature_count, alert->features);
    dl_json_close(json, '}');
}

static int more_surprising(const void *left, const void *right)
{
    const struct dl_live_surprise *a = *(const struct dl_live_surprise *const *)left;
    const struct dl_live_surprise *b = *(const struct dl_live_surprise *const *)right;
    if (a->bits != b->bits) return a->bits < b->bits ? 1 : -1;
    return a->seq < b->seq ? 1 : a->seq > b->seq ? -1 : 0;
}

void dl_live_write_surprises(const struct dl_live *live, struct dl_json *json)
{
    const struct dl_live_surprise *order[DL_LIVE_SURPRISES];
    for (uint32_t i = 0; i < live->surprise_count; i++) order[i] = &live->surprises[i];
    qsort(order, live->surprise_count, sizeof *order, more_surprising);
    dl_json_open(json, '[');
    for (uint32_t i = 0; i < live->surprise_count; i++) {
        dl_json_open(json, '{');
        dl_json_key_slice(json, "src", name_get(&order[i]->src));
        dl_json_key_slice(json, "dst", name_get(&order[i]->dst));
        dl_json_key_int(json, "wall_ms", order[i]->wall_ms);
        dl_live_write_time(json, "time", order[i]->time, live->time_unit);
        dl_json_key_number(json, "surprise_bits", order[i]->bits);
        dl_json_key_number(json, "probability", order[i]->probability);
        dl_json_key_uint(json, "pair_history", order[i]->pair_history);
        dl_json_key_uint(json, "seq", order[i]->seq);
        dl_json_close(json, '}');
    }
    dl_json_close(json, ']');
}

void dl_live_write_nodes(const struct dl_live *live, struct dl_json *json)
{
    dl_json_open(json, '[');
    for (uint32_t i = 1; i <= live->node_count; i++)
        dl_json_slice(
            json, name_get(&live->nodes[(live->node_next + DL_LIVE_NODES - i) % DL_LIVE_NODES]));
    dl_json_close(json, ']');
}
