/* The drift monitor: takes the drift features of every event in order, keeps
 * the rolling MMD against the reference, and decides when the feed has moved
 * away from what the model learnt, and back.
 *
 * States:
 *
 *   filling    fewer than N events since the start
 *   settling   the graph is younger than the reference's was (or, if that was
 *              older than DL_DRIFT_HORIZON_EVENTS, than that): the statistic is
 *              kept, but says more of the graph's youth than of the feed, and
 *              nothing is raised
 *   watching   in control
 *   raised     an alert stands
 *   cooling    an alert was cleared less than cooldown_events ago: none is raised
 *   learning   renewing the reference: rows are collected, no statistic
 *
 * Raised after `consecutive` events in a row at or above the threshold; cleared
 * after clear_consecutive in a row below clear_ratio × threshold, or by a
 * renewal. The threshold is set so that on a feed that stays as the reference
 * was, such alarms lie run_length_events apart on average (model/run_length.h).
 *
 * The same rows give the same decisions, whatever the batches, and a monitor
 * restored from its saved bytes goes on to the last bit as if it had never
 * stopped. Belongs to the loop's thread. */
#ifndef DL_SERVICE_DRIFT_MONITOR_H
#define DL_SERVICE_DRIFT_MONITOR_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/record.h"
#include "base/status.h"
#include "model/drift_features.h"
#include "model/mmd.h"
#include "model/model.h"

#define DL_DRIFT_BINS 32           /* histogram bins over ±DL_DRIFT_CLIP deviations */
#define DL_DRIFT_HISTORY_KEPT 2048 /* points of the statistic kept */
#define DL_DRIFT_TOP 5             /* features named in an alert */
#define DL_DRIFT_REASON_MAX 256

enum dl_drift_state {
    DL_DRIFT_FILLING,
    DL_DRIFT_SETTLING,
    DL_DRIFT_WATCHING,
    DL_DRIFT_RAISED,
    DL_DRIFT_COOLING,
    DL_DRIFT_LEARNING
};
const char *dl_drift_state_name(enum dl_drift_state state);

struct dl_drift_config {
    enum dl_mmd_form form;
    uint32_t window;            /* N events, 32..DL_MMD_WINDOW_MAX / 4 */
    uint32_t fourier;           /* features of the Fourier form */
    uint32_t reference_max;     /* rows of the exact form's reference */
    double run_length_events;   /* mean events between false alarms that is asked for */
    uint32_t consecutive;       /* 0: N/20, at least 1 */
    uint32_t clear_consecutive; /* 0: N/2 */
    double clear_ratio;         /* 0 < r <= 1 */
    uint32_t cooldown_events;   /* 0: N */
    uint32_t renew_rows;        /* rows that a renewed reference rests on; 0: 4 N */
    uint32_t features;          /* bit c: column c takes part; 0: all */
    uint64_t seed;
};
/* Fourier, window 500, 256 features, 1,000,000 events, clear ratio 0.6. */
extern const struct dl_drift_config dl_drift_config_default;

/* Alerts go out through this; everything is borrowed for the call. `position`,
 * `model_version`, `severity` and `node` are the receiver's to fill in. */
typedef void (*dl_drift_alert_fn)(void *context, const struct dl_alert *alert);

struct dl_drift_monitor;

/* Starts against a reference (copied; usually dl_model_get_reference), or, with
 * NULL, in `learning`: the first renew_rows rows become the reference. `alert`
 * may be NULL. Calibrates the threshold: some tens of milliseconds.
 * DL_ERR_INVALID, DL_ERR_VERSION with detail; DL_ERR_NOMEM. */
int dl_drift_monitor_new(const struct dl_drift_config *config, const struct dl_reference *reference,
                         dl_drift_alert_fn alert, void *context, struct dl_drift_monitor **monitor,
                         struct dl_error *error);
void dl_drift_monitor_free(struct dl_drift_monitor *monitor);

/* One event: its raw features (dl_drift_features, taken before it was
 * absorbed), its time, and its sequence number, which must grow by one (a gap
 * is taken in stride; a number already seen is ignored). May call `alert`. */
void dl_drift_monitor_observe(struct dl_drift_monitor *monitor, const float raw[DL_DRIFT_COLUMNS],
                              int64_t time, uint64_t seq);

/* Takes the recent span as the new reference: rows since the shift was raised
 * (or the last window), and the next ones until there are renew_rows. A
 * standing alert is cleared at once. */
void dl_drift_monitor_renew(struct dl_drift_monitor *monitor);

/* ---- keeping it ------------------------------------------------------------ */

/* The monitor as bytes, in two parts, so that the large one is written only
 * when it changed: the reference with its calibration (grows `generation`), and
 * the running state. Both are needed to load. */
uint64_t dl_drift_monitor_generation(const struct dl_drift_monitor *monitor);
int dl_drift_monitor_save_reference(const struct dl_drift_monitor *monitor, struct dl_buf *out);
int dl_drift_monitor_save_state(const struct dl_drift_monitor *monitor, struct dl_buf *out);
/* Takes in what was saved, in place of what the monitor holds. Bytes are
 * hostile: DL_ERR_CORRUPT, and DL_ERR_VERSION where they were written under
 * another configuration (window, form, features) or for other features; the
 * monitor is then as it was. */
int dl_drift_monitor_load(struct dl_drift_monitor *monitor, struct dl_slice reference,
                          struct dl_slice state, struct dl_error *error);

/* ---- looking at it ---------------------------------------------------------- */

struct dl_drift_feature_view {
    const char *name;
    int used;             /* 0: left out, see left_out */
    double weight;        /* scale in the statistic, 0..1: less for what wanders by itself */
    const char *left_out; /* why, or "" */
    double share;         /* of the summed per-feature discrepancy, 0..1 */
    double distance;      /* squared energy distance of this feature alone, noise taken off */
    double before_mean, now_mean; /* natural units */
    double mean, sd;              /* bin b spans mean + sd·(8·b/BINS − 4) .. + sd·8/BINS */
    const uint32_t *before, *now; /* (DL_DRIFT_BINS) counts of the reference, of the window */
};

struct dl_drift_point {
    int64_t time;
    uint64_t seq;
    double statistic, threshold;
};

struct dl_drift_snapshot {
    enum dl_drift_state state;
    double statistic, threshold, p_value; /* p: of the statistic under no shift, for one look */
    uint32_t window, count;               /* N, and rows in it */
    uint64_t events;                      /* observed since the start */
    uint64_t alerts_raised;               /* since the start */
    uint64_t renewals;                    /* times the reference was renewed */
    uint32_t reference_rows;
    const char *reference_origin; /* "model", "feed" (no reference was given), "renewed" */
    int64_t reference_time;       /* event time at which it was taken; 0: the model's */
    double width;                 /* kernel width */
    double run_length_asked, run_length_achieved; /* events; achieved as simulated at calibration */
    double effective_rows; /* reference rows divided by their autocorrelation time */
    const char *warning;   /* why the run length cannot be promised, or "" */
    uint32_t learning_rows, learning_target; /* while learning */
    uint32_t feature_count;
    struct dl_drift_feature_view features[DL_DRIFT_COLUMNS];
    uint32_t history_count; /* oldest first */
    const struct dl_drift_point *history;
};

/* Everything for RPC, HTTP and the dashboard. Borrowed until the next call on
 * the monitor. Some tens of microseconds. */
void dl_drift_monitor_snapshot(struct dl_drift_monitor *monitor,
                               struct dl_drift_snapshot *snapshot);
/* A histogram of the view as shares of its rows. */
void dl_drift_shares(const uint32_t counts[DL_DRIFT_BINS], float shares[DL_DRIFT_BINS]);
/* The cheap figures alone, for metrics. */
double dl_drift_monitor_statistic(const struct dl_drift_monitor *monitor);
double dl_drift_monitor_threshold(const struct dl_drift_monitor *monitor);
int dl_drift_monitor_is_raised(const struct dl_drift_monitor *monitor);

#endif
