/* The flags that every command which calls the service has in common. */
#ifndef DL_SERVICE_RPC_FLAGS_H
#define DL_SERVICE_RPC_FLAGS_H

#include <getopt.h>
#include <stdio.h>

#include "base/status.h"
#include "service/rpc_dial.h"

#define DL_RPC_SERVER_DEFAULT "127.0.0.1:50051"

enum {
    DL_FLAG_RPC = 1100,
    DL_FLAG_SERVER = DL_FLAG_RPC,
    DL_FLAG_TOKEN_FILE,
    DL_FLAG_TLS,
    DL_FLAG_CA,
    DL_FLAG_CERT,
    DL_FLAG_KEY,
    DL_FLAG_TIMEOUT,
    DL_FLAG_GZIP,
    DL_FLAG_RPC_END
};
#define DL_FLAGS_RPC                                                                               \
    {"server", required_argument, NULL, DL_FLAG_SERVER},                                           \
        {"token-file", required_argument, NULL, DL_FLAG_TOKEN_FILE},                               \
        {"tls", no_argument, NULL, DL_FLAG_TLS}, {"ca", required_argument, NULL, DL_FLAG_CA},      \
        {"cert", required_argument, NULL, DL_FLAG_CERT},                                           \
        {"key", required_argument, NULL, DL_FLAG_KEY},                                             \
        {"timeout", required_argument, NULL, DL_FLAG_TIMEOUT},                                     \
    {                                                                                              \
        "gzip", no_argument, NULL, DL_FLAG_GZIP                                                    \
    }

struct dl_rpc_flags {
    struct dl_rpc_target target;
    int64_t timeout_ms; /* of a call */
    char token[1025];   /* from --token-file or DRIFTLINE_TOKEN */
};

/* The defaults, and DRIFTLINE_TOKEN. */
void dl_rpc_flags_init(struct dl_rpc_flags *flags);
/* Takes one of the flags above. DL_ERR_INVALID or DL_ERR_IO with detail. */
int dl_rpc_flags_take(int code, const char *value, struct dl_rpc_flags *flags,
                      struct dl_error *error);
/* After the last: what goes with what. */
int dl_rpc_flags_finish(struct dl_rpc_flags *flags, struct dl_error *error);
/* Their part of --help. */
void dl_rpc_flags_help(FILE *out);

#endif
