/* The made-up feed of a simulation, and a trivial model of what the engine must
 * make of it: lists that are walked from their beginning. */
#ifndef DL_TESTS_SIM_REFERENCE_H
#define DL_TESTS_SIM_REFERENCE_H

#include <stdint.h>

#include "base/event.h"
#include "base/rng.h"

enum {
    SIM_PARTITIONS_MAX = 3,
    SIM_INGEST = SIM_PARTITIONS_MAX, /* the list of what comes by RPC, which no source repeats */
    SIM_LISTS,
    SIM_MESSAGES_MAX = 160, /* of one list */
    SIM_NODES = 260,        /* several pages of the graph */
    SIM_NODES_OFTEN = 14    /* of them those that half of all events name */
};

struct sim_message {
    int src, dst; /* numbers of nodes */
    int64_t time, wall_s;
    int type; /* 0: none */
    float weight;
    int id; /* 0: none */
    int broken;
};

/* What varies from seed to seed, beside the faults. */
struct sim_plan {
    int partitions, counts[SIM_LISTS];
    struct sim_message lists[SIM_LISTS][SIM_MESSAGES_MAX];
    uint32_t window, id_horizon, batch_events;
    int late_policy; /* enum dl_late_policy */
    int for_source, for_destination;
    int64_t lateness, future_skew, min_interval, age_max;
};

void sim_plan_make(struct sim_plan *plan, struct dl_rng *rng, int partitions, int ingest);
void sim_node_name(int node, char name[8]);
/* The message as the engine is offered it; texts are borrowed from *texts. */
struct sim_texts {
    char src[8], dst[8], type[8], id[12];
};
void sim_edge_event(const struct sim_message *message, struct sim_texts *texts,
                    struct dl_edge_event *event);

enum sim_outcome { SIM_EVENT, SIM_DEAD, SIM_LATE, SIM_DROPPED, SIM_REPEATED };

/* One message that was taken in. */
struct sim_taken {
    int list, offset;
    enum sim_outcome outcome;
    int predictions;                                 /* due for it */
    uint64_t src_history, dst_history, pair_history; /* events before it */
};

struct sim_reference {
    const struct sim_plan *plan;
    struct sim_taken taken[SIM_LISTS * SIM_MESSAGES_MAX];
    int count;
    int forgotten, forgotten_at; /* a node, and how many messages were taken before; -1: none */
};

void sim_reference_init(struct sim_reference *reference, const struct sim_plan *plan);
/* The node is forgotten now. */
void sim_reference_forget(struct sim_reference *reference, int node);
/* Whether one of the first `count` messages is an event that names the node. */
int sim_reference_knows(const struct sim_reference *reference, int node, int count);
/* The next message of the history. */
void sim_reference_take(struct sim_reference *reference, int list, int offset);
/* Only the first `count` messages were ever taken in. */
void sim_reference_cut(struct sim_reference *reference, int count);
uint64_t sim_reference_events(const struct sim_reference *reference);
/* Event number `seq`, as a message, or NULL. */
const struct sim_taken *sim_reference_event(const struct sim_reference *reference, uint64_t seq);
/* The node's window, newest first: numbers of events. Returns how many. */
uint32_t sim_reference_window(const struct sim_reference *reference, int node, uint64_t *seqs);

#endif
