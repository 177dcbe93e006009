/* SHA-256 by OpenSSL. */
#include "base/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"

#define PIECE_BYTES 65536

struct dl_digest {
    EVP_MD_CTX *context;
};

int dl_digest_new(struct dl_digest **digest)
{
    *digest = NULL;
    struct dl_digest *made = calloc(1, sizeof *made);
    if (made == NULL) return DL_ERR_NOMEM;
    made->context = EVP_MD_CTX_new();
    if (made->context == NULL || EVP_DigestInit_ex(made->context, EVP_sha256(), NULL) != 1) {
        dl_digest_free(made);
        return DL_ERR_NOMEM;
    }
    *digest = made;
    return DL_OK;
}

void dl_digest_free(struct dl_digest *digest)
{
    if (digest == NULL) return;
    EVP_MD_CTX_free(digest->context);
    free(digest);
}

void dl_digest_update(struct dl_digest *digest, const void *data, size_t size)
{
    DL_CHECK(EVP_DigestUpdate(digest->context, data, size) == 1);
}

void dl_digest_finish_hex(struct dl_digest *digest, char hex[DL_DIGEST_HEX_SIZE])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    DL_CHECK(EVP_DigestFinal_ex(digest->context, bytes, &size) == 1 && size == 32);
    for (unsigned int i = 0; i < size; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
}

int dl_digest_sha256_hex(struct dl_slice bytes, char hex[DL_DIGEST_HEX_SIZE])
{
    struct dl_digest *digest;
    int status = dl_digest_new(&digest);
    if (status) return status;
    dl_digest_update(digest, bytes.data, bytes.size);
    dl_digest_finish_hex(digest, hex);
    dl_digest_free(digest);
    return DL_OK;
}

int dl_digest_file_sha256_hex(const char *path, char hex[DL_DIGEST_HEX_SIZE],
                              struct dl_error *error)
{
    struct dl_digest *digest = NULL;
    unsigned char *piece = malloc(PIECE_BYTES);
    FILE *file = NULL;
    int status = dl_digest_new(&digest);
    if (status || piece == NULL) {
        status = dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
        goto done;
    }
    file = fopen(path, "rb");
    if (file == NULL) {
        status = dl_error_set(error, DL_ERR_IO, "%s: %s", path, strerror(errno));
        goto done;
    }
    for (size_t size; (size = fread(piece, 1, PIECE_BYTES, file)) > 0;)
        dl_digest_update(digest, piece, size);
    if (ferror(file)) {
        status = dl_error_set(error, DL_ERR_IO, "%s: %s", path, strerror(errno));
        goto done;
    }
    dl_digest_finish_hex(digest, hex);
done:
    if (file) fclose(file);
    free(piece);
    dl_digest_free(digest);
    return status;
}
