/* The whole engine and store in a simulated world, from a seed: source, disk,
 * broker, clock, crashes. What must hold, whatever happens:
 *
 *   - what readers see is what an undisturbed run publishes, byte for byte and in
 *     order: nothing lost, nothing twice, no offset ahead of its records;
 *   - a commit that was acknowledged is there after a crash, and after a power
 *     cut with synchronous = full; what is there is a prefix of what was taken in;
 *   - a node that is forgotten leaves everything at one point of the history and for
 *     good, wherever the forgetting is interrupted;
 *   - windows, histories and outcomes are those of a trivial model (reference.h);
 *   - the store checks. */
#ifndef DL_TESTS_SIM_SIMULATION_H
#define DL_TESTS_SIM_SIMULATION_H

#include <stddef.h>
#include <stdint.h>

/* What happened, summed over runs. forgotten_on: restarts that went on forgetting. */
struct sim_tally {
    uint64_t events, records, crashes, power_cuts, io_errors, waits, lost_stores, old_stores,
        orderly, forgotten, forgotten_on;
};

/* 0, or -1 and why in one line. Adds to *tally. */
int sim_run(uint64_t seed, struct sim_tally *tally, char *why, size_t why_size);

#endif
