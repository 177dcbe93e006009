/* Forgetting: events become holes in the log, names become tombstones, records
 * and alerts that name what is forgotten are emptied or removed. Statements are
 * prepared for the one use; this is rare. */
#include "store/internal.h"
#include "store/log_codec.h"

#include <stdlib.h>

static int prepare(struct dl_store *store, const char *sql, const char *what,
                   sqlite3_stmt **statement, struct dl_error *error)
{
    int rc = sqlite3_prepare_v2(store->db, sql, -1, statement, NULL);
    return rc == SQLITE_OK ? DL_OK : store_error(store, rc, what, error);
}

int dl_store_forget_begin(struct dl_store *store, struct dl_error *error)
{
    /* What is removed is overwritten, also on pages that become free. */
    int rc = sqlite3_exec(store->db, "PRAGMA secure_delete=ON", NULL, NULL, NULL);
    if (rc != SQLITE_OK) return store_error(store, rc, "overwrite what is forgotten", error);
    return dl_store_begin(store, error);
}

int dl_store_forget_end(struct dl_store *store, struct dl_error *error)
{
    int folded = 0, left = 0;
    sqlite3_exec(store->db, "PRAGMA secure_delete=FAST", NULL, NULL, NULL);
    /* The WAL still holds the pages as they were. A reader may hold it; then it goes with the
     * next time that the WAL begins anew. */
    int rc = sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &left, &folded);
    if (rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED) return DL_OK;
    return store_error(store, rc, "fold the WAL after forgetting", error);
}

int dl_store_rename_node(struct dl_store *store, uint32_t id, uint8_t space, struct dl_slice name,
                         struct dl_error *error)
{
    const char *what = "rename a node";
    sqlite3_stmt *statement = NULL;
    int status = store_writable(store, what, error);
    if (status == DL_OK)
        status = prepare(store, "UPDATE node SET space=?2, name=?3 WHERE id=?1", what, &statement,
                         error);
    if (status != DL_OK) return status;
    int rc = sqlite3_bind_int64(statement, 1, id);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(statement, 2, space);
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 3, name);
    status = rc == SQLITE_OK ? store_run(store, statement, what, error)
                             : store_error(store, rc, what, error);
    sqlite3_finalize(statement);
    return status;
}

/* ---- the log ---------------------------------------------------------------------- */

struct block {
    struct dl_event *events; /* (DL_LOG_BLOCK_EVENTS_MAX) */
    float *features;         /* (DL_LOG_BLOCK_EVENTS_MAX, feature_count) */
};

static int is_forgotten(const struct dl_event *event, uint32_t node, uint32_t peer)
{
    if (peer == DL_STORE_ANY_NODE) return event->src == node || event->dst == node;
    return (event->src == node && event->dst == peer) || (event->src == peer && event->dst == node);
}

/* Decodes a blob with the forgotten events as holes; *removed counts them. */
static int punch(struct dl_store *store, struct block *block, struct dl_slice data, uint32_t count,
                 uint32_t node, uint32_t peer, uint32_t *removed)
{
    uint32_t fc = store->config.feature_count, at = 0;
    struct dl_log_reader reader;
    int got = dl_log_reader_init(&reader, data, count, fc);
    *removed = 0;
    while (got == DL_OK && at < count) {
        struct dl_event *event = &block->events[at];
        got = dl_log_next(&reader, event);
        if (got <= 0) return got < 0 ? got : DL_ERR_CORRUPT;
        int forget = got == 1 && is_forgotten(event, node, peer);
        *removed += (uint32_t)forget;
        if (got == 2 || forget) {
            event->src = event->dst = DL_LOG_FORGOTTEN;
            event->features = NULL;
        } else if (event->features && fc) {
            float *copy = block->features + (size_t)at * fc;
            memcpy(copy, event->features, fc * sizeof *copy);
            event->features = copy;
        }
        got = DL_OK;
        at++;
    }
    return got;
}

static int write_block(struct dl_store *store, sqlite3_stmt *update, const struct block *block,
                       uint64_t seq, uint32_t count, struct dl_error *error)
{
    const char *what = "forget events";
    dl_buf_clear(&store->scratch);
    if (dl_log_encode(block->events, count, store->config.feature_count, &store->scratch) != DL_OK)
        return store_error(store, SQLITE_NOMEM, what, error);
    struct dl_slice data = dl_buf_slice(&store->scratch);
    int rc = sqlite3_bind_int64(update, 1, (sqlite3_int64)seq);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(update, 2, store_checksum(seq, count, data));
    if (rc == SQLITE_OK) rc = store_bind_slice(update, 3, data);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    int status = store_run(store, update, what, error);
    sqlite3_clear_bindings(update);
    return status;
}

int dl_store_log_forget(struct dl_store *store, uint32_t node, uint32_t peer, uint64_t *events,
                        struct dl_error *error)
{
    const char *what = "forget events";
    sqlite3_stmt *select = NULL, *update = NULL;
    struct block block = {.events = malloc(DL_LOG_BLOCK_EVENTS_MAX * sizeof *block.events),
                          .features =
                              malloc((size_t)DL_LOG_BLOCK_EVENTS_MAX *
                                     (store->config.feature_count + 1) * sizeof *block.features)};
    uint64_t next = 0;
    int status = store_writable(store, what, error), rc = SQLITE_DONE;
    *events = 0;
    if (status == DL_OK && (!block.events || !block.features))
        status = store_error(store, SQLITE_NOMEM, what, error);
    if (status == DL_OK)
        status = prepare(store,
                         "SELECT first_seq, count, crc, data FROM edge_log WHERE first_seq>=?1"
                         " ORDER BY first_seq LIMIT 1",
                         what, &select, error);
    if (status == DL_OK)
        status = prepare(store, "UPDATE edge_log SET crc=?2, data=?3 WHERE first_seq=?1", what,
                         &update, error);
    while (status == DL_OK) {
        uint32_t removed = 0;
        rc = sqlite3_bind_int64(select, 1, (sqlite3_int64)next);
        if (rc == SQLITE_OK) rc = sqlite3_step(select);
        if (rc != SQLITE_ROW) break;
        uint64_t seq = (uint64_t)sqlite3_column_int64(select, 0);
        sqlite3_int64 count = sqlite3_column_int64(select, 1);
        struct dl_slice data = store_column_slice(select, 3);
        if (count < 1 || count > DL_LOG_BLOCK_EVENTS_MAX ||
            store_checksum(seq, (uint64_t)count, data) !=
                (int32_t)sqlite3_column_int64(select, 2) ||
            punch(store, &block, data, (uint32_t)count, node, peer, &removed) != DL_OK)
            status = store_corrupt(store, error, "the edge log's blob at event %llu is damaged",
                                   (unsigned long long)seq);
        sqlite3_reset(select);
        if (status == DL_OK && removed)
            status = write_block(store, update, &block, seq, (uint32_t)count, error);
        *events += removed;
        next = seq + (uint64_t)count;
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_finalize(select);
    sqlite3_finalize(update);
    free(block.events);
    free(block.features);
    return status;
}

/* ---- records and alerts --------------------------------------------------------------- */

/* Runs `change` on the key of every row of `select` (key, kind, record key, payload) that `fn`
 * names. */
static int change_rows(struct dl_store *store, const char *select_sql, const char *change_sql,
                       dl_store_names_fn *fn, void *user, struct dl_error *error)
{
    const char *what = "forget records";
    sqlite3_stmt *select = NULL, *change = NULL;
    sqlite3_int64 after = -1;
    int status = prepare(store, select_sql, what, &select, error), rc = SQLITE_DONE;
    if (status == DL_OK) status = prepare(store, change_sql, what, &change, error);
    while (status == DL_OK) {
        rc = sqlite3_bind_int64(select, 1, after);
        if (rc == SQLITE_OK) rc = sqlite3_step(select);
        if (rc != SQLITE_ROW) break;
        after = sqlite3_column_int64(select, 0);
        int named = fn(user, sqlite3_column_int(select, 1), store_column_slice(select, 2),
                       store_column_slice(select, 3));
        sqlite3_reset(select);
        if (!named) continue;
        rc = sqlite3_bind_int64(change, 1, after);
        status = rc == SQLITE_OK ? store_run(store, change, what, error)
                                 : store_error(store, rc, what, error);
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_finalize(select);
    sqlite3_finalize(change);
    return status;
}

int dl_store_forget_records(struct dl_store *store, dl_store_names_fn *fn, void *user,
                            struct dl_error *error)
{
    int status = store_writable(store, "forget records", error);
    if (status == DL_OK) /* the number stays: the outbox has no gaps */
        status = change_rows(store,
                             "SELECT seq, kind, key, payload FROM outbox WHERE seq>?1"
                             " ORDER BY seq LIMIT 1",
                             "UPDATE outbox SET kind=5, key=NULL, headers=NULL, payload=x''"
                             " WHERE seq=?1",
                             fn, user, error);
    if (status == DL_OK)
        status = change_rows(store,
                             "SELECT number, 3, NULL, payload FROM alert WHERE number>?1"
                             " ORDER BY number LIMIT 1",
                             "DELETE FROM alert WHERE number=?1", fn, user, error);
    return status;
}
