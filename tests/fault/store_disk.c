/* The store on a disk that fails: each SQLite call in turn, a full disk, power
 * cuts. Whatever happens, what comes back is a state that some commit left,
 * whole, and with sync FULL none that was acknowledged is lost. */
#include <criterion/criterion.h>

#include "tests/support/fault_vfs.h"
#include "tests/support/store_world.h"

enum { BATCHES = 14, SEED = 77 };

static char folder[64], path[128];

static void set_up(void)
{
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
    fault_vfs_reset();
}

static void tear_down(void)
{
    world_remove_folder(folder, "s.db");
}

TestSuite(store_disk, .init = set_up, .fini = tear_down);

static struct dl_store_options options_of(enum dl_store_sync sync)
{
    struct dl_store_options options = world_options();
    options.vfs = FAULT_VFS_NAME;
    options.sync = sync;
    options.round_events = 400;
    options.log_keep_events = 300;
    options.wal_bytes = 128 << 10; /* folded every few batches */
    return options;
}

static int payload_of_last(void *user, const struct dl_outbox_row *row)
{
    cr_assert_eq(row->payload.size, sizeof(uint64_t));
    memcpy(user, row->payload.data, sizeof(uint64_t));
    return 0;
}

/* Everything that one transaction wrote agrees, and the graph is that of an
 * undisturbed run of as many events. */
static void assert_whole(struct world *w, const char *when)
{
    uint64_t events = w->recovery.events, monitor = 0, first, next, last = 0;
    int64_t offset = 0;
    char what[64];
    struct dl_buf blob = {0};
    struct dl_store_report report;
    struct dl_error error = {""};
    cr_assert_eq(dl_store_check(w->store, &report, &error), DL_OK, "%s: %s", when, error.text);
    cr_assert_eq(report.problems, 0, "%s: %s", when, report.problem);
    if (events > 0) {
        cr_assert_eq(dl_store_get_position(w->store, "feed", 3, &offset, NULL), DL_OK);
        cr_assert_eq(dl_store_get_blob(w->store, "monitor", &blob, NULL), DL_OK);
        cr_assert_eq(blob.size, sizeof monitor);
        memcpy(&monitor, blob.data, sizeof monitor);
        dl_store_outbox_range(w->store, &first, &next);
        cr_assert_eq(dl_store_outbox_read(w->store, next - 1, 1, payload_of_last, &last, NULL),
                     DL_OK);
        if (next > first) cr_assert_eq(last, events, "%s: outbox", when);
        cr_assert_eq(monitor, events, "%s: blob", when);
        cr_assert_eq((uint64_t)offset, events, "%s: position", when);
    }
    struct dl_graph *graph = world_undisturbed(SEED, events);
    cr_assert(world_same_graph(w->graph, graph, what), "%s: %s differs after %lu events", when,
              what, (unsigned long)events);
    dl_graph_free(graph);
    dl_buf_free(&blob);
}

/* A life of a store: open, some batches, some records delivered, all pages
 * written, close. Stops at the first error. *acknowledged: events of the last
 * commit that succeeded; *attempted: of the last one that was tried. */
static int live(const struct dl_store_options *options, uint64_t *acknowledged, uint64_t *attempted,
                struct dl_error *error)
{
    struct world w;
    int status = world_open(&w, path, options, error);
    if (status != DL_OK) return status;
    uint64_t events = w.recovery.events;
    for (uint32_t i = 0; status == DL_OK && i < BATCHES; i++) {
        uint32_t count = 20 + i * 7 % 60;
        *attempted = events + count;
        status = world_batch(&w, SEED, count, i % 3 ? 0 : 2, error);
        if (status != DL_OK) break;
        events += count;
        *acknowledged = events;
        if (i % 5 == 4) {
            uint64_t first, next;
            dl_store_outbox_range(w.store, &first, &next);
            status = dl_store_outbox_delivered(w.store, next - 2, error);
            if (status == DL_OK) status = dl_store_outbox_sweep(w.store, error);
        }
    }
    if (status == DL_OK) status = dl_store_begin(w.store, error);
    if (status == DL_OK) status = dl_store_checkpoint_all(w.store, w.graph, NULL, error);
    if (status == DL_OK) status = dl_store_commit(w.store, error);
    world_close(&w);
    return status;
}

static void assert_comes_back(const struct dl_store_options *options, uint64_t at_least,
                              uint64_t at_most, const char *when)
{
    struct world w;
    struct dl_error error = {""};
    cr_assert_eq(world_open(&w, path, options, &error), DL_OK, "%s: %s", when, error.text);
    cr_assert_geq(w.recovery.events, at_least, "%s: lost %lu events", when,
                  (unsigned long)(at_least - w.recovery.events));
    cr_assert_leq(w.recovery.events, at_most, "%s: more than was written", when);
    assert_whole(&w, when);
    world_close(&w);
    /* And it goes on. */
    uint64_t acknowledged = 0, attempted = 0;
    cr_assert_eq(live(options, &acknowledged, &attempted, &error), DL_OK, "%s: %s", when,
                 error.text);
    cr_assert_eq(acknowledged, attempted);
}

/* `first_life`: whether the fault falls into a new store or an existing one. */
static void fail_in_turn(enum fault_kind kind, enum dl_store_sync sync, int first_life,
                         uint64_t step, uint64_t start)
{
    struct dl_store_options options = options_of(sync);
    uint64_t runs = 0;
    for (uint64_t after = start;; after += step, runs++) {
        char when[64];
        uint64_t acknowledged = 0, attempted = 0;
        struct dl_error error = {""};
        fault_vfs_reset();
        snprintf(when, sizeof when, "fault %d at call %lu", kind, (unsigned long)after);
        if (!first_life)
            cr_assert_eq(live(&options, &acknowledged, &attempted, &error), DL_OK, "%s",
                         error.text);
        attempted = acknowledged;
        fault_vfs_set(kind, after, after * 31 + 1);
        int status = live(&options, &acknowledged, &attempted, &error);
        int fired = fault_vfs_fired();
        if (kind == FAULT_CUT && fired) fault_vfs_power_on();
        fault_vfs_set(FAULT_NONE, 0, 0);
        if (status != DL_OK) {
            cr_assert(fired, "%s: failed without a fault: %s", when, error.text);
            cr_assert_not_null(strstr(error.text, path), "%s: the error does not name the file: %s",
                               when, error.text);
        }
        uint64_t at_least = kind == FAULT_CUT && sync != DL_STORE_SYNC_FULL ? 0 : acknowledged;
        assert_comes_back(&options, at_least, attempted > acknowledged ? attempted : acknowledged,
                          when);
        if (!fired) break;
    }
    cr_assert_gt(runs, 20, "the test did not get far");
}

Test(store_disk, every_call_fails_once_in_a_new_store)
{
    fail_in_turn(FAULT_ONCE, DL_STORE_SYNC_FULL, 1, 1, 1);
}

Test(store_disk, every_call_fails_once_in_an_existing_store)
{
    fail_in_turn(FAULT_ONCE, DL_STORE_SYNC_FULL, 0, 1, 1);
}

Test(store_disk, everything_fails_from_any_call_on)
{
    fail_in_turn(FAULT_STUCK, DL_STORE_SYNC_FULL, 1, 3, 1);
    fail_in_turn(FAULT_STUCK, DL_STORE_SYNC_FULL, 0, 3, 2);
}

Test(store_disk, power_cut_at_any_call_loses_nothing_acknowledged)
{
    fail_in_turn(FAULT_CUT, DL_STORE_SYNC_FULL, 1, 1, 1);
    fail_in_turn(FAULT_CUT, DL_STORE_SYNC_FULL, 0, 1, 1);
}

Test(store_disk, power_cut_with_sync_normal_loses_whole_commits_only)
{
    fail_in_turn(FAULT_CUT, DL_STORE_SYNC_NORMAL, 1, 2, 1);
    fail_in_turn(FAULT_CUT, DL_STORE_SYNC_NORMAL, 0, 2, 2);
}

Test(store_disk, full_disk_is_reported_and_survived)
{
    struct dl_store_options options = options_of(DL_STORE_SYNC_FULL);
    int full = 0;
    for (uint64_t space = 0; space < 4 << 20; space += 23456) {
        char when[64];
        uint64_t acknowledged = 0, attempted = 0;
        struct dl_error error = {""};
        fault_vfs_reset();
        fault_vfs_set_space(space);
        snprintf(when, sizeof when, "space %lu", (unsigned long)space);
        int status = live(&options, &acknowledged, &attempted, &error);
        fault_vfs_set_space(UINT64_MAX);
        assert_comes_back(&options, acknowledged, attempted, when);
        if (status == DL_OK) break;
        full += strstr(error.text, "free some space") != NULL;
    }
    cr_assert_gt(full, 5);
}

/* In one process: after a failed batch the caller rolls back, loads anew and
 * goes on, and ends where an undisturbed run ends. */
Test(store_disk, a_failed_batch_can_be_rolled_back_loaded_and_repeated)
{
    struct dl_store_options options = options_of(DL_STORE_SYNC_FULL);
    int repeated = 0, fired = 1;
    for (uint64_t after = 1; fired; after += 2) {
        struct world w;
        struct dl_error error = {""};
        fault_vfs_reset();
        cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
        fault_vfs_set(FAULT_ONCE, after, 0);
        for (uint32_t i = 0; i < 8; i++) {
            uint64_t before = dl_graph_feed(w.graph)->events;
            int status = world_batch(&w, SEED, 50, 3, &error);
            if (status == DL_OK) continue;
            cr_assert_eq(world_load(&w, &error), DL_OK, "call %lu: %s", (unsigned long)after,
                         error.text);
            cr_assert_eq(w.recovery.events, before);
            repeated++;
            i--;
        }
        fired = fault_vfs_fired();
        fault_vfs_set(FAULT_NONE, 0, 0);
        w.recovery.events = dl_graph_feed(w.graph)->events;
        cr_assert_eq(w.recovery.events, 400);
        assert_whole(&w, "repeated");
        world_close(&w);
    }
    cr_assert_gt(repeated, 10);
}
