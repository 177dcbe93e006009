/* Source positions, and the outbox of records that wait to be published. */
#include "store/internal.h"

#include <inttypes.h>

/* ---- positions ---------------------------------------------------------------- */

static int check_topic(struct dl_store *store, const char *topic, const char *what,
                       struct dl_error *error)
{
    size_t size = topic ? strnlen(topic, sizeof((struct dl_position *)0)->topic) : 0;
    if (size > 0 && size < sizeof((struct dl_position *)0)->topic) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID,
                        "store %.200s: cannot %s: a topic's name has 1 to %zu bytes", store->path,
                        what, sizeof((struct dl_position *)0)->topic - 1);
}

int dl_store_set_position(struct dl_store *store, const char *topic, int32_t partition,
                          int64_t next_offset, struct dl_error *error)
{
    const char *what = "write a source position";
    int status = store_writable(store, what, error);
    if (status == DL_OK) status = check_topic(store, topic, what, error);
    if (status != DL_OK) return status;
    sqlite3_stmt *statement = store_statement(store, ST_POSITION_PUT, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, topic, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(statement, 2, partition);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 3, next_offset);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    return store_run(store, statement, what, error);
}

int dl_store_get_position(struct dl_store *store, const char *topic, int32_t partition,
                          int64_t *next_offset, struct dl_error *error)
{
    const char *what = "read a source position";
    int status = check_topic(store, topic, what, error);
    if (status != DL_OK) return status;
    sqlite3_stmt *statement = store_statement(store, ST_POSITION_GET, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, topic, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(statement, 2, partition);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        *next_offset = sqlite3_column_int64(statement, 0);
    else if (rc == SQLITE_DONE)
        status = dl_error_set(error, DL_ERR_NOT_FOUND, "store %.200s: no position of %s/%d",
                              store->path, topic, partition);
    else
        status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return status;
}

/* A text column into a topic field. NULL gives "". */
static int take_topic(struct dl_store *store, sqlite3_stmt *row, int column,
                      struct dl_position *position, struct dl_error *error)
{
    position->topic[0] = '\0';
    if (sqlite3_column_type(row, column) == SQLITE_NULL) return DL_OK;
    const char *text = (const char *)sqlite3_column_text(row, column);
    if (!text) return store_error(store, SQLITE_NOMEM, "read a topic's name", error);
    if (strlen(text) >= sizeof position->topic)
        return store_corrupt(store, error, "a topic's name is longer than %zu bytes",
                             sizeof position->topic - 1);
    strcpy(position->topic, text);
    return DL_OK;
}

int dl_store_positions(struct dl_store *store, dl_store_position_fn *fn, void *user,
                       struct dl_error *error)
{
    const char *what = "read the source positions";
    int status = DL_OK, rc = SQLITE_DONE;
    sqlite3_stmt *statement = store_statement(store, ST_POSITION_ALL, what, &status, error);
    if (!statement) return status;
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        struct dl_position position = {.partition = sqlite3_column_int(statement, 1),
                                       .offset = sqlite3_column_int64(statement, 2)};
        status = take_topic(store, statement, 0, &position, error);
        if (status == DL_OK) status = fn(user, &position);
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    return status;
}

/* ---- headers -------------------------------------------------------------------- */

void dl_store_headers_put(struct dl_buf *headers, struct dl_slice key, struct dl_slice value)
{
    dl_buf_varint(headers, key.size);
    dl_buf_append(headers, key.data, key.size);
    dl_buf_varint(headers, value.size);
    dl_buf_append(headers, value.data, value.size);
}

int dl_store_headers_next(struct dl_reader *headers, struct dl_slice *key, struct dl_slice *value)
{
    if (!headers->failed && dl_reader_left(headers) == 0) return 0;
    *key = dl_read_slice(headers, dl_read_varint(headers));
    *value = dl_read_slice(headers, dl_read_varint(headers));
    return headers->failed ? DL_ERR_CORRUPT : 1;
}

/* ---- outbox ---------------------------------------------------------------------- */

static int bind_row(sqlite3_stmt *statement, const struct dl_outbox_row *row, uint64_t seq)
{
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)seq);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(statement, 2, (int)row->kind);
    if (rc == SQLITE_OK) rc = sqlite3_bind_text(statement, 3, row->topic, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK && row->key.size) rc = store_bind_slice(statement, 4, row->key);
    if (rc == SQLITE_OK && row->headers.size) rc = store_bind_slice(statement, 5, row->headers);
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 6, row->payload);
    if (row->position.topic[0] == '\0') return rc;
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(statement, 7, row->position.topic, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(statement, 8, row->position.partition);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 9, row->position.offset);
    return rc;
}

int dl_store_outbox_append(struct dl_store *store, const struct dl_outbox_row *row, uint64_t *seq,
                           struct dl_error *error)
{
    const char *what = "append to the outbox";
    int status = store_writable(store, what, error);
    if (status == DL_OK) status = check_topic(store, row->topic, what, error);
    if (status != DL_OK) return status;
    const size_t most = DL_STORE_OUTBOX_BYTES_MAX;
    if (row->key.size > most || row->headers.size > most || row->payload.size > most ||
        row->key.size + row->headers.size + row->payload.size > most)
        return dl_error_set(error, DL_ERR_TOO_LARGE,
                            "store %.200s: cannot %s a record for %s of %zu bytes; at most %zu",
                            store->path, what, row->topic,
                            row->key.size + row->headers.size + row->payload.size, most);
    sqlite3_stmt *statement = store_statement(store, ST_OUTBOX_ADD, what, &status, error);
    if (!statement) return status;
    int rc = bind_row(statement, row, store->now.outbox_next);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, statement, what, error);
    if (status != DL_OK) return status;
    if (seq) *seq = store->now.outbox_next;
    store->now.outbox_next++;
    return DL_OK;
}

int dl_store_outbox_read(struct dl_store *store, uint64_t from_seq, uint32_t max,
                         dl_store_outbox_fn *fn, void *user, struct dl_error *error)
{
    const char *what = "read the outbox";
    int status = DL_OK;
    if (from_seq > INT64_MAX) return DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_OUTBOX_READ, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)from_seq);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 2, max);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        struct dl_outbox_row row = {.seq = (uint64_t)sqlite3_column_int64(statement, 0),
                                    .kind = (enum dl_outbox_kind)sqlite3_column_int(statement, 1),
                                    .topic = (const char *)sqlite3_column_text(statement, 2),
                                    .key = store_column_slice(statement, 3),
                                    .headers = store_column_slice(statement, 4),
                                    .payload = store_column_slice(statement, 5),
                                    .position = {.partition = sqlite3_column_int(statement, 7),
                                                 .offset = sqlite3_column_int64(statement, 8)}};
        if (sqlite3_errcode(store->db) == SQLITE_NOMEM || !row.topic)
            status = store_error(store, SQLITE_NOMEM, what, error);
        if (status == DL_OK) status = take_topic(store, statement, 6, &row.position, error);
        if (status == DL_OK) status = fn(user, &row);
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    return status;
}

uint64_t store_outbox_first(const struct dl_store *store)
{
    return store->outbox_delivered < store->now.outbox_first ? store->now.outbox_first
                                                             : store->outbox_delivered + 1;
}

int store_outbox_delete(struct dl_store *store, struct dl_error *error)
{
    const char *what = "remove delivered records from the outbox";
    const uint64_t seq = store->outbox_delivered;
    int status = DL_OK;
    if (seq < store->now.outbox_first) return DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_OUTBOX_DELETE, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)seq);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, statement, what, error);
    /* Kept beside the rows, so that no number is used twice once all are gone. */
    if (status == DL_OK) status = store_meta_put_u64(store, "outbox_deleted_through", seq, error);
    if (status == DL_OK) store->now.outbox_first = seq + 1;
    return status;
}

int dl_store_outbox_delivered(struct dl_store *store, uint64_t seq, struct dl_error *error)
{
    const uint64_t next = store->in_transaction ? store->saved.outbox_next : store->now.outbox_next;
    if (seq >= next)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot remove outbox record %" PRIu64
                            ": the last one is %" PRIu64,
                            store->path, seq, next - 1);
    if (seq > store->outbox_delivered) store->outbox_delivered = seq;
    return DL_OK;
}

int dl_store_outbox_sweep(struct dl_store *store, struct dl_error *error)
{
    if (store->outbox_delivered < store->now.outbox_first) return DL_OK;
    int status = dl_store_begin(store, error);
    if (status == DL_OK) status = dl_store_commit(store, error);
    if (status != DL_OK) dl_store_rollback(store);
    return status;
}

void dl_store_outbox_range(const struct dl_store *store, uint64_t *first, uint64_t *next)
{
    *first = store_outbox_first(store);
    *next = store->now.outbox_next;
}
