/* The HTTP server over an engine in memory, for tests of the dashboard in a
 * browser: an invented feed of accounts and shops whose weights and partners
 * shift on request. Nothing here is part of the program.
 *
 *   demo_server PORT WARM_SECONDS SHIFT_AT_SECONDS
 *
 * WARM_SECONDS of history are made up before it listens; the shift begins at
 * SHIFT_AT_SECONDS of that clock and stays until the reference is renewed.
 * Prints the address on one line; ends on SIGTERM. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/clock.h"
#include "base/graph.h"
#include "base/rng.h"
#include "service/http.h"

#define ACCOUNTS 60
#define SHOPS 40
#define WINDOW 64
#define EVENTS_PER_TICK 12 /* a tenth of a second */

static struct {
    struct dl_graph *graph;
    struct dl_rng rng;
    struct dl_service_metrics service;
    struct dl_backend_listener *listener;
    struct dl_http *http;
    double second, shift_at, shift; /* shift: 0..1 */
    int raised;
    uint64_t alerts;
    int64_t time_ms;
    struct dl_alert kept[16]; /* newest first */
    uint32_t kept_count;
    char reasons[16][160];
    double statistic, threshold;
} sim;

#define BINS 32
static struct dl_alert_feature moved[] = {
    {.name = "weight", .share = 0.46, .before = 1.2, .now = 1.2, .low = -3, .high = 6},
    {.name = "novelty", .share = 0.23, .before = 0.08, .now = 0.08, .low = -0.5, .high = 0.9},
    {.name = "source_activity", .share = 0.14, .before = 3.1, .now = 3.1, .low = 0, .high = 7},
    {.name = "age_of_pair", .share = 0.09, .before = 5.2, .now = 5.2, .low = 0, .high = 11},
    {.name = "common_neighbours", .share = 0.05, .before = 2.4, .now = 2.4, .low = -1, .high = 6},
    {.name = "repetition", .share = 0.03, .before = 0.61, .now = 0.61, .low = -0.2, .high = 1.2}};
static float histograms[6][2][BINS];
static const double moved_to[] = {3.9, 0.41, 4.4, 7.9, 1.1, 0.35};
#define MOVED (sizeof moved / sizeof *moved)

/* ---- names ------------------------------------------------------------------------ */

static void name_of(uint32_t node, char *text)
{
    if (node < ACCOUNTS)
        sprintf(text, "account-%04u", 1000 + node * 37);
    else
        sprintf(text, "shop-%02u", node - ACCOUNTS);
}

static int node_of(struct dl_slice name, uint32_t *node)
{
    char text[32];
    for (*node = 0; *node < ACCOUNTS + SHOPS; (*node)++) {
        name_of(*node, text);
        if (dl_slice_equal(name, dl_slice_text(text))) return 1;
    }
    return 0;
}

/* A bell around the mean of before and of now. */
static void draw_histograms(struct dl_alert_feature *feature, float bins[2][BINS])
{
    for (int side = 0; side < 2; side++) {
        double centre = side ? feature->now : feature->before, sum = 0;
        double width = (feature->high - feature->low) / BINS;
        for (int b = 0; b < BINS; b++) {
            double z = (feature->low + (b + 0.5) * width - centre) / (4 * width);
            bins[side][b] = (float)exp(-z * z / 2);
            sum += (double)bins[side][b];
        }
        for (int b = 0; b < BINS; b++) bins[side][b] = (float)((double)bins[side][b] / sum);
    }
    feature->before_bins = feature->now_bins = BINS;
    feature->before_histogram = bins[0];
    feature->now_histogram = bins[1];
}

/* ---- the feed ---------------------------------------------------------------------- */

static void keep_alert(struct dl_alert alert)
{
    if (sim.kept_count < 16) sim.kept_count++;
    memmove(sim.kept + 1, sim.kept, (sim.kept_count - 1) * sizeof *sim.kept);
    sim.kept[0] = alert;
    if (sim.listener) sim.listener->alert(sim.listener, &sim.kept[0]);
}

static void say_alert(int raised)
{
    char *reason = sim.reasons[sim.alerts % 16];
    sprintf(reason,
            raised ? "the drift statistic %.3f is above its threshold %.3f"
                   : "the drift statistic %.3f is back below its threshold %.3f",
            sim.statistic, sim.threshold);
    sim.raised = raised;
    keep_alert((struct dl_alert){.number = ++sim.alerts,
                                 .kind = DL_ALERT_TEMPORAL_SHIFT,
                                 .severity = DL_SEVERITY_WARNING,
                                 .raised = raised,
                                 .time = sim.time_ms,
                                 .seq = dl_graph_feed(sim.graph)->events,
                                 .statistic = sim.statistic,
                                 .threshold = sim.threshold,
                                 .p_value = raised ? 0.0004 : 0.31,
                                 .window = 500,
                                 .reason = reason,
                                 .feature_count = raised ? 3 : 0,
                                 .features = moved});
}

/* An older one of each kind, so that the page shows them all. */
static void say_others(void)
{
    static const struct {
        enum dl_alert_kind kind;
        enum dl_alert_severity severity;
        int raised;
        const char *reason;
    } others[] = {
        {DL_ALERT_FEED_FAST, DL_SEVERITY_WARNING, 1,
         "events come 14 times as fast as in the fastest window of training"},
        {DL_ALERT_FEED_FAST, DL_SEVERITY_WARNING, 0, "events come at their usual pace again"},
        {DL_ALERT_QUALITY_DROP, DL_SEVERITY_CRITICAL, 1,
         "average precision of the last 1000 events is 0.741, in training it was 0.934"},
        {DL_ALERT_QUALITY_DROP, DL_SEVERITY_CRITICAL, 0, "average precision is back at 0.921"},
        {DL_ALERT_FEED_STALLED, DL_SEVERITY_CRITICAL, 1, "no event for 61 seconds"},
        {DL_ALERT_FEED_STALLED, DL_SEVERITY_CRITICAL, 0, "events are coming again"},
        {DL_ALERT_SURPRISE, DL_SEVERITY_INFO, 1,
         "an edge with 14.2 bits of surprise (threshold 12.0)"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        keep_alert((struct dl_alert){.number = ++sim.alerts,
                                     .kind = others[i].kind,
                                     .severity = others[i].severity,
                                     .raised = others[i].raised,
                                     .time = sim.time_ms,
                                     .reason = others[i].reason});
}

static void one_event(void)
{
    uint32_t account = (uint32_t)(pow(dl_rng_uniform(&sim.rng), 1.6) * ACCOUNTS);
    uint32_t shop = (account * 7 + (uint32_t)dl_rng_below(&sim.rng, 5) * 3) % SHOPS;
    if (dl_rng_uniform(&sim.rng) < 0.08 + 0.5 * sim.shift)
        shop = (uint32_t)dl_rng_below(&sim.rng, SHOPS);
    struct dl_event event = {.time = sim.time_ms,
                             .src = account,
                             .dst = ACCOUNTS + shop,
                             .weight = (float)exp(dl_rng_normal(&sim.rng) * 0.6 + sim.shift)};
    struct dl_pair_state pair;
    char src[32], dst[32];
    int seen = dl_graph_pair(sim.graph, event.src, event.dst, &pair);
    double probability =
        seen ? 0.75 + 0.24 * dl_rng_uniform(&sim.rng) : 0.02 + 0.5 * dl_rng_uniform(&sim.rng);
    name_of(event.src, src);
    name_of(event.dst, dst);
    const struct dl_node_state *state = dl_graph_node(sim.graph, event.src);
    struct dl_score score = {.src = dl_slice_text(src),
                             .dst = dl_slice_text(dst),
                             .time = event.time,
                             .seq = dl_graph_feed(sim.graph)->events,
                             .probability = probability,
                             .surprise_bits = -log2(probability),
                             .src_history = state ? state->events : 0,
                             .pair_history = seen ? pair.count[0] : 0};
    dl_histogram_observe(sim.service.surprise_bits, score.surprise_bits);
    dl_histogram_observe(sim.service.publish_latency_seconds,
                         exp(-5.6 + 0.5 * dl_rng_normal(&sim.rng)));
    if (sim.listener) sim.listener->score(sim.listener, &score);
    dl_graph_apply(sim.graph, &event);
    dl_counter_add(sim.service.events_total, 1);
    dl_counter_add(sim.service.scores_total, 1);
    if (dl_rng_uniform(&sim.rng) < 0.6) dl_counter_add(sim.service.predictions_total, 1);
}

static void tick(int64_t wall_ms)
{
    double wave = 1 + 0.35 * sin(sim.second / 47) + 0.1 * dl_rng_normal(&sim.rng);
    int events = (int)fmax(1, EVENTS_PER_TICK * wave);
    for (int i = 0; i < events; i++) {
        sim.time_ms = wall_ms - 100 + 100 * i / events;
        one_event();
    }
    sim.second += 0.1;
    if (sim.second >= sim.shift_at) sim.shift = fmin(1, sim.shift + 0.004);
    sim.threshold = 0.05;
    sim.statistic =
        0.018 + 0.12 * sim.shift + 0.006 * sin(sim.second / 13) + 0.002 * dl_rng_normal(&sim.rng);
    for (size_t i = 0; i < MOVED; i++)
        moved[i].now = moved[i].before + (moved_to[i] - moved[i].before) * sim.shift;
    for (size_t i = 0; i < MOVED; i++) draw_histograms(&moved[i], histograms[i]);
    if (!sim.raised && sim.statistic > sim.threshold) say_alert(1);
    if (sim.raised && sim.statistic < sim.threshold * 0.6) say_alert(0);
    struct dl_service_metrics *m = &sim.service;
    dl_gauge_set(m->drift_statistic, sim.statistic);
    dl_gauge_set(m->drift_threshold, sim.threshold);
    dl_gauge_set(m->drift_raised, sim.raised);
    dl_gauge_set(m->quality_average_precision,
                 0.93 - 0.11 * sim.shift + 0.008 * sin(sim.second / 29));
    dl_gauge_set(m->quality_auc, 0.95 - 0.08 * sim.shift + 0.006 * sin(sim.second / 31));
    dl_gauge_set(m->quality_mrr, 0.71 - 0.2 * sim.shift + 0.012 * sin(sim.second / 23));
    dl_gauge_set(m->outbox_rows, floor(30 * wave));
    dl_gauge_set(dl_metrics_gauge_partition(m->source_lag_records, "edges", 0),
                 floor(fmax(0, 60 * wave + 20 * dl_rng_normal(&sim.rng))));
    dl_gauge_set(dl_metrics_gauge(m->attention_entropy_ratio, DL_LABELS("0")),
                 0.62 + 0.2 * sim.shift + 0.01 * sin(sim.second / 17));
    dl_gauge_set(dl_metrics_gauge(m->attention_top5_ratio, DL_LABELS("0")),
                 0.34 - 0.12 * sim.shift);
    dl_gauge_set(dl_metrics_gauge(m->attention_sinks, DL_LABELS("global")),
                 0.8 - 0.5 * sim.shift + 0.05 * sin(sim.second / 19));
    dl_gauge_set(dl_metrics_gauge(m->attention_sinks, DL_LABELS("local")),
                 1.6 + 0.9 * sim.shift + 0.1 * sin(sim.second / 11));
    dl_gauge_set(m->attention_sink_movement_ratio, 0.22 + 0.3 * sim.shift);
    dl_gauge_set(m->quality_calibration_error, 0.018 + 0.05 * sim.shift);
}

/* ---- the backend ---------------------------------------------------------------------- */

static const char *const shop_types[] = {"", "card", "transfer"};

static int get_window(void *context, const struct dl_backend_window_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    static struct dl_interaction past[WINDOW];
    static struct dl_backend_interaction events[WINDOW];
    static char names[WINDOW][32];
    union dl_backend_result result = {.window = {.time_unit = DL_TIME_MS, .window_max = WINDOW}};
    uint32_t node;
    const struct dl_node_state *state =
        node_of(request->node, &node) ? dl_graph_node(sim.graph, node) : NULL;
    if (state) {
        uint32_t count = dl_graph_window(sim.graph, node, WINDOW, past, NULL);
        for (uint32_t i = 0; i < count; i++) {
            name_of(past[i].peer, names[i]);
            events[i] =
                (struct dl_backend_interaction){.peer = dl_slice_text(names[i]),
                                                .time = past[i].time,
                                                .seq = past[i].seq,
                                                .type = dl_slice_text(shop_types[past[i].seq % 3]),
                                                .weight = past[i].weight,
                                                .out = past[i].out};
        }
        result.window.known = 1;
        result.window.events = state->events;
        result.window.events_out = state->events_out;
        result.window.events_in = state->events_in;
        result.window.first_time = state->first_time;
        result.window.last_time = state->last_time;
        result.window.interaction_count = count;
        result.window.interactions = events;
    }
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int better(const void *left, const void *right)
{
    const struct dl_candidate *a = left, *b = right;
    return a->probability < b->probability ? 1 : a->probability > b->probability ? -1 : 0;
}

static int top_k(void *context, const struct dl_backend_top_k_request *request,
                 struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    static char names[ACCOUNTS + SHOPS][32];
    struct dl_candidate candidates[ACCOUNTS + SHOPS];
    uint32_t node, count = 0;
    double sum = 0;
    if (!node_of(request->node, &node)) node = ACCOUNTS + SHOPS;
    uint32_t first = node < ACCOUNTS ? ACCOUNTS : 0,
             last = node < ACCOUNTS ? ACCOUNTS + SHOPS : ACCOUNTS;
    for (uint32_t i = first; i < last; i++, count++) {
        struct dl_pair_state pair;
        int seen = dl_graph_pair(sim.graph, node, i, &pair);
        double events = seen ? pair.count[0] + pair.count[1] : 0;
        name_of(i, names[i]);
        candidates[count] = (struct dl_candidate){
            .node = dl_slice_text(names[i]),
            .probability = 1 - 0.93 * exp(-events / 14.0) - 0.002 * (i % 17),
            .origin = seen ? DL_FROM_WINDOW | (i % 5 ? 0u : (unsigned)DL_FROM_POPULAR)
                           : (i % 2 ? DL_FROM_PEERS : DL_FROM_POPULAR),
            .pair_history = (uint32_t)events};
        sum += candidates[count].probability;
    }
    for (uint32_t i = 0; i < count; i++) candidates[i].share = candidates[i].probability / sum;
    qsort(candidates, count, sizeof *candidates, better);
    union dl_backend_result result = {
        .prediction = {.node = request->node,
                       .time = sim.time_ms,
                       .scored = count,
                       .candidate_count = count < request->k ? count : request->k,
                       .candidates = candidates,
                       .model_version = dl_slice_text("4f1c2b9a77d01e55")}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int explain(void *context, const struct dl_backend_explain_request *request,
                   struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    static struct dl_interaction past[WINDOW];
    static char names[WINDOW][32];
    struct dl_backend_token tokens[WINDOW];
    static const double entropy[] = {2.1, 2.6};
    uint32_t node, count = 0;
    double sum = 0;
    if (node_of(request->src, &node)) count = dl_graph_window(sim.graph, node, WINDOW, past, NULL);
    for (uint32_t i = 0; i < count; i++) {
        name_of(past[i].peer, names[i]);
        int same = dl_slice_equal(dl_slice_text(names[i]), request->dst);
        tokens[i] = (struct dl_backend_token){.event = {.peer = dl_slice_text(names[i]),
                                                        .time = past[i].time,
                                                        .seq = past[i].seq,
                                                        .weight = past[i].weight,
                                                        .out = past[i].out},
                                              .weight = (same ? 1.0 : 0.08) * exp(-(double)i / 25)};
        sum += tokens[i].weight;
    }
    for (uint32_t i = 0; i < count; i++) {
        tokens[i].weight /= sum;
        tokens[i].ratio_to_uniform = tokens[i].weight * count;
    }
    union dl_backend_result result = {
        .explanation = {.score = {.src = request->src, .dst = request->dst, .probability = 0.9},
                        .time_unit = DL_TIME_MS,
                        .layers = 2,
                        .heads = 2,
                        .tokens = count,
                        .entropy_nats = entropy,
                        .entropy_uniform_nats = log(count + 1.0),
                        .token_list = tokens}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int get_drift(void *context, const struct dl_backend_drift_request *request,
                     struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    struct dl_backend_quality quality = {.pairs = 90000,
                                         .ap = 0.921,
                                         .recent_pairs = 2000,
                                         .recent_ap =
                                             dl_gauge_get(sim.service.quality_average_precision),
                                         .trained_ap = 0.934,
                                         .trained_auc = 0.951,
                                         .trained_mrr = 0.72};
    union dl_backend_result result = {.drift = {.ready = 1,
                                                .reason = "",
                                                .statistic = sim.statistic,
                                                .threshold = sim.threshold,
                                                .p_value = sim.raised ? 0.0004 : 0.31,
                                                .window = 500,
                                                .reference_size = 1000,
                                                .alert_raised = sim.raised,
                                                .feature_count = MOVED,
                                                .features = moved,
                                                .quality = &quality,
                                                .alert_count = sim.kept_count < request->alerts_max
                                                                   ? sim.kept_count
                                                                   : request->alerts_max,
                                                .alerts = sim.kept,
                                                .reference_origin = "model",
                                                .run_length_asked = 1e6,
                                                .run_length_achieved = 9.7e5,
                                                .seq = dl_graph_feed(sim.graph)->events,
                                                .time = sim.time_ms,
                                                .time_unit = DL_TIME_MS}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int renew_reference(void *context, const struct dl_backend_renew_request *request,
                           struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    char *reason = sim.reasons[sim.alerts % 16];
    snprintf(reason, sizeof sim.reasons[0], "the drift reference is being renewed; by %s: %.*s",
             request->by, (int)request->reason.size, (const char *)request->reason.data);
    keep_alert((struct dl_alert){.number = ++sim.alerts,
                                 .kind = DL_ALERT_REFERENCE_RENEWED,
                                 .severity = DL_SEVERITY_INFO,
                                 .raised = 1,
                                 .time = sim.time_ms,
                                 .reason = reason});
    union dl_backend_result result = {
        .renewed = {.reference_size = 500, .alert_cleared = sim.raised}};
    for (size_t i = 0; i < MOVED; i++) moved[i].before = moved[i].now;
    sim.shift = 0;
    sim.shift_at = INFINITY;
    if (sim.raised) say_alert(0);
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int get_model(void *context, struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    static struct dl_model_info info = {.config = {.architecture = "diffdyg",
                                                   .window = 8,
                                                   .width = 32,
                                                   .heads = 2,
                                                   .layers = 2,
                                                   .differential = 1},
                                        .version = "4f1c2b9a77d01e55",
                                        .parameters = 48211,
                                        .ties = "stream",
                                        .negatives = "random",
                                        .data_edges = 120000,
                                        .time_unit = DL_TIME_MS,
                                        .validation_ap = 0.934};
    union dl_backend_result result = {
        .model = {.info = &info, .reference_size = 1000, .kernels = "avx2"}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static void add_listener(void *context, struct dl_backend_listener *listener)
{
    (void)context;
    sim.listener = listener;
}

static void remove_listener(void *context, struct dl_backend_listener *listener)
{
    (void)context, (void)listener;
    sim.listener = NULL;
}

static const struct dl_backend backend = {.get_window = get_window,
                                          .top_k = top_k,
                                          .explain = explain,
                                          .get_drift = get_drift,
                                          .renew_reference = renew_reference,
                                          .get_model = get_model,
                                          .listen = add_listener,
                                          .unlisten = remove_listener};

/* ---- main -------------------------------------------------------------------------------- */

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
    tick(dl_clock_wall_us() / 1000);
}

static void on_closed(void *context)
{
    uv_stop(context);
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    uv_signal_stop(signal);
    dl_http_close(sim.http, on_closed, signal->loop);
}

int main(int argc, char **argv)
{
    struct dl_metrics *metrics;
    struct dl_error error = {""};
    uv_loop_t loop;
    uv_timer_t ticker;
    uv_signal_t term;
    char listen[32];
    if (argc < 4)
        return fprintf(stderr, "usage: demo_server PORT WARM_S SHIFT_AT_S [TOKENS_FILE]\n"), 2;
    snprintf(listen, sizeof listen, "127.0.0.1:%s", argv[1]);
    double warm = atof(argv[2]);
    sim.shift_at = atof(argv[3]);
    dl_rng_seed(&sim.rng, 7);
    struct dl_graph_config config = dl_graph_config_default;
    config.window = WINDOW;
    config.nodes_max = ACCOUNTS + SHOPS;
    if (dl_graph_new(&config, &sim.graph, &error) || dl_metrics_new(&metrics) ||
        dl_service_metrics_init(metrics, &sim.service, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    uv_loop_init(&loop);
    struct dl_http_options options = {.listen = listen,
                                      .backend = &backend,
                                      .metrics = metrics,
                                      .service = &sim.service,
                                      .time_unit = DL_TIME_MS,
                                      .connections_max = 4096,
                                      .tokens_file = argc > 4 ? argv[4] : NULL,
                                      .tokens_key = "http.tokens_file",
                                      .version = "0.1.0-test"};
    if (dl_http_open(&loop, &options, &sim.http, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    sim.time_ms = dl_clock_wall_us() / 1000;
    say_others();
    int64_t wall_us = dl_clock_wall_us(), now_ns = dl_clock_monotonic_ns();
    for (int i = (int)(warm * 10); i > 0; i--) {
        tick((wall_us - i * 100000LL) / 1000);
        if (i % 10 == 0)
            dl_history_sample(dl_http_history(sim.http), wall_us - i * 100000LL,
                              now_ns - i * 100000000LL);
    }
    uv_timer_init(&loop, &ticker);
    uv_timer_start(&ticker, on_tick, 0, 100);
    uv_signal_init(&loop, &term);
    uv_signal_start(&term, on_signal, SIGTERM);
    printf("%s\n", dl_http_url(sim.http));
    fflush(stdout);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&ticker, NULL);
    uv_close((uv_handle_t *)&term, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    dl_graph_free(sim.graph);
    dl_metrics_free(metrics);
    return 0;
}
