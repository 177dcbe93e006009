/* librdkafka configuration and log. */
#include "service/kafka_common.h"

#include <string.h>

#include "base/clock.h"
#include "service/log.h"

/* librdkafka's levels are syslog's. */
static void on_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
    (void)handle;
    /* One section serves consumer and producer; what is not for the one is for the other. */
    if (strcmp(facility, "CONFWARN") == 0 && strstr(text, "will be ignored by this")) return;
    if (level <= 3)
        DL_ERROR("kafka", "%s: %s", facility, text);
    else if (level == 4)
        DL_WARN("kafka", "%s: %s", facility, text);
    else
        DL_DEBUG("kafka", "%s: %s", facility, text);
}

static int set(rd_kafka_conf_t *conf, const char *key, const char *value, const char *place,
               struct dl_error *error)
{
    char text[256] = "";
    if (rd_kafka_conf_set(conf, key, value, text, sizeof text) == RD_KAFKA_CONF_OK) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "%s: kafka.%s: %s", place, key, text);
}

int dl_kafka_conf(const struct dl_config *config, rd_kafka_conf_t **out, struct dl_error *error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set_log_cb(conf, on_log);
    int status = dl_kafka_conf_default(config, conf, "client.id", "driftline", error);
    for (size_t i = 0; status == DL_OK && i < config->kafka.count; i++)
        status = set(conf, config->kafka.items[i].key, config->kafka.items[i].value,
                     config->path[0] ? config->path : "configuration", error);
    if (status != DL_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    *out = conf;
    return DL_OK;
}

int dl_kafka_conf_default(const struct dl_config *config, rd_kafka_conf_t *conf, const char *key,
                          const char *value, struct dl_error *error)
{
    if (dl_config_kafka_get(config, key)) return DL_OK;
    return set(conf, key, value, "default", error);
}

int dl_kafka_conf_require(const struct dl_config *config, rd_kafka_conf_t *conf, const char *key,
                          const char *value, struct dl_error *error)
{
    const char *theirs = dl_config_kafka_get(config, key);
    if (theirs && strcmp(theirs, value) != 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "kafka.%s is %s; driftline needs %s, because it keeps the positions "
                            "itself; remove the setting",
                            key, theirs, value);
    return set(conf, key, value, "default", error);
}

#define HEADERS_MAX 64

static uint32_t read_headers(const rd_kafka_message_t *message, struct dl_event_header *out)
{
    rd_kafka_headers_t *headers;
    uint32_t count = 0;
    if (rd_kafka_message_headers(message, &headers) != RD_KAFKA_RESP_ERR_NO_ERROR) return 0;
    const char *name;
    const void *value;
    size_t size;
    while (count < HEADERS_MAX && rd_kafka_header_get_all(headers, count, &name, &value, &size) ==
                                      RD_KAFKA_RESP_ERR_NO_ERROR) {
        out[count].name = dl_slice_text(name);
        out[count].value = dl_slice_of(value, size);
        count++;
    }
    return count;
}

void dl_kafka_take_message(struct dl_intake *intake, const rd_kafka_message_t *message,
                           int followed)
{
    struct dl_event_header headers[HEADERS_MAX];
    struct dl_arrival arrival = {.topic = rd_kafka_topic_name(message->rkt),
                                 .partition = message->partition,
                                 .offset = message->offset,
                                 .followed = followed,
                                 .received_ns = dl_clock_monotonic_ns(),
                                 .wall_us = dl_clock_wall_us(),
                                 .key = dl_slice_of(message->key, message->key_len),
                                 .payload = dl_slice_of(message->payload, message->len)};
    dl_intake_message(intake, &arrival, headers, read_headers(message, headers));
}
