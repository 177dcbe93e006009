/* Embeds service/web/ with the assembler, so that the build needs no tool of
 * its own. The paths are relative to the top folder, where make runs. */
#include "service/web_assets.h"

#include <stdio.h>
#include <string.h>

#define EMBED(name, file)                                                                          \
    __asm__(".pushsection .rodata\n"                                                               \
            "dl_web_" #name "_start:\n"                                                            \
            ".incbin \"service/web/" file "\"\n"                                                   \
            "dl_web_" #name "_end:\n"                                                              \
            ".byte 0\n"                                                                            \
            ".popsection\n");                                                                      \
    extern const uint8_t dl_web_##name##_start[], dl_web_##name##_end[]

EMBED(index, "index.html");
EMBED(style, "style.css");
EMBED(icon, "icon.svg");
EMBED(app, "app.js");
EMBED(charts, "charts.js");
EMBED(explorer, "explorer.js");

static struct dl_web_asset assets[6];

static uint64_t fnv1a(struct dl_slice bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes.size; i++) hash = (hash ^ bytes.data[i]) * 0x100000001b3u;
    return hash;
}

static void add(struct dl_web_asset *asset, const char *path, const char *content_type,
                const uint8_t *start, const uint8_t *end)
{
    asset->path = path;
    asset->content_type = content_type;
    asset->content = dl_slice_of(start, (size_t)(end - start));
    snprintf(asset->etag, sizeof asset->etag, "\"%016llx\"",
             (unsigned long long)fnv1a(asset->content));
}

#define ADD(index, path, type, name)                                                               \
    add(&assets[index], path, type, dl_web_##name##_start, dl_web_##name##_end)

const struct dl_web_asset *dl_web_asset_find(const char *path)
{
    static const char script[] = "text/javascript; charset=utf-8";
    if (!assets[0].path) {
        ADD(0, "/", "text/html; charset=utf-8", index);
        ADD(1, "/style.css", "text/css; charset=utf-8", style);
        ADD(2, "/icon.svg", "image/svg+xml", icon);
        ADD(3, "/app.js", script, app);
        ADD(4, "/charts.js", script, charts);
        ADD(5, "/explorer.js", script, explorer);
    }
    for (size_t i = 0; i < sizeof assets / sizeof *assets; i++)
        if (strcmp(path, assets[i].path) == 0) return &assets[i];
    return NULL;
}
