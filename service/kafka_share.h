/* Which partitions are this instance's, and what readers have of each: shared
 * by the source (which is assigned partitions) and the sink (which publishes).
 *
 * One rule decides about every record, whoever asks and whatever happened:
 *
 *   its message lies below the group's committed offset   readers have it
 *   else the partition is ours                            it is to be published
 *   else                                                  it waits
 *
 * because records and offsets are committed in one Kafka transaction. So a
 * store that was lost or restored from an old copy is filled from the topic
 * without publishing again, and a partition that comes from another instance
 * goes on exactly where that one ended. A record that waits is dropped when the
 * other instance's commits pass it, or published when the partition comes back.
 *
 * Committed offsets are asked for by the sink's thread, after its producer has
 * ended whatever transaction an earlier process of the same identity left open.
 *
 * Any thread. */
#ifndef DL_SERVICE_KAFKA_SHARE_H
#define DL_SERVICE_KAFKA_SHARE_H

#include <stdint.h>

#include "service/config.h"

struct dl_kafka_share;

enum dl_kafka_verdict { DL_KAFKA_PUBLISH, DL_KAFKA_DROP, DL_KAFKA_WAIT };

/* Only partitions of the topics in `topics` (borrowed) are shared; records of
 * any other origin are always to be published. */
int dl_kafka_share_new(const struct dl_texts *topics, struct dl_kafka_share **share);
void dl_kafka_share_free(struct dl_kafka_share *share);

/* Assigned: ours as soon as its committed offset is known. DL_ERR_NOMEM. */
int dl_kafka_share_assign(struct dl_kafka_share *share, const char *topic, int32_t partition);
void dl_kafka_share_revoke(struct dl_kafka_share *share, const char *topic, int32_t partition);

/* The committed offset; negative: nothing was ever committed. Never moves back
 * for a partition that stays ours. DL_ERR_NOMEM. */
int dl_kafka_share_learn(struct dl_kafka_share *share, const char *topic, int32_t partition,
                         int64_t committed);
/* 1 and *committed, if it is known. */
int dl_kafka_share_committed(struct dl_kafka_share *share, const char *topic, int32_t partition,
                             int64_t *committed);

/* What to do about a record of that message. */
enum dl_kafka_verdict dl_kafka_share_judge(struct dl_kafka_share *share, const char *topic,
                                           int32_t partition, int64_t offset);

/* The partition exists, whoever owns it. DL_ERR_NOMEM. */
int dl_kafka_share_note(struct dl_kafka_share *share, const char *topic, int32_t partition);
/* 1 if it is another instance's; *committed is what that one has committed (or -1). */
int dl_kafka_share_other(struct dl_kafka_share *share, const char *topic, int32_t partition,
                         int64_t *committed);
/* 1: the offset was committed while this process was watching. */
int dl_kafka_share_is_live(struct dl_kafka_share *share, const char *topic, int32_t partition,
                           int64_t offset);
/* 1: the first of all partitions is ours; so are the alerts on the feed. */
int dl_kafka_share_is_first(struct dl_kafka_share *share);
/* Calls `fn` for each partition of others whose commit is known. `fn` must not
 * call the share. */
void dl_kafka_share_others(struct dl_kafka_share *share,
                           void (*fn)(void *user, const char *topic, int32_t partition,
                                      int64_t committed),
                           void *user);
/* Asks for the commits of all others. Returns how many there are. */
int dl_kafka_share_ask_others(struct dl_kafka_share *share);

/* Somebody waits for the committed offset of the partition, whoever owns it. */
void dl_kafka_share_ask(struct dl_kafka_share *share, const char *topic, int32_t partition);
/* Calls `fn` for each partition that was assigned or asked for since its
 * committed offset was last learnt. `fn` must not call the share. */
void dl_kafka_share_asked(struct dl_kafka_share *share,
                          void (*fn)(void *user, const char *topic, int32_t partition), void *user);

#endif
