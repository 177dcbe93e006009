/* From the file to memory: dictionaries, pages, the log's tail. And names
 * going the other way, which are rows of the same tables. */
#include "store/internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- names ----------------------------------------------------------------- */

static int add_name(struct dl_store *store, enum store_statement which, uint32_t *count,
                    uint32_t id, uint8_t space, struct dl_slice name, size_t bytes_max,
                    const char *what, struct dl_error *error)
{
    int status = store_writable(store, what, error);
    if (status != DL_OK) return status;
    if (id != *count || name.size > bytes_max)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot %s %u of %zu bytes: the next id is %u and a name "
                            "has at most %zu bytes",
                            store->path, what, id, name.size, *count, bytes_max);
    sqlite3_stmt *statement = store_statement(store, which, what, &status, error);
    if (!statement) return status;
    int rc = sqlite3_bind_int64(statement, 1, id);
    if (rc == SQLITE_OK && which == ST_NODE_ADD) rc = sqlite3_bind_int(statement, 2, space);
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 3, name);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, statement, what, error);
    if (status == DL_OK) ++*count;
    return status;
}

int dl_store_add_node(struct dl_store *store, uint32_t id, uint8_t space, struct dl_slice name,
                      struct dl_error *error)
{
    return add_name(store, ST_NODE_ADD, &store->now.nodes, id, space, name, DL_NAME_BYTES_MAX,
                    "add node", error);
}

int dl_store_add_type(struct dl_store *store, uint32_t id, struct dl_slice name,
                      struct dl_error *error)
{
    return add_name(store, ST_TYPE_ADD, &store->now.types, id, 0, name, DL_TYPE_BYTES_MAX,
                    "add type", error);
}

static int load_names(struct dl_store *store, enum store_statement which,
                      struct dl_dictionary *names, uint64_t *count, struct dl_error *error)
{
    const char *table = which == ST_NODE_ALL ? "node" : "type";
    const char *what = "read its names";
    int status = DL_OK, rc;
    sqlite3_stmt *statement = store_statement(store, which, what, &status, error);
    if (!statement) return status;
    *count = 0;
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        sqlite3_int64 row = sqlite3_column_int64(statement, 0);
        sqlite3_int64 space = sqlite3_column_int64(statement, 1);
        struct dl_slice name = store_column_slice(statement, 2);
        uint32_t id = 0;
        int added = 0;
        if (space < 0 || space > UINT8_MAX || name.size > DL_NAME_BYTES_MAX) {
            status = store_corrupt(store, error, "table %s row %lld is out of range", table,
                                   (long long)row);
            break;
        }
        status = dl_dictionary_intern(names, (uint8_t)space, name, &id, &added);
        if (status == DL_ERR_NOMEM)
            store_error(store, SQLITE_NOMEM, what, error);
        else if (status != DL_OK)
            dl_error_set(error, status,
                         "store %.200s: more names in table %s than the limit of "
                         "%" PRIu64 "; raise it",
                         store->path, table, *count);
        else if (!added || id != row)
            status = store_corrupt(store, error, "table %s row %lld is out of order or twice there",
                                   table, (long long)row);
        ++*count;
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    return status;
}

int dl_store_load_names(struct dl_store *store, struct dl_dictionary *nodes,
                        struct dl_dictionary *types, struct dl_error *error)
{
    uint64_t count;
    int status = load_names(store, ST_NODE_ALL, nodes, &count, error);
    if (status == DL_OK) status = load_names(store, ST_TYPE_ALL, types, &count, error);
    return status;
}

/* ---- pages and log ----------------------------------------------------------- */

static int load_pages(struct dl_store *store, struct dl_graph *graph,
                      struct dl_store_recovery *recovery, struct dl_error *error)
{
    const char *what = "read its checkpoint";
    int status = DL_OK, rc;
    sqlite3_stmt *statement = store_statement(store, ST_PAGE_ALL, what, &status, error);
    if (!statement) return status;
    while (status == DL_OK && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        uint64_t id = (uint64_t)sqlite3_column_int64(statement, 0);
        uint64_t seq = (uint64_t)sqlite3_column_int64(statement, 1);
        struct dl_slice data = store_column_slice(statement, 3);
        struct dl_page_id page = {(uint8_t)(id >> 32), (uint32_t)id};
        if (!data.data && sqlite3_errcode(store->db) == SQLITE_NOMEM) {
            status = store_error(store, SQLITE_NOMEM, what, error);
        } else if (id >> 40 != 0 ||
                   store_checksum(id, seq, data) != (int32_t)sqlite3_column_int64(statement, 2)) {
            status = store_corrupt(store, error,
                                   "checkpoint page %" PRIu64 " does not match its checksum", id);
        } else {
            status = dl_graph_page_read(graph, page, data, error);
            if (status != DL_OK) dl_error_wrap(error, status, "store %.200s", store->path);
        }
        recovery->pages++;
        recovery->page_bytes += data.size;
    }
    if (status == DL_OK && rc != SQLITE_DONE) status = store_error(store, rc, what, error);
    sqlite3_reset(statement);
    return status;
}

enum { REPLAY_BATCH = 1024 };

/* Events are gathered, because replaying many at a time is faster. */
struct replay {
    struct dl_graph *graph;
    uint32_t nodes, feature_count;
    uint64_t replayed, first_seq;
    uint32_t count;
    struct dl_event events[REPLAY_BATCH];
    float *features;                              /* (REPLAY_BATCH, feature_count) */
    const struct dl_store_forgetting *forgetting; /* still to come, or NULL */
    struct dl_error *error;
};

static int replay_gathered(struct replay *replay)
{
    uint32_t count = replay->count;
    replay->count = 0;
    replay->replayed += count;
    return dl_graph_replay_many(replay->graph, replay->events, count, replay->first_seq,
                                replay->error);
}

/* What was being forgotten, where it came among the events. */
static int replay_forgetting(struct replay *replay)
{
    int status = replay_gathered(replay);
    if (replay->forgetting) dl_store_forget_graph(replay->forgetting, replay->graph);
    replay->forgetting = NULL;
    return status;
}

static int replay_event(void *user, uint64_t seq, const struct dl_event *event)
{
    struct replay *replay = user;
    if (event->src >= replay->nodes || event->dst >= replay->nodes)
        return dl_error_set(replay->error, DL_ERR_CORRUPT,
                            "event %" PRIu64 " of the log names node %u, and only %u have names",
                            seq, event->src > event->dst ? event->src : event->dst, replay->nodes);
    if (replay->forgetting && seq >= replay->forgetting->before_seq) {
        int status = replay_forgetting(replay);
        if (status != DL_OK) return status;
    }
    /* A forgotten event leaves a hole in the numbers. */
    if (replay->count > 0 &&
        (replay->count == REPLAY_BATCH || seq != replay->first_seq + replay->count)) {
        int status = replay_gathered(replay);
        if (status != DL_OK) return status;
    }
    if (replay->count == 0) replay->first_seq = seq;
    struct dl_event *kept = &replay->events[replay->count];
    *kept = *event;
    if (event->features) {
        float *features = replay->features + (size_t)replay->count * replay->feature_count;
        memcpy(features, event->features, replay->feature_count * sizeof *features);
        kept->features = features;
    }
    replay->count++;
    return DL_OK;
}

static int replay_log(struct dl_store *store, struct dl_graph *graph, uint32_t nodes,
                      struct dl_store_recovery *recovery, struct dl_error *error)
{
    uint32_t feature_count = store->config.feature_count;
    struct replay *replay = calloc(1, sizeof *replay);
    float *features = calloc((size_t)REPLAY_BATCH * (feature_count + 1), sizeof *features);
    struct dl_store_forgetting forgetting;
    int status = dl_store_forget_get(store, &forgetting, error);
    int pending = status == DL_OK;
    if (status == DL_ERR_NOT_FOUND) status = DL_OK;
    if (status != DL_OK) {
        /* as it says */
    } else if (!replay || !features) {
        status = store_error(store, SQLITE_NOMEM, "load it", error);
    } else {
        *replay = (struct replay){.graph = graph,
                                  .nodes = nodes,
                                  .feature_count = feature_count,
                                  .features = features,
                                  .forgetting = pending ? &forgetting : NULL,
                                  .error = error};
        status = dl_store_log_read(store, recovery->replay_from, replay_event, replay, error);
        if (status == DL_OK) status = replay_forgetting(replay);
        recovery->replayed = replay->replayed;
    }
    free(features);
    free(replay);
    return status;
}

int dl_store_load(struct dl_store *store, struct dl_graph *graph, struct dl_dictionary *nodes,
                  struct dl_dictionary *types, struct dl_store_recovery *recovery,
                  struct dl_error *error)
{
    struct dl_store_recovery r = {0};
    int64_t start_ns = dl_clock_monotonic_ns();
    const struct dl_graph_config *config = dl_graph_get_config(graph);
    if (store->in_transaction || dl_graph_feed(graph)->events != 0 ||
        dl_dictionary_count(nodes) != 0 || dl_dictionary_count(types) != 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot load: a transaction is open, or the graph or a "
                            "dictionary is not empty",
                            store->path);
    if (config->window != store->config.window ||
        config->feature_count != store->config.feature_count)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot load into a graph of window %u and %u features; "
                            "the store has %u and %u",
                            store->path, config->window, config->feature_count,
                            store->config.window, store->config.feature_count);
    int status = load_names(store, ST_NODE_ALL, nodes, &r.nodes, error);
    if (status == DL_OK) status = load_names(store, ST_TYPE_ALL, types, &r.types, error);
    if (status == DL_OK) status = load_pages(store, graph, &r, error);
    r.replay_from = store->now.recover_from;
    if (status == DL_OK) status = replay_log(store, graph, dl_dictionary_count(nodes), &r, error);
    if (status == DL_OK && dl_graph_replay_end(graph) != DL_OK)
        status = store_error(store, SQLITE_NOMEM, "load it", error);
    r.events = dl_graph_feed(graph)->events;
    if (status == DL_OK && r.events != store->now.log_next)
        status =
            store_corrupt(store, error, "the log ends at event %" PRIu64 ", the state at %" PRIu64,
                          store->now.log_next, r.events);
    r.elapsed_ns = (uint64_t)(dl_clock_monotonic_ns() - start_ns);
    if (status == DL_OK) {
        store->graph_stale = 0;
        store->round = (struct store_round){.step_events = r.events};
    }
    if (recovery) *recovery = r;
    return status;
}
