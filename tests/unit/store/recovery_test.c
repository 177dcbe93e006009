/* Recovery: a store that was closed or left goes on exactly where it was. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "tests/support/store_world.h"

static char folder[64], path[128];

static void make_folder(void)
{
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
}

static void remove_folder(void)
{
    world_remove_folder(folder, "s.db");
}

TestSuite(store_recovery, .init = make_folder, .fini = remove_folder);

#define OK(call)                                                                                   \
    do {                                                                                           \
        struct dl_error error_ = {""};                                                             \
        struct dl_error *error = &error_;                                                          \
        int status_ = (call);                                                                      \
        cr_assert_eq(status_, DL_OK, "%s: %s: %s", #call, dl_status_name(status_), error->text);   \
    } while (0)

static void assert_undisturbed(struct world *w, uint64_t seed, uint64_t count)
{
    char what[64];
    struct dl_graph *graph = world_undisturbed(seed, count);
    cr_assert(world_same_graph(w->graph, graph, what), "%s differs after %lu events", what,
              (unsigned long)count);
    dl_graph_free(graph);
}

Test(store_recovery, of_a_new_file_is_empty)
{
    struct world w;
    struct dl_store_options options = world_options();
    OK(world_open(&w, path, &options, error));
    cr_assert_eq(w.recovery.events, 0);
    cr_assert_eq(w.recovery.pages, 0);
    world_close(&w);
    OK(world_open(&w, path, &options, error));
    cr_assert_eq(w.recovery.events, 0);
    world_close(&w);
}

Test(store_recovery, equals_an_undisturbed_run_wherever_it_is_closed)
{
    struct dl_store_options options = world_options();
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct world w;
        struct dl_rng rng;
        uint64_t events = 0;
        dl_rng_seed(&rng, seed);
        options.log_keep_events = seed == 1 ? 0 : 3000;
        for (int life = 0; life < 12; life++) {
            OK(world_open(&w, path, &options, error));
            cr_assert_eq(w.recovery.events, events, "seed %lu life %d", (unsigned long)seed, life);
            int batches = (int)dl_rng_below(&rng, 12);
            for (int i = 0; i < batches; i++) {
                uint32_t count = 1 + (uint32_t)dl_rng_below(&rng, 300);
                OK(world_batch(&w, seed, count, (uint32_t)dl_rng_below(&rng, 9), error));
                events += count;
            }
            if (life % 4 == 1) { /* what a rollback takes back never happened */
                OK(dl_store_begin(w.store, error));
                OK(world_apply(&w, seed, 100, error));
                OK(dl_store_checkpoint_step(w.store, w.graph, 5, NULL, error));
                dl_store_rollback(w.store);
                OK(world_load(&w, error));
                cr_assert_eq(w.recovery.events, events);
            }
            if (life % 4 == 3) {
                OK(dl_store_begin(w.store, error));
                OK(dl_store_checkpoint_all(w.store, w.graph, NULL, error));
                OK(dl_store_commit(w.store, error));
                OK(world_load(&w, error));
                cr_assert_eq(w.recovery.replayed, 0);
            }
            if (life % 3 == 0) assert_undisturbed(&w, seed, events);
            world_close(&w);
        }
        OK(world_open(&w, path, &options, error));
        cr_assert_gt(w.recovery.pages, 0);
        assert_undisturbed(&w, seed, events);
        world_close(&w);
        remove_folder();
        mkdir(folder, 0700);
    }
}

Test(store_recovery, rounds_are_paced_and_let_the_log_go)
{
    struct world w;
    struct dl_store_options options = world_options();
    options.log_keep_events = 1000;
    uint64_t first, next;
    OK(world_open(&w, path, &options, error));
    for (int i = 0; i < 200; i++) OK(world_batch(&w, 5, 100, 0, error));
    dl_store_log_range(w.store, &first, &next);
    struct dl_store_stats stats;
    dl_store_get_stats(w.store, &stats);
    cr_assert_eq(next, 20000);
    /* Two rounds of about 2,000 events, with some slack. */
    cr_assert_geq(stats.recover_from, 20000 - 3 * 2000);
    cr_assert_geq(first, 20000 - 3 * 2000 - 100);
    cr_assert_leq(first, 20000 - 1000);
    world_close(&w);
    OK(world_open(&w, path, &options, error));
    cr_assert_leq(w.recovery.replayed, 3 * 2000);
    assert_undisturbed(&w, 5, 20000);
    world_close(&w);
}

Test(store_recovery, much_free_space_goes_back_to_the_file_system)
{
    enum { BIG = 20 << 20 };
    struct world w;
    struct dl_store_options options = world_options();
    struct dl_store_stats before, after;
    struct dl_error error = {""};
    uint8_t *big = calloc(1, BIG);
    cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
    cr_assert_eq(dl_store_begin(w.store, &error), DL_OK);
    cr_assert_eq(dl_store_put_blob(w.store, "big", dl_slice_of(big, BIG), &error), DL_OK);
    cr_assert_eq(dl_store_commit(w.store, &error), DL_OK);
    cr_assert_eq(dl_store_begin(w.store, &error), DL_OK);
    cr_assert_eq(dl_store_delete_blob(w.store, "big", &error), DL_OK);
    cr_assert_eq(dl_store_commit(w.store, &error), DL_OK);
    free(big);
    dl_store_get_stats(w.store, &before);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(world_batch(&w, 5, 50, 0, &error), DL_OK, "%s", error.text);
    dl_store_get_stats(w.store, &after);
    world_close(&w);
    cr_assert_gt(before.file_bytes, (uint64_t)BIG);
    cr_assert_lt(after.file_bytes, before.file_bytes / 2, "%lu of %lu bytes are left",
                 (unsigned long)after.file_bytes, (unsigned long)before.file_bytes);
}
