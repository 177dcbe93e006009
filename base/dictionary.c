/* Open-addressing hash over a block of concatenated names. */
#include "base/dictionary.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    uint64_t offset; /* of the name in `names` */
    uint32_t hash;
    uint16_t size;
    uint8_t space;
};

struct dl_dictionary {
    uint32_t count, count_max;
    uint32_t entry_capacity;
    struct entry *entries; /* (count), by id */
    uint32_t slot_mask;
    uint32_t *slots; /* id + 1, 0: free */
    struct dl_buf names;
};

static uint32_t hash_name(uint8_t space, struct dl_slice name)
{
    uint64_t h = dl_mix64(((uint64_t)space << 32) ^ name.size);
    size_t i = 0;
    for (; i + 8 <= name.size; i += 8) {
        uint64_t word;
        memcpy(&word, name.data + i, 8);
        h = dl_mix64(h ^ word);
    }
    uint64_t rest = 0;
    if (i < name.size) {
        memcpy(&rest, name.data + i, name.size - i);
        h = dl_mix64(h ^ rest);
    }
    return (uint32_t)(h >> 32);
}

int dl_dictionary_new(uint32_t count_max, struct dl_dictionary **dictionary)
{
    struct dl_dictionary *d = calloc(1, sizeof *d);
    if (!d) return DL_ERR_NOMEM;
    d->count_max = count_max < UINT32_MAX - 1 ? count_max : UINT32_MAX - 1;
    d->slot_mask = 63;
    d->slots = calloc(64, sizeof *d->slots);
    if (!d->slots) {
        free(d);
        return DL_ERR_NOMEM;
    }
    *dictionary = d;
    return DL_OK;
}

void dl_dictionary_free(struct dl_dictionary *d)
{
    if (!d) return;
    dl_buf_free(&d->names);
    free(d->entries);
    free(d->slots);
    free(d);
}

uint32_t dl_dictionary_count(const struct dl_dictionary *d)
{
    return d->count;
}

/* The slot that holds the key, or the free one where it belongs. */
static uint32_t find_slot(const struct dl_dictionary *d, uint8_t space, struct dl_slice name,
                          uint32_t hash)
{
    uint32_t at = hash & d->slot_mask;
    while (d->slots[at]) {
        const struct entry *e = &d->entries[d->slots[at] - 1];
        if (e->hash == hash && e->space == space && e->size == name.size &&
            (name.size == 0 || memcmp(d->names.data + e->offset, name.data, name.size) == 0))
            break;
        at = (at + 1) & d->slot_mask;
    }
    return at;
}

int dl_dictionary_find(const struct dl_dictionary *d, uint8_t space, struct dl_slice name,
                       uint32_t *id)
{
    uint32_t slot = find_slot(d, space, name, hash_name(space, name));
    if (!d->slots[slot]) return DL_ERR_NOT_FOUND;
    *id = d->slots[slot] - 1;
    return DL_OK;
}

static int grow_slots(struct dl_dictionary *d)
{
    uint32_t mask = d->slot_mask * 2 + 1;
    uint32_t *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots) return DL_ERR_NOMEM;
    for (uint32_t id = 0; id < d->count; id++) {
        uint32_t at = d->entries[id].hash & mask;
        while (slots[at]) at = (at + 1) & mask;
        slots[at] = id + 1;
    }
    free(d->slots);
    d->slots = slots;
    d->slot_mask = mask;
    return DL_OK;
}

int dl_dictionary_intern(struct dl_dictionary *d, uint8_t space, struct dl_slice name, uint32_t *id,
                         int *added)
{
    uint32_t hash = hash_name(space, name);
    uint32_t slot = find_slot(d, space, name, hash);
    if (added) *added = 0;
    if (d->slots[slot]) {
        *id = d->slots[slot] - 1;
        return DL_OK;
    }
    if (d->count >= d->count_max) return DL_ERR_FULL;
    if (name.size > UINT16_MAX) return DL_ERR_TOO_LARGE;
    if (d->count == d->entry_capacity) {
        uint32_t capacity = d->entry_capacity ? d->entry_capacity * 2 : 64;
        struct entry *entries = realloc(d->entries, capacity * sizeof *entries);
        if (!entries) return DL_ERR_NOMEM;
        d->entries = entries;
        d->entry_capacity = capacity;
    }
    if (d->count >= d->slot_mask / 4 * 3) {
        if (grow_slots(d) != DL_OK) return DL_ERR_NOMEM;
        slot = find_slot(d, space, name, hash);
    }
    if (dl_buf_reserve(&d->names, name.size) != DL_OK) {
        d->names.failed = 0;
        return DL_ERR_NOMEM;
    }
    d->entries[d->count] = (struct entry){
        .offset = d->names.size, .hash = hash, .size = (uint16_t)name.size, .space = space};
    dl_buf_append(&d->names, name.data, name.size);
    *id = d->count++;
    d->slots[slot] = d->count;
    if (added) *added = 1;
    return DL_OK;
}

/* Frees a slot and moves those behind it up, so that no search stops early. */
static void free_slot(struct dl_dictionary *d, uint32_t at)
{
    uint32_t hole = at;
    for (;;) {
        at = (at + 1) & d->slot_mask;
        if (!d->slots[at]) break;
        uint32_t home = d->entries[d->slots[at] - 1].hash & d->slot_mask;
        if (((at - home) & d->slot_mask) < ((at - hole) & d->slot_mask)) continue;
        d->slots[hole] = d->slots[at];
        hole = at;
    }
    d->slots[hole] = 0;
}

int dl_dictionary_rename(struct dl_dictionary *d, uint32_t id, uint8_t space, struct dl_slice name)
{
    DL_CHECK(id < d->count);
    struct entry *e = &d->entries[id];
    uint32_t hash = hash_name(space, name);
    if (d->slots[find_slot(d, space, name, hash)]) return DL_ERR_EXISTS;
    if (dl_buf_reserve(&d->names, name.size) != DL_OK) {
        d->names.failed = 0;
        return DL_ERR_NOMEM;
    }
    free_slot(d, find_slot(d, e->space, dl_dictionary_name(d, id), e->hash));
    if (e->size) memset(d->names.data + e->offset, 0, e->size);
    *e = (struct entry){
        .offset = d->names.size, .hash = hash, .size = (uint16_t)name.size, .space = space};
    dl_buf_append(&d->names, name.data, name.size);
    d->slots[find_slot(d, space, name, hash)] = id + 1;
    return DL_OK;
}

struct dl_slice dl_dictionary_name(const struct dl_dictionary *d, uint32_t id)
{
    DL_CHECK(id < d->count);
    return dl_slice_of(d->names.data + d->entries[id].offset, d->entries[id].size);
}

uint8_t dl_dictionary_space(const struct dl_dictionary *d, uint32_t id)
{
    DL_CHECK(id < d->count);
    return d->entries[id].space;
}
