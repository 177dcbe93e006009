/* The services that every gRPC server has: health and reflection. */
#include "service/rpc_methods_private.h"

#include <stdlib.h>

#include "proto/reflection.h"

#define SERVICE_NAME "driftline.v1.LinkPrediction"

/* ---- health ------------------------------------------------------------------------ */

struct dl_rpc_watcher {
    struct dl_rpc_call *call;
    enum dl_msg_health told;
    struct dl_rpc_watcher *previous, *next;
};

static enum dl_msg_health health_now(const struct dl_rpc_methods *methods)
{
    struct dl_error error;
    int ready = !methods->draining && (!methods->backend.ready ||
                                       methods->backend.ready(methods->backend.context, &error));
    return ready ? DL_MSG_HEALTH_SERVING : DL_MSG_HEALTH_NOT_SERVING;
}

static int is_known(struct dl_slice service)
{
    return service.size == 0 || dl_slice_equal(service, dl_slice_text(SERVICE_NAME));
}

static int tell(struct dl_rpc_methods *methods, struct dl_rpc_call *call, enum dl_msg_health health)
{
    struct dl_msg_health_response response = {health};
    return dl_rpc_reply(methods, call, &dl_msg_health_response_type, &response);
}

static void on_check(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_rpc_entry *entry = context;
    struct dl_msg_health_request request = {{0}};
    if (dl_rpc_request(entry, call, bytes, &request) != DL_OK) return;
    if (!is_known(request.service)) {
        dl_rpc_call_finish(call, DL_GRPC_NOT_FOUND,
                           "no such service here; the empty name and " SERVICE_NAME " are known");
        return;
    }
    if (tell(entry->methods, call, health_now(entry->methods)) == DL_OK)
        dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

static void on_watch(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_rpc_entry *entry = context;
    struct dl_rpc_methods *methods = entry->methods;
    struct dl_msg_health_request request = {{0}};
    if (dl_rpc_request(entry, call, bytes, &request) != DL_OK) return;
    struct dl_rpc_watcher *watcher = calloc(1, sizeof(*watcher));
    if (!watcher) {
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    /* An unknown service may come to exist elsewhere: the protocol keeps the call open. */
    watcher->told = is_known(request.service) ? health_now(methods) : DL_MSG_HEALTH_SERVICE_UNKNOWN;
    watcher->call = call;
    watcher->next = methods->watchers;
    if (watcher->next) watcher->next->previous = watcher;
    methods->watchers = watcher;
    methods->stream_count++;
    dl_rpc_call_set_user(call, watcher);
    tell(methods, call, watcher->told);
}

static void on_watch_closed(void *context, struct dl_rpc_call *call, enum dl_rpc_end end)
{
    struct dl_rpc_methods *methods = ((struct dl_rpc_entry *)context)->methods;
    struct dl_rpc_watcher *watcher = dl_rpc_call_get_user(call);
    (void)end;
    if (!watcher) return;
    if (watcher->previous)
        watcher->previous->next = watcher->next;
    else
        methods->watchers = watcher->next;
    if (watcher->next) watcher->next->previous = watcher->previous;
    methods->stream_count--;
    free(watcher);
}

void dl_rpc_health_handlers(struct dl_rpc_method *method, int watch)
{
    method->message = watch ? on_watch : on_check;
    if (watch) method->closed = on_watch_closed;
}

void dl_rpc_health_tick(struct dl_rpc_methods *methods)
{
    if (!methods->watchers) return;
    enum dl_msg_health health = health_now(methods);
    for (struct dl_rpc_watcher *w = methods->watchers; w; w = w->next) {
        if (w->told == health || w->told == DL_MSG_HEALTH_SERVICE_UNKNOWN) continue;
        w->told = health;
        tell(methods, w->call, health);
    }
}

void dl_rpc_health_drain(struct dl_rpc_methods *methods)
{
    dl_rpc_health_tick(methods);
    for (struct dl_rpc_watcher *w = methods->watchers; w; w = w->next)
        dl_rpc_call_finish(w->call, DL_GRPC_UNAVAILABLE, "the server is shutting down");
}

/* ---- reflection ------------------------------------------------------------------------ */

static void on_reflect(void *context, struct dl_rpc_call *call, struct dl_slice bytes)
{
    struct dl_buf *answer = &((struct dl_rpc_entry *)context)->methods->scratch;
    struct dl_error error = {""};
    dl_buf_clear(answer);
    int status = dl_reflection_answer(bytes, answer, &error);
    if (status == DL_OK && answer->failed) status = DL_ERR_NOMEM;
    if (answer->failed) dl_buf_free(answer);
    if (status == DL_OK) status = dl_rpc_call_send(call, dl_buf_slice(answer));
    if (dl_rpc_call_dropped(call)) { /* here an answer may not be lost */
        dl_rpc_call_finish(call, DL_GRPC_RESOURCE_EXHAUSTED,
                           "too many answers wait to be read; read them while asking");
    } else if (status == DL_ERR_INVALID || status == DL_ERR_TOO_LARGE) {
        dl_rpc_call_finish(call, DL_GRPC_INVALID_ARGUMENT, error.text);
    } else if (status != DL_OK) {
        dl_rpc_call_fail(call, status, NULL);
    }
}

static void on_reflect_end(void *context, struct dl_rpc_call *call)
{
    (void)context;
    dl_rpc_call_finish(call, DL_GRPC_OK, NULL);
}

void dl_rpc_reflection_handlers(struct dl_rpc_method *method)
{
    method->message = on_reflect;
    method->half_closed = on_reflect_end;
}
