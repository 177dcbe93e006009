/* What the HTTP face remembers of the engine's live streams: when alerts came,
 * nodes seen lately, the most surprising events of the last ten minutes, and
 * the bytes of the event stream, encoded once for all listeners. All bounded;
 * loop's thread only. Private to the http_*.c files and their test. */
#ifndef DL_SERVICE_HTTP_LIVE_H
#define DL_SERVICE_HTTP_LIVE_H

#include <stdint.h>

#include "base/clock.h"
#include "base/record.h"
#include "base/status.h"
#include "service/json_out.h"

#define DL_LIVE_ALERTS 100
#define DL_LIVE_NODES 24
#define DL_LIVE_SURPRISES 20
#define DL_LIVE_SURPRISE_AGE_MS 600000
#define DL_LIVE_STREAM_BYTES (256 * 1024)

/* When an alert came. */
struct dl_live_alert {
    uint64_t number;
    int64_t wall_ms;
};

struct dl_live_name {
    uint16_t size;
    uint8_t bytes[DL_NAME_BYTES_MAX];
};

struct dl_live_surprise {
    int64_t wall_ms, time;
    double bits, probability;
    uint64_t seq;
    uint32_t pair_history;
    struct dl_live_name src, dst;
};

struct dl_live {
    enum dl_time_unit time_unit;
    struct dl_live_alert alerts[DL_LIVE_ALERTS]; /* ring */
    uint32_t alert_count, alert_next;
    struct dl_live_name nodes[DL_LIVE_NODES]; /* ring of distinct names */
    uint32_t node_count, node_next;
    int64_t node_taken_ms;
    struct dl_live_surprise surprises[DL_LIVE_SURPRISES]; /* unordered */
    uint32_t surprise_count;
    /* The stream: byte number p stands at p % DL_LIVE_STREAM_BYTES; the bytes
     * from start to end are there, and end is the end of a message. */
    uint8_t *stream;
    uint64_t stream_start, stream_end;
};

/* DL_OK or DL_ERR_NOMEM. */
int dl_live_init(struct dl_live *live, enum dl_time_unit time_unit);
void dl_live_deinit(struct dl_live *live);

void dl_live_alert(struct dl_live *live, uint64_t number, int64_t wall_ms);
void dl_live_score(struct dl_live *live, const struct dl_score *score, int64_t wall_ms);
/* Drops surprises that are too old. */
void dl_live_expire(struct dl_live *live, int64_t wall_ms);

/* Appends one server-sent event; data holds no line breaks. A message that
 * would not fit the stream is left out. Returns 1 if it was appended. */
int dl_live_publish(struct dl_live *live, const char *event, struct dl_slice data);
/* Copies up to `max` bytes from position *at, which moves on. Returns how
 * many; -1 when the bytes at *at are gone (the reader was too slow). */
int64_t dl_live_read(const struct dl_live *live, uint64_t *at, uint8_t *out, size_t max);

/* JSON. "wall_ms" of an alert from before this start is null. Surprises are
 * largest first, nodes newest first. */
void dl_live_write_alert(const struct dl_live *live, const struct dl_alert *alert,
                         enum dl_time_unit unit, struct dl_json *json);
/* The key "features" with what moved. */
void dl_live_write_features(struct dl_json *json, uint32_t count,
                            const struct dl_alert_feature *features);
void dl_live_write_surprises(const struct dl_live *live, struct dl_json *json);
void dl_live_write_nodes(const struct dl_live *live, struct dl_json *json);

/* "time" as a number of the unit, "time_text" as ISO 8601 in UTC, or the
 * number again for ticks. */
void dl_live_write_time(struct dl_json *json, const char *key, int64_t time,
                        enum dl_time_unit unit);

#endif
