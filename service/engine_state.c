/* What the engine keeps beside the graph: positions, the drift monitor and live
 * quality, and how they come back after a restart.
 *
 * The monitors' state is large next to one event, so it is written whole only
 * every JOURNAL_EVENTS_MAX events; between, each batch adds a small journal
 * blob with what its events fed to them, and a restart feeds it again.
 *
 *   drift.reference   the reference, when it changed
 *   drift.state       running state of the drift monitor
 *   quality           the ring of live quality
 *   watch             quality drop, attention, pace, stall
 *   journal.N         N = 0.. : of the batches since */
#include "service/engine_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "service/log.h"

#define JOURNAL_VERSION 2

/* ---- positions --------------------------------------------------------------------- */

uint32_t dl_engine_find_position(struct dl_engine *engine, const char *topic, int32_t partition,
                                 int add)
{
    uint32_t last = engine->position_last;
    if (last != UINT32_MAX && engine->positions[last].partition == partition &&
        strcmp(engine->positions[last].topic, topic) == 0)
        return last;
    for (uint32_t i = 0; i < engine->position_count; i++) {
        if (engine->positions[i].partition != partition ||
            strcmp(engine->positions[i].topic, topic) != 0)
            continue;
        engine->position_last = i;
        return i;
    }
    if (!add || engine->position_count >= POSITION_TOPICS_MAX) return UINT32_MAX;
    if (engine->position_count == engine->position_capacity) {
        uint32_t capacity = engine->position_capacity ? engine->position_capacity * 2 : 8;
        struct position *positions = realloc(engine->positions, capacity * sizeof *positions);
        if (!positions) return UINT32_MAX;
        engine->positions = positions;
        engine->position_capacity = capacity;
    }
    struct position *p = &engine->positions[engine->position_count];
    *p = (struct position){.partition = partition, .next_offset = -1};
    snprintf(p->topic, sizeof p->topic, "%s", topic);
    engine->position_last = engine->position_count;
    return engine->position_count++;
}

int64_t dl_engine_position(const struct dl_engine *engine, const char *topic, int32_t partition)
{
    for (uint32_t i = 0; i < engine->position_count; i++)
        if (engine->positions[i].partition == partition &&
            strcmp(engine->positions[i].topic, topic) == 0)
            return engine->positions[i].next_offset;
    return -1;
}

int dl_engine_published(struct dl_engine *engine, const char *topic, int32_t partition,
                        int64_t offset)
{
    uint32_t index = dl_engine_find_position(engine, topic, partition, 1);
    if (index == UINT32_MAX)
        return dl_engine_fail(engine, DL_ERR_NOMEM, "out of memory for a partition", NULL);
    engine->positions[index].published_below = offset;
    return DL_OK;
}

static int take_position(void *user, const struct dl_position *position)
{
    struct dl_engine *engine = user;
    uint32_t index = dl_engine_find_position(engine, position->topic, position->partition, 1);
    if (index == UINT32_MAX) return DL_ERR_NOMEM;
    engine->positions[index].next_offset = position->offset;
    return 0;
}

/* ---- saving the monitors ------------------------------------------------------------- */

static int put_whole(struct dl_engine *engine, struct dl_buf *buf, struct dl_error *error)
{
    int status = DL_OK;
    if (engine->drift) {
        if (engine->saved.drift_generation != dl_drift_monitor_generation(engine->drift)) {
            dl_buf_clear(buf);
            status = dl_drift_monitor_save_reference(engine->drift, buf);
            if (status == DL_OK)
                status =
                    dl_store_put_blob(engine->store, "drift.reference", dl_buf_slice(buf), error);
            engine->saved.drift_generation = dl_drift_monitor_generation(engine->drift);
        }
        dl_buf_clear(buf);
        if (status == DL_OK) status = dl_drift_monitor_save_state(engine->drift, buf);
        if (status == DL_OK)
            status = dl_store_put_blob(engine->store, "drift.state", dl_buf_slice(buf), error);
    }
    if (status == DL_OK && engine->quality) {
        dl_buf_clear(buf);
        dl_quality_save(engine->quality, buf);
        status = buf->failed
                     ? DL_ERR_NOMEM
                     : dl_store_put_blob(engine->store, "quality", dl_buf_slice(buf), error);
    }
    if (status == DL_OK) {
        dl_buf_clear(buf);
        dl_watch_save(engine->watch, buf);
        engine->saved.watch_generation = dl_watch_generation(engine->watch);
        status = buf->failed ? DL_ERR_NOMEM
                             : dl_store_put_blob(engine->store, "watch", dl_buf_slice(buf), error);
    }
    char name[32];
    for (uint32_t i = 0; status == DL_OK && i < engine->saved.journal_count; i++) {
        snprintf(name, sizeof name, "journal.%u", i);
        status = dl_store_delete_blob(engine->store, name, error);
    }
    engine->saved.journal_count = engine->saved.journal_events = 0;
    return status;
}

static uint32_t layers_of(const struct dl_engine *engine)
{
    return dl_model_get_info(engine->model)->config.layers;
}

static int put_journal(struct dl_engine *engine, struct dl_buf *buf, struct dl_error *error)
{
    struct batch *b = &engine->batch;
    static const struct dl_score unscored = {0}; /* rank 0: live quality passes it over */
    uint32_t score = 0, events = 0;
    char name[32];
    dl_buf_clear(buf);
    dl_buf_u8(buf, JOURNAL_VERSION);
    for (uint32_t i = 0; i < b->count; i++) {
        struct dl_watch_attention attention;
        const struct item *item = &b->items[i];
        if (item->kind != ITEM_EVENT) continue;
        const struct dl_score *s = item->score_query == NO_QUERY ? &unscored : &b->scores[score++];
        if (!item->has_drift && s == &unscored) continue;
        dl_buf_u8(buf, (uint8_t)item->has_drift);
        dl_buf_u64(buf, item->seq);
        dl_buf_u64(buf, (uint64_t)item->event.time);
        for (int c = 0; item->has_drift && c < DL_DRIFT_COLUMNS; c++)
            dl_buf_f32(buf, item->drift[c]);
        dl_buf_f32(buf, (float)s->probability);
        dl_buf_f32(buf, (float)s->negative_probability);
        dl_buf_u32(buf, s->rank_times_2);
        int sampled = dl_engine_attention(engine, item, &attention);
        dl_buf_u8(buf, (uint8_t)sampled);
        if (sampled) dl_watch_attention_put(&attention, layers_of(engine), buf);
        events++;
    }
    if (events == 0) return DL_OK;
    if (buf->failed) return DL_ERR_NOMEM;
    snprintf(name, sizeof name, "journal.%u", engine->saved.journal_count);
    engine->saved.journal_count++;
    engine->saved.journal_events += events;
    return dl_store_put_blob(engine->store, name, dl_buf_slice(buf), error);
}

int dl_engine_save_monitors(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_buf buf = {0};
    int whole = engine->saved.journal_events + engine->batch.event_count >= JOURNAL_EVENTS_MAX ||
                engine->saved.watch_generation != dl_watch_generation(engine->watch) ||
                (engine->drift &&
                 engine->saved.drift_generation != dl_drift_monitor_generation(engine->drift));
    int status = whole ? put_whole(engine, &buf, error) : put_journal(engine, &buf, error);
    if (status == DL_ERR_NOMEM) dl_error_set(error, status, "out of memory to save the monitors");
    dl_buf_free(&buf);
    return status;
}

/* ---- loading --------------------------------------------------------------------------- */

/* Feeds one journal blob to the monitors. */
static int feed_journal(struct dl_engine *engine, struct dl_slice bytes)
{
    struct dl_reader in = dl_reader_of(bytes);
    if (dl_read_u8(&in) != JOURNAL_VERSION) return DL_ERR_VERSION;
    while (dl_reader_left(&in) > 0) {
        float raw[DL_DRIFT_COLUMNS];
        int has_drift = dl_read_u8(&in);
        uint64_t seq = dl_read_u64(&in);
        int64_t time = (int64_t)dl_read_u64(&in);
        for (int c = 0; has_drift && c < DL_DRIFT_COLUMNS; c++) raw[c] = dl_read_f32(&in);
        float probability = dl_read_f32(&in), negative = dl_read_f32(&in);
        uint32_t rank = dl_read_u32(&in);
        struct dl_watch_attention attention;
        int sampled = dl_read_u8(&in);
        if (sampled) dl_watch_attention_read(&in, layers_of(engine), &attention);
        if (in.failed) return DL_ERR_CORRUPT;
        if (has_drift && engine->drift) dl_drift_monitor_observe(engine->drift, raw, time, seq);
        if (rank && engine->quality)
            dl_quality_observe(engine->quality, probability, negative, rank);
        struct dl_watch_event event = {.seq = seq,
                                       .time = time,
                                       .gap = has_drift ? raw[DL_DRIFT_GAP] : NAN,
                                       .probability = rank ? probability : NAN,
                                       .negative = negative,
                                       .attention = sampled ? &attention : NULL};
        dl_watch_observe(engine->watch, &event);
        engine->saved.journal_events++;
    }
    return DL_OK;
}

/* Events that may lie between false alarms: as asked, or those of the time that
 * was asked, at the pace of the model's reference. */
static int run_length(const struct dl_engine *engine, double *events, struct dl_error *error)
{
    const double asked = (double)engine->config->drift.run_time;
    const struct dl_reference *reference =
        engine->model ? dl_model_get_reference(engine->model) : NULL;
    *events = engine->config->drift.run_length;
    if (asked <= 0 || !reference || dl_drift_reference_check(reference, NULL) != DL_OK)
        return DL_OK;
    const double pace =
        dl_drift_mean_gap(reference) * dl_model_get_info(engine->model)->encoding.gap;
    if (pace <= 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift.run_time: all events of the model's reference have one time; "
                            "set drift.run_length instead");
    *events = asked / pace;
    return DL_OK;
}

int dl_engine_drift_start(struct dl_engine *engine, struct dl_error *error)
{
    const struct dl_config *config = engine->config;
    if (!config->drift.enabled || !engine->model) return DL_OK;
    struct dl_drift_config drift = dl_drift_config_default;
    drift.form = config->drift.form == DL_DRIFT_EXACT ? DL_MMD_EXACT : DL_MMD_FOURIER;
    drift.window = (uint32_t)config->drift.window;
    drift.fourier = (uint32_t)config->drift.frequencies;
    drift.reference_max = (uint32_t)config->drift.reference;
    int status = run_length(engine, &drift.run_length_events, error);
    if (status != DL_OK) return status;
    drift.cooldown_events = (uint32_t)config->drift.cooldown;
    drift.seed = config->drift.seed;
    for (size_t i = 0; i < config->drift.features.count; i++) {
        int column = 0;
        while (column < DL_DRIFT_COLUMNS &&
               strcmp(dl_drift_column_names[column], config->drift.features.items[i]) != 0)
            column++;
        if (column == DL_DRIFT_COLUMNS)
            return dl_error_set(error, DL_ERR_INVALID, "drift.features: no feature is named %s",
                                config->drift.features.items[i]);
        drift.features |= 1u << column;
    }
    return dl_drift_monitor_new(&drift, dl_model_get_reference(engine->model), dl_engine_on_alert,
                                engine, &engine->drift, error);
}

int dl_engine_watch_start(struct dl_engine *engine, struct dl_error *error)
{
    const struct dl_config *config = engine->config;
    struct dl_watch_config watch = {.quality_margin = config->drift.quality_margin,
                                    .dispersion_margin = config->drift.dispersion_margin,
                                    .fast_factor = config->drift.fast,
                                    .gap_events = (uint32_t)config->drift.window};
    struct dl_watch *fresh;
    int status = run_length(engine, &watch.run_length_events, error);
    if (status == DL_OK)
        status = dl_watch_new(&watch, engine->model, dl_engine_on_alert, engine, &fresh, error);
    if (status != DL_OK) return status;
    dl_watch_free(engine->watch);
    engine->watch = fresh;
    engine->saved.watch_generation = dl_watch_generation(fresh);
    return DL_OK;
}

static int load_watch(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_buf bytes = {0};
    int status = dl_store_get_blob(engine->store, "watch", &bytes, error);
    if (status == DL_OK) {
        status = dl_watch_load(engine->watch, dl_buf_slice(&bytes));
        if (status == DL_ERR_CORRUPT)
            dl_error_set(error, status, "the stored state of the alerts is damaged");
    }
    dl_buf_free(&bytes);
    return status == DL_ERR_NOT_FOUND || status == DL_ERR_VERSION ? DL_OK : status;
}

/* A monitor that does not fit what is stored starts anew, and says so. */
static int load_drift(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_buf reference = {0}, state = {0};
    struct dl_error detail = {""};
    int status = dl_store_get_blob(engine->store, "drift.reference", &reference, error);
    if (status == DL_OK) status = dl_store_get_blob(engine->store, "drift.state", &state, error);
    if (status == DL_OK) {
        status = dl_drift_monitor_load(engine->drift, dl_buf_slice(&reference),
                                       dl_buf_slice(&state), &detail);
        if (status == DL_OK)
            engine->saved.drift_generation = dl_drift_monitor_generation(engine->drift);
        if (status == DL_ERR_VERSION) {
            DL_WARN("drift", "the stored drift state is set aside: %s", detail.text);
            status = DL_OK;
        } else if (status != DL_OK) {
            dl_error_set(error, status, "stored drift state: %s", detail.text);
        }
    }
    dl_buf_free(&reference);
    dl_buf_free(&state);
    return status == DL_ERR_NOT_FOUND ? DL_OK : status;
}

static int load_quality(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_buf bytes = {0};
    int status = dl_store_get_blob(engine->store, "quality", &bytes, error);
    if (status == DL_OK) {
        status = dl_quality_load(engine->quality, dl_buf_slice(&bytes));
        if (status == DL_ERR_CORRUPT) dl_error_set(error, status, "stored live quality is damaged");
    }
    dl_buf_free(&bytes);
    return status == DL_ERR_NOT_FOUND || status == DL_ERR_VERSION ? DL_OK : status;
}

static int load_journal(struct dl_engine *engine, struct dl_error *error)
{
    struct dl_buf bytes = {0};
    char name[32];
    int status = DL_OK;
    engine->drift_muted = 1;
    while (status == DL_OK) {
        snprintf(name, sizeof name, "journal.%u", engine->saved.journal_count);
        dl_buf_clear(&bytes);
        status = dl_store_get_blob(engine->store, name, &bytes, error);
        if (status != DL_OK) break;
        status = feed_journal(engine, dl_buf_slice(&bytes));
        if (status == DL_ERR_VERSION) {
            DL_WARN("drift", "stored %s is of another version: its events are not counted", name);
            status = DL_OK;
        }
        if (status != DL_OK) dl_error_set(error, status, "stored %s is damaged", name);
        engine->saved.journal_count++;
    }
    engine->drift_muted = 0;
    dl_buf_free(&bytes);
    return status == DL_ERR_NOT_FOUND ? DL_OK : status;
}

int dl_engine_load(struct dl_engine *engine, struct dl_error *error)
{
    const struct dl_config *config = engine->config;
    struct dl_graph_config graph = {.window = (uint32_t)config->store.window,
                                    .feature_count = (uint32_t)config->store.features,
                                    .nodes_max = (uint32_t)config->store.nodes_max,
                                    .pairs_max = (uint32_t)config->store.pairs_max,
                                    .age_max = config->store.age_max};
    struct dl_store_recovery recovery = {0};
    int status = dl_graph_new(&graph, &engine->graph, error);
    if (status != DL_OK) return status;
    if (dl_dictionary_new(graph.nodes_max, &engine->nodes) != DL_OK ||
        dl_dictionary_new(UINT16_MAX - 1, &engine->types) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the dictionaries");
    status =
        dl_store_load(engine->store, engine->graph, engine->nodes, engine->types, &recovery, error);
    if (status != DL_OK) return status;
    if (recovery.events)
        DL_INFO("store", "state of %llu events and %llu nodes in %.2f s (%llu replayed)",
                (unsigned long long)recovery.events, (unsigned long long)recovery.nodes,
                (double)recovery.elapsed_ns / 1e9, (unsigned long long)recovery.replayed);
    status = dl_store_positions(engine->store, take_position, engine, error);
    if (status != DL_OK) return status;
    engine->alert_number = dl_store_alert_last(engine->store);
    engine->saved.drift_generation = UINT64_MAX;
    status =
        dl_store_get_destinations(engine->store, &engine->frozen, &engine->frozen_count, error);
    if (status != DL_OK && status != DL_ERR_NOT_FOUND) return status;
    status = dl_engine_forget_load(engine, error);
    if (status == DL_OK) status = dl_engine_ids_load(engine, error);
    if (status == DL_OK) status = dl_engine_watch_start(engine, error);
    if (status == DL_OK) status = load_watch(engine, error);
    if (status != DL_OK || !engine->model) return status;
    if (config->predict.quality && dl_quality_new(DL_QUALITY_WINDOW, &engine->quality) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for live quality");
    status = dl_engine_drift_start(engine, error);
    if (status == DL_OK && engine->drift) status = load_drift(engine, error);
    if (status == DL_OK && engine->quality) status = load_quality(engine, error);
    if (status == DL_OK) status = load_journal(engine, error);
    return status;
}
