/* The registry: families in order of registration, each with its series. A
 * series is one block that never moves, so its pointer may be kept; the
 * kinds' structures lie inside it. */
#include "service/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define SERIES_MAX_DEFAULT 256

struct series {
    union {
        struct dl_counter counter;
        struct dl_gauge gauge;
        struct dl_histogram histogram;
    } as;
    char *values[DL_METRIC_LABELS_MAX]; /* unescaped; NULL after the last */
};

struct dl_metric_family {
    struct dl_metrics *metrics;
    struct dl_metric_description about;
    uint32_t label_count;
    uint32_t series_count, series_capacity, series_max;
    struct series **series;
    struct series overflow; /* takes the updates that have no series of their own */
};

struct dl_metrics {
    uint32_t family_count, family_capacity;
    struct dl_metric_family **families;
    struct dl_counter dropped; /* until the table's own counter is registered */
    struct dl_counter *dropped_exported;
};

/* ---- series ---------------------------------------------------------------- */

static void series_start(const struct dl_metric_family *family, struct series *series)
{
    switch (family->about.kind) {
    case DL_METRIC_COUNTER:
        atomic_init(&series->as.counter.value, 0);
        break;
    case DL_METRIC_GAUGE:
    case DL_METRIC_INFO:
        atomic_init(&series->as.gauge.value, NAN);
        break;
    case DL_METRIC_HISTOGRAM:
        series->as.histogram.bounds = family->about.bounds;
        series->as.histogram.bound_count = family->about.bound_count;
        for (uint32_t i = 0; i <= DL_METRIC_BOUNDS_MAX; i++)
            atomic_init(&series->as.histogram.counts[i], 0);
        atomic_init(&series->as.histogram.sum, 0);
        break;
    }
}

static void series_free(struct series *series)
{
    if (!series) return;
    for (uint32_t i = 0; i < DL_METRIC_LABELS_MAX; i++) free(series->values[i]);
    free(series);
}

/* Length of a label value after cutting it at a character boundary. */
static size_t label_length(const char *value)
{
    size_t length = strnlen(value, DL_METRIC_LABEL_BYTES_MAX + 1);
    if (length <= DL_METRIC_LABEL_BYTES_MAX) return length;
    length = DL_METRIC_LABEL_BYTES_MAX;
    while (length > 0 && ((unsigned char)value[length] & 0xC0) == 0x80) length--;
    return length;
}

static int label_equal(const char *stored, const char *value)
{
    size_t length = label_length(value);
    return strlen(stored) == length && memcmp(stored, value, length) == 0;
}

static uint32_t series_index(const struct dl_metric_family *family, const char *const *values)
{
    for (uint32_t i = 0; i < family->series_count; i++) {
        uint32_t k = 0;
        while (k < family->label_count && label_equal(family->series[i]->values[k], values[k])) k++;
        if (k == family->label_count) return i;
    }
    return UINT32_MAX;
}

static struct series *series_new(struct dl_metric_family *family, const char *const *values)
{
    if (family->series_count >= family->series_max) return NULL;
    if (family->series_count == family->series_capacity) {
        uint32_t capacity = family->series_capacity ? 2 * family->series_capacity : 1;
        struct series **grown = realloc(family->series, capacity * sizeof *grown);
        if (!grown) return NULL;
        family->series = grown;
        family->series_capacity = capacity;
    }
    struct series *series = calloc(1, sizeof *series);
    if (!series) return NULL;
    series_start(family, series);
    for (uint32_t i = 0; i < family->label_count; i++) {
        series->values[i] = strndup(values[i], label_length(values[i]));
        if (!series->values[i]) {
            series_free(series);
            return NULL;
        }
    }
    family->series[family->series_count++] = series;
    return series;
}

static struct series *series_get(struct dl_metric_family *family, const char *const *values)
{
    DL_CHECK(family->label_count == 0 || values != NULL);
    uint32_t index = series_index(family, values);
    if (index != UINT32_MAX) return family->series[index];
    struct series *series = series_new(family, values);
    if (series) return series;
    struct dl_metrics *metrics = family->metrics;
    dl_counter_add(metrics->dropped_exported ? metrics->dropped_exported : &metrics->dropped, 1);
    return &family->overflow;
}

/* ---- exposition ------------------------------------------------------------ */

/* Shortest of the usual forms that reads back as the same double. */
static void write_number(struct dl_buf *out, double value)
{
    char text[40];
    if (isnan(value))
        snprintf(text, sizeof text, "NaN");
    else if (isinf(value))
        snprintf(text, sizeof text, value > 0 ? "+Inf" : "-Inf");
    else {
        int digits = 6;
        do {
            snprintf(text, sizeof text, "%.*g", digits, value);
            digits += digits == 6 ? 9 : 2;
        } while (digits <= 17 && strtod(text, NULL) != value);
    }
    dl_buf_text(out, text);
}

/* Bytes of the UTF-8 character at `at`, or 0 if it is not one. */
static size_t utf8_length(const unsigned char *at)
{
    size_t length = at[0] < 0x80   ? 1
                    : at[0] < 0xC2 ? 0
                    : at[0] < 0xE0 ? 2
                    : at[0] < 0xF0 ? 3
                    : at[0] < 0xF5 ? 4
                                   : 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return length;
}

/* A label value in quotes; control characters and broken UTF-8 become '?'. */
static void write_label_value(struct dl_buf *out, const char *value)
{
    dl_buf_text(out, "\"");
    for (const unsigned char *at = (const unsigned char *)value; *at;) {
        size_t length = utf8_length(at);
        if (*at == '"')
            dl_buf_text(out, "\\\"");
        else if (*at == '\\')
            dl_buf_text(out, "\\\\");
        else if (*at == '\n')
            dl_buf_text(out, "\\n");
        else if (length == 0 || *at < 0x20 || *at == 0x7F)
            dl_buf_text(out, "?");
        else
            dl_buf_append(out, at, length);
        at += length ? length : 1;
    }
    dl_buf_text(out, "\"");
}

/* "{a="x",le="0.5"}" or nothing. `le` may be NULL. */
static void write_labels(struct dl_buf *out, const struct dl_metric_family *family,
                         const struct series *series, const char *le)
{
    if (family->label_count == 0 && !le) return;
    dl_buf_text(out, "{");
    for (uint32_t i = 0; i < family->label_count; i++) {
        dl_buf_printf(out, "%s%s=", i ? "," : "", family->about.labels[i]);
        write_label_value(out, series->values[i]);
    }
    if (le) dl_buf_printf(out, "%sle=\"%s\"", family->label_count ? "," : "", le);
    dl_buf_text(out, "}");
}

static void write_histogram(struct dl_buf *out, const struct dl_metric_family *family,
                            const struct series *series, enum dl_metrics_format format)
{
    struct dl_histogram_counts read;
    const struct dl_histogram *histogram = &series->as.histogram;
    dl_histogram_read(histogram, &read);
    uint64_t total = 0;
    for (uint32_t i = 0; i <= histogram->bound_count; i++) {
        char le[32] = "+Inf";
        total += read.counts[i];
        if (i < histogram->bound_count) {
            snprintf(le, sizeof le, "%.10g", histogram->bounds[i]);
            if (format == DL_METRICS_OPENMETRICS && !strpbrk(le, ".e"))
                strncat(le, ".0", sizeof le - strlen(le) - 1);
        }
        dl_buf_printf(out, "%s_bucket", family->about.name);
        write_labels(out, family, series, le);
        dl_buf_printf(out, " %llu\n", (unsigned long long)total);
    }
    dl_buf_printf(out, "%s_sum", family->about.name);
    write_labels(out, family, series, NULL);
    dl_buf_text(out, " ");
    write_number(out, read.sum);
    dl_buf_printf(out, "\n%s_count", family->about.name);
    write_labels(out, family, series, NULL);
    dl_buf_printf(out, " %llu\n", (unsigned long long)total);
}

static void write_series(struct dl_buf *out, const struct dl_metric_family *family,
                         const struct series *series, enum dl_metrics_format format)
{
    if (family->about.kind == DL_METRIC_HISTOGRAM) {
        write_histogram(out, family, series, format);
        return;
    }
    double value = 0;
    uint64_t count = 0;
    if (family->about.kind == DL_METRIC_COUNTER)
        count = dl_counter_get(&series->as.counter);
    else if (isnan(value = dl_gauge_get(&series->as.gauge)))
        return;
    dl_buf_text(out, family->about.name);
    write_labels(out, family, series, NULL);
    dl_buf_text(out, " ");
    if (family->about.kind != DL_METRIC_COUNTER)
        write_number(out, value);
    else if (family->about.scale == 1)
        dl_buf_printf(out, "%llu", (unsigned long long)count);
    else
        write_number(out, (double)count * family->about.scale);
    dl_buf_text(out, "\n");
}

static int has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n > s && strcmp(name + n - s, suffix) == 0;
}

static int family_has_values(const struct dl_metric_family *family)
{
    if (family->about.kind == DL_METRIC_COUNTER || family->about.kind == DL_METRIC_HISTOGRAM)
        return family->series_count > 0;
    for (uint32_t i = 0; i < family->series_count; i++)
        if (!isnan(dl_gauge_get(&family->series[i]->as.gauge))) return 1;
    return 0;
}

static void write_family(struct dl_buf *out, const struct dl_metric_family *family,
                         enum dl_metrics_format format)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram", "gauge"};
    const char *name = family->about.name;
    int length = (int)strlen(name), open = format == DL_METRICS_OPENMETRICS;
    const char *kind = kinds[family->about.kind];
    /* OpenMetrics names the family without the suffix of its samples. */
    if (open && family->about.kind == DL_METRIC_COUNTER) length -= (int)strlen("_total");
    if (open && family->about.kind == DL_METRIC_INFO) {
        length -= (int)strlen("_info");
        kind = "info";
    }
    dl_buf_printf(out, "# HELP %.*s %s\n# TYPE %.*s %s\n", length, name, family->about.help, length,
                  name, kind);
    if (open && family->about.unit)
        dl_buf_printf(out, "# UNIT %.*s %s\n", length, name, family->about.unit);
    for (uint32_t i = 0; i < family->series_count; i++)
        write_series(out, family, family->series[i], format);
}

/* ---- the registry ----------------------------------------------------------- */

static int name_valid(const char *name)
{
    if (!((name[0] >= 'a' && name[0] <= 'z') || name[0] == '_')) return 0;
    for (const char *at = name; *at; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '_')) return 0;
    return 1;
}

static int check_description(const struct dl_metrics *metrics,
                             const struct dl_metric_description *about, struct dl_error *error)
{
    if (!name_valid(about->name))
        return dl_error_set(error, DL_ERR_INVALID,
                            "metric \"%s\": a name has small letters, digits and _ only",
                            about->name);
    for (uint32_t i = 0; i < metrics->family_count; i++)
        if (strcmp(metrics->families[i]->about.name, about->name) == 0)
            return dl_error_set(error, DL_ERR_INVALID, "metric \"%s\" is registered twice",
                                about->name);
    if ((about->kind == DL_METRIC_COUNTER) != has_suffix(about->name, "_total") ||
        (about->kind == DL_METRIC_INFO) != has_suffix(about->name, "_info"))
        return dl_error_set(error, DL_ERR_INVALID,
                            "metric \"%s\": counters, and only they, end in _total; infos in _info",
                            about->name);
    if (about->unit) {
        char suffix[80];
        snprintf(suffix, sizeof suffix, "_%s%s", about->unit,
                 about->kind == DL_METRIC_COUNTER ? "_total" : "");
        if (!has_suffix(about->name, suffix))
            return dl_error_set(error, DL_ERR_INVALID, "metric \"%s\" must end in its unit, %s",
                                about->name, suffix);
    }
    if (about->kind == DL_METRIC_HISTOGRAM) {
        int ascending = about->bound_count >= 1 && about->bound_count <= DL_METRIC_BOUNDS_MAX;
        for (uint32_t i = 1; ascending && i < about->bound_count; i++)
            ascending = about->bounds[i - 1] < about->bounds[i];
        if (!ascending)
            return dl_error_set(error, DL_ERR_INVALID,
                                "metric \"%s\": 1 to %d ascending bounds are needed", about->name,
                                DL_METRIC_BOUNDS_MAX);
    }
    for (uint32_t i = 0; i < DL_METRIC_LABELS_MAX && about->labels[i]; i++)
        if (!name_valid(about->labels[i]) || strcmp(about->labels[i], "le") == 0)
            return dl_error_set(error, DL_ERR_INVALID, "metric \"%s\": bad label name \"%s\"",
                                about->name, about->labels[i]);
    return DL_OK;
}

int dl_metrics_new(struct dl_metrics **metrics)
{
    *metrics = calloc(1, sizeof **metrics);
    return *metrics ? DL_OK : DL_ERR_NOMEM;
}

void dl_metrics_free(struct dl_metrics *metrics)
{
    if (!metrics) return;
    for (uint32_t i = 0; i < metrics->family_count; i++) {
        dl_metrics_clear(metrics->families[i]);
        free(metrics->families[i]->series);
        free(metrics->families[i]);
    }
    free(metrics->families);
    free(metrics);
}

int dl_metrics_add(struct dl_metrics *metrics, const struct dl_metric_description *description,
                   struct dl_metric_family **family, struct dl_error *error)
{
    int status = check_description(metrics, description, error);
    if (status) return status;
    if (metrics->family_count == metrics->family_capacity) {
        uint32_t capacity = metrics->family_capacity ? 2 * metrics->family_capacity : 32;
        struct dl_metric_family **grown =
            realloc(metrics->families, capacity * sizeof(struct dl_metric_family *));
        if (!grown) return dl_error_set(error, DL_ERR_NOMEM, "metrics: out of memory");
        metrics->families = grown;
        metrics->family_capacity = capacity;
    }
    struct dl_metric_family *added = calloc(1, sizeof *added);
    if (!added) return dl_error_set(error, DL_ERR_NOMEM, "metrics: out of memory");
    added->metrics = metrics;
    added->about = *description;
    if (added->about.scale == 0) added->about.scale = 1;
    while (added->label_count < DL_METRIC_LABELS_MAX && description->labels[added->label_count])
        added->label_count++;
    added->series_max = added->label_count == 0   ? 1
                        : description->series_max ? description->series_max
                                                  : SERIES_MAX_DEFAULT;
    series_start(added, &added->overflow);
    metrics->families[metrics->family_count++] = added;
    if (strcmp(description->name, "driftline_metrics_series_dropped_total") == 0) {
        metrics->dropped_exported = dl_metrics_counter(added, NULL);
        dl_counter_add(metrics->dropped_exported, dl_counter_get(&metrics->dropped));
    }
    *family = added;
    return DL_OK;
}

struct dl_counter *dl_metrics_counter(struct dl_metric_family *family, const char *const *values)
{
    DL_CHECK(family->about.kind == DL_METRIC_COUNTER);
    return &series_get(family, values)->as.counter;
}

struct dl_gauge *dl_metrics_gauge(struct dl_metric_family *family, const char *const *values)
{
    DL_CHECK(family->about.kind == DL_METRIC_GAUGE || family->about.kind == DL_METRIC_INFO);
    return &series_get(family, values)->as.gauge;
}

struct dl_histogram *dl_metrics_histogram(struct dl_metric_family *family,
                                          const char *const *values)
{
    DL_CHECK(family->about.kind == DL_METRIC_HISTOGRAM);
    return &series_get(family, values)->as.histogram;
}

struct dl_gauge *dl_metrics_gauge_partition(struct dl_metric_family *family, const char *topic,
                                            int32_t partition)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)partition);
    return dl_metrics_gauge(family, DL_LABELS(topic, number));
}

void dl_metrics_remove(struct dl_metric_family *family, const char *const *values)
{
    uint32_t index = series_index(family, values);
    if (index == UINT32_MAX) return;
    series_free(family->series[index]);
    family->series_count--;
    memmove(family->series + index, family->series + index + 1,
            (family->series_count - index) * sizeof *family->series);
}

void dl_metrics_remove_partition(struct dl_metric_family *family, const char *topic,
                                 int32_t partition)
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)partition);
    dl_metrics_remove(family, DL_LABELS(topic, number));
}

void dl_metrics_clear(struct dl_metric_family *family)
{
    for (uint32_t i = 0; i < family->series_count; i++) series_free(family->series[i]);
    family->series_count = 0;
}

struct fold {
    double sum, largest;
    uint32_t count;
};

static struct fold gauge_fold(const struct dl_metric_family *family)
{
    DL_CHECK(family->about.kind == DL_METRIC_GAUGE);
    struct fold fold = {0, -INFINITY, 0};
    for (uint32_t i = 0; i < family->series_count; i++) {
        double value = dl_gauge_get(&family->series[i]->as.gauge);
        if (isnan(value)) continue;
        fold.sum += value;
        fold.largest = fmax(fold.largest, value);
        fold.count++;
    }
    return fold;
}

double dl_metrics_gauge_sum(const struct dl_metric_family *family)
{
    struct fold fold = gauge_fold(family);
    return fold.count ? fold.sum : NAN;
}

double dl_metrics_gauge_mean(const struct dl_metric_family *family)
{
    struct fold fold = gauge_fold(family);
    return fold.count ? fold.sum / fold.count : NAN;
}

double dl_metrics_gauge_max(const struct dl_metric_family *family)
{
    struct fold fold = gauge_fold(family);
    return fold.count ? fold.largest : NAN;
}

uint64_t dl_metrics_counter_sum(const struct dl_metric_family *family)
{
    DL_CHECK(family->about.kind == DL_METRIC_COUNTER);
    uint64_t sum = dl_counter_get(&family->overflow.as.counter);
    for (uint32_t i = 0; i < family->series_count; i++)
        sum += dl_counter_get(&family->series[i]->as.counter);
    return sum;
}

enum dl_metrics_format dl_metrics_negotiate(const char *accept)
{
    /* Prometheus puts what it prefers first and lists only what it can read,
     * so the presence of the type is enough, unless it is refused by q=0. */
    const char *at = accept ? strstr(accept, "application/openmetrics-text") : NULL;
    if (!at) return DL_METRICS_PROMETHEUS;
    size_t length = strcspn(at, ",");
    const char *quality = memmem(at, length, "q=", 2);
    if (quality && strtod(quality + 2, NULL) == 0) return DL_METRICS_PROMETHEUS;
    return DL_METRICS_OPENMETRICS;
}

const char *dl_metrics_content_type(enum dl_metrics_format format)
{
    return format == DL_METRICS_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}

void dl_metrics_write(const struct dl_metrics *metrics, enum dl_metrics_format format,
                      struct dl_buf *out)
{
    for (uint32_t i = 0; i < metrics->family_count; i++)
        if (family_has_values(metrics->families[i]))
            write_family(out, metrics->families[i], format);
    if (format == DL_METRICS_OPENMETRICS) dl_buf_text(out, "# EOF\n");
}

/* ---- reading histograms ----------------------------------------------------- */

void dl_histogram_read(const struct dl_histogram *histogram, struct dl_histogram_counts *counts)
{
    memset(counts, 0, sizeof *counts);
    for (uint32_t i = 0; i <= histogram->bound_count; i++)
        counts->counts[i] = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
    counts->sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
}

static uint64_t span_count(const struct dl_histogram_counts *before,
                           const struct dl_histogram_counts *after, uint32_t bucket)
{
    return after->counts[bucket] - (before ? before->counts[bucket] : 0);
}

double dl_histogram_quantile(const struct dl_histogram *histogram,
                             const struct dl_histogram_counts *before,
                             const struct dl_histogram_counts *after, double quantile)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i <= histogram->bound_count; i++) total += span_count(before, after, i);
    if (total == 0) return NAN;
    double rank = quantile * (double)total, below = 0;
    for (uint32_t i = 0; i < histogram->bound_count; i++) {
        double count = (double)span_count(before, after, i);
        if (count > 0 && below + count >= rank) {
            double high = histogram->bounds[i];
            double low = i > 0 ? histogram->bounds[i - 1] : high > 0 ? 0 : high;
            return low + (high - low) * (rank - below) / count;
        }
        below += count;
    }
    return histogram->bounds[histogram->bound_count - 1];
}

double dl_histogram_mean(const struct dl_histogram *histogram,
                         const struct dl_histogram_counts *before,
                         const struct dl_histogram_counts *after, uint64_t *count)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i <= histogram->bound_count; i++) total += span_count(before, after, i);
    if (count) *count = total;
    if (total == 0) return NAN;
    return (after->sum - (before ? before->sum : 0)) / (double)total;
}
