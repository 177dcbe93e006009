/* Command-line values, and the flags that every command which reads a recorded
 * feed has in common. */
#ifndef DL_SERVICE_FLAGS_H
#define DL_SERVICE_FLAGS_H

#include <getopt.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "model/dataset.h"

/* Each reads a whole value; DL_ERR_INVALID with detail that names the flag. */
int dl_flag_uint(const char *flag, const char *text, uint64_t low, uint64_t high, uint64_t *value,
                 struct dl_error *error);
int dl_flag_number(const char *flag, const char *text, double low, double high, double *value,
                   struct dl_error *error);
/* One of `names` (NULL-terminated); *value is its index. */
int dl_flag_choice(const char *flag, const char *text, const char *const *names, int *value,
                   struct dl_error *error);

/* The long options of a recorded feed; their codes start at DL_FLAG_DATA. */
enum {
    DL_FLAG_DATA = 1000,
    DL_FLAG_SRC = DL_FLAG_DATA,
    DL_FLAG_DST,
    DL_FLAG_TIME,
    DL_FLAG_WEIGHT,
    DL_FLAG_FEATURES,
    DL_FLAG_TIME_UNIT,
    DL_FLAG_BIPARTITE,
    DL_FLAG_DATA_END
};
#define DL_FLAGS_DATA                                                                              \
    {"src", required_argument, NULL, DL_FLAG_SRC}, {"dst", required_argument, NULL, DL_FLAG_DST},  \
        {"time", required_argument, NULL, DL_FLAG_TIME},                                           \
        {"weight", required_argument, NULL, DL_FLAG_WEIGHT},                                       \
        {"features", required_argument, NULL, DL_FLAG_FEATURES},                                   \
        {"time-unit", required_argument, NULL, DL_FLAG_TIME_UNIT},                                 \
    {                                                                                              \
        "bipartite", no_argument, NULL, DL_FLAG_BIPARTITE                                          \
    }

/* Takes one of those flags. `text` must outlive the options and may be cut up. */
int dl_flag_data(int code, char *text, struct dl_dataset_options *options, struct dl_error *error);
/* Their part of --help. */
void dl_flag_data_help(FILE *out);

/* Reads a command's flags (getopt_long; `options` ends with zeros and has
 * "help"): each goes to `take` with its code, its value and `context`. The
 * words that are left stand from argv[optind] on. Returns DL_FLAGS_GO_ON;
 * DL_FLAGS_HELPED after --help; DL_FLAGS_WRONG when a line on standard error
 * said what is wrong. */
enum { DL_FLAGS_WRONG = -1, DL_FLAGS_HELPED = 0, DL_FLAGS_GO_ON = 1 };
int dl_flags_read(const char *command, int argc, char **argv, const struct option *options,
                  void (*help)(void),
                  int (*take)(int code, char *value, void *context, struct dl_error *error),
                  void *context);

/* For getopt_long's '?': says which word it was, and what may have been meant.
 * `options` ends with zeros. */
void dl_flag_unknown(const char *command, int argc, char **argv, const struct option *options);

#endif
