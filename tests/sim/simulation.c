/* See simulation.h. One run: a plan (reference.h), then steps chosen at random
 * until every message was taken in and every record published, then the same
 * messages in the same order in a world where nothing goes wrong. */
#include "tests/sim/simulation.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "service/log.h"
#include "tests/sim/broker.h"
#include "tests/sim/reference.h"
#include "tests/support/fault_vfs.h"

struct sim {
    struct dl_rng rng;
    struct sim_plan plan;
    struct sim_reference reference;
    struct sim_broker broker;
    struct dl_config config;
    struct dl_store_options options;
    struct dl_store *store;
    struct dl_workers *workers;
    struct dl_engine *engine;
    struct dl_kafka_share *share;
    struct dl_backend backend;
    struct dl_backend_job job; /* an ingest: one at a time */
    struct dl_backend_listener listener;
    int job_pending, ingested_at; /* its place in the history */
    int durable;                  /* messages of the history that are acknowledged */
    struct dl_backend_job forget_job;
    int victim;         /* the node that is to be forgotten some time; -1: none */
    int victim_asked;   /* and the engine, in this life, was told */
    uint32_t victim_id; /* it had */
    int next[SIM_LISTS];
    int may_lose; /* the store may go back: lost, restored, or not synced */
    int faults;   /* any */
    int has_copy;
    int full_steps; /* the disk is full for so many steps more */
    enum fault_kind fault;
    struct sim_tally *tally;
    char *why;
    size_t why_size;
    int failed;
};

static char folder[64], store_path[96];
static struct dl_model *model;

static void violated(struct sim *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void violated(struct sim *s, const char *format, ...)
{
    va_list args;
    if (s->failed) return;
    s->failed = 1;
    va_start(args, format);
    vsnprintf(s->why, s->why_size, format, args);
    va_end(args);
}

static int chance(struct sim *s, uint64_t one_in)
{
    return dl_rng_below(&s->rng, one_in) == 0;
}

/* ---- the world ------------------------------------------------------------------------- */

static void must(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "simulation: %s\n", what);
    abort();
}

static void remove_folder(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s-lock", store_path);
    unlink(path);
    rmdir(folder);
    dl_model_unref(model);
}

/* One small model for all runs, through a file as they come. */
static void make_model(void)
{
    struct dl_error error = {""};
    struct dl_network *network;
    struct dl_encoding encoding = {.gap = 1, .weight_sd = 1};
    struct dl_network_config config = dl_network_config_default;
    struct dl_model_info info = {.calibration = {1, 0}, .time_unit = DL_TIME_S};
    char path[96];
    if (model) return;
    snprintf(folder, sizeof folder, "/tmp/driftline-sim-XXXXXX");
    must(mkdtemp(folder) != NULL, "no folder");
    snprintf(path, sizeof path, "%s/m.safetensors", folder);
    snprintf(store_path, sizeof store_path, "%s/s.db", folder);
    for (int f = 0; f < DL_EVENT_FEATURES_MAX; f++) encoding.feature_sd[f] = 1;
    config.window = 2;
    config.width = 8;
    config.heads = config.layers = 1;
    must(dl_network_new(&config, &encoding, 3, &network, &error) == DL_OK, error.text);
    dl_network_updated(network);
    info.config = *dl_network_get_config(network);
    info.encoding = encoding;
    snprintf(info.ties, sizeof info.ties, "stream");
    snprintf(info.negatives, sizeof info.negatives, "mixed");
    must(dl_model_save(path, network, &info, NULL, &error) == DL_OK, error.text);
    dl_network_free(network);
    must(dl_model_load(path, &model, &error) == DL_OK, error.text);
    unlink(path);
    atexit(remove_folder);
}

static void make_config(struct sim *s)
{
    static const char *const late[] = {"accept", "topic", "drop"};
    static const char *const predicted[] = {"none", "source", "destination", "both"};
    char window[12], horizon[12], batch[12], lateness[24], skew[24], interval[24], age[24];
    struct dl_error error = {""};
    snprintf(window, sizeof window, "%u", s->plan.window);
    snprintf(horizon, sizeof horizon, "%u", s->plan.id_horizon);
    snprintf(batch, sizeof batch, "%u", s->plan.batch_events);
    snprintf(lateness, sizeof lateness, "%lld", (long long)s->plan.lateness);
    snprintf(skew, sizeof skew, "%lld", (long long)s->plan.future_skew);
    snprintf(age, sizeof age, "%lld", (long long)s->plan.age_max);
    snprintf(interval, sizeof interval, "%lld", (long long)s->plan.min_interval);
    const char *keys[][2] = {
        {"source.kind", "kafka"},
        {"source.topics", SIM_TOPIC},
        {"kafka.bootstrap.servers", "nowhere:9092"},
        {"source.time_unit", "s"},
        {"source.lateness", lateness},
        {"source.late_policy", late[s->plan.late_policy]},
        {"source.future_skew", skew},
        {"source.id_horizon", horizon},
        {"store.window", window},
        {"store.age_max", age},
        {"store.nodes_max", "1000"},
        {"store.pairs_max", "8192"},
        {"predict.for", predicted[s->plan.for_source | s->plan.for_destination << 1]},
        {"predict.min_interval", interval},
        {"predict.top_k", "3"},
        {"predict.candidates_max", "5"},
        {"predict.quality_negatives", "2"},
        {"predict.batch_events", batch},
        {"drift.window", "32"},
        {"drift.surprise_bits", "1.2"}};
    dl_config_init(&s->config);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        dl_config_set(&s->config, keys[i][0], keys[i][1], "test");
    must(dl_config_finish(&s->config, &error) == DL_OK, error.text);
}

/* Histories as the model has them; every score once and in order is checked at the broker. */
static void on_score(struct dl_backend_listener *listener, const struct dl_score *score)
{
    struct sim *s = (struct sim *)((char *)listener - offsetof(struct sim, listener));
    const struct sim_taken *taken = sim_reference_event(&s->reference, score->seq);
    struct sim_texts texts;
    struct dl_edge_event event;
    if (!taken) {
        violated(s, "a score of event %llu, which nobody sent", (unsigned long long)score->seq);
        return;
    }
    sim_edge_event(&s->plan.lists[taken->list][taken->offset], &texts, &event);
    if (!dl_slice_equal(score->src, event.src) || !dl_slice_equal(score->dst, event.dst) ||
        score->time != event.time || !dl_slice_equal(score->id, event.id))
        violated(s, "the score of event %llu is of another event", (unsigned long long)score->seq);
    if (score->src_history != taken->src_history || score->dst_history != taken->dst_history ||
        score->pair_history != taken->pair_history)
        violated(s, "the score of event %llu rests on %llu, %llu, %u events, not %llu, %llu, %llu",
                 (unsigned long long)score->seq, (unsigned long long)score->src_history,
                 (unsigned long long)score->dst_history, score->pair_history,
                 (unsigned long long)taken->src_history, (unsigned long long)taken->dst_history,
                 (unsigned long long)taken->pair_history);
}

static void on_ingested(struct dl_backend_job *job, int status, const struct dl_error *error,
                        const union dl_backend_result *result)
{
    struct sim *s = (struct sim *)((char *)job - offsetof(struct sim, job));
    (void)error;
    s->job_pending = 0;
    if (status != DL_OK) return; /* the client would send it again; this one does not */
    if (s->ingested_at >= s->durable) s->durable = s->ingested_at + 1; /* so it was told */
    if (result->ingested.accepted != 1) violated(s, "an ingested event was not accepted");
}

static void on_forgotten(struct dl_backend_job *job, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    struct sim *s = (struct sim *)((char *)job - offsetof(struct sim, forget_job));
    (void)error;
    s->victim_asked = 0;
    if (status == DL_OK && !result->forgotten.found) violated(s, "a node to forget is not found");
}

/* 0: it could not be opened, and a fault was the reason. */
static int open_world(struct sim *s)
{
    struct dl_error error = {""};
    int status = dl_store_open(store_path, &s->options, &s->store, &error);
    if (status != DL_OK) s->store = NULL;
    if (status == DL_OK) {
        must(dl_workers_new(NULL, 1, &s->workers, &error) == DL_OK, "no workers");
        struct dl_engine_parts parts = {.config = &s->config,
                                        .store = s->store,
                                        .workers = s->workers,
                                        .model = model,
                                        .publish = 1};
        status = dl_engine_new(&parts, &s->engine, &error);
        if (status != DL_OK) s->engine = NULL;
    }
    if (status != DL_OK) {
        if (!fault_vfs_fired()) violated(s, "it does not start again: %s", error.text);
        return 0;
    }
    must(dl_kafka_share_new(&s->config.source.topics, &s->share) == DL_OK, "no share");
    sim_publisher_start(&s->broker, s->share, s->engine, s->plan.partitions);
    dl_engine_backend(s->engine, &s->backend);
    s->listener = (struct dl_backend_listener){.score = on_score};
    s->backend.listen(s->backend.context, &s->listener);
    s->job_pending = s->victim_asked = 0;
    return 1;
}

static void close_world(struct sim *s)
{
    if (s->workers) dl_workers_wait(s->workers);
    dl_engine_free(s->engine);
    dl_workers_free(s->workers);
    dl_store_close(s->store);
    dl_kafka_share_free(s->share);
    s->engine = NULL;
    s->workers = NULL;
    s->store = NULL;
    s->share = NULL;
}

/* ---- comparing with the model -------------------------------------------------------------- */

static void compare_windows(struct sim *s, const char *when)
{
    const struct dl_graph *graph = dl_engine_graph(s->engine);
    uint64_t seqs[SIM_LISTS * SIM_MESSAGES_MAX];
    struct dl_interaction window[16];
    for (int node = 0; node < SIM_NODES; node++) {
        char name[8];
        uint32_t id = 0, have = 0, want = sim_reference_window(&s->reference, node, seqs);
        sim_node_name(node, name);
        if (dl_dictionary_find(dl_engine_nodes(s->engine), 0, dl_slice_text(name), &id) == DL_OK)
            have = dl_graph_window(graph, id, 16, window, NULL);
        if (have != want) {
            violated(s, "%s: the window of %s has %u events, not %u", when, name, have, want);
            return;
        }
        for (uint32_t i = 0; i < have; i++) {
            const struct sim_taken *taken = sim_reference_event(&s->reference, seqs[i]);
            const struct sim_message *m = &s->plan.lists[taken->list][taken->offset];
            char peer[8];
            int out = m->src == node;
            sim_node_name(out ? m->dst : m->src, peer);
            if (window[i].seq == seqs[i] && window[i].time == m->time && window[i].out == out &&
                (window[i].type != 0) == (m->type != 0) && window[i].weight == m->weight &&
                dl_slice_equal(dl_dictionary_name(dl_engine_nodes(s->engine), window[i].peer),
                               dl_slice_text(peer)))
                continue;
            violated(s, "%s: the window of %s holds event %llu at place %u, not %llu", when, name,
                     (unsigned long long)window[i].seq, i, (unsigned long long)seqs[i]);
            return;
        }
    }
}

/* Which of the history is there: a prefix, and no less than was acknowledged. */
static void find_prefix(struct sim *s)
{
    uint64_t events = dl_graph_feed(dl_engine_graph(s->engine))->events, before = 0;
    int count = 0, ended = 0;
    /* A copy may also be newer than the store that was made after a loss. */
    while (s->may_lose && s->reference.count < dl_engine_position(s->engine, SIM_TOPIC, 0))
        sim_reference_take(&s->reference, 0, s->reference.count);
    for (int i = 0; i < s->reference.count; i++) {
        const struct sim_taken *taken = &s->reference.taken[i];
        int there = taken->list == SIM_INGEST
                        ? before < events
                        : taken->offset < dl_engine_position(s->engine, SIM_TOPIC, taken->list);
        before += taken->outcome == SIM_EVENT;
        if (there && ended)
            violated(s, "after a crash message %d of the history is there and one before is not",
                     i);
        if (there) count = i + 1;
        ended |= !there;
    }
    if (count < s->durable && !s->may_lose)
        violated(s, "%d messages were acknowledged and %d are there", s->durable, count);
    sim_reference_cut(&s->reference, count);
    if (sim_reference_events(&s->reference) != events)
        violated(s, "after a crash the state holds %llu events, its positions say %llu",
                 (unsigned long long)events,
                 (unsigned long long)sim_reference_events(&s->reference));
    s->durable = count;
    for (int p = 0; p < s->plan.partitions; p++) {
        int64_t position = dl_engine_position(s->engine, SIM_TOPIC, p);
        s->next[p] = position < 0 ? 0 : (int)position;
    }
}

static int names_victim(void *user, uint64_t seq, const struct dl_event *event)
{
    const struct sim *s = user;
    (void)seq;
    return event->src == s->victim_id || event->dst == s->victim_id;
}

/* It lost its name: it is forgotten from here on. */
static void look_for_victim(struct sim *s)
{
    char name[8];
    uint32_t id;
    if (s->victim < 0 || s->victim_id == UINT32_MAX || s->reference.forgotten_at >= 0) return;
    sim_node_name(s->victim, name);
    if (dl_dictionary_find(dl_engine_nodes(s->engine), 0, dl_slice_text(name), &id) == DL_OK &&
        id == s->victim_id)
        return;
    sim_reference_forget(&s->reference, s->victim);
    s->tally->forgotten++;
}

/* Nothing breaks any more. */
static void finish_forgetting(struct sim *s)
{
    struct dl_error error = {""};
    struct dl_store_forgetting record;
    for (int steps = 0; dl_engine_forgetting(s->engine) && !s->failed; steps++) {
        dl_workers_wait(s->workers);
        if (dl_engine_forget_step(s->engine) != DL_OK || steps > 10000)
            violated(s, "forgetting does not come to an end");
        look_for_victim(s);
    }
    if (s->failed || s->reference.forgotten_at < 0) return;
    if (dl_store_forget_get(s->store, &record, &error) != DL_ERR_NOT_FOUND)
        violated(s, "what is forgotten is still noted");
    if (s->victim_asked) violated(s, "a request to forget is not answered");
    if (dl_store_log_read(s->store, 0, names_victim, s, &error) != DL_OK)
        violated(s, "the log still names what is forgotten");
}

static void check_store(struct sim *s)
{
    struct dl_store_report report;
    struct dl_error error = {""};
    if (dl_store_check(s->store, &report, &error) != DL_OK)
        violated(s, "check: %s", error.text);
    else if (report.problems)
        violated(s, "check: %s", report.problem);
}

/* ---- what goes wrong ------------------------------------------------------------------------ */

static void set_fault(struct sim *s, enum fault_kind kind, uint64_t within)
{
    fault_vfs_set(kind, 1 + dl_rng_below(&s->rng, within), dl_rng_u64(&s->rng));
    s->fault = kind;
}

/* The process or the machine went, whether or not the engine has noticed. */
static int is_dead(const struct sim *s)
{
    return (s->fault == FAULT_CUT || s->fault == FAULT_KILL) && fault_vfs_fired();
}

static void start_again(struct sim *s)
{
    for (int attempt = 0; !s->failed; attempt++) {
        /* It may die while it starts, too. */
        if (s->faults && attempt < 3 && chance(s, 6))
            set_fault(s, chance(s, 2) ? FAULT_KILL : FAULT_ONCE, 300);
        if (open_world(s)) break;
        close_world(s);
        fault_vfs_power_on();
        set_fault(s, FAULT_NONE, 1);
    }
    if (s->failed) return;
    if (!is_dead(s) && chance(s, 2)) set_fault(s, FAULT_NONE, 1);
    find_prefix(s);
    look_for_victim(s);
    s->tally->forgotten_on += (uint64_t)dl_engine_forgetting(s->engine);
    if (!s->failed) compare_windows(s, "after a start");
    if (s->fault == FAULT_NONE && chance(s, 6)) check_store(s);
}

/* Everything in memory is gone; of the disk what the fault leaves. */
static void crash(struct sim *s)
{
    if (!is_dead(s)) {
        int power = chance(s, 2);
        set_fault(s, power ? FAULT_CUT : FAULT_KILL, 1);
        s->tally->power_cuts += (uint64_t)power;
    }
    s->tally->crashes++;
    close_world(s);
    fault_vfs_power_on();
    set_fault(s, FAULT_NONE, 1);
    fault_vfs_set_space(UINT64_MAX);
    s->full_steps = 0;
    start_again(s);
}

/* As SIGTERM does it; then, in some runs, another file is found in its place. */
static void stop_and_start(struct sim *s)
{
    struct dl_error error = {""};
    set_fault(s, FAULT_NONE, 1);
    fault_vfs_set_space(UINT64_MAX);
    s->full_steps = 0;
    dl_engine_retry(s->engine);
    dl_engine_flush(s->engine);
    dl_workers_wait(s->workers);
    if (dl_engine_failure(s->engine)) {
        crash(s);
        return;
    }
    if (dl_engine_checkpoint(s->engine, &error) != DL_OK) violated(s, "stop: %s", error.text);
    close_world(s);
    s->tally->orderly++;
    if (s->may_lose && chance(s, 3)) {
        if (s->has_copy && chance(s, 2)) {
            fault_vfs_bring_back();
            s->tally->old_stores++;
        } else {
            fault_vfs_reset();
            s->tally->lost_stores++;
        }
        s->durable = 0;
    } else if (s->may_lose && (!s->has_copy || chance(s, 3))) {
        fault_vfs_keep();
        s->has_copy = 1;
    }
    start_again(s);
}

/* The engine ended by itself: right if the disk failed, and only then. */
static void look(struct sim *s)
{
    if (s->failed || !s->engine) return;
    const char *failure = dl_engine_failure(s->engine);
    if (is_dead(s))
        crash(s);
    else if (failure && !fault_vfs_fired())
        violated(s, "the engine ended by itself: %s", failure);
    else if (failure) {
        s->tally->io_errors++;
        crash(s);
    } else {
        look_for_victim(s);
        if (!dl_engine_busy(s->engine)) s->durable = s->reference.count;
    }
}

/* ---- steps ------------------------------------------------------------------------------------
 */

/* A message of the partition: the next, or (again) one before it. */
static void offer(struct sim *s, int p)
{
    static const char payload[] = "as it came";
    int offset = s->next[p];
    if (s->faults && offset > 0 && chance(s, 12))
        offset -= 1 + (int)dl_rng_below(&s->rng, (uint64_t)offset);
    if (offset >= s->plan.counts[p] || dl_engine_room(s->engine) == 0) return;
    const struct sim_message *m = &s->plan.lists[p][offset];
    struct sim_texts texts;
    struct dl_edge_event event;
    struct dl_arrival arrival = {.topic = SIM_TOPIC,
                                 .partition = p,
                                 .offset = offset,
                                 .wall_us = m->wall_s * 1000000,
                                 .payload = dl_slice_of(payload, sizeof payload - 1)};
    if (offset == s->next[p]) { /* before the call, which may commit */
        sim_reference_take(&s->reference, p, offset);
        s->next[p]++;
    }
    sim_edge_event(m, &texts, &event);
    int status = m->broken ? dl_engine_offer_broken(s->engine, &arrival, "made to be broken", "src")
                           : dl_engine_offer(s->engine, &arrival, &event);
    if (status != DL_OK && !dl_engine_failure(s->engine)) violated(s, "offer: %d", status);
}

static void ingest(struct sim *s)
{
    int at = s->next[SIM_INGEST];
    struct sim_texts texts;
    struct dl_edge_event event;
    struct dl_error error = {""};
    if (at >= s->plan.counts[SIM_INGEST] || s->job_pending || dl_engine_room(s->engine) == 0)
        return;
    sim_edge_event(&s->plan.lists[SIM_INGEST][at], &texts, &event);
    struct dl_backend_ingest_request request = {.event_count = 1, .events = &event};
    s->job = (struct dl_backend_job){.done = on_ingested, .deadline_ns = INT64_MAX};
    s->job_pending = 1;
    s->next[SIM_INGEST]++;
    s->ingested_at = s->reference.count;
    sim_reference_take(&s->reference, SIM_INGEST, at);
    if (s->backend.ingest(s->backend.context, &request, &s->job, &error) != DL_OK)
        violated(s, "ingest: %s", error.text);
}

/* The victim, once it is known for good; before, or after a crash too early, not at all. */
static void forget(struct sim *s)
{
    char name[8];
    struct dl_error error = {""};
    if (s->victim < 0 || s->victim_asked || s->reference.forgotten_at >= 0 ||
        !sim_reference_knows(&s->reference, s->victim, s->durable))
        return;
    sim_node_name(s->victim, name);
    struct dl_slice node = dl_slice_text(name);
    if (dl_dictionary_find(dl_engine_nodes(s->engine), 0, node, &s->victim_id) != DL_OK)
        violated(s, "%s has no id", name);
    s->forget_job = (struct dl_backend_job){.done = on_forgotten, .deadline_ns = INT64_MAX};
    s->victim_asked = 1;
    struct dl_backend_forget_request request = {.node = node};
    if (s->backend.forget(s->backend.context, &request, &s->forget_job, &error) != DL_OK &&
        !dl_engine_failure(s->engine))
        violated(s, "forget: %s", error.text);
}

static void publish(struct sim *s)
{
    struct dl_error error = {""};
    switch (sim_publish(&s->broker, s->share, s->engine, s->store, &s->rng, s->faults, &error)) {
    case SIM_CRASHED:
        crash(s);
        break;
    case SIM_FAILED: /* the service ends */
        if (!fault_vfs_fired()) violated(s, "publishing: %s", error.text);
        crash(s);
        break;
    default:
        break;
    }
}

static void disturb(struct sim *s)
{
    switch (s->may_lose && chance(s, 4) ? 5 : dl_rng_below(&s->rng, 10)) {
    case 0:
    case 1:
        crash(s);
        break;
    case 2: /* in the middle of whatever comes next */
        set_fault(s, FAULT_CUT, 60);
        s->tally->power_cuts++;
        break;
    case 3:
        set_fault(s, FAULT_KILL, 60);
        break;
    case 4:
        set_fault(s, FAULT_ONCE, 60);
        break;
    case 5:
        stop_and_start(s);
        break;
    case 6:
    case 7: /* nearly full, or so full that nothing fits */
        fault_vfs_set_space(fault_vfs_bytes() + dl_rng_below(&s->rng, 40000));
        s->full_steps = 5 + (int)dl_rng_below(&s->rng, 60);
        break;
    default:
        dl_workers_wait(s->workers);
    }
}

static int everything_taken(const struct sim *s)
{
    for (int list = 0; list < SIM_LISTS; list++)
        if (s->next[list] < s->plan.counts[list]) return 0;
    return 1;
}

static void step(struct sim *s)
{
    if (s->full_steps && --s->full_steps == 0) fault_vfs_set_space(UINT64_MAX);
    if (dl_engine_waiting(s->engine)) {
        s->tally->waits++;
        dl_engine_retry(s->engine);
        look(s);
        if (s->failed) return;
    }
    if (dl_engine_forgetting(s->engine) && chance(s, 3)) {
        dl_engine_forget_step(s->engine);
        look(s);
        if (s->failed) return;
    }
    uint64_t what = dl_rng_below(&s->rng, 100);
    if (s->victim >= 0 && chance(s, 40))
        forget(s);
    else if (what < 60)
        offer(s, (int)dl_rng_below(&s->rng, (uint64_t)s->plan.partitions));
    else if (what < 64)
        ingest(s);
    else if (what < 72)
        dl_engine_flush(s->engine);
    else if (what < 84)
        dl_workers_wait(s->workers);
    else if (what < 95 || !s->faults)
        publish(s);
    else if (chance(s, 3))
        disturb(s);
    look(s);
}

/* All is taken in: the disk has room, nothing breaks any more, and all is published. */
static void finish(struct sim *s)
{
    set_fault(s, FAULT_NONE, 1);
    fault_vfs_set_space(UINT64_MAX);
    s->faults = 0;
    for (int i = 0; i < 5 && !s->failed; i++) {
        dl_engine_retry(s->engine);
        dl_engine_flush(s->engine);
        dl_workers_wait(s->workers);
        look(s);
    }
    if (!s->failed) finish_forgetting(s);
    struct dl_error error = {""};
    uint64_t first, next;
    while (!s->failed && sim_publish(&s->broker, s->share, s->engine, s->store, &s->rng, 0,
                                     &error) == SIM_PUBLISHED)
        continue;
    dl_store_outbox_range(s->store, &first, &next);
    if (first != next)
        violated(s, "%llu records stay in the outbox", (unsigned long long)(next - first));
    if (!s->failed) compare_windows(s, "at the end");
    if (!s->failed) check_store(s);
}

static void run(struct sim *s)
{
    fault_vfs_reset();
    sim_broker_init(&s->broker);
    sim_reference_init(&s->reference, &s->plan);
    start_again(s);
    while (!s->failed && !everything_taken(s)) step(s);
    if (!s->failed) finish(s);
    set_fault(s, FAULT_NONE, 1);
    close_world(s);
}

/* ---- what readers see
 * ---------------------------------------------------------------------------- */

/* Every message's records, once each and in the order of the history. */
static void compare_with_reference(struct sim *s)
{
    int at = 0;
    for (int i = 0; i < s->reference.count && !s->failed; i++) {
        const struct sim_taken *taken = &s->reference.taken[i];
        int want[8] = {0}, have[8] = {0};
        want[DL_OUTBOX_SCORE] = taken->outcome == SIM_EVENT;
        want[DL_OUTBOX_PREDICTION] = taken->predictions;
        want[DL_OUTBOX_DEAD_LETTER] = taken->outcome == SIM_DEAD || taken->outcome == SIM_LATE;
        for (; at < s->broker.count; at++) {
            const struct sim_record *r = &s->broker.records[at];
            int of_this = taken->list == SIM_INGEST
                              ? r->offset < 0 && have[r->kind] < want[r->kind]
                              : r->offset == taken->offset && r->partition == taken->list;
            if (!of_this && !(r->kind == DL_OUTBOX_ALERT && r->offset < 0)) break;
            have[r->kind]++;
        }
        int fewer = i < s->reference.forgotten_at; /* records may have been emptied in the outbox */
        for (int kind = 1; kind < 8; kind++)
            if (kind != DL_OUTBOX_ALERT && have[kind] != want[kind] &&
                !(fewer && have[kind] < want[kind]))
                violated(s, "message %d of partition %d: readers see %d records of kind %d, not %d",
                         taken->offset, taken->list, have[kind], kind, want[kind]);
    }
    if (!s->failed && at != s->broker.count)
        violated(s, "readers see %d records more than there should be", s->broker.count - at);
}

static int mentions(const struct sim_record *record, const char *name)
{
    size_t size = strlen(name);
    return size && record->bytes.size >= size &&
           memmem(record->bytes.data, record->bytes.size, name, size);
}

static int next_record(const struct sim_broker *broker, int at, int without_alerts,
                       const char *without_name)
{
    while (at < broker->count && ((without_alerts && broker->records[at].kind == DL_OUTBOX_ALERT) ||
                                  mentions(&broker->records[at], without_name)))
        at++;
    return at;
}

/* Without alerts where the store was lost: those on the feed rest on more than the feed then.
 * Without what names a forgotten node: readers may have it or not. */
static void compare_with_calm(struct sim *s, const struct sim *calm)
{
    int a = 0, b = 0;
    char name[8] = "";
    if (s->reference.forgotten_at >= 0) sim_node_name(s->reference.forgotten, name);
    for (;; a++, b++) {
        a = next_record(&s->broker, a, s->may_lose, name);
        b = next_record(&calm->broker, b, s->may_lose, name);
        if (a == s->broker.count || b == calm->broker.count) break;
        if (!dl_slice_equal(dl_buf_slice(&s->broker.records[a].bytes),
                            dl_buf_slice(&calm->broker.records[b].bytes))) {
            violated(s, "record %d (kind %d, offset %lld) is not what an undisturbed run publishes",
                     a, s->broker.records[a].kind, (long long)s->broker.records[a].offset);
            return;
        }
    }
    if (a != s->broker.count || b != calm->broker.count)
        violated(s, "%d records, and %d of an undisturbed run", s->broker.count,
                 calm->broker.count);
}

static void forget_calmly(struct sim *calm)
{
    dl_engine_flush(calm->engine);
    dl_workers_wait(calm->workers);
    look(calm);
    forget(calm);
    look(calm);
    if (calm->reference.forgotten_at != calm->reference.count)
        violated(calm, "a node is not forgotten at once where nothing is in the way");
}

/* The same messages in the same order, and nothing goes wrong. */
static void run_calm(struct sim *calm, const struct sim_reference *history)
{
    fault_vfs_reset();
    sim_broker_init(&calm->broker);
    sim_reference_init(&calm->reference, &calm->plan);
    start_again(calm);
    for (int i = 0; i < history->count && !calm->failed; i++) {
        const struct sim_taken *taken = &history->taken[i];
        if (i == history->forgotten_at) forget_calmly(calm);
        while (dl_engine_room(calm->engine) == 0) dl_workers_wait(calm->workers);
        calm->next[taken->list] = taken->offset;
        if (taken->list == SIM_INGEST)
            ingest(calm);
        else
            offer(calm, taken->list);
        while (calm->job_pending) dl_workers_wait(calm->workers);
    }
    if (!calm->failed && history->count == history->forgotten_at) forget_calmly(calm);
    if (!calm->failed) finish(calm);
    close_world(calm);
}

int sim_run(uint64_t seed, struct sim_tally *tally, char *why, size_t why_size)
{
    struct sim *s = calloc(1, sizeof *s), *calm = calloc(1, sizeof *calm);
    must(s && calm, "out of memory");
    make_model();
    dl_log_setup((enum dl_log_level)(DL_LOG_ERROR + 1), DL_LOG_TEXT);
    dl_rng_seed(&s->rng, seed);
    /* A store that goes back meets the topic in another order if there are several partitions,
     * and what came by RPC not at all. */
    s->may_lose = chance(s, 3);
    sim_plan_make(&s->plan, &s->rng,
                  s->may_lose ? 1 : 1 + (int)dl_rng_below(&s->rng, SIM_PARTITIONS_MAX),
                  !s->may_lose && chance(s, 2));
    /* What came by RPC cannot be told apart in what readers see. */
    s->victim_id = UINT32_MAX;
    s->victim = s->may_lose || s->plan.counts[SIM_INGEST] || chance(s, 2)
                    ? -1
                    : (int)dl_rng_below(&s->rng, SIM_NODES_OFTEN);
    make_config(s);
    s->options = dl_store_options_default;
    s->options.vfs = FAULT_VFS_NAME;
    s->options.config =
        (struct dl_store_config){.time_unit = DL_TIME_S, .window = s->plan.window, .namespaces = 1};
    s->options.sync = s->may_lose && chance(s, 2) ? DL_STORE_SYNC_NORMAL : DL_STORE_SYNC_FULL;
    s->options.round_events = 10 + dl_rng_below(&s->rng, 90);
    s->options.log_keep_events = dl_rng_below(&s->rng, 100);
    s->options.wal_bytes = (64 << 10) + dl_rng_below(&s->rng, 256 << 10);
    s->faults = 1;
    s->tally = tally;
    s->why = why;
    s->why_size = why_size;
    *calm = *s;
    calm->faults = calm->may_lose = 0;
    run(s);
    tally->events += sim_reference_events(&s->reference);
    tally->records += (uint64_t)s->broker.count;
    if (!s->failed) compare_with_reference(s);
    if (!s->failed) {
        run_calm(calm, &s->reference);
        s->failed = calm->failed;
    }
    if (!s->failed) compare_with_calm(s, calm);
    int failed = s->failed;
    sim_broker_deinit(&s->broker);
    sim_broker_deinit(&calm->broker);
    dl_config_deinit(&s->config);
    free(s);
    free(calm);
    return failed ? -1 : 0;
}
