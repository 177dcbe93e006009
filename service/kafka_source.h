/* The Kafka source: consumes topics into the engine as fast as there is room.
 *
 * Positions come from the store, not from the group: a partition that is
 * assigned starts at the engine's next offset; one never seen at its beginning
 * (or end, by source.start). What readers have already (kafka_share.h) fills
 * the state and is not published again. A partition is given back to the group
 * after what was taken in of it is published. librdkafka wakes the loop; each wake-up drains a
 * bounded number of messages. While the engine has no room nothing is
 * consumed, and after two seconds of that the partitions are paused so that
 * the group's heartbeat goes on. An offset that the broker no longer has is a
 * failure that names the choice to make; a broker that is away is waited for.
 *
 * The loop's thread. */
#ifndef DL_SERVICE_KAFKA_SOURCE_H
#define DL_SERVICE_KAFKA_SOURCE_H

#include <uv.h>

#include "service/config.h"
#include "service/engine.h"
#include "service/intake.h"
#include "service/kafka_share.h"
#include "service/kafka_sink.h"

struct dl_kafka_source;

/* `failed` is called once, with one line, when the source can go no further. */
int dl_kafka_source_open(uv_loop_t *loop, const struct dl_config *config, struct dl_engine *engine,
                         struct dl_intake *intake, struct dl_service_metrics *metrics,
                         void (*failed)(void *context, const char *reason), void *context,
                         struct dl_kafka_source **source, struct dl_error *error);
/* Before the loop runs: where records are published and who has what (none of
 * the two where nothing is published). */
int dl_kafka_source_attach(struct dl_kafka_source *source, struct dl_kafka_share *share,
                           struct dl_kafka_sink *sink, struct dl_error *error);
/* Committed offsets were learnt, or output was published. */
void dl_kafka_source_settle(struct dl_kafka_source *source);
/* There may be room again. */
void dl_kafka_source_resume(struct dl_kafka_source *source);
/* Consumes nothing more; stays in the group until it is closed. */
void dl_kafka_source_stop(struct dl_kafka_source *source);
/* Leaves the group and frees everything; the loop must run once more. */
void dl_kafka_source_close(struct dl_kafka_source *source);

/* 1: partitions are assigned and a broker answers. */
int dl_kafka_source_ready(const struct dl_kafka_source *source);
/* 1: every assigned partition was read to its end at least once. */
int dl_kafka_source_caught_up(const struct dl_kafka_source *source);

/* The consumer (rd_kafka_t), for the sink's transactions. */
void *dl_kafka_source_consumer(const struct dl_kafka_source *source);

#endif
