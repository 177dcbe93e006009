/* driftline simulate: a feed with habits, and shifts where you plant them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/commands.h"
#include "service/flags.h"
#include "service/progress.h"
#include "service/simulator.h"

#define EVENTS_DEFAULT 50000
#define PROGRESS_EVERY 4096 /* events */

enum { OUT = 1, EVENTS, NODES, COMMUNITY, PER_DAY, RHYTHM, START, SEED, SHIFT, HELP };

static const struct option long_options[] = {{"out", required_argument, NULL, OUT},
                                             {"events", required_argument, NULL, EVENTS},
                                             {"nodes", required_argument, NULL, NODES},
                                             {"community", required_argument, NULL, COMMUNITY},
                                             {"events-per-day", required_argument, NULL, PER_DAY},
                                             {"rhythm", required_argument, NULL, RHYTHM},
                                             {"start", required_argument, NULL, START},
                                             {"seed", required_argument, NULL, SEED},
                                             {"shift", required_argument, NULL, SHIFT},
                                             {"help", no_argument, NULL, HELP},
                                             {NULL, 0, NULL, 0}};

struct arguments {
    const char *out; /* NULL: standard output */
    uint64_t events;
    struct dl_simulator_config simulator;
};

static void help(void)
{
    const struct dl_simulator_config *d = &dl_simulator_config_default;
    printf("usage: driftline simulate [--out FILE] [flags]\n"
           "\n"
           "Writes a feed of edges as CSV (src,dst,time,weight; times in milliseconds), to try\n"
           "driftline on where the truth is known. The nodes have habits: communities, favourite\n"
           "partners, replies, bursts, a daily rhythm, weights of their own. The feed stays the\n"
           "same kind of feed however long it runs, until a shift that you plant:\n"
           "\n"
           "  driftline simulate --out events.csv --shift communities@40000\n"
           "  driftline train events.csv --out events.safetensors\n"
           "  driftline drift events.csv\n"
           "\n"
           "  --out FILE            where to write; - or nothing: standard output\n"
           "  --events N            how many (%d)\n"
           "  --nodes N             how many take part (%u)\n"
           "  --community N         nodes of a community, about (%u)\n"
           "  --events-per-day N    how often something happens, on average (%g)\n"
           "  --rhythm R            how much the hour of the day matters, 0 to 1 (%g)\n"
           "  --start DATE          when it begins, ISO 8601 (2026-01-01)\n"
           "  --seed N              the same seed gives the same feed (%" PRIu64 ")\n"
           "  --shift KIND@INDEX    from event INDEX (from 0) on, the feed is another one; may be\n"
           "                        given up to %d times. KIND:AMOUNT@INDEX says how much:\n"
           "                          rate         events come AMOUNT times as fast (3)\n"
           "                          partners     a share AMOUNT of favourites is new (1)\n"
           "                          communities  a share AMOUNT of nodes moves (1)\n"
           "                          time-of-day  the daily rhythm moves AMOUNT hours (8)\n"
           "                          weight       weights are AMOUNT times as large (3)\n",
           EVENTS_DEFAULT, d->nodes, d->community_size, d->events_per_day, d->rhythm, d->seed,
           DL_SIMULATOR_SHIFTS_MAX);
}

static int take_flag(int code, char *value, void *context, struct dl_error *error)
{
    struct arguments *a = context;
    struct dl_simulator_config *s = &a->simulator;
    uint64_t number = 0;
    int64_t start_us = 0;
    int status = DL_OK;

    switch (code) {
    case OUT:
        a->out = strcmp(value, "-") == 0 ? NULL : value;
        break;
    case EVENTS:
        return dl_flag_uint("events", value, 1, 1000000000000, &a->events, error);
    case SEED:
        return dl_flag_uint("seed", value, 0, UINT64_MAX, &s->seed, error);
    case NODES:
        status = dl_flag_uint("nodes", value, DL_SIMULATOR_NODES_MIN, DL_SIMULATOR_NODES_MAX,
                              &number, error);
        s->nodes = (uint32_t)number;
        break;
    case COMMUNITY:
        status = dl_flag_uint("community", value, 3, DL_SIMULATOR_NODES_MAX, &number, error);
        s->community_size = (uint32_t)number;
        break;
    case PER_DAY:
        return dl_flag_number("events-per-day", value, 0.001, 1e11, &s->events_per_day, error);
    case RHYTHM:
        return dl_flag_number("rhythm", value, 0, 1, &s->rhythm, error);
    case START:
        if (dl_time_parse_iso8601(dl_slice_text(value), &start_us) != DL_OK || start_us < 0)
            return dl_error_set(error, DL_ERR_INVALID,
                                "--start %.40s is no date from 1970 on, such as 2026-01-01", value);
        s->start_ms = start_us / 1000;
        break;
    case SHIFT:
        if (s->shift_count == DL_SIMULATOR_SHIFTS_MAX)
            return dl_error_set(error, DL_ERR_INVALID, "--shift is given more than %d times",
                                DL_SIMULATOR_SHIFTS_MAX);
        return dl_shift_parse(value, &s->shifts[s->shift_count++], error);
    default:
        break;
    }
    return status;
}

static int parse(int argc, char **argv, struct arguments *a, int *done)
{
    *a = (struct arguments){NULL, EVENTS_DEFAULT, dl_simulator_config_default};
    int flags = dl_flags_read("simulate", argc, argv, long_options, help, take_flag, a);
    *done = flags == DL_FLAGS_HELPED;
    if (*done) return DL_EXIT_OK;
    if (flags == DL_FLAGS_WRONG) return DL_EXIT_USAGE;
    if (optind != argc) {
        fprintf(stderr, "driftline simulate: %s is no flag (--out names the file to write)\n",
                argv[optind]);
        return DL_EXIT_USAGE;
    }
    for (uint32_t k = 0; k < a->simulator.shift_count; k++)
        if (a->simulator.shifts[k].index >= a->events) {
            fprintf(stderr,
                    "driftline simulate: the shift at event %" PRIu64
                    " never comes: --events is %" PRIu64 "\n",
                    a->simulator.shifts[k].index, a->events);
            return DL_EXIT_USAGE;
        }
    return DL_EXIT_OK;
}

int dl_cmd_simulate(int argc, char **argv)
{
    struct arguments a;
    struct dl_error error = {{0}};
    struct dl_simulator *simulator = NULL;
    struct dl_progress_line line;
    FILE *out = stdout;
    int done, code = parse(argc, argv, &a, &done);

    if (done || code != DL_EXIT_OK) return code;
    if (dl_simulator_new(&a.simulator, &simulator, &error) != DL_OK) {
        fprintf(stderr, "driftline simulate: %s\n", error.text);
        return DL_EXIT_USAGE;
    }
    dl_progress_line_init(&line, stderr);
    if (a.out && !(out = fopen(a.out, "w"))) {
        fprintf(stderr, "driftline simulate: %s: %s\n", a.out, strerror(errno));
        dl_simulator_free(simulator);
        return DL_EXIT_FAILED;
    }
    fputs("src,dst,time,weight\n", out);
    for (uint64_t i = 0; i < a.events && !ferror(out); i++) {
        struct dl_edge_event event;
        dl_simulator_next(simulator, &event);
        fprintf(out, "%.*s,%.*s,%" PRId64 ",%.2f\n", (int)event.src.size,
                (const char *)event.src.data, (int)event.dst.size, (const char *)event.dst.data,
                event.time, (double)event.weight);
        if (i % PROGRESS_EVERY == 0)
            dl_progress_line_advance(&line, "simulating", i, a.events, "events");
    }
    int failed = fflush(out) != 0 || ferror(out);
    if (out != stdout) failed |= fclose(out) != 0;
    dl_progress_line_end(&line);
    if (failed) {
        fprintf(stderr, "driftline simulate: %s: could not write: %s\n",
                a.out ? a.out : "standard output", strerror(errno));
        code = DL_EXIT_FAILED;
    } else if (a.out) {
        fprintf(stderr, "driftline simulate: %" PRIu64 " events in %s\n", a.events, a.out);
    }
    dl_simulator_free(simulator);
    return code;
}
