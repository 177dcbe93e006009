/* Quality, attention, pace and stall: silent on what training promised, raised
 * once and cleared once on what it did not, and the same after a restart. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "service/watch.h"

#define LAYERS 2
#define BEFORE 2000 /* events the graph had before the reference */

struct heard {
    int raised[8], cleared[8];
    uint64_t raised_seq[8], cleared_seq[8];
    struct dl_alert last;
    char reason[256];
};

static void on_alert(void *context, const struct dl_alert *alert)
{
    struct heard *heard = context;
    cr_assert(alert->reason[0] != 0);
    if (alert->raised) {
        heard->raised[alert->kind]++;
        heard->raised_seq[alert->kind] = alert->seq;
    } else {
        heard->cleared[alert->kind]++;
        heard->cleared_seq[alert->kind] = alert->seq;
    }
    heard->last = *alert;
    snprintf(heard->reason, sizeof heard->reason, "%s", alert->reason);
}

/* A model whose validation figures are those that events_at() makes. */
static struct dl_model *make_model(double ap, double entropy)
{
    char path[] = "/tmp/driftline-watch-XXXXXX";
    struct dl_network_config config = dl_network_config_default;
    struct dl_encoding encoding = {.gap = 1, .weight_sd = 1};
    struct dl_model_info info = {.calibration = {1, 0}, .time_unit = DL_TIME_S};
    struct dl_network *network;
    struct dl_model *model;
    struct dl_reference reference;
    struct dl_error error = {""};
    struct dl_rng rng;
    static float raw[2048 * DL_DRIFT_COLUMNS];
    for (int f = 0; f < DL_EVENT_FEATURES_MAX; f++) encoding.feature_sd[f] = 1;
    dl_rng_seed(&rng, 3);
    for (int i = 0; i < 2048 * DL_DRIFT_COLUMNS; i++) raw[i] = (float)dl_rng_uniform(&rng);
    for (int i = 0; i < 2048; i++)
        raw[i * DL_DRIFT_COLUMNS + DL_DRIFT_GAP] = (float)log1p(-log(1 - dl_rng_uniform(&rng)));
    cr_assert_eq(dl_drift_reference_build(raw, 2048, 1024, BEFORE, &reference, &error), 0);
    cr_assert_eq(dl_network_new(&config, &encoding, 1, &network, &error), 0);
    dl_network_updated(network);
    info.config = *dl_network_get_config(network);
    info.encoding = encoding;
    info.validation_ap = ap;
    info.data_edges = 40000;
    for (int l = 0; l < LAYERS; l++) info.validation_entropy[l] = entropy;
    snprintf(info.ties, sizeof info.ties, "stream");
    snprintf(info.negatives, sizeof info.negatives, "mixed");
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(dl_model_save(path, network, &info, &reference, &error), 0, "%s", error.text);
    cr_assert_eq(dl_model_load(path, &model, &error), 0, "%s", error.text);
    unlink(path);
    dl_network_free(network);
    dl_drift_reference_deinit(&reference);
    return model;
}

static const struct dl_watch_config config = {.quality_margin = 0.02,
                                              .dispersion_margin = 0.02,
                                              .fast_factor = 10,
                                              .run_length_events = 1e6,
                                              .gap_events = 500};

/* Scores of edges lie `lead` deviations above those of negatives; AP is 0.85
 * at a lead of 1.5. */
struct world {
    struct dl_rng rng;
    uint64_t seq;
    double lead, entropy, pace;
};
#define CALM                                                                                       \
    {                                                                                              \
        .lead = 1.5, .entropy = 0.8, .pace = 1                                                     \
    }

static float squash(double x)
{
    return (float)(1 / (1 + exp(-x)));
}

static void step(struct world *world, struct dl_watch *watch, struct dl_watch *other)
{
    struct dl_watch_attention attention = {.global_sinks = 1, .local_sinks = 2, .strongest = 3};
    for (int l = 0; l < LAYERS; l++) {
        attention.entropy[l] = (float)(world->entropy + 0.05 * dl_rng_normal(&world->rng));
        attention.top5_share[l] = 0.2f;
    }
    struct dl_watch_event event = {
        .seq = world->seq,
        .time = (int64_t)world->seq,
        .gap = (float)log1p(-log(1 - dl_rng_uniform(&world->rng)) / world->pace),
        .probability = squash(world->lead + dl_rng_normal(&world->rng)),
        .negative = squash(dl_rng_normal(&world->rng)),
        .attention = world->seq % DL_WATCH_ATTENTION_EVERY ? NULL : &attention};
    world->seq++;
    dl_watch_observe(watch, &event);
    if (other) dl_watch_observe(other, &event);
}

static struct dl_watch *start(struct dl_model *model, struct heard *heard)
{
    struct dl_watch *watch;
    memset(heard, 0, sizeof *heard);
    cr_assert_eq(dl_watch_new(&config, model, on_alert, heard, &watch, NULL), 0);
    return watch;
}

Test(watch, is_silent_on_what_training_promised)
{
    struct dl_model *model = make_model(0.85, 0.8);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct heard heard;
        struct dl_watch *watch = start(model, &heard);
        struct world world = CALM;
        dl_rng_seed(&world.rng, seed);
        for (int i = 0; i < 100000; i++) step(&world, watch, NULL);
        for (int k = 0; k < 8; k++) cr_assert_eq(heard.raised[k], 0, "%s", heard.reason);
        dl_watch_free(watch);
    }
    dl_model_unref(model);
}

static void once(struct world shifted, enum dl_alert_kind kind, uint64_t delay, const char *says)
{
    struct dl_model *model = make_model(0.85, 0.8);
    struct heard heard;
    struct dl_watch *watch = start(model, &heard);
    struct world world = CALM;
    dl_rng_seed(&world.rng, 9);
    for (int i = 0; i < 10000; i++) step(&world, watch, NULL);
    shifted.rng = world.rng;
    shifted.seq = world.seq;
    for (int i = 0; i < 10000; i++) step(&shifted, watch, NULL);
    cr_assert_eq(heard.raised[kind], 1, "kind %d raised %d times", (int)kind, heard.raised[kind]);
    cr_assert_eq(heard.cleared[kind], 0);
    cr_assert(dl_watch_is_raised(watch, kind));
    cr_assert_leq(heard.raised_seq[kind], 10000 + delay);
    cr_assert_not_null(strstr(heard.reason, says), "%s", heard.reason);
    world.seq = shifted.seq;
    for (int i = 0; i < 10000; i++) step(&world, watch, NULL);
    cr_assert_eq(heard.raised[kind], 1);
    cr_assert_eq(heard.cleared[kind], 1);
    cr_assert_leq(heard.cleared_seq[kind], 20000 + 2500);
    cr_assert_not(dl_watch_is_raised(watch, kind));
    for (int k = 0; k < 8; k++)
        if (k != (int)kind) cr_assert_eq(heard.raised[k], 0, "kind %d", k);
    dl_watch_free(watch);
    dl_model_unref(model);
}

Test(watch, a_quality_drop_is_raised_once_and_cleared_once)
{
    once((struct world){.lead = 0.8, .entropy = 0.8, .pace = 1}, DL_ALERT_QUALITY_DROP, 1000,
         "average precision");
}

Test(watch, dispersion_is_raised_once_and_cleared_once)
{
    once((struct world){.lead = 1.5, .entropy = 0.95, .pace = 1}, DL_ALERT_ATTENTION_DISPERSION,
         1200, "attention entropy");
}

Test(watch, a_fast_feed_is_raised_once_and_cleared_once)
{
    once((struct world){.lead = 1.5, .entropy = 0.8, .pace = 30}, DL_ALERT_FEED_FAST, 900,
         "times as fast");
}

Test(watch, a_stall_is_raised_once_and_the_next_event_clears_it)
{
    struct heard heard;
    struct dl_watch *watch = start(NULL, &heard);
    struct dl_watch_event event = {.seq = 0, .gap = NAN, .probability = NAN};
    dl_watch_stalled(watch, 30);
    dl_watch_stalled(watch, 31);
    cr_assert_eq(heard.raised[DL_ALERT_FEED_STALLED], 1);
    cr_assert_str_eq(heard.reason, "no event for 30 s");
    dl_watch_observe(watch, &event);
    event.seq = 1;
    dl_watch_observe(watch, &event);
    cr_assert_eq(heard.cleared[DL_ALERT_FEED_STALLED], 1);
    dl_watch_free(watch);
}

Test(watch, goes_on_after_a_restart_to_the_last_bit)
{
    struct dl_model *model = make_model(0.85, 0.8);
    struct heard a, b;
    struct dl_watch *through = start(model, &a), *other = start(model, &b);
    struct dl_buf saved = {0}, again = {0};
    struct world world = CALM;
    dl_rng_seed(&world.rng, 4);
    for (int i = 0; i < 16000; i++) {
        if (i == 6000) world.lead = 0.8, world.entropy = 0.95, world.pace = 30;
        if (i == 9000) world.lead = 1.5, world.entropy = 0.8, world.pace = 1;
        step(&world, through, other);
        if (i % 1013) continue;
        dl_buf_clear(&saved);
        dl_watch_save(other, &saved);
        dl_watch_free(other);
        cr_assert_eq(dl_watch_new(&config, model, on_alert, &b, &other, NULL), 0);
        for (size_t size = 0; size < saved.size; size += 1 + size / 9)
            cr_assert_neq(dl_watch_load(other, dl_slice_of(saved.data, size)), 0);
        cr_assert_eq(dl_watch_load(other, dl_buf_slice(&saved)), 0);
    }
    for (int k = 0; k < 8; k++) {
        cr_assert_eq(a.raised_seq[k], b.raised_seq[k]);
        cr_assert_eq(a.cleared_seq[k], b.cleared_seq[k]);
    }
    cr_assert_eq(a.raised[DL_ALERT_QUALITY_DROP] + a.cleared[DL_ALERT_FEED_FAST], 2);
    dl_buf_clear(&saved);
    dl_watch_save(through, &saved);
    dl_watch_save(other, &again);
    cr_assert(dl_slice_equal(dl_buf_slice(&saved), dl_buf_slice(&again)));
    dl_watch_free(other);
    struct dl_model *different = make_model(0.9, 0.8);
    cr_assert_eq(dl_watch_new(&config, different, NULL, NULL, &other, NULL), 0);
    cr_assert_eq(dl_watch_load(other, dl_buf_slice(&saved)), DL_ERR_VERSION);
    dl_watch_free(other);
    dl_watch_free(through);
    dl_buf_free(&saved), dl_buf_free(&again);
    dl_model_unref(different);
    dl_model_unref(model);
}

Test(watch, sinks_are_voted_on_across_layers)
{
    enum { TOKENS = 20 };
    float received[3 * TOKENS];
    struct dl_attention attention = {
        .token_capacity = TOKENS, .tokens = TOKENS, .received = received};
    struct dl_watch_attention out;
    for (int i = 0; i < 3 * TOKENS; i++) received[i] = 0.5f / (TOKENS - 1);
    received[0 * TOKENS + 12] = 0.5f; /* two layers of three look at token 12 */
    received[1 * TOKENS + 12] = 0.5f;
    received[2 * TOKENS + 4] = 0.5f; /* one at token 4 */
    dl_watch_attention_of(&attention, 3, 10, &out);
    cr_assert_eq(out.global_sinks, 1);
    cr_assert_eq(out.local_sinks, 1);
    cr_assert_eq(out.strongest, 2048 + 2); /* third of the candidate's side */
    attention.tokens = 15;
    dl_watch_attention_of(&attention, 3, 10, &out);
    cr_assert(isnan(out.global_sinks));
    cr_assert_eq(out.strongest, -1);
}
