/* driftline: one program, several commands. This file finds the command,
 * teaches the rest, and is the only one that exits.
 *
 * Exit codes: 0 done, 1 failed (one line on standard error says why), 2 not
 * understood (wrong flags or arguments, invalid configuration). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/commands.h"
#include "service/suggest.h"
#include "service/version.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"serve", dl_cmd_serve, "run the service"},
    {"demo", dl_cmd_demo, "everything in one process, with a simulated feed that shifts"},
    {"simulate", dl_cmd_simulate, "write a feed with habits, and shifts where you plant them"},
    {"ingest", dl_cmd_ingest, "take recorded history into a store, nothing published"},
    {"replay", dl_cmd_replay, "publish a recorded feed to a Kafka topic"},
    {"train", dl_cmd_train, "learn a model from a recorded feed"},
    {"evaluate", dl_cmd_evaluate, "measure a model on a span that it has not seen"},
    {"drift", dl_cmd_drift, "how far a recorded feed has moved, and in what"},
    {"query", dl_cmd_query, "ask a running service: score, topk, window, explain, drift, model"},
    {"subscribe", dl_cmd_subscribe, "print what a running service publishes, as it comes"},
    {"backup", dl_cmd_backup, "copy a store, also while a service writes to it"},
    {"check", dl_cmd_check, "validate configuration, store and model; say what is wrong and where"},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *out)
{
    fprintf(out,
            "driftline watches a live feed of edges (who did something with whom, and when). It\n"
            "says which edges come next, how surprising each new edge is, and when the feed has\n"
            "moved away from what its model learnt.\n"
            "\n"
            "usage: driftline COMMAND [flags]\n"
            "\n");
    for (size_t k = 0; k < COMMANDS; k++)
        fprintf(out, "  %-10s %s\n", commands[k].name, commands[k].summary);
    fprintf(out, "  %-10s %s\n", "version", "print the version");
    fprintf(out, "  %-10s %s\n", "help", "this text; driftline help COMMAND for one command's");
    fprintf(out, "\n"
                 "Exit codes: 0 done, 1 failed, 2 not understood (flags, arguments or\n"
                 "configuration).\n");
}

static const struct command *find(const char *name)
{
    for (size_t k = 0; k < COMMANDS; k++)
        if (strcmp(commands[k].name, name) == 0) return &commands[k];
    return NULL;
}

static int unknown(const char *name)
{
    const char *names[COMMANDS + 2];
    for (size_t k = 0; k < COMMANDS; k++) names[k] = commands[k].name;
    names[COMMANDS] = "version";
    names[COMMANDS + 1] = "help";
    const char *meant = dl_suggest_nearest(name, names, COMMANDS + 2);
    if (meant)
        fprintf(stderr, "driftline: \"%s\" is no command; did you mean %s?\n", name, meant);
    else
        fprintf(stderr, "driftline: \"%s\" is no command; driftline help lists them\n", name);
    return DL_EXIT_USAGE;
}

static int version(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--json") == 0)
        printf("{\"version\":\"%s\",\"compiler\":\"%s\"}\n", DL_VERSION, __VERSION__);
    else
        printf("driftline %s (compiler %s)\n", DL_VERSION, __VERSION__);
    return DL_EXIT_OK;
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return DL_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "version") == 0 || strcmp(name, "--version") == 0)
        return version(argc - 1, argv + 1);
    bool help = strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    if (help && argc < 3) {
        print_help(stdout);
        return DL_EXIT_OK;
    }
    if (help) name = argv[2];
    const struct command *command = find(name);
    if (!command) return unknown(name);
    if (help) {
        char flag[] = "--help", *words[] = {argv[2], flag, NULL};
        return command->run(2, words);
    }
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    /* A full disk or a closed pipe is a failure too. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == DL_EXIT_OK) {
        fprintf(stderr, "driftline: cannot write to standard output\n");
        code = DL_EXIT_FAILED;
    }
    exit(code);
}
