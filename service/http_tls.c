/* Certificates for libmicrohttpd. GnuTLS asks for one in each handshake, through
 * a function without a context of ours, hence the one static pointer. */
#include "service/http_tls.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>

#define CHAIN_MAX 16
#define FILE_BYTES_MAX (1024 * 1024)

/* What one reading of the files gave. */
struct generation {
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned int count;
    gnutls_privkey_t key;
    struct generation *older;
};

struct dl_http_tls {
    char *cert, *key, *ca;
    char *trust; /* the ca's text */
    struct generation *newest;
};

static struct dl_http_tls *serving;

const char dl_http_tls_priorities[] = "SECURE128:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

/* ---- files ---------------------------------------------------------------------- */

/* The text with a NUL behind it; the caller's to free. */
static int read_text(const char *setting, const char *path, char **text, size_t *size,
                     struct dl_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return dl_error_set(error, DL_ERR_IO, "http.%s: %s: %s", setting, path, strerror(errno));
    char *read = malloc(FILE_BYTES_MAX + 1);
    *size = read ? fread(read, 1, FILE_BYTES_MAX, file) : 0;
    int failed = !read || ferror(file) || !feof(file);
    fclose(file);
    if (failed) {
        free(read);
        return dl_error_set(error, DL_ERR_IO, "http.%s: cannot read %s (at most 1 MiB)", setting,
                            path);
    }
    read[*size] = '\0';
    *text = read;
    return DL_OK;
}

static void generation_free(struct generation *generation)
{
    if (!generation) return;
    for (unsigned int i = 0; i < generation->count; i++) gnutls_pcert_deinit(&generation->chain[i]);
    gnutls_privkey_deinit(generation->key);
    free(generation);
}

static int refuse(struct dl_error *error, const char *setting, const char *path, int code)
{
    return dl_error_set(error, DL_ERR_INVALID, "http.%s: %s: %s", setting, path,
                        gnutls_strerror(code));
}

static int parse(const struct dl_http_tls *tls, char *chain, size_t chain_size, char *key,
                 size_t key_size, struct generation *made, struct dl_error *error)
{
    gnutls_datum_t pem = {(unsigned char *)chain, (unsigned int)chain_size};
    made->count = CHAIN_MAX;
    int code =
        gnutls_pcert_list_import_x509_raw(made->chain, &made->count, &pem, GNUTLS_X509_FMT_PEM, 0);
    if (code < 0) {
        made->count = 0;
        return refuse(error, "tls_cert", tls->cert, code);
    }
    pem = (gnutls_datum_t){(unsigned char *)key, (unsigned int)key_size};
    code = gnutls_privkey_init(&made->key);
    if (code >= 0)
        code = gnutls_privkey_import_x509_raw(made->key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code < 0) return refuse(error, "tls_key", tls->key, code);
    gnutls_pubkey_t public = NULL;
    unsigned char of_key[64], of_cert[64];
    size_t of_key_size = sizeof of_key, of_cert_size = sizeof of_cert;
    code = gnutls_pubkey_init(&public);
    if (code >= 0) code = gnutls_pubkey_import_privkey(public, made->key, 0, 0);
    if (code >= 0) code = gnutls_pubkey_get_key_id(public, 0, of_key, &of_key_size);
    if (code >= 0)
        code = gnutls_pubkey_get_key_id(made->chain[0].pubkey, 0, of_cert, &of_cert_size);
    gnutls_pubkey_deinit(public);
    if (code < 0) return refuse(error, "tls_key", tls->key, code);
    if (of_key_size != of_cert_size || memcmp(of_key, of_cert, of_key_size) != 0)
        return dl_error_set(error, DL_ERR_INVALID, "http.tls_key: %s is not the key of %s",
                            tls->key, tls->cert);
    return DL_OK;
}

int dl_http_tls_reload(struct dl_http_tls *tls, struct dl_error *error)
{
    char *chain = NULL, *key = NULL;
    size_t chain_size = 0, key_size = 0;
    struct generation *made = calloc(1, sizeof *made);
    int status = made ? DL_OK : dl_error_set(error, DL_ERR_NOMEM, "http: out of memory");
    if (status == DL_OK) status = read_text("tls_cert", tls->cert, &chain, &chain_size, error);
    if (status == DL_OK) status = read_text("tls_key", tls->key, &key, &key_size, error);
    if (status == DL_OK) status = parse(tls, chain, chain_size, key, key_size, made, error);
    if (status == DL_OK) {
        made->older = tls->newest;
        tls->newest = made;
        made = NULL;
    }
    generation_free(made);
    if (key) gnutls_memset(key, 0, key_size);
    free(key);
    free(chain);
    return status;
}

int dl_http_tls_new(const char *cert, const char *key, const char *ca, struct dl_http_tls **out,
                    struct dl_error *error)
{
    size_t size;
    struct dl_http_tls *tls = calloc(1, sizeof *tls);
    if (tls) {
        tls->cert = strdup(cert);
        tls->key = strdup(key);
        tls->ca = strdup(ca ? ca : "");
    }
    int status = tls && tls->cert && tls->key && tls->ca
                     ? DL_OK
                     : dl_error_set(error, DL_ERR_NOMEM, "http: out of memory");
    if (status == DL_OK && tls->ca[0])
        status = read_text("tls_ca", tls->ca, &tls->trust, &size, error);
    if (status == DL_OK) status = dl_http_tls_reload(tls, error);
    if (status != DL_OK) {
        dl_http_tls_free(tls);
        return status;
    }
    *out = tls;
    return DL_OK;
}

void dl_http_tls_free(struct dl_http_tls *tls)
{
    if (!tls) return;
    if (serving == tls) serving = NULL;
    while (tls->newest) {
        struct generation *older = tls->newest->older;
        generation_free(tls->newest);
        tls->newest = older;
    }
    free(tls->cert);
    free(tls->key);
    free(tls->ca);
    free(tls->trust);
    free(tls);
}

/* ---- handshakes ------------------------------------------------------------------- */

static int choose(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                  const gnutls_pk_algorithm_t *algorithms, int algorithm_count,
                  gnutls_pcert_st **chain, unsigned int *count, gnutls_privkey_t *key)
{
    (void)session, (void)authorities, (void)authority_count;
    (void)algorithms, (void)algorithm_count;
    if (!serving) return -1;
    *chain = serving->newest->chain;
    *count = serving->newest->count;
    *key = serving->newest->key;
    return 0;
}

void *dl_http_tls_callback(struct dl_http_tls *tls)
{
    gnutls_certificate_retrieve_function2 *function = choose;
    void *pointer;
    serving = tls;
    memcpy(&pointer, &function, sizeof pointer);
    return pointer;
}

const char *dl_http_tls_trust(const struct dl_http_tls *tls)
{
    return tls->trust ? tls->trust : "";
}

int dl_http_tls_is_client_known(const struct dl_http_tls *tls, struct MHD_Connection *connection)
{
    unsigned int problems = 1;
    if (!tls->trust) return 1;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info && gnutls_certificate_verify_peers2(info->tls_session, &problems) >= 0 && !problems;
}
