/* Reads the records of a CSV file (RFC 4180: quotes, doubled quotes, CRLF),
 * plain or gzip-compressed, with line numbers and a SHA-256 of the text.
 *
 * The separator is the first of ',', ';' and tab that the first line holds. A
 * byte-order mark and empty lines are passed over. Not thread-safe. */
#ifndef DL_MODEL_CSV_H
#define DL_MODEL_CSV_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_CSV_RECORD_BYTES_MAX 65536 /* one record, quotes included */
#define DL_CSV_FIELDS_MAX 256         /* fields of one record */

struct dl_csv;

/* `path` "-" is standard input. DL_ERR_IO, DL_ERR_NOMEM with detail. */
int dl_csv_open(const char *path, struct dl_csv **csv, struct dl_error *error);
void dl_csv_close(struct dl_csv *csv);

/* The next record; its fields are borrowed until the next call. DL_OK,
 * DL_ERR_NOT_FOUND at the end, DL_ERR_INVALID, DL_ERR_TOO_LARGE, DL_ERR_IO
 * with detail that names file and line. */
int dl_csv_next(struct dl_csv *csv, const struct dl_slice **fields, uint32_t *count,
                struct dl_error *error);

/* Line of the record last read, from 1. */
uint64_t dl_csv_line(const struct dl_csv *csv);
/* Bytes of the file read so far and in all (0: not known), for progress. */
void dl_csv_position(const struct dl_csv *csv, uint64_t *read_bytes, uint64_t *total_bytes);
/* After the end: SHA-256 of the uncompressed text in hex, so that a file and
 * its gzip have one fingerprint. */
void dl_csv_hash(struct dl_csv *csv, char hex[65]);

#endif
