/* A broker in memory, and a publisher that goes by the same rule as the real one
 * (service/kafka_share.h): records and offsets of a chunk in one transaction. */
#ifndef DL_TESTS_SIM_BROKER_H
#define DL_TESTS_SIM_BROKER_H

#include "base/rng.h"
#include "service/engine.h"
#include "service/kafka_share.h"
#include "tests/sim/reference.h"

#define SIM_TOPIC "feed"

/* One record that a read_committed consumer sees. */
struct sim_record {
    int kind; /* enum dl_outbox_kind */
    int partition;
    int64_t offset; /* of the source message; -1: none */
    struct dl_buf bytes;
};

struct sim_broker {
    struct sim_record *records;
    int count, capacity;
    int64_t committed[SIM_PARTITIONS_MAX];
    uint64_t progress; /* the last row of those without a source that was committed */
};

void sim_broker_init(struct sim_broker *broker);
void sim_broker_deinit(struct sim_broker *broker);

/* A new life of the publisher: what readers have is asked for. */
void sim_publisher_start(struct sim_broker *broker, struct dl_kafka_share *share,
                         struct dl_engine *engine, int partitions);

enum sim_publish {
    SIM_NOTHING,   /* the outbox is empty */
    SIM_PUBLISHED, /* and the rows left the outbox */
    SIM_ABORTED,   /* nothing happened */
    SIM_CRASHED,   /* the caller is to crash: before or after the commit */
    SIM_NO_ROOM,   /* committed; the rows cannot leave the outbox, as the disk is full */
    SIM_FAILED     /* the store failed, as *error says */
};

/* One transaction, with the fate that `rng` chooses. */
enum sim_publish sim_publish(struct sim_broker *broker, struct dl_kafka_share *share,
                             struct dl_engine *engine, struct dl_store *store, struct dl_rng *rng,
                             int faults, struct dl_error *error);

#endif
