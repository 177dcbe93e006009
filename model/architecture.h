/* What an architecture gives to network.c, and what a network is inside. */
#ifndef DL_MODEL_ARCHITECTURE_H
#define DL_MODEL_ARCHITECTURE_H

#include "model/carve.h"
#include "model/features.h"
#include "model/kernels/kernels.h"
#include "model/network.h"
#include "model/parameters.h"

struct dl_architecture;

struct dl_network {
    struct dl_network_config config;
    struct dl_encoding encoding;
    const struct dl_architecture *architecture;
    const struct dl_kernels *kernels;
    struct dl_parameter_list parameters;
    dl_real *values, *gradients; /* (parameters.total) each */
    void *plan;     /* the architecture's offsets, and what it derives from the values */
    int is_current; /* derived data belongs to the present values */
};

/* Tokens that go through the layers together: enough for the matrix products,
 * few enough for the second-level cache. */
#define DL_BATCH_ROWS 144

struct dl_workspace {
    void *memory;
    struct dl_batch batch;
    float *labels;             /* (pairs_max) */
    dl_real *logits, *dlogits; /* (pairs_max) */
    void *state;               /* the architecture's */
};

/* A training pass, or inference when NULL. */
struct dl_pass {
    int has_dropout;
};

/* Dropout of a sequence's or a pair's elements, forward and backward alike:
 * keeps an element or zeroes it, and scales what is kept. The mask is a function
 * of the place, the block of the network, and the element's index. */
void dl_dropout(const struct dl_network *network, uint64_t place, uint64_t block, size_t count,
                dl_real *x);

struct dl_architecture {
    const char *name;
    int has_layers;      /* 0: no Transformer; what would shape one is set to 0 */
    int keeps_encodings; /* it makes `width` numbers of a window alone */
    /* Registers the parameters. DL_OK or DL_ERR_NOMEM. */
    int (*plan_new)(struct dl_network *network);
    void (*plan_free)(struct dl_network *network);
    /* Renews what is derived from the values. */
    void (*update)(struct dl_network *network);
    /* Cuts out a batch of the form and size that suits it. */
    void (*batch_carve)(const struct dl_network *network, struct dl_batch *batch,
                        struct dl_carve *carve);
    /* Whether a batch takes no further pair, for training or for scoring. */
    int (*batch_is_full)(const struct dl_network *network, const struct dl_batch *batch,
                         int training);
    /* Carves the architecture's state for batches of workspace->batch. */
    void (*carve)(const struct dl_network *network, struct dl_workspace *workspace,
                  struct dl_carve *carve);
    /* Batch to logits (pairs). With `pass`, keeps what backward needs.
     * `attention` (pairs), zeroed, or NULL. */
    void (*forward)(const struct dl_network *network, struct dl_workspace *workspace,
                    const struct dl_pass *pass, dl_real *logits, struct dl_attention *attention);
    /* Adds to `gradients`, from workspace->dlogits, after forward with `pass`. */
    void (*backward)(const struct dl_network *network, struct dl_workspace *workspace,
                     const struct dl_pass *pass, dl_real *gradients);
};

extern const struct dl_architecture dl_architecture_diffdyg, dl_architecture_diffdyg_cached,
    dl_architecture_mlp;

#endif
