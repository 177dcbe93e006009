/* Checkpoints of the graph in small steps.
 *
 * The graph hands out its dirty pages in a fixed circular order. A lap of that
 * order is a round: a key that is not above the last one means the lap is
 * over, and then every page that was dirty when the lap began has been written
 * since, so nothing before its first event is needed from the log any more.
 * The first lap after a start may begin anywhere, so its start counts as 0: it
 * only serves to find the beginning of the order. */
#include "store/internal.h"

enum { VACUUM_PAGES_MIN = 256 };

static uint64_t key_of(struct dl_page_id page)
{
    return (uint64_t)page.kind << 32 | page.index;
}

static int write_page(struct dl_store *store, struct dl_graph *graph, struct dl_page_id page,
                      struct dl_store_step *step, struct dl_error *error)
{
    const char *what = "write a checkpoint page";
    int status = DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_PAGE_PUT, what, &status, error);
    if (!statement) return status;
    uint64_t key = key_of(page), seq = dl_graph_feed(graph)->events;
    dl_buf_clear(&store->scratch);
    dl_buf_append(&store->pages_here, &page, sizeof page);
    if (store->pages_here.failed) return store_error(store, SQLITE_NOMEM, what, error);
    dl_graph_page_write(graph, page, &store->scratch);
    if (store->scratch.failed) return store_error(store, SQLITE_NOMEM, what, error);
    struct dl_slice data = dl_buf_slice(&store->scratch);
    int rc = sqlite3_bind_int64(statement, 1, (sqlite3_int64)key);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 2, (sqlite3_int64)seq);
    if (rc == SQLITE_OK) rc = sqlite3_bind_int64(statement, 3, store_checksum(key, seq, data));
    if (rc == SQLITE_OK) rc = store_bind_slice(statement, 4, data);
    if (rc != SQLITE_OK) return store_error(store, rc, what, error);
    status = store_run(store, statement, what, error);
    if (status != DL_OK) return status;
    step->pages++;
    step->bytes += data.size;
    store->pages_written++;
    store->page_bytes_written += data.size;
    return DL_OK;
}

/* Everything before event `from` is in pages. */
static int round_ended(struct dl_store *store, uint64_t from, struct dl_store_step *step,
                       struct dl_error *error)
{
    if (from <= store->now.recover_from) return DL_OK;
    int status = store_meta_put_u64(store, "recover_from", from, error);
    if (status != DL_OK) return status;
    store->now.recover_from = from;
    step->round_ended = 1;
    return store_log_cut(store, error);
}

/* How many pages keep the round within options.round_events. */
static uint64_t paced(struct dl_store *store, struct dl_graph *graph)
{
    struct store_round *round = &store->round;
    uint64_t events = dl_graph_feed(graph)->events, dirty = dl_graph_pages_dirty(graph);
    if (dirty > round->dirty_most) round->dirty_most = dirty;
    double share = (double)(events - round->step_events) / (double)store->options.round_events;
    round->owed += (double)round->dirty_most * share;
    round->step_events = events;
    uint64_t pages = (uint64_t)round->owed;
    round->owed -= (double)pages;
    return pages;
}

static int step_pages(struct dl_store *store, struct dl_graph *graph, uint64_t pages_max,
                      struct dl_store_step *step, struct dl_error *error)
{
    struct store_round *round = &store->round;
    uint64_t events = dl_graph_feed(graph)->events;
    while (step->pages < pages_max) {
        struct dl_page_id page;
        if (!dl_graph_page_dirty_next(graph, &page)) {
            *round = (struct store_round){.start = events, .step_events = events};
            return round_ended(store, events, step, error);
        }
        uint64_t key = key_of(page);
        if (key < round->next_key) {
            int status = round_ended(store, round->start, step, error);
            if (status != DL_OK) return status;
            round->start = events;
            round->dirty_most = dl_graph_pages_dirty(graph);
        }
        int status = write_page(store, graph, page, step, error);
        if (status != DL_OK) return status;
        round->next_key = key + 1;
    }
    return DL_OK;
}

/* Free pages are used again before the file grows. Beyond a quarter of the file (the
 * log was cut to a smaller bound, something was forgotten) they go back to the file
 * system, 1 MiB a step. */
static int vacuum(struct dl_store *store, struct dl_error *error)
{
    const char *what = "give free pages back";
    int status = DL_OK, rc;
    uint64_t free_pages = store_pragma_u64(store, ST_FREE_COUNT);
    if (free_pages < VACUUM_PAGES_MIN || free_pages * 4 < store_pragma_u64(store, ST_PAGE_COUNT))
        return DL_OK;
    sqlite3_stmt *statement = store_statement(store, ST_VACUUM, what, &status, error);
    if (!statement) return status;
    while ((rc = sqlite3_step(statement)) == SQLITE_ROW) continue; /* a page each */
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? DL_OK : store_error(store, rc, what, error);
}

static int begin_step(struct dl_store *store, struct dl_graph *graph, struct dl_error *error)
{
    int status = store_writable(store, "write a checkpoint", error);
    if (status != DL_OK) return status;
    uint64_t events = dl_graph_feed(graph)->events;
    if (store->graph_stale || events != store->now.log_next)
        return dl_error_set(error, DL_ERR_INVALID,
                            "store %.200s: cannot write a checkpoint: %s; load a new graph from "
                            "the store",
                            store->path,
                            store->graph_stale ? "a transaction with pages was rolled back"
                                               : "the graph and the log are at different events");
    return DL_OK;
}

int dl_store_checkpoint_step(struct dl_store *store, struct dl_graph *graph, uint32_t pages_max,
                             struct dl_store_step *step, struct dl_error *error)
{
    struct dl_store_step none, *out = step ? step : &none;
    *out = (struct dl_store_step){0};
    int status = begin_step(store, graph, error);
    if (status != DL_OK) return status;
    status = step_pages(store, graph, pages_max ? pages_max : paced(store, graph), out, error);
    return status == DL_OK ? vacuum(store, error) : status;
}

int dl_store_checkpoint_all(struct dl_store *store, struct dl_graph *graph,
                            struct dl_store_step *step, struct dl_error *error)
{
    struct dl_store_step none, *out = step ? step : &none;
    *out = (struct dl_store_step){0};
    int status = begin_step(store, graph, error);
    if (status != DL_OK) return status;
    return step_pages(store, graph, UINT64_MAX, out, error);
}

int dl_store_checkpoint_pages(struct dl_store *store, struct dl_graph *graph,
                              const struct dl_page_id *pages, uint32_t count,
                              struct dl_error *error)
{
    struct dl_store_step step = {0};
    int status = begin_step(store, graph, error);
    for (uint32_t i = 0; status == DL_OK && i < count; i++)
        if (dl_graph_page_is_dirty(graph, pages[i]))
            status = write_page(store, graph, pages[i], &step, error);
    return status;
}

int dl_store_checkpoint_reached(struct dl_store *store, uint64_t seq, struct dl_error *error)
{
    struct dl_store_step step = {0};
    int status = store_writable(store, "move the start of recovery", error);
    return status == DL_OK ? round_ended(store, seq, &step, error) : status;
}
