/* Threshold for a wanted run length. See run_length.h for the method. */
#include "model/run_length.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define ROWS_MIN 32
#define SIMULATED_DEFAULT 150000
#define ALARMS_WANTED 20 /* fewer alarms in the simulated stream do not give a mean */
#define LAG_SAMPLES 600
#define LAGS_MAX 64
#define KERNEL_VALUES_MAX 4e8 /* of the exact form, for the simulation */

struct calibration {
    struct dl_mmd *mmd;
    const float *reference;
    uint32_t rows, columns, window;
    uint32_t segment_rows, segments;
    uint32_t block, consecutive;
    double *cross; /* (rows): K of each row, its own stretch left out */
    double *ring;  /* (window): cross terms of the rows in the window */
    float *series; /* (simulated): statistic of the bootstrapped stream */
    uint32_t simulated;
    double bias; /* of self terms by rows that meet themselves */
};

static const float *row_of(const struct calibration *c, uint32_t row)
{
    return c->reference + (size_t)row * c->columns;
}

/* ---- dependence ------------------------------------------------------------------ */

/* How alike are rows `lag` events apart, beyond any two: 1 at lag 0, 0 at none. */
static double kernel_correlation(struct calibration *c, uint32_t lag, double mean)
{
    const uint32_t room = c->segment_rows - lag;
    const uint64_t all = (uint64_t)room * c->segments;
    const uint32_t taken = all < LAG_SAMPLES ? (uint32_t)all : LAG_SAMPLES;
    double sum = 0;
    for (uint32_t i = 0; i < taken; i++) {
        uint64_t k = i * all / taken;
        uint32_t row = (uint32_t)(k / room) * c->segment_rows + (uint32_t)(k % room);
        sum += dl_mmd_kernel(c->mmd, row_of(c, row), row_of(c, row + lag));
    }
    return mean < 1 ? (sum / taken - mean) / (1 - mean) : 0;
}

/* Integrated autocorrelation time, and the lag at which dependence is gone. */
static double autocorrelation(struct calibration *c, uint32_t *gone)
{
    const double mean = dl_mmd_reference_term(c->mmd);
    uint32_t limit = c->segment_rows / 4, lag = 1, last = 0;
    double time = 1, previous = 1;
    *gone = 1;
    for (int k = 0; k < LAGS_MAX && lag <= limit; k++) {
        double rho = kernel_correlation(c, lag, mean);
        *gone = lag;
        if (rho < 0.05) break;
        time += (previous + rho) * (lag - last) - (last ? 0 : previous);
        previous = rho;
        last = lag;
        lag += lag < 4 ? 1 : lag / 3;
    }
    return time;
}

/* ---- streams -------------------------------------------------------------------------- */

/* K of each row over the reference without the rows that a window may share
 * with it, lest it be its own reference. */
static void cross_terms(struct calibration *c)
{
    const uint32_t reach = c->window;
    uint32_t band = c->window > c->block ? c->window : c->block;
    if (band > c->rows / 8) band = c->rows / 8;
    for (uint32_t i = 0; i < c->rows; i++) {
        uint32_t first, last;
        if (c->segments > 1) {
            const uint32_t own = i / c->segment_rows * c->segment_rows;
            first = i > own + reach ? i - reach : own;
            last = i + reach < own + c->segment_rows ? i + reach : own + c->segment_rows - 1;
        } else {
            first = i > band ? i - band : 0;
            last = i + band < c->rows ? i + band : c->rows - 1;
        }
        c->cross[i] = dl_mmd_cross_without(c->mmd, row_of(c, i), first, last);
    }
}

/* Takes row `row` into the window; *sum is that of the cross terms. */
static void take(struct calibration *c, uint32_t row, uint64_t step, double *sum)
{
    dl_mmd_push_self(c->mmd, row_of(c, row));
    double *slot = &c->ring[step % c->window];
    if (step >= c->window) *sum -= *slot;
    *sum += *slot = c->cross[row];
}

static double statistic(const struct calibration *c, double cross_sum)
{
    return dl_mmd_self_term(c->mmd) - 2 * cross_sum / c->window + dl_mmd_reference_term(c->mmd);
}

static void simulate(struct calibration *c, uint64_t seed)
{
    struct dl_rng rng;
    dl_rng_seed(&rng, seed);
    dl_mmd_clear(c->mmd);
    double sum = 0;
    uint32_t segment = 0, at = 0, left = 0;
    for (uint64_t step = 0; step < (uint64_t)c->simulated + c->window - 1; step++) {
        if (!left) {
            segment = (uint32_t)dl_rng_below(&rng, c->segments) * c->segment_rows;
            at = (uint32_t)dl_rng_below(&rng, c->segment_rows);
            left = c->block;
        }
        take(c, segment + at, step, &sum);
        at = at + 1 == c->segment_rows ? 0 : at + 1;
        left--;
        if (step + 1 >= c->window)
            c->series[step + 1 - c->window] = (float)(statistic(c, sum) - c->bias);
    }
}

struct spread {
    double mean, sd, largest;
    uint32_t count;
};

/* The statistic of the reference's real windows. */
static struct spread real_windows(struct calibration *c)
{
    const uint32_t stretch = c->segment_rows >= c->window ? c->segment_rows : c->rows;
    struct spread s = {0, 0, -DBL_MAX, 0};
    double squares = 0;
    for (uint32_t first = 0; first + stretch <= c->rows; first += stretch) {
        double sum = 0;
        dl_mmd_clear(c->mmd);
        for (uint32_t i = 0; i < stretch; i++) {
            take(c, first + i, i, &sum);
            if (i + 1 < c->window) continue;
            double value = statistic(c, sum);
            s.mean += value;
            squares += value * value;
            if (value > s.largest) s.largest = value;
            s.count++;
        }
    }
    if (!s.count) return s;
    s.mean /= s.count;
    s.sd = sqrt(fmax(0, squares / s.count - s.mean * s.mean));
    return s;
}

static struct spread of_series(const struct calibration *c)
{
    struct spread s = {0, 0, -DBL_MAX, c->simulated};
    double squares = 0;
    for (uint32_t t = 0; t < c->simulated; t++) {
        double x = c->series[t];
        s.mean += x;
        squares += x * x;
        if (x > s.largest) s.largest = x;
    }
    s.mean /= s.count;
    s.sd = sqrt(fmax(1e-18, squares / s.count - s.mean * s.mean));
    return s;
}

/* How far above 1 the ratio of two spreads may lie by chance, when one of them
 * comes from `rows / window` windows. */
static double doubt(const struct calibration *c)
{
    return 1 + 2.4 / sqrt((double)c->rows / c->window);
}

/* Real windows differ more than short blocks strung together do: the feed has
 * slow movement that outlasts the dependence between neighbours. */
static int proven_slow(const struct calibration *c, const struct spread *real)
{
    struct spread s = of_series(c);
    return real->count && real->sd > s.sd * doubt(c);
}

/* ---- reading thresholds off the stream ---------------------------------------------- */

/* Mean number of looks up to and with the first alarm; a new run starts with a
 * window that shares nothing with the alarm's. */
static double mean_run(const struct calibration *c, float threshold, uint32_t *alarms)
{
    double total = 0;
    *alarms = 0;
    for (uint64_t start = 0; start < c->simulated;) {
        uint64_t t = start;
        for (uint32_t above = 0; t < c->simulated; t++) {
            above = c->series[t] >= threshold ? above + 1 : 0;
            if (above == c->consecutive) break;
        }
        if (t == c->simulated) {
            total += (double)(t - start);
            break;
        }
        total += (double)(t - start + 1);
        ++*alarms;
        start = t + 1 + c->window;
    }
    return *alarms ? total / *alarms : INFINITY;
}

static double threshold_for(const struct calibration *c, double events, float low, float high)
{
    for (int k = 0; k < 30; k++) {
        float middle = low + (high - low) / 2;
        uint32_t alarms;
        if (mean_run(c, middle, &alarms) < events)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* Continues log(run length) as a line of the threshold, fitted to the top of
 * what was simulated. Towards larger values the true line gets steeper, if
 * anything, so that this errs to the high side. */
static double threshold_beyond(const struct calibration *c, double events, float low, float high)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0, last = 0;
    const double top = (double)c->simulated / ALARMS_WANTED;
    for (int k = 0; k < 4; k++) {
        double run = top / (1 << k);
        double x = threshold_for(c, run, low, high), y = log(run);
        if (k == 0) last = x;
        n++, sx += x, sy += y, sxx += x * x, sxy += x * y;
    }
    double spread = sxx - sx * sx / n;
    double slope = spread > 0 ? (sxy - sx * sy / n) / spread : 0;
    if (!(slope > 0)) return high;
    return last + (log(events) - log(top)) / slope;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void read_threshold(struct calibration *c, const struct dl_run_length_config *config,
                           const struct spread *real, struct dl_run_length *result)
{
    const struct spread simulated = of_series(c);
    const double mean = simulated.mean, sd = simulated.sd;
    float low = c->series[0], high = (float)simulated.largest;
    for (uint32_t t = 0; t < c->simulated; t++)
        if (c->series[t] < low) low = c->series[t];
    high += (float)(1e-3 * sd);

    result->continued = config->events * ALARMS_WANTED > c->simulated;
    result->threshold = result->continued ? threshold_beyond(c, config->events, low, high)
                                          : threshold_for(c, config->events, low, high);
    double widen = 1, shift = 0;
    if (real->count && config->events >= c->rows) {
        /* More is asked than the history can show in blocks. Its real windows
         * have what blocks lack: slow movement, which widens the distribution,
         * and daily or other cycles that a window evens out and blocks cut up,
         * which narrows it. The first is believed as it is, the second only as
         * far as that few windows can prove it. */
        const double ratio = real->sd / sd;
        shift = real->mean - mean;
        widen = ratio > 1 ? ratio : fmin(1, ratio * doubt(c));
        if (widen == 1 && shift < 0) shift = 0;
        result->threshold = mean + shift + widen * (result->threshold - mean);
        if (result->threshold < 1.1 * real->largest) result->threshold = 1.1 * real->largest;
    }
    uint32_t alarms;
    double run = mean_run(c, (float)result->threshold, &alarms);
    result->achieved = alarms >= ALARMS_WANTED ? run : config->events;

    qsort(c->series, c->simulated, sizeof *c->series, compare_floats);
    for (int q = 0; q < DL_RUN_LENGTH_QUANTILES; q++) {
        uint64_t at = ((uint64_t)q * 2 + 1) * c->simulated / (2 * DL_RUN_LENGTH_QUANTILES);
        result->null[q] = mean + shift + widen * (c->series[at] - mean);
    }
}

/* ---- the whole -------------------------------------------------------------------------- */

int dl_run_length_calibrate(struct dl_mmd *mmd, const float *reference, uint32_t rows,
                            const struct dl_run_length_config *config, struct dl_run_length *result,
                            struct dl_error *error)
{
    const struct dl_mmd_config *form = dl_mmd_get_config(mmd);
    struct calibration c = {.mmd = mmd,
                            .reference = reference,
                            .rows = rows,
                            .columns = form->columns,
                            .window = form->window};
    *result = (struct dl_run_length){.asked = config->events};
    int status = DL_OK;
    if (rows < ROWS_MIN)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift threshold: %u reference rows; it takes at least %d", rows,
                            ROWS_MIN);
    if (!(config->events >= 1 && config->events <= 1e15))
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift threshold: a run length of %g events; it takes 1 to 1e15",
                            config->events);
    c.segment_rows = config->segment_rows ? config->segment_rows : rows;
    c.segments = rows / c.segment_rows;
    c.consecutive = config->consecutive ? config->consecutive : 1;
    if (!c.segments || rows % c.segment_rows)
        return dl_error_set(error, DL_ERR_INVALID,
                            "drift threshold: %u reference rows do not divide into stretches of %u",
                            rows, c.segment_rows);
    c.simulated = config->simulated_max ? config->simulated_max : SIMULATED_DEFAULT;
    if (form->form == DL_MMD_EXACT && c.simulated > KERNEL_VALUES_MAX / (2.0 * c.window))
        c.simulated = (uint32_t)(KERNEL_VALUES_MAX / (2.0 * c.window));
    if (c.simulated < 20 * c.window) c.simulated = 20 * c.window;

    c.cross = malloc(rows * sizeof *c.cross);
    c.ring = malloc(c.window * sizeof *c.ring);
    c.series = malloc(c.simulated * sizeof *c.series);
    if (!c.cross || !c.ring || !c.series) {
        status = dl_error_set(error, DL_ERR_NOMEM, "drift threshold: out of memory");
        goto done;
    }
    uint32_t gone;
    result->autocorrelation = autocorrelation(&c, &gone);
    result->effective_rows = rows / result->autocorrelation;
    c.block = 10 * gone;
    if (c.block > c.segment_rows / 2) c.block = c.segment_rows / 2;
    if (c.segments == 1 && c.block > rows / 8) c.block = rows / 8;
    if (!c.block) c.block = 1;
    result->block_rows = c.block;
    c.bias = (1 - dl_mmd_reference_term(mmd)) / rows;
    cross_terms(&c);
    struct spread real = real_windows(&c);
    result->largest_real = real.count ? real.largest : 0;
    simulate(&c, config->seed);
    if (proven_slow(&c, &real)) {
        c.block = c.segments > 1 ? c.segment_rows : rows / 4;
        simulate(&c, config->seed);
        result->block_rows = c.block;
    }
    read_threshold(&c, config, &real, result);
    if (result->effective_rows < (double)DL_RUN_LENGTH_WINDOWS_MIN * c.window)
        snprintf(
            result->warning, sizeof result->warning,
            "the reference's %u rows are worth %.0f independent ones, less than %d windows of "
            "%u: the run length cannot be promised; train on more events or shorten the window",
            rows, result->effective_rows, DL_RUN_LENGTH_WINDOWS_MIN, c.window);
done:
    dl_mmd_clear(mmd);
    free(c.cross);
    free(c.ring);
    free(c.series);
    return status;
}

double dl_run_length_p_value(const struct dl_run_length *run_length, double value)
{
    int low = 0, high = DL_RUN_LENGTH_QUANTILES; /* first quantile >= value */
    while (low < high) {
        int middle = (low + high) / 2;
        if (run_length->null[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return (1.0 + DL_RUN_LENGTH_QUANTILES - low) / (1.0 + DL_RUN_LENGTH_QUANTILES);
}
