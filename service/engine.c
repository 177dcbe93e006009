/* The engine's front: batches are begun, filled and handed to the workers. */
#include "service/engine_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/negative.h"
#include "service/log.h"

int dl_engine_fail(struct dl_engine *engine, int status, const char *what,
                   const struct dl_error *error)
{
    if (!engine->failed) {
        engine->failed = 1;
        dl_error_set(&engine->failure, status, "%s: %s", what,
                     error && error->text[0] ? error->text : dl_status_name(status));
        DL_ERROR("engine", "%s", engine->failure.text);
    }
    return status;
}

/* ---- life ------------------------------------------------------------------------- */

/* As many events a batch as the queries' memory allows. */
static uint32_t batch_capacity(const struct dl_config *config, uint32_t window, int scoring)
{
    uint64_t capacity = config->predict.batch_events;
    if (scoring) {
        uint64_t side =
            sizeof(struct dl_side) + sizeof(struct dl_pair_state) + sizeof(struct dl_between) +
            (uint64_t)window *
                (sizeof(struct dl_interaction) + config->store.features * sizeof(float));
        uint64_t sides = config->predict.candidates_max + config->predict.quality_negatives + 4;
        uint64_t fit = QUERY_BYTES_MAX / (side * sides);
        if (fit < 1) fit = 1;
        if (capacity > fit) capacity = fit;
    }
    return (uint32_t)capacity;
}

static int batch_init(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    const struct dl_config *config = engine->config;
    b->capacity = batch_capacity(config, engine->window, engine->model != NULL);
    size_t n = b->capacity, fc = config->store.features;
    b->items = calloc(n, sizeof *b->items);
    b->events = calloc(n, sizeof *b->events);
    b->features = calloc(n * (fc ? fc : 1), sizeof *b->features);
    b->scores = calloc(n, sizeof *b->scores);
    b->predictions = calloc(2 * n, sizeof *b->predictions);
    b->candidates = calloc(2 * n * config->predict.top_k, sizeof *b->candidates);
    b->attention_capacity = (uint32_t)n / DL_WATCH_ATTENTION_EVERY + 1;
    b->attention_pool = calloc(b->attention_capacity, sizeof *b->attention_pool);
    return b->attention_pool && b->items && b->events && b->features && b->scores &&
                   b->predictions && b->candidates
               ? DL_OK
               : DL_ERR_NOMEM;
}

static void batch_deinit(struct batch *b)
{
    for (uint32_t i = 0; i < b->query_capacity; i++) {
        if (b->queries[i]) dl_query_deinit(b->queries[i]);
        free(b->queries[i]);
        free(b->logits[i]);
    }
    for (uint32_t i = 0; b->attention_pool && i < b->attention_capacity; i++)
        free(b->attention_pool[i].received);
    free(b->attention_pool);
    free(b->attention);
    free(b->queries);
    free(b->logits);
    free(b->logit_capacity);
    free(b->items);
    free(b->events);
    free(b->features);
    free(b->scores);
    free(b->predictions);
    free(b->candidates);
    free(b->alerts);
    dl_buf_free(&b->bytes);
}

int dl_engine_check_model(const struct dl_config *config, const struct dl_model *model,
                          struct dl_error *error)
{
    const struct dl_model_info *info = dl_model_get_info(model);
    if (info->config.window > config->store.window)
        return dl_error_set(error, DL_ERR_VERSION,
                            "the model reads windows of %u, the store keeps %" PRIu64
                            "; set store.window to at least %u (a new store) or use another model",
                            info->config.window, config->store.window, info->config.window);
    if (info->config.feature_count > config->store.features)
        return dl_error_set(error, DL_ERR_VERSION,
                            "the model reads %u event features, the store keeps %" PRIu64
                            "; set store.features to %u (a new store) or use another model",
                            info->config.feature_count, config->store.features,
                            info->config.feature_count);
    if (info->time_unit != config->source.time_unit)
        return dl_error_set(
            error, DL_ERR_VERSION,
            "the model was trained on times in %s, source.time_unit is %s; set it to the feed's "
            "unit, and train a model on times in that unit",
            dl_time_unit_name(info->time_unit), dl_time_unit_name(config->source.time_unit));
    return DL_OK;
}

int dl_engine_new(const struct dl_engine_parts *parts, struct dl_engine **out,
                  struct dl_error *error)
{
    const struct dl_config *config = parts->config;
    if (parts->model) {
        int status = dl_engine_check_model(config, parts->model, error);
        if (status != DL_OK) return status;
    }
    struct dl_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the engine");
    engine->parts = *parts;
    engine->config = config;
    engine->store = parts->store;
    engine->position_last = UINT32_MAX;
    if (parts->model) {
        engine->model = dl_model_ref(parts->model);
        engine->window = dl_model_get_info(parts->model)->config.window;
    }
    int status = batch_init(engine);
    if (status != DL_OK) dl_error_set(error, status, "out of memory for a batch of events");
    if (status == DL_OK && engine->model) status = dl_engine_encodings_start(engine, error);
    if (status == DL_OK) status = dl_engine_load(engine, error);
    if (status != DL_OK) {
        dl_engine_free(engine);
        return status;
    }
    *out = engine;
    return DL_OK;
}

void dl_engine_free(struct dl_engine *engine)
{
    if (!engine) return;
    dl_engine_ingest_end(engine);
    engine->failed = 1; /* answers those that wait to forget */
    dl_engine_forget_step(engine);
    batch_deinit(&engine->batch);
    dl_engine_ids_deinit(engine);
    dl_candidate_set_deinit(&engine->candidates);
    dl_buf_free(&engine->record);
    dl_buf_free(&engine->headers);
    dl_buf_free(&engine->name);
    dl_drift_monitor_free(engine->drift);
    dl_quality_free(engine->quality);
    dl_watch_free(engine->watch);
    dl_encodings_free(engine->encodings);
    dl_graph_free(engine->graph);
    dl_dictionary_free(engine->nodes);
    dl_dictionary_free(engine->types);
    dl_model_unref(engine->model);
    free(engine->frozen);
    free(engine->positions);
    free(engine);
}

int dl_engine_set_model(struct dl_engine *engine, struct dl_model *model, struct dl_error *error)
{
    int status = dl_engine_check_model(engine->config, model, error);
    if (status != DL_OK) return status;
    DL_CHECK(!dl_engine_busy(engine));
    status = dl_engine_clear_alerts(engine, "another model was loaded", error);
    if (status != DL_OK) return status;
    dl_model_unref(engine->model);
    engine->model = dl_model_ref(model);
    engine->window = dl_model_get_info(model)->config.window;
    dl_drift_monitor_free(engine->drift);
    engine->drift = NULL;
    engine->saved.drift_generation = UINT64_MAX;
    engine->saved.journal_events = JOURNAL_EVENTS_MAX; /* of the old reference */
    status = dl_engine_encodings_start(engine, error);
    if (status == DL_OK) status = dl_engine_drift_start(engine, error);
    return status == DL_OK ? dl_engine_watch_start(engine, error) : status;
}

/* ---- offering ------------------------------------------------------------------------ */

uint32_t dl_engine_room(const struct dl_engine *engine)
{
    uint64_t first, next;
    if (engine->failed || engine->waiting || engine->scoring_now) return 0;
    dl_store_outbox_range(engine->store, &first, &next);
    if (next - first > OUTBOX_ROWS_MAX) return 0;
    return engine->batch.capacity - engine->batch.count;
}

int dl_engine_busy(const struct dl_engine *engine)
{
    return engine->scoring_now || engine->waiting || engine->batch.count > 0;
}

const char *dl_engine_failure(const struct dl_engine *engine)
{
    return engine->failed ? engine->failure.text : NULL;
}

#define HEADER_BYTES_MAX 65536 /* of a message's own headers, kept with a dead letter */

/* Remembers bytes of the message in the batch. */
static size_t keep(struct batch *b, struct dl_slice bytes)
{
    size_t at = b->bytes.size;
    dl_buf_append(&b->bytes, bytes.data, bytes.size);
    return at;
}

/* The item for a new message, or NULL if its position was taken in before. */
static struct item *new_item(struct dl_engine *engine, const struct dl_arrival *arrival,
                             int *status)
{
    struct batch *b = &engine->batch;
    uint32_t index = UINT32_MAX;
    int quiet = 0;
    DL_CHECK(dl_engine_room(engine) > 0);
    *status = DL_OK;
    engine->last_reason[0] = '\0';
    engine->last_repeated = 0;
    if (arrival->topic[0]) {
        index = dl_engine_find_position(engine, arrival->topic, arrival->partition, 1);
        if (index == UINT32_MAX) {
            *status = dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for a partition", NULL);
            return NULL;
        }
        struct position *p = &engine->positions[index];
        if (arrival->offset < p->next_offset) {
            if (engine->parts.metrics)
                dl_counter_add(engine->parts.metrics->events_duplicate_total, 1);
            return NULL;
        }
        p->next_offset = arrival->offset + 1;
        p->dirty = 1;
        quiet = arrival->offset < p->published_below;
    }
    if (b->count == 0) {
        b->begun_ns = arrival->received_ns;
        b->first_new_node = dl_dictionary_count(engine->nodes);
        b->first_new_type = dl_dictionary_count(engine->types);
        b->first_seq = dl_graph_feed(engine->graph)->events;
    }
    struct item *item = &b->items[b->count++];
    *item = (struct item){.position = index,
                          .offset = arrival->offset,
                          .received_ns = arrival->received_ns,
                          .wall_us = arrival->wall_us,
                          .quiet = quiet,
                          .followed = arrival->followed,
                          .score_query = NO_QUERY,
                          .attention_query = NO_QUERY,
                          .predictions = {{.query = NO_QUERY}, {.query = NO_QUERY}}};
    return item;
}

static void keep_message(struct batch *b, struct item *item, const struct dl_arrival *arrival)
{
    item->key_at = keep(b, arrival->key);
    item->key_size = arrival->key.size;
    item->payload_at = keep(b, arrival->payload);
    item->payload_size = arrival->payload.size;
    item->headers_at = b->bytes.size;
    for (uint32_t i = 0; i < arrival->header_count; i++) {
        const struct dl_event_header *h = &arrival->headers[i];
        if (b->bytes.size - item->headers_at + h->name.size + h->value.size > HEADER_BYTES_MAX)
            break;
        dl_store_headers_put(&b->bytes, h->name, h->value);
    }
    item->headers_size = b->bytes.size - item->headers_at;
}

static void make_broken(struct dl_engine *engine, struct item *item,
                        const struct dl_arrival *arrival, const char *reason, const char *field)
{
    struct batch *b = &engine->batch;
    item->kind = ITEM_BROKEN;
    snprintf(engine->last_reason, sizeof engine->last_reason, "%s", reason);
    keep_message(b, item, arrival);
    item->reason_at = keep(b, dl_slice_of(reason, strlen(reason) + 1));
    item->field = field;
}

static void close_if_full(struct dl_engine *engine)
{
    if (engine->batch.count == engine->batch.capacity) dl_engine_flush(engine);
}

int dl_engine_offer_broken(struct dl_engine *engine, const struct dl_arrival *arrival,
                           const char *reason, const char *field)
{
    int status;
    struct item *item = new_item(engine, arrival, &status);
    if (item) {
        make_broken(engine, item, arrival, reason, field);
        close_if_full(engine);
    }
    return status;
}

int dl_engine_offer_nothing(struct dl_engine *engine, const struct dl_arrival *arrival)
{
    int status;
    struct item *item = new_item(engine, arrival, &status);
    if (item) {
        item->kind = ITEM_PASSED;
        close_if_full(engine);
    }
    return status;
}

struct dl_query *dl_engine_query(struct dl_engine *engine, uint32_t *index)
{
    struct batch *b = &engine->batch;
    if (b->query_count == b->query_capacity) {
        uint32_t capacity = b->query_capacity ? b->query_capacity * 2 : 16;
        struct dl_query **queries = realloc(b->queries, capacity * sizeof(*queries));
        if (queries) b->queries = queries;
        float **logits = realloc(b->logits, capacity * sizeof(*logits));
        if (logits) b->logits = logits;
        uint32_t *room = realloc(b->logit_capacity, capacity * sizeof(*room));
        if (room) b->logit_capacity = room;
        struct dl_attention **attention = realloc(b->attention, capacity * sizeof(*attention));
        if (attention) b->attention = attention;
        if (!queries || !logits || !room || !attention) return NULL;
        for (uint32_t i = b->query_capacity; i < capacity; i++) {
            queries[i] = NULL;
            logits[i] = NULL;
            room[i] = 0;
        }
        b->query_capacity = capacity;
    }
    if (!b->queries[b->query_count]) {
        b->queries[b->query_count] = calloc(1, sizeof(struct dl_query));
        if (!b->queries[b->query_count]) return NULL;
    }
    b->attention[b->query_count] = NULL;
    *index = b->query_count;
    return b->queries[b->query_count++];
}

/* The event's own edge and its live-quality negatives, on the state before it. */
static int query_score(struct dl_engine *engine, struct item *item)
{
    const struct dl_config *config = engine->config;
    struct dl_query *query = dl_engine_query(engine, &item->score_query);
    if (!query) return DL_ERR_NOMEM;
    int status =
        dl_query_begin(query, engine->graph, engine->window, item->event.src, item->event.time);
    if (status == DL_OK) status = dl_query_add(query, engine->graph, item->event.dst);
    uint32_t destinations =
        engine->frozen ? engine->frozen_count : dl_graph_feed(engine->graph)->destinations;
    if (!engine->quality || destinations == 0) return status;
    for (uint32_t k = 0; status == DL_OK && k < config->predict.quality_negatives; k++) {
        uint32_t at = dl_negative_index(config->predict.quality_seed, item->seq, k, destinations);
        status = dl_query_add(query, engine->graph,
                              engine->frozen ? engine->frozen[at]
                                             : dl_graph_destination(engine->graph, at));
        item->negatives = k + 1;
    }
    return status;
}

/* For every so many-th event its own edge once more, alone, with attention. */
static int query_attention(struct dl_engine *engine, struct item *item)
{
    struct batch *b = &engine->batch;
    if (dl_model_get_info(engine->model)->config.layers == 0) return DL_OK;
    if (item->seq % DL_WATCH_ATTENTION_EVERY || b->attention_count == b->attention_capacity)
        return DL_OK;
    struct dl_attention *attention = &b->attention_pool[b->attention_count++];
    const uint32_t tokens = 2 * (engine->window + 1);
    if (attention->token_capacity < tokens) {
        free(attention->received);
        attention->token_capacity = 0;
        attention->received = malloc((size_t)tokens * DL_LAYERS_MAX * sizeof(float));
        if (!attention->received) return DL_ERR_NOMEM;
        attention->token_capacity = tokens;
    }
    struct dl_query *query = dl_engine_query(engine, &item->attention_query);
    if (!query) return DL_ERR_NOMEM;
    b->attention[item->attention_query] = attention;
    int status =
        dl_query_begin(query, engine->graph, engine->window, item->event.src, item->event.time);
    return status == DL_OK ? dl_query_add(query, engine->graph, item->event.dst) : status;
}

/* Whether the node is due: its first event of an interval's slot. */
static int prediction_due(int64_t interval, const struct dl_node_state *before, int64_t time)
{
    if (interval <= 0 || !before || before->events == 0) return 1;
    return time / interval != before->last_time / interval;
}

static int query_prediction(struct dl_engine *engine, uint32_t node, int64_t time,
                            struct pending_prediction *pending)
{
    const struct dl_config *config = engine->config;
    struct batch *b = &engine->batch;
    int status = dl_candidates_draw(engine->graph, node, config->source.bipartite,
                                    (uint32_t)config->predict.candidates_max, &engine->candidates);
    if (status != DL_OK) return status;
    struct dl_query *query = dl_engine_query(engine, &pending->query);
    if (!query) return DL_ERR_NOMEM;
    status = dl_query_begin(query, engine->graph, engine->window, node, time);
    for (uint32_t i = 0; status == DL_OK && i < engine->candidates.count; i++)
        status = dl_query_add(query, engine->graph, engine->candidates.nodes[i]);
    pending->node = node;
    pending->history = query->source.state.events;
    pending->origins_at =
        keep(b, dl_slice_of(engine->candidates.origins, engine->candidates.count));
    return status;
}

static uint32_t pair_count(const struct dl_graph *graph, uint32_t u, uint32_t v)
{
    struct dl_pair_state pair;
    return dl_graph_pair(graph, u, v, &pair) ? pair.count[0] + pair.count[1] : 0;
}

/* State before, absorb, state after. */
static int take_in(struct dl_engine *engine, struct item *item)
{
    const struct dl_config *config = engine->config;
    struct batch *b = &engine->batch;
    struct dl_event *event = &item->event;
    struct dl_node_state src_before = {0}, dst_before = {0};
    const struct dl_node_state *state;
    int status = DL_OK;

    item->seq = dl_graph_feed(engine->graph)->events;
    int scored = engine->model && !item->quiet;
    if (scored) {
        if ((state = dl_graph_node(engine->graph, event->src))) src_before = *state;
        if ((state = dl_graph_node(engine->graph, event->dst))) dst_before = *state;
        item->src_history = src_before.events;
        item->dst_history = dst_before.events;
        item->pair_history = pair_count(engine->graph, event->src, event->dst);
    }
    if (scored) status = query_score(engine, item);
    if (scored && status == DL_OK) status = query_attention(engine, item);
    if (status == DL_OK && engine->drift) {
        dl_drift_features(engine->graph, event, dl_model_get_info(engine->model)->encoding.gap,
                          config->source.time_unit, item->drift);
        item->has_drift = 1;
    }
    if (status == DL_OK) status = dl_graph_apply(engine->graph, event);
    if (status != DL_OK) return status;
    b->events[b->event_count++] = *event;
    if (!scored) return DL_OK;
    if ((config->predict.predict_for & DL_PREDICT_SOURCE) &&
        prediction_due(config->predict.min_interval, &src_before, event->time))
        status = query_prediction(engine, event->src, event->time, &item->predictions[0]);
    if (status == DL_OK && (config->predict.predict_for & DL_PREDICT_DESTINATION) &&
        prediction_due(config->predict.min_interval, &dst_before, event->time))
        status = query_prediction(engine, event->dst, event->time, &item->predictions[1]);
    return status;
}

/* 1 if the event is too far ahead of the wall clock; *reason says so. */
static int is_future(const struct dl_engine *engine, const struct dl_arrival *arrival, int64_t time,
                     char reason[160])
{
    const struct dl_config *config = engine->config;
    int64_t per_second = dl_time_unit_per_second(config->source.time_unit);
    if (config->source.future_skew < 0 || per_second == 0 || arrival->wall_us == 0) return 0;
    double now = (double)arrival->wall_us / 1e6 * (double)per_second;
    if ((double)time <= now + (double)config->source.future_skew) return 0;
    snprintf(reason, 160,
             "time %" PRId64 " lies %.0f %s ahead of the clock; source.future_skew allows %" PRId64,
             time, (double)time - now, dl_time_unit_name(config->source.time_unit),
             config->source.future_skew);
    return 1;
}

static int is_late(const struct dl_engine *engine, int64_t time)
{
    const struct dl_feed_state *feed = dl_graph_feed(engine->graph);
    return feed->events > 0 && time < feed->last_time &&
           (uint64_t)feed->last_time - (uint64_t)time > (uint64_t)engine->config->source.lateness;
}

static int intern_event(struct dl_engine *engine, const struct dl_edge_event *in,
                        struct dl_event *event)
{
    uint8_t dst_space = engine->config->source.bipartite ? 1 : 0;
    uint32_t type = 0;
    int status = dl_dictionary_intern(engine->nodes, 0, in->src, &event->src, NULL);
    if (status == DL_OK)
        status = dl_dictionary_intern(engine->nodes, dst_space, in->dst, &event->dst, NULL);
    if (status == DL_OK && in->type.size) {
        status = dl_dictionary_intern(engine->types, 0, in->type, &type, NULL);
        type++; /* 0: none */
    }
    event->type = (uint16_t)type;
    event->time = in->time;
    event->weight = in->has_weight ? in->weight : 1;
    return status;
}

int dl_engine_offer(struct dl_engine *engine, const struct dl_arrival *arrival,
                    const struct dl_edge_event *in)
{
    const struct dl_config *config = engine->config;
    struct batch *b = &engine->batch;
    char reason[160];
    int status;
    struct item *item = new_item(engine, arrival, &status);
    if (!item) return status;

    int late = is_late(engine, in->time);
    if (late && engine->parts.metrics) dl_counter_add(engine->parts.metrics->events_late_total, 1);
    if (is_future(engine, arrival, in->time, reason)) {
        make_broken(engine, item, arrival, reason, "time");
    } else if (late && config->source.late_policy != DL_LATE_ACCEPT) {
        item->kind = ITEM_LATE;
        if (config->source.late_policy == DL_LATE_TOPIC) keep_message(b, item, arrival);
    } else if (dl_engine_ids_repeated(engine, in->id)) {
        item->kind = ITEM_REPEATED;
        engine->last_repeated = 1;
        if (engine->parts.metrics) dl_counter_add(engine->parts.metrics->events_repeated_total, 1);
    } else {
        item->kind = ITEM_EVENT;
        status = intern_event(engine, in, &item->event);
        if (status == DL_ERR_FULL) {
            make_broken(engine, item, arrival,
                        "the dictionary is full: raise store.nodes_max (nodes), or send fewer "
                        "than 65,535 event types",
                        "src");
            status = DL_OK;
        } else if (status == DL_OK) {
            size_t fc = config->store.features;
            if (fc) {
                float *features = b->features + (size_t)(item - b->items) * fc;
                for (size_t f = 0; f < fc; f++)
                    features[f] = f < in->feature_count ? in->features[f] : 0;
                item->event.features = features;
            }
            item->id_at = keep(b, in->id);
            item->id_size = in->id.size;
            status = take_in(engine, item);
        }
    }
    if (status != DL_OK || b->bytes.failed)
        return dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for an event", NULL);
    close_if_full(engine);
    return DL_OK;
}

/* ---- to the workers --------------------------------------------------------------------- */

int dl_engine_scores_finite(const struct dl_scoring *job)
{
    for (uint32_t q = 0; q < job->query_count; q++)
        for (uint32_t c = 0; c < job->queries[q]->candidate_count; c++)
            if (!isfinite(job->logits[q][c])) return 0;
    return 1;
}

static void on_scored(struct dl_scoring *job)
{
    struct dl_engine *engine = job->owner;
    if (engine->parts.metrics && job->query_count)
        dl_histogram_observe(engine->parts.metrics->scoring_duration_seconds,
                             (double)(job->ended_ns - job->started_ns) / 1e9);
    engine->scoring_now = 0;
    dl_engine_encodings_keep(engine, job->queries, job->query_count, engine->batch_epoch);
    if (!dl_engine_scores_finite(job))
        dl_engine_fail(engine, DL_ERR_INVALID,
                       "the model gave a score that is no finite number; set model.path to another "
                       "one, or train it again",
                       NULL);
    dl_model_unref(job->model);
    dl_engine_commit(engine);
}

void dl_engine_flush(struct dl_engine *engine)
{
    struct batch *b = &engine->batch;
    if (engine->failed || engine->waiting || engine->scoring_now || b->count == 0) return;
    if (!engine->model || b->query_count == 0) {
        dl_engine_commit(engine);
        return;
    }
    for (uint32_t i = 0; i < b->query_count; i++) {
        uint32_t need = b->queries[i]->candidate_count;
        if (need <= b->logit_capacity[i]) continue;
        float *logits = realloc(b->logits[i], need * sizeof *logits);
        if (!logits) {
            dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for scores", NULL);
            return;
        }
        b->logits[i] = logits;
        b->logit_capacity[i] = need;
    }
    if (dl_engine_encodings_fill(engine, b->queries, b->query_count, &engine->batch_epoch) !=
        DL_OK) {
        dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for the encodings of windows", NULL);
        return;
    }
    engine->scoring = (struct dl_scoring){.model = dl_model_ref(engine->model),
                                          .query_count = b->query_count,
                                          .queries = b->queries,
                                          .logits = b->logits,
                                          .attention = b->attention,
                                          .done = on_scored,
                                          .owner = engine};
    engine->scoring_now = 1;
    dl_workers_submit(engine->parts.workers, &engine->scoring);
}

void dl_engine_set_alerts(struct dl_engine *engine, int on)
{
    engine->alerts_off = !on;
}

/* ---- looking at it ------------------------------------------------------------------------ */

const struct dl_graph *dl_engine_graph(const struct dl_engine *engine)
{
    return engine->graph;
}
const struct dl_dictionary *dl_engine_nodes(const struct dl_engine *engine)
{
    return engine->nodes;
}
struct dl_model *dl_engine_model(const struct dl_engine *engine)
{
    return engine->model;
}
struct dl_drift_monitor *dl_engine_drift(const struct dl_engine *engine)
{
    return engine->drift;
}
struct dl_quality *dl_engine_quality(const struct dl_engine *engine)
{
    return engine->quality;
}
struct dl_watch *dl_engine_watch(const struct dl_engine *engine)
{
    return engine->watch;
}
void *dl_engine_parts_context(const struct dl_engine *engine)
{
    return engine->parts.context;
}
