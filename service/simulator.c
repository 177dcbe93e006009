/* The simulated feed. See simulator.h for what it does.
 *
 * A node is a slot; who sits in it changes when a node leaves, so `identity`
 * makes the name. Only +, −, ·, /, sqrt and comparisons decide what happens
 * next, beside exp, log and cos on the way to times and weights. */
#include "service/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define FAVOURITES 4
#define RECENT 32 /* events that may be replied to */
#define DAY_MS 86400000.0
#define PEAK_HOUR 13.0

/* What happens how often; the rest are favourites. */
#define P_BURST_START 0.03
#define P_BURST_GOES_ON 0.7
#define P_REPLY 0.10
#define P_COMMUNITY 0.12
#define P_FRIEND_OF_FRIEND 0.06
#define P_ANYONE 0.04
#define P_BURST_REPLY 0.4
#define BURST_MAX 8 /* events */
#define BURST_SPEED 20.0
/* A node's favourites and the nodes themselves are replaced at these rates, an event. */
#define P_NEW_FAVOURITE 0.02
#define P_NEW_NODE 0.001
#define WEIGHT_MEDIAN 40.0
#define WEIGHT_SPREAD 0.5 /* of log weights, between nodes and within one */

struct node {
    uint32_t identity;
    uint32_t community;
    uint32_t favourites[FAVOURITES]; /* most liked first */
    double weight_scale;
};

struct pair {
    uint32_t src, dst;
};

struct dl_simulator {
    struct dl_simulator_config config;
    struct dl_rng rng;
    uint64_t index;
    double time_ms;
    double rate; /* events a ms, the rhythm aside */
    double peak_hour, weight_factor;
    uint32_t communities;
    uint32_t identities; /* given out */
    struct node *nodes;
    double *activity;  /* (nodes): running sum of the nodes' activity */
    uint32_t *members; /* (nodes): slots sorted by community */
    uint32_t *first;   /* (communities + 1): where a community's members start */
    struct pair recent[RECENT];
    struct pair burst;
    int in_burst; /* events of it so far; 0: none */
    char src_name[24], dst_name[24];
};

const struct dl_simulator_config dl_simulator_config_default = {.nodes = 500,
                                                                .community_size = 20,
                                                                .events_per_day = 250,
                                                                .rhythm = 0.8,
                                                                .start_ms = 1767225600000,
                                                                .seed = 1};

/* ---- shifts ------------------------------------------------------------------- */

static const struct {
    const char *name;
    double amount, least, most;
} kinds[] = {[DL_SHIFT_NONE] = {"none", 0, 0, 0},
             [DL_SHIFT_RATE] = {"rate", 3, 0.001, 1000},
             [DL_SHIFT_PARTNERS] = {"partners", 1, 0.001, 1},
             [DL_SHIFT_COMMUNITIES] = {"communities", 1, 0.001, 1},
             [DL_SHIFT_TIME_OF_DAY] = {"time-of-day", 8, -24, 24},
             [DL_SHIFT_WEIGHT] = {"weight", 3, 0.000001, 1000000}};
#define KINDS (sizeof kinds / sizeof *kinds)

const char *dl_shift_kind_name(enum dl_shift_kind kind)
{
    return (size_t)kind < KINDS ? kinds[kind].name : "none";
}

int dl_shift_kind_parse(struct dl_slice name, enum dl_shift_kind *kind)
{
    for (size_t k = 1; k < KINDS; k++)
        if (dl_slice_equal(name, dl_slice_text(kinds[k].name))) {
            *kind = (enum dl_shift_kind)k;
            return DL_OK;
        }
    return DL_ERR_INVALID;
}

int dl_shift_parse(const char *text, struct dl_shift *shift, struct dl_error *error)
{
    const char *at = strchr(text, '@'), *colon = strchr(text, ':');
    *shift = (struct dl_shift){DL_SHIFT_NONE, 0, 0};
    if (!at)
        return dl_error_set(error, DL_ERR_INVALID,
                            "shift \"%.60s\" names no event; write KIND@INDEX, such as rate@30000",
                            text);
    if (colon > at) colon = NULL;
    const char *end = colon ? colon : at;
    if (dl_shift_kind_parse(dl_slice_of(text, (size_t)(end - text)), &shift->kind))
        return dl_error_set(error, DL_ERR_INVALID,
                            "shift \"%.60s\" is of no known kind; the kinds are rate, partners, "
                            "communities, time-of-day, weight",
                            text);
    if (colon) {
        char *stop;
        shift->amount = strtod(colon + 1, &stop);
        if (stop != at || colon + 1 == at || !isfinite(shift->amount) || shift->amount == 0 ||
            shift->amount < kinds[shift->kind].least || shift->amount > kinds[shift->kind].most)
            return dl_error_set(
                error, DL_ERR_INVALID,
                "shift \"%.60s\": the amount of %s goes from %g to %g, and is not 0", text,
                kinds[shift->kind].name, kinds[shift->kind].least, kinds[shift->kind].most);
    }
    if (at[1] < '0' || at[1] > '9' || strlen(at + 1) > 18 ||
        strspn(at + 1, "0123456789") != strlen(at + 1))
        return dl_error_set(error, DL_ERR_INVALID,
                            "shift \"%.60s\": what follows the @ is an event's index, from 0",
                            text);
    shift->index = strtoull(at + 1, NULL, 10);
    return DL_OK;
}

/* ---- the population -------------------------------------------------------------- */

static uint32_t below(struct dl_simulator *s, uint32_t count)
{
    return (uint32_t)dl_rng_below(&s->rng, count);
}

static int chance(struct dl_simulator *s, double p)
{
    return dl_rng_uniform(&s->rng) < p;
}

/* A node by activity: binary search in the running sums. */
static uint32_t draw_active(struct dl_simulator *s)
{
    double x = dl_rng_uniform(&s->rng) * s->activity[s->config.nodes - 1];
    uint32_t low = 0, high = s->config.nodes - 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->activity[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static uint32_t draw_member(struct dl_simulator *s, uint32_t community)
{
    uint32_t first = s->first[community], count = s->first[community + 1] - first;
    return count ? s->members[first + below(s, count)] : draw_active(s);
}

static uint32_t draw_favourite(struct dl_simulator *s, uint32_t slot)
{
    uint32_t community = s->nodes[slot].community;
    for (int tries = 0; tries < 8; tries++) {
        uint32_t other = chance(s, 0.9) ? draw_member(s, community) : draw_active(s);
        if (other != slot) return other;
    }
    return (slot + 1) % s->config.nodes;
}

static void settle(struct dl_simulator *s, uint32_t slot)
{
    for (int k = 0; k < FAVOURITES; k++) s->nodes[slot].favourites[k] = draw_favourite(s, slot);
}

/* Sorts the slots by community (counting sort). */
static void gather(struct dl_simulator *s)
{
    memset(s->first, 0, (s->communities + 1) * sizeof *s->first);
    for (uint32_t i = 0; i < s->config.nodes; i++) s->first[s->nodes[i].community + 1]++;
    for (uint32_t c = 0; c < s->communities; c++) s->first[c + 1] += s->first[c];
    /* Filling moves each start to the next one's; moved back afterwards. */
    for (uint32_t i = 0; i < s->config.nodes; i++)
        s->members[s->first[s->nodes[i].community]++] = i;
    for (uint32_t c = s->communities; c > 0; c--) s->first[c] = s->first[c - 1];
    s->first[0] = 0;
}

static void apply_shift(struct dl_simulator *s, const struct dl_shift *shift)
{
    const double amount = shift->amount != 0 ? shift->amount : kinds[shift->kind].amount;
    switch (shift->kind) {
    case DL_SHIFT_NONE:
        break;
    case DL_SHIFT_RATE:
        s->rate *= amount;
        break;
    case DL_SHIFT_WEIGHT:
        s->weight_factor *= amount;
        break;
    case DL_SHIFT_TIME_OF_DAY:
        s->peak_hour += amount;
        break;
    case DL_SHIFT_PARTNERS:
        for (uint32_t i = 0; i < s->config.nodes; i++)
            for (int k = 0; k < FAVOURITES; k++)
                if (chance(s, amount)) s->nodes[i].favourites[k] = draw_favourite(s, i);
        break;
    case DL_SHIFT_COMMUNITIES:
        for (uint32_t i = 0; i < s->config.nodes; i++)
            if (chance(s, amount)) s->nodes[i].community = below(s, s->communities);
        gather(s);
        /* Old ties within a community that is no more one are given up. */
        for (uint32_t i = 0; i < s->config.nodes; i++)
            for (int k = 0; k < FAVOURITES; k++)
                if (s->nodes[s->nodes[i].favourites[k]].community != s->nodes[i].community)
                    s->nodes[i].favourites[k] = draw_favourite(s, i);
        break;
    }
    s->in_burst = 0;
}

/* ---- life --------------------------------------------------------------------------- */

static int config_check(const struct dl_simulator_config *config, struct dl_error *error)
{
    if (config->nodes < DL_SIMULATOR_NODES_MIN || config->nodes > DL_SIMULATOR_NODES_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "simulator: %u nodes; it takes %d to %d",
                            config->nodes, DL_SIMULATOR_NODES_MIN, DL_SIMULATOR_NODES_MAX);
    if (config->community_size < 3 || config->community_size > config->nodes)
        return dl_error_set(error, DL_ERR_INVALID,
                            "simulator: communities of %u; it takes 3 to the number of nodes, %u",
                            config->community_size, config->nodes);
    if (!(config->events_per_day >= 0.001 && config->events_per_day <= 1e11))
        return dl_error_set(error, DL_ERR_INVALID,
                            "simulator: %g events a day; it takes 0.001 to 1e11",
                            config->events_per_day);
    if (!(config->rhythm >= 0 && config->rhythm <= 1))
        return dl_error_set(error, DL_ERR_INVALID, "simulator: a rhythm of %g; it takes 0 to 1",
                            config->rhythm);
    if (config->shift_count > DL_SIMULATOR_SHIFTS_MAX)
        return dl_error_set(error, DL_ERR_INVALID, "simulator: %u shifts; it takes up to %d",
                            config->shift_count, DL_SIMULATOR_SHIFTS_MAX);
    return DL_OK;
}

int dl_simulator_new(const struct dl_simulator_config *config, struct dl_simulator **result,
                     struct dl_error *error)
{
    *result = NULL;
    int status = config_check(config, error);
    if (status) return status;
    struct dl_simulator *s = calloc(1, sizeof *s);
    if (!s) goto nomem;
    s->config = *config;
    s->communities = config->nodes / config->community_size;
    s->nodes = calloc(config->nodes, sizeof *s->nodes);
    s->activity = calloc(config->nodes, sizeof *s->activity);
    s->members = calloc(config->nodes, sizeof *s->members);
    s->first = calloc(s->communities + 1, sizeof *s->first);
    if (!s->nodes || !s->activity || !s->members || !s->first) goto nomem;
    dl_rng_seed(&s->rng, config->seed);
    s->time_ms = (double)config->start_ms;
    s->rate = config->events_per_day / DAY_MS;
    s->peak_hour = PEAK_HOUR;
    s->weight_factor = 1;
    double sum = 0;
    for (uint32_t i = 0; i < config->nodes; i++) {
        /* Shuffled into communities of nearly equal size. */
        s->nodes[i].community = i % s->communities;
        s->nodes[i].identity = s->identities++;
        s->nodes[i].weight_scale = exp(WEIGHT_SPREAD * dl_rng_normal(&s->rng));
        sum += exp(0.8 * dl_rng_normal(&s->rng));
        s->activity[i] = sum;
    }
    gather(s);
    for (uint32_t i = 0; i < config->nodes; i++) settle(s, i);
    for (int k = 0; k < RECENT; k++) {
        s->recent[k].src = draw_active(s);
        s->recent[k].dst = draw_favourite(s, s->recent[k].src);
    }
    *result = s;
    return DL_OK;
nomem:
    dl_simulator_free(s);
    return dl_error_set(error, DL_ERR_NOMEM, "simulator: out of memory for %u nodes",
                        config->nodes);
}

void dl_simulator_free(struct dl_simulator *s)
{
    if (!s) return;
    free(s->nodes);
    free(s->activity);
    free(s->members);
    free(s->first);
    free(s);
}

/* ---- events --------------------------------------------------------------------------- */

static uint32_t pick_liked(struct dl_simulator *s, uint32_t slot)
{
    /* 1/2, 1/4, 1/8, 1/8 */
    int k = 0;
    while (k < FAVOURITES - 1 && chance(s, 0.5)) k++;
    return s->nodes[slot].favourites[k];
}

static struct pair pick_pair(struct dl_simulator *s)
{
    struct pair pair;
    if (chance(s, P_REPLY)) {
        const struct pair *to = &s->recent[below(s, RECENT)];
        return (struct pair){to->dst, to->src};
    }
    pair.src = draw_active(s);
    double u = dl_rng_uniform(&s->rng);
    if (u < P_COMMUNITY)
        pair.dst = draw_member(s, s->nodes[pair.src].community);
    else if (u < P_COMMUNITY + P_FRIEND_OF_FRIEND)
        pair.dst = pick_liked(s, pick_liked(s, pair.src));
    else if (u < P_COMMUNITY + P_FRIEND_OF_FRIEND + P_ANYONE)
        pair.dst = draw_active(s);
    else
        pair.dst = pick_liked(s, pair.src);
    if (pair.dst == pair.src) pair.dst = pick_liked(s, pair.src);
    return pair;
}

static void advance(struct dl_simulator *s, double speed)
{
    double hour = fmod(s->time_ms, DAY_MS) / DAY_MS * 24;
    double level = 1 + s->config.rhythm * cos(6.283185307179586 * (hour - s->peak_hour) / 24);
    /* Even at night someone is awake: the thinnest hour still moves on. */
    if (level < 0.02) level = 0.02;
    s->time_ms += -log(1 - dl_rng_uniform(&s->rng)) / (s->rate * level * speed);
}

void dl_simulator_next(struct dl_simulator *s, struct dl_edge_event *event)
{
    for (uint32_t k = 0; k < s->config.shift_count; k++)
        if (s->config.shifts[k].index == s->index) apply_shift(s, &s->config.shifts[k]);
    if (chance(s, P_NEW_FAVOURITE)) {
        uint32_t slot = below(s, s->config.nodes);
        s->nodes[slot].favourites[below(s, FAVOURITES)] = draw_favourite(s, slot);
    }
    if (chance(s, P_NEW_NODE)) {
        uint32_t slot = below(s, s->config.nodes);
        s->nodes[slot].identity = s->identities++;
        s->nodes[slot].weight_scale = exp(WEIGHT_SPREAD * dl_rng_normal(&s->rng));
        settle(s, slot);
    }
    struct pair pair;
    if (s->in_burst && s->in_burst < BURST_MAX && chance(s, P_BURST_GOES_ON)) {
        s->in_burst++;
        pair = s->burst;
        if (chance(s, P_BURST_REPLY)) pair = (struct pair){pair.dst, pair.src};
        advance(s, BURST_SPEED);
    } else {
        pair = pick_pair(s);
        /* A burst counts once among what may be replied to, or it would feed itself. */
        s->recent[below(s, RECENT)] = pair;
        s->in_burst = chance(s, P_BURST_START);
        s->burst = pair;
        advance(s, 1);
    }
    double weight = WEIGHT_MEDIAN * s->weight_factor * s->nodes[pair.src].weight_scale *
                    exp(WEIGHT_SPREAD * dl_rng_normal(&s->rng));
    snprintf(s->src_name, sizeof s->src_name, "n%06u", s->nodes[pair.src].identity);
    snprintf(s->dst_name, sizeof s->dst_name, "n%06u", s->nodes[pair.dst].identity);
    memset(event, 0, sizeof *event);
    event->src = dl_slice_text(s->src_name);
    event->dst = dl_slice_text(s->dst_name);
    event->time = (int64_t)s->time_ms;
    event->weight = (float)(floor(weight * 100 + 0.5) / 100);
    if (event->weight < 0.01f) event->weight = 0.01f;
    event->has_weight = 1;
    s->index++;
}

uint64_t dl_simulator_index(const struct dl_simulator *s)
{
    return s->index;
}
