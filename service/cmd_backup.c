/* driftline backup: a whole copy of a store, also while a service writes to it. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/commands.h"
#include "service/flags.h"
#include "service/json_out.h"
#include "store/store.h"

struct backup {
    const char *store, *to;
    int json;
};

static void help(void)
{
    printf("usage: driftline backup --store FILE --to FILE\n"
           "\n"
           "Copies a store as of one commit, also while a service writes to it, and checks the\n"
           "copy: every checksum and every count. While it copies, the store's WAL is not folded\n"
           "into its file and grows.\n"
           "\n"
           "  --store FILE          the store (store.path of the service)\n"
           "  --to FILE             the copy, which must not exist\n"
           "  --json                one JSON object at the end\n"
           "\n"
           "example:\n"
           "  driftline backup --store driftline.db --to backup-$(date +%%F).db\n");
}

static int take(int code, char *value, void *context, struct dl_error *error)
{
    struct backup *backup = context;
    (void)error;
    if (code == 's') backup->store = value;
    if (code == 't') backup->to = value;
    if (code == 'j') backup->json = 1;
    return DL_OK;
}

static int open_store(const char *path, struct dl_store **store, struct dl_error *error)
{
    struct dl_store_options options = dl_store_options_default;
    options.adopt = options.read_only = 1;
    options.create = 0;
    return dl_store_open(path, &options, store, error);
}

static int copy(const struct backup *backup, struct dl_store_report *report, struct dl_error *error)
{
    struct dl_store *store = NULL, *made = NULL;
    int status = open_store(backup->store, &store, error);
    if (status == DL_OK) status = dl_store_backup(store, backup->to, error);
    dl_store_close(store);
    if (status != DL_OK) return status;
    status = open_store(backup->to, &made, error);
    if (status == DL_OK) status = dl_store_check(made, report, error);
    dl_store_close(made);
    if (status == DL_OK && report->problems)
        status = dl_error_set(error, DL_ERR_CORRUPT, "the copy %.200s is damaged: %.200s",
                              backup->to, report->problem);
    return status;
}

int dl_cmd_backup(int argc, char **argv)
{
    static const struct option options[] = {{"store", required_argument, NULL, 's'},
                                            {"to", required_argument, NULL, 't'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct backup backup = {0};
    struct dl_store_report report = {0};
    struct dl_error error = {""};
    int flags = dl_flags_read("backup", argc, argv, options, help, take, &backup);
    if (flags == DL_FLAGS_HELPED) return DL_EXIT_OK;
    if (flags == DL_FLAGS_WRONG) return DL_EXIT_USAGE;
    if (!backup.store || !backup.to || optind < argc) {
        fprintf(stderr, "driftline backup: --store FILE and --to FILE are needed, and nothing else "
                        "(--help)\n");
        return DL_EXIT_USAGE;
    }
    if (copy(&backup, &report, &error) != DL_OK) {
        fprintf(stderr, "driftline backup: %s\n", error.text);
        return DL_EXIT_FAILED;
    }
    if (backup.json)
        printf("{\"ok\":true,\"events\":%" PRIu64 ",\"nodes\":%" PRIu64 ",\"bytes\":%" PRIu64 "}\n",
               report.log_next_seq, report.nodes, report.file_bytes);
    else
        printf("%s: a whole copy of %s, %" PRIu64 " events, %" PRIu64 " nodes, %" PRIu64 " bytes\n",
               backup.to, backup.store, report.log_next_seq, report.nodes, report.file_bytes);
    return DL_EXIT_OK;
}
