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

/* Tokens of a batch: large enough for the matrix products, small enough for the
 * second-level cache. */
#define DL_BATCH_ROWS 144

struct dl_workspace {
    void *memory;
    struct dl_batch batch;
    dl_real *logits, *dlogits; /* (pairs_max) */
    void *state;               /* the architecture's */
};

/* A training pass, or inference when NULL. */
struct dl_pass {
    int has_dropout;
};

struct dl_architecture {
    const char *name;
    /* Registers the parameters. DL_OK or DL_ERR_NOMEM. */
    int (*plan_new)(struct dl_network *network);
    void (*plan_free)(struct dl_network *network);
    /* Renews what is derived from the values. */
    void (*update)(struct dl_network *network);
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

extern const struct dl_architecture dl_architecture_diffdyg;

#endif
