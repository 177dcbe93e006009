/* Tokens of a pair from a query. */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "model/features.h"

const char *const dl_token_column_names[DL_TOKEN_COLUMNS] = {
    "weight", "direction", "other", "elapsed", "lag_0", "lag_1", "age",
};

const char *const dl_self_column_names[DL_SELF_COLUMNS] = {
    "history",        "now",          "now_count",      "now_out",
    "lag_1",          "lag",          "before_count",   "before_out",
    "previous_lag_1", "previous_lag", "previous_count", "previous_out",
    "total",          "pair",         "pair_lag_0",     "pair_lag_1",
    "pair_out",       "pair_lag",     "pair_weight",    "pair_count",
    "pair_share",
};

struct dl_token_layout dl_token_layout_of(const struct dl_network_config *config)
{
    struct dl_token_layout layout;
    layout.features = DL_TOKEN_COLUMNS;
    layout.time = layout.features + config->feature_count;
    layout.seen = layout.time + (config->time_encoding ? DL_TIME_COLUMNS : 0);
    layout.columns = layout.seen + (config->cooccurrence ? DL_SEEN_COLUMNS : 0);
    return layout;
}

void dl_batch_carve(struct dl_batch *batch, struct dl_arena *arena,
                    const struct dl_network_config *config, uint32_t pairs_max)
{
    size_t window_rows = (size_t)pairs_max * 2 * config->window;
    batch->pairs_max = pairs_max;
    batch->rows_max = pairs_max * 2 * (config->window + 1);
    batch->start = dl_arena_take(arena, pairs_max + 1, sizeof *batch->start);
    batch->source_rows = dl_arena_take(arena, pairs_max, sizeof *batch->source_rows);
    batch->place = dl_arena_take(arena, pairs_max, sizeof *batch->place);
    batch->position = dl_arena_take(arena, batch->rows_max, sizeof *batch->position);
    batch->self = dl_arena_take(arena, (size_t)pairs_max * 2 * DL_SELF_COLUMNS, sizeof(dl_real));
    batch->token =
        dl_arena_take(arena, window_rows * dl_token_layout_of(config).columns, sizeof(dl_real));
    batch->elapsed = dl_arena_take(arena, window_rows, sizeof(dl_real));
    batch->seen = dl_arena_take(arena, window_rows * 2, sizeof *batch->seen);
}

void dl_batch_clear(struct dl_batch *batch)
{
    batch->pairs = batch->rows = batch->window_rows = 0;
    batch->start[0] = 0;
}

/* L(x); x ≥ 0. */
static dl_real log_of(double x)
{
    return DL_REAL_FN(log1p)((dl_real)x) / 4;
}

static dl_real weight_of(const struct dl_encoding *encoding, float weight)
{
    double w = copysign(log1p(fabs((double)weight)), (double)weight);
    return (dl_real)((w - encoding->weight_mean) / encoding->weight_sd);
}

static uint32_t lag_of(const struct dl_query *query, uint32_t ordinal)
{
    return query->ordinal > ordinal ? query->ordinal - ordinal : 0;
}

static dl_real share_of(uint32_t part, uint32_t whole)
{
    return whole > 0 ? (dl_real)part / (dl_real)whole : 0;
}

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

/* `out`: the direction of the pair's state that leads away from this side. */
static void pair_memory(dl_real *to, const struct dl_encoding *encoding,
                        const struct dl_query *query, const struct dl_pair_state *pair, int out)
{
    if (pair->count[0] == 0 && pair->count[1] == 0) return;
    int last = pair->count[0] == 0 || (pair->count[1] > 0 && pair->last_seq[1] > pair->last_seq[0]);
    uint32_t lag = lag_of(query, pair->last_ordinal[last]);
    double count = (double)pair->count[0] + (double)pair->count[1];
    to[DL_SELF_PAIR] = 1;
    to[DL_SELF_PAIR_LAG_0] = lag == 0;
    to[DL_SELF_PAIR_LAG_1] = lag == 1;
    to[DL_SELF_PAIR_OUT] = last == out;
    to[DL_SELF_PAIR_LAG] = log_of(lag);
    to[DL_SELF_PAIR_WEIGHT] = weight_of(encoding, pair->last_weight[last]);
    to[DL_SELF_PAIR_COUNT] = log_of(count);
    to[DL_SELF_PAIR_SHARE] = (dl_real)(pair->count[out] / count);
}

static void window_token(dl_real *to, const struct dl_network_config *config,
                         const struct dl_encoding *encoding, const struct dl_query *query,
                         const struct dl_interaction *event, uint32_t other, dl_real *elapsed)
{
    double since = query->time > event->time ? (double)query->time - (double)event->time : 0;
    uint32_t lag = lag_of(query, event->ordinal);
    since /= encoding->gap;
    to[DL_TOKEN_WEIGHT] = weight_of(encoding, event->weight);
    to[DL_TOKEN_DIRECTION] = event->out ? 1 : -1;
    to[DL_TOKEN_OTHER] = event->peer == other;
    to[DL_TOKEN_ELAPSED] = log_of(since);
    to[DL_TOKEN_LAG_0] = lag == 0;
    to[DL_TOKEN_LAG_1] = lag == 1;
    to[DL_TOKEN_AGE] = config->arrival_age && query->feed.events > event->seq
                           ? log_of((double)(query->feed.events - event->seq))
                           : 0;
    *elapsed = (dl_real)(since < DL_ELAPSED_MAX ? since : DL_ELAPSED_MAX);
}

static void event_features(dl_real *to, const struct dl_network_config *config,
                           const struct dl_encoding *encoding, const float *features,
                           uint32_t count)
{
    for (uint32_t i = 0; i < config->feature_count; i++) {
        double value = features != NULL && i < count ? (double)features[i] : 0;
        to[i] = (dl_real)((value - encoding->feature_mean[i]) / encoding->feature_sd[i]);
    }
}

static uint16_t count_of(uint32_t peer, const struct dl_interaction *window, uint32_t count)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < count; i++) seen += window[i].peer == peer;
    return (uint16_t)seen;
}

void dl_batch_add(struct dl_batch *batch, const struct dl_network_config *config,
                  const struct dl_encoding *encoding, const struct dl_query *query, uint32_t index,
                  uint64_t place)
{
    DL_CHECK(batch->pairs < batch->pairs_max && index < query->candidate_count);
    const struct dl_token_layout layout = dl_token_layout_of(config);
    const struct dl_side *sides[2] = {&query->source, &query->candidates[index]};
    uint32_t counts[2];
    for (int s = 0; s < 2; s++)
        counts[s] =
            sides[s]->window_count < config->window ? sides[s]->window_count : config->window;
    uint32_t row = batch->rows, at = batch->window_rows, pair = batch->pairs;
    for (int s = 0; s < 2; s++) {
        const struct dl_side *side = sides[s];
        dl_real *self = batch->self + (size_t)(2 * pair + (uint32_t)s) * DL_SELF_COLUMNS;
        memset(self, 0, DL_SELF_COLUMNS * sizeof *self);
        activity(self, query, &side->state);
        if (config->pair_memory) pair_memory(self, encoding, query, &query->pairs[index], s);
        batch->position[row++] = 0;
        for (uint32_t i = 0; i < counts[s]; i++, at++) {
            const struct dl_interaction *event = &side->window[i];
            dl_real *token = batch->token + (size_t)at * layout.columns;
            window_token(token, config, encoding, query, event, sides[1 - s]->node,
                         &batch->elapsed[at]);
            const float *features =
                side->features ? side->features + (size_t)i * query->feature_count : NULL;
            event_features(token + layout.features, config, encoding, features,
                           query->feature_count);
            for (int t = 0; t < 2 && config->cooccurrence; t++)
                batch->seen[2 * at + (uint32_t)t] =
                    count_of(event->peer, sides[t]->window, counts[t]);
            batch->position[row++] = i + 1;
        }
    }
    batch->source_rows[pair] = 1 + counts[0];
    batch->place[pair] = place;
    batch->pairs++;
    batch->rows = row;
    batch->window_rows = at;
    batch->start[batch->pairs] = row;
}
