/* The log: levelled lines to standard error, as text for people or one JSON
 * object a line. Only service/ logs; libraries return errors.
 *
 * A line that repeats (same place in the source) more than a few times a
 * second is held back and counted; the next one that goes out says how many
 * were. Values are made printable: a message cannot forge a second line.
 * Callers log no secrets and no event contents beyond names.
 *
 * Any thread may log; lines do not interleave. */
#ifndef DL_SERVICE_LOG_H
#define DL_SERVICE_LOG_H

#include <stdio.h>

#include "service/config.h"

/* Before the first line; the default is DL_LOG_INFO as text. */
void dl_log_setup(enum dl_log_level level, enum dl_log_format format);
/* Where lines go (tests); NULL: standard error. Borrowed. */
void dl_log_to(FILE *out);
/* Whether a line of this level would be written. */
bool dl_log_enabled(enum dl_log_level level);

/* One line. `part` is the speaker in one word, such as "kafka". The macros
 * fill in the repeat counter of the place. */
struct dl_log_repeat {
    long long since_ns;
    unsigned written, held;
};
void dl_log_write(enum dl_log_level level, struct dl_log_repeat *repeat, const char *part,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

#define DL_LOG(level, part, ...)                                                                   \
    do {                                                                                           \
        static struct dl_log_repeat dl_log_repeat_here;                                            \
        dl_log_write(level, &dl_log_repeat_here, part, __VA_ARGS__);                               \
    } while (0)
#define DL_DEBUG(part, ...) DL_LOG(DL_LOG_DEBUG, part, __VA_ARGS__)
#define DL_INFO(part, ...) DL_LOG(DL_LOG_INFO, part, __VA_ARGS__)
#define DL_WARN(part, ...) DL_LOG(DL_LOG_WARN, part, __VA_ARGS__)
#define DL_ERROR(part, ...) DL_LOG(DL_LOG_ERROR, part, __VA_ARGS__)

#endif
