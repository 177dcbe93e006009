/* What the http*.c files share: the server and a request. */
#ifndef DL_SERVICE_HTTP_PRIVATE_H
#define DL_SERVICE_HTTP_PRIVATE_H

#include <microhttpd.h>
#include <uv.h>

#include "service/http.h"
#include "service/http_access.h"
#include "service/http_live.h"
#include "service/http_tls.h"
#include "service/rpc_core.h"
#include "service/tls_tokens.h"

#define HTTP_BODY_BYTES_MAX 4096
#define HTTP_ANSWER_BYTES_MAX (16u * 1024 * 1024)
#define HTTP_JOB_TIMEOUT_NS 5000000000

struct http_request;

enum http_method { HTTP_GET = 1, HTTP_POST = 2 };

struct http_route {
    const char *path;
    unsigned methods; /* http_method, or-ed; GET stands for HEAD too */
    int guarded;      /* the Host and Origin rules apply */
    uint32_t role;    /* enum dl_rpc_role that the caller needs; 0: none */
    /* Answers (http_answer*) before it returns, or later from the loop. */
    void (*handle)(struct http_request *request);
};

typedef void http_next(struct http_request *request, int status, const struct dl_error *error,
                       const union dl_backend_result *result);

/* Lives from the request's head until both its connection is done with it and
 * the engine has answered. */
struct http_request {
    struct dl_http *http;
    struct MHD_Connection *connection; /* NULL once the connection is done */
    const struct http_route *route;    /* NULL: no such path */
    const char *label;                 /* for the metrics */
    int is_post;
    struct dl_buf upload; /* the request's body */
    char by[128];         /* who asks, for the alert history */
    char cookie[192];     /* for Set-Cookie, or "" */
    int started, suspended, counted;
    /* the answer */
    int answered, code;
    const char *content_type;
    const char *allow; /* for 405 */
    struct dl_buf body;
    struct MHD_Response *response; /* instead of body: assets, event streams */
    /* the engine's part */
    struct dl_backend_job job;
    int pending;
    int held; /* within `next`, which may ask again and be answered at once */
    http_next *next;
    struct dl_json json;
    char src[DL_NAME_BYTES_MAX], dst[DL_NAME_BYTES_MAX];
    size_t src_size, dst_size;
    uint32_t k, count;
    enum dl_time_unit time_unit;
    /* the event stream */
    int listening, waiting, greeted;
    uint64_t stream_at;
    struct http_request *previous_request, *next_request; /* all requests of the server */
};

struct dl_http {
    uv_loop_t *loop;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer;   /* what libmicrohttpd wants to do next */
    uv_timer_t sampler; /* once a second */
    int handles_open;
    const struct dl_backend *backend;
    struct dl_backend_listener listener;
    struct dl_metrics *metrics;
    struct dl_service_metrics *service;
    struct dl_history *history;
    struct dl_live live;
    struct dl_buf scratch;                  /* of the event stream's encoder */
    struct dl_buf series[DL_HISTORY_TIERS]; /* as encoded at series_points */
    uint64_t series_points[DL_HISTORY_TIERS];
    char version[64], url[96];
    uint16_t port;
    int loopback;
    struct dl_http_access *access;
    struct dl_http_tls *tls; /* NULL: plain text */
    int64_t started_us;
    uint32_t listeners, listeners_max;
    uint32_t jobs; /* with the engine */
    struct http_request *requests;
    int closing;
    int64_t closing_until_ns;
    void (*closed)(void *context);
    void *closed_context;
};

/* ---- http.c ---------------------------------------------------------------- */

/* The answer is in request->body; the connection goes on. */
void http_answer(struct http_request *request, int code, const char *content_type);
/* Replaces the body by {"error": "..."} and answers. */
void http_answer_error(struct http_request *request, int code, const char *text);
/* Frees a request whose connection is gone, once no job is out. */
void http_request_release(struct http_request *request);
/* Makes libmicrohttpd look at resumed connections. */
void http_wake(struct dl_http *http);
extern const char http_json_type[];
/* The caller's token; NULL: none, or not known. */
const struct dl_token *http_token(struct http_request *request);
/* A string of the request's JSON body into `text` (with its NUL): 1; 0 after an
 * answer that says what is wrong. A body without it gives "". */
int http_body_text(struct http_request *request, const char *pointer, char *text, size_t size);

/* ---- http_api.c -------------------------------------------------------------- */

extern const struct http_route http_api_routes[];
extern const uint32_t http_api_route_count;

/* ---- http_login.c ------------------------------------------------------------- */

void http_session_handle(struct http_request *request);
void http_login_handle(struct http_request *request);
void http_logout_handle(struct http_request *request);

/* ---- http_events.c ------------------------------------------------------------ */

void http_events_handle(struct http_request *request);
/* Wakes the listeners that wait for bytes. */
void http_events_wake(struct dl_http *http);
/* Publishes the newest point of the history. */
void http_events_publish_sample(struct dl_http *http);
void http_events_publish_alert(struct dl_http *http, const struct dl_alert *alert);

#endif
