/* The table of keys and the configuration in force, for people. */
#include <inttypes.h>
#include <string.h>

#include "service/config_keys.h"

/* ---- help ------------------------------------------------------------------- */

static void type_text(const struct dl_config_key *key, char text[160])
{
    switch (key->type) {
    case DL_KEY_TEXT:
        snprintf(text, 160, "text");
        break;
    case DL_KEY_TEXTS:
        snprintf(text, 160, "list");
        break;
    case DL_KEY_BOOL:
        snprintf(text, 160, "on or off");
        break;
    case DL_KEY_COUNT:
        snprintf(text, 160, "%.0f to %.0f", key->min, key->max);
        break;
    case DL_KEY_REAL:
        snprintf(text, 160, "%g to %g", key->min, key->max);
        break;
    case DL_KEY_SPAN:
        snprintf(text, 160, "feed time");
        break;
    case DL_KEY_DURATION:
        snprintf(text, 160, "duration");
        break;
    case DL_KEY_LETTER:
        snprintf(text, 160, "character");
        break;
    case DL_KEY_CHOICE: {
        size_t used = 0;
        for (const char *at = key->choices; *at && used + 3 < 160; at++)
            used += (size_t)snprintf(text + used, 160 - used, "%s",
                                     *at == '|' ? ", " : (char[]){*at, '\0'});
        break;
    }
    }
}

/* Writes words, breaking lines at `width` and indenting all but the first. */
static void print_wrapped(FILE *out, const char *text, int indent, int width)
{
    int column = indent;
    while (*text) {
        int size = (int)strcspn(text, " ");
        if (column > indent && column + 1 + size > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", size, text);
        column += size;
        text += size;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void dl_config_print_help(FILE *out)
{
    fprintf(out, "Configuration:\n"
                 "  --config FILE         read this YAML file (or DRIFTLINE_CONFIG)\n"
                 "  --set SECTION.KEY=VALUE\n"
                 "                        set any key below; may be repeated\n"
                 "  --brokers LIST        kafka.bootstrap.servers\n"
                 "  --map FIELD=WHERE     source.mapping.FIELD, such as src=/user/id\n");
    for (size_t k = 0; k < dl_config_key_count; k++)
        if (dl_config_keys[k].flag)
            fprintf(out, "  %-21s %s\n", dl_config_keys[k].flag, dl_config_keys[k].name);
    fprintf(out, "\nKeys of the file; DRIFTLINE_SECTION_KEY in the environment overrides it, and "
                 "flags override\nboth. Everything under kafka goes to librdkafka unchanged.\n");
    const char *section = "";
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        size_t size = strcspn(key->name, ".");
        char type[160];
        type_text(key, type);
        if (strncmp(section, key->name, size + 1) != 0)
            fprintf(out, "\n%.*s:\n", (int)size, key->name);
        section = key->name;
        fprintf(out, "  %s  (%s; default %s)\n      ", key->name + size + 1, type,
                *key->fallback ? key->fallback : "none");
        print_wrapped(out, key->help, 6, 96);
    }
}

void dl_config_print_markdown(FILE *out)
{
    const char *section = "";
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const struct dl_config_key *key = &dl_config_keys[k];
        size_t size = strcspn(key->name, ".");
        char type[160];
        type_text(key, type);
        if (strncmp(section, key->name, size + 1) != 0)
            fprintf(out,
                    "%s### %.*s\n\n| key | takes | default | flag | meaning |\n"
                    "|---|---|---|---|---|\n",
                    k ? "\n" : "", (int)size, key->name);
        section = key->name;
        fprintf(out, "| `%s` | %s | %s%s%s | %s%s%s | %s |\n", key->name + size + 1, type,
                *key->fallback ? "`" : "", key->fallback, *key->fallback ? "`" : "",
                key->flag ? "`" : "", key->flag ? key->flag : "", key->flag ? "`" : "", key->help);
    }
}

/* ---- the configuration in force ------------------------------------------------ */

static bool is_secret(const char *kafka_key)
{
    static const char *const parts[] = {"password", "secret", "token", "pem", "jaas", "key"};
    if (strcmp(kafka_key, "ssl.key.location") == 0) return false;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        if (strstr(kafka_key, parts[k])) return true;
    return strncmp(kafka_key, "sasl.oauthbearer.config", 23) == 0;
}

/* A text as a YAML scalar; quoted unless it is plainly plain. */
static void print_scalar(FILE *out, const char *text)
{
    bool plain = *text &&
                 strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                              "0123456789._-/") == strlen(text) &&
                 *text != '-' && *text != '.';
    if (plain) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            fprintf(out, "\\x%02x", (unsigned char)*text);
        else
            fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    fputc('"', out);
}

static void print_texts(FILE *out, const struct dl_texts *texts)
{
    fputc('[', out);
    for (size_t k = 0; k < texts->count; k++) {
        fputs(k ? ", " : "", out);
        print_scalar(out, texts->items[k]);
    }
    fputc(']', out);
}

static void print_value(const struct dl_config *config, size_t index, FILE *out)
{
    const struct dl_config_key *key = &dl_config_keys[index];
    const char *raw = config->entries[index].raw;
    const void *at = (const char *)config + key->offset;
    switch (key->type) {
    case DL_KEY_TEXT:
        print_scalar(out, *(char *const *)at);
        break;
    case DL_KEY_TEXTS:
        print_texts(out, at);
        break;
    case DL_KEY_BOOL:
        fputs(*(const bool *)at ? "on" : "off", out);
        break;
    case DL_KEY_COUNT:
        fprintf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case DL_KEY_REAL:
        fprintf(out, "%.15g", *(const double *)at);
        break;
    case DL_KEY_LETTER:
        print_scalar(out, (char[]){*(const char *)at, '\0'});
        break;
    case DL_KEY_CHOICE: {
        unsigned choice;
        const char *name = key->choices;
        for (memcpy(&choice, at, sizeof choice); choice > 0; choice--) name = strchr(name, '|') + 1;
        fprintf(out, "%.*s", (int)strcspn(name, "|"), name);
        break;
    }
    case DL_KEY_SPAN:
    case DL_KEY_DURATION:
        print_scalar(out, raw ? raw : key->fallback);
        break;
    }
}

void dl_config_print(const struct dl_config *config, FILE *out)
{
    const char *section = "";
    for (size_t k = 0; k < dl_config_key_count; k++) {
        const char *name = dl_config_keys[k].name;
        size_t size = strcspn(name, ".");
        if (strncmp(section, name, size + 1) != 0) fprintf(out, "%.*s:\n", (int)size, name);
        bool mapping = strncmp(name, "source.mapping.", 15) == 0;
        if (mapping && strncmp(section, "source.mapping.", 15) != 0) fputs("  mapping:\n", out);
        section = name;
        fprintf(out, mapping ? "    %s: " : "  %s: ", name + (mapping ? 15 : size + 1));
        print_value(config, k, out);
        fprintf(out, "  # %s\n", dl_config_place(config, name));
    }
    fputs(config->kafka.count ? "kafka:\n" : "", out);
    for (size_t k = 0; k < config->kafka.count; k++) {
        fprintf(out, "  %s: ", config->kafka.items[k].key);
        print_scalar(out,
                     is_secret(config->kafka.items[k].key) ? "***" : config->kafka.items[k].value);
        fputc('\n', out);
    }
}
