#include "service/rpc_dial.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "service/rpc_client.h"
#include "service/tls.h"

#define CONNECT_MS 10000
#define BUFFER_BYTES 65536
#define QUEUE_BYTES_MAX (1u << 20) /* of requests that have not left */

struct dl_rpc_dial {
    int socket;
    char *server;
    struct dl_tls_context *tls_context;
    struct dl_tls *tls;
    struct dl_rpc_client *client;
    struct dl_buf out; /* bytes that the socket has not taken */
    size_t out_used;
    /* The call under way. */
    dl_rpc_on_message *on_message;
    void *context;
    struct dl_error *error;
    int finished, stopped; /* stopped: what on_message returned, if not 0 */
    int grpc_status;
    uint8_t buffer[BUFFER_BYTES];
};

static int64_t now_ms(void)
{
    return dl_clock_monotonic_ns() / 1000000;
}

/* ---- connecting ------------------------------------------------------------------------ */

/* Cuts "host:port" in two; both point into `copy`. */
static int split(char *copy, char **host, char **port)
{
    char *colon = strrchr(copy, ':');
    if (!colon || colon == copy || !colon[1]) return DL_ERR_INVALID;
    *colon = 0;
    *host = copy;
    *port = colon + 1;
    size_t size = strlen(copy);
    if (copy[0] == '[' && copy[size - 1] == ']') {
        copy[size - 1] = 0;
        *host = copy + 1;
    }
    return (*host)[0] ? DL_OK : DL_ERR_INVALID;
}

/* Waits for the socket. 0: nothing happened in time. */
static int wait_for(int socket, short events, int64_t until_ms)
{
    struct pollfd entry = {.fd = socket, .events = events};
    int64_t left_ms = until_ms == INT64_MAX ? -1 : until_ms - now_ms();
    if (until_ms != INT64_MAX && left_ms < 0) left_ms = 0;
    if (left_ms > 1 << 30) left_ms = 1 << 30;
    int ready = poll(&entry, 1, (int)left_ms);
    return ready > 0 ? entry.revents : 0;
}

static int connect_one(const struct addrinfo *address, int64_t until_ms, int *result)
{
    int failure = 0, on = 1;
    socklen_t size = sizeof(failure);
    int fd = socket(address->ai_family, address->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) failure = errno;
    if (failure == EINPROGRESS) {
        failure = ETIMEDOUT;
        if (wait_for(fd, POLLOUT, until_ms) &&
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) < 0)
            failure = errno;
    }
    if (failure) {
        close(fd);
        return failure;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    *result = fd;
    return 0;
}

static int connect_to(struct dl_rpc_dial *dial, const char *host, const char *port,
                      int64_t until_ms, struct dl_error *error)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int code = getaddrinfo(host, port, &hints, &list);
    if (code != 0)
        return dl_error_set(error, DL_ERR_INVALID, "%s: cannot resolve: %s", dial->server,
                            gai_strerror(code));
    int failure = ECONNREFUSED;
    for (const struct addrinfo *a = list; a && dial->socket < 0; a = a->ai_next)
        failure = connect_one(a, until_ms, &dial->socket);
    freeaddrinfo(list);
    if (dial->socket >= 0) return DL_OK;
    return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s: cannot connect: %s", dial->server,
                        strerror(failure));
}

/* ---- moving bytes --------------------------------------------------------------------------- */

/* Gathers what is to be sent. */
static int gather(struct dl_rpc_dial *dial, struct dl_error *error)
{
    if (dial->out_used < dial->out.size) return DL_OK;
    dl_buf_clear(&dial->out);
    dial->out_used = 0;
    size_t gathered = 0;
    while (gathered < BUFFER_BYTES && (!dial->tls || dl_tls_is_ready(dial->tls))) {
        struct dl_slice bytes;
        int status = dl_rpc_client_take(dial->client, &bytes);
        if (status == DL_OK && dial->tls) status = dl_tls_write(dial->tls, bytes, error);
        if (status != DL_OK) return status;
        if (bytes.size == 0) break;
        if (!dial->tls) dl_buf_append(&dial->out, bytes.data, bytes.size);
        gathered += bytes.size;
    }
    while (dial->tls) {
        size_t size = dl_tls_take(dial->tls, dial->buffer, BUFFER_BYTES);
        if (size == 0) break;
        dl_buf_append(&dial->out, dial->buffer, size);
    }
    return dial->out.failed ? dl_error_set(error, DL_ERR_NOMEM, "out of memory") : DL_OK;
}

static int lost(struct dl_rpc_dial *dial, const char *why, struct dl_error *error)
{
    return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s: connection lost: %s", dial->server, why);
}

static int send_out(struct dl_rpc_dial *dial, struct dl_error *error)
{
    for (;;) {
        int status = gather(dial, error);
        if (status != DL_OK) return status;
        size_t left = dial->out.size - dial->out_used;
        if (left == 0) return DL_OK;
        ssize_t sent = send(dial->socket, dial->out.data + dial->out_used, left, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN ? DL_OK : lost(dial, strerror(errno), error);
        dial->out_used += (size_t)sent;
    }
}

static int take_in(struct dl_rpc_dial *dial, struct dl_error *error)
{
    ssize_t size = recv(dial->socket, dial->buffer, BUFFER_BYTES, 0);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? DL_OK : lost(dial, strerror(errno), error);
    if (size == 0) return lost(dial, "the server closed it", error);
    struct dl_slice bytes = {dial->buffer, (size_t)size};
    if (!dial->tls) return dl_rpc_client_receive(dial->client, bytes, now_ms(), error);
    int status = dl_tls_receive(dial->tls, bytes);
    while (status == DL_OK) {
        size_t plain;
        status = dl_tls_read(dial->tls, dial->buffer, BUFFER_BYTES, &plain, error);
        if (status != DL_OK || plain == 0) break;
        status =
            dl_rpc_client_receive(dial->client, dl_slice_of(dial->buffer, plain), now_ms(), error);
    }
    return status;
}

/* One turn: sends, waits, receives. */
static int turn(struct dl_rpc_dial *dial, int64_t until_ms, struct dl_error *error)
{
    int64_t next_ms = dl_rpc_client_next_ms(dial->client);
    int status = send_out(dial, error);
    if (status != DL_OK || dial->finished) return status;
    short events = POLLIN;
    if (dial->out_used < dial->out.size) events |= POLLOUT;
    int ready = wait_for(dial->socket, events, next_ms < until_ms ? next_ms : until_ms);
    if (ready & (POLLIN | POLLHUP | POLLERR)) status = take_in(dial, error);
    dl_rpc_client_tick(dial->client, now_ms());
    return status;
}

static int shake_hands(struct dl_rpc_dial *dial, int64_t until_ms, struct dl_error *error)
{
    int status = DL_OK;
    while (status == DL_OK && !dl_tls_is_ready(dial->tls)) {
        size_t none;
        /* Drives the handshake; there are no plain bytes before it is done. */
        status = dl_tls_read(dial->tls, dial->buffer, 1, &none, error);
        if (status == DL_OK) status = turn(dial, until_ms, error);
        if (status == DL_OK && now_ms() >= until_ms)
            status = dl_error_set(error, DL_ERR_UNAVAILABLE, "TLS handshake timed out");
    }
    return status == DL_OK ? status : dl_error_wrap(error, status, "%s", dial->server);
}

int dl_rpc_dial_open(const struct dl_rpc_target *target, struct dl_rpc_dial **result,
                     struct dl_error *error)
{
    struct dl_rpc_dial *dial = calloc(1, sizeof(*dial));
    char *copy = strdup(target->server), *host, *port;
    int64_t until_ms = now_ms() + (target->connect_ms ? target->connect_ms : CONNECT_MS);
    int status = DL_ERR_NOMEM;
    if (!dial || !copy) {
        dl_error_set(error, status, "out of memory");
        goto out;
    }
    dial->socket = -1;
    dial->server = strdup(target->server);
    if (!dial->server) goto out;
    status = split(copy, &host, &port);
    if (status != DL_OK) {
        dl_error_set(error, status, "\"%s\" is not HOST:PORT, such as 127.0.0.1:50051",
                     target->server);
        goto out;
    }
    if (target->tls) {
        status =
            dl_tls_context_client(target->ca, target->cert, target->key, &dial->tls_context, error);
        if (status == DL_OK) status = dl_tls_new(dial->tls_context, host, &dial->tls);
        if (status != DL_OK) goto out;
    }
    struct dl_rpc_client_config config = {.authority = target->server,
                                          .tls = target->tls,
                                          .token = target->token,
                                          .gzip = target->gzip,
                                          .message_bytes_max = 64u << 20};
    status = dl_rpc_client_new(&config, now_ms(), &dial->client);
    if (status == DL_OK) status = connect_to(dial, host, port, until_ms, error);
    if (status == DL_OK && dial->tls) status = shake_hands(dial, until_ms, error);
out:
    free(copy);
    if (status != DL_OK) {
        dl_rpc_dial_close(dial);
        return status;
    }
    *result = dial;
    return DL_OK;
}

void dl_rpc_dial_close(struct dl_rpc_dial *dial)
{
    struct dl_error error;
    if (!dial) return;
    if (dial->client && dial->socket >= 0) {
        dl_rpc_client_close(dial->client);
        send_out(dial, &error);
    }
    dl_rpc_client_free(dial->client);
    dl_tls_free(dial->tls);
    dl_tls_context_free(dial->tls_context);
    if (dial->socket >= 0) close(dial->socket);
    dl_buf_free(&dial->out);
    free(dial->server);
    free(dial);
}

/* ---- calling ------------------------------------------------------------------------------------
 */

static void on_message(void *context, struct dl_rpc_client_call *call, struct dl_slice message)
{
    struct dl_rpc_dial *dial = context;
    if (dial->stopped) return;
    dial->stopped = dial->on_message(dial->context, message, dial->error);
    if (dial->stopped) dl_rpc_client_cancel(call);
}

static void on_finished(void *context, struct dl_rpc_client_call *call, int status,
                        const char *text)
{
    struct dl_rpc_dial *dial = context;
    (void)call;
    dial->finished = 1;
    dial->grpc_status = status;
    if (!dial->stopped && status != 0)
        dl_error_set(dial->error, dl_grpc_status_to(status), "%s: %s", dl_grpc_status_name(status),
                     text[0] ? text : "the server gave no reason");
}

static const struct dl_rpc_client_events client_events = {on_message, on_finished};

int dl_rpc_dial_call(struct dl_rpc_dial *dial, const char *path, const struct dl_slice *requests,
                     size_t count, int64_t timeout_ms, dl_rpc_on_message *on_answer, void *context,
                     int *grpc_status, struct dl_error *error)
{
    struct dl_rpc_client_call *call;
    size_t sent = 0;
    dial->on_message = on_answer;
    dial->context = context;
    dial->error = error;
    dial->finished = dial->stopped = 0;
    if (!dial->client)
        return dl_error_set(error, DL_ERR_UNAVAILABLE, "%s: the connection is lost", dial->server);
    dl_rpc_client_tick(dial->client, now_ms());
    int status = dl_rpc_client_start(dial->client, path, timeout_ms, &client_events, dial, &call);
    if (status != DL_OK)
        return dl_error_set(error, status, "%s: the server takes no more calls", dial->server);
    while (status == DL_OK && !dial->finished) {
        while (status == DL_OK && sent < count && dl_rpc_client_queued(call) < QUEUE_BYTES_MAX)
            status = dl_rpc_client_send(call, requests[sent++]);
        if (status == DL_OK && sent == count) {
            status = dl_rpc_client_end(call);
            sent++;
        }
        if (status == DL_ERR_CANCELLED) status = DL_OK; /* the server was quicker: hear it */
        if (status == DL_OK) status = turn(dial, INT64_MAX, error);
    }
    if (!dial->finished) {
        /* The connection is lost; the call's own last word would replace the reason. */
        struct dl_error reason = *error;
        dl_rpc_client_free(dial->client);
        dial->client = NULL;
        *error = reason;
        if (grpc_status) *grpc_status = DL_GRPC_UNAVAILABLE;
        return status;
    }
    if (grpc_status) *grpc_status = dial->grpc_status;
    if (dial->stopped) return dial->stopped < 0 ? dial->stopped : DL_OK;
    return dl_grpc_status_to(dial->grpc_status);
}
