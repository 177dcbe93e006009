/* HTTP/1.1 on the loop's thread: the dashboard, metrics, health, and the JSON
 * behind the dashboard.
 *
 *   GET  /                  the dashboard (HTML, CSS and JavaScript from the binary)
 *   GET  /metrics           Prometheus text, or OpenMetrics if asked for
 *   GET  /healthz           200 while the loop turns
 *   GET  /readyz            200 while progress is possible, else 503 and why
 *   GET  /api/status        program, model, feed, readiness
 *   GET  /api/series        ?span=15m|3h|24h: what the charts draw
 *   GET  /api/drift         statistic, threshold, what moved
 *   GET  /api/quality       live quality beside the training-time figures
 *   GET  /api/alerts        the last alerts, newest first
 *   GET  /api/surprises     the most surprising events of the last ten minutes
 *   GET  /api/nodes         names of nodes seen lately
 *   GET  /api/node          ?name=N[&k=20][&count=0]: window and predicted links
 *   GET  /api/explain       ?src=A&dst=B: where the attention of that pair goes
 *   GET  /api/events        server-sent events: sample, alert
 *   POST /api/drift/renew   {"reason": "..."}: the recent span becomes the drift reference
 *   GET  /api/session       whether a token is asked for, and what the caller may do
 *   POST /api/login         {"token": "..."}: a session for the page
 *   POST /api/logout        its end
 *
 * libmicrohttpd runs without threads: its epoll descriptor is watched by the
 * loop. Answers that the engine gives later suspend their connection. Bounds:
 * connections, listeners, 16 KiB of request head, 4 KiB of request body, a
 * minute of silence, 16 MiB of answer.
 *
 * Security as that of RPC: TLS with client certificates if asked for
 * (http_tls.h), tokens and roles (http_access.h). The page's own files, health,
 * readiness and the login need no token; /metrics and /api want the role read,
 * the event stream subscribe, renewing admin. Pages of other origins can neither
 * read (no CORS headers) nor act. */
#ifndef DL_SERVICE_HTTP_H
#define DL_SERVICE_HTTP_H

#include <stdint.h>

#include "base/clock.h"
#include "base/record.h"
#include "base/status.h"
#include "service/backend.h"
#include "service/history.h"
#include "service/metrics.h"

struct uv_loop_s;
struct dl_http;

/* All pointers must outlive the server. */
struct dl_http_options {
    const char *listen; /* "127.0.0.1:9464", "[::1]:0", "localhost:9464"; port 0: any free one */
    int plain_text_anywhere; /* 0: without TLS, an address that is not loopback is refused */
    const char *tls_cert, *tls_key, *tls_ca; /* PEM files; NULL or "": none */
    const char *tokens_file;                 /* NULL or "": nobody is asked for a token */
    const char *tokens_key;                  /* the configuration's name for it, for messages */
    uint32_t connections_max;                /* 0: 512 */
    uint32_t listeners_max; /* open event streams, counted among the connections; 0: half of them */
    const struct dl_backend *backend;
    struct dl_metrics *metrics;
    struct dl_service_metrics *service;
    enum dl_time_unit time_unit; /* of the feed */
    const char *version;         /* of the program */
};

/* Binds, listens and joins the loop; also registers as a listener with the
 * backend, unless that is filled in later (dl_http_attach, before the loop turns): so
 * a port that is taken is found before there is a backend. DL_ERR_INVALID (the address, named),
 * DL_ERR_DENIED (not loopback), DL_ERR_IO (in use), DL_ERR_NOMEM. */
int dl_http_open(struct uv_loop_s *loop, const struct dl_http_options *options,
                 struct dl_http **http, struct dl_error *error);

void dl_http_attach(struct dl_http *http);

/* Certificates and tokens again; what does not check leaves the old ones. */
int dl_http_reload(struct dl_http *http, struct dl_error *error);

/* "http://127.0.0.1:9464/" or "https://...", for people. Borrowed. */
const char *dl_http_url(const struct dl_http *http);
uint16_t dl_http_port(const struct dl_http *http);

/* The memory behind the charts; sampled by the server itself. */
struct dl_history *dl_http_history(struct dl_http *http);

/* Stops: no new connections, event streams end, pending requests are answered
 * with 503; `closed` is called once from the loop when the last engine job has
 * come back and everything is freed (it may be NULL). Run the loop until then. */
void dl_http_close(struct dl_http *http, void (*closed)(void *context), void *context);

#endif
