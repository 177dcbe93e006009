/* The rival of the RPC benchmark: the least that nghttp2 needs to echo a body
 * as a gRPC server would (200, the body, trailers). One thread, epoll, no
 * limits, no checks, no methods. Prints its port and serves until killed. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nghttp2/nghttp2.h>

#define BYTES 65536
#define BODY_BYTES_MAX 4096

struct stream {
    int32_t id;
    size_t size, sent;
    uint8_t body[BODY_BYTES_MAX];
};

struct connection {
    int fd;
    nghttp2_session *session;
    uint8_t out[BYTES];
    size_t out_size, out_sent;
};

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    (void)user;
    if (!stream) return NGHTTP2_ERR_CALLBACK_FAILURE;
    stream->id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t size, void *user)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    (void)flags;
    (void)user;
    if (!stream || stream->size + size > BODY_BYTES_MAX) return NGHTTP2_ERR_CALLBACK_FAILURE;
    memcpy(stream->body + stream->size, data, size);
    stream->size += size;
    return 0;
}

static ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *out, size_t size,
                       uint32_t *flags, nghttp2_data_source *source, void *user)
{
    struct stream *stream = source->ptr;
    size_t left = stream->size - stream->sent;
    (void)user;
    if (left > size) left = size;
    memcpy(out, stream->body + stream->sent, left);
    stream->sent += left;
    if (stream->sent == stream->size) {
        nghttp2_nv trailer = nv("grpc-status", "0");
        *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, id, &trailer, 1);
    }
    return (ssize_t)left;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    (void)user;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_DATA && frame->hd.type != NGHTTP2_HEADERS))
        return 0;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    nghttp2_nv headers[] = {nv(":status", "200"), nv("content-type", "application/grpc")};
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = on_read};
    return nghttp2_submit_response(session, frame->hd.stream_id, headers, 2, &provider);
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *user)
{
    (void)code;
    (void)user;
    free(nghttp2_session_get_stream_user_data(session, id));
    return 0;
}

/* 0: the connection is to be closed. */
static int flush(struct connection *connection)
{
    for (;;) {
        while (connection->out_sent < connection->out_size) {
            ssize_t sent = write(connection->fd, connection->out + connection->out_sent,
                                 connection->out_size - connection->out_sent);
            if (sent < 0) return errno == EAGAIN;
            connection->out_sent += (size_t)sent;
        }
        connection->out_sent = connection->out_size = 0;
        while (connection->out_size + 16384 + 9 <= BYTES) {
            const uint8_t *data;
            ssize_t size = nghttp2_session_mem_send(connection->session, &data);
            if (size < 0) return 0;
            if (size == 0) break;
            memcpy(connection->out + connection->out_size, data, (size_t)size);
            connection->out_size += (size_t)size;
        }
        if (connection->out_size == 0) break;
    }
    return nghttp2_session_want_read(connection->session) ||
           nghttp2_session_want_write(connection->session);
}

static int receive(struct connection *connection)
{
    static uint8_t in[BYTES];
    ssize_t size = read(connection->fd, in, sizeof(in));
    if (size <= 0) return size < 0 && errno == EAGAIN;
    return nghttp2_session_mem_recv(connection->session, in, (size_t)size) >= 0;
}

static void accept_one(int listener, int poll, nghttp2_session_callbacks *callbacks)
{
    int on = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    struct connection *connection = calloc(1, sizeof(*connection));
    if (fd < 0 || !connection) exit(1);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connection->fd = fd;
    nghttp2_session_server_new(&connection->session, callbacks, connection);
    nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, NULL, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = connection};
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

int main(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    nghttp2_session_callbacks *callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, 1024) < 0 || getsockname(listener, (struct sockaddr *)&address, &size) < 0)
        return 1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    printf("127.0.0.1:%u\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < count; i++) {
            struct connection *connection = events[i].data.ptr;
            if (!connection) {
                accept_one(listener, poll, callbacks);
                continue;
            }
            int open = !(events[i].events & EPOLLIN) || receive(connection);
            if (open && flush(connection)) {
                if (events[i].events & EPOLLIN) { /* edge: there may be more */
                    struct epoll_event again = {.events = EPOLLIN | EPOLLOUT | EPOLLET,
                                                .data.ptr = connection};
                    epoll_ctl(poll, EPOLL_CTL_MOD, connection->fd, &again);
                }
                continue;
            }
            close(connection->fd);
            nghttp2_session_del(connection->session);
            free(connection);
        }
    }
}
