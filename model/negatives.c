/* Negative samplers. */
#include "model/negatives.h"

#include <string.h>

#include "base/negative.h"
#include "base/query.h"

#define TRIES_MAX 100

/* Streams: what a try number is mixed with, so that no two uses share a draw.
 * Draws of base/negative.h have small numbers and no stream. */
#define STREAM_PAST UINT64_C(0x70617374)
#define STREAM_CLEAN UINT64_C(0x636c65616e)
#define STREAM_RANK UINT64_C(0x72616e6b)

static const char *const kind_names[] = {"random", "historical", "inductive", "clean"};

const char *dl_negatives_name(enum dl_negatives_kind kind)
{
    return kind_names[kind];
}

int dl_negatives_parse(const char *name, enum dl_negatives_kind *kind)
{
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, kind_names[i]) != 0) continue;
        *kind = (enum dl_negatives_kind)i;
        return DL_OK;
    }
    return DL_ERR_INVALID;
}

/* Destinations to draw from for this event. */
static uint32_t pool(const struct dl_negatives *negatives, uint64_t event)
{
    const struct dl_dataset *dataset = negatives->dataset;
    uint64_t until = negatives->pool_end;
    if (negatives->only_seen && event < until) until = event;
    if (until >= dataset->event_count) return dataset->destination_count;
    uint32_t low = 0, high = dataset->destination_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (dataset->destination_first[middle] < until)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t draw_try(const struct dl_negatives *negatives, uint64_t stream, uint64_t event,
                         uint32_t draw, uint32_t attempt)
{
    return dl_draw64(dl_mix64(negatives->seed ^ stream), event, (uint64_t)draw << 32 | attempt);
}

static struct dl_edge random_draw(const struct dl_negatives *negatives, uint64_t event,
                                  uint32_t draw)
{
    struct dl_edge edge = {negatives->dataset->events[event].src, DL_NODE_NONE};
    uint32_t count = pool(negatives, event);
    if (count)
        edge.dst = negatives->dataset
                       ->destinations[dl_negative_index(negatives->seed, event, draw, count)];
    return edge;
}

static int is_edge(const struct dl_negatives *negatives, uint32_t src, uint32_t dst, int64_t from,
                   int64_t to)
{
    return dl_pairs_count(negatives->pairs, dl_pairs_find(negatives->pairs, src, dst), from, to) >
           0;
}

static struct dl_edge clean_draw(const struct dl_negatives *negatives, uint64_t stream,
                                 uint64_t event, uint32_t draw)
{
    const struct dl_dataset *dataset = negatives->dataset;
    const struct dl_event *at = &dataset->events[event];
    uint32_t count = pool(negatives, event), start = 0;
    struct dl_edge edge = {at->src, DL_NODE_NONE};

    if (count == 0) return edge;
    for (uint32_t attempt = 0; attempt < TRIES_MAX; attempt++) {
        start = (uint32_t)dl_bounded64(draw_try(negatives, stream, event, draw, attempt), count);
        edge.dst = dataset->destinations[start];
        if (!is_edge(negatives, edge.src, edge.dst, at->time, at->time)) return edge;
    }
    /* Nearly all are true edges: take the next that is none. */
    for (uint32_t i = 0; i < count; i++) {
        edge.dst = dataset->destinations[(start + i) % count];
        if (!is_edge(negatives, edge.src, edge.dst, at->time, at->time)) return edge;
    }
    edge.dst = DL_NODE_NONE;
    return edge;
}

/* A pair among [low, high) of the pair index that is no edge in [from, to]. */
static struct dl_edge past_draw(const struct dl_negatives *negatives, uint64_t event, uint32_t draw,
                                uint32_t low, uint32_t high, int64_t from, int64_t to)
{
    for (uint32_t attempt = 0; low < high && attempt < TRIES_MAX; attempt++) {
        uint64_t bits = draw_try(negatives, STREAM_PAST, event, draw, attempt);
        uint32_t pair = low + (uint32_t)dl_bounded64(bits, high - low);
        if (dl_pairs_count(negatives->pairs, pair, from, to) == 0)
            return (struct dl_edge){dl_pairs_src(negatives->pairs, pair),
                                    dl_pairs_dst(negatives->pairs, pair)};
    }
    return random_draw(negatives, event, draw);
}

/* First event with a time of `time` or more. */
static uint64_t first_event_at(const struct dl_dataset *dataset, int64_t time)
{
    uint64_t low = 0, high = dataset->event_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (dataset->events[middle].time < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct dl_edge dl_negatives_draw(const struct dl_negatives *negatives, enum dl_negatives_kind kind,
                                 uint64_t event, uint32_t draw, int64_t batch_from,
                                 int64_t batch_to)
{
    uint64_t low_event = kind == DL_NEGATIVES_INDUCTIVE ? negatives->train_end : 0;

    switch (kind) {
    case DL_NEGATIVES_HISTORICAL:
    case DL_NEGATIVES_INDUCTIVE:
        return past_draw(
            negatives, event, draw, dl_pairs_before(negatives->pairs, low_event),
            dl_pairs_before(negatives->pairs, first_event_at(negatives->dataset, batch_from)),
            batch_from, batch_to);
    case DL_NEGATIVES_CLEAN:
        return clean_draw(negatives, STREAM_CLEAN, event, draw);
    case DL_NEGATIVES_RANDOM:
        break;
    }
    return random_draw(negatives, event, draw);
}

struct dl_edge dl_negatives_rank_draw(const struct dl_negatives *negatives, uint64_t event,
                                      uint32_t draw)
{
    return clean_draw(negatives, STREAM_RANK, event, draw);
}

struct dl_edge dl_negatives_past_draw(const struct dl_negatives *negatives, uint64_t event,
                                      uint32_t draw)
{
    int64_t now = negatives->dataset->events[event].time;
    return past_draw(negatives, event, draw, 0,
                     dl_pairs_before(negatives->pairs, first_event_at(negatives->dataset, now)),
                     now, now);
}
