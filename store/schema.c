/* The schema, as the list of steps that lead to it. A step, once released, is
 * never changed; a new version is a new step. */
#include "store/internal.h"

static const char version_1[] =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE node(id INTEGER PRIMARY KEY, space INTEGER NOT NULL, name BLOB NOT NULL);"
    "CREATE TABLE type(id INTEGER PRIMARY KEY, name BLOB NOT NULL);"
    "CREATE TABLE edge_log(first_seq INTEGER PRIMARY KEY, count INTEGER NOT NULL,"
    " crc INTEGER NOT NULL, data BLOB NOT NULL);"
    /* id: page kind << 32 | page index */
    "CREATE TABLE checkpoint(id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, crc INTEGER NOT NULL,"
    " data BLOB NOT NULL);"
    "CREATE TABLE position(topic TEXT, partition INTEGER, next_offset INTEGER NOT NULL,"
    " PRIMARY KEY(topic, partition)) WITHOUT ROWID;"
    "CREATE TABLE outbox(seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, topic TEXT NOT NULL,"
    " key BLOB, headers BLOB, payload BLOB NOT NULL,"
    " source_topic TEXT, source_partition INTEGER, source_offset INTEGER);"
    "CREATE TABLE alert(number INTEGER PRIMARY KEY, kind INTEGER NOT NULL, raised INTEGER NOT NULL,"
    " time INTEGER NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL);"
    "CREATE TABLE blob(name TEXT PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);";

const struct store_migration store_migrations[] = {{1, version_1}};
const int store_migration_count = sizeof store_migrations / sizeof store_migrations[0];

static int read_pragma(sqlite3 *db, const char *sql, int *value)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        if (rc == SQLITE_ROW) {
            *value = sqlite3_column_int(statement, 0);
            rc = SQLITE_OK;
        } else if (rc == SQLITE_DONE) {
            rc = SQLITE_CORRUPT;
        }
    }
    sqlite3_finalize(statement);
    return rc;
}

int store_migrate(sqlite3 *db, const char *path, const struct store_migration *migrations,
                  int count, int may_write, struct dl_error *error)
{
    int version = 0, application = 0;
    int last = count > 0 ? migrations[count - 1].to_version : 0;
    int rc = read_pragma(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK) rc = read_pragma(db, "PRAGMA application_id", &application);
    int tables = 0;
    if (rc == SQLITE_OK) rc = read_pragma(db, "SELECT count(*) FROM sqlite_schema", &tables);
    if (rc != SQLITE_OK)
        return dl_error_set(error, store_status_of(rc), "store %s: cannot read its version: %s",
                            path, sqlite3_errmsg(db));
    if (application != STORE_APPLICATION_ID && (application != 0 || tables != 0))
        return dl_error_set(error, DL_ERR_VERSION,
                            "store %s: an SQLite file of another program (application id %d); "
                            "choose another store.path",
                            path, application);
    if (version > last)
        return dl_error_set(error, DL_ERR_VERSION,
                            "store %s: schema version %d is newer than this program's %d; "
                            "use the newer driftline, or another store.path",
                            path, version, last);
    if (version < last && !may_write)
        return dl_error_set(error, DL_ERR_VERSION,
                            "store %s: schema version %d, this program reads %d; %s", path, version,
                            last,
                            version == 0 ? "it was never written to by driftline"
                                         : "open it once with `driftline serve` to migrate it");
    for (int i = 0; i < count; i++) {
        if (migrations[i].to_version <= version) continue;
        char tail[128];
        sqlite3_snprintf(sizeof tail, tail,
                         "PRAGMA application_id=%d;PRAGMA user_version=%d;COMMIT",
                         STORE_APPLICATION_ID, migrations[i].to_version);
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (rc == SQLITE_OK) rc = sqlite3_exec(db, migrations[i].sql, NULL, NULL, NULL);
        if (rc == SQLITE_OK) rc = sqlite3_exec(db, tail, NULL, NULL, NULL);
        if (rc != SQLITE_OK) {
            int status = dl_error_set(error, store_status_of(rc),
                                      "store %s: cannot migrate from schema version %d to %d: %s",
                                      path, version, migrations[i].to_version, sqlite3_errmsg(db));
            if (!sqlite3_get_autocommit(db)) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
            return status;
        }
        version = migrations[i].to_version;
    }
    return DL_OK;
}
