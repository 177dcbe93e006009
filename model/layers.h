/* A stack of pre-norm Transformer layers over sequences of tokens:
 *
 *   x = x + dropout(norm_heads(attention(norm(x))) · Wo)
 *   x = x + dropout(gelu(norm(x) W0 + b0) W1 + b1)
 *
 * and a norm at the end (arXiv 2605.16112; rotary positions: Su et al. 2021).
 * With softmax attention the heads' norm is left out. */
#ifndef DL_MODEL_LAYERS_H
#define DL_MODEL_LAYERS_H

#include "model/architecture.h"
#include "model/attention.h"
#include "model/features.h"
#include "model/linear.h"

/* Sequences of a batch, one after the other, T = start[count] tokens in all. */
struct dl_sequences {
    uint32_t count;
    const uint32_t *start;    /* (count + 1): first token of each; it may have none */
    const uint32_t *position; /* (T): place of a token, for the rotation */
    const uint64_t *place;    /* (count): for dropout */
    /* Rows that are like another need no first projection of their own: that of
     * the row like[i] is theirs, in known_qkv (inference alone) or, if that is NULL,
     * among these sequences. DL_ROW_OWN: it is like none. NULL: none is. */
    const uint32_t *like; /* (T) */
    const dl_real *known_qkv;
};

struct dl_layer {
    size_t attention_norm, lambda, mlp_norm; /* offsets */
    struct dl_linear qkv, output, mlp[2];
    dl_real lambda_initial, lambda_value;
    dl_real lambda_terms[2]; /* exp(a·b), exp(c·e) */
};

struct dl_layers_plan {
    struct dl_attention_shape shape;
    size_t final_norm;
    struct dl_layer layers[DL_LAYERS_MAX];
    dl_real *cosine, *sine; /* (W + 1, d/H/2) */
};

/* What a layer keeps for its backward pass. In inference all layers share one. */
struct dl_layer_kept {
    dl_real *x;                 /* (T, d) into the layer */
    dl_real *norm1, *inverse1;  /* (T, d), (T): normalised input */
    dl_real *qkv;               /* (T, D), rotated */
    dl_real *maps;              /* of each sequence (H, dl_attention_maps) */
    dl_real *mixed, *inverse_o; /* (T, d), (T·H): attention output, its norms */
    dl_real *mixed_norm;        /* (T, d) */
    dl_real *middle;            /* (T, d) between the two blocks */
    dl_real *norm2, *inverse2;  /* (T, d), (T) */
    dl_real *hidden, *active;   /* (T, 2d) before and after GELU */
};

struct dl_layers_state {
    struct dl_layer_kept shared;              /* inference */
    struct dl_layer_kept kept[DL_LAYERS_MAX]; /* training */
    size_t *maps_at;                          /* (sequences + 1): where each one's maps start */
    dl_real *last, *y, *inverse;              /* (T, d), (T, d), (T): after the layers, its norm */
    dl_real *dx, *dy;                         /* (T, d) */
    dl_real *dwide, *dqkv;                    /* (T, 2d), (T, D) */
    struct dl_attention_scratch attention;
};

/* The layers' parameters, the final norm's last. */
void dl_layers_add(struct dl_layers_plan *plan, struct dl_parameter_list *list,
                   const struct dl_network_config *config);
void dl_layers_carve_plan(struct dl_layers_plan *plan, struct dl_carve *carve,
                          const struct dl_network_config *config);
/* Once, after the plan has its memory. */
void dl_layers_start(struct dl_layers_plan *plan, const struct dl_network_config *config);
void dl_layers_update(const struct dl_network *network, struct dl_layers_plan *plan);

/* Room for `sequences` of up to `n` tokens each. */
void dl_layers_carve_forward(const struct dl_layers_plan *plan, struct dl_layers_state *state,
                             struct dl_carve *carve, const struct dl_network_config *config,
                             size_t sequences, size_t n);
void dl_layers_carve_backward(const struct dl_layers_plan *plan, struct dl_layers_state *state,
                              struct dl_carve *carve, const struct dl_network_config *config,
                              size_t sequences, size_t n);

/* Where the input (T, d) goes before forward. */
dl_real *dl_layers_input(struct dl_layers_state *state, const struct dl_pass *pass);
/* The first layer's projection of `rows` tokens x (rows, d), as it would be within
 * a sequence: qkv (rows, D). Not while state is in use. */
void dl_layers_project(const struct dl_network *network, const struct dl_layers_plan *plan,
                       struct dl_layers_state *state, size_t rows, const dl_real *x,
                       const uint32_t *position, dl_real *qkv);
/* Leaves state->y (T, d), and with `pass` what backward needs. `observed`
 * (count) or NULL. */
void dl_layers_forward(const struct dl_network *network, const struct dl_layers_plan *plan,
                       struct dl_layers_state *state, const struct dl_sequences *sequences,
                       const struct dl_pass *pass, const struct dl_observed *observed);
/* From state->dy (T, d), the gradient of y, to state->dx (T, d), that of the input;
 * rows that are like another have theirs added to its. */
void dl_layers_backward(const struct dl_network *network, const struct dl_layers_plan *plan,
                        struct dl_layers_state *state, const struct dl_sequences *sequences,
                        const struct dl_pass *pass, dl_real *gradients);

/* The mean of rows [first, end) of y to mean (d), zeros for none; and back to
 * the rows of dy. */
void dl_layers_mean(const struct dl_network *network, const struct dl_layers_state *state,
                    size_t first, size_t end, dl_real *mean);
void dl_layers_mean_backward(const struct dl_network *network, struct dl_layers_state *state,
                             size_t first, size_t end, const dl_real *dmean);

#endif
