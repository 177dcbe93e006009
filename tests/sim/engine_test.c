/* The engine with a simulated source, crashes and clock, from a seed: whatever
 * the batches, the number of workers and the crashes, what it publishes is the
 * same, byte for byte, and each message is taken in once. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "service/engine.h"
#include "service/log.h"
#include "tests/support/fault_vfs.h"

#define EVENTS 600
#define TOPIC "feed"

/* ---- the world ----------------------------------------------------------------------- */

struct message {
    char src[16], dst[16];
    struct dl_edge_event event;
    int broken;
};

static struct message feed[EVENTS];

static void make_feed(uint64_t seed)
{
    struct dl_rng rng;
    int64_t time = 1000;
    dl_rng_seed(&rng, seed);
    for (int i = 0; i < EVENTS; i++) {
        struct message *m = &feed[i];
        time += (int64_t)dl_rng_below(&rng, 4);
        snprintf(m->src, sizeof m->src, "s%u", (unsigned)dl_rng_below(&rng, 30));
        snprintf(m->dst, sizeof m->dst, "s%u", (unsigned)dl_rng_below(&rng, 20));
        m->broken = dl_rng_below(&rng, 25) == 0;
        m->event = (struct dl_edge_event){
            .src = dl_slice_text(m->src),
            .dst = dl_slice_text(m->dst),
            .time = dl_rng_below(&rng, 12) ? time : time - (int64_t)dl_rng_below(&rng, 30),
            .weight = (float)(1 + dl_rng_below(&rng, 9)),
            .has_weight = 1};
        if (dl_rng_below(&rng, 3) == 0) m->event.type = dl_slice_text("call");
    }
}

struct world {
    char folder[64], store_path[96], model_path[96];
    struct dl_config config;
    struct dl_model *model;
    struct dl_store *store;
    struct dl_workers *workers;
    struct dl_engine *engine;
};

static const char *architecture = "diffdyg"; /* of the model that worlds get */
static const char *vfs;                      /* NULL: the real disk */

static void world_init(struct world *w, const char *batch, const char *late_policy)
{
    struct dl_error error = {""};
    struct dl_network *network;
    struct dl_encoding encoding = {.gap = 1, .weight_sd = 1};
    struct dl_network_config network_config = dl_network_config_default;
    struct dl_model_info info = {.calibration = {1, 0}, .time_unit = DL_TIME_TICKS};
    for (int f = 0; f < DL_EVENT_FEATURES_MAX; f++) encoding.feature_sd[f] = 1;
    snprintf(w->folder, sizeof w->folder, "/tmp/driftline-sim-XXXXXX");
    cr_assert_not_null(mkdtemp(w->folder));
    snprintf(w->store_path, sizeof w->store_path, "%s/s.db", w->folder);
    snprintf(w->model_path, sizeof w->model_path, "%s/m.safetensors", w->folder);
    dl_log_setup(DL_LOG_ERROR, DL_LOG_TEXT);

    network_config.arrival_age = 1;
    snprintf(network_config.architecture, sizeof network_config.architecture, "%s", architecture);
    cr_assert_eq(dl_network_new(&network_config, &encoding, 3, &network, &error), DL_OK, "%s",
                 error.text);
    dl_network_updated(network);
    info.config = *dl_network_get_config(network);
    info.encoding = encoding;
    snprintf(info.ties, sizeof info.ties, "stream");
    snprintf(info.negatives, sizeof info.negatives, "mixed");
    cr_assert_eq(dl_model_save(w->model_path, network, &info, NULL, &error), DL_OK, "%s",
                 error.text);
    dl_network_free(network);
    cr_assert_eq(dl_model_load(w->model_path, &w->model, &error), DL_OK, "%s", error.text);

    const char *keys[][2] = {{"source.kind", "file"},
                             {"source.path", "none"},
                             {"source.encoding", "csv"},
                             {"source.time_unit", "ticks"},
                             {"store.window", "16"},
                             {"store.nodes_max", "1000"},
                             {"store.pairs_max", "1024"},
                             {"store.synchronous", "normal"},
                             {"predict.candidates_max", "12"},
                             {"predict.for", "both"},
                             {"predict.quality_negatives", "5"},
                             {"drift.window", "64"},
                             {"source.lateness", "20"},
                             {"source.late_policy", late_policy},
                             {"predict.batch_events", batch}};
    dl_config_init(&w->config);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        dl_config_set(&w->config, keys[i][0], keys[i][1], "test");
    cr_assert_eq(dl_config_finish(&w->config, &error), DL_OK, "%s", error.text);
}

static void world_open(struct world *w, uint32_t workers)
{
    struct dl_error error = {""};
    struct dl_store_options options = dl_store_options_default;
    options.config =
        (struct dl_store_config){.time_unit = DL_TIME_TICKS, .window = 16, .namespaces = 1};
    options.sync = DL_STORE_SYNC_OFF;
    options.round_events = 200;
    options.vfs = vfs;
    cr_assert_eq(dl_store_open(w->store_path, &options, &w->store, &error), DL_OK, "%s",
                 error.text);
    cr_assert_eq(dl_workers_new(NULL, workers, &w->workers, &error), DL_OK);
    struct dl_engine_parts parts = {.config = &w->config,
                                    .store = w->store,
                                    .workers = w->workers,
                                    .model = w->model,
                                    .publish = 1};
    cr_assert_eq(dl_engine_new(&parts, &w->engine, &error), DL_OK, "%s", error.text);
}

/* Everything in memory is gone, as if the process had been killed. */
static void world_crash(struct world *w)
{
    dl_workers_wait(w->workers);
    dl_engine_free(w->engine);
    dl_workers_free(w->workers);
    dl_store_close(w->store);
}

static void world_deinit(struct world *w)
{
    char command[128];
    world_crash(w);
    dl_model_unref(w->model);
    dl_config_deinit(&w->config);
    snprintf(command, sizeof command, "rm -r %s", w->folder);
    cr_assert_eq(system(command), 0);
}

/* Offers message `offset`; returns after it is in the batch. */
static void offer(struct world *w, int offset)
{
    static const char payload[] = "as it came";
    struct dl_arrival arrival = {
        .topic = TOPIC, .offset = offset, .payload = dl_slice_of(payload, sizeof payload - 1)};
    while (dl_engine_room(w->engine) == 0) dl_workers_wait(w->workers);
    if (feed[offset].broken)
        cr_assert_eq(dl_engine_offer_broken(w->engine, &arrival, "made to be broken", "src"),
                     DL_OK);
    else
        cr_assert_eq(dl_engine_offer(w->engine, &arrival, &feed[offset].event), DL_OK);
}

static void finish(struct world *w)
{
    dl_engine_flush(w->engine);
    dl_workers_wait(w->workers);
    cr_assert_null(dl_engine_failure(w->engine));
}

static int append_row(void *user, const struct dl_outbox_row *row)
{
    struct dl_buf *out = user;
    dl_buf_u64(out, row->seq);
    dl_buf_u8(out, (uint8_t)row->kind);
    dl_buf_text(out, row->topic);
    dl_buf_append(out, row->key.data, row->key.size);
    dl_buf_append(out, row->headers.data, row->headers.size);
    dl_buf_append(out, row->payload.data, row->payload.size);
    return 0;
}

static void read_outbox(struct world *w, struct dl_buf *out)
{
    struct dl_error error;
    dl_buf_clear(out);
    cr_assert_eq(dl_store_outbox_read(w->store, 0, UINT32_MAX, append_row, out, &error), DL_OK);
    cr_assert_gt(out->size, 100000u, "the test published nothing");
    /* What the monitors know must be the same as well. */
    dl_watch_save(dl_engine_watch(w->engine), out);
}

static void run_calm(const char *batch, uint32_t workers, struct dl_buf *out)
{
    struct world w = {0};
    world_init(&w, batch, "accept");
    world_open(&w, workers);
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    finish(&w);
    read_outbox(&w, out);
    world_deinit(&w);
}

/* ---- the properties ------------------------------------------------------------------- */

static void output_is_the_same(void)
{
    static const char *const batches[] = {"1", "7", "64", "1000"};
    struct dl_buf first = {0}, other = {0};
    make_feed(1);
    run_calm("32", 1, &first);
    for (size_t i = 0; i < 4; i++) {
        run_calm(batches[i], 1 + (uint32_t)i, &other);
        cr_assert(dl_slice_equal(dl_buf_slice(&first), dl_buf_slice(&other)),
                  "batches of %s on %zu workers publish something else", batches[i], 1 + i);
    }
    dl_buf_free(&first);
    dl_buf_free(&other);
}

static void crashes_change_nothing(void)
{
    struct dl_buf calm = {0}, crashed = {0};
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct world w = {0};
        struct dl_rng rng;
        int crashes = 0;
        dl_rng_seed(&rng, seed);
        make_feed(seed);
        run_calm("32", 1, &calm);
        world_init(&w, "32", "accept");
        world_open(&w, 2);
        for (int i = 0; i < EVENTS;) {
            offer(&w, i++);
            if (dl_rng_below(&rng, 9) == 0) dl_engine_flush(w.engine);
            if (dl_rng_below(&rng, 60) == 0) {
                world_crash(&w);
                world_open(&w, 1);
                int64_t next = dl_engine_position(w.engine, TOPIC, 0);
                i = next < 0 ? 0 : (int)next;
                crashes++;
            }
        }
        finish(&w);
        read_outbox(&w, &crashed);
        cr_assert(dl_slice_equal(dl_buf_slice(&calm), dl_buf_slice(&crashed)),
                  "seed %llu: %d crashes changed the output", (unsigned long long)seed, crashes);
        cr_assert_gt(crashes, 2);
        world_deinit(&w);
    }
    dl_buf_free(&calm);
    dl_buf_free(&crashed);
}

Test(engine, output_depends_on_neither_batches_nor_workers)
{
    output_is_the_same();
}

Test(engine, crashes_change_nothing_that_is_published)
{
    crashes_change_nothing();
}

/* Batches and workers decide which windows are encoded anew and which encodings
 * are at hand, and a crash empties the cache. */
Test(engine, output_depends_on_no_encoding_that_is_kept)
{
    architecture = "diffdyg-cached";
    output_is_the_same();
    crashes_change_nothing();
}

Test(engine, a_model_without_attention_serves_too)
{
    architecture = "mlp";
    output_is_the_same();
}

Test(engine, a_message_that_was_taken_in_is_passed_over)
{
    struct world w = {0};
    make_feed(3);
    world_init(&w, "16", "accept");
    world_open(&w, 1);
    for (int i = 0; i < 100; i++) offer(&w, i);
    finish(&w);
    uint64_t events = dl_graph_feed(dl_engine_graph(w.engine))->events;
    for (int i = 0; i < 100; i++) offer(&w, i);
    finish(&w);
    cr_assert_eq(dl_graph_feed(dl_engine_graph(w.engine))->events, events);
    world_deinit(&w);
}

Test(engine, late_events_are_dropped_where_the_policy_says_so)
{
    struct world w = {0};
    uint64_t kept = 0;
    int64_t newest = INT64_MIN;
    make_feed(4);
    world_init(&w, "16", "drop");
    world_open(&w, 1);
    for (int i = 0; i < EVENTS; i++) {
        offer(&w, i);
        if (feed[i].broken) continue;
        if (newest != INT64_MIN && newest - feed[i].event.time > 20) continue;
        if (feed[i].event.time > newest) newest = feed[i].event.time;
        kept++;
    }
    finish(&w);
    cr_assert_eq(dl_graph_feed(dl_engine_graph(w.engine))->events, kept);
    cr_assert_lt(kept, (uint64_t)EVENTS - 20, "the test had no late events");
    world_deinit(&w);
}

struct counted {
    struct dl_backend_listener listener;
    uint64_t scores, predictions;
};

static void count_score(struct dl_backend_listener *listener, const struct dl_score *score)
{
    struct counted *c = (struct counted *)listener;
    cr_assert(score->probability > 0 && score->probability < 1);
    cr_assert_eq(score->seq, c->scores);
    c->scores++;
}

static void count_prediction(struct dl_backend_listener *listener,
                             const struct dl_prediction *prediction)
{
    struct counted *c = (struct counted *)listener;
    double share = 0;
    for (uint32_t i = 0; i < prediction->candidate_count; i++) {
        const struct dl_candidate *candidate = &prediction->candidates[i];
        share += candidate->share;
        cr_assert(!dl_slice_equal(candidate->node, prediction->node),
                  "a node is no candidate of its own");
        cr_assert(candidate->origin != 0);
        if (i) cr_assert_leq(candidate->probability, prediction->candidates[i - 1].probability);
    }
    cr_assert_leq(share, 1 + 1e-9);
    c->predictions++;
}

Test(engine, listeners_hear_each_score_and_prediction_once_and_in_order)
{
    struct world w = {0};
    struct counted c = {.listener = {.score = count_score, .prediction = count_prediction}};
    struct dl_backend backend;
    make_feed(5);
    world_init(&w, "16", "accept");
    world_open(&w, 2);
    dl_engine_backend(w.engine, &backend);
    backend.listen(backend.context, &c.listener);
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    finish(&w);
    cr_assert_eq(c.scores, dl_graph_feed(dl_engine_graph(w.engine))->events);
    cr_assert_eq(c.predictions, 2 * c.scores);
    world_deinit(&w);
}

#define ID_HORIZON 100
#define ID_PASSES 5

/* The feed over and over, with ids of which many come again. A list is the model. */
Test(engine, repeats_are_known_by_their_id_within_the_horizon_whatever_crashes)
{
    static int accepted[EVENTS * ID_PASSES];
    struct world w = {0};
    struct dl_rng rng;
    uint64_t events = 0;
    int ids = 0, repeats = 0, crashes = 0;
    make_feed(10);
    dl_rng_seed(&rng, 10);
    world_init(&w, "16", "accept");
    w.config.source.id_horizon = ID_HORIZON;
    world_open(&w, 1);
    int taken = 0; /* messages that the model has seen */
    for (int i = 0; i < EVENTS * ID_PASSES;) {
        char text[16];
        struct dl_edge_event event = feed[i % EVENTS].event;
        int id = (int)(dl_mix64((uint64_t)i) % 300), known = 0;
        snprintf(text, sizeof text, "id-%d", id);
        if (i % 10) event.id = dl_slice_text(text); /* without an id nothing is a repeat */
        if (i == taken) {
            for (int k = ids - 1; event.id.size && k >= 0 && k >= ids - ID_HORIZON; k--)
                known |= accepted[k] == id;
            if (event.id.size && !known) accepted[ids++] = id;
            repeats += known;
            events += !known;
            taken++;
        }
        struct dl_arrival arrival = {.topic = TOPIC, .offset = i++};
        while (dl_engine_room(w.engine) == 0) dl_workers_wait(w.workers);
        cr_assert_eq(dl_engine_offer(w.engine, &arrival, &event), DL_OK);
        if (dl_rng_below(&rng, 9) == 0) dl_engine_flush(w.engine);
        if (dl_rng_below(&rng, 200) == 0) {
            world_crash(&w);
            world_open(&w, 1);
            int64_t next = dl_engine_position(w.engine, TOPIC, 0);
            i = next < 0 ? 0 : (int)next;
            crashes++;
        }
    }
    finish(&w);
    cr_assert_eq(dl_graph_feed(dl_engine_graph(w.engine))->events, events);
    cr_assert_gt(repeats, 500);
    cr_assert_gt(ids, 1500, "the test fills no second segment");
    cr_assert_gt(crashes, 5);
    world_deinit(&w);
}

static struct dl_backend_forgotten forgotten;
static int forgot;
static void on_forgotten(struct dl_backend_job *job, int status, const struct dl_error *error,
                         const union dl_backend_result *result)
{
    (void)job;
    forgot++;
    if (status == DL_ERR_UNAVAILABLE) return; /* the world went */
    cr_assert_eq(status, DL_OK, "%s", error ? error->text : "");
    forgotten = result->forgotten;
}

/* As the service does while nothing else is to do. */
static void forget_all(struct world *w)
{
    for (int steps = 0; dl_engine_forgetting(w->engine); steps++) {
        cr_assert_lt(steps, 1000, "forgetting does not come to an end");
        dl_workers_wait(w->workers);
        cr_assert_eq(dl_engine_forget_step(w->engine), DL_OK);
    }
}

static int mentions(void *user, uint64_t seq, const struct dl_event *event)
{
    const uint32_t *ids = user;
    (void)seq;
    if (ids[1] == UINT32_MAX) return event->src == ids[0] || event->dst == ids[0];
    return (event->src == ids[0] && event->dst == ids[1]) ||
           (event->src == ids[1] && event->dst == ids[0]);
}

/* Two ids, and a number that tells earlier from later. */
static int mentions_before(void *user, uint64_t seq, const struct dl_event *event)
{
    const uint64_t *of = user;
    uint32_t ids[2] = {(uint32_t)of[0], (uint32_t)of[1]};
    return seq < of[2] && mentions(ids, seq, event);
}

/* 1 if the bytes stand anywhere in the file or its WAL. */
static int file_holds(const char *path, const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "cat %s* | grep -aq '%s'", path, text);
    return system(command) == 0;
}

/* Renames a node of the feed to something that can be looked for in the file. */
#define SECRET "somebody-to-forget"
static int rename_in_feed(void)
{
    struct dl_slice secret = dl_slice_text(SECRET), victim = feed[5].event.src;
    int count = 0;
    for (int i = 0; i < EVENTS; i++) {
        int src = dl_slice_equal(feed[i].event.src, victim);
        int dst = dl_slice_equal(feed[i].event.dst, victim);
        if (feed[i].broken || (!src && !dst)) continue;
        count++;
    }
    for (int i = EVENTS - 1; i >= 0; i--) {
        if (dl_slice_equal(feed[i].event.dst, victim)) feed[i].event.dst = secret;
        if (dl_slice_equal(feed[i].event.src, victim)) feed[i].event.src = secret;
    }
    return count;
}

Test(engine, a_forgotten_node_is_gone_from_memory_file_and_outbox_for_good)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job job = {.done = on_forgotten};
    struct dl_error error;
    uint32_t ids[2] = {0, UINT32_MAX}, again;
    make_feed(8);
    int events = rename_in_feed();
    world_init(&w, "16", "accept");
    world_open(&w, 2);
    dl_engine_backend(w.engine, &backend);
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    dl_engine_flush(w.engine); /* the request comes while a batch is being scored */
    struct dl_backend_forget_request request = {.node = dl_slice_text(SECRET)};
    cr_assert_eq(dl_dictionary_find(dl_engine_nodes(w.engine), 0, request.node, &ids[0]), DL_OK);
    cr_assert(file_holds(w.store_path, SECRET), "the test looks in the wrong file");
    forgot = 0;
    cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
    finish(&w);
    forget_all(&w);
    cr_assert_eq(forgot, 1);
    cr_assert_eq(forgotten.found, 1);
    cr_assert_eq(forgotten.events, (uint64_t)events);
    for (int round = 0; round < 2; round++) {
        cr_assert_null(dl_graph_node(dl_engine_graph(w.engine), ids[0]));
        cr_assert_eq(dl_dictionary_find(dl_engine_nodes(w.engine), 0, request.node, &again),
                     DL_ERR_NOT_FOUND);
        cr_assert_eq(dl_store_log_read(w.store, 0, mentions, ids, &error), 0);
        cr_assert_not(file_holds(w.store_path, SECRET), "its name is still in the file");
        world_crash(&w);
        world_open(&w, 1);
    }
    dl_engine_backend(w.engine, &backend);
    cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
    forget_all(&w);
    cr_assert_eq(forgot, 2);
    cr_assert_eq(forgotten.found, 0);
    /* It may come back, as a new node. */
    feed[0].broken = 0;
    feed[0].event.src = request.node;
    struct dl_arrival arrival = {.topic = TOPIC, .offset = EVENTS};
    cr_assert_eq(dl_engine_offer(w.engine, &arrival, &feed[0].event), DL_OK);
    finish(&w);
    cr_assert_eq(dl_dictionary_find(dl_engine_nodes(w.engine), 0, request.node, &again), DL_OK);
    cr_assert_neq(again, ids[0]);
    cr_assert_eq(dl_graph_node(dl_engine_graph(w.engine), again)->events, 1u);
    world_deinit(&w);
}

Test(engine, forgotten_edges_are_gone_and_both_nodes_stay)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job job = {.done = on_forgotten};
    struct dl_error error;
    struct dl_pair_state pair;
    struct dl_interaction window[16];
    uint32_t ids[2];
    make_feed(9);
    world_init(&w, "16", "accept");
    world_open(&w, 2);
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    finish(&w);
    int last = EVENTS - 1;
    while (feed[last].broken) last--;
    struct dl_backend_forget_request request = {.node = feed[last].event.dst,
                                                .peer = feed[last].event.src};
    const struct dl_dictionary *nodes = dl_engine_nodes(w.engine);
    cr_assert_eq(dl_dictionary_find(nodes, 0, request.node, &ids[0]), DL_OK);
    cr_assert_eq(dl_dictionary_find(nodes, 0, request.peer, &ids[1]), DL_OK);
    cr_assert_eq(dl_graph_pair(dl_engine_graph(w.engine), ids[0], ids[1], &pair), 1);
    dl_engine_backend(w.engine, &backend);
    cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
    forget_all(&w);
    cr_assert_gt(forgotten.events, 0u);
    for (int round = 0; round < 2; round++) {
        const struct dl_graph *graph = dl_engine_graph(w.engine);
        cr_assert_eq(dl_graph_pair(graph, ids[0], ids[1], &pair), 0);
        for (int side = 0; side < 2; side++) {
            uint32_t count = dl_graph_window(graph, ids[side], 16, window, NULL);
            for (uint32_t i = 0; i < count; i++) cr_assert_neq(window[i].peer, ids[!side]);
            cr_assert_not_null(dl_graph_node(graph, ids[side]));
        }
        cr_assert_eq(dl_store_log_read(w.store, 0, mentions, ids, &error), 0);
        world_crash(&w);
        world_open(&w, 1);
    }
    world_deinit(&w);
}

static int pass(void *user, const struct dl_outbox_row *row)
{
    (void)user;
    (void)row;
    return 0;
}

/* What was delivered is no longer in the outbox, but in pages that SQLite may use again. */
Test(engine, a_forgotten_node_is_gone_from_free_pages_too)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job job = {.done = on_forgotten};
    struct dl_error error;
    uint64_t first, next;
    make_feed(10);
    rename_in_feed();
    world_init(&w, "64", "accept");
    world_open(&w, 2);
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    finish(&w);
    dl_store_outbox_range(w.store, &first, &next);
    cr_assert_eq(dl_store_outbox_read(w.store, first, UINT32_MAX, pass, NULL, &error), DL_OK);
    cr_assert_eq(dl_engine_delivered(w.engine, next - 1, &error), DL_OK);
    dl_engine_backend(w.engine, &backend);
    struct dl_backend_forget_request request = {.node = dl_slice_text(SECRET)};
    cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
    forget_all(&w);
    cr_assert_not(file_holds(w.store_path, SECRET), "its name is still in the file");
    world_deinit(&w);
}

/* Whatever number of steps was made before it. `edges`: those between two nodes alone. */
static void crash_while_forgetting(int edges)
{
    for (int steps = 0, done = 0; !done; steps++) {
        struct world w = {0};
        struct dl_backend backend;
        struct dl_backend_job job = {.done = on_forgotten};
        struct dl_error error;
        struct dl_store_forgetting record;
        struct dl_pair_state pair;
        uint32_t ids[2] = {0, UINT32_MAX};
        uint64_t before = 0;
        make_feed(11);
        world_init(&w, "48", "accept");
        world_open(&w, 1);
        for (int i = 0; i < EVENTS / 2; i++) offer(&w, i);
        finish(&w);
        int last = EVENTS / 2 - 1;
        while (feed[last].broken) last--;
        struct dl_backend_forget_request request = {.node = feed[last].event.src};
        const struct dl_dictionary *names = dl_engine_nodes(w.engine);
        cr_assert_eq(dl_dictionary_find(names, 0, request.node, &ids[0]), DL_OK);
        if (edges) {
            request.peer = feed[last].event.dst;
            cr_assert_eq(dl_dictionary_find(names, 0, request.peer, &ids[1]), DL_OK);
            cr_assert_eq(dl_graph_pair(dl_engine_graph(w.engine), ids[0], ids[1], &pair), 1);
        }
        dl_engine_backend(w.engine, &backend);
        forgot = 0;
        cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
        for (int i = 0; i < steps && !forgot; i++)
            cr_assert_eq(dl_engine_forget_step(w.engine), DL_OK);
        done = forgot;
        /* Others come meanwhile, the same two among them, and are not forgotten. */
        before = dl_graph_feed(dl_engine_graph(w.engine))->events;
        for (int i = EVENTS / 2; i < EVENTS / 2 + 40; i++) offer(&w, i);
        feed[0].broken = 0;
        feed[0].event.src = request.node;
        feed[0].event.dst = feed[last].event.dst;
        feed[0].event.time = feed[EVENTS / 2 + 39].event.time;
        struct dl_arrival arrival = {.topic = TOPIC, .offset = EVENTS / 2 + 40};
        cr_assert_eq(dl_engine_offer(w.engine, &arrival, &feed[0].event), DL_OK);
        dl_engine_flush(w.engine);
        dl_workers_wait(w.workers);
        world_crash(&w);
        cr_assert_eq(forgot, 1, "the request is answered, or refused");
        world_open(&w, 1);
        forget_all(&w);
        const struct dl_graph *graph = dl_engine_graph(w.engine);
        cr_assert_eq(dl_store_forget_get(w.store, &record, &error), DL_ERR_NOT_FOUND);
        if (edges) {
            uint64_t later[3] = {ids[0], ids[1], before};
            cr_assert_eq(dl_store_log_read(w.store, 0, mentions_before, later, &error), 0);
            cr_assert_eq(dl_graph_pair(graph, ids[0], ids[1], &pair), 1);
            struct dl_interaction window[16];
            uint32_t count = dl_graph_window(graph, ids[0], 16, window, NULL), seen = 0;
            for (uint32_t i = 0; i < count; i++) {
                if (window[i].peer != ids[1]) continue;
                cr_assert_geq(window[i].seq, before, "an edge is back after %d steps", steps);
                seen++;
            }
            cr_assert_eq(pair.count[0] + pair.count[1], seen);
            cr_assert_geq(seen, 1u, "a later edge is forgotten after %d steps", steps);
        } else {
            cr_assert_null(dl_graph_node(graph, ids[0]));
            cr_assert_eq(dl_store_log_read(w.store, 0, mentions, ids, &error), 0);
            cr_assert_eq(dl_dictionary_find(dl_engine_nodes(w.engine), 0, request.node, &ids[1]),
                         DL_OK, "it may come back, as a new node");
            cr_assert_neq(ids[0], ids[1]);
        }
        world_deinit(&w);
    }
}

Test(engine, forgetting_a_node_goes_on_after_a_crash_at_any_step)
{
    crash_while_forgetting(0);
}

Test(engine, forgetting_edges_goes_on_after_a_crash_at_any_step)
{
    crash_while_forgetting(1);
}

Test(engine, forgetting_waits_for_room_on_the_disk)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job job = {.done = on_forgotten};
    struct dl_error error;
    uint32_t ids[2] = {0, UINT32_MAX};
    int waits = 0;
    fault_vfs_reset();
    vfs = FAULT_VFS_NAME;
    make_feed(12);
    world_init(&w, "32", "accept");
    world_open(&w, 1);
    dl_log_setup((enum dl_log_level)(DL_LOG_ERROR + 1), DL_LOG_TEXT); /* it says that it waits */
    for (int i = 0; i < EVENTS; i++) offer(&w, i);
    finish(&w);
    struct dl_backend_forget_request request = {.node = dl_slice_text("s1")};
    cr_assert_eq(dl_dictionary_find(dl_engine_nodes(w.engine), 0, request.node, &ids[0]), DL_OK);
    dl_engine_backend(w.engine, &backend);
    forgot = 0;
    fault_vfs_set_space(fault_vfs_bytes());
    cr_assert_eq(backend.forget(backend.context, &request, &job, &error), DL_OK);
    /* Full before every step, with some room now and then. */
    while (dl_engine_forgetting(w.engine)) {
        int status = dl_engine_forget_step(w.engine);
        cr_assert_null(dl_engine_failure(w.engine), "%s", dl_engine_failure(w.engine));
        if (status == DL_OK) continue;
        cr_assert_eq(status, DL_ERR_FULL);
        cr_assert_eq(dl_engine_forget_step(w.engine), DL_ERR_FULL);
        cr_assert_lt(++waits, 10000);
        fault_vfs_set_space(fault_vfs_bytes() + 20000);
    }
    fault_vfs_set_space(UINT64_MAX);
    cr_assert_gt(waits, 2, "the disk was full %d times", waits);
    cr_assert_eq(forgot, 1);
    cr_assert_eq(forgotten.found, 1);
    for (int round = 0; round < 2; round++) {
        cr_assert_null(dl_graph_node(dl_engine_graph(w.engine), ids[0]));
        cr_assert_eq(dl_store_log_read(w.store, 0, mentions, ids, &error), 0);
        world_crash(&w);
        world_open(&w, 1);
    }
    vfs = NULL;
    world_deinit(&w);
}

struct chain {
    struct dl_backend_job job;
    struct world *world;
    struct dl_backend *backend;
    struct dl_edge_event events[10];
    uint32_t sent, answered;
};

static void send_next(struct chain *chain);
static void on_link(struct dl_backend_job *job, int status, const struct dl_error *error,
                    const union dl_backend_result *result)
{
    struct chain *chain = (struct chain *)job;
    uint64_t first, next;
    cr_assert_eq(status, DL_OK, "%s", error ? error->text : "");
    chain->answered += result->ingested.accepted;
    dl_store_log_range(chain->world->store, &first, &next);
    cr_assert_geq(next, chain->answered, "%u events were acknowledged, %llu are durable",
                  chain->answered, (unsigned long long)next);
    if (chain->sent < 300) send_next(chain);
}

static void send_next(struct chain *chain)
{
    struct dl_error error;
    struct dl_backend_ingest_request request = {10, chain->events};
    for (int i = 0; i < 10; i++) chain->events[i] = feed[chain->sent++].event;
    cr_assert_eq(chain->backend->ingest(chain->backend->context, &request, &chain->job, &error),
                 DL_OK);
}

Test(engine, an_ingest_sent_while_another_is_answered_waits_for_its_own_commit)
{
    struct world w = {0};
    struct dl_backend backend;
    make_feed(7);
    world_init(&w, "16", "accept");
    world_open(&w, 1);
    dl_engine_backend(w.engine, &backend);
    struct chain chain = {.job = {.done = on_link}, .world = &w, .backend = &backend};
    send_next(&chain);
    while (chain.answered < 300) dl_workers_wait(w.workers);
    world_deinit(&w);
}

static int answered;
static uint32_t accepted;
static void on_ingested(struct dl_backend_job *job, int status, const struct dl_error *error,
                        const union dl_backend_result *result)
{
    (void)job;
    cr_assert_eq(status, DL_OK, "%s", error ? error->text : "");
    accepted += result->ingested.accepted;
    answered++;
}

static int find_letter(void *user, const struct dl_outbox_row *row)
{
    struct dl_slice payload = row->payload;
    if (row->kind == DL_OUTBOX_DEAD_LETTER &&
        memmem(payload.data, payload.size, "not an event", 12))
        ++*(int *)user;
    return 0;
}

Test(engine, what_comes_broken_by_rpc_is_dead_lettered)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_error error;
    struct dl_backend_broken broken = {dl_slice_text("not an event"), "cut short", "message"};
    int letters = 0;
    world_init(&w, "16", "accept");
    world_open(&w, 1);
    dl_engine_backend(w.engine, &backend);
    for (int i = 0; i < 40; i++) backend.ingest_broken(backend.context, 1, &broken);
    finish(&w);
    cr_assert_eq(dl_store_outbox_read(w.store, 0, UINT32_MAX, find_letter, &letters, &error),
                 DL_OK);
    cr_assert_eq(letters, 40);
    world_deinit(&w);
}

Test(engine, ingested_events_are_durable_when_they_are_acknowledged)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job jobs[3] = {0};
    struct dl_edge_event events[3][150];
    struct dl_error error;
    make_feed(6);
    world_init(&w, "16", "accept");
    world_open(&w, 2);
    dl_engine_backend(w.engine, &backend);
    answered = 0;
    accepted = 0;
    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < 150; i++) events[j][i] = feed[j * 150 + i].event;
        struct dl_backend_ingest_request request = {150, events[j]};
        jobs[j].done = on_ingested;
        cr_assert_eq(backend.ingest(backend.context, &request, &jobs[j], &error), DL_OK);
    }
    while (answered < 3) dl_workers_wait(w.workers);
    cr_assert_eq(accepted, 450u);
    world_crash(&w);
    world_open(&w, 1);
    cr_assert_eq(dl_graph_feed(dl_engine_graph(w.engine))->events, 450u);
    world_deinit(&w);
}

static char scored_by[17];
static double scored_probability;
static void on_scored(struct dl_backend_job *job, int status, const struct dl_error *error,
                      const union dl_backend_result *result)
{
    (void)job;
    cr_assert_eq(status, DL_OK, "%s", error ? error->text : "");
    const struct dl_score *score = &result->scores.scores[0];
    snprintf(scored_by, sizeof scored_by, "%.*s", (int)score->model_version.size,
             (const char *)score->model_version.data);
    scored_probability = score->probability;
}

Test(engine, a_score_is_calibrated_and_signed_by_the_model_that_made_it)
{
    struct world w = {0};
    struct dl_backend backend;
    struct dl_backend_job job = {.done = on_scored};
    struct dl_error error;
    struct dl_model *other;
    char path[128], before[17];
    make_feed(11);
    world_init(&w, "16", "accept");
    world_open(&w, 1);
    for (int i = 0; i < 100; i++) offer(&w, i);
    finish(&w);
    snprintf(path, sizeof path, "%s/other.safetensors", w.folder);
    struct dl_model_info info = *dl_model_get_info(w.model);
    snprintf(before, sizeof before, "%s", info.version);
    info.calibration = (struct dl_calibration){0.5, 4};
    cr_assert_eq(dl_model_save(path, dl_model_get_network(w.model), &info, NULL, &error), DL_OK);
    cr_assert_eq(dl_model_load(path, &other, &error), DL_OK);
    dl_engine_backend(w.engine, &backend);
    struct dl_backend_pair pair = {.src = dl_slice_text("s1"), .dst = dl_slice_text("s2")};
    struct dl_backend_score_request request = {.pair_count = 1, .pairs = &pair};
    cr_assert_eq(backend.score(backend.context, &request, &job, &error), DL_OK);
    dl_workers_wait(w.workers);
    double probability = scored_probability;
    cr_assert_str_eq(scored_by, before);
    /* Another model is loaded while the workers have the request. */
    cr_assert_eq(backend.score(backend.context, &request, &job, &error), DL_OK);
    cr_assert_eq(dl_engine_set_model(w.engine, other, &error), DL_OK, "%s", error.text);
    dl_workers_wait(w.workers);
    cr_assert_str_eq(scored_by, before);
    cr_assert_eq(scored_probability, probability);
    dl_model_unref(other);
    world_deinit(&w);
}
