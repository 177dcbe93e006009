/* Runs of the simulation, from SIM_SEED on (1), SIM_SEEDS of them (300). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/simulation.h"

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

Test(simulation, every_seed_keeps_every_promise)
{
    struct sim_tally tally = {0};
    uint64_t first = number("SIM_SEED", 1), seeds = number("SIM_SEEDS", 300);
    FILE *trace = getenv("SIM_TRACE") ? fopen(getenv("SIM_TRACE"), "w") : NULL;
    char why[400] = "";
    for (uint64_t seed = first; seed < first + seeds; seed++) {
        if (trace) { /* for a run that does not come back */
            rewind(trace);
            fprintf(trace, "%llu\n", (unsigned long long)seed);
            fflush(trace);
        }
        int status = sim_run(seed, &tally, why, sizeof why);
        cr_assert_eq(status, 0, "seed %llu: %s (again: make sim SEED=%llu)",
                     (unsigned long long)seed, why, (unsigned long long)seed);
    }
    if (trace) fclose(trace);
    if (getenv("SIM_SEEDS"))
        printf("%llu seeds from %llu: 0 violations; %llu events, %llu records, %llu crashes, "
               "%llu power cuts, %llu I/O errors, %llu waits for room, %llu lost stores, %llu old "
               "copies, %llu orderly ends, %llu nodes forgotten, %llu times on after a start\n",
               (unsigned long long)seeds, (unsigned long long)first,
               (unsigned long long)tally.events, (unsigned long long)tally.records,
               (unsigned long long)tally.crashes, (unsigned long long)tally.power_cuts,
               (unsigned long long)tally.io_errors, (unsigned long long)tally.waits,
               (unsigned long long)tally.lost_stores, (unsigned long long)tally.old_stores,
               (unsigned long long)tally.orderly, (unsigned long long)tally.forgotten,
               (unsigned long long)tally.forgotten_on);
}
