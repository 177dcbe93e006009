/* Positions, outbox, alerts, blobs, destinations: what is written comes back,
 * and what is out of order is refused. */
#include <criterion/criterion.h>

#include "tests/support/store_world.h"

static char folder[64], path[128];
static struct dl_store *store;
static struct dl_error error;

static void reopen(void)
{
    struct dl_store_options options = world_options();
    dl_store_close(store);
    cr_assert_eq(dl_store_open(path, &options, &store, &error), DL_OK, "%s", error.text);
}

static void set_up(void)
{
    world_folder(folder);
    snprintf(path, sizeof path, "%s/s.db", folder);
    store = NULL;
    reopen();
}

static void tear_down(void)
{
    dl_store_close(store);
    world_remove_folder(folder, "s.db");
}

TestSuite(store_records, .init = set_up, .fini = tear_down);

#define OK(call) cr_assert_eq(call, DL_OK, "%s", error.text)

static void begin(void)
{
    OK(dl_store_begin(store, &error));
}

static void commit(void)
{
    OK(dl_store_commit(store, &error));
}

/* ---- positions ------------------------------------------------------------------ */

static int list_position(void *user, const struct dl_position *p)
{
    dl_buf_printf(user, "%s/%d@%ld ", p->topic, p->partition, (long)p->offset);
    return 0;
}

Test(store_records, positions_come_back_sorted)
{
    struct dl_buf list = {0};
    int64_t offset;
    begin();
    OK(dl_store_set_position(store, "payments", 1, 70, &error));
    OK(dl_store_set_position(store, "logins", 11, INT64_MAX, &error));
    OK(dl_store_set_position(store, "payments", 0, 5, &error));
    OK(dl_store_set_position(store, "payments", 1, 71, &error));
    commit();
    reopen();
    OK(dl_store_positions(store, list_position, &list, &error));
    cr_assert_str_eq((char *)list.data,
                     "logins/11@9223372036854775807 payments/0@5 payments/1@71 ");
    OK(dl_store_get_position(store, "payments", 1, &offset, &error));
    cr_assert_eq(offset, 71);
    cr_assert_eq(dl_store_get_position(store, "payments", 2, &offset, &error), DL_ERR_NOT_FOUND);
    dl_buf_free(&list);
}

Test(store_records, a_position_needs_a_topic_that_fits)
{
    char name[300];
    memset(name, 't', sizeof name);
    name[249] = '\0';
    begin();
    OK(dl_store_set_position(store, name, 0, 1, &error));
    name[249] = 't';
    name[250] = '\0';
    cr_assert_eq(dl_store_set_position(store, name, 0, 1, &error), DL_ERR_INVALID);
    cr_assert_eq(dl_store_set_position(store, "", 0, 1, &error), DL_ERR_INVALID);
    dl_store_rollback(store);
}

/* ---- outbox ---------------------------------------------------------------------- */

static uint64_t append(const char *payload)
{
    uint64_t seq = 0;
    struct dl_outbox_row row = {
        .kind = DL_OUTBOX_ALERT, .topic = "alerts", .payload = dl_slice_text(payload)};
    OK(dl_store_outbox_append(store, &row, &seq, &error));
    return seq;
}

static int list_row(void *user, const struct dl_outbox_row *row)
{
    dl_buf_printf(user, "%lu:%.*s ", (unsigned long)row->seq, (int)row->payload.size,
                  (const char *)row->payload.data);
    return 0;
}

static void assert_outbox(uint64_t from, uint32_t max, const char *expected)
{
    struct dl_buf list = {0};
    dl_buf_text(&list, "");
    dl_buf_printf(&list, "%s", "");
    OK(dl_store_outbox_read(store, from, max, list_row, &list, &error));
    cr_assert_str_eq((char *)list.data, expected);
    dl_buf_free(&list);
}

Test(store_records, outbox_numbers_are_never_used_twice)
{
    uint64_t first, next;
    begin();
    cr_assert_eq(append("a"), 1);
    cr_assert_eq(append("b"), 2);
    cr_assert_eq(append("c"), 3);
    commit();
    assert_outbox(0, 2, "1:a 2:b ");
    assert_outbox(3, 9, "3:c ");
    OK(dl_store_outbox_delivered(store, 2, &error));
    dl_store_outbox_range(store, &first, &next);
    cr_assert_eq(first, 3);
    assert_outbox(0, 9, "1:a 2:b 3:c "); /* until the next commit */
    begin();
    dl_store_rollback(store);
    dl_store_outbox_range(store, &first, &next);
    cr_assert_eq(first, 3); /* delivered is delivered */
    begin();
    commit();
    assert_outbox(0, 9, "3:c ");
    OK(dl_store_outbox_delivered(store, 3, &error));
    OK(dl_store_outbox_sweep(store, &error));
    OK(dl_store_outbox_sweep(store, &error)); /* nothing left: no effect */
    assert_outbox(0, 9, "");
    reopen();
    begin();
    cr_assert_eq(append("d"), 4);
    cr_assert_eq(append("e"), 5);
    cr_assert_eq(dl_store_outbox_delivered(store, 4, &error), DL_ERR_INVALID); /* not committed */
    dl_store_rollback(store);
    dl_store_outbox_range(store, &first, &next);
    cr_assert_eq(first, 4);
    cr_assert_eq(next, 4);
    begin();
    cr_assert_eq(append("f"), 4);
    commit();
    OK(dl_store_outbox_delivered(store, 2, &error)); /* long gone: no effect */
    cr_assert_eq(dl_store_outbox_delivered(store, 5, &error), DL_ERR_INVALID);
    reopen();
    assert_outbox(0, 9, "4:f ");
}

static int check_full_row(void *user, const struct dl_outbox_row *row)
{
    struct dl_slice key, value;
    cr_assert_eq(row->kind, DL_OUTBOX_PREDICTION);
    cr_assert_str_eq(row->topic, "predictions");
    cr_assert(dl_slice_equal(row->key, dl_slice_of("k\0y", 3)));
    cr_assert(dl_slice_equal(row->payload, dl_slice_of("p\0\0", 3)));
    cr_assert_str_eq(row->position.topic, "feed");
    cr_assert_eq(row->position.partition, 7);
    cr_assert_eq(row->position.offset, 1234567890123);
    struct dl_reader headers = dl_reader_of(row->headers);
    cr_assert_eq(dl_store_headers_next(&headers, &key, &value), 1);
    cr_assert(dl_slice_equal(key, dl_slice_text("model")));
    cr_assert(dl_slice_equal(value, dl_slice_text("v1")));
    cr_assert_eq(dl_store_headers_next(&headers, &key, &value), 1);
    cr_assert(dl_slice_equal(key, dl_slice_text("empty")));
    cr_assert_eq(value.size, 0);
    cr_assert_eq(dl_store_headers_next(&headers, &key, &value), 0);
    ++*(int *)user;
    return 0;
}

Test(store_records, an_outbox_row_keeps_every_field)
{
    struct dl_buf headers = {0};
    int seen = 0;
    dl_store_headers_put(&headers, dl_slice_text("model"), dl_slice_text("v1"));
    dl_store_headers_put(&headers, dl_slice_text("empty"), dl_slice_of(NULL, 0));
    struct dl_outbox_row row = {.kind = DL_OUTBOX_PREDICTION,
                                .topic = "predictions",
                                .key = dl_slice_of("k\0y", 3),
                                .headers = dl_buf_slice(&headers),
                                .payload = dl_slice_of("p\0\0", 3),
                                .position = {"feed", 7, 1234567890123}};
    begin();
    OK(dl_store_outbox_append(store, &row, NULL, &error));
    row.payload.size = DL_STORE_OUTBOX_BYTES_MAX;
    cr_assert_eq(dl_store_outbox_append(store, &row, NULL, &error), DL_ERR_TOO_LARGE);
    commit();
    reopen();
    OK(dl_store_outbox_read(store, 1, 10, check_full_row, &seen, &error));
    cr_assert_eq(seen, 1);
    struct dl_slice key, value;
    for (size_t size = 1; size < headers.size; size++) {
        struct dl_reader cut = dl_reader_of(dl_slice_of(headers.data, size));
        int got;
        while ((got = dl_store_headers_next(&cut, &key, &value)) == 1) continue;
        cr_assert(got == DL_ERR_CORRUPT || size == 9, "size %zu", size);
    }
    dl_buf_free(&headers);
}

/* ---- alerts ------------------------------------------------------------------------ */

static int list_alert(void *user, const struct dl_alert_row *row)
{
    dl_buf_printf(user, "%lu:%d%d@%ld/%lu:%.*s ", (unsigned long)row->number, row->kind,
                  row->raised, (long)row->time, (unsigned long)row->seq, (int)row->payload.size,
                  (const char *)row->payload.data);
    return row->number == 9 ? 5 : 0;
}

Test(store_records, alerts_come_newest_first_and_old_ones_go)
{
    struct dl_buf list = {0};
    struct dl_alert_row row = {.number = 1, .kind = 2, .raised = 1, .time = -5, .seq = 9};
    row.payload = dl_slice_text("shift");
    begin();
    OK(dl_store_put_alert(store, &row, &error));
    row.number = 2;
    row.raised = 0;
    OK(dl_store_put_alert(store, &row, &error));
    cr_assert_eq(dl_store_put_alert(store, &row, &error), DL_ERR_INVALID);
    commit();
    reopen();
    cr_assert_eq(dl_store_alert_last(store), 2);
    OK(dl_store_alerts(store, 10, list_alert, &list, &error));
    cr_assert_str_eq((char *)list.data, "2:20@-5/9:shift 1:21@-5/9:shift ");
    dl_buf_clear(&list);
    begin();
    for (row.number = 3; row.number <= DL_STORE_ALERTS_KEPT + 8; row.number++)
        OK(dl_store_put_alert(store, &row, &error));
    commit();
    /* A callback's answer ends the reading and is passed on: number 9 is the oldest kept. */
    cr_assert_eq(dl_store_alerts(store, UINT32_MAX, list_alert, &list, &error), 5);
    dl_buf_free(&list);
}

/* ---- blobs -------------------------------------------------------------------------- */

Test(store_records, blobs_are_replaced_and_removed)
{
    struct dl_buf out = {0};
    static uint8_t large[300000];
    memset(large, 7, sizeof large);
    begin();
    OK(dl_store_put_blob(store, "drift", dl_slice_of(large, sizeof large), &error));
    OK(dl_store_put_blob(store, "empty", dl_slice_of(NULL, 0), &error));
    commit();
    reopen();
    OK(dl_store_get_blob(store, "drift", &out, &error));
    cr_assert(dl_slice_equal(dl_buf_slice(&out), dl_slice_of(large, sizeof large)));
    dl_buf_clear(&out);
    OK(dl_store_get_blob(store, "empty", &out, &error));
    cr_assert_eq(out.size, 0);
    begin();
    OK(dl_store_put_blob(store, "drift", dl_slice_text("short"), &error));
    OK(dl_store_delete_blob(store, "empty", &error));
    OK(dl_store_delete_blob(store, "never", &error));
    cr_assert_eq(dl_store_put_blob(store, "", dl_slice_text("x"), &error), DL_ERR_INVALID);
    commit();
    OK(dl_store_get_blob(store, "drift", &out, &error));
    cr_assert(dl_slice_equal(dl_buf_slice(&out), dl_slice_text("short")));
    cr_assert_eq(dl_store_get_blob(store, "empty", &out, &error), DL_ERR_NOT_FOUND);
    dl_buf_free(&out);
}

Test(store_records, the_destination_list_comes_back_in_order)
{
    uint32_t list[] = {5, 0, UINT32_MAX - 2, 5}, *read = NULL, count = 0;
    cr_assert_eq(dl_store_get_destinations(store, &read, &count, &error), DL_ERR_NOT_FOUND);
    begin();
    OK(dl_store_put_destinations(store, list, 4, &error));
    commit();
    reopen();
    OK(dl_store_get_destinations(store, &read, &count, &error));
    cr_assert_eq(count, 4);
    cr_assert_arr_eq(read, list, sizeof list);
    free(read);
}

/* ---- order ---------------------------------------------------------------------------- */

Test(store_records, what_is_out_of_order_is_refused)
{
    struct dl_event event = {.weight = 1};
    cr_assert_eq(dl_store_put_blob(store, "a", dl_slice_text("x"), &error), DL_ERR_INVALID);
    cr_assert_not_null(strstr(error.text, "no transaction is open"));
    cr_assert_eq(dl_store_commit(store, &error), DL_ERR_INVALID);
    dl_store_rollback(store); /* allowed anywhere */
    begin();
    cr_assert_eq(dl_store_begin(store, &error), DL_ERR_INVALID);
    cr_assert_eq(dl_store_add_node(store, 1, 0, dl_slice_text("b"), &error), DL_ERR_INVALID);
    OK(dl_store_add_node(store, 0, 0, dl_slice_text("a"), &error));
    cr_assert_eq(dl_store_add_node(store, 0, 0, dl_slice_text("a"), &error), DL_ERR_INVALID);
    OK(dl_store_add_type(store, 0, dl_slice_text(""), &error));
    cr_assert_eq(dl_store_append_events(store, 3, &event, 1, &error), DL_ERR_INVALID);
    cr_assert_not_null(strstr(error.text, "the log goes on at 0"));
    OK(dl_store_append_events(store, 0, &event, 1, &error));
    commit();
    cr_assert_eq(dl_store_backup(store, path, &error), DL_ERR_EXISTS);
}
