/* Drift within a recorded feed: one span against another, and what the monitor
 * would have said over the whole of it. */
#ifndef DL_SERVICE_DRIFT_OFFLINE_H
#define DL_SERVICE_DRIFT_OFFLINE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"
#include "model/dataset.h"
#include "model/drift_features.h"
#include "model/progress.h"
#include "model/two_sample.h"
#include "service/drift_monitor.h"

#define DL_DRIFT_CURVE_POINTS 1200
#define DL_DRIFT_OFFLINE_ALERTS 256

struct dl_drift_span {
    uint64_t begin, end; /* events, half open */
};

struct dl_drift_offline_options {
    int spans_given; /* 0: the training span (to the 70 % time quantile) against the test span */
    double before[2], after[2]; /* else: from and to, as shares of the events */
    uint32_t rows;              /* at most so many rows of each span are compared; 0: 2,000 */
    uint32_t block_rows;        /* consecutive rows that stay together; 0: 50 */
    uint32_t permutations;      /* 0: 999 */
    uint64_t seed;
    struct dl_drift_config monitor; /* of the curve */
};

struct dl_drift_offline_feature {
    const char *name;
    double before_mean, after_mean, sd; /* natural units; sd: of the span before */
    double distance;                    /* squared energy distance, in deviations */
    double share;                       /* of the sum */
};

struct dl_drift_offline {
    struct dl_drift_span before, after; /* as compared: the first events of a feed, when all is
                                           new, are left out of `before` */
    uint32_t rows_before, rows_after, block_rows, permutations;
    struct dl_two_sample test;
    struct dl_drift_offline_feature features[DL_DRIFT_COLUMNS]; /* farthest first */
    /* The monitor, with `before` as its reference, over the whole feed. */
    int has_monitor;
    char monitor_problem[160]; /* why there is none */
    uint32_t window;
    double threshold;
    const char *warning;
    uint32_t point_count;
    struct {
        uint64_t event;
        double statistic;
    } points[DL_DRIFT_CURVE_POINTS];
    uint32_t alert_count; /* kept; `alerts_left_out` more came */
    uint32_t alerts_left_out;
    struct {
        uint64_t event;
        int64_t time;
        int raised;
        double statistic;
        char feature[32]; /* that moved most */
    } alerts[DL_DRIFT_OFFLINE_ALERTS];
    char warning_text[200];
};

/* Large: keep it on the heap. DL_ERR_INVALID with detail (spans too short),
 * DL_ERR_NOMEM. */
int dl_drift_offline_run(const struct dl_dataset *dataset,
                         const struct dl_drift_offline_options *options,
                         const struct dl_progress *progress, struct dl_drift_offline *result,
                         struct dl_error *error);

/* The curve, the spans and the features as an SVG picture. */
void dl_drift_offline_plot(const struct dl_dataset *dataset, const struct dl_drift_offline *result,
                           struct dl_buf *svg);

#endif
