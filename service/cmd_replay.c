/* driftline replay: publish a recorded feed to a Kafka topic, at a steady rate,
 * in its own rhythm, or as fast as the broker takes it. */
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "proto/event_codec.h"
#include "service/commands.h"
#include "service/flags.h"
#include "service/kafka_feed.h"
#include "service/progress.h"

struct replay {
    const char *path, *brokers, *topic;
    enum dl_event_format format;
    double rate, speed; /* 0: none */
    uint64_t limit;
    int json;
    struct dl_event_decoder_config decoder_config;
    struct dl_event_decoder *decoder;
    struct dl_kafka_feed *feed;
    uint64_t sent, broken;
    char first_broken[800];
    int64_t begun_ns, first_time;
    struct dl_progress_line line;
    const char *settings[32]; /* librdkafka key=value */
    uint32_t setting_count;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void help(void)
{
    printf(
        "usage: driftline replay FILE --to BROKERS/TOPIC [flags]\n"
        "\n"
        "Publishes the events of a CSV file (or JSON lines; .gz is read as it is) in order,\n"
        "keyed by their source node, and waits until the broker has them all.\n"
        "\n"
        "  --to BROKERS/TOPIC    such as localhost:9092/edges\n"
        "  --rate N              events a second\n"
        "  --speed X             in the feed's own rhythm, X times as fast (needs a wall-clock\n"
        "                        --time-unit); without either: as fast as the broker takes them\n"
        "  --limit N             the first N events\n"
        "  --encoding E          protobuf (default) or json\n"
        "  --input E             csv (default) or json\n"
        "  --map FIELD=COLUMN,... where a field is: src, dst, time, type, weight, id, features\n"
        "  --time-unit UNIT      of the file's times: ticks (default), s, ms, us, ns, iso8601\n"
        "  --kafka KEY=VALUE     a librdkafka setting (TLS, SASL, ...)\n"
        "  --json                one JSON object at the end\n");
}

static void sleep_until(struct replay *r, int64_t due_ns)
{
    for (;;) {
        int64_t left_ns = due_ns - dl_clock_monotonic_ns();
        if (left_ns <= 0 || interrupted) return;
        dl_kafka_feed_poll(r->feed, left_ns > 20000000 ? 10 : 0);
        left_ns = due_ns - dl_clock_monotonic_ns();
        if (left_ns > 0 && left_ns < 20000000) {
            struct timespec rest = {0, left_ns};
            nanosleep(&rest, NULL);
        }
    }
}

static void pace(struct replay *r, int64_t time)
{
    if (r->sent == 0) {
        r->begun_ns = dl_clock_monotonic_ns();
        r->first_time = time;
    }
    if (r->rate > 0) {
        sleep_until(r, r->begun_ns + (int64_t)((double)r->sent / r->rate * 1e9));
    } else if (r->speed > 0) {
        double per_second = (double)dl_time_unit_per_second(r->decoder_config.time.unit);
        double seconds = (double)(time - r->first_time) / per_second / r->speed;
        sleep_until(r, r->begun_ns + (int64_t)(seconds * 1e9));
    }
}

/* DL_OK, also for a record that is left out; an error ends the replay. */
static int send_record(struct replay *r, struct dl_slice record, struct dl_buf *out,
                       struct dl_error *error)
{
    struct dl_edge_event event;
    struct dl_error detail = {""};
    const char *field;
    if (dl_event_decode(r->decoder, record, &event, &field, &detail) != DL_OK) {
        if (r->broken++ == 0)
            snprintf(r->first_broken, sizeof r->first_broken, "record %" PRIu64 ": %s",
                     r->sent + r->broken, detail.text);
        return DL_OK;
    }
    pace(r, event.time);
    dl_buf_clear(out);
    if (r->format == DL_FORMAT_JSON)
        dl_event_encode_json(&event, r->decoder_config.time.unit, out);
    else
        dl_event_encode_protobuf(&event, out);
    if (out->failed) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for an event");
    for (;;) {
        int status = dl_kafka_feed_send(r->feed, event.src, dl_buf_slice(out), error);
        if (status == DL_OK) break;
        if (status != DL_ERR_FULL) return status;
        if (interrupted) return DL_OK;
        dl_kafka_feed_poll(r->feed, 50);
    }
    r->sent++;
    if (r->sent % 64 == 0) {
        dl_kafka_feed_poll(r->feed, 0);
        dl_progress_line_advance(&r->line, "replaying", r->sent, r->limit, "events");
    }
    return DL_OK;
}

static int send_all(struct replay *r, struct dl_error *error)
{
    struct dl_buf line = {0}, out = {0};
    char chunk[65536];
    int status = DL_OK, has_header = r->decoder_config.format != DL_FORMAT_CSV;
    gzFile file = gzopen(r->path, "rb");
    if (!file) return dl_error_set(error, DL_ERR_NOT_FOUND, "%s: cannot be opened", r->path);
    while (status == DL_OK && !interrupted && (!r->limit || r->sent < r->limit)) {
        char *got = gzgets(file, chunk, sizeof chunk);
        if (got) dl_buf_text(&line, chunk);
        int whole = line.size && (line.data[line.size - 1] == '\n' || !got);
        if (line.failed || line.size > DL_MESSAGE_BYTES_MAX)
            status = dl_error_set(error, DL_ERR_TOO_LARGE, "%s: a line of over %d bytes", r->path,
                                  DL_MESSAGE_BYTES_MAX);
        if (!whole && got) continue;
        if (!whole) break;
        struct dl_slice record = dl_buf_slice(&line);
        while (record.size &&
               (record.data[record.size - 1] == '\n' || record.data[record.size - 1] == '\r'))
            record.size--;
        if (status == DL_OK && record.size && !has_header) {
            status = dl_event_decoder_csv_header(r->decoder, record, error);
            if (status != DL_OK) dl_error_wrap(error, status, "%s, line 1", r->path);
            has_header = 1;
        } else if (status == DL_OK && record.size) {
            status = send_record(r, record, &out, error);
        }
        dl_buf_clear(&line);
    }
    int code;
    const char *text = gzerror(file, &code);
    if (status == DL_OK && code != Z_OK && code != Z_STREAM_END)
        status = dl_error_set(error, DL_ERR_CORRUPT, "%s: %s", r->path, text);
    gzclose(file);
    dl_buf_free(&line);
    dl_buf_free(&out);
    return status;
}

static int run(struct replay *r, struct dl_error *error)
{
    int status = dl_event_decoder_new(&r->decoder_config, &r->decoder, error);
    if (status == DL_OK)
        status = dl_kafka_feed_open(r->brokers, r->topic, r->settings, r->setting_count, &r->feed,
                                    error);
    if (status == DL_OK) {
        dl_progress_line_init(&r->line, stderr);
        signal(SIGINT, on_interrupt);
        signal(SIGTERM, on_interrupt);
        r->begun_ns = dl_clock_monotonic_ns();
        status = send_all(r, error);
        while (status == DL_OK && dl_kafka_feed_pending(r->feed) > 0 && !interrupted)
            dl_kafka_feed_poll(r->feed, 200);
        dl_progress_line_end(&r->line);
        const char *reason;
        uint64_t failed = dl_kafka_feed_failed(r->feed, &reason);
        if (status == DL_OK && interrupted && dl_kafka_feed_pending(r->feed) > 0)
            status =
                dl_error_set(error, DL_ERR_CANCELLED, "interrupted with %u events not acknowledged",
                             dl_kafka_feed_pending(r->feed));
        if (status == DL_OK && failed)
            status = dl_error_set(error, DL_ERR_IO, "%" PRIu64 " events were not taken: %s", failed,
                                  reason);
    }
    double seconds = (double)(dl_clock_monotonic_ns() - r->begun_ns) / 1e9;
    if (status == DL_OK && r->json)
        printf("{\"sent\":%" PRIu64 ",\"broken\":%" PRIu64 ",\"seconds\":%.3f}\n", r->sent,
               r->broken, seconds);
    else if (status == DL_OK)
        printf("%" PRIu64 " events to %s in %.1f s (%.0f a second)\n", r->sent, r->topic, seconds,
               (double)r->sent / (seconds > 0 ? seconds : 1));
    if (status == DL_OK && r->broken)
        status =
            dl_error_set(error, DL_ERR_INVALID, "%" PRIu64 " records were left out; the first: %s",
                         r->broken, r->first_broken);
    dl_kafka_feed_close(r->feed);
    dl_event_decoder_free(r->decoder);
    return status;
}

static const struct option options[] = {
    {"to", required_argument, NULL, 't'},       {"rate", required_argument, NULL, 'r'},
    {"speed", required_argument, NULL, 's'},    {"limit", required_argument, NULL, 'n'},
    {"encoding", required_argument, NULL, 'e'}, {"input", required_argument, NULL, 'i'},
    {"map", required_argument, NULL, 'm'},      {"time-unit", required_argument, NULL, 'u'},
    {"kafka", required_argument, NULL, 'k'},    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},           {0}};

/* "src=a,dst=b,features=x,y": a piece without '=' goes on with the one before. */
static int take_map(struct replay *r, char *value, struct dl_error *error)
{
    while (value) {
        char *equals = strchr(value, '='), *next;
        if (!equals)
            return dl_error_set(error, DL_ERR_INVALID, "--map %s: FIELD=WHERE is expected", value);
        next = strchr(equals + 1, '=');
        if (next) { /* back to the comma before the next field */
            while (next > equals && *next != ',') next--;
            if (next == equals)
                return dl_error_set(error, DL_ERR_INVALID,
                                    "--map %s: FIELD=WHERE,FIELD=WHERE is expected", value);
            *next++ = '\0';
        }
        *equals = '\0';
        int status = dl_event_mapping_set(&r->decoder_config.mapping, value, equals + 1, error);
        if (status != DL_OK) return status;
        value = next;
    }
    return DL_OK;
}

static int take_option(int code, char *value, void *context, struct dl_error *error)
{
    struct replay *r = context;
    static const char *const encodings[] = {"protobuf", "json", NULL};
    static const char *const inputs[] = {"csv", "json", NULL};
    int choice = 0, status = DL_OK;
    switch (code) {
    case 't': {
        char *slash = strrchr(value, '/');
        if (!slash || slash == value || !slash[1])
            return dl_error_set(error, DL_ERR_INVALID, "--to %s: BROKERS/TOPIC is expected", value);
        *slash = '\0';
        r->brokers = value;
        r->topic = slash + 1;
        return DL_OK;
    }
    case 'r':
        return dl_flag_number("rate", value, 1e-6, 1e9, &r->rate, error);
    case 's':
        return dl_flag_number("speed", value, 1e-6, 1e12, &r->speed, error);
    case 'n':
        return dl_flag_uint("limit", value, 1, UINT64_MAX / 2, &r->limit, error);
    case 'e':
        status = dl_flag_choice("encoding", value, encodings, &choice, error);
        r->format = choice ? DL_FORMAT_JSON : DL_FORMAT_PROTOBUF;
        return status;
    case 'i':
        status = dl_flag_choice("input", value, inputs, &choice, error);
        r->decoder_config.format = choice ? DL_FORMAT_JSON : DL_FORMAT_CSV;
        return status;
    case 'm':
        return take_map(r, value, error);
    case 'u':
        if (dl_time_unit_parse(dl_slice_text(value), &r->decoder_config.time.unit) != DL_OK)
            return dl_error_set(error, DL_ERR_INVALID,
                                "--time-unit %s: ticks, s, ms, us, ns or iso8601 is expected",
                                value);
        dl_time_rules_init(&r->decoder_config.time, r->decoder_config.time.unit,
                           dl_clock_wall_us());
        return DL_OK;
    case 'k':
        if (r->setting_count == 32)
            return dl_error_set(error, DL_ERR_INVALID, "--kafka: at most 32 settings");
        r->settings[r->setting_count++] = value;
        return DL_OK;
    case 'j':
        r->json = 1;
        return DL_OK;
    default:
        return DL_ERR_INVALID;
    }
}

int dl_cmd_replay(int argc, char **argv)
{
    struct replay r = {.format = DL_FORMAT_PROTOBUF};
    struct dl_error error = {""};
    dl_event_decoder_config_init(&r.decoder_config, dl_clock_wall_us());
    r.decoder_config.format = DL_FORMAT_CSV;
    dl_time_rules_init(&r.decoder_config.time, DL_TIME_TICKS, 0);
    int flags = dl_flags_read("replay", argc, argv, options, help, take_option, &r);
    if (flags != DL_FLAGS_GO_ON) return flags == DL_FLAGS_HELPED ? DL_EXIT_OK : DL_EXIT_USAGE;
    if (optind + 1 != argc || !r.brokers) {
        fprintf(stderr, "driftline replay: usage: driftline replay FILE --to BROKERS/TOPIC\n");
        return DL_EXIT_USAGE;
    }
    if (r.speed > 0 && dl_time_unit_per_second(r.decoder_config.time.unit) == 0) {
        fprintf(stderr, "driftline replay: --speed needs --time-unit s, ms, us, ns or iso8601\n");
        return DL_EXIT_USAGE;
    }
    r.path = argv[optind];
    if (run(&r, &error) == DL_OK) return DL_EXIT_OK;
    fprintf(stderr, "driftline replay: %s\n", error.text);
    return DL_EXIT_FAILED;
}
