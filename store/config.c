/* What the meta table holds: the configuration a file was made for, checked at
 * every open, and cursors that the rows of the other tables do not tell. */
#include "store/internal.h"

#include <stdio.h>

/* ---- meta --------------------------------------------------------------------- */

static int meta_put(struct dl_store *store, const char *key, const char *text, uint64_t value,
                    struct dl_error *error)
{
    int status = DL_OK;
    const char *what = "write its meta table";
    sqlite3_stmt *statement = store_statement(store, ST_META_PUT, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = text ? sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC)
                  : sqlite3_bind_int64(statement, 2, (sqlite3_int64)value);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    return store_run(store, statement, what, error);
}

int store_meta_put_u64(struct dl_store *store, const char *key, uint64_t value,
                       struct dl_error *error)
{
    return meta_put(store, key, NULL, value, error);
}

/* Exactly one of text (of `size` bytes) and value is wanted. */
static int meta_get(struct dl_store *store, const char *key, char *text, size_t size,
                    uint64_t *value, struct dl_error *error)
{
    int status = DL_OK;
    const char *what = "read its meta table";
    sqlite3_stmt *statement = store_statement(store, ST_META_GET, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        int type = sqlite3_column_type(statement, 0);
        if (type != (text ? SQLITE_TEXT : SQLITE_INTEGER)) {
            status = store_corrupt(store, error, "meta.%s is of the wrong type", key);
        } else if (value) {
            *value = (uint64_t)sqlite3_column_int64(statement, 0);
        } else {
            const char *found = (const char *)sqlite3_column_text(statement, 0);
            if (found)
                snprintf(text, size, "%s", found);
            else
                status = store_error(store, SQLITE_NOMEM, what, error);
        }
    } else if (rc == SQLITE_DONE) {
        status = dl_error_set(error, DL_ERR_NOT_FOUND, "store %.200s: meta.%s is missing",
                              store->path, key);
    } else {
        status = store_error(store, rc, what, error);
    }
    sqlite3_reset(statement);
    return status;
}

int store_meta_get_u64(struct dl_store *store, const char *key, uint64_t *value,
                       struct dl_error *error)
{
    return meta_get(store, key, NULL, 0, value, error);
}

/* ---- configuration ------------------------------------------------------------- */

static int table_is_empty(struct dl_store *store, const char *table, int *empty,
                          struct dl_error *error)
{
    char text[64];
    sqlite3_stmt *statement = NULL;
    sqlite3_snprintf(sizeof text, text, "SELECT 1 FROM %s LIMIT 1", table);
    int rc = sqlite3_prepare_v2(store->db, text, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    *empty = rc == SQLITE_DONE;
    int status = rc == SQLITE_DONE || rc == SQLITE_ROW
                     ? DL_OK
                     : store_error(store, rc, "read its meta table", error);
    sqlite3_finalize(statement);
    return status;
}

static int write_config(struct dl_store *store, struct dl_error *error)
{
    const struct dl_store_config *c = &store->options.config;
    int status = dl_store_begin(store, error);
    if (status != DL_OK) return status;
    status = meta_put(store, "time_unit", dl_time_unit_name(c->time_unit), 0, error);
    if (status == DL_OK) status = store_meta_put_u64(store, "window", c->window, error);
    if (status == DL_OK)
        status = store_meta_put_u64(store, "feature_count", c->feature_count, error);
    if (status == DL_OK) status = store_meta_put_u64(store, "namespaces", c->namespaces, error);
    if (status == DL_OK)
        status = meta_put(store, "created_by", store->options.created_by, 0, error);
    if (status == DL_OK) status = dl_store_commit(store, error);
    if (status != DL_OK) dl_store_rollback(store);
    return status;
}

static int read_config(struct dl_store *store, struct dl_error *error)
{
    char unit[16] = "";
    uint64_t window = 0, features = 0, namespaces = 0;
    int status = meta_get(store, "time_unit", unit, sizeof unit, NULL, error);
    if (status == DL_OK) status = store_meta_get_u64(store, "window", &window, error);
    if (status == DL_OK) status = store_meta_get_u64(store, "feature_count", &features, error);
    if (status == DL_OK) status = store_meta_get_u64(store, "namespaces", &namespaces, error);
    if (status == DL_OK)
        status =
            meta_get(store, "created_by", store->created_by, sizeof store->created_by, NULL, error);
    if (status != DL_OK) return status;
    struct dl_store_config *c = &store->config;
    if (dl_time_unit_parse(dl_slice_text(unit), &c->time_unit) != DL_OK || window < 1 ||
        window > DL_WINDOW_MAX || features > DL_EVENT_FEATURES_MAX || namespaces < 1 ||
        namespaces > 2)
        return store_corrupt(store, error, "its meta table holds values out of range");
    c->window = (uint32_t)window;
    c->feature_count = (uint32_t)features;
    c->namespaces = (uint32_t)namespaces;
    return DL_OK;
}

static int differs(struct dl_store *store, struct dl_error *error, const char *name, uint32_t has,
                   uint32_t wanted, const char *remedy)
{
    return dl_error_set(error, DL_ERR_VERSION,
                        "store %.200s: made with %s %u, configured is %u; %s, or use another "
                        "store.path and read the feed again",
                        store->path, name, has, wanted, remedy);
}

static int compare_config(struct dl_store *store, struct dl_error *error)
{
    const struct dl_store_config *has = &store->config, *wanted = &store->options.config;
    if (has->time_unit != wanted->time_unit)
        return dl_error_set(error, DL_ERR_VERSION,
                            "store %.200s: made with time unit %s, configured is %s; set the time "
                            "unit to %s, or use another store.path and read the feed again",
                            store->path, dl_time_unit_name(has->time_unit),
                            dl_time_unit_name(wanted->time_unit),
                            dl_time_unit_name(has->time_unit));
    if (has->window != wanted->window)
        return differs(store, error, "window", has->window, wanted->window,
                       "set store.window to the former");
    if (has->feature_count != wanted->feature_count)
        return differs(store, error, "features an event", has->feature_count, wanted->feature_count,
                       "set the number of features to the former");
    if (has->namespaces != wanted->namespaces)
        return differs(store, error, "namespaces", has->namespaces, wanted->namespaces,
                       "set bipartite on (2) or off (1) as it was");
    return DL_OK;
}

int store_config_open(struct dl_store *store, struct dl_error *error)
{
    const struct dl_store_options *options = &store->options;
    int empty = 0;
    int status = table_is_empty(store, "meta", &empty, error);
    /* A new file has the schema and not yet the configuration. */
    if (status == DL_OK && empty && !options->read_only && !options->adopt)
        status = write_config(store, error);
    if (status != DL_OK) return status;
    status = read_config(store, error);
    if (status == DL_ERR_NOT_FOUND) return DL_ERR_CORRUPT;
    return status == DL_OK && !options->adopt ? compare_config(store, error) : status;
}

/* ---- cursors ---------------------------------------------------------------------- */

/* Two integer columns of the one row of a statement; a missing row gives 0, 0. */
static int read_two(struct dl_store *store, enum store_statement which, uint64_t out[2], int *found,
                    struct dl_error *error)
{
    int status = DL_OK;
    const char *what = "read its cursors";
    sqlite3_stmt *statement = store_statement(store, which, what, &status, error);
    if (!statement) return status;
    out[0] = out[1] = 0;
    *found = 0;
    if (which == ST_ALERT_NEWEST) sqlite3_bind_int(statement, 1, 1);
    int rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW) {
        *found = sqlite3_column_type(statement, 0) == SQLITE_INTEGER;
        out[0] = (uint64_t)sqlite3_column_int64(statement, 0);
        out[1] = (uint64_t)sqlite3_column_int64(statement, 1);
    } else if (rc != SQLITE_DONE) {
        status = store_error(store, rc, what, error);
    }
    sqlite3_reset(statement);
    return status;
}

static int read_max_id(struct dl_store *store, const char *table, uint32_t *count,
                       struct dl_error *error)
{
    char text[64];
    sqlite3_stmt *statement = NULL;
    sqlite3_snprintf(sizeof text, text, "SELECT max(id) FROM %s", table);
    int rc = sqlite3_prepare_v2(store->db, text, -1, &statement, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(statement);
    int status = DL_OK;
    if (rc == SQLITE_ROW) {
        sqlite3_int64 last = sqlite3_column_type(statement, 0) == SQLITE_NULL
                                 ? -1
                                 : sqlite3_column_int64(statement, 0);
        if (last < -1 || last >= UINT32_MAX - 1)
            status = store_corrupt(store, error, "table %s holds an id out of range", table);
        else
            *count = (uint32_t)(last + 1);
    } else {
        status = store_error(store, rc, "read its cursors", error);
    }
    sqlite3_finalize(statement);
    return status;
}

/* A cursor that was never written leaves *value and *error alone. */
static int optional_u64(struct dl_store *store, const char *key, uint64_t *value,
                        struct dl_error *error)
{
    struct dl_error detail;
    int status = store_meta_get_u64(store, key, value, &detail);
    if (status == DL_ERR_NOT_FOUND) return DL_OK;
    if (status != DL_OK && error) *error = detail;
    return status;
}

int store_cursors_read(struct dl_store *store, struct dl_error *error)
{
    struct store_cursors *now = &store->now;
    uint64_t pair[2], deleted_through = 0;
    int found;
    int status = read_max_id(store, "node", &now->nodes, error);
    if (status == DL_OK) status = read_max_id(store, "type", &now->types, error);
    if (status == DL_OK) status = read_two(store, ST_LOG_FIRST, pair, &found, error);
    if (status == DL_OK) now->log_first = pair[0];
    if (status == DL_OK) status = read_two(store, ST_LOG_LAST, pair, &found, error);
    if (status == DL_OK) now->log_next = pair[0] + pair[1];
    if (status == DL_OK) status = read_two(store, ST_ALERT_NEWEST, pair, &found, error);
    if (status == DL_OK) now->alert_last = pair[0];
    if (status == DL_OK) status = optional_u64(store, "recover_from", &now->recover_from, error);
    if (status == DL_OK)
        status = optional_u64(store, "outbox_deleted_through", &deleted_through, error);
    if (status == DL_OK) status = read_two(store, ST_OUTBOX_ENDS, pair, &found, error);
    if (status != DL_OK) return status;
    now->outbox_next = (found ? pair[1] : deleted_through) + 1;
    now->outbox_first = found ? pair[0] : now->outbox_next;
    if (now->recover_from > now->log_next || now->recover_from < now->log_first ||
        (found && pair[0] != deleted_through + 1))
        return store_corrupt(store, error, "its cursors contradict each other");
    return DL_OK;
}
