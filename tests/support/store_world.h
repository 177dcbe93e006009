/* A store with its graph and dictionaries, fed by a made-up feed in which
 * event number i depends on the seed and on i alone. So a world that lost its
 * last batches can go on from where its store says it is, and must end up like
 * one that was never disturbed. Header only: not every test program links the
 * store. */
#ifndef DL_TESTS_STORE_WORLD_H
#define DL_TESTS_STORE_WORLD_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/dictionary.h"
#include "base/graph.h"
#include "base/rng.h"
#include "store/store.h"

enum { WORLD_FEATURES = 2, WORLD_WINDOW = 8, WORLD_PAIRS = 4096, WORLD_BATCH_MAX = 512 };

struct world {
    struct dl_store *store;
    struct dl_graph *graph;
    struct dl_dictionary *nodes, *types;
    struct dl_store_recovery recovery;
};

static inline struct dl_store_options world_options(void)
{
    struct dl_store_options options = dl_store_options_default;
    options.config = (struct dl_store_config){.time_unit = DL_TIME_MS,
                                              .window = WORLD_WINDOW,
                                              .feature_count = WORLD_FEATURES,
                                              .namespaces = 2};
    options.sync = DL_STORE_SYNC_NORMAL;
    options.round_events = 2000;
    options.created_by = "driftline test";
    return options;
}

static inline void world_close(struct world *w)
{
    dl_store_close(w->store);
    dl_graph_free(w->graph);
    dl_dictionary_free(w->nodes);
    dl_dictionary_free(w->types);
    *w = (struct world){0};
}

/* New graph and dictionaries, loaded from the open store. */
static inline int world_load(struct world *w, struct dl_error *error)
{
    static const struct dl_graph_config config = {.window = WORLD_WINDOW,
                                                  .feature_count = WORLD_FEATURES,
                                                  .nodes_max = 1u << 20,
                                                  .pairs_max = WORLD_PAIRS};
    dl_graph_free(w->graph);
    dl_dictionary_free(w->nodes);
    dl_dictionary_free(w->types);
    w->graph = NULL;
    w->nodes = w->types = NULL;
    int status = dl_graph_new(&config, &w->graph, error);
    if (status == DL_OK) status = dl_dictionary_new(1u << 20, &w->nodes);
    if (status == DL_OK) status = dl_dictionary_new(1000, &w->types);
    if (status == DL_OK)
        status = dl_store_load(w->store, w->graph, w->nodes, w->types, &w->recovery, error);
    return status;
}

static inline int world_open(struct world *w, const char *path,
                             const struct dl_store_options *options, struct dl_error *error)
{
    *w = (struct world){0};
    int status = dl_store_open(path, options, &w->store, error);
    if (status == DL_OK) status = world_load(w, error);
    if (status != DL_OK) world_close(w);
    return status;
}

/* Mostly in order, some equal times, some late, some self-loops; old nodes
 * come back and new ones keep appearing. */
static inline struct dl_event world_event(uint64_t seed, uint64_t i, uint32_t names[2],
                                          float features[WORLD_FEATURES])
{
    uint64_t spread = 20 + i / 4;
    int64_t time = (int64_t)(i / 3 * 5);
    if (dl_bounded64(dl_draw64(seed, i, 0), 10) == 0)
        time -= (int64_t)dl_bounded64(dl_draw64(seed, i, 1), 60);
    names[0] = (uint32_t)dl_bounded64(dl_draw64(seed, i, 2), spread);
    names[1] = (uint32_t)dl_bounded64(dl_draw64(seed, i, 3), 1 + spread / 2);
    for (int k = 0; k < WORLD_FEATURES; k++)
        features[k] = (float)dl_bounded64(dl_draw64(seed, i, (uint64_t)(4 + k)), 1000) / 8;
    int plain = dl_bounded64(dl_draw64(seed, i, 6), 2) == 0;
    return (struct dl_event){.time = time,
                             .type = (uint16_t)dl_bounded64(dl_draw64(seed, i, 7), 3),
                             .weight = plain ? 1.0f : features[0] - 3,
                             .features = plain ? NULL : features};
}

static inline int world_name(struct world *w, uint8_t space, uint32_t number, uint32_t *id,
                             struct dl_error *error)
{
    char text[24];
    int added, size = snprintf(text, sizeof text, "node-%u", number);
    struct dl_slice name = dl_slice_of(text, (size_t)size);
    int status = dl_dictionary_intern(w->nodes, space, name, id, &added);
    if (status == DL_OK && added) status = dl_store_add_node(w->store, *id, space, name, error);
    return status;
}

/* Takes in the feed's next `count` events within the open transaction. */
static inline int world_apply(struct world *w, uint64_t seed, uint32_t count,
                              struct dl_error *error)
{
    static struct dl_event events[WORLD_BATCH_MAX];
    static float features[WORLD_BATCH_MAX][WORLD_FEATURES];
    uint64_t first = dl_graph_feed(w->graph)->events;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t names[2];
        events[i] = world_event(seed, first + i, names, features[i]);
        int status = world_name(w, 0, names[0], &events[i].src, error);
        if (status == DL_OK) status = world_name(w, 1, names[1], &events[i].dst, error);
        if (status == DL_OK) status = dl_graph_apply(w->graph, &events[i]);
        if (status != DL_OK) return status;
    }
    return dl_store_append_events(w->store, first, events, count, error);
}

/* One batch as the service would do it: events, position, one outbox record
 * for the batch that says where it ended, a checkpoint step. */
static inline int world_batch(struct world *w, uint64_t seed, uint32_t count, uint32_t pages_max,
                              struct dl_error *error)
{
    int status = dl_store_begin(w->store, error);
    if (status != DL_OK) return status;
    status = world_apply(w, seed, count, error);
    uint64_t events = dl_graph_feed(w->graph)->events;
    struct dl_outbox_row row = {.kind = DL_OUTBOX_SCORE,
                                .topic = "scores",
                                .key = dl_slice_text("key"),
                                .payload = dl_slice_of(&events, sizeof events),
                                .position = {"feed", 3, (int64_t)events}};
    if (status == DL_OK)
        status = dl_store_set_position(w->store, "feed", 3, (int64_t)events, error);
    if (status == DL_OK) status = dl_store_outbox_append(w->store, &row, NULL, error);
    if (status == DL_OK)
        status = dl_store_put_blob(w->store, "monitor", dl_slice_of(&events, sizeof events), error);
    if (status == DL_OK)
        status = dl_store_checkpoint_step(w->store, w->graph, pages_max, NULL, error);
    if (status == DL_OK) status = dl_store_commit(w->store, error);
    if (status != DL_OK) dl_store_rollback(w->store);
    return status;
}

/* Whether two graphs hold the same, page by page; *what names the first that
 * differs. Marks pages clean: for the end of a test. */
static inline int world_same_graph(struct dl_graph *a, struct dl_graph *b, char what[64])
{
    struct dl_buf x = {0}, y = {0};
    int same = dl_graph_feed(a)->events == dl_graph_feed(b)->events;
    snprintf(what, 64, "event count");
    uint32_t node_pages = (dl_graph_feed(a)->nodes + 63) / 64;
    for (int kind = DL_PAGE_KINDS - 1; same && kind >= 0; kind--) {
        uint32_t pages = kind == DL_PAGE_FEED    ? 1
                         : kind == DL_PAGE_NODES ? node_pages
                                                 : WORLD_PAIRS / (16 * 64);
        for (uint32_t i = 0; same && i < pages; i++) {
            struct dl_page_id page = {(uint8_t)kind, i};
            dl_buf_clear(&x);
            dl_buf_clear(&y);
            dl_graph_page_write(a, page, &x);
            dl_graph_page_write(b, page, &y);
            snprintf(what, 64, "page %d/%u", kind, i);
            same = !x.failed && !y.failed && dl_slice_equal(dl_buf_slice(&x), dl_buf_slice(&y));
        }
    }
    uint32_t destinations = dl_graph_feed(a)->destinations;
    if (same) snprintf(what, 64, "destinations");
    same = same && destinations == dl_graph_feed(b)->destinations;
    for (uint32_t i = 0; same && i < destinations; i++)
        same = dl_graph_destination(a, i) == dl_graph_destination(b, i);
    dl_buf_free(&x);
    dl_buf_free(&y);
    return same;
}

/* The same feed without a store. */
static inline struct dl_graph *world_undisturbed(uint64_t seed, uint64_t count)
{
    static const struct dl_graph_config config = {.window = WORLD_WINDOW,
                                                  .feature_count = WORLD_FEATURES,
                                                  .nodes_max = 1u << 20,
                                                  .pairs_max = WORLD_PAIRS};
    struct dl_graph *graph = NULL;
    struct dl_dictionary *nodes = NULL;
    if (dl_graph_new(&config, &graph, NULL) != DL_OK ||
        dl_dictionary_new(1u << 20, &nodes) != DL_OK)
        abort();
    for (uint64_t i = 0; i < count; i++) {
        uint32_t names[2];
        float features[WORLD_FEATURES];
        struct dl_event event = world_event(seed, i, names, features);
        for (int side = 0; side < 2; side++) {
            char text[24];
            int size = snprintf(text, sizeof text, "node-%u", names[side]);
            if (dl_dictionary_intern(nodes, (uint8_t)side, dl_slice_of(text, (size_t)size),
                                     side ? &event.dst : &event.src, NULL) != DL_OK)
                abort();
        }
        if (dl_graph_apply(graph, &event) != DL_OK) abort();
    }
    dl_dictionary_free(nodes);
    return graph;
}

/* A fresh folder; the caller removes it with world_remove_folder. */
static inline void world_folder(char folder[64])
{
    /* In memory where that can be had: thousands of small files are made. */
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, 64, "%s/dl-store-XXXXXX", base);
    if (!mkdtemp(folder)) abort();
}

static inline void world_remove_files(const char *folder, const char *name)
{
    static const char *const tails[] = {"", "-wal", "-shm", "-journal", "-lock"};
    char path[160];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, name, tails[i]);
        unlink(path);
    }
}

static inline void world_remove_folder(const char *folder, const char *name)
{
    world_remove_files(folder, name);
    rmdir(folder);
}

#endif
