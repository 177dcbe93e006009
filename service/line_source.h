/* The source for files and standard input: CSV with a header line, JSON lines,
 * or protobuf messages each behind its length as a varint. Compressed files
 * (.gz) are read as they are.
 *
 * A thread reads ahead into a bounded buffer; the loop takes records from it
 * as fast as the engine has room. A record's position is the path and its
 * index, so a restart goes on where the store stands. The loop's thread. */
#ifndef DL_SERVICE_LINE_SOURCE_H
#define DL_SERVICE_LINE_SOURCE_H

#include <uv.h>

#include "service/config.h"
#include "service/engine.h"
#include "service/intake.h"

struct dl_line_source;

/* Beforehand, for source.kind file: can source.path be read, and does a CSV header
 * have the mapped columns? DL_OK, or a status with detail. */
int dl_line_source_check(const struct dl_config *config, struct dl_error *error);

/* `path` NULL: standard input. `failed` as in kafka_source.h; `ended` is called
 * once, when the last record was offered and flushed. */
int dl_line_source_open(uv_loop_t *loop, const struct dl_config *config, const char *path,
                        struct dl_engine *engine, struct dl_intake *intake,
                        void (*failed)(void *context, const char *reason),
                        void (*ended)(void *context), void *context, struct dl_line_source **source,
                        struct dl_error *error);
void dl_line_source_resume(struct dl_line_source *source);
void dl_line_source_stop(struct dl_line_source *source);
/* The loop must run once more. */
void dl_line_source_close(struct dl_line_source *source);

int dl_line_source_ended(const struct dl_line_source *source);
/* Bytes read (uncompressed: of the file) and the file's size, 0 if unknown; for progress. */
void dl_line_source_progress(const struct dl_line_source *source, uint64_t *read_bytes,
                             uint64_t *total_bytes, uint64_t *records);

#endif
