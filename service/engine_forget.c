/* Forgetting a node, or the edges between two, in steps (store.h), none of which holds
 * up an event for long.
 *
 * It begins between two batches: one small transaction notes what is to be forgotten
 * and takes its name, then it leaves the graph at once. From here on no event can name
 * it (the name would be a new node), and a restart takes it up again. The steps that
 * follow, one after each batch and more while nothing else is to do, empty the records
 * that name it, write the pages, make holes in the log, and clear what SQLite keeps of
 * the past. The answer comes when all of it is durable.
 *
 * A full disk is waited for at every step; any other failure ends the engine.
 *
 * What readers have already is theirs; predict.forget_tombstones tells compacted
 * topics. The source topic is not ours either: a store that is rebuilt from it
 * meets the node again, unless it was removed there. */
#include "service/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "proto/json_scan.h"
#include "service/log.h"

#define SPACE_FORGOTTEN 255 /* names of forgotten nodes: in no feed's namespace */
#define IDS_MAX DL_STORE_FORGET_IDS_MAX

/* What one step takes: a few milliseconds. */
enum {
    STEP_ROWS = 500,
    STEP_WINDOW_PAGES = 64,
    STEP_PAGES = 8,
    STEP_EVENTS = 65536,
    STEP_FREE_PAGES = 16
};

enum stage { BEGIN, RECORDS, WINDOWS, PAGES, LOG, FREE, END };

/* Not begun: the names are in the record, the rest of which is empty. */
struct forget_job {
    struct dl_backend_job *job; /* NULL: taken up again after a start */
    struct dl_store_forgetting record;
    enum stage stage;
    struct dl_store_forget_at at;
    struct dl_page_id *pages; /* (page_count) that were dirty when it had left the graph */
    uint32_t page_count, page_next;
    uint64_t free_steps; /* most that are made: the file is used meanwhile */
    struct forget_job *next;
};

/* ---- records that name it ---------------------------------------------------------------- */

/* A name as it stands in an encoded record. */
struct mention {
    struct dl_slice name;
    struct dl_buf protobuf; /* length and bytes, as of a string field */
    struct dl_buf json;     /* with quotes */
};

struct mentions {
    struct mention node, peer;
    int has_peer;
};

static void mention_init(struct mention *mention, struct dl_slice name)
{
    *mention = (struct mention){.name = name};
    dl_buf_varint(&mention->protobuf, name.size);
    dl_buf_append(&mention->protobuf, name.data, name.size);
    dl_json_put_string(&mention->json, name);
}

static void mention_deinit(struct mention *mention)
{
    dl_buf_free(&mention->protobuf);
    dl_buf_free(&mention->json);
}

/* Fields that hold names have the numbers 1 and 2 (src, dst, node) and 12 (an alert's node). */
static int is_name_tag(uint8_t tag)
{
    return tag == (1 << 3 | 2) || tag == (2 << 3 | 2) || tag == (12 << 3 | 2);
}

static int mentions_in(const struct mention *mention, struct dl_slice payload)
{
    struct dl_slice field = dl_buf_slice(&mention->protobuf), quoted = dl_buf_slice(&mention->json);
    if (quoted.size <= payload.size && memmem(payload.data, payload.size, quoted.data, quoted.size))
        return 1;
    for (size_t i = 1; i + field.size <= payload.size; i++)
        if (is_name_tag(payload.data[i - 1]) &&
            memcmp(payload.data + i, field.data, field.size) == 0)
            return 1;
    return 0;
}

static int names_it(void *user, int kind, struct dl_slice key, struct dl_slice payload)
{
    const struct mentions *m = user;
    int node = dl_slice_equal(key, m->node.name) || mentions_in(&m->node, payload);
    if (!m->has_peer) return node;
    return node && kind == DL_OUTBOX_SCORE &&
           (dl_slice_equal(key, m->peer.name) || mentions_in(&m->peer, payload));
}

/* ---- the beginning ------------------------------------------------------------------------- */

static struct dl_slice node_of(const struct dl_store_forgetting *record)
{
    return dl_slice_of(record->node, record->node_size);
}

static struct dl_slice peer_of(const struct dl_store_forgetting *record)
{
    return dl_slice_of(record->peer, record->peer_size);
}

static uint32_t find_ids(const struct dl_engine *engine, struct dl_slice name,
                         uint32_t ids[IDS_MAX])
{
    uint32_t count = 0;
    for (uint8_t space = 0; space < (engine->config->source.bipartite ? 2 : 1); space++)
        if (dl_dictionary_find(engine->nodes, space, name, &ids[count]) == DL_OK) count++;
    return count;
}

static size_t forgotten_name(uint32_t id, char name[32])
{
    return (size_t)snprintf(name, 32, "forgotten-%u", id);
}

static int is_forgotten(const struct dl_store_forgetting *record, uint32_t id)
{
    for (uint32_t i = 0; i < record->node_count; i++)
        if (record->nodes[i] == id) return 1;
    return 0;
}

/* A kept destination list is part of live quality: its forgotten nodes are no negatives. */
static uint32_t destinations_without(struct dl_engine *engine,
                                     const struct dl_store_forgetting *record, uint32_t *kept)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->frozen_count; i++)
        if (!is_forgotten(record, engine->frozen[i])) kept[count++] = engine->frozen[i];
    return count;
}

static int put_destinations(struct dl_engine *engine, const struct dl_store_forgetting *record,
                            struct dl_error *error)
{
    if (!engine->frozen_count) return DL_OK;
    uint32_t *kept = malloc(engine->frozen_count * sizeof *kept);
    if (!kept) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    uint32_t count = destinations_without(engine, record, kept);
    int status = count == engine->frozen_count
                     ? DL_OK
                     : dl_store_put_destinations(engine->store, kept, count, error);
    free(kept);
    return status;
}

static int put_tombstones(struct dl_engine *engine, struct dl_slice name, struct dl_error *error)
{
    const struct dl_config *config = engine->config;
    const char *topics[] = {config->predict.scores_topic, config->predict.predictions_topic,
                            config->predict.alerts_topic};
    int status = DL_OK;
    if (!config->predict.forget_tombstones || !engine->parts.publish) return DL_OK;
    for (int i = 0; status == DL_OK && i < 3; i++) {
        struct dl_outbox_row row = {.kind = DL_OUTBOX_TOMBSTONE, .topic = topics[i], .key = name};
        if (topics[i][0]) status = dl_store_outbox_append(engine->store, &row, NULL, error);
    }
    return status;
}

static int put_beginning(struct dl_engine *engine, const struct dl_store_forgetting *record,
                         struct dl_error *error)
{
    char name[32];
    /* The feed's page is no older than any from which the node has gone: a recovery that
     * replayed older events into it would miss what the node's own page tells of them. */
    const struct dl_page_id feed = {.kind = DL_PAGE_FEED};
    int status = dl_store_checkpoint_pages(engine->store, engine->graph, &feed, 1, error);
    if (status == DL_OK) status = dl_store_forget_put(engine->store, record, error);
    if (record->has_peer) return status;
    for (uint32_t i = 0; status == DL_OK && i < record->node_count; i++) {
        size_t size = forgotten_name(record->nodes[i], name);
        status = dl_store_rename_node(engine->store, record->nodes[i], SPACE_FORGOTTEN,
                                      dl_slice_of(name, size), error);
    }
    if (status == DL_OK) status = put_destinations(engine, record, error);
    if (status == DL_OK) status = put_tombstones(engine, node_of(record), error);
    return status;
}

/* Memory follows what the file holds. */
static int leave_memory(struct dl_engine *engine, const struct dl_store_forgetting *record,
                        struct dl_error *error)
{
    char name[32];
    dl_store_forget_graph(record, engine->graph);
    dl_engine_encodings_forget(engine);
    for (uint32_t i = 0; !record->has_peer && i < record->node_count; i++) {
        size_t size = forgotten_name(record->nodes[i], name);
        if (dl_dictionary_rename(engine->nodes, record->nodes[i], SPACE_FORGOTTEN,
                                 dl_slice_of(name, size)) != DL_OK)
            return dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    }
    if (!record->has_peer && engine->frozen_count)
        engine->frozen_count = destinations_without(engine, record, engine->frozen);
    return DL_OK;
}

static int begin(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    struct dl_store_forgetting *record = &job->record;
    uint64_t first;
    record->node_count = find_ids(engine, node_of(record), record->nodes);
    if (record->has_peer) record->peer_count = find_ids(engine, peer_of(record), record->peers);
    if (record->node_count == 0 || (record->has_peer && record->peer_count == 0)) {
        record->node_count = record->peer_count = 0;
        job->stage = END;
        return DL_OK;
    }
    record->before_seq = dl_graph_feed(engine->graph)->events;
    record->alert_end = dl_store_alert_last(engine->store) + 1;
    dl_store_outbox_range(engine->store, &first, &record->outbox_end);
    int status = dl_store_forget_secure(engine->store, error);
    if (status == DL_OK) status = dl_store_begin(engine->store, error);
    if (status == DL_OK) status = put_beginning(engine, record, error);
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status != DL_OK) return status;
    job->stage = RECORDS;
    return leave_memory(engine, record, error);
}

/* ---- the steps ------------------------------------------------------------------------------ */

static int forget_records(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    struct dl_store_forgetting done = job->record;
    struct mentions m = {.has_peer = done.has_peer};
    int more = 0;
    mention_init(&m.node, node_of(&job->record));
    mention_init(&m.peer, peer_of(&job->record));
    int status =
        m.node.protobuf.failed || m.node.json.failed || m.peer.protobuf.failed || m.peer.json.failed
            ? dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting")
            : DL_OK;
    struct dl_store_forget_at at = job->at;
    if (status == DL_OK)
        status = dl_store_forget_records(engine->store, &done, &at, STEP_ROWS, names_it, &m, &more,
                                         error);
    mention_deinit(&m.node);
    mention_deinit(&m.peer);
    /* The record is the last that names it. */
    memset(done.node, 0, sizeof done.node);
    memset(done.peer, 0, sizeof done.peer);
    done.node_size = done.peer_size = 0;
    if (status == DL_OK && !more) status = dl_store_forget_put(engine->store, &done, error);
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status != DL_OK) return status;
    job->at = at;
    if (more) return DL_OK;
    job->record = done;
    job->stage = WINDOWS;
    return DL_OK;
}

/* All pages that may hold more than they should. */
static int list_pages(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    job->page_count = dl_graph_pages_dirty(engine->graph);
    job->pages = malloc((job->page_count ? job->page_count : 1) * sizeof *job->pages);
    if (!job->pages) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    dl_graph_pages_dirty_list(engine->graph, job->pages);
    return DL_OK;
}

static int sweep_windows(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    if (dl_graph_forget_step(engine->graph, STEP_WINDOW_PAGES)) return DL_OK;
    job->stage = PAGES;
    return list_pages(engine, job, error);
}

static int write_pages(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    uint32_t left = job->page_count - job->page_next;
    uint32_t count = left < STEP_PAGES ? left : STEP_PAGES;
    int status = dl_store_checkpoint_pages(engine->store, engine->graph,
                                           job->pages + job->page_next, count, error);
    if (status == DL_OK && count == left)
        status = dl_store_checkpoint_reached(engine->store, job->record.before_seq, error);
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status != DL_OK) return status;
    job->page_next += count;
    if (count == left) job->stage = LOG;
    return DL_OK;
}

static int forget_log(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    struct dl_store_forgetting after = job->record;
    int more = 0;
    int status = dl_store_forget_log(engine->store, &after, STEP_EVENTS, &more, error);
    if (status == DL_OK && after.events != job->record.events)
        status = dl_store_forget_put(engine->store, &after, error);
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status != DL_OK) return status;
    job->record = after;
    if (!more) job->stage = FREE;
    return DL_OK;
}

static int free_pages(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    uint64_t left = 0;
    int status = dl_store_forget_free(engine->store, STEP_FREE_PAGES, &left, error);
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status != DL_OK) return status;
    if (!job->free_steps) job->free_steps = left / STEP_FREE_PAGES + 2;
    if (left == 0 || --job->free_steps == 0) job->stage = END;
    return DL_OK;
}

static int end(struct dl_engine *engine, const struct forget_job *job, struct dl_error *error)
{
    if (job->record.node_count == 0) return DL_OK; /* there was nothing to forget */
    int status = dl_store_forget_fold(engine->store, error);
    return status == DL_OK ? dl_store_forget_done(engine->store, error) : status;
}

static void job_free(struct forget_job *job)
{
    free(job->pages);
    free(job);
}

static struct forget_job *take_first(struct dl_engine *engine)
{
    struct forget_job *job = engine->forget_first;
    engine->forget_first = job->next;
    return job;
}

static void answer(struct dl_engine *engine)
{
    struct forget_job *job = take_first(engine);
    const struct dl_store_forgetting *record = &job->record;
    union dl_backend_result result = {.forgotten = {.events = record->events}};
    result.forgotten.found = record->has_peer ? record->events > 0 : record->node_count > 0;
    if (record->node_count)
        DL_INFO("engine", "a node or edge is forgotten as asked: %llu events",
                (unsigned long long)record->events);
    if (job->job) job->job->done(job->job, DL_OK, NULL, &result);
    job_free(job);
}

static int step(struct dl_engine *engine, struct forget_job *job, struct dl_error *error)
{
    int status;
    if (job->stage == BEGIN || job->stage == END) {
        int last = job->stage == END;
        status = last ? end(engine, job, error) : begin(engine, job, error);
        if (status == DL_OK && last) answer(engine);
    } else if (job->stage == WINDOWS) {
        status = sweep_windows(engine, job, error);
    } else {
        status = dl_store_begin(engine->store, error);
        if (status == DL_OK && job->stage == RECORDS)
            status = forget_records(engine, job, error);
        else if (status == DL_OK && job->stage == PAGES)
            status = write_pages(engine, job, error);
        else if (status == DL_OK && job->stage == LOG)
            status = forget_log(engine, job, error);
        else if (status == DL_OK)
            status = free_pages(engine, job, error);
    }
    if (status != DL_OK) dl_store_rollback_keep(engine->store, engine->graph);
    return status;
}

/* ---- from outside -----------------------------------------------------------------------------
 */

static void refuse_all(struct dl_engine *engine)
{
    struct dl_error error = {"the service could not go on"};
    while (engine->forget_first) {
        struct forget_job *job = take_first(engine);
        if (job->job) job->job->done(job->job, DL_ERR_UNAVAILABLE, &error, NULL);
        job_free(job);
    }
}

int dl_engine_forgetting(const struct dl_engine *engine)
{
    return engine->forget_first != NULL;
}

int dl_engine_forget_step(struct dl_engine *engine)
{
    struct dl_error error = {""};
    if (engine->failed) refuse_all(engine);
    if (!engine->forget_first || dl_engine_busy(engine)) return DL_OK;
    int status = step(engine, engine->forget_first, &error);
    if (status == DL_ERR_FULL) {
        if (!engine->forget_waits) DL_ERROR("store", "%s; forgetting waits for it", error.text);
    } else if (status != DL_OK) { /* a restart takes it up again */
        dl_engine_fail(engine, status, "cannot forget", &error);
        refuse_all(engine);
    }
    engine->forget_waits = status == DL_ERR_FULL;
    return status;
}

int dl_engine_forget_load(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_store_forgetting record;
    int status = dl_store_forget_get(engine->store, &record, error);
    if (status == DL_ERR_NOT_FOUND) return DL_OK;
    if (status != DL_OK) return status;
    struct forget_job *job = calloc(1, sizeof *job);
    if (!job) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    job->record = record;
    job->stage = record.node_size ? RECORDS : WINDOWS;
    engine->forget_first = job;
    DL_INFO("engine", "forgetting goes on that was begun before the start");
    return dl_store_forget_secure(engine->store, error);
}

int dl_engine_forget(void *context, const struct dl_backend_forget_request *request,
                     struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    uint32_t waiting = 0;
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    if (request->node.size > DL_NAME_BYTES_MAX || request->peer.size > DL_NAME_BYTES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "a name has at most %d bytes",
                            DL_NAME_BYTES_MAX);
    struct forget_job **at = &engine->forget_first;
    for (; *at; at = &(*at)->next) waiting++;
    if (waiting >= RENEWALS_MAX)
        return dl_error_set(error, DL_ERR_FULL, "%d requests to forget are waiting", RENEWALS_MAX);
    struct forget_job *copy = calloc(1, sizeof *copy);
    if (!copy) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
    copy->job = job;
    copy->record.has_peer = request->peer.size > 0;
    copy->record.node_size = (uint32_t)request->node.size;
    copy->record.peer_size = (uint32_t)request->peer.size;
    memcpy(copy->record.node, request->node.data, request->node.size);
    if (request->peer.size) memcpy(copy->record.peer, request->peer.data, request->peer.size);
    *at = copy;
    dl_engine_forget_step(engine);
    if (engine->parts.progressed) engine->parts.progressed(engine->parts.context);
    return DL_OK;
}
