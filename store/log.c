/* The edge log: appending, reading, cutting off what is no longer kept. */
#include "store/internal.h"
#include "store/log_codec.h"

#include <inttypes.h>

static int append_block(struct dl_store *store, uint64_t first_seq, const struct dl_event *events,
                        uint32_t count, struct dl_error *error)
{
    const char *what = "append events";
    int status = DL_OK;
    dl_buf_clear(&store->scratch);
    if (dl_log_encode(events, count, store->config.feature_count, &store->scratch) != DL_OK)
        return store_error(store, SQLITE_NOMEM, what, error);
    sqlite3_stmt *statement = store_statement(store, ST_LOG_ADD, what, &status, error);
    if (!statement) return status;
    struct dl_slice data = dl_buf_slice(&store->scratch);
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)first_seq);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 2, count);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(statement, 3, store_checksum(first_seq, count, data));
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 4, data);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, statement, what, error);
    if (status != DL_OK) return status;
    if (store->now.log_first == store->now.log_next) store->now.log_first = first_seq;
    store->now.log_next = first_seq + count;
    return DL_OK;
}

int dl_store_append_events(struct dl_store *store, uint64_t first_seq,
                           const struct dl_event *events, uint32_t count, struct dl_error *error)
{
    int status = store_writable(store, "append events", error);
    if (status != DL_OK) return status;
    if (first_seq != store->now.log_next)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot append event %" PRIu64 ": the log goes on at "
                            "%" PRIu64 "; load the graph from this store first",
                            store->path, first_seq, store->now.log_next);
    while (count > 0) {
        uint32_t part = count < DL_LOG_BLOCK_EVENTS_MAX ? count : DL_LOG_BLOCK_EVENTS_MAX;
        status = append_block(store, first_seq, events, part, error);
        if (status != DL_OK) return status;
        first_seq += part;
        events += part;
        count -= part;
    }
    return DL_OK;
}

void dl_store_log_range(const struct dl_store *store, uint64_t *first, uint64_t *next)
{
    *first = store->now.log_first;
    *next = store->now.log_next;
}

/* Reads the row that the statement stands on; skips what comes before `from_seq`. */
static int read_block(struct dl_store *store, sqlite3_stmt *row, uint64_t from_seq,
                      uint64_t *next_seq, dl_store_event_fn *fn, void *user, struct dl_error *error)
{
    uint64_t seq = (uint64_t)sqlite3_column_int64(row, 0);
    sqlite3_int64 count = sqlite3_column_int64(row, 1);
    struct dl_slice data = store_column_slice(row, 3);
    if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM)
        return store_error(store, SQLITE_NOMEM, "read the edge log", error);
    if (count < 1 || count > DL_LOG_BLOCK_EVENTS_MAX ||
        store_checksum(seq, (uint64_t)count, data) != (int32_t)sqlite3_column_int64(row, 2))
        return store_corrupt(store, error,
                             "the edge log's blob at event %" PRIu64 " does not match its checksum",
                             seq);
    struct dl_log_reader reader;
    int got = dl_log_reader_init(&reader, data, (uint32_t)count, store->config.feature_count);
    if (got == DL_OK) {
        struct dl_event event;
        while ((got = dl_log_next(&reader, &event)) > 0) {
            if (got == 1 && seq >= from_seq) {
                int stop = fn(user, seq, &event);
                if (stop) return stop;
            }
            seq++;
        }
    }
    if (got < 0)
        return store_corrupt(store, error, "the edge log is unreadable at event %" PRIu64 " (%s)",
                             seq, dl_status_name(got));
    *next_seq = seq;
    return DL_OK;
}

/* The row that the statement finds for `bound`, unless it ends before
 * from_seq. *next_seq moves behind it; gapless: it must begin there. */
static int read_row(struct dl_store *store, sqlite3_stmt *row, uint64_t bound, uint64_t from_seq,
                    int gapless, uint64_t *next_seq, dl_store_event_fn *fn, void *user, int *found,
                    struct dl_error *error)
{
    int status = DL_OK;
    *found = 0;
    int rc = sqlite3_bind_int64(row, 1, (sqlite3_int64)bound);
    if (rc == SQLITE_OK) rc = sqlite3_step(row);
    if (rc == SQLITE_ROW) {
        uint64_t seq = (uint64_t)sqlite3_column_int64(row, 0);
        uint64_t end = seq + (uint64_t)sqlite3_column_int64(row, 1);
        if (end > from_seq) {
            *found = 1;
            if (gapless && seq > *next_seq && store->options.read_only)
                status = dl_error_set(error, DL_ERR_UNAVAILABLE,
                                      "store %.200s: the writer cut the log at event %" PRIu64
                                      " while it was being read; raise store.log_events_max",
                                      store->path, seq);
            else if (gapless && seq > *next_seq)
                status =
                    store_corrupt(store, error, "the edge log lacks events %" PRIu64 " to %" PRIu64,
                                  *next_seq, seq - 1);
            else
                status = read_block(store, row, from_seq, next_seq, fn, user, error);
        }
    } else if (rc != SQLITE_DONE) {
        status = store_error(store, rc, "read the edge log", error);
    }
    /* Ends the read transaction: the WAL can be folded between blobs. */
    sqlite3_reset(row);
    return status;
}

int dl_store_log_read(struct dl_store *store, uint64_t from_seq, dl_store_event_fn *fn, void *user,
                      struct dl_error *error)
{
    const char *what = "read the edge log";
    int status = DL_OK, found = 0;
    if (from_seq > INT64_MAX) return DL_OK;
    sqlite3_stmt *at = store_statement(store, ST_LOG_AT, what, &status, error);
    sqlite3_stmt *after = at ? store_statement(store, ST_LOG_AFTER, what, &status, error) : NULL;
    if (!after) return status;
    /* The blob that holds from_seq begins at or before it; if that was cut,
     * the first one kept begins after it, which is a gap only if it was not. */
    uint64_t next_seq = from_seq;
    int gapless = !store->options.read_only && from_seq >= store->now.log_first;
    status = read_row(store, at, from_seq, from_seq, gapless, &next_seq, fn, user, &found, error);
    do {
        gapless = gapless || found;
        if (status != DL_OK) return status;
        status =
            read_row(store, after, next_seq, from_seq, gapless, &next_seq, fn, user, &found, error);
    } while (found);
    return status;
}

int store_log_cut(struct dl_store *store, struct dl_error *error)
{
    const char *what = "cut the edge log";
    struct store_cursors *now = &store->now;
    uint64_t keep = store->options.log_keep_events;
    uint64_t until = now->log_next > keep ? now->log_next - keep : 0;
    if (until > now->recover_from) until = now->recover_from;
    int status = DL_OK;
    sqlite3_stmt *first = store_statement(store, ST_LOG_FIRST, what, &status, error);
    sqlite3_stmt *cut = first ? store_statement(store, ST_LOG_CUT, what, &status, error) : NULL;
    if (!cut) return status;
    /* A blob goes when all of it is old. The last stays whatever its age: it
     * tells where the log goes on. */
    while (now->log_first < until) {
        int rc = sqlite3_step(first);
        uint64_t seq = (uint64_t)sqlite3_column_int64(first, 0);
        uint64_t end = seq + (uint64_t)sqlite3_column_int64(first, 1);
        sqlite3_reset(first);
        if (rc != SQLITE_ROW) return store_error(store, rc, what, error);
        if (end > until || end >= now->log_next) break;
        rc = sqlite3_bind_int64(cut, 1, (sqlite3_int64)seq);
        if (rc != SQLITE_OK) return store_error(store, rc, what, error);
        status = store_run(store, cut, what, error);
        if (status != DL_OK) return status;
        now->log_first = end;
    }
    return DL_OK;
}
