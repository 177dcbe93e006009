/* How it works. Bytes read go straight into the connection's core; what it has
 * to say is gathered into one buffer of the server's and written at once. What
 * the socket does not take is copied and handed to libuv, and until that is
 * written nothing more is read from this peer: a peer that does not read
 * cannot make us queue.
 *
 * Answers that come from outside a read (an engine result, a deadline, another
 * connection's event) mark the connection as pending; the pending ones are
 * flushed together right before the loop waits. */
#include "service/rpc_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "service/log.h"
#include "service/tls.h"

#define READ_BYTES 65536
#define WRITE_BYTES 65536
#define FLUSH_BYTES_MAX (1024 * 1024) /* to one connection, then the others have their turn */
#define WRITE_STALL_MS 30000
#define BACKLOG 1024

struct connection {
    uv_tcp_t tcp; /* first: a handle is its connection */
    struct dl_rpc_server *server;
    struct dl_rpc_connection *core;
    struct dl_tls *tls;
    struct connection *previous, *next;
    struct connection *pending_next;
    uint8_t *rest; /* what uv_write holds, NULL: no write pending */
    uv_write_t write;
    int64_t write_ms; /* when it began */
    unsigned int pending : 1, reading : 1, closing : 1, ended : 1, busy : 1;
};

struct dl_rpc_server {
    uv_loop_t *loop;
    struct dl_rpc *rpc;
    uv_tcp_t listener;
    uv_timer_t timer;
    uv_prepare_t prepare;
    uv_idle_t idle; /* runs while connections are pending, so that the loop does not wait */
    int handles;    /* of the four above, open */
    struct connection *connections;
    struct connection *pending;
    int64_t armed_ms;
    int64_t write_stall_ms, stall_scan_ms;
    struct dl_tls_context *tls;
    char *tls_cert, *tls_key, *tls_ca;
    char address[80];
    uint16_t port;
    int draining, closing;
    int depth;       /* > 0: within a connection's core, which must not be freed now */
    int close_asked; /* meanwhile */
    void (*drained)(void *context);
    void *drained_context;
    void (*closed)(void *context);
    void *closed_context;
    void (*on_drain)(void *context);
    void (*on_tick)(void *context);
    void (*on_free)(void *context);
    void *context;
    uint8_t read_buffer[READ_BYTES];
    uint8_t plain_buffer[READ_BYTES];
    uint8_t write_buffer[WRITE_BYTES];
};

static void close_all(struct dl_rpc_server *server);

/* Around everything that may call handlers: one of them may end the server. */
static void enter(struct dl_rpc_server *server)
{
    server->depth++;
}

static void leave(struct dl_rpc_server *server)
{
    if (--server->depth == 0 && server->close_asked) close_all(server);
}

static int64_t now_ms(const struct dl_rpc_server *server)
{
    return (int64_t)uv_now(server->loop);
}

/* ---- closing ------------------------------------------------------------------------ */

static void free_if_closed(struct dl_rpc_server *server)
{
    if (!server->closing || server->handles > 0 || server->connections) return;
    void (*closed)(void *) = server->closed;
    void *context = server->closed_context;
    if (server->on_free) server->on_free(server->context);
    dl_rpc_free(server->rpc);
    dl_tls_context_free(server->tls);
    free(server->tls_cert);
    free(server->tls_key);
    free(server->tls_ca);
    free(server);
    if (closed) closed(context);
}

static void tell_drained(struct dl_rpc_server *server)
{
    if (!server->draining || server->connections || !server->drained) return;
    void (*drained)(void *) = server->drained;
    server->drained = NULL;
    drained(server->drained_context);
}

static void on_connection_closed(uv_handle_t *handle)
{
    struct connection *connection = (struct connection *)handle;
    struct dl_rpc_server *server = connection->server;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next) connection->next->previous = connection->previous;
    free(connection->rest);
    free(connection);
    if (server->on_tick) server->on_tick(server->context);
    tell_drained(server);
    free_if_closed(server);
}

/* The core goes first, so that calls hear of it now; the handle closes later.
 * Not from within the core. */
static void close_connection(struct connection *connection)
{
    if (connection->closing) return;
    connection->closing = 1;
    if (connection->pending) {
        struct connection **at = &connection->server->pending;
        while (*at != connection) at = &(*at)->pending_next;
        *at = connection->pending_next;
        connection->pending = 0;
    }
    dl_rpc_connection_free(connection->core);
    connection->core = NULL;
    dl_tls_free(connection->tls);
    connection->tls = NULL;
    uv_close((uv_handle_t *)&connection->tcp, on_connection_closed);
}

/* ---- writing ---------------------------------------------------------------------------- */

static void flush(struct connection *connection);
static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer);
static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer);

static void set_reading(struct connection *connection, int reading)
{
    if (connection->reading == (unsigned)reading || connection->closing) return;
    connection->reading = (unsigned)reading & 1;
    if (reading)
        uv_read_start((uv_stream_t *)&connection->tcp, on_allocate, on_read);
    else
        uv_read_stop((uv_stream_t *)&connection->tcp);
}

static void mark_pending(struct connection *connection)
{
    struct dl_rpc_server *server = connection->server;
    if (connection->pending || connection->closing) return;
    connection->pending = 1;
    connection->pending_next = server->pending;
    server->pending = connection;
}

static void on_wake(void *io, struct dl_rpc_connection *core)
{
    (void)core;
    mark_pending(io);
}

static void on_written(uv_write_t *write, int status)
{
    struct connection *connection = write->data;
    free(connection->rest);
    connection->rest = NULL;
    if (connection->closing) return;
    if (status < 0) {
        close_connection(connection);
        return;
    }
    set_reading(connection, !connection->ended);
    enter(connection->server);
    flush(connection);
    leave(connection->server);
}

/* Writes; what the socket does not take goes to libuv. 1: all is written, 0:
 * wait for on_written, negative: the connection is lost. */
static int write_out(struct connection *connection, const uint8_t *data, size_t size)
{
    uv_buf_t buffer = uv_buf_init((char *)data, (unsigned)size);
    int written = uv_try_write((uv_stream_t *)&connection->tcp, &buffer, 1);
    if (written == UV_EAGAIN) written = 0;
    if (written < 0) return DL_ERR_IO;
    if ((size_t)written == size) return 1;
    size_t left = size - (size_t)written;
    connection->rest = malloc(left);
    if (!connection->rest) return DL_ERR_NOMEM;
    memcpy(connection->rest, data + written, left);
    buffer = uv_buf_init((char *)connection->rest, (unsigned)left);
    connection->write.data = connection;
    connection->write_ms = now_ms(connection->server);
    if (uv_write(&connection->write, (uv_stream_t *)&connection->tcp, &buffer, 1, on_written) < 0) {
        free(connection->rest);
        connection->rest = NULL;
        return DL_ERR_IO;
    }
    set_reading(connection, 0);
    return 0;
}

/* Moves what the core says into the server's buffer, or into TLS. Returns how
 * much, or a negative status. `out` has room for WRITE_BYTES. */
static ssize_t gather(struct connection *connection, uint8_t *out)
{
    struct dl_error error;
    size_t size = 0;
    /* A frame is at most 16 KiB and its 9-byte header; leave room for one. */
    while (size + 16384 + 9 <= WRITE_BYTES) {
        struct dl_slice bytes;
        int status = dl_rpc_connection_take(connection->core, &bytes);
        if (status != DL_OK) return status;
        if (bytes.size == 0) break;
        if (size + bytes.size > WRITE_BYTES) return DL_ERR_INVALID; /* no such frame exists */
        if (connection->tls) {
            status = dl_tls_write(connection->tls, bytes, &error);
            if (status != DL_OK) return status;
        } else {
            memcpy(out + size, bytes.data, bytes.size);
        }
        size += bytes.size;
    }
    return (ssize_t)size;
}

/* One buffer's worth. *more tells whether there may be more. Same results as
 * write_out. */
static int flush_some(struct connection *connection, size_t *size, int *more)
{
    struct dl_rpc_server *server = connection->server;
    ssize_t gathered = 0;
    if (!connection->tls) {
        gathered = gather(connection, server->write_buffer);
    } else {
        /* First what TLS has of its own or from before. */
        *size = dl_tls_take(connection->tls, server->write_buffer, WRITE_BYTES);
        if (*size == 0 && dl_tls_is_ready(connection->tls)) {
            gathered = gather(connection, NULL);
            if (gathered < 0) return (int)gathered;
            *size = dl_tls_take(connection->tls, server->write_buffer, WRITE_BYTES);
        }
        gathered = (ssize_t)*size;
    }
    if (gathered < 0) return (int)gathered;
    *size = (size_t)gathered;
    *more = gathered > 0;
    return gathered > 0 ? write_out(connection, server->write_buffer, *size) : 1;
}

/* TLS tells an end from a cut. Whether it still fits the socket does not matter. */
static void say_goodbye(struct connection *connection)
{
    uint8_t *out = connection->server->write_buffer;
    dl_tls_close(connection->tls);
    size_t size = dl_tls_take(connection->tls, out, WRITE_BYTES);
    uv_buf_t buffer = uv_buf_init((char *)out, (unsigned)size);
    if (size) uv_try_write((uv_stream_t *)&connection->tcp, &buffer, 1);
}

static void flush(struct connection *connection)
{
    size_t total = 0;
    int more = 1;
    if (connection->closing || connection->rest) return;
    while (more && total < FLUSH_BYTES_MAX) {
        size_t size = 0;
        int status = flush_some(connection, &size, &more);
        if (status < 0) {
            close_connection(connection);
            return;
        }
        if (status == 0) return;
        total += size;
    }
    if (more) {
        mark_pending(connection);
    } else if (connection->ended || dl_rpc_connection_is_done(connection->core)) {
        if (connection->tls) say_goodbye(connection);
        close_connection(connection);
    }
}

static void flush_pending(struct dl_rpc_server *server)
{
    struct connection *list = server->pending;
    server->pending = NULL;
    while (list) {
        struct connection *connection = list;
        list = connection->pending_next;
        connection->pending = 0;
        flush(connection);
    }
}

/* ---- reading ------------------------------------------------------------------------------- */

static void on_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct connection *connection = (struct connection *)handle;
    (void)suggested;
    /* One buffer serves all: what was read is used up before the next read. */
    *buffer = uv_buf_init((char *)connection->server->read_buffer, READ_BYTES);
}

static int receive_tls(struct connection *connection, struct dl_slice cipher,
                       struct dl_error *error)
{
    struct dl_rpc_server *server = connection->server;
    int status = dl_tls_receive(connection->tls, cipher);
    while (status == DL_OK) {
        size_t size;
        status = dl_tls_read(connection->tls, server->plain_buffer, READ_BYTES, &size, error);
        if (status != DL_OK || size == 0) break;
        status = dl_rpc_connection_receive(
            connection->core, dl_slice_of(server->plain_buffer, size), now_ms(server), error);
    }
    return status;
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer)
{
    struct connection *connection = (struct connection *)stream;
    struct dl_error error = {""};
    int status;
    if (size == 0) return;
    if (size < 0) {
        enter(connection->server);
        close_connection(connection);
        leave(connection->server);
        return;
    }
    struct dl_rpc_server *server = connection->server;
    struct dl_slice bytes = dl_slice_of(buffer->base, (size_t)size);
    enter(server);
    if (connection->tls)
        status = receive_tls(connection, bytes, &error);
    else
        status = dl_rpc_connection_receive(connection->core, bytes, now_ms(server), &error);
    if (status != DL_OK) {
        if (status != DL_ERR_UNAVAILABLE)
            DL_WARN("rpc", "connection of %s: %s", dl_rpc_connection_peer(connection->core),
                    error.text);
        connection->ended = 1; /* closed once what is left to say is written */
        set_reading(connection, 0);
    }
    flush(connection);
    leave(server);
}

/* ---- connections
 * --------------------------------------------------------------------------------- */

static void name_address(const struct sockaddr_storage *address, char text[80], uint16_t *port)
{
    char host[64] = "?";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
        uv_ip6_name(in6, host, sizeof(host));
        *port = ntohs(in6->sin6_port);
        snprintf(text, 80, "[%s]:%u", host, *port);
    } else {
        const struct sockaddr_in *in = (const struct sockaddr_in *)address;
        uv_ip4_name(in, host, sizeof(host));
        *port = ntohs(in->sin_port);
        snprintf(text, 80, "%s:%u", host, *port);
    }
}

static void on_refused(uv_handle_t *handle)
{
    struct connection *connection = (struct connection *)handle;
    struct dl_rpc_server *server = connection->server;
    server->handles--;
    free(connection);
    free_if_closed(server);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct dl_rpc_server *server = listener->data;
    struct sockaddr_storage address = {0};
    int address_size = sizeof(address);
    char peer[80] = "?";
    uint16_t port;
    if (status < 0) {
        DL_WARN("rpc", "cannot accept a connection: %s", uv_strerror(status));
        return;
    }
    struct connection *connection = calloc(1, sizeof(*connection));
    if (!connection) return;
    connection->server = server;
    if (uv_tcp_init(server->loop, &connection->tcp) < 0) {
        free(connection);
        return;
    }
    int accepted = uv_accept(listener, (uv_stream_t *)&connection->tcp);
    if (accepted == 0 &&
        uv_tcp_getpeername(&connection->tcp, (struct sockaddr *)&address, &address_size) == 0)
        name_address(&address, peer, &port);
    status = accepted < 0 ? DL_ERR_IO
                          : dl_rpc_connection_new(server->rpc, connection, peer, now_ms(server),
                                                  &connection->core);
    if (status == DL_OK && server->tls) {
        status = dl_tls_new(server->tls, NULL, &connection->tls);
        if (status != DL_OK) dl_rpc_connection_free(connection->core);
    }
    if (status != DL_OK) {
        if (status == DL_ERR_FULL)
            DL_WARN("rpc", "connection of %s refused: rpc.connections_max are open", peer);
        server->handles++;
        uv_close((uv_handle_t *)&connection->tcp, on_refused);
        return;
    }
    connection->next = server->connections;
    if (connection->next) connection->next->previous = connection;
    server->connections = connection;
    uv_tcp_nodelay(&connection->tcp, 1);
    set_reading(connection, 1);
    if (!server->tls) mark_pending(connection); /* our SETTINGS */
}

/* ---- the loop's turns
 * ------------------------------------------------------------------------------- */

static void each_second(struct dl_rpc_server *server)
{
    int64_t now = now_ms(server);
    if (now < server->stall_scan_ms) return;
    server->stall_scan_ms = now + 1000;
    if (server->on_tick) server->on_tick(server->context);
    for (struct connection *c = server->connections, *next; c; c = next) {
        next = c->next;
        if (c->closing || !c->rest || now - c->write_ms < server->write_stall_ms) continue;
        DL_WARN("rpc", "connection of %s closed: it took no data for %lld s",
                dl_rpc_connection_peer(c->core), (long long)((now - c->write_ms) / 1000));
        close_connection(c);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct dl_rpc_server *server = timer->data;
    server->armed_ms = INT64_MAX;
    enter(server);
    dl_rpc_tick(server->rpc, now_ms(server));
    each_second(server);
    leave(server);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct dl_rpc_server *server = prepare->data;
    enter(server);
    flush_pending(server);
    leave(server);
    if (server->closing) return;
    if (server->pending)
        uv_idle_start(&server->idle, on_idle);
    else
        uv_idle_stop(&server->idle);
    int64_t next_ms = dl_rpc_next_ms(server->rpc);
    if (next_ms == INT64_MAX || (server->armed_ms <= next_ms && server->armed_ms != INT64_MAX))
        return;
    int64_t now = now_ms(server);
    server->armed_ms = next_ms;
    uv_timer_start(&server->timer, on_timer, next_ms > now ? (uint64_t)(next_ms - now) : 0, 0);
}

/* ---- opening
 * ------------------------------------------------------------------------------------------ */

static int parse_listen(const char *listen, struct sockaddr_storage *address,
                        struct dl_error *error)
{
    char host[64];
    const char *colon = strrchr(listen, ':');
    const char *start = listen, *end = colon;
    char *rest = NULL;
    long port = colon ? strtol(colon + 1, &rest, 10) : -1;
    if (!colon || rest == colon + 1 || *rest || port < 0 || port > 65535)
        return dl_error_set(error, DL_ERR_INVALID,
                            "rpc.listen: \"%s\" is not HOST:PORT, such as 127.0.0.1:50051", listen);
    if (*start == '[' && end > start && end[-1] == ']') {
        start++;
        end--;
    }
    size_t size = (size_t)(end - start);
    if (size == 0 || size >= sizeof(host))
        return dl_error_set(error, DL_ERR_INVALID, "rpc.listen: \"%s\" names no host", listen);
    memcpy(host, start, size);
    host[size] = 0;
    if (strcmp(host, "localhost") == 0) snprintf(host, sizeof(host), "127.0.0.1");
    if (uv_ip4_addr(host, (int)port, (struct sockaddr_in *)address) == 0) return DL_OK;
    if (uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)address) == 0) return DL_OK;
    return dl_error_set(error, DL_ERR_INVALID,
                        "rpc.listen: \"%s\" is no IP address; use one of this machine's", host);
}

static int is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
    return (ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24) == 127;
}

static int keep_text(char **to, const char *from)
{
    if (!from || !from[0]) return DL_OK;
    *to = strdup(from);
    return *to ? DL_OK : DL_ERR_NOMEM;
}

static int listen_on(struct dl_rpc_server *server, const char *listen,
                     const struct sockaddr_storage *address, struct dl_error *error)
{
    struct sockaddr_storage bound = {0};
    int bound_size = sizeof(bound);
    int code = uv_tcp_bind(&server->listener, (const struct sockaddr *)address, 0);
    if (code == 0) code = uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection);
    if (code == 0)
        code = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&bound, &bound_size);
    if (code < 0)
        return dl_error_set(error, DL_ERR_IO, "rpc.listen: cannot listen on %s: %s", listen,
                            uv_strerror(code));
    name_address(&bound, server->address, &server->port);
    return DL_OK;
}

int dl_rpc_server_open(uv_loop_t *loop, const struct dl_rpc_server_config *config,
                       struct dl_rpc_server **result, struct dl_error *error)
{
    struct sockaddr_storage address = {0};
    struct dl_rpc_config rpc_config = config->rpc;
    int status = parse_listen(config->listen, &address, error);
    if (status != DL_OK) return status;
    int tls = config->tls_cert && config->tls_cert[0];
    if (!tls && !config->plain_text_anywhere && !is_loopback(&address))
        return dl_error_set(error, DL_ERR_INVALID,
                            "rpc.listen: %s is not a loopback address and the connection would be "
                            "plain text; set rpc.tls_cert and rpc.tls_key, or rpc.plain_text: "
                            "anywhere",
                            config->listen);
    struct dl_rpc_server *server = calloc(1, sizeof(*server));
    if (!server) return dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    server->loop = loop;
    server->armed_ms = INT64_MAX;
    server->on_drain = config->draining;
    server->on_tick = config->tick;
    server->on_free = config->freeing;
    server->context = config->context;
    server->write_stall_ms = config->write_stall_ms ? config->write_stall_ms : WRITE_STALL_MS;
    rpc_config.wake = on_wake;
    if (keep_text(&server->tls_cert, config->tls_cert) != DL_OK ||
        keep_text(&server->tls_key, config->tls_key) != DL_OK ||
        keep_text(&server->tls_ca, config->tls_ca) != DL_OK ||
        dl_rpc_new(&rpc_config, &server->rpc) != DL_OK)
        status = dl_error_set(error, DL_ERR_NOMEM, "out of memory");
    if (status == DL_OK && tls) status = dl_rpc_server_reload_tls(server, error);
    uv_tcp_init(loop, &server->listener);
    uv_timer_init(loop, &server->timer);
    uv_prepare_init(loop, &server->prepare);
    uv_idle_init(loop, &server->idle);
    server->handles = 4;
    server->listener.data = server->timer.data = server->prepare.data = server->idle.data = server;
    uv_prepare_start(&server->prepare, on_prepare);
    if (status == DL_OK) status = listen_on(server, config->listen, &address, error);
    if (status != DL_OK) {
        server->on_free = NULL;                  /* the caller was never handed this server */
        dl_rpc_server_close(server, NULL, NULL); /* the loop's next turns free it */
        return status;
    }
    *result = server;
    return DL_OK;
}

int dl_rpc_server_reload_tls(struct dl_rpc_server *server, struct dl_error *error)
{
    struct dl_tls_context *context;
    if (!server->tls_cert) return DL_OK;
    int status = dl_tls_context_server(server->tls_cert, server->tls_key ? server->tls_key : "",
                                       server->tls_ca, &context, error);
    if (status != DL_OK) return dl_error_wrap(error, status, "rpc");
    dl_tls_context_free(server->tls);
    server->tls = context;
    return DL_OK;
}

struct dl_rpc *dl_rpc_server_rpc(struct dl_rpc_server *server)
{
    return server->rpc;
}

const char *dl_rpc_server_address(const struct dl_rpc_server *server)
{
    return server->address;
}

uint16_t dl_rpc_server_port(const struct dl_rpc_server *server)
{
    return server->port;
}

/* ---- ending
 * ------------------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct dl_rpc_server *server = handle->data;
    server->handles--;
    free_if_closed(server);
}

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle)) uv_close(handle, on_handle_closed);
}

void dl_rpc_server_drain(struct dl_rpc_server *server, int64_t grace_ms,
                         void (*drained)(void *context), void *context)
{
    server->draining = 1;
    server->drained = drained;
    server->drained_context = context;
    close_handle((uv_handle_t *)&server->listener);
    if (server->on_drain) server->on_drain(server->context);
    uv_update_time(server->loop);
    dl_rpc_drain(server->rpc, grace_ms, now_ms(server));
    tell_drained(server);
}

void dl_rpc_server_close(struct dl_rpc_server *server, void (*closed)(void *context), void *context)
{
    if (server->closing) return;
    server->closing = 1;
    server->closed = closed;
    server->closed_context = context;
    server->drained = NULL;
    if (server->depth > 0)
        server->close_asked = 1;
    else
        close_all(server);
}

static void close_all(struct dl_rpc_server *server)
{
    server->close_asked = 0;
    close_handle((uv_handle_t *)&server->listener);
    close_handle((uv_handle_t *)&server->timer);
    close_handle((uv_handle_t *)&server->prepare);
    close_handle((uv_handle_t *)&server->idle);
    for (struct connection *c = server->connections; c; c = c->next) close_connection(c);
}
