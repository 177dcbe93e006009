/* What a query's source u and a candidate v have in common in the most recent
 * interactions of both: peers between them by direction, sources that keep
 * u's company, and where v stands in the order in which destinations come up.
 *
 * It looks further back than a model's window and costs one walk over the
 * candidate's history; nothing of it is copied into the query. */
#ifndef DL_BASE_BETWEEN_H
#define DL_BASE_BETWEEN_H

#include <stdint.h>

#include "base/graph.h"

#define DL_HISTORY 64         /* interactions of a node that are looked at, newest first */
#define DL_COMPANY_PEERS 16   /* of u's newest destinations, and ... */
#define DL_COMPANY_HISTORY 16 /* ... interactions of each, for its company */

/* Ways through a peer x between u and v. */
enum dl_way {
    DL_WAY_FORTH,     /* u to x, x to v */
    DL_WAY_BACK,      /* v to x, x to u */
    DL_WAY_CO_SOURCE, /* u to x, v to x */
    DL_WAY_CO_TARGET, /* x to u, x to v */
    DL_WAYS
};

enum { DL_AS_SOURCE, DL_AS_DESTINATION };

struct dl_between {
    uint16_t ways[DL_WAYS];     /* distinct peers, at any time */
    uint16_t ways_now[DL_WAYS]; /* with both events at the query's own timestamp */
    uint16_t shared;            /* distinct peers, either direction */
    float shared_recent; /* the same, each as 1/√((1 + its place at u)(1 + its place at v)) */
    /* Company: other sources of u's newest destinations, each counted as often
     * as it is met. Over the events that name v: its sum, its mean, and the
     * share of events whose source is of the company. */
    float company, company_mean, company_share;
    float distinct[2]; /* distinct peers an event of v, as source and as destination */
    /* Order: u's newest destination was named before, by an event s of a source
     * y. Does v come after it? */
    uint8_t has_order;
    uint8_t is_next;     /* v was last named by event s + 1 */
    uint8_t same_source; /* v was last named by y too */
    int64_t order;       /* the event that last named v, counted from s; 0: never named */
};

/* The source's side, made once a query. */
struct dl_between_source {
    uint32_t node, ordinal;
    float distinct[2]; /* as above, of u */
    uint32_t peer_count;
    struct {
        uint32_t peer;
        uint16_t rank;              /* place of its newest interaction */
        uint8_t ways, ways_now;     /* bit 0: u was the source; bit 1: the peer was */
        uint8_t theirs, theirs_now; /* of the candidate at hand */
    } peers[DL_HISTORY];
    uint32_t company_count;
    uint32_t company[DL_COMPANY_PEERS * DL_COMPANY_HISTORY]; /* nodes */
    uint16_t company_times[DL_COMPANY_PEERS * DL_COMPANY_HISTORY];
    uint8_t peer_slots[4 * DL_HISTORY]; /* hashes: index + 1 */
    uint16_t company_slots[2 * DL_COMPANY_PEERS * DL_COMPANY_HISTORY];
    int has_order;
    uint32_t order_source;
    uint64_t order_seq;
};

/* `ordinal`: of the query. `node` may be unknown. */
void dl_between_begin(struct dl_between_source *source, const struct dl_graph *graph, uint32_t node,
                      uint32_t ordinal);
/* `candidate` may be unknown: nothing in common. */
void dl_between_find(struct dl_between_source *source, const struct dl_graph *graph,
                     uint32_t candidate, struct dl_between *between);

#endif
