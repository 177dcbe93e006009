/* Bare consumption with librdkafka: what `make bench-consume` compares with. The
 * same settings as the service's source, messages are counted and dropped.
 *
 *   consume BROKERS TOPIC COUNT     prints "seconds cpu_seconds", from the first message on */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    char text[256], group[64];
    if (argc != 4) {
        fprintf(stderr, "usage: consume BROKERS TOPIC COUNT\n");
        return 2;
    }
    const long count = strtol(argv[3], NULL, 10);
    snprintf(group, sizeof group, "bare-%d-%ld", (int)getpid(), (long)time(NULL));
    const char *const settings[][2] = {
        {"bootstrap.servers", argv[1]},        {"group.id", group},
        {"isolation.level", "read_committed"}, {"queued.max.messages.kbytes", "16384"},
        {"enable.auto.commit", "false"},       {"enable.auto.offset.store", "false"},
        {"auto.offset.reset", "earliest"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (rd_kafka_conf_set(conf, settings[i][0], settings[i][1], text, sizeof text) !=
            RD_KAFKA_CONF_OK) {
            fprintf(stderr, "%s\n", text);
            return 1;
        }
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    if (!consumer) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, argv[2], RD_KAFKA_PARTITION_UA);
    rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    double began = 0, cpu_began = 0;
    for (long got = 0; got < count;) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 1000);
        if (!message) continue;
        if (!message->err && got++ == 0) {
            began = clock_s();
            cpu_began = cpu_s();
        }
        rd_kafka_message_destroy(message);
    }
    printf("%.3f %.3f\n", clock_s() - began, cpu_s() - cpu_began);
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    return 0;
}
