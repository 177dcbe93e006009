/* Command-line values and common flags. */
#include "service/flags.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "service/suggest.h"

int dl_flag_uint(const char *flag, const char *text, uint64_t low, uint64_t high, uint64_t *value,
                 struct dl_error *error)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    if (errno || end == text || *end || text[0] == '-' || *value < low || *value > high)
        return dl_error_set(error, DL_ERR_INVALID,
                            "--%s: \"%s\" is no whole number from %llu to %llu", flag, text,
                            (unsigned long long)low, (unsigned long long)high);
    return DL_OK;
}

int dl_flag_number(const char *flag, const char *text, double low, double high, double *value,
                   struct dl_error *error)
{
    char *end;

    *value = strtod(text, &end);
    if (end == text || *end || !(*value >= low) || !(*value <= high))
        return dl_error_set(error, DL_ERR_INVALID, "--%s: \"%s\" is no number from %g to %g", flag,
                            text, low, high);
    return DL_OK;
}

int dl_flag_choice(const char *flag, const char *text, const char *const *names, int *value,
                   struct dl_error *error)
{
    char list[200] = "";
    size_t used = 0;

    for (int i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0) {
            *value = i;
            return DL_OK;
        }
        if (used < sizeof list)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    return dl_error_set(error, DL_ERR_INVALID, "--%s: \"%s\" is none of: %s", flag, text, list);
}

int dl_flag_data(int code, char *text, struct dl_dataset_options *options, struct dl_error *error)
{
    switch (code) {
    case DL_FLAG_SRC:
        options->src = text;
        break;
    case DL_FLAG_DST:
        options->dst = text;
        break;
    case DL_FLAG_TIME:
        options->time = text;
        break;
    case DL_FLAG_WEIGHT:
        options->weight = text;
        break;
    case DL_FLAG_BIPARTITE:
        options->bipartite = 1;
        break;
    case DL_FLAG_TIME_UNIT:
        if (dl_time_unit_parse(dl_slice_text(text), &options->time_unit) != DL_OK)
            return dl_error_set(error, DL_ERR_INVALID,
                                "--time-unit: \"%s\" is none of: ticks, s, ms, us, ns, iso8601",
                                text);
        options->time_unit_given = 1;
        break;
    case DL_FLAG_FEATURES:
        for (char *rest = NULL, *name = strtok_r(text, ",", &rest); name;
             name = strtok_r(NULL, ",", &rest)) {
            if (options->feature_count == DL_EVENT_FEATURES_MAX)
                return dl_error_set(error, DL_ERR_INVALID, "--features: more than %d columns",
                                    DL_EVENT_FEATURES_MAX);
            options->features[options->feature_count++] = name;
        }
        break;
    default:
        break;
    }
    return DL_OK;
}

void dl_flag_data_help(FILE *out)
{
    fprintf(out, "Reading the file (CSV with a header, plain or gzip; - is standard input):\n"
                 "  --src NAME          column of the source       (src, source)\n"
                 "  --dst NAME          column of the destination  (dst, destination, target)\n"
                 "  --time NAME         column of the time         (t, time, timestamp, ts)\n"
                 "  --weight NAME       column of the weight       (w, weight; none: 1)\n"
                 "  --features A,B,...  columns with features of the event (none)\n"
                 "  --time-unit UNIT    ticks, s, ms, us, ns or iso8601 (judged by the values)\n"
                 "  --bipartite         sources and destinations are different things even where\n"
                 "                      their names are equal\n");
}

void dl_flag_unknown(const char *command, int argc, char **argv, const struct option *options)
{
    const char *names[64];
    size_t count = 0;
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "";

    for (; options[count].name && count < 64; count++) {
        names[count] = options[count].name;
        size_t length = strlen(names[count]);
        if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, names[count], length) != 0) continue;
        if (word[2 + length] == 0 && options[count].has_arg == required_argument) {
            fprintf(stderr, "driftline %s: %s wants a value\n", command, word);
            return;
        }
        if (word[2 + length] == '=' && options[count].has_arg == no_argument) {
            fprintf(stderr, "driftline %s: --%s takes no value\n", command, names[count]);
            return;
        }
    }
    const char *meant =
        strncmp(word, "--", 2) == 0 ? dl_suggest_nearest(word + 2, names, count) : NULL;
    if (meant)
        fprintf(stderr, "driftline %s: %s is no flag of this command; did you mean --%s?\n",
                command, word, meant);
    else
        fprintf(stderr, "driftline %s: %s is no flag of this command (--help lists them)\n",
                command, word);
}

int dl_flags_read(const char *command, int argc, char **argv, const struct option *options,
                  void (*help)(void),
                  int (*take)(int code, char *value, void *context, struct dl_error *error),
                  void *context)
{
    struct dl_error error = {""};
    int code, help_code = 'h';
    for (size_t k = 0; options[k].name; k++)
        if (strcmp(options[k].name, "help") == 0) help_code = options[k].val;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (code == 'h' || code == help_code) {
            help();
            return DL_FLAGS_HELPED;
        }
        if (code == '?') {
            dl_flag_unknown(command, argc, argv, options);
            return DL_FLAGS_WRONG;
        }
        if (take(code, optarg, context, &error) != DL_OK) {
            fprintf(stderr, "driftline %s: %s\n", command, error.text);
            return DL_FLAGS_WRONG;
        }
    }
    return DL_FLAGS_GO_ON;
}
