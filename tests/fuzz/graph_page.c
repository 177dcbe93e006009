/* A stored page of the graph. Refused, or usable: a graph that took the page
 * in absorbs events, writes its pages, and reads them back to the same. The
 * first byte picks kind and features. */
#include <stdlib.h>

#include "base/check.h"
#include "base/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dl_graph *new_graph(uint32_t features)
{
    struct dl_graph_config config = {
        .window = 6, .feature_count = features, .nodes_max = 200, .pairs_max = 1024};
    struct dl_graph *graph;
    DL_CHECK(dl_graph_new(&config, &graph, NULL) == DL_OK);
    return graph;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    struct dl_page_id page = {data[0] & 3, data[1] & 3};
    uint32_t features = data[0] >> 2 & 1;
    struct dl_graph *graph = new_graph(features), *again = new_graph(features);
    struct dl_buf first = {0}, second = {0};
    struct dl_error error;
    int status = dl_graph_page_read(graph, page, dl_slice_of(data + 2, size - 2), &error);
    if (status == DL_OK && dl_graph_replay_end(graph) == DL_OK) {
        dl_graph_page_write(graph, page, &first);
        DL_CHECK(dl_graph_page_read(again, page, dl_buf_slice(&first), &error) == DL_OK);
        DL_CHECK(dl_graph_replay_end(again) == DL_OK);
        dl_graph_page_write(again, page, &second);
        DL_CHECK(dl_slice_equal(dl_buf_slice(&first), dl_buf_slice(&second)));
        uint32_t popular[50];
        uint32_t count = dl_graph_popular_destinations(graph, 50, popular);
        for (uint32_t i = 0; i < count; i++) DL_CHECK(popular[i] < 200);
        struct dl_interaction window[6];
        struct dl_pair_state pair;
        float values[6];
        for (uint32_t i = 0; i < 300; i++) {
            struct dl_event event = {
                .time = i / 3, .src = i * 7 % 200, .dst = i * 11 % 200, .weight = 1};
            DL_CHECK(dl_graph_apply(graph, &event) == DL_OK);
            DL_CHECK(dl_graph_window(graph, event.src, 6, window, values) <= 6);
            DL_CHECK(dl_graph_pair(graph, event.src, event.dst, &pair) == 1);
        }
    }
    dl_graph_free(graph);
    dl_graph_free(again);
    dl_buf_free(&first);
    dl_buf_free(&second);
    return 0;
}
