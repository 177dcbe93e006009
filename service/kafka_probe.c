/* One metadata request, through the same settings as the service's. */
#include "service/kafka_probe.h"

#include <string.h>

#include "service/kafka_common.h"

#define REFUSAL_BYTES 300

/* What goes wrong is this function's result; the log would say it again. */
static void no_log(const rd_kafka_t *handle, int level, const char *facility, const char *text)
{
    (void)handle, (void)level, (void)facility, (void)text;
}

/* A refusal, of which the request itself says only that nobody answered. */
static void on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    char *refusal = opaque;
    (void)handle;
    if (!*refusal && (code == RD_KAFKA_RESP_ERR__AUTHENTICATION || code == RD_KAFKA_RESP_ERR__SSL))
        snprintf(refusal, REFUSAL_BYTES, "%s", reason);
}

static void note_missing(struct dl_kafka_probe *probe, const char *topic)
{
    size_t used = strlen(probe->missing);
    snprintf(probe->missing + used, sizeof probe->missing - used, "%s%s", used ? ", " : "", topic);
}

/* librdkafka asks for one topic or all; naming one must not create it, and a
 * consumer's requests do not unless it was told to. */
static int ask_topic(rd_kafka_t *handle, const char *topic, int timeout_ms,
                     struct dl_kafka_probe *probe, struct dl_error *error)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *named = rd_kafka_topic_new(handle, topic, NULL);
    rd_kafka_resp_err_t code =
        named ? rd_kafka_metadata(handle, 0, named, &metadata, timeout_ms) : rd_kafka_last_error();
    int status = DL_OK;
    if (code) {
        status =
            dl_error_set(error, DL_ERR_UNAVAILABLE, "topic %s: %s", topic, rd_kafka_err2str(code));
    } else {
        probe->brokers = metadata->broker_cnt;
        code = metadata->topic_cnt == 1 ? metadata->topics[0].err
                                        : RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
            note_missing(probe, topic);
        else if (code && code != RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE)
            status = dl_error_set(error, DL_ERR_UNAVAILABLE, "topic %s: %s", topic,
                                  rd_kafka_err2str(code));
        else
            probe->topics++, probe->partitions += metadata->topics[0].partition_cnt;
    }
    if (metadata) rd_kafka_metadata_destroy(metadata);
    if (named) rd_kafka_topic_destroy(named);
    return status;
}

static void note_members(const rd_kafka_ConsumerGroupDescription_t *group, const char *instance,
                         struct dl_kafka_probe *probe)
{
    probe->members = (int)rd_kafka_ConsumerGroupDescription_member_count(group);
    for (int i = 0; i < probe->members; i++) {
        const rd_kafka_MemberDescription_t *member =
            rd_kafka_ConsumerGroupDescription_member(group, (size_t)i);
        const char *its = rd_kafka_MemberDescription_group_instance_id(member);
        if (strcmp(its ? its : "", instance ? instance : "") != 0) continue;
        probe->twins++;
        snprintf(probe->twin_host, sizeof probe->twin_host, "%s",
                 rd_kafka_MemberDescription_host(member));
    }
}

/* Who may not ask learns nothing: that is no fault of the configuration. */
static void ask_group(rd_kafka_t *handle, const struct dl_config *config, int timeout_ms,
                      struct dl_kafka_probe *probe)
{
    const char *group = dl_config_kafka_get(config, "group.id");
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    char text[64];
    snprintf(probe->group, sizeof probe->group, "%s", group ? group : DL_KAFKA_GROUP_DEFAULT);
    const char *name = probe->group;
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(handle, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
    if (options &&
        !rd_kafka_AdminOptions_set_request_timeout(options, timeout_ms, text, sizeof text)) {
        rd_kafka_DescribeConsumerGroups(handle, &name, 1, options, queue);
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms);
        const rd_kafka_DescribeConsumerGroups_result_t *result =
            event ? rd_kafka_event_DescribeConsumerGroups_result(event) : NULL;
        size_t count = 0;
        const rd_kafka_ConsumerGroupDescription_t **groups =
            result ? rd_kafka_DescribeConsumerGroups_result_groups(result, &count) : NULL;
        if (count == 1 && !rd_kafka_ConsumerGroupDescription_error(groups[0]))
            note_members(groups[0], dl_config_kafka_get(config, "group.instance.id"), probe);
        if (event) rd_kafka_event_destroy(event);
    }
    if (options) rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
}

int dl_kafka_probe(const struct dl_config *config, int timeout_ms, struct dl_kafka_probe *probe,
                   struct dl_error *error)
{
    const char *brokers = dl_config_kafka_get(config, "bootstrap.servers");
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_conf_t *conf = NULL;
    char text[256], refusal[REFUSAL_BYTES] = "";
    *probe = (struct dl_kafka_probe){0};
    int status = dl_kafka_conf(config, &conf, error);
    if (status) return status;
    rd_kafka_conf_set_log_cb(conf, no_log);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, refusal);
    rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!handle) {
        rd_kafka_conf_destroy(conf);
        return dl_error_set(error, DL_ERR_INVALID, "kafka: %s", text);
    }
    rd_kafka_resp_err_t code = rd_kafka_metadata(handle, 0, NULL, &metadata, timeout_ms);
    if (code) rd_kafka_poll(handle, 0);
    if (code && *refusal)
        status = dl_error_set(error, DL_ERR_UNAVAILABLE, "%s: the connection is refused: %s",
                              brokers ? brokers : "kafka.bootstrap.servers", refusal);
    else if (code)
        status = dl_error_set(error, DL_ERR_UNAVAILABLE,
                              "%s: no broker answered within %d s (%s); is it running, and is the "
                              "address right?",
                              brokers ? brokers : "kafka.bootstrap.servers", timeout_ms / 1000,
                              rd_kafka_err2str(code));
    else
        probe->brokers = metadata->broker_cnt;
    if (metadata) rd_kafka_metadata_destroy(metadata);
    for (size_t k = 0; k < config->source.topics.count && !status; k++)
        status = ask_topic(handle, config->source.topics.items[k], timeout_ms, probe, error);
    if (!status && config->source.topics.count) ask_group(handle, config, timeout_ms, probe);
    rd_kafka_destroy(handle);
    return status;
}
