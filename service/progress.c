/* Progress lines. */
#include "service/progress.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define TERMINAL_EVERY_NS INT64_C(100000000)
#define PLAIN_EVERY_NS INT64_C(10000000000)

void dl_progress_line_init(struct dl_progress_line *line, FILE *out)
{
    memset(line, 0, sizeof *line);
    line->out = out;
    line->terminal = isatty(fileno(out));
}

void dl_progress_line_end(struct dl_progress_line *line)
{
    if (line->shown) fputs("\r\033[K", line->out);
    line->shown = 0;
    fflush(line->out);
}

void dl_progress_line_note(struct dl_progress_line *line, const char *text)
{
    dl_progress_line_end(line);
    fprintf(line->out, "%s\n", text);
    fflush(line->out);
}

void dl_progress_number(double value, char text[16])
{
    static const char *const suffixes[] = {"", " k", " M", " G"};
    int s = 0;
    while (value >= 9999.5 && s < 3) value /= 1000, s++;
    snprintf(text, 16, s && value < 100 ? "%.1f%s" : "%.0f%s", value, suffixes[s]);
}

static void time_text(double seconds, char text[16])
{
    if (!(seconds < 360000))
        snprintf(text, 16, "days");
    else if (seconds < 100)
        snprintf(text, 16, "%.0f s", seconds);
    else if (seconds < 6000)
        snprintf(text, 16, "%.0f min", seconds / 60);
    else
        snprintf(text, 16, "%.1f h", seconds / 3600);
}

void dl_progress_line_advance(struct dl_progress_line *line, const char *stage, uint64_t done,
                              uint64_t total, const char *unit)
{
    int64_t now_ns = dl_clock_monotonic_ns();
    char rate_text[16], done_text[16], left_text[16];

    if (strcmp(stage, line->stage) != 0) {
        snprintf(line->stage, sizeof line->stage, "%s", stage);
        line->stage_ns = line->shown_ns = now_ns;
        line->stage_done = done;
        if (!line->terminal) return; /* short work needs no line */
    } else if (now_ns - line->shown_ns < (line->terminal ? TERMINAL_EVERY_NS : PLAIN_EVERY_NS)) {
        return;
    }
    line->shown_ns = now_ns;
    double seconds = (double)(now_ns - line->stage_ns) * 1e-9;
    double rate = seconds > 0 ? (double)(done - line->stage_done) / seconds : 0;
    dl_progress_number(rate, rate_text);
    dl_progress_number((double)done, done_text);
    fprintf(line->out, "%s%s: ", line->terminal ? "\r\033[K" : "", stage);
    if (total)
        fprintf(line->out, "%.0f %%", 100.0 * (double)done / (double)total);
    else
        fprintf(line->out, "%s %s", done_text, unit);
    if (rate > 0) {
        fprintf(line->out, ", %s %s/s", rate_text, unit);
        if (total > done) {
            time_text((double)(total - done) / rate, left_text);
            fprintf(line->out, ", %s left", left_text);
        }
    }
    if (line->terminal)
        line->shown = 1;
    else
        fputc('\n', line->out);
    fflush(line->out);
}

static void advance(void *context, const char *stage, uint64_t done, uint64_t total,
                    const char *unit)
{
    dl_progress_line_advance(context, stage, done, total, unit);
}

static void note(void *context, const char *text)
{
    dl_progress_line_note(context, text);
}

struct dl_progress dl_progress_line_hook(struct dl_progress_line *line)
{
    return (struct dl_progress){.context = line, .advance = advance, .note = note};
}
