/* The store against a trivial model: arrays that are copied at begin and put
 * back at rollback. Random operations from a seed that is printed. Reopening
 * includes the hard way: a copy of the file and its WAL as they stand, with
 * the first store still open. */
#include <criterion/criterion.h>

#include "tests/support/store_world.h"

enum { TOPICS = 3, PARTITIONS = 3, BLOBS = 4, ROWS_MAX = 4000, STEPS = 400 };

struct model {
    int64_t positions[TOPICS][PARTITIONS]; /* 0: none */
    uint64_t rows[ROWS_MAX];               /* payload of outbox row number index + 1 */
    uint64_t rows_next, rows_first;        /* numbers */
    uint64_t blobs[BLOBS];                 /* 0: none */
    uint64_t alert_last, alert_count;
    uint64_t events;
};

static const char *const topics[TOPICS] = {"a", "bb", "ccc"};
static const char *const blobs[BLOBS] = {"drift", "quality", "x", "y"};
static char folder[64], path[128], copy[128];
static uint64_t seed;
static struct dl_error error;

static void set_up(void)
{
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
    snprintf(copy, sizeof copy, "%s/t.db", folder);
}

static void tear_down(void)
{
    world_remove_files(folder, "t.db");
    world_remove_folder(folder, "s.db");
}

TestSuite(store_model, .init = set_up, .fini = tear_down);

#define HOLDS(condition)                                                                           \
    cr_assert(condition, "seed %lu: %s; last error: %s", (unsigned long)seed, #condition,          \
              error.text)

struct walk {
    const struct model *model;
    uint64_t next, count;
};

static int check_row(void *user, const struct dl_outbox_row *row)
{
    struct walk *walk = user;
    uint64_t payload = 0;
    HOLDS(row->seq == walk->next);
    HOLDS(row->payload.size == sizeof payload);
    memcpy(&payload, row->payload.data, sizeof payload);
    HOLDS(payload == walk->model->rows[row->seq - 1]);
    walk->next++;
    return 0;
}

static int check_position(void *user, const struct dl_position *p)
{
    struct walk *walk = user;
    for (int t = 0; t < TOPICS; t++)
        if (strcmp(topics[t], p->topic) == 0)
            HOLDS(walk->model->positions[t][p->partition] == p->offset);
    walk->count++;
    return 0;
}

static int check_event(void *user, uint64_t seq, const struct dl_event *event)
{
    struct walk *walk = user;
    uint32_t names[2];
    float features[WORLD_FEATURES];
    struct dl_event expected = world_event(seed, seq, names, features);
    HOLDS(seq == walk->next);
    HOLDS(event->time == expected.time);
    HOLDS(event->weight == expected.weight);
    HOLDS(event->type == expected.type);
    HOLDS((event->features != NULL) == (expected.features != NULL));
    if (event->features) HOLDS(memcmp(event->features, features, sizeof features) == 0);
    walk->next++;
    return 0;
}

static int count_alert(void *user, const struct dl_alert_row *row)
{
    struct walk *walk = user;
    HOLDS(row->number == walk->next);
    walk->next--;
    walk->count++;
    return 0;
}

/* swept: no delivered row is left in the file. */
static void check_all(struct world *w, const struct model *m, int swept)
{
    struct walk walk = {m, m->rows_first, 0};
    uint64_t first, next, positions = 0;
    HOLDS(dl_store_outbox_read(w->store, swept ? 0 : m->rows_first, UINT32_MAX, check_row, &walk,
                               &error) == DL_OK);
    HOLDS(walk.next == m->rows_next);
    dl_store_outbox_range(w->store, &first, &next);
    HOLDS(first == m->rows_first && next == m->rows_next);

    HOLDS(dl_store_positions(w->store, check_position, &walk, &error) == DL_OK);
    for (int t = 0; t < TOPICS; t++)
        for (int p = 0; p < PARTITIONS; p++) positions += m->positions[t][p] != 0;
    HOLDS(walk.count == positions);

    for (int b = 0; b < BLOBS; b++) {
        struct dl_buf out = {0};
        int status = dl_store_get_blob(w->store, blobs[b], &out, &error);
        HOLDS(status == (m->blobs[b] ? DL_OK : DL_ERR_NOT_FOUND));
        if (m->blobs[b]) HOLDS(memcmp(out.data, &m->blobs[b], sizeof m->blobs[b]) == 0);
        dl_buf_free(&out);
    }
    walk = (struct walk){m, m->alert_last, 0};
    HOLDS(dl_store_alerts(w->store, UINT32_MAX, count_alert, &walk, &error) == DL_OK);
    HOLDS(walk.count == m->alert_count);

    dl_store_log_range(w->store, &first, &next);
    HOLDS(next == m->events);
    walk = (struct walk){m, first, 0};
    HOLDS(dl_store_log_read(w->store, 0, check_event, &walk, &error) == DL_OK);
    HOLDS(walk.next == next);
    if (first + 10 < next) { /* from the middle */
        walk = (struct walk){m, first + 7, 0};
        HOLDS(dl_store_log_read(w->store, first + 7, check_event, &walk, &error) == DL_OK);
        HOLDS(walk.next == next);
    }
}

static void check_graph(struct world *w, const struct model *m)
{
    char what[64];
    struct dl_graph *graph = world_undisturbed(seed, m->events);
    int same = world_same_graph(w->graph, graph, what);
    cr_assert(same, "seed %lu: %s differs", (unsigned long)seed, what);
    dl_graph_free(graph);
}

static void random_change(struct world *w, struct model *m, struct dl_rng *rng)
{
    uint64_t value = dl_rng_u64(rng) >> 1 | 1;
    switch (dl_rng_below(rng, 6)) {
    case 0: {
        uint32_t count = (uint32_t)dl_rng_below(rng, 60);
        HOLDS(world_apply(w, seed, count, &error) == DL_OK);
        m->events += count;
        break;
    }
    case 1: {
        int t = (int)dl_rng_below(rng, TOPICS), p = (int)dl_rng_below(rng, PARTITIONS);
        HOLDS(dl_store_set_position(w->store, topics[t], p, (int64_t)value, &error) == DL_OK);
        m->positions[t][p] = (int64_t)value;
        break;
    }
    case 2:
        for (uint64_t i = dl_rng_below(rng, 6); i > 0 && m->rows_next <= ROWS_MAX; i--) {
            uint64_t seq;
            struct dl_outbox_row row = {.kind = DL_OUTBOX_SCORE,
                                        .topic = "scores",
                                        .payload = dl_slice_of(&value, sizeof value)};
            HOLDS(dl_store_outbox_append(w->store, &row, &seq, &error) == DL_OK);
            HOLDS(seq == m->rows_next);
            m->rows[m->rows_next++ - 1] = value;
        }
        break;
    case 3: {
        int b = (int)dl_rng_below(rng, BLOBS);
        HOLDS(dl_store_put_blob(w->store, blobs[b], dl_slice_of(&value, sizeof value), &error) ==
              DL_OK);
        m->blobs[b] = value;
        break;
    }
    case 4: {
        int b = (int)dl_rng_below(rng, BLOBS);
        HOLDS(dl_store_delete_blob(w->store, blobs[b], &error) == DL_OK);
        m->blobs[b] = 0;
        break;
    }
    default: {
        struct dl_alert_row row = {.number = m->alert_last + 1};
        HOLDS(dl_store_put_alert(w->store, &row, &error) == DL_OK);
        m->alert_last++;
        m->alert_count++;
    }
    }
}

/* Committed rows, outside of a transaction. */
static void deliver(struct world *w, struct model *m, struct dl_rng *rng)
{
    if (m->rows_next == m->rows_first) return;
    uint64_t through = m->rows_first + dl_rng_below(rng, m->rows_next - m->rows_first);
    HOLDS(dl_store_outbox_delivered(w->store, through, &error) == DL_OK);
    m->rows_first = through + 1;
    if (dl_rng_below(rng, 3) == 0) HOLDS(dl_store_outbox_sweep(w->store, &error) == DL_OK);
}

static void copy_file(const char *tail)
{
    char command[300];
    snprintf(command, sizeof command, "cp %s%s %s%s 2>/dev/null || true", path, tail, copy, tail);
    HOLDS(system(command) == 0);
}

static void run(void)
{
    static struct model now, before;
    struct dl_store_options options = world_options();
    struct dl_rng rng;
    struct world w;
    dl_rng_seed(&rng, seed);
    memset(&now, 0, sizeof now);
    now.rows_next = now.rows_first = 1;
    options.round_events = 1 + dl_rng_below(&rng, 1000);
    options.log_keep_events = dl_rng_below(&rng, 1500);
    options.wal_bytes = 32768 << dl_rng_below(&rng, 5);
    HOLDS(world_open(&w, path, &options, &error) == DL_OK);
    for (int step = 0; step < STEPS; step++) {
        if (dl_rng_below(&rng, 3) == 0) deliver(&w, &now, &rng);
        HOLDS(dl_store_begin(w.store, &error) == DL_OK);
        before = now;
        for (uint64_t i = dl_rng_below(&rng, 5); i > 0; i--) random_change(&w, &now, &rng);
        if (dl_rng_below(&rng, 3))
            HOLDS(dl_store_checkpoint_step(w.store, w.graph, (uint32_t)dl_rng_below(&rng, 6), NULL,
                                           &error) == DL_OK);
        uint64_t what = dl_rng_below(&rng, 20);
        if (what == 0) {
            dl_store_rollback(w.store);
            now = before;
            HOLDS(world_load(&w, &error) == DL_OK);
        } else {
            HOLDS(dl_store_commit(w.store, &error) == DL_OK);
        }
        if (what == 1) {
            world_close(&w);
            HOLDS(world_open(&w, path, &options, &error) == DL_OK);
        }
        if (what == 2) { /* as a crash finds it: file and WAL, no shared memory */
            struct world other;
            world_remove_files(folder, "t.db");
            copy_file("");
            copy_file("-wal");
            HOLDS(world_open(&other, copy, &options, &error) == DL_OK);
            check_all(&other, &now, 1);
            check_graph(&other, &now);
            world_close(&other);
        }
        if (what <= 3) check_all(&w, &now, what != 0);
    }
    check_graph(&w, &now);
    world_close(&w);
    world_remove_files(folder, "s.db");
}

Test(store_model, agrees_with_the_store_over_random_operations)
{
    const char *given = getenv("SEED");
    uint64_t from = given ? strtoull(given, NULL, 10) : 1, runs = given ? 1 : 25;
    for (seed = from; seed < from + runs; seed++) run();
}
