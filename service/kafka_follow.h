/* Following the partitions that other instances of the group own, as far as
 * their owners have committed: those events change the state, and nothing of
 * them is scored or published. So a partition that becomes ours goes on at
 * exactly the committed offset (kafka_share.h).
 *
 * A consumer of its own, outside the group, that is made when there is something
 * to follow. The loop's thread. */
#ifndef DL_SERVICE_KAFKA_FOLLOW_H
#define DL_SERVICE_KAFKA_FOLLOW_H

#include "service/config.h"
#include "service/engine.h"
#include "service/intake.h"
#include "service/kafka_share.h"

struct dl_kafka_follow;

/* All borrowed. DL_ERR_NOMEM. */
int dl_kafka_follow_new(const struct dl_config *config, struct dl_engine *engine,
                        struct dl_intake *intake, struct dl_kafka_share *share,
                        struct dl_kafka_follow **follow);
void dl_kafka_follow_free(struct dl_kafka_follow *follow);

/* Now and then: asks for the commits of the others and goes after them. */
void dl_kafka_follow_tick(struct dl_kafka_follow *follow);
/* Takes in up to `max` messages while there is room; returns how many came. */
int dl_kafka_follow_pump(struct dl_kafka_follow *follow, int max);

#endif
