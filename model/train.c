/* Training.
 *
 * Determinism over threads: a step's samples are cut into CHUNKS parts by their
 * place alone. Each part has a gradient block of its own, whoever computes it,
 * and the blocks are added up in order. */
#include "model/train.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/query.h"
#include "base/rng.h"
#include "model/calibration.h"
#include "model/drift_features.h"
#include "model/evaluate.h"
#include "model/metrics.h"
#include "model/negatives.h"
#include "model/optimizer.h"
#include "model/parallel.h"

#define CHUNKS 8
#define MEASURED_EVENTS 3000 /* ranked among 20 for the figures in the model file */
#define AP_TOLERANCE 0.002   /* the standard error on 10,000 events is about 0.003 */

/* Streams that keep the draws of different uses apart. */
#define STREAM_WEIGHTS UINT64_C(0x77656967687473)
#define STREAM_SAMPLE UINT64_C(0x73616d706c65)
#define STREAM_ORDER UINT64_C(0x6f72646572)
#define STREAM_NEGATIVE UINT64_C(0x6e65676174697665)
#define STREAM_KIND UINT64_C(0x6b696e64)
#define STREAM_DROPOUT UINT64_C(0x64726f706f7574)
#define STREAM_VALIDATION UINT64_C(0x76616c6964617465)

const struct dl_train_options dl_train_options_default = {
    .ties = DL_TIES_STREAM,
    .historical_share = 0.1,
    .epochs = 20,
    .positives = 8000,
    .batch = 100,
    .rate = 2e-3,
    .weight_decay = 0.01,
    .clip_norm = 1,
    .rate_floor = 0.1,
    .warmup_steps = 20,
    .averaging = 0.99,
    .patience = 10,
    .validation_events = 10000,
};

/* A true edge and its negative: in one query where they share the source, else
 * in two. */
struct sample {
    struct dl_query queries[2];
    uint32_t query_count;
};

struct trainer {
    const struct dl_dataset *dataset;
    const struct dl_train_options *options;
    struct dl_split split;
    struct dl_pairs pairs;
    uint8_t *held_out; /* (node_count) or NULL */
    struct dl_network *network;
    struct dl_adamw *adamw;
    struct dl_parallel *parallel;
    struct dl_workspace **workspaces; /* (threads) */
    uint64_t parameter_count;
    dl_real *gradients; /* (CHUNKS, parameter_count) */
    dl_real *average;   /* (parameter_count): running mean of the weights */
    dl_real *best;      /* (parameter_count) */
    dl_real *learning;  /* (parameter_count): the weights set aside while the mean is measured */
    uint64_t averaged;  /* steps in the mean */
    uint64_t *positions;
    struct sample *samples; /* (positives) */
    uint32_t *order;        /* (positives) */
    struct sample *validation;
    uint32_t validation_count;
    double *validation_scores; /* (2, validation_count): true edges, negatives */
    /* the step at work */
    uint32_t step_begin, step_size;
    uint64_t step_seed;
    double chunk_loss[CHUNKS];
    uint64_t pairs_done;
    double step_seconds;
};

/* ---- samples -------------------------------------------------------------------- */

/* Chooses `wanted` of the positions in [begin, end), each set equally likely, in
 * order (Knuth's algorithm S). Positions that touch held-out nodes are none. */
static uint32_t choose(struct trainer *trainer, const struct dl_pass *pass, uint64_t begin,
                       uint64_t end, uint32_t wanted, uint64_t seed)
{
    struct dl_rng rng;
    uint64_t left = 0;
    uint32_t chosen = 0;

    dl_rng_seed(&rng, seed);
    for (int counting = 1; counting >= 0; counting--) {
        for (uint64_t position = begin; position < end; position++) {
            const struct dl_event *event = &trainer->dataset->events[dl_pass_event(pass, position)];
            if (trainer->held_out &&
                (trainer->held_out[event->src] || trainer->held_out[event->dst]))
                continue;
            if (counting) {
                left++;
                continue;
            }
            if (dl_rng_below(&rng, left--) >= wanted - chosen) continue;
            trainer->positions[chosen++] = position;
            if (chosen == wanted) return chosen;
        }
        if (wanted > left) wanted = (uint32_t)left;
        if (wanted == 0) return 0;
    }
    return chosen;
}

static int take_sample(struct trainer *trainer, struct sample *sample, const struct dl_pass *pass,
                       const struct dl_event *event, struct dl_edge negative)
{
    uint32_t window = trainer->options->network.window;
    struct dl_query *query = &sample->queries[0];

    sample->query_count = 1;
    int status = dl_query_begin(query, pass->graph, window, event->src, event->time);
    if (status == DL_OK) status = dl_query_add(query, pass->graph, event->dst);
    if (status == DL_OK && negative.src != event->src) {
        query = &sample->queries[1];
        sample->query_count = 2;
        status = dl_query_begin(query, pass->graph, window, negative.src, event->time);
    }
    if (status == DL_OK) status = dl_query_add(query, pass->graph, negative.dst);
    return status;
}

/* One pass that fills `samples` from trainer->positions. */
static int collect(struct trainer *trainer, struct dl_pass *pass, uint32_t count, uint64_t seed,
                   double historical_share, uint64_t pool_end, struct sample *samples,
                   struct dl_error *error)
{
    struct dl_negatives draws = {.dataset = trainer->dataset,
                                 .pairs = &trainer->pairs,
                                 .seed = seed,
                                 .train_end = trainer->split.end[DL_SPLIT_TRAIN],
                                 .pool_end = pool_end};

    for (uint32_t i = 0; i < count; i++) {
        int status = dl_pass_seek(pass, trainer->positions[i], error);
        if (status != DL_OK) return status;
        uint64_t event = dl_pass_event(pass, trainer->positions[i]);
        double kind = (double)(dl_draw64(seed ^ STREAM_KIND, event, 0) >> 11) * 0x1p-53;
        struct dl_edge negative =
            kind < historical_share
                ? dl_negatives_past_draw(&draws, event, 0)
                : dl_negatives_draw(&draws, DL_NEGATIVES_RANDOM, event, 0, 0, 0);
        status =
            take_sample(trainer, &samples[i], pass, &trainer->dataset->events[event], negative);
        if (status != DL_OK) return dl_error_set(error, status, "out of memory");
        if (i % 256 == 0 && dl_progress_cancelled(&trainer->options->progress))
            return dl_error_set(error, DL_ERR_CANCELLED, "stopped");
    }
    return DL_OK;
}

static int start_pass(struct trainer *trainer, uint64_t seed, struct dl_pass *pass,
                      struct dl_error *error)
{
    int status = dl_pass_init(pass, trainer->dataset, trainer->options->ties, seed,
                              trainer->options->network.window, error);
    if (status == DL_OK) pass->left_out = trainer->held_out;
    return status;
}

/* Columns are read by the first epoch's samples. */
static int fit_reading(struct trainer *trainer, uint32_t count)
{
    const struct dl_query **queries = malloc(2 * (uint64_t)count * sizeof *queries);
    uint32_t query_count = 0;

    if (!queries) return DL_ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t q = 0; q < trainer->samples[i].query_count; q++)
            queries[query_count++] = &trainer->samples[i].queries[q];
    int status = dl_network_fit_reading(trainer->network, queries, query_count);
    free(queries);
    return status;
}

static int collect_training(struct trainer *trainer, uint32_t epoch, uint32_t *count,
                            struct dl_error *error)
{
    const struct dl_dataset *dataset = trainer->dataset;
    uint64_t seed = trainer->options->seed, begin = 0, end = trainer->split.end[DL_SPLIT_TRAIN];
    struct dl_pass pass;

    /* Nothing came before the first snapshot, so there is nothing to learn. */
    while (begin < end && dataset->events[begin].time == dataset->events[0].time) begin++;
    if (begin == end) begin = 0;
    int status = start_pass(trainer, dl_draw64(seed ^ STREAM_ORDER, epoch, 1), &pass, error);
    if (status != DL_OK) return status;
    *count = choose(trainer, &pass, begin, end, trainer->options->positives,
                    dl_draw64(seed ^ STREAM_SAMPLE, epoch, 0));
    status = *count ? collect(trainer, &pass, *count, dl_draw64(seed ^ STREAM_NEGATIVE, epoch, 0),
                              trainer->options->historical_share, end, trainer->samples, error)
                    : dl_error_set(error, DL_ERR_INVALID,
                                   "%s: no event to learn from: all touch held-out nodes",
                                   dataset->path);
    dl_pass_deinit(&pass);
    if (status == DL_OK && epoch == 0 && (status = fit_reading(trainer, *count)) != DL_OK)
        dl_error_set(error, status, "out of memory");
    return status;
}

static int collect_validation(struct trainer *trainer, struct dl_error *error)
{
    uint64_t seed = trainer->options->seed ^ STREAM_VALIDATION;
    struct dl_pass pass;

    int status = start_pass(trainer, seed, &pass, error);
    if (status != DL_OK) return status;
    trainer->validation_count =
        choose(trainer, &pass, trainer->split.begin[DL_SPLIT_VALIDATION],
               trainer->split.end[DL_SPLIT_VALIDATION], trainer->options->validation_events, seed);
    status = trainer->validation_count
                 ? collect(trainer, &pass, trainer->validation_count, seed, 0,
                           trainer->dataset->event_count, trainer->validation, error)
                 : dl_error_set(error, DL_ERR_INVALID,
                                "%s: the validation part has no event between nodes that were not "
                                "held out",
                                trainer->dataset->path);
    dl_pass_deinit(&pass);
    return status;
}

/* ---- learning ---------------------------------------------------------------------- */

static const float label_both[2] = {1, 0};
static const float label_negative[1] = {0};

static void train_chunk(void *context, uint32_t chunk, uint32_t thread)
{
    struct trainer *trainer = context;
    uint32_t begin = (uint32_t)((uint64_t)trainer->step_size * chunk / CHUNKS);
    uint32_t end = (uint32_t)((uint64_t)trainer->step_size * (chunk + 1) / CHUNKS);
    dl_real *gradients = trainer->gradients + chunk * trainer->parameter_count;
    const struct dl_query *queries[2 * (DL_TRAIN_BATCH_MAX / CHUNKS + 1)];
    const float *labels[2 * (DL_TRAIN_BATCH_MAX / CHUNKS + 1)];
    uint32_t count = 0;

    memset(gradients, 0, trainer->parameter_count * sizeof *gradients);
    for (uint32_t i = begin; i < end; i++) {
        const struct sample *sample = &trainer->samples[trainer->order[trainer->step_begin + i]];
        /* A query of one candidate holds the true edge: the first of the labels. */
        queries[count] = &sample->queries[0];
        labels[count++] = label_both;
        if (sample->query_count == 1) continue;
        queries[count] = &sample->queries[1];
        labels[count++] = label_negative;
    }
    trainer->chunk_loss[chunk] =
        dl_network_train(trainer->network, trainer->workspaces[thread], queries, labels, count,
                         (dl_real)(0.5 / trainer->step_size),
                         dl_draw64(trainer->step_seed, chunk, 0) | 1, gradients);
}

/* Takes the new weights into the running mean (Polyak and Juditsky 1992), which
 * is steadier than the last ones: a mean of all steps at first, then one that
 * forgets. */
static void average_step(struct trainer *trainer)
{
    const dl_real *values = dl_network_values(trainer->network);
    double keep = 1 - 1 / (double)++trainer->averaged;
    if (keep > trainer->options->averaging) keep = trainer->options->averaging;
    dl_real weight = (dl_real)(1 - keep);

    for (uint64_t p = 0; p < trainer->parameter_count; p++)
        trainer->average[p] += weight * (values[p] - trainer->average[p]);
    dl_network_updated(trainer->network); /* asking for the values counts as a change */
}

static void put_weights(struct trainer *trainer, const dl_real *values)
{
    memcpy(dl_network_values(trainer->network), values, trainer->parameter_count * sizeof *values);
    dl_network_updated(trainer->network);
}

/* Learns from the collected samples once, in random order. */
static int run_epoch(struct trainer *trainer, uint32_t epoch, uint32_t count, double *loss,
                     struct dl_error *error)
{
    const struct dl_train_options *options = trainer->options;
    uint64_t steps_an_epoch = (count + options->batch - 1) / options->batch;
    uint64_t step = (uint64_t)epoch * steps_an_epoch, steps = options->epochs * steps_an_epoch;
    struct dl_rng rng;
    char stage[40];

    snprintf(stage, sizeof stage, "epoch %u of %u", epoch + 1, options->epochs);
    dl_rng_seed(&rng, dl_draw64(options->seed ^ STREAM_ORDER, epoch, 0));
    for (uint32_t i = 0; i < count; i++) trainer->order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)dl_rng_below(&rng, i), kept = trainer->order[other];
        trainer->order[other] = trainer->order[i - 1];
        trainer->order[i - 1] = kept;
    }
    *loss = 0;
    for (uint32_t begin = 0; begin < count; begin += options->batch, step++) {
        int64_t started_ns = dl_clock_monotonic_ns();
        trainer->step_begin = begin;
        trainer->step_size = count - begin < options->batch ? count - begin : options->batch;
        trainer->step_seed = dl_draw64(options->seed ^ STREAM_DROPOUT, step, 0);
        dl_parallel_run(trainer->parallel, CHUNKS, train_chunk, trainer);
        double step_loss = trainer->chunk_loss[0];
        for (uint32_t chunk = 1; chunk < CHUNKS; chunk++) {
            const dl_real *from = trainer->gradients + chunk * trainer->parameter_count;
            for (uint64_t p = 0; p < trainer->parameter_count; p++)
                trainer->gradients[p] += from[p];
            step_loss += trainer->chunk_loss[chunk];
        }
        double norm = dl_adamw_step(trainer->adamw, trainer->network, trainer->gradients,
                                    dl_schedule_cosine(step, steps, options->warmup_steps,
                                                       options->rate, options->rate_floor),
                                    options->weight_decay, options->clip_norm);
        if (!isfinite(norm) || !isfinite(step_loss))
            return dl_error_set(error, DL_ERR_INVALID,
                                "the loss is no finite number at step %llu; train with a lower "
                                "--lr",
                                (unsigned long long)step + 1);
        average_step(trainer);
        *loss += step_loss * trainer->step_size / count;
        trainer->pairs_done += 2 * (uint64_t)trainer->step_size;
        trainer->step_seconds += (double)(dl_clock_monotonic_ns() - started_ns) * 1e-9;
        dl_progress_advance(&options->progress, stage, 2 * ((uint64_t)begin + trainer->step_size),
                            2 * (uint64_t)count, "pairs");
        if (dl_progress_cancelled(&options->progress))
            return dl_error_set(error, DL_ERR_CANCELLED, "stopped");
    }
    return DL_OK;
}

/* ---- validation ---------------------------------------------------------------------- */

static void score_validation(void *context, uint32_t index, uint32_t thread)
{
    struct trainer *trainer = context;
    const struct sample *sample = &trainer->validation[index];
    dl_real scores[2];

    dl_network_score(trainer->network, trainer->workspaces[thread], &sample->queries[0], scores,
                     NULL);
    if (sample->query_count == 2)
        dl_network_score(trainer->network, trainer->workspaces[thread], &sample->queries[1],
                         scores + 1, NULL);
    trainer->validation_scores[index] = (double)scores[0];
    trainer->validation_scores[trainer->validation_count + index] = (double)scores[1];
}

struct validation {
    double ap, auc;
    double loss; /* mean binary cross-entropy */
};

static double cross_entropy(double logit, int label)
{
    double z = label ? -logit : logit;
    return z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
}

static int validate(struct trainer *trainer, struct validation *validation)
{
    uint32_t count = trainer->validation_count;

    dl_parallel_run(trainer->parallel, count, score_validation, trainer);
    validation->loss = 0;
    for (uint32_t i = 0; i < 2 * count; i++)
        validation->loss += cross_entropy(trainer->validation_scores[i], i < count) / (2 * count);
    return dl_metrics_ranking(trainer->validation_scores, count, trainer->validation_scores + count,
                              count, &validation->ap, &validation->auc);
}

/* A higher AP is better; within the noise of a sample the lower loss decides,
 * or an early epoch is kept for a lucky order. */
static int is_better(const struct validation *new, const struct validation *best, double best_ap)
{
    if (new->ap > best_ap + AP_TOLERANCE) return 1;
    return new->ap >= best_ap - AP_TOLERANCE &&new->loss < best->loss;
}

/* ---- all of it ---------------------------------------------------------------------------- */

static int run_epochs(struct trainer *trainer, struct dl_model_info *info,
                      struct dl_train_report *report, struct dl_error *error)
{
    const struct dl_train_options *options = trainer->options;
    struct validation now, best = {.loss = INFINITY};
    double best_ap = -1; /* the highest; not always that of the best */

    for (uint32_t epoch = 0; epoch < options->epochs; epoch++) {
        int64_t started_ns = dl_clock_monotonic_ns();
        uint32_t count;
        int status = collect_training(trainer, epoch, &count, error);
        if (status == DL_OK) status = run_epoch(trainer, epoch, count, &report->loss, error);
        if (status != DL_OK) return status;
        memcpy(trainer->learning, dl_network_values(trainer->network),
               trainer->parameter_count * sizeof *trainer->learning);
        put_weights(trainer, trainer->average);
        status = validate(trainer, &now);
        put_weights(trainer, trainer->learning);
        if (status != DL_OK) return dl_error_set(error, status, "out of memory");
        double seconds = (double)(dl_clock_monotonic_ns() - started_ns) * 1e-9;
        dl_progress_note(&options->progress,
                         "epoch %u of %u: loss %.4f, validation AP %.4f, AUC %.4f, loss %.4f, "
                         "%.1f s, %.0f pairs/s%s",
                         epoch + 1, options->epochs, report->loss, now.ap, now.auc, now.loss,
                         seconds, 2 * count / seconds,
                         is_better(&now, &best, best_ap) ? " (best so far)" : "");
        report->epochs = epoch + 1;
        int better = is_better(&now, &best, best_ap);
        if (now.ap > best_ap) best_ap = now.ap;
        if (better) {
            best = now;
            report->best_epoch = epoch + 1;
            memcpy(trainer->best, trainer->average,
                   trainer->parameter_count * sizeof *trainer->best);
        } else if (epoch + 1 - report->best_epoch >= options->patience) {
            dl_progress_note(&options->progress, "nothing better for %u epochs: stopping",
                             options->patience);
            break;
        }
    }
    put_weights(trainer, trainer->best);
    if (validate(trainer, &best) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    info->validation_ap = best.ap;
    info->validation_auc = best.auc;
    dl_calibration_fit(trainer->validation_scores, trainer->validation_count,
                       trainer->validation_scores + trainer->validation_count,
                       trainer->validation_count, &info->calibration);
    return DL_OK;
}

/* What the model file says about quality, by the very code of `evaluate`. */
static int measure(struct trainer *trainer, struct dl_model_info *info, struct dl_error *error)
{
    struct dl_evaluate_options options = dl_evaluate_options_default;
    struct dl_evaluate_result result;
    struct dl_scorer scorer = dl_scorer_network(trainer->network, &info->calibration);

    options.ties = trainer->options->ties;
    options.part = DL_SPLIT_VALIDATION;
    options.seed = trainer->options->seed;
    options.draws = 1;
    options.limit = trainer->options->validation_events < MEASURED_EVENTS
                        ? trainer->options->validation_events
                        : MEASURED_EVENTS;
    options.candidates = 20;
    options.threads = trainer->options->threads;
    options.progress.context = trainer->options->progress.context;
    options.progress.cancelled = trainer->options->progress.cancelled;
    int status = dl_evaluate_run(trainer->dataset, &scorer, &options, &result, error);
    if (status != DL_OK) return status;
    info->validation_mrr = result.mrr;
    info->validation_ece = result.ece;
    for (uint32_t layer = 0; layer < result.layers; layer++)
        info->validation_entropy[layer] = result.entropy[layer];
    return DL_OK;
}

static int check_options(const struct dl_train_options *options, struct dl_error *error)
{
    if (options->epochs < 1 || options->epochs > DL_TRAIN_EPOCHS_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "%u epochs; give 1 to %d", options->epochs,
                            DL_TRAIN_EPOCHS_MAX);
    if (options->positives < 1 || options->positives > DL_TRAIN_POSITIVES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "%u positives an epoch; give 1 to %d",
                            options->positives, DL_TRAIN_POSITIVES_MAX);
    if (options->batch < 1 || options->batch > DL_TRAIN_BATCH_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "a batch of %u; give 1 to %d", options->batch,
                            DL_TRAIN_BATCH_MAX);
    if (!(options->rate > 0) || !(options->rate <= 1))
        return dl_error_set(error, DL_ERR_INVALID, "a learning rate of %g; give one in (0, 1]",
                            options->rate);
    if (options->validation_events < 1)
        return dl_error_set(error, DL_ERR_INVALID, "no validation events; give at least 1");
    return DL_OK;
}

static int prepare(struct trainer *trainer, struct dl_model_info *info, struct dl_error *error)
{
    const struct dl_train_options *options = trainer->options;
    uint64_t train_end = trainer->split.end[DL_SPLIT_TRAIN];
    uint32_t held_out_count, threads;

    info->config = options->network;
    info->config.feature_count = trainer->dataset->feature_count;
    info->config.arrival_age = options->ties != DL_TIES_STRICT;
    /* What is strictly past says less and less of snapshots to come: the simpler
     * reading carries over better (docs/EVALUATION.md). */
    if (options->ties == DL_TIES_STRICT) info->config.steps = 0;
    if (dl_pairs_init(&trainer->pairs, trainer->dataset) != DL_OK ||
        dl_dataset_encoding(trainer->dataset, train_end, &info->encoding) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    if (options->hold_out) {
        trainer->held_out = malloc(trainer->dataset->node_count);
        if (!trainer->held_out ||
            dl_split_hold_out(trainer->dataset, &trainer->split, options->seed, trainer->held_out,
                              &held_out_count) != DL_OK)
            return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        info->held_out_nodes = held_out_count;
    }
    int status =
        dl_network_new(&info->config, &info->encoding,
                       dl_draw64(options->seed ^ STREAM_WEIGHTS, 0, 0), &trainer->network, error);
    if (status != DL_OK) return status;
    info->config = *dl_network_get_config(trainer->network);
    if (dl_parallel_new(options->threads, &trainer->parallel) != DL_OK)
        return dl_error_set(error, DL_ERR_UNAVAILABLE, "cannot start %u threads", options->threads);
    threads = dl_parallel_threads(trainer->parallel);
    uint64_t positions = options->positives > options->validation_events
                             ? options->positives
                             : options->validation_events;
    trainer->parameter_count = dl_network_parameter_count(trainer->network);
    trainer->gradients = malloc(CHUNKS * trainer->parameter_count * sizeof *trainer->gradients);
    trainer->best = malloc(trainer->parameter_count * sizeof *trainer->best);
    trainer->learning = malloc(trainer->parameter_count * sizeof *trainer->learning);
    trainer->average = calloc(trainer->parameter_count, sizeof *trainer->average);
    trainer->positions = malloc(positions * sizeof *trainer->positions);
    trainer->samples = calloc(options->positives, sizeof *trainer->samples);
    trainer->order = malloc(options->positives * sizeof *trainer->order);
    trainer->validation = calloc(options->validation_events, sizeof *trainer->validation);
    trainer->validation_scores =
        malloc(2 * (uint64_t)options->validation_events * sizeof *trainer->validation_scores);
    trainer->workspaces = calloc(threads, sizeof *trainer->workspaces);
    if (!trainer->gradients || !trainer->best || !trainer->learning || !trainer->average ||
        !trainer->positions || !trainer->samples || !trainer->order || !trainer->validation ||
        !trainer->validation_scores || !trainer->workspaces ||
        dl_adamw_new(trainer->network, &trainer->adamw) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    for (uint32_t t = 0; t < threads; t++)
        if (dl_workspace_new(trainer->network, &trainer->workspaces[t]) != DL_OK)
            return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    return DL_OK;
}

static void free_samples(struct sample *samples, uint32_t count)
{
    for (uint32_t i = 0; samples && i < count; i++)
        for (int q = 0; q < 2; q++) dl_query_deinit(&samples[i].queries[q]);
    free(samples);
}

static void release(struct trainer *trainer)
{
    free_samples(trainer->samples, trainer->options->positives);
    free_samples(trainer->validation, trainer->options->validation_events);
    for (uint32_t t = 0; trainer->workspaces && t < dl_parallel_threads(trainer->parallel); t++)
        dl_workspace_free(trainer->workspaces[t]);
    free(trainer->workspaces);
    dl_parallel_free(trainer->parallel);
    dl_adamw_free(trainer->adamw);
    dl_network_free(trainer->network);
    dl_pairs_deinit(&trainer->pairs);
    free(trainer->held_out);
    free(trainer->gradients);
    free(trainer->best);
    free(trainer->learning);
    free(trainer->average);
    free(trainer->positions);
    free(trainer->order);
    free(trainer->validation_scores);
    free(trainer);
}

int dl_train_run(const struct dl_dataset *dataset, const struct dl_train_options *options,
                 struct dl_network **network, struct dl_model_info *info,
                 struct dl_train_report *report, struct dl_error *error)
{
    int64_t started_ns = dl_clock_monotonic_ns();
    struct trainer *trainer;
    int status = check_options(options, error);

    memset(info, 0, sizeof *info);
    memset(report, 0, sizeof *report);
    if (status != DL_OK) return status;
    if (!(trainer = calloc(1, sizeof *trainer)))
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    trainer->dataset = dataset;
    trainer->options = options;
    if ((status = dl_split_make(dataset, &trainer->split, error)) != DL_OK) goto done;
    if ((status = prepare(trainer, info, error)) != DL_OK) goto done;
    if ((status = collect_validation(trainer, error)) != DL_OK) goto done;
    if ((status = run_epochs(trainer, info, report, error)) != DL_OK) goto done;
    if ((status = measure(trainer, info, error)) != DL_OK) goto done;

    info->time_unit = dataset->time_unit;
    snprintf(info->ties, sizeof info->ties, "%s", dl_ties_name(options->ties));
    snprintf(info->negatives, sizeof info->negatives, "%s",
             options->historical_share > 0 ? "mixed" : "random");
    info->seed = options->seed;
    memcpy(info->data_hash, dataset->hash, sizeof info->data_hash);
    info->data_edges = dataset->event_count;
    info->data_nodes = dataset->node_count;
    info->data_timestamps = dataset->timestamp_count;
    info->trained_until = dataset->events[trainer->split.end[DL_SPLIT_TRAIN] - 1].time;
    info->epochs = report->epochs;
    report->seconds = info->train_seconds = (double)(dl_clock_monotonic_ns() - started_ns) * 1e-9;
    report->pairs = trainer->pairs_done;
    report->pairs_per_second =
        trainer->step_seconds > 0 ? (double)trainer->pairs_done / trainer->step_seconds : 0;
    *network = trainer->network;
    trainer->network = NULL;
done:
    release(trainer);
    return status;
}

int dl_train_reference(const struct dl_dataset *dataset, double gap, struct dl_reference *reference,
                       struct dl_error *error)
{
    struct dl_drift_builder *builder = NULL;
    struct dl_split split;
    struct dl_pass pass;
    float raw[DL_DRIFT_COLUMNS];

    int status = dl_split_make(dataset, &split, error);
    if (status != DL_OK) return status;
    /* A live feed is watched as it arrives, whatever the model was trained under. */
    status = dl_pass_init(&pass, dataset, DL_TIES_STREAM, 0, DL_DRIFT_WINDOW, error);
    if (status != DL_OK) return status;
    uint64_t count = split.end[DL_SPLIT_TRAIN];
    if ((status = dl_drift_builder_new(count, &builder)) != DL_OK) {
        dl_error_set(error, status, "out of memory");
        goto done;
    }
    for (uint64_t i = 0; i < count; i++) {
        if ((status = dl_pass_seek(&pass, i, error)) != DL_OK) goto done;
        dl_drift_features(pass.graph, &dataset->events[i], gap, dataset->time_unit, raw);
        dl_drift_builder_offer(builder, i, raw);
    }
    status = dl_drift_builder_finish(builder, reference, error);
done:
    dl_drift_builder_free(builder);
    dl_pass_deinit(&pass);
    return status;
}
