/* DiffDyG's parameters and what is derived from them: shared by diffdyg_plan.c,
 * which lays them out, and diffdyg.c, which computes with them. */
#ifndef DL_MODEL_DIFFDYG_H
#define DL_MODEL_DIFFDYG_H

#include "model/architecture.h"
#include "model/attention.h"

/* A weight (in, out), its bias if it has one, and both packed forms. */
struct diffdyg_linear {
    size_t in, out, weight;
    int has_bias;
    dl_real *packed, *packed_transposed;
};

struct diffdyg_layer {
    size_t attention_norm, lambda, mlp_norm; /* offsets */
    struct diffdyg_linear qkv, output, mlp[2];
    dl_real lambda_initial, lambda_value;
    dl_real lambda_terms[2]; /* exp(a·b), exp(c·e) */
};

struct diffdyg_plan {
    struct dl_token_layout layout;
    struct dl_attention_shape shape;
    struct diffdyg_linear token, self, seen_hidden, seen_output, head[2];
    size_t side, frequency, phase, final_norm;
    struct diffdyg_layer layers[DL_LAYERS_MAX];
    dl_real *token_encodings; /* the token map's rows of both encodings, packed transposed */
    dl_real *seen_table;      /* (W + 1, 16): the co-occurrence MLP of every count */
    dl_real *seen_relu;       /* (W + 1, 16): its hidden layer */
    dl_real *cosine, *sine;   /* (W + 1, d/H/2) */
    void *memory;
};

/* The parts of struct dl_architecture that diffdyg_plan.c has. */
int dl_diffdyg_plan_new(struct dl_network *network);
void dl_diffdyg_plan_free(struct dl_network *network);
void dl_diffdyg_update(struct dl_network *network);

#endif
