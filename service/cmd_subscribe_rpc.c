/* driftline subscribe: live records of a running service, by RPC. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/commands.h"
#include "service/flags.h"
#include "service/query_print.h"
#include "service/rpc_flags.h"

enum { NODES = 1, MIN, STANDING, COUNT, JSON, HELP };

static const struct option long_options[] = {{"nodes", required_argument, NULL, NODES},
                                             {"min", required_argument, NULL, MIN},
                                             {"standing", no_argument, NULL, STANDING},
                                             {"count", required_argument, NULL, COUNT},
                                             {"json", no_argument, NULL, JSON},
                                             {"help", no_argument, NULL, HELP},
                                             DL_FLAGS_RPC,
                                             {NULL, 0, NULL, 0}};

struct arguments {
    struct dl_rpc_flags rpc;
    const char *nodes;
    double min;
    uint64_t count; /* 0: until the end */
    int standing, json;
};

union request {
    struct dl_msg_subscribe_predictions predictions;
    struct dl_msg_subscribe_scores scores;
    struct dl_msg_subscribe_alerts alerts;
};

union message {
    struct dl_msg_prediction_message prediction;
    struct dl_msg_score_message score;
    struct dl_msg_alert_message alert;
};

struct reader {
    const struct arguments *a;
    enum dl_msg_method_id method;
    struct dl_arena arena;
    struct dl_buf text;
    uint64_t seen;
};

static void help(void)
{
    printf("usage: driftline subscribe predictions|scores|alerts [flags]\n"
           "\n"
           "Prints what a running service publishes, a line each, from now on, until it ends or\n"
           "is interrupted. A reader that cannot keep up loses the oldest records and is told\n"
           "how many.\n"
           "\n"
           "  driftline subscribe scores --min 10\n"
           "  driftline subscribe predictions --nodes alice,bob --json\n"
           "\n"
           "  --nodes A,B,...       only these nodes (scores: at either end)\n"
           "  --min X               predictions: candidates of at least this probability;\n"
           "                        scores: events at least so surprising, in bits\n"
           "  --standing            alerts: those that stand now, first\n"
           "  --count N             end after so many\n"
           "  --json                one JSON object a line\n");
    dl_rpc_flags_help(stdout);
    printf("\nExit codes: 0 ended by --count, 1 the stream broke off (one line says why), 2 not\n"
           "understood. --timeout is for the connection; a stream has no deadline.\n");
}

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    switch (code) {
    case NODES:
        a->nodes = value;
        return DL_OK;
    case MIN:
        return dl_flag_number("min", value, 0, 1e6, &a->min, error);
    case STANDING:
        a->standing = 1;
        return DL_OK;
    case COUNT:
        return dl_flag_uint("count", value, 1, UINT64_MAX, &a->count, error);
    case JSON:
        a->json = 1;
        return DL_OK;
    default:
        return dl_rpc_flags_take(code, value, &a->rpc, error);
    }
}

static int on_message(void *context, struct dl_slice bytes, struct dl_error *error)
{
    struct reader *reader = context;
    const struct dl_message_type *type = dl_msg_methods[reader->method].response;
    union message message;
    memset(&message, 0, sizeof(message));
    dl_arena_reset(&reader->arena);
    int status = dl_message_decode(type, bytes, &message, &reader->arena, error);
    if (status != DL_OK) return status;
    if (reader->a->json) {
        dl_buf_clear(&reader->text);
        dl_message_json(type, &message, &reader->text);
        if (reader->text.failed) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        printf("%.*s\n", (int)reader->text.size, (const char *)reader->text.data);
    } else if (reader->method == DL_METHOD_SUBSCRIBE_SCORES) {
        dl_print_score_line(stdout, &message.score);
    } else if (reader->method == DL_METHOD_SUBSCRIBE_PREDICTIONS) {
        dl_print_prediction_line(stdout, &message.prediction);
    } else {
        dl_print_alert_line(stdout, &message.alert);
    }
    if (fflush(stdout) != 0) return dl_error_set(error, DL_ERR_IO, "cannot write the output");
    return ++reader->seen == reader->a->count;
}

/* The request's bytes. The names borrow from the arguments. */
static int encode(const struct arguments *a, enum dl_msg_method_id method, struct dl_buf *bytes,
                  struct dl_error *error)
{
    struct dl_slice *nodes = malloc(DL_MSG_NODES_MAX * sizeof(*nodes));
    union request request;
    uint32_t count = 0;
    if (!nodes) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    for (const char *at = a->nodes; at && *at && count < DL_MSG_NODES_MAX;) {
        size_t size = strcspn(at, ",");
        if (size) nodes[count++] = dl_slice_of(at, size);
        at += size + (at[size] == ',');
    }
    memset(&request, 0, sizeof(request));
    if (method == DL_METHOD_SUBSCRIBE_PREDICTIONS)
        request.predictions = (struct dl_msg_subscribe_predictions){count, nodes, a->min};
    else if (method == DL_METHOD_SUBSCRIBE_SCORES)
        request.scores = (struct dl_msg_subscribe_scores){count, nodes, a->min};
    else
        request.alerts.include_standing = a->standing;
    dl_message_encode(dl_msg_methods[method].request, &request, bytes);
    free(nodes);
    return bytes->failed ? dl_error_set(error, DL_ERR_NOMEM, "out of memory") : DL_OK;
}

static int subscribe(const struct arguments *a, enum dl_msg_method_id method)
{
    struct reader reader = {.a = a, .method = method};
    struct dl_rpc_target target = a->rpc.target;
    struct dl_rpc_dial *dial = NULL;
    struct dl_buf bytes = {0};
    struct dl_error error = {""};
    target.connect_ms = a->rpc.timeout_ms;
    int status = encode(a, method, &bytes, &error);
    if (status == DL_OK) status = dl_rpc_dial_open(&target, &dial, &error);
    if (status == DL_OK) {
        struct dl_slice slice = dl_buf_slice(&bytes);
        status = dl_rpc_dial_call(dial, dl_msg_methods[method].path, &slice, 1, 0, on_message,
                                  &reader, NULL, &error);
        if (status == DL_OK && (!a->count || reader.seen < a->count))
            status = dl_error_set(&error, DL_ERR_UNAVAILABLE, "the service ended the stream");
    }
    if (status != DL_OK) fprintf(stderr, "driftline subscribe: %s\n", error.text);
    dl_rpc_dial_close(dial);
    dl_arena_deinit(&reader.arena);
    dl_buf_free(&reader.text);
    dl_buf_free(&bytes);
    return status == DL_OK ? DL_EXIT_OK : DL_EXIT_FAILED;
}

int dl_cmd_subscribe(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum dl_msg_method_id method;
    } streams[] = {{"predictions", DL_METHOD_SUBSCRIBE_PREDICTIONS},
                   {"scores", DL_METHOD_SUBSCRIBE_SCORES},
                   {"alerts", DL_METHOD_SUBSCRIBE_ALERTS}};
    struct arguments a;
    struct dl_error error = {""};
    memset(&a, 0, sizeof(a));
    dl_rpc_flags_init(&a.rpc);
    int flags = dl_flags_read("subscribe", argc, argv, long_options, help, take_flag, &a);
    if (flags != DL_FLAGS_GO_ON) return flags == DL_FLAGS_HELPED ? DL_EXIT_OK : DL_EXIT_USAGE;
    if (dl_rpc_flags_finish(&a.rpc, &error) != DL_OK) {
        fprintf(stderr, "driftline subscribe: %s\n", error.text);
        return DL_EXIT_USAGE;
    }
    for (size_t i = 0; optind + 1 == argc && i < sizeof(streams) / sizeof(streams[0]); i++)
        if (strcmp(argv[optind], streams[i].name) == 0) return subscribe(&a, streams[i].method);
    fprintf(stderr, "driftline subscribe: name one stream: predictions, scores or alerts\n");
    return DL_EXIT_USAGE;
}
