/* TLS over memory: cipher bytes in and out, plain bytes in and out, no socket.
 * OpenSSL behind it. TLS 1.2 and later, ALPN "h2".
 *
 * A context holds certificates and is shared by connections; a reload makes a
 * new context, and connections that began keep the old one until they end. */
#ifndef DL_SERVICE_TLS_H
#define DL_SERVICE_TLS_H

#include <stddef.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_tls_context;
struct dl_tls;

/* Server. `cert` is a PEM chain, `key` its PEM key; with `ca` (may be NULL or
 * "") clients must show a certificate that one of its certificates signed.
 * DL_ERR_IO or DL_ERR_INVALID with a line that names the file. */
int dl_tls_context_server(const char *cert, const char *key, const char *ca,
                          struct dl_tls_context **context, struct dl_error *error);
/* Client. `ca` NULL or "": the system's certificates; `cert` and `key` (both or
 * neither) for mTLS. */
int dl_tls_context_client(const char *ca, const char *cert, const char *key,
                          struct dl_tls_context **context, struct dl_error *error);
/* Connections keep what they need of it. NULL is allowed. */
void dl_tls_context_free(struct dl_tls_context *context);

/* A connection. `host`: client only, the name (or address) that the
 * certificate must bear. DL_ERR_NOMEM. */
int dl_tls_new(struct dl_tls_context *context, const char *host, struct dl_tls **tls);
void dl_tls_free(struct dl_tls *tls);

/* Takes in cipher bytes. DL_OK or DL_ERR_NOMEM. */
int dl_tls_receive(struct dl_tls *tls, struct dl_slice cipher);
/* Plain bytes that can be read now: *size of them, 0 when more cipher bytes are
 * needed. Drives the handshake. DL_OK; DL_ERR_UNAVAILABLE when the peer has
 * closed; DL_ERR_DENIED when a certificate was refused, DL_ERR_INVALID for
 * anything else that is wrong, with detail. After an error, what
 * dl_tls_take gives (an alert) is still worth sending. */
int dl_tls_read(struct dl_tls *tls, void *plain, size_t capacity, size_t *size,
                struct dl_error *error);
/* Encrypts; possible once dl_tls_is_ready. Same errors. */
int dl_tls_write(struct dl_tls *tls, struct dl_slice plain, struct dl_error *error);
/* Up to `capacity` cipher bytes to send; 0: none. */
size_t dl_tls_take(struct dl_tls *tls, void *cipher, size_t capacity);
/* 1 once the handshake is complete. */
int dl_tls_is_ready(const struct dl_tls *tls);
/* Says goodbye (close_notify). */
void dl_tls_close(struct dl_tls *tls);

#endif
