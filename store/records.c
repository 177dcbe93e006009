/* Alerts, named blobs, and the destination list, which is one of them. */
#include "store/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- alerts -------------------------------------------------------------------- */

int dl_store_put_alert(struct dl_store *store, const struct dl_alert_row *row,
                       struct dl_error *error)
{
    const char *what = "write an alert";
    int status = store_writable(store, what, error);
    if (status != DL_OK) return status;
    if (row->number <= store->now.alert_last || row->number > INT64_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot write alert %" PRIu64 ": the last was %" PRIu64,
                            store->path, row->number, store->now.alert_last);
    sqlite3_stmt *add = store_statement(store, ST_ALERT_ADD, what, &status, error);
    sqlite3_stmt *cut = add ? store_statement(store, ST_ALERT_CUT, what, &status, error) : NULL;
    if (!cut) return status;
    int rc = sqlite3_bind_int64(add, 1, (sqlite3_int64)row->number);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(add, 2, row->kind);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int(add, 3, row->raised);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(add, 4, row->time);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(add, 5, (sqlite3_int64)row->seq);
    if (rc == SQLITE_OK) rc = store_bind_slice(add, 6, row->payload);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, add, what, error);
    if (status == DL_OK && row->number > DL_STORE_ALERTS_KEPT) {
        rc = sqlite3_bind_int64(cut, 1, (sqlite3_int64)(row->number - DL_STORE_ALERTS_KEPT));
        status = rc == SQLITE_OK ? store_run(store, cut, what, error)
                                 : store_error(store, rc, what, error);
    }
    if (status == DL_OK) store->now.alert_last = row->number;
    return status;
}

int dl_store_alerts(struct dl_store *store, uint32_t max, dl_store_alert_fn *fn, void *user,
                    struct dl_error *error)
{
    const char *what = "read the alerts";
    int status = DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_ALERT_NEWEST, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_int64(statement, 1, max);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        struct dl_alert_row row = {.number = (uint64_t)sqlite3_column_int64(statement, 0),
                                   .kind = sqlite3_column_int(statement, 1),
                                   .raised = sqlite3_column_int(statement, 2),
                                   .time = sqlite3_column_int64(statement, 3),
                                   .seq = (uint64_t)sqlite3_column_int64(statement, 4),
                                   .payload = store_column_slice(statement, 5)};
        if (sqlite3_errcode(store->db) == SQLITE_NOMEM)
            status = store_error(store, SQLITE_NOMEM, what, error);
        else
            status = fn(user, &row);
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    return status;
}

uint64_t dl_store_alert_last(const struct dl_store *store)
{
    return store->now.alert_last;
}

/* ---- named blobs ------------------------------------------------------------------ */

static int check_name(struct dl_store *store, const char *name, struct dl_error *error)
{
    size_t size = name ? strnlen(name, DL_STORE_BLOB_NAME_BYTES_MAX + 1) : 0;
    if (size > 0 && size <= DL_STORE_BLOB_NAME_BYTES_MAX) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID, "store %.200s: a blob's name has 1 to %d bytes",
                        store->path, DL_STORE_BLOB_NAME_BYTES_MAX);
}

int dl_store_put_blob(struct dl_store *store, const char *name, struct dl_slice data,
                      struct dl_error *error)
{
    const char *what = "write a named blob";
    int status = store_writable(store, what, error);
    if (status == DL_OK) status = check_name(store, name, error);
    if (status != DL_OK) return status;
    if (data.size > DL_STORE_BLOB_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE,
                            "store %.200s: blob %s has %zu bytes; at most %u", store->path, name,
                            data.size, DL_STORE_BLOB_BYTES_MAX);
    sqlite3_stmt *statement = store_statement(store, ST_BLOB_PUT, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int64(statement, 2, store_checksum(strlen(name), data.size, data));
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 3, data);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    return store_run(store, statement, what, error);
}

int dl_store_get_blob(struct dl_store *store, const char *name, struct dl_buf *out,
                      struct dl_error *error)
{
    const char *what = "read a named blob";
    int status = check_name(store, name, error);
    if (status != DL_OK) return status;
    sqlite3_stmt *statement = store_statement(store, ST_BLOB_GET, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        struct dl_slice data = store_column_slice(statement, 1);
        if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM) {
            status = store_error(store, SQLITE_NOMEM, what, error);
        } else if (store_checksum(strlen(name), data.size, data) !=
                   (int32_t)sqlite3_column_int64(statement, 0)) {
            status = store_corrupt(store, error, "blob %s does not match its checksum", name);
        } else {
            dl_buf_append(out, data.data, data.size);
            if (out->failed) status = store_error(store, SQLITE_NOMEM, what, error);
        }
    } else if (rc == SQLITE_DONE) {
        status =
            dl_error_set(error, DL_ERR_NOT_FOUND, "store %.200s: no blob %s", store->path, name);
    } else {
        status = store_error(store, rc, what, error);
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return status;
}

int dl_store_delete_blob(struct dl_store *store, const char *name, struct dl_error *error)
{
    const char *what = "remove a named blob";
    int status = store_writable(store, what, error);
    if (status == DL_OK) status = check_name(store, name, error);
    if (status != DL_OK) return status;
    sqlite3_stmt *statement = store_statement(store, ST_BLOB_DELETE, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    return store_run(store, statement, what, error);
}

/* ---- destination list ---------------------------------------------------------------- */

static const char destinations[] = "quality.destinations";

int dl_store_put_destinations(struct dl_store *store, const uint32_t *nodes, uint32_t count,
                              struct dl_error *error)
{
    dl_buf_clear(&store->scratch);
    for (uint32_t i = 0; i < count; i++) dl_buf_u32(&store->scratch, nodes[i]);
    if (store->scratch.failed)
        return store_error(store, SQLITE_NOMEM, "write the destination list", error);
    return dl_store_put_blob(store, destinations, dl_buf_slice(&store->scratch), error);
}

int dl_store_get_destinations(struct dl_store *store, uint32_t **nodes, uint32_t *count,
                              struct dl_error *error)
{
    dl_buf_clear(&store->scratch);
    int status = dl_store_get_blob(store, destinations, &store->scratch, error);
    if (status != DL_OK) return status;
    struct dl_reader reader = dl_reader_of(dl_buf_slice(&store->scratch));
    size_t size = dl_reader_left(&reader);
    if (size % 4 != 0) return store_corrupt(store, error, "the destination list is cut short");
    uint32_t *list = malloc(size ? size : 4);
    if (!list) return store_error(store, SQLITE_NOMEM, "read the destination list", error);
    *count = (uint32_t)(size / 4);
    for (uint32_t i = 0; i < *count; i++) list[i] = dl_read_u32(&reader);
    *nodes = list;
    return DL_OK;
}
