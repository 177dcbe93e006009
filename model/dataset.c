/* Recorded feeds: CSV columns to events with dense ids. */
#include "model/dataset.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/csv.h"

#define SECONDS_MIN INT64_C(31536000)   /* 1971 */
#define SECONDS_MAX INT64_C(7258118400) /* 2200 */

/* ---- time units ----------------------------------------------------------- */

static int plausible(int64_t time, enum dl_time_unit unit)
{
    int64_t per_second = dl_time_unit_per_second(unit);
    if (per_second == 0 || unit == DL_TIME_ISO8601) return 1;
    int64_t seconds = time / per_second;
    return seconds >= SECONDS_MIN && seconds <= SECONDS_MAX;
}

/* The wall-clock unit in which both times are plausible, else ticks. */
static enum dl_time_unit guess_unit(int64_t first, int64_t last)
{
    static const enum dl_time_unit units[] = {DL_TIME_S, DL_TIME_MS, DL_TIME_US, DL_TIME_NS};
    for (int i = 0; i < 4; i++)
        if (plausible(first, units[i]) && plausible(last, units[i])) return units[i];
    return DL_TIME_TICKS;
}

int dl_dataset_check_time(int64_t time, enum dl_time_unit unit, struct dl_error *error)
{
    if (plausible(time, unit)) return DL_OK;
    enum dl_time_unit fits = guess_unit(time, time);
    if (fits != DL_TIME_TICKS)
        return dl_error_set(error, DL_ERR_INVALID,
                            "%" PRId64 " is no time between 1971 and 2200 in %s, but would be in "
                            "%s: state the time unit %s",
                            time, dl_time_unit_name(unit), dl_time_unit_name(fits),
                            dl_time_unit_name(fits));
    return dl_error_set(error, DL_ERR_INVALID,
                        "%" PRId64 " is no time between 1971 and 2200 in %s: state the time unit "
                        "ticks if it is not wall-clock",
                        time, dl_time_unit_name(unit));
}

/* ---- building -------------------------------------------------------------- */

int dl_dataset_begin(const char *name, const struct dl_dataset_options *options,
                     struct dl_dataset **out, struct dl_error *error)
{
    struct dl_dataset *dataset = calloc(1, sizeof *dataset);

    if (options->feature_count > DL_EVENT_FEATURES_MAX) {
        free(dataset);
        return dl_error_set(error, DL_ERR_TOO_LARGE, "%u features; at most %d",
                            options->feature_count, DL_EVENT_FEATURES_MAX);
    }
    if (dataset) dataset->path = strdup(name);
    if (!dataset || !dataset->path ||
        dl_dictionary_new(DL_DATASET_NODES_MAX, &dataset->nodes) != DL_OK) {
        dl_dataset_free(dataset);
        return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", name);
    }
    dataset->feature_count = options->feature_count;
    dataset->time_unit_guessed = !options->time_unit_given;
    dataset->time_unit = options->time_unit_given ? options->time_unit : DL_TIME_TICKS;
    dataset->bipartite = options->bipartite;
    *out = dataset;
    return DL_OK;
}

void dl_dataset_free(struct dl_dataset *dataset)
{
    if (!dataset) return;
    dl_dictionary_free(dataset->nodes);
    free(dataset->events);
    free(dataset->feature_values);
    free(dataset->destinations);
    free(dataset->destination_first);
    free(dataset->path);
    free(dataset);
}

static int make_room(struct dl_dataset *dataset)
{
    if (dataset->event_count < dataset->capacity) return DL_OK;
    uint64_t capacity = dataset->capacity ? 2 * dataset->capacity : 4096;
    struct dl_event *events = realloc(dataset->events, capacity * sizeof *events);
    if (!events) return DL_ERR_NOMEM;
    dataset->events = events;
    if (dataset->feature_count) {
        float *values =
            realloc(dataset->feature_values, capacity * dataset->feature_count * sizeof *values);
        if (!values) return DL_ERR_NOMEM;
        dataset->feature_values = values;
    }
    dataset->capacity = capacity;
    return DL_OK;
}

static int intern(struct dl_dataset *dataset, uint8_t space, const char *what, struct dl_slice name,
                  uint32_t *id, struct dl_error *error)
{
    int added;

    if (name.size == 0)
        return dl_error_set(error, DL_ERR_INVALID, "%s is empty: every event needs one", what);
    if (name.size > DL_NAME_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE, "%s has %zu bytes: shorten it to at most %d",
                            what, name.size, DL_NAME_BYTES_MAX);
    int status = dl_dictionary_intern(dataset->nodes, space, name, id, &added);
    if (status == DL_ERR_FULL)
        return dl_error_set(error, status, "more than %u nodes", DL_DATASET_NODES_MAX);
    if (status != DL_OK) return dl_error_set(error, status, "out of memory");
    return DL_OK;
}

int dl_dataset_add(struct dl_dataset *dataset, const struct dl_edge_event *event,
                   struct dl_error *error)
{
    struct dl_event to = {.time = event->time, .weight = event->has_weight ? event->weight : 1};
    int status;

    if (dataset->event_count >= DL_DATASET_EVENTS_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE, "more than %u events: cut the file",
                            DL_DATASET_EVENTS_MAX);
    if (!dataset->time_unit_guessed &&
        (status = dl_dataset_check_time(event->time, dataset->time_unit, error)) != DL_OK)
        return status;
    if (!isfinite(to.weight))
        return dl_error_set(error, DL_ERR_INVALID, "weight is not a finite number");
    if (make_room(dataset) != DL_OK) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    if ((status = intern(dataset, 0, "source", event->src, &to.src, error)) != DL_OK) return status;
    if ((status = intern(dataset, dataset->bipartite ? 1 : 0, "destination", event->dst, &to.dst,
                         error)) != DL_OK)
        return status;
    float *values = dataset->feature_values + dataset->event_count * dataset->feature_count;
    for (uint32_t i = 0; i < dataset->feature_count; i++) {
        values[i] = i < event->feature_count ? event->features[i] : 0;
        if (!isfinite(values[i]))
            return dl_error_set(error, DL_ERR_INVALID, "feature %u is not a finite number", i + 1);
    }
    if (dataset->event_count && event->time < dataset->events[dataset->event_count - 1].time)
        dataset->out_of_order++;
    dataset->events[dataset->event_count++] = to;
    return DL_OK;
}

struct sort_key {
    int64_t time;
    uint64_t index;
};

static int by_time_then_index(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Puts events and features into time order, ties by arrival, and renames the
 * nodes by first appearance in that order. */
static int sort_events(struct dl_dataset *dataset)
{
    uint64_t count = dataset->event_count, width = dataset->feature_count;
    struct sort_key *keys = malloc(count * sizeof *keys);
    struct dl_event *events = malloc(count * sizeof *events);
    float *values = width ? malloc(count * width * sizeof *values) : NULL;
    struct dl_dictionary *nodes = NULL;
    int status = DL_ERR_NOMEM;

    if (!keys || !events || (width && !values) ||
        dl_dictionary_new(DL_DATASET_NODES_MAX, &nodes) != DL_OK)
        goto done;
    for (uint64_t i = 0; i < count; i++) keys[i] = (struct sort_key){dataset->events[i].time, i};
    qsort(keys, count, sizeof *keys, by_time_then_index);
    for (uint64_t i = 0; i < count; i++) {
        const struct dl_event *from = &dataset->events[keys[i].index];
        int added;
        events[i] = *from;
        const uint32_t ends[2] = {from->src, from->dst};
        uint32_t *const to[2] = {&events[i].src, &events[i].dst};
        for (int e = 0; e < 2; e++) {
            status =
                dl_dictionary_intern(nodes, dl_dictionary_space(dataset->nodes, ends[e]),
                                     dl_dictionary_name(dataset->nodes, ends[e]), to[e], &added);
            if (status != DL_OK) goto done;
        }
        if (width)
            memcpy(values + i * width, dataset->feature_values + keys[i].index * width,
                   width * sizeof *values);
    }
    free(dataset->events);
    dataset->events = events;
    events = NULL;
    if (width) {
        free(dataset->feature_values);
        dataset->feature_values = values;
        values = NULL;
    }
    dl_dictionary_free(dataset->nodes);
    dataset->nodes = nodes;
    nodes = NULL;
    status = DL_OK;
done:
    free(keys);
    free(events);
    free(values);
    dl_dictionary_free(nodes);
    return status;
}

static int list_destinations(struct dl_dataset *dataset)
{
    uint8_t *seen = calloc(dataset->node_count, 1);
    dataset->destinations = malloc(dataset->node_count * sizeof *dataset->destinations);
    dataset->destination_first = malloc(dataset->node_count * sizeof *dataset->destination_first);
    if (!seen || !dataset->destinations || !dataset->destination_first) {
        free(seen);
        return DL_ERR_NOMEM;
    }
    for (uint64_t i = 0; i < dataset->event_count; i++) {
        uint32_t node = dataset->events[i].dst;
        if (seen[node]) continue;
        seen[node] = 1;
        dataset->destination_first[dataset->destination_count] = i;
        dataset->destinations[dataset->destination_count++] = node;
    }
    free(seen);
    return DL_OK;
}

int dl_dataset_finish(struct dl_dataset *dataset, struct dl_error *error)
{
    if (dataset->event_count == 0)
        return dl_error_set(error, DL_ERR_INVALID, "%s: no events", dataset->path);
    if (dataset->out_of_order && sort_events(dataset) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory while sorting", dataset->path);
    dataset->node_count = dl_dictionary_count(dataset->nodes);
    if (list_destinations(dataset) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", dataset->path);
    for (uint64_t i = 0; i < dataset->event_count; i++) {
        dataset->timestamp_count +=
            i == 0 || dataset->events[i].time != dataset->events[i - 1].time;
        if (dataset->feature_count)
            dataset->events[i].features = dataset->feature_values + i * dataset->feature_count;
    }
    if (dataset->time_unit_guessed && dataset->time_unit == DL_TIME_TICKS)
        dataset->time_unit =
            guess_unit(dataset->events[0].time, dataset->events[dataset->event_count - 1].time);
    return DL_OK;
}

/* ---- CSV ------------------------------------------------------------------- */

enum column { SRC, DST, TIME, WEIGHT, FEATURE };

struct columns {
    uint32_t index[FEATURE + DL_EVENT_FEATURES_MAX];
    char names[FEATURE + DL_EVENT_FEATURES_MAX][64]; /* as the header has them, for messages */
    uint32_t header_count;
    int has_weight, iso;
};

static int equal_no_case(struct dl_slice text, const char *name)
{
    if (text.size != strlen(name)) return 0;
    for (size_t i = 0; i < text.size; i++) {
        int c = text.data[i];
        if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
        if (c != name[i]) return 0;
    }
    return 1;
}

/* A column by the name that was asked for, else by the usual ones. */
static int find_column(const struct dl_slice *header, uint32_t count, const char *asked,
                       const char *const *usual, uint32_t *index)
{
    for (uint32_t i = 0; i < count; i++) {
        if (asked) {
            if (!dl_slice_equal(header[i], dl_slice_text(asked))) continue;
            *index = i;
            return 1;
        }
    }
    for (int k = 0; !asked && usual && usual[k]; k++) {
        for (uint32_t i = 0; i < count; i++) {
            if (!equal_no_case(header[i], usual[k])) continue;
            *index = i;
            return 1;
        }
    }
    return 0;
}

static void list_header(const struct dl_slice *header, uint32_t count, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < count && used + 40 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", i ? ", " : "",
                                 (int)(header[i].size < 30 ? header[i].size : 30),
                                 (const char *)header[i].data);
}

static int map_columns(const char *path, const struct dl_dataset_options *options,
                       const struct dl_slice *header, uint32_t count, struct columns *columns,
                       struct dl_error *error)
{
    static const char *const usual[4][6] = {{"src", "source", NULL},
                                            {"dst", "destination", "target", NULL},
                                            {"t", "time", "timestamp", "ts", NULL},
                                            {"w", "weight", NULL}};
    static const char *const what[4] = {"source", "destination", "time", "weight"};
    static const char *const flag[4] = {"--src", "--dst", "--time", "--weight"};
    const char *const asked[4] = {options->src, options->dst, options->time, options->weight};
    char have[256];

    columns->header_count = count;
    list_header(header, count, have, sizeof have);
    for (int c = 0; c < 4; c++) {
        if (find_column(header, count, asked[c], usual[c], &columns->index[c])) {
            if (c == WEIGHT) columns->has_weight = 1;
            continue;
        }
        if (asked[c])
            return dl_error_set(error, DL_ERR_INVALID,
                                "%s: line 1: no column \"%s\" (%s); there are: %s", path, asked[c],
                                flag[c], have);
        if (c != WEIGHT)
            return dl_error_set(error, DL_ERR_INVALID,
                                "%s: line 1: no %s column among: %s; name it with %s NAME "
                                "(the first line must hold the column names)",
                                path, what[c], have, flag[c]);
    }
    for (uint32_t f = 0; f < options->feature_count; f++)
        if (!find_column(header, count, options->features[f], NULL, &columns->index[FEATURE + f]))
            return dl_error_set(error, DL_ERR_INVALID,
                                "%s: line 1: no column \"%s\" (--features); there are: %s", path,
                                options->features[f], have);
    for (uint32_t c = 0; c < FEATURE + options->feature_count; c++) {
        if (c == WEIGHT && !columns->has_weight) continue;
        struct dl_slice name = header[columns->index[c]];
        snprintf(columns->names[c], sizeof columns->names[c], "%.*s",
                 (int)(name.size < 60 ? name.size : 60), (const char *)name.data);
    }
    return DL_OK;
}

static struct dl_slice trim(struct dl_slice text)
{
    while (text.size && (text.data[0] == ' ' || text.data[0] == '\t')) text.data++, text.size--;
    while (text.size && (text.data[text.size - 1] == ' ' || text.data[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* A whole number, also when written "12.0". */
static int parse_integer(struct dl_slice text, int64_t *value)
{
    char copy[40], *end;

    if (text.size == 0 || text.size >= sizeof copy) return 0;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    if (copy[0] != '-' && copy[0] != '+' && (copy[0] < '0' || copy[0] > '9')) return 0;
    errno = 0;
    *value = strtoll(copy, &end, 10);
    if (errno || end == copy) return 0;
    if (*end == '.') {
        end++;
        while (*end == '0') end++;
    }
    return *end == 0;
}

static int parse_float(struct dl_slice text, float *value)
{
    char copy[64], *end;

    if (text.size == 0 || text.size >= sizeof copy) return 0;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    *value = strtof(copy, &end);
    return end != copy && *end == 0 && isfinite(*value);
}

static int bad_value(const char *path, uint64_t line, const char *column, struct dl_slice value,
                     const char *remedy, struct dl_error *error)
{
    return dl_error_set(error, DL_ERR_INVALID, "%s: line %" PRIu64 ": column %s: \"%.*s\" %s", path,
                        line, column, (int)(value.size < 60 ? value.size : 60),
                        (const char *)value.data, remedy);
}

static int read_row(struct dl_dataset *dataset, const struct dl_dataset_options *options,
                    struct columns *columns, const struct dl_slice *fields, uint32_t count,
                    uint64_t line, struct dl_error *error)
{
    struct dl_edge_event event = {.feature_count = options->feature_count};
    const char *path = dataset->path;

    if (count != columns->header_count)
        return dl_error_set(error, DL_ERR_INVALID,
                            "%s: line %" PRIu64 ": %u columns where the header has %u", path, line,
                            count, columns->header_count);
    event.src = fields[columns->index[SRC]];
    event.dst = fields[columns->index[DST]];
    struct dl_slice time = trim(fields[columns->index[TIME]]);
    if (dataset->event_count == 0 && !options->time_unit_given) {
        int64_t ignored;
        columns->iso =
            !parse_integer(time, &ignored) && dl_time_parse_iso8601(time, &ignored) == DL_OK;
        if (columns->iso) dataset->time_unit = DL_TIME_ISO8601;
    }
    if (columns->iso) {
        if (dl_time_parse_iso8601(time, &event.time) != DL_OK)
            return bad_value(path, line, columns->names[TIME], time,
                             "is no ISO 8601 time such as 2026-11-30T20:58:32Z", error);
    } else if (!parse_integer(time, &event.time)) {
        return bad_value(path, line, columns->names[TIME], time,
                         "is no whole number; state --time-unit (s, ms, us, ns, iso8601, ticks) "
                         "and give whole numbers of it",
                         error);
    }
    if (columns->has_weight) {
        struct dl_slice weight = trim(fields[columns->index[WEIGHT]]);
        event.has_weight = weight.size > 0;
        if (event.has_weight && !parse_float(weight, &event.weight))
            return bad_value(path, line, columns->names[WEIGHT], weight,
                             "is no finite number; leave it empty for weight 1", error);
    }
    for (uint32_t f = 0; f < options->feature_count; f++) {
        struct dl_slice value = trim(fields[columns->index[FEATURE + f]]);
        if (value.size && !parse_float(value, &event.features[f]))
            return bad_value(path, line, columns->names[FEATURE + f], value,
                             "is no finite number; leave it empty for 0", error);
    }
    int status = dl_dataset_add(dataset, &event, error);
    if (status == DL_OK) return DL_OK;
    return dl_error_wrap(error, status, "%s: line %" PRIu64, path, line);
}

int dl_dataset_load(const char *path, const struct dl_dataset_options *options,
                    const struct dl_progress *progress, struct dl_dataset **out,
                    struct dl_error *error)
{
    struct dl_dataset *dataset = NULL;
    struct columns columns = {0};
    const struct dl_slice *fields;
    struct dl_csv *csv = NULL;
    uint64_t done, total;
    uint32_t count;

    int status = dl_csv_open(path, &csv, error);
    if (status != DL_OK) return status;
    if ((status = dl_dataset_begin(path, options, &dataset, error)) != DL_OK) goto done;
    status = dl_csv_next(csv, &fields, &count, error);
    if (status == DL_ERR_NOT_FOUND)
        status =
            dl_error_set(error, DL_ERR_INVALID, "%s: empty; give a CSV file with a header", path);
    if (status != DL_OK) goto done;
    if ((status = map_columns(path, options, fields, count, &columns, error)) != DL_OK) goto done;
    columns.iso = options->time_unit_given && options->time_unit == DL_TIME_ISO8601;
    while ((status = dl_csv_next(csv, &fields, &count, error)) == DL_OK) {
        status = read_row(dataset, options, &columns, fields, count, dl_csv_line(csv), error);
        if (status != DL_OK) goto done;
        if (dataset->event_count % 65536 == 0) {
            dl_csv_position(csv, &done, &total);
            dl_progress_advance(progress, "reading", done, total, "bytes");
            if (dl_progress_cancelled(progress)) {
                status = dl_error_set(error, DL_ERR_CANCELLED, "stopped");
                goto done;
            }
        }
    }
    if (status != DL_ERR_NOT_FOUND) goto done;
    dl_csv_hash(csv, dataset->hash);
    status = dl_dataset_finish(dataset, error);
done:
    dl_csv_close(csv);
    if (status == DL_OK)
        *out = dataset;
    else
        dl_dataset_free(dataset);
    return status;
}

/* ---- statistics -------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void mean_and_sd(double sum, double squares, double count, double *mean, double *sd)
{
    *mean = sum / count;
    double variance = squares / count - *mean * *mean;
    *sd = variance > 1e-12 ? sqrt(variance) : 1; /* a constant carries nothing; 1 keeps it at 0 */
}

int dl_dataset_encoding(const struct dl_dataset *dataset, uint64_t count,
                        struct dl_encoding *encoding)
{
    double *gaps = malloc((count ? count : 1) * sizeof *gaps);
    double sum = 0, squares = 0;
    uint64_t gap_count = 0;

    if (!gaps) return DL_ERR_NOMEM;
    memset(encoding, 0, sizeof *encoding);
    for (uint64_t i = 0; i < count; i++) {
        const struct dl_event *event = &dataset->events[i];
        if (i && event->time > event[-1].time)
            gaps[gap_count++] = (double)event->time - (double)event[-1].time;
        double weight = copysign(log1p(fabs((double)event->weight)), (double)event->weight);
        sum += weight;
        squares += weight * weight;
    }
    qsort(gaps, gap_count, sizeof *gaps, by_value);
    encoding->gap = gap_count
                        ? (gap_count % 2 ? gaps[gap_count / 2]
                                         : (gaps[gap_count / 2 - 1] + gaps[gap_count / 2]) / 2)
                        : 1;
    free(gaps);
    mean_and_sd(sum, squares, (double)count, &encoding->weight_mean, &encoding->weight_sd);
    for (uint32_t f = 0; f < DL_EVENT_FEATURES_MAX; f++) encoding->feature_sd[f] = 1;
    dl_reading_plain(&encoding->reading);
    for (uint32_t f = 0; f < dataset->feature_count; f++) {
        sum = squares = 0;
        for (uint64_t i = 0; i < count; i++) {
            double value = (double)dataset->events[i].features[f];
            sum += value;
            squares += value * value;
        }
        mean_and_sd(sum, squares, (double)count, &encoding->feature_mean[f],
                    &encoding->feature_sd[f]);
    }
    return DL_OK;
}
