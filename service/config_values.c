/* From text to a key's value: numbers with suffixes, choices, durations,
 * lists. Everything wrong becomes a problem that names place, key, value and
 * what would be right. */
#include "service/config_keys.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 4096      /* items of one list */
#define TEXT_BYTES_MAX 4096 /* of one value */

void dl_texts_free(struct dl_texts *texts)
{
    for (size_t k = 0; k < texts->count; k++) free(texts->items[k]);
    free(texts->items);
    *texts = (struct dl_texts){0, NULL};
}

int dl_texts_append(struct dl_texts *texts, const char *text)
{
    if (texts->count >= TEXTS_MAX) return DL_ERR_TOO_LARGE;
    char *copy = strdup(text);
    char **items = copy ? realloc(texts->items, (texts->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(copy);
        return DL_ERR_NOMEM;
    }
    texts->items = items;
    texts->items[texts->count++] = copy;
    return DL_OK;
}

int dl_texts_split(struct dl_texts *texts, const char *text)
{
    while (*text) {
        size_t size = strcspn(text, ",");
        const char *from = text, *to = text + size;
        while (from < to && (*from == ' ' || *from == '\t')) from++;
        while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
        if (to > from) {
            char *part = strndup(from, (size_t)(to - from));
            int status = part ? dl_texts_append(texts, part) : DL_ERR_NOMEM;
            free(part);
            if (status) return status;
        }
        text += size + (text[size] == ',');
    }
    return DL_OK;
}

static int read_choice(struct dl_config *config, const struct dl_config_key *key, const char *text,
                       const char *place)
{
    unsigned index = 0;
    for (const char *choice = key->choices;; index++) {
        size_t size = strcspn(choice, "|");
        if (strlen(text) == size && strncmp(choice, text, size) == 0) {
            memcpy((char *)config + key->offset, &index, sizeof index);
            return DL_OK;
        }
        if (!choice[size]) break;
        choice += size + 1;
    }
    dl_config_problem(config, place, key->name, "\"%s\" is not one of %s", text, key->choices);
    return DL_OK;
}

static int read_bool(struct dl_config *config, const struct dl_config_key *key, const char *text,
                     const char *place)
{
    static const char *const words[] = {"off", "on", "no", "yes", "false", "true", "0", "1"};
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        if (strcasecmp(text, words[k]) == 0) {
            *(bool *)((char *)config + key->offset) = k % 2;
            return DL_OK;
        }
    dl_config_problem(config, place, key->name, "\"%s\" is neither on nor off", text);
    return DL_OK;
}

/* A number and what follows it. Hexadecimal, inf and nan are no numbers here. */
static int number_of(const char *text, double *number, const char **rest)
{
    if (text[0] != '-' && text[0] != '.' && (text[0] < '0' || text[0] > '9')) return DL_ERR_INVALID;
    if (strspn(text, "-0123456789.eE+") == 0 || strncasecmp(text, "0x", 2) == 0)
        return DL_ERR_INVALID;
    char *end;
    errno = 0;
    *number = strtod(text, &end);
    if (end == text || errno || !isfinite(*number)) return DL_ERR_INVALID;
    *rest = end;
    return DL_OK;
}

static int read_count(struct dl_config *config, const struct dl_config_key *key, const char *text,
                      const char *place)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},      {"k", 1e3},      {"K", 1e3},        {"M", 1e6},
                 {"G", 1e9},   {"KiB", 1024},   {"MiB", 1048576},  {"GiB", 1073741824},
                 {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 1073741824}};
    double number;
    const char *rest;
    bool known = false;
    if (number_of(text, &number, &rest) == DL_OK)
        for (size_t k = 0; k < sizeof units / sizeof *units && !known; k++)
            if (strcmp(rest, units[k].suffix) == 0) {
                known = true;
                number *= units[k].factor;
            }
    if (!known || number < 0 || number != floor(number))
        dl_config_problem(config, place, key->name,
                          "\"%s\" is not a whole number (k, M, G, KiB, MiB, GiB may follow it)",
                          text);
    else if (number < key->min || number > key->max)
        dl_config_problem(config, place, key->name, "%s is outside %.0f to %.0f", text, key->min,
                          key->max);
    else
        *(uint64_t *)((char *)config + key->offset) = (uint64_t)number;
    return DL_OK;
}

static int read_real(struct dl_config *config, const struct dl_config_key *key, const char *text,
                     const char *place)
{
    double number;
    const char *rest;
    if (number_of(text, &number, &rest) || *rest)
        dl_config_problem(config, place, key->name, "\"%s\" is not a number", text);
    else if (number < key->min || number > key->max)
        dl_config_problem(config, place, key->name, "%s is outside %g to %g", text, key->min,
                          key->max);
    else
        *(double *)((char *)config + key->offset) = number;
    return DL_OK;
}

int dl_config_span_parse(const char *text, double *nanoseconds, double *number)
{
    static const struct {
        const char *suffix;
        double ns;
    } units[] = {{"ns", 1},     {"us", 1e3},   {"ms", 1e6},    {"s", 1e9},     {"m", 60e9},
                 {"min", 60e9}, {"h", 3600e9}, {"d", 86400e9}, {"w", 604800e9}};
    const char *rest;
    if (number_of(text, number, &rest) || *number < 0) return DL_ERR_INVALID;
    if (!*rest) return DL_ERR_NOT_FOUND;
    for (size_t k = 0; k < sizeof units / sizeof *units; k++)
        if (strcmp(rest, units[k].suffix) == 0) {
            *nanoseconds = *number * units[k].ns;
            return DL_OK;
        }
    return DL_ERR_INVALID;
}

static int read_duration(struct dl_config *config, const struct dl_config_key *key,
                         const char *text, const char *place)
{
    double ns, number;
    int status = dl_config_span_parse(text, &ns, &number);
    if (status == DL_ERR_NOT_FOUND && number == 0)
        *(int64_t *)((char *)config + key->offset) = 0;
    else if (status == DL_OK && ns <= 1e18)
        *(int64_t *)((char *)config + key->offset) = (int64_t)(ns / 1e6);
    else
        dl_config_problem(config, place, key->name,
                          "\"%s\" is not a duration: a number with ms, s, m, h or d", text);
    return DL_OK;
}

static int read_letter(struct dl_config *config, const struct dl_config_key *key, const char *text,
                       const char *place)
{
    char letter = text[0] && !text[1] ? text[0] : '\0';
    if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0) letter = '\t';
    if (!letter || letter == '"' || letter == '\n' || letter == '\r' || (letter & 0x80))
        dl_config_problem(config, place, key->name,
                          "\"%s\" is not one ASCII character (other than a quote), or tab", text);
    else
        *((char *)config + key->offset) = letter;
    return DL_OK;
}

int dl_config_value_read(struct dl_config *config, const struct dl_config_key *key,
                         const char *text, const char *place)
{
    void *at = (char *)config + key->offset;
    if (strlen(text) > TEXT_BYTES_MAX) {
        dl_config_problem(config, place, key->name, "is longer than %d bytes", TEXT_BYTES_MAX);
        return DL_OK;
    }
    switch (key->type) {
    case DL_KEY_TEXT: {
        char *copy = strdup(text);
        if (!copy) return DL_ERR_NOMEM;
        free(*(char **)at);
        *(char **)at = copy;
        return DL_OK;
    }
    case DL_KEY_TEXTS: {
        struct dl_texts texts = {0, NULL};
        int status = dl_texts_split(&texts, text);
        if (status == DL_ERR_TOO_LARGE)
            dl_config_problem(config, place, key->name, "has more than %d items", TEXTS_MAX);
        if (status) {
            dl_texts_free(&texts);
            return status == DL_ERR_TOO_LARGE ? DL_OK : status;
        }
        dl_texts_free(at);
        *(struct dl_texts *)at = texts;
        return DL_OK;
    }
    case DL_KEY_BOOL:
        return read_bool(config, key, text, place);
    case DL_KEY_COUNT:
        return read_count(config, key, text, place);
    case DL_KEY_REAL:
        return read_real(config, key, text, place);
    case DL_KEY_CHOICE:
        return read_choice(config, key, text, place);
    case DL_KEY_DURATION:
        return read_duration(config, key, text, place);
    case DL_KEY_LETTER:
        return read_letter(config, key, text, place);
    case DL_KEY_SPAN:
        return DL_OK;
    }
    return DL_OK;
}
