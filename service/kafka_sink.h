/* The Kafka sink: publishes the store's outbox, in order.
 *
 *   outbox rows ──copy──> chunk ──thread──> produce ... commit ──> rows removed
 *
 * A chunk is one Kafka transaction that also commits the source offsets, so the
 * group's committed offset of a partition says which of its records readers
 * have (kafka_share.h). Rows that come from no Kafka message (ingested events,
 * files, renewals) go by their number: a transaction that holds some commits
 * "outbox=N store=ID" as the metadata of an offset of the group
 * "<group.id>-progress" as well. ID names the numbering, so that a store that
 * was lost, or restored from an old copy, is not mistaken for the one that
 * published. Where the broker has no transactions rows are sent by an
 * idempotent producer, and a crash between sending and removing repeats the
 * chunk (at least once); the log says which.
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
#include "service/kafka_share.h"

struct dl_kafka_sink;

/* All borrowed. */
struct dl_kafka_sink_parts {
    uv_loop_t *loop;
    const struct dl_config *config;
    struct dl_engine *engine;
    struct dl_store *store;
    void *consumer;                     /* the source's rd_kafka_t; NULL: no Kafka source */
    struct dl_kafka_share *share;       /* with a consumer */
    struct dl_service_metrics *metrics; /* NULL: not counted */
    /* Once, with one line, when the sink can go no further. */
    void (*failed)(void *context, const char *reason);
    /* Committed offsets that were asked for are known. May be NULL. */
    void (*learnt)(void *context);
    void *context;
};

int dl_kafka_sink_open(const struct dl_kafka_sink_parts *parts, struct dl_kafka_sink **sink,
                       struct dl_error *error);
/* There may be rows in the outbox. */
void dl_kafka_sink_wake(struct dl_kafka_sink *sink);
/* The share asks for committed offsets. */
void dl_kafka_sink_look(struct dl_kafka_sink *sink);
/* 1: nothing is under way, and every row was delivered or waits for another
 * instance. */
int dl_kafka_sink_idle(const struct dl_kafka_sink *sink);
/* 1: the producer is ready (its identity is established). */
int dl_kafka_sink_ready(const struct dl_kafka_sink *sink);
/* Rows delivered since the start. */
uint64_t dl_kafka_sink_delivered(const struct dl_kafka_sink *sink);
/* Gives up what is under way (it stays in the outbox) and frees everything;
 * the loop must run once more. */
void dl_kafka_sink_close(struct dl_kafka_sink *sink);

#endif
