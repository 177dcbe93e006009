#include "service/rpc_rate.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"

#define WAYS 8 /* places that a client may have */

struct bucket {
    uint64_t client;
    int64_t used_ms; /* INT64_MIN: free */
    int64_t tokens_milli;
};

struct dl_rpc_rate {
    uint32_t rate;
    int64_t full_milli;
    struct bucket buckets[DL_RPC_RATE_CLIENTS];
};

int dl_rpc_rate_new(uint32_t rate, uint32_t burst, struct dl_rpc_rate **result)
{
    DL_CHECK(rate >= 1 && burst >= 1);
    struct dl_rpc_rate *limiter = malloc(sizeof(*limiter));
    if (!limiter) return DL_ERR_NOMEM;
    limiter->rate = rate;
    limiter->full_milli = (int64_t)burst * 1000;
    for (uint32_t i = 0; i < DL_RPC_RATE_CLIENTS; i++)
        limiter->buckets[i] = (struct bucket){.used_ms = INT64_MIN};
    *result = limiter;
    return DL_OK;
}

void dl_rpc_rate_free(struct dl_rpc_rate *limiter)
{
    free(limiter);
}

/* The client's bucket, or the one that is given up for it. */
static struct bucket *find(struct dl_rpc_rate *limiter, uint64_t client, int64_t now_ms)
{
    uint32_t set = (uint32_t)((client * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
    struct bucket *bucket = limiter->buckets + set % (DL_RPC_RATE_CLIENTS / WAYS) * WAYS;
    struct bucket *oldest = bucket;
    for (uint32_t i = 0; i < WAYS; i++, bucket++) {
        if (bucket->client == client && bucket->used_ms != INT64_MIN) return bucket;
        if (bucket->used_ms < oldest->used_ms) oldest = bucket;
    }
    *oldest = (struct bucket){client, now_ms, limiter->full_milli};
    return oldest;
}

int64_t dl_rpc_rate_take(struct dl_rpc_rate *limiter, uint64_t client, int64_t now_ms)
{
    struct bucket *bucket = find(limiter, client, now_ms);
    int64_t passed_ms = now_ms - bucket->used_ms;
    bucket->used_ms = now_ms;
    /* Longer than it takes to fill changes nothing, and must not overflow. */
    if (passed_ms > limiter->full_milli / limiter->rate)
        bucket->tokens_milli = limiter->full_milli;
    else
        bucket->tokens_milli += passed_ms * limiter->rate;
    if (bucket->tokens_milli > limiter->full_milli) bucket->tokens_milli = limiter->full_milli;
    if (bucket->tokens_milli < 1000)
        return (1000 - bucket->tokens_milli + limiter->rate - 1) / limiter->rate;
    bucket->tokens_milli -= 1000;
    return 0;
}

uint64_t dl_rpc_rate_client(const char *peer)
{
    char host[64];
    uint8_t a[16];
    const char *colon = strrchr(peer, ':');
    const size_t bracket = peer[0] == '[';
    size_t size = colon ? (size_t)(colon - peer) : strlen(peer);
    if (bracket && size >= 2) size -= 2;
    snprintf(host, sizeof(host), "%.*s", (int)size, peer + bracket);
    if (inet_pton(AF_INET6, host, a) == 1) {
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        if (memcmp(a, mapped, sizeof(mapped)) != 0) {
            uint64_t network;
            memcpy(&network, a, sizeof(network));
            return network;
        }
        memmove(a, a + 12, 4); /* IPv4 in IPv6 */
    } else if (inet_pton(AF_INET, host, a) != 1) {
        return 0; /* no address: in tests */
    }
    return UINT64_C(1) << 32 | (uint64_t)a[0] << 24 | (uint64_t)a[1] << 16 | (uint64_t)a[2] << 8 |
           a[3];
}
