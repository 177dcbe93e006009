/* What `make bench-latency` measures with: sends events at even distances, each with
 * the time of sending as its id, and hears their scores again at an RPC subscriber and
 * at a read_committed consumer.
 *
 *   latency-probe BROKERS TOPIC SCORES RPC FILE SKIP RATE SECONDS
 *
 * FILE is a CSV feed in milliseconds, of which the first SKIP events were sent before.
 * Prints one JSON object: milliseconds by quantile, and the processor time it took. */
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "proto/event_codec.h"
#include "proto/record_codec.h"
#include "proto/rpc_messages.h"
#include "service/kafka_feed.h"
#include "service/rpc_dial.h"

#define EVENTS_MAX 2000000

struct latencies {
    double *ms;
    atomic_uint_least32_t count;
};

static struct latencies by_rpc, by_topic;
static const char *brokers, *topic, *scores, *server;
static double rate, seconds;
static atomic_int ended;

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "latency-probe: %s: %s\n", what, detail);
    exit(1);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take(struct latencies *latencies, const struct dl_score *score)
{
    char text[24];
    uint32_t at = atomic_load(&latencies->count);
    if (score->id.size == 0 || score->id.size >= sizeof text || at == EVENTS_MAX) return;
    memcpy(text, score->id.data, score->id.size);
    text[score->id.size] = '\0';
    latencies->ms[at] = (double)(now_ns() - strtoll(text, NULL, 10)) / 1e6;
    atomic_store(&latencies->count, at + 1);
}

/* ---- the two that listen ------------------------------------------------------------- */

static int on_score(void *context, struct dl_slice bytes, struct dl_error *error)
{
    struct dl_arena *arena = context;
    struct dl_msg_score_message message = {0};
    dl_arena_reset(arena);
    int status = dl_message_decode(dl_msg_methods[DL_METHOD_SUBSCRIBE_SCORES].response, bytes,
                                   &message, arena, error);
    if (status == DL_OK) take(&by_rpc, &message.score);
    return status;
}

/* Until the service is gone, or the process ends. */
static void *subscribe(void *unused)
{
    struct dl_arena arena = {0};
    struct dl_rpc_target target = {.server = server};
    struct dl_rpc_dial *dial;
    struct dl_error error = {""};
    struct dl_slice request = {0};
    (void)unused;
    if (dl_rpc_dial_open(&target, &dial, &error) != DL_OK) fail(server, error.text);
    int status = dl_rpc_dial_call(dial, dl_msg_methods[DL_METHOD_SUBSCRIBE_SCORES].path, &request,
                                  1, 0, on_score, &arena, NULL, &error);
    if (!atomic_load(&ended)) fail("subscription", status == DL_OK ? "ended" : error.text);
    dl_rpc_dial_close(dial);
    dl_arena_deinit(&arena);
    return NULL;
}

static void *consume(void *unused)
{
    const char *const settings[][2] = {{"bootstrap.servers", brokers},
                                       {"group.id", "latency-reader"},
                                       {"auto.offset.reset", "latest"},
                                       {"isolation.level", "read_committed"}};
    char text[256];
    struct dl_arena arena = {0};
    struct dl_error error = {""};
    (void)unused;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof text) !=
            RD_KAFKA_CONF_OK)
            fail(settings[i][0], text);
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!consumer) fail("consumer", text);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, scores, RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    while (!atomic_load(&ended)) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 100);
        if (!message) continue;
        struct dl_score score;
        dl_arena_reset(&arena);
        if (!message->err && dl_record_decode_score(dl_slice_of(message->payload, message->len),
                                                    &score, &arena, &error) == DL_OK)
            take(&by_topic, &score);
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    dl_arena_deinit(&arena);
    return NULL;
}

/* ---- the one that sends ---------------------------------------------------------------- */

static void wait_until(int64_t due_ns)
{
    struct timespec due = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0) continue;
}

static void send_one(struct dl_kafka_feed *feed, struct dl_edge_event *event, struct dl_buf *out)
{
    char id[24];
    struct dl_error error = {""};
    int size = snprintf(id, sizeof id, "%" PRId64, now_ns());
    event->id = dl_slice_of(id, (size_t)size);
    dl_buf_clear(out);
    dl_event_encode_protobuf(event, out);
    if (dl_kafka_feed_send(feed, event->src, dl_buf_slice(out), &error) != DL_OK)
        fail(topic, error.text);
}

static uint32_t send_all(const char *path, uint32_t skip)
{
    const char *const settings[] = {"linger.ms=1"};
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder;
    struct dl_kafka_feed *feed;
    struct dl_error error = {""};
    struct dl_buf out = {0};
    char line[4096];
    uint32_t read = 0, sent = 0;
    dl_event_decoder_config_init(&config, dl_clock_wall_us());
    config.format = DL_FORMAT_CSV;
    dl_time_rules_init(&config.time, DL_TIME_MS, dl_clock_wall_us());
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail(path, "cannot be read");
    if (dl_event_decoder_new(&config, &decoder, &error) != DL_OK ||
        dl_event_decoder_csv_header(decoder, dl_slice_of(line, strcspn(line, "\n")), &error) !=
            DL_OK ||
        dl_kafka_feed_open(brokers, topic, settings, 1, &feed, &error) != DL_OK)
        fail(path, error.text);
    const uint32_t count = (uint32_t)(rate * seconds);
    const int64_t began_ns = dl_clock_monotonic_ns();
    while (sent < count && fgets(line, sizeof line, file)) {
        struct dl_edge_event event;
        const char *field;
        if (read++ < skip) continue;
        if (dl_event_decode(decoder, dl_slice_of(line, strcspn(line, "\n")), &event, &field,
                            &error) != DL_OK)
            fail(path, error.text);
        wait_until(began_ns + (int64_t)(sent / rate * 1e9));
        send_one(feed, &event, &out);
        dl_kafka_feed_poll(feed, 0);
        sent++;
    }
    while (dl_kafka_feed_pending(feed)) dl_kafka_feed_poll(feed, 100);
    dl_kafka_feed_close(feed);
    dl_event_decoder_free(decoder);
    dl_buf_free(&out);
    fclose(file);
    return sent;
}

/* ---- the report ---------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void report(const char *name, struct latencies *latencies)
{
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    const uint32_t count = atomic_load(&latencies->count);
    qsort(latencies->ms, count, sizeof *latencies->ms, by_value);
    printf("\"%s\": {\"count\": %u", name, count);
    for (size_t i = 0; count && i < sizeof quantiles / sizeof *quantiles; i++)
        printf(", \"p%g\": %.3f", quantiles[i] * 100,
               latencies->ms[(uint32_t)(quantiles[i] * (count - 1))]);
    printf("}, ");
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    struct rusage usage;
    if (argc != 9) fail("usage", "latency-probe BROKERS TOPIC SCORES RPC FILE SKIP RATE SECONDS");
    brokers = argv[1];
    topic = argv[2];
    scores = argv[3];
    server = argv[4];
    rate = strtod(argv[7], NULL);
    seconds = strtod(argv[8], NULL);
    by_rpc.ms = malloc(EVENTS_MAX * sizeof *by_rpc.ms);
    by_topic.ms = malloc(EVENTS_MAX * sizeof *by_topic.ms);
    DL_CHECK(by_rpc.ms && by_topic.ms);
    DL_CHECK(pthread_create(&threads[0], NULL, subscribe, NULL) == 0);
    DL_CHECK(pthread_create(&threads[1], NULL, consume, NULL) == 0);
    wait_until(dl_clock_monotonic_ns() + 3000000000); /* for the group to settle */
    uint32_t sent = send_all(argv[5], (uint32_t)strtoul(argv[6], NULL, 10));
    for (int i = 0;
         i < 100 && (atomic_load(&by_rpc.count) < sent || atomic_load(&by_topic.count) < sent); i++)
        wait_until(dl_clock_monotonic_ns() + 100000000);
    atomic_store(&ended, 1);
    pthread_join(threads[1], NULL);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"sent\": %u, ", sent);
    report("rpc", &by_rpc);
    report("read_committed", &by_topic);
    printf("\"cpu_seconds\": %.2f}\n",
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    fflush(stdout);
    _Exit(0); /* the subscriber still listens */
}
