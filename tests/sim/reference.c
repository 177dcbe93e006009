/* See reference.h. Nothing is clever here. */
#include "tests/sim/reference.h"

#include <stdio.h>
#include <string.h>

#include "service/config.h"

void sim_plan_make(struct sim_plan *plan, struct dl_rng *rng, int partitions, int ingest)
{
    int64_t time = 1000;
    memset(plan, 0, sizeof *plan);
    plan->partitions = partitions;
    plan->window = 2u + (uint32_t)dl_rng_below(rng, 5);
    plan->id_horizon = dl_rng_below(rng, 2) ? 10 + (uint32_t)dl_rng_below(rng, 20) : 0;
    plan->batch_events = 1u + (uint32_t)dl_rng_below(rng, 24);
    /* Whether what came by RPC is there after a crash is told by the number of events. */
    plan->late_policy = ingest ? DL_LATE_ACCEPT : (int)dl_rng_below(rng, 3);
    plan->lateness = (int64_t)dl_rng_below(rng, 20);
    plan->future_skew = 50;
    plan->age_max = dl_rng_below(rng, 3) ? 0 : 5 + (int64_t)dl_rng_below(rng, 100);
    plan->min_interval = dl_rng_below(rng, 3) ? 0 : 5;
    int predicted = (int)dl_rng_below(rng, 4);
    plan->for_source = predicted & 1;
    plan->for_destination = predicted >> 1;
    for (int i = 0; i < partitions; i++)
        plan->counts[i] = 40 + (int)dl_rng_below(rng, 120) / partitions;
    plan->counts[SIM_INGEST] = ingest ? (int)dl_rng_below(rng, 20) : 0;
    for (int at = 0; at < SIM_MESSAGES_MAX; at++) {
        for (int list = 0; list < SIM_LISTS; list++) {
            struct sim_message *m = &plan->lists[list][at];
            time += (int64_t)dl_rng_below(rng, 3);
            m->src = (int)dl_rng_below(rng, dl_rng_below(rng, 2) ? SIM_NODES : SIM_NODES_OFTEN);
            m->dst = (int)dl_rng_below(rng, dl_rng_below(rng, 2) ? SIM_NODES : SIM_NODES_OFTEN);
            m->time = m->wall_s = time;
            m->weight = (float)(1 + dl_rng_below(rng, 4));
            m->type = (int)dl_rng_below(rng, 3);
            if (list == SIM_INGEST) continue;
            m->broken = dl_rng_below(rng, 20) == 0;
            if (dl_rng_below(rng, 8) == 0) m->time -= (int64_t)dl_rng_below(rng, 40);
            if (dl_rng_below(rng, 40) == 0) m->time += plan->future_skew + 1;
            if (dl_rng_below(rng, 3)) m->id = 1 + (int)dl_rng_below(rng, 40);
        }
    }
}

void sim_node_name(int node, char name[8])
{
    snprintf(name, 8, "node%d", node);
}

void sim_edge_event(const struct sim_message *message, struct sim_texts *texts,
                    struct dl_edge_event *event)
{
    sim_node_name(message->src, texts->src);
    sim_node_name(message->dst, texts->dst);
    snprintf(texts->type, sizeof texts->type, "type%d", message->type % 10);
    snprintf(texts->id, sizeof texts->id, "id%d", message->id);
    *event = (struct dl_edge_event){.src = dl_slice_text(texts->src),
                                    .dst = dl_slice_text(texts->dst),
                                    .time = message->time,
                                    .weight = message->weight,
                                    .has_weight = 1};
    if (message->type) event->type = dl_slice_text(texts->type);
    if (message->id) event->id = dl_slice_text(texts->id);
}

static const struct sim_message *message_of(const struct sim_reference *r,
                                            const struct sim_taken *taken)
{
    return &r->plan->lists[taken->list][taken->offset];
}

static int touches(const struct sim_message *m, int node)
{
    return m->src == node || m->dst == node;
}

void sim_reference_init(struct sim_reference *r, const struct sim_plan *plan)
{
    *r = (struct sim_reference){.plan = plan, .forgotten = -1, .forgotten_at = -1};
}

void sim_reference_forget(struct sim_reference *r, int node)
{
    r->forgotten = node;
    r->forgotten_at = r->count;
}

int sim_reference_knows(const struct sim_reference *r, int node, int count)
{
    for (int i = 0; i < count; i++)
        if (r->taken[i].outcome == SIM_EVENT && touches(message_of(r, &r->taken[i]), node))
            return 1;
    return 0;
}

/* Whether the node still has message number i. */
static int keeps(const struct sim_reference *r, int node, int i)
{
    return node != r->forgotten || i >= r->forgotten_at;
}

/* Among the last so many ids that were no repeat themselves. */
static int is_repeat(const struct sim_reference *r, int id)
{
    uint32_t seen = 0;
    for (int i = r->count - 1; i >= 0 && id && seen < r->plan->id_horizon; i--) {
        const struct sim_message *m = message_of(r, &r->taken[i]);
        if (r->taken[i].outcome != SIM_EVENT || !m->id) continue;
        if (m->id == id) return 1;
        seen++;
    }
    return 0;
}

/* Whether the node's first event of an interval, before message number r->count. */
static int is_due(const struct sim_reference *r, int node, int64_t time)
{
    int64_t last = INT64_MIN;
    for (int i = 0; i < r->count; i++) {
        const struct sim_message *m = message_of(r, &r->taken[i]);
        if (r->taken[i].outcome == SIM_EVENT && touches(m, node) && keeps(r, node, i) &&
            m->time > last)
            last = m->time;
    }
    int64_t interval = r->plan->min_interval;
    return !interval || last == INT64_MIN || time / interval != last / interval;
}

static enum sim_outcome outcome_of(const struct sim_reference *r, int list,
                                   const struct sim_message *m)
{
    int64_t newest = INT64_MIN;
    for (int i = 0; i < r->count; i++) {
        const struct sim_message *before = message_of(r, &r->taken[i]);
        if (r->taken[i].outcome == SIM_EVENT && before->time > newest) newest = before->time;
    }
    if (m->broken) return SIM_DEAD;
    /* What comes by RPC is dated by the real clock, which is far ahead. */
    if (list != SIM_INGEST && m->time > m->wall_s + r->plan->future_skew) return SIM_DEAD;
    if (r->plan->late_policy != DL_LATE_ACCEPT && newest != INT64_MIN &&
        newest - m->time > r->plan->lateness)
        return r->plan->late_policy == DL_LATE_TOPIC ? SIM_LATE : SIM_DROPPED;
    return is_repeat(r, m->id) ? SIM_REPEATED : SIM_EVENT;
}

void sim_reference_take(struct sim_reference *r, int list, int offset)
{
    const struct sim_message *m = &r->plan->lists[list][offset];
    struct sim_taken taken = {.list = list, .offset = offset, .outcome = outcome_of(r, list, m)};
    if (taken.outcome == SIM_EVENT) {
        for (int i = 0; i < r->count; i++) {
            const struct sim_message *before = message_of(r, &r->taken[i]);
            if (r->taken[i].outcome != SIM_EVENT) continue;
            taken.src_history += touches(before, m->src) && keeps(r, m->src, i);
            taken.dst_history += touches(before, m->dst) && keeps(r, m->dst, i);
            if (!keeps(r, m->src, i) || !keeps(r, m->dst, i)) continue;
            taken.pair_history += (before->src == m->src && before->dst == m->dst) ||
                                  (before->src == m->dst && before->dst == m->src);
        }
        taken.predictions = r->plan->for_source && is_due(r, m->src, m->time);
        taken.predictions += r->plan->for_destination && is_due(r, m->dst, m->time);
    }
    r->taken[r->count++] = taken;
}

void sim_reference_cut(struct sim_reference *r, int count)
{
    r->count = count;
}

uint64_t sim_reference_events(const struct sim_reference *r)
{
    uint64_t events = 0;
    for (int i = 0; i < r->count; i++) events += r->taken[i].outcome == SIM_EVENT;
    return events;
}

const struct sim_taken *sim_reference_event(const struct sim_reference *r, uint64_t seq)
{
    for (int i = 0; i < r->count; i++)
        if (r->taken[i].outcome == SIM_EVENT && seq-- == 0) return &r->taken[i];
    return NULL;
}

/* The entries of the node's window that name what is forgotten go. */
static uint32_t forget_in_window(const struct sim_reference *r, int node, uint64_t *seqs,
                                 int64_t *times, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < count; k++) {
        if (node == r->forgotten ||
            touches(message_of(r, sim_reference_event(r, seqs[k])), r->forgotten))
            continue;
        seqs[kept] = seqs[k];
        times[kept++] = times[k];
    }
    return kept;
}

uint32_t sim_reference_window(const struct sim_reference *r, int node, uint64_t *seqs)
{
    int64_t times[SIM_LISTS * SIM_MESSAGES_MAX];
    uint64_t seq = 0;
    uint32_t count = 0;
    times[0] = 0;
    for (int i = 0; i <= r->count; i++) {
        if (i == r->forgotten_at) count = forget_in_window(r, node, seqs, times, count);
        if (i == r->count) break;
        const struct sim_message *m = message_of(r, &r->taken[i]);
        if (r->taken[i].outcome != SIM_EVENT) continue;
        if (touches(m, node)) { /* behind those that are newer; newest first, ties by arrival */
            uint32_t at = 0;
            while (at < count && times[at] > m->time) at++;
            memmove(times + at + 1, times + at, (count - at) * sizeof *times);
            memmove(seqs + at + 1, seqs + at, (count - at) * sizeof *seqs);
            times[at] = m->time;
            seqs[at] = seq;
            count++;
            if (count > r->plan->window) count = r->plan->window;
            while (r->plan->age_max && times[0] - times[count - 1] > r->plan->age_max) count--;
        }
        seq++;
    }
    return count;
}
