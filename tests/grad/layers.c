/* Each layer by itself: its backward pass by central differences in double
 * precision. The loss is a fixed random weighting of what comes out, so that the
 * weights are the gradient that backward starts from. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/layers.h"
#include "model/pair_stage.h"
#include "model/tokens.h"

#define STEP 1e-5
#define PARAMETERS_ROOM 12000

static struct dl_rng rng;

static dl_real *noise(size_t count, double amount)
{
    dl_real *x = malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = amount * dl_rng_normal(&rng);
    return x;
}

static double weighted(const dl_real *weights, const dl_real *y, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += weights[i] * y[i];
    return sum;
}

/* The gradient of loss(context) with respect to x (count) is `gradient`. */
static void check(const char *what, double (*loss)(void *context), void *context, dl_real *x,
                  const dl_real *gradient, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++) {
        const dl_real before = x[i];
        x[i] = before + STEP;
        double above = loss(context);
        x[i] = before - STEP;
        double below = loss(context);
        x[i] = before;
        double numeric = (above - below) / (2 * STEP);
        cr_expect(fabs(numeric - gradient[i]) <= 1e-7 * (1 + fabs(numeric)),
                  "%s, %zu: %.12g, by differences %.12g", what, i, gradient[i], numeric);
        largest = fmax(largest, fabs(numeric));
    }
    cr_expect(count == 0 || largest > 1e-6, "%s has no effect", what);
}

/* A network that is nothing but kernels and parameters. */
struct bare {
    struct dl_network network;
    dl_real gradients[PARAMETERS_ROOM];
    void *memory[2];
};

static void bare_bind(struct bare *bare)
{
    struct dl_network *network = &bare->network;
    cr_assert(network->parameters.total <= PARAMETERS_ROOM, "%zu", network->parameters.total);
    network->values = calloc(network->parameters.total, sizeof(dl_real));
    network->gradients = bare->gradients;
    dl_parameters_bind(&network->parameters, network->values, network->gradients, &rng);
    for (size_t i = 0; i < network->parameters.total; i++)
        network->values[i] += 0.2 * dl_rng_normal(&rng); /* away from norms of one */
}

static void bare_start(struct bare *bare)
{
    memset(bare, 0, sizeof *bare);
    bare->network.kernels = dl_kernels_named("c");
    bare->network.config = dl_network_config_default;
    dl_rng_seed(&rng, 7);
}

static void bare_free(struct bare *bare)
{
    for (int i = 0; i < 2; i++) free(bare->memory[i]);
    free(bare->network.values);
}

/* ---- linear --------------------------------------------------------------------- */

struct linear_case {
    struct bare bare;
    struct dl_linear linear;
    size_t rows;
    dl_real *x, *y, *weights;
};

static double linear_loss(void *context)
{
    struct linear_case *l = context;
    dl_linear_update(&l->bare.network, &l->linear);
    dl_linear_forward(&l->bare.network, &l->linear, l->rows, l->x, l->y, 0);
    return weighted(l->weights, l->y, l->rows * l->linear.out);
}

static void check_linear(size_t in, size_t out, size_t rows, int has_bias, size_t back_first,
                         size_t back_count)
{
    static struct linear_case l;
    bare_start(&l.bare);
    l.linear = dl_linear_add(&l.bare.network.parameters, in, out, has_bias, "l");
    l.linear.back_first = back_first;
    l.linear.back_count = back_count;
    struct dl_carve carve = {0};
    dl_linear_carve(&l.linear, &carve);
    carve.base = l.bare.memory[0] = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    carve.used = 0;
    dl_linear_carve(&l.linear, &carve);
    bare_bind(&l.bare);
    l.rows = rows;
    l.x = noise(rows * in, 1);
    l.y = noise(rows * out, 1);
    l.weights = noise(rows * out, 1);
    dl_real *dx = noise(rows * back_count, 1);
    linear_loss(&l);
    dl_linear_backward(&l.bare.network, &l.linear, rows, l.x, l.weights, dx, l.bare.gradients);
    check("W and b", linear_loss, &l, l.bare.network.values, l.bare.gradients,
          l.bare.network.parameters.total);
    for (size_t r = 0; r < rows; r++)
        check("x", linear_loss, &l, l.x + r * in + back_first, dx + r * back_count, back_count);
    free(l.x);
    free(l.y);
    free(l.weights);
    free(dx);
    bare_free(&l.bare);
}

Test(layer_gradient, of_a_linear_layer)
{
    check_linear(7, 19, 5, 1, 0, 7);
    check_linear(18, 3, 4, 0, 0, 18);
    check_linear(9, 5, 3, 1, 4, 3); /* some inputs alone */
}

/* ---- norms, rotation, softmax, GELU ----------------------------------------------- */

struct kernel_case {
    const struct dl_kernels *kernels;
    size_t rows, n, row;
    dl_real *x, *y, *gain, *inverse, *weights, scale;
};

static double rmsnorm_loss(void *context)
{
    struct kernel_case *k = context;
    k->kernels->rmsnorm(k->rows, k->n, k->x, k->n, k->gain, k->scale, k->y, k->n, k->inverse);
    return weighted(k->weights, k->y, k->rows * k->n);
}

static void check_rmsnorm(int has_gain)
{
    struct kernel_case k = {
        .kernels = dl_kernels_named("c"), .rows = 3, .n = 11, .scale = has_gain ? 1 : 0.64};
    const size_t size = k.rows * k.n;
    dl_rng_seed(&rng, 3);
    k.x = noise(size, 1), k.y = noise(size, 1), k.weights = noise(size, 1);
    k.inverse = noise(k.rows, 1);
    k.gain = has_gain ? noise(k.n, 1) : NULL;
    dl_real *dx = noise(size, 0), *dgain = noise(k.n, 0);
    rmsnorm_loss(&k);
    k.kernels->rmsnorm_backward(k.rows, k.n, k.x, k.n, k.gain, k.scale, k.inverse, k.weights, k.n,
                                dx, k.n, 0, has_gain ? dgain : NULL);
    check("x", rmsnorm_loss, &k, k.x, dx, size);
    if (has_gain) check("gain", rmsnorm_loss, &k, k.gain, dgain, k.n);
    free(k.x), free(k.y), free(k.weights), free(k.inverse), free(k.gain), free(dx), free(dgain);
}

Test(layer_gradient, of_rmsnorm)
{
    check_rmsnorm(1);
}

Test(layer_gradient, of_the_norm_of_each_head)
{
    check_rmsnorm(0);
}

struct rotation_case {
    struct kernel_case k;
    dl_real cosine[4 * 3], sine[4 * 3];
    uint32_t position[5];
};

static double rotation_loss(void *context)
{
    struct rotation_case *r = context;
    memcpy(r->k.y, r->k.x, 5 * 12 * sizeof(dl_real));
    r->k.kernels->rotate(5, 2, 3, r->k.y, 12, r->position, r->cosine, r->sine, 1);
    return weighted(r->k.weights, r->k.y, 5 * 12);
}

Test(layer_gradient, of_the_rotation)
{
    struct rotation_case r = {.k.kernels = dl_kernels_named("c"), .position = {0, 1, 2, 3, 1}};
    for (int i = 0; i < 12; i++) r.cosine[i] = cos(0.7 * i), r.sine[i] = sin(0.7 * i);
    dl_rng_seed(&rng, 3);
    r.k.x = noise(60, 1), r.k.y = noise(60, 1), r.k.weights = noise(60, 1);
    dl_real *dx = noise(60, 0);
    memcpy(dx, r.k.weights, 60 * sizeof *dx);
    r.k.kernels->rotate(5, 2, 3, dx, 12, r.position, r.cosine, r.sine, -1);
    check("x", rotation_loss, &r, r.k.x, dx, 60);
    free(r.k.x), free(r.k.y), free(r.k.weights), free(dx);
}

static double softmax_loss(void *context)
{
    struct kernel_case *k = context;
    dl_real shares[64];
    memcpy(k->y, k->x, k->rows * k->row * sizeof(dl_real));
    k->kernels->softmax(k->rows, k->n, k->scale, k->y, k->row);
    k->kernels->difference(k->rows, k->n, 0, k->y, NULL, shares, k->row);
    double sum = 0;
    for (size_t i = 0; i < k->rows; i++)
        sum += weighted(k->weights + i * k->row, shares + i * k->row, k->n);
    return sum;
}

Test(layer_gradient, of_softmax)
{
    struct kernel_case k = {
        .kernels = dl_kernels_named("c"), .rows = 7, .n = 5, .row = 8, .scale = 0.4};
    dl_rng_seed(&rng, 3);
    k.x = noise(56, 2), k.y = noise(64, 1), k.weights = noise(56, 1);
    dl_real *dx = noise(56, 0);
    softmax_loss(&k);
    k.kernels->softmax_backward(k.rows, k.n, k.scale, k.y, k.weights, dx, k.row);
    for (size_t i = 0; i < k.rows; i++)
        check("x", softmax_loss, &k, k.x + i * k.row, dx + i * k.row, k.n);
    free(k.x), free(k.y), free(k.weights), free(dx);
}

static double gelu_loss(void *context)
{
    struct kernel_case *k = context;
    k->kernels->gelu(k->n, k->x, k->y);
    return weighted(k->weights, k->y, k->n);
}

Test(layer_gradient, of_gelu)
{
    struct kernel_case k = {.kernels = dl_kernels_named("c"), .n = 40};
    dl_rng_seed(&rng, 3);
    k.x = noise(k.n, 2), k.y = noise(k.n, 1), k.weights = noise(k.n, 1);
    dl_real *dx = noise(k.n, 0);
    k.kernels->gelu_backward(k.n, k.x, k.weights, dx);
    check("x", gelu_loss, &k, k.x, dx, k.n);
    free(k.x), free(k.y), free(k.weights), free(dx);
}

/* ---- attention --------------------------------------------------------------------- */

struct attention_case {
    const struct dl_kernels *kernels;
    struct dl_attention_shape shape;
    struct dl_attention_scratch scratch;
    uint32_t n;
    dl_real lambda, *qkv, *maps, *out, *weights;
    size_t head_stride;
};

static double attention_loss(void *context)
{
    struct attention_case *a = context;
    dl_attention_forward(a->kernels, &a->shape, a->lambda, a->n, a->qkv, a->maps, a->head_stride,
                         a->out, &a->scratch, NULL, 0);
    return weighted(a->weights, a->out, a->n * a->shape.heads * a->shape.width);
}

static void check_attention(uint32_t maps, uint32_t n)
{
    struct attention_case a = {.kernels = dl_kernels_named("c"), .n = n, .lambda = 0.37};
    a.shape = (struct dl_attention_shape){
        .heads = 2, .width = 6, .maps = maps, .row = (2 * maps + 1) * 12};
    struct dl_carve carve = {0};
    dl_attention_carve(&a.scratch, &carve, &a.shape, n);
    carve.base = aligned_alloc(DL_CARVE_ALIGN, carve.used);
    carve.used = 0;
    dl_attention_carve(&a.scratch, &carve, &a.shape, n);
    a.head_stride = dl_attention_maps(&a.shape, n);
    dl_rng_seed(&rng, 3);
    a.qkv = noise(n * a.shape.row, 1), a.maps = noise(2 * a.head_stride, 0);
    a.out = noise(n * 12, 1), a.weights = noise(n * 12, 1);
    dl_real *dqkv = noise(n * a.shape.row, 1);
    attention_loss(&a);
    dl_real dlambda = dl_attention_backward(a.kernels, &a.shape, a.lambda, n, a.qkv, a.maps,
                                            a.head_stride, a.weights, dqkv, &a.scratch);
    check("q, k and v", attention_loss, &a, a.qkv, dqkv, n * a.shape.row);
    if (maps == 2) check("λ", attention_loss, &a, &a.lambda, &dlambda, 1);
    free(a.qkv), free(a.maps), free(a.out), free(a.weights), free(dqkv), free(carve.base);
}

Test(layer_gradient, of_softmax_attention)
{
    check_attention(1, 7);
}

Test(layer_gradient, of_differential_attention_and_its_lambda)
{
    check_attention(2, 7);
    check_attention(2, 17);
}

/* ---- the two blocks, λ's vectors, the mean ------------------------------------------ */

struct layers_case {
    struct bare bare;
    struct dl_layers_plan plan;
    struct dl_layers_state state;
    struct dl_sequences sequences;
    dl_real *x, *weights, *means;
};

static const uint32_t starts[] = {0, 3, 3, 8}; /* three tokens, none, five */
static const uint32_t positions[] = {0, 1, 2, 0, 1, 2, 3, 4};
static const uint64_t places[] = {1, 2, 3};
#define TOKENS 8
#define LAYER_WIDTH 8

static double layers_loss(void *context)
{
    struct layers_case *l = context;
    const struct dl_pass pass = {0};
    dl_layers_update(&l->bare.network, &l->plan);
    memcpy(dl_layers_input(&l->state, &pass), l->x, TOKENS * LAYER_WIDTH * sizeof(dl_real));
    dl_layers_forward(&l->bare.network, &l->plan, &l->state, &l->sequences, &pass, NULL);
    for (size_t s = 0; s < 3; s++)
        dl_layers_mean(&l->bare.network, &l->state, starts[s], starts[s + 1],
                       l->means + s * LAYER_WIDTH);
    return weighted(l->weights, l->means, 3 * LAYER_WIDTH);
}

static void carve_layers(struct layers_case *l)
{
    const struct dl_network_config *config = &l->bare.network.config;
    for (int have = 0; have < 2; have++) {
        struct dl_carve plan = {l->bare.memory[0], 0}, state = {l->bare.memory[1], 0};
        dl_layers_carve_plan(&l->plan, &plan, config);
        dl_layers_carve_forward(&l->plan, &l->state, &state, config, 3, 5);
        dl_layers_carve_backward(&l->plan, &l->state, &state, config, 3, 5);
        if (have) break;
        l->bare.memory[0] = aligned_alloc(DL_CARVE_ALIGN, plan.used);
        l->bare.memory[1] = aligned_alloc(DL_CARVE_ALIGN, state.used);
    }
}

static void check_layers(int differential)
{
    static struct layers_case l;
    bare_start(&l.bare);
    struct dl_network_config *config = &l.bare.network.config;
    config->window = 6;
    config->width = LAYER_WIDTH;
    config->layers = 1;
    config->differential = differential;
    dl_layers_add(&l.plan, &l.bare.network.parameters, config);
    carve_layers(&l);
    dl_layers_start(&l.plan, config);
    bare_bind(&l.bare);
    l.sequences =
        (struct dl_sequences){.count = 3, .start = starts, .position = positions, .place = places};
    l.x = noise(TOKENS * LAYER_WIDTH, 1);
    l.weights = noise(3 * LAYER_WIDTH, 1), l.means = noise(3 * LAYER_WIDTH, 0);
    layers_loss(&l);
    const struct dl_pass pass = {0};
    for (size_t s = 0; s < 3; s++)
        dl_layers_mean_backward(&l.bare.network, &l.state, starts[s], starts[s + 1],
                                l.weights + s * LAYER_WIDTH);
    dl_layers_backward(&l.bare.network, &l.plan, &l.state, &l.sequences, &pass, l.bare.gradients);
    dl_real *dx = noise(TOKENS * LAYER_WIDTH, 0);
    memcpy(dx, l.state.dx, TOKENS * LAYER_WIDTH * sizeof *dx);
    check("x", layers_loss, &l, l.x, dx, TOKENS * LAYER_WIDTH);
    for (uint32_t p = 0; p < l.bare.network.parameters.count; p++) {
        struct dl_parameter *item = &l.bare.network.parameters.items[p];
        check(item->name, layers_loss, &l, item->value, item->gradient,
              (size_t)item->rows * item->columns);
    }
    for (size_t j = 0; j < LAYER_WIDTH; j++) cr_expect_eq(l.means[LAYER_WIDTH + j], 0);
    free(l.x), free(l.weights), free(l.means), free(dx);
    bare_free(&l.bare);
}

Test(layer_gradient, of_a_differential_layer_with_feed_forward_and_mean)
{
    check_layers(1);
}

Test(layer_gradient, of_a_softmax_layer_with_feed_forward_and_mean)
{
    check_layers(0);
}

/* ---- encodings of window tokens -------------------------------------------------------- */

struct tokens_case {
    struct bare bare;
    struct dl_token_plan plan;
    struct dl_token_state state;
    dl_real *token, *weights;
    uint16_t seen[2 * 6];
    dl_real elapsed[6];
};

static double tokens_loss(void *context)
{
    struct tokens_case *t = context;
    dl_tokens_update(&t->bare.network, &t->plan);
    dl_tokens_forward(&t->bare.network, &t->plan, &t->state, 6, t->token, t->elapsed, t->seen, 1);
    return weighted(t->weights, t->state.x, 6 * 8);
}

static void check_tokens(int time, int cooccurrence, uint32_t windows)
{
    static struct tokens_case t;
    bare_start(&t.bare);
    struct dl_network_config *config = &t.bare.network.config;
    config->window = 6;
    config->width = 8;
    config->time_encoding = time;
    config->cooccurrence = cooccurrence;
    dl_tokens_add_map(&t.plan, &t.bare.network.parameters, config, windows);
    dl_tokens_add_encodings(&t.plan, &t.bare.network.parameters, config);
    for (int have = 0; have < 2; have++) {
        struct dl_carve plan = {t.bare.memory[0], 0}, state = {t.bare.memory[1], 0};
        dl_tokens_carve_plan(&t.plan, &plan, config);
        dl_tokens_carve_forward(&t.state, &state, config, 6);
        dl_tokens_carve_backward(&t.state, &state, config, 6);
        if (have) break;
        t.bare.memory[0] = aligned_alloc(DL_CARVE_ALIGN, plan.used);
        t.bare.memory[1] = aligned_alloc(DL_CARVE_ALIGN, state.used);
    }
    bare_bind(&t.bare);
    t.token = noise(6 * t.plan.layout.columns, 1);
    t.weights = noise(6 * 8, 1);
    for (int i = 0; i < 6; i++) t.elapsed[i] = 0.3 * i * i;
    for (int i = 0; i < 12; i++) t.seen[i] = (uint16_t)(i * 5 % 7);
    tokens_loss(&t);
    memcpy(t.state.x, t.weights, 6 * 8 * sizeof(dl_real));
    dl_tokens_backward(&t.bare.network, &t.plan, &t.state, 6, t.token, t.elapsed, t.seen,
                       t.bare.gradients);
    for (uint32_t p = 0; p < t.bare.network.parameters.count; p++) {
        struct dl_parameter *item = &t.bare.network.parameters.items[p];
        check(item->name, tokens_loss, &t, item->value, item->gradient,
              (size_t)item->rows * item->columns);
    }
    free(t.token), free(t.weights);
    bare_free(&t.bare);
}

Test(layer_gradient, of_the_time_encoding)
{
    check_tokens(1, 0, 2);
}

Test(layer_gradient, of_the_cooccurrence_encoding)
{
    check_tokens(0, 1, 2);
    check_tokens(0, 1, 1);
}

Test(layer_gradient, of_both_encodings)
{
    check_tokens(1, 1, 2);
}

/* ---- the pair stage ----------------------------------------------------------------------- */

struct pair_case {
    struct bare bare;
    struct dl_pair_stage stage;
    struct dl_pair_scratch scratch;
    struct dl_batch batch;
    dl_real *h, *weights, logits[3];
};

static double pair_loss(void *context)
{
    struct pair_case *c = context;
    dl_pair_stage_update(&c->bare.network, &c->stage);
    dl_pair_stage_forward(&c->bare.network, &c->stage, &c->scratch, &c->batch, NULL, c->h,
                          c->logits);
    return weighted(c->weights, c->logits, 3);
}

Test(layer_gradient, of_the_pair_stage)
{
    static struct pair_case c;
    /* Two pairs of one source, and one of a node with itself. */
    static uint32_t sides[] = {0, 1, 0, 2, 3, 3};
    bare_start(&c.bare);
    c.bare.network.config.width = 4; /* with steps, as is the default */
    dl_pair_stage_add(&c.stage, &c.bare.network.parameters, &c.bare.network.config, 4);
    for (int have = 0; have < 2; have++) {
        struct dl_carve plan = {c.bare.memory[0], 0}, state = {c.bare.memory[1], 0};
        dl_pair_stage_carve_plan(&c.stage, &plan);
        dl_pair_stage_carve_forward(&c.stage, &c.scratch, &state, 3);
        dl_pair_stage_carve_backward(&c.stage, &c.scratch, &state, 3);
        if (have) break;
        c.bare.memory[0] = aligned_alloc(DL_CARVE_ALIGN, plan.used);
        c.bare.memory[1] = aligned_alloc(DL_CARVE_ALIGN, state.used);
    }
    bare_bind(&c.bare);
    static struct dl_encoding encoding;
    dl_reading_plain(&encoding.reading);
    for (int j = 0; j < DL_READING_STEPPED; j++)
        encoding.reading.steps[DL_READING_SLOPE][1][j] = 0.1 * (j % 7);
    c.batch = (struct dl_batch){.pairs = 3,
                                .encoding = &encoding,
                                .self = noise(6 * DL_SELF_COLUMNS, 1),
                                .since = noise(6 * DL_SINCE_COLUMNS, 1),
                                .pair_sides = sides};
    c.h = noise(4 * 4, 1), c.weights = noise(3, 1);
    dl_real *dh = noise(4 * 4, 0);
    pair_loss(&c);
    dl_pair_stage_backward(&c.bare.network, &c.stage, &c.scratch, &c.batch, NULL, c.h, c.weights,
                           dh, c.bare.gradients);
    check("h", pair_loss, &c, c.h, dh, 16);
    for (uint32_t p = 0; p < c.bare.network.parameters.count; p++) {
        struct dl_parameter *item = &c.bare.network.parameters.items[p];
        check(item->name, pair_loss, &c, item->value, item->gradient,
              (size_t)item->rows * item->columns);
    }
    free(c.h), free(c.weights), free(dh), free(c.batch.self), free(c.batch.since);
    bare_free(&c.bare);
}
