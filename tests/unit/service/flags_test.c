/* Command-line values and progress lines. */
#include <criterion/criterion.h>

#include <string.h>

#include "service/flags.h"
#include "service/progress.h"

Test(flags, read_whole_values_within_their_limits)
{
    struct dl_error error;
    uint64_t number;
    double real;
    cr_expect_eq(dl_flag_uint("n", "7", 1, 7, &number, &error), DL_OK);
    cr_expect_eq(number, 7);
    cr_expect_eq(dl_flag_uint("n", "18446744073709551615", 0, UINT64_MAX, &number, &error), DL_OK);
    static const char *const bad[] = {"", "8", "0", "-1", "7x", "18446744073709551616", " "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_eq(dl_flag_uint("n", bad[i], 1, 7, &number, &error), DL_ERR_INVALID, "\"%s\"",
                     bad[i]);
        cr_expect(strstr(error.text, "--n"));
    }
    cr_expect_eq(dl_flag_number("p", "0.25", 0, 1, &real, &error), DL_OK);
    cr_expect_float_eq(real, 0.25, 0);
    static const char *const wrong[] = {"", "nan", "inf", "1.5", "0.2.3", "-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(dl_flag_number("p", wrong[i], 0, 1, &real, &error), DL_ERR_INVALID, "\"%s\"",
                     wrong[i]);
}

Test(flags, name_the_choices)
{
    static const char *const names[] = {"strict", "stream", NULL};
    struct dl_error error;
    int value = -1;
    cr_expect_eq(dl_flag_choice("ties", "stream", names, &value, &error), DL_OK);
    cr_expect_eq(value, 1);
    cr_expect_eq(dl_flag_choice("ties", "str", names, &value, &error), DL_ERR_INVALID);
    cr_expect_str_eq(error.text, "--ties: \"str\" is none of: strict, stream");
}

Test(flags, map_the_columns_of_a_feed)
{
    struct dl_dataset_options options = {0};
    struct dl_error error;
    char features[] = "a,b,c", unit[] = "ms", wrong[] = "h";
    cr_expect_eq(dl_flag_data(DL_FLAG_FEATURES, features, &options, &error), DL_OK);
    cr_expect_eq(options.feature_count, 3);
    cr_expect_str_eq(options.features[2], "c");
    cr_expect_eq(dl_flag_data(DL_FLAG_TIME_UNIT, unit, &options, &error), DL_OK);
    cr_expect(options.time_unit_given && options.time_unit == DL_TIME_MS);
    cr_expect_eq(dl_flag_data(DL_FLAG_TIME_UNIT, wrong, &options, &error), DL_ERR_INVALID);
    cr_expect(strstr(error.text, "iso8601"));
    char many[200] = "a";
    for (int i = 0; i < DL_EVENT_FEATURES_MAX; i++) strcat(many, ",a");
    cr_expect_eq(dl_flag_data(DL_FLAG_FEATURES, many, &options, &error), DL_ERR_INVALID);
}

Test(progress, writes_numbers_for_people)
{
    char text[16];
    dl_progress_number(412, text);
    cr_expect_str_eq(text, "412");
    dl_progress_number(9999, text);
    cr_expect_str_eq(text, "9999");
    dl_progress_number(12345, text);
    cr_expect_str_eq(text, "12.3 k");
    dl_progress_number(45600000, text);
    cr_expect_str_eq(text, "45.6 M");
}

Test(progress, is_plain_and_sparse_where_there_is_no_terminal)
{
    FILE *out = tmpfile();
    struct dl_progress_line line;
    char text[256] = "";
    dl_progress_line_init(&line, out);
    struct dl_progress hook = dl_progress_line_hook(&line);
    for (uint64_t i = 0; i < 1000; i++) dl_progress_advance(&hook, "reading", i, 1000, "events");
    dl_progress_note(&hook, "epoch %d", 3);
    dl_progress_line_end(&line);
    rewind(out);
    cr_assert_gt(fread(text, 1, sizeof text - 1, out), 0);
    cr_expect_str_eq(text, "epoch 3\n");
    fclose(out);
}
