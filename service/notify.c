/* Targets with a thread and a queue each. See notify.h. */
#include "service/notify.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "proto/record_codec.h"
#include "service/log.h"

#define KINDS 8 /* numbers of alert kinds lie below */
#define RETRY_FIRST_MS 1000
#define RETRY_MAX_MS 60000
#define REPEAT_MS 60000
#define TOKEN_BYTES_MAX 4096
#define TOKEN_HEADER "Authorization: Bearer "

enum target_kind { WEBHOOK, ALERTMANAGER, TARGETS };
static const char *const target_names[TARGETS] = {"webhook", "alertmanager"};

/* Of one attempt; AGAIN: it failed and is made again. */
enum result { SENT, REPEATED, AGAIN, REFUSED, DROPPED, RESULTS };
static const char *const result_names[RESULTS] = {"sent", "repeated", "failed", "refused",
                                                  "dropped"};

struct message {
    uint64_t number;
    int kind, standing; /* Alertmanager: to be repeated until the kind is cleared */
    char *body;         /* owned */
};

struct target {
    struct dl_notify *notify;
    enum target_kind kind;
    char *url, *header;
    long timeout_ms;
    struct dl_counter *results[RESULTS];
    /* The loop's alone. */
    uint64_t stored; /* number that the store has */
    /* Under the mutex. */
    pthread_mutex_t mutex;
    pthread_cond_t work;
    struct message queue[DL_NOTIFY_QUEUE_MAX];
    uint32_t first, count;
    int sending; /* the first message is with the thread: it may not be dropped */
    uint64_t acknowledged;
    int stopping;
    /* The thread's alone. */
    char *standing[KINDS]; /* bodies that are repeated */
    pthread_t thread;
    int running;
};

struct dl_notify {
    struct dl_backend_listener listener; /* first: found again from it */
    const struct dl_backend *backend;
    struct dl_store *store;
    struct dl_service_metrics *metrics;
    uv_async_t *async;
    struct target targets[TARGETS];
    struct dl_buf body;
};

/* ---- bodies ------------------------------------------------------------------------- */

static void put_string(struct dl_buf *out, const char *text)
{
    dl_buf_u8(out, '"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') dl_buf_u8(out, '\\');
        dl_buf_u8(out, (unsigned char)*text < 0x20 ? ' ' : (uint8_t)*text);
    }
    dl_buf_u8(out, '"');
}

void dl_notify_webhook_body(const struct dl_alert *alert, struct dl_buf *out)
{
    struct dl_buf text = {0};
    dl_buf_printf(&text, "driftline: %s %s: %s", dl_alert_kind_name(alert->kind),
                  alert->raised ? "raised" : "cleared", alert->reason);
    dl_buf_u8(&text, 0);
    dl_buf_text(out, "{\"text\":");
    put_string(out, text.failed ? "" : (const char *)text.data);
    dl_buf_printf(out, ",\"severity\":\"%s\",\"alert\":", dl_alert_severity_name(alert->severity));
    dl_record_encode_alert(alert, DL_RECORD_JSON, out);
    dl_buf_text(out, "}");
    dl_buf_free(&text);
}

static void put_time(struct dl_buf *out, const char *key, int64_t wall_us)
{
    char text[40];
    struct tm utc;
    time_t seconds = (time_t)(wall_us / 1000000);
    gmtime_r(&seconds, &utc);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
    dl_buf_printf(out, ",\"%s\":\"%s\"", key, text);
}

void dl_notify_alertmanager_body(const struct dl_alert *alert, int64_t wall_us, struct dl_buf *out)
{
    const char *kind = dl_alert_kind_name(alert->kind);
    dl_buf_printf(out,
                  "[{\"labels\":{\"alertname\":\"driftline_%s\",\"kind\":\"%s\",\"severity\":"
                  "\"%s\",\"job\":\"driftline\"},\"annotations\":{\"summary\":",
                  kind, kind, dl_alert_severity_name(alert->severity));
    put_string(out, alert->reason);
    dl_buf_printf(out,
                  ",\"statistic\":\"%.6g\",\"threshold\":\"%.6g\",\"p_value\":\"%.3g\","
                  "\"event\":\"%llu\",\"moved\":\"",
                  alert->statistic, alert->threshold, alert->p_value,
                  (unsigned long long)alert->seq);
    for (uint32_t f = 0; f < alert->feature_count; f++)
        dl_buf_printf(out, "%s%s", f ? " " : "", alert->features[f].name);
    dl_buf_text(out, "\"}");
    if (alert->raised) put_time(out, "startsAt", wall_us);
    /* A surprise is over at once; five minutes let it be seen. */
    if (!alert->raised) put_time(out, "endsAt", wall_us);
    if (alert->kind == DL_ALERT_SURPRISE) put_time(out, "endsAt", wall_us + 300000000);
    dl_buf_text(out, "}]");
}

/* ---- the thread ----------------------------------------------------------------------- */

static void count_result(struct target *target, enum result result)
{
    dl_counter_add_shared(target->results[result], 1);
}

static size_t ignore(char *data, size_t size, size_t count, void *user)
{
    (void)data, (void)user;
    return size * count;
}

static int is_stopping(void *user, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    struct target *target = user;
    pthread_mutex_lock(&target->mutex);
    int stopping = target->stopping;
    pthread_mutex_unlock(&target->mutex);
    return stopping;
}

static enum result post(struct target *target, CURL *curl, const char *body)
{
    char problem[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (target->header) headers = curl_slist_append(headers, target->header);
    long code = 0;
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_URL, target->url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, target->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_stopping);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, target);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
    CURLcode result = curl_easy_perform(curl);
    if (result == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(headers);
    if (code >= 200 && code < 300) return SENT;
    if (result == CURLE_ABORTED_BY_CALLBACK) return AGAIN;
    if (result == CURLE_OK)
        snprintf(problem, sizeof problem, "the answer was %ld", code);
    else if (!problem[0])
        snprintf(problem, sizeof problem, "%s", curl_easy_strerror(result));
    const int refused = code >= 400 && code < 500 && code != 408 && code != 429;
    DL_WARN("notify", "%s: %s; %s", target_names[target->kind], problem,
            refused ? "the alert is given up" : "trying again");
    return refused ? REFUSED : AGAIN;
}

/* Waits with the mutex held until there is work, the target stops, or `ms` is
 * over (< 0: no end). */
static void wait_for_work(struct target *target, int64_t ms, int any_work)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    while (!target->stopping && !(any_work && target->count)) {
        if (ms < 0)
            pthread_cond_wait(&target->work, &target->mutex);
        else if (pthread_cond_timedwait(&target->work, &target->mutex, &until) == ETIMEDOUT)
            break;
    }
}

static int has_standing(const struct target *target)
{
    for (int k = 0; k < KINDS; k++)
        if (target->standing[k]) return 1;
    return 0;
}

static void repeat_standing(struct target *target, CURL *curl)
{
    for (int k = 0; k < KINDS; k++)
        if (target->standing[k])
            count_result(target,
                         post(target, curl, target->standing[k]) == SENT ? REPEATED : AGAIN);
}

/* The first message was dealt with. */
static void finish_first(struct target *target)
{
    struct message *message = &target->queue[target->first];
    if (message->number > target->acknowledged) target->acknowledged = message->number;
    if (target->kind == ALERTMANAGER) {
        free(target->standing[message->kind]);
        target->standing[message->kind] = message->standing ? message->body : NULL;
        if (message->standing) message->body = NULL;
    }
    free(message->body);
    message->body = NULL;
    target->first = (target->first + 1) % DL_NOTIFY_QUEUE_MAX;
    target->count--;
    uv_async_send(target->notify->async);
}

static void *run(void *argument)
{
    struct target *target = argument;
    CURL *curl = curl_easy_init();
    int64_t pause_ms = RETRY_FIRST_MS;
    pthread_mutex_lock(&target->mutex);
    while (curl && !target->stopping) {
        if (!target->count) {
            wait_for_work(target, has_standing(target) ? REPEAT_MS : -1, 1);
            if (target->count || target->stopping) continue;
            pthread_mutex_unlock(&target->mutex);
            repeat_standing(target, curl);
            pthread_mutex_lock(&target->mutex);
            continue;
        }
        const char *body = target->queue[target->first].body;
        target->sending = 1;
        pthread_mutex_unlock(&target->mutex);
        enum result outcome = post(target, curl, body);
        count_result(target, outcome);
        pthread_mutex_lock(&target->mutex);
        target->sending = 0;
        if (outcome == AGAIN) {
            wait_for_work(target, pause_ms, 0);
            pause_ms = pause_ms * 2 < RETRY_MAX_MS ? pause_ms * 2 : RETRY_MAX_MS;
        } else {
            finish_first(target);
            pause_ms = RETRY_FIRST_MS;
        }
    }
    pthread_mutex_unlock(&target->mutex);
    curl_easy_cleanup(curl);
    return NULL;
}

/* ---- the loop's side -------------------------------------------------------------------- */

/* Drops the oldest message that is not under way. */
static void drop_oldest(struct target *target)
{
    uint32_t at = target->sending;
    free(target->queue[(target->first + at) % DL_NOTIFY_QUEUE_MAX].body);
    for (; at + 1 < target->count; at++)
        target->queue[(target->first + at) % DL_NOTIFY_QUEUE_MAX] =
            target->queue[(target->first + at + 1) % DL_NOTIFY_QUEUE_MAX];
    target->count--;
    count_result(target, DROPPED);
    DL_WARN("notify", "%s: %d alerts wait, the oldest is dropped", target_names[target->kind],
            DL_NOTIFY_QUEUE_MAX);
}

static void enqueue(struct target *target, const struct dl_alert *alert)
{
    struct dl_buf *body = &target->notify->body;
    dl_buf_clear(body);
    if (target->kind == WEBHOOK)
        dl_notify_webhook_body(alert, body);
    else
        dl_notify_alertmanager_body(alert, dl_clock_wall_us(), body);
    dl_buf_u8(body, 0);
    char *copy = body->failed ? NULL : strdup((const char *)body->data);
    if (!copy) {
        DL_WARN("notify", "%s: out of memory for an alert", target_names[target->kind]);
        return;
    }
    pthread_mutex_lock(&target->mutex);
    if (target->count == DL_NOTIFY_QUEUE_MAX) drop_oldest(target);
    target->queue[(target->first + target->count++) % DL_NOTIFY_QUEUE_MAX] =
        (struct message){.number = alert->number,
                         .kind = (int)alert->kind % KINDS,
                         .standing = alert->raised && alert->kind != DL_ALERT_SURPRISE,
                         .body = copy};
    pthread_cond_signal(&target->work);
    pthread_mutex_unlock(&target->mutex);
}

/* Whether a target is told of a kind: Alertmanager keeps alarms, not acts. */
static int concerns(const struct target *target, int kind)
{
    return target->kind != ALERTMANAGER || kind != DL_ALERT_REFERENCE_RENEWED;
}

static void on_alert(struct dl_backend_listener *listener, const struct dl_alert *alert)
{
    struct dl_notify *notify = (struct dl_notify *)listener;
    for (int t = 0; t < TARGETS; t++)
        if (notify->targets[t].running && concerns(&notify->targets[t], (int)alert->kind))
            enqueue(&notify->targets[t], alert);
}

static void blob_name(const struct target *target, char name[40])
{
    snprintf(name, 40, "notify.%s", target_names[target->kind]);
}

/* Writes down how far a target has come. */
static void remember(struct dl_notify *notify)
{
    struct dl_error error = {""};
    int begun = 0, status = DL_OK;
    char name[40];
    for (int t = 0; t < TARGETS; t++) {
        struct target *target = &notify->targets[t];
        if (!target->running) continue;
        pthread_mutex_lock(&target->mutex);
        uint64_t acknowledged = target->acknowledged;
        pthread_mutex_unlock(&target->mutex);
        if (acknowledged == target->stored) continue;
        struct dl_buf number = {0};
        dl_buf_u64(&number, acknowledged);
        if (!begun) status = dl_store_begin(notify->store, &error);
        begun = 1;
        blob_name(target, name);
        if (status == DL_OK)
            status = dl_store_put_blob(notify->store, name, dl_buf_slice(&number), &error);
        dl_buf_free(&number);
        target->stored = acknowledged;
    }
    if (begun && status == DL_OK) status = dl_store_commit(notify->store, &error);
    if (status == DL_OK) return;
    dl_store_rollback(notify->store);
    DL_WARN("notify", "alerts may be sent again after a restart: %s", error.text);
}

static void on_async(uv_async_t *async)
{
    if (async->data) remember(async->data);
}

/* ---- the start ----------------------------------------------------------------------------- */

/* What was stored after the last acknowledged alert, and (Alertmanager) what
 * stands: newest first as they are read. */
struct backlog {
    struct target *target;
    uint64_t after;
    uint32_t count;
    struct dl_buf payloads[DL_NOTIFY_QUEUE_MAX];
    int seen[KINDS];
};

static int take_stored(void *user, const struct dl_alert_row *row)
{
    struct backlog *backlog = user;
    const int kind = row->kind % KINDS;
    if (!concerns(backlog->target, kind)) return 0;
    const int newest = !backlog->seen[kind];
    backlog->seen[kind] = 1;
    const int stands = backlog->target->kind == ALERTMANAGER && newest && row->raised &&
                       row->kind != DL_ALERT_SURPRISE;
    if (row->number <= backlog->after && !stands) return 0;
    if (backlog->count == DL_NOTIFY_QUEUE_MAX) return 0;
    struct dl_buf *payload = &backlog->payloads[backlog->count++];
    dl_buf_append(payload, row->payload.data, row->payload.size);
    return payload->failed ? DL_ERR_NOMEM : 0;
}

static int take_backlog(struct target *target, struct dl_error *error)
{
    struct dl_notify *notify = target->notify;
    struct dl_buf stored = {0};
    char name[40];
    struct backlog *backlog = calloc(1, sizeof *backlog);
    if (!backlog) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for alerts");
    blob_name(target, name);
    int status = dl_store_get_blob(notify->store, name, &stored, error);
    /* A new target hears of what comes, not of what was. */
    backlog->after = dl_store_alert_last(notify->store);
    if (status == DL_OK) {
        struct dl_reader in = dl_reader_of(dl_buf_slice(&stored));
        backlog->after = dl_read_u64(&in);
        if (in.failed) status = dl_error_set(error, DL_ERR_CORRUPT, "stored %s is damaged", name);
    } else if (status == DL_ERR_NOT_FOUND) {
        status = DL_OK;
    }
    target->acknowledged = backlog->after;
    target->stored = stored.size ? backlog->after : UINT64_MAX;
    backlog->target = target;
    if (status == DL_OK)
        status = dl_store_alerts(notify->store, DL_STORE_ALERTS_KEPT, take_stored, backlog, error);
    struct dl_arena arena = {0};
    for (uint32_t i = backlog->count; i-- > 0;) {
        struct dl_alert alert;
        if (status == DL_OK && dl_record_decode_alert(dl_buf_slice(&backlog->payloads[i]), &alert,
                                                      &arena, NULL) == DL_OK)
            enqueue(target, &alert);
        dl_arena_reset(&arena);
        dl_buf_free(&backlog->payloads[i]);
    }
    dl_arena_deinit(&arena);
    dl_buf_free(&stored);
    free(backlog);
    return status;
}

static int read_token(const char *path, char **header, struct dl_error *error)
{
    char line[TOKEN_BYTES_MAX] = "";
    FILE *file = fopen(path, "r");
    if (!file)
        return dl_error_set(error, DL_ERR_INVALID, "alerts.token_file %s: %s", path,
                            strerror(errno));
    int got = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    if (!got || !line[0])
        return dl_error_set(error, DL_ERR_INVALID,
                            "alerts.token_file %s: its first line should be the token", path);
    *header = malloc(sizeof TOKEN_HEADER + strlen(line));
    if (!*header) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for a token");
    sprintf(*header, TOKEN_HEADER "%s", line);
    return DL_OK;
}

static int target_open(struct dl_notify *notify, enum target_kind kind, const char *url,
                       const struct dl_config *config, struct dl_error *error)
{
    struct target *target = &notify->targets[kind];
    pthread_condattr_t attributes;
    if (!url[0]) return DL_OK;
    target->notify = notify;
    target->kind = kind;
    target->timeout_ms = (long)config->alerts.timeout_ms;
    size_t size = strlen(url);
    while (kind == ALERTMANAGER && size && url[size - 1] == '/') size--;
    target->url = malloc(size + 20);
    if (!target->url) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for alerts");
    sprintf(target->url, "%.*s%s", (int)size, url, kind == ALERTMANAGER ? "/api/v2/alerts" : "");
    if (config->alerts.token_file[0]) {
        int status = read_token(config->alerts.token_file, &target->header, error);
        if (status != DL_OK) return status;
    }
    for (int r = 0; r < RESULTS; r++)
        target->results[r] = dl_metrics_counter(notify->metrics->notifications_total,
                                                DL_LABELS(target_names[kind], result_names[r]));
    pthread_mutex_init(&target->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&target->work, &attributes);
    pthread_condattr_destroy(&attributes);
    int status = take_backlog(target, error);
    if (status == DL_OK && pthread_create(&target->thread, NULL, run, target) != 0)
        status = dl_error_set(error, DL_ERR_NOMEM, "cannot start a thread for alerts");
    target->running = status == DL_OK;
    return status;
}

int dl_notify_open(uv_loop_t *loop, const struct dl_config *config,
                   const struct dl_backend *backend, struct dl_store *store,
                   struct dl_service_metrics *metrics, struct dl_notify **out,
                   struct dl_error *error)
{
    *out = NULL;
    if (!config->alerts.webhook[0] && !config->alerts.alertmanager[0]) return DL_OK;
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct dl_notify *notify = calloc(1, sizeof *notify);
    if (!notify || !(notify->async = calloc(1, sizeof *notify->async))) {
        free(notify);
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for alerts");
    }
    uv_async_init(loop, notify->async, on_async);
    notify->async->data = notify;
    uv_unref((uv_handle_t *)notify->async);
    notify->store = store;
    notify->metrics = metrics;
    notify->backend = backend;
    int status = target_open(notify, WEBHOOK, config->alerts.webhook, config, error);
    if (status == DL_OK)
        status = target_open(notify, ALERTMANAGER, config->alerts.alertmanager, config, error);
    if (status != DL_OK) {
        dl_notify_close(notify);
        return status;
    }
    notify->listener.alert = on_alert;
    backend->listen(backend->context, &notify->listener);
    remember(notify); /* a new target's beginning */
    *out = notify;
    return DL_OK;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void target_close(struct target *target)
{
    if (target->running) {
        pthread_mutex_lock(&target->mutex);
        target->stopping = 1;
        pthread_cond_signal(&target->work);
        pthread_mutex_unlock(&target->mutex);
        pthread_join(target->thread, NULL);
    }
    for (uint32_t i = 0; i < target->count; i++)
        free(target->queue[(target->first + i) % DL_NOTIFY_QUEUE_MAX].body);
    for (int k = 0; k < KINDS; k++) free(target->standing[k]);
    free(target->url);
    free(target->header);
}

void dl_notify_close(struct dl_notify *notify)
{
    if (!notify) return;
    if (notify->listener.alert)
        notify->backend->unlisten(notify->backend->context, &notify->listener);
    for (int t = 0; t < TARGETS; t++) target_close(&notify->targets[t]);
    if (notify->listener.alert) remember(notify);
    notify->async->data = NULL;
    uv_close((uv_handle_t *)notify->async, on_closed);
    dl_buf_free(&notify->body);
    free(notify);
}
