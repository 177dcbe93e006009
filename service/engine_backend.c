/* What RPC and HTTP ask of the engine (backend.h): scoring jobs go to the
 * workers with copies of the state; everything else is answered at once. */
#include "service/engine_internal.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "model/kernels/kernels.h"

#define JOBS_MAX 256                /* with the workers at a time */
#define JOB_BYTES_MAX (64u << 20)   /* of one job's queries */
#define JOBS_BYTES_MAX (256u << 20) /* of all together */

/* A name as asked: what an answer echoes, also for nodes that nobody knows. */
struct name {
    size_t at, size;
};

struct job {
    struct dl_backend_job *job;
    struct dl_engine *engine;
    struct dl_scoring scoring;
    void (*finish)(struct job *job);
    struct dl_buf text; /* names as asked */
    uint32_t query_count, query_capacity;
    struct dl_query **queries;
    float **logits;
    struct dl_attention **attention; /* explain only */
    struct name *names; /* score: src and dst of each pair; top_k: the unknown candidates */
    uint32_t known;     /* top_k: candidates before them */
    uint8_t *origins;   /* top_k: (candidates) */
    uint32_t count;     /* pairs, or candidates */
    uint32_t k;
    struct name node;
    uint64_t seq;
    uint64_t bytes; /* of the queries, at most */
    uint64_t epoch; /* of the encodings that the queries went with */
};

/* ---- jobs -------------------------------------------------------------------------- */

static uint64_t query_bytes(const struct dl_engine *engine, uint64_t sides)
{
    const uint32_t encoding =
        engine->model ? dl_network_encoding_width(dl_model_get_network(engine->model)) : 0;
    /* Every other side is a query's source, at most. */
    return (sides / 2 + 1) * sizeof(struct dl_query) +
           sides * (sizeof(struct dl_side) + sizeof(struct dl_pair_state) +
                    sizeof(struct dl_between) + (uint64_t)encoding * sizeof(float) +
                    (uint64_t)engine->window * (sizeof(struct dl_interaction) +
                                                engine->config->store.features * sizeof(float)));
}

static void free_job(struct job *job)
{
    for (uint32_t i = 0; i < job->query_count; i++) {
        dl_query_deinit(job->queries[i]);
        free(job->queries[i]);
        if (job->logits) free(job->logits[i]);
    }
    if (job->attention && job->attention[0]) {
        free(job->attention[0]->received);
        free(job->attention[0]->received_by_head);
        free(job->attention[0]);
    }
    free(job->attention);
    free(job->queries);
    free(job->logits);
    free(job->names);
    free(job->origins);
    dl_buf_free(&job->text);
    free(job);
}

/* `sides`: how many windows its queries will hold. */
static int new_job(struct dl_engine *engine, struct dl_backend_job *backend_job, uint64_t sides,
                   void (*finish)(struct job *job), struct job **out, struct dl_error *error)
{
    uint64_t bytes = query_bytes(engine, sides);
    if (engine->failed) return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    if (!engine->model)
        return dl_error_set(error, DL_ERR_VERSION,
                            "no model is loaded; set model.path to one made by driftline train");
    if (engine->jobs >= JOBS_MAX)
        return dl_error_set(error, DL_ERR_FULL, "%d requests are being scored; try again later",
                            JOBS_MAX);
    if (bytes > JOB_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE,
                            "the request needs %llu bytes of windows, at most %u are given to one; "
                            "split it",
                            (unsigned long long)bytes, JOB_BYTES_MAX);
    if (engine->job_bytes + bytes > JOBS_BYTES_MAX)
        return dl_error_set(error, DL_ERR_FULL,
                            "the requests being scored hold %llu bytes of windows, at most %u are "
                            "given to all; try again later",
                            (unsigned long long)engine->job_bytes, JOBS_BYTES_MAX);
    struct job *job = calloc(1, sizeof *job);
    if (!job) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
    job->job = backend_job;
    job->engine = engine;
    job->finish = finish;
    job->bytes = bytes;
    job->seq = dl_graph_feed(engine->graph)->events;
    *out = job;
    return DL_OK;
}

static void done(struct dl_scoring *scoring)
{
    struct job *job = scoring->owner;
    struct dl_error error = {"cancelled"};
    job->engine->jobs--;
    job->engine->job_bytes -= job->bytes;
    dl_engine_encodings_keep(job->engine, job->queries, job->query_count, job->epoch);
    if (atomic_load(&job->job->cancelled)) {
        job->job->done(job->job, DL_ERR_CANCELLED, &error, NULL);
    } else if (!dl_engine_scores_finite(scoring)) {
        dl_error_set(&error, DL_ERR_CORRUPT, "the model gave a score that is no finite number");
        job->job->done(job->job, DL_ERR_CORRUPT, &error, NULL);
    } else {
        job->finish(job);
    }
    dl_model_unref(job->scoring.model);
    free_job(job);
}

static int submit(struct job *job, struct dl_error *error)
{
    if (job->query_count > 0) dl_query_seal(job->queries[job->query_count - 1]);
    job->logits = calloc(job->query_count ? job->query_count : 1, sizeof *job->logits);
    if (!job->logits) goto no_memory;
    for (uint32_t i = 0; i < job->query_count; i++) {
        job->logits[i] = malloc((job->queries[i]->candidate_count + 1) * sizeof(float));
        if (!job->logits[i]) goto no_memory;
    }
    if (dl_engine_encodings_fill(job->engine, job->queries, job->query_count, &job->epoch) != DL_OK)
        goto no_memory;
    job->scoring = (struct dl_scoring){.model = dl_model_ref(job->engine->model),
                                       .query_count = job->query_count,
                                       .queries = job->queries,
                                       .logits = job->logits,
                                       .attention = job->attention,
                                       .interactive = 1,
                                       .cancelled = &job->job->cancelled,
                                       .done = done,
                                       .owner = job};
    job->engine->jobs++;
    job->engine->job_bytes += job->bytes;
    dl_workers_submit(job->engine->parts.workers, &job->scoring);
    return DL_OK;
no_memory:
    free_job(job);
    return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
}

static struct name keep_name(struct job *job, struct dl_slice name)
{
    struct name kept = {job->text.size, name.size};
    dl_buf_append(&job->text, name.data, name.size);
    return kept;
}

static struct dl_slice name_of(const struct job *job, struct name name)
{
    return dl_slice_of(job->text.data + name.at, name.size);
}

static uint32_t find_node(const struct dl_engine *engine, struct dl_slice name, int destination)
{
    uint32_t id;
    uint8_t space = engine->config->source.bipartite && destination ? 1 : 0;
    return dl_dictionary_find(engine->nodes, space, name, &id) == DL_OK ? id : DL_NODE_NONE;
}

/* As one that may stand on either side of a bipartite feed. */
static uint32_t find_any(const struct dl_engine *engine, struct dl_slice name)
{
    uint32_t node = find_node(engine, name, 0);
    return node == DL_NODE_NONE ? find_node(engine, name, 1) : node;
}

static int64_t query_time(const struct dl_engine *engine, int has_time, int64_t time)
{
    return has_time ? time : dl_graph_feed(engine->graph)->last_time;
}

static struct dl_query *add_query(struct job *job, uint32_t source, int64_t time)
{
    struct dl_engine *engine = job->engine;
    if (job->query_count == job->query_capacity) {
        uint32_t capacity = job->query_capacity ? job->query_capacity * 2 : 4;
        struct dl_query **queries = realloc(job->queries, capacity * sizeof(*queries));
        if (!queries) return NULL;
        job->queries = queries;
        job->query_capacity = capacity;
    }
    if (job->query_count > 0) dl_query_seal(job->queries[job->query_count - 1]);
    struct dl_query *query = calloc(1, sizeof *query);
    if (!query) return NULL;
    job->queries[job->query_count++] = query;
    return dl_query_begin(query, engine->graph, engine->window, source, time) == DL_OK ? query
                                                                                       : NULL;
}

/* ---- Score --------------------------------------------------------------------------- */

/* By the model that scored: another may have been loaded since. */
static void fill_score(const struct job *job, uint32_t q, uint32_t c, struct dl_score *score)
{
    const struct dl_model *model = job->scoring.model;
    const struct dl_query *query = job->queries[q];
    const struct dl_pair_state *pair = &query->pairs[c];
    double p = dl_model_probability(model, job->logits[q][c]);
    score->time = query->time;
    score->seq = job->seq;
    score->probability = p;
    score->surprise_bits = -log2(p > 1e-300 ? p : 1e-300);
    score->src_history = query->source.state.events;
    score->dst_history = query->candidates[c].state.events;
    score->pair_history = pair->count[0] + pair->count[1];
    score->model_version = dl_slice_text(dl_model_get_info(model)->version);
}

static void finish_score(struct job *job)
{
    struct dl_error error = {"out of memory for scores"};
    struct dl_score *scores = calloc(job->count, sizeof *scores);
    if (!scores) {
        job->job->done(job->job, DL_ERR_NOMEM, &error, NULL);
        return;
    }
    uint32_t at = 0;
    for (uint32_t q = 0; q < job->query_count; q++) {
        for (uint32_t c = 0; c < job->queries[q]->candidate_count; c++, at++) {
            fill_score(job, q, c, &scores[at]);
            scores[at].src = name_of(job, job->names[2 * at]);
            scores[at].dst = name_of(job, job->names[2 * at + 1]);
        }
    }
    union dl_backend_result result = {.scores = {job->count, scores}};
    job->job->done(job->job, DL_OK, NULL, &result);
    free(scores);
}

static int score(void *context, const struct dl_backend_score_request *request,
                 struct dl_backend_job *backend_job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    struct job *job;
    struct dl_query *query = NULL;
    uint32_t source = DL_NODE_NONE;
    int status =
        new_job(engine, backend_job, (uint64_t)request->pair_count * 2, finish_score, &job, error);
    if (status != DL_OK) return status;
    job->count = request->pair_count;
    job->names = calloc((size_t)job->count * 2, sizeof *job->names);
    if (!job->names) goto no_memory;
    for (uint32_t i = 0; i < job->count; i++) {
        const struct dl_backend_pair *pair = &request->pairs[i];
        uint32_t src = find_node(engine, pair->src, 0), dst = find_node(engine, pair->dst, 1);
        int64_t time =
            pair->has_time ? pair->time : query_time(engine, request->has_time, request->time);
        job->names[2 * i] = keep_name(job, pair->src);
        job->names[2 * i + 1] = keep_name(job, pair->dst);
        /* Neighbouring pairs of one source and time share its encoding. */
        if (!query || src != source || src == DL_NODE_NONE || time != query->time)
            query = add_query(job, src, time);
        source = src;
        if (!query || dl_query_add(query, engine->graph, dst) != DL_OK) goto no_memory;
    }
    if (job->text.failed) goto no_memory;
    return submit(job, error);
no_memory:
    free_job(job);
    return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
}

/* ---- TopK ---------------------------------------------------------------------------- */

static void finish_top_k(struct job *job)
{
    struct dl_error error = {"out of memory for candidates"};
    const struct dl_query *query = job->queries[0];
    const struct dl_model *model = job->scoring.model;
    uint32_t places[DL_ENGINE_TOP_MAX];
    struct dl_candidate *best = calloc(job->k, sizeof *best);
    if (!best) {
        job->job->done(job->job, DL_ERR_NOMEM, &error, NULL);
        return;
    }
    union dl_backend_result result = {
        .prediction = {.node = name_of(job, job->node),
                       .time = query->time,
                       .seq = job->seq,
                       .history = query->source.state.events,
                       .scored = query->candidate_count,
                       .candidates = best,
                       .model_version = dl_slice_text(dl_model_get_info(model)->version)}};
    result.prediction.candidate_count = dl_engine_rank(job->engine, model, query, job->logits[0],
                                                       job->origins, job->k, best, places);
    for (uint32_t i = 0; i < result.prediction.candidate_count; i++)
        if (places[i] >= job->known)
            best[i].node = name_of(job, job->names[places[i] - job->known]);
    job->job->done(job->job, DL_OK, NULL, &result);
    free(best);
}

/* Names that the store does not have, each once: the names of a job are the
 * list, `slots` finds them (index + 1). */
struct unknown {
    uint32_t count;
    uint16_t slots[2 * DL_BACKEND_CANDIDATES_MAX];
};

static void keep_unknown(struct job *job, struct unknown *unknown, struct dl_slice node,
                         struct dl_slice name)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    if (dl_slice_equal(name, node)) return;
    for (size_t i = 0; i < name.size; i++) hash = (hash ^ name.data[i]) * 0x100000001b3;
    uint32_t at = (uint32_t)(hash >> 32) % (2 * DL_BACKEND_CANDIDATES_MAX);
    while (unknown->slots[at]) {
        if (dl_slice_equal(name_of(job, job->names[unknown->slots[at] - 1]), name)) return;
        at = (at + 1) % (2 * DL_BACKEND_CANDIDATES_MAX);
    }
    job->names[unknown->count++] = keep_name(job, name);
    unknown->slots[at] = (uint16_t)unknown->count;
}

static int top_k(void *context, const struct dl_backend_top_k_request *request,
                 struct dl_backend_job *backend_job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    const struct dl_config *config = engine->config;
    struct job *job;
    uint32_t drawn = request->only_candidates ? 0 : (uint32_t)config->predict.candidates_max;
    int status = new_job(engine, backend_job, (uint64_t)drawn + request->candidate_count + 1,
                         finish_top_k, &job, error);
    if (status != DL_OK) return status;
    struct dl_candidate_set *set = &engine->candidates;
    uint32_t node = find_node(engine, request->node, 0);
    job->node = keep_name(job, request->node);
    job->k = request->k;
    if (drawn && node != DL_NODE_NONE)
        status = dl_candidates_draw(engine->graph, node, config->source.bipartite, drawn, set);
    else if (drawn) /* unknown: only what is popular */
        status =
            dl_candidates_draw(engine->graph, DL_NODE_NONE, config->source.bipartite, drawn, set);
    else
        status = dl_candidates_begin(set, request->candidate_count);
    struct unknown unknown = {0};
    if (status == DL_OK && request->candidate_count > 0) {
        job->names = calloc(request->candidate_count, sizeof *job->names);
        if (!job->names) goto no_memory;
    }
    for (uint32_t i = 0; status == DL_OK && i < request->candidate_count; i++) {
        uint32_t candidate = find_node(engine, request->candidates[i], 1);
        if (candidate == DL_NODE_NONE)
            keep_unknown(job, &unknown, request->node, request->candidates[i]);
        else if (candidate != node)
            status = dl_candidates_add(set, candidate);
    }
    struct dl_query *query =
        status == DL_OK ? add_query(job, node, query_time(engine, request->has_time, request->time))
                        : NULL;
    job->known = set->count;
    job->origins = malloc(set->count + unknown.count + 1);
    if (!query || !job->origins || job->text.failed) goto no_memory;
    for (uint32_t i = 0; i < set->count; i++) {
        job->origins[i] = set->origins[i];
        if (dl_query_add(query, engine->graph, set->nodes[i]) != DL_OK) goto no_memory;
    }
    for (uint32_t i = 0; i < unknown.count; i++) {
        job->origins[set->count + i] = DL_FROM_CALLER;
        if (dl_query_add(query, engine->graph, DL_NODE_NONE) != DL_OK) goto no_memory;
    }
    return submit(job, error);
no_memory:
    free_job(job);
    return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
}

/* ---- Explain -------------------------------------------------------------------------- */

static struct dl_slice type_of(const struct dl_engine *engine, uint16_t type)
{
    return type ? dl_dictionary_name(engine->types, (uint32_t)type - 1) : (struct dl_slice){0};
}

static void fill_interaction(const struct dl_engine *engine, const struct dl_interaction *from,
                             const float *features, uint32_t feature_count,
                             struct dl_backend_interaction *to)
{
    *to = (struct dl_backend_interaction){.peer = dl_dictionary_name(engine->nodes, from->peer),
                                          .time = from->time,
                                          .seq = from->seq,
                                          .type = type_of(engine, from->type),
                                          .weight = from->weight,
                                          .out = from->out,
                                          .feature_count = features ? feature_count : 0,
                                          .features = features};
}

static int heaviest_first(const void *a, const void *b)
{
    double x = ((const struct dl_backend_token *)a)->weight;
    double y = ((const struct dl_backend_token *)b)->weight;
    return x > y ? -1 : x < y;
}

static void mark_sinks(struct dl_backend_token *tokens, uint32_t count)
{
    double mean = 1.0 / count, variance = 0;
    if (count < 16) return; /* too few for mean + 3σ to mean anything */
    for (uint32_t i = 0; i < count; i++)
        variance += (tokens[i].weight - mean) * (tokens[i].weight - mean) / count;
    for (uint32_t i = 0; i < count; i++)
        tokens[i].sink = tokens[i].weight > mean + 3 * sqrt(variance);
}

static void finish_explain(struct job *job)
{
    struct dl_error error = {"out of memory for tokens"};
    const struct dl_engine *engine = job->engine;
    const struct dl_query *query = job->queries[0];
    const struct dl_attention *a = job->attention[0];
    const struct dl_network_config *config = &dl_model_get_info(job->scoring.model)->config;
    const uint32_t maps = config->layers * config->heads;
    double entropy[DL_LAYERS_MAX], uniform = log(a->tokens ? a->tokens : 1);
    struct dl_backend_token *tokens = calloc(a->tokens + 1, sizeof *tokens);
    double *weights = calloc((size_t)a->tokens * maps + 1, sizeof *weights);
    if (!tokens || !weights) {
        free(tokens);
        free(weights);
        job->job->done(job->job, DL_ERR_NOMEM, &error, NULL);
        return;
    }
    uint32_t at = 0;
    for (int side = 0; side < 2; side++) {
        const struct dl_side *s = side ? &query->candidates[0] : &query->source;
        if (at < a->tokens) tokens[at++] = (struct dl_backend_token){.side = side, .self = 1};
        for (uint32_t i = 0; i < s->window_count && at < a->tokens; i++, at++) {
            tokens[at].side = side;
            fill_interaction(engine, &s->window[i],
                             s->features ? s->features + (size_t)i * query->feature_count : NULL,
                             query->feature_count, &tokens[at].event);
        }
    }
    for (uint32_t t = 0; t < a->tokens; t++) {
        for (uint32_t l = 0; l < config->layers; l++)
            tokens[t].weight += a->received[(size_t)l * a->tokens + t] / config->layers;
        tokens[t].ratio_to_uniform = tokens[t].weight * a->tokens;
        if (!a->received_by_head) continue;
        tokens[t].weights = weights + (size_t)t * maps;
        for (uint32_t m = 0; m < maps; m++)
            weights[(size_t)t * maps + m] = a->received_by_head[(size_t)m * a->tokens + t];
    }
    for (uint32_t l = 0; l < config->layers; l++) entropy[l] = a->entropy[l] * uniform;
    mark_sinks(tokens, a->tokens);
    qsort(tokens, a->tokens, sizeof *tokens, heaviest_first);
    union dl_backend_result result = {.explanation = {.time_unit = engine->config->source.time_unit,
                                                      .layers = config->layers,
                                                      .heads = config->heads,
                                                      .tokens = a->tokens,
                                                      .entropy_nats = entropy,
                                                      .entropy_uniform_nats = uniform,
                                                      .token_list = tokens}};
    fill_score(job, 0, 0, &result.explanation.score);
    result.explanation.score.src = name_of(job, job->names[0]);
    result.explanation.score.dst = name_of(job, job->names[1]);
    job->job->done(job->job, DL_OK, NULL, &result);
    free(tokens);
    free(weights);
}

static int explain(void *context, const struct dl_backend_explain_request *request,
                   struct dl_backend_job *backend_job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    struct job *job;
    if (engine->model && dl_model_get_info(engine->model)->config.layers == 0)
        return dl_error_set(error, DL_ERR_UNSUPPORTED,
                            "the model (%s) has no attention to explain a score by",
                            dl_model_get_info(engine->model)->config.architecture);
    int status = new_job(engine, backend_job, 2, finish_explain, &job, error);
    if (status != DL_OK) return status;
    struct dl_query *query = add_query(job, find_node(engine, request->src, 0),
                                       query_time(engine, request->has_time, request->time));
    const struct dl_network_config *config = &dl_model_get_info(engine->model)->config;
    const uint32_t capacity = 2 * (engine->window + 1);
    const size_t rows = (size_t)config->layers * (request->per_head ? 1 + config->heads : 1);
    job->bytes += rows * capacity * sizeof(float);
    job->names = calloc(2, sizeof *job->names);
    job->attention = calloc(1, sizeof *job->attention);
    if (job->attention) job->attention[0] = calloc(1, sizeof **job->attention);
    if (!query || !job->names || !job->attention || !job->attention[0]) goto no_memory;
    struct dl_attention *attention = job->attention[0];
    attention->token_capacity = capacity;
    attention->received = calloc((size_t)capacity * config->layers, sizeof(float));
    if (!attention->received) goto no_memory;
    if (request->per_head) {
        attention->received_by_head =
            calloc((size_t)capacity * config->layers * config->heads, sizeof(float));
        if (!attention->received_by_head) goto no_memory;
    }
    if (dl_query_add(query, engine->graph, find_node(engine, request->dst, 1)) != DL_OK)
        goto no_memory;
    job->names[0] = keep_name(job, request->src);
    job->names[1] = keep_name(job, request->dst);
    if (job->text.failed) goto no_memory;
    return submit(job, error);
no_memory:
    free_job(job);
    return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a request");
}

/* ---- answered at once ------------------------------------------------------------------ */

static int get_window(void *context, const struct dl_backend_window_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    uint32_t window = (uint32_t)engine->config->store.window;
    uint32_t fc = (uint32_t)engine->config->store.features;
    uint32_t max = request->count_max && request->count_max < window ? request->count_max : window;
    union dl_backend_result result = {
        .window = {.window_max = window, .time_unit = engine->config->source.time_unit}};
    uint32_t node = find_any(engine, request->node);
    const struct dl_node_state *state =
        node == DL_NODE_NONE ? NULL : dl_graph_node(engine->graph, node);
    if (!state) {
        job->done(job, DL_OK, NULL, &result);
        return DL_OK;
    }
    struct dl_interaction *copy = malloc(max * sizeof *copy);
    struct dl_backend_interaction *list = malloc(max * sizeof *list);
    float *features = fc ? malloc((size_t)max * fc * sizeof *features) : NULL;
    if (!copy || !list || (fc && !features)) {
        free(copy);
        free(list);
        free(features);
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a window");
    }
    uint32_t count = dl_graph_window(engine->graph, node, max, copy, features);
    for (uint32_t i = 0; i < count; i++)
        fill_interaction(engine, &copy[i], features ? features + (size_t)i * fc : NULL, fc,
                         &list[i]);
    result.window.known = 1;
    result.window.events = state->events;
    result.window.events_out = state->events_out;
    result.window.events_in = state->events_in;
    result.window.first_time = state->first_time;
    result.window.last_time = state->last_time;
    result.window.interaction_count = count;
    result.window.interactions = list;
    job->done(job, DL_OK, NULL, &result);
    free(copy);
    free(list);
    free(features);
    return DL_OK;
}

static const char *kernels_name(void)
{
    const struct dl_kernels *kernels;
    return dl_kernels_choose(&kernels, NULL) == DL_OK ? kernels->name : "";
}

static int get_model(void *context, struct dl_backend_job *job, struct dl_error *error)
{
    struct dl_engine *engine = context;
    if (!engine->model)
        return dl_error_set(error, DL_ERR_VERSION,
                            "no model is loaded; set model.path to one made by driftline train");
    const struct dl_reference *reference = dl_model_get_reference(engine->model);
    union dl_backend_result result = {.model = {.info = dl_model_get_info(engine->model),
                                                .reference_size = reference ? reference->rows : 0,
                                                .kernels = kernels_name()}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static void listen_to(void *context, struct dl_backend_listener *listener)
{
    struct dl_engine *engine = context;
    listener->next = engine->listeners;
    engine->listeners = listener;
}

static void unlisten(void *context, struct dl_backend_listener *listener)
{
    struct dl_engine *engine = context;
    struct dl_backend_listener **at = &engine->listeners;
    while (*at && *at != listener) at = &(*at)->next;
    if (*at) *at = listener->next;
}

static int ready(void *context, struct dl_error *error)
{
    struct dl_engine *engine = context;
    if (!engine->failed) return 1;
    dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", engine->failure.text);
    return 0;
}

void dl_engine_backend(struct dl_engine *engine, struct dl_backend *backend)
{
    *backend = (struct dl_backend){.context = engine,
                                   .score = score,
                                   .top_k = top_k,
                                   .get_window = get_window,
                                   .explain = explain,
                                   .get_drift = dl_engine_get_drift,
                                   .renew_reference = dl_engine_ask_renewal,
                                   .get_model = get_model,
                                   .forget = dl_engine_forget,
                                   .ingest = dl_engine_ingest,
                                   .ingest_broken = dl_engine_ingest_broken,
                                   .listen = listen_to,
                                   .unlisten = unlisten,
                                   .ready = ready};
}
