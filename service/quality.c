/* A ring of scored pairs; the figures are exact over the ring. */
#include "service/quality.h"

#include <math.h>
#include <stdlib.h>

#define BINS 15

struct entry {
    float probability, negative;
    uint32_t rank_times_2;
};

struct labelled {
    float probability;
    int edge;
};

struct dl_quality {
    uint32_t window, count, next;
    uint64_t observed;
    struct entry *ring;      /* (window) */
    struct labelled *sorted; /* (2 window) scratch */
    struct cached {
        uint64_t computed_at; /* `observed` when the figures were computed */
        struct dl_quality_figures figures;
    } all, recent;
};

int dl_quality_new(uint32_t window, struct dl_quality **out)
{
    struct dl_quality *q = calloc(1, sizeof *q);
    if (!q) return DL_ERR_NOMEM;
    q->window = window;
    q->ring = calloc(window, sizeof *q->ring);
    q->sorted = calloc((size_t)window * 2, sizeof *q->sorted);
    if (!q->ring || !q->sorted) {
        dl_quality_free(q);
        return DL_ERR_NOMEM;
    }
    q->all.computed_at = q->recent.computed_at = UINT64_MAX;
    *out = q;
    return DL_OK;
}

void dl_quality_free(struct dl_quality *q)
{
    if (!q) return;
    free(q->ring);
    free(q->sorted);
    free(q);
}

void dl_quality_observe(struct dl_quality *q, float probability, float negative,
                        uint32_t rank_times_2)
{
    q->ring[q->next] = (struct entry){probability, negative, rank_times_2};
    q->next = (q->next + 1) % q->window;
    if (q->count < q->window) q->count++;
    q->observed++;
}

static int highest_first(const void *a, const void *b)
{
    float x = ((const struct labelled *)a)->probability;
    float y = ((const struct labelled *)b)->probability;
    return x > y ? -1 : x < y;
}

/* Average precision with ties taken as one threshold, and the Mann-Whitney AUC. */
static void rank_figures(const struct labelled *sorted, uint32_t n, double *ap, double *auc)
{
    double edges = 0, others = 0, area = 0, precision_sum = 0;
    for (uint32_t i = 0; i < n;) {
        uint32_t j = i, tied_edges = 0;
        while (j < n && sorted[j].probability == sorted[i].probability)
            tied_edges += (uint32_t)sorted[j++].edge;
        uint32_t tied_others = j - i - tied_edges;
        /* Pairs (edge, other) in which the edge stands above; half for ties. */
        area += tied_others * (edges + tied_edges / 2.0);
        edges += tied_edges;
        others += tied_others;
        precision_sum += tied_edges * (edges / (edges + others));
        i = j;
    }
    *ap = precision_sum / edges;
    *auc = area / (edges * others);
}

static double calibration_error(const struct labelled *pairs, uint32_t n)
{
    double sum[BINS] = {0}, edges[BINS] = {0}, count[BINS] = {0}, error = 0;
    for (uint32_t i = 0; i < n; i++) {
        float place = pairs[i].probability * BINS;
        int bin = place >= 0 && place < BINS ? (int)place : BINS - 1;
        sum[bin] += pairs[i].probability;
        edges[bin] += pairs[i].edge;
        count[bin]++;
    }
    for (int b = 0; b < BINS; b++) error += fabs(sum[b] - edges[b]) / n;
    return error;
}

static void figures_of(struct dl_quality *q, struct cached *cached, uint32_t count,
                       struct dl_quality_figures *out)
{
    if (cached->computed_at != q->observed) {
        struct dl_quality_figures *f = &cached->figures;
        *f = (struct dl_quality_figures){count, NAN, NAN, NAN, NAN};
        if (count) {
            f->mrr = 0;
            for (uint32_t i = 0; i < count; i++) { /* newest first */
                const struct entry *e = &q->ring[(q->next + q->window - 1 - i) % q->window];
                q->sorted[2 * i] = (struct labelled){e->probability, 1};
                q->sorted[2 * i + 1] = (struct labelled){e->negative, 0};
                f->mrr += 2.0 / e->rank_times_2 / count;
            }
            f->ece = calibration_error(q->sorted, 2 * count);
            qsort(q->sorted, (size_t)count * 2, sizeof *q->sorted, highest_first);
            rank_figures(q->sorted, 2 * count, &f->ap, &f->auc);
        }
        cached->computed_at = q->observed;
    }
    *out = cached->figures;
}

void dl_quality_figures(struct dl_quality *q, struct dl_quality_figures *figures)
{
    figures_of(q, &q->all, q->count, figures);
}

void dl_quality_figures_recent(struct dl_quality *q, struct dl_quality_figures *figures)
{
    figures_of(q, &q->recent, q->count < DL_QUALITY_RECENT ? q->count : DL_QUALITY_RECENT, figures);
}

void dl_quality_save(const struct dl_quality *q, struct dl_buf *out)
{
    dl_buf_u8(out, 1);
    dl_buf_u32(out, q->window);
    dl_buf_u32(out, q->count);
    dl_buf_u64(out, q->observed);
    for (uint32_t i = 0; i < q->count; i++) { /* oldest first */
        const struct entry *e = &q->ring[(q->next + q->window - q->count + i) % q->window];
        dl_buf_f32(out, e->probability);
        dl_buf_f32(out, e->negative);
        dl_buf_u32(out, e->rank_times_2);
    }
}

int dl_quality_load(struct dl_quality *q, struct dl_slice bytes)
{
    struct dl_reader in = dl_reader_of(bytes);
    if (dl_read_u8(&in) != 1) return DL_ERR_CORRUPT;
    if (dl_read_u32(&in) != q->window) return in.failed ? DL_ERR_CORRUPT : DL_ERR_VERSION;
    uint32_t count = dl_read_u32(&in);
    uint64_t observed = dl_read_u64(&in);
    if (in.failed || count > q->window || dl_reader_left(&in) != (size_t)count * 12)
        return DL_ERR_CORRUPT;
    q->count = q->next = 0;
    for (uint32_t i = 0; i < count; i++) {
        float probability = dl_read_f32(&in), negative = dl_read_f32(&in);
        uint32_t rank = dl_read_u32(&in);
        if (!(probability >= 0 && probability <= 1 && negative >= 0 && negative <= 1) || rank < 2)
            return DL_ERR_CORRUPT;
        dl_quality_observe(q, probability, negative, rank);
    }
    q->observed = observed;
    q->all.computed_at = q->recent.computed_at = UINT64_MAX;
    return DL_OK;
}
