/* Clocks, time units, ISO 8601. */
#include "base/clock.h"
#include "base/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static const char *const unit_names[] = {"ticks", "s", "ms", "us", "ns", "iso8601"};
static const int64_t unit_per_second[] = {0, 1, 1000, 1000000, 1000000000, 1000000};

const char *dl_time_unit_name(enum dl_time_unit unit)
{
    return unit_names[unit];
}

int64_t dl_time_unit_per_second(enum dl_time_unit unit)
{
    return unit_per_second[unit];
}

int dl_time_unit_parse(struct dl_slice name, enum dl_time_unit *unit)
{
    for (int i = 0; i < 6; i++) {
        if (dl_slice_equal(name, dl_slice_text(unit_names[i]))) {
            *unit = (enum dl_time_unit)i;
            return DL_OK;
        }
    }
    return DL_ERR_INVALID;
}

/* Days since 1970-01-01 of a proleptic Gregorian date (Hinnant's algorithm). */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    year -= month <= 2;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

struct scanner {
    const uint8_t *at, *end;
};

static int digits(struct scanner *s, int count, int *value)
{
    *value = 0;
    if (s->end - s->at < count) return 0;
    for (int i = 0; i < count; i++) {
        if (s->at[i] < '0' || s->at[i] > '9') return 0;
        *value = *value * 10 + (s->at[i] - '0');
    }
    s->at += count;
    return 1;
}

static int literal(struct scanner *s, char c)
{
    if (s->at >= s->end || *s->at != (uint8_t)c) return 0;
    s->at++;
    return 1;
}

int dl_time_parse_iso8601(struct dl_slice text, int64_t *time_us)
{
    static const int month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct scanner s = {text.data, text.data + text.size};
    int year, month, day, hour = 0, minute = 0, second = 0;
    int64_t fraction_us = 0, offset_s = 0;

    if (text.size == 0) return DL_ERR_INVALID;
    if (!digits(&s, 4, &year) || !literal(&s, '-') || !digits(&s, 2, &month) || !literal(&s, '-') ||
        !digits(&s, 2, &day))
        return DL_ERR_INVALID;
    if (month < 1 || month > 12 || day < 1) return DL_ERR_INVALID;
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > month_days[month - 1] + (month == 2 && leap)) return DL_ERR_INVALID;
    if (s.at < s.end) {
        if (!literal(&s, 'T') && !literal(&s, 't') && !literal(&s, ' ')) return DL_ERR_INVALID;
        if (!digits(&s, 2, &hour) || !literal(&s, ':') || !digits(&s, 2, &minute))
            return DL_ERR_INVALID;
        if (literal(&s, ':')) {
            if (!digits(&s, 2, &second)) return DL_ERR_INVALID;
            if (literal(&s, '.') || literal(&s, ',')) {
                int64_t unit = 100000;
                int any = 0;
                while (s.at < s.end && *s.at >= '0' && *s.at <= '9') {
                    fraction_us += (*s.at++ - '0') * unit;
                    unit /= 10;
                    any = 1;
                }
                if (!any) return DL_ERR_INVALID;
            }
        }
        if (hour > 23 || minute > 59 || second > 60) return DL_ERR_INVALID;
        if (s.at < s.end && !literal(&s, 'Z') && !literal(&s, 'z')) {
            int sign = literal(&s, '+') ? 1 : literal(&s, '-') ? -1 : 0;
            int offset_hour, offset_minute = 0;
            if (!sign || !digits(&s, 2, &offset_hour)) return DL_ERR_INVALID;
            literal(&s, ':');
            if (s.at < s.end && !digits(&s, 2, &offset_minute)) return DL_ERR_INVALID;
            if (offset_hour > 23 || offset_minute > 59) return DL_ERR_INVALID;
            offset_s = sign * (offset_hour * 3600 + offset_minute * 60);
        }
        if (s.at != s.end) return DL_ERR_INVALID;
    }
    int64_t seconds =
        days_from_civil(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset_s;
    *time_us = seconds * 1000000 + fraction_us;
    return DL_OK;
}

void dl_time_format(int64_t time, enum dl_time_unit unit, char text[40])
{
    int64_t per_second = unit_per_second[unit];
    if (per_second == 0) {
        snprintf(text, 40, "%" PRId64, time);
        return;
    }
    int64_t seconds = time / per_second, rest = time % per_second;
    if (rest < 0) {
        rest += per_second;
        seconds--;
    }
    time_t wall = (time_t)seconds;
    struct tm parts;
    if (!gmtime_r(&wall, &parts) || parts.tm_year > 9999 - 1900 || parts.tm_year < -1900) {
        snprintf(text, 40, "%" PRId64, time);
        return;
    }
    size_t used = strftime(text, 40, "%Y-%m-%dT%H:%M:%S", &parts);
    int places = per_second == 1 ? 0 : per_second == 1000 ? 3 : per_second == 1000000 ? 6 : 9;
    if (places)
        snprintf(text + used, 40 - used, ".%0*" PRId64 "Z", places, rest);
    else
        snprintf(text + used, 40 - used, "Z");
}

int64_t dl_clock_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t dl_clock_wall_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
