/* The durable state: one SQLite file in WAL mode with one writer.
 *
 *   meta         configuration the file was made for, and a few cursors
 *   node, type   dictionaries: append-only rows of id, (space,) name
 *   edge_log     every event, one compact blob a transaction (log_codec.h)
 *   checkpoint   pages of the temporal graph, each current to its own event
 *   position     source topic and partition -> next offset to read
 *   outbox       records to publish, numbered without gaps, until delivered
 *   alert        recent alerts, for the page and RPC
 *   blob         named state of others (drift monitor, live quality)
 *
 * How state survives. The graph lives in memory. Each transaction appends the
 * batch's events to the log and, in small steps, writes some of the graph's
 * dirty pages; a pass over all dirty pages is a "round". When a round ends,
 * everything before the event at which it began is in some page, so the log
 * before that event ("recover_from") is no longer needed to recover, and the
 * retention limit decides how much of it stays as training data. Recovery
 * reads all pages, then replays the log from recover_from.
 *
 * Transactions. All writing happens between begin and commit. The order in one
 * transaction: new names, dl_graph_apply and dl_store_append_events, the rest
 * in any order, dl_store_checkpoint_step last. After a failed call the
 * transaction can only be rolled back. After a rollback the caller's graph and
 * dictionaries hold what the file does not: build new ones and dl_store_load
 * them.
 *
 * Thread: a store belongs to the thread that uses it (the loop's). Other
 * threads or processes may open the same file with read_only.
 *
 * Errors: every function that takes a `struct dl_error *` (may be NULL) leaves
 * one line in it that names the file, what failed and SQLite's message.
 *   DL_ERR_NOMEM        out of memory
 *   DL_ERR_IO           cannot read or write
 *   DL_ERR_FULL         the disk (or the user's share of it) is full: try again later
 *   DL_ERR_CORRUPT      a checksum, a row or SQLite's own structure is damaged
 *   DL_ERR_VERSION      made by a newer version or for another configuration
 *   DL_ERR_UNAVAILABLE  another process holds the file
 *   DL_ERR_INVALID      called out of order, or a value out of range
 *   DL_ERR_NOT_FOUND    no such file or row */
#ifndef DL_STORE_STORE_H
#define DL_STORE_STORE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/dictionary.h"
#include "base/event.h"
#include "base/graph.h"
#include "base/status.h"

#define DL_STORE_PATH_BYTES_MAX 3840
#define DL_STORE_BLOB_NAME_BYTES_MAX 64
#define DL_STORE_BLOB_BYTES_MAX (256u << 20)  /* one named blob */
#define DL_STORE_OUTBOX_BYTES_MAX (16u << 20) /* key, headers and payload of one row together */
#define DL_STORE_ALERTS_KEPT 10000            /* older ones are removed */

struct dl_store;

/* What a file is made for. It is written once and checked at every open. */
struct dl_store_config {
    enum dl_time_unit time_unit;
    uint32_t window;        /* W, 1..DL_WINDOW_MAX */
    uint32_t feature_count; /* floats an event, 0..DL_EVENT_FEATURES_MAX */
    uint32_t namespaces;    /* 1, or 2 for bipartite feeds */
};

/* What a commit promises. FULL: it survives a power cut. NORMAL: a power cut
 * may lose the last commits, never half of one; a crash of the process loses
 * nothing. OFF: for benches and throw-away files. */
enum dl_store_sync { DL_STORE_SYNC_FULL, DL_STORE_SYNC_NORMAL, DL_STORE_SYNC_OFF };

struct dl_store_options {
    struct dl_store_config config;
    int adopt;     /* take the file's configuration and ignore `config` (train, check) */
    int read_only; /* never writes, takes no writer's lock, may run beside the writer */
    int create;    /* make the file when there is none */
    enum dl_store_sync sync;
    uint64_t log_keep_events; /* keep at least this many recent events in the log */
    uint64_t round_events;    /* a checkpoint round is paced to end within this many events */
    uint64_t wal_bytes;       /* the WAL is folded into the file beyond this */
    uint64_t cache_bytes;     /* SQLite's page cache */
    const char *created_by;   /* e.g. "driftline 0.1.0" */
    const char *vfs;          /* SQLite VFS; NULL: the default. For tests. */
};

/* FULL, create, 100 million events kept, rounds of 2^20 events, WAL 16 MiB, cache 32 MiB. */
extern const struct dl_store_options dl_store_options_default;

/* Opens or creates. The writer takes an advisory lock on "<path>-lock", so a
 * second writer is refused (DL_ERR_UNAVAILABLE, naming the process). */
int dl_store_open(const char *path, const struct dl_store_options *options, struct dl_store **store,
                  struct dl_error *error);
/* Rolls back what is open, folds the WAL into the file, closes. NULL is allowed. */
void dl_store_close(struct dl_store *store);
/* The file's configuration. */
const struct dl_store_config *dl_store_get_config(const struct dl_store *store);

/* ---- recovery ----------------------------------------------------------- */

struct dl_store_recovery {
    uint64_t nodes, types;
    uint64_t pages, page_bytes;
    uint64_t replay_from, replayed; /* log tail: first sequence number, events */
    uint64_t events;                /* the graph's event count afterwards */
    uint64_t elapsed_ns;
};

/* Fills empty dictionaries and an empty graph from the file, exactly as they
 * were at the last commit. `recovery` may be NULL. On an error all three are
 * in an unspecified state and should be freed. */
int dl_store_load(struct dl_store *store, struct dl_graph *graph, struct dl_dictionary *nodes,
                  struct dl_dictionary *types, struct dl_store_recovery *recovery,
                  struct dl_error *error);

/* Fills empty dictionaries only (training from the store). */
int dl_store_load_names(struct dl_store *store, struct dl_dictionary *nodes,
                        struct dl_dictionary *types, struct dl_error *error);

/* ---- transactions ------------------------------------------------------- */

int dl_store_begin(struct dl_store *store, struct dl_error *error);
/* Durable on return (sync FULL). May fold the WAL into the file; a failure of
 * that alone is counted in the stats and tried again, not reported here. */
int dl_store_commit(struct dl_store *store, struct dl_error *error);
/* Never fails; does nothing outside a transaction. */
void dl_store_rollback(struct dl_store *store);
/* The same for a caller that keeps its graph and dictionaries and will try the
 * same transaction again: pages that were written in it are dirty again. */
void dl_store_rollback_keep(struct dl_store *store, struct dl_graph *graph);
int dl_store_in_transaction(const struct dl_store *store);

/* ---- dictionaries ------------------------------------------------------- */

/* `id` must be the next one: ids are dense and in order of first appearance. */
int dl_store_add_node(struct dl_store *store, uint32_t id, uint8_t space, struct dl_slice name,
                      struct dl_error *error);
int dl_store_add_type(struct dl_store *store, uint32_t id, struct dl_slice name,
                      struct dl_error *error);

/* ---- edge log ----------------------------------------------------------- */

/* Appends events with sequence numbers first_seq, first_seq + 1, ...;
 * first_seq must be the log's next. One blob up to 65,536 events. */
int dl_store_append_events(struct dl_store *store, uint64_t first_seq,
                           const struct dl_event *events, uint32_t count, struct dl_error *error);

/* Sequence numbers in the log: [*first, *next). Equal: empty. */
void dl_store_log_range(const struct dl_store *store, uint64_t *first, uint64_t *next);

/* An event of the log; borrowed for the call. Return 0 to go on; anything else
 * ends the reading and is returned. */
typedef int dl_store_event_fn(void *user, uint64_t seq, const struct dl_event *event);

/* Every event from `from_seq` (or the oldest kept, if that is later) in order.
 * Between blobs no read transaction is held, so a slow callback does not keep
 * the WAL from being folded. `fn` must not write to the store. */
int dl_store_log_read(struct dl_store *store, uint64_t from_seq, dl_store_event_fn *fn, void *user,
                      struct dl_error *error);

/* ---- checkpoints -------------------------------------------------------- */

struct dl_store_step {
    uint32_t pages;
    uint64_t bytes;
    int round_ended; /* recover_from moved and the log may have been cut */
};

/* Writes up to `pages_max` dirty pages of the graph (0: as many as keep the
 * round within options.round_events). After the batch's events are appended.
 * `step` may be NULL. */
int dl_store_checkpoint_step(struct dl_store *store, struct dl_graph *graph, uint32_t pages_max,
                             struct dl_store_step *step, struct dl_error *error);
/* Writes every dirty page (shutdown: the next start then replays nothing). */
int dl_store_checkpoint_all(struct dl_store *store, struct dl_graph *graph,
                            struct dl_store_step *step, struct dl_error *error);

/* Writes those of the pages that are dirty, whatever the round. */
int dl_store_checkpoint_pages(struct dl_store *store, struct dl_graph *graph,
                              const struct dl_page_id *pages, uint32_t count,
                              struct dl_error *error);
/* The caller knows that everything before event `seq` is in pages. */
int dl_store_checkpoint_reached(struct dl_store *store, uint64_t seq, struct dl_error *error);

/* ---- source positions --------------------------------------------------- */

int dl_store_set_position(struct dl_store *store, const char *topic, int32_t partition,
                          int64_t next_offset, struct dl_error *error);
/* DL_ERR_NOT_FOUND if there is none. */
int dl_store_get_position(struct dl_store *store, const char *topic, int32_t partition,
                          int64_t *next_offset, struct dl_error *error);
/* position->offset is the next offset to read. Return 0 to go on. */
typedef int dl_store_position_fn(void *user, const struct dl_position *position);
int dl_store_positions(struct dl_store *store, dl_store_position_fn *fn, void *user,
                       struct dl_error *error);

/* ---- forgetting ------------------------------------------------------------ */

#define DL_STORE_FORGET_IDS_MAX 2 /* the same name as source and as destination */

/* What is being forgotten: a node, or the edges between two. It is an event of its
 * own: what the graph holds of it goes at once, when the log is at `before_seq`; the
 * file follows in steps, each in a transaction of the caller's. The record is kept in
 * the file until it is done, so that a restart can go on.
 *
 * In order: (1) dl_store_forget_secure, then one transaction with dl_store_forget_put
 * and the new names, after it dl_store_forget_graph; (2) dl_store_forget_records, then
 * the record again, without its names; (3) every page that was dirty after (1) by
 * dl_store_checkpoint_pages, dl_store_checkpoint_reached; (4) dl_store_forget_log,
 * never before (3): recovery would miss what is gone; (5) dl_store_forget_free;
 * (6) dl_store_forget_fold, dl_store_forget_done. */
struct dl_store_forgetting {
    uint64_t before_seq; /* of the first event that came after the request */
    uint64_t log_next;   /* the log below is done */
    uint64_t events;     /* that are gone from the log so far */
    uint64_t outbox_end; /* records and alerts from here on came after the request */
    uint64_t alert_end;
    int has_peer;
    uint32_t node_count, nodes[DL_STORE_FORGET_IDS_MAX];
    uint32_t peer_count, peers[DL_STORE_FORGET_IDS_MAX];
    uint32_t node_size, peer_size; /* 0: the records are done */
    char node[DL_NAME_BYTES_MAX], peer[DL_NAME_BYTES_MAX];
};

int dl_store_forget_put(struct dl_store *store, const struct dl_store_forgetting *forgetting,
                        struct dl_error *error);
/* DL_ERR_NOT_FOUND: nothing is being forgotten. */
int dl_store_forget_get(struct dl_store *store, struct dl_store_forgetting *forgetting,
                        struct dl_error *error);
/* Until it is done, what is removed is also overwritten on the disk. */
int dl_store_forget_secure(struct dl_store *store, struct dl_error *error);
/* Again: no effect. dl_store_load does it where it belongs. */
void dl_store_forget_graph(const struct dl_store_forgetting *forgetting, struct dl_graph *graph);
int dl_store_rename_node(struct dl_store *store, uint32_t id, uint8_t space, struct dl_slice name,
                         struct dl_error *error);

/* 1: the record (dl_outbox_kind, key, payload) names what is forgotten. */
typedef int dl_store_names_fn(void *user, int kind, struct dl_slice key, struct dl_slice payload);
struct dl_store_forget_at { /* the last that were looked at */
    uint64_t outbox, alert;
};
/* Looks through up to `rows_max` records more: those in the outbox that `fn` names become
 * DL_OUTBOX_FORGOTTEN and empty, alerts are removed. *more: there are others. */
int dl_store_forget_records(struct dl_store *store, const struct dl_store_forgetting *forgetting,
                            struct dl_store_forget_at *at, uint32_t rows_max, dl_store_names_fn *fn,
                            void *user, int *more, struct dl_error *error);
/* Looks through blobs of about `events_max` events more; those to be forgotten become
 * holes. Moves log_next and events. *more: there are others. */
int dl_store_forget_log(struct dl_store *store, struct dl_store_forgetting *forgetting,
                        uint64_t events_max, int *more, struct dl_error *error);
/* Takes up to `pages_max` free pages, which hold what was removed earlier, out of the
 * file. *left: how many there are still. */
int dl_store_forget_free(struct dl_store *store, uint32_t pages_max, uint64_t *left,
                         struct dl_error *error);
/* Outside a transaction: takes it out of the WAL. A reader may hold that; then it goes
 * when the WAL begins anew. */
int dl_store_forget_fold(struct dl_store *store, struct dl_error *error);
/* Removes the record, in a transaction of its own. */
int dl_store_forget_done(struct dl_store *store, struct dl_error *error);

/* ---- outbox ------------------------------------------------------------- */

enum dl_outbox_kind {
    DL_OUTBOX_SCORE = 1,
    DL_OUTBOX_PREDICTION = 2,
    DL_OUTBOX_ALERT = 3,
    DL_OUTBOX_DEAD_LETTER = 4,
    DL_OUTBOX_FORGOTTEN = 5, /* emptied: not to be published */
    DL_OUTBOX_TOMBSTONE = 6  /* a key without a value: compaction removes the key's records */
};

struct dl_outbox_row {
    uint64_t seq; /* set by the store; from 1, without gaps, never used twice */
    enum dl_outbox_kind kind;
    const char *topic;
    struct dl_slice key;     /* may be empty */
    struct dl_slice headers; /* as built by dl_store_headers_put; may be empty */
    struct dl_slice payload;
    struct dl_position position; /* of the source message; topic "" when there is none */
};

/* Headers of a record as bytes: put any number, then read them back in order.
 * next returns 1 and a header (value borrowed from the bytes), 0 at the end,
 * DL_ERR_CORRUPT. Keys are not NUL-terminated. */
void dl_store_headers_put(struct dl_buf *headers, struct dl_slice key, struct dl_slice value);
int dl_store_headers_next(struct dl_reader *headers, struct dl_slice *key, struct dl_slice *value);

/* Appends and gives the row's number in *seq (may be NULL). row->seq is ignored. */
int dl_store_outbox_append(struct dl_store *store, const struct dl_outbox_row *row, uint64_t *seq,
                           struct dl_error *error);
/* Borrowed for the call. Return 0 to go on. */
typedef int dl_store_outbox_fn(void *user, const struct dl_outbox_row *row);
/* Up to `max` rows from `from_seq` on, in order. */
int dl_store_outbox_read(struct dl_store *store, uint64_t from_seq, uint32_t max,
                         dl_store_outbox_fn *fn, void *user, struct dl_error *error);
/* The rows up to and including `seq` are delivered: they wait no longer. They leave
 * the file with the next commit, which spares them a transaction of their own, or by
 * dl_store_outbox_sweep; after a crash before that they wait again. DL_ERR_INVALID
 * for a row that is not committed. */
int dl_store_outbox_delivered(struct dl_store *store, uint64_t seq, struct dl_error *error);
/* Removes what is delivered from the file, if anything is. No transaction is open. */
int dl_store_outbox_sweep(struct dl_store *store, struct dl_error *error);
/* Rows waiting: [*first, *next). */
void dl_store_outbox_range(const struct dl_store *store, uint64_t *first, uint64_t *next);

/* ---- alerts, named blobs, destination list ------------------------------- */

struct dl_alert_row {
    uint64_t number;
    int32_t kind;
    int32_t raised;
    int64_t time;
    uint64_t seq;
    struct dl_slice payload; /* the caller's encoding of the whole alert */
};

/* Numbers must rise. The oldest beyond DL_STORE_ALERTS_KEPT are removed. */
int dl_store_put_alert(struct dl_store *store, const struct dl_alert_row *row,
                       struct dl_error *error);
typedef int dl_store_alert_fn(void *user, const struct dl_alert_row *row);
/* The newest `max`, newest first. */
int dl_store_alerts(struct dl_store *store, uint32_t max, dl_store_alert_fn *fn, void *user,
                    struct dl_error *error);
/* Of the newest alert ever put; 0: none. */
uint64_t dl_store_alert_last(const struct dl_store *store);

/* Replaces. Names: 1..DL_STORE_BLOB_NAME_BYTES_MAX bytes. */
int dl_store_put_blob(struct dl_store *store, const char *name, struct dl_slice data,
                      struct dl_error *error);
/* Appends the blob to *out. DL_ERR_NOT_FOUND if there is none. */
int dl_store_get_blob(struct dl_store *store, const char *name, struct dl_buf *out,
                      struct dl_error *error);
/* No error if there is none. */
int dl_store_delete_blob(struct dl_store *store, const char *name, struct dl_error *error);

/* The live-quality destination list, once it is frozen: node ids in order. */
int dl_store_put_destinations(struct dl_store *store, const uint32_t *nodes, uint32_t count,
                              struct dl_error *error);
/* *nodes is the caller's to free(). DL_ERR_NOT_FOUND if it was never put. */
int dl_store_get_destinations(struct dl_store *store, uint32_t **nodes, uint32_t *count,
                              struct dl_error *error);

/* ---- care ---------------------------------------------------------------- */

struct dl_store_stats {
    uint64_t file_bytes, free_bytes, wal_bytes; /* free: inside the file, reused first */
    uint64_t nodes, types;
    uint64_t log_first_seq, log_next_seq, recover_from;
    uint64_t outbox_first, outbox_next;
    uint64_t commits, pages_written, page_bytes_written; /* since open */
    uint64_t wal_folds, wal_fold_failures;               /* since open */
};
/* Cheap: no table is scanned. */
void dl_store_get_stats(struct dl_store *store, struct dl_store_stats *stats);

struct dl_store_report {
    int32_t schema_version;
    char created_by[64];
    struct dl_store_config config;
    uint64_t nodes, types;
    uint64_t log_blobs, log_events, log_bytes, log_first_seq, log_next_seq;
    uint64_t pages, page_bytes, recover_from;
    uint64_t positions, outbox_rows, alerts, blobs;
    uint64_t file_bytes, wal_bytes;
    uint64_t problems; /* 0: sound */
    char problem[512]; /* the first, one line */
};
/* Reads everything: SQLite's integrity check, every checksum, every count.
 * DL_OK with report->problems > 0 if something is damaged. */
int dl_store_check(struct dl_store *store, struct dl_store_report *report, struct dl_error *error);

/* Copies the file, as of the last commit, to `path` (which must not exist),
 * while the store stays open. Outside a transaction. */
int dl_store_backup(struct dl_store *store, const char *path, struct dl_error *error);

#endif
