/* Models on disk: a network's tensors, its metadata and the drift reference in
 * one safetensors file. */
#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/digest.h"
#include "model/safetensors.h"
#include "model/trial.h"

/* Raised when a file of an earlier program can no longer be read. */
#define FORMAT "driftline-model/1"
#define REFERENCE_COLUMNS_MAX 256
#define REAL_DTYPE (sizeof(dl_real) == 8 ? DL_DTYPE_F64 : DL_DTYPE_F32)
#define REFERENCE_ROWS_MAX 1000000

struct dl_model {
    atomic_uint references;
    struct dl_model_info info;
    struct dl_network *network;
    struct dl_reference reference;
    int has_reference;
};

/* ---- metadata: one table for both directions -------------------------------------------- */

enum kind { U32, U64, I64, SWITCH, F32, F64, TEXT, UNIT };

struct field {
    const char *key;
    enum kind kind;
    size_t offset, size;
};

#define FIELD(key, kind, member)                                                                   \
    {                                                                                              \
        key, kind, offsetof(struct dl_model_info, member),                                         \
            sizeof(((struct dl_model_info *)0)->member)                                            \
    }

static const struct field fields[] = {
    FIELD("architecture", TEXT, config.architecture),
    FIELD("window", U32, config.window),
    FIELD("width", U32, config.width),
    FIELD("heads", U32, config.heads),
    FIELD("layers", U32, config.layers),
    FIELD("features", U32, config.feature_count),
    FIELD("differential", SWITCH, config.differential),
    FIELD("rope", SWITCH, config.rope),
    FIELD("time_encoding", SWITCH, config.time_encoding),
    FIELD("cooccurrence", SWITCH, config.cooccurrence),
    FIELD("pair_memory", SWITCH, config.pair_memory),
    FIELD("steps", SWITCH, config.steps),
    FIELD("arrival_age", SWITCH, config.arrival_age),
    FIELD("dropout", F32, config.dropout),
    FIELD("encoding.gap", F64, encoding.gap),
    FIELD("encoding.weight_mean", F64, encoding.weight_mean),
    FIELD("encoding.weight_sd", F64, encoding.weight_sd),
    FIELD("calibration.scale", F64, calibration.scale),
    FIELD("calibration.shift", F64, calibration.shift),
    FIELD("time_unit", UNIT, time_unit),
    FIELD("train.ties", TEXT, ties),
    FIELD("train.negatives", TEXT, negatives),
    FIELD("train.seed", U64, seed),
    FIELD("train.seconds", F64, train_seconds),
    FIELD("train.epochs", U32, epochs),
    FIELD("train.until", I64, trained_until),
    FIELD("train.held_out", U64, held_out_nodes),
    FIELD("data.sha256", TEXT, data_hash),
    FIELD("data.edges", U64, data_edges),
    FIELD("data.nodes", U64, data_nodes),
    FIELD("data.timestamps", U64, data_timestamps),
    FIELD("validation.ap", F64, validation_ap),
    FIELD("validation.auc", F64, validation_auc),
    FIELD("validation.mrr", F64, validation_mrr),
    FIELD("validation.ece", F64, validation_ece),
};
#define FIELDS (sizeof fields / sizeof *fields)

static void format_field(const struct field *field, const struct dl_model_info *info, char *text,
                         size_t size)
{
    const void *at = (const char *)info + field->offset;
    switch (field->kind) {
    case U32:
        snprintf(text, size, "%" PRIu32, *(const uint32_t *)at);
        break;
    case U64:
        snprintf(text, size, "%" PRIu64, *(const uint64_t *)at);
        break;
    case I64:
        snprintf(text, size, "%" PRId64, *(const int64_t *)at);
        break;
    case SWITCH:
        snprintf(text, size, "%s", *(const int *)at ? "on" : "off");
        break;
    case F32:
        snprintf(text, size, "%.9g", (double)*(const float *)at);
        break;
    case F64:
        snprintf(text, size, "%.17g", *(const double *)at);
        break;
    case TEXT:
        snprintf(text, size, "%.*s", (int)field->size - 1, (const char *)at);
        break;
    case UNIT:
        snprintf(text, size, "%s", dl_time_unit_name(*(const enum dl_time_unit *)at));
        break;
    }
}

static int parse_unsigned(const char *text, uint64_t limit, uint64_t *value)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return DL_ERR_CORRUPT;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *value <= limit ? DL_OK : DL_ERR_CORRUPT;
}

/* A finite number of the C locale; nothing before or after it. */
static int parse_double(const char *text, double *value)
{
    char *end;
    if (text[0] == '\0' || strspn(text, "0123456789+-.eE") != strlen(text)) return DL_ERR_CORRUPT;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value) ? DL_OK : DL_ERR_CORRUPT;
}

static int parse_field(const struct field *field, const char *text, struct dl_model_info *info)
{
    void *at = (char *)info + field->offset;
    uint64_t whole;
    double number;
    char *end;
    switch (field->kind) {
    case U32:
        if (parse_unsigned(text, UINT32_MAX, &whole)) return DL_ERR_CORRUPT;
        *(uint32_t *)at = (uint32_t)whole;
        return DL_OK;
    case U64:
        return parse_unsigned(text, UINT64_MAX, at);
    case I64:
        if (text[0] != '-' && (text[0] < '0' || text[0] > '9')) return DL_ERR_CORRUPT;
        errno = 0;
        *(int64_t *)at = strtoll(text, &end, 10);
        return errno == 0 && end != text && *end == '\0' ? DL_OK : DL_ERR_CORRUPT;
    case SWITCH:
        if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0) return DL_ERR_CORRUPT;
        *(int *)at = strcmp(text, "on") == 0;
        return DL_OK;
    case F32:
        if (parse_double(text, &number) || fabs(number) > 3.4e38) return DL_ERR_CORRUPT;
        *(float *)at = (float)number;
        return DL_OK;
    case F64:
        return parse_double(text, at);
    case TEXT:
        if (strlen(text) >= field->size) return DL_ERR_CORRUPT;
        strcpy(at, text);
        return DL_OK;
    case UNIT:
        return dl_time_unit_parse(dl_slice_text(text), at);
    }
    return DL_ERR_CORRUPT;
}

static int read_fields(const struct dl_safetensors *tensors, const char *name,
                       struct dl_model_info *info, struct dl_error *error)
{
    const char *format = dl_safetensors_metadata(tensors, "format");
    if (format == NULL)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: not a driftline model: metadata has no 'format'", name);
    if (strcmp(format, FORMAT) != 0)
        return dl_error_set(error, DL_ERR_VERSION,
                            "%s: format is '%.40s', this program reads '%s'; train the model anew",
                            name, format, FORMAT);
    for (size_t i = 0; i < FIELDS; i++) {
        const char *text = dl_safetensors_metadata(tensors, fields[i].key);
        if (text == NULL)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: metadata '%s' is missing", name,
                                fields[i].key);
        if (parse_field(&fields[i], text, info))
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: metadata '%s' has the value '%.40s'",
                                name, fields[i].key, text);
    }
    return DL_OK;
}

/* ---- tensors ------------------------------------------------------------------------------ */

static int read_numbers(const struct dl_safetensors *tensors, const char *name, uint64_t rows,
                        uint64_t columns, dl_real *values, struct dl_error *error)
{
#ifdef DL_REAL_DOUBLE
    return dl_safetensors_doubles(tensors, name, rows, columns, values, error);
#else
    return dl_safetensors_floats(tensors, name, rows, columns, values, error);
#endif
}

static int read_encoding(const struct dl_safetensors *tensors, const char *name,
                         struct dl_model_info *info, struct dl_error *error)
{
    uint32_t count = info->config.feature_count;
    int status = DL_OK;
    if (count > 0)
        status = dl_safetensors_doubles(tensors, "encoding.feature_mean", 1, count,
                                        info->encoding.feature_mean, error);
    if (!status && count > 0)
        status = dl_safetensors_doubles(tensors, "encoding.feature_sd", 1, count,
                                        info->encoding.feature_sd, error);
    if (!status)
        status = read_numbers(tensors, DL_READING_SCALING_TENSOR, 2, DL_READING_COLUMNS,
                              info->encoding.reading.scaling[0], error);
    if (!status)
        status = read_numbers(tensors, DL_READING_STEPS_TENSOR, 2 * DL_READING_STEPS,
                              DL_READING_STEPPED, info->encoding.reading.steps[0][0], error);
    if (!status) status = dl_reading_check(&info->encoding.reading, name, error);
    info->encoding.has_reading = 1;
    if (!status)
        status = dl_safetensors_doubles(tensors, "validation.entropy", 1, info->config.layers,
                                        info->validation_entropy, error);
    return status;
}

/* Checks what decides how much memory the network takes, before taking it. */
static int check_sizes(const struct dl_model_info *info, struct dl_slice bytes, const char *name,
                       struct dl_error *error)
{
    const struct dl_network_config *config = &info->config;
    if (config->width > 512 || config->layers > DL_LAYERS_MAX ||
        config->feature_count > DL_EVENT_FEATURES_MAX)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: width %u, layers %u or features %u out of range", name,
                            config->width, config->layers, config->feature_count);
    /* The layers' matrices alone, at four bytes a value. */
    uint64_t least = (uint64_t)config->layers * config->width * config->width * 8 * 4;
    if (bytes.size < least)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: %zu bytes are too few for %u layers of width %u; cut short?", name,
                            bytes.size, config->layers, config->width);
    return DL_OK;
}

static int read_network(const struct dl_safetensors *tensors, const struct dl_model_info *info,
                        const char *name, struct dl_network **network, struct dl_error *error)
{
    int status = dl_network_new(&info->config, &info->encoding, 0, network, error);
    if (status)
        return dl_error_wrap(error, status == DL_ERR_INVALID ? DL_ERR_CORRUPT : status, "%s", name);
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(*network, &parameters);
    dl_network_values(*network);
    for (uint32_t i = 0; i < count && !status; i++)
        status = read_numbers(tensors, parameters[i].name, parameters[i].rows,
                              parameters[i].columns, parameters[i].value, error);
    if (!status) dl_network_updated(*network);
    return status;
}

static void free_reference(struct dl_reference *reference)
{
    free(reference->names);
    free(reference->values);
    free(reference->mean);
    free(reference->sd);
    *reference = (struct dl_reference){0};
}

/* "drift.names" is a comma-separated list. */
static int read_names(struct dl_reference *reference, const char *list)
{
    for (uint32_t c = 0; c < reference->columns; c++) {
        size_t size = strcspn(list, ",");
        if (size == 0 || size >= sizeof reference->names[c]) return DL_ERR_CORRUPT;
        if ((list[size] == ',') != (c + 1 < reference->columns)) return DL_ERR_CORRUPT;
        memcpy(reference->names[c], list, size);
        list += size + 1;
    }
    return DL_OK;
}

/* How the rows lie in the feed: see struct dl_reference. */
static int read_layout(const struct dl_safetensors *tensors, struct dl_reference *reference)
{
    const char *segment = dl_safetensors_metadata(tensors, "drift.segment_rows");
    const char *before = dl_safetensors_metadata(tensors, "drift.events_before");
    char *end;
    if (segment == NULL || before == NULL || *segment < '0' || *segment > '9' || *before < '0' ||
        *before > '9')
        return DL_ERR_CORRUPT;
    errno = 0;
    unsigned long long rows = strtoull(segment, &end, 10);
    if (errno || *end || rows > reference->rows || (rows && reference->rows % rows))
        return DL_ERR_CORRUPT;
    reference->segment_rows = (uint32_t)rows;
    reference->events_before = strtoull(before, &end, 10);
    return errno || *end ? DL_ERR_CORRUPT : DL_OK;
}

/* *has_reference stays 0 where the file has none. */
static int read_reference(const struct dl_safetensors *tensors, const char *name,
                          struct dl_reference *reference, int *has_reference,
                          struct dl_error *error)
{
    const struct dl_tensor *values = dl_safetensors_find(tensors, "drift.values");
    const char *names = dl_safetensors_metadata(tensors, "drift.names");
    if (values == NULL) return DL_OK;
    if (names == NULL || values->rank != 2 || values->shape[0] == 0 || values->shape[1] == 0 ||
        values->shape[0] > REFERENCE_ROWS_MAX || values->shape[1] > REFERENCE_COLUMNS_MAX)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: drift.values: its shape is out of range or drift.names is missing",
                            name);
    reference->rows = (uint32_t)values->shape[0];
    reference->columns = (uint32_t)values->shape[1];
    size_t rows = reference->rows, columns = reference->columns;
    reference->names = calloc(columns, sizeof *reference->names);
    reference->values = malloc(rows * columns * sizeof *reference->values);
    reference->mean = malloc(columns * sizeof *reference->mean);
    reference->sd = malloc(columns * sizeof *reference->sd);
    if (!reference->names || !reference->values || !reference->mean || !reference->sd)
        return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory for the drift reference", name);
    if (read_names(reference, names))
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: drift.names does not name the %u columns of drift.values", name,
                            reference->columns);
    if (read_layout(tensors, reference))
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "%s: drift.segment_rows or drift.events_before is missing or does not "
                            "fit %u rows; train the model anew",
                            name, reference->rows);
    int status =
        dl_safetensors_floats(tensors, "drift.values", rows, columns, reference->values, error);
    if (!status)
        status = dl_safetensors_doubles(tensors, "drift.mean", 1, columns, reference->mean, error);
    if (!status)
        status = dl_safetensors_doubles(tensors, "drift.sd", 1, columns, reference->sd, error);
    for (uint32_t c = 0; c < columns && !status; c++)
        if (!(reference->sd[c] > 0))
            status = dl_error_set(error, DL_ERR_CORRUPT, "%s: drift.sd: value %u is not above 0",
                                  name, c);
    *has_reference = !status;
    return status;
}

/* Every tensor must be one that is read: a stray one means another program. */
static int check_no_stray(const struct dl_safetensors *tensors, const struct dl_network *network,
                          const char *name, struct dl_error *error)
{
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(network, &parameters);
    static const char *const others[] = {"encoding.feature_mean",
                                         "encoding.feature_sd",
                                         DL_READING_SCALING_TENSOR,
                                         DL_READING_STEPS_TENSOR,
                                         "validation.entropy",
                                         "drift.values",
                                         "drift.mean",
                                         "drift.sd"};
    for (uint32_t i = 0; i < dl_safetensors_count(tensors); i++) {
        const char *found = dl_safetensors_at(tensors, i)->name;
        int known = 0;
        for (uint32_t j = 0; j < count && !known; j++) known = !strcmp(parameters[j].name, found);
        for (size_t j = 0; j < sizeof others / sizeof *others && !known; j++)
            known = !strcmp(others[j], found);
        if (!known)
            return dl_error_set(error, DL_ERR_CORRUPT, "%s: %s: no tensor of this architecture",
                                name, found);
    }
    return DL_OK;
}

/* ---- loading ----------------------------------------------------------------------------- */

int dl_model_load_bytes(struct dl_slice bytes, const char *name, struct dl_model **model,
                        struct dl_error *error)
{
    *model = NULL;
    struct dl_safetensors *tensors = NULL;
    struct dl_model *made = calloc(1, sizeof *made);
    char hash[DL_DIGEST_HEX_SIZE];
    int status = DL_ERR_NOMEM;
    if (made == NULL || dl_digest_sha256_hex(bytes, hash)) {
        dl_error_set(error, status, "%.100s: out of memory", name);
        goto fail;
    }
    atomic_init(&made->references, 1);
    status = bytes.size > DL_MODEL_FILE_BYTES_MAX
                 ? dl_error_set(error, DL_ERR_TOO_LARGE, "%s: %zu bytes; at most %u are read", name,
                                bytes.size, DL_MODEL_FILE_BYTES_MAX)
                 : dl_safetensors_parse(bytes, name, DL_MODEL_HEADER_BYTES_MAX, &tensors, error);
    if (!status) status = read_fields(tensors, name, &made->info, error);
    if (!status) status = check_sizes(&made->info, bytes, name, error);
    if (!status) status = read_encoding(tensors, name, &made->info, error);
    if (!status) status = read_network(tensors, &made->info, name, &made->network, error);
    if (!status) made->info.config = *dl_network_get_config(made->network);
    if (!status) status = check_no_stray(tensors, made->network, name, error);
    if (!status)
        status = read_reference(tensors, name, &made->reference, &made->has_reference, error);
    if (status) goto fail;
    memcpy(made->info.version, hash, sizeof made->info.version - 1);
    made->info.parameters = dl_network_parameter_count(made->network);
    dl_safetensors_free(tensors);
    *model = made;
    return DL_OK;
fail:
    dl_safetensors_free(tensors);
    if (made) {
        dl_network_free(made->network);
        free_reference(&made->reference);
        free(made);
    }
    return status;
}

int dl_model_load(const char *path, struct dl_model **model, struct dl_error *error)
{
    *model = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;
    struct stat info;
    int status = DL_OK;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &info) != 0) {
        status = dl_error_set(error, errno == ENOENT ? DL_ERR_NOT_FOUND : DL_ERR_IO, "%s: %s", path,
                              strerror(errno));
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        status = dl_error_set(error, DL_ERR_IO, "%s: not a regular file", path);
        goto done;
    }
    if ((uint64_t)info.st_size > DL_MODEL_FILE_BYTES_MAX) {
        status = dl_error_set(error, DL_ERR_TOO_LARGE, "%s: %lld bytes; at most %u are read", path,
                              (long long)info.st_size, DL_MODEL_FILE_BYTES_MAX);
        goto done;
    }
    bytes = malloc((size_t)info.st_size + 1);
    if (bytes == NULL) {
        status = dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory for %lld bytes", path,
                              (long long)info.st_size);
        goto done;
    }
    while (size < (size_t)info.st_size) {
        ssize_t got = read(file, bytes + size, (size_t)info.st_size - size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = dl_error_set(error, DL_ERR_IO, "%s: %s", path, strerror(errno));
            goto done;
        }
        if (got == 0) break; /* became shorter: the parser says so */
        size += (size_t)got;
    }
    status = dl_model_load_bytes(dl_slice_of(bytes, size), path, model, error);
    if (status == DL_OK) status = dl_model_try(*model, path, error);
    if (status != DL_OK && *model) {
        dl_model_unref(*model);
        *model = NULL;
    }
done:
    if (file >= 0) close(file);
    free(bytes);
    return status;
}

/* ---- saving ------------------------------------------------------------------------------- */

static int check_info(const struct dl_model_info *info, const char *path, struct dl_error *error)
{
    for (size_t i = 0; i < FIELDS; i++) {
        const void *at = (const char *)info + fields[i].offset;
        if (fields[i].kind == F64 && !isfinite(*(const double *)at))
            return dl_error_set(error, DL_ERR_INVALID, "%s: %s is not a finite number", path,
                                fields[i].key);
    }
    return DL_OK;
}

static void add_reference(struct dl_safetensors_writer *writer,
                          const struct dl_reference *reference, struct dl_buf *names)
{
    for (uint32_t c = 0; c < reference->columns; c++)
        dl_buf_printf(names, "%s%s", c ? "," : "", reference->names[c]);
    dl_buf_u8(names, 0);
    if (names->failed) {
        writer->failed = DL_ERR_NOMEM;
        return;
    }
    char number[24];
    dl_safetensors_add_text(writer, "drift.names", (const char *)names->data);
    snprintf(number, sizeof number, "%u", reference->segment_rows);
    dl_safetensors_add_text(writer, "drift.segment_rows", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)reference->events_before);
    dl_safetensors_add_text(writer, "drift.events_before", number);
    dl_safetensors_add_tensor(writer, "drift.values", DL_DTYPE_F32, reference->rows,
                              reference->columns, reference->values);
    dl_safetensors_add_tensor(writer, "drift.mean", DL_DTYPE_F64, 1, reference->columns,
                              reference->mean);
    dl_safetensors_add_tensor(writer, "drift.sd", DL_DTYPE_F64, 1, reference->columns,
                              reference->sd);
}

static int build_file(const char *path, const struct dl_network *network,
                      const struct dl_model_info *info, const struct dl_reference *reference,
                      struct dl_buf *out, struct dl_error *error)
{
    struct dl_safetensors_writer writer = {0};
    struct dl_buf names = {0};
    const struct dl_parameter *parameters;
    uint32_t count = dl_network_parameters(network, &parameters);
    const uint32_t features = info->config.feature_count;
    char text[256];
    dl_safetensors_add_text(&writer, "format", FORMAT);
    for (size_t i = 0; i < FIELDS; i++) {
        format_field(&fields[i], info, text, sizeof text);
        dl_safetensors_add_text(&writer, fields[i].key, text);
    }
    int status = DL_OK;
    for (uint32_t i = 0; i < count && !status; i++) {
        uint64_t size = (uint64_t)parameters[i].rows * parameters[i].columns;
        for (uint64_t j = 0; j < size && !status; j++)
            if (!isfinite(parameters[i].value[j]))
                status = dl_error_set(error, DL_ERR_INVALID,
                                      "%s: %s: value %llu is not finite; training has diverged",
                                      path, parameters[i].name, (unsigned long long)j);
        dl_safetensors_add_tensor(&writer, parameters[i].name, REAL_DTYPE, parameters[i].rows,
                                  parameters[i].columns, parameters[i].value);
    }
    if (features > 0) {
        dl_safetensors_add_tensor(&writer, "encoding.feature_mean", DL_DTYPE_F64, 1, features,
                                  info->encoding.feature_mean);
        dl_safetensors_add_tensor(&writer, "encoding.feature_sd", DL_DTYPE_F64, 1, features,
                                  info->encoding.feature_sd);
    }
    dl_safetensors_add_tensor(&writer, DL_READING_SCALING_TENSOR, REAL_DTYPE, 2, DL_READING_COLUMNS,
                              info->encoding.reading.scaling);
    dl_safetensors_add_tensor(&writer, DL_READING_STEPS_TENSOR, REAL_DTYPE, 2 * DL_READING_STEPS,
                              DL_READING_STEPPED, info->encoding.reading.steps);
    dl_safetensors_add_tensor(&writer, "validation.entropy", DL_DTYPE_F64, 1, info->config.layers,
                              info->validation_entropy);
    if (reference) add_reference(&writer, reference, &names);
    if (!status && dl_safetensors_write(&writer, out))
        status = dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
    dl_safetensors_writer_deinit(&writer);
    dl_buf_free(&names);
    return status;
}

static int write_all(int file, struct dl_slice bytes)
{
    while (bytes.size > 0) {
        ssize_t wrote = write(file, bytes.data, bytes.size);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return DL_ERR_IO;
        bytes = dl_slice_of(bytes.data + wrote, bytes.size - (size_t)wrote);
    }
    return fsync(file) == 0 ? DL_OK : DL_ERR_IO;
}

/* The rename itself becomes durable with the folder. Not every file system
 * syncs folders, so a refusal is not an error. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 0;
    if (size >= sizeof folder) return;
    memcpy(folder, path, size);
    folder[size] = '\0';
    int file = open(slash == NULL ? "." : size ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return;
    fsync(file);
    close(file);
}

int dl_model_save(const char *path, const struct dl_network *network,
                  const struct dl_model_info *info, const struct dl_reference *reference,
                  struct dl_error *error)
{
    char temporary[4096];
    struct dl_model_info written = *info;
    struct dl_buf bytes = {0};
    int file = -1;
    written.config = *dl_network_get_config(network);
    written.encoding = *dl_network_get_encoding(network);
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return dl_error_set(error, DL_ERR_INVALID, "%.100s...: the path is too long", path);
    int status = check_info(&written, path, error);
    if (!status) status = build_file(path, network, &written, reference, &bytes, error);
    if (status) goto done;
    file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0 || write_all(file, dl_buf_slice(&bytes)) || rename(temporary, path) != 0) {
        status =
            dl_error_set(error, DL_ERR_IO, "%s: %s", file < 0 ? temporary : path, strerror(errno));
        if (file >= 0) unlink(temporary);
        goto done;
    }
    sync_folder(path);
done:
    if (file >= 0) close(file);
    dl_buf_free(&bytes);
    return status;
}

/* ---- use ---------------------------------------------------------------------------------- */

struct dl_model *dl_model_ref(struct dl_model *model)
{
    atomic_fetch_add_explicit(&model->references, 1, memory_order_relaxed);
    return model;
}

void dl_model_unref(struct dl_model *model)
{
    if (model == NULL) return;
    unsigned before = atomic_fetch_sub_explicit(&model->references, 1, memory_order_acq_rel);
    DL_CHECK(before > 0);
    if (before > 1) return;
    dl_network_free(model->network);
    free_reference(&model->reference);
    free(model);
}

const struct dl_model_info *dl_model_get_info(const struct dl_model *model)
{
    return &model->info;
}

const struct dl_network *dl_model_get_network(const struct dl_model *model)
{
    return model->network;
}

const struct dl_reference *dl_model_get_reference(const struct dl_model *model)
{
    return model->has_reference ? &model->reference : NULL;
}

double dl_model_probability(const struct dl_model *model, double logit)
{
    double z = model->info.calibration.scale * logit + model->info.calibration.shift;
    return 1 / (1 + exp(-z));
}
