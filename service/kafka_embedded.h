/* A Kafka broker inside the process, for the demo and for tests: librdkafka's
 * own. It keeps 5 MiB a partition and drops the oldest silently, wakes no long
 * poll (set a short fetch.wait.max.ms), and accepts transactions without
 * meaning them. */
#ifndef DL_SERVICE_KAFKA_EMBEDDED_H
#define DL_SERVICE_KAFKA_EMBEDDED_H

#include <stdint.h>

#include "base/status.h"

struct dl_kafka_embedded;

/* Starts it with these topics, one partition each. DL_ERR_IO with detail. */
int dl_kafka_embedded_open(const char *const *topics, uint32_t topic_count,
                           struct dl_kafka_embedded **broker, struct dl_error *error);
void dl_kafka_embedded_close(struct dl_kafka_embedded *broker);
/* For bootstrap.servers. Borrowed. */
const char *dl_kafka_embedded_address(const struct dl_kafka_embedded *broker);

#endif
