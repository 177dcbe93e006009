/* The drift monitor's inside, shared by its three files: drift_monitor.c
 * (deciding), drift_monitor_view.c (looking), drift_monitor_save.c (keeping). */
#ifndef DL_SERVICE_DRIFT_MONITOR_INTERNAL_H
#define DL_SERVICE_DRIFT_MONITOR_INTERNAL_H

#include "model/run_length.h"
#include "service/drift_monitor.h"

enum dl_drift_origin { DL_DRIFT_ORIGIN_MODEL, DL_DRIFT_ORIGIN_FEED, DL_DRIFT_ORIGIN_RENEWED };

/* What belongs to the reference; replaced as one by a renewal. */
struct dl_drift_basis {
    struct dl_reference reference; /* owned */
    enum dl_drift_origin origin;
    int64_t time;                   /* event time at which it was taken; 0: the model's */
    float weight[DL_DRIFT_COLUMNS]; /* of each column in the statistic; 0: left out */
    struct dl_mmd *mmd;
    struct dl_run_length run_length;
    uint32_t before[DL_DRIFT_COLUMNS][DL_DRIFT_BINS];
};

struct dl_drift_monitor {
    struct dl_drift_config config; /* zeros replaced by what they stand for */
    dl_drift_alert_fn alert;
    void *context;
    uint64_t model_hash;         /* of the reference given at creation; 0: none */
    struct dl_drift_basis basis; /* mmd NULL: no reference yet */
    uint64_t generation;

    /* Raw rows of the last events: the window is the newest N of them. */
    float *ring; /* (renew_rows, DL_DRIFT_COLUMNS) */
    uint32_t ring_head, ring_count;
    uint8_t *bins; /* (window, DL_DRIFT_COLUMNS), a ring of its own */
    uint32_t bins_head, bins_count;
    uint32_t now[DL_DRIFT_COLUMNS][DL_DRIFT_BINS];

    enum dl_drift_state state;
    uint64_t observed, next_seq;
    int64_t time; /* of the newest event */
    uint32_t above, below, cooldown_left;
    uint32_t rows_since_raise;
    uint32_t learned;
    uint64_t alerts, alerts_raised, renewals;
    double statistic;

    struct dl_drift_point *history; /* ring (DL_DRIFT_HISTORY_KEPT) */
    uint32_t history_head, history_count;
    struct dl_drift_point *history_view; /* what a snapshot lends out */
};

/* An empty monitor of that configuration, without a basis. */
int dl_drift_monitor_make(const struct dl_drift_config *config, struct dl_drift_monitor **monitor,
                          struct dl_error *error);
/* Makes a basis's statistic and histograms; calibrates unless `calibrated`.
 * Takes over basis->reference on success and failure alike. */
int dl_drift_basis_prepare(const struct dl_drift_config *config, struct dl_drift_basis *basis,
                           int calibrated, struct dl_error *error);
void dl_drift_basis_deinit(struct dl_drift_basis *basis);
int dl_drift_reference_copy(const struct dl_reference *from, struct dl_reference *to);
uint64_t dl_drift_reference_hash(const struct dl_reference *reference);
/* Fills the window from the ring. */
void dl_drift_monitor_refill(struct dl_drift_monitor *monitor);

/* Squared energy distance of each used column between reference and window,
 * noise taken off, and its share of the sum. */
void dl_drift_monitor_distances(const struct dl_drift_monitor *monitor,
                                double distance[DL_DRIFT_COLUMNS], double share[DL_DRIFT_COLUMNS]);
/* Means of the window's rows in natural units, over those where it applies. */
void dl_drift_monitor_means(const struct dl_drift_monitor *monitor, double now[DL_DRIFT_COLUMNS]);

#endif
