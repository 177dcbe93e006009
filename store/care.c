/* Figures about the file, a check of all of it, and a copy while it is open. */
#include "store/internal.h"
#include "store/log_codec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- figures -------------------------------------------------------------------- */

uint64_t store_pragma_u64(struct dl_store *store, enum store_statement which)
{
    int status = DL_OK;
    sqlite3_stmt *statement = store_statement(store, which, "read its size", &status, NULL);
    uint64_t value = 0;
    if (!statement) return 0;
    if (sqlite3_step(statement) == SQLITE_ROW) value = (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_reset(statement);
    return value;
}

static uint64_t wal_size(struct dl_store *store)
{
    sqlite3_file *wal = NULL;
    sqlite3_int64 size = 0;
    if (sqlite3_file_control(store->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal) == SQLITE_OK &&
        wal && wal->pMethods && wal->pMethods->xFileSize(wal, &size) == SQLITE_OK)
        return (uint64_t)size;
    return 0;
}

void dl_store_get_stats(struct dl_store *store, struct dl_store_stats *stats)
{
    uint64_t page_size = (uint64_t)store->page_size;
    *stats =
        (struct dl_store_stats){.file_bytes = store_pragma_u64(store, ST_PAGE_COUNT) * page_size,
                                .free_bytes = store_pragma_u64(store, ST_FREE_COUNT) * page_size,
                                .wal_bytes = wal_size(store),
                                .nodes = store->now.nodes,
                                .types = store->now.types,
                                .log_first_seq = store->now.log_first,
                                .log_next_seq = store->now.log_next,
                                .recover_from = store->now.recover_from,
                                .outbox_first = store_outbox_first(store),
                                .outbox_next = store->now.outbox_next,
                                .commits = store->commits,
                                .pages_written = store->pages_written,
                                .page_bytes_written = store->page_bytes_written,
                                .wal_folds = store->wal_folds,
                                .wal_fold_failures = store->wal_fold_failures};
}

/* ---- check ------------------------------------------------------------------------ */

static void problem(struct dl_store_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void problem(struct dl_store_report *report, const char *format, ...)
{
    va_list args;
    if (report->problems++ > 0) return;
    va_start(args, format);
    vsnprintf(report->problem, sizeof report->problem, format, args);
    va_end(args);
}

typedef int check_row_fn(struct dl_store *store, sqlite3_stmt *row, struct dl_store_report *report);

/* Damage that stops the reading of a table is a finding, not a failure. */
static int for_rows(struct dl_store *store, const char *text, check_row_fn *fn,
                    struct dl_store_report *report, struct dl_error *error)
{
    sqlite3_stmt *statement = NULL;
    int status = DL_OK;
    int rc = sqlite3_prepare_v2(store->db, text, -1, &statement, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW && fn(store, statement, report) != DL_OK) rc = SQLITE_NOMEM;
    }
    if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
        problem(report, "%s", sqlite3_errmsg(store->db));
    else if (rc != SQLITE_DONE)
        status = store_error(store, rc, "check it", error);
    sqlite3_finalize(statement);
    return status;
}

static int check_integrity(struct dl_store *store, sqlite3_stmt *row,
                           struct dl_store_report *report)
{
    (void)store;
    const char *text = (const char *)sqlite3_column_text(row, 0);
    if (!text) return DL_ERR_NOMEM;
    if (strcmp(text, "ok") != 0) problem(report, "SQLite: %.400s", text);
    return DL_OK;
}

static int check_counts(struct dl_store *store, sqlite3_stmt *row, struct dl_store_report *report)
{
    (void)store;
    report->nodes = (uint64_t)sqlite3_column_int64(row, 0);
    report->types = (uint64_t)sqlite3_column_int64(row, 1);
    report->positions = (uint64_t)sqlite3_column_int64(row, 2);
    report->outbox_rows = (uint64_t)sqlite3_column_int64(row, 3);
    report->alerts = (uint64_t)sqlite3_column_int64(row, 4);
    report->schema_version = sqlite3_column_int(row, 5);
    sqlite3_int64 node_last = sqlite3_column_int64(row, 6);
    sqlite3_int64 type_last = sqlite3_column_int64(row, 7);
    if (node_last + 1 != (sqlite3_int64)report->nodes ||
        type_last + 1 != (sqlite3_int64)report->types)
        problem(report,
                "ids of nodes or types are not dense: %" PRIu64 " nodes up to id %lld, "
                "%" PRIu64 " types up to id %lld",
                report->nodes, (long long)node_last, report->types, (long long)type_last);
    return DL_OK;
}

static int check_block(struct dl_store *store, sqlite3_stmt *row, struct dl_store_report *report)
{
    uint64_t seq = (uint64_t)sqlite3_column_int64(row, 0);
    sqlite3_int64 count = sqlite3_column_int64(row, 1);
    struct dl_slice data = store_column_slice(row, 3);
    struct dl_log_reader reader;
    struct dl_event event;
    int got = DL_ERR_CORRUPT;
    if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM) return DL_ERR_NOMEM;
    if (report->log_blobs++ == 0)
        report->log_first_seq = seq;
    else if (seq != report->log_next_seq)
        problem(report, "the edge log lacks events %" PRIu64 " to %" PRIu64, report->log_next_seq,
                seq - 1);
    report->log_next_seq = seq + (uint64_t)count;
    report->log_bytes += data.size;
    if (count >= 1 && count <= DL_LOG_BLOCK_EVENTS_MAX &&
        store_checksum(seq, (uint64_t)count, data) == (int32_t)sqlite3_column_int64(row, 2) &&
        (got = dl_log_reader_init(&reader, data, (uint32_t)count, store->config.feature_count)) ==
            DL_OK) {
        while ((got = dl_log_next(&reader, &event)) > 0) {
            report->log_events++;
            if (got == 1 && (event.src >= report->nodes || event.dst >= report->nodes))
                problem(report, "an event after %" PRIu64 " names a node without a name", seq);
        }
    }
    if (got != DL_OK) problem(report, "the edge log's blob at event %" PRIu64 " is damaged", seq);
    return DL_OK;
}

static int check_keyed(struct dl_store *store, sqlite3_stmt *row, struct dl_store_report *report)
{
    uint64_t id = (uint64_t)sqlite3_column_int64(row, 0);
    uint64_t seq = (uint64_t)sqlite3_column_int64(row, 1);
    struct dl_slice data = store_column_slice(row, 3);
    if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM) return DL_ERR_NOMEM;
    report->pages++;
    report->page_bytes += data.size;
    if (store_checksum(id, seq, data) != (int32_t)sqlite3_column_int64(row, 2))
        problem(report, "checkpoint page %" PRIu64 " does not match its checksum", id);
    else if (seq > report->log_next_seq)
        problem(report, "checkpoint page %" PRIu64 " is ahead of the log", id);
    return DL_OK;
}

static int check_blob(struct dl_store *store, sqlite3_stmt *row, struct dl_store_report *report)
{
    const char *name = (const char *)sqlite3_column_text(row, 0);
    struct dl_slice data = store_column_slice(row, 2);
    if (!name || (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM)) return DL_ERR_NOMEM;
    report->blobs++;
    if (store_checksum(strlen(name), data.size, data) != (int32_t)sqlite3_column_int64(row, 1))
        problem(report, "blob %.64s does not match its checksum", name);
    return DL_OK;
}

int dl_store_check(struct dl_store *store, struct dl_store_report *report, struct dl_error *error)
{
    *report =
        (struct dl_store_report){.config = store->config, .recover_from = store->now.recover_from};
    snprintf(report->created_by, sizeof report->created_by, "%s", store->created_by);
    int status = for_rows(store, "PRAGMA integrity_check(10)", check_integrity, report, error);
    if (status == DL_OK)
        status = for_rows(store,
                          "SELECT (SELECT count(*) FROM node), (SELECT count(*) FROM type),"
                          " (SELECT count(*) FROM position), (SELECT count(*) FROM outbox),"
                          " (SELECT count(*) FROM alert), (SELECT user_version FROM"
                          " pragma_user_version), (SELECT ifnull(max(id), -1) FROM node),"
                          " (SELECT ifnull(max(id), -1) FROM type)",
                          check_counts, report, error);
    if (status == DL_OK)
        status = for_rows(store, "SELECT first_seq, count, crc, data FROM edge_log ORDER BY 1",
                          check_block, report, error);
    if (status == DL_OK)
        status = for_rows(store, "SELECT id, seq, crc, data FROM checkpoint", check_keyed, report,
                          error);
    if (status == DL_OK)
        status = for_rows(store, "SELECT name, crc, data FROM blob", check_blob, report, error);
    if (status != DL_OK) return status;
    if (report->recover_from > report->log_next_seq || report->recover_from < report->log_first_seq)
        problem(report,
                "recovery needs the log from event %" PRIu64 ", and it holds %" PRIu64
                " to %" PRIu64,
                report->recover_from, report->log_first_seq, report->log_next_seq);
    report->file_bytes = store_pragma_u64(store, ST_PAGE_COUNT) * (uint64_t)store->page_size;
    report->wal_bytes = wal_size(store);
    return DL_OK;
}

/* ---- backup ------------------------------------------------------------------------ */

int dl_store_backup(struct dl_store *store, const char *path, struct dl_error *error)
{
    enum { PAGES_A_STEP = 256 };
    const char *what = "write a backup";
    sqlite3 *copy = NULL;
    if (store->in_transaction)
        return dl_error_set(error, DL_ERR_INVALID, "store %.200s: cannot %s inside a transaction",
                            store->path, what);
    FILE *made = fopen(path, "wxe"); /* fails if it is there already */
    if (!made)
        return dl_error_set(error, DL_ERR_EXISTS,
                            "store %.200s: cannot %s: %.200s cannot be created, or exists already; "
                            "choose another name",
                            store->path, what, path);
    fclose(made);
    int rc = sqlite3_open_v2(path, &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_backup *backup =
        rc == SQLITE_OK ? sqlite3_backup_init(copy, "main", store->db, "main") : NULL;
    if (backup) {
        /* In steps it would begin anew with each commit of another process. */
        int pages = store->options.read_only ? -1 : PAGES_A_STEP;
        do rc = sqlite3_backup_step(backup, pages);
        while (rc == SQLITE_OK);
        sqlite3_backup_finish(backup);
    } else if (rc == SQLITE_OK) {
        rc = sqlite3_errcode(copy);
    }
    int status = DL_OK;
    if (rc != SQLITE_DONE)
        status = dl_error_set(error, (rc & 0xff) == SQLITE_NOMEM ? DL_ERR_NOMEM : DL_ERR_IO,
                              "store %.200s: cannot %s to %.200s: %s", store->path, what, path,
                              copy ? sqlite3_errmsg(copy) : sqlite3_errstr(rc));
    sqlite3_close(copy);
    if (status != DL_OK) remove(path);
    return status;
}
