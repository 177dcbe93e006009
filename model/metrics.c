/* Ranking and calibration metrics. */
#include "model/metrics.h"

#include <math.h>
#include <stdlib.h>

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* Merges two descending lists; at each distinct score both counts are moved on
 * together. With P positives in all, and tp, fp counted so far:
 *   AP  = Σ Δtp/P · tp/(tp + fp)        (after the step)
 *   AUC = Σ Δtp · (N − fp − Δfp/2) / (P·N)   (fp before the step) */
static void merge(const double *positives, uint64_t positive_count, const double *negatives,
                  uint64_t negative_count, double *ap, double *auc)
{
    uint64_t tp = 0, fp = 0;
    double area = 0, precision = 0;

    if (positive_count == 0 || negative_count == 0) {
        *ap = *auc = NAN;
        return;
    }
    while (tp < positive_count) {
        double score = positives[tp];
        uint64_t tp_step = 0, fp_step = 0;
        while (fp < negative_count && negatives[fp] > score) fp++;
        while (tp + tp_step < positive_count && positives[tp + tp_step] == score) tp_step++;
        while (fp + fp_step < negative_count && negatives[fp + fp_step] == score) fp_step++;
        area += (double)tp_step * ((double)(negative_count - fp) - (double)fp_step / 2);
        tp += tp_step;
        fp += fp_step;
        precision += (double)tp_step * (double)tp / (double)(tp + fp);
    }
    *ap = precision / (double)positive_count;
    *auc = area / ((double)positive_count * (double)negative_count);
}

static void sort_into(double *to, const double *from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) to[i] = from[i];
    qsort(to, count, sizeof *to, descending);
}

int dl_metrics_ranking(const double *positives, uint64_t positive_count, const double *negatives,
                       uint64_t negative_count, double *ap, double *auc)
{
    double *sorted = malloc((positive_count + negative_count + 1) * sizeof *sorted);
    if (!sorted) return DL_ERR_NOMEM;
    sort_into(sorted, positives, positive_count);
    sort_into(sorted + positive_count, negatives, negative_count);
    merge(sorted, positive_count, sorted + positive_count, negative_count, ap, auc);
    free(sorted);
    return DL_OK;
}

int dl_metrics_batches(const double *positives, const double *negatives, uint64_t count,
                       uint64_t batch, double *ap, double *auc)
{
    double *sorted = malloc((2 * batch + 1) * sizeof *sorted);
    uint64_t batches = 0;

    if (!sorted) return DL_ERR_NOMEM;
    *ap = *auc = 0;
    for (uint64_t begin = 0; begin < count; begin += batch) {
        uint64_t size = count - begin < batch ? count - begin : batch;
        double batch_ap, batch_auc;
        sort_into(sorted, positives + begin, size);
        sort_into(sorted + size, negatives + begin, size);
        merge(sorted, size, sorted + size, size, &batch_ap, &batch_auc);
        *ap += batch_ap;
        *auc += batch_auc;
        batches++;
    }
    free(sorted);
    *ap = batches ? *ap / (double)batches : NAN;
    *auc = batches ? *auc / (double)batches : NAN;
    return DL_OK;
}

double dl_metrics_mid_rank(double score, const double *others, uint64_t count)
{
    uint64_t higher = 0, equal = 0;
    for (uint64_t i = 0; i < count; i++) {
        higher += others[i] > score;
        equal += others[i] == score;
    }
    return 1 + (double)higher + (double)equal / 2;
}

void dl_metrics_reliability_add(struct dl_reliability *reliability, double probability, int label)
{
    double place = probability * DL_RELIABILITY_BINS;
    int bin = place >= DL_RELIABILITY_BINS ? DL_RELIABILITY_BINS - 1 : place > 0 ? (int)place : 0;
    reliability->bins[bin].count++;
    reliability->bins[bin].positives += label != 0;
    reliability->bins[bin].probability_sum += probability;
}

double dl_metrics_ece(const struct dl_reliability *reliability)
{
    double error = 0;
    uint64_t total = 0;
    for (int i = 0; i < DL_RELIABILITY_BINS; i++) {
        error +=
            fabs((double)reliability->bins[i].positives - reliability->bins[i].probability_sum);
        total += reliability->bins[i].count;
    }
    return total ? error / (double)total : NAN;
}

void dl_metrics_spread(const double *values, uint32_t count, double *mean, double *sd)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) sum += values[i];
    *mean = count ? sum / count : NAN;
    for (uint32_t i = 0; i < count; i++) squares += (values[i] - *mean) * (values[i] - *mean);
    *sd = count > 1 ? sqrt(squares / (count - 1)) : 0;
}
