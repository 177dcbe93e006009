/* See broker.h. */
#include "tests/sim/broker.h"

#include <stdlib.h>

enum { ROWS_MAX = 400 };

struct chunk {
    struct sim_record rows[ROWS_MAX];
    uint64_t seqs[ROWS_MAX];
    int count, room;
};

void sim_broker_init(struct sim_broker *broker)
{
    *broker = (struct sim_broker){0};
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++) broker->committed[p] = -1;
}

void sim_broker_deinit(struct sim_broker *broker)
{
    for (int i = 0; i < broker->count; i++) dl_buf_free(&broker->records[i].bytes);
    free(broker->records);
}

void sim_publisher_start(struct sim_broker *broker, struct dl_kafka_share *share,
                         struct dl_engine *engine, int partitions)
{
    for (int p = 0; p < partitions; p++) {
        dl_kafka_share_assign(share, SIM_TOPIC, p);
        dl_kafka_share_learn(share, SIM_TOPIC, p, broker->committed[p]);
        if (broker->committed[p] >= 0)
            dl_engine_published(engine, SIM_TOPIC, p, broker->committed[p]);
    }
}

/* Records of one message stay together. */
static int take_row(void *user, const struct dl_outbox_row *row)
{
    struct chunk *chunk = user;
    int sourced = row->position.topic[0] != '\0';
    struct sim_record *last = chunk->count ? &chunk->rows[chunk->count - 1] : NULL;
    if (last && chunk->count >= chunk->room &&
        !(sourced && last->offset == row->position.offset &&
          last->partition == row->position.partition))
        return 1;
    if (chunk->count == ROWS_MAX) abort();
    chunk->seqs[chunk->count] = row->seq;
    struct sim_record *record = &chunk->rows[chunk->count++];
    *record = (struct sim_record){.kind = row->kind,
                                  .partition = row->position.partition,
                                  .offset = sourced ? row->position.offset : -1};
    dl_buf_text(&record->bytes, row->topic);
    dl_buf_append(&record->bytes, row->key.data, row->key.size);
    dl_buf_append(&record->bytes, row->headers.data, row->headers.size);
    dl_buf_append(&record->bytes, row->payload.data, row->payload.size);
    return 0;
}

/* Ends with the first row that has to wait. Rows that readers have stay, emptied. */
static void choose(const struct sim_broker *broker, struct dl_kafka_share *share,
                   struct chunk *chunk, int skip[ROWS_MAX])
{
    for (int i = 0; i < chunk->count; i++) {
        const struct sim_record *row = &chunk->rows[i];
        enum dl_kafka_verdict verdict =
            row->offset < 0
                ? (chunk->seqs[i] <= broker->progress ? DL_KAFKA_DROP : DL_KAFKA_PUBLISH)
                : dl_kafka_share_judge(share, SIM_TOPIC, row->partition, row->offset);
        if (verdict == DL_KAFKA_WAIT) {
            for (int k = i; k < chunk->count; k++) dl_buf_free(&chunk->rows[k].bytes);
            chunk->count = i;
        }
        skip[i] = verdict == DL_KAFKA_DROP;
    }
}

static void commit(struct sim_broker *broker, struct chunk *chunk, const int skip[ROWS_MAX])
{
    for (int i = 0; i < chunk->count; i++) {
        struct sim_record *row = &chunk->rows[i];
        if (skip[i]) continue;
        if (row->offset < 0)
            broker->progress = chunk->seqs[chunk->count - 1];
        else if (row->offset + 1 > broker->committed[row->partition])
            broker->committed[row->partition] = row->offset + 1;
        if (row->kind == DL_OUTBOX_FORGOTTEN) continue;
        if (broker->count == broker->capacity) {
            broker->capacity = broker->capacity ? broker->capacity * 2 : 256;
            broker->records =
                realloc(broker->records, (size_t)broker->capacity * sizeof *broker->records);
            if (!broker->records) abort();
        }
        broker->records[broker->count++] = *row;
        row->bytes = (struct dl_buf){0};
    }
}

static void learn(const struct sim_broker *broker, struct dl_kafka_share *share)
{
    for (int p = 0; p < SIM_PARTITIONS_MAX; p++)
        if (broker->committed[p] >= 0)
            dl_kafka_share_learn(share, SIM_TOPIC, p, broker->committed[p]);
}

enum sim_publish sim_publish(struct sim_broker *broker, struct dl_kafka_share *share,
                             struct dl_engine *engine, struct dl_store *store, struct dl_rng *rng,
                             int faults, struct dl_error *error)
{
    struct chunk chunk = {.room = 1 + (int)dl_rng_below(rng, 60)};
    int skip[ROWS_MAX];
    uint64_t first, next;
    enum { COMMIT, ABORT, UNKNOWN, CRASH_BEFORE, CRASH_AFTER, FATES };
    enum sim_publish result = SIM_PUBLISHED;
    uint64_t fate = faults ? dl_rng_below(rng, 40) : COMMIT;
    if (fate >= FATES) fate = COMMIT;
    dl_store_outbox_range(store, &first, &next);
    if (first == next) return SIM_NOTHING;
    int status = dl_store_outbox_read(store, first, UINT32_MAX, take_row, &chunk, error);
    if (status < 0) return SIM_FAILED;
    choose(broker, share, &chunk, skip);
    if (fate == ABORT || fate == CRASH_BEFORE || chunk.count == 0) {
        result = fate == CRASH_BEFORE ? SIM_CRASHED : SIM_ABORTED;
    } else {
        commit(broker, &chunk, skip);
        if (fate == UNKNOWN) { /* a new producer asks what came of it, and sends nothing again */
            learn(broker, share);
            choose(broker, share, &chunk, skip);
            commit(broker, &chunk, skip);
        }
        learn(broker, share);
        status = fate == CRASH_AFTER
                     ? DL_OK
                     : dl_engine_delivered(engine, chunk.seqs[chunk.count - 1], error);
        if (fate != CRASH_AFTER && status == DL_OK && dl_rng_below(rng, 2))
            status = dl_engine_sweep(engine, error);
        if (fate == CRASH_AFTER)
            result = SIM_CRASHED;
        else if (status != DL_OK)
            result = status == DL_ERR_FULL ? SIM_NO_ROOM : SIM_FAILED;
    }
    for (int i = 0; i < chunk.count; i++) dl_buf_free(&chunk.rows[i].bytes);
    return result;
}
