/* Bearer tokens and their roles, from a file of lines
 *
 *     TOKEN  read,subscribe,ingest,admin   # comment
 *
 * Only hashes are kept, and the comment as the token's name. A comparison takes
 * as long for a wrong token as for a right one. */
#ifndef DL_SERVICE_TLS_TOKENS_H
#define DL_SERVICE_TLS_TOKENS_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_TOKENS_MAX 1024
#define DL_TOKEN_BYTES_MIN 16
#define DL_TOKEN_BYTES_MAX 1024

#define DL_TOKEN_HASH_BYTES 32
#define DL_TOKEN_NAME_BYTES 48

struct dl_tokens;

struct dl_token {
    uint8_t hash[DL_TOKEN_HASH_BYTES]; /* SHA-256 */
    uint32_t roles;                    /* enum dl_rpc_role */
    char name[DL_TOKEN_NAME_BYTES];    /* its comment, printable ASCII; or "" */
};

/* `key`: the configuration's, for messages. DL_ERR_IO, DL_ERR_INVALID, DL_ERR_TOO_LARGE with file,
 * line and remedy (never the token), DL_ERR_NOMEM. */
int dl_tokens_read(const char *path, const char *key, struct dl_tokens **tokens,
                   struct dl_error *error);
/* The same from memory; `name` stands in messages. */
int dl_tokens_parse(struct dl_slice text, const char *name, struct dl_tokens **tokens,
                    struct dl_error *error);
void dl_tokens_free(struct dl_tokens *tokens);
uint32_t dl_tokens_count(const struct dl_tokens *tokens);

/* The token of an authorization header's value, "Bearer TOKEN", or with a hash; NULL: not known.
 * Borrowed. */
const struct dl_token *dl_tokens_find(const struct dl_tokens *tokens,
                                      struct dl_slice authorization);
const struct dl_token *dl_tokens_find_hash(const struct dl_tokens *tokens,
                                           const uint8_t hash[DL_TOKEN_HASH_BYTES]);

#endif
