/* Tokens, sessions and the names in Host headers. */
#include "service/http_access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "service/tls_tokens.h"

#define SESSION_BYTES 32
#define SESSION_NS (DL_HTTP_SESSION_HOURS * 3600 * INT64_C(1000000000))

struct session {
    uint8_t name[SESSION_BYTES];
    uint8_t token[DL_TOKEN_HASH_BYTES];
    int64_t until_ns; /* 0: free */
};

struct dl_http_access {
    char *tokens_file, *key;
    char cookie[32];
    struct dl_tokens *tokens; /* NULL: none are asked for */
    struct session sessions[DL_HTTP_SESSIONS_MAX];
    uint32_t next;
};

int dl_http_access_reload(struct dl_http_access *access, struct dl_error *error)
{
    struct dl_tokens *tokens;
    if (!access->tokens_file[0]) return DL_OK;
    int status = dl_tokens_read(access->tokens_file, access->key, &tokens, error);
    if (status != DL_OK) return status;
    dl_tokens_free(access->tokens);
    access->tokens = tokens;
    return DL_OK;
}

int dl_http_access_new(const char *tokens_file, const char *key, uint16_t port,
                       struct dl_http_access **out, struct dl_error *error)
{
    struct dl_http_access *access = calloc(1, sizeof *access);
    if (access) {
        access->tokens_file = strdup(tokens_file ? tokens_file : "");
        access->key = strdup(key ? key : "");
    }
    if (!access || !access->tokens_file || !access->key) {
        dl_http_access_free(access);
        return dl_error_set(error, DL_ERR_NOMEM, "http: out of memory");
    }
    snprintf(access->cookie, sizeof access->cookie, "driftline-%u", port);
    int status = dl_http_access_reload(access, error);
    if (status != DL_OK) {
        dl_http_access_free(access);
        return status;
    }
    *out = access;
    return DL_OK;
}

void dl_http_access_free(struct dl_http_access *access)
{
    if (!access) return;
    dl_tokens_free(access->tokens);
    free(access->tokens_file);
    free(access->key);
    free(access);
}

int dl_http_access_is_on(const struct dl_http_access *access)
{
    return access->tokens != NULL;
}

/* ---- sessions --------------------------------------------------------------------- */

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return -1;
}

/* The session's name in a Cookie header: 1, or 0 when there is none. */
static int read_cookie(const struct dl_http_access *access, const char *cookies,
                       uint8_t name[SESSION_BYTES])
{
    const size_t size = strlen(access->cookie);
    for (const char *at = cookies; at && *at;) {
        at += strspn(at, "; ");
        size_t length = strcspn(at, ";");
        if (length == size + 1 + 2 * SESSION_BYTES && strncmp(at, access->cookie, size) == 0 &&
            at[size] == '=') {
            const char *hex = at + size + 1;
            int wrong = 0;
            for (int i = 0; i < SESSION_BYTES; i++) {
                int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
                wrong |= high < 0 || low < 0;
                name[i] = (uint8_t)(high << 4 | low);
            }
            return !wrong;
        }
        at += length;
    }
    return 0;
}

/* Takes as long whatever matches. */
static struct session *find_session(struct dl_http_access *access,
                                    const uint8_t name[SESSION_BYTES])
{
    struct session *found = NULL;
    for (int s = 0; s < DL_HTTP_SESSIONS_MAX; s++) {
        uint8_t difference = 0;
        for (int i = 0; i < SESSION_BYTES; i++) difference |= access->sessions[s].name[i] ^ name[i];
        if (!difference && access->sessions[s].until_ns) found = &access->sessions[s];
    }
    return found;
}

const struct dl_token *dl_http_access_find(struct dl_http_access *access, const char *authorization,
                                           const char *cookies, int64_t now_ns)
{
    uint8_t name[SESSION_BYTES];
    if (!access->tokens) return NULL;
    if (authorization) return dl_tokens_find(access->tokens, dl_slice_text(authorization));
    if (!read_cookie(access, cookies, name)) return NULL;
    struct session *session = find_session(access, name);
    if (!session) return NULL;
    if (session->until_ns < now_ns) {
        memset(session, 0, sizeof *session);
        return NULL;
    }
    return dl_tokens_find_hash(access->tokens, session->token);
}

int dl_http_access_login(struct dl_http_access *access, struct dl_slice token, int secure,
                         int64_t now_ns, char *cookie, size_t cookie_size,
                         const struct dl_token **found)
{
    char header[DL_TOKEN_BYTES_MAX + 8], hex[DL_HTTP_SESSION_HEX];
    struct session session;
    if (!access->tokens || token.size > DL_TOKEN_BYTES_MAX) return DL_ERR_DENIED;
    int size =
        snprintf(header, sizeof header, "Bearer %.*s", (int)token.size, (const char *)token.data);
    *found = dl_tokens_find(access->tokens, dl_slice_of(header, (size_t)size));
    if (!*found) return DL_ERR_DENIED;
    if (getrandom(session.name, sizeof session.name, 0) != sizeof session.name) return DL_ERR_IO;
    memcpy(session.token, (*found)->hash, sizeof session.token);
    session.until_ns = now_ns + SESSION_NS;
    access->sessions[access->next] = session;
    access->next = (access->next + 1) % DL_HTTP_SESSIONS_MAX;
    for (int i = 0; i < SESSION_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", session.name[i]);
    snprintf(cookie, cookie_size, "%s=%s; Path=/; Max-Age=%d; HttpOnly; SameSite=Strict%s",
             access->cookie, hex, DL_HTTP_SESSION_HOURS * 3600, secure ? "; Secure" : "");
    return DL_OK;
}

void dl_http_access_logout(struct dl_http_access *access, const char *cookies, char *cookie,
                           size_t cookie_size)
{
    uint8_t name[SESSION_BYTES];
    struct session *session =
        read_cookie(access, cookies, name) ? find_session(access, name) : NULL;
    if (session) memset(session, 0, sizeof *session);
    snprintf(cookie, cookie_size, "%s=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict",
             access->cookie);
}

/* ---- Host ------------------------------------------------------------------------------ */

int dl_http_host_is_loopback(const char *host)
{
    static const char suffix[] = ".localhost";
    const size_t tail = sizeof suffix - 1;
    const char *colon = strrchr(host, ':');
    size_t length = strlen(host);
    if (colon && !strchr(colon, ']')) {
        if (colon[1 + strspn(colon + 1, "0123456789")]) return 0;
        length = (size_t)(colon - host);
    }
    if (length == 9 && strncasecmp(host, "localhost", 9) == 0) return 1;
    if (length > tail && strncasecmp(host + length - tail, suffix, tail) == 0) return 1;
    if (length == 5 && strncmp(host, "[::1]", 5) == 0) return 1;
    if (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == length) return 1;
    return 0;
}
