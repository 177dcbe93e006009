/* The runner behind plain/criterion/criterion.h: every test in a process of
 * its own, one after the other, and a report like Criterion's --json.
 *
 *     PROGRAM [--json=FILE] [--timeout SECONDS] [--filter TEXT] */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CODE_FAILED 101
#define CODE_SKIPPED 102
#define SLOW_SECONDS 10 /* a test that takes longer is named */

static struct plain_test *tests, **tests_end = &tests;
static unsigned failures; /* of the running test, in its own process */

void plain_test_add(struct plain_test *test)
{
    *tests_end = test;
    tests_end = &test->next;
}

void plain_failed(bool fatal, const char *file, int line, const char *what, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: not so: %s%s%s\n", file, line, what, *text ? ": " : "", text);
    failures++;
    if (fatal) exit(CODE_FAILED);
}

void plain_skip(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("skipped: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(CODE_SKIPPED);
}

static const struct plain_test *suite_of(const struct plain_test *test)
{
    static const struct plain_test none;
    for (const struct plain_test *at = tests; at; at = at->next)
        if (!at->run && strcmp(at->suite, test->suite) == 0) return at;
    return &none;
}

static _Noreturn void run_here(const struct plain_test *test, const struct plain_test *suite,
                               double timeout)
{
    void (*init)(void) = test->init ? test->init : suite->init;
    void (*fini)(void) = test->fini ? test->fini : suite->fini;
    if (timeout >= 1) alarm((unsigned)timeout);
    if (init) init();
    test->run();
    if (fini) fini();
    exit(failures ? CODE_FAILED : test->exit_code); /* at exit the sanitizer has its say */
}

/* What became of it: "PASSED", "FAILED" or "SKIPPED". */
static const char *run(const struct plain_test *test, double timeout)
{
    const struct plain_test *suite = suite_of(test);
    int state = 0;
    if (test->disabled || suite->disabled) return "SKIPPED";
    fflush(NULL);
    time_t began = time(NULL);
    pid_t child = fork();
    if (child == 0) run_here(test, suite, test->timeout > 0 ? test->timeout : timeout);
    if (child < 0 || waitpid(child, &state, 0) != child) return "FAILED";
    if (time(NULL) - began >= SLOW_SECONDS)
        fprintf(stderr, "slow: %s: %s took %ld s\n", test->suite, test->name,
                (long)(time(NULL) - began));
    if (WIFEXITED(state) && WEXITSTATUS(state) == CODE_SKIPPED) return "SKIPPED";
    bool good = test->signal ? WIFSIGNALED(state) && WTERMSIG(state) == test->signal
                             : WIFEXITED(state) && WEXITSTATUS(state) == test->exit_code;
    if (!good)
        fprintf(stderr, "FAILED: %s: %s (%s %d)\n", test->suite, test->name,
                WIFSIGNALED(state) ? "signal" : "exit code",
                WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
    return good ? "PASSED" : "FAILED";
}

int main(int argc, char **argv)
{
    const char *json = NULL, *filter = "";
    double timeout = 600;
    unsigned passed = 0, failed = 0, skipped = 0;
    for (int at = 1; at < argc; at++) {
        if (strncmp(argv[at], "--json=", 7) == 0)
            json = argv[at] + 7;
        else if (strcmp(argv[at], "--timeout") == 0 && at + 1 < argc)
            timeout = atof(argv[++at]);
        else if (strcmp(argv[at], "--filter") == 0 && at + 1 < argc)
            filter = argv[++at];
    }
    FILE *out = json ? fopen(json, "w") : NULL;
    if (json && !out) {
        perror(json);
        return 1;
    }
    if (out) fputs("{\"test_suites\":[{\"name\":\"all\",\"tests\":[", out);
    for (const struct plain_test *test = tests; test; test = test->next) {
        if (!test->run || !(strstr(test->name, filter) || strstr(test->suite, filter))) continue;
        if (out) /* before the fork, so that the child has nothing to write twice */
            fprintf(out, "%s{\"name\":\"%s: %s\",", passed + failed + skipped ? "," : "",
                    test->suite, test->name);
        const char *state = run(test, timeout);
        passed += *state == 'P';
        failed += *state == 'F';
        skipped += *state == 'S';
        if (out) fprintf(out, "\"status\":\"%s\"}", state);
    }
    if (out)
        fprintf(out, "]}],\"passed\":%u,\"failed\":%u,\"errored\":0,\"skipped\":%u}\n", passed,
                failed, skipped);
    bool written = !out || fclose(out) == 0;
    fprintf(stderr, "%u passed, %u failed, %u skipped\n", passed, failed, skipped);
    return failed || !written;
}
