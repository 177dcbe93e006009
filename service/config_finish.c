/* What can only be said once every value is in: spans of feed time need the
 * time unit, and some keys need or exclude others. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/drift_features.h"
#include "service/config_keys.h"
#include "service/suggest.h"

#define FUTURE_SKEW_NS 300e9 /* "auto" on live feeds */

static void problem_at(struct dl_config *config, const char *key, const char *what)
{
    const char *place = dl_config_place(config, key);
    if (strcmp(place, "default") == 0) place = *config->path ? config->path : NULL;
    dl_config_problem(config, place, key, "%s", what);
}

/* ---- spans of feed time ---------------------------------------------------- */

static void finish_span(struct dl_config *config, const struct dl_config_key *key, const char *raw)
{
    int64_t *span = (int64_t *)((char *)config + key->offset);
    int64_t per_second = dl_time_unit_per_second(config->source.time_unit);
    double ns, number;
    if (span == &config->source.future_skew) {
        *span = -1;
        if (strcmp(raw, "off") == 0) return;
        if (strcmp(raw, "auto") == 0) {
            if (config->source.kind == DL_SOURCE_KAFKA && per_second > 0)
                *span = (int64_t)(FUTURE_SKEW_NS / 1e9 * (double)per_second);
            return;
        }
    }
    int status = dl_config_span_parse(raw, &ns, &number);
    double value = status == DL_ERR_NOT_FOUND ? number : ns / 1e9 * (double)per_second;
    const char *place = dl_config_place(config, key->name);
    if (status == DL_ERR_INVALID)
        dl_config_problem(config, place, key->name,
                          "\"%s\" is not a span of feed time: a number in source.time_unit, or one "
                          "with ms, s, m, h or d",
                          raw);
    else if (status == DL_OK && per_second == 0)
        dl_config_problem(config, place, key->name,
                          "\"%s\" has a unit, but source.time_unit is ticks, which have no length; "
                          "give a number of ticks",
                          raw);
    else if (value > 9e18)
        dl_config_problem(config, place, key->name, "\"%s\" is too long", raw);
    else
        *span = (int64_t)ceil(value);
}

static void finish_spans(struct dl_config *config)
{
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        const char *raw = config->entries[k].raw;
        if (key->type == DL_KEY_SPAN) finish_span(config, key, raw ? raw : key->fallback);
    }
}

/* ---- addresses --------------------------------------------------------------- */

/* "HOST:PORT" with a port of 0 to 65535; IPv6 in brackets. */
static bool is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1] || strlen(text) > 255) return false;
    if (strspn(colon + 1, "0123456789") != strlen(colon + 1) || strlen(colon + 1) > 5 ||
        strtol(colon + 1, NULL, 10) > 65535)
        return false;
    if (text[0] == '[') return colon[-1] == ']';
    return memchr(text, ':', (size_t)(colon - text)) == NULL;
}

static bool is_loopback(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strncmp(text, "localhost:", 10) == 0 ||
           strncmp(text, "[::1]:", 6) == 0;
}

static void finish_listen(struct dl_config *config, const char *section, char *listen,
                          enum dl_plain_text plain_text, bool tls)
{
    char key[32], remedy[200];
    snprintf(key, sizeof key, "%s.listen", section);
    if (strcmp(listen, "off") == 0) listen[0] = '\0';
    if (!*listen) return;
    if (!is_address(listen)) {
        snprintf(remedy, sizeof remedy,
                 "\"%.80s\" is not HOST:PORT (an IPv6 address stands in brackets) or off", listen);
        problem_at(config, key, remedy);
    } else if (!is_loopback(listen) && !tls && plain_text == DL_PLAIN_LOOPBACK) {
        snprintf(remedy, sizeof remedy,
                 "\"%.60s\" is not a loopback address and would be plain text; set %s.tls_cert and "
                 "%s.tls_key, or set %s.plain_text to anywhere if that is meant",
                 listen, section, section, section);
        problem_at(config, key, remedy);
    }
}

/* ---- topics and mappings ------------------------------------------------------- */

static bool is_topic(const char *name)
{
    size_t size = strlen(name);
    return size >= 1 && size <= 249 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               size;
}

static void finish_topic(struct dl_config *config, const char *key, const char *name)
{
    if (*name && !is_topic(name))
        problem_at(config, key,
                   "not a topic name: up to 249 letters, digits, dots, dashes and underscores");
    for (size_t k = 0; k < config->source.topics.count; k++)
        if (*name && strcmp(name, config->source.topics.items[k]) == 0)
            problem_at(config, key,
                       "is a source topic as well: driftline would read what it wrote");
}

static void finish_pointer(struct dl_config *config, const char *key, const char *pointer)
{
    if (config->source.encoding == DL_ENCODING_JSON && *pointer && *pointer != '/' &&
        strcmp(pointer, "-") != 0)
        problem_at(config, key, "a JSON pointer begins with a slash, such as /user/id");
    if (*pointer && (config->source.encoding == DL_ENCODING_PROTOBUF ||
                     config->source.encoding == DL_ENCODING_CONFLUENT))
        problem_at(config, key,
                   "protobuf events need no mapping; set source.encoding to json or csv");
}

static void finish_source(struct dl_config *config)
{
    if (config->source.kind == DL_SOURCE_KAFKA) {
        const char *brokers = dl_config_kafka_get(config, "bootstrap.servers");
        if (config->source.topics.count == 0)
            problem_at(config, "source.topics", "name at least one topic to read");
        if (!brokers || !*brokers)
            problem_at(config, "kafka.bootstrap.servers",
                       "is needed for a Kafka source, such as localhost:9092 (or --brokers)");
        if (!dl_config_is_set(config, "source.time_unit"))
            problem_at(config, "source.time_unit",
                       "say what event times are in: s, ms, us, ns, iso8601 or ticks");
    }
    if (config->source.kind == DL_SOURCE_FILE && !*config->source.path)
        problem_at(config, "source.path", "name the file to read");
    for (size_t k = 0; k < config->source.topics.count; k++)
        if (!is_topic(config->source.topics.items[k]))
            problem_at(config, "source.topics",
                       "not a topic name: up to 249 letters, digits, dots, dashes and underscores");

    finish_pointer(config, "source.mapping.src", config->source.mapping.src);
    finish_pointer(config, "source.mapping.dst", config->source.mapping.dst);
    finish_pointer(config, "source.mapping.time", config->source.mapping.time);
    finish_pointer(config, "source.mapping.type", config->source.mapping.type);
    finish_pointer(config, "source.mapping.weight", config->source.mapping.weight);
    finish_pointer(config, "source.mapping.id", config->source.mapping.id);
    for (size_t k = 0; k < config->source.mapping.features.count; k++)
        finish_pointer(config, "source.mapping.features", config->source.mapping.features.items[k]);
    if (config->source.mapping.features.count > 1 &&
        config->source.mapping.features.count != config->store.features)
        problem_at(config, "source.mapping.features", "names other than store.features features");
}

static void finish_outputs(struct dl_config *config)
{
    finish_topic(config, "predict.scores_topic", config->predict.scores_topic);
    finish_topic(config, "predict.predictions_topic", config->predict.predictions_topic);
    finish_topic(config, "predict.alerts_topic", config->predict.alerts_topic);
    finish_topic(config, "predict.dead_letters_topic", config->predict.dead_letters_topic);
    finish_topic(config, "predict.late_topic", config->predict.late_topic);
    if (config->source.late_policy == DL_LATE_TOPIC && !*config->predict.late_topic)
        problem_at(config, "predict.late_topic", "is needed when source.late_policy is topic");
    if (config->predict.top_k > config->predict.candidates_max)
        problem_at(config, "predict.top_k", "is larger than predict.candidates_max");
}

/* Whether a server has TLS; certificate and key go together. */
static bool finish_tls(struct dl_config *config, const char *section, const char *cert,
                       const char *key, const char *ca)
{
    char name[32], remedy[120];
    if (*cert && !*key) {
        snprintf(name, sizeof name, "%s.tls_key", section);
        snprintf(remedy, sizeof remedy, "is needed beside %s.tls_cert", section);
        problem_at(config, name, remedy);
    }
    if (*key && !*cert) {
        snprintf(name, sizeof name, "%s.tls_cert", section);
        snprintf(remedy, sizeof remedy, "is needed beside %s.tls_key", section);
        problem_at(config, name, remedy);
    }
    if (*ca && !(*cert && *key)) {
        snprintf(name, sizeof name, "%s.tls_ca", section);
        snprintf(remedy, sizeof remedy,
                 "asks for client certificates, which need %s.tls_cert and %s.tls_key", section,
                 section);
        problem_at(config, name, remedy);
    }
    return *cert && *key;
}

static void finish_servers(struct dl_config *config)
{
    bool rpc =
        finish_tls(config, "rpc", config->rpc.tls_cert, config->rpc.tls_key, config->rpc.tls_ca);
    bool http = finish_tls(config, "http", config->http.tls_cert, config->http.tls_key,
                           config->http.tls_ca);
    finish_listen(config, "rpc", config->rpc.listen, config->rpc.plain_text, rpc);
    finish_listen(config, "http", config->http.listen, config->http.plain_text, http);
}

static void finish_drift(struct dl_config *config)
{
    if (config->drift.frequencies % 32)
        problem_at(config, "drift.frequencies", "is not a multiple of 32");
    for (size_t k = 0; k < config->drift.features.count; k++) {
        const char *name = config->drift.features.items[k];
        const char *meant = dl_suggest_nearest(name, dl_drift_column_names, DL_DRIFT_COLUMNS);
        if (meant && strcmp(meant, name) == 0) continue;
        char text[300];
        size_t used = (size_t)snprintf(text, sizeof text, "\"%.40s\" is not one of", name);
        for (int c = 0; c < DL_DRIFT_COLUMNS && used < sizeof text; c++)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, " %s", dl_drift_column_names[c]);
        problem_at(config, "drift.features", text);
    }
}

static void finish_url(struct dl_config *config, const char *key, const char *url)
{
    if (*url && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        problem_at(config, key, "takes a URL that begins with http:// or https://");
}

static void finish_alerts(struct dl_config *config)
{
    finish_url(config, "alerts.webhook", config->alerts.webhook);
    finish_url(config, "alerts.alertmanager", config->alerts.alertmanager);
    if (config->alerts.timeout_ms < 100 || config->alerts.timeout_ms > 600000)
        problem_at(config, "alerts.timeout", "takes 100ms to 10m");
}

int dl_config_finish(struct dl_config *config, struct dl_error *error)
{
    finish_spans(config);
    finish_source(config);
    finish_outputs(config);
    finish_servers(config);
    finish_drift(config);
    finish_alerts(config);
    if (!*config->store.path)
        problem_at(config, "store.path", "name the file that keeps the state");
    if (config->model.workers == 0) {
        long processors = sysconf(_SC_NPROCESSORS_ONLN);
        config->model.workers = processors > 2 ? (uint64_t)processors - 1 : 1;
        if (config->model.workers > 256) config->model.workers = 256;
    }
    if (config->problems.count == 0) return DL_OK;
    if (config->problems.count == 1)
        return dl_error_set(error, DL_ERR_INVALID, "%s", config->problems.items[0]);
    return dl_error_set(error, DL_ERR_INVALID, "%.440s (and %zu more: driftline check lists them)",
                        config->problems.items[0], config->problems.count - 1);
}
