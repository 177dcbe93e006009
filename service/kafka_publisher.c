/* The sink's thread: one transactional producer (see kafka_sink.h).
 *
 * States: starting (init_transactions until a broker answers, then what readers
 * have is asked for), idle, sending. A transaction that fails and can be aborted
 * is aborted and sent again. A producer with a fatal error is replaced by a new
 * one, and the rows that turn out to be committed are left out; so is one whose
 * transaction the broker ended because it took too long. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "service/kafka_sink_internal.h"
#include "service/log.h"

#define STEP_TIMEOUT_MS 10000
#define INIT_STEP_MS 1000 /* of waiting for a broker at the start, so that a stop is heard */
#define RETRY_MS 500
#define GATHER_MS 15 /* between transactions that are not full */
#define TRANSACTION_TIMEOUT_MS "10000"
#define PROGRESS_TOPICS 5
#define NOTE_NS 10000000000
#define NOTE_TIMEOUT_MS 2000

static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
    struct dl_kafka_sink *sink = opaque;
    (void)producer;
    if (message->err) {
        sink->failed_reports++;
        sink->report_error = message->err;
    }
}

static void on_error(rd_kafka_t *producer, int code, const char *reason, void *opaque)
{
    (void)producer;
    (void)opaque;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        DL_WARN("kafka", "no broker can be reached for publishing (%s); waiting", reason);
    else
        DL_WARN("kafka", "publishing: %s", reason);
}

static const char *group_of(const struct dl_kafka_sink *sink)
{
    const char *group = dl_config_kafka_get(sink->parts.config, "group.id");
    return group ? group : DL_KAFKA_GROUP_DEFAULT;
}

/* Instances of one group are told apart by kafka.group.instance.id. */
int dl_kafka_publisher_make(struct dl_kafka_sink *sink, struct dl_error *error)
{
    const struct dl_config *config = sink->parts.config;
    rd_kafka_conf_t *conf;
    char text[256], identity[600];
    int status = dl_kafka_conf(config, &conf, error);
    if (status != DL_OK) return status;
    const char *instance = dl_config_kafka_get(config, "group.instance.id");
    snprintf(identity, sizeof identity, "%s%s%s-publisher", group_of(sink), instance ? "-" : "",
             instance ? instance : "");
    status = dl_kafka_conf_default(config, conf, "enable.idempotence", "true", error);
    if (status == DL_OK && sink->transactional)
        status = dl_kafka_conf_default(config, conf, "transactional.id", identity, error);
    if (status == DL_OK && sink->transactional) /* readers wait no longer for a dead instance */
        status = dl_kafka_conf_default(config, conf, "transaction.timeout.ms",
                                       TRANSACTION_TIMEOUT_MS, error);
    if (status == DL_OK) status = dl_kafka_conf_default(config, conf, "linger.ms", "5", error);
    /* A transaction that follows one closely is told to come again: the broker is still
     * writing the marks of the last. With librdkafka's 100 ms readers would wait for those. */
    if (status == DL_OK)
        status = dl_kafka_conf_default(config, conf, "retry.backoff.ms", "10", error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(config, conf, "compression.type", "lz4", error);
    if (status == DL_OK) /* the broker's own limit decides */
        status = dl_kafka_conf_default(config, conf, "message.max.bytes", "4194304", error);
    if (status != DL_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
    size_t size = sizeof text;
    sink->transaction_timeout_ns = INT64_MAX;
    if (rd_kafka_conf_get(conf, "transaction.timeout.ms", text, &size) == RD_KAFKA_CONF_OK)
        sink->transaction_timeout_ns = (int64_t)strtol(text, NULL, 10) * 1000000;
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_opaque(conf, sink);
    sink->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (!sink->producer) {
        rd_kafka_conf_destroy(conf);
        return dl_error_set(error, DL_ERR_INVALID, "kafka: %s", text);
    }
    return DL_OK;
}

static int is_stopping(struct dl_kafka_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    int stopping = sink->stopping;
    pthread_mutex_unlock(&sink->mutex);
    return stopping;
}

static void set_state(struct dl_kafka_sink *sink, enum state state)
{
    pthread_mutex_lock(&sink->mutex);
    sink->state = state;
    pthread_mutex_unlock(&sink->mutex);
    uv_async_send(sink->async);
}

static void give_up(struct dl_kafka_sink *sink, const char *what, const char *why)
{
    pthread_mutex_lock(&sink->mutex);
    snprintf(sink->reason, sizeof sink->reason, "%s: %s", what, why);
    sink->state = STOPPED;
    pthread_mutex_unlock(&sink->mutex);
    uv_async_send(sink->async);
}

/* Waits a little, or until stopping. */
static void rest(struct dl_kafka_sink *sink)
{
    for (int i = 0; i < RETRY_MS / 50 && !is_stopping(sink); i++) usleep(50000);
}

/* After a transaction that was not full: lets rows gather for the next one, or until stopping.
 * Each costs its flushes, the broker's marks and librdkafka's timers, whatever it carries. */
static void gather(struct dl_kafka_sink *sink)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += GATHER_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&sink->mutex);
    while (!sink->stopping &&
           pthread_cond_timedwait(&sink->changed, &sink->mutex, &until) != ETIMEDOUT)
        continue;
    pthread_mutex_unlock(&sink->mutex);
}

/* What to do about a failed step of a transaction. */
enum verdict { RETRY, ABORT, REPLACE, FENCED };

static enum verdict judge(struct dl_kafka_sink *sink, rd_kafka_error_t *error, const char *step,
                          char text[300])
{
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum verdict verdict = rd_kafka_error_is_retriable(error)         ? RETRY
                           : rd_kafka_error_txn_requires_abort(error) ? ABORT
                                                                      : REPLACE;
    /* The broker fences a producer for two reasons: another one came under its name, or
     * its transaction took too long. Only the first is for the operator. */
    if ((code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED ||
         code == RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH) &&
        dl_clock_monotonic_ns() - sink->transaction_begun_ns <
            sink->transaction_timeout_ns - sink->transaction_timeout_ns / 10)
        verdict = FENCED;
    snprintf(text, 300, "%s: %s", step, rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
    if (verdict != RETRY) DL_WARN("kafka", "%s", text);
    return verdict;
}

/* ---- what readers have -------------------------------------------------------------------- */

static void add_asked(void *user, const char *topic, int32_t partition)
{
    rd_kafka_topic_partition_list_add(user, topic, partition);
}

/* Which partitions there are, now and then. Patterns are not followed. */
static void note_partitions(struct dl_kafka_sink *sink)
{
    int64_t now_ns = dl_clock_monotonic_ns();
    if (sink->noted_ns && now_ns - sink->noted_ns < NOTE_NS) return;
    sink->noted_ns = now_ns;
    for (size_t t = 0; t < sink->parts.config->source.topics.count; t++) {
        const char *name = sink->parts.config->source.topics.items[t];
        const struct rd_kafka_metadata *metadata = NULL;
        rd_kafka_topic_t *topic =
            name[0] == '^' ? NULL : rd_kafka_topic_new(sink->producer, name, NULL);
        if (!topic) continue;
        if (rd_kafka_metadata(sink->producer, 0, topic, &metadata, NOTE_TIMEOUT_MS) ==
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            for (int i = 0; i < metadata->topic_cnt; i++)
                for (int p = 0; p < metadata->topics[i].partition_cnt; p++)
                    dl_kafka_share_note(sink->parts.share, name,
                                        metadata->topics[i].partitions[p].id);
            rd_kafka_metadata_destroy(metadata);
        }
        rd_kafka_topic_destroy(topic);
    }
}

/* Answers what the share asks for. 0: not all could be answered. */
static int look(struct dl_kafka_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    sink->look = 0;
    pthread_mutex_unlock(&sink->mutex);
    if (!sink->parts.share) return 1;
    int all = 1;
    note_partitions(sink);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    dl_kafka_share_asked(sink->parts.share, add_asked, list);
    if (list->cnt) {
        rd_kafka_resp_err_t code = rd_kafka_committed(sink->parts.consumer, list, STEP_TIMEOUT_MS);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
            DL_WARN("kafka", "committed offsets: %s; trying again", rd_kafka_err2str(code));
        for (int i = 0; i < list->cnt; i++) {
            const rd_kafka_topic_partition_t *p = &list->elems[i];
            if (code != RD_KAFKA_RESP_ERR_NO_ERROR || p->err != RD_KAFKA_RESP_ERR_NO_ERROR)
                all = 0;
            else if (dl_kafka_share_learn(sink->parts.share, p->topic, p->partition,
                                          p->offset < 0 ? -1 : p->offset) != DL_OK)
                all = 0;
        }
        uv_async_send(sink->async);
    }
    rd_kafka_topic_partition_list_destroy(list);
    return all;
}

/* The largest number of this lineage in the metadata. */
static uint64_t largest_number(const struct dl_kafka_sink *sink,
                               const rd_kafka_topic_partition_list_t *list)
{
    uint64_t largest = 0;
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &list->elems[i];
        char text[80], lineage[LINEAGE_BYTES] = "";
        uint64_t number;
        if (!p->metadata || p->metadata_size >= sizeof text) continue;
        memcpy(text, p->metadata, p->metadata_size);
        text[p->metadata_size] = '\0';
        if (sscanf(text, "outbox=%" SCNu64 " store=%16s", &number, lineage) == 2 &&
            strcmp(lineage, sink->lineage) == 0 && number > largest)
            largest = number;
    }
    return largest;
}

static void progress_group(const struct dl_kafka_sink *sink, char name[600])
{
    const char *instance = dl_config_kafka_get(sink->parts.config, "group.instance.id");
    snprintf(name, 600, "%s%s%s-progress", group_of(sink), instance ? "-" : "",
             instance ? instance : "");
}

/* A consumer that joins nothing: committed offsets can be asked for a handle's own group only. */
static rd_kafka_t *progress_reader(struct dl_kafka_sink *sink, struct dl_error *error)
{
    rd_kafka_conf_t *conf;
    char group[600], text[256];
    if (dl_kafka_conf(sink->parts.config, &conf, error) != DL_OK) return NULL;
    progress_group(sink, group);
    rd_kafka_conf_set(conf, "group.id", group, text, sizeof text);
    rd_kafka_conf_set(conf, "isolation.level", "read_committed", text, sizeof text);
    rd_kafka_t *reader = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!reader) {
        rd_kafka_conf_destroy(conf);
        dl_error_set(error, DL_ERR_INVALID, "kafka: %s", text);
    }
    return reader;
}

/* Which unsourced rows readers have. 0: stop or give up. */
static int read_progress(struct dl_kafka_sink *sink)
{
    const struct dl_config *config = sink->parts.config;
    const char *topics[PROGRESS_TOPICS] = {
        config->predict.scores_topic, config->predict.predictions_topic,
        config->predict.alerts_topic, config->predict.dead_letters_topic,
        config->predict.late_topic};
    struct dl_error detail = {""};
    rd_kafka_t *reader = progress_reader(sink, &detail);
    if (!reader) {
        give_up(sink, "Kafka consumer", detail.text);
        return 0;
    }
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR__IN_PROGRESS;
    uint64_t reconciled = 0;
    while (code != RD_KAFKA_RESP_ERR_NO_ERROR && !is_stopping(sink)) {
        rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
        for (int i = 0; i < PROGRESS_TOPICS; i++)
            if (topics[i][0] && !rd_kafka_topic_partition_list_find(list, topics[i], 0))
                rd_kafka_topic_partition_list_add(list, topics[i], 0);
        code = list->cnt ? rd_kafka_committed(reader, list, STEP_TIMEOUT_MS)
                         : RD_KAFKA_RESP_ERR_NO_ERROR;
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR) reconciled = largest_number(sink, list);
        rd_kafka_topic_partition_list_destroy(list);
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR) break;
        DL_WARN("kafka", "progress of publishing: %s; trying again", rd_kafka_err2str(code));
        rest(sink);
    }
    rd_kafka_destroy(reader);
    if (is_stopping(sink)) return 0;
    pthread_mutex_lock(&sink->mutex);
    if (reconciled > sink->reconciled) sink->reconciled = reconciled;
    if (!sink->reconcile_pending) sink->reconcile_pending = 1;
    pthread_mutex_unlock(&sink->mutex);
    return 1;
}

/* Establishes the identity and asks what readers have. 0: give up or stop. */
static int start(struct dl_kafka_sink *sink)
{
    char text[300];
    sink->transaction_begun_ns = dl_clock_monotonic_ns();
    if (!sink->transactional)
        DL_WARN("kafka", "output is delivered at least once, as predict.delivery asks: a crash may "
                         "repeat the last records");
    while (sink->transactional) {
        if (is_stopping(sink)) return 0;
        rd_kafka_error_t *error = rd_kafka_init_transactions(sink->producer, INIT_STEP_MS);
        if (!error) break;
        rd_kafka_resp_err_t code = rd_kafka_error_code(error);
        if (code == RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE ||
            code == RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED) {
            DL_WARN("kafka",
                    "the broker allows no transactions (%s): output is delivered at least once",
                    rd_kafka_error_string(error));
            rd_kafka_error_destroy(error);
            rd_kafka_destroy(sink->producer);
            sink->producer = NULL;
            sink->transactional = 0;
            struct dl_error detail;
            if (dl_kafka_publisher_make(sink, &detail) == DL_OK) break;
            give_up(sink, "Kafka producer", detail.text);
            return 0;
        }
        enum verdict verdict = judge(sink, error, "init_transactions", text);
        if (verdict == FENCED || verdict == REPLACE) {
            give_up(sink, "Kafka producer", text);
            return 0;
        }
        rest(sink);
    }
    return !sink->transactional || read_progress(sink);
}

/* ---- one chunk ------------------------------------------------------------------------------ */

static rd_kafka_headers_t *make_headers(const struct chunk *chunk, const struct chunk_row *row)
{
    struct dl_reader in =
        dl_reader_of(dl_slice_of(chunk->bytes.data + row->headers_at, row->headers_size));
    struct dl_slice key, value;
    rd_kafka_headers_t *headers = rd_kafka_headers_new(6);
    while (dl_store_headers_next(&in, &key, &value) == 1)
        rd_kafka_header_add(headers, (const char *)key.data, (ssize_t)key.size, value.data,
                            (ssize_t)value.size);
    return headers;
}

/* Marks what readers have, and cuts the chunk where a row's partition is not
 * ours (any more). Returns how many are to be sent. */
static uint32_t choose_rows(struct dl_kafka_sink *sink)
{
    struct chunk *chunk = &sink->chunk;
    chunk->sent = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        struct chunk_row *row = &chunk->rows[i];
        enum dl_kafka_verdict verdict = DL_KAFKA_PUBLISH;
        if (row->sourced)
            verdict = dl_kafka_share_judge(sink->parts.share, row->position.topic,
                                           row->position.partition, row->position.offset);
        else if (row->seq <= sink->reconciled)
            verdict = DL_KAFKA_DROP;
        if (verdict == DL_KAFKA_WAIT) {
            chunk->count = i;
            break;
        }
        row->skip = verdict == DL_KAFKA_DROP;
        chunk->sent += !row->skip;
    }
    return chunk->sent;
}

/* 0, or an error that the transaction (or the chunk) is to be repeated for. */
static rd_kafka_resp_err_t produce_rows(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    const uint8_t *bytes = chunk->bytes.data;
    sink->failed_reports = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct chunk_row *row = &chunk->rows[i];
        void *payload = (void *)(bytes + row->payload_at);
        if (row->kind == DL_OUTBOX_TOMBSTONE) payload = NULL;
        while (!row->skip && row->kind != DL_OUTBOX_FORGOTTEN) {
            rd_kafka_headers_t *headers = make_headers(chunk, row);
            rd_kafka_resp_err_t code = rd_kafka_producev(
                sink->producer, RD_KAFKA_V_TOPIC((const char *)bytes + row->topic_at),
                RD_KAFKA_V_KEY(row->key_size ? bytes + row->key_at : NULL, row->key_size),
                RD_KAFKA_V_VALUE(payload, row->payload_size), RD_KAFKA_V_HEADERS(headers),
                RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
            if (code == RD_KAFKA_RESP_ERR_NO_ERROR) break;
            rd_kafka_headers_destroy(headers);
            if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) return code;
            if (is_stopping(sink)) return RD_KAFKA_RESP_ERR__INTR;
            rd_kafka_poll(sink->producer, 100);
        }
    }
    rd_kafka_poll(sink->producer, 0);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void set_offset(struct dl_kafka_sink *sink, rd_kafka_topic_partition_list_t *list,
                       const char *topic, int32_t partition, int64_t offset)
{
    const struct chunk *chunk = &sink->chunk;
    rd_kafka_topic_partition_t *entry = rd_kafka_topic_partition_list_find(list, topic, partition);
    if (!entry) {
        char metadata[80];
        int size = snprintf(metadata, sizeof metadata, "outbox=%" PRIu64 " store=%s",
                            chunk->rows[chunk->count - 1].seq, sink->lineage);
        entry = rd_kafka_topic_partition_list_add(list, topic, partition);
        entry->offset = -1;
        entry->metadata = rd_kafka_mem_malloc(NULL, (size_t)size);
        if (entry->metadata) {
            memcpy(entry->metadata, metadata, (size_t)size);
            entry->metadata_size = (size_t)size;
        }
    }
    if (offset > entry->offset) entry->offset = offset;
}

/* The source's next offsets after the chunk, and its progress where rows have no source. */
static void chunk_offsets(struct dl_kafka_sink *sink, rd_kafka_topic_partition_list_t *source,
                          rd_kafka_topic_partition_list_t *progress)
{
    const struct chunk *chunk = &sink->chunk;
    const struct chunk_row *unsourced = NULL;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct chunk_row *row = &chunk->rows[i];
        if (row->skip) continue;
        if (row->sourced)
            set_offset(sink, source, row->position.topic, row->position.partition,
                       row->position.offset + 1);
        else
            unsourced = row;
    }
    if (unsourced) /* its topic exists: this transaction writes to it */
        set_offset(sink, progress, (const char *)chunk->bytes.data + unsourced->topic_at, 0,
                   (int64_t)chunk->rows[chunk->count - 1].seq);
}

static void learn_committed(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct chunk_row *row = &chunk->rows[i];
        if (!row->skip && row->sourced)
            dl_kafka_share_learn(sink->parts.share, row->position.topic, row->position.partition,
                                 row->position.offset + 1);
    }
}

/* Repeats a step while its error says so. NULL: it went through. */
#define STEP(error, call)                                                                          \
    do {                                                                                           \
        error = call;                                                                              \
        if (!error || !rd_kafka_error_is_retriable(error) || is_stopping(sink)) break;             \
        rd_kafka_error_destroy(error);                                                             \
        rest(sink);                                                                                \
    } while (1)

static enum verdict abort_chunk(struct dl_kafka_sink *sink, char text[300])
{
    rd_kafka_error_t *error;
    STEP(error, rd_kafka_abort_transaction(sink->producer, STEP_TIMEOUT_MS));
    return error ? judge(sink, error, "abort_transaction", text) : RETRY;
}

static rd_kafka_error_t *send_offsets(struct dl_kafka_sink *sink,
                                      const rd_kafka_consumer_group_metadata_t *group)
{
    rd_kafka_topic_partition_list_t *source = rd_kafka_topic_partition_list_new(4);
    rd_kafka_topic_partition_list_t *progress = rd_kafka_topic_partition_list_new(1);
    rd_kafka_error_t *error = NULL;
    chunk_offsets(sink, source, progress);
    if (source->cnt)
        STEP(error,
             rd_kafka_send_offsets_to_transaction(sink->producer, source, group, STEP_TIMEOUT_MS));
    if (!error && progress->cnt) {
        char name[600];
        progress_group(sink, name);
        rd_kafka_consumer_group_metadata_t *own = rd_kafka_consumer_group_metadata_new(name);
        STEP(error,
             rd_kafka_send_offsets_to_transaction(sink->producer, progress, own, STEP_TIMEOUT_MS));
        rd_kafka_consumer_group_metadata_destroy(own);
    }
    rd_kafka_topic_partition_list_destroy(source);
    rd_kafka_topic_partition_list_destroy(progress);
    return error;
}

static enum verdict transact(struct dl_kafka_sink *sink,
                             const rd_kafka_consumer_group_metadata_t *group, int *done,
                             char text[300])
{
    sink->transaction_begun_ns = dl_clock_monotonic_ns();
    rd_kafka_error_t *error = rd_kafka_begin_transaction(sink->producer);
    if (error) return judge(sink, error, "begin_transaction", text);
    rd_kafka_resp_err_t code = produce_rows(sink);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        snprintf(text, 300, "%s", rd_kafka_err2str(code));
        DL_WARN("kafka", "publishing: %s", text);
        return code == RD_KAFKA_RESP_ERR__FATAL ? REPLACE : abort_chunk(sink, text);
    }
    error = send_offsets(sink, group);
    if (!error) STEP(error, rd_kafka_commit_transaction(sink->producer, STEP_TIMEOUT_MS));
    if (!error) {
        *done = 1;
        return RETRY;
    }
    enum verdict verdict = judge(sink, error, "commit_transaction", text);
    return verdict == ABORT ? abort_chunk(sink, text) : verdict;
}

/* One attempt. RETRY with *done = 1: committed, or nothing is left to send.
 * The group's generation is taken before the rows are chosen: a partition that
 * is ours after that was ours in that generation, and the broker refuses
 * offsets of an older one. */
static enum verdict attempt_transaction(struct dl_kafka_sink *sink, int *done, char text[300])
{
    rd_kafka_consumer_group_metadata_t *group =
        sink->parts.consumer ? rd_kafka_consumer_group_metadata(sink->parts.consumer) : NULL;
    enum verdict verdict = RETRY;
    *done = choose_rows(sink) == 0;
    if (!*done) {
        verdict = transact(sink, group, done, text);
        if (*done) learn_committed(sink);
    }
    if (group) rd_kafka_consumer_group_metadata_destroy(group);
    return verdict;
}

static enum verdict attempt_plain(struct dl_kafka_sink *sink, int *done, char text[300])
{
    *done = choose_rows(sink) == 0;
    if (*done) return RETRY;
    rd_kafka_resp_err_t code = produce_rows(sink);
    while (code == RD_KAFKA_RESP_ERR_NO_ERROR && rd_kafka_outq_len(sink->producer) > 0) {
        if (is_stopping(sink)) return RETRY;
        rd_kafka_flush(sink->producer, 200);
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && sink->failed_reports) code = sink->report_error;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        rd_kafka_topic_partition_list_t *source = rd_kafka_topic_partition_list_new(4);
        rd_kafka_topic_partition_list_t *progress = rd_kafka_topic_partition_list_new(1);
        chunk_offsets(sink, source, progress);
        if (source->cnt) rd_kafka_commit(sink->parts.consumer, source, 0);
        rd_kafka_topic_partition_list_destroy(source);
        rd_kafka_topic_partition_list_destroy(progress);
        learn_committed(sink);
        *done = 1;
        return RETRY;
    }
    DL_WARN("kafka", "publishing: %s; sending the chunk again", rd_kafka_err2str(code));
    if (rd_kafka_fatal_error(sink->producer, text, 300) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return REPLACE;
    return RETRY;
}

/* What a replaced producer left in doubt: asks again until it is known. 0: stop. */
static int look_again(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    for (uint32_t i = 0; i < chunk->count; i++)
        if (chunk->rows[i].sourced)
            dl_kafka_share_ask(sink->parts.share, chunk->rows[i].position.topic,
                               chunk->rows[i].position.partition);
    while (!look(sink)) {
        if (is_stopping(sink)) return 0;
        rest(sink);
    }
    return 1;
}

/* 1 when delivered; 0: stop. */
static int send_chunk(struct dl_kafka_sink *sink)
{
    char text[300] = "";
    for (;;) {
        int done;
        enum verdict verdict = sink->transactional ? attempt_transaction(sink, &done, text)
                                                   : attempt_plain(sink, &done, text);
        if (done) return 1;
        if (sink->parts.metrics)
            dl_counter_add_shared(sink->parts.metrics->publish_errors_total, 1);
        if (is_stopping(sink)) return 0;
        if (verdict == FENCED) {
            give_up(sink,
                    "another instance publishes under the same identity; give each service a "
                    "kafka.group.id of its own, and each instance of one a kafka.group.instance.id",
                    text);
            return 0;
        }
        if (verdict == REPLACE) {
            struct dl_error detail;
            DL_WARN("kafka", "the producer is replaced by a new one");
            rd_kafka_destroy(sink->producer);
            sink->producer = NULL;
            if (dl_kafka_publisher_make(sink, &detail) != DL_OK) {
                give_up(sink, "Kafka producer", detail.text);
                return 0;
            }
            if (!start(sink) || !look_again(sink)) return 0;
        }
        rest(sink);
    }
}

void *dl_kafka_publisher_run(void *argument)
{
    struct dl_kafka_sink *sink = argument;
    if (!start(sink)) return NULL;
    set_state(sink, IDLE);
    pthread_mutex_lock(&sink->mutex);
    sink->look = 1;
    while (!sink->stopping) {
        if (sink->look) {
            pthread_mutex_unlock(&sink->mutex);
            if (!look(sink)) {
                rest(sink);
                pthread_mutex_lock(&sink->mutex);
                sink->look = 1;
                continue;
            }
        } else if (sink->state == SENDING) {
            pthread_mutex_unlock(&sink->mutex);
            if (!send_chunk(sink)) return NULL;
            if (sink->transactional && !dl_chunk_full(&sink->chunk)) gather(sink);
            set_state(sink, SENT);
        } else {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 1;
            pthread_cond_timedwait(&sink->changed, &sink->mutex, &until);
            if (sink->look || sink->state == SENDING || sink->stopping) continue;
            int blocked = sink->blocked;
            pthread_mutex_unlock(&sink->mutex);
            rd_kafka_poll(sink->producer, 0); /* keeps the producer's callbacks served */
            if (blocked) look(sink);
        }
        pthread_mutex_lock(&sink->mutex);
    }
    pthread_mutex_unlock(&sink->mutex);
    return NULL;
}
