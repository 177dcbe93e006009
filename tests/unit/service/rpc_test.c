/* The gRPC server's core against our own client, in memory, on virtual time. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/service/rpc_pair.h"

static struct pair pair;

static void setup(void)
{
    pair_init(&pair);
}

static void teardown(void)
{
    pair_close(&pair);
}

TestSuite(rpc, .init = setup, .fini = teardown);

Test(rpc, answers_a_unary_call)
{
    static struct pair_heard heard;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "hello", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.finished, 1);
    cr_assert_eq(heard.status, DL_GRPC_OK, "%s", heard.text);
    cr_assert_str_eq(heard.last, "hello");
    cr_assert_eq(pair.seen.end, DL_RPC_FINISHED);
}

Test(rpc, works_byte_by_byte)
{
    static struct pair_heard heard;
    pair_open(&pair);
    pair.chunk = 1;
    pair_call(&pair, "/t.T/Unary", "hello", 5000, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK, "%s", heard.text);
    cr_assert_str_eq(heard.last, "hello");
}

Test(rpc, unknown_method_is_unimplemented)
{
    static struct pair_heard heard;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Nothing", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_UNIMPLEMENTED);
    cr_assert(strstr(heard.text, "/t.T/Nothing"));
}

Test(rpc, later_answer_wakes_the_connection)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.finished, 0);
    unsigned before = pair.woken;
    dl_rpc_call_send(pair.seen.call, dl_slice_text("late"));
    dl_rpc_call_finish(pair.seen.call, DL_GRPC_OK, NULL);
    cr_assert_gt(pair.woken, before);
    pair_pump(&pair);
    cr_assert_str_eq(heard.last, "late");
}

Test(rpc, deadline_ends_the_call_when_its_time_comes)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair_open(&pair);
    struct dl_rpc_client_call *call = pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    (void)call;
    /* A second one whose deadline only the server watches. */
    static struct pair_heard other;
    struct dl_rpc_client_call *timed;
    memset(&other, 0, sizeof(other));
    dl_rpc_client_start(pair.client, "/t.T/Unary", 300, &pair_events, &other, &timed);
    dl_rpc_client_send(timed, dl_slice_text("y"));
    dl_rpc_client_end(timed);
    pair_pump(&pair);
    cr_assert_eq(dl_rpc_next_ms(pair.rpc), 1300);
    cr_assert_eq(dl_rpc_call_deadline_ns(pair.seen.call), 1300000000);
    dl_rpc_tick(pair.rpc, 1299);
    cr_assert_eq(pair.seen.closed, 0);
    dl_rpc_tick(pair.rpc, 1300);
    cr_assert_eq(pair.seen.closed, 1);
    cr_assert_eq(pair.seen.end, DL_RPC_DEADLINE);
    pair_pump(&pair);
    cr_assert_eq(other.status, DL_GRPC_DEADLINE_EXCEEDED);
    cr_assert_eq(heard.finished, 0, "the one without a deadline goes on");
}

Test(rpc, many_deadlines_fire_in_order)
{
    enum { CALLS = 100 };
    static struct pair_heard heard[CALLS];
    pair.seen.answer = 0;
    pair_open(&pair);
    for (int i = 0; i < CALLS; i++)
        pair_call(&pair, "/t.T/Unary", "x", 10 + (i * 37) % CALLS, &heard[i]);
    pair_pump(&pair);
    for (int passed = 1; passed <= CALLS + 10; passed++) {
        dl_rpc_tick(pair.rpc, 1000 + passed);
        unsigned expected = passed < 10 ? 0 : (unsigned)(passed - 9 < CALLS ? passed - 9 : CALLS);
        cr_assert_eq(pair.seen.closed, expected, "after %d ms", passed);
    }
}

Test(rpc, cancelled_call_is_told_once)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair_open(&pair);
    struct dl_rpc_client_call *call = pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    dl_rpc_client_cancel(call);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_CANCELLED);
    cr_assert_eq(pair.seen.closed, 1);
    cr_assert_eq(pair.seen.end, DL_RPC_CANCELLED);
}

Test(rpc, lost_connection_cancels_its_calls)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 1000, &heard);
    pair_pump(&pair);
    dl_rpc_connection_free(pair.connection);
    pair.connection = NULL;
    pair.server_open = 0;
    cr_assert_eq(pair.seen.closed, 1);
    cr_assert_eq(dl_rpc_next_ms(pair.rpc), INT64_MAX, "its deadline is forgotten");
}

Test(rpc, full_queue_drops_the_oldest_and_counts)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair.config.queue_messages_max = 10;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Stream", "x", 0, &heard);
    pair_pump(&pair);
    for (int i = 0; i < 25; i++) {
        char text[16];
        snprintf(text, sizeof(text), "%d", i);
        cr_assert_eq(dl_rpc_call_send(pair.seen.call, dl_slice_text(text)), DL_OK);
    }
    cr_assert_eq(dl_rpc_call_dropped(pair.seen.call), 15);
    pair_pump(&pair);
    cr_assert_eq(heard.messages, 10);
    cr_assert_str_eq(heard.first, "15 lost, 15", "the gap is told where it is");
    cr_assert_str_eq(heard.last, "24");
    dl_rpc_call_finish(pair.seen.call, DL_GRPC_OK, NULL);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK);
}

Test(rpc, queue_is_bounded_in_bytes_too)
{
    static struct pair_heard heard;
    static uint8_t body[1000];
    pair.seen.answer = 0;
    pair.config.queue_bytes_max = 10 * 1005;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Stream", "x", 0, &heard);
    pair_pump(&pair);
    for (int i = 0; i < 25; i++) dl_rpc_call_send(pair.seen.call, dl_slice_of(body, sizeof(body)));
    cr_assert_eq(dl_rpc_call_dropped(pair.seen.call), 15);
    dl_rpc_call_finish(pair.seen.call, DL_GRPC_OK, NULL);
    pair_pump(&pair);
    cr_assert_eq(heard.messages, 10);
}

Test(rpc, shared_message_reaches_every_stream)
{
    static struct pair_heard one, two;
    pair.seen.answer = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Stream", "x", 0, &one);
    pair_pump(&pair);
    struct dl_rpc_call *first = pair.seen.call;
    pair_call(&pair, "/t.T/Stream", "x", 0, &two);
    pair_pump(&pair);
    struct dl_rpc_call *second = pair.seen.call;
    struct dl_h2_block *block = dl_rpc_message_new(dl_slice_text("to all"));
    cr_assert_eq(dl_rpc_call_send_shared(first, dl_h2_block_ref(block)), DL_OK);
    cr_assert_eq(dl_rpc_call_send_shared(second, block), DL_OK);
    dl_rpc_call_finish(first, DL_GRPC_OK, NULL);
    cr_assert_eq(dl_rpc_call_send(first, dl_slice_text("x")), DL_ERR_CANCELLED);
    pair_pump(&pair);
    cr_assert_str_eq(one.last, "to all");
    cr_assert_str_eq(two.last, "to all");
}

Test(rpc, held_call_stops_the_client_and_loses_nothing)
{
    enum { MESSAGES = 2000, SIZE = 1000 };
    static uint8_t body[SIZE];
    static struct pair_heard heard;
    pair.seen.hold = 1;
    pair.seen.answer = 0;
    pair_open(&pair);
    struct dl_rpc_client_call *call = pair_call(&pair, "/t.T/Gather", NULL, 0, &heard);
    for (int i = 0; i < MESSAGES; i++) dl_rpc_client_send(call, dl_slice_of(body, SIZE));
    dl_rpc_client_end(call);
    pair_pump(&pair);
    cr_assert_eq(pair.seen.messages, 1);
    cr_assert_gt(dl_rpc_client_queued(call), (size_t)MESSAGES * SIZE / 2, "the window is full");
    while (pair.seen.messages < MESSAGES) {
        unsigned before = pair.seen.messages;
        dl_rpc_call_proceed(pair.seen.call);
        pair_pump(&pair);
        cr_assert_eq(pair.seen.messages, before + 1);
        cr_assert_eq(pair.seen.half_closed, 0);
    }
    dl_rpc_call_proceed(pair.seen.call);
    cr_assert_eq(pair.seen.half_closed, 1);
    cr_assert_eq(pair.seen.bytes, (size_t)MESSAGES * SIZE);
    dl_rpc_call_finish(pair.seen.call, DL_GRPC_OK, NULL);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK);
}

Test(rpc, one_message_methods_take_exactly_one)
{
    static struct pair_heard none, two;
    pair.seen.answer = 0;
    pair_open(&pair);
    struct dl_rpc_client_call *call = pair_call(&pair, "/t.T/Unary", NULL, 0, &none);
    dl_rpc_client_end(call);
    call = pair_call(&pair, "/t.T/Unary", NULL, 0, &two);
    dl_rpc_client_send(call, dl_slice_text("1"));
    dl_rpc_client_send(call, dl_slice_text("2"));
    pair_pump(&pair);
    cr_assert_eq(none.status, DL_GRPC_UNIMPLEMENTED);
    cr_assert_eq(two.status, DL_GRPC_UNIMPLEMENTED);
}

Test(rpc, unfinished_requests_are_bounded_together)
{
    enum { CALLS = 8, SIZE = 100000 };
    static uint8_t body[SIZE];
    static struct pair_heard heard[CALLS];
    struct dl_rpc_client_call *calls[CALLS];
    pair.config.connection_memory_bytes_max = 3 * SIZE;
    pair.config.h2.connection_window = 16 * 1024 * 1024;
    pair_open(&pair);
    pair.seen.hold = 1; /* from the first message on */
    pair.seen.answer = 0;
    unsigned refused = 0;
    for (int i = 0; i < CALLS; i++) {
        calls[i] = pair_call(&pair, "/t.T/Gather", NULL, 0, &heard[i]);
        dl_rpc_client_send(calls[i], dl_slice_of(body, 10));
        dl_rpc_client_send(calls[i], dl_slice_of(body, SIZE));
    }
    pair_pump(&pair);
    for (int i = 0; i < CALLS; i++) refused += heard[i].status == DL_GRPC_RESOURCE_EXHAUSTED;
    cr_assert_gt(refused, 0);
    cr_assert_lt(refused, CALLS);
}

static uint32_t roles_of(void *context, struct dl_slice authorization, uint64_t *client)
{
    *client = authorization.size;
    return dl_slice_equal(authorization, dl_slice_text("Bearer secret")) ? *(uint32_t *)context : 0;
}

static int denied;
static void on_denied(void *context, const char *peer, const char *why)
{
    (void)context;
    cr_assert_str_eq(peer, "test");
    cr_assert_not(strstr(why, "secret"));
    denied++;
}

Test(rpc, roles_decide)
{
    static struct pair_heard heard;
    uint32_t roles = DL_RPC_READ;
    pair.config.authorize = roles_of;
    pair.config.authorize_context = &roles;
    pair.config.denied = on_denied;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK);
    pair_call(&pair, "/t.T/Stream", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_PERMISSION_DENIED);
    roles = 0;
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_UNAUTHENTICATED);
    cr_assert_not(strstr(heard.text, "secret"));
    pair_call(&pair, "/t.T/Both", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK, "open to all");
    cr_assert_eq(denied, 1, "said once, not for each call");
}

Test(rpc, calls_a_second_are_limited)
{
    static struct pair_heard heard;
    pair.config.calls_rate = 10;
    pair.config.calls_burst = 5;
    pair_open(&pair);
    for (int i = 0; i < 6; i++) {
        pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
        pair_pump(&pair);
        cr_assert_eq(heard.status, i < 5 ? DL_GRPC_OK : DL_GRPC_RESOURCE_EXHAUSTED);
    }
    cr_assert(strstr(heard.text, "try again in 100 ms"), "%s", heard.text);
    pair_call(&pair, "/t.T/Both", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK, "what is open to all is not counted");
    pair_pass(&pair, 100);
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    cr_assert_eq(heard.status, DL_GRPC_OK);
}

Test(rpc, half_a_request_is_not_waited_for_forever)
{
    static struct pair_heard heard;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", NULL, 0, &heard);
    pair_pump(&pair);
    pair_pass(&pair, pair.config.request_ms - 1000);
    cr_assert_eq(heard.finished, 0);
    pair_pass(&pair, 3000);
    cr_assert_eq(heard.status, DL_GRPC_DEADLINE_EXCEEDED);
}

Test(rpc, silent_handshake_is_closed)
{
    pair_open(&pair);
    pair.now_ms += pair.config.handshake_ms + 1001;
    dl_rpc_tick(pair.rpc, pair.now_ms);
    cr_assert(dl_rpc_connection_is_done(pair.connection));
}

Test(rpc, idle_connection_is_closed_gracefully)
{
    static struct pair_heard heard;
    pair.config.idle_ms = 5000;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    pair_pass(&pair, 4000);
    cr_assert(pair.server_open);
    pair_pass(&pair, 4000);
    cr_assert_not(pair.server_open);
}

Test(rpc, dead_peer_is_found_by_keepalive_and_a_living_one_stays)
{
    static struct pair_heard heard;
    pair.config.idle_ms = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 0, &heard);
    pair_pump(&pair);
    pair_pass(&pair, 10 * pair.config.keepalive_ms);
    cr_assert(pair.server_open, "answers PINGs");
    for (int i = 0; i < 90; i++) {
        pair.now_ms += 1000;
        dl_rpc_tick(pair.rpc, pair.now_ms); /* nobody answers */
    }
    cr_assert(dl_rpc_connection_is_done(pair.connection));
}

Test(rpc, drain_finishes_what_was_accepted)
{
    static struct pair_heard before, during, after;
    pair.seen.answer = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Unary", "x", 0, &before);
    pair_pump(&pair);
    struct dl_rpc_call *open = pair.seen.call;
    /* A call that crosses the first GOAWAY on the wire is still served. */
    pair_call(&pair, "/t.T/Unary", "x", 0, &during);
    dl_rpc_drain(pair.rpc, 5000, pair.now_ms);
    pair_pump(&pair);
    cr_assert_eq(pair.seen.begun, 2);
    struct dl_rpc_client_call *call;
    memset(&after, 0, sizeof(after));
    cr_assert_eq(dl_rpc_client_start(pair.client, "/t.T/Unary", 0, &pair_events, &after, &call),
                 DL_ERR_UNAVAILABLE);
    dl_rpc_call_finish(pair.seen.call, DL_GRPC_OK, NULL);
    dl_rpc_call_finish(open, DL_GRPC_OK, NULL);
    pair_pump(&pair);
    cr_assert_eq(before.status, DL_GRPC_OK);
    cr_assert_eq(during.status, DL_GRPC_OK);
    cr_assert_not(pair.server_open, "closed once the last call was done");
}

Test(rpc, drain_ends_what_does_not_end)
{
    static struct pair_heard heard;
    pair.seen.answer = 0;
    pair_open(&pair);
    pair_call(&pair, "/t.T/Stream", "x", 0, &heard);
    pair_pump(&pair);
    dl_rpc_drain(pair.rpc, 5000, pair.now_ms);
    pair_pass(&pair, 4000);
    cr_assert_eq(heard.finished, 0);
    pair_pass(&pair, 3000);
    cr_assert_eq(heard.status, DL_GRPC_UNAVAILABLE);
    cr_assert_not(pair.server_open);
    struct dl_rpc_connection *more;
    cr_assert_eq(dl_rpc_connection_new(pair.rpc, &pair, "x", pair.now_ms, &more), DL_ERR_FULL);
}

Test(rpc, connections_are_limited)
{
    struct dl_rpc_connection *more;
    pair.config.connections_max = 1;
    pair_open(&pair);
    cr_assert_eq(dl_rpc_connection_new(pair.rpc, &pair, "x", pair.now_ms, &more), DL_ERR_FULL);
    cr_assert_eq(dl_rpc_get_stats(pair.rpc)->connections_refused, 1);
}

Test(rpc, a_path_is_registered_once)
{
    pair_open(&pair);
    struct dl_rpc_method again = {.path = "/t.T/Unary"};
    cr_assert_eq(dl_rpc_register(pair.rpc, &again), DL_ERR_EXISTS);
}
