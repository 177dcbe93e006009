/* The log: levels, both formats, and no forged or endless lines. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "service/log.h"

static char *text;
static size_t size;
static FILE *out;

static void setup(void)
{
    out = open_memstream(&text, &size);
    dl_log_to(out);
}

static void teardown(void)
{
    dl_log_to(NULL);
    fclose(out);
    free(text);
}

static unsigned lines(void)
{
    unsigned count = 0;
    fflush(out);
    for (size_t k = 0; k < size; k++) count += text[k] == '\n';
    return count;
}

TestSuite(log, .init = setup, .fini = teardown);

Test(log, leaves_out_what_is_less_severe)
{
    dl_log_setup(DL_LOG_WARN, DL_LOG_TEXT);
    DL_INFO("test", "not this");
    DL_WARN("test", "but %s", "this");
    cr_assert_eq(lines(), 1);
    cr_assert_not_null(strstr(text, " warn  test: but this\n"), "%s", text);
}

Test(log, writes_one_json_object_a_line)
{
    dl_log_setup(DL_LOG_INFO, DL_LOG_JSON);
    DL_ERROR("kafka", "topic \"a\\b\"\n\x01 gone");
    cr_assert_eq(lines(), 1);
    cr_assert_not_null(strstr(text, "\"level\":\"error\",\"part\":\"kafka\","
                                    "\"message\":\"topic \\\"a\\\\b\\\"\\u000a\\u0001 gone\"}\n"),
                       "%s", text);
}

Test(log, cannot_be_made_to_forge_a_line)
{
    dl_log_setup(DL_LOG_INFO, DL_LOG_TEXT);
    DL_INFO("test", "%s", "name\n2026-01-01 error x: forged\x1b[2J");
    cr_assert_eq(lines(), 1);
    cr_assert_eq(strchr(text, '\x1b'), NULL);
}

Test(log, holds_back_what_repeats)
{
    dl_log_setup(DL_LOG_INFO, DL_LOG_TEXT);
    for (int k = 0; k < 1000; k++) DL_INFO("test", "again %d", k);
    cr_assert_leq(lines(), 30);
    cr_assert_geq(lines(), 10);
}

Test(log, cuts_a_long_message)
{
    dl_log_setup(DL_LOG_INFO, DL_LOG_TEXT);
    char *longer = malloc(100000);
    memset(longer, '\n', 99999);
    longer[99999] = '\0';
    DL_INFO("test", "%s", longer);
    cr_assert_eq(lines(), 1);
    cr_assert_leq(size, 2200);
    free(longer);
}
