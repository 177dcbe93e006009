/* SHA-256 of bytes and files. */
#ifndef DL_BASE_DIGEST_H
#define DL_BASE_DIGEST_H

#include <stddef.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_DIGEST_HEX_SIZE 65 /* 64 lower-case hex digits and a NUL */

/* At once. DL_OK or DL_ERR_NOMEM. */
int dl_digest_sha256_hex(struct dl_slice bytes, char hex[DL_DIGEST_HEX_SIZE]);

/* Piece by piece. */
struct dl_digest;
/* DL_OK or DL_ERR_NOMEM. */
int dl_digest_new(struct dl_digest **digest);
void dl_digest_free(struct dl_digest *digest);
void dl_digest_update(struct dl_digest *digest, const void *data, size_t size);
/* Ends it; no update afterwards. */
void dl_digest_finish_hex(struct dl_digest *digest, char hex[DL_DIGEST_HEX_SIZE]);

/* A file's digest. DL_ERR_IO with detail, DL_ERR_NOMEM. */
int dl_digest_file_sha256_hex(const char *path, char hex[DL_DIGEST_HEX_SIZE],
                              struct dl_error *error);

#endif
