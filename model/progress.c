/* Formatting of progress notes. */
#include "model/progress.h"

#include <stdarg.h>
#include <stdio.h>

void dl_progress_note(const struct dl_progress *progress, const char *format, ...)
{
    char text[512];
    va_list arguments;

    if (!progress || !progress->note) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    progress->note(progress->context, text);
}
