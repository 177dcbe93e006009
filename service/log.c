/* Log lines. One mutex guards the settings, the repeat counters and the
 * stream; a line is formatted before it is taken. */
#include "service/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define WRITTEN_PER_PERIOD 10 /* lines from one place in one period */
#define PERIOD_NS 1000000000LL
#define LINE_BYTES 2048

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum dl_log_level least_level = DL_LOG_INFO;
static enum dl_log_format line_format = DL_LOG_TEXT;
static FILE *stream;

void dl_log_setup(enum dl_log_level level, enum dl_log_format format)
{
    pthread_mutex_lock(&lock);
    least_level = level;
    line_format = format;
    pthread_mutex_unlock(&lock);
}

void dl_log_to(FILE *out)
{
    pthread_mutex_lock(&lock);
    stream = out;
    pthread_mutex_unlock(&lock);
}

bool dl_log_enabled(enum dl_log_level level)
{
    pthread_mutex_lock(&lock);
    bool enabled = level >= least_level;
    pthread_mutex_unlock(&lock);
    return enabled;
}

/* Appends `text` with control characters escaped, as JSON asks and as a
 * terminal likes it. Bytes above 127 pass: they are UTF-8 or at worst garbage
 * of one line. */
static void append_escaped(char *line, size_t *used, const char *text, bool json)
{
    for (; *text && *used + 8 < LINE_BYTES; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == 127)
            *used += (size_t)snprintf(line + *used, 8, "\\u%04x", c);
        else if (json && (c == '"' || c == '\\'))
            *used += (size_t)snprintf(line + *used, 8, "\\%c", c);
        else
            line[(*used)++] = (char)c;
    }
    line[*used] = '\0';
}

static void time_text(char text[40])
{
    int64_t now_us = dl_clock_wall_us();
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    size_t used = strftime(text, 40, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + used, 40 - used, ".%03dZ", (int)(now_us / 1000 % 1000));
}

/* Whether the line goes out; *held is how many before it did not. */
static bool passes(struct dl_log_repeat *repeat, unsigned *held)
{
    long long now = (long long)dl_clock_monotonic_ns();
    *held = 0;
    if (!repeat) return true;
    if (now - repeat->since_ns >= PERIOD_NS || repeat->since_ns == 0) {
        *held = repeat->held;
        *repeat = (struct dl_log_repeat){now, 0, 0};
    }
    if (repeat->written < WRITTEN_PER_PERIOD) {
        repeat->written++;
        return true;
    }
    repeat->held++;
    return false;
}

void dl_log_write(enum dl_log_level level, struct dl_log_repeat *repeat, const char *part,
                  const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char message[1024], line[LINE_BYTES], now[40];
    size_t used = 0;
    unsigned held;
    if (!dl_log_enabled(level)) return;
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    time_text(now);

    pthread_mutex_lock(&lock);
    if (passes(repeat, &held)) {
        bool json = line_format == DL_LOG_JSON;
        used = (size_t)snprintf(line, sizeof line,
                                json ? "{\"time\":\"%s\",\"level\":\"%s\",\"part\":\"%.40s\","
                                       "\"message\":\""
                                     : "%s %-5s %.40s: ",
                                now, names[level], part);
        append_escaped(line, &used, message, json);
        FILE *out = stream ? stream : stderr;
        fputs(line, out);
        if (held)
            fprintf(out, json ? "\",\"held_back\":%u" : " (and %u more like it were held back)",
                    held);
        else
            fputs(json ? "\"" : "", out);
        fputs(json ? "}\n" : "\n", out);
        fflush(out);
    }
    pthread_mutex_unlock(&lock);
}
