/* Every configuration key in one table. docs/OPERATIONS.md carries it as
 * Markdown (`make docs` writes it, a test compares). */
#include "service/config_keys.h"

#include <string.h>

#include "service/suggest.h"

#define AT(member) offsetof(struct dl_config, member)
#define TEXT(name, member, fallback, flag, help)                                                   \
    {                                                                                              \
        name, DL_KEY_TEXT, AT(member), fallback, 0, 0, NULL, flag, help                            \
    }
#define TEXTS(name, member, flag, help)                                                            \
    {                                                                                              \
        name, DL_KEY_TEXTS, AT(member), "", 0, 0, NULL, flag, help                                 \
    }
#define BOOL(name, member, fallback, flag, help)                                                   \
    {                                                                                              \
        name, DL_KEY_BOOL, AT(member), fallback, 0, 0, NULL, flag, help                            \
    }
#define COUNT(name, member, fallback, min, max, help)                                              \
    {                                                                                              \
        name, DL_KEY_COUNT, AT(member), fallback, min, max, NULL, NULL, help                       \
    }
#define REAL(name, member, fallback, min, max, help)                                               \
    {                                                                                              \
        name, DL_KEY_REAL, AT(member), fallback, min, max, NULL, NULL, help                        \
    }
#define CHOICE(name, member, fallback, choices, flag, help)                                        \
    {                                                                                              \
        name, DL_KEY_CHOICE, AT(member), fallback, 0, 0, choices, flag, help                       \
    }
#define SPAN(name, member, fallback, help)                                                         \
    {                                                                                              \
        name, DL_KEY_SPAN, AT(member), fallback, 0, 0, NULL, NULL, help                            \
    }
#define DURATION(name, member, fallback, help)                                                     \
    {                                                                                              \
        name, DL_KEY_DURATION, AT(member), fallback, 0, 0, NULL, NULL, help                        \
    }

const struct dl_config_key dl_config_keys[] = {
    CHOICE("source.kind", source.kind, "kafka", "kafka|file|stdin", NULL,
           "Where events come from."),
    TEXTS("source.topics", source.topics, "--topics",
          "Kafka topics to read. Required when source.kind is kafka."),
    TEXT("source.path", source.path, "", "--source",
         "The file to read when source.kind is file. A name ending in .gz is decompressed."),
    CHOICE("source.encoding", source.encoding, "protobuf", "protobuf|confluent|json|csv",
           "--encoding",
           "How events are encoded: driftline.v1.EdgeEvent, the same in Confluent framing, JSON "
           "with source.mapping, or CSV."),
    TEXT("source.mapping.src", source.mapping.src, "", NULL,
         "JSON pointer (/user/id) or CSV column of the source node. Empty: src."),
    TEXT("source.mapping.dst", source.mapping.dst, "", NULL,
         "JSON pointer or CSV column of the destination node. Empty: dst."),
    TEXT("source.mapping.time", source.mapping.time, "", NULL,
         "JSON pointer or CSV column of the event time. Empty: time."),
    TEXT("source.mapping.type", source.mapping.type, "", NULL,
         "JSON pointer or CSV column of the event type. Empty: type, where there is one; \"-\": "
         "none."),
    TEXT("source.mapping.weight", source.mapping.weight, "", NULL,
         "JSON pointer or CSV column of the weight. Empty: weight, where there is one; \"-\": "
         "none."),
    TEXTS("source.mapping.features", source.mapping.features, NULL,
          "JSON pointer of an array of numbers, or one pointer or column for each feature. Empty: "
          "features, where there are any; \"-\": none."),
    TEXT("source.mapping.id", source.mapping.id, "", NULL,
         "JSON pointer or CSV column of the event's id. Empty: id, where there is one; \"-\": "
         "none."),
    CHOICE("source.time_unit", source.time_unit, "", "ticks|s|ms|us|ns|iso8601", "--time-unit",
           "Unit of event times; ticks is for data that is not wall-clock. Required when "
           "source.kind is kafka; otherwise ticks by default."),
    BOOL("source.bipartite", source.bipartite, "off", NULL,
         "Sources and destinations are different kinds of nodes: the same name on both sides "
         "means two nodes."),
    SPAN("source.lateness", source.lateness, "0",
         "How far behind the newest event one may be before source.late_policy applies."),
    CHOICE("source.late_policy", source.late_policy, "accept", "accept|topic|drop", NULL,
           "What happens to events later than source.lateness: taken in all the same, sent to "
           "predict.late_topic, or dropped. All are counted."),
    CHOICE(
        "source.tombstones", source.tombstones, "dead_letter", "dead_letter|skip", NULL,
        "What happens to Kafka messages without a value, which compacted topics hold for keys that "
        "were removed: dead letters, or counted and passed over. They forget nothing here."),
    SPAN("source.future_skew", source.future_skew, "auto",
         "How far beyond the wall clock an event may move the feed's clock. auto: 5 minutes on "
         "Kafka with a wall-clock unit, else off."),
    COUNT("source.id_horizon", source.id_horizon, "0", 0, 1 << 30,
          "Recent event ids remembered: an event whose id is among them is a repeat, counted and "
          "passed over. About 16 bytes each. 0: ids are not compared."),
    CHOICE("source.start", source.start, "earliest", "earliest|latest", NULL,
           "Where a topic that was never read begins."),
    {"source.delimiter", DL_KEY_LETTER, AT(source.delimiter), ",", 0, 0, NULL, NULL,
     "Separator of CSV columns: one character, or tab."},

    TEXT("store.path", store.path, "driftline.db", "--store", "The SQLite file of the state."),
    COUNT("store.window", store.window, "64", 1, 1024,
          "Most recent interactions kept for each node (W). At least the model's; "
          "fewer than 64 cost accuracy."),
    COUNT("store.nodes_max", store.nodes_max, "16M", 1, 4e9, "Nodes at most."),
    COUNT("store.pairs_max", store.pairs_max, "1M", 1024, 4e9,
          "Recent pairs remembered; the least recently used are forgotten. Rounded up to a power "
          "of two."),
    COUNT("store.features", store.features, "0", 0, 32,
          "Feature values of each event; every event must then carry as many."),
    CHOICE("store.synchronous", store.synchronous, "full", "full|normal", NULL,
           "full survives a power loss; normal survives a crash of the process and is faster."),
    SPAN("store.age_max", store.age_max, "0",
         "What is older than a node's newest interaction by more leaves its window. 0: nothing "
         "does."),
    COUNT("store.log_events_max", store.log_events_max, "100M", 0, 1e15,
          "Events kept in the edge log for retraining and recovery. 0: all."),

    TEXT("model.path", model.path, "", "--model",
         "The model (safetensors), as written by driftline train."),
    COUNT("model.workers", model.workers, "0", 0, 256,
          "Scoring threads. 0: one for each processor but one. Results do not depend on it."),

    TEXT("predict.scores_topic", predict.scores_topic, "driftline.scores", NULL,
         "Topic of the scores. Empty: not published."),
    TEXT("predict.predictions_topic", predict.predictions_topic, "driftline.predictions", NULL,
         "Topic of the predictions. Empty: not published."),
    TEXT("predict.alerts_topic", predict.alerts_topic, "driftline.alerts", NULL,
         "Topic of the alerts. Empty: not published."),
    TEXT("predict.dead_letters_topic", predict.dead_letters_topic, "driftline.dead-letters", NULL,
         "Topic of messages that could not be used. Empty: only counted."),
    TEXT("predict.late_topic", predict.late_topic, "driftline.late", NULL,
         "Topic of late events when source.late_policy is topic."),
    CHOICE("predict.encoding", predict.encoding, "protobuf", "protobuf|json", NULL,
           "Encoding of what is published."),
    CHOICE("predict.delivery", predict.delivery, "exactly_once", "exactly_once|at_least_once", NULL,
           "exactly_once publishes in transactions that also commit the source offsets. "
           "at_least_once is for brokers without transactions: a crash may repeat the last "
           "records, byte for byte and with the same source position."),
    CHOICE("predict.for", predict.predict_for, "source", "none|source|destination|both", NULL,
           "Which endpoint of an event gets a prediction of what it does next."),
    COUNT("predict.top_k", predict.top_k, "10", 1, 1000, "Candidates in a prediction."),
    COUNT("predict.candidates_max", predict.candidates_max, "200", 1, 65536,
          "Candidates scored for a prediction."),
    SPAN("predict.min_interval", predict.min_interval, "0",
         "Least feed time between two predictions for one node."),
    BOOL("predict.quality", predict.quality, "on", NULL,
         "Score each event's own edge against random negatives and serve running AP, AUC and "
         "MRR."),
    COUNT("predict.quality_negatives", predict.quality_negatives, "20", 1, 100,
          "Negatives that the true destination is ranked among."),
    COUNT("predict.quality_seed", predict.quality_seed, "1", 0, 9e15,
          "Seed of the negatives: the same seed and feed give the same negatives."),
    BOOL("predict.forget_tombstones", predict.forget_tombstones, "off", NULL,
         "Publish a record without a value (a tombstone) for a node that is forgotten, so that "
         "compacted topics drop its records."),
    COUNT("predict.batch_events", predict.batch_events, "256", 1, 65536,
          "Events of one batch, which is one store transaction, at most."),

    BOOL("drift.enabled", drift.enabled, "on", NULL,
         "Compare the recent events with the model's reference sample by MMD and raise alerts."),
    COUNT("drift.window", drift.window, "500", 32, 8192, "Recent events that are compared."),
    COUNT("drift.reference", drift.reference, "1000", 32, 32768,
          "Rows of the reference that the exact form compares with."),
    REAL("drift.run_length", drift.run_length, "1000000", 100, 1e12,
         "Events between two false alarms, on average, that the threshold is set for."),
    SPAN("drift.run_time", drift.run_time, "0",
         "The same as feed time, such as 30d, at the pace of the model's reference; in place of "
         "run_length. 0: run_length counts."),
    TEXTS("drift.features", drift.features, NULL,
          "Features of an event that are compared, by the names that the dashboard shows. Empty: "
          "all."),
    CHOICE("drift.form", drift.form, "fourier", "fourier|exact", NULL,
           "The statistic by random Fourier features, or exactly."),
    COUNT("drift.frequencies", drift.frequencies, "256", 32, 4096,
          "Features of the Fourier form; a multiple of 32."),
    COUNT("drift.seed", drift.seed, "1", 0, 9e15, "Seed of frequencies and thresholds."),
    COUNT("drift.cooldown", drift.cooldown, "0", 0, 1e9,
          "Events after an alert was cleared in which none is raised. 0: as many as drift.window."),
    REAL("drift.surprise_bits", drift.surprise_bits, "0", 0, 64,
         "Raise an alert for an event at least this surprising. 0: never."),
    REAL("drift.quality_margin", drift.quality_margin, "0.03", -1, 1,
         "Average precision that the recent events may lose against training, beyond sampling "
         "noise, before a quality drop is raised. -1: never raise one."),
    REAL("drift.dispersion_margin", drift.dispersion_margin, "0.03", -1, 1,
         "Attention entropy (1 is uniform) that a layer may gain against training, beyond "
         "sampling noise, before attention dispersion is raised. -1: never raise it."),
    REAL("drift.fast", drift.fast, "10", 0, 1e6,
         "Raise an alert when events come so many times as fast as in the fastest window of the "
         "model's reference. Not for ticks. 0: never."),
    DURATION("drift.stall", drift.stall_ms, "0",
             "Raise an alert when no event has come for this long. 0: never."),

    TEXT("alerts.webhook", alerts.webhook, "", NULL,
         "URL that each alert is posted to as JSON, raised and cleared alike. Empty: none."),
    TEXT("alerts.alertmanager", alerts.alertmanager, "", NULL,
         "URL of a Prometheus Alertmanager, such as http://localhost:9093. Empty: none."),
    TEXT("alerts.token_file", alerts.token_file, "", NULL,
         "File whose first line is sent to both as a bearer token. Empty: none."),
    DURATION("alerts.timeout", alerts.timeout_ms, "10s", "How long one attempt may take."),

    TEXT("rpc.listen", rpc.listen, "127.0.0.1:50051", "--rpc",
         "Address and port of gRPC; off for none."),
    TEXT("rpc.tls_cert", rpc.tls_cert, "", NULL, "PEM file of the certificate chain."),
    TEXT("rpc.tls_key", rpc.tls_key, "", NULL, "PEM file of the private key."),
    TEXT("rpc.tls_ca", rpc.tls_ca, "", NULL,
         "PEM file of the authorities that client certificates must come from (mutual TLS)."),
    TEXT("rpc.tokens_file", rpc.tokens_file, "", NULL, "File of bearer tokens and their roles."),
    CHOICE("rpc.plain_text", rpc.plain_text, "loopback", "loopback|anywhere", NULL,
           "Where gRPC without TLS may listen."),
    COUNT("rpc.connections_max", rpc.connections_max, "1024", 1, 65536,
          "Connections at one time; more are refused."),
    COUNT("rpc.streams_max", rpc.streams_max, "100", 1, 10000,
          "Requests at one time on a connection."),
    COUNT("rpc.message_bytes_max", rpc.message_bytes_max, "4MiB", 1024, 268435456,
          "Largest request message."),
    COUNT("rpc.calls_rate", rpc.calls_rate, "0", 0, 1000000,
          "Calls a second that one client may begin, on all its connections; more are refused with "
          "RESOURCE_EXHAUSTED and the time to wait. A client is its token, else its address. 0: no "
          "limit."),
    COUNT("rpc.calls_burst", rpc.calls_burst, "100", 1, 1000000,
          "Calls that a client which was silent may begin at once, where rpc.calls_rate is set."),

    TEXT("http.listen", http.listen, "127.0.0.1:8080", "--http",
         "Address and port of dashboard, metrics and health; off for none."),
    TEXT("http.tls_cert", http.tls_cert, "", NULL, "PEM file of the certificate chain."),
    TEXT("http.tls_key", http.tls_key, "", NULL, "PEM file of the private key."),
    TEXT("http.tls_ca", http.tls_ca, "", NULL,
         "PEM file of the authorities that client certificates must come from (mutual TLS)."),
    TEXT("http.tokens_file", http.tokens_file, "", NULL,
         "File of bearer tokens and their roles. Empty: that of rpc.tokens_file."),
    CHOICE("http.plain_text", http.plain_text, "loopback", "loopback|anywhere", NULL,
           "Where HTTP without TLS may listen."),
    COUNT("http.connections_max", http.connections_max, "4096", 1, 65536,
          "Connections at one time; more are refused. Half of them may be open dashboards."),

    CHOICE("log.level", log.level, "info", "debug|info|warn|error", "--log-level",
           "Least severe messages written."),
    CHOICE("log.format", log.format, "text", "text|json", "--log-format",
           "Lines for people, or one JSON object a line. To standard error."),
};
const size_t dl_config_key_count = sizeof dl_config_keys / sizeof *dl_config_keys;

const char *const dl_config_sections[] = {"source", "kafka",  "store", "model", "predict",
                                          "drift",  "alerts", "rpc",   "http",  "log"};
const size_t dl_config_section_count = sizeof dl_config_sections / sizeof *dl_config_sections;

bool dl_config_section_is(const char *name)
{
    for (size_t k = 0; k < dl_config_section_count; k++)
        if (strcmp(dl_config_sections[k], name) == 0) return true;
    return false;
}

const char *dl_config_section_suggest(const char *name)
{
    return dl_suggest_nearest(name, dl_config_sections, dl_config_section_count);
}

int dl_config_key_find(const char *name)
{
    for (size_t k = 0; k < dl_config_key_count; k++)
        if (strcmp(dl_config_keys[k].name, name) == 0) return (int)k;
    return -1;
}

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

const char *dl_config_key_suggest(const char *name)
{
    const char *names[sizeof dl_config_keys / sizeof *dl_config_keys];
    /* The right word in the wrong section is the likeliest slip of all. */
    for (size_t k = 0; k < dl_config_key_count; k++) {
        names[k] = dl_config_keys[k].name;
        if (strcmp(last_part(names[k]), last_part(name)) == 0) return names[k];
    }
    const char *nearest = dl_suggest_nearest(name, names, dl_config_key_count);
    if (nearest) return nearest;
    for (size_t k = 0; k < dl_config_key_count; k++) names[k] = last_part(dl_config_keys[k].name);
    nearest = dl_suggest_nearest(last_part(name), names, dl_config_key_count);
    for (size_t k = 0; nearest && k < dl_config_key_count; k++)
        if (names[k] == nearest) return dl_config_keys[k].name;
    return NULL;
}
