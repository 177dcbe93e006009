/* What the store's files share. Not for others. */
#ifndef DL_STORE_INTERNAL_H
#define DL_STORE_INTERNAL_H

#include <sqlite3.h>

#include "store/store.h"

#define STORE_BUSY_MS 1000 /* that another process may hold the file */

/* Statements are prepared on first use and kept. */
enum store_statement {
    ST_BEGIN,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_META_PUT,
    ST_META_GET,
    ST_NODE_ADD,
    ST_NODE_ALL,
    ST_TYPE_ADD,
    ST_TYPE_ALL,
    ST_LOG_ADD,
    ST_LOG_AT,
    ST_LOG_AFTER,
    ST_LOG_LAST,
    ST_LOG_FIRST,
    ST_LOG_CUT,
    ST_PAGE_PUT,
    ST_PAGE_ALL,
    ST_POSITION_PUT,
    ST_POSITION_GET,
    ST_POSITION_ALL,
    ST_OUTBOX_ADD,
    ST_OUTBOX_READ,
    ST_OUTBOX_DELETE,
    ST_OUTBOX_ENDS,
    ST_ALERT_ADD,
    ST_ALERT_CUT,
    ST_ALERT_NEWEST,
    ST_BLOB_PUT,
    ST_BLOB_GET,
    ST_BLOB_DELETE,
    ST_PAGE_COUNT,
    ST_FREE_COUNT,
    ST_VACUUM,
    ST_COUNT
};

/* What is known of the file's content without asking it. A rollback restores
 * the copy taken at begin. */
struct store_cursors {
    uint32_t nodes, types;        /* rows, hence the next ids */
    uint64_t log_first, log_next; /* sequence numbers in the log */
    uint64_t recover_from;
    uint64_t outbox_first, outbox_next;
    uint64_t alert_last;
};

/* A checkpoint round: one lap of the graph's circular order of pages. */
struct store_round {
    uint64_t start;       /* events in the graph when it began; 0: in the middle of the order */
    uint64_t next_key;    /* keys below this have been passed */
    uint64_t dirty_most;  /* dirty pages, at their most */
    uint64_t step_events; /* events in the graph at the last step, for pacing */
    double owed;          /* pages the pacing is behind by, below 1 */
};

struct dl_store {
    char path[DL_STORE_PATH_BYTES_MAX + 1];
    char created_by[64];
    struct dl_store_options options;
    struct dl_store_config config;
    sqlite3 *db;
    sqlite3_stmt *statements[ST_COUNT];
    int lock_fd; /* of <path>-lock; -1 for readers */
    int in_transaction;
    int failed;               /* a call of the open transaction failed */
    int graph_stale;          /* rolled back after pages were marked clean: load again */
    struct dl_buf pages_here; /* dl_page_id of each page written in the open transaction */
    int wal_frames;
    int page_size;
    struct store_cursors now, saved;
    uint64_t outbox_delivered; /* rows up to here are to leave the file with the next commit */
    struct store_round round, round_saved;
    struct dl_buf scratch;
    uint64_t commits, pages_written, page_bytes_written, wal_folds, wal_fold_failures;
};

int store_status_of(int rc);
/* Maps an SQLite result to a status and writes "store <path>: cannot <what>:
 * <message>". Marks an open transaction as failed. */
int store_error(struct dl_store *store, int rc, const char *what, struct dl_error *error);
/* The same for damage that SQLite did not see. */
int store_corrupt(struct dl_store *store, struct dl_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The prepared statement, reset. NULL: *status holds the error. */
sqlite3_stmt *store_statement(struct dl_store *store, enum store_statement which, const char *what,
                              int *status, struct dl_error *error);
/* Steps a statement that gives no rows, and resets it. */
int store_run(struct dl_store *store, sqlite3_stmt *statement, const char *what,
              struct dl_error *error);
/* DL_OK if writing is allowed now. */
int store_writable(struct dl_store *store, const char *what, struct dl_error *error);

int store_bind_slice(sqlite3_stmt *statement, int index, struct dl_slice slice);
struct dl_slice store_column_slice(sqlite3_stmt *statement, int index);
/* Checksum of a keyed blob: over the key, the number and the data. */
int32_t store_checksum(uint64_t key, uint64_t number, struct dl_slice data);

/* The oldest row that waits. */
uint64_t store_outbox_first(const struct dl_store *store);
/* Removes delivered rows, within the open transaction. */
int store_outbox_delete(struct dl_store *store, struct dl_error *error);

int store_meta_put_u64(struct dl_store *store, const char *key, uint64_t value,
                       struct dl_error *error);
/* DL_ERR_NOT_FOUND leaves *value alone. */
int store_meta_get_u64(struct dl_store *store, const char *key, uint64_t *value,
                       struct dl_error *error);

/* config.c */
/* Writes the configuration of a new file; reads and compares that of another. */
int store_config_open(struct dl_store *store, struct dl_error *error);
int store_cursors_read(struct dl_store *store, struct dl_error *error);

/* schema.c */
struct store_migration {
    int to_version; /* user_version afterwards */
    const char *sql;
};
extern const struct store_migration store_migrations[];
extern const int store_migration_count;
/* Takes the file from its user_version to the last of the list, each step in
 * its own transaction. DL_ERR_VERSION if the file is newer than the list, or
 * older and may_write is 0. */
int store_migrate(sqlite3 *db, const char *path, const struct store_migration *migrations,
                  int count, int may_write, struct dl_error *error);
#define STORE_APPLICATION_ID 0x64726c66 /* "drlf" */

/* care.c */
/* Of one of the statements that give a number; 0 if it cannot be read. */
uint64_t store_pragma_u64(struct dl_store *store, enum store_statement which);

/* log.c */
/* Cuts whole blobs off the old end, as far as retention and recovery allow. */
int store_log_cut(struct dl_store *store, struct dl_error *error);

#endif
