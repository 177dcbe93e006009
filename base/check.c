/* The end of a program that found a bug in itself. */
#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void dl_check_failed(const char *file, int line, const char *expression)
{
    fprintf(stderr, "driftline: bug at %s:%d: %s does not hold\n", file, line, expression);
    abort();
}
