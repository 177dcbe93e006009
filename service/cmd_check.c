/* driftline check: is this configuration, and what it names, fit to serve? */
#include <stdio.h>
#include <string.h>

#include "service/commands.h"
#include "service/config.h"

static void help(void)
{
    printf(
        "usage: driftline check --config FILE [--print] [flags]\n"
        "\n"
        "Reads the configuration as driftline serve would and says what is wrong, each with\n"
        "its file, line and key.\n"
        "\n"
        "  --print               print the configuration in force, with where each value is from\n"
        "  --markdown            print the table of keys as Markdown\n"
        "\n");
    dl_config_print_help(stdout);
}

static bool flag(int argc, char **argv, const char *name)
{
    for (int at = 1; at < argc; at++)
        if (strcmp(argv[at], name) == 0) return true;
    return false;
}

int dl_cmd_check(int argc, char **argv)
{
    if (flag(argc, argv, "--help") || flag(argc, argv, "-h")) {
        help();
        return DL_EXIT_OK;
    }
    if (flag(argc, argv, "--markdown")) {
        dl_config_print_markdown(stdout);
        return DL_EXIT_OK;
    }
    struct dl_config config;
    struct dl_error error = {{0}};
    int code = DL_EXIT_OK;
    int status = dl_config_load(&config, &argc, argv, &error);
    for (int at = 1; at < argc; at++)
        if (strcmp(argv[at], "--print") != 0) {
            fprintf(stderr, "driftline check: %s is no flag of this command (--help lists them)\n",
                    argv[at]);
            code = DL_EXIT_USAGE;
        }
    if (code == DL_EXIT_OK && status) {
        for (size_t k = 0; k < config.problems.count; k++)
            fprintf(stderr, "driftline check: %s\n", config.problems.items[k]);
        if (config.problems.count == 0) fprintf(stderr, "driftline check: %s\n", error.text);
        code = DL_EXIT_USAGE;
    }
    if (code == DL_EXIT_OK && flag(argc, argv, "--print")) dl_config_print(&config, stdout);
    dl_config_deinit(&config);
    return code;
}
