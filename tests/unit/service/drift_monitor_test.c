/* The drift monitor on the simulated feed: silent while nothing changes, quick
 * and right about what changed, and the same after a restart. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dictionary.h"
#include "base/rng.h"
#include "service/drift_monitor.h"
#include "service/simulator.h"

#define TRAIN 20000
#define GAP_MS 300000.0
/* Sanitizers make everything many times slower, and look for other things. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEEDS 1
#else
#define SEEDS 3
#endif

struct feed {
    struct dl_simulator *simulator;
    struct dl_dictionary *nodes;
    struct dl_graph *graph;
    uint64_t seq;
    float raw[DL_DRIFT_COLUMNS];
    int64_t time;
};

static void feed_start(struct feed *feed, uint64_t seed, enum dl_shift_kind kind, uint64_t index)
{
    struct dl_simulator_config config = dl_simulator_config_default;
    struct dl_error error;
    config.seed = seed;
    config.shift_count = kind != DL_SHIFT_NONE;
    config.shifts[0] = (struct dl_shift){kind, index, 0};
    *feed = (struct feed){.seq = 0};
    cr_assert_eq(dl_simulator_new(&config, &feed->simulator, &error), 0);
    cr_assert_eq(dl_dictionary_new(1 << 20, &feed->nodes), 0);
    cr_assert_eq(dl_graph_new(&dl_graph_config_default, &feed->graph, &error), 0);
}

static void feed_stop(struct feed *feed)
{
    dl_simulator_free(feed->simulator);
    dl_dictionary_free(feed->nodes);
    dl_graph_free(feed->graph);
}

/* The next event's features, and the event into the graph. Returns its number. */
static uint64_t feed_next(struct feed *feed)
{
    struct dl_edge_event edge;
    int added;
    dl_simulator_next(feed->simulator, &edge);
    struct dl_event event = {.time = edge.time, .weight = edge.weight};
    cr_assert_eq(dl_dictionary_intern(feed->nodes, 0, edge.src, &event.src, &added), 0);
    cr_assert_eq(dl_dictionary_intern(feed->nodes, 0, edge.dst, &event.dst, &added), 0);
    dl_drift_features(feed->graph, &event, GAP_MS, DL_TIME_MS, feed->raw);
    cr_assert_eq(dl_graph_apply(feed->graph, &event), 0);
    feed->time = edge.time;
    return feed->seq++;
}

static void train(struct feed *feed, struct dl_reference *reference)
{
    struct dl_drift_builder *builder;
    struct dl_error error;
    cr_assert_eq(dl_drift_builder_new(TRAIN, &builder), 0);
    for (int i = 0; i < TRAIN; i++) {
        uint64_t seq = feed_next(feed);
        dl_drift_builder_offer(builder, seq, feed->raw);
    }
    cr_assert_eq(dl_drift_builder_finish(builder, reference, &error), 0, "%s", error.text);
    dl_drift_builder_free(builder);
}

struct heard {
    int raised, cleared;
    uint64_t raised_seq, cleared_seq;
    double p_value;
    char first[32];     /* the feature that moved most */
    char features[200]; /* all that were named */
};

static void on_alert(void *context, const struct dl_alert *alert)
{
    struct heard *heard = context;
    cr_assert_eq(alert->number, (uint64_t)(heard->raised + heard->cleared + 1));
    cr_assert_eq(alert->kind, DL_ALERT_TEMPORAL_SHIFT);
    cr_assert(alert->reason && alert->reason[0]);
    if (!alert->raised) {
        heard->cleared++;
        heard->cleared_seq = alert->seq;
        return;
    }
    cr_assert_geq(alert->statistic, alert->threshold);
    heard->p_value = alert->p_value;
    double sum = 0, last = 1;
    for (uint32_t k = 0; k < alert->feature_count; k++) {
        cr_assert(alert->features[k].share <= last && alert->features[k].share > 0);
        last = alert->features[k].share;
        sum += last;
        double before = 0, now = 0;
        cr_assert_eq(alert->features[k].before_bins, DL_DRIFT_BINS);
        cr_assert_eq(alert->features[k].now_bins, DL_DRIFT_BINS);
        cr_assert_lt(alert->features[k].low, alert->features[k].high);
        for (int b = 0; b < DL_DRIFT_BINS; b++) {
            before += (double)alert->features[k].before_histogram[b];
            now += (double)alert->features[k].now_histogram[b];
        }
        cr_assert(fabs(before - 1) < 1e-5 && fabs(now - 1) < 1e-5, "%g %g", before, now);
    }
    cr_assert_leq(sum, 1 + 1e-9);
    if (!heard->raised++) {
        heard->raised_seq = alert->seq;
        strncpy(heard->first, alert->features[0].name, sizeof heard->first - 1);
        for (uint32_t k = 0; k < alert->feature_count; k++) {
            strcat(heard->features, alert->features[k].name);
            strcat(heard->features, " ");
        }
    }
}

static struct dl_drift_monitor *monitor_start(const struct dl_reference *reference,
                                              enum dl_mmd_form form, struct heard *heard)
{
    struct dl_drift_config config = dl_drift_config_default;
    struct dl_drift_monitor *monitor;
    struct dl_error error;
    config.form = form;
    memset(heard, 0, sizeof *heard);
    cr_assert_eq(dl_drift_monitor_new(&config, reference, on_alert, heard, &monitor, &error), 0,
                 "%s", error.text);
    return monitor;
}

/* One whose alerts nobody hears. */
static struct dl_drift_monitor *quiet_start(const struct dl_reference *reference,
                                            enum dl_mmd_form form)
{
    struct dl_drift_config config = dl_drift_config_default;
    struct dl_drift_monitor *monitor;
    config.form = form;
    cr_assert_eq(dl_drift_monitor_new(&config, reference, NULL, NULL, &monitor, NULL), 0);
    return monitor;
}

static void observe(struct dl_drift_monitor *monitor, struct feed *feed)
{
    uint64_t seq = feed_next(feed);
    dl_drift_monitor_observe(monitor, feed->raw, feed->time, seq);
}

/* ---- silence -------------------------------------------------------------------- */

static void silent(uint64_t seed, enum dl_mmd_form form, int fresh_store, int events)
{
    struct feed feed;
    struct dl_reference reference;
    struct heard heard;
    struct dl_error error;
    feed_start(&feed, seed, DL_SHIFT_NONE, 0);
    train(&feed, &reference);
    struct dl_drift_monitor *monitor = monitor_start(&reference, form, &heard);
    if (fresh_store) {
        dl_graph_free(feed.graph);
        cr_assert_eq(dl_graph_new(&dl_graph_config_default, &feed.graph, &error), 0);
        feed.seq = 0;
    }
    for (int i = 0; i < events; i++) observe(monitor, &feed);
    cr_assert_eq(heard.raised, 0, "seed %d, form %d: raised at %d", (int)seed, (int)form,
                 (int)heard.raised_seq);
    struct dl_drift_snapshot snapshot;
    dl_drift_monitor_snapshot(monitor, &snapshot);
    cr_assert_eq(snapshot.state, DL_DRIFT_WATCHING);
    cr_assert_eq(snapshot.count, snapshot.window);
    cr_assert_gt(snapshot.p_value, 0.001);
    dl_drift_monitor_free(monitor);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}

Test(drift_monitor, is_silent_while_nothing_changes)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) silent(seed, DL_MMD_FOURIER, 0, 30000);
    silent(5, DL_MMD_EXACT, 0, 15000);
}

Test(drift_monitor, is_silent_on_a_replay_into_a_fresh_store)
{
    for (uint64_t seed = 6; seed < 6 + SEEDS; seed++) silent(seed, DL_MMD_FOURIER, 1, 30000);
}

/* ---- shifts ------------------------------------------------------------------------ */

static void shifted(enum dl_shift_kind kind, enum dl_mmd_form form, uint64_t seed, uint64_t delay,
                    const char *named)
{
    const uint64_t index = TRAIN + 5000;
    struct feed feed;
    struct dl_reference reference;
    struct heard heard;
    feed_start(&feed, seed, kind, index);
    train(&feed, &reference);
    struct dl_drift_monitor *monitor = monitor_start(&reference, form, &heard);
    while (feed.seq < index + 3000) observe(monitor, &feed);
    cr_assert_geq(heard.raised, 1, "%s was not found", dl_shift_kind_name(kind));
    cr_log_warn("%s, seed %d, %s: found after %d events, features: %s", dl_shift_kind_name(kind),
                (int)seed, form == DL_MMD_EXACT ? "exact" : "fourier",
                (int)(heard.raised_seq - index), heard.features);
    cr_assert_geq(heard.raised_seq, index);
    cr_assert_leq(heard.raised_seq - index, delay, "%s took %d events", dl_shift_kind_name(kind),
                  (int)(heard.raised_seq - index));
    cr_assert_not_null(strstr(named, heard.first), "%s blamed on %s", dl_shift_kind_name(kind),
                       heard.first);
    cr_assert_lt(heard.p_value, 0.01);
    /* Renewing clears at once, and the new feed is then the normal one. */
    const int raised = heard.raised;
    if (dl_drift_monitor_is_raised(monitor)) {
        dl_drift_monitor_renew(monitor);
        cr_assert_eq(heard.cleared, raised);
        cr_assert_not(dl_drift_monitor_is_raised(monitor));
        for (int i = 0; i < 6000; i++) observe(monitor, &feed);
        struct dl_drift_snapshot snapshot;
        dl_drift_monitor_snapshot(monitor, &snapshot);
        cr_assert_eq(snapshot.renewals, 1);
        cr_assert_str_eq(snapshot.reference_origin, "renewed");
        cr_assert_eq(heard.raised, raised, "%s: raised again after the renewal",
                     dl_shift_kind_name(kind));
    }
    dl_drift_monitor_free(monitor);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}

Test(drift_monitor, finds_each_planted_shift_and_names_what_moved)
{
    for (uint64_t seed = 21; seed < 21 + (SEEDS + 1) / 2; seed++) {
        shifted(DL_SHIFT_RATE, DL_MMD_FOURIER, seed, 1500, "gap src_age pair_age");
        shifted(DL_SHIFT_PARTNERS, DL_MMD_FOURIER, seed, 1000, "pair_new repeats");
        shifted(DL_SHIFT_COMMUNITIES, DL_MMD_FOURIER, seed, 1000, "pair_new common");
        shifted(DL_SHIFT_TIME_OF_DAY, DL_MMD_FOURIER, seed, 1500, "hour_sin hour_cos");
        shifted(DL_SHIFT_WEIGHT, DL_MMD_FOURIER, seed, 1000, "weight");
    }
    shifted(DL_SHIFT_WEIGHT, DL_MMD_EXACT, 23, 1000, "weight");
    shifted(DL_SHIFT_COMMUNITIES, DL_MMD_EXACT, 23, 1000, "pair_new common");
}

/* ---- restart ----------------------------------------------------------------------- */

static void assert_same_bytes(const struct dl_buf *a, const struct dl_buf *b)
{
    cr_assert_eq(a->size, b->size);
    cr_assert_eq(memcmp(a->data, b->data, a->size), 0);
}

static void restarts(enum dl_mmd_form form, int renew)
{
    struct feed feed;
    struct dl_reference reference;
    struct heard heard;
    struct dl_error error;
    feed_start(&feed, 31, DL_SHIFT_WEIGHT, TRAIN + 2000);
    train(&feed, &reference);
    struct dl_drift_monitor *through = monitor_start(&reference, form, &heard);
    struct dl_drift_monitor *other = quiet_start(&reference, form);
    struct dl_buf ref = {0}, state = {0}, again = {0};
    for (int i = 0; i < 6000; i++) {
        uint64_t seq = feed_next(&feed);
        dl_drift_monitor_observe(through, feed.raw, feed.time, seq);
        dl_drift_monitor_observe(other, feed.raw, feed.time, seq);
        if (renew && i == 3100) {
            dl_drift_monitor_renew(through);
            dl_drift_monitor_renew(other);
        }
        if (i % 700 == 13) {
            /* The other one is written down, thrown away, and read back. */
            dl_buf_clear(&ref), dl_buf_clear(&state), dl_buf_clear(&again);
            cr_assert_eq(dl_drift_monitor_save_reference(other, &ref), 0);
            cr_assert_eq(dl_drift_monitor_save_state(other, &state), 0);
            dl_drift_monitor_free(other);
            other = quiet_start(&reference, form);
            cr_assert_eq(
                dl_drift_monitor_load(other, dl_buf_slice(&ref), dl_buf_slice(&state), &error), 0,
                "%s", error.text);
            cr_assert_eq(dl_drift_monitor_generation(other), dl_drift_monitor_generation(through));
            cr_assert_eq(dl_drift_monitor_save_state(other, &again), 0);
            assert_same_bytes(&state, &again);
            dl_buf_clear(&again);
            cr_assert_eq(dl_drift_monitor_save_reference(other, &again), 0);
            assert_same_bytes(&ref, &again);
        }
        double a = dl_drift_monitor_statistic(through), b = dl_drift_monitor_statistic(other);
        cr_assert_eq(memcmp(&a, &b, sizeof a), 0, "event %d: %.17g %.17g", i, a, b);
        cr_assert_eq(dl_drift_monitor_is_raised(through), dl_drift_monitor_is_raised(other));
    }
    cr_assert_geq(heard.raised, 1);
    dl_buf_clear(&state), dl_buf_clear(&again);
    dl_drift_monitor_save_state(through, &state);
    dl_drift_monitor_save_state(other, &again);
    assert_same_bytes(&state, &again);
    dl_buf_free(&ref), dl_buf_free(&state), dl_buf_free(&again);
    dl_drift_monitor_free(through);
    dl_drift_monitor_free(other);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}

Test(drift_monitor, goes_on_after_a_restart_to_the_last_bit)
{
    restarts(DL_MMD_FOURIER, 0);
    restarts(DL_MMD_FOURIER, 1);
    restarts(DL_MMD_EXACT, 1);
}

Test(drift_monitor, refuses_saved_bytes_that_do_not_check)
{
    struct feed feed;
    struct dl_reference reference;
    struct heard heard;
    struct dl_error error;
    feed_start(&feed, 41, DL_SHIFT_WEIGHT, TRAIN + 500);
    train(&feed, &reference);
    struct dl_drift_monitor *monitor = monitor_start(&reference, DL_MMD_FOURIER, &heard);
    for (int i = 0; i < 2500; i++) observe(monitor, &feed);
    cr_assert_geq(heard.raised, 1);
    struct dl_buf ref = {0}, state = {0};
    cr_assert_eq(dl_drift_monitor_save_reference(monitor, &ref), 0);
    cr_assert_eq(dl_drift_monitor_save_state(monitor, &state), 0);
    /* Every shortening of the small part, a stride of the large one. */
    for (size_t size = 0; size < state.size; size += 1 + size / 50)
        cr_assert_neq(dl_drift_monitor_load(monitor, dl_buf_slice(&ref),
                                            dl_slice_of(state.data, size), &error),
                      0);
    for (size_t size = 0; size < ref.size; size += 1 + size / 10)
        cr_assert_neq(dl_drift_monitor_load(monitor, dl_slice_of(ref.data, size),
                                            dl_buf_slice(&state), &error),
                      0);
    /* Changed bytes: refused or taken, never worse. */
    struct dl_rng rng;
    dl_rng_seed(&rng, 3);
    struct dl_drift_monitor *victim = quiet_start(&reference, DL_MMD_FOURIER);
    for (int k = 0; k < 400; k++) {
        struct dl_buf *buf = k % 2 ? &state : &ref;
        size_t at = dl_rng_below(&rng, k % 4 < 2 ? 200 : buf->size);
        uint8_t old = buf->data[at];
        buf->data[at] = (uint8_t)dl_rng_u64(&rng);
        struct dl_drift_snapshot snapshot;
        dl_drift_monitor_load(victim, dl_buf_slice(&ref), dl_buf_slice(&state), &error);
        dl_drift_monitor_snapshot(victim, &snapshot);
        observe(victim, &feed);
        buf->data[at] = old;
    }
    dl_drift_monitor_free(victim);
    cr_assert_eq(dl_drift_monitor_load(monitor, dl_buf_slice(&ref), dl_buf_slice(&state), &error),
                 0);
    /* Another configuration, another model. */
    struct dl_drift_config config = dl_drift_config_default;
    struct dl_drift_monitor *another;
    config.window = 400;
    cr_assert_eq(dl_drift_monitor_new(&config, &reference, NULL, NULL, &another, &error), 0);
    cr_assert_eq(dl_drift_monitor_load(another, dl_buf_slice(&ref), dl_buf_slice(&state), &error),
                 DL_ERR_VERSION);
    dl_drift_monitor_free(another);
    reference.values[5] = 0.125f;
    another = monitor_start(&reference, DL_MMD_FOURIER, &heard);
    cr_assert_eq(dl_drift_monitor_load(another, dl_buf_slice(&ref), dl_buf_slice(&state), &error),
                 DL_ERR_VERSION);
    cr_assert_not_null(strstr(error.text, "another model"));
    dl_drift_monitor_free(another);
    dl_buf_free(&ref), dl_buf_free(&state);
    dl_drift_monitor_free(monitor);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}

/* ---- without a reference; the view ------------------------------------------------------ */

Test(drift_monitor, learns_a_reference_from_the_feed_when_the_model_has_none)
{
    struct feed feed;
    struct heard heard;
    struct dl_drift_snapshot snapshot;
    feed_start(&feed, 51, DL_SHIFT_WEIGHT, 20000);
    struct dl_drift_monitor *monitor = monitor_start(NULL, DL_MMD_FOURIER, &heard);
    for (int i = 0; i < 9000; i++) observe(monitor, &feed);
    dl_drift_monitor_snapshot(monitor, &snapshot);
    cr_assert_eq(snapshot.state, DL_DRIFT_LEARNING);
    cr_assert_eq(snapshot.learning_rows, 9000 - DL_DRIFT_HORIZON_EVENTS);
    cr_assert_str_eq(snapshot.reference_origin, "none");
    for (int i = 0; i < 11000; i++) observe(monitor, &feed);
    cr_assert_eq(heard.raised, 0);
    dl_drift_monitor_snapshot(monitor, &snapshot);
    cr_assert_eq(snapshot.state, DL_DRIFT_WATCHING);
    cr_assert_str_eq(snapshot.reference_origin, "feed");
    for (int i = 0; i < 1500; i++) observe(monitor, &feed);
    cr_assert_eq(heard.raised, 1);
    dl_drift_monitor_free(monitor);
    feed_stop(&feed);
}

Test(drift_monitor, shows_before_and_after)
{
    struct feed feed;
    struct dl_reference reference;
    struct heard heard;
    struct dl_drift_snapshot snapshot;
    feed_start(&feed, 61, DL_SHIFT_WEIGHT, TRAIN + 2000);
    train(&feed, &reference);
    struct dl_drift_monitor *monitor = monitor_start(&reference, DL_MMD_FOURIER, &heard);
    while (feed.seq < TRAIN + 3000) observe(monitor, &feed);
    dl_drift_monitor_snapshot(monitor, &snapshot);
    cr_assert_eq(snapshot.state, DL_DRIFT_RAISED);
    cr_assert_eq(snapshot.events, 3000);
    cr_assert_eq(heard.raised, 1);
    cr_assert_str_eq(heard.first, "weight");
    const struct dl_drift_feature_view *weight = &snapshot.features[DL_DRIFT_WEIGHT];
    cr_assert_gt(weight->share, 0.5);
    cr_assert(fabs(weight->now_mean - weight->before_mean - log(3)) < 0.2, "%g %g",
              weight->now_mean, weight->before_mean);
    uint32_t before = 0, now = 0;
    for (int b = 0; b < DL_DRIFT_BINS; b++) before += weight->before[b], now += weight->now[b];
    cr_assert_eq(before, reference.rows);
    cr_assert_eq(now, snapshot.window);
    double share = 0;
    for (uint32_t c = 0; c < snapshot.feature_count; c++) share += snapshot.features[c].share;
    cr_assert(fabs(share - 1) < 1e-9);
    cr_assert_gt(snapshot.history_count, 50);
    for (uint32_t k = 1; k < snapshot.history_count; k++)
        cr_assert_gt(snapshot.history[k].seq, snapshot.history[k - 1].seq);
    /* What was seen already is passed over. */
    double statistic = dl_drift_monitor_statistic(monitor);
    dl_drift_monitor_observe(monitor, feed.raw, feed.time, TRAIN + 10);
    cr_assert_eq(dl_drift_monitor_statistic(monitor), statistic);
    dl_drift_monitor_free(monitor);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}

Test(drift_monitor, watches_only_what_was_asked_for)
{
    struct feed feed;
    struct dl_reference reference;
    struct dl_error error;
    struct dl_drift_snapshot snapshot;
    struct heard heard = {0};
    struct dl_drift_config config = dl_drift_config_default;
    struct dl_drift_monitor *monitor;
    feed_start(&feed, 71, DL_SHIFT_WEIGHT, TRAIN + 1000);
    train(&feed, &reference);
    config.features = 1u << DL_DRIFT_PAIR_NEW | 1u << DL_DRIFT_REPEATS;
    cr_assert_eq(dl_drift_monitor_new(&config, &reference, on_alert, &heard, &monitor, &error), 0);
    for (int i = 0; i < 4000; i++) observe(monitor, &feed);
    cr_assert_eq(heard.raised, 0);
    dl_drift_monitor_snapshot(monitor, &snapshot);
    cr_assert_eq(snapshot.features[DL_DRIFT_WEIGHT].used, 0);
    cr_assert_str_eq(snapshot.features[DL_DRIFT_WEIGHT].left_out, "not asked for");
    dl_drift_monitor_free(monitor);
    config.window = 20;
    cr_assert_eq(dl_drift_monitor_new(&config, &reference, NULL, NULL, &monitor, &error),
                 DL_ERR_INVALID);
    dl_drift_reference_deinit(&reference);
    feed_stop(&feed);
}
