/* librdkafka's in-process broker behind a small interface. */
#include "service/kafka_embedded.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>

#include "service/log.h"

struct dl_kafka_embedded {
    rd_kafka_t *host; /* the client that the broker lives in */
    rd_kafka_mock_cluster_t *cluster;
};

static void on_log(const rd_kafka_t *host, int level, const char *facility, const char *text)
{
    (void)host;
    (void)level;
    DL_DEBUG("broker", "%s %s", facility, text);
}

int dl_kafka_embedded_open(const char *const *topics, uint32_t topic_count,
                           struct dl_kafka_embedded **out, struct dl_error *error)
{
    char text[256] = "out of memory";
    struct dl_kafka_embedded *broker = calloc(1, sizeof *broker);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, on_log);
    if (broker) broker->host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (!broker || !broker->host) {
        rd_kafka_conf_destroy(conf);
        free(broker);
        return dl_error_set(error, DL_ERR_IO, "cannot start the in-process broker: %s", text);
    }
    broker->cluster = rd_kafka_mock_cluster_new(broker->host, 1);
    if (!broker->cluster) {
        dl_kafka_embedded_close(broker);
        return dl_error_set(error, DL_ERR_IO, "cannot start the in-process broker");
    }
    for (uint32_t i = 0; i < topic_count; i++)
        rd_kafka_mock_topic_create(broker->cluster, topics[i], 1, 1);
    *out = broker;
    return DL_OK;
}

void dl_kafka_embedded_close(struct dl_kafka_embedded *broker)
{
    if (!broker) return;
    if (broker->cluster) rd_kafka_mock_cluster_destroy(broker->cluster);
    rd_kafka_destroy(broker->host);
    free(broker);
}

const char *dl_kafka_embedded_address(const struct dl_kafka_embedded *broker)
{
    return rd_kafka_mock_cluster_bootstraps(broker->cluster);
}
