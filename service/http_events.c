/* Server-sent events. A message is encoded once into the stream's ring; each
 * listener copies from its own position. A listener with nothing to send has
 * its connection suspended, so idle dashboards cost nothing between messages.
 * One that is too slow for the ring is ended, and its browser reconnects. */
#include "service/http_private.h"

#include <string.h>

static ssize_t read_stream(void *context, uint64_t position, char *out, size_t max)
{
    struct http_request *request = context;
    struct dl_http *http = request->http;
    static const char greeting[] = "retry: 2000\n\n";
    (void)position;
    if (http->closing) return MHD_CONTENT_READER_END_OF_STREAM;
    if (!request->greeted && max >= sizeof greeting - 1) {
        request->greeted = 1;
        memcpy(out, greeting, sizeof greeting - 1);
        return sizeof greeting - 1;
    }
    int64_t size = dl_live_read(&http->live, &request->stream_at, (uint8_t *)out, max);
    if (size < 0) return MHD_CONTENT_READER_END_OF_STREAM;
    if (size == 0) {
        request->waiting = 1;
        MHD_suspend_connection(request->connection);
    }
    return (ssize_t)size;
}

void http_events_handle(struct http_request *request)
{
    struct dl_http *http = request->http;
    if (http->listeners >= http->listeners_max) {
        http_answer_error(request, MHD_HTTP_SERVICE_UNAVAILABLE,
                          "too many open event streams; try again later");
        return;
    }
    request->response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, request, NULL);
    if (!request->response) {
        http_answer_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
        return;
    }
    request->listening = 1;
    request->stream_at = http->live.stream_end;
    dl_gauge_set(http->service->http_listeners, ++http->listeners);
    http_answer(request, MHD_HTTP_OK, "text/event-stream; charset=utf-8");
}

void http_events_wake(struct dl_http *http)
{
    int woken = 0;
    for (struct http_request *request = http->requests; request; request = request->next_request) {
        if (!request->waiting) continue;
        request->waiting = 0;
        MHD_resume_connection(request->connection);
        woken = 1;
    }
    if (woken) http_wake(http);
}

static void publish(struct dl_http *http, const char *event)
{
    if (http->scratch.failed) return;
    if (dl_live_publish(&http->live, event, dl_buf_slice(&http->scratch))) http_events_wake(http);
}

void http_events_publish_sample(struct dl_http *http)
{
    if (http->listeners == 0) return;
    dl_buf_clear(&http->scratch);
    struct dl_json json = dl_json_of(&http->scratch);
    struct dl_error error = {""};
    int ready = !http->backend->ready || http->backend->ready(http->backend->context, &error);
    dl_json_open(&json, '{');
    dl_json_key(&json, "point");
    dl_history_write_newest(http->history, 0, &json);
    dl_json_key_bool(&json, "ready", ready);
    dl_json_key_text(&json, "reason", ready ? "" : error.text);
    dl_json_key_uint(&json, "events", dl_counter_get(http->service->events_total));
    dl_json_close(&json, '}');
    publish(http, "sample");
}

void http_events_publish_alert(struct dl_http *http, const struct dl_alert *alert)
{
    dl_buf_clear(&http->scratch);
    struct dl_json json = dl_json_of(&http->scratch);
    dl_live_write_alert(&http->live, alert, http->live.time_unit, &json);
    publish(http, "alert");
}
