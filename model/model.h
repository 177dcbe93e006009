/* A trained model for serving: an immutable, reference-counted network with
 * its calibration, metadata and drift reference, read from and written to a
 * safetensors file. */
#ifndef DL_MODEL_MODEL_H
#define DL_MODEL_MODEL_H

#include <stdint.h>

#include "base/clock.h"
#include "base/query.h"
#include "base/status.h"
#include "model/network.h"

#define DL_MODEL_FILE_BYTES_MAX (512u * 1024 * 1024)
#define DL_MODEL_HEADER_BYTES_MAX (4u * 1024 * 1024)

/* P(edge) = 1 / (1 + exp(−(scale · logit + shift))), fitted on the validation
 * span for the prior of one true edge against one random destination. */
struct dl_calibration {
    double scale, shift;
};

/* Everything of the file beside the tensors. */
struct dl_model_info {
    struct dl_network_config config;
    struct dl_encoding encoding;
    struct dl_calibration calibration;
    enum dl_time_unit time_unit;
    char ties[16];      /* tie policy it was trained under: strict, stream, shuffle */
    char negatives[16]; /* random, mixed */
    uint64_t seed;
    char data_hash[65]; /* SHA-256 of the training file, hex */
    uint64_t data_edges, data_nodes, data_timestamps;
    int64_t trained_until;   /* largest event time seen in training */
    uint64_t held_out_nodes; /* kept out of training, drawn by `seed` (split.h); 0: none */
    double validation_ap, validation_auc, validation_mrr, validation_ece;
    double validation_entropy[DL_LAYERS_MAX]; /* mean attention entropy by layer */
    double train_seconds;
    uint32_t epochs;
    /* Set by load: */
    char version[17]; /* first 16 hex digits of the file's SHA-256 */
    uint64_t parameters;
};

/* The drift reference: rows of drift features from the training span, and the
 * names. Owned by the model. */
struct dl_reference {
    uint32_t rows, columns;
    char (*names)[32]; /* (columns) */
    float *values;     /* (rows, columns), standardised */
    double *mean, *sd; /* (columns), the training statistics that standardised them */
    /* Rows are consecutive events within stretches of this many; 0: all are. */
    uint32_t segment_rows;
    /* Events the graph had absorbed before the first row. A younger graph is
     * not comparable. 0: not known. */
    uint64_t events_before;
};

struct dl_model;

/* Reads a file as hostile input. DL_ERR_NOT_FOUND, DL_ERR_IO, DL_ERR_CORRUPT, DL_ERR_VERSION,
 * DL_ERR_TOO_LARGE with one readable line that names the file and the tensor. */
int dl_model_load(const char *path, struct dl_model **model, struct dl_error *error);
/* The same from memory (for fuzzing and tests); `name` stands in messages. */
int dl_model_load_bytes(struct dl_slice bytes, const char *name, struct dl_model **model,
                        struct dl_error *error);

/* Writes a file (to a temporary name, fsync, rename). `reference` may be NULL. */
int dl_model_save(const char *path, const struct dl_network *network,
                  const struct dl_model_info *info, const struct dl_reference *reference,
                  struct dl_error *error);

/* Reference counting is atomic. */
struct dl_model *dl_model_ref(struct dl_model *model);
void dl_model_unref(struct dl_model *model);

const struct dl_model_info *dl_model_get_info(const struct dl_model *model);
const struct dl_network *dl_model_get_network(const struct dl_model *model);
/* NULL if the file has none. */
const struct dl_reference *dl_model_get_reference(const struct dl_model *model);

/* Calibrated probability of a logit. */
double dl_model_probability(const struct dl_model *model, double logit);

#endif
