/* Window tokens to vectors of the model's width: the time encoding, the
 * co-occurrence encoding, and one linear map over all columns. */
#ifndef DL_MODEL_TOKENS_H
#define DL_MODEL_TOKENS_H

#include "model/features.h"
#include "model/linear.h"

struct dl_token_plan {
    struct dl_token_layout layout;
    struct dl_linear map;     /* layout.columns to d */
    struct dl_linear seen[2]; /* the co-occurrence MLP, 1 to 16 to 16 */
    uint32_t windows;         /* counts a token has: how many windows its neighbour is counted in */
    size_t frequency, phase;
    dl_real *seen_table; /* (W + 1, 16): the co-occurrence MLP of every count */
    dl_real *seen_relu;  /* (W + 1, 16): its hidden layer */
};

/* For up to `rows` tokens. */
struct dl_token_state {
    dl_real *x;                     /* (rows, d): the tokens mapped; in backward their gradient */
    dl_real *angle, *cosine, *sine; /* (rows, 16) */
    dl_real *dencodings;            /* (rows, 32) */
    dl_real *dseen;                 /* (W + 1, 16) */
};

/* The map first, the encodings' parameters when their turn in the list has come. */
void dl_tokens_add_map(struct dl_token_plan *plan, struct dl_parameter_list *list,
                       const struct dl_network_config *config, uint32_t windows);
void dl_tokens_add_encodings(struct dl_token_plan *plan, struct dl_parameter_list *list,
                             const struct dl_network_config *config);
void dl_tokens_carve_plan(struct dl_token_plan *plan, struct dl_carve *carve,
                          const struct dl_network_config *config);
void dl_tokens_update(const struct dl_network *network, struct dl_token_plan *plan);

void dl_tokens_carve_forward(struct dl_token_state *state, struct dl_carve *carve,
                             const struct dl_network_config *config, size_t rows);
void dl_tokens_carve_backward(struct dl_token_state *state, struct dl_carve *carve,
                              const struct dl_network_config *config, size_t rows);

/* token (rows, layout.columns), of which the encodings' columns are filled in;
 * elapsed (rows); seen (rows, windows). Leaves state->x. */
void dl_tokens_forward(const struct dl_network *network, const struct dl_token_plan *plan,
                       struct dl_token_state *state, size_t rows, dl_real *token,
                       const dl_real *elapsed, const uint16_t *seen, int keep);
/* From state->x, which holds the gradient of forward's result. */
void dl_tokens_backward(const struct dl_network *network, const struct dl_token_plan *plan,
                        struct dl_token_state *state, size_t rows, const dl_real *token,
                        const dl_real *elapsed, const uint16_t *seen, dl_real *gradients);

#endif
