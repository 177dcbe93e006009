/* The drift monitor: looking. What moved, and the snapshot. */
#include "service/drift_monitor_internal.h"

#include <math.h>
#include <string.h>

/* The energy distance (Székely and Rizzo 2013) of two samples on a line is
 * 2 ∫ (F − G)², an MMD with the kernel −|x − y|; the histograms give it within
 * a bin's width. What noise adds, 2 ∫ G(1 − G) / N for N independent rows, is
 * taken off, with N made smaller by the reference's autocorrelation. */
void dl_drift_monitor_distances(const struct dl_drift_monitor *m, double distance[DL_DRIFT_COLUMNS],
                                double share[DL_DRIFT_COLUMNS])
{
    const double width = 2.0 * DL_DRIFT_CLIP / DL_DRIFT_BINS;
    const double rows = m->basis.reference.rows, count = m->bins_count;
    double total = 0;
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        double f = 0, g = 0, gap = 0, noise = 0;
        distance[c] = share[c] = 0;
        if (m->bins_count == 0 || rows == 0) continue;
        for (int b = 0; b < DL_DRIFT_BINS; b++) {
            f += m->now[c][b] / count;
            g += m->basis.before[c][b] / rows;
            gap += 2 * width * (f - g) * (f - g);
            noise += 2 * width * g * (1 - g);
        }
        distance[c] = fmax(0, gap - noise * m->basis.run_length.autocorrelation / count);
        /* What it weighs in the statistic, it weighs here. */
        distance[c] *= m->basis.weight[c];
        if (m->basis.weight[c] > 0) total += distance[c];
    }
    if (total > 0)
        for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
            if (m->basis.weight[c] > 0) share[c] = distance[c] / total;
}

void dl_drift_monitor_means(const struct dl_drift_monitor *m, double now[DL_DRIFT_COLUMNS])
{
    const uint32_t rows = m->ring_count < m->config.window ? m->ring_count : m->config.window;
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        double sum = 0;
        uint32_t valid = 0;
        for (uint32_t back = 0; back < rows; back++) {
            uint32_t at = (m->ring_head + m->config.renew_rows - 1 - back) % m->config.renew_rows;
            double x = m->ring[(size_t)at * DL_DRIFT_COLUMNS + c];
            if (isfinite(x)) sum += x, valid++;
        }
        /* Where it never applies there is nothing to compare: the reference's. */
        now[c] = valid ? sum / valid : m->basis.mmd ? m->basis.reference.mean[c] : 0;
    }
}

static void view_features(struct dl_drift_monitor *m, struct dl_drift_snapshot *snapshot)
{
    double distance[DL_DRIFT_COLUMNS], share[DL_DRIFT_COLUMNS], now[DL_DRIFT_COLUMNS];
    dl_drift_monitor_distances(m, distance, share);
    dl_drift_monitor_means(m, now);
    snapshot->feature_count = DL_DRIFT_COLUMNS;
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        struct dl_drift_feature_view *view = &snapshot->features[c];
        const int used = m->basis.weight[c] > 0;
        *view = (struct dl_drift_feature_view){
            .name = dl_drift_column_names[c],
            .used = used,
            .weight = m->basis.weight[c],
            .left_out = used                             ? ""
                        : !(m->config.features >> c & 1) ? "not asked for"
                        : !m->basis.mmd                  ? "no reference yet"
                                                         : "moves more slowly than the window",
            .share = share[c],
            .distance = distance[c],
            .before_mean = m->basis.mmd ? m->basis.reference.mean[c] : 0,
            .now_mean = now[c],
            .mean = m->basis.mmd ? m->basis.reference.mean[c] : 0,
            .sd = m->basis.mmd ? m->basis.reference.sd[c] : 1,
            .before = m->basis.before[c],
            .now = m->now[c]};
    }
}

void dl_drift_shares(const uint32_t counts[DL_DRIFT_BINS], float shares[DL_DRIFT_BINS])
{
    double sum = 0;
    for (int b = 0; b < DL_DRIFT_BINS; b++) sum += counts[b];
    for (int b = 0; b < DL_DRIFT_BINS; b++) shares[b] = sum > 0 ? (float)(counts[b] / sum) : 0;
}

void dl_drift_monitor_snapshot(struct dl_drift_monitor *m, struct dl_drift_snapshot *snapshot)
{
    static const char *const origins[] = {"model", "feed", "renewed"};
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->state = m->state;
    snapshot->statistic = m->statistic;
    snapshot->threshold = dl_drift_monitor_threshold(m);
    snapshot->window = m->config.window;
    snapshot->events = m->observed;
    snapshot->alerts_raised = m->alerts_raised;
    snapshot->renewals = m->renewals;
    snapshot->run_length_asked = m->config.run_length_events;
    snapshot->reference_origin = "none";
    snapshot->warning = "";
    snapshot->p_value = 1;
    if (m->basis.mmd) {
        snapshot->count = m->state == DL_DRIFT_LEARNING ? 0 : dl_mmd_count(m->basis.mmd);
        if (snapshot->count == m->config.window)
            snapshot->p_value = dl_run_length_p_value(&m->basis.run_length, m->statistic);
        snapshot->reference_rows = m->basis.reference.rows;
        snapshot->reference_origin = origins[m->basis.origin];
        snapshot->reference_time = m->basis.time;
        snapshot->width = dl_mmd_width(m->basis.mmd);
        snapshot->run_length_achieved = m->basis.run_length.achieved;
        snapshot->effective_rows = m->basis.run_length.effective_rows;
        snapshot->warning = m->basis.run_length.warning;
    }
    if (m->state == DL_DRIFT_LEARNING) {
        snapshot->learning_rows = m->learned;
        snapshot->learning_target = m->config.renew_rows;
    }
    view_features(m, snapshot);
    for (uint32_t k = 0; k < m->history_count; k++)
        m->history_view[k] =
            m->history[(m->history_head + DL_DRIFT_HISTORY_KEPT - m->history_count + k) %
                       DL_DRIFT_HISTORY_KEPT];
    snapshot->history_count = m->history_count;
    snapshot->history = m->history_view;
}
