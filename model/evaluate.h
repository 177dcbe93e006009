/* Measures a scorer on a span of a recorded feed: everything before the span is
 * taken into the graph, then each event of the span is scored with its past,
 * against negatives that are drawn by seed. Results do not depend on the
 * number of threads. */
#ifndef DL_MODEL_EVALUATE_H
#define DL_MODEL_EVALUATE_H

#include <stdint.h>

#include "model/bound.h"
#include "model/metrics.h"
#include "model/negatives.h"
#include "model/progress.h"
#include "model/scorer.h"
#include "model/split.h"

#define DL_EVALUATE_DRAWS_MAX 100
#define DL_EVALUATE_CANDIDATES_MAX 1000

struct dl_evaluate_options {
    enum dl_ties ties;
    enum dl_negatives_kind negatives;
    enum dl_split_part part;
    uint64_t first,
        end;        /* events of the span in place of the part's, half open; end 0: the part's */
    uint64_t seed;  /* of negatives and of the order under shuffle */
    uint32_t draws; /* negatives of each event for AP and AUC, 1..DL_EVALUATE_DRAWS_MAX */
    uint32_t candidates;    /* clean destinations to rank among; 0: no ranking */
    uint64_t limit;         /* at most so many events, spread evenly over the span; 0: all */
    int only_seen;          /* draw from destinations seen before the event, as a live feed does */
    int inductive;          /* only edges that touch a held-out node */
    uint64_t hold_out_seed; /* which nodes those are: the seed of the model's training */
    uint32_t noise_neighbours; /* irrelevant neighbours put into each window (noise.h) */
    uint32_t threads;          /* 0: one for each processor */
    struct dl_progress progress;
};

/* transductive, stream, random, test, seed 0, 10 draws, 100 candidates. */
extern const struct dl_evaluate_options dl_evaluate_options_default;

struct dl_spread {
    double mean, sd; /* over draws */
};

struct dl_evaluate_result {
    uint64_t scored;   /* true edges */
    uint64_t left_out; /* of the span: no negative of the asked kind exists for them */
    double collisions; /* share of negatives that are true edges at their time */
    struct dl_spread ap_pooled, ap_batch_mean, auc_pooled, auc_batch_mean;
    uint64_t ranked;
    double mrr, hits_at_10; /* NaN if nothing was ranked */
    struct dl_bound bound;  /* for the run's tie policy */
    int calibrated;
    struct dl_reliability reliability; /* positives and the first draw's negatives, one to one */
    double ece;
    uint32_t layers;                                          /* 0: no attention */
    double entropy[DL_LAYERS_MAX], top5_share[DL_LAYERS_MAX]; /* means over the true edges */
    /* Attention on the tokens of a side that name the other endpoint, over the
     * `partners` true edges that have such tokens; and what uniform attention
     * would give them. */
    uint64_t partners;
    double partner_share[DL_LAYERS_MAX], partner_uniform;
    uint64_t pairs; /* distinct pairs scored */
    double seconds;
};

/* DL_OK; DL_ERR_INVALID with detail (a span without events, a score that is no
 * number, options out of range), DL_ERR_NOMEM, DL_ERR_CANCELLED. */
int dl_evaluate_run(const struct dl_dataset *dataset, const struct dl_scorer *scorer,
                    const struct dl_evaluate_options *options, struct dl_evaluate_result *result,
                    struct dl_error *error);

#endif
