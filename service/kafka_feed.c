/* An idempotent producer with counted failures. */
#include "service/kafka_feed.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>

#include "service/log.h"

struct dl_kafka_feed {
    rd_kafka_t *producer;
    char *topic;
    uint64_t failed;
    char reason[300];
};

static void on_log(const rd_kafka_t *producer, int level, const char *facility, const char *text)
{
    (void)producer;
    (void)level;
    DL_DEBUG("kafka", "%s: %s", facility, text);
}

static void on_error(rd_kafka_t *producer, int code, const char *reason, void *opaque)
{
    (void)producer;
    (void)opaque;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        DL_WARN("kafka", "no broker can be reached (%s); waiting", reason);
    else
        DL_DEBUG("kafka", "%s", reason);
}

static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
    struct dl_kafka_feed *feed = opaque;
    (void)producer;
    if (message->err && feed->failed++ == 0)
        snprintf(feed->reason, sizeof feed->reason, "%s", rd_kafka_err2str(message->err));
}

static int set(rd_kafka_conf_t *conf, const char *key, const char *value, struct dl_error *error)
{
    char text[256] = "";
    if (rd_kafka_conf_set(conf, key, value, text, sizeof text) == RD_KAFKA_CONF_OK) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "%s", text);
}

static int set_pair(rd_kafka_conf_t *conf, const char *pair, struct dl_error *error)
{
    char key[128];
    const char *equals = strchr(pair, '=');
    if (!equals || (size_t)(equals - pair) >= sizeof key)
        return dl_error_set(error, DL_ERR_INVALID, "%s: KEY=VALUE is expected", pair);
    snprintf(key, sizeof key, "%.*s", (int)(equals - pair), pair);
    return set(conf, key, equals + 1, error);
}

int dl_kafka_feed_open(const char *brokers, const char *topic, const char *const *settings,
                       uint32_t setting_count, struct dl_kafka_feed **out, struct dl_error *error)
{
    char text[256] = "";
    struct dl_kafka_feed *feed = calloc(1, sizeof *feed);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (feed) feed->topic = strdup(topic);
    int status = feed && feed->topic ? set(conf, "bootstrap.servers", brokers, error)
                                     : dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    if (status == DL_OK) status = set(conf, "enable.idempotence", "true", error);
    if (status == DL_OK) status = set(conf, "linger.ms", "5", error);
    if (status == DL_OK) status = set(conf, "compression.type", "lz4", error);
    if (status == DL_OK) status = set(conf, "client.id", "driftline-feed", error);
    for (uint32_t i = 0; status == DL_OK && i < setting_count; i++)
        status = set_pair(conf, settings[i], error);
    if (status == DL_OK) {
        rd_kafka_conf_set_log_cb(conf, on_log);
        rd_kafka_conf_set_error_cb(conf, on_error);
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
        rd_kafka_conf_set_opaque(conf, feed);
        feed->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
        if (feed->producer) {
            *out = feed;
            return DL_OK;
        }
        status = dl_error_set(error, DL_ERR_INVALID, "%s", text);
    }
    rd_kafka_conf_destroy(conf);
    if (feed) free(feed->topic);
    free(feed);
    return status;
}

void dl_kafka_feed_close(struct dl_kafka_feed *feed)
{
    if (!feed) return;
    rd_kafka_flush(feed->producer, 200);
    rd_kafka_purge(feed->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    rd_kafka_destroy(feed->producer);
    free(feed->topic);
    free(feed);
}

int dl_kafka_feed_send(struct dl_kafka_feed *feed, struct dl_slice key, struct dl_slice value,
                       struct dl_error *error)
{
    rd_kafka_resp_err_t code = rd_kafka_producev(
        feed->producer, RD_KAFKA_V_TOPIC(feed->topic), RD_KAFKA_V_KEY(key.data, key.size),
        RD_KAFKA_V_VALUE((void *)value.data, value.size), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
        RD_KAFKA_V_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return DL_OK;
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL)
        return dl_error_set(error, DL_ERR_FULL, "the producer's queue is full");
    return dl_error_set(error,
                        code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? DL_ERR_TOO_LARGE : DL_ERR_IO,
                        "cannot publish: %s", rd_kafka_err2str(code));
}

void dl_kafka_feed_poll(struct dl_kafka_feed *feed, int timeout_ms)
{
    rd_kafka_poll(feed->producer, timeout_ms);
}

uint32_t dl_kafka_feed_pending(const struct dl_kafka_feed *feed)
{
    return (uint32_t)rd_kafka_outq_len(feed->producer);
}

uint64_t dl_kafka_feed_failed(const struct dl_kafka_feed *feed, const char **reason)
{
    if (reason) *reason = feed->reason;
    return feed->failed;
}
