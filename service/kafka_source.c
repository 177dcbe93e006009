/* Consuming from Kafka on the libuv loop. */
#include "service/kafka_source.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/kafka_common.h"
#include "service/kafka_follow.h"
#include "service/log.h"

#define DRAIN_MAX 2000     /* messages a wake-up */
#define LOW_MESSAGES 50000 /* in librdkafka's queue: half of what makes it stop fetching */
#define NUDGE_NS 10000000
#define TICK_MS 250 /* lag, pause, and a net under the wake-ups */
#define PAUSE_AFTER_NS 2000000000
#define FOLLOW_TICKS 2       /* of TICK_MS */
#define REVOKE_NS 5000000000 /* how long a revoked partition's output may take */

struct dl_kafka_source {
    uv_loop_t *loop;
    const struct dl_config *config;
    struct dl_engine *engine;
    struct dl_intake *intake;
    struct dl_service_metrics *metrics;
    void (*failed)(void *context, const char *reason);
    void *context;
    rd_kafka_t *consumer;
    int was_assigned; /* the group gave partitions (or none) at least once */
    rd_kafka_queue_t *queue;
    struct dl_kafka_share *share; /* with a sink */
    struct dl_kafka_sink *sink;
    struct dl_kafka_follow *follow; /* with a share */
    int ticks;
    rd_kafka_topic_partition_list_t *pending; /* what the group asks for */
    enum { PENDING_NONE, PENDING_ASSIGN, PENDING_REVOKE } pending_what;
    int64_t revoke_until_ns;
    rd_kafka_topic_partition_list_t *assigned;
    uint8_t *at_end; /* (assigned->cnt): read to its end once */
    int pipe[2];
    uv_poll_t *wake;
    uv_timer_t *tick;
    uv_idle_t *again; /* runs while a wake-up left messages behind */
    int stopped, closing, has_failed, paused, all_brokers_down;
    int64_t full_since_ns; /* 0: there is room */
    int64_t nudged_ns;
    int nudged; /* index into `assigned` */
};

static void on_again(uv_idle_t *idle);

static void fail(struct dl_kafka_source *source, const char *reason)
{
    if (source->has_failed) return;
    source->has_failed = 1;
    source->failed(source->context, reason);
}

/* ---- assignment ------------------------------------------------------------------- */

static void start_offsets(struct dl_kafka_source *source, rd_kafka_topic_partition_list_t *list)
{
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *p = &list->elems[i];
        int64_t stored = dl_engine_position(source->engine, p->topic, p->partition);
        int64_t committed = -1;
        int latest = source->config->source.start == DL_START_LATEST;
        if (source->share)
            dl_kafka_share_committed(source->share, p->topic, p->partition, &committed);
        if (committed >= 0) dl_engine_published(source->engine, p->topic, p->partition, committed);
        if (stored >= 0)
            p->offset = stored;
        else if (latest)
            p->offset = committed >= 0 ? committed : RD_KAFKA_OFFSET_END;
        else
            p->offset = RD_KAFKA_OFFSET_BEGINNING;
        if (p->offset >= 0)
            DL_INFO("kafka", "%s [%d] from offset %lld", p->topic, (int)p->partition,
                    (long long)p->offset);
        else
            DL_INFO("kafka", "%s [%d] from its %s", p->topic, (int)p->partition,
                    p->offset == RD_KAFKA_OFFSET_END ? "end" : "beginning");
        if (committed > (stored >= 0 ? stored : 0) && p->offset != committed)
            DL_INFO("kafka",
                    "%s [%d]: readers have everything below offset %lld; up to there the state is "
                    "filled and nothing published",
                    p->topic, (int)p->partition, (long long)committed);
    }
}

static void assignment_changed(struct dl_kafka_source *source)
{
    if (source->assigned) rd_kafka_topic_partition_list_destroy(source->assigned);
    source->assigned = NULL;
    if (source->share) dl_engine_set_alerts(source->engine, dl_kafka_share_is_first(source->share));
    rd_kafka_assignment(source->consumer, &source->assigned);
    free(source->at_end);
    source->at_end = calloc(source->assigned ? (size_t)source->assigned->cnt + 1 : 1, 1);
    source->paused = 0;
    if (source->metrics) {
        dl_metrics_clear(source->metrics->source_lag_records);
        dl_metrics_clear(source->metrics->source_offset);
        dl_gauge_set(source->metrics->source_partitions,
                     source->assigned ? source->assigned->cnt : 0);
        dl_gauge_set(source->metrics->source_partitions_paused, 0);
    }
}

static int is_cooperative(struct dl_kafka_source *source)
{
    const char *protocol = rd_kafka_rebalance_protocol(source->consumer);
    return protocol && strcmp(protocol, "COOPERATIVE") == 0;
}

static void finish_assign(struct dl_kafka_source *source)
{
    rd_kafka_error_t *error = NULL;
    start_offsets(source, source->pending);
    if (is_cooperative(source))
        error = rd_kafka_incremental_assign(source->consumer, source->pending);
    else
        rd_kafka_assign(source->consumer, source->pending);
    if (error) {
        DL_ERROR("kafka", "assignment: %s", rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

/* Not ours any more, before the group may give them to another. */
static void finish_revoke(struct dl_kafka_source *source)
{
    rd_kafka_error_t *error = NULL;
    for (int i = 0; source->share && i < source->pending->cnt; i++)
        dl_kafka_share_revoke(source->share, source->pending->elems[i].topic,
                              source->pending->elems[i].partition);
    if (is_cooperative(source))
        error = rd_kafka_incremental_unassign(source->consumer, source->pending);
    else
        rd_kafka_assign(source->consumer, NULL);
    if (error) {
        DL_ERROR("kafka", "assignment: %s", rd_kafka_error_string(error));
        rd_kafka_error_destroy(error);
    }
}

/* 1: what the group asked for can be done now. */
static int may_settle(struct dl_kafka_source *source)
{
    int64_t committed;
    if (!source->share) return 1;
    if (source->pending_what == PENDING_ASSIGN) {
        for (int i = 0; i < source->pending->cnt; i++)
            if (!dl_kafka_share_committed(source->share, source->pending->elems[i].topic,
                                          source->pending->elems[i].partition, &committed))
                return 0;
        return 1;
    }
    if (source->revoke_until_ns == 0) return 1; /* lost, or closing: there is no time */
    dl_engine_flush(source->engine);
    if (dl_clock_monotonic_ns() > source->revoke_until_ns) {
        DL_WARN("kafka", "partitions are given up with output unpublished; it waits");
        return 1;
    }
    return !dl_engine_busy(source->engine) && dl_kafka_sink_idle(source->sink);
}

void dl_kafka_source_settle(struct dl_kafka_source *source)
{
    if (source->pending_what == PENDING_NONE || !may_settle(source)) return;
    if (source->pending_what == PENDING_ASSIGN)
        finish_assign(source);
    else
        finish_revoke(source);
    source->pending_what = PENDING_NONE;
    rd_kafka_topic_partition_list_destroy(source->pending);
    source->pending = NULL;
    assignment_changed(source);
    if (!source->closing) uv_idle_start(source->again, on_again);
}

/* The group waits until we call assign or unassign. An assignment is taken up
 * once the committed offsets are known; a partition is given up once what was
 * taken in of it is published, or after a while. */
static void on_rebalance(rd_kafka_t *consumer, rd_kafka_resp_err_t what,
                         rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    struct dl_kafka_source *source = opaque;
    if (what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) source->was_assigned = 1;
    if (source->pending) rd_kafka_topic_partition_list_destroy(source->pending);
    source->pending = rd_kafka_topic_partition_list_copy(partitions);
    source->pending_what =
        what == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS ? PENDING_ASSIGN : PENDING_REVOKE;
    source->revoke_until_ns =
        source->closing || rd_kafka_assignment_lost(consumer) || partitions->cnt == 0
            ? 0
            : dl_clock_monotonic_ns() + REVOKE_NS;
    if (source->share && source->pending_what == PENDING_ASSIGN) {
        for (int i = 0; i < partitions->cnt; i++)
            if (dl_kafka_share_assign(source->share, partitions->elems[i].topic,
                                      partitions->elems[i].partition) != DL_OK)
                fail(source, "out of memory for a partition");
        dl_kafka_sink_look(source->sink);
    }
    dl_kafka_source_settle(source);
}

/* ---- errors ------------------------------------------------------------------------- */

static void on_error(rd_kafka_t *consumer, int code, const char *reason, void *opaque)
{
    struct dl_kafka_source *source = opaque;
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        char text[400], line[512];
        rd_kafka_resp_err_t fatal = rd_kafka_fatal_error(consumer, text, sizeof text);
        snprintf(line, sizeof line, "Kafka consumer: %s: %s", rd_kafka_err2name(fatal), text);
        fail(source, line);
    } else if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
        source->all_brokers_down = 1;
        DL_WARN("kafka", "no broker can be reached (%s); waiting", reason);
    } else {
        DL_WARN("kafka", "%s", reason);
    }
}

static void mark_end(struct dl_kafka_source *source, const rd_kafka_message_t *message)
{
    for (int i = 0; source->assigned && i < source->assigned->cnt; i++)
        if (source->assigned->elems[i].partition == message->partition &&
            strcmp(source->assigned->elems[i].topic, rd_kafka_topic_name(message->rkt)) == 0)
            source->at_end[i] = 1;
}

static void take_error(struct dl_kafka_source *source, const rd_kafka_message_t *message)
{
    char line[512];
    switch (message->err) {
    case RD_KAFKA_RESP_ERR__PARTITION_EOF:
        mark_end(source, message);
        return;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        snprintf(line, sizeof line,
                 "the broker no longer has the offset where %s [%d] was left (%s). Choose: start "
                 "with a new store.path to read from the beginning, restore a newer store, or "
                 "raise the topic's retention",
                 message->rkt ? rd_kafka_topic_name(message->rkt) : "the topic",
                 (int)message->partition, rd_kafka_message_errstr(message));
        fail(source, line);
        return;
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
        snprintf(line, sizeof line,
                 "Kafka refuses: %s; grant it, or correct the credentials under kafka",
                 rd_kafka_message_errstr(message));
        fail(source, line);
        return;
    default:
        DL_WARN("kafka", "%s", rd_kafka_message_errstr(message));
    }
}

/* ---- messages ------------------------------------------------------------------------ */

/* With no room nothing is consumed; after a while partitions are paused, so
 * that polling goes on for the group's sake. Returns 1 if messages may come. */
static int may_consume(struct dl_kafka_source *source)
{
    if (source->stopped || source->has_failed || source->pending_what == PENDING_REVOKE) return 0;
    if (dl_engine_room(source->engine) > 0) {
        source->full_since_ns = 0;
        if (source->paused && source->assigned) {
            rd_kafka_resume_partitions(source->consumer, source->assigned);
            source->paused = 0;
            if (source->metrics) dl_gauge_set(source->metrics->source_partitions_paused, 0);
        }
        return 1;
    }
    int64_t now_ns = dl_clock_monotonic_ns();
    if (source->full_since_ns == 0) source->full_since_ns = now_ns;
    if (!source->paused && source->assigned && now_ns - source->full_since_ns > PAUSE_AFTER_NS) {
        rd_kafka_pause_partitions(source->consumer, source->assigned);
        source->paused = 1;
        if (source->metrics)
            dl_gauge_set(source->metrics->source_partitions_paused, source->assigned->cnt);
    }
    return source->paused;
}

/* Where its queue was full, librdkafka's thread of a broker looks again once a second, unless
 * something wakes it before: at hundreds of thousands of messages a second the queue is empty by
 * then. A question to the broker, whose answer nobody waits for, wakes it. */
static void nudge(struct dl_kafka_source *source)
{
    int64_t low, high, now_ns;
    if (!source->assigned || source->paused || rd_kafka_queue_length(source->queue) > LOW_MESSAGES)
        return;
    now_ns = dl_clock_monotonic_ns();
    if (now_ns - source->nudged_ns < NUDGE_NS) return;
    source->nudged_ns = now_ns;
    for (int i = 0; i < source->assigned->cnt; i++) {
        source->nudged = (source->nudged + 1) % source->assigned->cnt;
        const rd_kafka_topic_partition_t *p = &source->assigned->elems[source->nudged];
        int64_t next = dl_engine_position(source->engine, p->topic, p->partition);
        if (rd_kafka_get_watermark_offsets(source->consumer, p->topic, p->partition, &low, &high) !=
                RD_KAFKA_RESP_ERR_NO_ERROR ||
            high - next <= LOW_MESSAGES)
            continue;
        rd_kafka_topic_partition_list_t *question = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(question, p->topic, p->partition)->offset =
            RD_KAFKA_OFFSET_END;
        rd_kafka_offsets_for_times(source->consumer, question, 0);
        rd_kafka_topic_partition_list_destroy(question);
        return;
    }
}

static void pump(struct dl_kafka_source *source)
{
    int left = DRAIN_MAX;
    dl_kafka_source_settle(source);
    while (left > 0 && may_consume(source)) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(source->consumer, 0);
        if (!message) break;
        left--;
        if (message->err)
            take_error(source, message);
        else if (dl_engine_room(source->engine) > 0) {
            source->all_brokers_down = 0;
            dl_kafka_take_message(source->intake, message, 0);
        } else /* came in the instant of pausing: read it again */
            rd_kafka_seek(message->rkt, message->partition, message->offset, 0);
        rd_kafka_message_destroy(message);
    }
    if (source->follow && !source->stopped && source->pending_what != PENDING_REVOKE && left > 0)
        left -= dl_kafka_follow_pump(source->follow, left);
    if (left == 0)
        uv_idle_start(source->again, on_again);
    else
        uv_idle_stop(source->again);
    if (left > 0) dl_engine_flush(source->engine);
    nudge(source);
}

static void on_again(uv_idle_t *idle)
{
    pump(idle->data);
}

static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct dl_kafka_source *source = poll->data;
    char bytes[64];
    (void)status;
    (void)events;
    while (read(source->pipe[0], bytes, sizeof bytes) > 0) continue;
    pump(source);
}

static void measure(struct dl_kafka_source *source)
{
    for (int i = 0; source->metrics && source->assigned && i < source->assigned->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &source->assigned->elems[i];
        int64_t low, high, next = dl_engine_position(source->engine, p->topic, p->partition);
        if (rd_kafka_get_watermark_offsets(source->consumer, p->topic, p->partition, &low, &high) !=
                RD_KAFKA_RESP_ERR_NO_ERROR ||
            high < 0)
            continue;
        if (next < 0) next = low > 0 ? low : 0;
        dl_gauge_set(
            dl_metrics_gauge_partition(source->metrics->source_lag_records, p->topic, p->partition),
            high > next ? (double)(high - next) : 0);
        dl_gauge_set(
            dl_metrics_gauge_partition(source->metrics->source_offset, p->topic, p->partition),
            (double)next);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct dl_kafka_source *source = timer->data;
    measure(source);
    if (source->follow && !source->stopped && source->ticks++ % FOLLOW_TICKS == 0) {
        dl_engine_set_alerts(source->engine, dl_kafka_share_is_first(source->share));
        dl_kafka_follow_tick(source->follow);
        dl_kafka_sink_look(source->sink); /* looks for new partitions as well */
    }
    pump(source);
}

/* ---- life ------------------------------------------------------------------------------ */

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static int configure(struct dl_kafka_source *source, rd_kafka_conf_t **out, struct dl_error *error)
{
    const struct dl_config *config = source->config;
    rd_kafka_conf_t *conf;
    int status = dl_kafka_conf(config, &conf, error);
    if (status != DL_OK) return status;
    status = dl_kafka_conf_default(config, conf, "group.id", DL_KAFKA_GROUP_DEFAULT, error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(config, conf, "isolation.level", "read_committed", error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(config, conf, "queued.max.messages.kbytes", "16384", error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(config, conf, "partition.assignment.strategy",
                                       "cooperative-sticky", error);
    if (status == DL_OK)
        status = dl_kafka_conf_require(config, conf, "enable.auto.commit", "false", error);
    if (status == DL_OK)
        status = dl_kafka_conf_require(config, conf, "enable.auto.offset.store", "false", error);
    if (status == DL_OK)
        status = dl_kafka_conf_require(config, conf, "auto.offset.reset", "error", error);
    if (status == DL_OK)
        status = dl_kafka_conf_require(config, conf, "enable.partition.eof", "true", error);
    if (status != DL_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    rd_kafka_conf_set_rebalance_cb(conf, on_rebalance);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, source);
    *out = conf;
    return DL_OK;
}

static int subscribe(struct dl_kafka_source *source, struct dl_error *error)
{
    rd_kafka_topic_partition_list_t *topics =
        rd_kafka_topic_partition_list_new((int)source->config->source.topics.count);
    for (size_t i = 0; i < source->config->source.topics.count; i++)
        rd_kafka_topic_partition_list_add(topics, source->config->source.topics.items[i],
                                          RD_KAFKA_PARTITION_UA);
    rd_kafka_resp_err_t code = rd_kafka_subscribe(source->consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "source.topics: cannot subscribe: %s",
                        rd_kafka_err2str(code));
}

static int watch(struct dl_kafka_source *source, struct dl_error *error)
{
    if (pipe2(source->pipe, O_NONBLOCK | O_CLOEXEC) != 0)
        return dl_error_set(error, DL_ERR_IO, "cannot make a pipe; raise the limit of open files");
    source->wake = calloc(1, sizeof *source->wake);
    source->tick = calloc(1, sizeof *source->tick);
    source->again = calloc(1, sizeof *source->again);
    if (!source->wake || !source->tick || !source->again)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka source");
    uv_poll_init(source->loop, source->wake, source->pipe[0]);
    uv_timer_init(source->loop, source->tick);
    uv_idle_init(source->loop, source->again);
    source->wake->data = source->tick->data = source->again->data = source;
    uv_poll_start(source->wake, UV_READABLE, on_wake);
    uv_timer_start(source->tick, on_tick, TICK_MS, TICK_MS);
    rd_kafka_queue_io_event_enable(source->queue, source->pipe[1], "x", 1);
    return DL_OK;
}

int dl_kafka_source_open(uv_loop_t *loop, const struct dl_config *config, struct dl_engine *engine,
                         struct dl_intake *intake, struct dl_service_metrics *metrics,
                         void (*failed)(void *context, const char *reason), void *context,
                         struct dl_kafka_source **out, struct dl_error *error)
{
    struct dl_kafka_source *source = calloc(1, sizeof *source);
    rd_kafka_conf_t *conf;
    char text[256];
    if (!source) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka source");
    *source = (struct dl_kafka_source){.loop = loop,
                                       .config = config,
                                       .engine = engine,
                                       .intake = intake,
                                       .metrics = metrics,
                                       .failed = failed,
                                       .context = context,
                                       .pipe = {-1, -1}};
    int status = configure(source, &conf, error);
    if (status != DL_OK) goto done;
    source->consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!source->consumer) {
        rd_kafka_conf_destroy(conf);
        status = dl_error_set(error, DL_ERR_INVALID, "kafka: %s", text);
        goto done;
    }
    rd_kafka_poll_set_consumer(source->consumer);
    source->queue = rd_kafka_queue_get_consumer(source->consumer);
    status = watch(source, error);
    if (status == DL_OK) status = subscribe(source, error);
done:
    if (status != DL_OK) {
        dl_kafka_source_close(source);
        return status;
    }
    *out = source;
    return DL_OK;
}

int dl_kafka_source_attach(struct dl_kafka_source *source, struct dl_kafka_share *share,
                           struct dl_kafka_sink *sink, struct dl_error *error)
{
    source->share = share;
    source->sink = sink;
    if (dl_kafka_follow_new(source->config, source->engine, source->intake, share,
                            &source->follow) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka source");
    return DL_OK;
}

void dl_kafka_source_resume(struct dl_kafka_source *source)
{
    if (!source->stopped) uv_idle_start(source->again, on_again);
}

void dl_kafka_source_stop(struct dl_kafka_source *source)
{
    source->stopped = 1;
    if (source->assigned) rd_kafka_pause_partitions(source->consumer, source->assigned);
}

void dl_kafka_source_close(struct dl_kafka_source *source)
{
    if (!source) return;
    source->closing = 1;
    if (source->again) {
        uv_close((uv_handle_t *)source->again, free_handle);
        uv_close((uv_handle_t *)source->tick, free_handle);
        uv_close((uv_handle_t *)source->wake, free_handle);
    }
    dl_kafka_follow_free(source->follow);
    if (source->queue) {
        rd_kafka_queue_io_event_enable(source->queue, -1, NULL, 0);
        rd_kafka_queue_destroy(source->queue);
    }
    if (source->consumer) {
        rd_kafka_consumer_close(source->consumer);
        /* librdkafka 2.0.2 aborts in the sticky assignor when a consumer is
         * destroyed between joining its group and its first assignment. The
         * process is about to end: such a consumer is left to it. */
        if (source->was_assigned) rd_kafka_destroy(source->consumer);
    }
    if (source->pending) rd_kafka_topic_partition_list_destroy(source->pending);
    if (source->assigned) rd_kafka_topic_partition_list_destroy(source->assigned);
    if (source->pipe[0] >= 0) close(source->pipe[0]);
    if (source->pipe[1] >= 0) close(source->pipe[1]);
    free(source->at_end);
    free(source);
}

int dl_kafka_source_ready(const struct dl_kafka_source *source)
{
    return !source->has_failed && !source->all_brokers_down && source->assigned &&
           source->assigned->cnt > 0;
}

int dl_kafka_source_caught_up(const struct dl_kafka_source *source)
{
    if (!source->assigned || source->assigned->cnt == 0) return 0;
    for (int i = 0; i < source->assigned->cnt; i++)
        if (!source->at_end[i]) return 0;
    return 1;
}

void *dl_kafka_source_consumer(const struct dl_kafka_source *source)
{
    return source->consumer;
}
