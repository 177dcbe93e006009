/* The safetensors format: named tensors and text metadata.
 *
 *   [8 bytes: n, little-endian][n bytes: JSON][tensor bytes]
 *   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3],
 *    "data_offsets": [0, 24]}, ...}
 *
 * Read as hostile input: every offset is inside the file, tensors neither
 * overlap nor leave gaps, sizes match shapes, names are unique. */
#ifndef DL_MODEL_SAFETENSORS_H
#define DL_MODEL_SAFETENSORS_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

#define DL_TENSORS_MAX 4096
#define DL_METADATA_MAX 1024
#define DL_TENSOR_RANK_MAX 4
#define DL_TENSOR_NAME_MAX 128 /* bytes, with the NUL */

enum dl_dtype { DL_DTYPE_F32, DL_DTYPE_F64, DL_DTYPE_I64, DL_DTYPE_U32, DL_DTYPE_U8, DL_DTYPES };

struct dl_tensor {
    char name[DL_TENSOR_NAME_MAX];
    enum dl_dtype dtype;
    uint32_t rank;
    uint64_t shape[DL_TENSOR_RANK_MAX];
    struct dl_slice data; /* borrowed from the file's bytes; not aligned */
};

struct dl_safetensors;

/* Parses `bytes`, which must outlive the result. `file` stands in messages.
 * DL_ERR_CORRUPT, DL_ERR_TOO_LARGE, DL_ERR_UNSUPPORTED (a dtype not listed
 * above), each with one line; DL_ERR_NOMEM. */
int dl_safetensors_parse(struct dl_slice bytes, const char *file, size_t header_bytes_max,
                         struct dl_safetensors **tensors, struct dl_error *error);
void dl_safetensors_free(struct dl_safetensors *tensors);

uint32_t dl_safetensors_count(const struct dl_safetensors *tensors);
const struct dl_tensor *dl_safetensors_at(const struct dl_safetensors *tensors, uint32_t index);
/* NULL if there is none. */
const struct dl_tensor *dl_safetensors_find(const struct dl_safetensors *tensors, const char *name);
const char *dl_safetensors_metadata(const struct dl_safetensors *tensors, const char *key);
/* A tensor (rows, columns) of F32 or F64 with finite values, converted.
 * DL_ERR_CORRUPT with detail: missing, another shape or type, not finite. */
int dl_safetensors_floats(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                          uint64_t columns, float *values, struct dl_error *error);
int dl_safetensors_doubles(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                           uint64_t columns, double *values, struct dl_error *error);

/* Collects tensors and metadata, then writes all at once. Zero-initialised is
 * empty. `data` must stay until dl_safetensors_write. Names and keys are plain
 * ASCII without quotes. */
struct dl_safetensors_writer {
    struct dl_buf header, metadata;
    struct dl_tensor *tensors;
    uint32_t count, capacity;
    uint64_t offset;
    int failed; /* DL_ERR_NOMEM or DL_ERR_TOO_LARGE, kept */
};
void dl_safetensors_writer_deinit(struct dl_safetensors_writer *writer);
void dl_safetensors_add_text(struct dl_safetensors_writer *writer, const char *key,
                             const char *value);
/* Shape (rows, columns) in row-major order. */
void dl_safetensors_add_tensor(struct dl_safetensors_writer *writer, const char *name,
                               enum dl_dtype dtype, uint64_t rows, uint64_t columns,
                               const void *data);
/* Appends the file to `out`. DL_OK, or the first failure. */
int dl_safetensors_write(struct dl_safetensors_writer *writer, struct dl_buf *out);

#endif
