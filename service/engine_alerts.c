/* Alerts of the batch at hand: taken from the monitors, given a number and a
 * severity, kept until they are committed and heard. */
#include "service/engine_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "proto/record_codec.h"

static struct alert_copy *new_alert(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    if (b->alert_count == b->alert_capacity) {
        uint32_t capacity = b->alert_capacity ? b->alert_capacity * 2 : 8;
        struct alert_copy *alerts = realloc(b->alerts, capacity * sizeof *alerts);
        if (!alerts) {
            dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for an alert", NULL);
            return NULL;
        }
        b->alerts = alerts;
        b->alert_capacity = capacity;
    }
    return &b->alerts[b->alert_count++];
}

/* How far beyond its bound an alert is, and whether someone must act. */
static enum dl_alert_severity severity_of(const struct dl_alert *alert)
{
    switch (alert->kind) {
    case DL_ALERT_TEMPORAL_SHIFT:
        return alert->statistic >= 2 * alert->threshold ? DL_SEVERITY_CRITICAL
                                                        : DL_SEVERITY_WARNING;
    case DL_ALERT_QUALITY_DROP:
        return alert->statistic < alert->threshold - 0.1 ? DL_SEVERITY_CRITICAL
                                                         : DL_SEVERITY_WARNING;
    case DL_ALERT_FEED_STALLED:
        return DL_SEVERITY_CRITICAL;
    case DL_ALERT_SURPRISE:
    case DL_ALERT_REFERENCE_RENEWED:
        return DL_SEVERITY_INFO;
    case DL_ALERT_ATTENTION_DISPERSION:
    case DL_ALERT_FEED_FAST:
        break;
    }
    return DL_SEVERITY_WARNING;
}

int dl_engine_is_single(enum dl_alert_kind kind)
{
    return kind == DL_ALERT_SURPRISE || kind == DL_ALERT_REFERENCE_RENEWED;
}

struct raised_search {
    enum dl_alert_kind kind;
    enum dl_alert_severity severity; /* 0: not found yet */
};

static int find_raised(void *user, const struct dl_alert_row *row)
{
    struct raised_search *search = user;
    struct dl_arena arena = {0};
    struct dl_alert alert;
    if (search->severity || row->kind != (int32_t)search->kind || !row->raised) return 0;
    if (dl_record_decode_alert(row->payload, &alert, &arena, NULL) == DL_OK)
        search->severity = alert.severity;
    dl_arena_deinit(&arena);
    return 0;
}

/* A clearing has the severity of what it clears: in this batch, or stored. */
static enum dl_alert_severity severity_cleared(struct dl_engine *engine, enum dl_alert_kind kind)
{
    const struct batch *b = &engine->batch;
    struct raised_search search = {.kind = kind};
    for (uint32_t i = b->alert_count; i-- > 0;)
        if (b->alerts[i].alert.kind == kind && b->alerts[i].alert.raised)
            return b->alerts[i].alert.severity;
    /* What cannot be read shows at the next commit; here it costs a nuance. */
    dl_store_alerts(engine->store, DL_STORE_ALERTS_KEPT, find_raised, &search, NULL);
    return search.severity ? search.severity : DL_SEVERITY_WARNING;
}

static void copy_features(struct alert_copy *copy, const struct dl_alert *alert)
{
    uint32_t count = alert->feature_count < DL_DRIFT_TOP ? alert->feature_count : DL_DRIFT_TOP;
    copy->alert.feature_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct dl_alert_feature *to = &copy->features[i];
        *to = alert->features[i];
        DL_CHECK(to->before_bins <= DL_DRIFT_BINS && to->now_bins <= DL_DRIFT_BINS);
        if (to->before_bins)
            memcpy(copy->histograms[i][0], to->before_histogram, to->before_bins * sizeof(float));
        if (to->now_bins)
            memcpy(copy->histograms[i][1], to->now_histogram, to->now_bins * sizeof(float));
    }
}

void dl_engine_on_alert(void *context, const struct dl_alert *alert)
{
    struct dl_engine *engine = context;
    if (engine->drift_muted) return;
    enum dl_alert_severity severity =
        alert->raised ? severity_of(alert) : severity_cleared(engine, alert->kind);
    struct alert_copy *copy = new_alert(engine);
    if (!copy) return;
    copy->alert = *alert;
    copy->alert.number = ++engine->alert_number;
    copy->alert.severity = severity;
    snprintf(copy->reason, sizeof copy->reason, "%s", alert->reason ? alert->reason : "");
    copy_features(copy, alert);
    copy->alert.model_version = dl_engine_version(engine);
}

void dl_engine_on_renewal(struct dl_engine *engine, const char *note)
{
    const struct dl_feed_state *feed = dl_graph_feed(engine->graph);
    char reason[DL_DRIFT_REASON_MAX];
    snprintf(reason, sizeof reason, "reference renewed %s", note);
    struct dl_alert act = {.kind = DL_ALERT_REFERENCE_RENEWED,
                           .raised = 1,
                           .time = feed->last_time,
                           .seq = feed->events ? feed->events - 1 : 0,
                           .reason = reason};
    dl_engine_on_alert(engine, &act);
}

void dl_engine_on_surprise(struct dl_engine *engine, const struct dl_score *score)
{
    double threshold = engine->config->drift.surprise_bits;
    if (threshold <= 0 || score->surprise_bits < threshold) return;
    struct alert_copy *copy = new_alert(engine);
    if (!copy) return;
    copy->alert = (struct dl_alert){.number = ++engine->alert_number,
                                    .kind = DL_ALERT_SURPRISE,
                                    .severity = DL_SEVERITY_INFO,
                                    .raised = 1,
                                    .time = score->time,
                                    .seq = score->seq,
                                    .statistic = score->surprise_bits,
                                    .threshold = threshold,
                                    .p_value = score->probability,
                                    .window = 1,
                                    .node = score->src,
                                    .model_version = score->model_version};
    snprintf(copy->reason, sizeof copy->reason,
             "an edge with %.1f bits of surprise (threshold %.1f)", score->surprise_bits,
             threshold);
}

/* Copies may have moved while the list grew: pointers are set at the end. */
void dl_engine_settle_alerts(struct dl_engine *engine, uint32_t from, const struct item *item)
{
    struct batch *b = &engine->batch;
    for (uint32_t i = from; i < b->alert_count; i++)
        if (item) dl_engine_set_position(engine, item, &b->alerts[i].alert.position);
    for (uint32_t i = 0; i < b->alert_count; i++) {
        struct alert_copy *copy = &b->alerts[i];
        copy->alert.reason = copy->reason;
        copy->alert.features = copy->features;
        for (uint32_t f = 0; f < copy->alert.feature_count; f++) {
            copy->features[f].before_histogram = copy->histograms[f][0];
            copy->features[f].now_histogram = copy->histograms[f][1];
        }
    }
}
