/* Damage is found: flipped bytes, missing rows. And the check and backup commands. */
#include <criterion/criterion.h>
#include <sqlite3.h>

#include "tests/support/store_world.h"

static char folder[64], path[128];

static void set_up(void)
{
    struct world w;
    struct dl_store_options options = world_options();
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    for (int i = 0; i < 8; i++) cr_assert_eq(world_batch(&w, 1, 100, 3, NULL), DL_OK);
    world_close(&w);
}

static void tear_down(void)
{
    world_remove_folder(folder, "s.db");
}

TestSuite(store_damage, .init = set_up, .fini = tear_down);

static void sql(const char *text)
{
    sqlite3 *db;
    char *message = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, text, NULL, NULL, &message), SQLITE_OK, "%s: %s", text, message);
    sqlite3_close(db);
}

/* Opening and loading fails as corrupt, and the check says so too. */
static void assert_found(const char *words)
{
    struct dl_store_options options = world_options();
    struct world w;
    struct dl_error error = {""};
    cr_assert_eq(world_open(&w, path, &options, &error), DL_ERR_CORRUPT, "%s", error.text);
    cr_assert_not_null(strstr(error.text, words), "no \"%s\" in: %s", words, error.text);
    cr_assert_not_null(strstr(error.text, path), "%s", error.text);

    struct dl_store *store;
    struct dl_store_report report;
    options.read_only = 1;
    if (dl_store_open(path, &options, &store, &error) != DL_OK) return;
    cr_assert_eq(dl_store_check(store, &report, &error), DL_OK, "%s", error.text);
    cr_assert_gt(report.problems, 0);
    cr_assert_gt(strlen(report.problem), 10);
    dl_store_close(store);
}

Test(store_damage, a_flipped_bit_in_a_log_blob_is_found)
{
    sql("UPDATE edge_log SET data = CAST(substr(data, 1, 20) || x'ff' || substr(data, 22) AS BLOB)"
        " WHERE first_seq = 700");
    assert_found("event 700");
}

Test(store_damage, a_log_blob_of_another_place_is_found)
{
    sql("UPDATE edge_log SET data = (SELECT data FROM edge_log WHERE first_seq = 600),"
        " crc = (SELECT crc FROM edge_log WHERE first_seq = 600) WHERE first_seq = 700");
    assert_found("checksum");
}

Test(store_damage, a_missing_log_blob_is_found)
{
    sql("DELETE FROM edge_log WHERE first_seq = 600");
    assert_found("event");
}

Test(store_damage, a_missing_end_of_the_log_is_found)
{
    sql("DELETE FROM edge_log WHERE first_seq >= 0; DELETE FROM meta WHERE key = 'recover_from'");
    struct dl_store_options options = world_options();
    struct world w;
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_ERR_CORRUPT);
}

Test(store_damage, a_torn_checkpoint_page_is_found)
{
    sql("UPDATE checkpoint SET data = CAST(substr(data, 1, length(data) / 2) ||"
        " zeroblob(length(data) - length(data) / 2) AS BLOB) WHERE id = 4294967296");
    assert_found("checksum");
}

Test(store_damage, a_checkpoint_page_that_lies_is_refused)
{
    /* A good checksum over a bad page needs the checksum's function; an id
     * that is none is caught before it. */
    sql("UPDATE checkpoint SET id = id + (1 << 45) WHERE id = 4294967296");
    assert_found("checkpoint page");
}

Test(store_damage, names_out_of_order_are_found)
{
    sql("DELETE FROM node WHERE id = 3");
    assert_found("out of order");
}

Test(store_damage, a_flipped_bit_in_a_named_blob_is_found)
{
    struct dl_store_options options = world_options();
    struct dl_store *store;
    struct dl_store_report report;
    struct dl_buf out = {0};
    struct dl_error error = {""};
    sql("UPDATE blob SET data = x'0102030405060708' WHERE name = 'monitor'");
    cr_assert_eq(dl_store_open(path, &options, &store, NULL), DL_OK);
    cr_assert_eq(dl_store_get_blob(store, "monitor", &out, &error), DL_ERR_CORRUPT);
    cr_assert_eq(dl_store_check(store, &report, NULL), DL_OK);
    cr_assert_eq(report.problems, 1);
    cr_assert_not_null(strstr(report.problem, "monitor"));
    dl_store_close(store);
    dl_buf_free(&out);
}

/* Bytes of the file overwritten at random: opened or not, loaded or not, it
 * must never crash, and never load as something else than what was there
 * unless the damage missed everything that is read. */
Test(store_damage, random_damage_never_crashes)
{
    struct dl_store_options options = world_options();
    struct dl_rng rng;
    char saved[160], command[400];
    int refused = 0;
    snprintf(saved, sizeof saved, "%s/saved", folder);
    snprintf(command, sizeof command, "cp %s %s", path, saved);
    cr_assert_eq(system(command), 0);
    dl_rng_seed(&rng, 42);
    for (int round = 0; round < 150; round++) {
        struct world w;
        struct dl_error error = {""};
        char what[64];
        snprintf(command, sizeof command, "cp %s %s", saved, path);
        cr_assert_eq(system(command), 0);
        FILE *file = fopen(path, "r+b");
        fseek(file, 0, SEEK_END);
        long size = ftell(file);
        for (int k = 0; k < 8; k++) {
            fseek(file, (long)dl_rng_below(&rng, (uint64_t)size), SEEK_SET);
            fputc((int)dl_rng_below(&rng, 256), file);
        }
        fclose(file);
        int status = world_open(&w, path, &options, &error);
        if (status != DL_OK) {
            refused++;
            cr_assert_gt(strlen(error.text), 10);
        } else {
            struct dl_graph *graph = world_undisturbed(1, 800);
            if (!world_same_graph(w.graph, graph, what))
                cr_assert_fail("round %d: %s", round, what);
            dl_graph_free(graph);
            world_close(&w);
        }
    }
    cr_assert_gt(refused, 20);
    unlink(saved);
}

Test(store_damage, check_counts_everything_in_a_sound_store)
{
    struct dl_store_options options = world_options();
    struct dl_store *store;
    struct dl_store_report r;
    struct dl_error error = {""};
    options.read_only = options.adopt = 1;
    cr_assert_eq(dl_store_open(path, &options, &store, NULL), DL_OK);
    cr_assert_eq(dl_store_check(store, &r, &error), DL_OK, "%s", error.text);
    cr_assert_eq(r.problems, 0, "%s", r.problem);
    cr_assert_eq(r.schema_version, 1);
    cr_assert_str_eq(r.created_by, "driftline test");
    cr_assert_eq(r.log_events, 800u);
    cr_assert_eq(r.log_blobs, 8u);
    cr_assert_eq(r.log_next_seq, 800u);
    cr_assert_eq(r.positions, 1u);
    cr_assert_eq(r.outbox_rows, 8u);
    cr_assert_eq(r.blobs, 1u);
    cr_assert_gt(r.pages, 0u);
    cr_assert_gt(r.nodes, 50u);
    cr_assert_gt(r.file_bytes, 10000u);
    dl_store_close(store);
}

Test(store_damage, a_backup_made_while_open_is_whole)
{
    struct dl_store_options options = world_options();
    struct world w, copy;
    struct dl_error error = {""};
    char backup[160], what[64];
    snprintf(backup, sizeof backup, "%s/backup.db", folder);
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    cr_assert_eq(world_batch(&w, 1, 100, 3, NULL), DL_OK);
    cr_assert_eq(dl_store_backup(w.store, backup, &error), DL_OK, "%s", error.text);
    cr_assert_eq(world_batch(&w, 1, 100, 3, NULL), DL_OK);
    cr_assert_eq(dl_store_backup(w.store, backup, &error), DL_ERR_EXISTS);
    cr_assert_eq(world_open(&copy, backup, &options, &error), DL_OK, "%s", error.text);
    cr_assert_eq(copy.recovery.events, 900u);
    struct dl_graph *graph = world_undisturbed(1, 900);
    cr_assert(world_same_graph(copy.graph, graph, what), "%s", what);
    cr_assert_eq(world_batch(&copy, 1, 50, 1, &error), DL_OK, "%s", error.text);
    dl_graph_free(graph);
    world_close(&copy);
    world_close(&w);
    world_remove_files(folder, "backup.db");
}
