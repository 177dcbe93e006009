/* A plain producer for the tools that publish a feed (replay, demo): keyed
 * messages in order, each acknowledged by all replicas or reported. One thread
 * at a time. */
#ifndef DL_SERVICE_KAFKA_FEED_H
#define DL_SERVICE_KAFKA_FEED_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_kafka_feed;

/* `settings`: librdkafka settings as "key=value", (setting_count).
 * DL_ERR_INVALID names the setting that is wrong. */
int dl_kafka_feed_open(const char *brokers, const char *topic, const char *const *settings,
                       uint32_t setting_count, struct dl_kafka_feed **feed, struct dl_error *error);
/* Waits a little for what is under way; the rest is given up. */
void dl_kafka_feed_close(struct dl_kafka_feed *feed);

/* Copies and queues. DL_OK; DL_ERR_FULL: the queue is full, poll and try again;
 * DL_ERR_TOO_LARGE; DL_ERR_IO with detail. */
int dl_kafka_feed_send(struct dl_kafka_feed *feed, struct dl_slice key, struct dl_slice value,
                       struct dl_error *error);
/* Serves acknowledgements for up to timeout_ms. */
void dl_kafka_feed_poll(struct dl_kafka_feed *feed, int timeout_ms);
/* Messages not acknowledged yet. */
uint32_t dl_kafka_feed_pending(const struct dl_kafka_feed *feed);
/* Messages that were refused, and why the first was (borrowed; "" for none). */
uint64_t dl_kafka_feed_failed(const struct dl_kafka_feed *feed, const char **reason);

#endif
