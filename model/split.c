/* Splits and passes. */
#include "model/split.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/between.h"
#include "base/rng.h"

#define STREAM_SHUFFLE 0x73687566666c65u /* keeps these draws apart from all others */
#define STREAM_HOLD_OUT 0x686f6c64206f75u

static const char *const part_names[] = {"train", "validation", "test"};
static const char *const ties_names[] = {"strict", "stream", "shuffle"};

const char *dl_split_part_name(enum dl_split_part part)
{
    return part_names[part];
}
const char *dl_ties_name(enum dl_ties ties)
{
    return ties_names[ties];
}

static int parse_name(const char *name, const char *const *names, int *value)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *value = i;
        return DL_OK;
    }
    return DL_ERR_INVALID;
}

int dl_split_part_parse(const char *name, enum dl_split_part *part)
{
    int value;
    if (parse_name(name, part_names, &value) != DL_OK) return DL_ERR_INVALID;
    *part = (enum dl_split_part)value;
    return DL_OK;
}

int dl_ties_parse(const char *name, enum dl_ties *ties)
{
    int value;
    if (parse_name(name, ties_names, &value) != DL_OK) return DL_ERR_INVALID;
    *ties = (enum dl_ties)value;
    return DL_OK;
}

/* Events with a time up to the quantile. Times are int64 and may not fit a
 * double (nanoseconds), so only the fraction between two of them is computed
 * in floating point. */
static uint64_t events_until(const struct dl_dataset *dataset, double quantile)
{
    double place = quantile * (double)(dataset->event_count - 1);
    uint64_t low = (uint64_t)place;
    double fraction = place - (double)low;
    int64_t at = dataset->events[low].time;
    uint64_t end = low + 1;

    if (end < dataset->event_count) {
        double step = (double)dataset->events[end].time - (double)at;
        at += (int64_t)floor(fraction * step);
    }
    while (end < dataset->event_count && dataset->events[end].time <= at) end++;
    return end;
}

int dl_split_make(const struct dl_dataset *dataset, struct dl_split *split, struct dl_error *error)
{
    uint64_t q70 = events_until(dataset, 0.70), q85 = events_until(dataset, 0.85);

    split->begin[DL_SPLIT_TRAIN] = 0;
    split->end[DL_SPLIT_TRAIN] = split->begin[DL_SPLIT_VALIDATION] = q70;
    split->end[DL_SPLIT_VALIDATION] = split->begin[DL_SPLIT_TEST] = q85;
    split->end[DL_SPLIT_TEST] = dataset->event_count;
    for (int part = 0; part < 3; part++)
        if (split->begin[part] == split->end[part])
            return dl_error_set(error, DL_ERR_INVALID,
                                "%s: the %s part is empty: %llu events at %u timestamps are too "
                                "few to split by time; give more history",
                                dataset->path, part_names[part],
                                (unsigned long long)dataset->event_count, dataset->timestamp_count);
    return DL_OK;
}

int dl_split_hold_out(const struct dl_dataset *dataset, const struct dl_split *split, uint64_t seed,
                      uint8_t *held_out, uint32_t *held_out_count)
{
    uint32_t *late = malloc(dataset->node_count * sizeof *late);
    uint32_t late_count = 0;

    if (!late) return DL_ERR_NOMEM;
    memset(held_out, 0, dataset->node_count);
    for (uint64_t i = split->begin[DL_SPLIT_VALIDATION]; i < dataset->event_count; i++) {
        const uint32_t ends[2] = {dataset->events[i].src, dataset->events[i].dst};
        for (int e = 0; e < 2; e++) {
            if (held_out[ends[e]]) continue;
            held_out[ends[e]] = 1;
            late[late_count++] = ends[e];
        }
    }
    memset(held_out, 0, dataset->node_count);
    uint32_t wanted = dataset->node_count / 10;
    if (wanted > late_count) wanted = late_count;
    for (uint32_t i = 0; i < wanted; i++) {
        uint64_t bits = dl_draw64(seed ^ STREAM_HOLD_OUT, i, 0);
        uint32_t other = i + (uint32_t)dl_bounded64(bits, late_count - i);
        uint32_t node = late[other];
        late[other] = late[i];
        late[i] = node;
        held_out[node] = 1;
    }
    *held_out_count = wanted;
    free(late);
    return DL_OK;
}

/* ---- passes ------------------------------------------------------------------ */

/* Fisher-Yates inside each timestamp. */
static int make_order(struct dl_pass *pass, uint64_t seed)
{
    const struct dl_dataset *dataset = pass->dataset;
    uint64_t end;

    pass->order = malloc(dataset->event_count * sizeof *pass->order);
    if (!pass->order) return DL_ERR_NOMEM;
    for (uint64_t i = 0; i < dataset->event_count; i++) pass->order[i] = (uint32_t)i;
    for (uint64_t begin = 0; begin < dataset->event_count; begin = end) {
        for (end = begin + 1; end < dataset->event_count; end++)
            if (dataset->events[end].time != dataset->events[begin].time) break;
        for (uint64_t i = begin; i + 1 < end; i++) {
            uint64_t other = i + dl_bounded64(dl_draw64(seed ^ STREAM_SHUFFLE, i, 0), end - i);
            uint32_t event = pass->order[other];
            pass->order[other] = pass->order[i];
            pass->order[i] = event;
        }
    }
    return DL_OK;
}

int dl_pass_init(struct dl_pass *pass, const struct dl_dataset *dataset, enum dl_ties ties,
                 uint64_t seed, uint32_t window, struct dl_error *error)
{
    struct dl_graph_config config = dl_graph_config_default;

    memset(pass, 0, sizeof *pass);
    pass->dataset = dataset;
    pass->ties = ties;
    config.window = window > DL_HISTORY ? window : DL_HISTORY;
    config.feature_count = dataset->feature_count;
    if (ties == DL_TIES_SHUFFLE && make_order(pass, seed) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    int status = dl_graph_new(&config, &pass->graph, error);
    if (status != DL_OK) dl_pass_deinit(pass);
    return status;
}

void dl_pass_deinit(struct dl_pass *pass)
{
    dl_graph_free(pass->graph);
    free(pass->order);
    memset(pass, 0, sizeof *pass);
}

uint64_t dl_pass_event(const struct dl_pass *pass, uint64_t position)
{
    return pass->order ? pass->order[position] : position;
}

int dl_pass_seek(struct dl_pass *pass, uint64_t position, struct dl_error *error)
{
    const struct dl_event *events = pass->dataset->events;
    int64_t now = position < pass->dataset->event_count ? events[position].time : INT64_MAX;

    while (pass->absorbed < position) {
        struct dl_event event = events[dl_pass_event(pass, pass->absorbed)];
        if (pass->ties == DL_TIES_STRICT && event.time == now) break;
        pass->absorbed++;
        if (pass->left_out && (pass->left_out[event.src] || pass->left_out[event.dst])) continue;
        int status = dl_graph_apply(pass->graph, &event);
        if (status != DL_OK)
            return dl_error_set(error, status, "event %llu: cannot be taken into the graph: %s",
                                (unsigned long long)pass->absorbed - 1, dl_status_name(status));
    }
    return DL_OK;
}
