/* A block of consecutive edge events as bytes. Pure: no SQLite, no I/O.
 *
 *   u8      version, 1
 *   varint  feature_count
 *   then for each event
 *     u8      tag: what follows, bits below
 *     zigzag  time − time of the event before (0 before the first)  unless SAME_TIME
 *     zigzag  ordinal − ordinal of the event before                 if ORDINAL
 *     varint  src
 *     varint  dst
 *     varint  type                                                  if TYPE
 *     f32     weight, else 1                                        if WEIGHT
 *     f32 × feature_count, else zeros                               if FEATURES
 *
 * Without ORDINAL the ordinal is that of the event before if the time is the
 * same, and one more if it is later: what a feed in order gives.
 *
 * How many events there are, their first sequence number and the checksum are
 * columns of the row. A HOLE (an event that was forgotten) is its tag alone
 * and keeps the numbering of those after it. */
#ifndef DL_STORE_LOG_CODEC_H
#define DL_STORE_LOG_CODEC_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/event.h"

#define DL_LOG_BLOCK_EVENTS_MAX 65536u
/* Tag, time, ordinal, src, dst, type, weight; features come on top. */
#define DL_LOG_EVENT_BYTES_MAX (1 + 10 + 5 + 5 + 5 + 3 + 4)

enum dl_log_tag {
    DL_LOG_SAME_TIME = 1,
    DL_LOG_TYPE = 2,
    DL_LOG_WEIGHT = 4,
    DL_LOG_FEATURES = 8,
    DL_LOG_ORDINAL = 16,
    DL_LOG_HOLE = 32
};

/* Appends the block to *out. count <= DL_LOG_BLOCK_EVENTS_MAX. An event with
 * src == dst == DL_LOG_FORGOTTEN becomes a hole. DL_OK, DL_ERR_NOMEM. */
#define DL_LOG_FORGOTTEN UINT32_MAX
int dl_log_encode(const struct dl_event *events, uint32_t count, uint32_t feature_count,
                  struct dl_buf *out);

/* Reads one event after the other out of hostile bytes. */
struct dl_log_reader {
    struct dl_reader reader;
    uint32_t left, feature_count;
    int64_t time;
    uint32_t ordinal;
    float features[DL_EVENT_FEATURES_MAX];
};

/* DL_OK, DL_ERR_CORRUPT, DL_ERR_VERSION. */
int dl_log_reader_init(struct dl_log_reader *reader, struct dl_slice block, uint32_t count,
                       uint32_t feature_count);
/* 1 and an event (its features borrow from the reader); 2 for a hole; 0 at the
 * end; DL_ERR_CORRUPT. */
int dl_log_next(struct dl_log_reader *reader, struct dl_event *event);

#endif
