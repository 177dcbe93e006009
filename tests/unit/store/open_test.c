/* Opening: configuration, versions, migrations, one writer, readers. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "store/internal.h"
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

TestSuite(store_open, .init = make_folder, .fini = remove_folder);

static void make_store(void)
{
    struct world w;
    struct dl_store_options options = world_options();
    struct dl_error error = {""};
    cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
    for (int i = 0; i < 5; i++) cr_assert_eq(world_batch(&w, 1, 100, 2, &error), DL_OK);
    world_close(&w);
}

static void sql(const char *text)
{
    sqlite3 *db;
    char *message = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, text, NULL, NULL, &message), SQLITE_OK, "%s: %s", text, message);
    sqlite3_close(db);
}

static void assert_refused(const struct dl_store_options *options, int status, const char *words)
{
    struct dl_store *store = NULL;
    struct dl_error error = {""};
    cr_assert_eq(dl_store_open(path, options, &store, &error), status, "%s", error.text);
    cr_assert_not_null(strstr(error.text, words), "no \"%s\" in: %s", words, error.text);
    cr_assert_null(strchr(error.text, '\n'));
}

Test(store_open, names_the_difference_of_configuration_and_the_remedy)
{
    struct dl_store_options options;
    make_store();
    options = world_options();
    options.config.time_unit = DL_TIME_S;
    assert_refused(&options, DL_ERR_VERSION, "made with time unit ms, configured is s");
    options = world_options();
    options.config.window = 16;
    assert_refused(&options, DL_ERR_VERSION, "made with window 8, configured is 16");
    options = world_options();
    options.config.feature_count = 0;
    assert_refused(&options, DL_ERR_VERSION, "made with features an event 2, configured is 0");
    options = world_options();
    options.config.namespaces = 1;
    assert_refused(&options, DL_ERR_VERSION, "made with namespaces 2, configured is 1");
    options = world_options();
    options.config.window = 0;
    assert_refused(&options, DL_ERR_INVALID, "window 0");
}

Test(store_open, adopts_the_configuration_of_the_file_when_asked)
{
    struct dl_store_options options = dl_store_options_default;
    struct dl_store *store;
    make_store();
    options.adopt = 1;
    cr_assert_eq(dl_store_open(path, &options, &store, NULL), DL_OK);
    cr_assert_eq(dl_store_get_config(store)->time_unit, DL_TIME_MS);
    cr_assert_eq(dl_store_get_config(store)->window, (uint32_t)WORLD_WINDOW);
    cr_assert_eq(dl_store_get_config(store)->feature_count, (uint32_t)WORLD_FEATURES);
    cr_assert_eq(dl_store_get_config(store)->namespaces, 2u);
    dl_store_close(store);
}

Test(store_open, says_what_is_wrong_with_a_file)
{
    struct dl_store_options options = world_options();
    options.create = 0;
    assert_refused(&options, DL_ERR_NOT_FOUND, "no such file");
    options.adopt = options.read_only = 1;
    assert_refused(&options, DL_ERR_NOT_FOUND, "no such file");

    options = world_options();
    sql("CREATE TABLE other(x)");
    assert_refused(&options, DL_ERR_VERSION, "another program");
    world_remove_files(folder, "s.db");

    make_store();
    sql("PRAGMA user_version=99");
    assert_refused(&options, DL_ERR_VERSION, "schema version 99 is newer");
    world_remove_files(folder, "s.db");

    make_store();
    sql("DELETE FROM meta WHERE key='window'");
    assert_refused(&options, DL_ERR_CORRUPT, "meta.window is missing");
    sql("INSERT INTO meta VALUES('window', 'wide')");
    assert_refused(&options, DL_ERR_CORRUPT, "meta.window");
    world_remove_files(folder, "s.db");

    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    for (int i = 0; i < 500; i++) cr_assert_eq(write(fd, "this is not a database. ", 24), 24);
    close(fd);
    assert_refused(&options, DL_ERR_CORRUPT, "not a database");
    world_remove_files(folder, "s.db");

    strcat(path, "/no/such/folder");
    assert_refused(&options, DL_ERR_IO, "folder exists");
    memset(path, 'x', sizeof path - 1);
    char empty[1] = "";
    struct dl_error error;
    struct dl_store *store;
    cr_assert_eq(dl_store_open(empty, &options, &store, &error), DL_ERR_INVALID);
    snprintf(path, sizeof path, "%s/s.db", folder);
}

Test(store_open, refuses_a_second_writer_and_names_the_first)
{
    struct dl_store_options options = world_options();
    struct world w;
    char pid[32];
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    assert_refused(&options, DL_ERR_UNAVAILABLE, pid);
    /* The refusal must not have taken the first one's lock away. */
    assert_refused(&options, DL_ERR_UNAVAILABLE, pid);
    cr_assert_eq(world_batch(&w, 1, 50, 1, NULL), DL_OK);
    world_close(&w);
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    world_close(&w);
}

Test(store_open, a_killed_writer_leaves_no_lock)
{
    struct dl_store_options options = world_options();
    struct world w;
    pid_t child = fork();
    if (child == 0) {
        if (world_open(&w, path, &options, NULL) != DL_OK) _exit(1);
        if (world_batch(&w, 9, 200, 3, NULL) != DL_OK) _exit(2);
        (void)dl_store_begin(w.store, NULL);
        (void)world_apply(&w, 9, 100, NULL);
        _exit(0); /* in the middle of a transaction, nothing closed */
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert_eq(status, 0);
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    cr_assert_eq(w.recovery.events, 200);
    world_close(&w);
}

static int count_events(void *user, uint64_t seq, const struct dl_event *event)
{
    (void)event;
    cr_assert_eq(seq, *(uint64_t *)user);
    ++*(uint64_t *)user;
    return 0;
}

Test(store_open, a_reader_sees_commits_beside_the_writer_and_cannot_write)
{
    struct dl_store_options options = world_options(), reading = world_options();
    struct world w;
    struct dl_store *reader;
    struct dl_error error = {""};
    uint64_t seen = 0;
    cr_assert_eq(world_open(&w, path, &options, NULL), DL_OK);
    cr_assert_eq(world_batch(&w, 1, 100, 1, NULL), DL_OK);
    reading.read_only = 1;
    cr_assert_eq(dl_store_open(path, &reading, &reader, &error), DL_OK, "%s", error.text);
    cr_assert_eq(dl_store_log_read(reader, 0, count_events, &seen, &error), DL_OK, "%s",
                 error.text);
    cr_assert_eq(seen, 100u);
    cr_assert_eq(world_batch(&w, 1, 100, 1, &error), DL_OK, "%s", error.text);
    cr_assert_eq(dl_store_begin(w.store, NULL), DL_OK);
    cr_assert_eq(world_apply(&w, 1, 50, NULL), DL_OK);
    seen = 0;
    cr_assert_eq(dl_store_log_read(reader, 0, count_events, &seen, &error), DL_OK);
    cr_assert_eq(seen, 200u, "what is not committed is not seen");
    cr_assert_eq(dl_store_begin(reader, &error), DL_ERR_INVALID);
    cr_assert_not_null(strstr(error.text, "read-only"));
    dl_store_close(reader);
    cr_assert_eq(dl_store_commit(w.store, &error), DL_OK, "%s", error.text);
    world_close(&w);
}

/* ---- migrations ------------------------------------------------------------------ */

static int read_version(sqlite3 *db)
{
    sqlite3_stmt *statement;
    sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &statement, NULL);
    sqlite3_step(statement);
    int version = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return version;
}

Test(store_open, migrates_step_by_step_and_keeps_the_rows)
{
    struct dl_error error = {""};
    struct store_migration later[] = {store_migrations[0],
                                      {2, "ALTER TABLE position ADD COLUMN epoch INTEGER;"},
                                      {4, "CREATE TABLE more(x); INSERT INTO more VALUES(7);"}};
    sqlite3 *db;
    make_store();
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(store_migrate(db, path, later, 3, 0, &error), DL_ERR_VERSION);
    cr_assert_not_null(strstr(error.text, "migrate"));
    cr_assert_eq(store_migrate(db, path, later, 2, 1, &error), DL_OK, "%s", error.text);
    cr_assert_eq(read_version(db), 2);
    cr_assert_eq(store_migrate(db, path, later, 3, 1, &error), DL_OK, "%s", error.text);
    cr_assert_eq(store_migrate(db, path, later, 3, 1, &error), DL_OK, "%s", error.text);
    cr_assert_eq(read_version(db), 4);
    cr_assert_eq(sqlite3_exec(db, "SELECT next_offset, epoch FROM position; SELECT x FROM more",
                              NULL, NULL, NULL),
                 SQLITE_OK);
    cr_assert_eq(store_migrate(db, path, later, 2, 1, &error), DL_ERR_VERSION);
    sqlite3_close(db);
}

Test(store_open, a_failed_migration_changes_nothing)
{
    struct dl_error error = {""};
    struct store_migration later[] = {store_migrations[0],
                                      {2, "CREATE TABLE more(x); ALTER TABLE absent ADD y;"}};
    struct world w;
    struct dl_store_options options = world_options();
    sqlite3 *db;
    make_store();
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_neq(store_migrate(db, path, later, 2, 1, &error), DL_OK);
    cr_assert_not_null(strstr(error.text, "from schema version 1 to 2"), "%s", error.text);
    cr_assert_eq(read_version(db), 1);
    cr_assert_neq(sqlite3_exec(db, "SELECT * FROM more", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    cr_assert_eq(world_open(&w, path, &options, &error), DL_OK, "%s", error.text);
    cr_assert_eq(w.recovery.events, 500);
    world_close(&w);
}
