/* A process that writes to a store is killed at random instants, over and
 * over. Each start goes on at the last acknowledged commit or the one in
 * flight, and in the end nothing distinguishes it from an undisturbed run. */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/support/store_world.h"

enum { KILLS = 40, SEED = 21 };

static char folder[64], path[128];

static void set_up(void)
{
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
}

static void tear_down(void)
{
    world_remove_folder(folder, "s.db");
}

TestSuite(store_kill, .init = set_up, .fini = tear_down);

struct shared {
    volatile uint64_t acknowledged;
    volatile int error;
};

static void write_until_killed(struct shared *shared)
{
    struct world w;
    struct dl_store_options options = world_options();
    struct dl_error error = {""};
    options.wal_bytes = 256 << 10;
    options.round_events = 500;
    options.log_keep_events = 2000;
    if (world_open(&w, path, &options, &error) != DL_OK) {
        fprintf(stderr, "%s\n", error.text);
        shared->error = 1;
        _exit(1);
    }
    for (;;) {
        if (world_batch(&w, SEED, 37, 0, &error) != DL_OK) {
            fprintf(stderr, "%s\n", error.text);
            shared->error = 1;
            _exit(1);
        }
        shared->acknowledged = dl_graph_feed(w.graph)->events;
        if (shared->acknowledged % (37 * 11) == 0 &&
            (dl_store_outbox_delivered(w.store, shared->acknowledged / 37 - 1, &error) != DL_OK ||
             dl_store_outbox_sweep(w.store, &error) != DL_OK)) {
            fprintf(stderr, "%s\n", error.text);
            shared->error = 1;
            _exit(1);
        }
    }
}

Test(store_kill, loses_nothing_whenever_it_is_killed)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct dl_rng rng;
    struct world w;
    struct dl_store_options options = world_options();
    struct dl_error error = {""};
    char what[64];
    uint64_t replayed = 0;
    cr_assert_neq(shared, MAP_FAILED);
    dl_rng_seed(&rng, SEED);
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        uint64_t before = shared->acknowledged;
        pid_t child = fork();
        if (child == 0) write_until_killed(shared);
        /* Some die while they start, most in the middle of their work. */
        usleep((useconds_t)(dl_rng_below(&rng, 4) ? 20000 + dl_rng_below(&rng, 40000)
                                                  : dl_rng_below(&rng, 10000)));
        kill(child, SIGKILL);
        cr_assert_eq(waitpid(child, NULL, 0), child);
        cr_assert_eq(shared->error, 0);
        cr_assert_geq(shared->acknowledged, before);
        cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
        cr_assert(w.recovery.events == shared->acknowledged ||
                      w.recovery.events == shared->acknowledged + 37,
                  "kill %d: %lu events after %lu acknowledged", kill_number,
                  (unsigned long)w.recovery.events, (unsigned long)shared->acknowledged);
        replayed += w.recovery.replayed;
        shared->acknowledged = w.recovery.events;
        if (kill_number % 8 == 7) {
            struct dl_graph *graph = world_undisturbed(SEED, w.recovery.events);
            cr_assert(world_same_graph(w.graph, graph, what), "kill %d: %s", kill_number, what);
            dl_graph_free(graph);
        }
        world_close(&w);
    }
    cr_assert_gt(shared->acknowledged, 37 * KILLS);
    cr_assert_gt(replayed, 0);
    munmap(shared, sizeof *shared);
}
