/* The configuration: one YAML file, overridden by DRIFTLINE_<SECTION>_<KEY> in
 * the environment (dots as underscores), overridden by flags. One table
 * (config_keys.c) describes every key: name, type, default, limits, help. The
 * parser, the checks, `--help` and docs/OPERATIONS.md all come from it.
 *
 * Everything under `kafka` goes to librdkafka unchanged.
 *
 * Ownership: a struct dl_config owns all its text and is read-only once
 * loaded; any thread may then read it. A reload loads a second one. */
#ifndef DL_SERVICE_CONFIG_H
#define DL_SERVICE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/status.h"

enum dl_source_kind { DL_SOURCE_KAFKA, DL_SOURCE_FILE, DL_SOURCE_STDIN };
enum dl_source_encoding {
    DL_ENCODING_PROTOBUF,
    DL_ENCODING_CONFLUENT, /* protobuf in Confluent framing */
    DL_ENCODING_JSON,
    DL_ENCODING_CSV
};
enum dl_source_start { DL_START_EARLIEST, DL_START_LATEST };
enum dl_delivery { DL_DELIVERY_EXACTLY_ONCE, DL_DELIVERY_AT_LEAST_ONCE };
enum dl_late_policy { DL_LATE_ACCEPT, DL_LATE_TOPIC, DL_LATE_DROP };
enum dl_tombstone_policy { DL_TOMBSTONE_DEAD_LETTER, DL_TOMBSTONE_SKIP };
enum dl_synchronous { DL_SYNCHRONOUS_FULL, DL_SYNCHRONOUS_NORMAL };
enum dl_output_encoding { DL_OUTPUT_PROTOBUF, DL_OUTPUT_JSON };
enum dl_predict_for {
    DL_PREDICT_NONE = 0,
    DL_PREDICT_SOURCE = 1,
    DL_PREDICT_DESTINATION = 2,
    DL_PREDICT_BOTH = 3
};
enum dl_drift_form { DL_DRIFT_FOURIER, DL_DRIFT_EXACT };
enum dl_plain_text { DL_PLAIN_LOOPBACK, DL_PLAIN_ANYWHERE };
enum dl_log_level { DL_LOG_DEBUG, DL_LOG_INFO, DL_LOG_WARN, DL_LOG_ERROR };
enum dl_log_format { DL_LOG_TEXT, DL_LOG_JSON };

/* A list of texts. items is NULL when count is 0. */
struct dl_texts {
    size_t count;
    char **items;
};

/* librdkafka settings in order, last one wins. */
struct dl_setting {
    char *key, *value;
};
struct dl_settings {
    size_t count;
    struct dl_setting *items;
};

/* Texts are never NULL: "" means not set. Spans of feed time are in
 * source.time_unit; names ending in _ms are wall-clock milliseconds. */
struct dl_config {
    struct {
        enum dl_source_kind kind;
        struct dl_texts topics;
        char *path;
        enum dl_source_encoding encoding;
        /* Where an event's fields stand: JSON pointers ("/user/id") or CSV
         * columns. "" and an empty list: the encoding's own default. */
        struct {
            char *src, *dst, *time, *type, *weight, *id;
            struct dl_texts features; /* one pointer to an array, or one a feature */
        } mapping;
        enum dl_time_unit time_unit;
        bool bipartite;
        int64_t lateness;
        enum dl_late_policy late_policy;
        enum dl_tombstone_policy tombstones;
        int64_t future_skew; /* -1: no bound */
        uint64_t id_horizon; /* ids remembered; 0: repeats are not looked for */
        enum dl_source_start start;
        char delimiter; /* CSV */
    } source;
    struct dl_settings kafka;
    struct {
        char *path;
        uint64_t window, nodes_max, pairs_max, features;
        enum dl_synchronous synchronous;
        int64_t age_max;         /* feed time; 0: none */
        uint64_t log_events_max; /* 0: all are kept */
    } store;
    struct {
        char *path;
        uint64_t workers; /* at least 1 once loaded */
    } model;
    struct {
        char *scores_topic, *predictions_topic, *alerts_topic, *dead_letters_topic, *late_topic;
        enum dl_output_encoding encoding;
        enum dl_delivery delivery;
        enum dl_predict_for predict_for; /* the key is predict.for */
        uint64_t top_k, candidates_max;
        int64_t min_interval; /* feed time between two predictions for one node; 0: none */
        bool quality, forget_tombstones;
        uint64_t quality_negatives, quality_seed;
        uint64_t batch_events;
    } predict;
    struct {
        bool enabled;
        uint64_t window, reference; /* events */
        double run_length;          /* events between false alarms */
        int64_t run_time;           /* feed time between them; 0: run_length says it */
        struct dl_texts features;   /* empty: all */
        enum dl_drift_form form;
        uint64_t frequencies, seed;
        uint64_t cooldown;                        /* events */
        double surprise_bits;                     /* 0: no surprise alerts */
        double quality_margin, dispersion_margin; /* -1: no such alerts */
        double fast;                              /* 0: no such alerts */
        int64_t stall_ms;                         /* 0: no stall alerts */
    } drift;
    struct {
        char *webhook, *alertmanager; /* URLs; "" for none */
        char *token_file;
        int64_t timeout_ms;
    } alerts;
    struct {
        char *listen; /* "" when it is off */
        char *tls_cert, *tls_key, *tls_ca, *tokens_file;
        enum dl_plain_text plain_text;
        uint64_t connections_max, streams_max, message_bytes_max;
        uint64_t calls_rate, calls_burst;
    } rpc;
    struct {
        char *listen; /* "" when it is off */
        char *tls_cert, *tls_key, *tls_ca, *tokens_file;
        enum dl_plain_text plain_text;
        uint64_t connections_max;
    } http;
    struct {
        enum dl_log_level level;
        enum dl_log_format format;
    } log;

    char *path; /* of the file it was read from, or "" */
    /* Everything found wrong, a line each ("FILE:LINE: key: what, and the
     * remedy"); at most DL_CONFIG_PROBLEMS_MAX are kept. */
    struct dl_texts problems;
    /* private */
    struct dl_config_entry *entries; /* raw text and place of each key */
};

#define DL_CONFIG_PROBLEMS_MAX 50

/* The whole way in: defaults, then --config FILE, the environment, --set
 * section.key=value and the named flags (wherever they stand in argv), then
 * the checks. Takes what it understood out of argc and argv and leaves the
 * rest, argv[0] included, for the caller. DL_OK; DL_ERR_INVALID with the first
 * problem in *error and all in config->problems; DL_ERR_NOMEM. The config is
 * to be deinitialised in every case. */
int dl_config_load(struct dl_config *config, int *argc, char **argv, struct dl_error *error);

/* The steps of dl_config_load, for tests and for programs of several parts
 * (the demo): init, then any of read_file/read_environment/set in rising order
 * of precedence, then finish. Problems gather; only finish reports them.
 * `place` is what an error names, such as "--set". */
int dl_config_init(struct dl_config *config);
int dl_config_read_file(struct dl_config *config, const char *path, struct dl_error *error);
int dl_config_read_environment(struct dl_config *config, char *const *environment);
/* --config (or DRIFTLINE_CONFIG), the environment and the flags, as dl_config_load does. */
int dl_config_read_args(struct dl_config *config, int *argc, char **argv, struct dl_error *error);
int dl_config_set(struct dl_config *config, const char *key, const char *value, const char *place);
int dl_config_finish(struct dl_config *config, struct dl_error *error);
void dl_config_deinit(struct dl_config *config);

/* The value of a librdkafka setting, or NULL. Borrowed. */
const char *dl_config_kafka_get(const struct dl_config *config, const char *key);
/* Whether the operator set this key anywhere (file, environment, flag). */
bool dl_config_is_set(const struct dl_config *config, const char *key);
/* Where it was set: "driftline.yaml:12", "DRIFTLINE_RPC_LISTEN", "--set", or "default". */
const char *dl_config_place(const struct dl_config *config, const char *key);

/* Prints the flags, and every key with type, default, limits and help. */
void dl_config_print_help(FILE *out);
/* Prints the configuration in force as YAML with each value's place as a
 * comment; passwords and other secrets as "***". */
void dl_config_print(const struct dl_config *config, FILE *out);
/* The table as Markdown, as it stands in docs/OPERATIONS.md. */
void dl_config_print_markdown(FILE *out);

#endif
