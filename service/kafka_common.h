/* What the Kafka source, the sink and the tools share. Included by the Kafka
 * files alone. */
#ifndef DL_SERVICE_KAFKA_COMMON_H
#define DL_SERVICE_KAFKA_COMMON_H

#include <librdkafka/rdkafka.h>

#include "service/config.h"
#include "service/intake.h"

#define DL_KAFKA_GROUP_DEFAULT "driftline" /* kafka.group.id, where it is not set */

/* A new librdkafka configuration with everything of the section `kafka`, the
 * log going to ours. Names the setting that librdkafka refuses. */
int dl_kafka_conf(const struct dl_config *config, rd_kafka_conf_t **conf, struct dl_error *error);
/* Sets `key` unless the operator did. */
int dl_kafka_conf_default(const struct dl_config *config, rd_kafka_conf_t *conf, const char *key,
                          const char *value, struct dl_error *error);
/* Sets `key`, whatever the operator said; a different value of theirs is an error. */
int dl_kafka_conf_require(const struct dl_config *config, rd_kafka_conf_t *conf, const char *key,
                          const char *value, struct dl_error *error);
/* A message without an error, to the intake; there must be room. `followed` as
 * in struct dl_arrival. */
void dl_kafka_take_message(struct dl_intake *intake, const rd_kafka_message_t *message,
                           int followed);

#endif
