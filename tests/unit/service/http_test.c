/* The HTTP server against an engine in memory: a real socket, one loop, and a
 * client that turns the loop itself. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "service/http.h"

/* ---- the engine ------------------------------------------------------------------ */

static struct {
    int later;  /* answer only when answer_now is called */
    int refuse; /* a status to refuse with */
    int not_ready;
    int renewed;
    char note[256]; /* of the last renewal: who and why */
    struct dl_backend_job *waiting;
    struct dl_backend_listener *listener;
} engine;

static const struct dl_alert_feature moved[] = {{.name = "activity",
                                                 .share = 0.7,
                                                 .before = 1.5,
                                                 .now = 4.0,
                                                 .low = -1,
                                                 .high = 9,
                                                 .before_bins = 2,
                                                 .now_bins = 2,
                                                 .before_histogram = (const float[]){0.75f, 0.25f},
                                                 .now_histogram = (const float[]){0, 1}}};
static struct dl_alert alerts[100]; /* newest first */
static uint32_t alert_count;

static int answer_drift(struct dl_backend_job *job, struct dl_error *error)
{
    if (engine.refuse) return dl_error_set(error, engine.refuse, "the queue is full");
    if (engine.later) {
        engine.waiting = job;
        return DL_OK;
    }
    union dl_backend_result result = {.drift = {.ready = 1,
                                                .statistic = 0.25,
                                                .threshold = 0.5,
                                                .feature_count = 1,
                                                .features = moved,
                                                .reference_origin = "model",
                                                .alert_count = alert_count,
                                                .alerts = alerts,
                                                .time = 1700000000,
                                                .time_unit = DL_TIME_S,
                                                .seq = 7}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int fake_drift(void *context, const struct dl_backend_drift_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    cr_assert(request->alerts_max >= 1 && request->alerts_max <= DL_BACKEND_ALERTS_MAX);
    return answer_drift(job, error);
}

static int fake_renew(void *context, const struct dl_backend_renew_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    (void)context, (void)error;
    engine.renewed++;
    snprintf(engine.note, sizeof engine.note, "%s|%.*s", request->by, (int)request->reason.size,
             (const char *)request->reason.data);
    union dl_backend_result result = {.renewed = {.reference_size = 500, .alert_cleared = 1}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int fake_window(void *context, const struct dl_backend_window_request *request,
                       struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    (void)error;
    struct dl_backend_interaction events[] = {
        {.peer = dl_slice_text("b\"<\xff\n"), .time = 1700000000, .seq = 6, .weight = 2, .out = 1}};
    union dl_backend_result result = {
        .window = {.known = !dl_slice_equal(request->node, dl_slice_text("nobody")),
                   .time_unit = DL_TIME_S,
                   .events = 3,
                   .window_max = 64,
                   .interaction_count = 1,
                   .interactions = events}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static int fake_top_k(void *context, const struct dl_backend_top_k_request *request,
                      struct dl_backend_job *job, struct dl_error *error)
{
    (void)context;
    if (engine.refuse) return dl_error_set(error, engine.refuse, "the queue is full");
    struct dl_candidate candidates[] = {{.node = dl_slice_text("c"),
                                         .probability = 0.875,
                                         .share = 1,
                                         .origin = DL_FROM_WINDOW | DL_FROM_POPULAR}};
    union dl_backend_result result = {.prediction = {.node = request->node,
                                                     .scored = request->k,
                                                     .candidate_count = 1,
                                                     .candidates = candidates}};
    job->done(job, DL_OK, NULL, &result);
    return DL_OK;
}

static void fake_listen(void *context, struct dl_backend_listener *listener)
{
    (void)context;
    engine.listener = listener;
}

static void fake_unlisten(void *context, struct dl_backend_listener *listener)
{
    (void)context, (void)listener;
    engine.listener = NULL;
}

static int fake_ready(void *context, struct dl_error *error)
{
    (void)context;
    if (engine.not_ready) dl_error_set(error, DL_ERR_UNAVAILABLE, "kafka: all brokers are down");
    return !engine.not_ready;
}

static const struct dl_backend backend = {.get_drift = fake_drift,
                                          .renew_reference = fake_renew,
                                          .get_window = fake_window,
                                          .top_k = fake_top_k,
                                          .listen = fake_listen,
                                          .unlisten = fake_unlisten,
                                          .ready = fake_ready};

/* ---- the server and its client ------------------------------------------------------ */

static uv_loop_t loop;
static struct dl_metrics *metrics;
static struct dl_service_metrics service;
static struct dl_http *http;
static int closed;

static struct dl_http_options options(void)
{
    return (struct dl_http_options){.listen = "127.0.0.1:0",
                                    .listeners_max = 2,
                                    .backend = &backend,
                                    .metrics = metrics,
                                    .service = &service,
                                    .time_unit = DL_TIME_S,
                                    .version = "1.2.3"};
}

static void start(void)
{
    struct dl_error error = {""};
    struct dl_http_options with;
    memset(&engine, 0, sizeof engine);
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(dl_metrics_new(&metrics), DL_OK);
    cr_assert_eq(dl_service_metrics_init(metrics, &service, &error), DL_OK);
    with = options();
    cr_assert_eq(dl_http_open(&loop, &with, &http, &error), DL_OK, "%s", error.text);
}

static void on_closed(void *context)
{
    (void)context;
    closed = 1;
}

static void stop(void)
{
    if (!closed) dl_http_close(http, on_closed, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect(closed);
    cr_expect_eq(uv_loop_close(&loop), 0);
    dl_metrics_free(metrics);
}

static int connect_client(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(dl_http_port(http))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static void send_all(int fd, const char *text)
{
    size_t size = strlen(text);
    cr_assert_eq(send(fd, text, size, MSG_NOSIGNAL), (ssize_t)size);
}

static char answer[4 * 1024 * 1024];
static size_t answer_size;

/* Turns the loop until the peer closes, or `until` has come, or two seconds
 * are over. Returns 1 for the first two. */
static int receive(int fd, const char *until)
{
    int64_t end_ns = dl_clock_monotonic_ns() + 2000000000;
    while (dl_clock_monotonic_ns() < end_ns) {
        uv_run(&loop, UV_RUN_NOWAIT);
        ssize_t got = recv(fd, answer + answer_size, sizeof answer - 1 - answer_size, MSG_DONTWAIT);
        if (got > 0) answer_size += (size_t)got;
        answer[answer_size] = 0;
        if (until && strstr(answer, until)) return 1;
        if (got == 0 || (got < 0 && errno == ECONNRESET)) return until == NULL;
        if (got < 0) usleep(200);
    }
    return 0;
}

static const char *ask(const char *request)
{
    int fd = connect_client();
    answer_size = 0;
    send_all(fd, request);
    cr_assert(receive(fd, NULL), "no end of the answer to %s", request);
    close(fd);
    return answer;
}

#define HOST "Host: localhost\r\nConnection: close\r\n\r\n"
static const char *get(const char *path)
{
    char request[4096];
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST, path);
    return ask(request);
}

static int status(void)
{
    return atoi(answer + strlen("HTTP/1.1 "));
}

#define EXPECT_HAS(text) cr_expect(strstr(answer, text), "no %s in: %.3000s", text, answer)
#define EXPECT_HAS_NOT(text) cr_expect(!strstr(answer, text), "%s in: %.3000s", text, answer)
#define EXPECT_STATUS(code) cr_expect_eq(status(), code, "%.600s", answer)

TestSuite(http, .init = start, .fini = stop);

/* ---- pages --------------------------------------------------------------------------- */

Test(http, serves_the_page_and_its_files_with_security_headers)
{
    static const char *const paths[] = {"/",       "/style.css", "/icon.svg",
                                        "/app.js", "/charts.js", "/explorer.js"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        get(paths[i]);
        EXPECT_STATUS(200);
        EXPECT_HAS("Content-Security-Policy: default-src 'none'");
        EXPECT_HAS("X-Content-Type-Options: nosniff");
        EXPECT_HAS("ETag: \"");
    }
}

Test(http, a_file_that_did_not_change_is_not_sent_again)
{
    char etag[64] = "", request[256];
    get("/style.css");
    const char *at = strstr(answer, "ETag: ");
    cr_assert(at && sscanf(at, "ETag: %63s", etag) == 1);
    snprintf(request, sizeof request, "GET /style.css HTTP/1.1\r\nIf-None-Match: %s\r\n" HOST,
             etag);
    ask(request);
    EXPECT_STATUS(304);
}

Test(http, head_has_no_body)
{
    ask("HEAD /healthz HTTP/1.1\r\n" HOST);
    EXPECT_STATUS(200);
    EXPECT_HAS("Content-Length: 3");
    cr_expect_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
}

Test(http, unknown_paths_and_methods_are_refused)
{
    get("/nothing");
    EXPECT_STATUS(404);
    EXPECT_HAS("{\"error\":\"no such page");
    ask("DELETE /api/drift HTTP/1.1\r\n" HOST);
    EXPECT_STATUS(405);
    EXPECT_HAS("Allow: GET, HEAD");
    get("/api/drift/renew");
    EXPECT_STATUS(405);
    EXPECT_HAS("Allow: POST");
    get("/../../etc/passwd");
    EXPECT_STATUS(404);
}

/* ---- metrics and health ---------------------------------------------------------------- */

Test(http, metrics_in_both_formats)
{
    dl_counter_add(service.events_total, 3);
    get("/metrics");
    EXPECT_STATUS(200);
    EXPECT_HAS("Content-Type: text/plain; version=0.0.4");
    EXPECT_HAS("\ndriftline_events_total 3\n");
    EXPECT_HAS("\ndriftline_ready 1\n");
    ask("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n" HOST);
    EXPECT_HAS("Content-Type: application/openmetrics-text; version=1.0.0");
    EXPECT_HAS("\n# EOF\n");
    EXPECT_HAS("driftline_http_requests_total{route=\"/metrics\",code=\"200\"} 1\n");
}

Test(http, readiness_says_why_not)
{
    get("/readyz");
    EXPECT_STATUS(200);
    engine.not_ready = 1;
    get("/readyz");
    EXPECT_STATUS(503);
    EXPECT_HAS("kafka: all brokers are down");
    get("/healthz");
    EXPECT_STATUS(200);
}

/* ---- JSON ------------------------------------------------------------------------------- */

Test(http, drift_as_json)
{
    get("/api/drift");
    EXPECT_STATUS(200);
    EXPECT_HAS("Cache-Control: no-store");
    EXPECT_HAS("\"statistic\":0.25,\"threshold\":0.5");
    EXPECT_HAS("{\"name\":\"activity\",\"share\":0.7,\"before\":1.5,\"now\":4,\"low\":-1,"
               "\"high\":9,\"before_histogram\":[0.75,0.25],\"now_histogram\":[0,1]}");
    EXPECT_HAS("\"time_text\":\"2023-11-14T22:13:20Z\"");
}

Test(http, an_answer_that_comes_later)
{
    engine.later = 1;
    int fd = connect_client();
    answer_size = 0;
    send_all(fd, "GET /api/drift HTTP/1.1\r\n" HOST);
    while (!engine.waiting) uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert_eq(recv(fd, answer, 1, MSG_DONTWAIT), -1);
    engine.later = 0;
    struct dl_error error;
    answer_drift(engine.waiting, &error);
    cr_assert(receive(fd, NULL));
    EXPECT_STATUS(200);
    EXPECT_HAS("\"statistic\":0.25");
    close(fd);
}

Test(http, a_node_with_window_and_prediction_and_hostile_names)
{
    get("/api/node?name=a%22%3Cscript%3E&k=5");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"name\":\"a\\\"<script>\"");
    EXPECT_HAS("\"peer\":\"b\\\"<\xEF\xBF\xBD\\u000a\"");
    EXPECT_HAS("\"direction\":\"out\"");
    EXPECT_HAS("\"scored\":5");
    EXPECT_HAS("\"probability\":0.875");
    EXPECT_HAS("\"origin\":[\"window\",\"popular\"]");
}

Test(http, a_node_is_shown_even_when_scoring_is_busy)
{
    engine.refuse = DL_ERR_FULL;
    get("/api/node?name=a");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"prediction\":null,\"prediction_error\":\"the queue is full\"");
}

Test(http, wrong_parameters_are_named)
{
    char request[1024], name[300];
    get("/api/node?name=nobody");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"name\":\"nobody\",\"known\":false");
    get("/api/node");
    EXPECT_STATUS(400);
    EXPECT_HAS("\\\"name\\\" is missing");
    get("/api/node?name=a&k=0");
    EXPECT_STATUS(400);
    get("/api/node?name=a&k=-1");
    EXPECT_STATUS(400);
    memset(name, 'x', 257);
    name[257] = 0;
    snprintf(request, sizeof request, "/api/node?name=%s", name);
    get(request);
    EXPECT_STATUS(400);
    EXPECT_HAS("257 bytes");
    get("/api/series?span=1y");
    EXPECT_STATUS(400);
}

Test(http, an_engine_that_is_full_or_cannot)
{
    engine.refuse = DL_ERR_FULL;
    get("/api/drift");
    EXPECT_STATUS(503);
    EXPECT_HAS("Retry-After: 2");
    get("/api/explain?src=a&dst=b");
    EXPECT_STATUS(501);
    get("/api/status");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"model\":null");
}

Test(http, series_grow)
{
    struct dl_history *history = dl_http_history(http);
    get("/api/series");
    int64_t wall_us = dl_clock_wall_us(), now_ns = dl_clock_monotonic_ns();
    for (int i = 1; i <= 3; i++) {
        dl_counter_add(service.events_total, 100);
        cr_assert(dl_history_sample(history, wall_us + i * 1000000, now_ns + i * 1000000000LL));
    }
    get("/api/series?span=15m");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"interval_seconds\":1,");
    EXPECT_HAS("100,100],\"scores_per_second\":[");
    EXPECT_HAS("\"drift_statistic\":[null,null,null]");
}

/* ---- who may ask --------------------------------------------------------------------------- */

#define POST "POST /api/drift/renew HTTP/1.1\r\nContent-Length: 2\r\n"

Test(http, renewing_needs_json_from_the_same_origin)
{
    ask(POST "Content-Type: text/plain\r\n" HOST "{}");
    EXPECT_STATUS(415);
    ask(POST "Content-Type: application/json\r\nOrigin: http://evil.example\r\n" HOST "{}");
    EXPECT_STATUS(403);
    cr_expect_eq(engine.renewed, 0);
    ask(POST "Content-Type: application/json\r\nOrigin: http://localhost\r\n" HOST "{}");
    EXPECT_STATUS(200);
    EXPECT_HAS("\"reference_size\":500");
    EXPECT_HAS("\"alert_cleared\":true");
    cr_expect_eq(engine.renewed, 1);
    cr_expect_str_eq(engine.note, "http 127.0.0.1|");
}

static void renew_with(const char *body)
{
    char request[4096];
    snprintf(request, sizeof request,
             "POST /api/drift/renew HTTP/1.1\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n" HOST "%s",
             strlen(body), body);
    ask(request);
}

Test(http, renewing_says_who_and_why)
{
    char body[512];
    renew_with("{\"reason\":\"new \\u0022tariff\\u0022\"}");
    EXPECT_STATUS(200);
    cr_expect_str_eq(engine.note, "http 127.0.0.1|new \"tariff\"");
    static const char *const bad[] = {"{\"reason\":1}", "{", "{\"reason\":\"a\\u0000b\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        renew_with(bad[i]);
        EXPECT_STATUS(400);
    }
    snprintf(body, sizeof body, "{\"reason\":\"%0121d\"}", 0);
    renew_with(body);
    EXPECT_STATUS(400);
    EXPECT_HAS("reason takes at most 120 bytes");
    cr_expect_eq(engine.renewed, 1);
}

Test(http, a_rebound_name_is_refused)
{
    static const char *const good[] = {"localhost:9464", "127.0.0.1:1", "[::1]:9", "x.localhost"};
    static const char *const bad[] = {"evil.example",        "127.0.0.1.evil.example",
                                      "localhost.evil",      "[::1].evil.example",
                                      "localhost:9464.evil", "[::1]:9st:1"};
    char request[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(request, sizeof request,
                 "GET /api/drift HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", bad[i]);
        ask(request);
        EXPECT_STATUS(403);
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(request, sizeof request,
                 "GET /api/drift HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", good[i]);
        ask(request);
        EXPECT_STATUS(200);
    }
}

Test(http, large_requests_are_refused)
{
    static char large[40000];
    ask("POST /api/drift/renew HTTP/1.1\r\nContent-Length: 999999\r\n"
        "Content-Type: application/json\r\n" HOST);
    EXPECT_STATUS(413);
    char *at = stpcpy(large, "GET /healthz HTTP/1.1\r\nX: ");
    memset(at, 'x', 30000);
    strcpy(at + 30000, "\r\n" HOST);
    ask(large);
    cr_expect(status() == 431 || status() == 413, "%.100s", answer);
    at = stpcpy(large, "POST /api/drift/renew HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                       "Content-Type: application/json\r\n" HOST "2000\r\n");
    memset(at, 'x', 0x2000);
    strcpy(at + 0x2000, "\r\n0\r\n\r\n");
    int fd = connect_client();
    answer_size = 0;
    send_all(fd, large);
    receive(fd, NULL);
    close(fd);
    cr_expect_eq(engine.renewed, 0);
}

Test(http, addresses_are_checked)
{
    struct dl_error error = {""};
    struct dl_http *other;
    struct dl_http_options with = options();
    char used[32];
    static const char *const wrong[] = {"", "127.0.0.1", "127.0.0.1:x", ":80", "127.0.0.1:99999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        with.listen = wrong[i];
        cr_expect_eq(dl_http_open(&loop, &with, &other, &error), DL_ERR_INVALID, "%s", wrong[i]);
    }
    with.listen = "0.0.0.0:0";
    cr_expect_eq(dl_http_open(&loop, &with, &other, &error), DL_ERR_DENIED);
    snprintf(used, sizeof used, "127.0.0.1:%u", dl_http_port(http));
    with.listen = used;
    cr_expect_eq(dl_http_open(&loop, &with, &other, &error), DL_ERR_IO);
    cr_expect(strstr(error.text, used), "%s", error.text);
}

/* ---- the event stream -------------------------------------------------------------------------
 */

static const struct dl_alert_feature alert_features[] = {
    {.name = "weight", .share = 0.9, .before = 1, .now = 2}};

static void raise_alert(uint64_t number)
{
    struct dl_alert alert = {.number = number,
                             .kind = DL_ALERT_TEMPORAL_SHIFT,
                             .raised = 1,
                             .time = 1700000000,
                             .statistic = 2,
                             .threshold = 1,
                             .reason = "the weights moved",
                             .feature_count = 1,
                             .features = alert_features};
    engine.listener->alert(engine.listener, &alert);
}

Test(http, listeners_hear_alerts_and_samples_and_are_bounded)
{
    int fds[3];
    static const char request[] = "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (int i = 0; i < 2; i++) {
        fds[i] = connect_client();
        send_all(fds[i], request);
        answer_size = 0;
        cr_assert(receive(fds[i], "retry: 2000\n\n"));
        EXPECT_HAS("Content-Type: text/event-stream");
    }
    fds[2] = connect_client();
    send_all(fds[2], request);
    answer_size = 0;
    cr_assert(receive(fds[2], "\"error\""));
    EXPECT_STATUS(503);
    raise_alert(1);
    for (int i = 0; i < 2; i++) {
        answer_size = 0;
        cr_assert(receive(fds[i], "event: alert\ndata: {\"number\":1,\"kind\":\"temporal_shift\""));
        cr_assert(receive(fds[i], "event: sample\ndata: {\"point\":{\"time_ms\":"));
    }
    cr_expect_float_eq(dl_gauge_get(service.http_listeners), 2, 1e-9);
    for (int i = 0; i < 3; i++) close(fds[i]);
    /* A listener that left is noticed when the next message is sent. */
    for (int i = 0; i < 200 && dl_gauge_get(service.http_listeners) > 0; i++) {
        raise_alert(2);
        for (int k = 0; k < 20; k++) uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    cr_expect_float_eq(dl_gauge_get(service.http_listeners), 0, 1e-9);
}

Test(http, alerts_carry_the_clock_of_this_start_only)
{
    raise_alert(7);
    alert_count = 2;
    for (uint64_t i = 0; i < 2; i++)
        alerts[i] = (struct dl_alert){.number = 7 - i,
                                      .kind = DL_ALERT_TEMPORAL_SHIFT,
                                      .severity = DL_SEVERITY_CRITICAL,
                                      .feature_count = 1,
                                      .features = alert_features};
    get("/api/alerts");
    EXPECT_HAS("\"alerts\":[{\"number\":7,\"kind\":\"temporal_shift\",\"severity\":\"critical\","
               "\"raised\":false,\"wall_ms\":1");
    EXPECT_HAS("{\"number\":6,\"kind\":\"temporal_shift\",\"severity\":\"critical\","
               "\"raised\":false,\"wall_ms\":null");
    EXPECT_HAS("\"features\":[{\"name\":\"weight\",\"share\":0.9,");
}

Test(http, the_most_surprising_events_are_kept)
{
    char name[16];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", (i * 37) % 100);
        struct dl_score score = {.src = dl_slice_text(name),
                                 .dst = dl_slice_text("d"),
                                 .src_history = 1,
                                 .surprise_bits = (i * 37) % 100};
        engine.listener->score(engine.listener, &score);
    }
    get("/api/surprises");
    EXPECT_HAS("\"surprises\":[{\"src\":\"n99\"");
    EXPECT_HAS("\"src\":\"n80\"");
    EXPECT_HAS_NOT("\"src\":\"n79\"");
    get("/api/nodes");
    EXPECT_STATUS(200);
    EXPECT_HAS("{\"nodes\":[\"n");
}

Test(http, idle_listeners_cost_no_time)
{
    int fd = connect_client();
    send_all(fd, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    answer_size = 0;
    cr_assert(receive(fd, "event: sample"));
    int turns = 0;
    int64_t end_ns = dl_clock_monotonic_ns() + 500000000;
    while (dl_clock_monotonic_ns() < end_ns) {
        uv_run(&loop, UV_RUN_ONCE);
        turns++;
    }
    cr_expect(turns < 50, "%d turns of the loop in half a second", turns);
    close(fd);
}

/* ---- closing ------------------------------------------------------------------------------------
 */

Test(http, closing_waits_for_the_engine)
{
    engine.later = 1;
    int asking = connect_client(), listening = connect_client();
    send_all(asking, "GET /api/drift HTTP/1.1\r\n" HOST);
    send_all(listening, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!engine.waiting) uv_run(&loop, UV_RUN_NOWAIT);
    answer_size = 0;
    cr_assert(receive(listening, "retry"));
    dl_http_close(http, on_closed, NULL);
    for (int i = 0; i < 50; i++) uv_run(&loop, UV_RUN_NOWAIT);
    cr_assert_not(closed);
    cr_assert(atomic_load(&engine.waiting->cancelled));
    struct dl_error error = {"cancelled"};
    engine.waiting->done(engine.waiting, DL_ERR_CANCELLED, &error, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(closed);
    answer_size = 0;
    receive(asking, NULL);
    EXPECT_STATUS(503);
    answer_size = 0;
    receive(listening, NULL);
    EXPECT_HAS("0\r\n\r\n");
    close(asking);
    close(listening);
}
