/* The inside of the Kafka sink, shared by kafka_sink.c (the loop's side) and
 * kafka_publisher.c (the thread) alone. */
#ifndef DL_SERVICE_KAFKA_SINK_INTERNAL_H
#define DL_SERVICE_KAFKA_SINK_INTERNAL_H

#include <pthread.h>

#include "service/kafka_common.h"
#include "service/kafka_sink.h"

#define CHUNK_ROWS 4000                  /* a chunk ends with the message that reaches this, */
#define CHUNK_ROWS_MAX (CHUNK_ROWS + 64) /* so records of one message stay together */
#define CHUNK_BYTES (4u << 20)
#define LINEAGE_BYTES 17

struct chunk_row {
    uint64_t seq;
    size_t topic_at; /* all into chunk.bytes */
    size_t key_at, key_size, headers_at, headers_size, payload_at, payload_size;
    struct dl_position position;
    int sourced; /* its message's offset decides whether readers have it */
    int skip;    /* readers have it */
    enum dl_outbox_kind kind;
};

/* Copies of rows, in order, all records of a message or none. */
struct chunk {
    struct chunk_row *rows; /* (CHUNK_ROWS_MAX) */
    uint32_t count;
    uint32_t sent; /* of them, by the last attempt */
    struct dl_buf bytes;
};

static inline int dl_chunk_full(const struct chunk *chunk)
{
    return chunk->count >= CHUNK_ROWS || chunk->bytes.size >= CHUNK_BYTES;
}

enum state { STARTING, IDLE, SENDING, SENT, STOPPED };

struct dl_kafka_sink {
    struct dl_kafka_sink_parts parts;
    pthread_t thread;
    int has_thread;
    uv_async_t *async;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    enum state state;
    int stopping;
    int look;              /* committed offsets are asked for */
    int blocked;           /* the oldest row waits for another instance's commit */
    char reason[1024];     /* of a failure, or "" */
    uint64_t reconciled;   /* unsourced rows of this lineage that readers have */
    int reconcile_pending; /* 1: `reconciled` is known; 2: and was looked at */
    int told_failure;

    struct chunk chunk; /* the loop's while IDLE, the thread's while SENDING */
    uint64_t delivered;
    uint64_t next_at_open;       /* the outbox's next number when the sink was opened */
    char lineage[LINEAGE_BYTES]; /* of the store's numbering; fixed once IDLE */

    /* the thread's */
    rd_kafka_t *producer;
    int transactional;
    int64_t noted_ns; /* when the partitions were last listed */
    int64_t transaction_begun_ns, transaction_timeout_ns;
    uint64_t failed_reports; /* delivery reports with an error, this chunk */
    rd_kafka_resp_err_t report_error;
};

/* kafka_publisher.c */
int dl_kafka_publisher_make(struct dl_kafka_sink *sink, struct dl_error *error);
void *dl_kafka_publisher_run(void *sink);

#endif
