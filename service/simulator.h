/* A simulated feed of edges: people with habits. For demonstrations, tests and
 * first steps, where the truth must be known.
 *
 * Nodes live in communities. Each has its own level of activity, a few
 * favourite partners, most of them of its community, and its own scale of
 * weights. An event is a favourite most of the time, else someone of the
 * community, a favourite's favourite, or anyone; now and then it is a reply, or
 * a burst of the same two. Activity follows the time of day. Favourites change
 * slowly, and a few nodes leave and new ones come, so that the feed stays the
 * same kind of feed however long it runs, until a planted shift.
 *
 * Everything comes from the seed: the same configuration gives the same feed,
 * on any machine. One thread at a time; no input or output. */
#ifndef DL_SERVICE_SIMULATOR_H
#define DL_SERVICE_SIMULATOR_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/event.h"
#include "base/status.h"

#define DL_SIMULATOR_SHIFTS_MAX 16
#define DL_SIMULATOR_NODES_MIN 20
#define DL_SIMULATOR_NODES_MAX 1000000

enum dl_shift_kind {
    DL_SHIFT_NONE = 0,
    DL_SHIFT_RATE,        /* events come `amount` times as fast (default 3) */
    DL_SHIFT_PARTNERS,    /* a share `amount` of all favourites is drawn anew (default 1) */
    DL_SHIFT_COMMUNITIES, /* a share `amount` of the nodes moves to another community (default 1) */
    DL_SHIFT_TIME_OF_DAY, /* the daily rhythm moves by `amount` hours (default 8) */
    DL_SHIFT_WEIGHT       /* weights are `amount` times as large (default 3) */
};
/* "rate", "partners", "communities", "time-of-day", "weight". */
const char *dl_shift_kind_name(enum dl_shift_kind kind);
/* DL_OK or DL_ERR_INVALID. */
int dl_shift_kind_parse(struct dl_slice name, enum dl_shift_kind *kind);

struct dl_shift {
    enum dl_shift_kind kind;
    uint64_t index; /* of the first event that it touches */
    double amount;  /* 0: the kind's default */
};

/* Reads "KIND@INDEX" or "KIND:AMOUNT@INDEX". DL_ERR_INVALID with detail. */
int dl_shift_parse(const char *text, struct dl_shift *shift, struct dl_error *error);

struct dl_simulator_config {
    uint32_t nodes;          /* DL_SIMULATOR_NODES_MIN..DL_SIMULATOR_NODES_MAX */
    uint32_t community_size; /* nodes of a community, about */
    double events_per_day;   /* mean, before any shift */
    double rhythm;           /* 0: none, 1: silent nights */
    int64_t start_ms;        /* event time of the beginning, ms since 1970 */
    uint64_t seed;
    uint32_t shift_count;
    struct dl_shift shifts[DL_SIMULATOR_SHIFTS_MAX]; /* in any order */
};
/* 500 nodes, communities of 20, 250 events a day, rhythm 0.8, from 2026-01-01. */
extern const struct dl_simulator_config dl_simulator_config_default;

struct dl_simulator;

/* DL_ERR_INVALID with detail, DL_ERR_NOMEM. */
int dl_simulator_new(const struct dl_simulator_config *config, struct dl_simulator **simulator,
                     struct dl_error *error);
void dl_simulator_free(struct dl_simulator *simulator);
/* The next event: names, time in ms (never decreasing), a positive weight. The
 * names are borrowed until the next call. Never ends, never fails. */
void dl_simulator_next(struct dl_simulator *simulator, struct dl_edge_event *event);
/* How many were given out. */
uint64_t dl_simulator_index(const struct dl_simulator *simulator);

#endif
