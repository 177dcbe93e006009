/* A gRPC server and a client in memory, with a clock of their own. */
#ifndef DL_TESTS_RPC_PAIR_H
#define DL_TESTS_RPC_PAIR_H

#include <string.h>

#include <criterion/criterion.h>

#include "service/rpc_client.h"
#include "service/rpc_core.h"

/* What the test's methods saw. */
struct pair_seen {
    struct dl_rpc_call *call; /* the newest that is open */
    unsigned begun, messages, half_closed, closed;
    enum dl_rpc_end end;
    size_t bytes;
    int hold;   /* hold the call at each message */
    int answer; /* send the message back and, if unary, finish */
};

/* What a client call heard. */
struct pair_heard {
    unsigned messages, finished;
    int status;
    char text[256];
    char first[64], last[64];
    size_t last_size;
};

struct pair {
    int64_t now_ms;
    struct dl_rpc_config config;
    struct dl_rpc *rpc;
    struct dl_rpc_connection *connection;
    struct dl_rpc_client *client;
    struct pair_seen seen;
    unsigned woken;
    int server_open;
    size_t chunk; /* bytes handed over at a time; 0: all */
};

/* config may be changed between the two; open registers /t.T/Unary, Stream
 * (server), Gather (client), Both. */
void pair_init(struct pair *pair);
void pair_open(struct pair *pair);
/* Moves bytes until both are silent. */
void pair_pump(struct pair *pair);
/* Lets time pass in steps of at most a second. */
void pair_pass(struct pair *pair, int64_t ms);
void pair_close(struct pair *pair);

extern const struct dl_rpc_client_events pair_events;
/* Begins a call; with `message`, sends it and ends the request. */
struct dl_rpc_client_call *pair_call(struct pair *pair, const char *path, const char *message,
                                     int64_t timeout_ms, struct pair_heard *heard);

#endif
