/* Status names and error detail. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *dl_status_name(int status)
{
    switch (status) {
    case DL_OK:
        return "ok";
    case DL_ERR_NOMEM:
        return "out of memory";
    case DL_ERR_INVALID:
        return "invalid";
    case DL_ERR_TOO_LARGE:
        return "too large";
    case DL_ERR_NOT_FOUND:
        return "not found";
    case DL_ERR_IO:
        return "input/output error";
    case DL_ERR_CORRUPT:
        return "corrupt";
    case DL_ERR_VERSION:
        return "wrong version";
    case DL_ERR_UNAVAILABLE:
        return "unavailable";
    case DL_ERR_FULL:
        return "full";
    case DL_ERR_EXISTS:
        return "exists";
    case DL_ERR_LATE:
        return "late";
    case DL_ERR_CANCELLED:
        return "cancelled";
    case DL_ERR_DENIED:
        return "denied";
    case DL_ERR_UNSUPPORTED:
        return "unsupported";
    default:
        return "unknown status";
    }
}

int dl_error_set(struct dl_error *error, int status, const char *format, ...)
{
    if (error) {
        va_list args;
        va_start(args, format);
        vsnprintf(error->text, sizeof error->text, format, args);
        va_end(args);
    }
    return status;
}

int dl_error_wrap(struct dl_error *error, int status, const char *format, ...)
{
    if (error) {
        char before[sizeof error->text];
        char context[256];
        va_list args;
        va_start(args, format);
        vsnprintf(context, sizeof context, format, args);
        va_end(args);
        memcpy(before, error->text, sizeof before);
        before[sizeof before - 1] = '\0';
        int used = snprintf(error->text, sizeof error->text, "%s: ", context);
        if (used >= 0 && (size_t)used < sizeof error->text)
            snprintf(error->text + used, sizeof error->text - (size_t)used, "%.*s",
                     (int)(sizeof error->text - (size_t)used - 1), before);
    }
    return status;
}
