/* Publishing the outbox to Kafka: see kafka_sink.h.
 *
 * States of the thread: starting (init_transactions until a broker answers,
 * then the committed metadata is read), idle, sending. A transaction that fails
 * and can be aborted is aborted and sent again; a producer with a fatal error
 * other than fencing is replaced by a new one. */
#include "service/kafka_sink.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "service/kafka_common.h"
#include "service/log.h"

#define CHUNK_ROWS_MAX 4000
#define CHUNK_BYTES_MAX (4u << 20)
#define STEP_TIMEOUT_MS 10000
#define RETRY_MS 500

struct chunk_row {
    uint64_t seq;
    size_t topic_at; /* all into chunk.bytes */
    size_t key_at, key_size, headers_at, headers_size, payload_at, payload_size;
    struct dl_position position;
};

/* Copies of rows, and where the source stands after them. */
struct chunk {
    struct chunk_row *rows; /* (CHUNK_ROWS_MAX) */
    uint32_t count;
    struct dl_buf bytes;
    uint64_t last_seq;
    int more; /* cut by a limit: rows of the last message may be missing */
};

enum state { STARTING, IDLE, SENDING, SENT, STOPPED };

struct dl_kafka_sink {
    uv_loop_t *loop;
    const struct dl_config *config;
    struct dl_engine *engine;
    struct dl_store *store;
    rd_kafka_t *consumer;
    struct dl_service_metrics *metrics;
    void (*failed)(void *context, const char *reason);
    void *context;

    pthread_t thread;
    int has_thread;
    uv_async_t *async;
    pthread_mutex_t mutex; /* guards state, stopping, reason, reconciled */
    pthread_cond_t changed;
    enum state state;
    int stopping;
    char reason[1024];   /* of a failure, or "" */
    uint64_t reconciled; /* rows that readers have already, from the metadata */
    int told_failure, reconcile_pending;

    struct chunk chunk; /* the loop's while IDLE, the thread's while SENDING */
    uint64_t delivered;

    /* the thread's */
    rd_kafka_t *producer;
    int transactional;
    uint64_t failed_reports; /* delivery reports with an error, this chunk */
    rd_kafka_resp_err_t report_error;
};

/* ---- the thread: one producer ----------------------------------------------------------- */

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

static int make_producer(struct dl_kafka_sink *sink, struct dl_error *error)
{
    rd_kafka_conf_t *conf;
    char text[256], identity[320];
    int status = dl_kafka_conf(sink->config, &conf, error);
    if (status != DL_OK) return status;
    const char *group = dl_config_kafka_get(sink->config, "group.id");
    snprintf(identity, sizeof identity, "%s-publisher", group ? group : "driftline");
    status = dl_kafka_conf_default(sink->config, conf, "enable.idempotence", "true", error);
    if (status == DL_OK && sink->transactional)
        status = dl_kafka_conf_default(sink->config, conf, "transactional.id", identity, error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(sink->config, conf, "linger.ms", "5", error);
    if (status == DL_OK)
        status = dl_kafka_conf_default(sink->config, conf, "compression.type", "lz4", error);
    if (status == DL_OK) /* the broker's own limit decides */
        status = dl_kafka_conf_default(sink->config, conf, "message.max.bytes", "4194304", error);
    if (status != DL_OK) {
        rd_kafka_conf_destroy(conf);
        return status;
    }
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

/* What to do about a failed step of a transaction. */
enum verdict { RETRY, ABORT, REPLACE, FENCED };

static enum verdict judge(rd_kafka_error_t *error, const char *step, char text[300])
{
    rd_kafka_resp_err_t code = rd_kafka_error_code(error);
    enum verdict verdict = rd_kafka_error_is_retriable(error)         ? RETRY
                           : rd_kafka_error_txn_requires_abort(error) ? ABORT
                                                                      : REPLACE;
    if (code == RD_KAFKA_RESP_ERR__FENCED || code == RD_KAFKA_RESP_ERR_PRODUCER_FENCED)
        verdict = FENCED;
    snprintf(text, 300, "%s: %s", step, rd_kafka_error_string(error));
    rd_kafka_error_destroy(error);
    if (verdict != RETRY) DL_WARN("kafka", "%s", text);
    return verdict;
}

/* The largest outbox number that a committed transaction carries. */
static uint64_t read_reconciled(struct dl_kafka_sink *sink,
                                const rd_kafka_topic_partition_list_t *partitions)
{
    uint64_t largest = 0;
    for (int i = 0; i < partitions->cnt; i++) {
        const rd_kafka_topic_partition_t *p = &partitions->elems[i];
        char text[40];
        uint64_t seq;
        if (!p->metadata || p->metadata_size >= sizeof text) continue;
        memcpy(text, p->metadata, p->metadata_size);
        text[p->metadata_size] = '\0';
        if (sscanf(text, "outbox=%" SCNu64, &seq) == 1 && seq > largest) largest = seq;
    }
    (void)sink;
    return largest;
}

/* Partitions of all source topics, from the broker's metadata. */
static rd_kafka_topic_partition_list_t *source_partitions(struct dl_kafka_sink *sink)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    for (size_t t = 0; t < sink->config->source.topics.count; t++) {
        const char *name = sink->config->source.topics.items[t];
        const struct rd_kafka_metadata *metadata = NULL;
        rd_kafka_topic_t *topic = rd_kafka_topic_new(sink->producer, name, NULL);
        if (!topic) continue;
        if (rd_kafka_metadata(sink->producer, 0, topic, &metadata, STEP_TIMEOUT_MS) ==
            RD_KAFKA_RESP_ERR_NO_ERROR) {
            for (int i = 0; i < metadata->topic_cnt; i++)
                for (int p = 0; p < metadata->topics[i].partition_cnt; p++)
                    rd_kafka_topic_partition_list_add(list, name,
                                                      metadata->topics[i].partitions[p].id);
            rd_kafka_metadata_destroy(metadata);
        }
        rd_kafka_topic_destroy(topic);
    }
    return list;
}

/* Establishes the identity and asks what readers have. 0: give up or stop. */
static int start(struct dl_kafka_sink *sink)
{
    char text[300];
    while (sink->transactional) {
        if (is_stopping(sink)) return 0;
        rd_kafka_error_t *error = rd_kafka_init_transactions(sink->producer, STEP_TIMEOUT_MS);
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
            if (make_producer(sink, &detail) == DL_OK) break;
            give_up(sink, "Kafka producer", detail.text);
            return 0;
        }
        enum verdict verdict = judge(error, "init_transactions", text);
        if (verdict == FENCED || verdict == REPLACE) {
            give_up(sink, "Kafka producer", text);
            return 0;
        }
        rest(sink);
    }
    uint64_t reconciled = 0;
    while (sink->transactional && !is_stopping(sink)) {
        rd_kafka_topic_partition_list_t *partitions = source_partitions(sink);
        rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
        if (partitions->cnt) code = rd_kafka_committed(sink->consumer, partitions, STEP_TIMEOUT_MS);
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR) reconciled = read_reconciled(sink, partitions);
        rd_kafka_topic_partition_list_destroy(partitions);
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR) break;
        DL_WARN("kafka", "committed offsets: %s; trying again", rd_kafka_err2str(code));
        rest(sink);
    }
    pthread_mutex_lock(&sink->mutex);
    sink->reconciled = reconciled;
    sink->reconcile_pending = 1;
    pthread_mutex_unlock(&sink->mutex);
    return 1;
}

/* ---- the thread: one chunk ------------------------------------------------------------------ */

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

/* 0, or an error that the transaction (or the chunk) is to be repeated for. */
static rd_kafka_resp_err_t produce_rows(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    const uint8_t *bytes = chunk->bytes.data;
    sink->failed_reports = 0;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct chunk_row *row = &chunk->rows[i];
        for (;;) {
            rd_kafka_headers_t *headers = make_headers(chunk, row);
            rd_kafka_resp_err_t code = rd_kafka_producev(
                sink->producer, RD_KAFKA_V_TOPIC((const char *)bytes + row->topic_at),
                RD_KAFKA_V_KEY(row->key_size ? bytes + row->key_at : NULL, row->key_size),
                RD_KAFKA_V_VALUE((void *)(bytes + row->payload_at), row->payload_size),
                RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                RD_KAFKA_V_END);
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

/* The source's next offsets after the chunk. A message whose rows may go on in
 * the next chunk is not counted yet; its own number in the metadata is what
 * reconciliation goes by. */
static rd_kafka_topic_partition_list_t *chunk_offsets(const struct chunk *chunk)
{
    char metadata[40];
    int size = snprintf(metadata, sizeof metadata, "outbox=%" PRIu64, chunk->last_seq);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(4);
    const struct dl_position *last = &chunk->rows[chunk->count - 1].position;
    for (uint32_t i = 0; i < chunk->count; i++) {
        const struct dl_position *p = &chunk->rows[i].position;
        if (!p->topic[0]) continue;
        int open_ended = chunk->more && p->offset == last->offset &&
                         p->partition == last->partition && strcmp(p->topic, last->topic) == 0;
        int64_t next = open_ended ? p->offset : p->offset + 1;
        rd_kafka_topic_partition_t *entry =
            rd_kafka_topic_partition_list_find(list, p->topic, p->partition);
        if (!entry) {
            entry = rd_kafka_topic_partition_list_add(list, p->topic, p->partition);
            entry->offset = -1;
            entry->metadata = rd_kafka_mem_malloc(NULL, (size_t)size);
            if (entry->metadata) {
                memcpy(entry->metadata, metadata, (size_t)size);
                entry->metadata_size = (size_t)size;
            }
        }
        if (next > entry->offset) entry->offset = next;
    }
    return list;
}

static rd_kafka_error_t *send_offsets(struct dl_kafka_sink *sink)
{
    rd_kafka_topic_partition_list_t *offsets = chunk_offsets(&sink->chunk);
    rd_kafka_error_t *error = NULL;
    if (offsets->cnt) {
        rd_kafka_consumer_group_metadata_t *group =
            rd_kafka_consumer_group_metadata(sink->consumer);
        error =
            rd_kafka_send_offsets_to_transaction(sink->producer, offsets, group, STEP_TIMEOUT_MS);
        rd_kafka_consumer_group_metadata_destroy(group);
    }
    rd_kafka_topic_partition_list_destroy(offsets);
    return error;
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
    return error ? judge(error, "abort_transaction", text) : RETRY;
}

/* One attempt. RETRY with *done = 1: committed. */
static enum verdict attempt_transaction(struct dl_kafka_sink *sink, int *done, char text[300])
{
    rd_kafka_error_t *error = rd_kafka_begin_transaction(sink->producer);
    *done = 0;
    if (error) return judge(error, "begin_transaction", text);
    rd_kafka_resp_err_t code = produce_rows(sink);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
        DL_WARN("kafka", "publishing: %s", rd_kafka_err2str(code));
        return abort_chunk(sink, text);
    }
    STEP(error, send_offsets(sink));
    if (!error) STEP(error, rd_kafka_commit_transaction(sink->producer, STEP_TIMEOUT_MS));
    if (!error) {
        *done = 1;
        return RETRY;
    }
    enum verdict verdict = judge(error, "commit_transaction", text);
    return verdict == ABORT ? abort_chunk(sink, text) : verdict;
}

static enum verdict attempt_plain(struct dl_kafka_sink *sink, int *done, char text[300])
{
    *done = 0;
    rd_kafka_resp_err_t code = produce_rows(sink);
    while (code == RD_KAFKA_RESP_ERR_NO_ERROR && rd_kafka_outq_len(sink->producer) > 0) {
        if (is_stopping(sink)) return RETRY;
        rd_kafka_flush(sink->producer, 200);
    }
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR && sink->failed_reports) code = sink->report_error;
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        *done = 1;
        return RETRY;
    }
    DL_WARN("kafka", "publishing: %s; sending the chunk again", rd_kafka_err2str(code));
    if (rd_kafka_fatal_error(sink->producer, text, 300) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return REPLACE;
    return RETRY;
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
        if (sink->metrics) dl_counter_add_shared(sink->metrics->publish_errors_total, 1);
        if (is_stopping(sink)) return 0;
        if (verdict == FENCED) {
            give_up(sink, "another instance publishes under the same identity (kafka.group.id)",
                    text);
            return 0;
        }
        if (verdict == REPLACE) {
            struct dl_error detail;
            rd_kafka_destroy(sink->producer);
            sink->producer = NULL;
            if (make_producer(sink, &detail) != DL_OK) {
                give_up(sink, "Kafka producer", detail.text);
                return 0;
            }
            if (!start(sink)) return 0;
            /* The transaction that was in doubt may have been committed. */
            pthread_mutex_lock(&sink->mutex);
            int committed = sink->reconciled >= sink->chunk.last_seq;
            sink->reconcile_pending = 0;
            pthread_mutex_unlock(&sink->mutex);
            if (committed) return 1;
        }
        rest(sink);
    }
}

static void *run(void *argument)
{
    struct dl_kafka_sink *sink = argument;
    if (!start(sink)) return NULL;
    set_state(sink, IDLE);
    for (;;) {
        pthread_mutex_lock(&sink->mutex);
        while (sink->state != SENDING && !sink->stopping) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += 1;
            pthread_cond_timedwait(&sink->changed, &sink->mutex, &until);
            if (sink->state != SENDING) { /* keeps the producer's callbacks served */
                pthread_mutex_unlock(&sink->mutex);
                rd_kafka_poll(sink->producer, 0);
                pthread_mutex_lock(&sink->mutex);
            }
        }
        int stopping = sink->stopping;
        pthread_mutex_unlock(&sink->mutex);
        if (stopping || !send_chunk(sink)) return NULL;
        set_state(sink, SENT);
    }
}

/* ---- the loop's side --------------------------------------------------------------------------
 */

static int take_row(void *user, const struct dl_outbox_row *row)
{
    struct chunk *chunk = user;
    size_t size = row->key.size + row->headers.size + row->payload.size;
    if (chunk->count == CHUNK_ROWS_MAX ||
        (chunk->count && chunk->bytes.size + size > CHUNK_BYTES_MAX)) {
        chunk->more = 1;
        return 1;
    }
    struct chunk_row *copy = &chunk->rows[chunk->count++];
    *copy = (struct chunk_row){.seq = row->seq,
                               .key_size = row->key.size,
                               .headers_size = row->headers.size,
                               .payload_size = row->payload.size,
                               .position = row->position};
    copy->topic_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->topic, strlen(row->topic) + 1);
    copy->key_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->key.data, row->key.size);
    copy->headers_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->headers.data, row->headers.size);
    copy->payload_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->payload.data, row->payload.size);
    chunk->last_seq = row->seq;
    return 0;
}

static void fail(struct dl_kafka_sink *sink, const char *reason)
{
    if (sink->told_failure) return;
    sink->told_failure = 1;
    sink->failed(sink->context, reason);
}

static void count_delivered(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    sink->delivered += chunk->count;
    for (uint32_t i = 0; sink->metrics && i < chunk->count;) {
        const char *topic = (const char *)chunk->bytes.data + chunk->rows[i].topic_at;
        uint32_t from = i;
        while (i < chunk->count &&
               strcmp((const char *)chunk->bytes.data + chunk->rows[i].topic_at, topic) == 0)
            i++;
        dl_counter_add(dl_metrics_counter(sink->metrics->published_total, DL_LABELS(topic)),
                       i - from);
    }
}

void dl_kafka_sink_wake(struct dl_kafka_sink *sink)
{
    struct dl_error error = {""};
    uint64_t first, next;
    pthread_mutex_lock(&sink->mutex);
    enum state state = sink->state;
    int reconcile = sink->reconcile_pending;
    uint64_t reconciled = sink->reconciled;
    sink->reconcile_pending = 0;
    pthread_mutex_unlock(&sink->mutex);
    if (state == STOPPED) fail(sink, sink->reason);
    if (state == SENT) {
        count_delivered(sink);
        if (dl_engine_delivered(sink->engine, sink->chunk.last_seq, &error) != DL_OK) {
            fail(sink, error.text);
            return;
        }
        sink->chunk.count = 0;
        pthread_mutex_lock(&sink->mutex);
        sink->state = state = IDLE;
        pthread_mutex_unlock(&sink->mutex);
    }
    dl_store_outbox_range(sink->store, &first, &next);
    if (reconcile && reconciled >= first && reconciled < next) {
        DL_INFO("kafka", "%" PRIu64 " outbox rows were published before the restart",
                reconciled - first + 1);
        if (dl_engine_delivered(sink->engine, reconciled, &error) != DL_OK) {
            fail(sink, error.text);
            return;
        }
        first = reconciled + 1;
    }
    if (sink->metrics) dl_gauge_set(sink->metrics->outbox_rows, (double)(next - first));
    if (state != IDLE || first == next) return;
    struct chunk *chunk = &sink->chunk;
    chunk->count = 0;
    chunk->more = 0;
    dl_buf_clear(&chunk->bytes);
    int status =
        dl_store_outbox_read(sink->store, first, CHUNK_ROWS_MAX + 1, take_row, chunk, &error);
    if (status < 0 || chunk->bytes.failed) {
        fail(sink, status < 0 ? error.text : "out of memory for publishing");
        return;
    }
    if (chunk->count == 0) return;
    pthread_mutex_lock(&sink->mutex);
    sink->state = SENDING;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
}

static void on_async(uv_async_t *async)
{
    if (async->data) dl_kafka_sink_wake(async->data);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

int dl_kafka_sink_open(uv_loop_t *loop, const struct dl_config *config, struct dl_engine *engine,
                       struct dl_store *store, void *consumer, struct dl_service_metrics *metrics,
                       void (*failed)(void *context, const char *reason), void *context,
                       struct dl_kafka_sink **out, struct dl_error *error)
{
    struct dl_kafka_sink *sink = calloc(1, sizeof *sink);
    if (!sink) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka sink");
    *sink = (struct dl_kafka_sink){.loop = loop,
                                   .config = config,
                                   .engine = engine,
                                   .store = store,
                                   .consumer = consumer,
                                   .metrics = metrics,
                                   .failed = failed,
                                   .context = context,
                                   .state = STARTING,
                                   .transactional = consumer != NULL};
    pthread_mutex_init(&sink->mutex, NULL);
    pthread_cond_init(&sink->changed, NULL);
    int status = make_producer(sink, error);
    if (status != DL_OK) goto fail;
    sink->chunk.rows = calloc(CHUNK_ROWS_MAX, sizeof *sink->chunk.rows);
    sink->async = calloc(1, sizeof *sink->async);
    if (!sink->chunk.rows || !sink->async) {
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka sink");
        goto fail;
    }
    if (uv_async_init(loop, sink->async, on_async) != 0) {
        free(sink->async);
        sink->async = NULL;
        status = dl_error_set(error, DL_ERR_IO, "cannot wake the loop for the Kafka sink");
        goto fail;
    }
    sink->async->data = sink;
    if (pthread_create(&sink->thread, NULL, run, sink) != 0) {
        status = dl_error_set(error, DL_ERR_NOMEM, "cannot start the publishing thread");
        goto fail;
    }
    sink->has_thread = 1;
    if (!sink->transactional)
        DL_INFO("kafka", "no Kafka source: output is delivered at least once");
    *out = sink;
    return DL_OK;
fail:
    dl_kafka_sink_close(sink);
    return status;
}

int dl_kafka_sink_idle(const struct dl_kafka_sink *sink)
{
    uint64_t first, next;
    dl_store_outbox_range(sink->store, &first, &next);
    pthread_mutex_lock((pthread_mutex_t *)&sink->mutex);
    enum state state = sink->state;
    pthread_mutex_unlock((pthread_mutex_t *)&sink->mutex);
    return first == next && state == IDLE;
}

int dl_kafka_sink_ready(const struct dl_kafka_sink *sink)
{
    pthread_mutex_lock((pthread_mutex_t *)&sink->mutex);
    enum state state = sink->state;
    pthread_mutex_unlock((pthread_mutex_t *)&sink->mutex);
    return state == IDLE || state == SENDING || state == SENT;
}

uint64_t dl_kafka_sink_delivered(const struct dl_kafka_sink *sink)
{
    return sink->delivered;
}

void dl_kafka_sink_close(struct dl_kafka_sink *sink)
{
    if (!sink) return;
    pthread_mutex_lock(&sink->mutex);
    sink->stopping = 1;
    pthread_cond_broadcast(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
    if (sink->has_thread) pthread_join(sink->thread, NULL);
    if (sink->async) {
        sink->async->data = NULL;
        uv_close((uv_handle_t *)sink->async, free_handle);
    }
    if (sink->producer) rd_kafka_destroy(sink->producer);
    dl_buf_free(&sink->chunk.bytes);
    free(sink->chunk.rows);
    pthread_cond_destroy(&sink->changed);
    pthread_mutex_destroy(&sink->mutex);
    free(sink);
}
