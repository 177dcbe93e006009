/* Opening, closing, statements, transactions.
 *
 * Happy path of open: take the writer's lock, open the file, set it up (WAL,
 * sync, cache), migrate the schema, write or check the configuration, read the
 * cursors. Anything that fails undoes the rest. */
#include "store/internal.h"
#include "base/check.h"
#include "store/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

const struct dl_store_options dl_store_options_default = {
    .config = {.time_unit = DL_TIME_TICKS, .window = 64, .feature_count = 0, .namespaces = 1},
    .create = 1,
    .sync = DL_STORE_SYNC_FULL,
    .log_keep_events = 100u * 1000 * 1000,
    .round_events = 1u << 20,
    .wal_bytes = 16u << 20,
    .cache_bytes = 32u << 20,
    .created_by = "driftline"};

enum { PAGE_SIZE = 16384 };

static const char *const sql[ST_COUNT] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_META_PUT] = "INSERT OR REPLACE INTO meta(key, value) VALUES(?1, ?2)",
    [ST_META_GET] = "SELECT value FROM meta WHERE key = ?1",
    [ST_NODE_ADD] = "INSERT INTO node(id, space, name) VALUES(?1, ?2, ?3)",
    [ST_NODE_ALL] = "SELECT id, space, name FROM node ORDER BY id",
    [ST_TYPE_ADD] = "INSERT INTO type(id, name) VALUES(?1, ?3)",
    [ST_TYPE_ALL] = "SELECT id, 0, name FROM type ORDER BY id",
    [ST_LOG_ADD] = "INSERT INTO edge_log(first_seq, count, crc, data) VALUES(?1, ?2, ?3, ?4)",
    [ST_LOG_AT] = "SELECT first_seq, count, crc, data FROM edge_log WHERE first_seq <= ?1"
                  " ORDER BY first_seq DESC LIMIT 1",
    [ST_LOG_AFTER] = "SELECT first_seq, count, crc, data FROM edge_log WHERE first_seq >= ?1"
                     " ORDER BY first_seq LIMIT 1",
    [ST_LOG_LAST] = "SELECT first_seq, count FROM edge_log ORDER BY first_seq DESC LIMIT 1",
    [ST_LOG_FIRST] = "SELECT first_seq, count FROM edge_log ORDER BY first_seq LIMIT 1",
    [ST_LOG_CUT] = "DELETE FROM edge_log WHERE first_seq = ?1",
    [ST_PAGE_PUT] = "INSERT OR REPLACE INTO checkpoint(id, seq, crc, data) VALUES(?1, ?2, ?3, ?4)",
    [ST_PAGE_ALL] = "SELECT id, seq, crc, data FROM checkpoint ORDER BY id",
    [ST_POSITION_PUT] = "INSERT OR REPLACE INTO position(topic, partition, next_offset)"
                        " VALUES(?1, ?2, ?3)",
    [ST_POSITION_GET] = "SELECT next_offset FROM position WHERE topic = ?1 AND partition = ?2",
    [ST_POSITION_ALL] = "SELECT topic, partition, next_offset FROM position"
                        " ORDER BY topic, partition",
    [ST_OUTBOX_ADD] = "INSERT INTO outbox(seq, kind, topic, key, headers, payload, source_topic,"
                      " source_partition, source_offset) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)",
    [ST_OUTBOX_READ] = "SELECT seq, kind, topic, key, headers, payload, source_topic,"
                       " source_partition, source_offset FROM outbox WHERE seq >= ?1"
                       " ORDER BY seq LIMIT ?2",
    [ST_OUTBOX_DELETE] = "DELETE FROM outbox WHERE seq <= ?1",
    [ST_OUTBOX_ENDS] = "SELECT (SELECT min(seq) FROM outbox), (SELECT max(seq) FROM outbox)",
    [ST_ALERT_ADD] = "INSERT INTO alert(number, kind, raised, time, seq, payload)"
                     " VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    [ST_ALERT_CUT] = "DELETE FROM alert WHERE number <= ?1",
    [ST_ALERT_NEWEST] = "SELECT number, kind, raised, time, seq, payload FROM alert"
                        " ORDER BY number DESC LIMIT ?1",
    [ST_BLOB_PUT] = "INSERT OR REPLACE INTO blob(name, crc, data) VALUES(?1, ?2, ?3)",
    [ST_BLOB_GET] = "SELECT crc, data FROM blob WHERE name = ?1",
    [ST_BLOB_DELETE] = "DELETE FROM blob WHERE name = ?1",
    [ST_PAGE_COUNT] = "PRAGMA page_count",
    [ST_FREE_COUNT] = "PRAGMA freelist_count",
    [ST_VACUUM] = "PRAGMA incremental_vacuum(64)"};

/* ---- errors ----------------------------------------------------------------- */

int store_status_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_NOMEM:
        return DL_ERR_NOMEM;
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return DL_ERR_CORRUPT;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return DL_ERR_UNAVAILABLE;
    case SQLITE_TOOBIG:
        return DL_ERR_TOO_LARGE;
    case SQLITE_FULL:
        return DL_ERR_FULL;
    default:
        return DL_ERR_IO;
    }
}

static const char *remedy_of(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return "; free some space on its file system";
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        return "; check that the folder exists and that this user may write there";
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return "; restore a backup, or start a new store and read the feed again";
    case SQLITE_BUSY:
        return "; another program is writing to it";
    default:
        return "";
    }
}

/* SQLite calls some ways of having no room an I/O error: a quota, the WAL's index. */
static int full_or(struct dl_store *store, int rc)
{
    int number = store->db ? sqlite3_system_errno(store->db) : 0;
    int no_room = number == ENOSPC || number == EDQUOT;
    return no_room && (rc == SQLITE_IOERR_WRITE || rc == SQLITE_IOERR_SHMSIZE) ? SQLITE_FULL : rc;
}

int store_error(struct dl_store *store, int rc, const char *what, struct dl_error *error)
{
    if (store->in_transaction) store->failed = 1;
    rc = full_or(store, rc);
    const char *message = store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(rc);
    return dl_error_set(error, store_status_of(rc), "store %.200s: cannot %s: %s%s", store->path,
                        what, message, remedy_of(rc));
}

int store_corrupt(struct dl_store *store, struct dl_error *error, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (store->in_transaction) store->failed = 1;
    return dl_error_set(error, DL_ERR_CORRUPT,
                        "store %.200s: %s; restore a backup, or start a new store and read the "
                        "feed again",
                        store->path, text);
}

/* ---- statements -------------------------------------------------------------- */

sqlite3_stmt *store_statement(struct dl_store *store, enum store_statement which, const char *what,
                              int *status, struct dl_error *error)
{
    sqlite3_stmt **statement = &store->statements[which];
    if (!*statement) {
        int rc = sqlite3_prepare_v3(store->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, statement,
                                    NULL);
        if (rc != SQLITE_OK) {
            *status = store_error(store, rc, what, error);
            return NULL;
        }
    }
    return *statement;
}

int store_run(struct dl_store *store, sqlite3_stmt *statement, const char *what,
              struct dl_error *error)
{
    int rc = sqlite3_step(statement);
    int status = rc == SQLITE_DONE ? DL_OK : store_error(store, rc, what, error);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return status;
}

int store_writable(struct dl_store *store, const char *what, struct dl_error *error)
{
    if (store->in_transaction && !store->failed) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "store %.200s: cannot %s: %s", store->path, what,
                        store->failed ? "an earlier call of this transaction failed; roll it back"
                                      : "no transaction is open");
}

int store_bind_slice(sqlite3_stmt *statement, int index, struct dl_slice slice)
{
    /* A NULL pointer would bind NULL; an empty blob is not that. */
    return sqlite3_bind_blob64(statement, index, slice.size ? (const void *)slice.data : "",
                               slice.size, SQLITE_STATIC);
}

struct dl_slice store_column_slice(sqlite3_stmt *statement, int index)
{
    const void *data = sqlite3_column_blob(statement, index);
    return dl_slice_of(data, data ? (size_t)sqlite3_column_bytes(statement, index) : 0);
}

int32_t store_checksum(uint64_t key, uint64_t number, struct dl_slice data)
{
    uint8_t head[16];
    for (int i = 0; i < 8; i++) {
        head[i] = (uint8_t)(key >> (8 * i));
        head[8 + i] = (uint8_t)(number >> (8 * i));
    }
    return (int32_t)dl_crc32c(dl_crc32c(0, head, sizeof head), data.data, data.size);
}

/* ---- open and close ------------------------------------------------------------------ */

/* One writer: an advisory lock on a file of its own. Not on the database file,
 * because closing any descriptor of that would drop SQLite's own locks. */
static int take_lock(struct dl_store *store, struct dl_error *error)
{
    char path[DL_STORE_PATH_BYTES_MAX + 8];
    snprintf(path, sizeof path, "%s-lock", store->path);
    store->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (store->lock_fd < 0)
        return dl_error_set(error, DL_ERR_IO,
                            "store %.200s: cannot create its lock file: %s; check that the folder "
                            "exists and that this user may write there",
                            store->path, strerror(errno));
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        char holder[16] = "";
        ssize_t size = pread(store->lock_fd, holder, sizeof holder - 1, 0);
        int pid = size > 0 ? atoi(holder) : 0;
        close(store->lock_fd);
        store->lock_fd = -1;
        return dl_error_set(error, DL_ERR_UNAVAILABLE,
                            "store %.200s: already open for writing by process %d; stop that one, "
                            "or use another store.path",
                            store->path, pid);
    }
    /* The number is for people only; the lock does not rest on it. */
    char text[16];
    int size = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (ftruncate(store->lock_fd, 0) == 0 && pwrite(store->lock_fd, text, (size_t)size, 0) != size)
        (void)ftruncate(store->lock_fd, 0);
    return DL_OK;
}

static int exec(struct dl_store *store, const char *text, const char *what, struct dl_error *error)
{
    int rc = sqlite3_exec(store->db, text, NULL, NULL, NULL);
    return rc == SQLITE_OK ? DL_OK : store_error(store, rc, what, error);
}

static int on_wal(void *user, sqlite3 *db, const char *name, int frames)
{
    (void)db;
    (void)name;
    ((struct dl_store *)user)->wal_frames = frames;
    return SQLITE_OK;
}

static int set_up(struct dl_store *store, struct dl_error *error)
{
    static const char *const sync[] = {"FULL", "NORMAL", "OFF"};
    const struct dl_store_options *o = &store->options;
    char text[512];
    sqlite3_busy_timeout(store->db, STORE_BUSY_MS);
    sqlite3_extended_result_codes(store->db, 1);
    if (o->read_only) {
        sqlite3_snprintf(sizeof text, text, "PRAGMA query_only=1;PRAGMA cache_size=-%lld",
                         (long long)(o->cache_bytes / 1024));
        return exec(store, text, "set it up", error);
    }
    /* auto_vacuum and page_size only take effect on an empty file. Deleted
     * bytes are overwritten where that costs no extra I/O. */
    sqlite3_snprintf(sizeof text, text,
                     "PRAGMA page_size=%d;PRAGMA auto_vacuum=INCREMENTAL;"
                     "PRAGMA journal_mode=WAL;PRAGMA synchronous=%s;"
                     "PRAGMA wal_autocheckpoint=0;PRAGMA journal_size_limit=%lld;"
                     "PRAGMA cache_size=-%lld;PRAGMA secure_delete=FAST;"
                     "PRAGMA temp_store=MEMORY;PRAGMA foreign_keys=0",
                     PAGE_SIZE, sync[o->sync], (long long)o->wal_bytes,
                     (long long)(o->cache_bytes / 1024));
    int status = exec(store, text, "set it up", error);
    if (status == DL_OK) sqlite3_wal_hook(store->db, on_wal, store);
    return status;
}

static int check_file(struct dl_store *store, struct dl_error *error)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(store->db, "PRAGMA journal_mode", -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    int status = DL_OK;
    if (rc != SQLITE_ROW) {
        status = store_error(store, rc, "read its journal mode", error);
    } else {
        const char *mode = (const char *)sqlite3_column_text(statement, 0);
        if (!store->options.read_only && (!mode || strcmp(mode, "wal") != 0))
            status = dl_error_set(error, DL_ERR_IO,
                                  "store %.200s: cannot use WAL here (mode is %s); put it on a "
                                  "local file system",
                                  store->path, mode ? mode : "unknown");
    }
    sqlite3_finalize(statement);
    if (status != DL_OK) return status;
    rc = sqlite3_prepare_v2(store->db, "PRAGMA page_size", -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        store->page_size = sqlite3_column_int(statement, 0);
    else
        status = store_error(store, rc, "read its page size", error);
    sqlite3_finalize(statement);
    return status;
}

static int open_file(struct dl_store *store, struct dl_error *error)
{
    const struct dl_store_options *o = &store->options;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    if (o->create && !o->read_only) flags |= SQLITE_OPEN_CREATE;
    int rc = sqlite3_open_v2(store->path, &store->db, flags, o->vfs);
    if (rc == SQLITE_OK) return DL_OK;
    if ((rc & 0xff) == SQLITE_CANTOPEN && !o->vfs && access(store->path, F_OK) != 0 &&
        errno == ENOENT && !(flags & SQLITE_OPEN_CREATE))
        return dl_error_set(error, DL_ERR_NOT_FOUND,
                            "store %.200s: no such file; `driftline ingest` or `serve` makes one",
                            store->path);
    return store_error(store, rc, "open it", error);
}

int dl_store_open(const char *path, const struct dl_store_options *options,
                  struct dl_store **result, struct dl_error *error)
{
    const struct dl_store_config *c = &options->config;
    if (!path || !*path || strlen(path) > DL_STORE_PATH_BYTES_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store path is empty or longer than %d bytes; set store.path",
                            DL_STORE_PATH_BYTES_MAX);
    if (!options->adopt &&
        (c->window < 1 || c->window > DL_WINDOW_MAX || c->feature_count > DL_EVENT_FEATURES_MAX ||
         c->namespaces < 1 || c->namespaces > 2))
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: window %u must be 1 to %d, features %u at most %d, "
                            "namespaces %u 1 or 2",
                            path, c->window, DL_WINDOW_MAX, c->feature_count, DL_EVENT_FEATURES_MAX,
                            c->namespaces);
    struct dl_store *store = calloc(1, sizeof *store);
    if (!store) return dl_error_set(error, DL_ERR_NOMEM, "store %.200s: out of memory", path);
    snprintf(store->path, sizeof store->path, "%s", path);
    store->options = *options;
    if (options->adopt) store->options.create = 0;
    store->lock_fd = -1;

    int status = options->read_only ? DL_OK : take_lock(store, error);
    if (status == DL_OK) status = open_file(store, error);
    if (status == DL_OK) status = set_up(store, error);
    if (status == DL_OK)
        status = store_migrate(store->db, store->path, store_migrations, store_migration_count,
                               !options->read_only, error);
    if (status == DL_OK) status = check_file(store, error);
    if (status == DL_OK) status = store_config_open(store, error);
    if (status == DL_OK) status = store_cursors_read(store, error);
    if (status == DL_OK) {
        *result = store;
        return DL_OK;
    }
    dl_store_close(store);
    return status;
}

void dl_store_close(struct dl_store *store)
{
    if (!store) return;
    if (store->db) dl_store_rollback(store);
    for (int i = 0; i < ST_COUNT; i++) sqlite3_finalize(store->statements[i]);
    /* The last connection to close folds the WAL and removes it. */
    if (store->db) DL_CHECK(sqlite3_close(store->db) == SQLITE_OK);
    if (store->lock_fd >= 0) close(store->lock_fd);
    dl_buf_free(&store->scratch);
    dl_buf_free(&store->pages_here);
    free(store);
}

const struct dl_store_config *dl_store_get_config(const struct dl_store *store)
{
    return &store->config;
}

/* ---- transactions ---------------------------------------------------------------------- */

int dl_store_begin(struct dl_store *store, struct dl_error *error)
{
    const char *what = "begin a transaction";
    if (store->in_transaction || store->options.read_only)
        return dl_error_set(error, DL_ERR_INVALID, "store %.200s: cannot %s: %s", store->path, what,
                            store->in_transaction ? "one is open" : "it was opened read-only");
    int status = DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_BEGIN, what, &status, error);
    if (!statement) return status;
    status = store_run(store, statement, what, error);
    if (status != DL_OK) return status;
    store->in_transaction = 1;
    store->failed = 0;
    dl_buf_clear(&store->pages_here);
    store->saved = store->now;
    store->round_saved = store->round;
    return DL_OK;
}

/* Copies what is in the WAL into the file, so that the WAL starts over. */
static void fold_wal(struct dl_store *store)
{
    int left = 0, folded = 0;
    int rc = sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &left, &folded);
    if (rc == SQLITE_OK && folded >= left)
        store->wal_folds++;
    else
        store->wal_fold_failures++;
}

int dl_store_commit(struct dl_store *store, struct dl_error *error)
{
    const char *what = "commit";
    int status = store_writable(store, what, error);
    if (status == DL_OK) status = store_outbox_delete(store, error);
    if (status != DL_OK) return status;
    sqlite3_stmt *statement = store_statement(store, ST_COMMIT, what, &status, error);
    if (!statement) return status;
    status = store_run(store, statement, what, error);
    if (status != DL_OK) return status;
    store->in_transaction = 0;
    store->commits++;
    if ((uint64_t)store->wal_frames * (uint64_t)store->page_size >= store->options.wal_bytes)
        fold_wal(store);
    return DL_OK;
}

void dl_store_rollback(struct dl_store *store)
{
    if (!store->in_transaction) return;
    store->in_transaction = 0;
    store->failed = 0;
    store->now = store->saved;
    store->round = store->round_saved;
    if (store->pages_here.size) store->graph_stale = 1;
    /* After some errors SQLite has rolled back already. */
    if (!sqlite3_get_autocommit(store->db)) {
        for (int i = 0; i < ST_COUNT; i++)
            if (store->statements[i]) sqlite3_reset(store->statements[i]);
        int status = DL_OK;
        sqlite3_stmt *statement = store_statement(store, ST_ROLLBACK, "roll back", &status, NULL);
        if (statement)
            (void)store_run(store, statement, "roll back", NULL);
        else
            sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

void dl_store_rollback_keep(struct dl_store *store, struct dl_graph *graph)
{
    struct dl_page_id page;
    int stale = store->graph_stale;
    if (!store->in_transaction) return;
    dl_store_rollback(store);
    for (size_t at = 0; at < store->pages_here.size; at += sizeof page) {
        memcpy(&page, store->pages_here.data + at, sizeof page);
        dl_graph_page_mark(graph, page);
    }
    if (store->pages_here.size) /* the lap cannot be taken up again in its middle */
        store->round = (struct store_round){.step_events = store->now.log_next};
    dl_buf_clear(&store->pages_here);
    store->graph_stale = stale;
}

int dl_store_in_transaction(const struct dl_store *store)
{
    return store->in_transaction;
}
