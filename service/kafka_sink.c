/* Publishing the outbox to Kafka, the loop's side: see kafka_sink.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "service/kafka_sink_internal.h"
#include "service/log.h"

#define LINEAGE_BLOB "outbox.lineage"

/* ---- the store's lineage --------------------------------------------------------------- */

static int put_lineage(struct dl_kafka_sink *sink, struct dl_error *error)
{
    uint8_t random[(LINEAGE_BYTES - 1) / 2];
    if (uv_random(NULL, NULL, random, sizeof random, 0, NULL) != 0)
        return dl_error_set(error, DL_ERR_IO, "the system gives no random bytes");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(sink->lineage + 2 * i, 3, "%02x", random[i]);
    int status = dl_store_begin(sink->parts.store, error);
    if (status == DL_OK)
        status =
            dl_store_put_blob(sink->parts.store, LINEAGE_BLOB, dl_slice_text(sink->lineage), error);
    if (status == DL_OK)
        status = dl_store_commit(sink->parts.store, error);
    else
        dl_store_rollback(sink->parts.store);
    return status;
}

static int load_lineage(struct dl_kafka_sink *sink, struct dl_error *error)
{
    struct dl_buf bytes = {0};
    int status = dl_store_get_blob(sink->parts.store, LINEAGE_BLOB, &bytes, error);
    if (status == DL_OK && bytes.size == LINEAGE_BYTES - 1)
        memcpy(sink->lineage, bytes.data, bytes.size);
    else if (status == DL_OK || status == DL_ERR_NOT_FOUND)
        status = put_lineage(sink, error);
    dl_buf_free(&bytes);
    return status;
}

/* Once, before anything is sent: the store may be an old copy, whose numbers
 * readers have seen with other records. */
static int reconcile(struct dl_kafka_sink *sink, struct dl_error *error)
{
    if (sink->reconciled < sink->next_at_open) return DL_OK;
    DL_WARN("kafka",
            "the store is older than what was published (record %" PRIu64 " of it, %" PRIu64
            " published); it is filled from the topic, and what readers have is not published "
            "again",
            sink->next_at_open, sink->reconciled);
    sink->reconciled = sink->next_at_open - 1;
    return put_lineage(sink, error);
}

/* ---- chunks ---------------------------------------------------------------------------- */

static int same_message(const struct dl_position *a, const struct dl_position *b)
{
    return a->topic[0] && a->offset == b->offset && a->partition == b->partition &&
           strcmp(a->topic, b->topic) == 0;
}

static int take_row(void *user, const struct dl_outbox_row *row)
{
    struct dl_kafka_sink *sink = user;
    struct chunk *chunk = &sink->chunk;
    const struct chunk_row *before = chunk->count ? &chunk->rows[chunk->count - 1] : NULL;
    if (before && dl_chunk_full(chunk) && !same_message(&before->position, &row->position))
        return 1;
    DL_CHECK(chunk->count < CHUNK_ROWS_MAX); /* a message has a handful of records */
    struct chunk_row *copy = &chunk->rows[chunk->count++];
    *copy = (struct chunk_row){.seq = row->seq,
                               .kind = row->kind,
                               .key_size = row->key.size,
                               .headers_size = row->headers.size,
                               .payload_size = row->payload.size,
                               .position = row->position,
                               .sourced = sink->parts.share && row->position.topic[0]};
    copy->topic_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->topic, strlen(row->topic) + 1);
    copy->key_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->key.data, row->key.size);
    copy->headers_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->headers.data, row->headers.size);
    copy->payload_at = chunk->bytes.size;
    dl_buf_append(&chunk->bytes, row->payload.data, row->payload.size);
    return 0;
}

static void fail(struct dl_kafka_sink *sink, const char *reason)
{
    if (sink->told_failure) return;
    sink->told_failure = 1;
    sink->parts.failed(sink->parts.context, reason);
}

static void count_delivered(struct dl_kafka_sink *sink)
{
    const struct chunk *chunk = &sink->chunk;
    sink->delivered += chunk->sent;
    if (!sink->parts.metrics) return;
    for (uint32_t i = 0; i < chunk->count;) {
        const char *topic = (const char *)chunk->bytes.data + chunk->rows[i].topic_at;
        uint32_t sent = 0;
        while (i < chunk->count &&
               strcmp((const char *)chunk->bytes.data + chunk->rows[i].topic_at, topic) == 0)
            sent += !chunk->rows[i++].skip;
        if (sent)
            dl_counter_add(
                dl_metrics_counter(sink->parts.metrics->published_total, DL_LABELS(topic)), sent);
    }
}

/* The thread is done with the chunk: its rows leave the outbox. */
static int finish_chunk(struct dl_kafka_sink *sink, struct dl_error *error)
{
    struct chunk *chunk = &sink->chunk;
    int status = DL_OK;
    if (chunk->count)
        status = dl_engine_delivered(sink->parts.engine, chunk->rows[chunk->count - 1].seq, error);
    if (status != DL_OK) return status;
    count_delivered(sink);
    if (chunk->count > chunk->sent)
        DL_INFO("kafka", "%u outbox rows were published before", chunk->count - chunk->sent);
    chunk->count = 0;
    return DL_OK;
}

/* 1: the chunk holds rows to be judged by the thread. */
static int fill_chunk(struct dl_kafka_sink *sink, uint64_t first, struct dl_error *error)
{
    struct chunk *chunk = &sink->chunk;
    chunk->count = 0;
    dl_buf_clear(&chunk->bytes);
    int status =
        dl_store_outbox_read(sink->parts.store, first, CHUNK_ROWS_MAX, take_row, sink, error);
    if (status >= 0 && chunk->bytes.failed)
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for publishing");
    if (status < 0) return status;
    if (chunk->count == 0) return 0;
    const struct chunk_row *oldest = &chunk->rows[0];
    int blocked = oldest->sourced && dl_kafka_share_judge(sink->parts.share, oldest->position.topic,
                                                          oldest->position.partition,
                                                          oldest->position.offset) == DL_KAFKA_WAIT;
    if (blocked) /* its owner's commits will pass it, or it becomes ours */
        dl_kafka_share_ask(sink->parts.share, oldest->position.topic, oldest->position.partition);
    pthread_mutex_lock(&sink->mutex);
    sink->blocked = blocked;
    pthread_mutex_unlock(&sink->mutex);
    return !blocked;
}

void dl_kafka_sink_wake(struct dl_kafka_sink *sink)
{
    struct dl_error error = {""};
    uint64_t first, next;
    pthread_mutex_lock(&sink->mutex);
    enum state state = sink->state;
    int first_answer = sink->reconcile_pending == 1;
    if (first_answer) sink->reconcile_pending = 2; /* later answers are of this process's own */
    pthread_mutex_unlock(&sink->mutex);
    if (state == STOPPED) fail(sink, sink->reason);
    if (first_answer && reconcile(sink, &error) != DL_OK) {
        fail(sink, error.text);
        return;
    }
    if (state == SENT) {
        if (finish_chunk(sink, &error) != DL_OK) {
            fail(sink, error.text);
            return;
        }
        pthread_mutex_lock(&sink->mutex);
        sink->state = state = IDLE;
        pthread_mutex_unlock(&sink->mutex);
    }
    dl_store_outbox_range(sink->parts.store, &first, &next);
    if (sink->parts.metrics) dl_gauge_set(sink->parts.metrics->outbox_rows, (double)(next - first));
    if (state != IDLE || first == next) return;
    int status = fill_chunk(sink, first, &error);
    if (status < 0) {
        fail(sink, error.text);
    } else if (status > 0) {
        pthread_mutex_lock(&sink->mutex);
        sink->state = SENDING;
        pthread_cond_signal(&sink->changed);
        pthread_mutex_unlock(&sink->mutex);
    }
}

void dl_kafka_sink_look(struct dl_kafka_sink *sink)
{
    pthread_mutex_lock(&sink->mutex);
    sink->look = 1;
    pthread_cond_signal(&sink->changed);
    pthread_mutex_unlock(&sink->mutex);
}

static void on_async(uv_async_t *async)
{
    struct dl_kafka_sink *sink = async->data;
    if (!sink) return;
    dl_kafka_sink_wake(sink);
    if (sink->parts.learnt) sink->parts.learnt(sink->parts.context);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

int dl_kafka_sink_open(const struct dl_kafka_sink_parts *parts, struct dl_kafka_sink **out,
                       struct dl_error *error)
{
    struct dl_kafka_sink *sink = calloc(1, sizeof *sink);
    uint64_t first;
    if (!sink) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka sink");
    *sink = (struct dl_kafka_sink){.parts = *parts, .state = STARTING};
    sink->transactional = parts->config->predict.delivery == DL_DELIVERY_EXACTLY_ONCE;
    pthread_mutex_init(&sink->mutex, NULL);
    pthread_cond_init(&sink->changed, NULL);
    dl_store_outbox_range(parts->store, &first, &sink->next_at_open);
    int status = load_lineage(sink, error);
    if (status == DL_OK) status = dl_kafka_publisher_make(sink, error);
    if (status != DL_OK) goto fail;
    sink->chunk.rows = calloc(CHUNK_ROWS_MAX, sizeof *sink->chunk.rows);
    sink->async = calloc(1, sizeof *sink->async);
    if (!sink->chunk.rows || !sink->async) {
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for the Kafka sink");
        goto fail;
    }
    if (uv_async_init(parts->loop, sink->async, on_async) != 0) {
        free(sink->async);
        sink->async = NULL;
        status = dl_error_set(error, DL_ERR_IO, "cannot wake the loop for the Kafka sink");
        goto fail;
    }
    sink->async->data = sink;
    if (pthread_create(&sink->thread, NULL, dl_kafka_publisher_run, sink) != 0) {
        status = dl_error_set(error, DL_ERR_NOMEM, "cannot start the publishing thread");
        goto fail;
    }
    sink->has_thread = 1;
    *out = sink;
    return DL_OK;
fail:
    dl_kafka_sink_close(sink);
    return status;
}

int dl_kafka_sink_idle(const struct dl_kafka_sink *sink)
{
    uint64_t first, next;
    dl_store_outbox_range(sink->parts.store, &first, &next);
    pthread_mutex_lock((pthread_mutex_t *)&sink->mutex);
    enum state state = sink->state;
    int blocked = sink->blocked;
    pthread_mutex_unlock((pthread_mutex_t *)&sink->mutex);
    /* Before the first broker answered nothing can be under way. */
    return (first == next || blocked) && (state == IDLE || (state == STARTING && first == next));
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
