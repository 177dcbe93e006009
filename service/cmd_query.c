/* driftline query: asks a running service by RPC. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/commands.h"
#include "service/flags.h"
#include "service/query_print.h"
#include "service/rpc_flags.h"
#include "service/suggest.h"

enum { K = 1, CANDIDATES, ONLY, TIME, LIMIT, PER_HEAD, ALERTS, REASON, YES, JSON, HELP };

static const struct option long_options[] = {{"k", required_argument, NULL, K},
                                             {"candidates", required_argument, NULL, CANDIDATES},
                                             {"only", no_argument, NULL, ONLY},
                                             {"time", required_argument, NULL, TIME},
                                             {"limit", required_argument, NULL, LIMIT},
                                             {"per-head", no_argument, NULL, PER_HEAD},
                                             {"alerts", required_argument, NULL, ALERTS},
                                             {"reason", required_argument, NULL, REASON},
                                             {"yes", no_argument, NULL, YES},
                                             {"json", no_argument, NULL, JSON},
                                             {"help", no_argument, NULL, HELP},
                                             DL_FLAGS_RPC,
                                             {NULL, 0, NULL, 0}};

struct arguments {
    struct dl_rpc_flags rpc;
    uint64_t k, limit, alerts;
    const char *candidates, *reason;
    int only, has_time, per_head, yes, json;
    int64_t time;
    int count; /* words after the subcommand */
    char **words;
};

union request {
    struct dl_msg_score_request score;
    struct dl_msg_top_k_request top_k;
    struct dl_msg_window_request window;
    struct dl_msg_explain_request explain;
    struct dl_msg_drift_request drift;
    struct dl_msg_renew_request renew;
    struct dl_msg_forget_request forget;
    struct dl_msg_empty empty;
    struct dl_msg_health_request health;
};

union response {
    struct dl_msg_score_response score;
    struct dl_msg_top_k_response top_k;
    struct dl_msg_window_response window;
    struct dl_msg_explain_response explain;
    struct dl_msg_drift_response drift;
    struct dl_msg_renew_response renew;
    struct dl_msg_model_response model;
    struct dl_msg_forget_response forget;
    struct dl_msg_health_response health;
};

/* ---- the requests --------------------------------------------------------------------- */

static struct dl_slice word(const struct arguments *a, int index)
{
    return dl_slice_text(a->words[index]);
}

static int make_score(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    uint32_t count = (uint32_t)a->count / 2;
    struct dl_msg_pair *pairs = dl_arena_take(arena, count * sizeof(*pairs));
    if (!pairs) return DL_ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        pairs[i].src = word(a, (int)(2 * i));
        pairs[i].dst = word(a, (int)(2 * i + 1));
    }
    request->score = (struct dl_msg_score_request){
        .pair_count = count, .pairs = pairs, .has_time = a->has_time, .time = a->time};
    return DL_OK;
}

static int make_top_k(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    struct dl_slice *list = dl_arena_take(arena, DL_MSG_CANDIDATES_MAX * sizeof(*list));
    uint32_t count = 0;
    if (!list) return DL_ERR_NOMEM;
    for (const char *at = a->candidates; at && *at && count < DL_MSG_CANDIDATES_MAX;) {
        size_t size = strcspn(at, ",");
        if (size) list[count++] = dl_slice_of(at, size);
        at += size + (at[size] == ',');
    }
    request->top_k = (struct dl_msg_top_k_request){.node = word(a, 0),
                                                   .k = (uint32_t)a->k,
                                                   .has_time = a->has_time,
                                                   .time = a->time,
                                                   .candidate_count = count,
                                                   .candidates = list,
                                                   .only_given = a->only};
    return DL_OK;
}

static int make_window(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)arena;
    request->window = (struct dl_msg_window_request){word(a, 0), (uint32_t)a->limit};
    return DL_OK;
}

static int make_explain(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)arena;
    request->explain = (struct dl_msg_explain_request){.src = word(a, 0),
                                                       .dst = word(a, 1),
                                                       .has_time = a->has_time,
                                                       .time = a->time,
                                                       .per_head = a->per_head};
    return DL_OK;
}

static int make_drift(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)arena;
    request->drift.alerts_max = (uint32_t)a->alerts;
    return DL_OK;
}

static int make_forget(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)arena;
    request->forget.node = word(a, 0);
    if (a->count > 1) request->forget.peer = word(a, 1);
    return DL_OK;
}

static int make_renew(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)arena;
    if (a->reason) request->renew.reason = dl_slice_text(a->reason);
    return DL_OK;
}

static int make_nothing(const struct arguments *a, struct dl_arena *arena, union request *request)
{
    (void)a;
    (void)arena;
    (void)request;
    return DL_OK;
}

/* ---- the answers ------------------------------------------------------------------------- */

static void show_score(const struct arguments *a, const union request *request,
                       const union response *response)
{
    (void)a;
    dl_print_scores(stdout, &request->score, &response->score);
}

static void show_top_k(const struct arguments *a, const union request *request,
                       const union response *response)
{
    (void)a;
    (void)request;
    dl_print_top_k(stdout, &response->top_k);
}

static void show_window(const struct arguments *a, const union request *request,
                        const union response *response)
{
    (void)a;
    (void)request;
    dl_print_window(stdout, &response->window);
}

static void show_explain(const struct arguments *a, const union request *request,
                         const union response *response)
{
    (void)request;
    dl_print_explanation(stdout, &response->explain, (uint32_t)a->limit);
}

static void show_drift(const struct arguments *a, const union request *request,
                       const union response *response)
{
    (void)a;
    (void)request;
    dl_print_drift(stdout, &response->drift);
}

static void show_renew(const struct arguments *a, const union request *request,
                       const union response *response)
{
    (void)a;
    (void)request;
    dl_print_renewed(stdout, &response->renew);
}

static void show_model(const struct arguments *a, const union request *request,
                       const union response *response)
{
    (void)a;
    (void)request;
    dl_print_model(stdout, &response->model);
}

static void show_forget(const struct arguments *a, const union request *request,
                        const union response *response)
{
    (void)a;
    (void)request;
    dl_print_forgotten(stdout, &response->forget);
}

static void show_health(const struct arguments *a, const union request *request,
                        const union response *response)
{
    (void)a;
    (void)request;
    puts(response->health.status == DL_MSG_HEALTH_SERVING ? "serving" : "not serving");
}

static const struct subject {
    const char *name, *words, *help;
    int count_min, count_max, in_pairs;
    enum dl_msg_method_id method;
    int (*make)(const struct arguments *a, struct dl_arena *arena, union request *request);
    void (*show)(const struct arguments *a, const union request *request,
                 const union response *response);
} subjects[] = {
    {"score", "SRC DST [SRC DST ...]", "how likely these edges are", 2, 2 * DL_MSG_PAIRS_MAX, 1,
     DL_METHOD_SCORE, make_score, show_score},
    {"topk", "NODE", "what comes next for a node", 1, 1, 0, DL_METHOD_TOP_K, make_top_k,
     show_top_k},
    {"window", "NODE", "a node's most recent interactions", 1, 1, 0, DL_METHOD_GET_WINDOW,
     make_window, show_window},
    {"explain", "SRC DST", "which past events carried the attention", 2, 2, 0, DL_METHOD_EXPLAIN,
     make_explain, show_explain},
    {"drift", "", "how far the feed has moved from the reference; live quality; alerts", 0, 0, 0,
     DL_METHOD_GET_DRIFT, make_drift, show_drift},
    {"model", "", "the model that is served", 0, 0, 0, DL_METHOD_GET_MODEL, make_nothing,
     show_model},
    {"health", "", "whether the service makes progress (exit code 1: it does not)", 0, 0, 0,
     DL_METHOD_HEALTH_CHECK, make_nothing, show_health},
    {"renew", "", "take the recent span as the new drift reference", 0, 0, 0,
     DL_METHOD_RENEW_REFERENCE, make_renew, show_renew},
    {"forget", "NODE [PEER] --yes", "forget a node, or the edges between two, everywhere", 1, 2, 0,
     DL_METHOD_FORGET, make_forget, show_forget},
};
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

/* ---- arguments ---------------------------------------------------------------------------------
 */

static void help(void)
{
    printf("usage: driftline query SUBJECT [flags]\n"
           "\n"
           "Asks a running service.\n"
           "\n");
    for (size_t i = 0; i < SUBJECTS; i++) {
        char left[64];
        snprintf(left, sizeof(left), "%s %s", subjects[i].name, subjects[i].words);
        printf("  %-28s %s\n", left, subjects[i].help);
    }
    printf("\n"
           "  driftline query score alice bob\n"
           "  driftline query topk alice --k 5 --json\n"
           "\n"
           "  --k N                 topk: how many (%d; at most %d)\n"
           "  --candidates A,B,...  topk: score these, too\n"
           "  --only                topk: score these alone\n"
           "  --time T              score, topk, explain: query time in the service's unit (the\n"
           "                        newest event's)\n"
           "  --limit N             window, explain: show at most so many\n"
           "  --per-head            explain: also by layer and head\n"
           "  --alerts N            drift: so many recent alerts (%d)\n"
           "  --reason TEXT         renew: why, for the alert history\n"
           "  --yes                 forget: do it\n"
           "  --json                print the answer as one JSON object\n",
           DL_MSG_K_DEFAULT, DL_MSG_K_MAX, DL_MSG_ALERTS_DEFAULT);
    dl_rpc_flags_help(stdout);
    printf("\nExit codes: 0 answered, 1 refused or not reachable (and health: not serving), 2 "
           "not\nunderstood.\n");
}

static int take_time(const char *text, struct arguments *a, struct dl_error *error)
{
    char *end;
    a->time = strtoll(text, &end, 10);
    a->has_time = 1;
    if (end != text && *end == 0) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID,
                        "--time %.40s is no whole number of the service's time unit", text);
}

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    switch (code) {
    case K:
        return dl_flag_uint("k", value, 1, DL_MSG_K_MAX, &a->k, error);
    case CANDIDATES:
        a->candidates = value;
        return DL_OK;
    case ONLY:
        a->only = 1;
        return DL_OK;
    case TIME:
        return take_time(value, a, error);
    case LIMIT:
        return dl_flag_uint("limit", value, 1, 1u << 20, &a->limit, error);
    case PER_HEAD:
        a->per_head = 1;
        return DL_OK;
    case ALERTS:
        return dl_flag_uint("alerts", value, 1, DL_MSG_ALERTS_MAX, &a->alerts, error);
    case REASON:
        a->reason = value;
        return DL_OK;
    case YES:
        a->yes = 1;
        return DL_OK;
    case JSON:
        a->json = 1;
        return DL_OK;
    default:
        return dl_rpc_flags_take(code, value, &a->rpc, error);
    }
}

static const struct subject *find_subject(const char *name)
{
    const char *names[SUBJECTS];
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (strcmp(subjects[i].name, name) == 0) return &subjects[i];
        names[i] = subjects[i].name;
    }
    const char *meant = dl_suggest_nearest(name, names, SUBJECTS);
    if (meant)
        fprintf(stderr, "driftline query: \"%s\" cannot be asked; did you mean %s?\n", name, meant);
    else
        fprintf(stderr, "driftline query: \"%s\" cannot be asked; --help lists what can\n", name);
    return NULL;
}

static int check_words(const struct subject *subject, const struct arguments *a)
{
    const char *problem = NULL;
    if (a->count < subject->count_min || a->count > subject->count_max)
        problem = "wrong number of names";
    else if (subject->in_pairs && a->count % 2)
        problem = "a source without a destination";
    else if (subject->method == DL_METHOD_FORGET && !a->yes)
        problem = "this cannot be undone; add --yes";
    if (!problem) return DL_EXIT_OK;
    fprintf(stderr, "driftline query %s: %s (usage: driftline query %s %s)\n", subject->name,
            problem, subject->name, subject->words);
    return DL_EXIT_USAGE;
}

/* ---- asking
 * ---------------------------------------------------------------------------------------- */

static int on_answer(void *context, struct dl_slice message, struct dl_error *error)
{
    struct dl_buf *answer = context;
    dl_buf_clear(answer);
    dl_buf_append(answer, message.data, message.size);
    return answer->failed ? dl_error_set(error, DL_ERR_NOMEM, "out of memory") : 0;
}

static int exchange(const struct arguments *a, const struct dl_msg_method *method,
                    const union request *request, struct dl_buf *answer, struct dl_error *error)
{
    struct dl_rpc_dial *dial = NULL;
    struct dl_buf bytes = {0};
    dl_message_encode(method->request, request, &bytes);
    int status = bytes.failed ? dl_error_set(error, DL_ERR_NOMEM, "out of memory") : DL_OK;
    if (status == DL_OK) status = dl_rpc_dial_open(&a->rpc.target, &dial, error);
    if (status == DL_OK) {
        struct dl_slice slice = dl_buf_slice(&bytes);
        status = dl_rpc_dial_call(dial, method->path, &slice, 1, a->rpc.timeout_ms, on_answer,
                                  answer, NULL, error);
    }
    dl_rpc_dial_close(dial);
    dl_buf_free(&bytes);
    return status;
}

static int show(const struct subject *subject, const struct arguments *a,
                const union request *request, struct dl_slice bytes, struct dl_arena *arena,
                int *code, struct dl_error *error)
{
    const struct dl_message_type *type = dl_msg_methods[subject->method].response;
    union response response;
    memset(&response, 0, sizeof(response));
    int status = dl_message_decode(type, bytes, &response, arena, error);
    if (status != DL_OK) return dl_error_wrap(error, status, "the answer is not understood");
    if (a->json) {
        struct dl_buf text = {0};
        dl_message_json(type, &response, &text);
        if (text.failed)
            status = dl_error_set(error, DL_ERR_NOMEM, "out of memory");
        else
            printf("%.*s\n", (int)text.size, (const char *)text.data);
        dl_buf_free(&text);
    } else {
        subject->show(a, request, &response);
    }
    if (subject->method == DL_METHOD_HEALTH_CHECK &&
        response.health.status != DL_MSG_HEALTH_SERVING)
        *code = DL_EXIT_FAILED;
    return status;
}

static int ask(const struct subject *subject, const struct arguments *a)
{
    struct dl_arena arena = {0};
    struct dl_buf answer = {0};
    struct dl_error error = {""};
    union request request;
    int code = DL_EXIT_OK;
    memset(&request, 0, sizeof(request));
    int status = subject->make(a, &arena, &request);
    if (status == DL_OK)
        status = exchange(a, &dl_msg_methods[subject->method], &request, &answer, &error);
    if (status == DL_OK)
        status = show(subject, a, &request, dl_buf_slice(&answer), &arena, &code, &error);
    if (status != DL_OK) {
        fprintf(stderr, "driftline query %s: %s\n", subject->name,
                error.text[0] ? error.text : dl_status_name(status));
        code = DL_EXIT_FAILED;
    }
    dl_buf_free(&answer);
    dl_arena_deinit(&arena);
    return code;
}

int dl_cmd_query(int argc, char **argv)
{
    struct arguments a;
    struct dl_error error = {""};
    int code;
    memset(&a, 0, sizeof(a));
    dl_rpc_flags_init(&a.rpc);
    int flags = dl_flags_read("query", argc, argv, long_options, help, take_flag, &a);
    if (flags != DL_FLAGS_GO_ON) return flags == DL_FLAGS_HELPED ? DL_EXIT_OK : DL_EXIT_USAGE;
    if (dl_rpc_flags_finish(&a.rpc, &error) != DL_OK) {
        fprintf(stderr, "driftline query: %s\n", error.text);
        return DL_EXIT_USAGE;
    }
    if (optind >= argc) {
        fprintf(stderr, "driftline query: say what to ask: score, topk, window, explain, drift, "
                        "model, health, renew or forget (--help shows how)\n");
        return DL_EXIT_USAGE;
    }
    const struct subject *subject = find_subject(argv[optind]);
    if (!subject) return DL_EXIT_USAGE;
    a.words = argv + optind + 1;
    a.count = argc - optind - 1;
    code = check_words(subject, &a);
    return code == DL_EXIT_OK ? ask(subject, &a) : code;
}

int dl_cmd_drift_renew(int argc, char **argv)
{
    char query[] = "query", renew[] = "renew";
    char **words = calloc((size_t)argc + 2, sizeof(*words));
    int count = 0;
    if (!words) return DL_EXIT_FAILED;
    words[count++] = query;
    words[count++] = renew;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--renew") != 0) words[count++] = argv[i];
    int code = dl_cmd_query(count, words);
    free(words);
    return code;
}
