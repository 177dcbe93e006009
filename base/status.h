/* One list of statuses for every part. Functions return 0 or one of these;
 * detail for people goes into a `struct dl_error` that the caller owns. */
#ifndef DL_BASE_STATUS_H
#define DL_BASE_STATUS_H

enum dl_status {
    DL_OK = 0,
    DL_ERR_NOMEM = -1,       /* an allocation failed */
    DL_ERR_INVALID = -2,     /* an argument, a message or a file breaks its contract */
    DL_ERR_TOO_LARGE = -3,   /* a stated limit is exceeded */
    DL_ERR_NOT_FOUND = -4,   /* no such node, row, file or key */
    DL_ERR_IO = -5,          /* the operating system or a library could not read or write */
    DL_ERR_CORRUPT = -6,     /* stored bytes do not check */
    DL_ERR_VERSION = -7,     /* written by another version, or for another configuration */
    DL_ERR_UNAVAILABLE = -8, /* a peer is away; try again */
    DL_ERR_FULL = -9,        /* a bounded queue or table is full */
    DL_ERR_EXISTS = -10,     /* it is there already */
    DL_ERR_LATE = -11,       /* an event is older than the allowed lateness */
    DL_ERR_CANCELLED = -12,  /* the caller went away or the deadline passed */
    DL_ERR_DENIED = -13,     /* not permitted for this caller */
    DL_ERR_UNSUPPORTED = -14 /* a valid request for something this build does not do */
};

/* Detail of an error for people: one line that names the place, the value and
 * the remedy. Never holds secrets. */
struct dl_error {
    char text[512];
};

/* A short name such as "invalid" for a status. Never NULL. */
const char *dl_status_name(int status);

/* Writes the formatted detail into *error (NULL is allowed) and returns
 * `status`, so that a caller can `return dl_error_set(...)`. */
int dl_error_set(struct dl_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the detail that is already there. Returns `status`. */
int dl_error_wrap(struct dl_error *error, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
