/* The engine's cache of window encodings: what queries get of it on their way to
 * the workers, and what is kept of their return. Everything else that changes
 * windows than events (forgetting) or models clears it. */
#include "service/engine_internal.h"

int dl_engine_encodings_start(struct dl_engine *engine, struct dl_error *error)
{
    const uint32_t width = dl_network_encoding_width(dl_model_get_network(engine->model));
    struct dl_encodings *fresh = NULL;
    if (width > 0 && dl_encodings_new(width, DL_ENCODINGS_BYTES, &fresh) != DL_OK)
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the encodings of windows");
    dl_encodings_free(engine->encodings);
    engine->encodings = fresh;
    engine->encodings_epoch++;
    return DL_OK;
}

void dl_engine_encodings_forget(struct dl_engine *engine)
{
    if (engine->encodings) dl_encodings_clear(engine->encodings);
    engine->encodings_epoch++;
}

int dl_engine_encodings_fill(struct dl_engine *engine, struct dl_query *const *queries,
                             uint32_t count, uint64_t *epoch)
{
    *epoch = engine->encodings_epoch;
    if (!engine->encodings) return DL_OK;
    const struct dl_encodings_figures before = dl_encodings_get_figures(engine->encodings);
    for (uint32_t i = 0; i < count; i++)
        if (dl_encodings_fill(engine->encodings, queries[i]) != DL_OK) return DL_ERR_NOMEM;
    const struct dl_encodings_figures after = dl_encodings_get_figures(engine->encodings);
    if (engine->parts.metrics) {
        dl_counter_add(engine->parts.metrics->encodings_reused_total, after.hits - before.hits);
        dl_counter_add(engine->parts.metrics->encodings_made_total, after.misses - before.misses);
    }
    return DL_OK;
}

void dl_engine_encodings_keep(struct dl_engine *engine, struct dl_query *const *queries,
                              uint32_t count, uint64_t epoch)
{
    if (!engine->encodings || epoch != engine->encodings_epoch) return;
    for (uint32_t i = 0; i < count; i++) dl_encodings_keep(engine->encodings, queries[i]);
}
