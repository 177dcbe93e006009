/* Repeated events are known by their id (source.id_horizon), also after a
 * restart: each transaction stores the ids of its batch, in segments of which
 * the oldest go.
 *
 *   ids          key of the hashes, numbers of the first and the next segment
 *   ids.N        hashes in order; all but the last hold SEGMENT_IDS or more */
#include "service/engine_internal.h"

#include <stdio.h>
#include <sys/random.h>

#define SEGMENT_IDS 1024
#define SEGMENT_BYTES (SEGMENT_IDS * sizeof(uint64_t))

static void segment_name(char name[32], uint64_t number)
{
    snprintf(name, 32, "ids.%llu", (unsigned long long)number);
}

int dl_engine_ids_load(struct dl_engine *engine, struct dl_error *error)
{
    struct ids *ids = &engine->ids;
    struct dl_buf bytes = {0};
    char name[32];
    int status = dl_store_get_blob(engine->store, "ids", &bytes, error);
    if (status == DL_OK) {
        struct dl_reader in = dl_reader_of(dl_buf_slice(&bytes));
        ids->key = dl_read_u64(&in);
        ids->first = dl_read_u64(&in);
        ids->next = dl_read_u64(&in);
        if (in.failed) status = dl_error_set(error, DL_ERR_CORRUPT, "the stored ids are damaged");
    } else if (status == DL_ERR_NOT_FOUND) {
        status = DL_OK;
        /* It decides nothing that is published, so it may differ from store to store. */
        if (getrandom(&ids->key, sizeof ids->key, GRND_NONBLOCK) < 0) ids->key = 1;
    }
    if (status == DL_OK && engine->config->source.id_horizon) {
        status = dl_recent_ids_new((uint32_t)engine->config->source.id_horizon, &ids->recent);
        if (status != DL_OK) dl_error_set(error, status, "out of memory for source.id_horizon");
    }
    for (uint64_t n = ids->first; status == DL_OK && ids->recent && n < ids->next; n++) {
        dl_buf_clear(&bytes);
        segment_name(name, n);
        status = dl_store_get_blob(engine->store, name, &bytes, error);
        struct dl_reader in = dl_reader_of(dl_buf_slice(&bytes));
        if (n + 1 == ids->next) dl_buf_clear(&ids->segment);
        while (status == DL_OK && dl_reader_left(&in) > 0) {
            uint64_t hash = dl_read_u64(&in);
            if (in.failed)
                status = dl_error_set(error, DL_ERR_CORRUPT, "stored %s is damaged", name);
            dl_recent_ids_add(ids->recent, hash);
            if (n + 1 == ids->next) dl_buf_u64(&ids->segment, hash);
        }
    }
    ids->segment_open = ids->segment.size > 0 && ids->segment.size < SEGMENT_BYTES;
    if (!ids->segment_open) dl_buf_clear(&ids->segment);
    if (status == DL_OK && ids->segment.failed)
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory for source.id_horizon");
    dl_buf_free(&bytes);
    return status;
}

void dl_engine_ids_deinit(struct dl_engine *engine)
{
    dl_recent_ids_free(engine->ids.recent);
    dl_buf_free(&engine->ids.segment);
}

int dl_engine_ids_repeated(struct dl_engine *engine, struct dl_slice id)
{
    struct ids *ids = &engine->ids;
    if (!ids->recent || id.size == 0) return 0;
    uint64_t hash = dl_recent_ids_hash(ids->key, id);
    if (dl_recent_ids_add(ids->recent, hash)) return 1;
    dl_buf_u64(&ids->segment, hash);
    ids->dirty = 1;
    return 0;
}

/* The segments that there are once what is new is stored. */
static void range_after(const struct dl_engine *engine, uint64_t *first, uint64_t *next)
{
    const struct ids *ids = &engine->ids;
    *first = ids->first;
    *next = ids->next + !ids->segment_open;
    while (*next - *first > 2 &&
           (*next - *first - 2) * SEGMENT_IDS >= engine->config->source.id_horizon)
        ++*first;
}

static int put_range(struct dl_engine *engine, uint64_t first, uint64_t next,
                     struct dl_error *error)
{
    struct dl_buf bytes = {0};
    dl_buf_u64(&bytes, engine->ids.key);
    dl_buf_u64(&bytes, first);
    dl_buf_u64(&bytes, next);
    int status = bytes.failed
                     ? dl_error_set(error, DL_ERR_NOMEM, "out of memory for ids")
                     : dl_store_put_blob(engine->store, "ids", dl_buf_slice(&bytes), error);
    dl_buf_free(&bytes);
    return status;
}

int dl_engine_ids_save(struct dl_engine *engine, struct dl_error *error)
{
    const struct ids *ids = &engine->ids;
    uint64_t first, next;
    char name[32];
    if (!ids->dirty) return DL_OK;
    if (ids->segment.failed) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for ids");
    range_after(engine, &first, &next);
    segment_name(name, next - 1);
    int status = dl_store_put_blob(engine->store, name, dl_buf_slice(&ids->segment), error);
    for (uint64_t n = ids->first; status == DL_OK && n < first; n++) {
        segment_name(name, n);
        status = dl_store_delete_blob(engine->store, name, error);
    }
    if (status == DL_OK && (first != ids->first || next != ids->next))
        status = put_range(engine, first, next, error);
    return status;
}

void dl_engine_ids_saved(struct dl_engine *engine)
{
    struct ids *ids = &engine->ids;
    if (!ids->dirty) return;
    range_after(engine, &ids->first, &ids->next);
    ids->segment_open = ids->segment.size < SEGMENT_BYTES;
    if (!ids->segment_open) dl_buf_clear(&ids->segment);
    ids->dirty = 0;
}
