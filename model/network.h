/* A trainable link scorer: an architecture with its parameters, the forward
 * pass and the hand-written backward pass. Architectures stand behind this one
 * interface; model.h wraps a trained network for serving.
 *
 * `dl_real` is float; the gradient tests build everything again with double
 * (DL_REAL_DOUBLE) and plain C kernels. */
#ifndef DL_MODEL_NETWORK_H
#define DL_MODEL_NETWORK_H

#include <stdint.h>

#include "base/event.h"
#include "base/query.h"
#include "base/status.h"
#include "model/reading.h"
#include "model/real.h"

#define DL_ARCHITECTURE_NAME_MAX 32
#define DL_LAYERS_MAX 8

/* Sizes and switches; everything that decides the parameters' shapes. With "mlp",
 * which has no layers, what shapes those is set to 0. */
struct dl_network_config {
    char architecture[DL_ARCHITECTURE_NAME_MAX]; /* "diffdyg", "diffdyg-cached", "mlp" */
    uint32_t window; /* W: interactions of each endpoint that the model reads, 1..DL_WINDOW_MAX */
    uint32_t width;  /* d, a multiple of 2·heads, 8..512 */
    uint32_t heads;  /* 1..16 */
    uint32_t layers; /* 1..DL_LAYERS_MAX */
    uint32_t feature_count; /* features of an event that the model reads */
    int differential; /* 1: two maps and a learnt λ; 0: softmax attention (λ = 0, one map) */
    int rope;         /* rotary positions */
    int time_encoding;
    int cooccurrence; /* the spatial encoding */
    int pair_memory;
    int steps;       /* the pair stage reads its columns in steps too (reading.h) */
    int arrival_age; /* ages counted in feed events; for `stream` and `shuffle` */
    float dropout;   /* residual dropout in training, 0..0.9 */
};

/* Statistics of the training data that normalise inputs; no gradient. */
struct dl_encoding {
    double gap;                    /* median gap between distinct timestamps, > 0 */
    double weight_mean, weight_sd; /* of sign(w)·log1p(|w|) */
    double feature_mean[DL_EVENT_FEATURES_MAX], feature_sd[DL_EVENT_FEATURES_MAX];
    int has_reading; /* 0: columns are read as they are, and `reading` is not looked at */
    struct dl_reading reading;
};

/* One named parameter tensor, row-major (rows, columns); value and gradient
 * live in two blocks of the network. */
struct dl_parameter {
    char name[64];
    uint32_t rows, columns;
    int decay; /* weight decay applies (matrices, not biases, norms, vectors) */
    dl_real *value, *gradient;
};

/* Attention of one scored pair, taken on |A1 − λA2| with each row normalised,
 * averaged over heads and valid query tokens. */
struct dl_attention {
    double entropy[DL_LAYERS_MAX]; /* nats, by layer, divided by log(valid tokens): 1 = uniform */
    double top5_share[DL_LAYERS_MAX]; /* share of the ⌈0.05 n⌉ largest of n valid tokens */
    uint32_t token_capacity;          /* the arrays below have room for so many tokens */
    uint32_t tokens;                  /* valid tokens */
    /* (layers, tokens): attention each token receives, averaged over queries and
     * heads; sums to 1 a layer. May be NULL; left alone if tokens > token_capacity. Token 0 is the
     * source's own, then its window newest first, then the candidate's own, then its window. */
    float *received;
    /* (layers, heads, tokens): the same of each head alone; sums to 1 a head. May be NULL. */
    float *received_by_head;
};

struct dl_network;
struct dl_workspace;

/* The three families of defaults that `train` starts from. */
extern const struct dl_network_config
    dl_network_config_default; /* diffdyg-cached, W 8, d 32, 2 heads, 2 layers */

/* Builds a network with freshly drawn parameters (seeded). DL_ERR_INVALID with
 * detail for a bad config, DL_ERR_NOMEM. */
int dl_network_new(const struct dl_network_config *config, const struct dl_encoding *encoding,
                   uint64_t seed, struct dl_network **network, struct dl_error *error);
void dl_network_free(struct dl_network *network);
const struct dl_network_config *dl_network_get_config(const struct dl_network *network);
const struct dl_encoding *dl_network_get_encoding(const struct dl_network *network);
/* Fits how the network reads columns to what it would see of the queries (of a
 * training span). DL_OK, DL_ERR_NOMEM. Not while other threads use the network. */
int dl_network_fit_reading(struct dl_network *network, const struct dl_query *const *queries,
                           uint32_t count);

/* All parameter tensors, in a fixed order. */
uint32_t dl_network_parameters(const struct dl_network *network,
                               const struct dl_parameter **parameters);
uint64_t dl_network_parameter_count(const struct dl_network *network);
/* All values and all gradients as two flat blocks of parameter_count. */
dl_real *dl_network_values(struct dl_network *network);
dl_real *dl_network_gradients(struct dl_network *network);
/* After values were changed: renews what is derived from them (prepacked
 * weights, λ). Inference asserts that it was called. */
void dl_network_updated(struct dl_network *network);

/* Scratch for one thread. Sized at creation, never grows while scoring. */
int dl_workspace_new(const struct dl_network *network, struct dl_workspace **workspace);
void dl_workspace_free(struct dl_workspace *workspace);

/* Floats of what the architecture makes of a window alone, which a query may
 * carry from one scoring to the next (struct dl_side); 0: it makes nothing of the kind. */
uint32_t dl_network_encoding_width(const struct dl_network *network);

/* Inference: logits[i] for candidate i of the query, (candidate_count).
 * `attention`, if given, holds candidate_count entries. Each logit depends on
 * the query and its candidate alone, not on the others, to the last bit. Encodings
 * that sides bring are used, and where there is room for one that is not known,
 * it is filled in; a query of another width than the network's is not looked at.
 * Thread: any, one workspace each. */
void dl_network_score(const struct dl_network *network, struct dl_workspace *workspace,
                      const struct dl_query *query, dl_real *logits,
                      struct dl_attention *attention);

/* Training: forward and backward over `count` queries with labels[q][i] in
 * [0, 1] for candidate i of query q. Adds d(sum of weighted binary
 * cross-entropies)/d(parameters) to `gradients` (parameter_count) and returns
 * the summed loss; each pair weighs `pair_weight`. Dropout masks come from
 * `dropout_seed` and the pair's place alone; 0 turns dropout off. Thread: any,
 * one workspace and one gradient block each. */
double dl_network_train(const struct dl_network *network, struct dl_workspace *workspace,
                        const struct dl_query *const *queries, const float *const *labels,
                        uint32_t count, dl_real pair_weight, uint64_t dropout_seed,
                        dl_real *gradients);

#endif
