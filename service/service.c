/* Putting the parts together, and taking them apart in order. */
#include "service/service.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/between.h"
#include "base/clock.h"
#include "proto/record_codec.h"
#include "service/http.h"
#include "service/intake.h"
#include "service/kafka_sink.h"
#include "service/kafka_source.h"
#include "service/line_source.h"
#include "service/log.h"
#include "service/notify.h"
#include "service/rpc_methods.h"
#include "service/rpc_server.h"
#include "service/sd_notify.h"
#include "service/version.h"

#define TICK_MS 500
#define FORGET_MS 1 /* between steps of forgetting, while nothing else is to do */
#define DRAIN_MS 10000
#define ROOM_TICKS 4 /* of TICK_MS, after which a full disk counts as having room again */

/* How far the end has come. */
enum phase { RUNNING, DRAINING, CLOSING, CLOSED };

struct dl_service {
    uv_loop_t *loop;
    struct dl_service_options options;
    const struct dl_config *config;
    struct dl_metrics *registry;
    struct dl_service_metrics metrics;
    struct dl_store *store;
    struct dl_model *model;
    struct dl_workers *workers;
    struct dl_engine *engine;
    struct dl_backend backend;
    struct dl_intake *intake;
    struct dl_kafka_source *kafka_source;
    struct dl_line_source *line_source;
    struct dl_kafka_share *share;
    struct dl_kafka_sink *sink;
    struct dl_rpc_server *rpc;
    struct dl_rpc_methods *methods;
    struct dl_http *http;
    struct dl_notify *notify;
    uv_timer_t tick, forget; /* forget: runs while something is being forgotten */
    uv_signal_t signals[3];
    int tick_open, signals_open;
    char rpc_address[80], http_url[120];
    enum phase phase;
    int64_t drain_until_ns;
    int rpc_drained, rpc_closed, http_closed, handles_left;
    int reload_asked;
    int full_ticks;        /* the disk is, or was just, full */
    uint64_t stall_events; /* of the feed, when last seen to move */
    int64_t stall_since_ns;
    int64_t watchdog_ns, watchdog_fed_ns;      /* 0: systemd does not ask for it */
    uint64_t read_bytes, total_bytes, records; /* of a file, once it is closed */
    char failure[1024];
};

static void tick(struct dl_service *service);
static void reload_between_batches(struct dl_service *service);

static void fail(void *context, const char *reason)
{
    struct dl_service *service = context;
    if (!service->failure[0]) {
        snprintf(service->failure, sizeof service->failure, "%s", reason);
        DL_ERROR("service", "%s", reason);
    }
    dl_service_stop(service);
}

/* ---- running -------------------------------------------------------------------------- */

static void on_forget(uv_timer_t *timer);

static void go_on_forgetting(struct dl_service *service, int status)
{
    if (!service->tick_open) return;
    if (!dl_engine_forgetting(service->engine))
        uv_timer_stop(&service->forget);
    else if (status != DL_OK || !uv_is_active((uv_handle_t *)&service->forget))
        uv_timer_start(&service->forget, on_forget, status == DL_OK ? FORGET_MS : TICK_MS,
                       FORGET_MS);
}

static void progressed(void *context)
{
    struct dl_service *service = context;
    const char *failure = dl_engine_failure(service->engine);
    if (failure) {
        fail(service, failure);
        return;
    }
    reload_between_batches(service);
    if (service->sink) dl_kafka_sink_wake(service->sink);
    if (service->kafka_source) dl_kafka_source_resume(service->kafka_source);
    if (service->line_source) dl_line_source_resume(service->line_source);
    go_on_forgetting(service, DL_OK);
    if (service->phase != RUNNING) tick(service);
}

static void on_forget(uv_timer_t *timer)
{
    struct dl_service *service = timer->data;
    int status = dl_engine_forget_step(service->engine);
    const char *failure = dl_engine_failure(service->engine);
    if (failure) fail(service, failure);
    go_on_forgetting(service, status);
}

static void source_ended(void *context)
{
    struct dl_service *service = context;
    DL_INFO("source", "end of input after %" PRIu64 " events",
            dl_graph_feed(dl_engine_graph(service->engine))->events);
    if (service->options.stop_at_end) dl_service_stop(service);
}

int dl_service_ready(const struct dl_service *service, struct dl_error *error)
{
    const char *failure = dl_engine_failure(service->engine);
    if (service->failure[0] || failure) {
        dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", failure ? failure : service->failure);
        return 0;
    }
    if (service->phase != RUNNING) {
        dl_error_set(error, DL_ERR_UNAVAILABLE, "shutting down");
        return 0;
    }
    if (dl_engine_waiting(service->engine)) {
        dl_error_set(error, DL_ERR_UNAVAILABLE, "%s", dl_engine_waiting(service->engine));
        return 0;
    }
    if (service->kafka_source && !dl_kafka_source_ready(service->kafka_source)) {
        dl_error_set(
            error, DL_ERR_UNAVAILABLE,
            "no partition of %s is assigned: is the broker up, does the topic exist? After "
            "a crash the group waits for the old member (kafka.session.timeout.ms) unless "
            "kafka.group.instance.id is set",
            service->config->source.topics.count ? service->config->source.topics.items[0]
                                                 : "the source");
        return 0;
    }
    if (service->sink && !dl_kafka_sink_ready(service->sink)) {
        dl_error_set(error, DL_ERR_UNAVAILABLE, "the producer waits for a broker");
        return 0;
    }
    if (error) error->text[0] = '\0';
    return 1;
}

static int backend_ready(void *context, struct dl_error *error)
{
    /* The backend's context is the engine; the service is found through it. */
    return dl_service_ready(dl_engine_parts_context(context), error);
}

static void measure(struct dl_service *service)
{
    struct dl_service_metrics *m = &service->metrics;
    struct dl_store_stats stats;
    const struct dl_graph *graph = dl_engine_graph(service->engine);
    struct dl_quality *quality = dl_engine_quality(service->engine);
    struct dl_drift_monitor *drift = dl_engine_drift(service->engine);
    dl_store_get_stats(service->store, &stats);
    dl_gauge_set(dl_metrics_gauge(m->store_bytes, DL_LABELS("database")), (double)stats.file_bytes);
    dl_gauge_set(dl_metrics_gauge(m->store_bytes, DL_LABELS("wal")), (double)stats.wal_bytes);
    dl_gauge_set(m->graph_nodes, dl_graph_feed(graph)->nodes);
    dl_gauge_set(m->graph_pairs, (double)dl_graph_pairs(graph));
    dl_gauge_set(m->graph_dirty_pages, dl_graph_pages_dirty(graph));
    dl_gauge_set(m->scoring_queue_batches, dl_workers_pending(service->workers));
    dl_gauge_set(m->outbox_rows, (double)(stats.outbox_next - stats.outbox_first));
    dl_gauge_set(m->store_full, dl_engine_waiting(service->engine) != NULL);
    dl_gauge_set(m->ready, dl_service_ready(service, NULL));
    if (quality) {
        struct dl_quality_figures figures;
        dl_quality_figures(quality, &figures);
        dl_gauge_set(m->quality_average_precision, figures.ap);
        dl_gauge_set(m->quality_auc, figures.auc);
        dl_gauge_set(m->quality_mrr, figures.mrr);
        dl_gauge_set(m->quality_calibration_error, figures.ece);
        dl_gauge_set(m->quality_events, (double)figures.events);
    }
    if (drift) {
        dl_gauge_set(m->drift_statistic, dl_drift_monitor_statistic(drift));
        dl_gauge_set(m->drift_threshold, dl_drift_monitor_threshold(drift));
        dl_gauge_set(m->drift_raised, dl_drift_monitor_is_raised(drift));
        dl_gauge_set(dl_metrics_gauge(m->alert_active, DL_LABELS("temporal_shift")),
                     dl_drift_monitor_is_raised(drift));
    }
}

static void measure_attention(struct dl_service *service)
{
    static const enum dl_alert_kind kinds[] = {DL_ALERT_TEMPORAL_SHIFT, DL_ALERT_QUALITY_DROP,
                                               DL_ALERT_ATTENTION_DISPERSION, DL_ALERT_FEED_FAST,
                                               DL_ALERT_FEED_STALLED};
    struct dl_service_metrics *m = &service->metrics;
    const struct dl_watch *watch = dl_engine_watch(service->engine);
    const struct dl_drift_monitor *drift = dl_engine_drift(service->engine);
    struct dl_watch_figures figures;
    char layer[12];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int raised =
            k ? dl_watch_is_raised(watch, kinds[k]) : drift && dl_drift_monitor_is_raised(drift);
        dl_gauge_set(dl_metrics_gauge(m->alert_active, DL_LABELS(dl_alert_kind_name(kinds[k]))),
                     raised);
    }
    dl_watch_figures(watch, &figures);
    if (!figures.samples) return;
    for (uint32_t l = 0; l < figures.layers; l++) {
        snprintf(layer, sizeof layer, "%u", l + 1);
        dl_gauge_set(dl_metrics_gauge(m->attention_entropy_ratio, DL_LABELS(layer)),
                     figures.entropy[l]);
        dl_gauge_set(dl_metrics_gauge(m->attention_top5_ratio, DL_LABELS(layer)),
                     figures.top5_share[l]);
    }
    dl_gauge_set(m->attention_sink_movement_ratio, figures.sink_movement);
    if (isnan(figures.global_sinks)) return;
    dl_gauge_set(dl_metrics_gauge(m->attention_sinks, DL_LABELS("global")), figures.global_sinks);
    dl_gauge_set(dl_metrics_gauge(m->attention_sinks, DL_LABELS("local")), figures.local_sinks);
}

/* Raises the alert when nothing has come for drift.stall. Waiting for room or for
 * the workers is our own slowness, not the feed's. */
static void watch_stall(struct dl_service *service)
{
    struct dl_error error = {""};
    const uint64_t events = dl_graph_feed(dl_engine_graph(service->engine))->events;
    const int64_t now_ns = dl_clock_monotonic_ns();
    const int64_t limit_ns = service->config->drift.stall_ms * 1000000;
    if (!limit_ns) return;
    if (events != service->stall_events || dl_engine_busy(service->engine) ||
        !dl_engine_room(service->engine) || !service->stall_since_ns) {
        service->stall_events = events;
        service->stall_since_ns = now_ns;
    } else if (now_ns - service->stall_since_ns >= limit_ns &&
               dl_engine_stalled(service->engine, (double)(now_ns - service->stall_since_ns) / 1e9,
                                 &error) != DL_OK) {
        fail(service, error.text);
    }
}

static void publish_model_info(struct dl_service *service)
{
    if (!service->model) return;
    const struct dl_model_info *info = dl_model_get_info(service->model);
    dl_metrics_clear(service->metrics.model_info);
    dl_gauge_set(dl_metrics_gauge(service->metrics.model_info,
                                  DL_LABELS(info->version, info->config.architecture, info->ties)),
                 1);
}

static void reload_model(struct dl_service *service)
{
    struct dl_error error = {""};
    struct dl_model *model;
    if (!service->config->model.path[0] || service->options.no_model) return;
    int status = dl_model_load(service->config->model.path, &model, &error);
    if (status == DL_OK && service->model &&
        strcmp(dl_model_get_info(model)->version, dl_model_get_info(service->model)->version) ==
            0) {
        DL_INFO("model", "%s is served already", dl_model_get_info(model)->version);
        dl_model_unref(model);
        return;
    }
    if (status == DL_OK) {
        status = dl_engine_set_model(service->engine, model, &error);
        if (status == DL_OK) {
            dl_model_unref(service->model);
            service->model = model;
            dl_counter_add(service->metrics.model_reloads_total, 1);
            publish_model_info(service);
            DL_INFO("model", "now serving %s", dl_model_get_info(model)->version);
            return;
        }
        dl_model_unref(model);
    }
    DL_ERROR("model", "the old model stays: %s", error.text);
}

/* To systemd, and only from the service that is the process. */
static void tell_manager(const struct dl_service *service, const char *state)
{
    if (service->options.handle_signals && dl_sd_notify(state) < 0)
        DL_WARN("service", "systemd could not be told %s", state);
}

/* SIGHUP: certificates and tokens, at once. What fails leaves the old in place. */
static void reload_access(struct dl_service *service)
{
    struct dl_error error = {""};
    if (service->options.handle_signals) dl_sd_notify_reloading();
    if (service->rpc && dl_rpc_server_reload_tls(service->rpc, &error) != DL_OK)
        DL_ERROR("service", "certificates are kept as they were: %s", error.text);
    if (service->methods && dl_rpc_methods_reload_tokens(service->methods, &error) != DL_OK)
        DL_ERROR("service", "tokens are kept as they were: %s", error.text);
    if (service->http && dl_http_reload(service->http, &error) != DL_OK)
        DL_ERROR("service", "HTTP keeps what it had: %s", error.text);
}

/* And the model file, once no batch is under way. */
static void reload_between_batches(struct dl_service *service)
{
    if (!service->reload_asked || service->phase != RUNNING || dl_engine_busy(service->engine))
        return;
    service->reload_asked = 0;
    reload_model(service);
    tell_manager(service, "READY=1");
}

/* ---- the end ------------------------------------------------------------------------------ */

static void maybe_stopped(struct dl_service *service)
{
    if (service->phase != CLOSING || !service->rpc_closed || !service->http_closed ||
        service->handles_left)
        return;
    service->phase = CLOSED;
    if (service->options.stopped) service->options.stopped(service->options.context);
}

static void rpc_closed(void *context)
{
    struct dl_service *service = context;
    service->rpc = NULL;
    service->methods = NULL;
    service->rpc_closed = 1;
    maybe_stopped(service);
}

static void http_closed(void *context)
{
    struct dl_service *service = context;
    service->http = NULL;
    service->http_closed = 1;
    maybe_stopped(service);
}

static void handle_closed(uv_handle_t *handle)
{
    struct dl_service *service = handle->data;
    service->handles_left--;
    maybe_stopped(service);
}

static void close_all(struct dl_service *service)
{
    struct dl_error error = {""};
    service->phase = CLOSING;
    if (service->sink) dl_kafka_sink_close(service->sink);
    service->sink = NULL;
    dl_notify_close(service->notify);
    service->notify = NULL;
    if (service->kafka_source) dl_kafka_source_close(service->kafka_source);
    service->kafka_source = NULL;
    if (service->line_source) {
        dl_line_source_progress(service->line_source, &service->read_bytes, &service->total_bytes,
                                &service->records);
        dl_line_source_close(service->line_source);
    }
    const char *reason;
    uint64_t broken = service->intake ? dl_intake_broken(service->intake, &reason) : 0;
    if (broken && !service->options.no_model)
        DL_WARN("intake",
                "%" PRIu64 " messages could not be used and became dead letters; the "
                "first: %s",
                broken, reason);
    service->line_source = NULL;
    if (service->engine && !dl_engine_failure(service->engine) &&
        !dl_engine_busy(service->engine) && dl_engine_checkpoint(service->engine, &error) != DL_OK)
        DL_WARN("store", "no checkpoint at the end, the next start replays the log: %s",
                error.text);
    if (service->tick_open) uv_close((uv_handle_t *)&service->tick, handle_closed);
    if (service->tick_open) uv_close((uv_handle_t *)&service->forget, handle_closed);
    for (int i = 0; i < service->signals_open; i++)
        uv_close((uv_handle_t *)&service->signals[i], handle_closed);
    service->handles_left = 2 * service->tick_open + service->signals_open;
    service->tick_open = service->signals_open = 0;
    if (service->rpc)
        dl_rpc_server_close(service->rpc, rpc_closed, service);
    else
        service->rpc_closed = 1;
    if (service->http)
        dl_http_close(service->http, http_closed, service);
    else
        service->http_closed = 1;
    maybe_stopped(service);
}

/* While draining: is everything scored, stored and published? */
static int drained(const struct dl_service *service)
{
    if (dl_engine_failure(service->engine)) return 1;
    if (dl_engine_busy(service->engine) || dl_workers_pending(service->workers)) return 0;
    if (service->rpc && !service->rpc_drained) return 0; /* answers are on their way */
    return !service->sink || service->failure[0] || dl_kafka_sink_idle(service->sink);
}

/* Says that the loop turns, as often as systemd asked. */
static void feed_watchdog(struct dl_service *service)
{
    const int64_t now_ns = dl_clock_monotonic_ns();
    if (!service->watchdog_ns || now_ns - service->watchdog_fed_ns < service->watchdog_ns) return;
    service->watchdog_fed_ns = now_ns;
    dl_sd_notify("WATCHDOG=1");
}

/* Where the disk was full: is there room again? A batch may still fit now and then,
 * so that it is over only after a while. */
static void retry(struct dl_service *service)
{
    dl_engine_retry(service->engine);
    struct dl_error error = {""};
    int status = dl_engine_sweep(service->engine, &error);
    if (status != DL_OK && status != DL_ERR_FULL) fail(service, error.text);
    const char *waiting = dl_engine_waiting(service->engine);
    if (waiting && !service->full_ticks)
        DL_ERROR("store", "%s; waiting for it, and nothing more is taken in", waiting);
    if (waiting)
        service->full_ticks = ROOM_TICKS;
    else if (service->full_ticks && --service->full_ticks == 0)
        DL_INFO("store", "there is room again");
}

static void tick(struct dl_service *service)
{
    feed_watchdog(service);
    if (service->phase == RUNNING) {
        retry(service);
        measure(service);
        measure_attention(service);
        watch_stall(service);
        reload_between_batches(service);
        return;
    }
    if (service->phase != DRAINING) return;
    dl_engine_flush(service->engine);
    if (service->sink) dl_kafka_sink_wake(service->sink);
    int late = dl_clock_monotonic_ns() > service->drain_until_ns;
    if (late && !drained(service))
        DL_WARN("service", "ending with RPC calls open or output still in the outbox, which the "
                           "next start publishes");
    if (late || drained(service)) close_all(service);
}

static void on_tick(uv_timer_t *timer)
{
    tick(timer->data);
}

static void on_rpc_drained(void *context)
{
    ((struct dl_service *)context)->rpc_drained = 1;
}

void dl_service_stop(struct dl_service *service)
{
    if (service->phase != RUNNING) return;
    service->phase = DRAINING;
    tell_manager(service, "STOPPING=1");
    int64_t drain_ms = service->options.drain_ms ? service->options.drain_ms : DRAIN_MS;
    service->drain_until_ns = dl_clock_monotonic_ns() + drain_ms * 1000000;
    if (service->kafka_source) dl_kafka_source_stop(service->kafka_source);
    if (service->line_source) dl_line_source_stop(service->line_source);
    if (service->rpc) dl_rpc_server_drain(service->rpc, drain_ms, on_rpc_drained, service);
    dl_engine_flush(service->engine);
    if (service->tick_open) uv_timer_start(&service->tick, on_tick, 1, 20);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct dl_service *service = handle->data;
    if (number == SIGHUP) {
        DL_INFO("service", "SIGHUP: reloading certificates, tokens and the model");
        reload_access(service);
        service->reload_asked = 1;
        reload_between_batches(service);
    } else if (service->phase == RUNNING) {
        DL_INFO("service", "%s: draining", number == SIGTERM ? "SIGTERM" : "SIGINT");
        dl_service_stop(service);
    } else {
        DL_WARN("service", "second signal: ending at once");
        service->drain_until_ns = 0;
        tick(service);
    }
}

/* ---- the start --------------------------------------------------------------------------------
 */

static int open_store(struct dl_service *service, struct dl_error *error)
{
    const struct dl_config *config = service->config;
    struct dl_store_options options = dl_store_options_default;
    options.config = (struct dl_store_config){.time_unit = config->source.time_unit,
                                              .window = (uint32_t)config->store.window,
                                              .feature_count = (uint32_t)config->store.features,
                                              .namespaces = config->source.bipartite ? 2 : 1};
    options.sync = config->store.synchronous == DL_SYNCHRONOUS_NORMAL ? DL_STORE_SYNC_NORMAL
                                                                      : DL_STORE_SYNC_FULL;
    options.log_keep_events =
        config->store.log_events_max ? config->store.log_events_max : UINT64_MAX / 2;
    options.created_by = "driftline " DL_VERSION;
    return dl_store_open(config->store.path, &options, &service->store, error);
}

static int open_model(struct dl_service *service, struct dl_error *error)
{
    if (service->options.no_model) return DL_OK;
    if (service->options.model) {
        service->model = dl_model_ref(service->options.model);
    } else if (service->config->model.path[0]) {
        int status = dl_model_load(service->config->model.path, &service->model, error);
        if (status == DL_OK) status = dl_engine_check_model(service->config, service->model, error);
        if (status != DL_OK) return status;
    } else {
        DL_WARN("model", "model.path is not set: events are taken in, nothing is scored");
        return DL_OK;
    }
    const struct dl_model_info *info = dl_model_get_info(service->model);
    DL_INFO("model", "%s %s: window %u, width %u, %" PRIu64 " parameters, trained under %s",
            info->config.architecture, info->version, info->config.window, info->config.width,
            info->parameters, info->ties);
    if (service->config->store.window < DL_HISTORY)
        DL_WARN("model",
                "store.window is %" PRIu64
                ": models learn from the last %d interactions of a node, "
                "so scores will be less good; use a new store with at least as many",
                service->config->store.window, DL_HISTORY);
    if (strcmp(info->ties, "strict") == 0)
        DL_WARN("model", "it was trained under the tie policy strict; a live feed is `stream`");
    return DL_OK;
}

static int publishes(const struct dl_config *config)
{
    return dl_config_kafka_get(config, "bootstrap.servers") ||
           dl_config_kafka_get(config, "metadata.broker.list");
}

static int open_engine(struct dl_service *service, struct dl_error *error)
{
    struct dl_engine_parts parts = {.config = service->config,
                                    .store = service->store,
                                    .workers = service->workers,
                                    .model = service->model,
                                    .metrics = &service->metrics,
                                    .publish =
                                        !service->options.no_model && publishes(service->config),
                                    .progressed = progressed,
                                    .context = service};
    int status = dl_engine_new(&parts, &service->engine, error);
    if (status != DL_OK) return status;
    dl_engine_backend(service->engine, &service->backend);
    service->backend.ready = backend_ready;
    return dl_intake_new(service->config, service->engine, &service->metrics, &service->intake,
                         error);
}

static int open_source(struct dl_service *service, struct dl_error *error)
{
    const struct dl_config *config = service->config;
    if (config->source.kind == DL_SOURCE_KAFKA)
        return dl_kafka_source_open(service->loop, config, service->engine, service->intake,
                                    &service->metrics, fail, service, &service->kafka_source,
                                    error);
    return dl_line_source_open(service->loop, config,
                               config->source.kind == DL_SOURCE_FILE ? config->source.path : NULL,
                               service->engine, service->intake, fail, source_ended, service,
                               &service->line_source, error);
}

static void learnt(void *context)
{
    struct dl_service *service = context;
    if (service->kafka_source) dl_kafka_source_settle(service->kafka_source);
}

static int open_sink(struct dl_service *service, struct dl_error *error)
{
    if (service->options.no_model || !publishes(service->config)) return DL_OK;
    struct dl_kafka_sink_parts parts = {.loop = service->loop,
                                        .config = service->config,
                                        .engine = service->engine,
                                        .store = service->store,
                                        .metrics = &service->metrics,
                                        .failed = fail,
                                        .learnt = learnt,
                                        .context = service};
    if (service->kafka_source) {
        if (dl_kafka_share_new(&service->config->source.topics, &service->share) != DL_OK)
            return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the partitions");
        parts.consumer = dl_kafka_source_consumer(service->kafka_source);
        parts.share = service->share;
    }
    int status = dl_kafka_sink_open(&parts, &service->sink, error);
    if (status == DL_OK && service->kafka_source)
        status =
            dl_kafka_source_attach(service->kafka_source, service->share, service->sink, error);
    return status;
}

static int open_notify(struct dl_service *service, struct dl_error *error)
{
    if (service->options.no_model) return DL_OK;
    return dl_notify_open(service->loop, service->config, &service->backend, service->store,
                          &service->metrics, &service->notify, error);
}

static int open_rpc(struct dl_service *service, struct dl_error *error)
{
    const struct dl_config *config = service->config;
    if (service->options.no_model || !config->rpc.listen[0]) return DL_OK;
    int status = dl_rpc_methods_open(service->loop, config, NULL, &service->metrics, &service->rpc,
                                     &service->methods, error);
    if (status == DL_OK)
        snprintf(service->rpc_address, sizeof service->rpc_address, "%s",
                 dl_rpc_server_address(service->rpc));
    return status;
}

static int open_http(struct dl_service *service, struct dl_error *error)
{
    const struct dl_config *config = service->config;
    if (service->options.no_model || !config->http.listen[0]) return DL_OK;
    const int own_tokens = config->http.tokens_file[0] != '\0';
    struct dl_http_options options = {
        .listen = config->http.listen,
        .plain_text_anywhere = config->http.plain_text == DL_PLAIN_ANYWHERE,
        .tls_cert = config->http.tls_cert,
        .tls_key = config->http.tls_key,
        .tls_ca = config->http.tls_ca,
        .tokens_file = own_tokens ? config->http.tokens_file : config->rpc.tokens_file,
        .tokens_key = own_tokens ? "http.tokens_file" : "rpc.tokens_file",
        .connections_max = (uint32_t)config->http.connections_max,
        .backend = &service->backend,
        .metrics = service->registry,
        .service = &service->metrics,
        .time_unit = config->source.time_unit,
        .version = DL_VERSION};
    int status = dl_http_open(service->loop, &options, &service->http, error);
    if (status == DL_OK)
        snprintf(service->http_url, sizeof service->http_url, "%s", dl_http_url(service->http));
    return status;
}

static void open_timers(struct dl_service *service)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    uv_timer_init(service->loop, &service->tick);
    service->tick.data = service;
    service->tick_open = 1;
    uv_timer_start(&service->tick, on_tick, TICK_MS, TICK_MS);
    uv_timer_init(service->loop, &service->forget);
    service->forget.data = service;
    go_on_forgetting(service, DL_OK);
    for (int i = 0; service->options.handle_signals && i < 3; i++) {
        uv_signal_init(service->loop, &service->signals[i]);
        service->signals[i].data = service;
        uv_signal_start(&service->signals[i], on_signal, numbers[i]);
        service->signals_open++;
    }
}

int dl_service_new(uv_loop_t *loop, const struct dl_service_options *options,
                   struct dl_service **out, struct dl_error *error)
{
    struct dl_service *service = calloc(1, sizeof *service);
    if (!service) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the service");
    service->loop = loop;
    service->options = *options;
    service->config = options->config;
    /* libuv writes without MSG_NOSIGNAL: a client that hangs up must not end us. */
    if (options->handle_signals) signal(SIGPIPE, SIG_IGN);
    int status = dl_metrics_new(&service->registry);
    if (status == DL_OK)
        status = dl_service_metrics_init(service->registry, &service->metrics, error);
    if (status == DL_OK) status = open_model(service, error);
    /* A feed that cannot be read and a port that is taken are found before a store is made. */
    if (status == DL_OK && service->config->source.kind == DL_SOURCE_FILE)
        status = dl_line_source_check(service->config, error);
    if (status == DL_OK) status = open_rpc(service, error);
    if (status == DL_OK) status = open_http(service, error);
    if (status == DL_OK) status = open_store(service, error);
    if (status == DL_OK)
        status = dl_workers_new(loop, (uint32_t)service->config->model.workers, &service->workers,
                                error);
    if (status == DL_OK) status = open_engine(service, error);
    if (status == DL_OK) {
        open_timers(service);
        publish_model_info(service);
        if (service->methods) dl_rpc_methods_attach(service->methods, &service->backend);
        if (service->http) dl_http_attach(service->http);
    }
    if (status == DL_OK) status = open_notify(service, error);
    if (status == DL_OK) status = open_source(service, error);
    if (status == DL_OK) status = open_sink(service, error);
    if (status == DL_OK) {
        if (options->handle_signals) service->watchdog_ns = dl_sd_watchdog_ns();
        tell_manager(service, "READY=1");
        *out = service;
        return DL_OK;
    }
    /* The loop turns once more for the handles that are being closed. */
    if (service->engine || service->rpc || service->http) {
        snprintf(service->failure, sizeof service->failure, "start failed");
        service->options.stopped = NULL;
        close_all(service);
        while (service->phase != CLOSED && uv_run(loop, UV_RUN_ONCE)) continue;
    }
    dl_service_free(service);
    uv_run(loop, UV_RUN_NOWAIT);
    return status;
}

void dl_service_free(struct dl_service *service)
{
    if (!service) return;
    dl_kafka_share_free(service->share);
    dl_workers_free(service->workers);
    dl_intake_free(service->intake);
    dl_engine_free(service->engine);
    dl_store_close(service->store);
    dl_model_unref(service->model);
    dl_metrics_free(service->registry);
    free(service);
}

/* ---- looking at it ------------------------------------------------------------------------------
 */

const char *dl_service_failure(const struct dl_service *service)
{
    return service->failure[0] ? service->failure : NULL;
}

struct dl_engine *dl_service_engine(struct dl_service *service)
{
    return service->engine;
}

struct dl_service_metrics *dl_service_metrics(struct dl_service *service)
{
    return &service->metrics;
}

const char *dl_service_rpc_address(const struct dl_service *service)
{
    return service->rpc_address;
}

const char *dl_service_http_url(const struct dl_service *service)
{
    return service->http_url;
}

void dl_service_progress(const struct dl_service *service, uint64_t *read_bytes,
                         uint64_t *total_bytes, uint64_t *records, uint64_t *broken,
                         const char **first_reason)
{
    *read_bytes = service->read_bytes;
    *total_bytes = service->total_bytes;
    *records = service->records;
    if (service->line_source)
        dl_line_source_progress(service->line_source, read_bytes, total_bytes, records);
    *broken = dl_intake_broken(service->intake, first_reason);
}
