#include "base/rng.h"
#include "support.h"

static struct dl_event_decoder *csv_decoder(enum dl_time_unit unit, const char *header)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_CSV, unit);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_error error = {""};
    cr_assert_eq(dl_event_decoder_csv_header(decoder, dl_slice_text(header), &error), DL_OK, "%s",
                 error.text);
    return decoder;
}

static void expect_header_refused(const struct dl_event_decoder_config *config, const char *header,
                                  const char *text)
{
    struct dl_event_decoder *decoder = decoder_of(config);
    struct dl_error error = {""};
    cr_expect_lt(dl_event_decoder_csv_header(decoder, dl_slice_text(header), &error), 0, "%s",
                 header);
    cr_expect(strstr(error.text, text), "\"%s\" lacks \"%s\"", error.text, text);
    dl_event_decoder_free(decoder);
}

Test(event_csv, decodes_the_usual_columns)
{
    struct dl_event_decoder *decoder = csv_decoder(DL_TIME_TICKS, "src,dst,t,w\r\n");
    struct dl_edge_event event = decoded(decoder, dl_slice_text("17,b c,12,2.5\r\n"));
    expect_slice(event.src, "17");
    expect_slice(event.dst, "b c");
    cr_expect_eq(event.time, 12);
    cr_expect_eq(event.weight, 2.5f);
    event = decoded(decoder, dl_slice_text("17,b, 12 ,"));
    cr_expect_not(event.has_weight);
    dl_event_decoder_free(decoder);
}

Test(event_csv, decodes_quotes_features_and_other_columns)
{
    struct dl_event_decoder *decoder =
        csv_decoder(DL_TIME_S, "\xef\xbb\xbf"
                               "Timestamp,Target,note,Source,f1,f2,id,type");
    struct dl_edge_event event = decoded(
        decoder,
        dl_slice_text("1790000000,\"a \"\"b\"\", c\",whatever,\"\"\"x\",0.5,-1e3,i1,\"pay\""));
    expect_slice(event.dst, "a \"b\", c");
    expect_slice(event.src, "\"x");
    cr_expect_eq(event.feature_count, 2);
    cr_expect_eq(event.features[0], 0.5f);
    cr_expect_eq(event.features[1], -1000.0f);
    expect_slice(event.id, "i1");
    expect_slice(event.type, "pay");
    dl_event_decoder_free(decoder);
}

Test(event_csv, maps_columns_by_name)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_CSV, DL_TIME_MS);
    config.csv_separator = ';';
    dl_event_mapping_set(&config.mapping, "src", "payer", NULL);
    dl_event_mapping_set(&config.mapping, "dst", "payee", NULL);
    dl_event_mapping_set(&config.mapping, "time", "booked", NULL);
    dl_event_mapping_set(&config.mapping, "weight", "amount", NULL);
    dl_event_mapping_set(&config.mapping, "id", "-", NULL);
    dl_event_mapping_set(&config.mapping, "features", "fee,rate", NULL);
    struct dl_event_decoder *decoder = decoder_of(&config);
    struct dl_error error = {""};
    cr_assert_eq(dl_event_decoder_csv_header(
                     decoder, dl_slice_text("id;src;payer;payee;booked;amount;rate;fee"), &error),
                 DL_OK, "%s", error.text);
    struct dl_edge_event event = decoded(decoder, dl_slice_text("9;x;p;q;1790000000000;5;0.2;0.1"));
    expect_slice(event.src, "p");
    cr_expect_eq(event.id.size, 0);
    cr_expect_eq(event.features[0], 0.1f);
    cr_expect_eq(event.features[1], 0.2f);
    dl_event_decoder_free(decoder);
    expect_header_refused(&config, "payer;payee;booked;amount;fee",
                          "no column for features (\"rate\")");
    expect_header_refused(&config, "payer;payee;booked;fee;rate",
                          "no column for weight (\"amount\")");
    expect_header_refused(
        &config, "payer;booked;amount;fee;rate",
        "no column for dst (\"payee\"); there are: payer, booked, amount, fee, rate; set "
        "source.mapping.dst (--map dst=COLUMN)");
}

Test(event_csv, refuses_bad_headers)
{
    struct dl_event_decoder_config config = config_of(DL_FORMAT_CSV, DL_TIME_MS);
    expect_header_refused(&config, "a,b,c",
                          "no column for src; there are: a, b, c; set source.mapping.src");
    expect_header_refused(&config, "src,dst", "no column for time");
    expect_header_refused(&config, "src,dst,time,t", "two columns for time");
    expect_header_refused(&config, "", "empty");
    expect_header_refused(&config, "src,\"dst,time", "broken quote");
    expect_header_refused(&config, "src,dst,time,f0,f2", "features");
    expect_header_refused(&config, "src,dst,time,f2,f3", "begin at 0 or 1");
    expect_header_refused(&config, "src,dst,time,f0,f0", "two columns for features");
    struct dl_buf header = {0};
    for (int i = 0; i < 257; i++) dl_buf_text(&header, "x,");
    dl_buf_u8(&header, 0);
    expect_header_refused(&config, (const char *)header.data, "more than 256 columns");
    dl_buf_free(&header);
}

Test(event_csv, names_what_is_wrong)
{
    static const struct {
        const char *message, *field, *text;
    } cases[] = {
        {",b,1790000000,1,0", "src", "missing or empty"},
        {"a,,1790000000,1,0", "dst", "missing or empty"},
        {"a,b,,1,0", "time", "missing"},
        {"a,b,x,1,0", "time", "not a number of s"},
        {"a,b,1790000000000,1,0", "time", "looks like ms"},
        {"a,b,1790000000,nan,0", "weight", "weight \"nan\" is not a finite number"},
        {"a,b,1790000000,1,inf", "features", "features[0] \"inf\""},
        {"a,b,1790000000,1,", "features", "features[0] is empty"},
        {"a,b,1790000000,0x10,0", "weight", "not a finite number"},
        {"a,b,1790000000,1", "message", "4 columns, the header has 5"},
        {"a,b,1790000000,1,0,9", "message", "6 columns or more, the header has 5"},
        {"a,\"b,1790000000,1,0", "message", "broken quote in column 2"},
        {"a,\"b\"c,1790000000,1,0", "message", "broken quote in column 2"},
        {"\r\n", "message", "CSV line is empty"},
    };
    struct dl_event_decoder *decoder = csv_decoder(DL_TIME_S, "src,dst,time,weight,f0");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(decoder, dl_slice_text(cases[i].message), cases[i].field, cases[i].text);
    dl_event_decoder_free(decoder);
    struct dl_event_decoder_config config = config_of(DL_FORMAT_CSV, DL_TIME_S);
    decoder = decoder_of(&config);
    expect_refused(decoder, dl_slice_text("a,b,1"), "message", "before its header");
    dl_event_decoder_free(decoder);
}

Test(event_csv, encodes_what_it_decodes)
{
    struct dl_buf header = {0}, line = {0};
    dl_event_encode_csv_header(3, &header);
    dl_buf_u8(&header, 0);
    struct dl_event_decoder *decoder = csv_decoder(DL_TIME_US, (const char *)header.data);
    struct dl_rng rng;
    dl_rng_seed(&rng, 5);
    static const char letters[] = "ab,\"; \xc3\xa9";
    for (int round = 0; round < 20000; round++) {
        char names[4][20];
        for (int n = 0; n < 4; n++) {
            uint32_t size = dl_rng_below(&rng, 12) + (n < 2);
            for (uint32_t i = 0; i < size; i++) names[n][i] = letters[dl_rng_below(&rng, 6)];
            names[n][size] = 0;
        }
        struct dl_edge_event event = {.src = dl_slice_text(names[0]),
                                      .dst = dl_slice_text(names[1]),
                                      .type = dl_slice_text(names[2]),
                                      .id = dl_slice_text(names[3]),
                                      .time = 1790000000000000 + (int64_t)dl_rng_below(&rng, 1000),
                                      .has_weight = (int)dl_rng_below(&rng, 2),
                                      .weight = 1,
                                      .feature_count = 3};
        if (event.has_weight) event.weight = (float)dl_rng_normal(&rng);
        for (int i = 0; i < 3; i++) event.features[i] = (float)dl_rng_normal(&rng);
        dl_buf_clear(&line);
        dl_event_encode_csv(&event, DL_TIME_US, &line);
        struct dl_edge_event back = decoded(decoder, dl_buf_slice(&line));
        expect_slice(back.src, names[0]);
        expect_slice(back.dst, names[1]);
        expect_slice(back.type, names[2]);
        expect_slice(back.id, names[3]);
        cr_assert_eq(back.time, event.time);
        cr_assert_eq(back.has_weight, event.has_weight);
        cr_assert_eq(back.weight, event.weight);
        cr_assert_arr_eq(back.features, event.features, 12);
    }
    dl_buf_free(&header);
    dl_buf_free(&line);
    dl_event_decoder_free(decoder);
}
