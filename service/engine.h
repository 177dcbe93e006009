/* The engine: everything between a decoded event and the store's transaction.
 *
 *   offer ─> batch: ids, late policy, queries on the state before the event,
 *   (loop)   absorb into the graph, candidates and queries on the state after
 *      │
 *   scorer   workers score the copied queries          (one batch at a time)
 *      │
 *   commit ─> records, drift monitor, live quality, then one transaction: names,
 *   (loop)    log, outbox, positions, monitors, checkpoint pages; then listeners
 *
 * A batch is closed when it is full or when the source has nothing more at
 * hand. Where batches end changes no output: every score depends on the state
 * before its event alone, every prediction on the state after it.
 *
 * It reads no clock and opens no socket: time, messages and room come from its
 * caller. Without a model it takes events into the windows and the log and
 * publishes nothing but dead letters.
 *
 * Thread: all functions belong to the loop's thread. */
#ifndef DL_SERVICE_ENGINE_H
#define DL_SERVICE_ENGINE_H

#include <stdint.h>

#include "base/event.h"
#include "base/graph.h"
#include "base/record.h"
#include "base/status.h"
#include "model/model.h"
#include "proto/event_codec.h"
#include "service/backend.h"
#include "service/config.h"
#include "service/drift_monitor.h"
#include "service/metrics.h"
#include "service/quality.h"
#include "service/watch.h"
#include "service/workers.h"
#include "store/store.h"

#define DL_QUALITY_WINDOW 20000 /* events that live quality rests on */

struct dl_engine;

/* Borrowed by the engine for its life, except the model, of which it holds a
 * reference of its own. */
struct dl_engine_parts {
    const struct dl_config *config;
    struct dl_store *store;
    struct dl_workers *workers;
    struct dl_model *model;             /* NULL: none */
    struct dl_service_metrics *metrics; /* NULL: not counted */
    int publish;                        /* 1: records become outbox rows */
    /* After each commit (and when a batch failed): there may be room again, and
     * rows in the outbox. */
    void (*progressed)(void *context);
    void *context;
};

/* Whether the model reads what the configuration keeps: before a store is made.
 * DL_ERR_VERSION with the key to change. */
int dl_engine_check_model(const struct dl_config *config, const struct dl_model *model,
                          struct dl_error *error);

/* Loads the state from the store. DL_ERR_VERSION if model and store do not fit
 * each other, else as dl_store_load. */
int dl_engine_new(const struct dl_engine_parts *parts, struct dl_engine **engine,
                  struct dl_error *error);
void dl_engine_free(struct dl_engine *engine);

/* Where a message came from, and when. */
struct dl_arrival {
    const char *topic; /* "" for RPC: no position is kept */
    int32_t partition;
    int64_t offset;
    int64_t received_ns;          /* monotonic */
    int64_t wall_us;              /* wall-clock; 0: not known, then no bound on the future */
    struct dl_slice key, payload; /* as received, for dead letters and the late topic */
    int followed; /* another instance publishes what comes of it, but alerts on the feed */
    const struct dl_event_header *headers;
    uint32_t header_count;
};

/* How many messages can be offered now; 0 while a batch is being scored or waits
 * for room on the disk, while the outbox is full, or after a failure. */
uint32_t dl_engine_room(const struct dl_engine *engine);

/* The next offset of a topic's partition, or -1: none is stored. */
int64_t dl_engine_position(const struct dl_engine *engine, const char *topic, int32_t partition);

/* Readers have everything that came of the partition's messages below
 * `offset`: those change the state, and nothing is scored or published again. */
int dl_engine_published(struct dl_engine *engine, const char *topic, int32_t partition,
                        int64_t offset);

/* Whether this instance publishes the alerts on the feed (all but surprise). On
 * unless switched off. */
void dl_engine_set_alerts(struct dl_engine *engine, int on);

/* A decoded event, or a message that could not be decoded (`reason` and
 * `field` for its dead letter). There must be room. Messages at or below the
 * stored position are counted and passed. DL_OK, or DL_ERR_NOMEM, after which
 * the engine has failed. */
int dl_engine_offer(struct dl_engine *engine, const struct dl_arrival *arrival,
                    const struct dl_edge_event *event);
int dl_engine_offer_broken(struct dl_engine *engine, const struct dl_arrival *arrival,
                           const char *reason, const char *field);
/* A message that says nothing: its position moves on. */
int dl_engine_offer_nothing(struct dl_engine *engine, const struct dl_arrival *arrival);
/* Closes the batch that was begun, if any: the source has nothing more at hand. */
void dl_engine_flush(struct dl_engine *engine);
/* 1 while a batch is open or under way. */
int dl_engine_busy(const struct dl_engine *engine);

/* The reason why the engine can go no further, or NULL. */
const char *dl_engine_failure(const struct dl_engine *engine);

/* The disk is full: what the store said, or NULL. The batch under way is kept,
 * and stored by a retry when there is room again. */
const char *dl_engine_waiting(const struct dl_engine *engine);
void dl_engine_retry(struct dl_engine *engine);

/* Everything up to `seq` is delivered: it leaves the outbox with the next batch, or
 * by a sweep, which does so without one. Sweep: DL_ERR_FULL: not now. */
int dl_engine_delivered(struct dl_engine *engine, uint64_t seq, struct dl_error *error);
int dl_engine_sweep(struct dl_engine *engine, struct dl_error *error);

/* Renews the drift reference from the recent span, durably; publishes the alert
 * that it clears, and the act itself with `note` (who and why). Not while busy.
 * DL_ERR_UNAVAILABLE without a monitor; DL_ERR_FULL: it is renewed, and durable
 * when there is room on the disk again. */
int dl_engine_renew_reference(struct dl_engine *engine, const char *note, struct dl_error *error);

/* Nothing came for `seconds`, as the caller's clock says: raises the alert,
 * durably, unless it stands. The next event clears it. Not while busy. */
int dl_engine_stalled(struct dl_engine *engine, double seconds, struct dl_error *error);

/* Writes every dirty page, for a quick next start. Not while busy. */
int dl_engine_checkpoint(struct dl_engine *engine, struct dl_error *error);

/* Whether something is being forgotten, or waits for it. It moves on by a step after
 * each batch; while nothing else is to do its caller makes steps: DL_OK, DL_ERR_FULL (the
 * disk; try again later), or the engine has failed. Nothing happens while busy. */
int dl_engine_forgetting(const struct dl_engine *engine);
int dl_engine_forget_step(struct dl_engine *engine);

/* Takes another model (a new reference is taken); used from the next batch on.
 * DL_ERR_VERSION if it does not fit the store. */
int dl_engine_set_model(struct dl_engine *engine, struct dl_model *model, struct dl_error *error);

/* ---- looking at it ------------------------------------------------------------ */

const struct dl_graph *dl_engine_graph(const struct dl_engine *engine);
const struct dl_dictionary *dl_engine_nodes(const struct dl_engine *engine);
struct dl_model *dl_engine_model(const struct dl_engine *engine);         /* may be NULL */
struct dl_drift_monitor *dl_engine_drift(const struct dl_engine *engine); /* may be NULL */
struct dl_quality *dl_engine_quality(const struct dl_engine *engine);     /* may be NULL */
struct dl_watch *dl_engine_watch(const struct dl_engine *engine);

/* The context that was given with `progressed`. */
void *dl_engine_parts_context(const struct dl_engine *engine);

/* Implements backend.h. */
void dl_engine_backend(struct dl_engine *engine, struct dl_backend *backend);

#endif
