/* Certificates of the HTTP server, for libmicrohttpd, which speaks TLS through
 * GnuTLS. TLS 1.2 and later. A reload is for handshakes that begin afterwards;
 * what was loaded before is kept until the end, since a handshake may still be
 * using it. Loop's thread. Private to the http*.c files. */
#ifndef DL_SERVICE_HTTP_TLS_H
#define DL_SERVICE_HTTP_TLS_H

#include "base/status.h"

struct MHD_Connection;
struct dl_http_tls;

/* PEM files; `ca` "": clients need no certificate. DL_ERR_IO or DL_ERR_INVALID
 * with the key and the file named. */
int dl_http_tls_new(const char *cert, const char *key, const char *ca, struct dl_http_tls **tls,
                    struct dl_error *error);
/* After the daemon was stopped. NULL is allowed. */
void dl_http_tls_free(struct dl_http_tls *tls);
/* Reads the files again; on an error the old certificates stay. */
int dl_http_tls_reload(struct dl_http_tls *tls, struct dl_error *error);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK, MHD_OPTION_HTTPS_MEM_TRUST ("" : none) and
 * MHD_OPTION_HTTPS_PRIORITIES. The callback serves one server in a process. */
void *dl_http_tls_callback(struct dl_http_tls *tls);
const char *dl_http_tls_trust(const struct dl_http_tls *tls);
extern const char dl_http_tls_priorities[];

/* 1: this connection's client is who `ca` asks for (always, without a ca). */
int dl_http_tls_is_client_known(const struct dl_http_tls *tls, struct MHD_Connection *connection);

#endif
