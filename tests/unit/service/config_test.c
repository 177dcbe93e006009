/* The configuration: precedence, limits, and errors that name the place. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "service/config.h"
#include "service/config_keys.h"
#include "service/suggest.h"

static struct dl_config config;
static struct dl_error error;
static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/driftline-config-XXXXXX");
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    close(fd);
    cr_assert_eq(dl_config_init(&config), DL_OK);
    error.text[0] = '\0';
}

static void teardown(void)
{
    dl_config_deinit(&config);
    unlink(path);
}

static int read_text(const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    return dl_config_read_file(&config, path, &error);
}

static bool has_problem(const char *part)
{
    for (size_t k = 0; k < config.problems.count; k++)
        if (strstr(config.problems.items[k], part)) return true;
    for (size_t k = 0; k < config.problems.count; k++)
        fprintf(stderr, "problem: %s\n", config.problems.items[k]);
    return false;
}

#define KAFKA "source: {topics: [a], time_unit: ms}\nkafka: {bootstrap.servers: 'b:1'}\n"

TestSuite(config, .init = setup, .fini = teardown);

Test(config, has_a_valid_default_for_every_key)
{
    cr_assert_eq(config.problems.count, 0);
    cr_assert_eq(config.store.window, 64);
    cr_assert_eq(config.predict.top_k, 10);
    cr_assert_eq(config.predict.candidates_max, 200);
    cr_assert_eq(config.predict.predict_for, DL_PREDICT_SOURCE);
    cr_assert_str_eq(config.rpc.listen, "127.0.0.1:50051");
    cr_assert_eq(config.source.delimiter, ',');
}

Test(config, describes_every_key_in_plain_words)
{
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        size_t size = strlen(key->help);
        cr_assert(size > 10 && key->help[size - 1] == '.', "%s", key->name);
        cr_assert_eq(dl_config_key_find(key->name), (int)k, "%s stands twice", key->name);
    }
}

Test(config, reads_a_file)
{
    cr_assert_eq(read_text("source:\n"
                           "  topics: [a, b]\n"
                           "  encoding: json\n"
                           "  time_unit: ms\n"
                           "  lateness: 90s\n"
                           "  mapping: {src: /u/id, dst: /v, features: [/x, /y]}\n"
                           "kafka:\n"
                           "  bootstrap.servers: host:9092\n"
                           "  ssl: {ca.location: /ca.pem}\n"
                           "store: {nodes_max: 2M, features: 2}\n"
                           "predict: {for: both, quality: off}\n"),
                 DL_OK, "%s", error.text);
    cr_assert_eq(dl_config_finish(&config, &error), DL_OK, "%s", error.text);
    cr_assert_eq(config.source.topics.count, 2);
    cr_assert_str_eq(config.source.topics.items[1], "b");
    cr_assert_eq(config.source.encoding, DL_ENCODING_JSON);
    cr_assert_eq(config.source.time_unit, DL_TIME_MS);
    cr_assert_eq(config.source.lateness, 90000);
    cr_assert_eq(config.source.future_skew, 300000);
    cr_assert_str_eq(config.source.mapping.src, "/u/id");
    cr_assert_eq(config.source.mapping.features.count, 2);
    cr_assert_str_eq(dl_config_kafka_get(&config, "ssl.ca.location"), "/ca.pem");
    cr_assert_eq(config.store.nodes_max, 2000000);
    cr_assert_eq(config.predict.predict_for, DL_PREDICT_BOTH);
    cr_assert_not(config.predict.quality);
    cr_assert_geq(config.model.workers, 1);
}

Test(config, prefers_environment_to_file_and_flags_to_environment)
{
    char *environment[] = {"DRIFTLINE_PREDICT_TOP_K=2",
                           "DRIFTLINE_LOG_LEVEL=warn",
                           "DRIFTLINE_KAFKA_BOOTSTRAP_SERVERS=env:1",
                           "DRIFTLINE_SOURCE_MAPPING_SRC=/s",
                           "DRIFTLINE_DATA=/elsewhere",
                           "HOME=/",
                           NULL};
    cr_assert_eq(read_text("predict: {top_k: 1}\nstore: {window: 7}\n"
                           "kafka: {bootstrap.servers: file}\n"),
                 DL_OK);
    cr_assert_eq(dl_config_read_environment(&config, environment), DL_OK);
    cr_assert_eq(dl_config_set(&config, "log.level", "error", "--log-level"), DL_OK);
    cr_assert_eq(config.problems.count, 0);
    cr_assert_eq(config.store.window, 7);
    cr_assert_eq(config.predict.top_k, 2);
    cr_assert_eq(config.log.level, DL_LOG_ERROR);
    cr_assert_str_eq(config.source.mapping.src, "/s");
    cr_assert_str_eq(dl_config_kafka_get(&config, "bootstrap.servers"), "env:1");
    cr_assert_str_eq(dl_config_place(&config, "predict.top_k"), "DRIFTLINE_PREDICT_TOP_K");
    cr_assert_str_eq(dl_config_place(&config, "log.level"), "--log-level");
    cr_assert_str_eq(dl_config_place(&config, "log.format"), "default");
}

Test(config, takes_its_flags_out_of_the_arguments)
{
    char words[][40] = {
        "serve",  "events.csv", "--store",       "s.db",          "--set", "predict.top_k=3",
        "--json", "--map",      "src=/a,dst=/b", "--brokers=h:1", "--",    "--model",
        "x"};
    char *argv[14] = {NULL};
    int argc = 13;
    for (int k = 0; k < argc; k++) argv[k] = words[k];
    unsetenv("DRIFTLINE_CONFIG");
    cr_assert_eq(dl_config_read_args(&config, &argc, argv, &error), DL_OK, "%s", error.text);
    cr_assert_eq(argc, 6);
    cr_assert_str_eq(argv[1], "events.csv");
    cr_assert_str_eq(argv[2], "--json");
    cr_assert_str_eq(argv[3], "--");
    cr_assert_str_eq(argv[5], "x");
    cr_assert_eq(argv[6], NULL);
    cr_assert_str_eq(config.store.path, "s.db");
    cr_assert_eq(config.predict.top_k, 3);
    cr_assert_str_eq(config.source.mapping.dst, "/b");
    cr_assert_str_eq(config.model.path, "");
    cr_assert_str_eq(dl_config_kafka_get(&config, "bootstrap.servers"), "h:1");
}

Test(config, says_when_a_flag_has_no_value)
{
    char serve[] = "serve", store[] = "--store", *argv[] = {serve, store, NULL};
    int argc = 2;
    unsetenv("DRIFTLINE_CONFIG");
    cr_assert_eq(dl_config_read_args(&config, &argc, argv, &error), DL_OK);
    cr_assert(has_problem("--store: needs a value"));
}

Test(config, names_line_and_nearest_key)
{
    char want[200];
    cr_assert_eq(read_text("store:\n  windw: 3\npredict:\n  window: 3\nlgo: {level: info}\n"),
                 DL_OK);
    snprintf(want, sizeof want, "%s:2: store.windw: no such key; did you mean store.window?", path);
    cr_assert(has_problem(want));
    snprintf(want, sizeof want, "%s:4: predict.window: no such key; did you mean store.window?",
             path);
    cr_assert(has_problem(want));
    snprintf(want, sizeof want, "%s:5: lgo: no such section; did you mean log?", path);
    cr_assert(has_problem(want));
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert_not_null(strstr(error.text, "more: driftline check lists them"));
}

Test(config, names_an_unknown_environment_variable)
{
    char *environment[] = {"DRIFTLINE_STORE_WINDOWS=3", NULL};
    cr_assert_eq(dl_config_read_environment(&config, environment), DL_OK);
    cr_assert(has_problem("DRIFTLINE_STORE_WINDOWS: store.windows: no such key; did you mean "
                          "store.window?"));
}

Test(config, refuses_values_outside_their_limits)
{
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"store.window", "0", "outside 1 to 1024"},
        {"store.window", "1025", "outside 1 to 1024"},
        {"store.window", "-1", "not a whole number"},
        {"store.window", "3.5", "not a whole number"},
        {"store.window", "3x", "not a whole number"},
        {"store.window", "0x10", "not a whole number"},
        {"store.window", "", "not a whole number"},
        {"store.window", "nan", "not a whole number"},
        {"drift.run_length", "inf", "not a number"},
        {"drift.run_length", "1e300", "outside"},
        {"predict.quality", "maybe", "neither on nor off"},
        {"log.level", "debu", "not one of debug|info|warn|error"},
        {"log.level", "", "not one of"},
        {"source.delimiter", "ab", "not one ASCII character"},
        {"drift.stall", "5", "not a duration"},
        {"source.mapping", "src", "is not FIELD=WHERE"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        size_t before = config.problems.count;
        cr_assert_eq(dl_config_set(&config, cases[k].key, cases[k].value, "--set"), DL_OK);
        cr_assert_eq(config.problems.count, before + 1, "%s=%s", cases[k].key, cases[k].value);
        cr_assert_not_null(strstr(config.problems.items[before], cases[k].part), "%s",
                           config.problems.items[before]);
    }
    cr_assert_eq(config.store.window, 64, "a refused value changes nothing");
}

Test(config, converts_spans_to_the_time_unit)
{
    cr_assert_eq(read_text(KAFKA), DL_OK);
    cr_assert_eq(dl_config_set(&config, "source.time_unit", "us", "t"), DL_OK);
    cr_assert_eq(dl_config_set(&config, "source.lateness", "1.5s", "t"), DL_OK);
    cr_assert_eq(dl_config_set(&config, "predict.min_interval", "250", "t"), DL_OK);
    cr_assert_eq(dl_config_set(&config, "source.future_skew", "off", "t"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_OK, "%s", error.text);
    cr_assert_eq(config.source.lateness, 1500000);
    cr_assert_eq(config.predict.min_interval, 250);
    cr_assert_eq(config.source.future_skew, -1);
}

Test(config, refuses_durations_for_ticks)
{
    cr_assert_eq(dl_config_set(&config, "source.kind", "stdin", "t"), DL_OK);
    cr_assert_eq(dl_config_set(&config, "source.lateness", "5m", "t"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert(has_problem("source.time_unit is ticks, which have no length"));
    cr_assert_eq(config.source.future_skew, -1);
}

Test(config, demands_what_a_kafka_source_needs)
{
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert(has_problem("source.topics"));
    cr_assert(has_problem("kafka.bootstrap.servers"));
    cr_assert(has_problem("source.time_unit"));
}

Test(config, keeps_plain_text_on_loopback_unless_asked)
{
    cr_assert_eq(read_text(KAFKA "rpc: {listen: '0.0.0.0:1'}\nhttp: {listen: '[::1]:2'}\n"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert(has_problem("rpc.listen"));
    cr_assert_eq(config.problems.count, 1);
    dl_config_deinit(&config);
    cr_assert_eq(dl_config_init(&config), DL_OK);
    cr_assert_eq(read_text(KAFKA "rpc: {listen: '0.0.0.0:1', plain_text: anywhere}\n"
                                 "http: {listen: off}\n"),
                 DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_OK, "%s", error.text);
    cr_assert_str_eq(config.http.listen, "");
}

Test(config, refuses_addresses_that_are_none)
{
    static const char *const bad[] = {"8080",  "host:",  ":1",  "host:99999",
                                      "a:b:1", "[::1:5", "h:1x"};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        dl_config_deinit(&config);
        cr_assert_eq(dl_config_init(&config), DL_OK);
        cr_assert_eq(read_text(KAFKA), DL_OK);
        cr_assert_eq(dl_config_set(&config, "http.listen", bad[k], "t"), DL_OK);
        cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID, "%s", bad[k]);
        cr_assert(has_problem("is not HOST:PORT"), "%s", bad[k]);
    }
}

Test(config, refuses_to_write_where_it_reads)
{
    cr_assert_eq(read_text(KAFKA "predict: {scores_topic: a}\n"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert(has_problem("would read what it wrote"));
}

Test(config, names_the_drift_features_there_are)
{
    cr_assert_eq(read_text(KAFKA "drift: {features: [gap, hour_sine]}\n"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_ERR_INVALID);
    cr_assert_eq(config.problems.count, 1);
    cr_assert(has_problem("\"hour_sine\" is not one of gap hour_sin"));
}

Test(config, refuses_files_that_are_no_configuration)
{
    static const char *const bad[] = {
        "source: [",
        "\tsource: 1",
        "just text\n",
        "- a\n- b\n",
        "store: {window: 3}\n---\nstore: {window: 4}\n",
        "store: &a {window: 3}\nlog: *b\n",
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        cr_assert_eq(read_text(bad[k]), DL_ERR_INVALID, "%s", bad[k]);
        cr_assert_not_null(strstr(error.text, path), "%s", error.text);
    }
    cr_assert_eq(dl_config_read_file(&config, "/no/such/file", &error), DL_ERR_NOT_FOUND);
    cr_assert_not_null(strstr(error.text, "/no/such/file: No such file"));
}

Test(config, notes_duplicates_wrong_shapes_and_cycles)
{
    cr_assert_eq(read_text("store: {window: 3, window: 4}\n"
                           "log: {level: [a]}\n"
                           "model: {path: {a: b}}\n"
                           "rpc: 5\n"
                           "kafka: &k {a: *k}\n"),
                 DL_OK);
    cr_assert(has_problem("window: stands here a second time"));
    cr_assert(has_problem("log.level: takes one value, not a list"));
    cr_assert(has_problem("model.path: takes one value"));
    cr_assert(has_problem("rpc: is a section"));
    cr_assert(has_problem("refers to itself"));
}

Test(config, refuses_a_name_that_is_too_long_instead_of_cutting_it)
{
    char text[500];
    snprintf(text, sizeof text, "kafka: {%0150d: x}\nstore: {%0250d: x}\n", 1, 2);
    cr_assert_eq(read_text(text), DL_OK);
    cr_assert_eq(config.kafka.count, 0);
    cr_assert(has_problem("is not the name of a setting"));
    cr_assert(has_problem("store: a name of 250 bytes is no key"));
}

Test(config, an_empty_file_and_null_values_change_nothing)
{
    cr_assert_eq(read_text(""), DL_OK, "%s", error.text);
    cr_assert_eq(read_text("# only a comment\n"), DL_OK);
    cr_assert_eq(read_text("store:\nmodel:\n  path:\n  workers: ~\n"), DL_OK);
    cr_assert_eq(config.problems.count, 0);
    cr_assert_not(dl_config_is_set(&config, "model.path"));
}

Test(config, keeps_a_bounded_number_of_problems_on_one_line_each)
{
    for (int k = 0; k < 500; k++)
        cr_assert_eq(dl_config_set(&config, "no.such\nkey", "x", "--set"), DL_OK);
    cr_assert_eq(config.problems.count, DL_CONFIG_PROBLEMS_MAX);
    cr_assert_eq(strchr(config.problems.items[0], '\n'), NULL);
}

Test(config, prints_what_is_in_force_and_no_secret)
{
    cr_assert_eq(read_text(KAFKA "model: {path: 'm \"x\".safetensors'}\n"), DL_OK);
    cr_assert_eq(dl_config_set(&config, "kafka.sasl.password", "hunter2", "t"), DL_OK);
    cr_assert_eq(dl_config_finish(&config, &error), DL_OK, "%s", error.text);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    dl_config_print(&config, out);
    fclose(out);
    cr_assert_not_null(strstr(text, "path: \"m \\\"x\\\".safetensors\""), "%s", text);
    cr_assert_eq(strstr(text, "hunter2"), NULL);
    cr_assert_not_null(strstr(text, "sasl.password: \"***\""));
    /* What it prints it also reads. */
    dl_config_deinit(&config);
    cr_assert_eq(dl_config_init(&config), DL_OK);
    cr_assert_eq(read_text(text), DL_OK, "%s", error.text);
    cr_assert_eq(dl_config_finish(&config, &error), DL_OK, "%s", error.text);
    cr_assert_str_eq(config.model.path, "m \"x\".safetensors");
    free(text);
}

Test(suggest, counts_swaps_as_one)
{
    cr_assert_eq(dl_suggest_distance("serve", "serve"), 0);
    cr_assert_eq(dl_suggest_distance("sevre", "serve"), 1);
    cr_assert_eq(dl_suggest_distance("", "abc"), 3);
    cr_assert_eq(dl_suggest_distance("abc", ""), 3);
    cr_assert_eq(dl_suggest_distance("kitten", "sitting"), 3);
}

Test(suggest, names_nothing_when_nothing_is_near)
{
    static const char *const names[] = {"serve", "train"};
    cr_assert_str_eq(dl_suggest_nearest("trian", names, 2), "train");
    cr_assert_eq(dl_suggest_nearest("xyzzy", names, 2), NULL);
    cr_assert_eq(dl_suggest_nearest("x", names, 2), NULL);
    char longer[200];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    cr_assert_eq(dl_suggest_nearest(longer, names, 2), NULL);
}
