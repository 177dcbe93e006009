/* The temporal graph: for every node its temporal neighbour window and
 * activity, for every recent pair what happened between the two, and the
 * feed's own clock. This one state serves training, evaluation and the
 * service, so all three see the same past.
 *
 *   feed        time, ordinal, event count, the last snapshots
 *   node        [ node state | window: ring of the W most recent interactions ]
 *   pair table  sets of 16 entries; a full set drops its least recently used
 *
 * Words. "Ordinal": index of a distinct timestamp of the feed, from 1; the lag
 * between two events is the difference of their ordinals. "Sequence number":
 * index of an event in arrival order, from 0. "Group": a node's events at one
 * timestamp.
 *
 * Checkpoints. The state is divided into pages (feed: one; nodes: 64 a page;
 * pairs: 64 sets a page). Each page carries the sequence number it is current
 * to, and each object changes only by events that name it, so pages may be
 * written at different times: recovery reads every page, then applies the log
 * from the oldest page on, and each page skips what it holds already.
 *
 * Memory is bounded by nodes_max and pairs_max. Not thread-safe: it belongs to
 * the loop's thread; workers get copies (query.h). */
#ifndef DL_BASE_GRAPH_H
#define DL_BASE_GRAPH_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/event.h"
#include "base/status.h"

#define DL_WINDOW_MAX 1024
#define DL_GROUP_RING 6    /* a node's most recent groups, and the feed's snapshots, kept */
#define DL_RATE_HORIZONS 4 /* decay horizons of node rates: 2^7, 2^10, 2^13, 2^16 events */

/* One past event as one of its endpoints sees it. 32 bytes. */
struct dl_interaction {
    int64_t time;
    uint64_t seq;
    uint32_t peer;
    uint32_t ordinal;
    float weight;
    uint16_t type;
    uint8_t out; /* 1: this node was the source */
    uint8_t reserved;
};

/* A node's events at one timestamp. */
struct dl_group {
    uint32_t ordinal; /* 0: no such group */
    uint32_t out,
        in; /* events with this node as source, as destination (a self-loop counts in both) */
    float weight_in_max;
};

/* What the model knows of a node beside its window. Zero: never seen. */
struct dl_node_state {
    uint64_t events;     /* all, a self-loop once */
    uint64_t events_out; /* as source */
    uint64_t events_in;  /* as destination */
    int64_t first_time, last_time, last_out_time, last_in_time;
    uint64_t first_seq, last_seq, last_out_seq, last_in_seq;
    uint64_t first_in_seq;                 /* orders the destination list; valid if events_in > 0 */
    struct dl_group groups[DL_GROUP_RING]; /* newest first */
    /* Exponentially decayed event counts, as of last_out_seq / last_in_seq:
     * rate(now) = rate · exp(−(feed events now − 1 − that seq) / horizon).
     * `dl_node_rate_decay` computes the factor. */
    float rate_out[DL_RATE_HORIZONS], rate_in[DL_RATE_HORIZONS];
};

/* What happened between two nodes; direction 0 is from the first-named to the
 * second-named node of the call that fills it in. Zero: nothing (or forgotten). */
struct dl_pair_state {
    uint32_t count[2];
    uint32_t last_ordinal[2];
    int64_t last_time[2];
    uint64_t last_seq[2];
    float last_weight[2];
    float decayed[2];       /* events, halved with each ordinal, as of flags_ordinal */
    uint32_t flags_ordinal; /* newest ordinal of either direction */
    uint8_t flags[2];       /* bit k: an event at flags_ordinal − k */
};

/* The whole feed's activity at one timestamp. */
struct dl_snapshot {
    int64_t time;
    uint32_t ordinal;
    uint32_t events;
    uint32_t out_max, in_max; /* largest group of any node */
};

struct dl_feed_state {
    uint64_t events;                             /* absorbed; also the next sequence number */
    uint32_t ordinal;                            /* of last_time; 0 before the first event */
    uint32_t nodes;                              /* with at least one event */
    uint32_t destinations;                       /* nodes that were a destination */
    int64_t first_time, last_time;               /* largest event time so far */
    struct dl_snapshot snapshots[DL_GROUP_RING]; /* newest first */
};

struct dl_graph_config {
    uint32_t window;        /* W, 1..DL_WINDOW_MAX */
    uint32_t feature_count; /* floats an event, 0..DL_EVENT_FEATURES_MAX */
    uint32_t nodes_max;
    uint32_t pairs_max; /* rounded up to a power of two, at least 1024 */
    int64_t age_max;    /* a window holds nothing older than its newest by more; 0: no such bound */
};

/* W 64, no features, 16 million nodes, 2^20 pairs. */
extern const struct dl_graph_config dl_graph_config_default;

struct dl_graph;

/* DL_OK, DL_ERR_INVALID (a field out of range), DL_ERR_NOMEM. */
int dl_graph_new(const struct dl_graph_config *config, struct dl_graph **graph,
                 struct dl_error *error);
void dl_graph_free(struct dl_graph *graph);
const struct dl_graph_config *dl_graph_get_config(const struct dl_graph *graph);

/* Absorbs an event as sequence number feed.events. A time before last_time is
 * a late event: it takes its place in both windows (in event-time order, ties
 * by arrival), or falls off their far end. Sets event->ordinal. DL_OK, DL_ERR_FULL (a node id at or
 * above nodes_max), DL_ERR_NOMEM (then nothing was changed). */
int dl_graph_apply(struct dl_graph *graph, struct dl_event *event);
/* The same for `count` events in order, faster: it fetches memory ahead. Stops
 * at the first that fails; *applied says how many were absorbed. */
int dl_graph_apply_many(struct dl_graph *graph, struct dl_event *events, uint32_t count,
                        uint32_t *applied);

/* exp(−age_events / horizon number `horizon`), for the rates of a node. */
float dl_node_rate_decay(uint64_t age_events, int horizon);

const struct dl_feed_state *dl_graph_feed(const struct dl_graph *graph);
/* The ordinal that an event at `time` has, or would get: last + 1 for a later time. */
uint32_t dl_graph_ordinal_at(const struct dl_graph *graph, int64_t time);

/* Borrowed until the next apply; NULL if the node has no events. */
const struct dl_node_state *dl_graph_node(const struct dl_graph *graph, uint32_t node);
/* Copies up to `max` interactions, newest first, and returns how many.
 * `features` (max, feature_count) may be NULL. */
uint32_t dl_graph_window(const struct dl_graph *graph, uint32_t node, uint32_t max,
                         struct dl_interaction *out, float *features);
/* Fills *pair as seen from u (direction 0: u to v). Returns 1 if there was
 * something, else 0 and zeros. */
int dl_graph_pair(const struct dl_graph *graph, uint32_t u, uint32_t v, struct dl_pair_state *pair);

/* Pairs that are kept now. */
uint64_t dl_graph_pairs(const struct dl_graph *graph);

/* The destinations named most often by the last 1,024 events, most often first,
 * ties by recency: up to `max`. Returns how many. */
uint32_t dl_graph_popular_destinations(const struct dl_graph *graph, uint32_t max, uint32_t *out);

/* Destinations in order of first appearance: node id number `index`, index < feed.destinations. */
uint32_t dl_graph_destination(const struct dl_graph *graph, uint32_t index);

/* ---- forgetting --------------------------------------------------------- */

/* Both change the state at once, as an event would; done again they change nothing.
 * The pages that they touch become dirty; whoever promises that it is gone for good
 * writes them and the log. While a state is recovered they come where they came
 * before: when all events with lower sequence numbers are replayed. */

/* Removes a node that no later event names: its window, its state, its pairs, and
 * every mention of it in its peers' windows. Those it looks through by and by, each
 * before it is changed, read or written next; what is asked meanwhile knows nothing of
 * the node. Asked for a second node before the first step it does both at once. */
void dl_graph_forget(struct dl_graph *graph, uint32_t node);
/* Looks through the windows of up to `pages` pages of nodes. 1: there are others. */
int dl_graph_forget_step(struct dl_graph *graph, uint32_t pages);

/* Removes the edges between two nodes with sequence numbers below `before_seq` from
 * their windows, and what is kept of the pair. The counts of both nodes stay. */
void dl_graph_forget_edges(struct dl_graph *graph, uint32_t u, uint32_t v, uint64_t before_seq);

/* ---- pages: how the store checkpoints the state -------------------------- */

enum dl_page_kind { DL_PAGE_FEED = 0, DL_PAGE_NODES = 1, DL_PAGE_PAIRS = 2, DL_PAGE_KINDS = 3 };

struct dl_page_id {
    uint8_t kind;
    uint32_t index;
};

/* The next dirty page in round-robin order, or 0 if none. Clears nothing. */
int dl_graph_page_dirty_next(struct dl_graph *graph, struct dl_page_id *page);
uint32_t dl_graph_pages_dirty(const struct dl_graph *graph);
/* All of them, in `pages` (dl_graph_pages_dirty). Leaves the round-robin order alone. */
void dl_graph_pages_dirty_list(const struct dl_graph *graph, struct dl_page_id *pages);
int dl_graph_page_is_dirty(const struct dl_graph *graph, struct dl_page_id page);
/* Appends the page's bytes (current to feed.events) and marks it clean. */
void dl_graph_page_write(struct dl_graph *graph, struct dl_page_id page, struct dl_buf *out);
/* Dirty again: what was written of it was not kept. */
void dl_graph_page_mark(struct dl_graph *graph, struct dl_page_id page);
/* Before the first dl_graph_replay: takes in a stored page. Hostile input:
 * DL_ERR_CORRUPT with detail. */
int dl_graph_page_read(struct dl_graph *graph, struct dl_page_id page, struct dl_slice bytes,
                       struct dl_error *error);
/* After the pages: the log's events in order, each with its own sequence
 * number and the ordinal it got. The log must start no later than the oldest
 * change that no stored page holds; pages that hold the event already skip it.
 * Same errors as apply, and DL_ERR_CORRUPT for a gap. */
int dl_graph_replay(struct dl_graph *graph, const struct dl_event *event, uint64_t seq,
                    struct dl_error *error);
/* The same for `count` events with sequence numbers from first_seq on, faster. */
int dl_graph_replay_many(struct dl_graph *graph, const struct dl_event *events, uint32_t count,
                         uint64_t first_seq, struct dl_error *error);
/* Ends recovery: the state is whole and current to feed.events. Call it once
 * after the pages and the log, also where there were none. DL_OK, DL_ERR_NOMEM. */
int dl_graph_replay_end(struct dl_graph *graph);

#endif
