/* The drift monitor: keeping. Two blobs, little-endian:
 *
 *   reference  'DRF1' | fingerprint | model hash | origin, time, weights, generation
 *              | rows, stretch, events before | mean, sd | values | calibration
 *   state      'DRS1' | fingerprint | generation | counters | raw rows, oldest
 *              first | history
 *
 * The window and its sums are not written: they follow from the raw rows. */
#include "service/drift_monitor_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define REFERENCE_MAGIC 0x31465244u /* "DRF1" */
#define STATE_MAGIC 0x31535244u     /* "DRS1" */

#define FORMAT 2

/* All that decides what the bytes mean. */
static uint64_t fingerprint(const struct dl_drift_config *config)
{
    const uint64_t parts[] = {config->form,
                              config->window,
                              config->fourier,
                              config->reference_max,
                              config->renew_rows,
                              config->features,
                              config->seed,
                              DL_DRIFT_COLUMNS,
                              DL_DRIFT_HORIZON_EVENTS,
                              FORMAT};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = dl_mix64(hash ^ parts[i]);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
        for (const char *at = dl_drift_column_names[c]; *at; at++)
            hash = dl_mix64(hash ^ (uint8_t)*at);
    return hash;
}

uint64_t dl_drift_monitor_generation(const struct dl_drift_monitor *m)
{
    return m->generation;
}

int dl_drift_monitor_save_reference(const struct dl_drift_monitor *m, struct dl_buf *out)
{
    const struct dl_reference *reference = &m->basis.reference;
    const struct dl_run_length *run = &m->basis.run_length;
    dl_buf_u32(out, REFERENCE_MAGIC);
    dl_buf_u64(out, fingerprint(&m->config));
    dl_buf_u64(out, m->model_hash);
    dl_buf_u64(out, m->generation);
    dl_buf_u8(out, m->basis.mmd != NULL);
    if (!m->basis.mmd) return out->failed ? DL_ERR_NOMEM : DL_OK;
    dl_buf_u8(out, (uint8_t)m->basis.origin);
    dl_buf_u64(out, (uint64_t)m->basis.time);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) dl_buf_f32(out, m->basis.weight[c]);
    dl_buf_u32(out, reference->rows);
    dl_buf_u32(out, reference->segment_rows);
    dl_buf_u64(out, reference->events_before);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        dl_buf_f64(out, reference->mean[c]);
        dl_buf_f64(out, reference->sd[c]);
    }
    for (size_t i = 0; i < (size_t)reference->rows * DL_DRIFT_COLUMNS; i++)
        dl_buf_f32(out, reference->values[i]);
    dl_buf_f64(out, m->config.run_length_events);
    dl_buf_f64(out, run->threshold);
    dl_buf_f64(out, run->achieved);
    dl_buf_u8(out, (uint8_t)run->continued);
    dl_buf_f64(out, run->largest_real);
    dl_buf_u32(out, run->block_rows);
    dl_buf_f64(out, run->autocorrelation);
    dl_buf_f64(out, run->effective_rows);
    dl_buf_append(out, run->warning, sizeof run->warning);
    for (int q = 0; q < DL_RUN_LENGTH_QUANTILES; q++) dl_buf_f64(out, run->null[q]);
    return out->failed ? DL_ERR_NOMEM : DL_OK;
}

int dl_drift_monitor_save_state(const struct dl_drift_monitor *m, struct dl_buf *out)
{
    dl_buf_u32(out, STATE_MAGIC);
    dl_buf_u64(out, fingerprint(&m->config));
    dl_buf_u64(out, m->generation);
    dl_buf_u8(out, (uint8_t)m->state);
    dl_buf_u64(out, m->observed);
    dl_buf_u64(out, m->next_seq);
    dl_buf_u64(out, (uint64_t)m->time);
    dl_buf_u32(out, m->above);
    dl_buf_u32(out, m->below);
    dl_buf_u32(out, m->cooldown_left);
    dl_buf_u32(out, m->rows_since_raise);
    dl_buf_u32(out, m->learned);
    dl_buf_u64(out, m->alerts);
    dl_buf_u64(out, m->alerts_raised);
    dl_buf_u64(out, m->renewals);
    dl_buf_u32(out, m->ring_count);
    for (uint32_t back = m->ring_count; back-- > 0;) {
        uint32_t at = (m->ring_head + m->config.renew_rows - 1 - back) % m->config.renew_rows;
        for (int c = 0; c < DL_DRIFT_COLUMNS; c++)
            dl_buf_f32(out, m->ring[(size_t)at * DL_DRIFT_COLUMNS + c]);
    }
    dl_buf_u32(out, m->history_count);
    for (uint32_t back = m->history_count; back-- > 0;) {
        const struct dl_drift_point *point =
            &m->history[(m->history_head + DL_DRIFT_HISTORY_KEPT - 1 - back) %
                        DL_DRIFT_HISTORY_KEPT];
        dl_buf_u64(out, (uint64_t)point->time);
        dl_buf_u64(out, point->seq);
        dl_buf_f64(out, point->statistic);
        dl_buf_f64(out, point->threshold);
    }
    return out->failed ? DL_ERR_NOMEM : DL_OK;
}

/* ---- taking it in ------------------------------------------------------------------- */

static int corrupt(struct dl_error *error, const char *what)
{
    return dl_error_set(error, DL_ERR_CORRUPT, "saved drift monitor: %s does not check", what);
}

static int begin(struct dl_reader *in, uint32_t magic, const struct dl_drift_config *config,
                 const char *what, struct dl_error *error)
{
    if (dl_read_u32(in) != magic || in->failed) return corrupt(error, what);
    if (dl_read_u64(in) != fingerprint(config))
        return dl_error_set(error, DL_ERR_VERSION,
                            "saved drift monitor: %s was written for other features or another "
                            "drift configuration",
                            what);
    return in->failed ? corrupt(error, what) : DL_OK;
}

static int read_reference(struct dl_drift_monitor *m, struct dl_slice bytes, struct dl_error *error)
{
    static const char what[] = "the reference";
    struct dl_reader in = dl_reader_of(bytes);
    int status = begin(&in, REFERENCE_MAGIC, &m->config, what, error);
    if (status) return status;
    if (dl_read_u64(&in) != m->model_hash)
        return dl_error_set(error, DL_ERR_VERSION,
                            "saved drift monitor: it belongs to another model's reference");
    m->generation = dl_read_u64(&in);
    if (!dl_read_u8(&in)) return in.failed || dl_reader_left(&in) ? corrupt(error, what) : DL_OK;

    struct dl_drift_basis *basis = &m->basis;
    uint8_t origin = dl_read_u8(&in);
    basis->origin = (enum dl_drift_origin)origin;
    basis->time = (int64_t)dl_read_u64(&in);
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        basis->weight[c] = dl_read_f32(&in);
        if (!(basis->weight[c] >= 0 && basis->weight[c] <= 1)) return corrupt(error, what);
    }
    const uint32_t rows = dl_read_u32(&in);
    if (in.failed || origin > DL_DRIFT_ORIGIN_RENEWED || rows > DL_MMD_ROWS_MAX ||
        dl_reader_left(&in) < (size_t)rows * DL_DRIFT_COLUMNS * 4)
        return corrupt(error, what);
    struct dl_reference *reference = &basis->reference;
    reference->rows = rows;
    reference->columns = DL_DRIFT_COLUMNS;
    reference->segment_rows = dl_read_u32(&in);
    reference->events_before = dl_read_u64(&in);
    reference->names = calloc(DL_DRIFT_COLUMNS, sizeof *reference->names);
    reference->values = calloc((size_t)rows * DL_DRIFT_COLUMNS + 1, sizeof *reference->values);
    reference->mean = calloc(DL_DRIFT_COLUMNS, sizeof *reference->mean);
    reference->sd = calloc(DL_DRIFT_COLUMNS, sizeof *reference->sd);
    if (!reference->names || !reference->values || !reference->mean || !reference->sd)
        return dl_error_set(error, DL_ERR_NOMEM, "saved drift monitor: out of memory");
    for (int c = 0; c < DL_DRIFT_COLUMNS; c++) {
        memcpy(reference->names[c], dl_drift_column_names[c], strlen(dl_drift_column_names[c]));
        reference->mean[c] = dl_read_f64(&in);
        reference->sd[c] = dl_read_f64(&in);
    }
    for (size_t i = 0; i < (size_t)rows * DL_DRIFT_COLUMNS; i++)
        reference->values[i] = dl_read_f32(&in);
    struct dl_run_length *run = &basis->run_length;
    run->asked = dl_read_f64(&in);
    run->threshold = dl_read_f64(&in);
    run->achieved = dl_read_f64(&in);
    run->continued = dl_read_u8(&in) != 0;
    run->largest_real = dl_read_f64(&in);
    run->block_rows = dl_read_u32(&in);
    run->autocorrelation = dl_read_f64(&in);
    run->effective_rows = dl_read_f64(&in);
    struct dl_slice warning = dl_read_slice(&in, sizeof run->warning);
    if (warning.size == sizeof run->warning) memcpy(run->warning, warning.data, warning.size);
    run->warning[sizeof run->warning - 1] = 0;
    for (int q = 0; q < DL_RUN_LENGTH_QUANTILES; q++) {
        run->null[q] = dl_read_f64(&in);
        if (!isfinite(run->null[q]) || (q && run->null[q] < run->null[q - 1]))
            return corrupt(error, what);
    }
    if (in.failed || dl_reader_left(&in) || !isfinite(run->threshold) ||
        !isfinite(run->autocorrelation) || run->autocorrelation < 0)
        return corrupt(error, what);
    /* Another run length is asked for now: the threshold is set anew. */
    int status_basis =
        dl_drift_basis_prepare(&m->config, basis, run->asked == m->config.run_length_events, error);
    if (status_basis == DL_ERR_INVALID) return dl_error_wrap(error, DL_ERR_CORRUPT, "saved");
    return status_basis;
}

static int read_state(struct dl_drift_monitor *m, struct dl_slice bytes, struct dl_error *error)
{
    static const char what[] = "the state";
    struct dl_reader in = dl_reader_of(bytes);
    int status = begin(&in, STATE_MAGIC, &m->config, what, error);
    if (status) return status;
    if (dl_read_u64(&in) != m->generation)
        return dl_error_set(error, DL_ERR_CORRUPT,
                            "saved drift monitor: state and reference are not of one time");
    uint8_t state = dl_read_u8(&in);
    if (state > DL_DRIFT_LEARNING || (!m->basis.mmd && state != DL_DRIFT_LEARNING))
        return corrupt(error, what);
    m->state = (enum dl_drift_state)state;
    m->observed = dl_read_u64(&in);
    m->next_seq = dl_read_u64(&in);
    m->time = (int64_t)dl_read_u64(&in);
    m->above = dl_read_u32(&in);
    m->below = dl_read_u32(&in);
    m->cooldown_left = dl_read_u32(&in);
    m->rows_since_raise = dl_read_u32(&in);
    m->learned = dl_read_u32(&in);
    m->alerts = dl_read_u64(&in);
    m->alerts_raised = dl_read_u64(&in);
    m->renewals = dl_read_u64(&in);
    const uint32_t rows = dl_read_u32(&in);
    if (in.failed || rows > m->config.renew_rows || m->learned > m->config.renew_rows)
        return corrupt(error, what);
    for (size_t i = 0; i < (size_t)rows * DL_DRIFT_COLUMNS; i++) m->ring[i] = dl_read_f32(&in);
    m->ring_count = rows;
    m->ring_head = rows % m->config.renew_rows;
    const uint32_t points = dl_read_u32(&in);
    if (in.failed || points > DL_DRIFT_HISTORY_KEPT) return corrupt(error, what);
    for (uint32_t k = 0; k < points; k++) {
        m->history[k].time = (int64_t)dl_read_u64(&in);
        m->history[k].seq = dl_read_u64(&in);
        m->history[k].statistic = dl_read_f64(&in);
        m->history[k].threshold = dl_read_f64(&in);
    }
    m->history_count = points;
    m->history_head = points % DL_DRIFT_HISTORY_KEPT;
    if (in.failed || dl_reader_left(&in)) return corrupt(error, what);
    if (m->basis.mmd && m->state != DL_DRIFT_LEARNING) dl_drift_monitor_refill(m);
    return DL_OK;
}

int dl_drift_monitor_load(struct dl_drift_monitor *m, struct dl_slice reference,
                          struct dl_slice state, struct dl_error *error)
{
    struct dl_drift_monitor *fresh;
    int status = dl_drift_monitor_make(&m->config, &fresh, error);
    if (status) return status;
    fresh->alert = m->alert;
    fresh->context = m->context;
    fresh->model_hash = m->model_hash;
    status = read_reference(fresh, reference, error);
    if (!status) status = read_state(fresh, state, error);
    if (!status) {
        struct dl_drift_monitor old = *m;
        *m = *fresh;
        *fresh = old;
    }
    dl_drift_monitor_free(fresh);
    return status;
}
