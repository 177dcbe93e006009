/* Are the brokers there, and have they what the configuration names? For
 * `driftline check`. */
#ifndef DL_SERVICE_KAFKA_PROBE_H
#define DL_SERVICE_KAFKA_PROBE_H

#include "service/config.h"

struct dl_kafka_probe {
    int brokers;       /* that the cluster names */
    int topics;        /* source topics that exist */
    int partitions;    /* of them all */
    char missing[256]; /* source topics that do not exist, with commas, or "" */
    /* The consumer group, as far as this user may ask for it: its name, its members,
     * and those with this configuration's kafka.group.instance.id (or, where that is not
     * set, without one), of which one is told by its host. */
    char group[128], twin_host[128];
    int members, twins;
};

/* Asks the cluster, waiting up to timeout_ms; blocks. DL_ERR_INVALID: a setting
 * that librdkafka refuses; DL_ERR_UNAVAILABLE: no broker answered; the detail
 * says what was tried. */
int dl_kafka_probe(const struct dl_config *config, int timeout_ms, struct dl_kafka_probe *probe,
                   struct dl_error *error);

#endif
