/* driftline serve: run the service until a signal, or until it cannot go on. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "service/commands.h"
#include "service/config.h"
#include "service/log.h"
#include "service/service.h"

#define FILES_WANTED 65536

static void help(void)
{
    printf("usage: driftline serve --config FILE [--exit-at-end] [flags]\n"
           "\n"
           "Reads edges from Kafka, a file or standard input, scores each, predicts what comes\n"
           "next, watches for drift, and serves RPC and the dashboard. Ends on SIGTERM or SIGINT\n"
           "after finishing what it took in; SIGHUP reloads the model.\n"
           "\n"
           "  --exit-at-end         with a file or standard input: end when all is taken in\n"
           "\n"
           "examples:\n"
           "  driftline serve --config driftline.yaml\n"
           "  driftline serve --brokers localhost:9092 --topics edges --encoding json \\\n"
           "      --map src=/user/id --map dst=/item/id --map time=/at --time-unit ms \\\n"
           "      --model model.safetensors --store edges.db\n"
           "\n");
    dl_config_print_help(stdout);
}

/* Takes a flag without a value out of argv. */
static int take_flag(int *argc, char **argv, const char *name)
{
    for (int at = 1; at < *argc; at++) {
        if (strcmp(argv[at], name) != 0) continue;
        memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv);
        (*argc)--;
        return 1;
    }
    return 0;
}

/* A thousand subscribers and dashboards are more files than the usual 1,024. */
static void allow_many_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= FILES_WANTED) return;
    files.rlim_cur = files.rlim_max < FILES_WANTED ? files.rlim_max : FILES_WANTED;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        DL_WARN("serve", "the limit of open files stays as it is: %s", strerror(errno));
}

int dl_cmd_serve(int argc, char **argv)
{
    struct dl_config config;
    struct dl_error error = {""};
    struct dl_service *service = NULL;
    int code = DL_EXIT_USAGE;
    if (take_flag(&argc, argv, "--help") || take_flag(&argc, argv, "-h")) {
        help();
        return DL_EXIT_OK;
    }
    int stop_at_end = take_flag(&argc, argv, "--exit-at-end");
    int status = dl_config_load(&config, &argc, argv, &error);
    if (argc > 1) {
        fprintf(stderr, "driftline serve: %s is no flag of this command (--help lists them)\n",
                argv[1]);
        goto done;
    }
    if (status != DL_OK) {
        for (size_t k = 0; k < config.problems.count; k++)
            fprintf(stderr, "driftline serve: %s\n", config.problems.items[k]);
        if (config.problems.count == 0) fprintf(stderr, "driftline serve: %s\n", error.text);
        goto done;
    }
    dl_log_setup(config.log.level, config.log.format);
    allow_many_files();
    uv_loop_t loop;
    uv_loop_init(&loop);
    struct dl_service_options options = {
        .config = &config, .handle_signals = 1, .stop_at_end = stop_at_end};
    code = DL_EXIT_FAILED;
    if (dl_service_new(&loop, &options, &service, &error) != DL_OK) {
        fprintf(stderr, "driftline serve: %s\n", error.text);
    } else {
        if (dl_service_rpc_address(service)[0])
            DL_INFO("serve", "gRPC on %s", dl_service_rpc_address(service));
        if (dl_service_http_url(service)[0])
            DL_INFO("serve", "dashboard on %s", dl_service_http_url(service));
        uv_run(&loop, UV_RUN_DEFAULT);
        if (dl_service_failure(service))
            fprintf(stderr, "driftline serve: %s\n", dl_service_failure(service));
        else
            code = DL_EXIT_OK;
        dl_service_free(service);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    uv_loop_close(&loop);
done:
    dl_config_deinit(&config);
    return code;
}
