#include <criterion/criterion.h>

#include "base/status.h"
#include "service/rpc_rate.h"

static struct dl_rpc_rate *limiter;

static void open_limiter(uint32_t rate, uint32_t burst)
{
    cr_assert_eq(dl_rpc_rate_new(rate, burst, &limiter), DL_OK);
}

static void close_limiter(void)
{
    dl_rpc_rate_free(limiter);
}

TestSuite(rpc_rate, .fini = close_limiter);

Test(rpc_rate, a_burst_and_then_the_rate)
{
    open_limiter(10, 3);
    for (int i = 0; i < 3; i++) cr_assert_eq(dl_rpc_rate_take(limiter, 7, 1000), 0);
    cr_assert_eq(dl_rpc_rate_take(limiter, 7, 1000), 100);
    cr_assert_eq(dl_rpc_rate_take(limiter, 7, 1060), 40);
    cr_assert_eq(dl_rpc_rate_take(limiter, 7, 1100), 0);
    cr_assert_eq(dl_rpc_rate_take(limiter, 7, 1100), 100);
    /* A long silence fills it, to the burst and no further. */
    for (int i = 0; i < 3; i++) cr_assert_eq(dl_rpc_rate_take(limiter, 7, INT64_MAX), 0);
    cr_assert_eq(dl_rpc_rate_take(limiter, 7, INT64_MAX), 100);
}

Test(rpc_rate, the_wait_that_is_told_is_enough)
{
    open_limiter(7, 1);
    cr_assert_eq(dl_rpc_rate_take(limiter, 1, 0), 0);
    int64_t wait_ms = dl_rpc_rate_take(limiter, 1, 0);
    cr_assert_gt(dl_rpc_rate_take(limiter, 1, wait_ms - 1), 0);
    cr_assert_eq(dl_rpc_rate_take(limiter, 1, wait_ms), 0);
}

Test(rpc_rate, clients_do_not_take_each_others_calls)
{
    open_limiter(1, 1);
    for (uint64_t client = 0; client < 100; client++) {
        cr_assert_eq(dl_rpc_rate_take(limiter, client, 0), 0);
        cr_assert_gt(dl_rpc_rate_take(limiter, client, 0), 0);
    }
}

Test(rpc_rate, any_number_of_clients_fit_and_a_busy_one_stays_limited)
{
    open_limiter(1, 2);
    uint64_t served = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        served += dl_rpc_rate_take(limiter, UINT64_MAX, (int64_t)i / 1000) == 0;
        cr_assert_eq(dl_rpc_rate_take(limiter, i, (int64_t)i / 1000), 0);
    }
    cr_assert_eq(served, 2, "calls of the busy one in a tenth of a second");
}

Test(rpc_rate, a_client_is_an_address_whatever_its_port)
{
    cr_assert_eq(dl_rpc_rate_client("192.0.2.1:1"), dl_rpc_rate_client("192.0.2.1:65535"));
    cr_assert_eq(dl_rpc_rate_client("192.0.2.1:1"), dl_rpc_rate_client("[::ffff:192.0.2.1]:1"));
    cr_assert_neq(dl_rpc_rate_client("192.0.2.1:1"), dl_rpc_rate_client("192.0.2.2:1"));
    cr_assert_eq(dl_rpc_rate_client("[2001:db8::1]:1"), dl_rpc_rate_client("[2001:db8::2:3]:2"));
    cr_assert_neq(dl_rpc_rate_client("[2001:db8::1]:1"), dl_rpc_rate_client("[2001:db9::1]:1"));
    cr_assert_neq(dl_rpc_rate_client("[2001:db8::1]:1"), dl_rpc_rate_client("192.0.2.1:1"));
    close_limiter();
    limiter = NULL;
}
