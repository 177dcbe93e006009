/* The list of parameter tensors. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "model/parameters.h"

size_t dl_parameters_add(struct dl_parameter_list *list, uint32_t rows, uint32_t columns, int decay,
                         enum dl_initial initial, double amount, const char *format, ...)
{
    DL_CHECK(list->count < DL_PARAMETERS_MAX);
    uint32_t i = list->count++;
    struct dl_parameter *item = &list->items[i];
    *item = (struct dl_parameter){.rows = rows, .columns = columns, .decay = decay};
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(item->name, sizeof item->name, format, arguments);
    va_end(arguments);
    DL_CHECK(length > 0 && (size_t)length < sizeof item->name);
    list->initial[i] = initial;
    list->amount[i] = amount;
    list->offsets[i] = list->total;
    list->total += (size_t)rows * columns;
    return list->offsets[i];
}

size_t dl_parameters_add_linear(struct dl_parameter_list *list, uint32_t in, uint32_t out,
                                const char *name)
{
    double bound = 1 / sqrt((double)in);
    size_t weight =
        dl_parameters_add(list, in, out, 1, DL_INITIAL_UNIFORM, bound, "%s.weight", name);
    dl_parameters_add(list, 1, out, 0, DL_INITIAL_UNIFORM, bound, "%s.bias", name);
    return weight;
}

static dl_real draw(enum dl_initial initial, double amount, uint32_t column, uint32_t columns,
                    struct dl_rng *rng)
{
    switch (initial) {
    case DL_INITIAL_ONE:
        return 1;
    case DL_INITIAL_UNIFORM:
        return (dl_real)(amount * (2 * dl_rng_uniform(rng) - 1));
    case DL_INITIAL_NORMAL:
        return (dl_real)(amount * dl_rng_normal(rng));
    case DL_INITIAL_FREQUENCIES:
        return (dl_real)pow(10, -2.0 * column / (columns - 1));
    case DL_INITIAL_ZERO:
        break;
    }
    return 0;
}

void dl_parameters_bind(struct dl_parameter_list *list, dl_real *values, dl_real *gradients,
                        struct dl_rng *rng)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct dl_parameter *item = &list->items[i];
        item->value = values + list->offsets[i];
        item->gradient = gradients + list->offsets[i];
        size_t size = (size_t)item->rows * item->columns;
        for (size_t j = 0; j < size; j++)
            item->value[j] = draw(list->initial[i], list->amount[i], (uint32_t)(j % item->columns),
                                  item->columns, rng);
    }
}
