/* The features watched for drift, and the reference built from them. */
#include "model/drift_features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RATE_HORIZON 1 /* index into dl_node_state.rate_*: 2^10 events */
#define RATE_HORIZON_EVENTS 1024.0
#define ROWS_MIN 64 /* of a usable reference */
#define ROWS_MAX 65536
#define WANDER_FREE 1.5 /* times what independent rows would: the estimate is noisy */
#define TWO_PI 6.283185307179586

const char *const dl_drift_column_names[DL_DRIFT_COLUMNS] = {
    "gap",      "hour_sin",       "hour_cos",       "src_age",
    "pair_age", "src_age_events", "dst_age_events", "pair_age_events",
    "src_rate", "dst_rate",       "src_new",        "dst_new",
    "pair_new", "repeats",        "common",         "weight"};

/* Deviations below these are taken for these: a feature that hardly moved in
 * training must not turn a first small move into a huge one. */
static const double sd_floors[DL_DRIFT_COLUMNS] = {0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05,
                                                   0.05, 0.05, 0.1,  0.1,  0.1,  0.05, 0.05, 0.05};

/* ---- one row ------------------------------------------------------------------ */

static float log_age(int64_t now, int64_t then, double gap)
{
    /* In double: the difference of two int64 may not fit one. */
    double age = (double)now - (double)then;
    return age > 0 ? (float)log1p(age / gap) : 0.0f;
}

/* Distinct peers of a node within the horizon, without the two endpoints; how
 * many interactions there were, and how many of them with `other`. */
struct peers {
    uint32_t nodes[DL_DRIFT_WINDOW];
    uint32_t distinct, interactions, with_other;
};

static void peers_of(const struct dl_graph *graph, uint32_t node, uint32_t other, uint64_t oldest,
                     struct peers *peers)
{
    struct dl_interaction window[DL_DRIFT_WINDOW];
    uint32_t count = dl_graph_window(graph, node, DL_DRIFT_WINDOW, window, NULL);
    *peers = (struct peers){.distinct = 0};
    for (uint32_t i = 0; i < count; i++) {
        if (window[i].seq < oldest) continue;
        const uint32_t peer = window[i].peer;
        peers->interactions++;
        peers->with_other += peer == other;
        if (peer == node || peer == other) continue;
        uint32_t k = 0;
        while (k < peers->distinct && peers->nodes[k] != peer) k++;
        if (k == peers->distinct) peers->nodes[peers->distinct++] = peer;
    }
}

static float common_share(const struct peers *a, const struct peers *b)
{
    uint32_t common = 0, smaller = a->distinct < b->distinct ? a->distinct : b->distinct;
    for (uint32_t i = 0; i < a->distinct; i++)
        for (uint32_t j = 0; j < b->distinct; j++) common += a->nodes[i] == b->nodes[j];
    return smaller ? (float)common / (float)smaller : 0.0f;
}

static float log_rate(float rate, uint64_t events, uint64_t last_seq)
{
    double since = (double)(events - 1) - (double)last_seq;
    return (float)log1p(rate * exp(-(since > 0 ? since : 0) / RATE_HORIZON_EVENTS));
}

void dl_drift_features(const struct dl_graph *graph, const struct dl_event *event, double gap,
                       enum dl_time_unit unit, float raw[DL_DRIFT_COLUMNS])
{
    const struct dl_feed_state *feed = dl_graph_feed(graph);
    const uint64_t n = feed->events;
    const uint64_t oldest = n > DL_DRIFT_HORIZON_EVENTS ? n - DL_DRIFT_HORIZON_EVENTS : 0;
    const struct dl_node_state *src = dl_graph_node(graph, event->src);
    const struct dl_node_state *dst = dl_graph_node(graph, event->dst);
    if (src && (!src->events || src->last_seq < oldest)) src = NULL;
    if (dst && (!dst->events || dst->last_seq < oldest)) dst = NULL;
    struct dl_pair_state pair;
    int has_pair = 0;
    int64_t pair_time = 0;
    uint64_t pair_seq = 0;
    if (src && dst && dl_graph_pair(graph, event->src, event->dst, &pair)) {
        const int d = pair.count[1] && (!pair.count[0] || pair.last_seq[1] > pair.last_seq[0]);
        pair_time = pair.last_time[d];
        pair_seq = pair.last_seq[d];
        has_pair = pair.count[d] && pair_seq >= oldest;
    }
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) raw[c] = NAN;
    raw[DL_DRIFT_GAP] = n ? log_age(event->time, feed->last_time, gap) : 0.0f;
    raw[DL_DRIFT_HOUR_SIN] = raw[DL_DRIFT_HOUR_COS] = 0.0f;
    const int64_t day = 86400 * dl_time_unit_per_second(unit);
    if (day) {
        int64_t rest = event->time % day;
        double phase = TWO_PI * (double)(rest < 0 ? rest + day : rest) / (double)day;
        raw[DL_DRIFT_HOUR_SIN] = (float)sin(phase);
        raw[DL_DRIFT_HOUR_COS] = (float)cos(phase);
    }
    raw[DL_DRIFT_SRC_NEW] = !src;
    raw[DL_DRIFT_DST_NEW] = !dst;
    raw[DL_DRIFT_PAIR_NEW] = !has_pair;
    raw[DL_DRIFT_SRC_RATE] = raw[DL_DRIFT_DST_RATE] = 0.0f;
    struct peers of_src, of_dst;
    if (src) {
        raw[DL_DRIFT_SRC_AGE] = log_age(event->time, src->last_time, gap);
        raw[DL_DRIFT_SRC_AGE_EVENTS] = (float)log((double)(n - src->last_seq));
        raw[DL_DRIFT_SRC_RATE] = log_rate(src->rate_out[RATE_HORIZON], n, src->last_out_seq);
        peers_of(graph, event->src, event->dst, oldest, &of_src);
        if (of_src.interactions)
            raw[DL_DRIFT_REPEATS] = (float)of_src.with_other / (float)of_src.interactions;
    }
    if (dst) {
        raw[DL_DRIFT_DST_AGE_EVENTS] = (float)log((double)(n - dst->last_seq));
        raw[DL_DRIFT_DST_RATE] = log_rate(dst->rate_in[RATE_HORIZON], n, dst->last_in_seq);
    }
    if (src && dst) {
        peers_of(graph, event->dst, event->src, oldest, &of_dst);
        raw[DL_DRIFT_COMMON] = common_share(&of_src, &of_dst);
    }
    if (has_pair) {
        raw[DL_DRIFT_PAIR_AGE] = log_age(event->time, pair_time, gap);
        raw[DL_DRIFT_PAIR_AGE_EVENTS] = (float)log((double)(n - pair_seq));
    }
    raw[DL_DRIFT_WEIGHT] = copysignf(log1pf(fabsf(event->weight)), event->weight);
}

void dl_drift_standardise(const struct dl_reference *reference, const float raw[DL_DRIFT_COLUMNS],
                          float row[DL_DRIFT_COLUMNS])
{
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        float z = (float)((raw[c] - reference->mean[c]) / reference->sd[c]);
        if (!(z >= -DL_DRIFT_CLIP)) z = isnan(z) ? 0.0f : -DL_DRIFT_CLIP;
        row[c] = z > DL_DRIFT_CLIP ? DL_DRIFT_CLIP : z;
    }
}

/* ---- references ------------------------------------------------------------------ */

int dl_drift_reference_check(const struct dl_reference *reference, struct dl_error *error)
{
    if (reference->columns != DL_DRIFT_COLUMNS)
        return dl_error_set(error, DL_ERR_VERSION,
                            "drift reference: %u features, this version watches %d; train again or "
                            "renew the reference",
                            reference->columns, DL_DRIFT_COLUMNS);
    if (!reference->names || !reference->values || !reference->mean || !reference->sd)
        return dl_error_set(error, DL_ERR_INVALID, "drift reference: a part is missing");
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        if (strncmp(reference->names[c], dl_drift_column_names[c], sizeof reference->names[c]))
            return dl_error_set(error, DL_ERR_VERSION,
                                "drift reference: feature %d is \"%.31s\", this version expects "
                                "\"%s\"; train again or renew the reference",
                                c, reference->names[c], dl_drift_column_names[c]);
        if (!isfinite(reference->mean[c]) || !isfinite(reference->sd[c]) || reference->sd[c] < 1e-9)
            return dl_error_set(error, DL_ERR_INVALID,
                                "drift reference: feature \"%s\" has mean %g and deviation %g; "
                                "the deviation must be above 0",
                                dl_drift_column_names[c], reference->mean[c], reference->sd[c]);
    }
    if (reference->rows < ROWS_MIN || reference->rows > ROWS_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "drift reference: %u rows; it takes %d to %d",
                            reference->rows, ROWS_MIN, ROWS_MAX);
    if (reference->segment_rows && reference->rows % reference->segment_rows)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift reference: %u rows do not divide into stretches of %u",
                            reference->rows, reference->segment_rows);
    for (size_t i = 0; i < (size_t)reference->rows * DL_DRIFT_COLUMNS; i++)
        if (!isfinite(reference->values[i]) || fabsf(reference->values[i]) > DL_DRIFT_CLIP)
            return dl_error_set(error, DL_ERR_INVALID,
                                "drift reference: row %zu of feature \"%s\" is %g, not within ±%g",
                                i / DL_DRIFT_COLUMNS, dl_drift_column_names[i % DL_DRIFT_COLUMNS],
                                (double)reference->values[i], (double)DL_DRIFT_CLIP);
    return DL_OK;
}

/* Deviation of a column's mean from window to window, in the column's own
 * deviations: 1/sqrt(window) for independent rows. */
static double wander(const struct dl_reference *reference, uint32_t window, int column)
{
    const uint32_t stretch =
        reference->segment_rows >= window ? reference->segment_rows : reference->rows;
    double sum = 0, squares = 0, all_squares = 0;
    uint32_t means = 0;
    for (uint32_t s = 0; s + stretch <= reference->rows; s += stretch)
        for (uint32_t w = s; w + window <= s + stretch; w += window) {
            double mean = 0;
            for (uint32_t i = w; i < w + window; i++) {
                double z = reference->values[(size_t)i * DL_DRIFT_COLUMNS + column];
                mean += z / window;
                all_squares += z * z;
            }
            sum += mean;
            squares += mean * mean;
            means++;
        }
    if (means < 4) return 0;
    double variance = all_squares / ((double)means * window) - (sum / means) * (sum / means);
    double of_means = (squares - sum * sum / means) / (means - 1);
    return variance > 1e-6 ? sqrt(fmax(0, of_means / variance)) : 0;
}

void dl_drift_weigh(const struct dl_reference *reference, uint32_t window, double wander_max,
                    float weight[DL_DRIFT_COLUMNS])
{
    const double allowed = WANDER_FREE / sqrt(window);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        const double w = wander(reference, window, c);
        weight[c] = w <= allowed ? 1.0f : w < wander_max ? (float)(allowed / w) : 0.0f;
    }
}

void dl_drift_reference_deinit(struct dl_reference *reference)
{
    free(reference->names);
    free(reference->values);
    free(reference->mean);
    free(reference->sd);
    *reference = (struct dl_reference){0};
}

int dl_drift_reference_build(const float *raw, uint32_t rows, uint32_t segment_rows,
                             uint64_t events_before, struct dl_reference *reference,
                             struct dl_error *error)
{
    *reference = (struct dl_reference){.rows = rows,
                                       .columns = DL_DRIFT_COLUMNS,
                                       .segment_rows = segment_rows,
                                       .events_before = events_before};
    if (rows < ROWS_MIN || rows > ROWS_MAX)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift reference: %u events to build it from; it takes %d to %d", rows,
                            ROWS_MIN, ROWS_MAX);
    reference->names = calloc(DL_DRIFT_COLUMNS, sizeof *reference->names);
    reference->values = calloc((size_t)rows * DL_DRIFT_COLUMNS, sizeof *reference->values);
    reference->mean = calloc(DL_DRIFT_COLUMNS, sizeof *reference->mean);
    reference->sd = calloc(DL_DRIFT_COLUMNS, sizeof *reference->sd);
    if (!reference->names || !reference->values || !reference->mean || !reference->sd) {
        dl_drift_reference_deinit(reference);
        return dl_error_set(error, DL_ERR_NOMEM, "drift reference: out of memory");
    }
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        memcpy(reference->names[c], dl_drift_column_names[c], strlen(dl_drift_column_names[c]));
        double sum = 0, squares = 0;
        uint32_t valid = 0;
        for (uint32_t i = 0; i < rows; i++) {
            double x = raw[(size_t)i * DL_DRIFT_COLUMNS + c];
            if (isfinite(x)) sum += x, valid++;
        }
        const double mean = valid ? sum / valid : 0;
        for (uint32_t i = 0; i < rows; i++) {
            double x = raw[(size_t)i * DL_DRIFT_COLUMNS + c] - mean;
            if (isfinite(x)) squares += x * x;
        }
        const double sd = valid > 1 ? sqrt(squares / (valid - 1)) : 0;
        reference->mean[c] = mean;
        reference->sd[c] = sd > sd_floors[c] ? sd : sd_floors[c];
    }
    for (uint32_t i = 0; i < rows; i++)
        dl_drift_standardise(reference, raw + (size_t)i * DL_DRIFT_COLUMNS,
                             reference->values + (size_t)i * DL_DRIFT_COLUMNS);
    return DL_OK;
}

/* ---- the builder -------------------------------------------------------------------- */

struct dl_drift_builder {
    uint64_t start, events; /* rows from `start` on count */
    uint32_t segments, segment_rows;
    uint32_t rows;        /* taken so far */
    uint64_t first_index; /* of the first row taken */
    float *raw;           /* (segments · segment_rows, DL_DRIFT_COLUMNS) */
};

int dl_drift_builder_new(uint64_t events, struct dl_drift_builder **result)
{
    *result = NULL;
    struct dl_drift_builder *builder = calloc(1, sizeof *builder);
    if (!builder) return DL_ERR_NOMEM;
    const uint64_t whole = (uint64_t)DL_DRIFT_SEGMENTS * DL_DRIFT_SEGMENT_ROWS;
    uint64_t start = events / 2, old_enough = events / 4 * 3;
    if (old_enough > DL_DRIFT_HORIZON_EVENTS) old_enough = DL_DRIFT_HORIZON_EVENTS;
    if (start < old_enough) start = old_enough;
    builder->start = start;
    builder->events = events;
    if (events - start > whole) {
        builder->segments = DL_DRIFT_SEGMENTS;
        builder->segment_rows = DL_DRIFT_SEGMENT_ROWS;
    } else {
        builder->segments = 1;
        builder->segment_rows = (uint32_t)(events - start);
    }
    builder->raw = calloc((size_t)builder->segments * builder->segment_rows + 1,
                          DL_DRIFT_COLUMNS * sizeof *builder->raw);
    if (!builder->raw) {
        free(builder);
        return DL_ERR_NOMEM;
    }
    *result = builder;
    return DL_OK;
}

void dl_drift_builder_free(struct dl_drift_builder *builder)
{
    if (!builder) return;
    free(builder->raw);
    free(builder);
}

void dl_drift_builder_offer(struct dl_drift_builder *builder, uint64_t index,
                            const float raw[DL_DRIFT_COLUMNS])
{
    if (builder->rows == builder->segments * builder->segment_rows) return;
    const uint32_t segment = builder->rows / builder->segment_rows;
    const uint32_t within = builder->rows % builder->segment_rows;
    const uint64_t room = builder->events - builder->start - builder->segment_rows;
    uint64_t wanted = builder->start + within;
    if (builder->segments > 1) wanted += (uint64_t)segment * room / (builder->segments - 1);
    if (index < wanted) return;
    if (!builder->rows) builder->first_index = index;
    memcpy(builder->raw + (size_t)builder->rows * DL_DRIFT_COLUMNS, raw,
           DL_DRIFT_COLUMNS * sizeof *raw);
    builder->rows++;
}

int dl_drift_builder_finish(struct dl_drift_builder *builder, struct dl_reference *reference,
                            struct dl_error *error)
{
    uint32_t rows = builder->rows, segment_rows = builder->segment_rows;
    /* Fewer rows than announced: whole stretches only, or the one there is. */
    if (builder->segments > 1 && rows >= segment_rows) rows -= rows % segment_rows;
    if (builder->segments == 1 || rows < segment_rows) segment_rows = 0;
    return dl_drift_reference_build(builder->raw, rows, segment_rows, builder->first_index,
                                    reference, error);
}

double dl_drift_mean_gap(const struct dl_reference *reference)
{
    double sum = 0;
    for (uint32_t i = 0; i < reference->rows; i++) {
        const double row = reference->values[(size_t)i * reference->columns + DL_DRIFT_GAP];
        sum += expm1(row * reference->sd[DL_DRIFT_GAP] + reference->mean[DL_DRIFT_GAP]);
    }
    return reference->rows && sum > 0 ? sum / reference->rows : 0;
}
