/* A scored batch becomes records, in two steps: dl_engine_build makes them and
 * feeds the monitors, event by event and once; dl_engine_put_records turns them
 * into rows of the store, as often as the transaction is tried. */
#include "service/engine_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "proto/record_codec.h"
#include "service/log.h"

#define DEAD_LETTER_PAYLOAD_MAX 1040000 /* below a broker's usual message.max.bytes */

/* ---- records ------------------------------------------------------------------------ */

static struct dl_slice name_of(const struct dl_engine *engine, uint32_t node)
{
    return dl_dictionary_name(engine->nodes, node);
}

void dl_engine_set_position(const struct dl_engine *engine, const struct item *item,
                            struct dl_position *position)
{
    *position = (struct dl_position){.offset = item->offset};
    if (item->position == UINT32_MAX) return;
    const struct position *p = &engine->positions[item->position];
    memcpy(position->topic, p->topic, sizeof position->topic);
    position->partition = p->partition;
}

struct dl_slice dl_engine_version(const struct dl_engine *engine)
{
    /* A feed can stall without a model as well. */
    return dl_slice_text(engine->model ? dl_model_get_info(engine->model)->version : "");
}

static void build_score(struct dl_engine *engine, const struct item *item)
{
    struct batch *b = &engine->batch;
    const struct dl_query *query = b->queries[item->score_query];
    const float *logits = b->logits[item->score_query];
    struct dl_score *score = &b->scores[b->score_count++];
    double p = dl_model_probability(engine->model, logits[0]);
    *score = (struct dl_score){.src = name_of(engine, item->event.src),
                               .dst = name_of(engine, item->event.dst),
                               .time = item->event.time,
                               .seq = item->seq,
                               .probability = p,
                               .surprise_bits = -log2(p > 1e-300 ? p : 1e-300),
                               .src_history = item->src_history,
                               .dst_history = item->dst_history,
                               .pair_history = item->pair_history,
                               .id = dl_slice_of(b->bytes.data + item->id_at, item->id_size),
                               .model_version = dl_engine_version(engine)};
    dl_engine_set_position(engine, item, &score->position);
    if (item->negatives == 0) return;
    uint32_t above = 0, tied = 0;
    for (uint32_t k = 1; k <= item->negatives; k++) {
        above += logits[k] > logits[0];
        tied += logits[k] == logits[0];
    }
    score->has_negative = 1;
    score->negative = name_of(engine, query->candidates[1].node);
    score->negative_probability = dl_model_probability(engine->model, logits[1]);
    score->rank_times_2 = 2 + 2 * above + tied;
    score->negatives = item->negatives;
    dl_quality_observe(engine->quality, (float)p, (float)score->negative_probability,
                       score->rank_times_2);
}

static void build_prediction(struct dl_engine *engine, const struct item *item,
                             const struct pending_prediction *pending)
{
    struct batch *b = &engine->batch;
    const struct dl_query *query = b->queries[pending->query];
    struct dl_prediction *prediction = &b->predictions[b->prediction_count];
    uint32_t top_k = (uint32_t)engine->config->predict.top_k;
    struct dl_candidate *best = b->candidates + (size_t)b->prediction_count * top_k;
    b->prediction_count++;
    *prediction = (struct dl_prediction){.node = name_of(engine, pending->node),
                                         .time = item->event.time,
                                         .seq = item->seq,
                                         .history = pending->history,
                                         .scored = query->candidate_count,
                                         .candidates = best,
                                         .model_version = dl_engine_version(engine)};
    uint32_t places[DL_ENGINE_TOP_MAX];
    prediction->candidate_count =
        dl_engine_rank(engine, engine->model, query, b->logits[pending->query],
                       b->bytes.data + pending->origins_at, top_k, best, places);
    dl_engine_set_position(engine, item, &prediction->position);
}

uint32_t dl_engine_rank(const struct dl_engine *engine, const struct dl_model *model,
                        const struct dl_query *query, const float *logits, const uint8_t *origins,
                        uint32_t top_k, struct dl_candidate *best, uint32_t *places)
{
    uint32_t kept = 0;
    DL_CHECK(top_k <= DL_ENGINE_TOP_MAX);
    /* The odds are likelihood ratios against a random destination, so they add up. */
    double odds_sum = 0, largest = -INFINITY;
    for (uint32_t i = 0; i < query->candidate_count; i++) {
        if (logits[i] > largest) largest = logits[i];
        uint32_t at = kept < top_k ? kept++ : top_k;
        if (at == top_k) {
            if (logits[i] <= logits[places[top_k - 1]]) continue;
            at = top_k - 1;
        }
        while (at > 0 && logits[places[at - 1]] < logits[i]) {
            places[at] = places[at - 1];
            at--;
        }
        places[at] = i;
    }
    double scale = dl_model_get_info(model)->calibration.scale;
    for (uint32_t i = 0; i < query->candidate_count; i++)
        odds_sum += exp(scale * (logits[i] - largest));
    for (uint32_t k = 0; k < kept; k++) {
        const struct dl_side *side = &query->candidates[places[k]];
        const struct dl_pair_state *pair = &query->pairs[places[k]];
        best[k] = (struct dl_candidate){
            .node = side->node == DL_NODE_NONE ? (struct dl_slice){0} : name_of(engine, side->node),
            .probability = dl_model_probability(model, logits[places[k]]),
            .share = exp(scale * (logits[places[k]] - largest)) / odds_sum,
            .origin = origins[places[k]],
            .history = side->state.events,
            .pair_history = pair->count[0] + pair->count[1]};
    }
    return kept;
}

/* ---- outbox ------------------------------------------------------------------------------ */

static void header(struct dl_buf *headers, const char *key, struct dl_slice value)
{
    dl_store_headers_put(headers, dl_slice_text(key), value);
}

/* Model version and source position, on every record. */
static void put_headers(struct dl_buf *headers, struct dl_slice version, const char *type,
                        const struct dl_position *position)
{
    char number[24];
    dl_buf_clear(headers);
    header(headers, "type", dl_slice_text(type));
    if (version.size) header(headers, "model-version", version);
    if (!position->topic[0]) return;
    header(headers, "source-topic", dl_slice_text(position->topic));
    snprintf(number, sizeof number, "%d", (int)position->partition);
    header(headers, "source-partition", dl_slice_text(number));
    snprintf(number, sizeof number, "%lld", (long long)position->offset);
    header(headers, "source-offset", dl_slice_text(number));
}

static int put_row(struct dl_engine *engine, enum dl_outbox_kind kind, const char *topic,
                   struct dl_slice key, const struct dl_position *position, struct dl_error *error)
{
    if (!engine->parts.publish || engine->quiet || !topic[0]) return DL_OK;
    if (engine->record.failed || engine->headers.failed)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a record");
    struct dl_outbox_row row = {.kind = kind,
                                .topic = topic,
                                .key = key,
                                .headers = dl_buf_slice(&engine->headers),
                                .payload = dl_buf_slice(&engine->record),
                                .position = *position};
    return dl_store_outbox_append(engine->store, &row, NULL, error);
}

static enum dl_record_format format_of(const struct dl_engine *engine)
{
    return engine->config->predict.encoding == DL_OUTPUT_JSON ? DL_RECORD_JSON : DL_RECORD_PROTOBUF;
}

static int put_score(struct dl_engine *engine, const struct dl_score *score, struct dl_error *error)
{
    dl_buf_clear(&engine->record);
    dl_record_encode_score(score, format_of(engine), &engine->record);
    put_headers(&engine->headers, score->model_version, "driftline.v1.Score", &score->position);
    return put_row(engine, DL_OUTBOX_SCORE, engine->config->predict.scores_topic, score->src,
                   &score->position, error);
}

static int put_prediction(struct dl_engine *engine, const struct dl_prediction *prediction,
                          struct dl_error *error)
{
    dl_buf_clear(&engine->record);
    dl_record_encode_prediction(prediction, format_of(engine), &engine->record);
    put_headers(&engine->headers, prediction->model_version, "driftline.v1.Prediction",
                &prediction->position);
    return put_row(engine, DL_OUTBOX_PREDICTION, engine->config->predict.predictions_topic,
                   prediction->node, &prediction->position, error);
}

static int put_alert(struct dl_engine *engine, const struct dl_alert *alert, struct dl_error *error)
{
    struct dl_buf stored = {0};
    dl_record_encode_alert(alert, DL_RECORD_PROTOBUF, &stored);
    struct dl_alert_row row = {.number = alert->number,
                               .kind = alert->kind,
                               .raised = alert->raised,
                               .time = alert->time,
                               .seq = alert->seq,
                               .payload = dl_buf_slice(&stored)};
    int status = stored.failed ? dl_error_set(error, DL_ERR_NOMEM, "out of memory for an alert")
                               : dl_store_put_alert(engine->store, &row, error);
    if (status == DL_OK) {
        dl_buf_clear(&engine->record);
        dl_record_encode_alert(alert, format_of(engine), &engine->record);
        put_headers(&engine->headers, alert->model_version, "driftline.v1.Alert", &alert->position);
        /* Of several instances one publishes what is said of the whole feed, also at an event
         * that another scores; by its number then, as the offset is not ours to commit. */
        const struct dl_position nowhere = {.topic = ""};
        int quiet = engine->quiet, followed = engine->followed;
        if (alert->kind != DL_ALERT_SURPRISE) {
            if (followed) engine->quiet = 0;
            if (engine->alerts_off) engine->quiet = 1;
        }
        status = put_row(engine, DL_OUTBOX_ALERT, engine->config->predict.alerts_topic, alert->node,
                         followed ? &nowhere : &alert->position, error);
        engine->quiet = quiet;
    }
    dl_buf_free(&stored);
    return status;
}

/* The message's own, behind ours. */
static void put_original_headers(struct dl_engine *engine, const struct item *item)
{
    dl_buf_append(&engine->headers, engine->batch.bytes.data + item->headers_at,
                  item->headers_size);
}

static int put_dead_letter(struct dl_engine *engine, const struct item *item,
                           struct dl_error *error)
{
    const uint8_t *bytes = engine->batch.bytes.data;
    struct dl_dead_letter letter = {.key = dl_slice_of(bytes + item->key_at, item->key_size),
                                    .payload =
                                        dl_slice_of(bytes + item->payload_at, item->payload_size),
                                    .reason = (const char *)bytes + item->reason_at,
                                    .field = item->field,
                                    .received_us = item->wall_us};
    char reason[sizeof(struct dl_error) + 120];
    dl_engine_set_position(engine, item, &letter.position);
    /* What came through a broker must go through one again, wrapped. */
    if (letter.payload.size > DEAD_LETTER_PAYLOAD_MAX) {
        snprintf(reason, sizeof reason, "%s (%zu bytes, cut to %d; the whole is at the position)",
                 letter.reason, letter.payload.size, DEAD_LETTER_PAYLOAD_MAX);
        letter.reason = reason;
        letter.payload.size = DEAD_LETTER_PAYLOAD_MAX;
    }
    dl_buf_clear(&engine->record);
    dl_record_encode_dead_letter(&letter, format_of(engine), &engine->record);
    put_headers(&engine->headers, (struct dl_slice){0}, "driftline.v1.DeadLetter",
                &letter.position);
    put_original_headers(engine, item);
    return put_row(engine, DL_OUTBOX_DEAD_LETTER, engine->config->predict.dead_letters_topic,
                   letter.key, &letter.position, error);
}

/* Later than allowed: the message as it came, to the side topic. */
static int put_late(struct dl_engine *engine, const struct item *item, struct dl_error *error)
{
    if (engine->config->source.late_policy != DL_LATE_TOPIC) return DL_OK;
    const uint8_t *bytes = engine->batch.bytes.data;
    struct dl_position position;
    dl_engine_set_position(engine, item, &position);
    dl_buf_clear(&engine->record);
    dl_buf_append(&engine->record, bytes + item->payload_at, item->payload_size);
    put_headers(&engine->headers, (struct dl_slice){0}, "late", &position);
    put_original_headers(engine, item);
    return put_row(engine, DL_OUTBOX_DEAD_LETTER, engine->config->predict.late_topic,
                   dl_slice_of(bytes + item->key_at, item->key_size), &position, error);
}

int dl_engine_attention(const struct dl_engine *engine, const struct item *item,
                        struct dl_watch_attention *attention)
{
    const struct batch *b = &engine->batch;
    if (item->attention_query == NO_QUERY) return 0;
    dl_watch_attention_of(b->attention[item->attention_query],
                          dl_model_get_info(engine->model)->config.layers,
                          b->queries[item->attention_query]->source.window_count + 1, attention);
    return 1;
}

/* ---- building ----------------------------------------------------------------------------- */

static void watch_event(struct dl_engine *engine, const struct item *item,
                        const struct dl_score *score)
{
    struct dl_watch_attention attention;
    struct dl_watch_event event = {.seq = item->seq,
                                   .time = item->event.time,
                                   .gap = item->has_drift ? item->drift[DL_DRIFT_GAP] : NAN,
                                   .probability = NAN};
    if (score && score->has_negative) {
        event.probability = (float)score->probability;
        event.negative = (float)score->negative_probability;
    }
    if (dl_engine_attention(engine, item, &attention)) event.attention = &attention;
    dl_watch_observe(engine->watch, &event);
}

static void tell_dead_letter(struct dl_engine *engine, const struct item *item)
{
    struct dl_position position;
    dl_engine_set_position(engine, item, &position);
    DL_WARN("engine", "dead letter: %s offset %lld: %s", position.topic, (long long)position.offset,
            (const char *)engine->batch.bytes.data + item->reason_at);
    if (engine->parts.metrics)
        dl_counter_add(
            dl_metrics_counter(engine->parts.metrics->dead_letters_total, DL_LABELS(item->field)),
            1);
}

void dl_engine_build(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    for (uint32_t i = 0; i < b->count; i++) {
        struct item *item = &b->items[i];
        item->alerts_from = item->alerts_to = b->alert_count;
        if (item->kind == ITEM_BROKEN) tell_dead_letter(engine, item);
        if (item->kind != ITEM_EVENT) continue;
        const struct dl_score *score = NULL;
        if (item->score_query != NO_QUERY) {
            build_score(engine, item);
            score = &b->scores[b->score_count - 1];
            dl_engine_on_surprise(engine, score);
        }
        for (int k = 0; k < 2; k++)
            if (item->predictions[k].query != NO_QUERY)
                build_prediction(engine, item, &item->predictions[k]);
        if (item->has_drift)
            dl_drift_monitor_observe(engine->drift, item->drift, item->event.time, item->seq);
        watch_event(engine, item, score);
        item->alerts_to = b->alert_count;
        dl_engine_settle_alerts(engine, item->alerts_from, item);
    }
    dl_engine_settle_alerts(engine, b->alert_count, NULL);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static int put_alerts(struct dl_engine *engine, uint32_t from, uint32_t to, struct dl_error *error)
{
    int status = DL_OK;
    for (uint32_t a = from; status == DL_OK && a < to; a++)
        status = put_alert(engine, &engine->batch.alerts[a].alert, error);
    return status;
}

/* In the order of their events: score, predictions, then alerts. */
int dl_engine_put_records(struct dl_engine *engine, struct dl_error *error)
{
    struct batch *b = &engine->batch;
    uint32_t score = 0, prediction = 0, alert = 0;
    int status = DL_OK;
    for (uint32_t i = 0; status == DL_OK && i < b->count; i++) {
        const struct item *item = &b->items[i];
        engine->quiet = item->quiet;
        engine->followed = item->followed;
        if (item->kind == ITEM_BROKEN) status = put_dead_letter(engine, item, error);
        if (item->kind == ITEM_LATE) status = put_late(engine, item, error);
        if (item->kind != ITEM_EVENT) continue;
        if (item->score_query != NO_QUERY) status = put_score(engine, &b->scores[score++], error);
        for (int k = 0; status == DL_OK && k < 2; k++)
            if (item->predictions[k].query != NO_QUERY)
                status = put_prediction(engine, &b->predictions[prediction++], error);
        if (status == DL_OK) status = put_alerts(engine, item->alerts_from, item->alerts_to, error);
        alert = item->alerts_to;
    }
    engine->quiet = engine->followed = 0;
    /* Those that came without an event, such as those that a renewal clears. */
    return status == DL_OK ? put_alerts(engine, alert, b->alert_count, error) : status;
}
