/* Who may ask what over HTTP: the same tokens and roles as RPC's.
 *
 * Programs send `Authorization: Bearer TOKEN`. The page exchanges a token once
 * for a session (POST /api/login): a random name in a cookie that scripts cannot
 * read and other sites' requests do not carry, so that the token itself is never
 * kept by the browser. A session has the roles that its token has now, and ends
 * after SESSION_HOURS, by logging out, or with the process. Without tokens
 * everybody has all roles, as on RPC.
 *
 * Beside that, what a browser may do for pages of other origins: on a loopback
 * address the Host must be a loopback name (which stops DNS rebinding), and a
 * POST wants Content-Type application/json and, if there is an Origin, its own.
 *
 * Loop's thread. Private to the http*.c files. */
#ifndef DL_SERVICE_HTTP_ACCESS_H
#define DL_SERVICE_HTTP_ACCESS_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_HTTP_SESSIONS_MAX 256 /* the oldest makes room */
#define DL_HTTP_SESSION_HOURS 12
#define DL_HTTP_SESSION_HEX 65 /* with its NUL */

struct dl_http_access;
struct dl_token;

/* `tokens_file` "" : no tokens. `port` goes into the cookie's name, since
 * cookies do not tell ports apart. Errors as dl_tokens_read. */
int dl_http_access_new(const char *tokens_file, const char *key, uint16_t port,
                       struct dl_http_access **access, struct dl_error *error);
void dl_http_access_free(struct dl_http_access *access);
/* Reads the file again; on an error the old tokens stay. */
int dl_http_access_reload(struct dl_http_access *access, struct dl_error *error);

/* 1 where tokens are asked for. */
int dl_http_access_is_on(const struct dl_http_access *access);
/* The token behind an Authorization header or, without one, a Cookie header
 * (either may be NULL); NULL: not known. */
const struct dl_token *dl_http_access_find(struct dl_http_access *access, const char *authorization,
                                           const char *cookies, int64_t now_ns);
/* Exchanges a token for a session: the value of Set-Cookie in `cookie`. DL_OK,
 * DL_ERR_DENIED (unknown), DL_ERR_IO (no randomness). */
int dl_http_access_login(struct dl_http_access *access, struct dl_slice token, int secure,
                         int64_t now_ns, char *cookie, size_t cookie_size,
                         const struct dl_token **found);
/* Ends the session of a Cookie header; Set-Cookie that removes it. */
void dl_http_access_logout(struct dl_http_access *access, const char *cookies, char *cookie,
                           size_t cookie_size);

/* Whether a Host header names this machine's loopback, whatever its port. */
int dl_http_host_is_loopback(const char *host);

#endif
