/* Forgetting, in steps (store.h): events become holes in the log, names become
 * tombstones, records and alerts that name what is forgotten are emptied or removed,
 * free pages leave the file. The record of it is a named blob. Statements are prepared
 * for the one use; this is rare. */
#include "store/internal.h"
#include "store/log_codec.h"

#include <stdlib.h>

#define RECORD_NAME "forgetting"
#define RECORD_VERSION 1

static int prepare(struct dl_store *store, const char *sql, const char *what,
                   sqlite3_stmt **statement, struct dl_error *error)
{
    int rc = sqlite3_prepare_v2(store->db, sql, -1, statement, NULL);
    return rc == SQLITE_OK ? DL_OK : store_error(store, rc, what, error);
}

/* ---- the record of it ----------------------------------------------------------------- */

static void put_ids(struct dl_buf *out, uint32_t count, const uint32_t *ids)
{
    dl_buf_varint(out, count);
    for (uint32_t i = 0; i < count; i++) dl_buf_varint(out, ids[i]);
}

static void take_ids(struct dl_reader *in, uint32_t *count, uint32_t *ids)
{
    uint64_t number = dl_read_varint(in);
    if (number > DL_STORE_FORGET_IDS_MAX) in->failed = 1;
    *count = in->failed ? 0 : (uint32_t)number;
    for (uint32_t i = 0; i < *count; i++) {
        uint64_t id = dl_read_varint(in);
        if (id >= UINT32_MAX) in->failed = 1;
        ids[i] = (uint32_t)id;
    }
}

static void put_name(struct dl_buf *out, uint32_t size, const char *name)
{
    dl_buf_varint(out, size);
    dl_buf_append(out, name, size);
}

static void take_name(struct dl_reader *in, uint32_t *size, char *name)
{
    uint64_t number = dl_read_varint(in);
    if (number > DL_NAME_BYTES_MAX || number > dl_reader_left(in)) in->failed = 1;
    *size = in->failed ? 0 : (uint32_t)number;
    for (uint32_t i = 0; i < *size; i++) name[i] = (char)dl_read_u8(in);
}

int dl_store_forget_put(struct dl_store *store, const struct dl_store_forgetting *f,
                        struct dl_error *error)
{
    struct dl_buf out = {0};
    dl_buf_u8(&out, RECORD_VERSION);
    dl_buf_varint(&out, f->before_seq);
    dl_buf_varint(&out, f->log_next);
    dl_buf_varint(&out, f->events);
    dl_buf_varint(&out, f->outbox_end);
    dl_buf_varint(&out, f->alert_end);
    dl_buf_u8(&out, (uint8_t)f->has_peer);
    put_ids(&out, f->node_count, f->nodes);
    put_ids(&out, f->peer_count, f->peers);
    put_name(&out, f->node_size, f->node);
    put_name(&out, f->peer_size, f->peer);
    int status = out.failed ? store_error(store, SQLITE_NOMEM, "note what is forgotten", error)
                            : dl_store_put_blob(store, RECORD_NAME, dl_buf_slice(&out), error);
    dl_buf_free(&out);
    return status;
}

int dl_store_forget_get(struct dl_store *store, struct dl_store_forgetting *f,
                        struct dl_error *error)
{
    struct dl_buf bytes = {0};
    *f = (struct dl_store_forgetting){0};
    int status = dl_store_get_blob(store, RECORD_NAME, &bytes, error);
    if (status == DL_OK) {
        struct dl_reader in = dl_reader_of(dl_buf_slice(&bytes));
        if (dl_read_u8(&in) != RECORD_VERSION) in.failed = 1;
        f->before_seq = dl_read_varint(&in);
        f->log_next = dl_read_varint(&in);
        f->events = dl_read_varint(&in);
        f->outbox_end = dl_read_varint(&in);
        f->alert_end = dl_read_varint(&in);
        f->has_peer = dl_read_u8(&in) != 0;
        take_ids(&in, &f->node_count, f->nodes);
        take_ids(&in, &f->peer_count, f->peers);
        take_name(&in, &f->node_size, f->node);
        take_name(&in, &f->peer_size, f->peer);
        if (in.failed || dl_reader_left(&in) || f->before_seq > store->now.log_next)
            status =
                store_corrupt(store, error, "the note of what is being forgotten is unreadable");
    }
    dl_buf_free(&bytes);
    return status;
}

int dl_store_forget_secure(struct dl_store *store, struct dl_error *error)
{
    /* What is removed is overwritten, also on pages that become free. */
    int rc = sqlite3_exec(store->db, "PRAGMA secure_delete=ON", NULL, NULL, NULL);
    return rc == SQLITE_OK ? DL_OK : store_error(store, rc, "overwrite what is forgotten", error);
}

int dl_store_forget_fold(struct dl_store *store, struct dl_error *error)
{
    int folded = 0, left = 0;
    /* The WAL still holds the pages as they were. The loop does not wait for a reader. */
    sqlite3_busy_timeout(store->db, 0);
    int rc = sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, &left, &folded);
    sqlite3_busy_timeout(store->db, STORE_BUSY_MS);
    if (rc == SQLITE_OK || rc == SQLITE_BUSY || rc == SQLITE_LOCKED) return DL_OK;
    return store_error(store, rc, "fold the WAL after forgetting", error);
}

int dl_store_forget_done(struct dl_store *store, struct dl_error *error)
{
    int status = dl_store_begin(store, error);
    if (status == DL_OK) status = dl_store_delete_blob(store, RECORD_NAME, error);
    if (status == DL_OK) status = dl_store_commit(store, error);
    if (status != DL_OK) {
        dl_store_rollback(store);
        return status;
    }
    sqlite3_exec(store->db, "PRAGMA secure_delete=FAST", NULL, NULL, NULL);
    return DL_OK;
}

int dl_store_forget_free(struct dl_store *store, uint32_t pages_max, uint64_t *left,
                         struct dl_error *error)
{
    const char *what = "take free pages out of the file";
    sqlite3_stmt *statement = NULL;
    char sql[64];
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA incremental_vacuum(%u)", pages_max);
    int status = store_writable(store, what, error), rc = SQLITE_DONE;
    if (status == DL_OK) status = prepare(store, sql, what, &statement, error);
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) continue;
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_finalize(statement);
    *left = store_pragma_u64(store, ST_FREE_COUNT);
    return status;
}

/* ---- the graph and the names ------------------------------------------------------------ */

void dl_store_forget_graph(const struct dl_store_forgetting *f, struct dl_graph *graph)
{
    for (uint32_t i = 0; i < f->node_count; i++) {
        if (!f->has_peer) dl_graph_forget(graph, f->nodes[i]);
        for (uint32_t j = 0; j < f->peer_count; j++)
            dl_graph_forget_edges(graph, f->nodes[i], f->peers[j], f->before_seq);
    }
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

static int is_one_of(uint32_t id, uint32_t count, const uint32_t *ids)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id) return 1;
    return 0;
}

static int is_forgotten(const struct dl_event *event, const struct dl_store_forgetting *f)
{
    int src = is_one_of(event->src, f->node_count, f->nodes);
    int dst = is_one_of(event->dst, f->node_count, f->nodes);
    if (!f->has_peer) return src || dst;
    return (src && is_one_of(event->dst, f->peer_count, f->peers)) ||
           (dst && is_one_of(event->src, f->peer_count, f->peers));
}

/* Decodes a blob with the forgotten events as holes; *removed counts them. */
static int punch(struct dl_store *store, struct block *block, struct dl_slice data, uint64_t seq,
                 uint32_t count, const struct dl_store_forgetting *f, uint32_t *removed)
{
    uint32_t fc = store->config.feature_count, at = 0;
    struct dl_log_reader reader;
    int got = dl_log_reader_init(&reader, data, count, fc);
    *removed = 0;
    while (got == DL_OK && at < count) {
        struct dl_event *event = &block->events[at];
        got = dl_log_next(&reader, event);
        if (got <= 0) return got < 0 ? got : DL_ERR_CORRUPT;
        int forget = got == 1 && seq + at < f->before_seq && is_forgotten(event, f);
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

/* The blob that the statement stands on. */
static int forget_block(struct dl_store *store, sqlite3_stmt *select, sqlite3_stmt *update,
                        struct block *block, struct dl_store_forgetting *f, struct dl_error *error)
{
    uint32_t removed = 0;
    uint64_t seq = (uint64_t)sqlite3_column_int64(select, 0);
    sqlite3_int64 count = sqlite3_column_int64(select, 1);
    struct dl_slice data = store_column_slice(select, 3);
    int status = DL_OK;
    if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM)
        status = store_error(store, SQLITE_NOMEM, "forget events", error);
    else if (count < 1 || count > DL_LOG_BLOCK_EVENTS_MAX ||
             store_checksum(seq, (uint64_t)count, data) !=
                 (int32_t)sqlite3_column_int64(select, 2) ||
             punch(store, block, data, seq, (uint32_t)count, f, &removed) != DL_OK)
        status = store_corrupt(store, error, "the edge log's blob at event %llu is damaged",
                               (unsigned long long)seq);
    sqlite3_reset(select);
    if (status == DL_OK && removed)
        status = write_block(store, update, block, seq, (uint32_t)count, error);
    if (status != DL_OK) return status;
    f->events += removed;
    f->log_next = seq + (uint64_t)count;
    return DL_OK;
}

int dl_store_forget_log(struct dl_store *store, struct dl_store_forgetting *f, uint64_t events_max,
                        int *more, struct dl_error *error)
{
    const char *what = "forget events";
    sqlite3_stmt *select = NULL, *update = NULL;
    struct block block = {.events = malloc(DL_LOG_BLOCK_EVENTS_MAX * sizeof *block.events),
                          .features =
                              malloc((size_t)DL_LOG_BLOCK_EVENTS_MAX *
                                     (store->config.feature_count + 1) * sizeof *block.features)};
    struct dl_store_forgetting after = *f;
    uint64_t seen = 0;
    int status = store_writable(store, what, error), rc = SQLITE_ROW;
    if (status == DL_OK && (!block.events || !block.features))
        status = store_error(store, SQLITE_NOMEM, what, error);
    if (status == DL_OK)
        status = prepare(store,
                         "SELECT first_seq, count, crc, data FROM edge_log WHERE first_seq>=?1"
                         " AND first_seq<?2 ORDER BY first_seq LIMIT 1",
                         what, &select, error);
    if (status == DL_OK)
        status = prepare(store, "UPDATE edge_log SET crc=?2, data=?3 WHERE first_seq=?1", what,
                         &update, error);
    while (status == DL_OK && seen < events_max) {
        uint64_t from = after.log_next;
        rc = sqlite3_bind_int64(select, 1, (sqlite3_int64)from);
        if (rc == SQLITE_OK) rc = sqlite3_bind_int64(select, 2, (sqlite3_int64)f->before_seq);
        if (rc == SQLITE_OK) rc = sqlite3_step(select);
        if (rc != SQLITE_ROW) break;
        seen += (uint64_t)sqlite3_column_int64(select, 1);
        status = forget_block(store, select, update, &block, &after, error);
    }
    if (status == DL_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
        status = store_error(store, rc, what, error);
    sqlite3_finalize(select);
    sqlite3_finalize(update);
    free(block.events);
    free(block.features);
    if (status != DL_OK) return status;
    *more = rc == SQLITE_ROW;
    *f = after;
    return DL_OK;
}

/* ---- records and alerts --------------------------------------------------------------- */

/* Runs `change` on the key of every row of `select` (key, kind, record key, payload) that `fn`
 * names: of those above *after and below `end`, *rows at most, which it takes from. */
static int change_rows(struct dl_store *store, const char *select_sql, const char *change_sql,
                       uint64_t *after, uint64_t end, uint32_t *rows, dl_store_names_fn *fn,
                       void *user, struct dl_error *error)
{
    const char *what = "forget records";
    sqlite3_stmt *select = NULL, *change = NULL;
    int status = prepare(store, select_sql, what, &select, error), rc = SQLITE_ROW;
    if (status == DL_OK) status = prepare(store, change_sql, what, &change, error);
    while (status == DL_OK && *rows) {
        rc = sqlite3_bind_int64(select, 1, (sqlite3_int64)*after);
        if (rc == SQLITE_OK) rc = sqlite3_bind_int64(select, 2, (sqlite3_int64)end);
        if (rc == SQLITE_OK) rc = sqlite3_step(select);
        if (rc != SQLITE_ROW) break;
        *after = (uint64_t)sqlite3_column_int64(select, 0);
        --*rows;
        int named = fn(user, sqlite3_column_int(select, 1), store_column_slice(select, 2),
                       store_column_slice(select, 3));
        sqlite3_reset(select);
        if (!named) continue;
        rc = sqlite3_bind_int64(change, 1, (sqlite3_int64)*after);
        if (rc == SQLITE_OK) rc = SQLITE_ROW;
        status = rc == SQLITE_ROW ? store_run(store, change, what, error)
                                  : store_error(store, rc, what, error);
    }
    if (status == DL_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
        status = store_error(store, rc, what, error);
    sqlite3_finalize(select);
    sqlite3_finalize(change);
    return status;
}

int dl_store_forget_records(struct dl_store *store, const struct dl_store_forgetting *f,
                            struct dl_store_forget_at *at, uint32_t rows_max, dl_store_names_fn *fn,
                            void *user, int *more, struct dl_error *error)
{
    struct dl_store_forget_at after = *at;
    uint32_t rows = rows_max;
    int status = store_writable(store, "forget records", error);
    if (status == DL_OK) /* the number stays: the outbox has no gaps */
        status = change_rows(store,
                             "SELECT seq, kind, key, payload FROM outbox WHERE seq>?1 AND seq<?2"
                             " ORDER BY seq LIMIT 1",
                             "UPDATE outbox SET kind=5, key=NULL, headers=NULL, payload=x''"
                             " WHERE seq=?1",
                             &after.outbox, f->outbox_end, &rows, fn, user, error);
    if (status == DL_OK)
        status = change_rows(store,
                             "SELECT number, 3, NULL, payload FROM alert WHERE number>?1"
                             " AND number<?2 ORDER BY number LIMIT 1",
                             "DELETE FROM alert WHERE number=?1", &after.alert, f->alert_end, &rows,
                             fn, user, error);
    if (status != DL_OK) return status;
    *more = rows == 0;
    *at = after;
    return DL_OK;
}
