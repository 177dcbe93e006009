/* The engine's back: a batch becomes one transaction.
 *
 * In order: names, log, records, positions, monitors, ids, checkpoint pages; then
 * listeners hear what became durable. Where the disk is full the batch stays as
 * it is and is tried again (dl_engine_retry); meanwhile nothing is taken in. Any
 * other failure ends the engine: memory is then ahead of the file, and a restart
 * begins at the last commit. */
#include "service/engine_internal.h"

#include "base/check.h"
#include "base/clock.h"
#include "proto/record_codec.h"
#include "service/log.h"

/* ---- the transaction ------------------------------------------------------------------------ */

static int put_names(struct dl_engine *engine, struct dl_error *error)
{
    struct batch *b = &engine->batch;
    uint32_t nodes = dl_dictionary_count(engine->nodes), types = dl_dictionary_count(engine->types);
    int status = DL_OK;
    for (uint32_t id = b->first_new_node; status == DL_OK && id < nodes; id++)
        status = dl_store_add_node(engine->store, id, dl_dictionary_space(engine->nodes, id),
                                   dl_dictionary_name(engine->nodes, id), error);
    for (uint32_t id = b->first_new_type; status == DL_OK && id < types; id++)
        status = dl_store_add_type(engine->store, id, dl_dictionary_name(engine->types, id), error);
    return status;
}

static int put_positions(struct dl_engine *engine, struct dl_error *error)
{
    int status = DL_OK;
    for (uint32_t i = 0; status == DL_OK && i < engine->position_count; i++) {
        const struct position *p = &engine->positions[i];
        if (!p->dirty) continue;
        status =
            dl_store_set_position(engine->store, p->topic, p->partition, p->next_offset, error);
    }
    return status;
}

/* Commits what went well so far; whatever failed leaves no transaction open,
 * and everything in memory as it was before. */
static int end_transaction(struct dl_engine *engine, const struct saved *before, int status,
                           struct dl_error *error)
{
    if (status == DL_OK) status = dl_store_commit(engine->store, error);
    if (status == DL_OK) return DL_OK;
    dl_store_rollback_keep(engine->store, engine->graph);
    engine->saved = *before;
    return status;
}

static int write_batch(struct dl_engine *engine, struct dl_error *error)
{
    struct batch *b = &engine->batch;
    const struct saved before = engine->saved;
    struct dl_store_step step = {0};
    int status = dl_store_begin(engine->store, error);
    if (status == DL_OK && b->count) status = put_names(engine, error);
    if (status == DL_OK && b->event_count)
        status =
            dl_store_append_events(engine->store, b->first_seq, b->events, b->event_count, error);
    if (status == DL_OK) status = dl_engine_put_records(engine, error);
    if (status == DL_OK) status = put_positions(engine, error);
    if (status == DL_OK) status = dl_engine_save_monitors(engine, error);
    if (status == DL_OK) status = dl_engine_ids_save(engine, error);
    if (status == DL_OK)
        status = dl_store_checkpoint_step(engine->store, engine->graph, 0, &step, error);
    status = end_transaction(engine, &before, status, error);
    if (status != DL_OK) return status;
    for (uint32_t i = 0; i < engine->position_count; i++) engine->positions[i].dirty = 0;
    dl_engine_ids_saved(engine);
    if (step.round_ended && engine->parts.metrics)
        dl_counter_add(engine->parts.metrics->store_checkpoints_total, 1);
    return DL_OK;
}

static void tell_listeners(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    for (struct dl_backend_listener *l = engine->listeners, *next; l; l = next) {
        next = l->next;
        for (uint32_t i = 0; l->score && i < b->score_count; i++) l->score(l, &b->scores[i]);
        for (uint32_t i = 0; l->prediction && i < b->prediction_count; i++)
            l->prediction(l, &b->predictions[i]);
        for (uint32_t i = 0; l->alert && i < b->alert_count; i++) l->alert(l, &b->alerts[i].alert);
    }
}

static void count(struct dl_engine *engine, int64_t committed_ns, int64_t commit_ns)
{
    struct dl_service_metrics *m = engine->parts.metrics;
    struct batch *b = &engine->batch;
    if (!m) return;
    uint64_t candidates = 0;
    for (uint32_t i = 0; i < b->query_count; i++)
        if (!b->attention[i]) candidates += b->queries[i]->candidate_count;
    dl_counter_add(m->events_total, b->event_count);
    dl_counter_add(m->scores_total, b->score_count);
    dl_counter_add(m->predictions_total, b->prediction_count);
    dl_counter_add(m->candidates_total, candidates);
    for (uint32_t i = 0; i < b->score_count; i++)
        dl_histogram_observe(m->surprise_bits, b->scores[i].surprise_bits);
    for (uint32_t i = 0; i < b->count; i++)
        if (b->items[i].kind == ITEM_EVENT && b->items[i].received_ns > 0)
            dl_histogram_observe(m->publish_latency_seconds,
                                 (double)(committed_ns - b->items[i].received_ns) / 1e9);
    if (b->count) {
        dl_histogram_observe(m->batch_events, b->count);
        dl_histogram_observe(m->batch_duration_seconds, (double)(committed_ns - b->begun_ns) / 1e9);
        dl_histogram_observe(m->commit_duration_seconds, (double)commit_ns / 1e9);
    }
    for (uint32_t i = 0; i < b->alert_count; i++) {
        const struct dl_alert *alert = &b->alerts[i].alert;
        const char *kind = dl_alert_kind_name(alert->kind);
        if (alert->raised && alert->kind != DL_ALERT_REFERENCE_RENEWED)
            dl_counter_add(dl_metrics_counter(m->alerts_total, DL_LABELS(kind)), 1);
        if (!dl_engine_is_single(alert->kind))
            dl_gauge_set(dl_metrics_gauge(m->alert_active, DL_LABELS(kind)), alert->raised);
    }
    int64_t per_second = dl_time_unit_per_second(engine->config->source.time_unit);
    if (per_second && dl_graph_feed(engine->graph)->events)
        dl_gauge_set(m->event_time_seconds,
                     (double)dl_graph_feed(engine->graph)->last_time / (double)per_second);
}

static void log_alerts(const struct batch *b)
{
    for (uint32_t i = 0; i < b->alert_count; i++) {
        const struct dl_alert *alert = &b->alerts[i].alert;
        DL_WARN("alert", "%s %s (%s) at event %llu: %s", dl_alert_kind_name(alert->kind),
                alert->raised ? "raised" : "cleared", dl_alert_severity_name(alert->severity),
                (unsigned long long)alert->seq, alert->reason);
    }
}

static void batch_reset(struct batch *b)
{
    b->count = b->event_count = b->query_count = 0;
    b->score_count = b->prediction_count = b->alert_count = b->attention_count = 0;
    dl_buf_clear(&b->bytes);
}

/* Writes the batch that was built, and tells whom it concerns. DL_ERR_FULL: it
 * waits, and so does everything else. */
static int commit_built(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    struct dl_error error = {""};
    int64_t before_ns = dl_clock_monotonic_ns();
    int status = engine->failed ? DL_ERR_NOMEM : write_batch(engine, &error);
    int64_t now_ns = dl_clock_monotonic_ns();
    if (status == DL_ERR_FULL) {
        engine->failure = error;
        engine->waiting = 1;
        return status;
    }
    engine->waiting = 0;
    if (status != DL_OK) {
        dl_engine_fail(engine, status, "cannot store a batch", &error);
    } else {
        engine->batches_committed++;
        log_alerts(b);
        tell_listeners(engine);
        count(engine, now_ns, now_ns - before_ns);
    }
    batch_reset(b);
    return status;
}

/* Those that waited for the batch to end. */
static void after_commit(struct dl_engine *engine, int status)
{
    dl_engine_renewals(engine);
    dl_engine_forget_step(engine);
    if (status == DL_OK)
        dl_engine_ingest_committed(engine);
    else
        dl_engine_ingest_end(engine);
    if (engine->parts.progressed) engine->parts.progressed(engine->parts.context);
}

void dl_engine_commit(struct dl_engine *engine)
{
    if (!engine->failed) dl_engine_build(engine);
    int status = commit_built(engine);
    if (status != DL_ERR_FULL) after_commit(engine, status);
}

void dl_engine_retry(struct dl_engine *engine)
{
    if (!engine->waiting) return;
    int status = commit_built(engine);
    if (status != DL_ERR_FULL) after_commit(engine, status);
}

const char *dl_engine_waiting(const struct dl_engine *engine)
{
    return engine->waiting ? engine->failure.text : NULL;
}

/* ---- outside batches ---------------------------------------------------------------------------
 */

int dl_engine_delivered(struct dl_engine *engine, uint64_t seq, struct dl_error *error)
{
    return dl_store_outbox_delivered(engine->store, seq, error);
}

int dl_engine_sweep(struct dl_engine *engine, struct dl_error *error)
{
    if (engine->failed) return DL_OK;
    return dl_store_outbox_sweep(engine->store, error);
}

/* Stores and publishes what the monitors just said without an event. Where the
 * disk is full that waits as a batch does; the state in memory is changed already. */
static int publish_alerts(struct dl_engine *engine, struct dl_error *error)
{
    engine->saved.journal_events = JOURNAL_EVENTS_MAX;
    dl_engine_build(engine);
    int status = commit_built(engine);
    if (status != DL_OK)
        return dl_error_set(error, status, "%s",
                            status == DL_ERR_FULL ? dl_engine_waiting(engine)
                                                  : dl_engine_failure(engine));
    if (engine->parts.progressed) engine->parts.progressed(engine->parts.context);
    return DL_OK;
}

int dl_engine_renew_reference(struct dl_engine *engine, const char *note, struct dl_error *error)
{
    if (!engine->drift)
        return dl_error_set(
            error, DL_ERR_UNAVAILABLE,
            "there is no drift monitor: drift.enabled is off or no model is loaded");
    DL_CHECK(!dl_engine_busy(engine));
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    dl_drift_monitor_renew(engine->drift);
    dl_watch_renew(engine->watch);
    dl_engine_on_renewal(engine, note);
    if (engine->parts.metrics)
        dl_counter_add(engine->parts.metrics->drift_reference_renewals_total, 1);
    return publish_alerts(engine, error);
}

int dl_engine_stalled(struct dl_engine *engine, double seconds, struct dl_error *error)
{
    DL_CHECK(!dl_engine_busy(engine));
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    if (dl_watch_is_raised(engine->watch, DL_ALERT_FEED_STALLED)) return DL_OK;
    dl_watch_stalled(engine->watch, seconds);
    int status = publish_alerts(engine, error);
    return status == DL_ERR_FULL ? DL_OK : status;
}

int dl_engine_clear_alerts(struct dl_engine *engine, const char *reason, struct dl_error *error)
{
    if (engine->drift && dl_drift_monitor_is_raised(engine->drift))
        dl_drift_monitor_renew(engine->drift);
    dl_watch_clear(engine->watch, reason);
    return engine->batch.alert_count ? publish_alerts(engine, error) : DL_OK;
}

int dl_engine_checkpoint(struct dl_engine *engine, struct dl_error *error)
{
    DL_CHECK(!dl_engine_busy(engine));
    if (engine->failed) return dl_error_set(error, DL_ERR_IO, "%s", engine->failure.text);
    const struct saved before = engine->saved;
    int status = dl_store_begin(engine->store, error);
    if (status == DL_OK) {
        engine->saved.journal_events = JOURNAL_EVENTS_MAX;
        status = dl_engine_save_monitors(engine, error);
    }
    if (status == DL_OK)
        status = dl_store_checkpoint_all(engine->store, engine->graph, NULL, error);
    return end_transaction(engine, &before, status, error);
}
