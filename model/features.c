/* Tokens of a pair from a query. */
#include "model/features.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

/* ---- names ------------------------------------------------------------------------------ */

struct column {
    uint32_t first, count;
    const char *name;
};

static const struct column token_columns[] = {
    {DL_TOKEN_WEIGHT, 1, "weight"}, {DL_TOKEN_DIRECTION, 1, "direction"},
    {DL_TOKEN_OTHER, 1, "other"},   {DL_TOKEN_ELAPSED, 1, "elapsed"},
    {DL_TOKEN_LAG_0, 1, "lag_0"},   {DL_TOKEN_LAG_1, 1, "lag_1"},
    {DL_TOKEN_AGE, 1, "age"},
};

static const struct column self_columns[] = {
    {DL_SELF_HISTORY, 1, "history"},
    {DL_SELF_NOW, 1, "now"},
    {DL_SELF_NOW_COUNT, 1, "now_count"},
    {DL_SELF_NOW_OUT, 1, "now_out"},
    {DL_SELF_LAG_1, 1, "lag_1"},
    {DL_SELF_LAG, 1, "lag"},
    {DL_SELF_BEFORE_COUNT, 1, "before_count"},
    {DL_SELF_BEFORE_OUT, 1, "before_out"},
    {DL_SELF_PREVIOUS_LAG_1, 1, "previous_lag_1"},
    {DL_SELF_PREVIOUS_LAG, 1, "previous_lag"},
    {DL_SELF_PREVIOUS_COUNT, 1, "previous_count"},
    {DL_SELF_PREVIOUS_OUT, 1, "previous_out"},
    {DL_SELF_TOTAL, 1, "total"},
    {DL_SELF_OUT, 1, "out"},
    {DL_SELF_IN, 1, "in"},
    {DL_SELF_OUT_SHARE, 1, "out_share"},
    {DL_SELF_OUT_ELAPSED, 1, "out_elapsed"},
    {DL_SELF_IN_ELAPSED, 1, "in_elapsed"},
    {DL_SELF_OUT_AGE, 1, "out_age"},
    {DL_SELF_IN_AGE, 1, "in_age"},
    {DL_SELF_FIRST_ELAPSED, 1, "first_elapsed"},
    {DL_SELF_FIRST_AGE, 1, "first_age"},
    {DL_SELF_TENURE, 1, "tenure"},
    {DL_SELF_RATE_OUT, DL_RATE_HORIZONS, "rate_out"},
    {DL_SELF_RATE_IN, DL_RATE_HORIZONS, "rate_in"},
    {DL_SELF_RING_ACTIVE, DL_RING_LAGS, "ring_active"},
    {DL_SELF_RING_OUT, DL_RING_LAGS, "ring_out"},
    {DL_SELF_RING_IN, DL_RING_LAGS, "ring_in"},
    {DL_SELF_RING_WEIGHT, DL_RING_LAGS, "ring_weight"},
    {DL_SELF_PAIR, 1, "pair"},
    {DL_SELF_PAIR_LAG_0, 1, "pair_lag_0"},
    {DL_SELF_PAIR_LAG_1, 1, "pair_lag_1"},
    {DL_SELF_PAIR_OUT, 1, "pair_out"},
    {DL_SELF_PAIR_LAG, 1, "pair_lag"},
    {DL_SELF_PAIR_WEIGHT, 1, "pair_weight"},
    {DL_SELF_PAIR_COUNT, 1, "pair_count"},
    {DL_SELF_PAIR_SHARE, 1, "pair_share"},
    {DL_SELF_PAIR_RANK, 1, "pair_rank"},
    {DL_SELF_PAIR_MUTUAL, 1, "pair_mutual"},
    {DL_SELF_PAIR_EXISTS, 2, "pair_exists"},
    {DL_SELF_PAIR_LAGS, 2, "pair_lags"},
    {DL_SELF_PAIR_ELAPSED, 2, "pair_elapsed"},
    {DL_SELF_PAIR_AGE, 2, "pair_age"},
    {DL_SELF_PAIR_COUNTS, 2, "pair_counts"},
    {DL_SELF_PAIR_DECAYED, 2, "pair_decayed"},
    {DL_SELF_PAIR_FLAGS, 2 * DL_FLAG_LAGS, "pair_flags"},
    {DL_SELF_COMMON, 1, "common"},
    {DL_SELF_COMMON_RANK, 1, "common_rank"},
    {DL_SELF_DISTINCT, 2, "distinct"},
    {DL_SELF_WAYS, DL_WAYS, "ways"},
    {DL_SELF_WAYS_NOW, DL_WAYS, "ways_now"},
    {DL_SELF_SHARED, 1, "shared"},
    {DL_SELF_SHARED_RECENT, 1, "shared_recent"},
    {DL_SELF_COMPANY, 1, "company"},
    {DL_SELF_COMPANY_MEAN, 1, "company_mean"},
    {DL_SELF_COMPANY_SHARE, 1, "company_share"},
    {DL_SELF_ORDER, 1, "order"},
    {DL_SELF_ORDER_NEXT, 1, "order_next"},
    {DL_SELF_ORDER_AFTER, 1, "order_after"},
    {DL_SELF_ORDER_BEFORE, 1, "order_before"},
    {DL_SELF_ORDER_SAME_SOURCE, 1, "order_same_source"},
    {DL_SELF_ORDER_SAME_AFTER, 1, "order_same_after"},
};

static void name_of(const struct column *columns, size_t count, uint32_t column, char name[32])
{
    for (size_t i = 0; i < count; i++) {
        if (column < columns[i].first || column >= columns[i].first + columns[i].count) continue;
        if (columns[i].count == 1)
            snprintf(name, 32, "%s", columns[i].name);
        else
            snprintf(name, 32, "%s.%u", columns[i].name, column - columns[i].first);
        return;
    }
    DL_CHECK(!"a column without a name");
}

void dl_token_column_name(uint32_t column, char name[32])
{
    name_of(token_columns, sizeof token_columns / sizeof *token_columns, column, name);
}

void dl_self_column_name(uint32_t column, char name[32])
{
    name_of(self_columns, sizeof self_columns / sizeof *self_columns, column, name);
}

/* ---- memory ------------------------------------------------------------------------------ */

struct dl_token_layout dl_token_layout_of(const struct dl_network_config *config)
{
    struct dl_token_layout layout;
    layout.features = DL_TOKEN_COLUMNS;
    layout.time = layout.features + config->feature_count;
    layout.seen = layout.time + (config->time_encoding ? DL_TIME_COLUMNS : 0);
    layout.columns = layout.seen + (config->cooccurrence ? DL_SEEN_COLUMNS : 0);
    return layout;
}

void dl_batch_carve(struct dl_batch *batch, struct dl_carve *carve,
                    const struct dl_network_config *config, const struct dl_encoding *encoding,
                    uint32_t pairs_max, enum dl_batch_form form)
{
    const size_t window = config->window, sides = 2 * (size_t)pairs_max;
    const size_t rows = form == DL_BATCH_JOINT ? sides * window : 0;
    batch->config = config;
    batch->encoding = encoding;
    batch->layout = dl_token_layout_of(config);
    batch->form = form;
    batch->pairs_max = pairs_max;
    batch->rows_max = form == DL_BATCH_JOINT ? pairs_max * 2 * (config->window + 1) : 0;
    batch->query = NULL;
    batch->start = dl_carve_take(carve, pairs_max + 1, sizeof *batch->start);
    batch->source_rows = dl_carve_take(carve, pairs_max, sizeof *batch->source_rows);
    batch->tokens = dl_carve_take(carve, pairs_max, sizeof *batch->tokens);
    batch->place = dl_carve_take(carve, pairs_max, sizeof *batch->place);
    batch->position = dl_carve_take(carve, batch->rows_max, sizeof *batch->position);
    batch->like = dl_carve_take(carve, batch->rows_max, sizeof *batch->like);
    batch->plain_row = dl_carve_take(carve, window, sizeof *batch->plain_row);
    batch->plain_seen = dl_carve_take(carve, rows ? 2 * window : 0, sizeof *batch->plain_seen);
    batch->self = dl_carve_take(carve, sides * DL_SELF_COLUMNS, sizeof(dl_real));
    batch->token = dl_carve_take(carve, rows * batch->layout.columns, sizeof(dl_real));
    batch->elapsed = dl_carve_take(carve, rows, sizeof(dl_real));
    batch->seen = dl_carve_take(carve, (rows ? rows : 2 * window) * 2, sizeof *batch->seen);
    batch->side = dl_carve_take(carve, sides, sizeof *batch->side);
    batch->pair_sides = dl_carve_take(carve, sides, sizeof *batch->pair_sides);
    batch->since = dl_carve_take(carve, sides * DL_SINCE_COLUMNS, sizeof(dl_real));
    batch->source_self = dl_carve_take(carve, DL_SELF_COLUMNS, sizeof(dl_real));
    batch->source_token =
        dl_carve_take(carve, rows ? window * batch->layout.columns : 0, sizeof(dl_real));
    batch->source_elapsed = dl_carve_take(carve, window, sizeof(dl_real));
    for (int s = 0; s < 2; s++)
        batch->peers[s] = dl_carve_take(carve, window, sizeof *batch->peers[s]);
    batch->source_seen = dl_carve_take(carve, window, sizeof *batch->source_seen);
}

static void forget_plain_rows(struct dl_batch *batch)
{
    memset(batch->plain_row, 0xff, batch->config->window * sizeof *batch->plain_row);
}

void dl_batch_clear(struct dl_batch *batch)
{
    batch->pairs = batch->rows = batch->window_rows = batch->sides = 0;
    batch->start[0] = 0;
    batch->source_side = UINT32_MAX;
    forget_plain_rows(batch);
}

/* ---- units ------------------------------------------------------------------------------- */

/* L(x); x ≥ 0. */
static dl_real log_of(double x)
{
    return DL_REAL_FN(log)((dl_real)(1 + x)) / 4;
}

static dl_real weight_of(const struct dl_batch *batch, float weight)
{
    double w =
        copysign((double)DL_REAL_FN(log)((dl_real)(1 + fabs((double)weight))), (double)weight);
    return (dl_real)((w - batch->encoding->weight_mean) / batch->encoding->weight_sd);
}

static uint32_t lag_of(const struct dl_query *query, uint32_t ordinal)
{
    return query->ordinal > ordinal ? query->ordinal - ordinal : 0;
}

/* In gaps; 0 for what is not in the past. */
static double elapsed_of(const struct dl_batch *batch, int64_t now, int64_t time)
{
    return now > time ? ((double)now - (double)time) / batch->encoding->gap : 0;
}

/* L(events of the feed since `seq`, itself included, when there are `events`). */
static dl_real age_of(const struct dl_batch *batch, uint64_t events, uint64_t seq)
{
    return batch->config->arrival_age && events > seq ? log_of((double)(events - seq)) : 0;
}

static dl_real share_of(double part, double whole)
{
    return whole > 0 ? (dl_real)(part / whole) : 0;
}

/* ---- a node's own token ------------------------------------------------------------------ */

static void activity(dl_real *to, const struct dl_query *query, const struct dl_node_state *state)
{
    const struct dl_group *last = &state->groups[0], *previous = &state->groups[1];
    to[DL_SELF_HISTORY] = state->events > 0;
    to[DL_SELF_TOTAL] = log_of((double)state->events) / 2;
    if (last->ordinal == 0) return;
    uint32_t lag = lag_of(query, last->ordinal), count = last->out + last->in;
    int now = lag == 0;
    to[DL_SELF_NOW] = now;
    to[now ? DL_SELF_NOW_COUNT : DL_SELF_BEFORE_COUNT] = log_of(count);
    to[now ? DL_SELF_NOW_OUT : DL_SELF_BEFORE_OUT] = share_of(last->out, count);
    to[DL_SELF_LAG_1] = lag == 1;
    to[DL_SELF_LAG] = log_of(lag);
    if (!now || previous->ordinal == 0) return;
    lag = lag_of(query, previous->ordinal);
    count = previous->out + previous->in;
    to[DL_SELF_PREVIOUS_LAG_1] = lag == 1;
    to[DL_SELF_PREVIOUS_LAG] = log_of(lag);
    to[DL_SELF_PREVIOUS_COUNT] = log_of(count);
    to[DL_SELF_PREVIOUS_OUT] = share_of(previous->out, count);
}

static void history(dl_real *to, const struct dl_batch *batch, const struct dl_node_state *state)
{
    const uint64_t events = batch->query->feed.events;
    if (state->events == 0) return;
    to[DL_SELF_OUT] = state->events_out > 0;
    to[DL_SELF_IN] = state->events_in > 0;
    to[DL_SELF_OUT_SHARE] =
        share_of((double)state->events_out, (double)state->events_out + (double)state->events_in);
    to[DL_SELF_FIRST_ELAPSED] = log_of(elapsed_of(batch, batch->query->time, state->first_time));
    if (state->events_out > 0)
        to[DL_SELF_OUT_ELAPSED] =
            log_of(elapsed_of(batch, batch->query->time, state->last_out_time));
    if (state->events_in > 0)
        to[DL_SELF_IN_ELAPSED] = log_of(elapsed_of(batch, batch->query->time, state->last_in_time));
    if (!batch->config->arrival_age) return;
    to[DL_SELF_FIRST_AGE] = age_of(batch, batch->query->feed.events, state->first_seq);
    to[DL_SELF_TENURE] = events > state->first_seq
                             ? share_of((double)(events - state->first_seq), (double)events)
                             : 0;
    if (state->events_out > 0)
        to[DL_SELF_OUT_AGE] = age_of(batch, batch->query->feed.events, state->last_out_seq);
    if (state->events_in > 0)
        to[DL_SELF_IN_AGE] = age_of(batch, batch->query->feed.events, state->last_in_seq);
    for (int h = 0; h < DL_RATE_HORIZONS; h++) {
        double horizon = (double)(UINT64_C(128) << (3 * h));
        double since[2] = {
            events > state->last_out_seq ? (double)(events - 1 - state->last_out_seq) : 0,
            events > state->last_in_seq ? (double)(events - 1 - state->last_in_seq) : 0};
        to[DL_SELF_RATE_OUT + h] = log_of((double)state->rate_out[h] * exp(-since[0] / horizon));
        to[DL_SELF_RATE_IN + h] = log_of((double)state->rate_in[h] * exp(-since[1] / horizon));
    }
}

/* Both rings are newest first; a lag beyond the ring stays 0. */
static void ring(dl_real *to, const struct dl_batch *batch, const struct dl_node_state *state)
{
    const struct dl_query *query = batch->query;
    const struct dl_snapshot *snapshots = query->feed.snapshots;
    for (int g = 0; g < DL_GROUP_RING && state->groups[g].ordinal != 0; g++) {
        const struct dl_group *group = &state->groups[g];
        uint32_t lag = lag_of(query, group->ordinal);
        if (lag >= DL_RING_LAGS) break;
        to[DL_SELF_RING_ACTIVE + lag] = 1;
        if (group->in) to[DL_SELF_RING_WEIGHT + lag] = weight_of(batch, group->weight_in_max);
        for (int s = 0; s < DL_GROUP_RING; s++) {
            if (snapshots[s].ordinal != group->ordinal) continue;
            to[DL_SELF_RING_OUT + lag] = share_of(group->out, snapshots[s].out_max);
            to[DL_SELF_RING_IN + lag] = share_of(group->in, snapshots[s].in_max);
        }
    }
}

static void node_columns(dl_real *to, const struct dl_batch *batch,
                         const struct dl_node_state *state)
{
    memset(to, 0, DL_SELF_COLUMNS * sizeof *to);
    activity(to, batch->query, state);
    history(to, batch, state);
    ring(to, batch, state);
}

/* ---- what is between the two ---------------------------------------------------------------- */

/* `out`: the direction of the pair's state that leads away from this side. */
static void pair_memory(dl_real *to, const struct dl_batch *batch, const struct dl_pair_state *pair,
                        int out)
{
    const struct dl_query *query = batch->query;
    if (pair->count[0] == 0 && pair->count[1] == 0) return;
    int last = pair->count[0] == 0 || (pair->count[1] > 0 && pair->last_seq[1] > pair->last_seq[0]);
    uint32_t lag = lag_of(query, pair->last_ordinal[last]);
    double count = (double)pair->count[0] + (double)pair->count[1];
    to[DL_SELF_PAIR] = 1;
    to[DL_SELF_PAIR_LAG_0] = lag == 0;
    to[DL_SELF_PAIR_LAG_1] = lag == 1;
    to[DL_SELF_PAIR_OUT] = last == out;
    to[DL_SELF_PAIR_LAG] = log_of(lag);
    to[DL_SELF_PAIR_WEIGHT] = weight_of(batch, pair->last_weight[last]);
    to[DL_SELF_PAIR_COUNT] = log_of(count);
    to[DL_SELF_PAIR_SHARE] = share_of(pair->count[out], count);
    to[DL_SELF_PAIR_MUTUAL] = pair->count[0] > 0 && pair->count[1] > 0;
    const uint32_t since = lag_of(query, pair->flags_ordinal);
    for (int i = 0; i < 2; i++) {
        int direction = i == 0 ? out : 1 - out;
        if (pair->count[direction] == 0) continue;
        to[DL_SELF_PAIR_EXISTS + i] = 1;
        to[DL_SELF_PAIR_LAGS + i] = log_of(lag_of(query, pair->last_ordinal[direction]));
        to[DL_SELF_PAIR_ELAPSED + i] =
            log_of(elapsed_of(batch, batch->query->time, pair->last_time[direction]));
        to[DL_SELF_PAIR_AGE + i] =
            age_of(batch, batch->query->feed.events, pair->last_seq[direction]);
        to[DL_SELF_PAIR_COUNTS + i] = log_of(pair->count[direction]);
        to[DL_SELF_PAIR_DECAYED + i] =
            log_of(ldexp((double)pair->decayed[direction], since < 64 ? -(int)since : -64));
        for (uint32_t k = since; k < DL_FLAG_LAGS; k++)
            to[DL_SELF_PAIR_FLAGS + i * DL_FLAG_LAGS + (int)k] =
                pair->flags[direction] >> (k - since) & 1;
    }
}

/* The place of the other endpoint, and of the peers in common, in this side's
 * window. `seen` (count, 2) belongs to this side's tokens. */
static void window_memory(dl_real *to, const struct dl_batch *batch, int s, uint32_t count,
                          uint32_t other, const uint16_t *seen)
{
    const uint32_t *peers = batch->peers[s];
    for (uint32_t i = 0; i < count && batch->config->pair_memory; i++) {
        if (peers[i] != other) continue;
        to[DL_SELF_PAIR_RANK] = 1 / (dl_real)(1 + i);
        break;
    }
    if (!batch->config->cooccurrence) return;
    double common = 0;
    for (uint32_t i = count; i-- > 0;) {
        if (seen[2 * i + 1 - (uint32_t)s] == 0) continue;
        common += 1.0 / seen[2 * i + (uint32_t)s]; /* each distinct peer adds up to one */
        to[DL_SELF_COMMON_RANK] = 1 / (dl_real)(1 + i);
    }
    to[DL_SELF_COMMON] = log_of(common);
}

static void order_columns(dl_real *to, const struct dl_between *between)
{
    to[DL_SELF_ORDER] = 1;
    to[DL_SELF_ORDER_NEXT] = between->is_next;
    to[DL_SELF_ORDER_AFTER] = between->order > 0 ? log_of((double)between->order) : 0;
    to[DL_SELF_ORDER_BEFORE] = between->order < 0 ? log_of(-(double)between->order) : 0;
    to[DL_SELF_ORDER_SAME_SOURCE] = between->same_source;
    to[DL_SELF_ORDER_SAME_AFTER] = between->same_source && between->order > 0;
}

static void longer_history(dl_real *to, const struct dl_batch *batch,
                           const struct dl_between *between, int s)
{
    const float *distinct = s ? between->distinct : batch->query->distinct;
    to[DL_SELF_DISTINCT] = (dl_real)distinct[DL_AS_SOURCE];
    to[DL_SELF_DISTINCT + 1] = (dl_real)distinct[DL_AS_DESTINATION];
    if (batch->config->cooccurrence) {
        for (int way = 0; way < DL_WAYS; way++) {
            /* Seen from the other end, the way there is the way back. */
            int seen = s == 1 && way <= DL_WAY_BACK ? DL_WAY_FORTH + DL_WAY_BACK - way : way;
            to[DL_SELF_WAYS + way] = log_of(between->ways[seen]);
            to[DL_SELF_WAYS_NOW + way] = log_of(between->ways_now[seen]);
        }
        to[DL_SELF_SHARED] = log_of(between->shared);
        to[DL_SELF_SHARED_RECENT] = (dl_real)between->shared_recent;
        if (s == 1) {
            to[DL_SELF_COMPANY] = log_of((double)between->company);
            to[DL_SELF_COMPANY_MEAN] = log_of((double)between->company_mean);
            to[DL_SELF_COMPANY_SHARE] = (dl_real)between->company_share;
        }
    }
    if (batch->config->arrival_age && s == 1 && between->has_order) order_columns(to, between);
}

/* ---- window tokens ---------------------------------------------------------------------- */

/* What a window's times are told against. */
struct moment {
    int64_t time;
    uint32_t ordinal;
    uint64_t events;
};

/* All columns but DL_TOKEN_OTHER, which is 0, and the encodings'. */
static void window_tokens(const struct dl_batch *batch, const struct dl_side *side, uint32_t count,
                          uint32_t feature_count, struct moment now, dl_real *to, dl_real *elapsed)
{
    const struct dl_encoding *encoding = batch->encoding;
    for (uint32_t i = 0; i < count; i++, to += batch->layout.columns) {
        const struct dl_interaction *event = &side->window[i];
        uint32_t lag = now.ordinal > event->ordinal ? now.ordinal - event->ordinal : 0;
        double since = elapsed_of(batch, now.time, event->time);
        to[DL_TOKEN_WEIGHT] = weight_of(batch, event->weight);
        to[DL_TOKEN_DIRECTION] = event->out ? 1 : -1;
        to[DL_TOKEN_OTHER] = 0;
        to[DL_TOKEN_ELAPSED] = log_of(since);
        to[DL_TOKEN_LAG_0] = lag == 0;
        to[DL_TOKEN_LAG_1] = lag == 1;
        to[DL_TOKEN_AGE] = age_of(batch, now.events, event->seq);
        elapsed[i] = (dl_real)(since < DL_ELAPSED_MAX ? since : DL_ELAPSED_MAX);
        for (uint32_t f = 0; f < batch->config->feature_count; f++) {
            double value = side->features != NULL && f < feature_count
                               ? (double)side->features[(size_t)i * feature_count + f]
                               : 0;
            to[batch->layout.features + f] =
                (dl_real)((value - encoding->feature_mean[f]) / encoding->feature_sd[f]);
        }
    }
}

static struct moment moment_of(const struct dl_query *query)
{
    return (struct moment){query->time, query->ordinal, query->feed.events};
}

static uint16_t count_of(uint32_t peer, const uint32_t *peers, uint32_t count)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) seen += peers[i] == peer;
    return (uint16_t)seen;
}

static uint32_t tokens_of(const struct dl_batch *batch, const struct dl_side *side)
{
    return side->window_count < batch->config->window ? side->window_count : batch->config->window;
}

static uint32_t copy_peers(const struct dl_batch *batch, const struct dl_side *side, int s)
{
    uint32_t count = tokens_of(batch, side);
    for (uint32_t i = 0; i < count; i++) batch->peers[s][i] = side->window[i].peer;
    return count;
}

uint32_t dl_batch_window(const struct dl_batch *batch, const struct dl_batch_side *side,
                         dl_real *token, dl_real *elapsed, uint16_t *seen)
{
    const struct dl_interaction *window = side->side->window;
    /* The source's peers stay for the pairs to come; a candidate's do not. */
    uint32_t count = tokens_of(batch, side->side), *peers = batch->peers[1];
    if (count == 0) return 0;
    struct moment newest = {window[0].time, window[0].ordinal, window[0].seq + 1};
    window_tokens(batch, side->side, count, side->query->feature_count, newest, token, elapsed);
    for (uint32_t i = 0; i < count; i++) peers[i] = window[i].peer;
    for (uint32_t i = 0; i < count; i++) seen[i] = count_of(peers[i], peers, count);
    return count;
}

void dl_batch_begin(struct dl_batch *batch, const struct dl_query *query)
{
    batch->query = query;
    batch->source_side = UINT32_MAX;
    batch->source_is_new = 1;
    forget_plain_rows(batch);
    uint32_t count = copy_peers(batch, &query->source, 0);
    batch->source_count = count;
    node_columns(batch->source_self, batch, &query->source.state);
    if (batch->form == DL_BATCH_JOINT)
        window_tokens(batch, &query->source, count, query->feature_count, moment_of(query),
                      batch->source_token, batch->source_elapsed);
    for (uint32_t i = 0; i < count; i++)
        batch->source_seen[i] = count_of(batch->peers[0][i], batch->peers[0], count);
    for (uint32_t i = 0; i < count && batch->form == DL_BATCH_JOINT; i++) {
        batch->plain_seen[2 * i] = batch->source_seen[i];
        batch->plain_seen[2 * i + 1] = 0;
    }
}

/* Appends a side's tokens. `seen` (count, 2) stands where those that are kept
 * will: it is closed up over rows that are like others. */
static void joint_tokens(struct dl_batch *batch, int s, const struct dl_side *candidate,
                         uint32_t count, uint32_t other, uint16_t *seen)
{
    const size_t columns = batch->layout.columns;
    dl_real *token = batch->token + batch->window_rows * columns;
    dl_real *elapsed = batch->elapsed + batch->window_rows;
    uint32_t *like = batch->like + batch->rows;
    uint32_t *position = batch->position + batch->rows, kept = 0;
    if (s == 1)
        window_tokens(batch, candidate, count, batch->query->feature_count, moment_of(batch->query),
                      token, elapsed);
    position[0] = 0;
    like[0] = DL_ROW_OWN;
    for (uint32_t i = 0; i < count; i++) {
        const int is_other = batch->peers[s][i] == other;
        position[i + 1] = i + 1;
        like[i + 1] = DL_ROW_OWN;
        if (s == 0 && !is_other && seen[2 * i + 1] == 0) {
            like[i + 1] = batch->carries ? i : batch->plain_row[i];
            if (like[i + 1] != DL_ROW_OWN) continue;
            batch->plain_row[i] = batch->rows + i + 1;
        }
        if (s == 0) {
            memcpy(token + kept * columns, batch->source_token + i * columns,
                   columns * sizeof *token);
            elapsed[kept] = batch->source_elapsed[i];
        }
        token[kept * columns + DL_TOKEN_OTHER] = is_other;
        seen[2 * kept] = seen[2 * i];
        seen[2 * kept + 1] = seen[2 * i + 1];
        kept++;
    }
    batch->rows += count + 1;
    batch->window_rows += kept;
}

/* Names the pair's windows, the source's once for all pairs of its query. */
static void name_sides(struct dl_batch *batch, const struct dl_side *candidate, uint64_t place)
{
    const size_t pair = batch->pairs;
    const struct dl_query *query = batch->query;
    const struct dl_side *sides[2] = {&query->source, candidate};
    if (batch->source_side == UINT32_MAX) {
        batch->source_side = batch->sides;
        batch->side[batch->sides++] = (struct dl_batch_side){&query->source, query, ~place};
    }
    batch->pair_sides[2 * pair] = batch->source_side;
    batch->pair_sides[2 * pair + 1] = batch->sides;
    batch->side[batch->sides++] = (struct dl_batch_side){candidate, query, place};
    for (int s = 0; s < 2; s++) {
        dl_real *since = batch->since + (2 * pair + (size_t)s) * DL_SINCE_COLUMNS;
        const struct dl_interaction *newest = sides[s]->window;
        int any = sides[s]->window_count > 0;
        since[0] = any ? log_of(elapsed_of(batch, query->time, newest->time)) : 0;
        since[1] = any ? age_of(batch, query->feed.events, newest->seq) : 0;
    }
}

void dl_batch_add(struct dl_batch *batch, uint32_t index, uint64_t place)
{
    const struct dl_query *query = batch->query;
    DL_CHECK(batch->pairs < batch->pairs_max && index < query->candidate_count);
    const struct dl_side *candidate = &query->candidates[index];
    const size_t pair = batch->pairs;
    const uint32_t nodes[2] = {query->source.node, candidate->node};
    uint32_t counts[2] = {batch->source_count, copy_peers(batch, candidate, 1)};
    for (int s = 0; s < 2; s++) {
        dl_real *self = batch->self + (2 * pair + (size_t)s) * DL_SELF_COLUMNS;
        uint16_t *seen = batch->seen + 2 * (size_t)batch->window_rows;
        if (s == 0)
            memcpy(self, batch->source_self, DL_SELF_COLUMNS * sizeof *self);
        else
            node_columns(self, batch, &candidate->state);
        for (uint32_t i = 0; i < counts[s]; i++) {
            uint32_t peer = batch->peers[s][i];
            seen[2 * i] =
                s == 0 ? batch->source_seen[i] : count_of(peer, batch->peers[0], counts[0]);
            seen[2 * i + 1] = count_of(peer, batch->peers[1], counts[1]);
        }
        if (batch->config->pair_memory) pair_memory(self, batch, &query->pairs[index], s);
        window_memory(self, batch, s, counts[s], nodes[1 - s], seen);
        longer_history(self, batch, &query->between[index], s);
        dl_reading_standardise(&batch->encoding->reading, s, self);
        if (batch->form == DL_BATCH_JOINT)
            joint_tokens(batch, s, candidate, counts[s], nodes[1 - s], seen);
    }
    if (batch->form == DL_BATCH_APART) name_sides(batch, candidate, place);
    batch->source_rows[pair] = 1 + counts[0];
    batch->tokens[pair] = 2 + counts[0] + counts[1];
    batch->place[pair] = place;
    batch->pairs++;
    batch->start[batch->pairs] = batch->rows;
}
