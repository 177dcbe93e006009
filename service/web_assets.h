/* The dashboard's files, embedded in the binary at build time. */
#ifndef DL_SERVICE_WEB_ASSETS_H
#define DL_SERVICE_WEB_ASSETS_H

#include <stdint.h>

#include "base/bytes.h"

struct dl_web_asset {
    const char *path; /* as requested: "/", "/app.js" */
    const char *content_type;
    struct dl_slice content; /* static */
    char etag[24];           /* quoted; changes with the content */
};

/* The asset at a path, or NULL. Computes the tags on first use (loop's thread). */
const struct dl_web_asset *dl_web_asset_find(const char *path);

#endif
