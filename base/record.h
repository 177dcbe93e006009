/* What driftline publishes: scores, predictions, alerts, dead letters. Plain
 * structures; proto/ turns them into protobuf and JSON. All text and arrays
 * are borrowed by the record. */
#ifndef DL_BASE_RECORD_H
#define DL_BASE_RECORD_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/event.h"

/* One for each event: how likely its own edge was, given the state before it. */
struct dl_score {
    struct dl_slice src, dst;
    int64_t time;
    uint64_t seq;                      /* index of the event in the feed */
    double probability;                /* against one random destination at even odds */
    double surprise_bits;              /* −log2(probability) */
    uint64_t src_history, dst_history; /* events seen before of either */
    uint32_t pair_history;             /* events between the two before */
    struct dl_slice id;                /* the event's id, or empty */
    /* Live quality (predict.quality = on), else has_negative = 0. */
    int has_negative;
    struct dl_slice negative; /* the negative destination */
    double negative_probability;
    uint32_t
        rank_times_2;   /* twice the mid-rank of the true destination among the negatives, from 2 */
    uint32_t negatives; /* how many it was ranked among */
    struct dl_slice model_version;
    struct dl_position position;
};

enum dl_candidate_origin {
    DL_FROM_WINDOW = 1,  /* a repeat: stands in the node's own window */
    DL_FROM_PEERS = 2,   /* a peer's peer */
    DL_FROM_POPULAR = 4, /* a recently popular destination */
    DL_FROM_CALLER = 8   /* named by the caller */
};

struct dl_candidate {
    struct dl_slice node;
    double probability; /* against one random destination at even odds, calibrated */
    double share;       /* among the candidates of this answer; they sum to 1 over all scored */
    uint32_t origin;    /* dl_candidate_origin, or-ed */
    uint64_t history;   /* events seen of the candidate */
    uint32_t pair_history;
};

/* Ranked candidates for a node: what comes next. */
struct dl_prediction {
    struct dl_slice node;
    int64_t time;     /* query time */
    uint64_t seq;     /* index of the event that caused it */
    uint64_t history; /* events seen of the node */
    uint32_t scored;  /* candidates that were scored */
    uint32_t candidate_count;
    const struct dl_candidate *candidates; /* best first */
    struct dl_slice model_version;
    struct dl_position position;
};

enum dl_alert_kind {
    DL_ALERT_TEMPORAL_SHIFT = 1,
    DL_ALERT_ATTENTION_DISPERSION = 2,
    DL_ALERT_QUALITY_DROP = 3,
    DL_ALERT_SURPRISE = 4,
    DL_ALERT_FEED_STALLED = 5,
    DL_ALERT_FEED_FAST = 6,
    DL_ALERT_REFERENCE_RENEWED = 7 /* an act, told once, never cleared */
};

enum dl_alert_severity { DL_SEVERITY_INFO = 1, DL_SEVERITY_WARNING = 2, DL_SEVERITY_CRITICAL = 3 };

struct dl_alert_feature {
    const char *name;
    double share;       /* of the statistic */
    double before, now; /* means */
    /* Histograms: shares of the reference's and of the window's rows in equal
     * bins from low to high; the outer ones also hold what lies beyond. */
    double low, high;
    uint32_t before_bins, now_bins; /* equal, or 0 */
    const float *before_histogram, *now_histogram;
};

struct dl_alert {
    uint64_t number; /* counts alerts of this feed, raised and cleared alike, from 1 */
    enum dl_alert_kind kind;
    enum dl_alert_severity severity;      /* cleared: that with which it was raised */
    int raised;                           /* 1 raised, 0 cleared */
    int64_t time;                         /* event time */
    uint64_t seq;                         /* index of the event at which it was decided */
    double statistic, threshold, p_value; /* p_value 0: not from a test */
    uint32_t window;                      /* events the statistic rests on */
    const char *reason;                   /* one line for people */
    uint32_t feature_count;
    const struct dl_alert_feature *features; /* those that moved most, first */
    struct dl_slice node;                    /* for surprise: the source; else empty */
    struct dl_slice model_version;
    struct dl_position position;
};

/* A message that could not be used: its bytes, and why. */
struct dl_dead_letter {
    struct dl_slice key, payload; /* the original bytes */
    const char *reason;           /* one line: what is wrong, the value, the remedy */
    const char *field;            /* the field named, or "" */
    struct dl_position position;
    int64_t received_us; /* wall-clock, microseconds since 1970; 0 where the source has none */
};

#endif
