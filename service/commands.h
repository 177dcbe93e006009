/* The commands of the program, one function a command. argv[0] is the
 * command's name. Each prints its own --help to standard output, its results
 * to standard output (JSON with --json), errors as one line to standard error,
 * and returns the program's exit code. */
#ifndef DL_SERVICE_COMMANDS_H
#define DL_SERVICE_COMMANDS_H

enum dl_exit {
    DL_EXIT_OK = 0,
    DL_EXIT_FAILED = 1, /* it was understood and did not succeed */
    DL_EXIT_USAGE = 2   /* flags, arguments or configuration are wrong */
};

int dl_cmd_serve(int argc, char **argv);
int dl_cmd_demo(int argc, char **argv);
int dl_cmd_ingest(int argc, char **argv);
int dl_cmd_replay(int argc, char **argv);
int dl_cmd_backup(int argc, char **argv);
int dl_cmd_check(int argc, char **argv);
int dl_cmd_train(int argc, char **argv);
int dl_cmd_evaluate(int argc, char **argv);
int dl_cmd_simulate(int argc, char **argv);
int dl_cmd_drift(int argc, char **argv);
int dl_cmd_query(int argc, char **argv);
/* driftline drift --renew: the same as driftline query renew. */
int dl_cmd_drift_renew(int argc, char **argv);
int dl_cmd_subscribe(int argc, char **argv);

#endif
