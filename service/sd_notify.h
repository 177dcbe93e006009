/* Tells systemd how the service does: sd_notify(3)'s protocol, one datagram a
 * message to the socket that NOTIFY_SOCKET names. Without it every call does
 * nothing. Why not libsystemd: docs/decisions/0012-own-sd-notify.md.
 *
 * Loop's thread. What cannot be sent is lost: systemd then acts on its
 * time-outs. */
#ifndef DL_SERVICE_SD_NOTIFY_H
#define DL_SERVICE_SD_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STATUS=..." and so on, one assignment a line. 1: sent; 0: nobody
 * listens; -1: not sent. */
int dl_sd_notify(const char *state);
/* "RELOADING=1" with the time, as Type=notify-reload wants it. */
int dl_sd_notify_reloading(void);
/* How often "WATCHDOG=1" is due, half of what systemd waits; 0: not asked for. */
int64_t dl_sd_watchdog_ns(void);

#endif
