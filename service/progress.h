/* Progress of long work on standard error: on a terminal one line that renews
 * itself, with the rate and the time left; elsewhere a plain line now and then. */
#ifndef DL_SERVICE_PROGRESS_H
#define DL_SERVICE_PROGRESS_H

#include <stdint.h>
#include <stdio.h>

#include "model/progress.h"

struct dl_progress_line {
    FILE *out;
    int terminal;
    int shown; /* a renewing line is on the screen */
    char stage[64];
    int64_t stage_ns, shown_ns;
    uint64_t stage_done; /* where the stage began */
};

void dl_progress_line_init(struct dl_progress_line *line, FILE *out);
/* The hook to hand to the library; `line` must outlive it. */
struct dl_progress dl_progress_line_hook(struct dl_progress_line *line);
/* One line of text, above the renewing one. */
void dl_progress_line_note(struct dl_progress_line *line, const char *text);
/* How far the stage is. `total` 0: not known. */
void dl_progress_line_advance(struct dl_progress_line *line, const char *stage, uint64_t done,
                              uint64_t total, const char *unit);
/* Takes the renewing line off the screen. */
void dl_progress_line_end(struct dl_progress_line *line);

/* "412", "12.3 k", "4.56 M" into text. */
void dl_progress_number(double value, char text[16]);

#endif
