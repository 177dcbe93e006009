/* Nearest names by optimal string alignment distance. */
#include "service/suggest.h"

#include <limits.h>
#include <string.h>

#define LETTERS_MAX 64

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

unsigned dl_suggest_distance(const char *a, const char *b)
{
    size_t a_size = strlen(a), b_size = strlen(b);
    if (a_size > LETTERS_MAX || b_size > LETTERS_MAX) return UINT_MAX;
    /* Three rows of the usual table are enough: a swap looks two rows back. */
    unsigned rows[3][LETTERS_MAX + 1];
    for (size_t j = 0; j <= b_size; j++) rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_size; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            unsigned cost = a[i - 1] != b[j - 1];
            row[j] = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

const char *dl_suggest_nearest(const char *name, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t size = strlen(name);
    unsigned limit = size / 3 > 2 ? (unsigned)(size / 3) : 2;
    if (size <= 2) limit = 1;
    for (size_t k = 0; k < count; k++) {
        unsigned distance = dl_suggest_distance(name, names[k]);
        if (distance <= limit) {
            nearest = names[k];
            if (distance == 0) break;
            limit = distance - 1;
        }
    }
    return nearest;
}
