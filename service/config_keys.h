/* The table of configuration keys, and what the files of the configuration
 * share. Private to service/config*.c. */
#ifndef DL_SERVICE_CONFIG_KEYS_H
#define DL_SERVICE_CONFIG_KEYS_H

#include "service/config.h"

enum dl_key_type {
    DL_KEY_TEXT,     /* char * */
    DL_KEY_TEXTS,    /* struct dl_texts: a YAML list, or one text with commas */
    DL_KEY_BOOL,     /* bool */
    DL_KEY_COUNT,    /* uint64_t */
    DL_KEY_REAL,     /* double */
    DL_KEY_CHOICE,   /* an enum whose values are the indices of the choices */
    DL_KEY_SPAN,     /* int64_t, feed time: a number, or a duration such as "5m" */
    DL_KEY_DURATION, /* int64_t, milliseconds */
    DL_KEY_LETTER    /* char */
};

struct dl_config_key {
    const char *name; /* "section.key" */
    enum dl_key_type type;
    size_t offset;        /* in struct dl_config */
    const char *fallback; /* the default, as text */
    double min, max;      /* of counts and reals */
    const char *choices;  /* "a|b|c" */
    const char *flag;     /* "--name", or NULL */
    const char *help;     /* one or two plain sentences */
};

extern const struct dl_config_key dl_config_keys[];
extern const size_t dl_config_key_count;

/* Raw text and place of each key; place NULL means the default. */
struct dl_config_entry {
    char *raw;
    char *place;
};

/* The key's index in the table, or -1. */
int dl_config_key_find(const char *name);
/* The name that was probably meant, or NULL. */
const char *dl_config_key_suggest(const char *name);
/* Whether there is such a section, and the one that was probably meant, or NULL. */
bool dl_config_section_is(const char *name);
const char *dl_config_section_suggest(const char *name);
extern const char *const dl_config_sections[];
extern const size_t dl_config_section_count;

/* Notes a problem: "PLACE: KEY: text". Kept up to DL_CONFIG_PROBLEMS_MAX. */
void dl_config_problem(struct dl_config *config, const char *place, const char *key,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Sets a key from a list of texts (a YAML sequence). */
int dl_config_set_items(struct dl_config *config, const char *key, const char *const *items,
                        size_t count, const char *place);

/* Reads `text` as the key's type into the struct. A text that breaks the key's
 * contract is noted as a problem and changes nothing. Spans are read by
 * dl_config_finish, when the time unit is known: here they are only kept. */
int dl_config_value_read(struct dl_config *config, const struct dl_config_key *key,
                         const char *text, const char *place);
/* "30s", "5m", "1.5h", "250ms" to nanoseconds; a bare number gives
 * DL_ERR_NOT_FOUND and the number in *number. DL_ERR_INVALID otherwise. */
int dl_config_span_parse(const char *text, double *nanoseconds, double *number);

/* Splits at commas, trimming blanks and leaving out empty parts. */
int dl_texts_split(struct dl_texts *texts, const char *text);
int dl_texts_append(struct dl_texts *texts, const char *text);
void dl_texts_free(struct dl_texts *texts);

#endif
