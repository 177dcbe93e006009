/* See kafka_follow.h. A round: the partitions whose commits are ahead of us are
 * assigned from our position; the round ends when each has come to its commit,
 * or after a while. */
#include "service/kafka_follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service/kafka_common.h"
#include "service/log.h"

#define ROUND_NS 5000000000

struct dl_kafka_follow {
    const struct dl_config *config;
    struct dl_engine *engine;
    struct dl_intake *intake;
    struct dl_kafka_share *share;
    rd_kafka_t *consumer; /* NULL until it is needed */
    rd_kafka_topic_partition_list_t *round;
    int64_t round_until_ns;
};

int dl_kafka_follow_new(const struct dl_config *config, struct dl_engine *engine,
                        struct dl_intake *intake, struct dl_kafka_share *share,
                        struct dl_kafka_follow **out)
{
    struct dl_kafka_follow *follow = calloc(1, sizeof *follow);
    if (!follow) return DL_ERR_NOMEM;
    *follow = (struct dl_kafka_follow){
        .config = config, .engine = engine, .intake = intake, .share = share};
    *out = follow;
    return DL_OK;
}

void dl_kafka_follow_free(struct dl_kafka_follow *follow)
{
    if (!follow) return;
    if (follow->round) rd_kafka_topic_partition_list_destroy(follow->round);
    if (follow->consumer) {
        rd_kafka_consumer_close(follow->consumer);
        rd_kafka_destroy(follow->consumer);
    }
    free(follow);
}

static int open_consumer(struct dl_kafka_follow *follow)
{
    static const char *const settings[][2] = {{"enable.auto.commit", "false"},
                                              {"enable.auto.offset.store", "false"},
                                              {"enable.partition.eof", "true"},
                                              {"auto.offset.reset", "error"}};
    struct dl_error error = {""};
    char text[256] = "";
    rd_kafka_conf_t *conf;
    int status = dl_kafka_conf(follow->config, &conf, &error);
    if (status != DL_OK) goto fail;
    status =
        dl_kafka_conf_default(follow->config, conf, "group.id", DL_KAFKA_GROUP_DEFAULT, &error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(follow->config, conf, "isolation.level", "read_committed",
                                       &error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(follow->config, conf, "queued.max.messages.kbytes", "4096",
                                       &error);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof text);
    /* It joins nothing; a static member's name is for the one that does. */
    rd_kafka_conf_set(conf, "group.instance.id", NULL, text, sizeof text);
    if (status == DL_OK)
        follow->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!follow->consumer) {
        rd_kafka_conf_destroy(conf);
        if (status == DL_OK) dl_error_set(&error, DL_ERR_INVALID, "%s", text);
        goto fail;
    }
    rd_kafka_poll_set_consumer(follow->consumer);
    DL_INFO("kafka", "following the partitions of other instances");
    return 1;
fail:
    DL_WARN("kafka", "cannot follow other instances: %s", error.text);
    return 0;
}

static int64_t position_of(const struct dl_kafka_follow *follow, const char *topic,
                           int32_t partition)
{
    return dl_engine_position(follow->engine, topic, partition);
}

static void add_behind(void *user, const char *topic, int32_t partition, int64_t committed)
{
    struct dl_kafka_follow *follow = user;
    int64_t position = position_of(follow, topic, partition);
    if (committed < 0 || position >= committed) return;
    if (position < 0 && follow->config->source.start == DL_START_LATEST) return;
    rd_kafka_topic_partition_t *p =
        rd_kafka_topic_partition_list_add(follow->round, topic, partition);
    p->offset = position >= 0 ? position : RD_KAFKA_OFFSET_BEGINNING;
}

static int round_goes_on(const struct dl_kafka_follow *follow)
{
    return follow->round && follow->round->cnt > 0 &&
           dl_clock_monotonic_ns() < follow->round_until_ns;
}

void dl_kafka_follow_tick(struct dl_kafka_follow *follow)
{
    dl_kafka_share_ask_others(follow->share);
    if (round_goes_on(follow)) return;
    int was = follow->round && follow->round->cnt;
    if (follow->round) rd_kafka_topic_partition_list_destroy(follow->round);
    follow->round = rd_kafka_topic_partition_list_new(8);
    dl_kafka_share_others(follow->share, add_behind, follow);
    if (follow->round->cnt == 0) {
        if (was) rd_kafka_assign(follow->consumer, NULL);
        return;
    }
    if (!follow->consumer && !open_consumer(follow)) return;
    follow->round_until_ns = dl_clock_monotonic_ns() + ROUND_NS;
    for (int i = 0; i < follow->round->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &follow->round->elems[i];
        int64_t committed = -1;
        dl_kafka_share_committed(follow->share, p->topic, p->partition, &committed);
        dl_engine_published(follow->engine, p->topic, p->partition, committed);
    }
    rd_kafka_assign(follow->consumer, follow->round);
}

/* The partition has come to its commit: no more of it in this round. */
static void finish_partition(struct dl_kafka_follow *follow, const char *topic, int32_t partition)
{
    if (!rd_kafka_topic_partition_list_del(follow->round, topic, partition)) return;
    if (follow->round->cnt == 0) rd_kafka_assign(follow->consumer, NULL);
}

int dl_kafka_follow_pump(struct dl_kafka_follow *follow, int max)
{
    int count = 0;
    if (!follow->consumer) return 0;
    while (count < max && follow->round->cnt > 0 && dl_engine_room(follow->engine) > 0) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(follow->consumer, 0);
        if (!message) break;
        const char *topic = message->rkt ? rd_kafka_topic_name(message->rkt) : "";
        int64_t committed = -1;
        count++;
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            finish_partition(follow, topic, message->partition);
        } else if (message->err) {
            DL_WARN("kafka", "following %s [%d]: %s", topic, (int)message->partition,
                    rd_kafka_message_errstr(message));
            finish_partition(follow, topic, message->partition);
        } else if (dl_kafka_share_other(follow->share, topic, message->partition, &committed) &&
                   message->offset < committed) {
            dl_kafka_take_message(
                follow->intake, message,
                dl_kafka_share_is_live(follow->share, topic, message->partition, message->offset));
            if (message->offset + 1 == committed)
                finish_partition(follow, topic, message->partition);
        } else {
            finish_partition(follow, topic, message->partition);
        }
        rd_kafka_message_destroy(message);
    }
    return count;
}
