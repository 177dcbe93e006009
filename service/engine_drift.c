/* What RPC and HTTP ask about drift (backend.h): the statistic, what moved, live
 * quality, the alert history, and renewals of the reference. */
#include "service/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "proto/record_codec.h"
#include "proto/text.h"

static void fill_quality(struct dl_engine *engine, struct dl_backend_quality *quality)
{
    const struct dl_model_info *info = dl_model_get_info(engine->model);
    struct dl_quality_figures all, recent;
    dl_quality_figures(engine->quality, &all);
    dl_quality_figures_recent(engine->quality, &recent);
    *quality = (struct dl_backend_quality){.pairs = all.events,
                                           .ap = all.ap,
                                           .auc = all.auc,
                                           .mrr = all.mrr,
                                           .recent_pairs = recent.events,
                                           .recent_ap = recent.ap,
                                           .recent_auc = recent.auc,
                                           .recent_mrr = recent.mrr,
                                           .trained_ap = info->validation_ap,
                                           .trained_auc = info->validation_auc,
                                           .trained_mrr = info->validation_mrr};
}

static int by_share(const void *a, const void *b)
{
    double x = ((const struct dl_alert_feature *)a)->share;
    double y = ((const struct dl_alert_feature *)b)->share;
    return x > y ? -1 : x < y;
}

static const char *why_not_ready(const struct dl_drift_snapshot *s)
{
    if (s->state == DL_DRIFT_FILLING) return "the window is not full yet";
    if (s->state == DL_DRIFT_LEARNING) return "a new reference is being collected";
    if (s->state == DL_DRIFT_SETTLING)
        return "the windows are younger than the reference's were: nothing is raised yet";
    return "";
}

/* The stored alerts, decoded into an arena. */
struct alert_list {
    struct dl_arena arena;
    uint32_t count, max;
    struct dl_alert *alerts; /* newest first */
};

static int take_alert(void *user, const struct dl_alert_row *row)
{
    struct alert_list *list = user;
    uint8_t *bytes = dl_arena_take(&list->arena, row->payload.size);
    if (!bytes) return DL_ERR_NOMEM;
    memcpy(bytes, row->payload.data, row->payload.size);
    int status = dl_record_decode_alert(dl_slice_of(bytes, row->payload.size),
                                        &list->alerts[list->count], &list->arena, NULL);
    if (status == DL_OK) list->count++;
    return status;
}

static int read_alerts(struct dl_engine *engine, struct alert_list *list, struct dl_error *error)
{
    list->alerts = dl_arena_take(&list->arena, list->max * sizeof *list->alerts);
    if (!list->alerts) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the alerts");
    return dl_store_alerts(engine->store, list->max, take_alert, list, error);
}

/* What get_drift lends out for one call. */
struct drift_answer {
    struct dl_drift_snapshot snapshot;
    struct dl_backend_quality quality;
    struct dl_alert_feature features[DL_DRIFT_COLUMNS];
    float histograms[DL_DRIFT_COLUMNS][2][DL_DRIFT_BINS];
    struct alert_list alerts;
};

static void fill_features(struct drift_answer *answer, struct dl_backend_drift *d)
{
    const struct dl_drift_snapshot *s = &answer->snapshot;
    for (uint32_t i = 0; i < s->feature_count && i < DL_DRIFT_COLUMNS; i++) {
        const struct dl_drift_feature_view *view = &s->features[i];
        if (!view->used) continue;
        float(*histograms)[DL_DRIFT_BINS] = answer->histograms[d->feature_count];
        const double reach = (double)DL_DRIFT_CLIP * view->sd;
        dl_drift_shares(view->before, histograms[0]);
        dl_drift_shares(view->now, histograms[1]);
        answer->features[d->feature_count++] =
            (struct dl_alert_feature){.name = view->name,
                                      .share = view->share,
                                      .before = view->before_mean,
                                      .now = view->now_mean,
                                      .low = view->mean - reach,
                                      .high = view->mean + reach,
                                      .before_bins = DL_DRIFT_BINS,
                                      .now_bins = DL_DRIFT_BINS,
                                      .before_histogram = histograms[0],
                                      .now_histogram = histograms[1]};
    }
    qsort(answer->features, d->feature_count, sizeof *answer->features, by_share);
    d->features = answer->features;
}

static void fill_drift(struct dl_engine *engine, struct drift_answer *answer,
                       struct dl_backend_drift *d)
{
    struct dl_drift_snapshot *s = &answer->snapshot;
    dl_drift_monitor_snapshot(engine->drift, s);
    d->reason = why_not_ready(s);
    d->ready = d->reason[0] == '\0';
    d->statistic = s->statistic;
    d->threshold = s->threshold;
    d->p_value = s->p_value;
    d->window = s->window;
    d->reference_size = s->reference_rows;
    d->alert_raised = dl_drift_monitor_is_raised(engine->drift);
    d->reference_origin = s->reference_origin;
    d->warning = s->warning;
    d->run_length_asked = s->run_length_asked;
    d->run_length_achieved = s->run_length_achieved;
    fill_features(answer, d);
}

int dl_engine_get_drift(void *context, const struct dl_backend_drift_request *request,
                        struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    struct drift_answer *answer = calloc(1, sizeof *answer);
    if (!answer) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the drift figures");
    union dl_backend_result result = {
        .drift = {.reason = "drift.enabled is off, or no model is loaded",
                  .warning = "",
                  .reference_origin = "",
                  .seq = dl_graph_feed(engine->graph)->events,
                  .time = dl_graph_feed(engine->graph)->last_time,
                  .time_unit = engine->config->source.time_unit}};
    struct dl_backend_drift *d = &result.drift;
    answer->alerts.max = request->alerts_max;
    int status = read_alerts(engine, &answer->alerts, error);
    if (status == DL_OK) {
        d->alert_count = answer->alerts.count;
        d->alerts = answer->alerts.alerts;
        if (engine->quality) {
            fill_quality(engine, &answer->quality);
            d->quality = &answer->quality;
        }
        if (engine->drift) fill_drift(engine, answer, d);
        job->done(job, DL_OK, NULL, &result);
    }
    dl_arena_deinit(&answer->alerts.arena);
    free(answer);
    return status;
}

/* The engine is not busy. */
static void renew_now(struct dl_engine *engine, const struct renewal *renewal)
{
    struct dl_backend_job *job = renewal->job;
    struct dl_error error = {""};
    int raised = engine->drift && dl_drift_monitor_is_raised(engine->drift);
    struct dl_drift_snapshot *s = calloc(1, sizeof *s);
    int status = s ? dl_engine_renew_reference(engine, renewal->note, &error)
                   : dl_error_set(&error, DL_ERR_NOMEM, "out of memory for the drift figures");
    if (status != DL_OK) {
        job->done(job, status, &error, NULL);
    } else {
        dl_drift_monitor_snapshot(engine->drift, s);
        union dl_backend_result result = {
            .renewed = {.reference_size =
                            s->state == DL_DRIFT_LEARNING ? s->learning_rows : s->reference_rows,
                        .reference_seq = dl_graph_feed(engine->graph)->events,
                        .alert_cleared = raised}};
        job->done(job, DL_OK, NULL, &result);
    }
    free(s);
}

void dl_engine_renewals(struct dl_engine *engine)
{
    while (engine->renewal_count) {
        struct renewal renewal = engine->renewals[--engine->renewal_count];
        renew_now(engine, &renewal);
    }
}

/* "by http 127.0.0.1 at 2026-12-01T09:30:00Z: a new tariff". What people wrote
 * stays one printable line. */
static void write_note(const struct dl_backend_renew_request *request, struct renewal *renewal)
{
    char now[40];
    dl_time_format(dl_clock_wall_us() / 1000000, DL_TIME_S, now);
    size_t used = (size_t)snprintf(renewal->note, sizeof renewal->note, "by %.70s at %.24s%s",
                                   request->by ? request->by : "unknown", now,
                                   request->reason.size ? ": " : "");
    for (size_t i = 0; i < request->reason.size && used + 1 < sizeof renewal->note; i++) {
        uint8_t byte = request->reason.data[i];
        renewal->note[used++] = (char)(byte < 0x20 || byte == 0x7f ? ' ' : byte);
    }
    renewal->note[used] = '\0';
}

int dl_engine_ask_renewal(void *context, const struct dl_backend_renew_request *request,
                          struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    struct renewal renewal = {.job = job};
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    if (!engine->drift)
        return dl_error_set(
            error, DL_ERR_UNAVAILABLE,
            "there is no drift monitor: drift.enabled is off or no model is loaded");
    if (request->reason.size > DL_BACKEND_REASON_BYTES_MAX || !dl_text_utf8_valid(request->reason))
        return dl_error_set(error, DL_ERR_INVALID, "reason takes at most %d bytes of UTF-8",
                            DL_BACKEND_REASON_BYTES_MAX);
    write_note(request, &renewal);
    if (!dl_engine_busy(engine)) {
        renew_now(engine, &renewal);
        return DL_OK;
    }
    if (engine->renewal_count >= RENEWALS_MAX)
        return dl_error_set(error, DL_ERR_FULL, "%d renewals are waiting", RENEWALS_MAX);
    engine->renewals[engine->renewal_count++] = renewal;
    return DL_OK;
}
