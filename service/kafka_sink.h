/* The Kafka sink: publishes the store's outbox, in order.
 *
 *   outbox rows ──copy──> chunk ──thread──> produce ... commit ──> rows removed
 *
 * With a Kafka source a chunk is one Kafka transaction that also commits the
 * source offsets, with the last outbox row's number in the commit metadata
 * ("outbox=N"). After a crash the metadata says which rows readers have, so
 * those are removed unsent. Without a Kafka source, or where the broker has no
 * transactions, rows are sent by an idempotent producer and a crash between
 * sending and removing repeats the chunk (at least once); the log says which.
 *
 * One chunk is under way at a time. The thread holds copies and touches neither
 * the store nor the engine; everything else is the loop's thread. A broker that
 * is away is waited for; a fenced producer (another instance runs under the
 * same identity) is a failure. */
#ifndef DL_SERVICE_KAFKA_SINK_H
#define DL_SERVICE_KAFKA_SINK_H

#include <uv.h>

#include "service/config.h"
#include "service/engine.h"

struct dl_kafka_sink;

/* `consumer`: the source's rd_kafka_t, or NULL. `failed` as in kafka_source.h. */
int dl_kafka_sink_open(uv_loop_t *loop, const struct dl_config *config, struct dl_engine *engine,
                       struct dl_store *store, void *consumer, struct dl_service_metrics *metrics,
                       void (*failed)(void *context, const char *reason), void *context,
                       struct dl_kafka_sink **sink, struct dl_error *error);
/* There may be rows in the outbox. */
void dl_kafka_sink_wake(struct dl_kafka_sink *sink);
/* 1: every row was delivered, and nothing is under way. */
int dl_kafka_sink_idle(const struct dl_kafka_sink *sink);
/* 1: the producer is ready (its identity is established). */
int dl_kafka_sink_ready(const struct dl_kafka_sink *sink);
/* Rows delivered since the start. */
uint64_t dl_kafka_sink_delivered(const struct dl_kafka_sink *sink);
/* Gives up what is under way (it stays in the outbox) and frees everything;
 * the loop must run once more. */
void dl_kafka_sink_close(struct dl_kafka_sink *sink);

#endif
