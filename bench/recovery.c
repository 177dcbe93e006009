/* Recovery of a store with 100,000 full windows, beside reading its file.
 *
 * The store is built from a made-up feed (uniform over the nodes, W 64, 100
 * events a node, ids as names) and left in two ways: closed in order, and as a
 * crash leaves it, with the log's tail since the last checkpoint round still
 * to be replayed. What is measured, on one thread and with the file in the
 * page cache: dl_store_open and dl_store_load, names, pages and log together.
 * The rival reads the same files from end to end and does nothing with them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/graph.h"
#include "base/rng.h"
#include "store/store.h"

enum { WINDOW = 64, EVENTS_A_NODE = 50, BATCH = 10000 };

static uint32_t node_count = 100000, runs = 3;
static const char *folder = ".";
static char path[4000];

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench-recovery: %s: %s\n", what, detail);
    exit(1);
}

/* Of this thread, user and system: what is left of the wall time, others took. */
static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void remove_store(void)
{
    static const char *const tails[] = {"", "-wal", "-shm", "-lock"};
    char text[4096];
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%s%s", path, tails[i]);
        unlink(text);
    }
}

static struct dl_store_options store_options(void)
{
    struct dl_store_options options = dl_store_options_default;
    options.config.window = WINDOW;
    options.config.time_unit = DL_TIME_MS;
    options.sync = DL_STORE_SYNC_OFF; /* how it was built does not matter here */
    return options;
}

static struct dl_graph *new_graph(void)
{
    struct dl_graph_config config = dl_graph_config_default;
    struct dl_graph *graph;
    struct dl_error error;
    config.window = WINDOW;
    if (dl_graph_new(&config, &graph, &error) != DL_OK) fail("graph", error.text);
    return graph;
}

/* Closed in order: every dirty page is written at the end. Else the log has a tail. */
static void build(int in_order)
{
    struct dl_error error = {""};
    struct dl_store_options options = store_options();
    struct dl_store *store;
    struct dl_graph *graph = new_graph();
    static struct dl_event events[BATCH];
    struct dl_rng rng;
    remove_store();
    dl_rng_seed(&rng, 5);
    if (dl_store_open(path, &options, &store, &error) != DL_OK) fail("open", error.text);
    int status = dl_store_begin(store, &error);
    for (uint32_t i = 0; status == DL_OK && i < node_count; i++) {
        char name[16];
        int size = snprintf(name, sizeof name, "%u", i);
        status = dl_store_add_node(store, i, 0, dl_slice_of(name, (size_t)size), &error);
    }
    if (status == DL_OK) status = dl_store_commit(store, &error);
    uint64_t total = (uint64_t)node_count * EVENTS_A_NODE, at = 0;
    while (status == DL_OK && at < total) {
        uint32_t count = total - at < BATCH ? (uint32_t)(total - at) : BATCH, applied;
        for (uint32_t i = 0; i < count; i++)
            events[i] = (struct dl_event){.time = 1700000000000 + (int64_t)((at + i) / 4),
                                          .src = (uint32_t)dl_rng_below(&rng, node_count),
                                          .dst = (uint32_t)dl_rng_below(&rng, node_count),
                                          .weight = 1};
        status = dl_store_begin(store, &error);
        if (status == DL_OK) status = dl_graph_apply_many(graph, events, count, &applied);
        if (status == DL_OK) status = dl_store_append_events(store, at, events, count, &error);
        if (status == DL_OK) status = dl_store_checkpoint_step(store, graph, 0, NULL, &error);
        at += count;
        if (status == DL_OK && at == total && in_order)
            status = dl_store_checkpoint_all(store, graph, NULL, &error);
        if (status == DL_OK) status = dl_store_commit(store, &error);
    }
    if (status != DL_OK) fail("build", error.text);
    dl_store_close(store);
    dl_graph_free(graph);
}

static double read_file(void)
{
    static char chunk[1 << 20];
    int64_t start_ns = dl_clock_monotonic_ns();
    int fd = open(path, O_RDONLY);
    ssize_t size = 0;
    if (fd < 0) fail("read", path);
    while ((size = read(fd, chunk, sizeof chunk)) > 0) continue;
    close(fd);
    return (double)(dl_clock_monotonic_ns() - start_ns) * 1e-9;
}

static double recover(struct dl_store_recovery *recovery, double *cpu)
{
    struct dl_error error = {""};
    struct dl_store_options options = store_options();
    struct dl_store *store;
    struct dl_dictionary *nodes, *types;
    double start_cpu = cpu_seconds();
    int64_t start_ns = dl_clock_monotonic_ns();
    struct dl_graph *graph = new_graph();
    if (dl_dictionary_new(UINT32_MAX, &nodes) != DL_OK ||
        dl_dictionary_new(65535, &types) != DL_OK ||
        dl_store_open(path, &options, &store, &error) != DL_OK ||
        dl_store_load(store, graph, nodes, types, recovery, &error) != DL_OK)
        fail("recover", error.text);
    double seconds = (double)(dl_clock_monotonic_ns() - start_ns) * 1e-9;
    *cpu = cpu_seconds() - start_cpu;
    dl_store_close(store);
    dl_graph_free(graph);
    dl_dictionary_free(nodes);
    dl_dictionary_free(types);
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "n:r:d:")) != -1) {
        uint32_t value = optarg ? (uint32_t)strtoul(optarg, NULL, 10) : 0;
        switch (option) {
        case 'n':
            node_count = value;
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
        if ((option != 'd' && value == 0) || runs > 99) {
            fprintf(stderr, "usage: recovery [-n nodes] [-r runs, <= 99] [-d folder]\n");
            return 2;
        }
    }
    snprintf(path, sizeof path, "%s/bench-recovery.db", folder);
    printf("one thread, file in the page cache; %u nodes, window %d, %d events a node\n",
           node_count, WINDOW, 2 * EVENTS_A_NODE);
    double middle[2], reading = 0;
    for (int in_order = 0; in_order < 2; in_order++) {
        double ours[99], rival[99], cpu[99];
        struct dl_store_recovery recovery;
        build(in_order);
        for (uint32_t i = 0; i < runs; i++) {
            rival[i] = read_file();
            ours[i] = recover(&recovery, &cpu[i]);
        }
        qsort(ours, runs, sizeof *ours, by_value);
        qsort(cpu, runs, sizeof *cpu, by_value);
        qsort(rival, runs, sizeof *rival, by_value);
        middle[in_order] = ours[runs / 2];
        reading = rival[runs / 2];
        printf("%s: %.3f s, %.3f of processor time (%lu names, %.1f MB in %lu pages, %lu events "
               "replayed); reading the "
               "file %.3f s\n",
               in_order ? "closed in order" : "after a crash", ours[runs / 2], cpu[runs / 2],
               (unsigned long)recovery.nodes, (double)recovery.page_bytes / 1e6,
               (unsigned long)recovery.pages, (unsigned long)recovery.replayed, rival[runs / 2]);
        fflush(stdout);
    }
    remove_store();
    printf("recovery: %.2f s closed in order, %.2f s after a crash (target < 1 s, reading the file "
           "%.2f s)\n",
           middle[1], middle[0], reading);
    return 0;
}
