#include "service/rpc_flags.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "service/flags.h"

#define TIMEOUT_S 30

static int set_token(struct dl_rpc_flags *flags, const char *text, const char *where,
                     struct dl_error *error)
{
    size_t size = strcspn(text, " \t\r\n#");
    if (size == 0 || size >= sizeof(flags->token))
        return dl_error_set(error, DL_ERR_INVALID, "%s holds no token of 1 to %zu characters",
                            where, sizeof(flags->token) - 1);
    memcpy(flags->token, text, size);
    flags->token[size] = 0;
    flags->target.token = flags->token;
    return DL_OK;
}

/* The first word of the first line. */
static int read_token(struct dl_rpc_flags *flags, const char *path, struct dl_error *error)
{
    char line[2048];
    FILE *file = fopen(path, "re");
    if (!file) return dl_error_set(error, DL_ERR_IO, "--token-file %s: %s", path, strerror(errno));
    if (!fgets(line, sizeof(line), file)) line[0] = 0;
    fclose(file);
    int status = set_token(flags, line, path, error);
    explicit_bzero(line, sizeof(line));
    return status;
}

void dl_rpc_flags_init(struct dl_rpc_flags *flags)
{
    struct dl_error error;
    const char *token = getenv("DRIFTLINE_TOKEN");
    memset(flags, 0, sizeof(*flags));
    flags->target.server = DL_RPC_SERVER_DEFAULT;
    flags->timeout_ms = TIMEOUT_S * 1000;
    if (token && token[0]) set_token(flags, token, "DRIFTLINE_TOKEN", &error);
}

int dl_rpc_flags_take(int code, const char *value, struct dl_rpc_flags *flags,
                      struct dl_error *error)
{
    double seconds;
    int status;
    switch (code) {
    case DL_FLAG_SERVER:
        flags->target.server = value;
        break;
    case DL_FLAG_TOKEN_FILE:
        return read_token(flags, value, error);
    case DL_FLAG_TLS:
        flags->target.tls = 1;
        break;
    case DL_FLAG_CA:
        flags->target.ca = value;
        flags->target.tls = 1;
        break;
    case DL_FLAG_CERT:
        flags->target.cert = value;
        flags->target.tls = 1;
        break;
    case DL_FLAG_KEY:
        flags->target.key = value;
        flags->target.tls = 1;
        break;
    case DL_FLAG_TIMEOUT:
        status = dl_flag_number("timeout", value, 0, 86400, &seconds, error);
        if (status != DL_OK) return status;
        flags->timeout_ms = seconds > 0 && seconds < 0.001 ? 1 : (int64_t)(seconds * 1000);
        break;
    case DL_FLAG_GZIP:
        flags->target.gzip = 1;
        break;
    default:
        return dl_error_set(error, DL_ERR_INVALID, "unknown flag");
    }
    return DL_OK;
}

int dl_rpc_flags_finish(struct dl_rpc_flags *flags, struct dl_error *error)
{
    if (!flags->target.cert != !flags->target.key)
        return dl_error_set(error, DL_ERR_INVALID, "--cert and --key go together");
    return DL_OK;
}

void dl_rpc_flags_help(FILE *out)
{
    fprintf(out,
            "  --server HOST:PORT    of the service (" DL_RPC_SERVER_DEFAULT ")\n"
            "  --timeout SECONDS     until an answer (%d); 0: no limit\n"
            "  --gzip                compress requests\n"
            "  --token-file FILE     bearer token, first word of the file; or in DRIFTLINE_TOKEN\n"
            "  --tls                 encrypted, checked by the system's certificates\n"
            "  --ca FILE             encrypted, checked by these (PEM)\n"
            "  --cert FILE --key FILE  the client's own certificate (PEM)\n",
            TIMEOUT_S);
}
