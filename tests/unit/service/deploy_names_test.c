/* Dashboards and rules in deploy/ and docker/ name only metrics that exist. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service/metrics.h"

static int names_found, files_read;

static int is_histogram_part(const struct dl_metric_description *about, const char *name)
{
    static const char *const parts[] = {"_bucket", "_sum", "_count"};
    size_t length = strlen(about->name);
    if (about->kind != DL_METRIC_HISTOGRAM || strncmp(name, about->name, length) != 0) return 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(name + length, parts[i]) == 0) return 1;
    return 0;
}

static int exists(const char *name)
{
    const struct dl_metric_description *rows;
    uint32_t count = dl_service_metrics_describe(&rows);
    for (uint32_t i = 0; i < count; i++) {
        int plain = rows[i].kind != DL_METRIC_HISTOGRAM && strcmp(name, rows[i].name) == 0;
        if (plain || is_histogram_part(&rows[i], name)) return 1;
    }
    return 0;
}

/* A word with our prefix is a metric unless it is the level of a recorded name
 * ("instance:driftline_events:rate1m") or a file of this folder. */
static void check_word(const char *file, const char *text, const char *word)
{
    char name[128];
    size_t length = strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (word > text && (isalnum((unsigned char)word[-1]) || strchr("_:/.-", word[-1]))) return;
    if (word[length] == ':' || length >= sizeof name) return;
    memcpy(name, word, length);
    name[length] = 0;
    names_found++;
    cr_expect(exists(name), "%s names %s, which is not measured", file, name);
}

static int check_file(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)place;
    if (kind != FTW_F) return 0;
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    static char text[512 * 1024];
    size_t size = fread(text, 1, sizeof text - 1, file);
    cr_assert(feof(file), "%s is larger than this test reads", path);
    fclose(file);
    text[size] = 0;
    files_read++;
    for (const char *at = strstr(text, "driftline_"); at; at = strstr(at + 1, "driftline_"))
        check_word(path, text, at);
    return 0;
}

Test(deploy, names_only_metrics_that_exist)
{
    cr_assert_eq(nftw("deploy", check_file, 8, FTW_PHYS), 0);
    cr_assert_eq(nftw("docker", check_file, 8, FTW_PHYS), 0);
    cr_expect(files_read >= 5, "%d files", files_read);
    cr_expect(names_found >= 40, "%d names", names_found);
}

Test(deploy, a_name_that_does_not_exist_would_be_found)
{
    cr_expect_not(exists("driftline_event_total"));
    cr_expect_not(exists("driftline_surprise"));
    cr_expect(exists("driftline_surprise_bucket"));
    cr_expect(exists("driftline_events_total"));
}
