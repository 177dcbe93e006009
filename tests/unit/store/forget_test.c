/* Forgetting in the smallest steps there are, and the note of it. */
#include <criterion/criterion.h>

#include "tests/support/store_world.h"

enum { SEED = 31 };

static char folder[64], path[128];
static struct world w;
static struct dl_error error;

#define OK(call) cr_assert_eq(call, DL_OK, "%s", error.text)

static void set_up(void)
{
    struct dl_store_options options = world_options();
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
    OK(world_open(&w, path, &options, &error));
    for (int i = 0; i < 12; i++) OK(world_batch(&w, SEED, 50, 0, &error));
}

static void tear_down(void)
{
    world_close(&w);
    world_remove_folder(folder, "s.db");
}

TestSuite(store_forget, .init = set_up, .fini = tear_down);

/* Of events that name the node: how many come before a number, and how many from there on. */
struct named {
    uint32_t node;
    uint64_t limit, before, after;
};

static int count_named(void *user, uint64_t seq, const struct dl_event *event)
{
    struct named *n = user;
    if (event->src != n->node && event->dst != n->node) return 0;
    if (seq < n->limit)
        n->before++;
    else
        n->after++;
    return 0;
}

static void look(struct named *n)
{
    n->before = n->after = 0;
    OK(dl_store_log_read(w.store, 0, count_named, n, &error));
}

Test(store_forget, the_log_is_gone_through_blob_by_blob)
{
    struct dl_store_forgetting f = {.before_seq = 475, .node_count = 1};
    struct named named = {.limit = 475};
    int more = 1, steps = 0;
    do { /* one that is named often */
        named.node = f.nodes[0]++;
        look(&named);
    } while (named.before < 5 || named.after < 2);
    f.nodes[0] = named.node;
    uint64_t before = named.before, after = named.after;
    while (more) {
        OK(dl_store_begin(w.store, &error));
        OK(dl_store_forget_log(w.store, &f, 1, &more, &error));
        OK(dl_store_forget_put(w.store, &f, &error));
        OK(dl_store_commit(w.store, &error));
        OK(dl_store_forget_get(w.store, &f, &error)); /* a restart goes on from here */
        cr_assert_lt(++steps, 100);
    }
    cr_assert_geq(steps, 10, "one step goes through more than a blob");
    cr_assert_eq(f.events, before);
    look(&named);
    cr_assert_eq(named.before, 0u);
    cr_assert_eq(named.after, after, "what came after the request is not forgotten");
}

Test(store_forget, a_step_that_is_rolled_back_changes_nothing)
{
    struct dl_store_forgetting f = {.before_seq = 600, .node_count = 1};
    struct named named = {.limit = 600};
    int more;
    look(&named);
    uint64_t before = named.before;
    OK(dl_store_begin(w.store, &error));
    OK(dl_store_forget_log(w.store, &f, UINT64_MAX, &more, &error));
    dl_store_rollback(w.store);
    look(&named);
    cr_assert_eq(named.before, before);
}

static int is_third(void *user, int kind, struct dl_slice key, struct dl_slice payload)
{
    (void)kind;
    (void)key;
    ++*(int *)user;
    return payload.size == 1 && payload.data[0] % 3 == 0;
}

static int count_emptied(void *user, const struct dl_outbox_row *row)
{
    ((int *)user)[row->kind == DL_OUTBOX_FORGOTTEN]++;
    return 0;
}

Test(store_forget, records_are_gone_through_row_by_row_up_to_the_request)
{
    uint64_t first, next;
    OK(dl_store_begin(w.store, &error));
    dl_store_outbox_range(w.store, &first, &next);
    uint64_t from = next;
    for (uint8_t i = 0; i < 30; i++) {
        struct dl_outbox_row row = {.kind = DL_OUTBOX_SCORE, .topic = "t"};
        row.payload = dl_slice_of(&i, 1);
        OK(dl_store_outbox_append(w.store, &row, NULL, &error));
        struct dl_alert_row alert = {.number = i + 1u, .payload = dl_slice_of(&i, 1)};
        OK(dl_store_put_alert(w.store, &alert, &error));
    }
    OK(dl_store_commit(w.store, &error));
    struct dl_store_forgetting f = {.outbox_end = from + 20, .alert_end = 11};
    struct dl_store_forget_at at = {.outbox = from - 1};
    int more = 1, asked = 0, steps = 0, kinds[2] = {0};
    while (more) {
        OK(dl_store_begin(w.store, &error));
        OK(dl_store_forget_records(w.store, &f, &at, 1, is_third, &asked, &more, &error));
        OK(dl_store_commit(w.store, &error));
        cr_assert_lt(++steps, 100);
    }
    cr_assert_eq(asked, 30, "20 records and 10 alerts");
    cr_assert_eq(steps, 31);
    OK(dl_store_outbox_read(w.store, from, 100, count_emptied, kinds, &error));
    cr_assert_eq(kinds[1], 7);
    cr_assert_eq(kinds[0], 23, "the outbox has no gaps");
}

Test(store_forget, the_note_comes_back_as_it_was_and_damage_is_told)
{
    struct dl_store_forgetting f = {.before_seq = 600,
                                    .log_next = 7,
                                    .events = 3,
                                    .outbox_end = 1u << 30,
                                    .alert_end = 9,
                                    .has_peer = 1,
                                    .node_count = 2,
                                    .nodes = {5, 6},
                                    .peer_count = 1,
                                    .peers = {1000000},
                                    .node_size = 3,
                                    .peer_size = 256,
                                    .node = "abc"};
    struct dl_store_forgetting back;
    memset(f.peer, 'x', sizeof f.peer);
    cr_assert_eq(dl_store_forget_get(w.store, &back, &error), DL_ERR_NOT_FOUND);
    OK(dl_store_begin(w.store, &error));
    OK(dl_store_forget_put(w.store, &f, &error));
    OK(dl_store_commit(w.store, &error));
    OK(dl_store_forget_get(w.store, &back, &error));
    cr_assert_eq(back.before_seq, 600u);
    cr_assert_eq(back.log_next, 7u);
    cr_assert_eq(back.events, 3u);
    cr_assert_eq(back.outbox_end, 1u << 30);
    cr_assert_eq(back.alert_end, 9u);
    cr_assert_eq(back.has_peer, 1);
    cr_assert_eq(back.nodes[1], 6u);
    cr_assert_eq(back.peers[0], 1000000u);
    cr_assert_eq(back.node_size, 3u);
    cr_assert_arr_eq(back.node, "abc", 3);
    cr_assert_arr_eq(back.peer, f.peer, 256);
    /* Ahead of the log, cut short, too long. */
    uint8_t bytes[][4] = {{1, 0xff, 0x7f, 0}, {1, 0, 0, 0}, {9, 0, 0, 0}};
    for (int i = 0; i < 3; i++) {
        OK(dl_store_begin(w.store, &error));
        OK(dl_store_put_blob(w.store, "forgetting", dl_slice_of(bytes[i], 4), &error));
        OK(dl_store_commit(w.store, &error));
        cr_assert_eq(dl_store_forget_get(w.store, &back, &error), DL_ERR_CORRUPT);
        cr_assert_not_null(strstr(error.text, "being forgotten"), "%s", error.text);
    }
    OK(dl_store_begin(w.store, &error));
    OK(dl_store_delete_blob(w.store, "forgetting", &error));
    OK(dl_store_commit(w.store, &error));
}
