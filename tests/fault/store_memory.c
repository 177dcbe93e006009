/* The store when memory runs out: each allocation failing in turn, SQLite's
 * and ours. An error is reported, nothing leaks into the file, and the next
 * start goes on from the last commit. */
#include <criterion/criterion.h>

#include "tests/support/fail_malloc.h"
#include "tests/support/store_world.h"

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

TestSuite(store_memory, .init = set_up, .fini = tear_down);

static int count_row(void *user, const struct dl_outbox_row *row)
{
    (void)row;
    ++*(int *)user;
    return 0;
}

static int live(uint64_t *acknowledged, struct dl_error *error)
{
    struct world w;
    struct dl_store_options options = world_options();
    struct dl_store_report report;
    struct dl_buf blob = {0};
    int rows = 0;
    uint32_t list[3] = {1, 2, 3}, *read_list = NULL, count;
    options.sync = DL_STORE_SYNC_OFF;
    options.wal_bytes = 64 << 10;
    int status = world_open(&w, path, &options, error);
    if (status != DL_OK) return status;
    for (int i = 0; status == DL_OK && i < 4; i++) {
        status = world_batch(&w, 3, 60, 2, error);
        if (status == DL_OK) *acknowledged = dl_graph_feed(w.graph)->events;
    }
    if (status == DL_OK) status = dl_store_begin(w.store, error);
    if (status == DL_OK) status = dl_store_put_destinations(w.store, list, 3, error);
    if (status == DL_OK) status = dl_store_checkpoint_all(w.store, w.graph, NULL, error);
    if (status == DL_OK) status = dl_store_commit(w.store, error);
    if (status == DL_OK) status = dl_store_outbox_read(w.store, 1, 100, count_row, &rows, error);
    if (status == DL_OK) status = dl_store_outbox_delivered(w.store, 1, error);
    if (status == DL_OK) status = dl_store_outbox_sweep(w.store, error);
    if (status == DL_OK) status = dl_store_get_blob(w.store, "monitor", &blob, error);
    if (status == DL_OK) status = dl_store_get_destinations(w.store, &read_list, &count, error);
    if (status == DL_OK) status = dl_store_check(w.store, &report, error);
    if (status == DL_OK) cr_assert_eq(report.problems, 0, "%s", report.problem);
    free(read_list);
    dl_buf_free(&blob);
    world_close(&w);
    return status;
}

static void fail_in_turn(int stuck, uint64_t step)
{
    uint64_t after = 1;
    int fired = 1, reported = 0;
    for (; fired; after += step) {
        uint64_t acknowledged = 0, again = 0;
        struct dl_error error = {""};
        world_remove_files(folder, "s.db");
        fail_malloc_set(after, stuck);
        int status = live(&acknowledged, &error);
        fired = fail_malloc_fired();
        fail_malloc_set(0, 0);
        if (status != DL_OK) {
            cr_assert(fired, "allocation %lu: %s", (unsigned long)after, error.text);
            reported++;
        }
        cr_assert_eq(live(&again, &error), DL_OK, "allocation %lu: %s", (unsigned long)after,
                     error.text);
        cr_assert_geq(again, acknowledged + 240);
        cr_assert_leq(again, acknowledged + 300);

        struct world w;
        struct dl_store_options options = world_options();
        char what[64];
        options.sync = DL_STORE_SYNC_OFF;
        cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
        struct dl_graph *graph = world_undisturbed(3, w.recovery.events);
        cr_assert(world_same_graph(w.graph, graph, what), "allocation %lu: %s",
                  (unsigned long)after, what);
        dl_graph_free(graph);
        world_close(&w);
    }
    cr_assert_gt(reported, 20);
}

Test(store_memory, every_allocation_fails_once)
{
    if (!fail_malloc_available()) cr_skip_test("sanitizers have an allocator of their own");
    fail_in_turn(0, 1);
}

Test(store_memory, every_allocation_fails_from_any_on)
{
    if (!fail_malloc_available()) cr_skip_test("sanitizers have an allocator of their own");
    fail_in_turn(1, 3);
}
