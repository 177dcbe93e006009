/* CSV records out of a (possibly gzip-compressed) file.
 *
 * Text is read in blocks; a record is cut out where it lies, quotes are undone
 * in place, and the fields point into the block. When a record does not end in
 * the block, its start is moved to the front and more is read, so the longest
 * record is bounded by the block. */
#include "model/csv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/digest.h"

#define BLOCK_BYTES (4 * DL_CSV_RECORD_BYTES_MAX)

struct dl_csv {
    char name[200];
    gzFile file;
    struct dl_digest *digest;
    uint64_t total_bytes;
    uint64_t line, next_line; /* of the record last read, of the next one */
    size_t begin, end;        /* text not yet handed out */
    int at_end, started;
    uint8_t separator;
    struct dl_slice fields[DL_CSV_FIELDS_MAX];
    uint8_t block[BLOCK_BYTES];
};

int dl_csv_open(const char *path, struct dl_csv **out, struct dl_error *error)
{
    struct dl_csv *csv = calloc(1, sizeof *csv);
    struct stat status;

    if (!csv) return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
    snprintf(csv->name, sizeof csv->name, "%s", strcmp(path, "-") == 0 ? "standard input" : path);
    csv->next_line = 1;
    if (dl_digest_new(&csv->digest) != DL_OK) {
        dl_csv_close(csv);
        return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
    }
    if (strcmp(path, "-") == 0) {
        csv->file = gzdopen(dup(STDIN_FILENO), "rb");
    } else {
        if (stat(path, &status) == 0) {
            if (S_ISDIR(status.st_mode)) {
                dl_csv_close(csv);
                return dl_error_set(error, DL_ERR_IO, "%s: a folder; name a CSV file", path);
            }
            csv->total_bytes = (uint64_t)status.st_size;
        }
        csv->file = gzopen(path, "rb");
    }
    if (!csv->file) {
        int reason = errno;
        dl_csv_close(csv);
        return dl_error_set(error, DL_ERR_IO, "%s: cannot open: %s", path, strerror(reason));
    }
    gzbuffer(csv->file, 1 << 17);
    *out = csv;
    return DL_OK;
}

void dl_csv_close(struct dl_csv *csv)
{
    if (!csv) return;
    if (csv->file) gzclose(csv->file);
    dl_digest_free(csv->digest);
    free(csv);
}

/* Moves what is left to the front and reads on. */
static int refill(struct dl_csv *csv, struct dl_error *error)
{
    memmove(csv->block, csv->block + csv->begin, csv->end - csv->begin);
    csv->end -= csv->begin;
    csv->begin = 0;
    int count = gzread(csv->file, csv->block + csv->end, (unsigned)(BLOCK_BYTES - csv->end));
    if (count < 0) {
        int code;
        const char *text = gzerror(csv->file, &code);
        return dl_error_set(error, DL_ERR_IO, "%s: cannot read: %s", csv->name,
                            code == Z_ERRNO ? strerror(errno) : text);
    }
    if (count == 0) {
        int code;
        const char *text = gzerror(csv->file, &code);
        if (code != Z_OK && code != Z_STREAM_END)
            return dl_error_set(error, DL_ERR_IO, "%s: cannot read: %s", csv->name, text);
        csv->at_end = 1;
        return DL_OK;
    }
    dl_digest_update(csv->digest, csv->block + csv->end, (size_t)count);
    csv->end += (size_t)count;
    return DL_OK;
}

/* Length of the record at `begin` without its line end, and the bytes to step
 * over; 0 if its end is not in the block yet. */
static int find_end(const struct dl_csv *csv, size_t *length, size_t *step, uint64_t *lines)
{
    const uint8_t *text = csv->block + csv->begin;
    size_t size = csv->end - csv->begin;
    int quoted = 0;

    *lines = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (text[i] != '\n') continue;
        ++*lines;
        if (quoted) continue;
        *step = i + 1;
        *length = i > 0 && text[i - 1] == '\r' ? i - 1 : i;
        return 1;
    }
    if (!csv->at_end) return 0;
    *length = size > 0 && text[size - 1] == '\r' ? size - 1 : size;
    *step = size;
    ++*lines;
    return 1;
}

static int cut_fields(struct dl_csv *csv, uint8_t *text, size_t length, uint32_t *count,
                      struct dl_error *error)
{
    size_t at = 0;

    *count = 0;
    for (;;) {
        if (*count == DL_CSV_FIELDS_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE, "%s: line %llu: more than %d columns",
                                csv->name, (unsigned long long)csv->line, DL_CSV_FIELDS_MAX);
        uint8_t *start = text + at;
        size_t size = 0;
        if (at < length && text[at] == '"') {
            at++;
            for (;;) {
                if (at >= length)
                    return dl_error_set(error, DL_ERR_INVALID,
                                        "%s: line %llu: a quote is opened and not closed",
                                        csv->name, (unsigned long long)csv->line);
                if (text[at] == '"') {
                    if (at + 1 >= length || text[at + 1] != '"') break;
                    at++;
                }
                start[size++] = text[at++];
            }
            at++;
            if (at < length && text[at] != csv->separator)
                return dl_error_set(error, DL_ERR_INVALID,
                                    "%s: line %llu: text after a closing quote in column %u; "
                                    "quote the whole field",
                                    csv->name, (unsigned long long)csv->line, *count + 1);
        } else {
            while (at < length && text[at] != csv->separator) at++;
            size = (size_t)(text + at - start);
        }
        csv->fields[(*count)++] = dl_slice_of(start, size);
        if (at >= length) return DL_OK;
        at++;
    }
}

int dl_csv_next(struct dl_csv *csv, const struct dl_slice **fields, uint32_t *count,
                struct dl_error *error)
{
    size_t length = 0, step = 0;
    uint64_t lines = 0;

    for (;;) {
        int found = csv->begin < csv->end && find_end(csv, &length, &step, &lines);
        if (!found && !csv->at_end && csv->end - csv->begin < DL_CSV_RECORD_BYTES_MAX) {
            int status = refill(csv, error);
            if (status != DL_OK) return status;
            continue;
        }
        csv->line = csv->next_line;
        if (!found && csv->begin == csv->end) return DL_ERR_NOT_FOUND;
        if (!found || length > DL_CSV_RECORD_BYTES_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE,
                                "%s: line %llu: a record of more than %d bytes; is a quote left "
                                "open, or is this not a CSV file?",
                                csv->name, (unsigned long long)csv->line, DL_CSV_RECORD_BYTES_MAX);
        uint8_t *text = csv->block + csv->begin;
        csv->begin += step;
        csv->next_line += lines;
        if (!csv->started && length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
            text += 3;
            length -= 3;
        }
        if (memchr(text, 0, length))
            return dl_error_set(error, DL_ERR_INVALID,
                                "%s: line %llu: a zero byte; give CSV text, plain or gzip",
                                csv->name, (unsigned long long)csv->line);
        if (length == 0) continue;
        if (!csv->started) {
            csv->separator = memchr(text, ',', length)    ? ','
                             : memchr(text, ';', length)  ? ';'
                             : memchr(text, '\t', length) ? '\t'
                                                          : ',';
            csv->started = 1;
        }
        *fields = csv->fields;
        return cut_fields(csv, text, length, count, error);
    }
}

uint64_t dl_csv_line(const struct dl_csv *csv)
{
    return csv->line;
}

void dl_csv_position(const struct dl_csv *csv, uint64_t *read_bytes, uint64_t *total_bytes)
{
    z_off_t offset = gzoffset(csv->file);
    *read_bytes = offset > 0 ? (uint64_t)offset : 0;
    *total_bytes = csv->total_bytes;
}

void dl_csv_hash(struct dl_csv *csv, char hex[65])
{
    dl_digest_finish_hex(csv->digest, hex);
}
