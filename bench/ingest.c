/* Durable ingest without scoring, beside the blob-log ceiling.
 *
 * What is measured, on one thread: for each batch begin, dl_graph_apply_many, the log blob, the
 * source position, a paced checkpoint step, commit with synchronous=FULL. The ceiling is the same
 * log blobs, encoded beforehand, each inserted in a transaction of its own with the same settings
 * and nothing else. The two alternate, and the medians are compared.
 *
 * The feed: sources and destinations by a power law over the nodes (rank
 * exponent 0.8), shuffled ids; times in order with about 4 events a tick; made
 * beforehand. Making events and names is not counted. */
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/graph.h"
#include "base/rng.h"
#include "store/log_codec.h"
#include "store/store.h"

static uint32_t event_count = 4000000, node_count = 100000, batch_events = 10000, runs = 3;
static uint32_t window = 64;
static const char *folder = ".";

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench-ingest: %s: %s\n", what, detail);
    exit(1);
}

static struct dl_event *make_feed(void)
{
    struct dl_event *events = malloc(event_count * sizeof *events);
    double *cumulative = malloc(node_count * sizeof *cumulative);
    uint32_t *shuffled = malloc(node_count * sizeof *shuffled);
    DL_CHECK(events && cumulative && shuffled);
    struct dl_rng rng;
    dl_rng_seed(&rng, 7);
    double sum = 0;
    for (uint32_t i = 0; i < node_count; i++) {
        cumulative[i] = sum += pow(1.0 + i, -0.8);
        uint32_t j = (uint32_t)dl_rng_below(&rng, i + 1);
        shuffled[i] = shuffled[j];
        shuffled[j] = i;
    }
    for (uint32_t i = 0; i < event_count; i++) {
        uint32_t ends[2];
        for (int k = 0; k < 2; k++) {
            double at = dl_rng_uniform(&rng) * sum;
            uint32_t low = 0, high = node_count - 1;
            while (low < high) {
                uint32_t middle = (low + high) / 2;
                if (cumulative[middle] < at)
                    low = middle + 1;
                else
                    high = middle;
            }
            ends[k] = shuffled[low];
        }
        events[i] = (struct dl_event){
            .time = 1700000000000 + i / 4, .src = ends[0], .dst = ends[1], .weight = 1};
    }
    free(cumulative);
    free(shuffled);
    return events;
}

/* Of this thread, user and system: what is left of the wall time, others took. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void remove_store(const char *path)
{
    static const char *const tails[] = {"", "-wal", "-shm", "-lock"};
    char text[4096];
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%s%s", path, tails[i]);
        unlink(text);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

struct figures {
    double seconds, cpu_seconds, batch_p50_ms, batch_p99_ms, batch_max_ms;
    struct dl_store_stats stats;
};

static struct figures run_ingest(struct dl_event *events)
{
    char path[4000];
    snprintf(path, sizeof path, "%s/bench-ingest.db", folder);
    remove_store(path);
    struct dl_error error = {""};
    struct dl_store_options options = dl_store_options_default;
    options.config.window = window;
    options.config.time_unit = DL_TIME_MS;
    struct dl_graph_config config = dl_graph_config_default;
    config.window = window;
    struct dl_store *store;
    struct dl_graph *graph;
    if (dl_graph_new(&config, &graph, &error) != DL_OK ||
        dl_store_open(path, &options, &store, &error) != DL_OK)
        fail("open", error.text);
    /* The log names nodes by id; the store wants them to have names. */
    int status = dl_store_begin(store, &error);
    for (uint32_t i = 0; status == DL_OK && i < node_count; i++) {
        char name[16];
        int size = snprintf(name, sizeof name, "%u", i);
        status = dl_store_add_node(store, i, 0, dl_slice_of(name, (size_t)size), &error);
    }
    if (status == DL_OK) status = dl_store_commit(store, &error);
    uint32_t batches = 0;
    double *took_ms = calloc(event_count / batch_events + 1, sizeof *took_ms);
    DL_CHECK(took_ms);
    double start_cpu = cpu_seconds();
    int64_t start_ns = dl_clock_monotonic_ns();
    for (uint32_t at = 0; status == DL_OK && at < event_count; at += batch_events) {
        uint32_t count = event_count - at < batch_events ? event_count - at : batch_events;
        int64_t batch_ns = dl_clock_monotonic_ns();
        status = dl_store_begin(store, &error);
        uint32_t applied;
        if (status == DL_OK) status = dl_graph_apply_many(graph, events + at, count, &applied);
        if (status == DL_OK) status = dl_store_append_events(store, at, events + at, count, &error);
        if (status == DL_OK) status = dl_store_set_position(store, "feed", 0, at + count, &error);
        if (status == DL_OK) status = dl_store_checkpoint_step(store, graph, 0, NULL, &error);
        if (status == DL_OK) status = dl_store_commit(store, &error);
        took_ms[batches++] = (double)(dl_clock_monotonic_ns() - batch_ns) * 1e-6;
    }
    struct figures figures = {.seconds = (double)(dl_clock_monotonic_ns() - start_ns) * 1e-9,
                              .cpu_seconds = cpu_seconds() - start_cpu};
    if (status != DL_OK) fail("ingest", error.text);
    qsort(took_ms, batches, sizeof *took_ms, by_value);
    figures.batch_p50_ms = took_ms[batches / 2];
    figures.batch_p99_ms = took_ms[batches * 99 / 100];
    figures.batch_max_ms = took_ms[batches - 1];
    free(took_ms);
    dl_store_get_stats(store, &figures.stats);
    dl_store_close(store);
    dl_graph_free(graph);
    remove_store(path);
    return figures;
}

static void exec(sqlite3 *db, const char *text)
{
    char *message = NULL;
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK) fail(text, message);
}

/* `events` carry their ordinals: the ingest ran first. */
static double run_ceiling(const struct dl_event *events, double *cpu)
{
    char path[4000];
    snprintf(path, sizeof path, "%s/bench-ceiling.db", folder);
    remove_store(path);
    uint32_t batches = (event_count + batch_events - 1) / batch_events;
    struct dl_buf *blobs = calloc(batches, sizeof *blobs);
    DL_CHECK(blobs);
    for (uint32_t i = 0; i < batches; i++) {
        uint32_t at = i * batch_events;
        uint32_t count = event_count - at < batch_events ? event_count - at : batch_events;
        if (dl_log_encode(events + at, count, 0, &blobs[i]) != DL_OK) fail("encode", "memory");
    }
    sqlite3 *db;
    sqlite3_stmt *add, *begin, *commit;
    if (sqlite3_open(path, &db) != SQLITE_OK) fail(path, sqlite3_errmsg(db));
    exec(db, "PRAGMA page_size=16384;PRAGMA auto_vacuum=INCREMENTAL;PRAGMA journal_mode=WAL;"
             "PRAGMA synchronous=FULL;PRAGMA wal_autocheckpoint=1024;PRAGMA cache_size=-32768;"
             "CREATE TABLE edge_log(first_seq INTEGER PRIMARY KEY, data BLOB)");
    sqlite3_prepare_v2(db, "INSERT INTO edge_log VALUES(?1, ?2)", -1, &add, NULL);
    sqlite3_prepare_v2(db, "BEGIN IMMEDIATE", -1, &begin, NULL);
    sqlite3_prepare_v2(db, "COMMIT", -1, &commit, NULL);
    int64_t start_ns = dl_clock_monotonic_ns();
    *cpu = -cpu_seconds();
    for (uint32_t i = 0; i < batches; i++) {
        sqlite3_bind_int64(add, 1, (sqlite3_int64)i * batch_events);
        sqlite3_bind_blob64(add, 2, blobs[i].data, blobs[i].size, SQLITE_STATIC);
        sqlite3_stmt *const steps[] = {begin, add, commit};
        for (int k = 0; k < 3; k++) {
            if (sqlite3_step(steps[k]) != SQLITE_DONE) fail("ceiling", sqlite3_errmsg(db));
            sqlite3_reset(steps[k]);
        }
    }
    double seconds = (double)(dl_clock_monotonic_ns() - start_ns) * 1e-9;
    *cpu += cpu_seconds();
    sqlite3_finalize(add);
    sqlite3_finalize(begin);
    sqlite3_finalize(commit);
    sqlite3_close(db);
    for (uint32_t i = 0; i < batches; i++) dl_buf_free(&blobs[i]);
    free(blobs);
    remove_store(path);
    return seconds;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "e:n:b:w:r:d:")) != -1) {
        uint32_t value = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (option) {
        case 'e':
            event_count = value;
            break;
        case 'n':
            node_count = value;
            break;
        case 'b':
            batch_events = value;
            break;
        case 'w':
            window = value;
            break;
        case 'r':
            runs = value;
            break;
        case 'd':
            folder = optarg;
            break;
        default:
            value = 0;
        }
        if ((option != 'd' && value == 0) || runs > 99 || batch_events > DL_LOG_BLOCK_EVENTS_MAX) {
            fprintf(stderr, "usage: ingest [-e events] [-n nodes] [-b events a batch, <= 65536]"
                            " [-w window] [-r runs, <= 99] [-d folder]\n");
            return 2;
        }
    }
    printf(
        "SQLite %s, synchronous=FULL, one thread; %u events, %u nodes, window %u, batches of %u; "
        "window building counted\n",
        sqlite3_libversion(), event_count, node_count, window, batch_events);
    struct dl_event *events = make_feed();
    double ours[99], ceiling[99], ours_cpu[99];
    for (uint32_t i = 0; i < runs; i++) {
        struct figures f = run_ingest(events);
        ours[i] = event_count / f.seconds;
        double ceiling_cpu;
        ceiling[i] = event_count / run_ceiling(events, &ceiling_cpu);
        ours_cpu[i] = event_count / f.cpu_seconds;
        printf("run %u: %.0f thousand events/s (%.0f by processor time), blob log alone %.0f "
               "(%.0f); %.1f "
               "MB of pages in %lu, log "
               "tail %lu events; a batch p50 %.1f ms, p99 %.1f, longest %.1f\n",
               i + 1, ours[i] / 1e3, event_count / f.cpu_seconds / 1e3, ceiling[i] / 1e3,
               event_count / ceiling_cpu / 1e3, (double)f.stats.page_bytes_written / 1e6,
               (unsigned long)f.stats.pages_written,
               (unsigned long)(f.stats.log_next_seq - f.stats.recover_from), f.batch_p50_ms,
               f.batch_p99_ms, f.batch_max_ms);
        fflush(stdout);
    }
    free(events);
    double mine = median(ours, runs), rival = median(ceiling, runs);
    printf("ingest: %.0f thousand events/s, %.2f x the ceiling (target >= 500 thousand and >= 0.5 "
           "x, blob log alone %.0f thousand); by processor time %.0f thousand\n",
           mine / 1e3, mine / rival, rival / 1e3, median(ours_cpu, runs) / 1e3);
    return 0;
}
