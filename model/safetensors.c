/* Reading and writing safetensors. The header is parsed as a stream of JSON
 * events into a fixed shape: an object of objects, three known keys in each. */
#include "model/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <yajl/yajl_parse.h>

#include "base/check.h"

struct text_pair {
    char *key, *value;
};

struct dl_safetensors {
    char file[128]; /* for messages */
    uint32_t count, metadata_count;
    struct dl_tensor *tensors;  /* sorted by name once parsed */
    struct text_pair *metadata; /* likewise by key */
};

static const struct {
    const char *name;
    size_t size;
} dtypes[DL_DTYPES] = {{"F32", 4}, {"F64", 8}, {"I64", 8}, {"U32", 4}, {"U8", 1}};

/* ---- header ------------------------------------------------------------------------ */

enum place { BEFORE, TOP, METADATA, TENSOR, SHAPE, OFFSETS, AFTER };
enum key { KEY_NONE, KEY_DTYPE, KEY_SHAPE, KEY_OFFSETS };

struct parse {
    struct dl_safetensors *to;
    struct dl_error *error;
    int status;
    enum place place;
    enum key key;
    int has_dtype, has_shape, has_metadata;
    uint32_t offset_count;
    uint64_t (*offsets)[2]; /* of each tensor */
    uint32_t tensor_capacity, metadata_capacity;
    struct dl_tensor *tensor;
    char name[DL_TENSOR_NAME_MAX]; /* the top-level key in hand */
};

/* Ends the parse with a message; for the callbacks to return. */
static int refuse(struct parse *parse, int status, const char *what)
{
    const char *name = parse->place >= TENSOR && parse->place < AFTER ? parse->name : "header";
    parse->status = dl_error_set(parse->error, status, "%s: %s: %s", parse->to->file, name, what);
    return 0;
}

static int unexpected(struct parse *parse)
{
    return refuse(parse, DL_ERR_CORRUPT, "not the structure of a safetensors header");
}

/* Doubles an array; keeps it on failure. */
static int grow(void **array, uint32_t *capacity, size_t size)
{
    uint32_t larger = *capacity ? *capacity * 2 : 16;
    void *moved = realloc(*array, larger * size);
    if (moved == NULL) return DL_ERR_NOMEM;
    *array = moved;
    *capacity = larger;
    return DL_OK;
}

/* The offsets grow in step with the tensors. */
static int grow_tensors(struct parse *parse)
{
    uint32_t capacity = parse->tensor_capacity;
    if (grow((void **)&parse->offsets, &capacity, sizeof *parse->offsets)) return DL_ERR_NOMEM;
    return grow((void **)&parse->to->tensors, &parse->tensor_capacity, sizeof *parse->tensor);
}

static int on_number(void *context, const char *text, size_t size)
{
    struct parse *parse = context;
    if (parse->place != SHAPE && parse->place != OFFSETS) return unexpected(parse);
    uint64_t value = 0;
    if (size == 0 || size > 15) return refuse(parse, DL_ERR_CORRUPT, "a size out of range");
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return refuse(parse, DL_ERR_CORRUPT, "a size that is not a whole number");
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    if (parse->place == SHAPE) {
        if (parse->tensor->rank == DL_TENSOR_RANK_MAX)
            return refuse(parse, DL_ERR_CORRUPT, "more than 4 dimensions");
        parse->tensor->shape[parse->tensor->rank++] = value;
    } else {
        if (parse->offset_count == 2) return refuse(parse, DL_ERR_CORRUPT, "more than two offsets");
        parse->offsets[parse->to->count][parse->offset_count++] = value;
    }
    return 1;
}

static char *text_copy(const unsigned char *text, size_t size)
{
    char *copy = malloc(size + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

static int on_string(void *context, const unsigned char *text, size_t size)
{
    struct parse *parse = context;
    if (parse->place == METADATA) {
        struct text_pair *pair = &parse->to->metadata[parse->to->metadata_count - 1];
        if (memchr(text, 0, size)) return refuse(parse, DL_ERR_CORRUPT, "NUL in metadata");
        pair->value = text_copy(text, size);
        return pair->value ? 1 : refuse(parse, DL_ERR_NOMEM, "out of memory");
    }
    if (parse->place != TENSOR || parse->key != KEY_DTYPE) return unexpected(parse);
    parse->key = KEY_NONE;
    for (int i = 0; i < DL_DTYPES; i++) {
        if (size != strlen(dtypes[i].name) || memcmp(text, dtypes[i].name, size) != 0) continue;
        parse->tensor->dtype = (enum dl_dtype)i;
        parse->has_dtype = 1;
        return 1;
    }
    return refuse(parse, DL_ERR_UNSUPPORTED, "a dtype other than F32, F64, I64, U32, U8");
}

static int on_map_start(void *context)
{
    struct parse *parse = context;
    if (parse->place == BEFORE) {
        parse->place = TOP;
        return 1;
    }
    if (parse->place != TOP) return unexpected(parse);
    if (strcmp(parse->name, "__metadata__") == 0) {
        if (parse->has_metadata) return refuse(parse, DL_ERR_CORRUPT, "two __metadata__ objects");
        parse->has_metadata = 1;
        parse->place = METADATA;
        return 1;
    }
    if (parse->to->count == DL_TENSORS_MAX)
        return refuse(parse, DL_ERR_TOO_LARGE, "more than 4096 tensors");
    if (parse->to->count == parse->tensor_capacity && grow_tensors(parse))
        return refuse(parse, DL_ERR_NOMEM, "out of memory");
    parse->tensor = &parse->to->tensors[parse->to->count];
    *parse->tensor = (struct dl_tensor){0};
    memcpy(parse->tensor->name, parse->name, sizeof parse->name);
    parse->has_dtype = parse->has_shape = 0;
    parse->offset_count = 0;
    parse->place = TENSOR;
    parse->key = KEY_NONE;
    return 1;
}

static int on_key(void *context, const unsigned char *text, size_t size)
{
    struct parse *parse = context;
    if (parse->place == TOP) {
        if (size == 0 || size >= sizeof parse->name || memchr(text, 0, size))
            return refuse(parse, DL_ERR_CORRUPT, "a tensor name that is empty or too long");
        memcpy(parse->name, text, size);
        parse->name[size] = '\0';
        return 1;
    }
    if (parse->place == METADATA) {
        struct dl_safetensors *to = parse->to;
        if (to->metadata_count == DL_METADATA_MAX)
            return refuse(parse, DL_ERR_TOO_LARGE, "more than 1024 metadata entries");
        if (memchr(text, 0, size)) return refuse(parse, DL_ERR_CORRUPT, "NUL in metadata");
        if (to->metadata_count == parse->metadata_capacity &&
            grow((void **)&to->metadata, &parse->metadata_capacity, sizeof *to->metadata))
            return refuse(parse, DL_ERR_NOMEM, "out of memory");
        struct text_pair *pair = &to->metadata[to->metadata_count++];
        *pair = (struct text_pair){text_copy(text, size), NULL};
        return pair->key ? 1 : refuse(parse, DL_ERR_NOMEM, "out of memory");
    }
    if (parse->place != TENSOR) return unexpected(parse);
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    for (int i = 0; i < 3; i++) {
        if (size != strlen(keys[i]) || memcmp(text, keys[i], size) != 0) continue;
        parse->key = (enum key)(i + 1);
        if ((parse->key == KEY_DTYPE && parse->has_dtype) ||
            (parse->key == KEY_SHAPE && parse->has_shape) ||
            (parse->key == KEY_OFFSETS && parse->offset_count > 0))
            return refuse(parse, DL_ERR_CORRUPT, "an entry stands twice");
        return 1;
    }
    return refuse(parse, DL_ERR_CORRUPT, "an entry other than dtype, shape and data_offsets");
}

static int on_map_end(void *context)
{
    struct parse *parse = context;
    if (parse->place == METADATA) {
        parse->place = TOP;
    } else if (parse->place == TOP) {
        parse->place = AFTER;
    } else {
        if (!parse->has_dtype || !parse->has_shape || parse->offset_count != 2)
            return refuse(parse, DL_ERR_CORRUPT, "dtype, shape or data_offsets is missing");
        parse->to->count++;
        parse->place = TOP;
    }
    return 1;
}

static int on_array_start(void *context)
{
    struct parse *parse = context;
    if (parse->place != TENSOR || (parse->key != KEY_SHAPE && parse->key != KEY_OFFSETS))
        return unexpected(parse);
    parse->place = parse->key == KEY_SHAPE ? SHAPE : OFFSETS;
    return 1;
}

static int on_array_end(void *context)
{
    struct parse *parse = context;
    if (parse->place == SHAPE) parse->has_shape = 1;
    if (parse->place == OFFSETS && parse->offset_count != 2)
        return refuse(parse, DL_ERR_CORRUPT, "fewer than two offsets");
    parse->key = KEY_NONE;
    parse->place = TENSOR;
    return 1;
}

static int on_null(void *context)
{
    return unexpected(context);
}

static int on_boolean(void *context, int value)
{
    (void)value;
    return unexpected(context);
}

static int parse_header(struct parse *parse, struct dl_slice header)
{
    static const yajl_callbacks callbacks = {
        .yajl_null = on_null,
        .yajl_boolean = on_boolean,
        .yajl_number = on_number,
        .yajl_string = on_string,
        .yajl_start_map = on_map_start,
        .yajl_map_key = on_key,
        .yajl_end_map = on_map_end,
        .yajl_start_array = on_array_start,
        .yajl_end_array = on_array_end,
    };
    yajl_handle json = yajl_alloc(&callbacks, NULL, parse);
    if (json == NULL) {
        refuse(parse, DL_ERR_NOMEM, "out of memory");
        return parse->status;
    }
    yajl_status status = yajl_parse(json, header.data, header.size);
    if (status == yajl_status_ok) status = yajl_complete_parse(json);
    yajl_free(json);
    if (parse->status) return parse->status;
    if (status != yajl_status_ok || parse->place != AFTER) {
        parse->place = TOP;
        refuse(parse, DL_ERR_CORRUPT, "not valid JSON");
    }
    return parse->status;
}

/* ---- layout -------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct dl_tensor *)a)->name, ((const struct dl_tensor *)b)->name);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct text_pair *)a)->key, ((const struct text_pair *)b)->key);
}

static int compare_places(const void *a, const void *b)
{
    const struct dl_tensor *x = a, *y = b;
    if (x->data.data != y->data.data) return x->data.data < y->data.data ? -1 : 1;
    return (x->data.size > y->data.size) - (x->data.size < y->data.size);
}

/* Elements of a shape; UINT64_MAX when there are absurdly many. */
static uint64_t elements_of(const struct dl_tensor *tensor)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (tensor->shape[i] != 0 && count > (UINT64_MAX >> 8) / tensor->shape[i])
            return UINT64_MAX;
        count *= tensor->shape[i];
    }
    return count;
}

static int check_layout(struct dl_safetensors *to, const uint64_t (*offsets)[2],
                        struct dl_slice data, struct dl_error *error)
{
    for (uint32_t i = 0; i < to->count; i++) {
        struct dl_tensor *tensor = &to->tensors[i];
        uint64_t begin = offsets[i][0], end = offsets[i][1], elements = elements_of(tensor);
        if (begin > end || end > data.size)
            return dl_error_set(error, DL_ERR_CORRUPT,
                                "%s: %s: offsets %llu to %llu lie outside the %zu data bytes; the "
                                "file is cut short or damaged",
                                to->file, tensor->name, (unsigned long long)begin,
                                (unsigned long long)end, data.size);
        if (elements == UINT64_MAX || elements * dtypes[tensor->dtype].size != end - begin)
            return dl_error_set(error, DL_ERR_CORRUPT,
                                "%s: %s: %llu bytes do not match its shape and dtype", to->file,
                                tensor->name, (unsigned long long)(end - begin));
        tensor->data = dl_slice_of(data.data + begin, (size_t)(end - begin));
    }
    /* In order of place each must begin where the one before it ends. */
    const uint8_t *at = data.data;
    if (to->count > 0) qsort(to->tensors, to->count, sizeof *to->tensors, compare_places);
    for (uint32_t i = 0; i < to->count; i++) {
        const struct dl_tensor *tensor = &to->tensors[i];
        if (tensor->data.data != at)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s: %s", to->file, tensor->name,
                                tensor->data.data < at ? "overlaps another tensor"
                                                       : "leaves a gap before it");
        at += tensor->data.size;
    }
    if (at != data.data + data.size)
        return dl_error_set(error, DL_ERR_CORRUPT, "%s: %zu bytes after the last tensor", to->file,
                            (size_t)(data.data + data.size - at));
    return DL_OK;
}

static int check_unique(struct dl_safetensors *to, struct dl_error *error)
{
    if (to->count > 0) qsort(to->tensors, to->count, sizeof *to->tensors, compare_names);
    for (uint32_t i = 1; i < to->count; i++)
        if (compare_names(&to->tensors[i - 1], &to->tensors[i]) == 0)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s: two tensors of this name", to->file,
                                to->tensors[i].name);
    if (to->metadata_count > 0)
        qsort(to->metadata, to->metadata_count, sizeof *to->metadata, compare_keys);
    for (uint32_t i = 1; i < to->metadata_count; i++)
        if (compare_keys(&to->metadata[i - 1], &to->metadata[i]) == 0)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: metadata: %.64s stands twice", to->file,
                                to->metadata[i].key);
    return DL_OK;
}

int dl_safetensors_parse(struct dl_slice bytes, const char *file, size_t header_bytes_max,
                         struct dl_safetensors **tensors, struct dl_error *error)
{
    *tensors = NULL;
    struct dl_safetensors *to = calloc(1, sizeof *to);
    if (to == NULL) return dl_error_set(error, DL_ERR_NOMEM, "%.100s: out of memory", file);
    snprintf(to->file, sizeof to->file, "%.127s", file);
    struct parse parse = {.to = to, .error = error};
    struct dl_reader reader = dl_reader_of(bytes);
    uint64_t header_size = dl_read_u64(&reader);
    int status;
    if (reader.failed || header_size > dl_reader_left(&reader)) {
        status = dl_error_set(error, DL_ERR_CORRUPT,
                              "%s: not a safetensors file, or cut short: a header of %llu bytes in "
                              "a file of %zu",
                              to->file, (unsigned long long)header_size, bytes.size);
        goto done;
    }
    if (header_size > header_bytes_max) {
        status = dl_error_set(error, DL_ERR_TOO_LARGE,
                              "%s: the header has %llu bytes; at most %zu are read", to->file,
                              (unsigned long long)header_size, header_bytes_max);
        goto done;
    }
    status = parse_header(&parse, dl_read_slice(&reader, (size_t)header_size));
    if (!status)
        status = check_layout(to, (const uint64_t(*)[2])parse.offsets,
                              dl_slice_of(reader.at, dl_reader_left(&reader)), error);
    if (!status) status = check_unique(to, error);
done:
    free(parse.offsets);
    if (status) {
        dl_safetensors_free(to);
        return status;
    }
    *tensors = to;
    return DL_OK;
}

void dl_safetensors_free(struct dl_safetensors *tensors)
{
    if (tensors == NULL) return;
    for (uint32_t i = 0; i < tensors->metadata_count; i++) {
        free(tensors->metadata[i].key);
        free(tensors->metadata[i].value);
    }
    free(tensors->metadata);
    free(tensors->tensors);
    free(tensors);
}

/* ---- reading ---------------------------------------------------------------------------- */

uint32_t dl_safetensors_count(const struct dl_safetensors *tensors)
{
    return tensors->count;
}

const struct dl_tensor *dl_safetensors_at(const struct dl_safetensors *tensors, uint32_t index)
{
    DL_CHECK(index < tensors->count);
    return &tensors->tensors[index];
}

const struct dl_tensor *dl_safetensors_find(const struct dl_safetensors *tensors, const char *name)
{
    uint32_t low = 0, high = tensors->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(tensors->tensors[middle].name, name);
        if (order == 0) return &tensors->tensors[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *dl_safetensors_metadata(const struct dl_safetensors *tensors, const char *key)
{
    for (uint32_t i = 0; i < tensors->metadata_count; i++)
        if (strcmp(tensors->metadata[i].key, key) == 0) return tensors->metadata[i].value;
    return NULL;
}

/* Element i as a double. */
static double element(const struct dl_tensor *tensor, uint64_t i)
{
    if (tensor->dtype == DL_DTYPE_F64) {
        double value;
        memcpy(&value, tensor->data.data + i * sizeof value, sizeof value);
        return value;
    }
    float value;
    memcpy(&value, tensor->data.data + i * sizeof value, sizeof value);
    return (double)value;
}

/* Finds a float tensor of the wanted shape with finite values. */
static int find_numbers(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                        uint64_t columns, const struct dl_tensor **found, struct dl_error *error)
{
    const struct dl_tensor *tensor = dl_safetensors_find(tensors, name);
    if (tensor == NULL)
        return dl_error_set(error, DL_ERR_CORRUPT, "%s: tensor %s is missing", tensors->file, name);
    if (tensor->dtype != DL_DTYPE_F32 && tensor->dtype != DL_DTYPE_F64)
        return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s is %s; F32 or F64 is needed",
                            tensors->file, name, dtypes[tensor->dtype].name);
    int fits = tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == columns;
    if (!fits)
        return dl_error_set(
            error, DL_ERR_CORRUPT,
            "%s: %s has shape (%llu, %llu) of %u dimensions; (%llu, %llu) is needed", tensors->file,
            name, (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
            tensor->rank, (unsigned long long)rows, (unsigned long long)columns);
    for (uint64_t i = 0; i < rows * columns; i++)
        if (!isfinite(element(tensor, i)))
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s: value %llu is not a finite number",
                                tensors->file, name, (unsigned long long)i);
    *found = tensor;
    return DL_OK;
}

int dl_safetensors_floats(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                          uint64_t columns, float *values, struct dl_error *error)
{
    const struct dl_tensor *tensor;
    int status = find_numbers(tensors, name, rows, columns, &tensor, error);
    if (status) return status;
    for (uint64_t i = 0; i < rows * columns; i++) {
        double value = element(tensor, i);
        if (fabs(value) > 3.4e38)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s: value %llu overflows a float",
                                tensors->file, name, (unsigned long long)i);
        values[i] = (float)value;
    }
    return DL_OK;
}

int dl_safetensors_doubles(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                           uint64_t columns, double *values, struct dl_error *error)
{
    const struct dl_tensor *tensor;
    int status = find_numbers(tensors, name, rows, columns, &tensor, error);
    if (status) return status;
    for (uint64_t i = 0; i < rows * columns; i++) values[i] = element(tensor, i);
    return DL_OK;
}

/* ---- writing ----------------------------------------------------------------------------- */

void dl_safetensors_writer_deinit(struct dl_safetensors_writer *writer)
{
    dl_buf_free(&writer->header);
    dl_buf_free(&writer->metadata);
    free(writer->tensors);
    *writer = (struct dl_safetensors_writer){0};
}

/* A JSON string: quotes, backslashes and control characters escaped. */
static void append_quoted(struct dl_buf *to, const char *text)
{
    dl_buf_text(to, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            dl_buf_printf(to, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            dl_buf_printf(to, "\\u%04x", (unsigned)*c);
        else
            dl_buf_append(to, c, 1);
    }
    dl_buf_text(to, "\"");
}

void dl_safetensors_add_text(struct dl_safetensors_writer *writer, const char *key,
                             const char *value)
{
    if (writer->metadata.size > 0) dl_buf_text(&writer->metadata, ",");
    append_quoted(&writer->metadata, key);
    dl_buf_text(&writer->metadata, ":");
    append_quoted(&writer->metadata, value);
}

void dl_safetensors_add_tensor(struct dl_safetensors_writer *writer, const char *name,
                               enum dl_dtype dtype, uint64_t rows, uint64_t columns,
                               const void *data)
{
    if (writer->failed) return;
    if (writer->count == DL_TENSORS_MAX || strlen(name) >= DL_TENSOR_NAME_MAX) {
        writer->failed = DL_ERR_TOO_LARGE;
        return;
    }
    if (writer->count == writer->capacity) {
        writer->failed =
            grow((void **)&writer->tensors, &writer->capacity, sizeof *writer->tensors);
        if (writer->failed) return;
    }
    struct dl_tensor *tensor = &writer->tensors[writer->count];
    *tensor = (struct dl_tensor){.dtype = dtype, .rank = 2, .shape = {rows, columns}};
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->data = dl_slice_of(data, (size_t)(rows * columns * dtypes[dtype].size));
    if (writer->count++ > 0) dl_buf_text(&writer->header, ",");
    append_quoted(&writer->header, name);
    dl_buf_printf(&writer->header,
                  ":{\"dtype\":\"%s\",\"shape\":[%llu,%llu],\"data_offsets\":[%llu,%llu]}",
                  dtypes[dtype].name, (unsigned long long)rows, (unsigned long long)columns,
                  (unsigned long long)writer->offset,
                  (unsigned long long)(writer->offset + tensor->data.size));
    writer->offset += tensor->data.size;
}

int dl_safetensors_write(struct dl_safetensors_writer *writer, struct dl_buf *out)
{
    struct dl_buf json = {0};
    dl_buf_text(&json, "{\"__metadata__\":{");
    dl_buf_append(&json, writer->metadata.data, writer->metadata.size);
    dl_buf_text(&json, writer->count ? "}," : "}");
    dl_buf_append(&json, writer->header.data, writer->header.size);
    dl_buf_text(&json, "}");
    while (json.size % 8 != 0 && !json.failed) dl_buf_text(&json, " "); /* aligns the data */
    if (json.failed || writer->metadata.failed || writer->header.failed)
        writer->failed = DL_ERR_NOMEM;
    if (!writer->failed) {
        dl_buf_u64(out, json.size);
        dl_buf_append(out, json.data, json.size);
        for (uint32_t i = 0; i < writer->count; i++)
            dl_buf_append(out, writer->tensors[i].data.data, writer->tensors[i].data.size);
        if (out->failed) writer->failed = DL_ERR_NOMEM;
    }
    dl_buf_free(&json);
    return writer->failed;
}
