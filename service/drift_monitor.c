/* The drift monitor: deciding. See drift_monitor.h for the states. */
#include "service/drift_monitor_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"

const struct dl_drift_config dl_drift_config_default = {.form = DL_MMD_FOURIER,
                                                        .window = 500,
                                                        .fourier = 256,
                                                        .reference_max = 1000,
                                                        .run_length_events = 1e6,
                                                        .clear_ratio = 0.6,
                                                        .seed = 1};

const char *dl_drift_state_name(enum dl_drift_state state)
{
    static const char *const names[] = {"filling", "settling", "watching",
                                        "raised",  "cooling",  "learning"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

/* ---- the basis: reference, statistic, threshold ----------------------------------- */

int dl_drift_reference_copy(const struct dl_reference *from, struct dl_reference *to)
{
    const size_t values = (size_t)from->rows * from->columns;
    *to = *from;
    to->names = malloc(from->columns * sizeof *to->names);
    to->values = malloc(values * sizeof *to->values);
    to->mean = malloc(from->columns * sizeof *to->mean);
    to->sd = malloc(from->columns * sizeof *to->sd);
    if (!to->names || !to->values || !to->mean || !to->sd) {
        dl_drift_reference_deinit(to);
        return DL_ERR_NOMEM;
    }
    memcpy(to->names, from->names, from->columns * sizeof *to->names);
    memcpy(to->values, from->values, values * sizeof *to->values);
    memcpy(to->mean, from->mean, from->columns * sizeof *to->mean);
    memcpy(to->sd, from->sd, from->columns * sizeof *to->sd);
    return DL_OK;
}

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, size - i < 8 ? size - i : 8);
        hash = dl_mix64(hash ^ word);
    }
    return hash;
}

uint64_t dl_drift_reference_hash(const struct dl_reference *reference)
{
    uint64_t hash = dl_mix64(reference->rows);
    hash = hash_bytes(hash, reference->values,
                      (size_t)reference->rows * reference->columns * sizeof *reference->values);
    hash = hash_bytes(hash, reference->mean, reference->columns * sizeof *reference->mean);
    hash = hash_bytes(hash, reference->sd, reference->columns * sizeof *reference->sd);
    return hash ? hash : 1;
}

void dl_drift_basis_deinit(struct dl_drift_basis *basis)
{
    dl_drift_reference_deinit(&basis->reference);
    dl_mmd_free(basis->mmd);
    basis->mmd = NULL;
}

/* A column whose mean wanders by more than this many deviations from window to
 * window says nothing about a shift at that window length. */
#define WANDER_MAX 0.5

static void weigh_columns(const struct dl_drift_config *config,
                          const struct dl_reference *reference, float weight[DL_DRIFT_COLUMNS])
{
    int used = 0;
    dl_drift_weigh(reference, config->window, WANDER_MAX, weight);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        if (!(config->features >> c & 1)) weight[c] = 0;
        used += weight[c] > 0;
    }
    /* A feed where everything wanders is watched with what there is; its
     * threshold is set by how far it wanders. */
    for (int c = 0; !used && c < DL_DRIFT_COLUMNS; c++)
        weight[c] = config->features >> c & 1 ? 1.0f : 0.0f;
}

static void weigh_row(const float weight[DL_DRIFT_COLUMNS], float *row)
{
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) row[c] *= weight[c];
}

static uint8_t bin_of(float z)
{
    int bin = (int)((z + DL_DRIFT_CLIP) * (DL_DRIFT_BINS / (2 * DL_DRIFT_CLIP)));
    return (uint8_t)(bin < 0 ? 0 : bin >= DL_DRIFT_BINS ? DL_DRIFT_BINS - 1 : bin);
}

int dl_drift_basis_prepare(const struct dl_drift_config *config, struct dl_drift_basis *basis,
                           int calibrated, struct dl_error *error)
{
    const struct dl_reference *reference = &basis->reference;
    const size_t values = (size_t)reference->rows * DL_DRIFT_COLUMNS;
    float *rows = NULL;
    basis->mmd = NULL;
    int status = dl_drift_reference_check(reference, error);
    if (status) goto done;
    if (!calibrated) weigh_columns(config, reference, basis->weight);
    rows = malloc(values * sizeof *rows);
    if (!rows) {
        status = dl_error_set(error, DL_ERR_NOMEM, "drift monitor: out of memory");
        goto done;
    }
    memcpy(rows, reference->values, values * sizeof *rows);
    memset(basis->before, 0, sizeof basis->before);
    for (uint32_t i = 0; i < reference->rows; i++) {
        float *row = rows + (size_t)i * DL_DRIFT_COLUMNS;
        for (int c = 0; c < DL_DRIFT_COLUMNS; c++) basis->before[c][bin_of(row[c])]++;
        weigh_row(basis->weight, row);
    }
    struct dl_mmd_config form = {.form = config->form,
                                 .columns = DL_DRIFT_COLUMNS,
                                 .window = config->window,
                                 .fourier = config->fourier,
                                 .reference_max = config->reference_max,
                                 .seed = config->seed};
    status = dl_mmd_new(&form, rows, reference->rows, &basis->mmd, error);
    if (status) goto done;
    if (!calibrated) {
        struct dl_run_length_config ask = {.events = config->run_length_events,
                                           .consecutive = config->consecutive,
                                           .segment_rows = reference->segment_rows,
                                           .seed = config->seed};
        status = dl_run_length_calibrate(basis->mmd, rows, reference->rows, &ask,
                                         &basis->run_length, error);
    }
done:
    free(rows);
    if (status) dl_drift_basis_deinit(basis);
    return status;
}

/* ---- life ----------------------------------------------------------------------------- */

static int config_check(struct dl_drift_config *config, struct dl_error *error)
{
    if (config->window < 32 || config->window > DL_MMD_WINDOW_MAX / 4)
        return dl_error_set(error, DL_ERR_INVALID, "drift.window is %u events; it takes 32 to %d",
                            config->window, DL_MMD_WINDOW_MAX / 4);
    if (!config->consecutive) config->consecutive = config->window / 20;
    if (!config->clear_consecutive) config->clear_consecutive = config->window / 2;
    if (!config->cooldown_events) config->cooldown_events = config->window;
    if (!config->renew_rows) config->renew_rows = 4 * config->window;
    if (!config->features) config->features = (1u << DL_DRIFT_COLUMNS) - 1;
    config->features &= (1u << DL_DRIFT_COLUMNS) - 1;
    if (!config->features)
        return dl_error_set(error, DL_ERR_INVALID, "drift.features names none of the %d features",
                            DL_DRIFT_COLUMNS);
    if (config->renew_rows < 2 * config->window || config->renew_rows > DL_MMD_ROWS_MAX)
        return dl_error_set(
            error, DL_ERR_INVALID,
            "drift: a renewed reference of %u rows; it takes two windows, %u, to %d",
            config->renew_rows, 2 * config->window, DL_MMD_ROWS_MAX);
    if (!(config->clear_ratio > 0 && config->clear_ratio <= 1))
        return dl_error_set(error, DL_ERR_INVALID, "drift: clear_ratio is %g; it takes 0 to 1",
                            config->clear_ratio);
    if (!(config->run_length_events >= config->window && config->run_length_events <= 1e15))
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift.run_length is %g events; it takes the window, %u, to 1e15",
                            config->run_length_events, config->window);
    return DL_OK;
}

int dl_drift_monitor_make(const struct dl_drift_config *config, struct dl_drift_monitor **result,
                          struct dl_error *error)
{
    *result = NULL;
    struct dl_drift_config resolved = *config;
    int status = config_check(&resolved, error);
    if (status) return status;
    struct dl_drift_monitor *m = calloc(1, sizeof *m);
    if (!m) return dl_error_set(error, DL_ERR_NOMEM, "drift monitor: out of memory");
    m->config = resolved;
    m->ring = calloc((size_t)resolved.renew_rows * DL_DRIFT_COLUMNS, sizeof *m->ring);
    m->bins = calloc((size_t)resolved.window * DL_DRIFT_COLUMNS, sizeof *m->bins);
    m->history = calloc(DL_DRIFT_HISTORY_KEPT, sizeof *m->history);
    m->history_view = calloc(DL_DRIFT_HISTORY_KEPT, sizeof *m->history_view);
    if (!m->ring || !m->bins || !m->history || !m->history_view) {
        dl_drift_monitor_free(m);
        return dl_error_set(error, DL_ERR_NOMEM, "drift monitor: out of memory");
    }
    m->state = DL_DRIFT_LEARNING;
    *result = m;
    return DL_OK;
}

int dl_drift_monitor_new(const struct dl_drift_config *config, const struct dl_reference *reference,
                         dl_drift_alert_fn alert, void *context, struct dl_drift_monitor **result,
                         struct dl_error *error)
{
    *result = NULL;
    struct dl_drift_monitor *m;
    int status = reference ? dl_drift_reference_check(reference, error) : DL_OK;
    if (status) return status;
    status = dl_drift_monitor_make(config, &m, error);
    if (status) return status;
    m->alert = alert;
    m->context = context;
    if (reference) {
        m->model_hash = dl_drift_reference_hash(reference);
        m->basis.origin = DL_DRIFT_ORIGIN_MODEL;
        status = dl_drift_reference_copy(reference, &m->basis.reference);
        if (status)
            dl_error_set(error, status, "drift monitor: out of memory");
        else
            status = dl_drift_basis_prepare(&m->config, &m->basis, 0, error);
        if (status) {
            dl_drift_monitor_free(m);
            return status;
        }
        m->state = DL_DRIFT_FILLING;
        m->generation = 1;
    }
    *result = m;
    return DL_OK;
}

void dl_drift_monitor_free(struct dl_drift_monitor *m)
{
    if (!m) return;
    dl_drift_basis_deinit(&m->basis);
    free(m->ring);
    free(m->bins);
    free(m->history);
    free(m->history_view);
    free(m);
}

/* ---- the window ------------------------------------------------------------------------ */

static const float *ring_row(const struct dl_drift_monitor *m, uint32_t back)
{
    uint32_t at = (m->ring_head + m->config.renew_rows - 1 - back) % m->config.renew_rows;
    return m->ring + (size_t)at * DL_DRIFT_COLUMNS;
}

static void window_take(struct dl_drift_monitor *m, const float *raw)
{
    float row[DL_DRIFT_COLUMNS];
    dl_drift_standardise(&m->basis.reference, raw, row);
    uint8_t *bins = m->bins + (size_t)m->bins_head * DL_DRIFT_COLUMNS;
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        if (m->bins_count == m->config.window) m->now[c][bins[c]]--;
        bins[c] = bin_of(row[c]);
        m->now[c][bins[c]]++;
    }
    m->bins_head = m->bins_head + 1 == m->config.window ? 0 : m->bins_head + 1;
    if (m->bins_count < m->config.window) m->bins_count++;
    weigh_row(m->basis.weight, row);
    dl_mmd_push(m->basis.mmd, row);
}

void dl_drift_monitor_refill(struct dl_drift_monitor *m)
{
    dl_mmd_clear(m->basis.mmd);
    memset(m->now, 0, sizeof m->now);
    m->bins_head = m->bins_count = 0;
    uint32_t rows = m->ring_count < m->config.window ? m->ring_count : m->config.window;
    for (uint32_t back = rows; back-- > 0;) window_take(m, ring_row(m, back));
    m->statistic = dl_mmd_count(m->basis.mmd) == m->config.window ? dl_mmd_value(m->basis.mmd) : 0;
}

/* ---- alerts ------------------------------------------------------------------------------- */

/* The features that moved most, most first. `histograms` holds what they point
 * to. */
static uint32_t what_moved(const struct dl_drift_monitor *m,
                           struct dl_alert_feature features[DL_DRIFT_TOP],
                           float histograms[DL_DRIFT_TOP][2][DL_DRIFT_BINS])
{
    double distance[DL_DRIFT_COLUMNS], share[DL_DRIFT_COLUMNS], now[DL_DRIFT_COLUMNS];
    const struct dl_reference *reference = &m->basis.reference;
    uint32_t taken = 0, count = 0;
    dl_drift_monitor_distances(m, distance, share);
    dl_drift_monitor_means(m, now);
    while (count < DL_DRIFT_TOP) {
        int best = -1;
        for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
            if (!(taken >> c & 1) && share[c] > 0 && (best < 0 || share[c] > share[best])) best = c;
        if (best < 0) break;
        taken |= 1u << best;
        dl_drift_shares(m->basis.before[best], histograms[count][0]);
        dl_drift_shares(m->now[best], histograms[count][1]);
        const double reach = (double)DL_DRIFT_CLIP * reference->sd[best];
        features[count] = (struct dl_alert_feature){.name = dl_drift_column_names[best],
                                                    .share = share[best],
                                                    .before = reference->mean[best],
                                                    .now = now[best],
                                                    .low = reference->mean[best] - reach,
                                                    .high = reference->mean[best] + reach,
                                                    .before_bins = DL_DRIFT_BINS,
                                                    .now_bins = DL_DRIFT_BINS,
                                                    .before_histogram = histograms[count][0],
                                                    .now_histogram = histograms[count][1]};
        count++;
    }
    return count;
}

static void describe(const struct dl_drift_monitor *m, const struct dl_alert *alert,
                     char reason[DL_DRIFT_REASON_MAX])
{
    size_t used = (size_t)snprintf(reason, DL_DRIFT_REASON_MAX,
                                   "the feed moved away from the reference (%.3g times the "
                                   "threshold):",
                                   m->statistic / m->basis.run_length.threshold);
    for (uint32_t k = 0; k < alert->feature_count && k < 3 && used < DL_DRIFT_REASON_MAX; k++)
        used += (size_t)snprintf(reason + used, DL_DRIFT_REASON_MAX - used, "%s %s %.3g, was %.3g",
                                 k ? "," : "", alert->features[k].name, alert->features[k].now,
                                 alert->features[k].before);
}

/* `cleared`: why, or NULL: it is raised. */
static void emit(struct dl_drift_monitor *m, const char *cleared)
{
    struct dl_alert_feature features[DL_DRIFT_TOP];
    float histograms[DL_DRIFT_TOP][2][DL_DRIFT_BINS];
    char reason[DL_DRIFT_REASON_MAX];
    m->alerts++;
    m->alerts_raised += !cleared;
    if (!m->alert) return;
    struct dl_alert alert = {.number = m->alerts,
                             .kind = DL_ALERT_TEMPORAL_SHIFT,
                             .raised = !cleared,
                             .time = m->time,
                             .seq = m->next_seq - 1,
                             .statistic = m->statistic,
                             .threshold = m->basis.run_length.threshold,
                             .p_value = dl_run_length_p_value(&m->basis.run_length, m->statistic),
                             .window = m->config.window,
                             .reason = cleared ? cleared : reason,
                             .feature_count = what_moved(m, features, histograms),
                             .features = features};
    if (!cleared) describe(m, &alert, reason);
    m->alert(m->context, &alert);
}

/* ---- renewal ----------------------------------------------------------------------------------
 */

/* The last `learned` rows become the reference. On failure (memory) nothing
 * changes and the next event tries again. */
static void learn(struct dl_drift_monitor *m)
{
    const uint32_t rows = m->config.renew_rows;
    float *raw = malloc((size_t)rows * DL_DRIFT_COLUMNS * sizeof *raw);
    if (!raw) return;
    for (uint32_t i = 0; i < rows; i++)
        memcpy(raw + (size_t)i * DL_DRIFT_COLUMNS, ring_row(m, rows - 1 - i),
               DL_DRIFT_COLUMNS * sizeof *raw);
    struct dl_drift_basis fresh = {
        .origin = m->basis.mmd ? DL_DRIFT_ORIGIN_RENEWED : DL_DRIFT_ORIGIN_FEED, .time = m->time};
    int status = dl_drift_reference_build(raw, rows, 0, m->next_seq > rows ? m->next_seq - rows : 0,
                                          &fresh.reference, NULL);
    free(raw);
    if (!status) status = dl_drift_basis_prepare(&m->config, &fresh, 0, NULL);
    if (status) return;
    dl_drift_basis_deinit(&m->basis);
    m->basis = fresh;
    m->generation++;
    m->above = m->below = 0;
    m->cooldown_left = m->config.cooldown_events;
    m->state = DL_DRIFT_COOLING;
    dl_drift_monitor_refill(m);
}

void dl_drift_monitor_renew(struct dl_drift_monitor *m)
{
    if (m->state == DL_DRIFT_LEARNING) return;
    uint32_t rows = m->ring_count;
    if (m->state == DL_DRIFT_RAISED) {
        if (m->rows_since_raise < rows) rows = m->rows_since_raise;
        emit(m, "the reference was renewed");
    }
    m->renewals++;
    m->learned = rows;
    m->state = DL_DRIFT_LEARNING;
    m->statistic = 0;
    if (m->learned >= m->config.renew_rows) learn(m);
}

/* ---- one event ------------------------------------------------------------------------------- */

/* From here on, a graph is as old as the reference's was. */
static uint64_t settled_seq(const struct dl_drift_monitor *m)
{
    uint64_t before = m->basis.reference.events_before;
    return before && before < DL_DRIFT_HORIZON_EVENTS ? before : DL_DRIFT_HORIZON_EVENTS;
}

static void remember(struct dl_drift_monitor *m)
{
    const uint32_t stride = m->config.window / 20;
    if (m->observed % stride) return;
    m->history[m->history_head] = (struct dl_drift_point){m->time, m->next_seq - 1, m->statistic,
                                                          m->basis.run_length.threshold};
    m->history_head = (m->history_head + 1) % DL_DRIFT_HISTORY_KEPT;
    if (m->history_count < DL_DRIFT_HISTORY_KEPT) m->history_count++;
}

static void decide(struct dl_drift_monitor *m)
{
    const double threshold = m->basis.run_length.threshold;
    const uint64_t seq = m->next_seq - 1;
    switch (m->state) {
    case DL_DRIFT_FILLING:
        m->above = m->below = 0;
        m->state = seq >= settled_seq(m) + m->config.window ? DL_DRIFT_WATCHING : DL_DRIFT_SETTLING;
        break;
    case DL_DRIFT_SETTLING:
        if (seq >= settled_seq(m) + m->config.window) m->state = DL_DRIFT_WATCHING;
        break;
    case DL_DRIFT_WATCHING:
        m->above = m->statistic >= threshold ? m->above + 1 : 0;
        if (m->above < m->config.consecutive) break;
        m->state = DL_DRIFT_RAISED;
        m->below = 0;
        m->rows_since_raise = m->config.consecutive;
        emit(m, NULL);
        break;
    case DL_DRIFT_RAISED:
        if (m->rows_since_raise < m->config.renew_rows) m->rows_since_raise++;
        m->below = m->statistic < m->config.clear_ratio * threshold ? m->below + 1 : 0;
        if (m->below < m->config.clear_consecutive) break;
        m->state = DL_DRIFT_COOLING;
        m->cooldown_left = m->config.cooldown_events;
        emit(m, "the feed is back to what the reference was");
        break;
    case DL_DRIFT_COOLING:
        if (m->cooldown_left) m->cooldown_left--;
        if (m->cooldown_left) break;
        m->above = 0;
        m->state = DL_DRIFT_WATCHING;
        break;
    case DL_DRIFT_LEARNING:
        break;
    }
}

void dl_drift_monitor_observe(struct dl_drift_monitor *m, const float raw[DL_DRIFT_COLUMNS],
                              int64_t time, uint64_t seq)
{
    if (m->observed && seq < m->next_seq) return;
    m->next_seq = seq + 1;
    m->time = time;
    m->observed++;
    memcpy(m->ring + (size_t)m->ring_head * DL_DRIFT_COLUMNS, raw,
           DL_DRIFT_COLUMNS * sizeof *m->ring);
    m->ring_head = m->ring_head + 1 == m->config.renew_rows ? 0 : m->ring_head + 1;
    if (m->ring_count < m->config.renew_rows) m->ring_count++;
    if (m->state == DL_DRIFT_LEARNING) {
        /* Without any reference yet: not before the graph has settled. */
        if (m->basis.mmd || seq >= DL_DRIFT_HORIZON_EVENTS) m->learned++;
        if (m->learned >= m->config.renew_rows) learn(m);
        return;
    }
    window_take(m, raw);
    if (dl_mmd_count(m->basis.mmd) < m->config.window) return;
    m->statistic = dl_mmd_value(m->basis.mmd);
    decide(m);
    remember(m);
}

double dl_drift_monitor_statistic(const struct dl_drift_monitor *m)
{
    return m->statistic;
}

double dl_drift_monitor_threshold(const struct dl_drift_monitor *m)
{
    return m->basis.mmd ? m->basis.run_length.threshold : 0;
}

int dl_drift_monitor_is_raised(const struct dl_drift_monitor *m)
{
    return m->state == DL_DRIFT_RAISED;
}
