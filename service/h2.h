/* One HTTP/2 connection, server or client, without I/O: bytes in, bytes out,
 * time as an argument. A wrapper of nghttp2 that adds what gRPC needs: header
 * blocks delivered whole and bounded, an outgoing queue of shared blocks for
 * each stream, flow control that waits for the reader, and limits on what a
 * peer may cost.
 *
 *   socket bytes -> dl_h2_receive -> events (request, data, end, closed)
 *   dl_h2_respond / _push / _finish -> dl_h2_take -> socket bytes
 *
 * A stream lives from the `headers` event (server) or dl_h2_request (client)
 * until its `closed` event has returned; `closed` comes exactly once, also
 * from dl_h2_free. Everything runs on one thread. Events are called from
 * dl_h2_receive, dl_h2_take and dl_h2_free; every function below but those
 * three may be called from within an event. */
#ifndef DL_SERVICE_H2_H
#define DL_SERVICE_H2_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/status.h"

struct dl_h2;

/* HTTP/2 error codes that others need (RFC 9113, section 7). */
enum dl_h2_code {
    DL_H2_NO_ERROR = 0,
    DL_H2_INTERNAL_ERROR = 2,
    DL_H2_REFUSED_STREAM = 7,
    DL_H2_CANCEL = 8,
    DL_H2_ENHANCE_YOUR_CALM = 11
};

/* Bytes on their way out, shared by every stream that sends them. Counted on
 * the loop's thread, not atomic. */
struct dl_h2_block {
    uint32_t references;
    size_t size;
    uint8_t data[];
};
/* A block of `size` bytes to be filled in, with one reference. NULL: no memory. */
struct dl_h2_block *dl_h2_block_new(size_t size);
struct dl_h2_block *dl_h2_block_ref(struct dl_h2_block *block);
void dl_h2_block_unref(struct dl_h2_block *block); /* NULL is allowed */

struct dl_h2_header {
    struct dl_slice name, value;
};

/* A stream. `user` is the caller's; the rest is h2's. */
struct dl_h2_stream {
    void *user;
    int32_t id;
    size_t queued_bytes;    /* pushed and not yet sent */
    uint32_t queued_blocks; /* a block that is partly sent counts */
    size_t unconsumed;      /* body bytes delivered and not yet consumed */
    int peer_ended;         /* the peer's side is complete */
    /* private */
    struct dl_h2_item {
        struct dl_h2_block *block; /* NULL: `own` is free */
        struct dl_h2_item *next;
    } * head, *tail, own; /* own: most streams queue one block, which then needs no allocation */
    size_t head_sent;
    struct dl_buf trailers;
    const struct dl_h2_header *lasting_trailers; /* instead */
    uint32_t trailer_count;
    unsigned int has_trailers : 1, ended : 1, deferred : 1, refused : 1, headers_done : 1;
    struct dl_h2_stream *previous, *next;
};

enum dl_h2_headers_flag {
    DL_H2_LAST = 1,     /* the peer's side ends here */
    DL_H2_TOO_LARGE = 2 /* the header list exceeded the limit; `headers` holds its beginning */
};

/* What a connection reports. Slices are borrowed until the event returns. */
struct dl_h2_events {
    /* A request (server) or a response (client) begins. */
    void (*headers)(void *context, struct dl_h2_stream *stream, const struct dl_h2_header *headers,
                    size_t count, int flags);
    /* Trailers; the peer's side is complete. */
    void (*trailers)(void *context, struct dl_h2_stream *stream, const struct dl_h2_header *headers,
                     size_t count);
    /* Body bytes. The peer's window stays smaller until dl_h2_consume. */
    void (*data)(void *context, struct dl_h2_stream *stream, struct dl_slice bytes);
    /* The peer's side ended after data (not after DL_H2_LAST or trailers). */
    void (*end)(void *context, struct dl_h2_stream *stream);
    /* The first byte of a block is about to leave; may be NULL. Returns NULL to
     * send it as it is, or another to send in its place. */
    struct dl_h2_block *(*starting)(void *context, struct dl_h2_stream *stream,
                                    const struct dl_h2_block *block);
    /* The stream is gone; code is DL_H2_NO_ERROR after an orderly end. */
    void (*closed)(void *context, struct dl_h2_stream *stream, uint32_t code);
    /* The peer said GOAWAY (client); may be NULL. */
    void (*goaway)(void *context, uint32_t code);
};

struct dl_h2_config {
    int server;
    uint32_t streams_max;       /* concurrent streams that the peer may open */
    uint32_t header_bytes_max;  /* header list: names, values and 32 bytes each */
    uint32_t stream_window;     /* bytes that the peer may send ahead on a stream */
    uint32_t connection_window; /* and on all streams together */
    /* Token buckets: `burst` at once, `rate` a second after that. Emptying one
     * ends the connection with ENHANCE_YOUR_CALM. */
    uint32_t reset_burst, reset_rate;     /* streams reset or broken by the peer */
    uint32_t control_burst, control_rate; /* PING, SETTINGS, PRIORITY, empty DATA */
};

/* 128 streams, 16 KiB of headers, windows of 256 KiB and 1 MiB, 1000 + 200/s
 * resets, 1000 + 100/s control frames. */
extern const struct dl_h2_config dl_h2_config_server, dl_h2_config_client;

/* DL_OK or DL_ERR_NOMEM. `events` is borrowed for the connection's life. */
int dl_h2_new(const struct dl_h2_config *config, const struct dl_h2_events *events, void *context,
              int64_t now_ms, struct dl_h2 **h2);
/* Every stream left gets its `closed` event first. Not from within an event. */
void dl_h2_free(struct dl_h2 *h2);

/* Takes in bytes from the peer. DL_OK, also when the peer broke the protocol
 * (what is to be said about it is then in dl_h2_take, and dl_h2_is_done soon
 * after). DL_ERR_INVALID when the connection is over (not HTTP/2, or a flood):
 * to be closed once what dl_h2_take gives is written. DL_ERR_NOMEM. `error`
 * names what was wrong. */
int dl_h2_receive(struct dl_h2 *h2, struct dl_slice bytes, int64_t now_ms, struct dl_error *error);

/* The next bytes for the peer, borrowed until the next call; empty when there
 * is nothing to send. DL_OK or DL_ERR_NOMEM. */
int dl_h2_take(struct dl_h2 *h2, struct dl_slice *bytes);

/* 1 when the connection is to be closed once what was taken is written. */
int dl_h2_is_done(const struct dl_h2 *h2);
/* 1 once the peer's preface and SETTINGS have come. */
int dl_h2_is_established(const struct dl_h2 *h2);
/* Streams that have not closed. */
uint32_t dl_h2_stream_count(const struct dl_h2 *h2);

/* ---- streams ---------------------------------------------------------------- */

/* Server: sends the response's headers, once. With `last`, nothing follows. */
int dl_h2_respond(struct dl_h2 *h2, struct dl_h2_stream *stream, const struct dl_h2_header *headers,
                  size_t count, int last);
/* Client: begins a request whose body comes by dl_h2_push. DL_OK,
 * DL_ERR_UNAVAILABLE (the peer said GOAWAY, or stream ids ran out),
 * DL_ERR_NOMEM. */
int dl_h2_request(struct dl_h2 *h2, const struct dl_h2_header *headers, size_t count, void *user,
                  struct dl_h2_stream **stream);
/* Adds a block to the stream's queue; takes over the caller's reference in
 * every case. DL_OK or DL_ERR_NOMEM. */
int dl_h2_push(struct dl_h2 *h2, struct dl_h2_stream *stream, struct dl_h2_block *block);
/* Removes the oldest queued block of which no byte was sent. 1 if there was one. */
int dl_h2_drop_oldest(struct dl_h2_stream *stream);
/* Ends our side once the queue is sent, with trailers if count > 0. */
int dl_h2_finish(struct dl_h2 *h2, struct dl_h2_stream *stream, const struct dl_h2_header *trailers,
                 size_t count);
/* The same with trailers whose memory outlives the stream: nothing is copied. */
void dl_h2_finish_lasting(struct dl_h2 *h2, struct dl_h2_stream *stream,
                          const struct dl_h2_header *trailers, size_t count);
/* Gives the stream up. What is queued is not sent. */
void dl_h2_reset(struct dl_h2 *h2, struct dl_h2_stream *stream, enum dl_h2_code code);
/* The reader is done with `size` body bytes: the peer may send as many more. */
void dl_h2_consume(struct dl_h2 *h2, struct dl_h2_stream *stream, size_t size);

/* ---- the connection ----------------------------------------------------------- */

/* Step one of a graceful end: a GOAWAY that still admits every stream, and a
 * PING whose answer proves that the peer has read it. */
void dl_h2_drain(struct dl_h2 *h2);
/* 1 once that PING was answered. */
int dl_h2_is_drained(const struct dl_h2 *h2);
/* Step two: no stream beyond those that have begun; done when they have ended. */
void dl_h2_close(struct dl_h2 *h2);
/* Ends the connection now, saying why. */
void dl_h2_terminate(struct dl_h2 *h2, enum dl_h2_code code);
/* Asks whether the peer is alive; dl_h2_pings_unanswered falls to 0 if so. */
void dl_h2_ping(struct dl_h2 *h2);
int dl_h2_pings_unanswered(const struct dl_h2 *h2);

#endif
