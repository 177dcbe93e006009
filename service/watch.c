/* Looks at quality, attention and pace. See watch.h. */
#include "service/watch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RAISE_LOOKS 3
#define CLEAR_LOOKS 10
#define COOL_LOOKS 20
#define BLOCK_EVENTS 50 /* quality: a jackknife block */
#define BLOCKS (DL_WATCH_QUALITY_EVENTS / BLOCK_EVENTS)
#define BLOCK_SAMPLES 8 /* attention */
#define TYPICAL_GAP_MIN 1e-3
#define CANDIDATE_SIDE 2048
#define SAVED_VERSION 1

enum { QUALITY, ATTENTION, FAST, STALLED, WATCHES };
static const enum dl_alert_kind kinds[WATCHES] = {DL_ALERT_QUALITY_DROP,
                                                  DL_ALERT_ATTENTION_DISPERSION, DL_ALERT_FEED_FAST,
                                                  DL_ALERT_FEED_STALLED};

struct watch {
    int raised;
    uint32_t beyond, within, cool; /* looks */
};

/* What one look found. */
struct look {
    double statistic, threshold, p_value;
    int beyond, within; /* beyond the bound; well within it */
    uint32_t window;
    char reason[DL_DRIFT_REASON_MAX];
};

struct pair {
    float probability, negative;
};

struct dl_watch {
    struct dl_watch_config config;
    dl_drift_alert_fn alert;
    void *context;
    uint32_t layers; /* 0: no model */
    double trained_ap, trained_pairs;
    double trained_entropy[DL_LAYERS_MAX];
    double z;             /* one-sided, in deviations */
    uint64_t settled_seq; /* nothing is raised before */
    double typical_gap;   /* of the reference's fastest window, in training gaps; 0: not known */

    uint64_t observed, next_seq, generation;
    int64_t time;
    struct watch watches[WATCHES];
    struct pair *pairs; /* ring (DL_WATCH_QUALITY_EVENTS) */
    uint32_t pair_head, pair_count;
    struct dl_watch_attention *samples; /* ring (DL_WATCH_ATTENTION_SAMPLES) */
    uint32_t sample_head, sample_count;
    float *gaps; /* ring (gap_events) */
    uint32_t gap_head, gap_count;
    struct ranked *ranked; /* scratch */
};

struct ranked {
    float probability;
    uint16_t block;
    uint16_t edge;
};

/* ---- life -------------------------------------------------------------------------- */

static double upper_tail(double z)
{
    return 0.5 * erfc(z / sqrt(2));
}

/* The deviation that a standard normal exceeds with probability p. */
static double deviation_for(double p)
{
    double low = 0, high = 10;
    for (int k = 0; k < 60; k++) {
        double middle = (low + high) / 2;
        if (upper_tail(middle) > p)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* The smallest mean of the gap feature over `window` consecutive rows. */
static double fastest_window(const struct dl_reference *reference, uint32_t window)
{
    const uint32_t stretch = reference->segment_rows ? reference->segment_rows : reference->rows;
    double lowest = INFINITY;
    if (window > stretch) window = stretch;
    for (uint32_t first = 0; first + stretch <= reference->rows; first += stretch) {
        double sum = 0;
        for (uint32_t i = 0; i < stretch; i++) {
            const float *value = reference->values + (size_t)(first + i) * reference->columns;
            sum += value[DL_DRIFT_GAP];
            if (i >= window) sum -= value[-(ptrdiff_t)((size_t)window * reference->columns)];
            if (i + 1 >= window && sum / window < lowest) lowest = sum / window;
        }
    }
    return lowest * reference->sd[DL_DRIFT_GAP] + reference->mean[DL_DRIFT_GAP];
}

static void know_model(struct dl_watch *m, const struct dl_model *model)
{
    const struct dl_model_info *info = dl_model_get_info(model);
    const struct dl_reference *reference = dl_model_get_reference(model);
    m->layers = info->config.layers;
    m->trained_ap = info->validation_ap;
    m->trained_pairs = 0.15 * (double)info->data_edges;
    memcpy(m->trained_entropy, info->validation_entropy, sizeof m->trained_entropy);
    m->settled_seq = DL_DRIFT_HORIZON_EVENTS;
    if (!reference) return;
    if (reference->events_before) m->settled_seq = reference->events_before;
    if (info->time_unit == DL_TIME_TICKS || dl_drift_reference_check(reference, NULL) != DL_OK)
        return;
    double typical = expm1(fastest_window(reference, m->config.gap_events));
    m->typical_gap = typical >= TYPICAL_GAP_MIN ? typical : 0;
}

int dl_watch_new(const struct dl_watch_config *config, const struct dl_model *model,
                 dl_drift_alert_fn alert, void *context, struct dl_watch **out,
                 struct dl_error *error)
{
    struct dl_watch *m = calloc(1, sizeof *m);
    if (m) {
        m->pairs = calloc(DL_WATCH_QUALITY_EVENTS, sizeof *m->pairs);
        m->samples = calloc(DL_WATCH_ATTENTION_SAMPLES, sizeof *m->samples);
        m->gaps = calloc(config->gap_events, sizeof *m->gaps);
        m->ranked = calloc(2 * DL_WATCH_QUALITY_EVENTS, sizeof *m->ranked);
    }
    if (!m || !m->pairs || !m->samples || !m->gaps || !m->ranked) {
        dl_watch_free(m);
        return dl_error_set(error, DL_ERR_NOMEM, "watch: out of memory");
    }
    m->config = *config;
    m->alert = alert;
    m->context = context;
    if (model) know_model(m, model);
    /* About one independent look in a quality window. */
    double level = DL_WATCH_QUALITY_EVENTS / config->run_length_events;
    m->z = deviation_for(level > 0.05 ? 0.05 : level);
    *out = m;
    return DL_OK;
}

void dl_watch_free(struct dl_watch *m)
{
    if (!m) return;
    free(m->pairs);
    free(m->samples);
    free(m->gaps);
    free(m->ranked);
    free(m);
}

/* ---- alerts ------------------------------------------------------------------------- */

static void emit(struct dl_watch *m, int w, int raised, const struct look *look)
{
    m->watches[w].raised = raised;
    m->watches[w].beyond = m->watches[w].within = 0;
    m->watches[w].cool = raised ? 0 : COOL_LOOKS;
    m->generation++;
    if (!m->alert) return;
    struct dl_alert alert = {.kind = kinds[w],
                             .raised = raised,
                             .time = m->time,
                             .seq = m->next_seq ? m->next_seq - 1 : 0,
                             .statistic = look->statistic,
                             .threshold = look->threshold,
                             .p_value = look->p_value,
                             .window = look->window,
                             .reason = look->reason};
    m->alert(m->context, &alert);
}

static void decide(struct dl_watch *m, int w, const struct look *look)
{
    struct watch *watch = &m->watches[w];
    if (watch->raised) {
        watch->within = look->within ? watch->within + 1 : 0;
        if (watch->within >= CLEAR_LOOKS) emit(m, w, 0, look);
        return;
    }
    if (watch->cool) {
        watch->cool--;
        return;
    }
    watch->beyond = look->beyond ? watch->beyond + 1 : 0;
    if (watch->beyond >= RAISE_LOOKS) emit(m, w, 1, look);
}

/* ---- quality ------------------------------------------------------------------------- */

static int highest_first(const void *a, const void *b)
{
    float x = ((const struct ranked *)a)->probability, y = ((const struct ranked *)b)->probability;
    return x > y ? -1 : x < y;
}

/* Average precision of the ranked pairs without those of one block (BLOCKS: with
 * all); ties are one threshold. */
static double precision_without(const struct ranked *ranked, uint32_t count, uint32_t block)
{
    double edges = 0, others = 0, sum = 0;
    for (uint32_t i = 0; i < count;) {
        double tied_edges = 0, tied_others = 0;
        uint32_t j = i;
        for (; j < count && ranked[j].probability == ranked[i].probability; j++) {
            if (ranked[j].block == block) continue;
            tied_edges += ranked[j].edge;
            tied_others += !ranked[j].edge;
        }
        edges += tied_edges;
        others += tied_others;
        if (tied_edges > 0) sum += tied_edges * (edges / (edges + others));
        i = j;
    }
    return edges > 0 ? sum / edges : 0;
}

static void look_at_quality(struct dl_watch *m)
{
    struct look look = {.window = DL_WATCH_QUALITY_EVENTS};
    if (m->config.quality_margin < 0 || !(m->trained_ap > 0) ||
        m->pair_count < DL_WATCH_QUALITY_EVENTS)
        return;
    for (uint32_t i = 0; i < DL_WATCH_QUALITY_EVENTS; i++) { /* oldest first */
        const struct pair *p = &m->pairs[(m->pair_head + i) % DL_WATCH_QUALITY_EVENTS];
        const uint16_t block = (uint16_t)(i / BLOCK_EVENTS);
        m->ranked[2 * i] = (struct ranked){p->probability, block, 1};
        m->ranked[2 * i + 1] = (struct ranked){p->negative, block, 0};
    }
    const uint32_t count = 2 * DL_WATCH_QUALITY_EVENTS;
    qsort(m->ranked, count, sizeof *m->ranked, highest_first);
    double without[BLOCKS], mean = 0, variance = 0;
    look.statistic = precision_without(m->ranked, count, BLOCKS);
    for (uint32_t b = 0; b < BLOCKS; b++)
        mean += (without[b] = precision_without(m->ranked, count, b)) / BLOCKS;
    for (uint32_t b = 0; b < BLOCKS; b++)
        variance += (without[b] - mean) * (without[b] - mean) * (BLOCKS - 1) / BLOCKS;
    /* The figure of training has noise of its own. */
    if (m->trained_pairs > 0) variance *= 1 + DL_WATCH_QUALITY_EVENTS / m->trained_pairs;
    const double se = sqrt(variance), floor = m->trained_ap - m->config.quality_margin;
    look.threshold = floor - m->z * se;
    look.p_value = se > 0 ? upper_tail((floor - look.statistic) / se) : look.statistic < floor;
    look.beyond = look.statistic < look.threshold;
    look.within = look.statistic > look.threshold + m->z * se / 2;
    snprintf(look.reason, sizeof look.reason,
             look.beyond || !look.within
                 ? "average precision %.3f over the last %d events, %.3f in training (noise %.3f)"
                 : "average precision is back at %.3f over the last %d events, %.3f in training "
                   "(noise %.3f)",
             look.statistic, DL_WATCH_QUALITY_EVENTS, m->trained_ap, se);
    decide(m, QUALITY, &look);
}

/* ---- attention ------------------------------------------------------------------------- */

static void look_at_attention(struct dl_watch *m)
{
    struct look look = {.window = DL_WATCH_ATTENTION_SAMPLES * DL_WATCH_ATTENTION_EVERY};
    const uint32_t blocks = DL_WATCH_ATTENTION_SAMPLES / BLOCK_SAMPLES;
    double farthest = -INFINITY;
    int within = 1;
    if (m->config.dispersion_margin < 0 || m->sample_count < DL_WATCH_ATTENTION_SAMPLES) return;
    for (uint32_t l = 0; l < m->layers; l++) {
        if (!(m->trained_entropy[l] > 0)) continue;
        double means[DL_WATCH_ATTENTION_SAMPLES / BLOCK_SAMPLES] = {0}, mean = 0, variance = 0;
        for (uint32_t i = 0; i < DL_WATCH_ATTENTION_SAMPLES; i++)
            means[i / BLOCK_SAMPLES] +=
                m->samples[(m->sample_head + i) % DL_WATCH_ATTENTION_SAMPLES].entropy[l] /
                BLOCK_SAMPLES;
        for (uint32_t b = 0; b < blocks; b++) mean += means[b] / blocks;
        for (uint32_t b = 0; b < blocks; b++)
            variance += (means[b] - mean) * (means[b] - mean) / (blocks * (blocks - 1));
        const double se = sqrt(variance),
                     ceiling = m->trained_entropy[l] + m->config.dispersion_margin;
        const double bound = ceiling + m->z * se;
        if (mean >= bound - m->z * se / 2) within = 0;
        if (mean - bound <= farthest) continue;
        farthest = mean - bound;
        look.statistic = mean;
        look.threshold = bound;
        look.p_value = se > 0 ? upper_tail((mean - ceiling) / se) : mean < ceiling;
        snprintf(look.reason, sizeof look.reason,
                 "attention entropy %.3f in layer %u over %d sampled events, %.3f in training "
                 "(1 is uniform)",
                 mean, l + 1, DL_WATCH_ATTENTION_SAMPLES, m->trained_entropy[l]);
    }
    if (!isfinite(farthest)) return;
    look.beyond = farthest > 0;
    look.within = within;
    decide(m, ATTENTION, &look);
}

/* ---- pace --------------------------------------------------------------------------------- */

static double typical_gap_now(const struct dl_watch *m)
{
    double sum = 0;
    for (uint32_t i = 0; i < m->gap_count; i++) sum += m->gaps[i];
    return expm1(sum / m->gap_count);
}

static void look_at_pace(struct dl_watch *m)
{
    struct look look = {.window = m->config.gap_events, .threshold = m->config.fast_factor};
    if (!(m->config.fast_factor > 0) || !(m->typical_gap > 0) ||
        m->gap_count < m->config.gap_events)
        return;
    const double now = typical_gap_now(m);
    look.statistic = m->typical_gap / fmax(now, m->typical_gap * 1e-6);
    look.beyond = look.statistic >= look.threshold;
    look.within = look.statistic < 0.6 * look.threshold;
    look.p_value = 0; /* a bound that the operator set, no test */
    snprintf(look.reason, sizeof look.reason,
             "events come %.3g times as fast as in the reference's fastest %u", look.statistic,
             m->config.gap_events);
    decide(m, FAST, &look);
}

void dl_watch_stalled(struct dl_watch *m, double seconds)
{
    struct look look = {.statistic = seconds, .threshold = seconds, .p_value = 0};
    if (m->watches[STALLED].raised) return;
    snprintf(look.reason, sizeof look.reason, "no event for %.0f s", seconds);
    emit(m, STALLED, 1, &look);
}

/* ---- one event ------------------------------------------------------------------------------- */

void dl_watch_observe(struct dl_watch *m, const struct dl_watch_event *event)
{
    if (m->observed && event->seq < m->next_seq) return;
    m->observed++;
    m->next_seq = event->seq + 1;
    m->time = event->time;
    if (m->watches[STALLED].raised) {
        struct look look = {.p_value = 0, .reason = "events come again"};
        emit(m, STALLED, 0, &look);
    }
    if (!m->layers) return;
    if (!isnan(event->probability)) {
        m->pairs[m->pair_head] = (struct pair){event->probability, event->negative};
        m->pair_head = (m->pair_head + 1) % DL_WATCH_QUALITY_EVENTS;
        if (m->pair_count < DL_WATCH_QUALITY_EVENTS) m->pair_count++;
    }
    if (!isnan(event->gap)) {
        m->gaps[m->gap_head] = event->gap;
        m->gap_head = (m->gap_head + 1) % m->config.gap_events;
        if (m->gap_count < m->config.gap_events) m->gap_count++;
    }
    if (event->attention) {
        m->samples[m->sample_head] = *event->attention;
        m->sample_head = (m->sample_head + 1) % DL_WATCH_ATTENTION_SAMPLES;
        if (m->sample_count < DL_WATCH_ATTENTION_SAMPLES) m->sample_count++;
    }
    if (m->observed % DL_WATCH_LOOK_EVENTS) return;
    if (event->seq < m->settled_seq + DL_WATCH_QUALITY_EVENTS) return;
    look_at_quality(m);
    look_at_attention(m);
    look_at_pace(m);
}

void dl_watch_clear(struct dl_watch *m, const char *reason)
{
    struct look look = {.p_value = 0};
    snprintf(look.reason, sizeof look.reason, "%s", reason);
    for (int w = 0; w < STALLED; w++)
        if (m->watches[w].raised) emit(m, w, 0, &look);
}

void dl_watch_renew(struct dl_watch *m)
{
    struct look look = {.reason = "the reference was renewed"};
    if (m->watches[FAST].raised) emit(m, FAST, 0, &look);
    if (m->gap_count < m->config.gap_events || !(m->typical_gap > 0)) return;
    const double now = typical_gap_now(m);
    m->typical_gap = now >= TYPICAL_GAP_MIN ? now : 0;
    m->generation++;
}

int dl_watch_is_raised(const struct dl_watch *m, enum dl_alert_kind kind)
{
    for (int w = 0; w < WATCHES; w++)
        if (kinds[w] == kind) return m->watches[w].raised;
    return 0;
}

uint64_t dl_watch_generation(const struct dl_watch *m)
{
    return m->generation;
}

/* ---- attention of a pair ------------------------------------------------------------------ */

void dl_watch_attention_of(const struct dl_attention *a, uint32_t layers, uint32_t source_tokens,
                           struct dl_watch_attention *out)
{
    const uint32_t n = a->tokens;
    double bound[DL_LAYERS_MAX], strongest = 0;
    *out = (struct dl_watch_attention){.global_sinks = NAN, .local_sinks = NAN, .strongest = -1};
    for (uint32_t l = 0; l < layers; l++) {
        out->entropy[l] = (float)a->entropy[l];
        out->top5_share[l] = (float)a->top5_share[l];
    }
    if (n < DL_WATCH_SINK_TOKENS || n > a->token_capacity) return;
    for (uint32_t l = 0; l < layers; l++) {
        double mean = 1.0 / n, variance = 0;
        for (uint32_t t = 0; t < n; t++) {
            double off = a->received[(size_t)l * n + t] - mean;
            variance += off * off / n;
        }
        bound[l] = mean + 3 * sqrt(variance);
    }
    out->global_sinks = out->local_sinks = 0;
    for (uint32_t t = 0; t < n; t++) {
        uint32_t votes = 0;
        double received = 0;
        for (uint32_t l = 0; l < layers; l++) {
            votes += a->received[(size_t)l * n + t] > bound[l];
            received += a->received[(size_t)l * n + t];
        }
        if (!votes) continue;
        if (2 * votes <= layers) {
            out->local_sinks++;
            continue;
        }
        out->global_sinks++;
        if (received <= strongest) continue;
        strongest = received;
        out->strongest =
            t < source_tokens ? (int32_t)t : (int32_t)(t - source_tokens + CANDIDATE_SIDE);
    }
}

void dl_watch_figures(const struct dl_watch *m, struct dl_watch_figures *f)
{
    uint32_t with_sinks = 0, pairs = 0, moved = 0;
    int32_t last = -1;
    *f = (struct dl_watch_figures){.layers = m->layers, .samples = m->sample_count};
    for (uint32_t i = 0; i < m->sample_count; i++) { /* oldest first */
        const struct dl_watch_attention *s =
            &m->samples[(m->sample_head + DL_WATCH_ATTENTION_SAMPLES - m->sample_count + i) %
                        DL_WATCH_ATTENTION_SAMPLES];
        for (uint32_t l = 0; l < m->layers; l++) {
            f->entropy[l] += s->entropy[l] / m->sample_count;
            f->top5_share[l] += s->top5_share[l] / m->sample_count;
        }
        if (isnan(s->global_sinks)) continue;
        with_sinks++;
        f->global_sinks += s->global_sinks;
        f->local_sinks += s->local_sinks;
        if (s->strongest < 0) continue;
        if (last >= 0) {
            pairs++;
            moved += s->strongest != last;
        }
        last = s->strongest;
    }
    for (uint32_t l = 0; !m->sample_count && l < m->layers; l++)
        f->entropy[l] = f->top5_share[l] = NAN;
    f->global_sinks = with_sinks ? f->global_sinks / with_sinks : NAN;
    f->local_sinks = with_sinks ? f->local_sinks / with_sinks : NAN;
    f->sink_movement = pairs ? (double)moved / pairs : NAN;
}

/* ---- keeping it ------------------------------------------------------------------------------ */

void dl_watch_attention_put(const struct dl_watch_attention *a, uint32_t layers, struct dl_buf *out)
{
    for (uint32_t l = 0; l < layers; l++) {
        dl_buf_f32(out, a->entropy[l]);
        dl_buf_f32(out, a->top5_share[l]);
    }
    dl_buf_f32(out, a->global_sinks);
    dl_buf_f32(out, a->local_sinks);
    dl_buf_u32(out, (uint32_t)a->strongest);
}

void dl_watch_attention_read(struct dl_reader *in, uint32_t layers, struct dl_watch_attention *a)
{
    *a = (struct dl_watch_attention){0};
    for (uint32_t l = 0; l < layers; l++) {
        a->entropy[l] = dl_read_f32(in);
        a->top5_share[l] = dl_read_f32(in);
        if (!isfinite(a->entropy[l]) || !isfinite(a->top5_share[l])) in->failed = 1;
    }
    a->global_sinks = dl_read_f32(in);
    a->local_sinks = dl_read_f32(in);
    a->strongest = (int32_t)dl_read_u32(in);
}

void dl_watch_save(const struct dl_watch *m, struct dl_buf *out)
{
    dl_buf_u8(out, SAVED_VERSION);
    dl_buf_u32(out, m->layers);
    dl_buf_u32(out, m->config.gap_events);
    dl_buf_f64(out, m->trained_ap); /* tells one model from another */
    dl_buf_f64(out, m->typical_gap);
    dl_buf_u64(out, m->observed);
    dl_buf_u64(out, m->next_seq);
    dl_buf_u64(out, (uint64_t)m->time);
    for (int w = 0; w < WATCHES; w++) {
        dl_buf_u8(out, (uint8_t)m->watches[w].raised);
        dl_buf_u32(out, m->watches[w].beyond);
        dl_buf_u32(out, m->watches[w].within);
        dl_buf_u32(out, m->watches[w].cool);
    }
    /* Rings, oldest first. */
    dl_buf_u32(out, m->pair_count);
    for (uint32_t i = 0; i < m->pair_count; i++) {
        const struct pair *p =
            &m->pairs[(m->pair_head + DL_WATCH_QUALITY_EVENTS - m->pair_count + i) %
                      DL_WATCH_QUALITY_EVENTS];
        dl_buf_f32(out, p->probability);
        dl_buf_f32(out, p->negative);
    }
    dl_buf_u32(out, m->gap_count);
    for (uint32_t i = 0; i < m->gap_count; i++)
        dl_buf_f32(out, m->gaps[(m->gap_head + m->config.gap_events - m->gap_count + i) %
                                m->config.gap_events]);
    dl_buf_u32(out, m->sample_count);
    for (uint32_t i = 0; i < m->sample_count; i++)
        dl_watch_attention_put(
            &m->samples[(m->sample_head + DL_WATCH_ATTENTION_SAMPLES - m->sample_count + i) %
                        DL_WATCH_ATTENTION_SAMPLES],
            m->layers, out);
}

static int read_all(struct dl_watch *m, struct dl_reader *in)
{
    m->typical_gap = dl_read_f64(in);
    m->observed = dl_read_u64(in);
    m->next_seq = dl_read_u64(in);
    m->time = (int64_t)dl_read_u64(in);
    for (int w = 0; w < WATCHES; w++) {
        uint8_t raised = dl_read_u8(in);
        m->watches[w] = (struct watch){.raised = raised};
        m->watches[w].beyond = dl_read_u32(in);
        m->watches[w].within = dl_read_u32(in);
        m->watches[w].cool = dl_read_u32(in);
        if (raised > 1 || m->watches[w].cool > COOL_LOOKS) return DL_ERR_CORRUPT;
    }
    m->pair_count = dl_read_u32(in);
    if (in->failed || m->pair_count > DL_WATCH_QUALITY_EVENTS) return DL_ERR_CORRUPT;
    for (uint32_t i = 0; i < m->pair_count; i++) {
        struct pair *p = &m->pairs[i];
        p->probability = dl_read_f32(in);
        p->negative = dl_read_f32(in);
        if (!(p->probability >= 0 && p->probability <= 1 && p->negative >= 0 && p->negative <= 1))
            return DL_ERR_CORRUPT;
    }
    m->pair_head = m->pair_count % DL_WATCH_QUALITY_EVENTS;
    m->gap_count = dl_read_u32(in);
    if (in->failed || m->gap_count > m->config.gap_events) return DL_ERR_CORRUPT;
    for (uint32_t i = 0; i < m->gap_count; i++)
        if (!isfinite(m->gaps[i] = dl_read_f32(in))) return DL_ERR_CORRUPT;
    m->gap_head = m->gap_count % m->config.gap_events;
    m->sample_count = dl_read_u32(in);
    if (in->failed || m->sample_count > DL_WATCH_ATTENTION_SAMPLES) return DL_ERR_CORRUPT;
    for (uint32_t i = 0; i < m->sample_count; i++)
        dl_watch_attention_read(in, m->layers, &m->samples[i]);
    m->sample_head = m->sample_count % DL_WATCH_ATTENTION_SAMPLES;
    return in->failed || dl_reader_left(in) > 0 || !isfinite(m->typical_gap) || m->typical_gap < 0
               ? DL_ERR_CORRUPT
               : DL_OK;
}

int dl_watch_load(struct dl_watch *m, struct dl_slice bytes)
{
    struct dl_reader in = dl_reader_of(bytes);
    struct dl_watch *fresh;
    uint8_t version = dl_read_u8(&in);
    uint32_t layers = dl_read_u32(&in), gap_events = dl_read_u32(&in);
    double trained_ap = dl_read_f64(&in);
    if (in.failed) return DL_ERR_CORRUPT;
    if (version != SAVED_VERSION || layers != m->layers || gap_events != m->config.gap_events ||
        memcmp(&trained_ap, &m->trained_ap, sizeof trained_ap) != 0)
        return DL_ERR_VERSION;
    int status = dl_watch_new(&m->config, NULL, m->alert, m->context, &fresh, NULL);
    if (status != DL_OK) return status;
    fresh->layers = m->layers;
    status = read_all(fresh, &in);
    if (status == DL_OK) {
        fresh->trained_ap = m->trained_ap;
        fresh->trained_pairs = m->trained_pairs;
        memcpy(fresh->trained_entropy, m->trained_entropy, sizeof m->trained_entropy);
        fresh->settled_seq = m->settled_seq;
        fresh->generation = m->generation;
        struct dl_watch old = *m;
        *m = *fresh;
        *fresh = old;
    }
    dl_watch_free(fresh);
    return status;
}
