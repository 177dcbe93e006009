/* Watches how the served model and the feed do, beside the shift of the input
 * (drift_monitor.h), and says when to doubt them:
 *
 *   quality drop          recent average precision against the figure of training
 *   attention dispersion  entropy of the attention on served events, by layer,
 *                         against that of training's validation span
 *   feed fast             typical time between events against the fastest
 *                         window of the reference
 *   feed stalled          told by the caller, who has a clock
 *
 * A look is taken every DL_WATCH_LOOK_EVENTS events. Quality and attention have
 * a tolerance that comes from the sampling noise of the recent window itself
 * (jackknife over blocks of consecutive events, so that dependent events do not
 * pass for many), at a level that fits drift.run_length, plus a margin that the
 * operator sets. Each alert is raised once, after RAISE looks in a row beyond
 * the bound, and cleared once, after CLEAR looks in a row well within; then
 * none of the kind is raised for COOL looks. Nothing is raised before the graph
 * is as old as the model's reference was.
 *
 * The same events give the same decisions, whatever the batches; saved bytes
 * bring it back exactly. Belongs to the loop's thread. */
#ifndef DL_SERVICE_WATCH_H
#define DL_SERVICE_WATCH_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/record.h"
#include "base/status.h"
#include "model/model.h"
#include "service/drift_monitor.h"

#define DL_WATCH_LOOK_EVENTS 50
#define DL_WATCH_QUALITY_EVENTS 1000 /* that recent quality rests on */
#define DL_WATCH_ATTENTION_EVERY 16  /* an event is sampled when its number divides by this */
#define DL_WATCH_ATTENTION_SAMPLES 64
#define DL_WATCH_SINK_TOKENS 16 /* with fewer, mean + 3σ means nothing */

struct dl_watch_config {
    double quality_margin;    /* average precision that may be lost beyond noise; < 0: off */
    double dispersion_margin; /* entropy that may be gained beyond noise; < 0: off */
    double fast_factor;       /* times as fast as the reference's fastest window; 0: off */
    double run_length_events; /* asked between false alarms */
    uint32_t gap_events;      /* events that the typical gap rests on */
};

/* Attention of one sampled event. */
struct dl_watch_attention {
    float entropy[DL_LAYERS_MAX], top5_share[DL_LAYERS_MAX];
    /* Tokens above mean + 3σ: in more than half of the layers, and in at least
     * one but no more than that. NaN with fewer than DL_WATCH_SINK_TOKENS. */
    float global_sinks, local_sinks;
    /* Place of the strongest global sink: index in its endpoint's window, plus
     * 2,048 on the candidate's side; -1: none. */
    int32_t strongest;
};

struct dl_watch_event {
    uint64_t seq;
    int64_t time;
    float gap; /* raw drift feature DL_DRIFT_GAP; NaN: none */
    /* Of the event's edge and its published negative; probability NaN: none. */
    float probability, negative;
    const struct dl_watch_attention *attention; /* NULL: not sampled */
};

struct dl_watch;

/* Without a model (NULL) only stalls are known. `alert` as for the drift
 * monitor. DL_ERR_NOMEM. */
int dl_watch_new(const struct dl_watch_config *config, const struct dl_model *model,
                 dl_drift_alert_fn alert, void *context, struct dl_watch **watch,
                 struct dl_error *error);
void dl_watch_free(struct dl_watch *watch);

/* The next event; a number already seen is ignored. May call `alert`. */
void dl_watch_observe(struct dl_watch *watch, const struct dl_watch_event *event);
/* Nothing came for `seconds`: raised unless it stands. The next event clears it. */
void dl_watch_stalled(struct dl_watch *watch, double seconds);
/* Clears what stands, except a stall: another model is coming. */
void dl_watch_clear(struct dl_watch *watch, const char *reason);
/* The reference was renewed: the pace of now is the normal one. Quality and
 * attention stay compared with what the model did in training. */
void dl_watch_renew(struct dl_watch *watch);
int dl_watch_is_raised(const struct dl_watch *watch, enum dl_alert_kind kind);
/* Grows whenever an alert was raised or cleared. */
uint64_t dl_watch_generation(const struct dl_watch *watch);

/* Reads what a scored pair's attention says. `source_tokens`: those of the
 * source's side. */
void dl_watch_attention_of(const struct dl_attention *attention, uint32_t layers,
                           uint32_t source_tokens, struct dl_watch_attention *out);

/* Means over the recent samples, NaN where there are none. */
struct dl_watch_figures {
    uint32_t layers, samples;
    double entropy[DL_LAYERS_MAX], top5_share[DL_LAYERS_MAX];
    double global_sinks, local_sinks;
    double sink_movement; /* share of samples whose strongest sink stands elsewhere than before */
};
void dl_watch_figures(const struct dl_watch *watch, struct dl_watch_figures *figures);

void dl_watch_save(const struct dl_watch *watch, struct dl_buf *out);
/* Hostile bytes: DL_ERR_CORRUPT; DL_ERR_VERSION for another model or
 * configuration. The monitor is then as it was. */
int dl_watch_load(struct dl_watch *watch, struct dl_slice bytes);

/* A sampled event's attention as bytes, for the journal between two saves. */
void dl_watch_attention_put(const struct dl_watch_attention *attention, uint32_t layers,
                            struct dl_buf *out);
void dl_watch_attention_read(struct dl_reader *in, uint32_t layers,
                             struct dl_watch_attention *attention);

#endif
