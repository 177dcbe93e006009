/* Recorded feeds: what is read, and how bad files are refused. */
#include <criterion/criterion.h>

#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "feed.h"

static char path[64];

static const char *file_of(const char *text, size_t size)
{
    snprintf(path, sizeof path, "/tmp/driftline-dataset-%d.csv", (int)getpid());
    FILE *file = fopen(path, "wb");
    cr_assert(file);
    cr_assert_eq(fwrite(text, 1, size, file), size);
    fclose(file);
    return path;
}

static struct dl_dataset *load(const char *text, const struct dl_dataset_options *options)
{
    struct dl_dataset *dataset = NULL;
    struct dl_error error = {{0}};
    int status = dl_dataset_load(file_of(text, strlen(text)), options, NULL, &dataset, &error);
    unlink(path);
    cr_assert_eq(status, DL_OK, "%s", error.text);
    return dataset;
}

/* Loads what must be refused, and returns the detail. */
static const char *refuse_bytes(const char *text, size_t size,
                                const struct dl_dataset_options *options)
{
    static struct dl_error error;
    struct dl_dataset *dataset = NULL;
    error.text[0] = 0;
    int status = dl_dataset_load(file_of(text, size), options, NULL, &dataset, &error);
    unlink(path);
    cr_assert_neq(status, DL_OK, "was taken: %s", text);
    cr_assert_null(dataset);
    cr_assert(strlen(error.text) > 0);
    cr_assert_null(strchr(error.text, '\n'), "more than one line: %s", error.text);
    return error.text;
}

static const char *refuse(const char *text, const struct dl_dataset_options *options)
{
    return refuse_bytes(text, strlen(text), options);
}

static const struct dl_dataset_options plain;
static const struct dl_dataset_options ticks = {.time_unit_given = 1, .time_unit = DL_TIME_TICKS};

static void names_are(const struct dl_dataset *dataset, uint64_t event, const char *src,
                      const char *dst)
{
    cr_expect(dl_slice_equal(dl_dictionary_name(dataset->nodes, dataset->events[event].src),
                             dl_slice_text(src)));
    cr_expect(dl_slice_equal(dl_dictionary_name(dataset->nodes, dataset->events[event].dst),
                             dl_slice_text(dst)));
}

Test(dataset, gives_ids_in_order_of_appearance)
{
    struct dl_dataset *d = load("src,dst,t,w\nb,a,1,2.5\na,c,2,\nb,c,2,-1\n", &plain);
    cr_expect_eq(d->event_count, 3);
    cr_expect_eq(d->node_count, 3);
    cr_expect_eq(d->timestamp_count, 2);
    cr_expect_eq(d->events[0].src, 0);
    cr_expect_eq(d->events[0].dst, 1);
    cr_expect_eq(d->events[1].dst, 2);
    cr_expect_eq(d->destination_count, 2);
    cr_expect_eq(d->destinations[0], 1);
    cr_expect_eq(d->destinations[1], 2);
    cr_expect_eq(d->destination_first[1], 1);
    cr_expect_float_eq(d->events[0].weight, 2.5f, 0);
    cr_expect_float_eq(d->events[1].weight, 1, 0);
    cr_expect_float_eq(d->events[2].weight, -1, 0);
    cr_expect_eq(d->time_unit, DL_TIME_TICKS);
    dl_dataset_free(d);
}

Test(dataset, reads_quotes_crlf_marks_and_other_separators)
{
    struct dl_dataset *d = load(
        "\xef\xbb\xbf\"source\";target;timestamp\r\n\"a;b\";\"say \"\"hi\"\"\";7\r\n\r\nc;d;8.000",
        &plain);
    cr_expect_eq(d->event_count, 2);
    names_are(d, 0, "a;b", "say \"hi\"");
    names_are(d, 1, "c", "d");
    cr_expect_eq(d->events[1].time, 8);
    dl_dataset_free(d);
}

Test(dataset, maps_columns_by_name)
{
    struct dl_dataset_options options = {.src = "payer",
                                         .dst = "payee",
                                         .time = "at",
                                         .weight = "amount",
                                         .feature_count = 1,
                                         .features = {"score"}};
    struct dl_dataset *d = load("at,score,payee,payer,amount\n1700000000123,0.5,shop,ann,12\n"
                                "1700000000456,,shop,bob,3\n",
                                &options);
    names_are(d, 0, "ann", "shop");
    cr_expect_eq(d->time_unit, DL_TIME_MS);
    cr_expect(d->time_unit_guessed);
    cr_expect_float_eq(d->events[0].features[0], 0.5f, 0);
    cr_expect_float_eq(d->events[1].features[0], 0, 0);
    dl_dataset_free(d);
}

Test(dataset, reads_iso_times_as_microseconds)
{
    struct dl_dataset *d =
        load("src,dst,time\na,b,1946-01-02\na,b,1970-01-01T00:00:01.5Z\n", &plain);
    cr_expect_eq(d->time_unit, DL_TIME_ISO8601);
    cr_expect_eq(d->events[1].time, 1500000);
    cr_expect(d->events[0].time < 0);
    dl_dataset_free(d);
}

Test(dataset, sorts_stably_and_renames_nodes_by_the_new_order)
{
    struct dl_dataset *d = load("src,dst,t\nx,y,5\na,b,1\nc,d,5\ne,f,1\n", &ticks);
    cr_expect_eq(d->out_of_order, 2);
    names_are(d, 0, "a", "b");
    names_are(d, 1, "e", "f");
    names_are(d, 2, "x", "y");
    names_are(d, 3, "c", "d");
    cr_expect_eq(d->events[0].src, 0);
    cr_expect_eq(d->events[3].dst, 7);
    dl_dataset_free(d);
}

Test(dataset, keeps_namespaces_apart_when_bipartite)
{
    struct dl_dataset_options options = {.bipartite = 1};
    struct dl_dataset *d = load("src,dst,t\n1,1,1\n1,2,2\n", &options);
    cr_expect_eq(d->node_count, 3);
    cr_expect_neq(d->events[0].src, d->events[0].dst);
    dl_dataset_free(d);
}

Test(dataset, has_one_fingerprint_for_a_file_and_its_gzip)
{
    const char *text = "src,dst,t\na,b,1\n";
    struct dl_dataset *d = load(text, &plain), *z = NULL;
    struct dl_error error;
    cr_expect_str_eq(d->hash, "13708edb782bd88e0de65ef51ff35e0bef1b384b610022f473f9d4d6790dcff2");
    char name[80];
    snprintf(name, sizeof name, "/tmp/driftline-dataset-%d.csv.gz", (int)getpid());
    gzFile file = gzopen(name, "wb");
    gzputs(file, text);
    gzclose(file);
    cr_assert_eq(dl_dataset_load(name, &plain, NULL, &z, &error), DL_OK);
    unlink(name);
    cr_expect_str_eq(d->hash, z->hash);
    dl_dataset_free(d);
    dl_dataset_free(z);
}

Test(dataset, says_where_and_what_is_wrong)
{
    cr_expect(strstr(refuse("a,b,1\n", &plain), "--src"));
    cr_expect(strstr(refuse("src,dst,when\n1,2,3\n", &plain), "src, dst, when"));
    const struct dl_dataset_options payer = {.src = "payer"};
    cr_expect(strstr(refuse("src,dst,t\n1,2,3\n", &payer),
                     "no column \"payer\" (--src); there are: src, dst, t"));
    const char *text = refuse("src,dst,t\na,b,1\na,b,soon\n", &plain);
    cr_expect(strstr(text, "line 3") && strstr(text, "column t") && strstr(text, "soon"), "%s",
              text);
    text = refuse("src,dst,t,w\na,b,1,nan\n", &plain);
    cr_expect(strstr(text, "line 2") && strstr(text, "column w") && strstr(text, "nan"), "%s",
              text);
    cr_expect(strstr(refuse("src,dst,t\na,,1\n", &plain), "destination is empty"));
    cr_expect(strstr(refuse("src,dst,t\na,b\n", &plain), "line 2: 2 columns"));
    cr_expect(strstr(refuse("src,dst,t\n", &plain), "no events"));
    cr_expect(strstr(refuse("", &plain), "empty"));
    cr_expect(strstr(refuse("src,dst,t\na,\"b,1\n", &plain), "quote"));
    cr_expect(strstr(refuse("src,dst,t\na,b,99999999999999999999\n", &plain), "9999999999"));
    cr_expect(strstr(refuse("src,dst,t\na,b,1.5\n", &plain), "whole"));
    cr_expect(strstr(refuse_bytes("src,dst,t\na,b\0,1\n", 17, &plain), "zero byte"));
}

Test(dataset, refuses_times_in_the_wrong_unit)
{
    struct dl_dataset_options options = {.time_unit_given = 1, .time_unit = DL_TIME_S};
    const char *text = refuse("src,dst,t\na,b,1700000000123\n", &options);
    cr_expect(strstr(text, "line 2") && strstr(text, "time unit ms"), "%s", text);
    options.time_unit = DL_TIME_NS;
    cr_expect(strstr(refuse("src,dst,t\na,b,12\n", &options), "ticks"));
}

Test(dataset, refuses_what_exceeds_a_limit)
{
    static char text[400000];
    char *at = text + sprintf(text, "src,dst,t\n");
    memset(at, 'a', 300);
    strcpy(at + 300, ",b,1\n");
    cr_expect(strstr(refuse(text, &plain), "300 bytes"));
    memset(at, 'a', 300000);
    strcpy(at + 300000, ",b,1\n");
    cr_expect(strstr(refuse(text, &plain), "line 2"));
    memset(text, ',', 300);
    strcpy(text + 300, "\n");
    cr_expect(strstr(refuse(text, &plain), "columns"));
}

Test(dataset, refuses_a_missing_file_and_a_folder)
{
    struct dl_dataset *d = NULL;
    struct dl_error error;
    cr_expect_eq(dl_dataset_load("/nonexistent/feed.csv", &plain, NULL, &d, &error), DL_ERR_IO);
    cr_expect(strstr(error.text, "/nonexistent/feed.csv"));
    cr_expect_eq(dl_dataset_load("/tmp", &plain, NULL, &d, &error), DL_ERR_IO);
    cr_expect(strstr(error.text, "folder"));
}

Test(dataset, measures_gap_and_weights)
{
    struct dl_dataset *d =
        load("src,dst,t,w\na,b,10,0\na,b,10,0\na,b,12,0\na,b,18,0\na,b,19,0\n", &ticks);
    struct dl_encoding encoding;
    cr_assert_eq(dl_dataset_encoding(d, d->event_count, &encoding), DL_OK);
    cr_expect_float_eq(encoding.gap, 2, 0);
    cr_expect_float_eq(encoding.weight_mean, 0, 1e-12);
    cr_expect_float_eq(encoding.weight_sd, 1, 1e-12);
    cr_assert_eq(dl_dataset_encoding(d, 1, &encoding), DL_OK);
    cr_expect_float_eq(encoding.gap, 1, 0);
    dl_dataset_free(d);
}
