/* The simulated feed: repeatable, stationary without a shift, shifted with one. */
#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dictionary.h"
#include "service/simulator.h"

static struct dl_simulator *start(const struct dl_simulator_config *config)
{
    struct dl_simulator *simulator;
    struct dl_error error;
    cr_assert_eq(dl_simulator_new(config, &simulator, &error), 0, "%s", error.text);
    return simulator;
}

static uint64_t fingerprint(uint64_t seed, int events)
{
    struct dl_simulator_config config = dl_simulator_config_default;
    config.seed = seed;
    struct dl_simulator *simulator = start(&config);
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < events; i++) {
        struct dl_edge_event event;
        char text[120];
        dl_simulator_next(simulator, &event);
        int size =
            snprintf(text, sizeof text, "%.*s %.*s %lld %.2f", (int)event.src.size,
                     (const char *)event.src.data, (int)event.dst.size,
                     (const char *)event.dst.data, (long long)event.time, (double)event.weight);
        for (int k = 0; k < size; k++) hash = (hash ^ (uint8_t)text[k]) * 1099511628211u;
    }
    dl_simulator_free(simulator);
    return hash;
}

Test(simulator, gives_the_same_feed_for_the_same_seed)
{
    cr_assert_eq(fingerprint(5, 5000), fingerprint(5, 5000));
    cr_assert_neq(fingerprint(5, 5000), fingerprint(6, 5000));
}

/* Plain facts of a stretch of events. */
struct facts {
    double days, weight, hour_cos, repeated, self_loops;
};

static struct facts look(struct dl_simulator *simulator, struct dl_dictionary *pairs, int events)
{
    struct facts facts = {0, 0, 0, 0, 0};
    int64_t first = 0, last = 0;
    for (int i = 0; i < events; i++) {
        struct dl_edge_event event;
        char pair[64];
        uint32_t id;
        int added;
        dl_simulator_next(simulator, &event);
        if (!i) first = event.time;
        cr_assert(i == 0 || event.time >= last);
        last = event.time;
        cr_assert(event.src.size > 1 && event.dst.size > 1 && event.weight > 0);
        snprintf(pair, sizeof pair, "%.*s %.*s", (int)event.src.size, (const char *)event.src.data,
                 (int)event.dst.size, (const char *)event.dst.data);
        cr_assert_eq(dl_dictionary_intern(pairs, 0, dl_slice_text(pair), &id, &added), 0);
        facts.repeated += !added;
        facts.self_loops += dl_slice_equal(event.src, event.dst);
        facts.weight += log(event.weight);
        facts.hour_cos += cos(6.283185307179586 * fmod((double)event.time / 86400000.0, 1));
    }
    facts.days = (double)(last - first) / 86400000.0;
    facts.repeated /= events;
    facts.weight /= events;
    facts.hour_cos /= events;
    return facts;
}

static void before_and_after(enum dl_shift_kind kind, struct facts *before, struct facts *after)
{
    enum { SETTLE = 10000, EVENTS = 5000 };
    struct dl_simulator_config config = dl_simulator_config_default;
    struct dl_dictionary *pairs;
    cr_assert_eq(dl_dictionary_new(1 << 20, &pairs), 0);
    config.shift_count = kind != DL_SHIFT_NONE;
    config.shifts[0] = (struct dl_shift){kind, SETTLE + EVENTS, 0};
    struct dl_simulator *simulator = start(&config);
    look(simulator, pairs, SETTLE);
    *before = look(simulator, pairs, EVENTS);
    *after = look(simulator, pairs, EVENTS);
    cr_assert_eq(dl_simulator_index(simulator), SETTLE + 2 * EVENTS);
    dl_simulator_free(simulator);
    dl_dictionary_free(pairs);
}

Test(simulator, stays_the_same_without_a_shift)
{
    struct facts before, after;
    before_and_after(DL_SHIFT_NONE, &before, &after);
    cr_assert_leq(fabs(after.days / before.days - 1), 0.1);
    cr_assert_leq(fabs(after.weight - before.weight), 0.1);
    cr_assert_leq(fabs(after.hour_cos - before.hour_cos), 0.05);
    cr_assert_leq(fabs(after.repeated - before.repeated), 0.05);
    cr_assert_gt(before.repeated, 0.6);
}

Test(simulator, each_planted_shift_moves_what_it_names)
{
    struct facts before, after;
    before_and_after(DL_SHIFT_RATE, &before, &after);
    cr_assert(before.days / after.days > 2.5 && before.days / after.days < 3.5);
    before_and_after(DL_SHIFT_WEIGHT, &before, &after);
    cr_assert_leq(fabs(after.weight - before.weight - log(3)), 0.1);
    before_and_after(DL_SHIFT_TIME_OF_DAY, &before, &after);
    cr_assert_gt(fabs(after.hour_cos - before.hour_cos), 0.3);
    before_and_after(DL_SHIFT_PARTNERS, &before, &after);
    cr_assert_gt(before.repeated - after.repeated, 0.08);
    before_and_after(DL_SHIFT_COMMUNITIES, &before, &after);
    cr_assert_gt(before.repeated - after.repeated, 0.15);
}

Test(simulator, reads_shifts_as_people_write_them)
{
    struct dl_shift shift;
    struct dl_error error;
    cr_assert_eq(dl_shift_parse("time-of-day:-6.5@123456", &shift, &error), 0);
    cr_assert(shift.kind == DL_SHIFT_TIME_OF_DAY && shift.amount == -6.5 && shift.index == 123456);
    cr_assert_eq(dl_shift_parse("rate@0", &shift, &error), 0);
    cr_assert(shift.kind == DL_SHIFT_RATE && shift.amount == 0 && shift.index == 0);
    const char *const bad[] = {"",          "rate",          "rate@",
                               "rate@-1",   "rate@1x",       "speed@10",
                               "rate:@10",  "rate:0@10",     "rate:x@1",
                               "rate:-2@1", "partners:2@10", "rate@9999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_eq(dl_shift_parse(bad[i], &shift, &error), DL_ERR_INVALID, "%s", bad[i]);
    for (int kind = 1; kind <= DL_SHIFT_WEIGHT; kind++) {
        enum dl_shift_kind parsed;
        const char *name = dl_shift_kind_name((enum dl_shift_kind)kind);
        cr_assert_eq(dl_shift_kind_parse(dl_slice_text(name), &parsed), 0);
        cr_assert_eq((int)parsed, kind);
    }
}

Test(simulator, refuses_impossible_populations)
{
    struct dl_simulator *simulator;
    struct dl_error error;
    struct dl_simulator_config config = dl_simulator_config_default;
    config.nodes = 3;
    cr_assert_eq(dl_simulator_new(&config, &simulator, &error), DL_ERR_INVALID);
    config = dl_simulator_config_default;
    config.community_size = 501;
    cr_assert_eq(dl_simulator_new(&config, &simulator, &error), DL_ERR_INVALID);
    config = dl_simulator_config_default;
    config.events_per_day = NAN;
    cr_assert_eq(dl_simulator_new(&config, &simulator, &error), DL_ERR_INVALID);
    /* One community, everybody in it, no nights. */
    config = dl_simulator_config_default;
    config.nodes = config.community_size = DL_SIMULATOR_NODES_MIN;
    config.rhythm = 1;
    struct dl_simulator *small = start(&config);
    for (int i = 0; i < 1000; i++) {
        struct dl_edge_event event;
        dl_simulator_next(small, &event);
    }
    dl_simulator_free(small);
}
