#include "service/tls.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct dl_tls_context {
    SSL_CTX *ssl;
    int server;
};

struct dl_tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
};

static const unsigned char alpn[] = {2, 'h', '2'};

/* The library's own line for the oldest error, and forgets the others. */
static int fail(struct dl_error *error, int status, const char *what)
{
    unsigned long code = ERR_get_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;
    ERR_clear_error();
    return dl_error_set(error, status, "%s: %s", what, reason ? reason : "unknown error");
}

static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                   const unsigned char *offered, unsigned offered_size, void *user)
{
    (void)ssl;
    (void)user;
    for (unsigned at = 0; at < offered_size; at += 1u + offered[at]) {
        if (at + 3 <= offered_size && memcmp(offered + at, alpn, sizeof(alpn)) == 0) {
            *out = offered + at + 1;
            *out_size = 2;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int set_certificate(SSL_CTX *ssl, const char *cert, const char *key, struct dl_error *error)
{
    char what[600];
    if (SSL_CTX_use_certificate_chain_file(ssl, cert) != 1) {
        snprintf(what, sizeof(what), "certificate %.500s", cert);
        return fail(error, DL_ERR_IO, what);
    }
    if (SSL_CTX_use_PrivateKey_file(ssl, key, SSL_FILETYPE_PEM) != 1) {
        snprintf(what, sizeof(what), "private key %.500s", key);
        return fail(error, DL_ERR_IO, what);
    }
    if (SSL_CTX_check_private_key(ssl) != 1) {
        snprintf(what, sizeof(what), "private key %.250s does not fit certificate %.250s", key,
                 cert);
        return fail(error, DL_ERR_INVALID, what);
    }
    return DL_OK;
}

static int context_new(int server, struct dl_tls_context **result, struct dl_error *error)
{
    struct dl_tls_context *context = calloc(1, sizeof(*context));
    if (!context) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    context->server = server;
    context->ssl = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!context->ssl) {
        free(context);
        return fail(error, DL_ERR_NOMEM, "TLS");
    }
    SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    /* An idle connection gives its buffers back; a partly written record may
     * be retried from another address. */
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                       SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    *result = context;
    return DL_OK;
}

int dl_tls_context_server(const char *cert, const char *key, const char *ca,
                          struct dl_tls_context **result, struct dl_error *error)
{
    struct dl_tls_context *context;
    int status = context_new(1, &context, error);
    if (status != DL_OK) return status;
    SSL_CTX_set_alpn_select_cb(context->ssl, on_alpn, NULL);
    status = set_certificate(context->ssl, cert, key, error);
    if (status == DL_OK && ca && ca[0]) {
        char what[600];
        snprintf(what, sizeof(what), "client CA %.500s", ca);
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(ca);
        if (!names || SSL_CTX_load_verify_locations(context->ssl, ca, NULL) != 1) {
            sk_X509_NAME_pop_free(names, X509_NAME_free);
            status = fail(error, DL_ERR_IO, what);
        } else {
            SSL_CTX_set_client_CA_list(context->ssl, names); /* takes the names over */
            SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                               NULL);
            SSL_CTX_set_session_id_context(context->ssl, (const unsigned char *)"driftline", 9);
        }
    }
    if (status != DL_OK) {
        dl_tls_context_free(context);
        return status;
    }
    *result = context;
    return DL_OK;
}

int dl_tls_context_client(const char *ca, const char *cert, const char *key,
                          struct dl_tls_context **result, struct dl_error *error)
{
    struct dl_tls_context *context;
    char what[600];
    int status = context_new(0, &context, error);
    if (status != DL_OK) return status;
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_alpn_protos(context->ssl, alpn, sizeof(alpn)) != 0)
        status = fail(error, DL_ERR_NOMEM, "TLS");
    if (status == DL_OK) {
        int loaded = ca && ca[0] ? SSL_CTX_load_verify_locations(context->ssl, ca, NULL)
                                 : SSL_CTX_set_default_verify_paths(context->ssl);
        snprintf(what, sizeof(what), "CA %.500s", ca && ca[0] ? ca : "of the system");
        if (loaded != 1) status = fail(error, DL_ERR_IO, what);
    }
    if (status == DL_OK && cert && cert[0])
        status = set_certificate(context->ssl, cert, key, error);
    if (status != DL_OK) {
        dl_tls_context_free(context);
        return status;
    }
    *result = context;
    return DL_OK;
}

void dl_tls_context_free(struct dl_tls_context *context)
{
    if (!context) return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* The name or the address that the server's certificate must bear. */
static int set_host(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    if (X509_VERIFY_PARAM_set1_ip_asc(param, host) == 1) return 1;
    ERR_clear_error();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int dl_tls_new(struct dl_tls_context *context, const char *host, struct dl_tls **result)
{
    struct dl_tls *tls = calloc(1, sizeof(*tls));
    if (!tls) return DL_ERR_NOMEM;
    tls->ssl = SSL_new(context->ssl);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (!tls->ssl || !tls->in || !tls->out) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        return DL_ERR_NOMEM;
    }
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    if (context->server) {
        SSL_set_accept_state(tls->ssl);
    } else {
        SSL_set_connect_state(tls->ssl);
        if (host && !set_host(tls->ssl, host)) {
            dl_tls_free(tls);
            return DL_ERR_NOMEM;
        }
    }
    *result = tls;
    return DL_OK;
}

void dl_tls_free(struct dl_tls *tls)
{
    if (!tls) return;
    SSL_free(tls->ssl);
    free(tls);
}

int dl_tls_receive(struct dl_tls *tls, struct dl_slice cipher)
{
    while (cipher.size > 0) {
        int step = cipher.size < 1 << 20 ? (int)cipher.size : 1 << 20;
        int written = BIO_write(tls->in, cipher.data, step);
        if (written <= 0) return DL_ERR_NOMEM;
        cipher.data += written;
        cipher.size -= (size_t)written;
    }
    return DL_OK;
}

/* What an SSL call that did not succeed means. 0: it wants more cipher bytes. */
static int explain(struct dl_tls *tls, int code, struct dl_error *error)
{
    switch (SSL_get_error(tls->ssl, code)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return DL_OK;
    case SSL_ERROR_ZERO_RETURN:
        return dl_error_set(error, DL_ERR_UNAVAILABLE, "the peer closed the connection");
    default:
        break;
    }
    long verified = SSL_get_verify_result(tls->ssl);
    unsigned long reason = ERR_peek_error();
    if (verified != X509_V_OK) {
        ERR_clear_error();
        return dl_error_set(error, DL_ERR_DENIED, "TLS: the peer's certificate is refused: %s",
                            X509_verify_cert_error_string(verified));
    }
    if (ERR_GET_REASON(reason) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) {
        ERR_clear_error();
        return dl_error_set(error, DL_ERR_DENIED, "TLS: the peer shows no certificate");
    }
    if (ERR_GET_REASON(reason) == SSL_R_HTTP_REQUEST ||
        ERR_GET_REASON(reason) == SSL_R_WRONG_VERSION_NUMBER) {
        ERR_clear_error();
        return dl_error_set(error, DL_ERR_INVALID, "TLS: the peer speaks plain text");
    }
    return fail(error, DL_ERR_INVALID, "TLS");
}

int dl_tls_read(struct dl_tls *tls, void *plain, size_t capacity, size_t *size,
                struct dl_error *error)
{
    *size = 0;
    ERR_clear_error();
    int code = SSL_read_ex(tls->ssl, plain, capacity, size);
    if (code == 1) return DL_OK;
    *size = 0;
    return explain(tls, code, error);
}

int dl_tls_write(struct dl_tls *tls, struct dl_slice plain, struct dl_error *error)
{
    while (plain.size > 0) {
        size_t written = 0;
        ERR_clear_error();
        int code = SSL_write_ex(tls->ssl, plain.data, plain.size, &written);
        if (code != 1) {
            int status = explain(tls, code, error);
            return status != DL_OK ? status
                                   : dl_error_set(error, DL_ERR_INVALID, "TLS: cannot write yet");
        }
        plain.data += written;
        plain.size -= written;
    }
    return DL_OK;
}

size_t dl_tls_take(struct dl_tls *tls, void *cipher, size_t capacity)
{
    int size = BIO_read(tls->out, cipher, capacity < 1 << 20 ? (int)capacity : 1 << 20);
    return size > 0 ? (size_t)size : 0;
}

int dl_tls_is_ready(const struct dl_tls *tls)
{
    return SSL_is_init_finished(tls->ssl);
}

void dl_tls_close(struct dl_tls *tls)
{
    if (SSL_is_init_finished(tls->ssl)) SSL_shutdown(tls->ssl);
    ERR_clear_error();
}
