/* Evaluation.
 *
 *   choose positions ─> draw all negatives ─> one pass in blocks:
 *       build queries of a block (this thread; copies out of the graph)
 *       score the block (all threads; an item writes its own places only)
 *   ─> metrics, bound, calibration
 *
 * A query holds the true destination as candidate 0 and each other destination
 * once, however often it was drawn; negatives with another source (historical,
 * inductive) get queries of their own. */
#include "model/evaluate.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/query.h"
#include "base/rng.h"
#include "model/calibration.h"
#include "model/noise.h"
#include "model/parallel.h"

#define BLOCK_ITEMS 64
#define STREAM_NOISE UINT64_C(0x6e6f697365)

const struct dl_evaluate_options dl_evaluate_options_default = {.ties = DL_TIES_STREAM,
                                                                .negatives = DL_NEGATIVES_RANDOM,
                                                                .part = DL_SPLIT_TEST,
                                                                .draws = 10,
                                                                .candidates = 100};

/* One event's work: its queries, and where each draw's candidate stands. */
struct item {
    uint64_t slot; /* index among the scored events */
    struct dl_query query;
    struct dl_query *others; /* (draws), for negatives with another source */
    uint32_t other_count;
    int32_t *negative_at;   /* (draws): candidate of `query`, or −1 − index of another query */
    uint32_t *candidate_at; /* (candidates) of `query` */
    int ranked;
};

struct scratch {
    void *workspace;
    dl_real *scores;
    double *ranked;
    float *received; /* attention of one pair: (layers, tokens) */
};

struct run {
    const struct dl_dataset *dataset;
    const struct dl_scorer *scorer;
    const struct dl_evaluate_options *options;
    struct dl_pairs pairs;
    struct dl_split split;
    struct dl_pass pass;
    struct dl_negatives draws;
    uint64_t *positions; /* (count) */
    uint64_t count;
    struct dl_edge *negatives;      /* (draws, count) */
    double *scores;                 /* (1 + draws, count): the true edges first */
    double *ranks;                  /* (count), 0: not ranked */
    struct dl_attention *attention; /* (count) or NULL */
    /* (count, layers + 1): on the pair's own partners, by layer, then as uniform
     * attention would have it (0: they have no such token); or NULL */
    double *partners;
    struct item items[BLOCK_ITEMS];
    uint32_t *place, *stamp; /* (node_count), candidates of the query being built */
    uint32_t stamp_now;
    struct dl_parallel *parallel;
    struct scratch *scratch; /* (threads) */
    atomic_int not_a_number;
    uint64_t pair_count;
};

/* ---- positions and negatives -------------------------------------------------- */

static int choose_positions(struct run *run, struct dl_error *error)
{
    const struct dl_evaluate_options *options = run->options;
    uint64_t begin = run->split.begin[options->part], end = run->split.end[options->part];
    uint8_t *held_out = NULL;
    uint32_t held_out_count;

    if (options->end) {
        begin = options->first;
        end = options->end;
        if (begin >= end || end > run->dataset->event_count)
            return dl_error_set(
                error, DL_ERR_INVALID, "%s: no span of events %llu to %llu: there are %llu",
                run->dataset->path, (unsigned long long)begin, (unsigned long long)end,
                (unsigned long long)run->dataset->event_count);
    }
    if (options->inductive) {
        held_out = malloc(run->dataset->node_count);
        if (!held_out || dl_split_hold_out(run->dataset, &run->split, options->hold_out_seed,
                                           held_out, &held_out_count) != DL_OK) {
            free(held_out);
            return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        }
    }
    run->positions = malloc((end - begin) * sizeof *run->positions);
    if (!run->positions) {
        free(held_out);
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    }
    for (uint64_t position = begin; position < end; position++) {
        const struct dl_event *event = &run->dataset->events[dl_pass_event(&run->pass, position)];
        if (held_out && !held_out[event->src] && !held_out[event->dst]) continue;
        run->positions[run->count++] = position;
    }
    free(held_out);
    if (options->limit && run->count > options->limit) {
        for (uint64_t i = 0; i < options->limit; i++)
            run->positions[i] =
                run->positions[(uint64_t)((unsigned __int128)i * run->count / options->limit)];
        run->count = options->limit;
    }
    if (run->count == 0)
        return dl_error_set(error, DL_ERR_INVALID, "%s: the %s part has no event to score%s",
                            run->dataset->path, dl_split_part_name(options->part),
                            options->inductive ? " that touches a held-out node" : "");
    return DL_OK;
}

static const struct dl_event *event_of(const struct run *run, uint64_t slot)
{
    return &run->dataset->events[dl_pass_event(&run->pass, run->positions[slot])];
}

/* Draws every negative, then drops the events for which one was not to be had. */
static int draw_negatives(struct run *run, struct dl_evaluate_result *result,
                          struct dl_error *error)
{
    const struct dl_evaluate_options *options = run->options;
    uint64_t stride = run->count, kept = 0, collisions = 0;

    run->negatives = malloc(options->draws * stride * sizeof *run->negatives);
    if (!run->negatives) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    for (uint64_t slot = 0; slot < run->count; slot++) {
        uint64_t batch = slot - slot % DL_NEGATIVES_BATCH;
        uint64_t last = batch + DL_NEGATIVES_BATCH - 1;
        if (last >= run->count) last = run->count - 1;
        int complete = 1;
        for (uint32_t d = 0; d < options->draws; d++) {
            struct dl_edge edge = dl_negatives_draw(
                &run->draws, options->negatives, dl_pass_event(&run->pass, run->positions[slot]), d,
                event_of(run, batch)->time, event_of(run, last)->time);
            complete &= edge.dst != DL_NODE_NONE;
            run->negatives[d * stride + slot] = edge;
        }
        if (!complete) run->positions[slot] = UINT64_MAX;
    }
    for (uint64_t slot = 0; slot < run->count; slot++) {
        if (run->positions[slot] == UINT64_MAX) continue;
        run->positions[kept] = run->positions[slot];
        for (uint32_t d = 0; d < options->draws; d++)
            run->negatives[d * stride + kept] = run->negatives[d * stride + slot];
        kept++;
    }
    for (uint32_t d = 0; d < options->draws; d++)
        memmove(run->negatives + d * kept, run->negatives + d * stride,
                kept * sizeof *run->negatives);
    result->left_out = run->count - kept;
    run->count = kept;
    if (kept == 0)
        return dl_error_set(error, DL_ERR_INVALID, "%s: no event has a %s negative",
                            run->dataset->path, dl_negatives_name(options->negatives));
    for (uint64_t slot = 0; slot < kept; slot++) {
        int64_t now = event_of(run, slot)->time;
        for (uint32_t d = 0; d < options->draws; d++) {
            struct dl_edge edge = run->negatives[d * kept + slot];
            uint32_t pair = dl_pairs_find(&run->pairs, edge.src, edge.dst);
            collisions += dl_pairs_count(&run->pairs, pair, now, now) > 0;
        }
    }
    result->scored = kept;
    result->collisions = (double)collisions / ((double)kept * options->draws);
    return DL_OK;
}

/* ---- building ----------------------------------------------------------------- */

/* The place of a destination among the query's candidates, added if it is new. */
static int add_once(struct run *run, struct dl_query *query, uint32_t node, uint32_t *place)
{
    if (run->stamp[node] != run->stamp_now) {
        int status = dl_query_add(query, run->pass.graph, node);
        if (status != DL_OK) return status;
        run->stamp[node] = run->stamp_now;
        run->place[node] = query->candidate_count - 1;
        run->pair_count++;
    }
    *place = run->place[node];
    return DL_OK;
}

static int add_noise(struct run *run, struct item *item, uint64_t event)
{
    const uint32_t neighbours = run->options->noise_neighbours, nodes = run->dataset->node_count;
    uint64_t seed = dl_draw64(run->options->seed ^ STREAM_NOISE, event, 0);
    int status = dl_noise_add(&item->query, neighbours, nodes, seed);
    for (uint32_t i = 0; i < item->other_count && status == DL_OK; i++)
        status = dl_noise_add(&item->others[i], neighbours, nodes, seed);
    return status;
}

static int build_item(struct run *run, struct item *item, uint64_t slot)
{
    const struct dl_evaluate_options *options = run->options;
    uint64_t event = dl_pass_event(&run->pass, run->positions[slot]);
    const struct dl_event *at = &run->dataset->events[event];
    uint32_t window = run->scorer->window, place;
    int status;

    item->slot = slot;
    item->other_count = 0;
    item->ranked = options->candidates > 0;
    run->stamp_now++;
    status = dl_query_begin(&item->query, run->pass.graph, window, at->src, at->time);
    if (status != DL_OK || (status = add_once(run, &item->query, at->dst, &place)) != DL_OK)
        return status;
    for (uint32_t d = 0; d < options->draws; d++) {
        struct dl_edge edge = run->negatives[d * run->count + slot];
        if (edge.src == at->src) {
            if ((status = add_once(run, &item->query, edge.dst, &place)) != DL_OK) return status;
            item->negative_at[d] = (int32_t)place;
            continue;
        }
        struct dl_query *other = &item->others[item->other_count];
        status = dl_query_begin(other, run->pass.graph, window, edge.src, at->time);
        if (status != DL_OK || (status = dl_query_add(other, run->pass.graph, edge.dst)) != DL_OK)
            return status;
        item->negative_at[d] = -1 - (int32_t)item->other_count++;
        run->pair_count++;
    }
    for (uint32_t c = 0; c < options->candidates; c++) {
        struct dl_edge edge = dl_negatives_rank_draw(&run->draws, event, c);
        if (edge.dst == DL_NODE_NONE) {
            item->ranked = 0;
            break;
        }
        if ((status = add_once(run, &item->query, edge.dst, &item->candidate_at[c])) != DL_OK)
            return status;
    }
    return options->noise_neighbours ? add_noise(run, item, event) : DL_OK;
}

/* ---- scoring ------------------------------------------------------------------- */

/* Attention that the true pair's windows give to the pair's own partners. */
static void watch_partners(struct run *run, uint64_t slot, const struct dl_query *pair,
                           const struct dl_attention *attention)
{
    const struct dl_side *sides[2] = {&pair->source, &pair->candidates[0]};
    double *shares = run->partners + slot * (run->scorer->layers + 1);
    uint32_t token = 0, found = 0;

    for (int s = 0; s < 2; s++) {
        uint32_t count = sides[s]->window_count;
        if (count > run->scorer->window) count = run->scorer->window;
        token++; /* its own */
        for (uint32_t i = 0; i < count; i++, token++) {
            if (sides[s]->window[i].peer != sides[1 - s]->node) continue;
            found++;
            for (uint32_t layer = 0; layer < run->scorer->layers; layer++)
                shares[layer] += (double)attention->received[layer * attention->tokens + token];
        }
    }
    shares[run->scorer->layers] = (double)found / attention->tokens;
}

static void score_item(void *context, uint32_t index, uint32_t thread)
{
    struct run *run = context;
    struct item *item = &run->items[index];
    struct scratch *scratch = &run->scratch[thread];
    const struct dl_scorer *scorer = run->scorer;
    double *negatives = run->scores + run->count;

    scorer->score(scorer->self, scratch->workspace, &item->query, scratch->scores, NULL);
    for (uint32_t i = 0; i < item->query.candidate_count; i++)
        if (!isfinite((double)scratch->scores[i])) atomic_store(&run->not_a_number, 1);
    double truth = (double)scratch->scores[0];
    run->scores[item->slot] = truth;
    for (uint32_t d = 0; d < run->options->draws; d++)
        if (item->negative_at[d] >= 0)
            negatives[d * run->count + item->slot] = (double)scratch->scores[item->negative_at[d]];
    if (item->ranked) {
        for (uint32_t c = 0; c < run->options->candidates; c++)
            scratch->ranked[c] = (double)scratch->scores[item->candidate_at[c]];
        run->ranks[item->slot] =
            dl_metrics_mid_rank(truth, scratch->ranked, run->options->candidates);
    }
    if (run->attention) {
        struct dl_query first = item->query; /* a view: the true destination alone */
        first.candidate_count = 1;
        struct dl_attention *attention = &run->attention[item->slot];
        attention->received = scratch->received;
        attention->token_capacity = 2 * (scorer->window + 1);
        scorer->score(scorer->self, scratch->workspace, &first, scratch->scores, attention);
        watch_partners(run, item->slot, &first, attention);
        attention->received = NULL;
    }
    for (uint32_t d = 0; d < run->options->draws; d++) {
        if (item->negative_at[d] >= 0) continue;
        scorer->score(scorer->self, scratch->workspace, &item->others[-1 - item->negative_at[d]],
                      scratch->scores, NULL);
        if (!isfinite((double)scratch->scores[0])) atomic_store(&run->not_a_number, 1);
        negatives[d * run->count + item->slot] = (double)scratch->scores[0];
    }
}

static int score_all(struct run *run, struct dl_error *error)
{
    int status = DL_OK;

    for (uint64_t begin = 0; begin < run->count; begin += BLOCK_ITEMS) {
        uint64_t left = run->count - begin;
        uint32_t size = left < BLOCK_ITEMS ? (uint32_t)left : BLOCK_ITEMS;
        for (uint32_t i = 0; i < size; i++) {
            status = dl_pass_seek(&run->pass, run->positions[begin + i], error);
            if (status != DL_OK) return status;
            status = build_item(run, &run->items[i], begin + i);
            if (status != DL_OK)
                return dl_error_set(error, status, "cannot build a query: %s",
                                    dl_status_name(status));
        }
        dl_parallel_run(run->parallel, size, score_item, run);
        if (atomic_load(&run->not_a_number))
            return dl_error_set(error, DL_ERR_INVALID,
                                "the model gave a score that is no finite number; train it again "
                                "with a lower --lr");
        dl_progress_advance(&run->options->progress, "scoring", begin + size, run->count, "events");
        if (dl_progress_cancelled(&run->options->progress))
            return dl_error_set(error, DL_ERR_CANCELLED, "stopped");
    }
    return status;
}

/* ---- summing up ----------------------------------------------------------------- */

static int sum_up(struct run *run, struct dl_evaluate_result *result)
{
    const struct dl_evaluate_options *options = run->options;
    double values[4][DL_EVALUATE_DRAWS_MAX];
    struct dl_spread *const spreads[4] = {&result->ap_pooled, &result->auc_pooled,
                                          &result->ap_batch_mean, &result->auc_batch_mean};

    for (uint32_t d = 0; d < options->draws; d++) {
        const double *negatives = run->scores + (d + 1) * run->count;
        int status = dl_metrics_ranking(run->scores, run->count, negatives, run->count,
                                        &values[0][d], &values[1][d]);
        if (status == DL_OK)
            status = dl_metrics_batches(run->scores, negatives, run->count, DL_NEGATIVES_BATCH,
                                        &values[2][d], &values[3][d]);
        if (status != DL_OK) return status;
    }
    for (int v = 0; v < 4; v++)
        dl_metrics_spread(values[v], options->draws, &spreads[v]->mean, &spreads[v]->sd);

    double reciprocal = 0, hits = 0;
    for (uint64_t slot = 0; slot < run->count; slot++) {
        if (run->ranks[slot] == 0) continue;
        result->ranked++;
        reciprocal += 1 / run->ranks[slot];
        hits += run->ranks[slot] <= 10;
    }
    result->mrr = result->ranked ? reciprocal / (double)result->ranked : NAN;
    result->hits_at_10 = result->ranked ? hits / (double)result->ranked : NAN;

    const struct dl_calibration *calibration = run->scorer->calibration;
    result->calibrated = calibration != NULL;
    for (uint64_t i = 0; calibration && i < 2 * run->count; i++)
        dl_metrics_reliability_add(&result->reliability,
                                   dl_calibration_probability(calibration, run->scores[i]),
                                   i < run->count);
    result->ece = dl_metrics_ece(&result->reliability);

    result->layers = run->attention ? run->scorer->layers : 0;
    for (uint32_t layer = 0; layer < result->layers; layer++) {
        for (uint64_t slot = 0; slot < run->count; slot++) {
            result->entropy[layer] += run->attention[slot].entropy[layer] / (double)run->count;
            result->top5_share[layer] +=
                run->attention[slot].top5_share[layer] / (double)run->count;
        }
    }
    for (uint64_t slot = 0; slot < run->count && run->partners; slot++) {
        const double *shares = run->partners + slot * (result->layers + 1);
        if (!(shares[result->layers] > 0)) continue;
        result->partners++;
        result->partner_uniform += shares[result->layers];
        for (uint32_t layer = 0; layer < result->layers; layer++)
            result->partner_share[layer] += shares[layer];
    }
    if (result->partners) result->partner_uniform /= (double)result->partners;
    for (uint32_t layer = 0; layer < result->layers && result->partners; layer++)
        result->partner_share[layer] /= (double)result->partners;
    return dl_bound_compute(&run->pass, &run->pairs, options->ties, run->positions, run->count,
                            run->negatives, options->draws, &result->bound);
}

/* ---- set-up and end ---------------------------------------------------------------- */

static int allocate(struct run *run)
{
    const struct dl_evaluate_options *options = run->options;
    uint32_t threads = dl_parallel_threads(run->parallel);
    uint32_t scores_max = 1 + options->draws + options->candidates;

    run->scores = calloc((1 + (uint64_t)options->draws) * run->count, sizeof *run->scores);
    run->ranks = calloc(run->count, sizeof *run->ranks);
    run->place = calloc(run->dataset->node_count, sizeof *run->place);
    run->stamp = calloc(run->dataset->node_count, sizeof *run->stamp);
    run->scratch = calloc(threads, sizeof *run->scratch);
    if (run->scorer->layers) {
        run->attention = calloc(run->count, sizeof *run->attention);
        run->partners =
            calloc(run->count, (run->scorer->layers + (size_t)1) * sizeof *run->partners);
    }
    if (!run->scores || !run->ranks || !run->place || !run->stamp || !run->scratch ||
        (run->scorer->layers && (!run->attention || !run->partners)))
        return DL_ERR_NOMEM;
    for (uint32_t t = 0; t < threads; t++) {
        struct scratch *scratch = &run->scratch[t];
        scratch->scores = malloc(scores_max * sizeof *scratch->scores);
        scratch->ranked = malloc(scores_max * sizeof *scratch->ranked);
        scratch->received = calloc((run->scorer->layers + (size_t)1) * 2,
                                   (run->scorer->window + (size_t)1) * sizeof *scratch->received);
        if (!scratch->scores || !scratch->ranked || !scratch->received) return DL_ERR_NOMEM;
        if (run->scorer->workspace_new &&
            run->scorer->workspace_new(run->scorer->self, &scratch->workspace) != DL_OK)
            return DL_ERR_NOMEM;
    }
    for (int i = 0; i < BLOCK_ITEMS; i++) {
        struct item *item = &run->items[i];
        item->others = calloc(options->draws, sizeof *item->others);
        item->negative_at = calloc(options->draws, sizeof *item->negative_at);
        item->candidate_at = calloc(options->candidates + 1, sizeof *item->candidate_at);
        if (!item->others || !item->negative_at || !item->candidate_at) return DL_ERR_NOMEM;
    }
    return DL_OK;
}

static void release(struct run *run)
{
    for (int i = 0; i < BLOCK_ITEMS; i++) {
        struct item *item = &run->items[i];
        dl_query_deinit(&item->query);
        for (uint32_t d = 0; item->others && d < run->options->draws; d++)
            dl_query_deinit(&item->others[d]);
        free(item->others);
        free(item->negative_at);
        free(item->candidate_at);
    }
    for (uint32_t t = 0; run->scratch && t < dl_parallel_threads(run->parallel); t++) {
        if (run->scratch[t].workspace) run->scorer->workspace_free(run->scratch[t].workspace);
        free(run->scratch[t].scores);
        free(run->scratch[t].ranked);
        free(run->scratch[t].received);
    }
    free(run->scratch);
    dl_parallel_free(run->parallel);
    dl_pass_deinit(&run->pass);
    dl_pairs_deinit(&run->pairs);
    free(run->positions);
    free(run->negatives);
    free(run->scores);
    free(run->ranks);
    free(run->attention);
    free(run->partners);
    free(run->place);
    free(run->stamp);
    free(run);
}

static int check_options(const struct dl_evaluate_options *options, struct dl_error *error)
{
    if (options->draws < 1 || options->draws > DL_EVALUATE_DRAWS_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "%u draws; give 1 to %d", options->draws,
                            DL_EVALUATE_DRAWS_MAX);
    if (options->candidates > DL_EVALUATE_CANDIDATES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "%u candidates; give at most %d",
                            options->candidates, DL_EVALUATE_CANDIDATES_MAX);
    if (options->only_seen && options->ties != DL_TIES_STREAM)
        return dl_error_set(error, DL_ERR_INVALID,
                            "destinations seen so far depend on the order of events: use it with "
                            "the stream tie policy");
    return DL_OK;
}

int dl_evaluate_run(const struct dl_dataset *dataset, const struct dl_scorer *scorer,
                    const struct dl_evaluate_options *options, struct dl_evaluate_result *result,
                    struct dl_error *error)
{
    int64_t started_ns = dl_clock_monotonic_ns();
    struct run *run;
    int status = check_options(options, error);

    if (status != DL_OK) return status;
    memset(result, 0, sizeof *result);
    if (!(run = calloc(1, sizeof *run))) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    run->dataset = dataset;
    run->scorer = scorer;
    run->options = options;
    if ((status = dl_split_make(dataset, &run->split, error)) != DL_OK) goto done;
    status = dl_pass_init(&run->pass, dataset, options->ties, options->seed, scorer->window, error);
    if (status != DL_OK) goto done;
    if (dl_pairs_init(&run->pairs, dataset) != DL_OK) goto no_memory;
    run->draws = (struct dl_negatives){.dataset = dataset,
                                       .pairs = &run->pairs,
                                       .seed = options->seed,
                                       .train_end = run->split.end[DL_SPLIT_TRAIN],
                                       .pool_end = dataset->event_count,
                                       .only_seen = options->only_seen};
    if ((status = choose_positions(run, error)) != DL_OK) goto done;
    if ((status = draw_negatives(run, result, error)) != DL_OK) goto done;
    if (dl_parallel_new(options->threads, &run->parallel) != DL_OK) {
        status =
            dl_error_set(error, DL_ERR_UNAVAILABLE, "cannot start %u threads", options->threads);
        goto done;
    }
    if (allocate(run) != DL_OK) goto no_memory;
    if ((status = score_all(run, error)) != DL_OK) goto done;
    if (sum_up(run, result) != DL_OK) goto no_memory;
    result->pairs = run->pair_count;
    result->seconds = (double)(dl_clock_monotonic_ns() - started_ns) * 1e-9;
    goto done;
no_memory:
    status = dl_error_set(error, DL_ERR_NOMEM, "out of memory");
done:
    release(run);
    return status;
}
