/* driftline train: a model from a recorded feed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "model/drift_features.h"
#include "model/train.h"
#include "service/commands.h"
#include "service/flags.h"
#include "service/json_out.h"
#include "service/progress.h"
#include "service/store_dataset.h"

enum {
    OUT = 1,
    STORE,
    ARCHITECTURE,
    ATTENTION,
    WINDOW,
    WIDTH,
    LAYERS,
    HEADS,
    DROPOUT,
    NO_ROPE,
    NO_TIME_ENCODING,
    NO_COOCCURRENCE,
    NO_PAIR_MEMORY,
    NO_STEPS,
    TIES,
    NEGATIVES,
    EPOCHS,
    POSITIVES,
    BATCH,
    RATE,
    PATIENCE,
    VALIDATION,
    SEED,
    THREADS,
    HOLD_OUT,
    JSON,
    HELP
};

static const struct option long_options[] = {
    {"out", required_argument, NULL, OUT},
    {"store", required_argument, NULL, STORE},
    {"architecture", required_argument, NULL, ARCHITECTURE},
    {"attention", required_argument, NULL, ATTENTION},
    {"window", required_argument, NULL, WINDOW},
    {"width", required_argument, NULL, WIDTH},
    {"layers", required_argument, NULL, LAYERS},
    {"heads", required_argument, NULL, HEADS},
    {"dropout", required_argument, NULL, DROPOUT},
    {"no-rope", no_argument, NULL, NO_ROPE},
    {"no-time-encoding", no_argument, NULL, NO_TIME_ENCODING},
    {"no-cooccurrence", no_argument, NULL, NO_COOCCURRENCE},
    {"no-pair-memory", no_argument, NULL, NO_PAIR_MEMORY},
    {"no-steps", no_argument, NULL, NO_STEPS},
    {"ties", required_argument, NULL, TIES},
    {"negatives", required_argument, NULL, NEGATIVES},
    {"epochs", required_argument, NULL, EPOCHS},
    {"positives", required_argument, NULL, POSITIVES},
    {"batch", required_argument, NULL, BATCH},
    {"lr", required_argument, NULL, RATE},
    {"patience", required_argument, NULL, PATIENCE},
    {"validation", required_argument, NULL, VALIDATION},
    {"seed", required_argument, NULL, SEED},
    {"threads", required_argument, NULL, THREADS},
    {"hold-out", no_argument, NULL, HOLD_OUT},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    DL_FLAGS_DATA,
    {NULL, 0, NULL, 0}};

struct arguments {
    const char *file, *store, *out;
    int json;
    struct dl_dataset_options data;
    struct dl_train_options train;
};

static void help(void)
{
    const struct dl_train_options *t = &dl_train_options_default;
    const struct dl_network_config *n = &dl_network_config_default;

    printf(
        "usage: driftline train FILE|--store FILE --out MODEL [flags]\n"
        "\n"
        "Learns from a recorded feed which edges come next. The first 70 %% of the time are\n"
        "learnt from, the next 15 %% decide when to stop and calibrate the probabilities, the\n"
        "last 15 %% are left alone for driftline evaluate. Events that were read out of order\n"
        "are sorted.\n"
        "\n"
        "  driftline train payments.csv --src payer --dst payee --time at --time-unit ms \\\n"
        "                  --weight amount --out payments.safetensors\n"
        "  driftline evaluate payments.csv --src payer --dst payee --time at --time-unit ms \\\n"
        "      --model payments.safetensors\n"
        "\n"
        "  --store FILE          learn from the edge log of a store (which may be in use) in "
        "place\n"
        "                        of a recorded file; the flags under Data do not apply\n"
        "  --out MODEL           the file to write (safetensors)\n"
        "  --ties POLICY         what the model may see of events with the same time:\n"
        "                        stream   those that came before (a live service; the default)\n"
        "                        shuffle  likewise, in random order\n"
        "                        strict   none\n"
        "  --negatives KIND      what true edges are told apart from: mixed (random destinations,\n"
        "                        a tenth whole past edges; the default) or random\n"
        "  --seed N              of everything random (0); the same seed gives the same model\n"
        "  --threads N           (one for each processor); does not change the result\n"
        "  --json                print one JSON object instead of a report\n"
        "\n"
        "Model:\n"
        "  --architecture NAME   diffdyg-cached: each window by itself, which a service keeps\n"
        "                        until it changes, then a small stage for the pair (default);\n"
        "                        diffdyg: both windows of a pair attend to each other;\n"
        "                        mlp: the small stage alone\n"
        "  --attention KIND      differential (default) or softmax\n"
        "  --window N            interactions of each endpoint that it reads (%u)\n"
        "  --width N --layers N --heads N    (%u, %u, %u)\n"
        "  --dropout P           (%g)\n"
        "  --no-rope, --no-time-encoding, --no-cooccurrence, --no-pair-memory, --no-steps\n"
        "                        leave a part out, to see what it is worth\n"
        "\n"
        "Learning:\n"
        "  --epochs N            at most (%u)\n"
        "  --positives N         true edges an epoch, drawn at random (%u)\n"
        "  --batch N             true edges a step, with as many negatives (%u)\n"
        "  --lr R                peak learning rate (%g)\n"
        "  --patience N          epochs without a better validation AP before it stops (%u)\n"
        "  --validation N        events of the validation sample (%u)\n"
        "  --hold-out            keep a tenth of the nodes out of training, drawn by the seed, so\n"
        "                        that evaluate --setting inductive can measure unseen nodes\n"
        "\n",
        n->window, n->width, n->layers, n->heads, (double)n->dropout, t->epochs, t->positives,
        t->batch, t->rate, t->patience, t->validation_events);
    dl_flag_data_help(stdout);
}

/* ---- arguments ------------------------------------------------------------------ */

static int take_model_flag(int code, const char *value, struct arguments *a, struct dl_error *error)
{
    static const char *const attentions[] = {"softmax", "differential", NULL};
    static const char *const architectures[] = {"diffdyg", "diffdyg-cached", "mlp", NULL};
    struct dl_network_config *n = &a->train.network;
    uint64_t number = 0;
    double real = 0;
    int choice = 0, status = DL_OK;

    switch (code) {
    case ARCHITECTURE:
        status = dl_flag_choice("architecture", value, architectures, &choice, error);
        if (status == DL_OK) strcpy(n->architecture, architectures[choice]);
        break;
    case ATTENTION:
        return dl_flag_choice("attention", value, attentions, &n->differential, error);
    case WINDOW:
        status = dl_flag_uint("window", value, 1, DL_WINDOW_MAX, &number, error);
        n->window = (uint32_t)number;
        break;
    case WIDTH:
        status = dl_flag_uint("width", value, 8, 512, &number, error);
        n->width = (uint32_t)number;
        break;
    case LAYERS:
        status = dl_flag_uint("layers", value, 1, DL_LAYERS_MAX, &number, error);
        n->layers = (uint32_t)number;
        break;
    case HEADS:
        status = dl_flag_uint("heads", value, 1, 16, &number, error);
        n->heads = (uint32_t)number;
        break;
    case DROPOUT:
        status = dl_flag_number("dropout", value, 0, 0.9, &real, error);
        n->dropout = (float)real;
        break;
    case NO_ROPE:
        n->rope = 0;
        break;
    case NO_TIME_ENCODING:
        n->time_encoding = 0;
        break;
    case NO_COOCCURRENCE:
        n->cooccurrence = 0;
        break;
    case NO_PAIR_MEMORY:
        n->pair_memory = 0;
        break;
    case NO_STEPS:
        n->steps = 0;
        break;
    default:
        break;
    }
    return status;
}

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    static const char *const ties[] = {"strict", "stream", "shuffle", NULL};
    static const char *const negatives[] = {"random", "mixed", NULL};
    struct dl_train_options *t = &a->train;
    uint64_t number = 0;
    int status = DL_OK, choice = 0;

    switch (code) {
    case OUT:
        a->out = value;
        break;
    case STORE:
        a->store = value;
        break;
    case JSON:
        a->json = 1;
        break;
    case HOLD_OUT:
        t->hold_out = 1;
        break;
    case TIES:
        status = dl_flag_choice("ties", value, ties, &choice, error);
        t->ties = (enum dl_ties)choice;
        break;
    case NEGATIVES:
        status = dl_flag_choice("negatives", value, negatives, &choice, error);
        t->historical_share = choice ? dl_train_options_default.historical_share : 0;
        break;
    case EPOCHS:
        status = dl_flag_uint("epochs", value, 1, DL_TRAIN_EPOCHS_MAX, &number, error);
        t->epochs = (uint32_t)number;
        break;
    case POSITIVES:
        status = dl_flag_uint("positives", value, 1, DL_TRAIN_POSITIVES_MAX, &number, error);
        t->positives = (uint32_t)number;
        break;
    case BATCH:
        status = dl_flag_uint("batch", value, 1, DL_TRAIN_BATCH_MAX, &number, error);
        t->batch = (uint32_t)number;
        break;
    case RATE:
        return dl_flag_number("lr", value, 1e-8, 1, &t->rate, error);
    case PATIENCE:
        status = dl_flag_uint("patience", value, 1, DL_TRAIN_EPOCHS_MAX, &number, error);
        t->patience = (uint32_t)number;
        break;
    case VALIDATION:
        status = dl_flag_uint("validation", value, 1, DL_TRAIN_POSITIVES_MAX, &number, error);
        t->validation_events = (uint32_t)number;
        break;
    case SEED:
        return dl_flag_uint("seed", value, 0, UINT64_MAX, &t->seed, error);
    case THREADS:
        status = dl_flag_uint("threads", value, 1, 256, &number, error);
        t->threads = (uint32_t)number;
        break;
    default:
        if (code >= DL_FLAG_DATA) return dl_flag_data(code, value, &a->data, error);
        return take_model_flag(code, value, a, error);
    }
    return status;
}

/* DL_EXIT_OK to go on, else the exit code; *done: nothing more to do. */
static int parse(int argc, char **argv, struct arguments *a, int *done)
{
    memset(a, 0, sizeof *a);
    a->train = dl_train_options_default;
    a->train.network = dl_network_config_default;
    int flags = dl_flags_read("train", argc, argv, long_options, help, take_flag, a);
    *done = flags == DL_FLAGS_HELPED;
    if (*done) return DL_EXIT_OK;
    if (flags == DL_FLAGS_WRONG) return DL_EXIT_USAGE;
    int named = (optind + 1 == argc && !a->store) || (optind == argc && a->store);
    if (!named || !a->out) {
        fprintf(stderr, "driftline train: %s (--help shows how)\n",
                named ? "name the file to write with --out MODEL"
                      : "name one file to learn from, or a store with --store");
        return DL_EXIT_USAGE;
    }
    a->file = a->store ? a->store : argv[optind];
    return DL_EXIT_OK;
}

/* ---- reports --------------------------------------------------------------------- */

/* The command that measures the model, with the flags that say how to read the feed. */
static void print_next(const struct dl_dataset *dataset, const struct dl_dataset_options *data,
                       const char *out)
{
    const char *const names[][2] = {
        {"src", data->src}, {"dst", data->dst}, {"time", data->time}, {"weight", data->weight}};
    /* Standard input is read once; a store is no file that evaluate reads. */
    if (strcmp(dataset->path, "-") == 0 || !dataset->hash[0]) return;
    printf("next        driftline evaluate %s", dataset->path);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i][1]) printf(" --%s %s", names[i][0], names[i][1]);
    for (uint32_t f = 0; f < data->feature_count; f++)
        printf("%s%s", f ? "," : " --features ", data->features[f]);
    if (data->bipartite) printf(" --bipartite");
    printf(" --time-unit %s --model %s\n", dl_time_unit_name(dataset->time_unit), out);
}

static void report_text(const struct dl_dataset *dataset, const struct dl_dataset_options *data,
                        const struct dl_model_info *info, const struct dl_train_report *report,
                        const char *out)
{
    printf("\nlearnt      %u epochs (best: %u), %" PRIu64
           " pairs in %.1f s, %.0f pairs/s learning\n",
           report->epochs, report->best_epoch, report->pairs, report->seconds,
           report->pairs_per_second);
    printf("validation  AP %.4f, AUC %.4f, MRR among 20 %.4f, calibration error %.4f\n",
           info->validation_ap, info->validation_auc, info->validation_mrr, info->validation_ece);
    if (info->config.layers) printf("attention   entropy by layer, 1 = uniform:");
    for (uint32_t l = 0; l < info->config.layers; l++)
        printf(" %.3f%s", info->validation_entropy[l], l + 1 < info->config.layers ? "" : "\n");
    printf("saved       %s, version %s, %" PRIu64 " parameters\n", out, info->version,
           info->parameters);
    print_next(dataset, data, out);
}

static void report_json(const struct dl_dataset *dataset, const struct dl_model_info *info,
                        const struct dl_train_report *report, const char *out)
{
    struct dl_buf buf = {0};
    struct dl_json json = dl_json_of(&buf);

    dl_json_open(&json, '{');
    dl_json_key(&json, "data");
    dl_json_open(&json, '{');
    dl_json_key_text(&json, "file", dataset->path);
    dl_json_key_text(&json, "hash", dataset->hash);
    dl_json_key_uint(&json, "edges", dataset->event_count);
    dl_json_key_uint(&json, "nodes", dataset->node_count);
    dl_json_key_uint(&json, "timestamps", dataset->timestamp_count);
    dl_json_key_text(&json, "time_unit", dl_time_unit_name(dataset->time_unit));
    dl_json_close(&json, '}');
    dl_json_key(&json, "model");
    dl_json_open(&json, '{');
    dl_json_key_text(&json, "file", out);
    dl_json_key_text(&json, "architecture", info->config.architecture);
    dl_json_key_text(&json, "attention", info->config.differential ? "differential" : "softmax");
    dl_json_key_text(&json, "hash", info->version);
    dl_json_key_uint(&json, "parameters", info->parameters);
    dl_json_key_uint(&json, "window", info->config.window);
    dl_json_key_uint(&json, "width", info->config.width);
    dl_json_key_uint(&json, "layers", info->config.layers);
    dl_json_key_uint(&json, "heads", info->config.heads);
    dl_json_close(&json, '}');
    dl_json_key_text(&json, "ties", info->ties);
    dl_json_key_text(&json, "negatives", info->negatives);
    dl_json_key_uint(&json, "seed", info->seed);
    dl_json_key_uint(&json, "epochs", report->epochs);
    dl_json_key_uint(&json, "best_epoch", report->best_epoch);
    dl_json_key(&json, "validation");
    dl_json_open(&json, '{');
    dl_json_key_number(&json, "ap", info->validation_ap);
    dl_json_key_number(&json, "auc", info->validation_auc);
    dl_json_key_number(&json, "mrr", info->validation_mrr);
    dl_json_key_number(&json, "ece", info->validation_ece);
    dl_json_close(&json, '}');
    dl_json_key_number(&json, "seconds", report->seconds);
    dl_json_key_number(&json, "pairs_per_second", report->pairs_per_second);
    dl_json_close(&json, '}');
    dl_buf_u8(&buf, '\n');
    fwrite(buf.data, 1, buf.size, stdout);
    dl_buf_free(&buf);
}

static void announce(struct dl_progress_line *line, const struct dl_dataset *dataset,
                     const struct arguments *a)
{
    char text[400];

    snprintf(text, sizeof text,
             "%s: %" PRIu64 " events, %u nodes, %u timestamps, time unit %s%s%s%.16s",
             dataset->path, dataset->event_count, dataset->node_count, dataset->timestamp_count,
             dl_time_unit_name(dataset->time_unit),
             dataset->time_unit_guessed ? " (judged by the values; --time-unit states it)" : "",
             dataset->hash[0] ? ", SHA-256 " : "", dataset->hash);
    dl_progress_line_note(line, text);
    if (dataset->out_of_order) {
        snprintf(text, sizeof text,
                 "%" PRIu64 " events came with a time before the one above them: sorted by time",
                 dataset->out_of_order);
        dl_progress_line_note(line, text);
    }
    snprintf(text, sizeof text,
             "learning under the %s tie policy, %s negatives, seed %" PRIu64
             ": at most %u epochs of %u true edges",
             dl_ties_name(a->train.ties), a->train.historical_share > 0 ? "mixed" : "random",
             a->train.seed, a->train.epochs, a->train.positives);
    dl_progress_line_note(line, text);
}

/* ---- the command ------------------------------------------------------------------ */

/* A file that cannot be written is better known before the work than after it. */
static int check_writable(const char *path, struct dl_error *error)
{
    FILE *file = access(path, F_OK) == 0 ? fopen(path, "rb+") : NULL;
    char folder[4096];
    const char *slash = strrchr(path, '/');

    if (file) {
        fclose(file);
        return DL_OK;
    }
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1,
             slash ? path : ".");
    if (access(path, F_OK) == 0 || access(folder, W_OK) != 0)
        return dl_error_set(error, DL_ERR_IO, "--out %s: cannot be written there", path);
    return DL_OK;
}

int dl_cmd_train(int argc, char **argv)
{
    struct arguments a;
    struct dl_dataset *dataset = NULL;
    struct dl_network *network = NULL;
    struct dl_model *model = NULL;
    struct dl_model_info info;
    struct dl_train_report report;
    struct dl_reference reference = {0};
    struct dl_error error = {{0}};
    struct dl_progress_line line;
    int done, has_reference = 0, code = parse(argc, argv, &a, &done);

    if (done || code != DL_EXIT_OK) return code;
    dl_progress_line_init(&line, stderr);
    a.train.progress = dl_progress_line_hook(&line);
    int status = check_writable(a.out, &error);
    if (status == DL_OK)
        status = a.store ? dl_store_dataset_load(a.store, &dataset, &error)
                         : dl_dataset_load(a.file, &a.data, &a.train.progress, &dataset, &error);
    if (status != DL_OK) goto done;
    announce(&line, dataset, &a);
    if ((status = dl_train_run(dataset, &a.train, &network, &info, &report, &error)) != DL_OK)
        goto done;
    status = dl_train_reference(dataset, info.encoding.gap, &reference, &error);
    has_reference = status == DL_OK;
    if (status == DL_ERR_INVALID) { /* too short a span: a model without one still serves */
        dl_progress_note(&a.train.progress, "no drift reference: %s", error.text);
        status = DL_OK;
    }
    if (status != DL_OK) goto done;
    status = dl_model_save(a.out, network, &info, has_reference ? &reference : NULL, &error);
    /* Reading it back proves the file and gives its version. */
    if (status == DL_OK) status = dl_model_load(a.out, &model, &error);
    if (status != DL_OK) goto done;
    dl_progress_line_end(&line);
    if (a.json)
        report_json(dataset, dl_model_get_info(model), &report, a.out);
    else
        report_text(dataset, &a.data, dl_model_get_info(model), &report, a.out);
done:
    dl_progress_line_end(&line);
    if (status != DL_OK) fprintf(stderr, "driftline train: %s\n", error.text);
    if (has_reference) dl_drift_reference_deinit(&reference);
    if (model) dl_model_unref(model);
    dl_network_free(network);
    dl_dataset_free(dataset);
    return status == DL_OK ? DL_EXIT_OK : DL_EXIT_FAILED;
}
