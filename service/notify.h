/* Takes alerts to where people are called from: a webhook (one JSON object by
 * POST) and Prometheus' Alertmanager (its v2 API). Kafka, RPC and the log have
 * them anyway.
 *
 *   engine ──heard, durable──> queue (bounded) ──thread──> POST ... acknowledged
 *                                                              │
 *                        number of the last one, in the store <┘
 *
 * A target is a thread with a queue. What fails is tried again, with a pause
 * that doubles up to a minute, until the other side answers; an answer that
 * says the request itself is wrong (4xx except 408 and 429) is logged and the
 * alert given up. When a queue is full, its oldest alert is dropped, counted
 * and logged. After a restart it goes on behind the last alert that was
 * acknowledged, so an alert may come twice, and is lost only by being dropped.
 *
 * Alertmanager forgets what is not repeated: raised alerts are sent again every
 * minute until they are cleared.
 *
 * Belongs to the loop's thread. */
#ifndef DL_SERVICE_NOTIFY_H
#define DL_SERVICE_NOTIFY_H

#include <uv.h>

#include "service/backend.h"
#include "service/config.h"
#include "service/metrics.h"
#include "store/store.h"

#define DL_NOTIFY_QUEUE_MAX 256

struct dl_notify;

/* All is borrowed until the close. *notify is NULL where no target is
 * configured. DL_ERR_INVALID (URL, token file), DL_ERR_NOMEM, or the store's. */
int dl_notify_open(uv_loop_t *loop, const struct dl_config *config,
                   const struct dl_backend *backend, struct dl_store *store,
                   struct dl_service_metrics *metrics, struct dl_notify **notify,
                   struct dl_error *error);
/* Breaks off what is under way (it is sent after the next start) and frees
 * everything; the loop must run once more. NULL is allowed. */
void dl_notify_close(struct dl_notify *notify);

/* The bodies of the requests. `wall_us`: now. */
void dl_notify_webhook_body(const struct dl_alert *alert, struct dl_buf *out);
void dl_notify_alertmanager_body(const struct dl_alert *alert, int64_t wall_us, struct dl_buf *out);

#endif
