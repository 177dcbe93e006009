/* driftline evaluate: how good a model, or a baseline, is on a recorded feed. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/baseline_edgebank.h"
#include "model/evaluate.h"
#include "service/commands.h"
#include "service/flags.h"
#include "service/json_out.h"
#include "service/progress.h"

enum {
    MODEL = 1,
    TIES,
    NEGATIVES,
    SPLIT,
    SEED,
    DRAWS,
    CANDIDATES,
    LIMIT,
    DESTINATIONS,
    SETTING,
    NOISE,
    THREADS,
    JSON,
    HELP
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, MODEL},
    {"ties", required_argument, NULL, TIES},
    {"negatives", required_argument, NULL, NEGATIVES},
    {"split", required_argument, NULL, SPLIT},
    {"seed", required_argument, NULL, SEED},
    {"draws", required_argument, NULL, DRAWS},
    {"candidates", required_argument, NULL, CANDIDATES},
    {"limit", required_argument, NULL, LIMIT},
    {"destinations", required_argument, NULL, DESTINATIONS},
    {"setting", required_argument, NULL, SETTING},
    {"noise-neighbours", required_argument, NULL, NOISE},
    {"threads", required_argument, NULL, THREADS},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    DL_FLAGS_DATA,
    {NULL, 0, NULL, 0}};

struct arguments {
    const char *file, *model;
    int json, ties_given;
    struct dl_dataset_options data;
    struct dl_evaluate_options evaluate;
};

static void help(void)
{
    const struct dl_evaluate_options *d = &dl_evaluate_options_default;
    printf(
        "usage: driftline evaluate FILE --model MODEL [flags]\n"
        "\n"
        "Scores each event of a span against negatives, with its own past and no more, and\n"
        "prints average precision (AP), area under the ROC curve (AUC), the rank of the true\n"
        "destination (MRR, Hits@10), calibration, and the best AP that any scorer could reach.\n"
        "\n"
        "  driftline evaluate feed.csv --model feed.safetensors\n"
        "  driftline evaluate feed.csv --model edgebank --negatives historical\n"
        "\n"
        "  --model MODEL         a file that driftline train wrote, or a baseline that needs no\n"
        "                        training: edgebank (was this edge seen before?), pair-recency\n"
        "  --ties POLICY         what may be seen of events with the same time: stream (those "
        "that\n"
        "                        came before), shuffle (likewise, in random order), strict "
        "(none);\n"
        "                        default: what the model was trained under\n"
        "  --negatives KIND      random (default), historical, inductive or clean\n"
        "  --split PART          train, validation or test (default)\n"
        "  --draws N             negatives of each event; figures are means over them (%u).\n"
        "                        --draws 1 gives the negatives that live quality draws\n"
        "  --candidates N        clean destinations to rank the true one among (%u); 0: no "
        "ranking\n"
        "  --limit N             at most N events, spread evenly over the span\n"
        "  --destinations WHICH  negatives from all destinations of the file (default), or from\n"
        "                        those seen before the event, as a live feed has them\n"
        "  --setting S           transductive (default), or inductive: only edges of the nodes\n"
        "                        that train --hold-out kept out\n"
        "  --noise-neighbours N  puts N irrelevant neighbours into each window, to see what the\n"
        "                        model's attention does with them (0)\n"
        "  --seed N              of negatives and of the order under shuffle (0)\n"
        "  --threads N           (one for each processor); does not change the result\n"
        "  --json                print one JSON object instead of a report\n"
        "\n",
        d->draws, d->candidates);
    dl_flag_data_help(stdout);
}

/* ---- arguments ------------------------------------------------------------------- */

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    static const char *const ties[] = {"strict", "stream", "shuffle", NULL};
    static const char *const kinds[] = {"random", "historical", "inductive", "clean", NULL};
    static const char *const parts[] = {"train", "validation", "test", NULL};
    static const char *const settings[] = {"transductive", "inductive", NULL};
    static const char *const pools[] = {"all", "seen", NULL};
    struct dl_evaluate_options *e = &a->evaluate;
    uint64_t number = 0;
    int status = DL_OK, choice = 0;

    switch (code) {
    case MODEL:
        a->model = value;
        break;
    case JSON:
        a->json = 1;
        break;
    case TIES:
        status = dl_flag_choice("ties", value, ties, &choice, error);
        e->ties = (enum dl_ties)choice;
        a->ties_given = 1;
        break;
    case NEGATIVES:
        status = dl_flag_choice("negatives", value, kinds, &choice, error);
        e->negatives = (enum dl_negatives_kind)choice;
        break;
    case SPLIT:
        status = dl_flag_choice("split", value, parts, &choice, error);
        e->part = (enum dl_split_part)choice;
        break;
    case SETTING:
        return dl_flag_choice("setting", value, settings, &e->inductive, error);
    case DESTINATIONS:
        return dl_flag_choice("destinations", value, pools, &e->only_seen, error);
    case NOISE:
        status = dl_flag_uint("noise-neighbours", value, 0, DL_WINDOW_MAX, &number, error);
        e->noise_neighbours = (uint32_t)number;
        break;
    case SEED:
        return dl_flag_uint("seed", value, 0, UINT64_MAX, &e->seed, error);
    case LIMIT:
        return dl_flag_uint("limit", value, 1, UINT64_MAX, &e->limit, error);
    case DRAWS:
        status = dl_flag_uint("draws", value, 1, DL_EVALUATE_DRAWS_MAX, &number, error);
        e->draws = (uint32_t)number;
        break;
    case CANDIDATES:
        status = dl_flag_uint("candidates", value, 0, DL_EVALUATE_CANDIDATES_MAX, &number, error);
        e->candidates = (uint32_t)number;
        break;
    case THREADS:
        status = dl_flag_uint("threads", value, 1, 256, &number, error);
        e->threads = (uint32_t)number;
        break;
    default:
        return dl_flag_data(code, value, &a->data, error);
    }
    return status;
}

static int parse(int argc, char **argv, struct arguments *a, int *done)
{
    memset(a, 0, sizeof *a);
    a->evaluate = dl_evaluate_options_default;
    int flags = dl_flags_read("evaluate", argc, argv, long_options, help, take_flag, a);
    *done = flags == DL_FLAGS_HELPED;
    if (*done) return DL_EXIT_OK;
    if (flags == DL_FLAGS_WRONG) return DL_EXIT_USAGE;
    if (optind + 1 != argc || !a->model) {
        fprintf(stderr, "driftline evaluate: %s (--help shows how)\n",
                optind + 1 != argc
                    ? "name one file to measure on"
                    : "name the model with --model MODEL, or a baseline: edgebank, pair-recency");
        return DL_EXIT_USAGE;
    }
    a->file = argv[optind];
    return DL_EXIT_OK;
}

/* ---- reports ---------------------------------------------------------------------- */

struct report {
    const struct dl_dataset *dataset;
    const struct dl_scorer *scorer;
    const struct dl_model_info *info; /* NULL for a baseline */
    const struct dl_evaluate_options *options;
    const struct dl_evaluate_result *result;
};

static void report_text(const struct report *r)
{
    const struct dl_evaluate_options *o = r->options;
    const struct dl_evaluate_result *x = r->result;

    printf("data         %s: %" PRIu64 " edges, %u nodes, %u timestamps, SHA-256 %s\n",
           r->dataset->path, r->dataset->event_count, r->dataset->node_count,
           r->dataset->timestamp_count, r->dataset->hash);
    if (r->info)
        printf("model        %s with %s attention, %" PRIu64
               " parameters, version %s, trained under %s%s\n",
               r->info->config.architecture,
               r->info->config.differential ? "differential" : "softmax", r->info->parameters,
               r->info->version, r->info->ties,
               strcmp(r->info->data_hash, r->dataset->hash) == 0 ? "" : " on other data");
    else
        printf("model        %s (nothing trained)\n", r->scorer->name);
    printf("protocol     ties %s, %s negatives, %s span, %s, seed %" PRIu64 ", %u draws\n",
           dl_ties_name(o->ties), dl_negatives_name(o->negatives), dl_split_part_name(o->part),
           o->inductive ? "inductive" : "transductive", o->seed, o->draws);
    printf("scored       %" PRIu64 " true edges; %.1f %% of the negatives are true edges at their "
           "time\n",
           x->scored, 100 * x->collisions);
    if (x->left_out)
        printf("left out     %" PRIu64 " edges without such a negative\n", x->left_out);
    printf("\n             batch mean (of %d)     pooled\n", DL_NEGATIVES_BATCH);
    printf("AP           %.4f (sd %.4f)       %.4f (sd %.4f)\n", x->ap_batch_mean.mean,
           x->ap_batch_mean.sd, x->ap_pooled.mean, x->ap_pooled.sd);
    printf("AUC          %.4f (sd %.4f)       %.4f (sd %.4f)\n", x->auc_batch_mean.mean,
           x->auc_batch_mean.sd, x->auc_pooled.mean, x->auc_pooled.sd);
    printf("bound        %.4f (edge oracle)    %.4f (no scorer is better)\n",
           x->bound.edge_oracle_batch_mean, x->bound.ap_pooled);
    if (x->ranked)
        printf("ranking      MRR %.4f, Hits@10 %.4f among %u clean destinations\n", x->mrr,
               x->hits_at_10, o->candidates);
    if (x->calibrated) {
        printf("\ncalibration  expected error %.4f (true edges and one negative each)\n", x->ece);
        printf("             predicted   came true   pairs\n");
        for (int i = 0; i < DL_RELIABILITY_BINS; i++) {
            uint64_t count = x->reliability.bins[i].count;
            if (count == 0) continue;
            printf("             %.3f       %.3f       %" PRIu64 "\n",
                   x->reliability.bins[i].probability_sum / (double)count,
                   (double)x->reliability.bins[i].positives / (double)count, count);
        }
    }
    if (x->layers) {
        printf("attention    entropy by layer (1 = uniform):");
        for (uint32_t l = 0; l < x->layers; l++) printf(" %.3f", x->entropy[l]);
        printf("; share of the top 5 %%:");
        for (uint32_t l = 0; l < x->layers; l++) printf(" %.3f", x->top5_share[l]);
        printf("\n");
        if (x->partners) {
            printf("             on tokens that name the other endpoint, by layer:");
            for (uint32_t l = 0; l < x->layers; l++) printf(" %.3f", x->partner_share[l]);
            printf(" (uniform: %.3f; %" PRIu64 " edges have any)\n", x->partner_uniform,
                   x->partners);
        }
    }
    printf("speed        %" PRIu64 " pairs in %.1f s, %.0f pairs/s\n", x->pairs, x->seconds,
           (double)x->pairs / x->seconds);
}

static void spread_json(struct dl_json *json, const char *key, const struct dl_spread *pooled,
                        const struct dl_spread *batch_mean)
{
    dl_json_key(json, key);
    dl_json_open(json, '{');
    dl_json_key_number(json, "pooled", pooled->mean);
    dl_json_key_number(json, "pooled_sd", pooled->sd);
    dl_json_key_number(json, "batch_mean", batch_mean->mean);
    dl_json_key_number(json, "batch_mean_sd", batch_mean->sd);
    dl_json_close(json, '}');
}

static void data_json(struct dl_json *json, const struct report *r)
{
    dl_json_key(json, "data");
    dl_json_open(json, '{');
    dl_json_key_text(json, "file", r->dataset->path);
    dl_json_key_text(json, "hash", r->dataset->hash);
    dl_json_key_uint(json, "edges", r->dataset->event_count);
    dl_json_key_uint(json, "nodes", r->dataset->node_count);
    dl_json_key_uint(json, "timestamps", r->dataset->timestamp_count);
    dl_json_close(json, '}');
    dl_json_key(json, "model");
    dl_json_open(json, '{');
    dl_json_key_text(json, "architecture", r->scorer->name);
    dl_json_key(json, "hash");
    if (r->info)
        dl_json_text(json, r->info->version);
    else
        dl_json_null(json);
    dl_json_key_uint(json, "parameters", r->info ? r->info->parameters : 0);
    dl_json_close(json, '}');
    dl_json_key(json, "protocol");
    dl_json_open(json, '{');
    dl_json_key_text(json, "ties", dl_ties_name(r->options->ties));
    dl_json_key_text(json, "negatives", dl_negatives_name(r->options->negatives));
    dl_json_key_text(json, "split", dl_split_part_name(r->options->part));
    dl_json_key_uint(json, "seed", r->options->seed);
    dl_json_key_uint(json, "draws", r->options->draws);
    dl_json_key_text(json, "setting", r->options->inductive ? "inductive" : "transductive");
    dl_json_key_text(json, "destinations", r->options->only_seen ? "seen" : "all");
    dl_json_key_uint(json, "noise_neighbours", r->options->noise_neighbours);
    dl_json_key_uint(json, "batch", DL_NEGATIVES_BATCH);
    dl_json_close(json, '}');
}

static void report_json(const struct report *r)
{
    const struct dl_evaluate_result *x = r->result;
    struct dl_buf buf = {0};
    struct dl_json json = dl_json_of(&buf);

    dl_json_open(&json, '{');
    data_json(&json, r);
    dl_json_key_uint(&json, "scored", x->scored);
    dl_json_key_number(&json, "collisions", x->collisions);
    spread_json(&json, "ap", &x->ap_pooled, &x->ap_batch_mean);
    spread_json(&json, "auc", &x->auc_pooled, &x->auc_batch_mean);
    dl_json_key_number(&json, "mrr", x->mrr);
    dl_json_key_number(&json, "hits_at_10", x->hits_at_10);
    dl_json_key(&json, "bound");
    dl_json_open(&json, '{');
    dl_json_key_number(&json, "ap_pooled", x->bound.ap_pooled);
    dl_json_close(&json, '}');
    dl_json_key(&json, "calibration");
    dl_json_open(&json, '{');
    dl_json_key_number(&json, "ece", x->calibrated ? x->ece : NAN);
    dl_json_key(&json, "bins"); /* [mean probability, share that came true, count] */
    dl_json_open(&json, '[');
    for (int i = 0; i < DL_RELIABILITY_BINS && x->calibrated; i++) {
        const uint64_t count = x->reliability.bins[i].count;
        if (count == 0) continue;
        dl_json_open(&json, '[');
        dl_json_number(&json, x->reliability.bins[i].probability_sum / (double)count);
        dl_json_number(&json, (double)x->reliability.bins[i].positives / (double)count);
        dl_json_uint(&json, count);
        dl_json_close(&json, ']');
    }
    dl_json_close(&json, ']');
    dl_json_close(&json, '}');
    dl_json_key(&json, "attention");
    dl_json_open(&json, '{');
    dl_json_key(&json, "entropy");
    dl_json_open(&json, '[');
    double top5_share = 0;
    for (uint32_t l = 0; l < x->layers; l++) {
        dl_json_number(&json, x->entropy[l]);
        top5_share += x->top5_share[l] / x->layers;
    }
    dl_json_close(&json, ']');
    dl_json_key_number(&json, "top5_share", x->layers ? top5_share : NAN);
    dl_json_key(&json, "partner_share");
    dl_json_open(&json, '[');
    for (uint32_t l = 0; l < x->layers; l++)
        dl_json_number(&json, x->partners ? x->partner_share[l] : NAN);
    dl_json_close(&json, ']');
    dl_json_key_number(&json, "partner_uniform", x->partners ? x->partner_uniform : NAN);
    dl_json_close(&json, '}');
    dl_json_key_number(&json, "seconds", x->seconds);
    dl_json_key_number(&json, "pairs_per_second", (double)x->pairs / x->seconds);
    dl_json_close(&json, '}');
    dl_buf_u8(&buf, '\n');
    fwrite(buf.data, 1, buf.size, stdout);
    dl_buf_free(&buf);
}

/* ---- the command -------------------------------------------------------------------- */

/* What the data must share with the model. */
static int check_fit(const struct dl_dataset *dataset, const struct dl_model_info *info,
                     struct dl_error *error)
{
    if (dataset->time_unit != info->time_unit)
        return dl_error_set(error, DL_ERR_INVALID,
                            "%s has times in %s, the model learnt from %s: convert them, or state "
                            "the unit with --time-unit",
                            dataset->path, dl_time_unit_name(dataset->time_unit),
                            dl_time_unit_name(info->time_unit));
    if (dataset->feature_count != info->config.feature_count)
        return dl_error_set(error, DL_ERR_INVALID,
                            "the model reads %u features of an event and %u are given: name the "
                            "same columns as in training with --features",
                            info->config.feature_count, dataset->feature_count);
    return DL_OK;
}

int dl_cmd_evaluate(int argc, char **argv)
{
    struct arguments a;
    struct dl_dataset *dataset = NULL;
    struct dl_model *model = NULL;
    const struct dl_model_info *info = NULL;
    struct dl_scorer scorer;
    struct dl_evaluate_result result;
    struct dl_error error = {{0}};
    struct dl_progress_line line;
    int done, status = DL_OK, code = parse(argc, argv, &a, &done);

    if (done || code != DL_EXIT_OK) return code;
    dl_progress_line_init(&line, stderr);
    a.evaluate.progress = dl_progress_line_hook(&line);
    const struct dl_scorer *baseline = dl_baseline_find(a.model);
    if (baseline) {
        scorer = *baseline;
    } else {
        if ((status = dl_model_load(a.model, &model, &error)) != DL_OK) goto done;
        info = dl_model_get_info(model);
        scorer = dl_scorer_network(dl_model_get_network(model), &info->calibration);
        if (!a.ties_given && dl_ties_parse(info->ties, &a.evaluate.ties) != DL_OK) {
            status = dl_error_set(&error, DL_ERR_INVALID,
                                  "%s: trained under \"%s\", which is no tie policy: state --ties",
                                  a.model, info->ties);
            goto done;
        }
        a.evaluate.hold_out_seed = info->seed;
        if (a.evaluate.inductive && info->held_out_nodes == 0) {
            status = dl_error_set(&error, DL_ERR_INVALID,
                                  "%s: learnt from all nodes, so none is unseen: train it with "
                                  "--hold-out for the inductive setting",
                                  a.model);
            goto done;
        }
        if (!a.data.time_unit_given) {
            a.data.time_unit = info->time_unit;
            a.data.time_unit_given = 1;
        }
    }
    status = dl_dataset_load(a.file, &a.data, &a.evaluate.progress, &dataset, &error);
    if (status == DL_OK && info) status = check_fit(dataset, info, &error);
    if (status == DL_OK) status = dl_evaluate_run(dataset, &scorer, &a.evaluate, &result, &error);
    if (status != DL_OK) goto done;
    dl_progress_line_end(&line);
    const struct report report = {dataset, &scorer, info, &a.evaluate, &result};
    if (a.json)
        report_json(&report);
    else
        report_text(&report);
done:
    dl_progress_line_end(&line);
    if (status != DL_OK) fprintf(stderr, "driftline evaluate: %s\n", error.text);
    if (model) dl_model_unref(model);
    dl_dataset_free(dataset);
    return status == DL_OK ? DL_EXIT_OK : DL_EXIT_FAILED;
}
