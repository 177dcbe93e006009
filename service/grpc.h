/* gRPC over HTTP/2, the parts that need no connection: message framing,
 * compression, timeouts, statuses and their text, binary metadata. Pure
 * functions and one small incremental reader; everything from outside is
 * hostile. Reference: the gRPC project's PROTOCOL-HTTP2.md. */
#ifndef DL_SERVICE_GRPC_H
#define DL_SERVICE_GRPC_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

enum dl_grpc_status {
    DL_GRPC_OK = 0,
    DL_GRPC_CANCELLED = 1,
    DL_GRPC_UNKNOWN = 2,
    DL_GRPC_INVALID_ARGUMENT = 3,
    DL_GRPC_DEADLINE_EXCEEDED = 4,
    DL_GRPC_NOT_FOUND = 5,
    DL_GRPC_ALREADY_EXISTS = 6,
    DL_GRPC_PERMISSION_DENIED = 7,
    DL_GRPC_RESOURCE_EXHAUSTED = 8,
    DL_GRPC_FAILED_PRECONDITION = 9,
    DL_GRPC_ABORTED = 10,
    DL_GRPC_OUT_OF_RANGE = 11,
    DL_GRPC_UNIMPLEMENTED = 12,
    DL_GRPC_INTERNAL = 13,
    DL_GRPC_UNAVAILABLE = 14,
    DL_GRPC_DATA_LOSS = 15,
    DL_GRPC_UNAUTHENTICATED = 16
};

/* "DEADLINE_EXCEEDED"; "UNKNOWN" for a number that is no status. */
const char *dl_grpc_status_name(int status);
/* One of ours (0 or enum dl_status) as a gRPC status. */
enum dl_grpc_status dl_grpc_status_of(int status);
/* And back: DL_OK or a negative enum dl_status. */
int dl_grpc_status_to(int grpc_status);
/* What a client makes of a response without grpc-status. */
enum dl_grpc_status dl_grpc_status_of_http(int http_status);
/* Decimal text to a status; DL_GRPC_UNKNOWN for anything else. */
enum dl_grpc_status dl_grpc_status_parse(struct dl_slice text);

/* ---- compression -------------------------------------------------------------- */

enum dl_grpc_encoding { DL_GRPC_IDENTITY, DL_GRPC_GZIP, DL_GRPC_DEFLATE };

/* "identity", "gzip", "deflate". DL_OK or DL_ERR_UNSUPPORTED. An empty name is identity. */
int dl_grpc_encoding_parse(struct dl_slice name, enum dl_grpc_encoding *encoding);
/* Whether a grpc-accept-encoding list ("identity, gzip") holds gzip. */
int dl_grpc_accepts_gzip(struct dl_slice list);
/* Appends the decompressed message to *out, at most `size_max` bytes.
 * DL_OK, DL_ERR_CORRUPT, DL_ERR_TOO_LARGE, DL_ERR_NOMEM. */
int dl_grpc_decompress(enum dl_grpc_encoding encoding, struct dl_slice in, size_t size_max,
                       struct dl_buf *out);
/* Appends the message compressed as gzip. DL_OK or DL_ERR_NOMEM. */
int dl_grpc_compress(struct dl_slice in, struct dl_buf *out);

/* ---- framing -------------------------------------------------------------------- */

#define DL_GRPC_PREFIX_BYTES 5 /* a flag and a big-endian length */

/* Writes the prefix of a message. */
void dl_grpc_prefix(uint8_t prefix[DL_GRPC_PREFIX_BYTES], int compressed, uint32_t size);

/* Cuts a body into messages. Zero-initialised but for message_bytes_max. Memory
 * grows with what arrived, never with what a prefix promises. */
struct dl_grpc_reader {
    size_t message_bytes_max;
    enum dl_grpc_encoding encoding; /* of compressed messages */
    /* private */
    uint8_t prefix[DL_GRPC_PREFIX_BYTES];
    size_t prefix_have;
    uint32_t size; /* of the message that is coming in */
    struct dl_buf partial, plain;
};

void dl_grpc_reader_deinit(struct dl_grpc_reader *reader);

/* Takes bytes from the front of *in until a message is complete. Returns 1 and
 * the message (decompressed; borrowed until the next call, and no longer than
 * `in`), 0 when all of *in was taken and more is needed, or DL_ERR_TOO_LARGE,
 * DL_ERR_CORRUPT (a bad flag, or bytes that do not decompress), DL_ERR_INVALID
 * (compressed, though no encoding was named), DL_ERR_NOMEM. After an error the
 * reader is of no further use. */
int dl_grpc_reader_next(struct dl_grpc_reader *reader, struct dl_slice *in,
                        struct dl_slice *message, struct dl_error *error);
/* 1 when it stands between two messages: the body may end here. */
int dl_grpc_reader_at_boundary(const struct dl_grpc_reader *reader);
/* Bytes it holds. */
size_t dl_grpc_reader_memory(const struct dl_grpc_reader *reader);

/* ---- header values ----------------------------------------------------------------- */

/* "100m", "5S": one to eight digits and one of H M S m u n. Nanoseconds,
 * saturating. DL_OK or DL_ERR_INVALID. */
int dl_grpc_timeout_parse(struct dl_slice text, int64_t *timeout_ns);
/* The shortest exact form, or rounded up where eight digits do not reach. */
void dl_grpc_timeout_format(int64_t timeout_ns, char text[16]);

/* grpc-message: everything outside printable ASCII, and '%', as %XX. */
void dl_grpc_percent_encode(struct dl_slice text, struct dl_buf *out);
/* Decodes; malformed escapes stay as they are. */
void dl_grpc_percent_decode(struct dl_slice text, struct dl_buf *out);

/* Binary metadata ("-bin"): base64, padding optional when decoding. */
void dl_grpc_base64_encode(struct dl_slice bytes, struct dl_buf *out);
int dl_grpc_base64_decode(struct dl_slice text, struct dl_buf *out);

/* 1 for application/grpc, application/grpc+proto and either with parameters;
 * 2 for another application/grpc+X; 0 for anything else. */
int dl_grpc_content_type(struct dl_slice value);

#endif
