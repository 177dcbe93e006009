#include "service/sd_notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

int dl_sd_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = path ? strlen(path) : 0;
    if (size == 0) return 0;
    if ((path[0] != '/' && path[0] != '@') || size >= sizeof address.sun_path) return -1;
    memcpy(address.sun_path, path, size);
    if (path[0] == '@') address.sun_path[0] = '\0'; /* an abstract socket */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL,
                          (const struct sockaddr *)(const void *)&address, length);
    close(fd);
    return sent == (ssize_t)strlen(state) ? 1 : -1;
}

int dl_sd_notify_reloading(void)
{
    char state[64];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)(dl_clock_monotonic_ns() / 1000));
    return dl_sd_notify(state);
}

int64_t dl_sd_watchdog_ns(void)
{
    const char *interval = getenv("WATCHDOG_USEC"), *process = getenv("WATCHDOG_PID");
    if (!interval || (process && atoll(process) != (long long)getpid())) return 0;
    long long us = atoll(interval);
    return us > 0 && us < INT64_MAX / 1000 ? us * 1000 / 2 : 0;
}
