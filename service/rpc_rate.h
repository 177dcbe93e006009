/* How many calls a second each client may begin: a token bucket a client, in a
 * table of fixed size. A client is a number, such as a hash of its token or of
 * its address. When more clients come than there are places, the one that was
 * silent for longest among those that share its places is forgotten, which
 * gives it a full bucket again: memory is what is bounded for good.
 *
 * Without I/O: time is an argument, in milliseconds of the monotonic clock. */
#ifndef DL_SERVICE_RPC_RATE_H
#define DL_SERVICE_RPC_RATE_H

#include <stdint.h>

#define DL_RPC_RATE_CLIENTS 4096

struct dl_rpc_rate;

/* rate >= 1 calls a second, at most `burst` >= 1 at once. DL_OK or DL_ERR_NOMEM. */
int dl_rpc_rate_new(uint32_t rate, uint32_t burst, struct dl_rpc_rate **limiter);
void dl_rpc_rate_free(struct dl_rpc_rate *limiter);
/* Takes a call of a client: 0, or how many milliseconds it is to wait, >= 1. */
int64_t dl_rpc_rate_take(struct dl_rpc_rate *limiter, uint64_t client, int64_t now_ms);

/* A client's number by the address of "192.0.2.1:1234" or "[2001:db8::1]:1234";
 * of IPv6 the first 64 bits, as one client has them all. */
uint64_t dl_rpc_rate_client(const char *peer);

#endif
