/* The configuration's life: defaults, then file, environment and flags in
 * rising order of precedence, then the checks (config_finish.c).
 *
 * Every value goes through dl_config_set, whatever its source, so that all
 * sources obey the same rules and errors read alike. Problems gather instead
 * of ending the first pass: an operator sees all of them at once. */
#include "service/config.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "service/config_keys.h"

#define KAFKA_SETTINGS_MAX 1024
#define PREFIX "DRIFTLINE_"

extern char **environ;

/* ---- problems and places ------------------------------------------------- */

void dl_config_problem(struct dl_config *config, const char *place, const char *key,
                       const char *format, ...)
{
    if (config->problems.count >= DL_CONFIG_PROBLEMS_MAX) return;
    char what[400], line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    bool named = key && *key;
    snprintf(line, sizeof line, "%s%s%s%s%s", place ? place : "", place ? ": " : "",
             named ? key : "", named ? ": " : "", what);
    for (char *at = line; *at; at++) /* one line, whatever was in the value */
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    (void)dl_texts_append(&config->problems, line);
}

bool dl_config_is_set(const struct dl_config *config, const char *key)
{
    int index = dl_config_key_find(key);
    return index >= 0 && config->entries && config->entries[index].place;
}

const char *dl_config_place(const struct dl_config *config, const char *key)
{
    int index = dl_config_key_find(key);
    const char *place = index >= 0 && config->entries ? config->entries[index].place : NULL;
    return place ? place : "default";
}

/* ---- setting --------------------------------------------------------------- */

const char *dl_config_kafka_get(const struct dl_config *config, const char *key)
{
    for (size_t k = config->kafka.count; k-- > 0;)
        if (strcmp(config->kafka.items[k].key, key) == 0) return config->kafka.items[k].value;
    return NULL;
}

static int kafka_set(struct dl_config *config, const char *key, const char *value,
                     const char *place)
{
    if (!*key || strlen(key) > 128) {
        dl_config_problem(config, place, "kafka", "\"%.40s\" is not the name of a setting", key);
        return DL_OK;
    }
    char *copy = strdup(value);
    if (!copy) return DL_ERR_NOMEM;
    for (size_t k = 0; k < config->kafka.count; k++)
        if (strcmp(config->kafka.items[k].key, key) == 0) {
            free(config->kafka.items[k].value);
            config->kafka.items[k].value = copy;
            return DL_OK;
        }
    if (config->kafka.count >= KAFKA_SETTINGS_MAX) {
        dl_config_problem(config, place, "kafka", "more than %d settings", KAFKA_SETTINGS_MAX);
        free(copy);
        return DL_OK;
    }
    char *name = strdup(key);
    struct dl_setting *items =
        name ? realloc(config->kafka.items, (config->kafka.count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(name);
        free(copy);
        return DL_ERR_NOMEM;
    }
    config->kafka.items = items;
    config->kafka.items[config->kafka.count++] = (struct dl_setting){name, copy};
    return DL_OK;
}

static int entry_note(struct dl_config *config, int index, const char *raw, const char *place)
{
    struct dl_config_entry *entry = &config->entries[index];
    char *raw_copy = strdup(raw), *place_copy = strdup(place ? place : "set");
    if (!raw_copy || !place_copy) {
        free(raw_copy);
        free(place_copy);
        return DL_ERR_NOMEM;
    }
    free(entry->raw);
    free(entry->place);
    *entry = (struct dl_config_entry){raw_copy, place_copy};
    return DL_OK;
}

static void unknown_key(struct dl_config *config, const char *key, const char *place)
{
    const char *meant = dl_config_key_suggest(key);
    if (meant)
        dl_config_problem(config, place, key, "no such key; did you mean %s?", meant);
    else
        dl_config_problem(config, place, key,
                          "no such key; driftline check --help lists what there is");
}

/* "src=/user/id,dst=/item" sets several fields of the mapping. */
static int mapping_set(struct dl_config *config, const char *value, const char *place)
{
    struct dl_texts parts = {0, NULL};
    int status = dl_texts_split(&parts, value);
    for (size_t k = 0; k < parts.count && !status; k++) {
        char *equals = strchr(parts.items[k], '=');
        char key[96];
        if (!equals) {
            dl_config_problem(config, place, "source.mapping",
                              "\"%s\" is not FIELD=WHERE, such as src=/user/id", parts.items[k]);
            continue;
        }
        *equals = '\0';
        snprintf(key, sizeof key, "source.mapping.%.64s", parts.items[k]);
        status = dl_config_set(config, key, equals + 1, place);
    }
    dl_texts_free(&parts);
    return status;
}

int dl_config_set(struct dl_config *config, const char *key, const char *value, const char *place)
{
    if (strncmp(key, "kafka.", 6) == 0) return kafka_set(config, key + 6, value, place);
    if (strcmp(key, "source.mapping") == 0) return mapping_set(config, value, place);
    int index = dl_config_key_find(key);
    if (index < 0) {
        unknown_key(config, key, place);
        return DL_OK;
    }
    int status = dl_config_value_read(config, &dl_config_keys[index], value, place);
    return status ? status : entry_note(config, index, value, place);
}

int dl_config_set_items(struct dl_config *config, const char *key, const char *const *items,
                        size_t count, const char *place)
{
    int index = dl_config_key_find(key);
    if (index < 0) {
        unknown_key(config, key, place);
        return DL_OK;
    }
    const struct dl_config_key *described = &dl_config_keys[index];
    if (described->type != DL_KEY_TEXTS) {
        dl_config_problem(config, place, key, "takes one value, not a list");
        return DL_OK;
    }
    struct dl_texts texts = {0, NULL};
    int status = DL_OK;
    for (size_t k = 0; k < count && !status; k++) status = dl_texts_append(&texts, items[k]);
    if (!status) status = entry_note(config, index, "", place);
    if (status) {
        dl_texts_free(&texts);
        if (status != DL_ERR_TOO_LARGE) return status;
        dl_config_problem(config, place, key, "has too many items");
        return DL_OK;
    }
    struct dl_texts *at = (struct dl_texts *)((char *)config + described->offset);
    dl_texts_free(at);
    *at = texts;
    return DL_OK;
}

/* ---- life ------------------------------------------------------------------ */

int dl_config_init(struct dl_config *config)
{
    memset(config, 0, sizeof *config);
    config->entries = calloc(dl_config_key_count, sizeof *config->entries);
    config->path = strdup("");
    if (!config->entries || !config->path) return DL_ERR_NOMEM;
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        if (key->type == DL_KEY_CHOICE && !*key->fallback)
            continue; /* has no default: config_finish.c demands or derives it */
        int status = dl_config_value_read(config, key, key->fallback, "default");
        if (status) return status;
    }
    return DL_OK;
}

void dl_config_deinit(struct dl_config *config)
{
    for (size_t k = 0; k < dl_config_key_count; k++) {
        void *at = (char *)config + dl_config_keys[k].offset;
        if (dl_config_keys[k].type == DL_KEY_TEXT) free(*(char **)at);
        if (dl_config_keys[k].type == DL_KEY_TEXTS) dl_texts_free(at);
        if (config->entries) {
            free(config->entries[k].raw);
            free(config->entries[k].place);
        }
    }
    for (size_t k = 0; k < config->kafka.count; k++) {
        free(config->kafka.items[k].key);
        free(config->kafka.items[k].value);
    }
    free(config->kafka.items);
    dl_texts_free(&config->problems);
    free(config->entries);
    free(config->path);
    memset(config, 0, sizeof *config);
}

/* ---- environment ------------------------------------------------------------ */

/* "SOURCE_TIME_UNIT" is source.time_unit: every dot and underscore of a known
 * name stands as an underscore. */
static bool is_environment_name(const char *key, const char *name)
{
    for (; *key && *name; key++, name++)
        if (*name != (*key == '.' ? '_' : (char)toupper((unsigned char)*key))) return false;
    return !*key && !*name;
}

static int environment_set(struct dl_config *config, const char *variable, const char *name,
                           const char *value)
{
    for (size_t k = 0; k < dl_config_key_count; k++)
        if (is_environment_name(dl_config_keys[k].name, name))
            return dl_config_set(config, dl_config_keys[k].name, value, variable);
    if (is_environment_name("source.mapping", name))
        return dl_config_set(config, "source.mapping", value, variable);
    for (size_t k = 0; k < dl_config_section_count; k++) {
        const char *section = dl_config_sections[k];
        size_t size = strlen(section);
        if (strncasecmp(name, section, size) != 0 || name[size] != '_') continue;
        /* librdkafka's own names have dots only; of ours, the first is one. */
        bool kafka = strcmp(section, "kafka") == 0;
        char key[160];
        snprintf(key, sizeof key, "%.159s", name);
        for (size_t at = 0; key[at]; at++)
            key[at] = key[at] == '_' && (kafka || at == size)
                          ? '.'
                          : (char)tolower((unsigned char)key[at]);
        return dl_config_set(config, key, value, variable);
    }
    return DL_OK; /* another program's, or a variable that is no setting */
}

int dl_config_read_environment(struct dl_config *config, char *const *environment)
{
    for (; environment && *environment; environment++) {
        const char *equals = strchr(*environment, '=');
        if (!equals || strncmp(*environment, PREFIX, strlen(PREFIX)) != 0) continue;
        char *variable = strndup(*environment, (size_t)(equals - *environment));
        int status = variable
                         ? environment_set(config, variable, variable + strlen(PREFIX), equals + 1)
                         : DL_ERR_NOMEM;
        free(variable);
        if (status) return status;
    }
    return DL_OK;
}

/* ---- flags ------------------------------------------------------------------- */

/* The value of flag `name` at argv[at], as "--name value" or "--name=value";
 * *used tells how many words it took. NULL: another word. A missing value
 * gives "" with *used 1. */
static const char *flag_value(const char *name, int argc, char **argv, int at, int *used)
{
    size_t size = strlen(name);
    if (strncmp(argv[at], name, size) != 0) return NULL;
    if (argv[at][size] == '=') {
        *used = 1;
        return argv[at] + size + 1;
    }
    if (argv[at][size]) return NULL;
    *used = at + 1 < argc ? 2 : 1;
    return *used == 2 ? argv[at + 1] : "";
}

static int flag_set(struct dl_config *config, int argc, char **argv, int at, int *used)
{
    const char *value = flag_value("--set", argc, argv, at, used);
    if (value) {
        const char *equals = strchr(value, '=');
        if (!equals) {
            dl_config_problem(config, "--set", NULL,
                              "\"%s\" is not section.key=value, such as log.level=debug", value);
            return DL_OK;
        }
        char *key = strndup(value, (size_t)(equals - value));
        int status = key ? dl_config_set(config, key, equals + 1, "--set") : DL_ERR_NOMEM;
        free(key);
        return status;
    }
    if ((value = flag_value("--brokers", argc, argv, at, used)))
        return dl_config_set(config, "kafka.bootstrap.servers", value, "--brokers");
    if ((value = flag_value("--map", argc, argv, at, used)))
        return dl_config_set(config, "source.mapping", value, "--map");
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        if (key->flag && (value = flag_value(key->flag, argc, argv, at, used)))
            return dl_config_set(config, key->name, value, key->flag);
    }
    *used = 0;
    return DL_OK;
}

int dl_config_read_args(struct dl_config *config, int *argc, char **argv, struct dl_error *error)
{
    int used, kept = 1, status = DL_OK;
    const char *path = getenv("DRIFTLINE_CONFIG");
    for (int at = 1; at < *argc && strcmp(argv[at], "--") != 0; at++) {
        const char *value = flag_value("--config", *argc, argv, at, &used);
        if (value) path = value;
    }
    /* Whatever is wrong with the file, the flags are taken out all the same: they
     * are not the caller's. */
    int file_status = path ? dl_config_read_file(config, path, error) : DL_OK;
    if ((status = dl_config_read_environment(config, environ)))
        return dl_error_set(error, status, "out of memory");
    for (int at = 1; at < *argc; at += used ? used : 1) {
        used = 0;
        if (strcmp(argv[at], "--") == 0) { /* the rest is the caller's */
            for (; at < *argc; at++) argv[kept++] = argv[at];
            break;
        }
        if (!flag_value("--config", *argc, argv, at, &used) &&
            (status = flag_set(config, *argc, argv, at, &used)))
            return dl_error_set(error, status, "out of memory");
        if (used == 1 && !strchr(argv[at], '='))
            dl_config_problem(config, argv[at], NULL, "needs a value");
        if (!used) argv[kept++] = argv[at];
    }
    *argc = kept;
    argv[kept] = NULL;
    return file_status;
}

int dl_config_load(struct dl_config *config, int *argc, char **argv, struct dl_error *error)
{
    int status = dl_config_init(config);
    if (status) return dl_error_set(error, status, "out of memory");
    status = dl_config_read_args(config, argc, argv, error);
    return status ? status : dl_config_finish(config, error);
}
