/* Forgetting a node, or the edges between two: in the graph, the log, the
 * names, the outbox and the alerts, in one transaction, with all pages written
 * anew, so that nothing of it comes back after a restart.
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
#define IDS_MAX 2           /* the same name as source and as destination of a bipartite feed */

struct forget_job {
    struct dl_backend_job *job;
    char node[DL_NAME_BYTES_MAX], peer[DL_NAME_BYTES_MAX];
    size_t node_size, peer_size;
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

/* ---- one request -------------------------------------------------------------------------- */

static uint32_t find_ids(const struct dl_engine *engine, struct dl_slice name,
                         uint32_t ids[IDS_MAX])
{
    uint32_t count = 0;
    for (uint8_t space = 0; space < (engine->config->source.bipartite ? 2 : 1); space++)
        if (dl_dictionary_find(engine->nodes, space, name, &ids[count]) == DL_OK) count++;
    return count;
}

/* A kept destination list is part of live quality: its forgotten nodes are no negatives. */
static int forget_destination(struct dl_engine *engine, uint32_t id, struct dl_error *error)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < engine->frozen_count; i++)
        if (engine->frozen[i] != id) engine->frozen[kept++] = engine->frozen[i];
    if (kept == engine->frozen_count) return DL_OK;
    engine->frozen_count = kept;
    return dl_store_put_destinations(engine->store, engine->frozen, kept, error);
}

static int forget_node(struct dl_engine *engine, uint32_t id, uint64_t *events,
                       struct dl_error *error)
{
    uint64_t removed = 0;
    char name[32];
    int status = dl_graph_forget(engine->graph, id);
    if (status == DL_ERR_NOT_FOUND) status = DL_OK; /* a name without events in the windows */
    if (status != DL_OK) return dl_error_set(error, status, "out of memory for forgetting");
    status = dl_store_log_forget(engine->store, id, DL_STORE_ANY_NODE, &removed, error);
    *events += removed;
    if (status == DL_OK) status = forget_destination(engine, id, error);
    if (status != DL_OK) return status;
    snprintf(name, sizeof name, "forgotten-%u", id);
    if (dl_dictionary_rename(engine->nodes, id, SPACE_FORGOTTEN, dl_slice_text(name)) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    return dl_store_rename_node(engine->store, id, SPACE_FORGOTTEN, dl_slice_text(name), error);
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

static int forget_in_transaction(struct dl_engine *engine, struct dl_slice node,
                                 struct dl_slice peer, uint64_t *events, struct dl_error *error)
{
    uint32_t ids[IDS_MAX], peers[IDS_MAX];
    uint32_t count = find_ids(engine, node, ids);
    uint32_t peer_count = peer.size ? find_ids(engine, peer, peers) : 0;
    struct mentions m = {.has_peer = peer.size > 0};
    int status = DL_OK;
    mention_init(&m.node, node);
    mention_init(&m.peer, peer);
    if (m.node.protobuf.failed || m.node.json.failed || m.peer.protobuf.failed ||
        m.peer.json.failed)
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for forgetting");
    /* Names are borrowed from the request, so the dictionary may change. */
    for (uint32_t i = 0; status == DL_OK && i < count; i++) {
        if (!m.has_peer) status = forget_node(engine, ids[i], events, error);
        for (uint32_t j = 0; status == DL_OK && j < peer_count; j++) {
            uint64_t removed = 0;
            dl_graph_forget_edges(engine->graph, ids[i], peers[j]);
            status = dl_store_log_forget(engine->store, ids[i], peers[j], &removed, error);
            *events += removed;
        }
    }
    if (status == DL_OK) status = dl_store_forget_records(engine->store, names_it, &m, error);
    if (status == DL_OK && !m.has_peer) status = put_tombstones(engine, node, error);
    if (status == DL_OK)
        status = dl_store_checkpoint_all(engine->store, engine->graph, NULL, error);
    mention_deinit(&m.node);
    mention_deinit(&m.peer);
    return status;
}

static void forget_now(struct dl_engine *engine, struct dl_backend_job *job, struct dl_slice node,
                       struct dl_slice peer)
{
    struct dl_error error = {""};
    union dl_backend_result result = {.forgotten = {0}};
    uint32_t ids[IDS_MAX];
    int found = find_ids(engine, node, ids) > 0 && (!peer.size || find_ids(engine, peer, ids) > 0);
    if (!found) {
        job->done(job, DL_OK, NULL, &result);
        return;
    }
    int status = dl_store_forget_begin(engine->store, &error);
    dl_engine_encodings_forget(engine);
    if (status == DL_OK)
        status = forget_in_transaction(engine, node, peer, &result.forgotten.events, &error);
    if (status == DL_OK) status = dl_store_commit(engine->store, &error);
    if (status == DL_OK) status = dl_store_forget_end(engine->store, &error);
    if (status != DL_OK) { /* memory is ahead of the file */
        dl_store_rollback(engine->store);
        dl_engine_fail(engine, status, "cannot forget", &error);
        job->done(job, status, &error, NULL);
        return;
    }
    result.forgotten.found = peer.size ? result.forgotten.events > 0 : 1;
    DL_INFO("engine", "a node or edge was forgotten on request: %llu events",
            (unsigned long long)result.forgotten.events);
    job->done(job, DL_OK, NULL, &result);
    if (engine->parts.progressed) engine->parts.progressed(engine->parts.context);
}

void dl_engine_forgets(struct dl_engine *engine)
{
    while (engine->forget_first) {
        struct forget_job *waiting = engine->forget_first;
        struct dl_error error = {"the service could not go on"};
        engine->forget_first = waiting->next;
        if (engine->failed)
            waiting->job->done(waiting->job, DL_ERR_UNAVAILABLE, &error, NULL);
        else
            forget_now(engine, waiting->job, dl_slice_of(waiting->node, waiting->node_size),
                       dl_slice_of(waiting->peer, waiting->peer_size));
        free(waiting);
    }
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
    if (!dl_engine_busy(engine)) {
        forget_now(engine, job, request->node, request->peer);
        return DL_OK;
    }
    struct forget_job **at = &engine->forget_first;
    for (; *at; at = &(*at)->next) waiting++;
    if (waiting >= RENEWALS_MAX)
        return dl_error_set(error, DL_ERR_FULL, "%d requests to forget are waiting", RENEWALS_MAX);
    struct forget_job *copy = calloc(1, sizeof *copy);
    if (!copy) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
    copy->job = job;
    copy->node_size = request->node.size;
    copy->peer_size = request->peer.size;
    memcpy(copy->node, request->node.data, request->node.size);
    if (request->peer.size) memcpy(copy->peer, request->peer.data, request->peer.size);
    *at = copy;
    return DL_OK;
}
