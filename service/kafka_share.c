/* See kafka_share.h. A plain list: an instance has tens of partitions. */
#include "service/kafka_share.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct entry {
    char topic[250];
    int32_t partition;
    int owned;
    int known; /* `committed` was learnt since the partition was last assigned */
    int asked;
    int64_t committed;
    int watched;             /* first_committed is set */
    int64_t first_committed; /* when this process first learnt of it */
};

struct dl_kafka_share {
    const struct dl_texts *topics;
    pthread_mutex_t mutex;
    struct entry *entries;
    uint32_t count, capacity;
};

int dl_kafka_share_new(const struct dl_texts *topics, struct dl_kafka_share **out)
{
    struct dl_kafka_share *share = calloc(1, sizeof *share);
    if (!share) return DL_ERR_NOMEM;
    share->topics = topics;
    pthread_mutex_init(&share->mutex, NULL);
    *out = share;
    return DL_OK;
}

void dl_kafka_share_free(struct dl_kafka_share *share)
{
    if (!share) return;
    pthread_mutex_destroy(&share->mutex);
    free(share->entries);
    free(share);
}

static struct entry *find(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    for (uint32_t i = 0; i < share->count; i++)
        if (share->entries[i].partition == partition && strcmp(share->entries[i].topic, topic) == 0)
            return &share->entries[i];
    return NULL;
}

static struct entry *find_or_add(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    struct entry *entry = find(share, topic, partition);
    if (entry) return entry;
    if (share->count == share->capacity) {
        uint32_t capacity = share->capacity ? share->capacity * 2 : 16;
        struct entry *entries = realloc(share->entries, capacity * sizeof *entries);
        if (!entries) return NULL;
        share->entries = entries;
        share->capacity = capacity;
    }
    entry = &share->entries[share->count++];
    *entry = (struct entry){.partition = partition, .committed = -1};
    snprintf(entry->topic, sizeof entry->topic, "%s", topic);
    return entry;
}

int dl_kafka_share_assign(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find_or_add(share, topic, partition);
    if (entry) {
        entry->owned = entry->asked = 1;
        entry->known = 0;
    }
    pthread_mutex_unlock(&share->mutex);
    return entry ? DL_OK : DL_ERR_NOMEM;
}

void dl_kafka_share_revoke(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find(share, topic, partition);
    if (entry) entry->owned = 0;
    pthread_mutex_unlock(&share->mutex);
}

int dl_kafka_share_learn(struct dl_kafka_share *share, const char *topic, int32_t partition,
                         int64_t committed)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find_or_add(share, topic, partition);
    if (entry) {
        /* An operator may set a group back while it is not running, hence not `max` always. */
        if (!entry->known || committed > entry->committed) entry->committed = committed;
        if (!entry->watched) entry->first_committed = committed;
        entry->watched = entry->known = 1;
        entry->asked = 0;
    }
    pthread_mutex_unlock(&share->mutex);
    return entry ? DL_OK : DL_ERR_NOMEM;
}

int dl_kafka_share_committed(struct dl_kafka_share *share, const char *topic, int32_t partition,
                             int64_t *committed)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find(share, topic, partition);
    int known = entry && entry->known;
    if (known) *committed = entry->committed;
    pthread_mutex_unlock(&share->mutex);
    return known;
}

enum dl_kafka_verdict dl_kafka_share_judge(struct dl_kafka_share *share, const char *topic,
                                           int32_t partition, int64_t offset)
{
    int shared = 0;
    for (size_t i = 0; topic[0] && i < share->topics->count; i++) /* "^...": a pattern */
        shared |= share->topics->items[i][0] == '^' || strcmp(share->topics->items[i], topic) == 0;
    if (!shared) return DL_KAFKA_PUBLISH;
    enum dl_kafka_verdict verdict = DL_KAFKA_WAIT;
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find(share, topic, partition);
    if (entry && entry->known && offset < entry->committed)
        verdict = DL_KAFKA_DROP;
    else if (entry && entry->known && entry->owned)
        verdict = DL_KAFKA_PUBLISH;
    pthread_mutex_unlock(&share->mutex);
    return verdict;
}

int dl_kafka_share_note(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find_or_add(share, topic, partition);
    pthread_mutex_unlock(&share->mutex);
    return entry ? DL_OK : DL_ERR_NOMEM;
}

int dl_kafka_share_other(struct dl_kafka_share *share, const char *topic, int32_t partition,
                         int64_t *committed)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find(share, topic, partition);
    int other = entry && !entry->owned;
    if (other) *committed = entry->known ? entry->committed : -1;
    pthread_mutex_unlock(&share->mutex);
    return other;
}

int dl_kafka_share_is_live(struct dl_kafka_share *share, const char *topic, int32_t partition,
                           int64_t offset)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find(share, topic, partition);
    int live = entry && entry->watched && offset >= entry->first_committed;
    pthread_mutex_unlock(&share->mutex);
    return live;
}

int dl_kafka_share_is_first(struct dl_kafka_share *share)
{
    const struct entry *first = NULL;
    pthread_mutex_lock(&share->mutex);
    for (uint32_t i = 0; i < share->count; i++) {
        const struct entry *entry = &share->entries[i];
        int order = first ? strcmp(entry->topic, first->topic) : -1;
        if (order < 0 || (order == 0 && entry->partition < first->partition)) first = entry;
    }
    int ours = first && first->owned;
    pthread_mutex_unlock(&share->mutex);
    return ours;
}

void dl_kafka_share_others(struct dl_kafka_share *share,
                           void (*fn)(void *user, const char *topic, int32_t partition,
                                      int64_t committed),
                           void *user)
{
    pthread_mutex_lock(&share->mutex);
    for (uint32_t i = 0; i < share->count; i++) {
        const struct entry *entry = &share->entries[i];
        if (!entry->owned && entry->known)
            fn(user, entry->topic, entry->partition, entry->committed);
    }
    pthread_mutex_unlock(&share->mutex);
}

int dl_kafka_share_ask_others(struct dl_kafka_share *share)
{
    int count = 0;
    pthread_mutex_lock(&share->mutex);
    for (uint32_t i = 0; i < share->count; i++)
        if (!share->entries[i].owned) {
            share->entries[i].asked = 1;
            count++;
        }
    pthread_mutex_unlock(&share->mutex);
    return count;
}

void dl_kafka_share_ask(struct dl_kafka_share *share, const char *topic, int32_t partition)
{
    pthread_mutex_lock(&share->mutex);
    struct entry *entry = find_or_add(share, topic, partition);
    if (entry) entry->asked = 1;
    pthread_mutex_unlock(&share->mutex);
}

void dl_kafka_share_asked(struct dl_kafka_share *share,
                          void (*fn)(void *user, const char *topic, int32_t partition), void *user)
{
    pthread_mutex_lock(&share->mutex);
    for (uint32_t i = 0; i < share->count; i++)
        if (share->entries[i].asked) fn(user, share->entries[i].topic, share->entries[i].partition);
    pthread_mutex_unlock(&share->mutex);
}
