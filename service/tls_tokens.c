#include "service/tls_tokens.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "service/rpc_core.h"

#define FILE_BYTES_MAX (1024 * 1024)

_Static_assert(DL_TOKEN_HASH_BYTES == SHA256_DIGEST_LENGTH, "a hash is SHA-256");

struct dl_tokens {
    uint32_t count;
    struct dl_token list[DL_TOKENS_MAX];
};

static int is_space(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static struct dl_slice next_word(struct dl_slice *line)
{
    while (line->size > 0 && is_space(line->data[0])) {
        line->data++;
        line->size--;
    }
    struct dl_slice word = {line->data, 0};
    if (line->size > 0 && line->data[0] == '#') line->size = 0;
    while (word.size < line->size && !is_space(line->data[word.size])) word.size++;
    line->data += word.size;
    line->size -= word.size;
    return word;
}

static int parse_roles(struct dl_slice word, uint32_t *roles)
{
    static const struct {
        const char *name;
        uint32_t role;
    } names[] = {
        {"read", DL_RPC_READ},     {"subscribe", DL_RPC_SUBSCRIBE},
        {"ingest", DL_RPC_INGEST}, {"admin", DL_RPC_ADMIN},
        {"all", DL_RPC_ALL},
    };
    *roles = 0;
    while (word.size > 0) {
        const uint8_t *comma = memchr(word.data, ',', word.size);
        struct dl_slice name = {word.data, comma ? (size_t)(comma - word.data) : word.size};
        uint32_t found = 0;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
            if (dl_slice_equal(name, dl_slice_text(names[i].name))) found = names[i].role;
        if (!found) return DL_ERR_INVALID;
        *roles |= found;
        size_t used = name.size + (comma != NULL);
        word.data += used;
        word.size -= used;
    }
    return *roles ? DL_OK : DL_ERR_INVALID;
}

/* What stands behind '#', made fit for a log line. */
static void take_name(struct dl_slice line, char name[DL_TOKEN_NAME_BYTES])
{
    const uint8_t *hash = line.size ? memchr(line.data, '#', line.size) : NULL;
    const uint8_t *end = line.data + line.size;
    size_t used = 0;
    name[0] = '\0';
    if (!hash) return;
    const uint8_t *at = hash + 1;
    while (at < end && is_space(*at)) at++;
    while (end > at && is_space(end[-1])) end--;
    for (; at < end && used + 1 < DL_TOKEN_NAME_BYTES; at++)
        name[used++] = (char)(*at >= 0x20 && *at < 0x7f ? *at : '?');
    name[used] = '\0';
}

static int parse_line(struct dl_tokens *tokens, struct dl_slice line, const char *name,
                      unsigned number, struct dl_error *error)
{
    const struct dl_slice whole = line;
    struct dl_slice token = next_word(&line), roles = next_word(&line), more = next_word(&line);
    struct dl_token *entry = &tokens->list[tokens->count];
    if (token.size == 0) return DL_OK;
    if (tokens->count == DL_TOKENS_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE, "%s:%u: more than %d tokens", name, number,
                            DL_TOKENS_MAX);
    if (token.size < DL_TOKEN_BYTES_MIN || token.size > DL_TOKEN_BYTES_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "%s:%u: the token has %zu characters, %d to %d are wanted; make one "
                            "with: openssl rand -hex 32",
                            name, number, token.size, DL_TOKEN_BYTES_MIN, DL_TOKEN_BYTES_MAX);
    if (parse_roles(roles, &entry->roles) != DL_OK || more.size > 0)
        return dl_error_set(error, DL_ERR_INVALID,
                            "%s:%u: after the token, one list of roles is wanted: "
                            "read,subscribe,ingest,admin or all",
                            name, number);
    SHA256(token.data, token.size, entry->hash);
    take_name(whole, entry->name);
    tokens->count++;
    return DL_OK;
}

int dl_tokens_parse(struct dl_slice text, const char *name, struct dl_tokens **result,
                    struct dl_error *error)
{
    struct dl_tokens *tokens = calloc(1, sizeof(*tokens));
    int status = DL_OK;
    if (!tokens) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    for (unsigned number = 1; text.size > 0 && status == DL_OK; number++) {
        const uint8_t *end = memchr(text.data, '\n', text.size);
        struct dl_slice line = {text.data, end ? (size_t)(end - text.data) : text.size};
        status = parse_line(tokens, line, name, number, error);
        size_t used = line.size + (end != NULL);
        text.data += used;
        text.size -= used;
    }
    if (status == DL_OK && tokens->count == 0)
        status = dl_error_set(error, DL_ERR_INVALID, "%s: holds no token; nobody could call", name);
    if (status != DL_OK) {
        dl_tokens_free(tokens);
        return status;
    }
    *result = tokens;
    return DL_OK;
}

int dl_tokens_read(const char *path, const char *key, struct dl_tokens **tokens,
                   struct dl_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file) return dl_error_set(error, DL_ERR_IO, "%s: %s: %s", key, path, strerror(errno));
    uint8_t *text = malloc(FILE_BYTES_MAX + 1);
    size_t size = text ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    int failed = ferror(file);
    int status;
    fclose(file);
    if (!text)
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    else if (failed)
        status = dl_error_set(error, DL_ERR_IO, "%s: cannot read %s", key, path);
    else if (size > FILE_BYTES_MAX)
        status = dl_error_set(error, DL_ERR_TOO_LARGE, "%s: %s is larger than 1 MiB", key, path);
    else
        status = dl_tokens_parse(dl_slice_of(text, size), path, tokens, error);
    if (text) OPENSSL_cleanse(text, size);
    free(text);
    return status;
}

void dl_tokens_free(struct dl_tokens *tokens)
{
    free(tokens);
}

uint32_t dl_tokens_count(const struct dl_tokens *tokens)
{
    return tokens->count;
}

const struct dl_token *dl_tokens_find_hash(const struct dl_tokens *tokens,
                                           const uint8_t hash[DL_TOKEN_HASH_BYTES])
{
    uint32_t found = 0; /* index + 1; the first of equals */
    for (uint32_t i = tokens->count; i-- > 0;) {
        uint32_t equal = CRYPTO_memcmp(hash, tokens->list[i].hash, DL_TOKEN_HASH_BYTES) == 0;
        found = (found & (equal - 1)) | ((i + 1) & (0u - equal));
    }
    return found ? &tokens->list[found - 1] : NULL;
}

const struct dl_token *dl_tokens_find(const struct dl_tokens *tokens, struct dl_slice authorization)
{
    static const char scheme[] = "bearer ";
    size_t size = sizeof(scheme) - 1;
    uint8_t hash[SHA256_DIGEST_LENGTH];
    if (authorization.size <= size ||
        strncasecmp((const char *)authorization.data, scheme, size) != 0)
        return NULL;
    SHA256(authorization.data + size, authorization.size - size, hash);
    return dl_tokens_find_hash(tokens, hash);
}
