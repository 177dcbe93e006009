/* Time. The engine takes time as an argument; only the edges of the program
 * read a clock. */
#ifndef DL_BASE_CLOCK_H
#define DL_BASE_CLOCK_H

#include <stdint.h>

#include "base/bytes.h"

/* The unit of event times, stated in the configuration and carried in the
 * store and in the model file. Inside, time is int64 in that unit; ISO dates
 * are microseconds. `ticks` is not wall-clock. */
enum dl_time_unit { DL_TIME_TICKS, DL_TIME_S, DL_TIME_MS, DL_TIME_US, DL_TIME_NS, DL_TIME_ISO8601 };

/* "ticks", "s", "ms", "us", "ns", "iso8601". */
const char *dl_time_unit_name(enum dl_time_unit unit);
/* DL_OK, or DL_ERR_INVALID for an unknown name. */
int dl_time_unit_parse(struct dl_slice name, enum dl_time_unit *unit);
/* Ticks of the unit in a second (ISO 8601: 1,000,000); 0 for `ticks`. */
int64_t dl_time_unit_per_second(enum dl_time_unit unit);

/* Parses an ISO 8601 / RFC 3339 date or date-time ("2026-11-30",
 * "2026-11-30T20:58:32.123456Z", offsets "+01:00"; no offset means UTC) to
 * microseconds since 1970. DL_OK or DL_ERR_INVALID. */
int dl_time_parse_iso8601(struct dl_slice text, int64_t *time_us);

/* Writes a time of `unit` as ISO 8601 in UTC, or as a number for ticks. */
void dl_time_format(int64_t time, enum dl_time_unit unit, char text[40]);

/* Monotonic nanoseconds, and wall-clock microseconds since 1970. */
int64_t dl_clock_monotonic_ns(void);
int64_t dl_clock_wall_us(void);

#endif
