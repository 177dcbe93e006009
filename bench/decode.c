/* Edge decode: events a second on one core, beside protobuf-c.
 *
 *   make bench-decode
 *
 * What is measured. 4,096 different events, encoded beforehand, are decoded
 * again and again, in rounds that alternate between the rivals, so that both
 * see the same machine; the figure of each is the median round. Ours: bytes to
 * struct dl_edge_event with every check (lengths, UTF-8, finite numbers, time
 * plausibility). protobuf-c: unpack with malloc and free_unpacked, which checks
 * none of that. JSON and CSV decode the same events; beside JSON stands yajl parsing the
 * same text with callbacks that do nothing.
 *
 * Three shapes of event: bare (two 8-byte names and a time), usual (two
 * 16-byte names, time, type, weight, 4 features), full (36-byte names and id,
 * 16 features). The last line's figure is the lowest ratio of the three. One
 * thread, processor time; the recipe pins it to one core. No window is built. */
#include <inttypes.h>
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <yajl/yajl_parse.h>

#include "base/check.h"
#include "base/rng.h"
#include "driftline/v1/event.pb-c.h"
#include "proto/event_codec.h"

#define EVENTS 4096
#define ROUNDS 21
#define PASSES 12 /* over all events in one round */
#define TARGET 6.0

enum rival { OURS, PROTOBUF_C, JSON, YAJL, CSV, RIVALS };

struct shape {
    const char *name;
    uint32_t name_size, feature_count;
    int has_type, has_id;
};

static const struct shape shapes[] = {
    {"bare", 8, 0, 0, 0}, {"usual", 16, 4, 1, 0}, {"full", 36, 16, 1, 1}};

struct messages {
    struct dl_buf bytes;
    struct dl_slice each[EVENTS];
};

static uint64_t sink; /* keeps the work from being optimised away */

static void fill_name(struct dl_rng *rng, uint8_t *name, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        name[i] = (uint8_t) "0123456789abcdef"[dl_rng_below(rng, 16)];
}

static void begin(struct messages *messages)
{
    dl_buf_clear(&messages->bytes);
}

static void make_events(const struct shape *shape, struct messages *wire, struct messages *json,
                        struct messages *csv)
{
    struct dl_rng rng;
    struct messages *const all[] = {wire, json, csv};
    size_t ends[3][EVENTS];
    dl_rng_seed(&rng, 1);
    for (int m = 0; m < 3; m++) begin(all[m]);
    for (int i = 0; i < EVENTS; i++) {
        uint8_t src[64], dst[64], id[64];
        fill_name(&rng, src, shape->name_size);
        fill_name(&rng, dst, shape->name_size);
        fill_name(&rng, id, shape->name_size);
        struct dl_edge_event event = {.src = dl_slice_of(src, shape->name_size),
                                      .dst = dl_slice_of(dst, shape->name_size),
                                      .time = 1790000000000 + (int64_t)dl_rng_below(&rng, 1u << 30),
                                      .weight = 1,
                                      .feature_count = shape->feature_count};
        if (shape->has_type) {
            event.type = dl_slice_text("transfer");
            event.has_weight = 1;
            event.weight = (float)dl_rng_below(&rng, 100000) / 100;
        }
        if (shape->has_id) event.id = dl_slice_of(id, shape->name_size);
        for (uint32_t f = 0; f < shape->feature_count; f++)
            event.features[f] = (float)dl_rng_normal(&rng);
        dl_event_encode_protobuf(&event, &wire->bytes);
        dl_event_encode_json(&event, DL_TIME_MS, &json->bytes);
        dl_event_encode_csv(&event, DL_TIME_MS, &csv->bytes);
        for (int m = 0; m < 3; m++) ends[m][i] = all[m]->bytes.size;
    }
    for (int m = 0; m < 3; m++) {
        DL_CHECK(!all[m]->bytes.failed);
        for (int i = 0; i < EVENTS; i++) {
            size_t from = i ? ends[m][i - 1] : 0;
            all[m]->each[i] = dl_slice_of(all[m]->bytes.data + from, ends[m][i] - from);
        }
    }
}

static struct dl_event_decoder *new_decoder(enum dl_event_format format)
{
    struct dl_event_decoder_config config;
    struct dl_event_decoder *decoder;
    dl_event_decoder_config_init(&config, 0);
    config.format = format;
    DL_CHECK(dl_event_decoder_new(&config, &decoder, NULL) == DL_OK);
    return decoder;
}

static void decode_ours(struct dl_event_decoder *decoder, const struct messages *messages)
{
    struct dl_edge_event event;
    const char *field;
    for (int i = 0; i < EVENTS; i++) {
        int status = dl_event_decode(decoder, messages->each[i], &event, &field, NULL);
        DL_CHECK(status == DL_OK);
        sink += (uint64_t)event.time + event.src.size + event.feature_count;
    }
}

static void decode_protobuf_c(const struct messages *messages)
{
    for (int i = 0; i < EVENTS; i++) {
        Driftline__V1__EdgeEvent *event =
            driftline__v1__edge_event__unpack(NULL, messages->each[i].size, messages->each[i].data);
        DL_CHECK(event != NULL);
        sink += (uint64_t)event->time + event->n_features;
        driftline__v1__edge_event__free_unpacked(event, NULL);
    }
}

static void parse_yajl(const struct messages *messages)
{
    static const yajl_callbacks none;
    for (int i = 0; i < EVENTS; i++) {
        yajl_handle handle = yajl_alloc(&none, NULL, NULL);
        int fine =
            yajl_parse(handle, messages->each[i].data, messages->each[i].size) == yajl_status_ok &&
            yajl_complete_parse(handle) == yajl_status_ok;
        DL_CHECK(fine);
        yajl_free(handle);
        sink++;
    }
}

/* Processor time, so that a busy machine does not favour the shorter rounds. */
static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void show_machine(void)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        printf("machine:%s", strchr(line, ':') + 1);
        break;
    }
    if (file) fclose(file);
    printf("compiler: %s, protobuf-c %s, one thread\n", __VERSION__, protobuf_c_version());
}

int main(void)
{
    static struct messages wire, json, csv;
    struct dl_event_decoder *protobuf = new_decoder(DL_FORMAT_PROTOBUF);
    struct dl_event_decoder *text = new_decoder(DL_FORMAT_JSON);
    double worst = 0, worst_rival = 0;
    show_machine();
    printf("million events a second, median of %d rounds\n", ROUNDS);
    printf("%-6s %6s %9s %11s %7s %6s %6s %6s\n", "event", "bytes", "protobuf", "protobuf-c",
           "ratio", "JSON", "yajl", "CSV");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        double rate[RIVALS][ROUNDS];
        struct dl_buf header = {0};
        make_events(&shapes[s], &wire, &json, &csv);
        struct dl_event_decoder *lines = new_decoder(DL_FORMAT_CSV);
        dl_event_encode_csv_header(shapes[s].feature_count, &header);
        DL_CHECK(dl_event_decoder_csv_header(lines, dl_buf_slice(&header), NULL) == DL_OK);
        for (int round = -2; round < ROUNDS; round++) { /* two to warm up */
            for (int rival = 0; rival < RIVALS; rival++) {
                int64_t start_ns = cpu_ns();
                for (int pass = 0; pass < PASSES; pass++) {
                    if (rival == OURS)
                        decode_ours(protobuf, &wire);
                    else if (rival == PROTOBUF_C)
                        decode_protobuf_c(&wire);
                    else if (rival == JSON)
                        decode_ours(text, &json);
                    else if (rival == YAJL)
                        parse_yajl(&json);
                    else
                        decode_ours(lines, &csv);
                }
                double ns = (double)(cpu_ns() - start_ns);
                if (round >= 0) rate[rival][round] = 1e3 * PASSES * EVENTS / ns;
            }
        }
        for (int rival = 0; rival < RIVALS; rival++)
            qsort(rate[rival], ROUNDS, sizeof(double), by_value);
#define MEDIAN(rival) rate[rival][ROUNDS / 2]
        double ratio = MEDIAN(OURS) / MEDIAN(PROTOBUF_C);
        printf("%-6s %6zu %9.2f %11.2f %6.1fx %6.2f %6.2f %6.2f\n", shapes[s].name,
               wire.bytes.size / EVENTS, MEDIAN(OURS), MEDIAN(PROTOBUF_C), ratio, MEDIAN(JSON),
               MEDIAN(YAJL), MEDIAN(CSV));
        if (s == 0 || ratio < worst) {
            worst = ratio;
            worst_rival = MEDIAN(PROTOBUF_C);
        }
        dl_buf_free(&header);
        dl_event_decoder_free(lines);
    }
    printf("decode: %.1f x protobuf-c, lowest of three shapes (target >= %.0f x; protobuf-c %.2f "
           "million events/s in the same run)\n",
           worst, TARGET, worst_rival);
    dl_buf_free(&wire.bytes);
    dl_buf_free(&json.bytes);
    dl_buf_free(&csv.bytes);
    dl_event_decoder_free(protobuf);
    dl_event_decoder_free(text);
    return sink == 0;
}
