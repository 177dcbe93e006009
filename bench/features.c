/* Writes what the model is told of each pair as a table, for baselines that
 * learn from columns: the own-token columns of both sides, true edges first.
 *
 *   features FILE TIES NEGATIVES PART SEED DRAWS LIMIT HISTORICAL OUT
 *
 * NEGATIVES: random or historical, or mixed as in training (a share of
 * HISTORICAL past edges). PART: train, validation, test. LIMIT: at most so many
 * events, spread evenly; 0 all. OUT gets float32 rows (1 + draws, events,
 * columns); the sizes and the columns' names go to standard output as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/query.h"
#include "base/rng.h"
#include "model/dataset.h"
#include "model/features.h"
#include "model/negatives.h"
#include "model/pairs.h"
#include "model/split.h"

enum { COLUMNS = 2 * DL_SELF_COLUMNS };

static void die(const char *what)
{
    fprintf(stderr, "features: %s\n", what);
    exit(1);
}

static void row_of(struct dl_batch *batch, const struct dl_query *query, uint32_t index, float *row)
{
    dl_batch_clear(batch);
    dl_batch_begin(batch, query);
    dl_batch_add(batch, index, 0);
    for (int c = 0; c < COLUMNS; c++) row[c] = (float)batch->self[c];
}

int main(int count, char **arguments)
{
    if (count != 10) {
        fprintf(stderr, "usage: features FILE TIES NEGATIVES PART SEED DRAWS LIMIT HISTORICAL "
                        "OUT\n");
        return 2;
    }
    struct dl_error error;
    struct dl_dataset *dataset;
    struct dl_dataset_options options = {.time_unit_given = 1, .time_unit = DL_TIME_TICKS};
    enum dl_ties ties;
    enum dl_negatives_kind kind = DL_NEGATIVES_RANDOM;
    enum dl_split_part part;
    struct dl_split split;
    struct dl_pairs pairs;
    struct dl_pass pass;
    struct dl_query query = {0};
    struct dl_carve carve = {0};
    struct dl_batch batch;
    struct dl_encoding encoding;
    struct dl_network_config config = dl_network_config_default;

    if (dl_dataset_load(arguments[1], &options, NULL, &dataset, &error) != DL_OK ||
        dl_split_make(dataset, &split, &error) != DL_OK)
        die(error.text);
    if (dl_ties_parse(arguments[2], &ties) != DL_OK) die("no such tie policy");
    int mixed = strcmp(arguments[3], "mixed") == 0;
    if (!mixed && dl_negatives_parse(arguments[3], &kind) != DL_OK) die("no such negatives");
    if (dl_split_part_parse(arguments[4], &part) != DL_OK) die("no such part");
    const uint64_t seed = strtoull(arguments[5], NULL, 10);
    const uint32_t draws = (uint32_t)atoi(arguments[6]);
    const uint64_t limit = strtoull(arguments[7], NULL, 10);
    const double historical = atof(arguments[8]);

    config.arrival_age = ties != DL_TIES_STRICT;
    DL_CHECK(dl_dataset_encoding(dataset, split.end[DL_SPLIT_TRAIN], &encoding) == DL_OK);
    DL_CHECK(dl_pairs_init(&pairs, dataset) == DL_OK);
    if (dl_pass_init(&pass, dataset, ties, seed, config.window, &error) != DL_OK) die(error.text);
    for (int run = 0; run < 2; run++) {
        dl_batch_carve(&batch, &carve, &config, &encoding, 1, DL_BATCH_JOINT);
        if (run == 0) carve = (struct dl_carve){.base = aligned_alloc(64, carve.used)};
        DL_CHECK(carve.base != NULL);
    }
    struct dl_negatives negatives = {.dataset = dataset,
                                     .pairs = &pairs,
                                     .seed = seed,
                                     .train_end = split.end[DL_SPLIT_TRAIN],
                                     .pool_end = part == DL_SPLIT_TRAIN ? split.end[DL_SPLIT_TRAIN]
                                                                        : dataset->event_count};

    uint64_t begin = split.begin[part], end = split.end[part];
    while (part == DL_SPLIT_TRAIN && dataset->events[begin].time == dataset->events[0].time)
        begin++;
    uint64_t events = end - begin;
    if (limit && events > limit) events = limit;
    float *rows = malloc((size_t)(1 + draws) * events * COLUMNS * sizeof *rows);
    if (rows == NULL) die("out of memory");
    for (uint64_t slot = 0; slot < events; slot++) {
        uint64_t position = begin + slot * (end - begin) / events;
        uint64_t event = dl_pass_event(&pass, position);
        const struct dl_event *at = &dataset->events[event];
        uint64_t batch_begin = slot / DL_NEGATIVES_BATCH * DL_NEGATIVES_BATCH;
        uint64_t batch_end = batch_begin + DL_NEGATIVES_BATCH - 1;
        if (batch_end >= events) batch_end = events - 1;
        int64_t from = dataset->events[dl_pass_event(&pass, begin + batch_begin)].time;
        int64_t to = dataset->events[dl_pass_event(&pass, begin + batch_end)].time;
        if (dl_pass_seek(&pass, position, &error) != DL_OK) die(error.text);
        for (uint32_t d = 0; d <= draws; d++) {
            struct dl_edge edge = {at->src, at->dst};
            double share = (double)(dl_draw64(seed + 1, event, d) >> 11) * 0x1p-53;
            if (d > 0 && mixed && share < historical)
                edge = dl_negatives_past_draw(&negatives, event, d - 1);
            else if (d > 0)
                edge = dl_negatives_draw(&negatives, kind, event, d - 1, from, to);
            DL_CHECK(dl_query_begin(&query, pass.graph, config.window, edge.src, at->time) ==
                     DL_OK);
            DL_CHECK(dl_query_add(&query, pass.graph, edge.dst) == DL_OK);
            row_of(&batch, &query, 0, rows + ((size_t)d * events + slot) * COLUMNS);
        }
    }
    FILE *out = fopen(arguments[9], "wb");
    if (out == NULL ||
        fwrite(rows, COLUMNS * sizeof *rows, (size_t)(1 + draws) * events, out) !=
            (size_t)(1 + draws) * events ||
        fclose(out) != 0)
        die("cannot write");
    printf("{\"events\": %llu, \"hash\": \"%s\", \"columns\": [", (unsigned long long)events,
           dataset->hash);
    for (int c = 0; c < COLUMNS; c++) {
        char name[32];
        dl_self_column_name((uint32_t)c % DL_SELF_COLUMNS, name);
        printf("%s\"%s.%s\"", c ? ", " : "", c < DL_SELF_COLUMNS ? "src" : "dst", name);
    }
    printf("]}\n");
    dl_query_deinit(&query);
    free(carve.base);
    free(rows);
    dl_pass_deinit(&pass);
    dl_pairs_deinit(&pairs);
    dl_dataset_free(dataset);
    return 0;
}
