/* How well TopK finds the destination that comes: recall at 10 and mean
 * reciprocal rank (MRR) over a span of a feed, in arrival order, with the
 * candidates that the service would draw at each event.
 *
 *   recall FILE MODEL [LIMIT [CANDIDATES]]
 *
 * Rivals rank the same candidates: by how recently the source went there, by how
 * often the last 1,024 events went there, and by the best mix of both, weight
 * / (1 + place by recency) + 1 / (1 + place by popularity), its weight chosen
 * on the validation span. A destination that is no candidate counts as not found
 * for all. LIMIT: at most so many events, spread evenly (5,000). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/query.h"
#include "model/dataset.h"
#include "model/model.h"
#include "model/split.h"
#include "service/candidates.h"

enum { STORE_WINDOW = 64, POPULAR = 1024, CANDIDATES_MAX = 4096 };
enum { MODEL, RECENCY, POPULARITY, MIX, RANKERS = MIX + 8 };

static const char *const names[] = {"model", "repeat by recency", "recent popularity", "best mix"};
static const double weights[RANKERS - MIX] = {0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

struct tally {
    uint64_t events, found, candidates;
    double hits[RANKERS], reciprocal[RANKERS];
};

static void die(const char *what)
{
    fprintf(stderr, "recall: %s\n", what);
    exit(1);
}

/* Equal scores share the middle of their places. */
static void count_rank(struct tally *tally, int ranker, const double *scores, uint32_t count,
                       uint32_t truth)
{
    double higher = 0, equal = 0;
    for (uint32_t i = 0; i < count; i++) {
        higher += scores[i] > scores[truth];
        equal += i != truth && scores[i] == scores[truth];
    }
    double rank = 1 + higher + equal / 2;
    tally->hits[ranker] += rank <= 10;
    tally->reciprocal[ranker] += 1 / rank;
}

struct run {
    const struct dl_dataset *dataset;
    struct dl_pass pass;
    const struct dl_network *network;
    struct dl_workspace *workspace;
    struct dl_query query;
    struct dl_candidate_set set;
    uint32_t candidates_max, *popular_place, *recent_place;
};

/* 1 / (1 + place) of each candidate by recency and by popularity; 0 where it has none. */
static void place_candidates(struct run *run, uint32_t node, double *recency, double *popularity)
{
    struct dl_interaction window[STORE_WINDOW];
    uint32_t popular[POPULAR], place = 0;
    uint32_t count = dl_graph_window(run->pass.graph, node, STORE_WINDOW, window, NULL);
    uint32_t popular_count = dl_graph_popular_destinations(run->pass.graph, POPULAR, popular);
    memset(run->recent_place, 0, run->dataset->node_count * sizeof *run->recent_place);
    memset(run->popular_place, 0, run->dataset->node_count * sizeof *run->popular_place);
    for (uint32_t i = 0; i < count; i++)
        if (window[i].out && run->recent_place[window[i].peer] == 0)
            run->recent_place[window[i].peer] = ++place;
    for (uint32_t i = 0; i < popular_count; i++) run->popular_place[popular[i]] = i + 1;
    for (uint32_t i = 0; i < run->set.count; i++) {
        uint32_t recent = run->recent_place[run->set.nodes[i]];
        uint32_t common = run->popular_place[run->set.nodes[i]];
        recency[i] = recent ? 1.0 / recent : 0;
        popularity[i] = common ? 1.0 / common : 0;
    }
}

static void rank_event(struct run *run, const struct dl_event *event, int with_model,
                       struct tally *tally)
{
    static double recency[CANDIDATES_MAX], popularity[CANDIDATES_MAX], scores[CANDIDATES_MAX];
    static dl_real logits[CANDIDATES_MAX];
    struct dl_candidate_set *set = &run->set;
    uint32_t truth = 0;

    DL_CHECK(dl_candidates_draw(run->pass.graph, event->src, run->dataset->bipartite,
                                run->candidates_max, set) == DL_OK);
    tally->events++;
    tally->candidates += set->count;
    while (truth < set->count && set->nodes[truth] != event->dst) truth++;
    if (truth == set->count) return;
    tally->found++;
    place_candidates(run, event->src, recency, popularity);
    count_rank(tally, RECENCY, recency, set->count, truth);
    count_rank(tally, POPULARITY, popularity, set->count, truth);
    for (int w = 0; w < RANKERS - MIX; w++) {
        for (uint32_t i = 0; i < set->count; i++)
            scores[i] = weights[w] * recency[i] + popularity[i];
        count_rank(tally, MIX + w, scores, set->count, truth);
    }
    if (!with_model) return;
    DL_CHECK(dl_query_begin(&run->query, run->pass.graph,
                            dl_network_get_config(run->network)->window, event->src,
                            event->time) == DL_OK);
    for (uint32_t i = 0; i < set->count; i++)
        DL_CHECK(dl_query_add(&run->query, run->pass.graph, set->nodes[i]) == DL_OK);
    dl_network_score(run->network, run->workspace, &run->query, logits, NULL);
    for (uint32_t i = 0; i < set->count; i++) scores[i] = (double)logits[i];
    count_rank(tally, MODEL, scores, set->count, truth);
}

static void rank_span(struct run *run, uint64_t begin, uint64_t end, uint64_t limit, int with_model,
                      struct tally *tally)
{
    struct dl_error error;
    uint64_t count = end - begin < limit ? end - begin : limit;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t position = begin + (uint64_t)((unsigned __int128)i * (end - begin) / count);
        if (dl_pass_seek(&run->pass, position, &error) != DL_OK) die(error.text);
        rank_event(run, &run->dataset->events[position], with_model, tally);
    }
}

int main(int count, char **arguments)
{
    struct run run = {.candidates_max = 200};
    struct dl_error error;
    struct dl_dataset *dataset;
    struct dl_model *model;
    struct dl_split split;
    struct tally validation = {0}, test = {0};

    if (count < 3) {
        fprintf(stderr, "usage: recall FILE MODEL [LIMIT [CANDIDATES]]\n");
        return 2;
    }
    uint64_t limit = count > 3 ? strtoull(arguments[3], NULL, 10) : 5000;
    if (count > 4) run.candidates_max = (uint32_t)atoi(arguments[4]);
    if (run.candidates_max < 1 || run.candidates_max > CANDIDATES_MAX) die("1 to 4096 candidates");
    if (dl_model_load(arguments[2], &model, &error) != DL_OK) die(error.text);
    struct dl_dataset_options options = {.time_unit_given = 1,
                                         .time_unit = dl_model_get_info(model)->time_unit};
    if (dl_dataset_load(arguments[1], &options, NULL, &dataset, &error) != DL_OK ||
        dl_split_make(dataset, &split, &error) != DL_OK ||
        dl_pass_init(&run.pass, dataset, DL_TIES_STREAM, 0, STORE_WINDOW, &error) != DL_OK)
        die(error.text);
    run.dataset = dataset;
    run.network = dl_model_get_network(model);
    run.popular_place = calloc(dataset->node_count, sizeof *run.popular_place);
    run.recent_place = calloc(dataset->node_count, sizeof *run.recent_place);
    DL_CHECK(run.popular_place && run.recent_place &&
             dl_workspace_new(run.network, &run.workspace) == DL_OK);

    rank_span(&run, split.begin[DL_SPLIT_VALIDATION], split.end[DL_SPLIT_VALIDATION], limit, 0,
              &validation);
    rank_span(&run, split.begin[DL_SPLIT_TEST], split.end[DL_SPLIT_TEST], limit, 1, &test);
    int best = MIX;
    for (int w = MIX; w < RANKERS; w++)
        if (validation.reciprocal[w] > validation.reciprocal[best]) best = w;
    const double events = (double)test.events;
    printf("%s: %llu events, %.1f candidates each, %.4f of the true destinations among them\n",
           arguments[1], (unsigned long long)test.events, (double)test.candidates / events,
           (double)test.found / events);
    for (int r = MODEL; r <= MIX; r++) {
        int ranker = r == MIX ? best : r;
        printf("  %-18s recall@10 %.4f, MRR %.4f", names[r], test.hits[ranker] / events,
               test.reciprocal[ranker] / events);
        if (r == MIX) printf(" (weight %g)", weights[best - MIX]);
        printf("\n");
    }
    printf("recall: %.4f (target above the best mix, %.4f in the same run)\n",
           test.hits[MODEL] / events, test.hits[best] / events);

    dl_query_deinit(&run.query);
    dl_candidate_set_deinit(&run.set);
    dl_workspace_free(run.workspace);
    dl_pass_deinit(&run.pass);
    dl_model_unref(model);
    dl_dataset_free(dataset);
    free(run.popular_place);
    free(run.recent_place);
    return 0;
}
