/* Reading records from files and standard input. */
#include "service/line_source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/clock.h"
#include "service/log.h"

#define BUFFER_MAX (4u << 20) /* read ahead */
#define READ_SIZE (256u << 10)
#define RECORDS_A_TURN 4000

struct dl_line_source {
    uv_loop_t *loop;
    const struct dl_config *config;
    struct dl_engine *engine;
    struct dl_intake *intake;
    void (*failed)(void *context, const char *reason);
    void (*ended)(void *context);
    void *context;
    char topic[250];
    int fd;
    gzFile gz; /* for paths ending in .gz */

    pthread_t thread;
    int has_thread;
    uv_async_t *async;
    uv_idle_t *again;
    pthread_mutex_t mutex; /* guards the next five */
    pthread_cond_t room;
    struct dl_buf ahead; /* read and not yet taken */
    int end_of_input, stopping;
    int read_error; /* errno */
    atomic_uint_least64_t read_bytes;
    uint64_t total_bytes;

    /* the loop's */
    struct dl_buf taken; /* being split into records */
    size_t at;
    uint64_t records;
    int64_t resume_at; /* records below were taken in before a restart */
    int has_header, has_failed, stopped, told_end, skipping_long;
};

/* ---- the reading thread ------------------------------------------------------------ */

static long read_some(struct dl_line_source *source, uint8_t *bytes, size_t size)
{
    if (source->gz) {
        int got = gzread(source->gz, bytes, (unsigned)size);
        return got < 0 ? -EIO : got;
    }
    for (;;) {
        /* Wakes up now and then, so that a silent pipe does not hold up the end. */
        struct pollfd wait = {.fd = source->fd, .events = POLLIN};
        int ready = poll(&wait, 1, 200);
        pthread_mutex_lock(&source->mutex);
        int stopping = source->stopping;
        pthread_mutex_unlock(&source->mutex);
        if (stopping) return 0;
        if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
        ssize_t got = read(source->fd, bytes, size);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        return got < 0 ? -errno : (long)got;
    }
}

static void *read_ahead(void *argument)
{
    struct dl_line_source *source = argument;
    uint8_t *bytes = malloc(READ_SIZE);
    for (;;) {
        long got = bytes ? read_some(source, bytes, READ_SIZE) : -ENOMEM;
        pthread_mutex_lock(&source->mutex);
        if (got > 0) {
            while (source->ahead.size > BUFFER_MAX && !source->stopping)
                pthread_cond_wait(&source->room, &source->mutex);
            dl_buf_append(&source->ahead, bytes, (size_t)got);
            atomic_fetch_add(&source->read_bytes, (uint64_t)got);
        }
        if (source->ahead.failed) got = -ENOMEM;
        if (got < 0) source->read_error = (int)-got;
        if (got <= 0) source->end_of_input = 1;
        int over = got <= 0 || source->stopping;
        uv_async_send(source->async);
        pthread_mutex_unlock(&source->mutex);
        if (over) break;
    }
    free(bytes);
    return NULL;
}

/* ---- records -------------------------------------------------------------------------- */

static void fail(struct dl_line_source *source, const char *reason)
{
    if (source->has_failed) return;
    source->has_failed = 1;
    source->failed(source->context, reason);
}

/* Moves what was read ahead behind what is left. Returns 1 at the end of input. */
static int refill(struct dl_line_source *source)
{
    if (source->at)
        memmove(source->taken.data, source->taken.data + source->at,
                source->taken.size - source->at);
    source->taken.size -= source->at;
    source->at = 0;
    pthread_mutex_lock(&source->mutex);
    dl_buf_append(&source->taken, source->ahead.data, source->ahead.size);
    dl_buf_clear(&source->ahead);
    int end = source->end_of_input;
    pthread_cond_signal(&source->room);
    pthread_mutex_unlock(&source->mutex);
    return end;
}

/* The next record in `taken`: 1 and the record, 0 if more must be read first.
 * A record beyond the message limit is given in part, so that it becomes a
 * dead letter, and the rest is passed over. */
static int next_record(struct dl_line_source *source, int end, struct dl_slice *record)
{
    const uint8_t *from = source->taken.data + source->at;
    size_t left = source->taken.size - source->at;
    if (left == 0) return 0;
    if (source->config->source.encoding == DL_ENCODING_PROTOBUF ||
        source->config->source.encoding == DL_ENCODING_CONFLUENT) {
        struct dl_reader in = dl_reader_of(dl_slice_of(from, left));
        uint64_t size = dl_read_varint(&in);
        size_t prefix = left - dl_reader_left(&in);
        if (!in.failed && size <= DL_MESSAGE_BYTES_MAX + 1 && dl_reader_left(&in) >= size) {
            *record = dl_slice_of(in.at, (size_t)size);
            source->at += prefix + (size_t)size;
            return 1;
        }
        if (!end && (in.failed ? left < 10 : size <= DL_MESSAGE_BYTES_MAX + 1)) return 0;
        *record = dl_slice_of(from, left < 4096 ? left : 4096);
        source->at = source->taken.size;
        fail(source, "the input is not a sequence of protobuf messages behind their lengths");
        return 0;
    }
    const uint8_t *line_end = memchr(from, '\n', left);
    if (!line_end) {
        if (!end && left <= DL_MESSAGE_BYTES_MAX) return 0;
        if (!end && !source->skipping_long) { /* the head of an endless line, once */
            *record = dl_slice_of(from, DL_MESSAGE_BYTES_MAX + 1);
            source->at = source->taken.size;
            source->skipping_long = 1;
            return 1;
        }
        line_end = from + left;
    }
    size_t size = (size_t)(line_end - from);
    source->at += size + (line_end < from + left ? 1 : 0);
    if (source->skipping_long) {
        source->skipping_long = line_end == from + left;
        *record = (struct dl_slice){NULL, 0};
        return 1;
    }
    if (size && from[size - 1] == '\r') size--;
    *record = dl_slice_of(from, size);
    return 1;
}

/* 0: the header is wrong. */
static int take_header(struct dl_line_source *source, struct dl_slice line)
{
    struct dl_error error = {""};
    char text[800];
    if (dl_intake_header(source->intake, line, &error) == DL_OK) return 1;
    snprintf(text, sizeof text, "%s, line 1: %s", source->topic, error.text);
    fail(source, text);
    return 0;
}

static void take_record(struct dl_line_source *source, struct dl_slice record)
{
    if (record.size == 0) return;
    if (source->config->source.encoding == DL_ENCODING_CSV && !source->has_header) {
        source->has_header = take_header(source, record);
        return;
    }
    int64_t index = (int64_t)source->records++;
    if (index < source->resume_at) return;
    struct dl_arrival arrival = {.topic = source->topic,
                                 .offset = index,
                                 .received_ns = dl_clock_monotonic_ns(),
                                 .payload = record};
    /* Replays of history have no wall clock to be checked against; live input has. */
    if (source->config->source.kind == DL_SOURCE_STDIN) arrival.wall_us = dl_clock_wall_us();
    dl_intake_message(source->intake, &arrival, NULL, 0);
}

static void on_again(uv_idle_t *idle);

static void pump(struct dl_line_source *source)
{
    int turns = RECORDS_A_TURN, end = 0, dry = 0;
    struct dl_slice record;
    uv_idle_stop(source->again);
    if (source->stopped || source->has_failed || source->told_end) return;
    while (turns > 0 && !source->has_failed && dl_engine_room(source->engine) > 0) {
        if (!next_record(source, end, &record)) {
            if (source->has_failed) return;
            if (end || dry) break;
            size_t before = source->taken.size - source->at;
            end = refill(source);
            dry = !end && source->taken.size == before;
            continue;
        }
        dry = 0;
        take_record(source, record);
        turns--;
    }
    if (source->taken.failed) fail(source, "out of memory for input");
    if (turns == 0) {
        uv_idle_start(source->again, on_again);
        return;
    }
    dl_engine_flush(source->engine);
    if (end && source->at == source->taken.size && !dl_engine_busy(source->engine)) {
        pthread_mutex_lock(&source->mutex);
        int error = source->read_error;
        pthread_mutex_unlock(&source->mutex);
        if (error) {
            char text[400];
            snprintf(text, sizeof text, "%s: cannot read: %s", source->topic, strerror(error));
            fail(source, text);
            return;
        }
        source->told_end = 1;
        source->ended(source->context);
    }
}

static void on_async(uv_async_t *async)
{
    if (async->data) pump(async->data);
}

/* ---- beforehand ----------------------------------------------------------------------------- */

/* The first line that is not empty; DL_OK without one too. */
static int read_header(const char *path, struct dl_buf *line, struct dl_error *error)
{
    char chunk[4096];
    gzFile file = gzopen(path, "rb");
    if (!file) return dl_error_set(error, DL_ERR_IO, "%s: %s", path, strerror(errno));
    while (line->size <= DL_MESSAGE_BYTES_MAX && gzgets(file, chunk, sizeof chunk)) {
        dl_buf_text(line, chunk);
        if (line->size == 0 || line->data[line->size - 1] != '\n') continue;
        while (line->size &&
               (line->data[line->size - 1] == '\n' || line->data[line->size - 1] == '\r'))
            line->size--;
        if (line->size) break;
    }
    gzclose(file);
    return line->failed ? dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path) : DL_OK;
}

static int check_header(const struct dl_config *config, struct dl_error *error)
{
    struct dl_event_decoder_config decoder_config;
    struct dl_event_decoder *decoder = NULL;
    struct dl_buf line = {0};
    int status = dl_intake_decoder_config(config, &decoder_config, error);
    if (status == DL_OK) status = dl_event_decoder_new(&decoder_config, &decoder, error);
    if (status == DL_OK) status = read_header(config->source.path, &line, error);
    if (status == DL_OK && line.size) {
        status = dl_event_decoder_csv_header(decoder, dl_buf_slice(&line), error);
        if (status != DL_OK) dl_error_wrap(error, status, "%s, line 1", config->source.path);
    }
    dl_buf_free(&line);
    dl_event_decoder_free(decoder);
    return status;
}

int dl_line_source_check(const struct dl_config *config, struct dl_error *error)
{
    const char *path = config->source.path;
    struct stat info;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0)
        return dl_error_set(error, errno == ENOENT ? DL_ERR_NOT_FOUND : DL_ERR_IO, "%s: %s", path,
                            strerror(errno));
    /* What a pipe gives is there only once. */
    if (config->source.encoding != DL_ENCODING_CSV || !S_ISREG(info.st_mode)) return DL_OK;
    return check_header(config, error);
}

/* ---- life --------------------------------------------------------------------------------- */

static void on_again(uv_idle_t *idle)
{
    pump(idle->data);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

static int open_input(struct dl_line_source *source, const char *path, struct dl_error *error)
{
    struct stat info;
    if (!path) {
        source->fd = dup(STDIN_FILENO);
        snprintf(source->topic, sizeof source->topic, "stdin");
        return source->fd < 0 ? dl_error_set(error, DL_ERR_IO, "standard input is closed") : DL_OK;
    }
    snprintf(source->topic, sizeof source->topic, "%s", path);
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0 || fstat(source->fd, &info) != 0)
        return dl_error_set(error, errno == ENOENT ? DL_ERR_NOT_FOUND : DL_ERR_IO, "%s: %s", path,
                            strerror(errno));
    size_t size = strlen(path);
    if (size > 3 && strcmp(path + size - 3, ".gz") == 0) {
        source->gz = gzdopen(source->fd, "rb");
        if (!source->gz) return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
        gzbuffer(source->gz, 128 << 10);
    } else if (S_ISREG(info.st_mode)) {
        source->total_bytes = (uint64_t)info.st_size;
    }
    return DL_OK;
}

int dl_line_source_open(uv_loop_t *loop, const struct dl_config *config, const char *path,
                        struct dl_engine *engine, struct dl_intake *intake,
                        void (*failed)(void *context, const char *reason),
                        void (*ended)(void *context), void *context, struct dl_line_source **out,
                        struct dl_error *error)
{
    struct dl_line_source *source = calloc(1, sizeof *source);
    uv_idle_t *idle = calloc(1, sizeof *idle);
    uv_async_t *async = calloc(1, sizeof *async);
    int status = DL_OK;
    if (!source || !idle || !async) {
        free(source);
        free(idle);
        free(async);
        return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the input");
    }
    *source = (struct dl_line_source){.loop = loop,
                                      .config = config,
                                      .engine = engine,
                                      .intake = intake,
                                      .failed = failed,
                                      .ended = ended,
                                      .context = context,
                                      .fd = -1,
                                      .again = idle,
                                      .async = async};
    pthread_mutex_init(&source->mutex, NULL);
    pthread_cond_init(&source->room, NULL);
    uv_idle_init(loop, idle);
    idle->data = source;
    uv_async_init(loop, async, on_async);
    async->data = source;
    status = open_input(source, path, error);
    if (status == DL_OK) {
        source->resume_at = dl_engine_position(engine, source->topic, 0);
        if (source->resume_at > 0 && path)
            DL_INFO("source", "%s: going on at record %lld", source->topic,
                    (long long)source->resume_at);
        if (!path) source->resume_at = 0;
        if (pthread_create(&source->thread, NULL, read_ahead, source) == 0)
            source->has_thread = 1;
        else
            status = dl_error_set(error, DL_ERR_NOMEM, "cannot start the reading thread");
    }
    if (status != DL_OK) {
        dl_line_source_close(source);
        return status;
    }
    *out = source;
    return DL_OK;
}

void dl_line_source_resume(struct dl_line_source *source)
{
    if (!source->stopped && !source->told_end) uv_idle_start(source->again, on_again);
}

void dl_line_source_stop(struct dl_line_source *source)
{
    source->stopped = 1;
}

void dl_line_source_close(struct dl_line_source *source)
{
    if (!source) return;
    pthread_mutex_lock(&source->mutex);
    source->stopping = 1;
    pthread_cond_broadcast(&source->room);
    pthread_mutex_unlock(&source->mutex);
    if (source->has_thread) pthread_join(source->thread, NULL);
    source->async->data = NULL;
    uv_close((uv_handle_t *)source->async, free_handle);
    uv_close((uv_handle_t *)source->again, free_handle);
    if (source->gz)
        gzclose(source->gz);
    else if (source->fd >= 0)
        close(source->fd);
    dl_buf_free(&source->ahead);
    dl_buf_free(&source->taken);
    pthread_cond_destroy(&source->room);
    pthread_mutex_destroy(&source->mutex);
    free(source);
}

int dl_line_source_ended(const struct dl_line_source *source)
{
    return source->told_end;
}

void dl_line_source_progress(const struct dl_line_source *source, uint64_t *read_bytes,
                             uint64_t *total_bytes, uint64_t *records)
{
    *read_bytes = atomic_load(&source->read_bytes);
    *total_bytes = source->total_bytes;
    *records = source->records;
}
