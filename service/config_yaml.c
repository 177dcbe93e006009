/* YAML to keys and values. Sections are mappings one level deep, except
 * source.mapping; a mapping below kafka is joined with dots, so
 * `kafka: {ssl: {ca.location: x}}` is ssl.ca.location.
 *
 * The file is the operator's, but it is read as hostile all the same: size,
 * depth and count are bounded, and an alias cannot blow up. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "service/config_keys.h"

#define FILE_BYTES_MAX (1 << 20)
#define DEPTH_MAX 8
#define NODES_MAX 20000 /* visited, aliases counted each time */

struct walk {
    struct dl_config *config;
    yaml_document_t *document;
    unsigned visited;
    int status;
};

/* "driftline.yaml:12" */
static const char *place_of(const struct walk *walk, const yaml_node_t *node, char place[300])
{
    snprintf(place, 300, "%.280s:%zu", walk->config->path, node->start_mark.line + 1);
    return place;
}

static bool is_null(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;
    return node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static const char *scalar_text(struct walk *walk, const yaml_node_t *node, const char *key)
{
    const char *text = (const char *)node->data.scalar.value;
    char place[300];
    if (strlen(text) == node->data.scalar.length) return text;
    dl_config_problem(walk->config, place_of(walk, node, place), key, "holds a NUL byte");
    return NULL;
}

static void walk_sequence(struct walk *walk, const yaml_node_t *node, const char *key)
{
    size_t count = (size_t)(node->data.sequence.items.top - node->data.sequence.items.start);
    const char **items = calloc(count ? count : 1, sizeof *items);
    char place[300];
    place_of(walk, node, place);
    if (!items) {
        walk->status = DL_ERR_NOMEM;
        return;
    }
    for (size_t k = 0; k < count; k++) {
        yaml_node_t *item =
            yaml_document_get_node(walk->document, node->data.sequence.items.start[k]);
        if (!item || item->type != YAML_SCALAR_NODE || !(items[k] = scalar_text(walk, item, key))) {
            dl_config_problem(walk->config, place, key, "is a list of something else than texts");
            goto out;
        }
    }
    if (strncmp(key, "kafka.", 6) == 0 || strcmp(key, "source.mapping") == 0) {
        /* librdkafka takes lists as one text with commas; the mapping as src=/a,dst=/b. */
        char joined[4096] = "";
        size_t used = 0;
        for (size_t k = 0; k < count && used < sizeof joined; k++)
            used += (size_t)snprintf(joined + used, sizeof joined - used, "%s%s", k ? "," : "",
                                     items[k]);
        if (used >= sizeof joined)
            dl_config_problem(walk->config, place, key, "is longer than 4095 bytes");
        else
            walk->status = dl_config_set(walk->config, key, joined, place);
    } else {
        walk->status = dl_config_set_items(walk->config, key, items, count, place);
    }
out:
    free(items);
}

static void walk_mapping(struct walk *walk, const yaml_node_t *node, const char *prefix,
                         unsigned depth);

static void walk_value(struct walk *walk, yaml_node_t *name, yaml_node_t *value, const char *prefix,
                       unsigned depth)
{
    char place[300], key[200];
    if (!name || !value || name->type != YAML_SCALAR_NODE) {
        dl_config_problem(walk->config, name ? place_of(walk, name, place) : walk->config->path,
                          prefix, "a name is expected here");
        return;
    }
    if (++walk->visited > NODES_MAX || depth > DEPTH_MAX) {
        dl_config_problem(walk->config, place_of(walk, name, place), prefix,
                          "is nested too deeply or refers to itself");
        walk->status = DL_ERR_TOO_LARGE;
        return;
    }
    const char *text = scalar_text(walk, name, prefix);
    if (!text) return;
    place_of(walk, name, place);
    if ((size_t)snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", text) >=
        sizeof key) {
        dl_config_problem(walk->config, place, prefix, "a name of %zu bytes is no key",
                          strlen(text));
        return;
    }
    if (depth == 0 && !dl_config_section_is(key)) { /* its keys would only repeat the complaint */
        const char *meant = dl_config_section_suggest(key);
        if (meant)
            dl_config_problem(walk->config, place, key, "no such section; did you mean %s?", meant);
        else
            dl_config_problem(walk->config, place, key,
                              "no such section: there are source, kafka, store, model, predict, "
                              "drift, alerts, rpc, http and log");
        return;
    }
    bool section = strcmp(key, "kafka") == 0 || strncmp(key, "kafka.", 6) == 0 ||
                   strcmp(key, "source.mapping") == 0 || depth == 0;
    if (value->type == YAML_SCALAR_NODE) {
        const char *scalar = scalar_text(walk, value, key);
        if (scalar && depth == 0 && !is_null(value))
            dl_config_problem(walk->config, place, key,
                              "is a section: its keys stand below it, not \"%.60s\"", scalar);
        else if (scalar && !is_null(value))
            walk->status = dl_config_set(walk->config, key, scalar, place);
    } else if (value->type == YAML_SEQUENCE_NODE && depth > 0) {
        walk_sequence(walk, value, key);
    } else if (value->type == YAML_MAPPING_NODE && section) {
        walk_mapping(walk, value, key, depth + 1);
    } else if (dl_config_key_find(key) >= 0) {
        dl_config_problem(walk->config, place, key, "takes one value");
    } else {
        walk->status = dl_config_set(walk->config, key, "", place); /* says what was meant */
    }
}

static void walk_mapping(struct walk *walk, const yaml_node_t *node, const char *prefix,
                         unsigned depth)
{
    const yaml_node_pair_t *start = node->data.mapping.pairs.start,
                           *top = node->data.mapping.pairs.top;
    for (const yaml_node_pair_t *pair = start; pair < top && !walk->status; pair++) {
        yaml_node_t *name = yaml_document_get_node(walk->document, pair->key);
        for (const yaml_node_pair_t *before = start; name && before < pair; before++) {
            yaml_node_t *other = yaml_document_get_node(walk->document, before->key);
            char place[300];
            if (other && name->type == YAML_SCALAR_NODE && other->type == YAML_SCALAR_NODE &&
                strcmp((char *)name->data.scalar.value, (char *)other->data.scalar.value) == 0)
                dl_config_problem(walk->config, place_of(walk, name, place),
                                  (char *)name->data.scalar.value, "stands here a second time");
        }
        walk_value(walk, name, yaml_document_get_node(walk->document, pair->value), prefix, depth);
    }
}

static int read_all(const char *path, char **bytes, size_t *size, struct dl_error *error)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return dl_error_set(error, errno == ENOENT ? DL_ERR_NOT_FOUND : DL_ERR_IO, "%s: %s", path,
                            strerror(errno));
    *bytes = malloc(FILE_BYTES_MAX + 1);
    *size = *bytes ? fread(*bytes, 1, FILE_BYTES_MAX + 1, file) : 0;
    int failed = ferror(file), code = errno;
    fclose(file);
    if (!*bytes) return dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
    if (failed) return dl_error_set(error, DL_ERR_IO, "%s: %s", path, strerror(code));
    if (*size > FILE_BYTES_MAX)
        return dl_error_set(error, DL_ERR_TOO_LARGE,
                            "%s: larger than 1 MiB, which no configuration is", path);
    return DL_OK;
}

static int parser_problem(const yaml_parser_t *parser, const char *path, struct dl_error *error)
{
    return dl_error_set(error, DL_ERR_INVALID, "%s:%zu: not YAML: %s%s%s", path,
                        parser->problem_mark.line + 1,
                        parser->problem ? parser->problem : "cannot be read",
                        parser->context ? " " : "", parser->context ? parser->context : "");
}

int dl_config_read_file(struct dl_config *config, const char *path, struct dl_error *error)
{
    char *bytes = NULL, *path_copy = NULL;
    size_t size = 0;
    yaml_parser_t parser;
    yaml_document_t document, next;
    bool parsing = false, loaded = false;
    int status = read_all(path, &bytes, &size, error);
    if (status) goto out;
    status = DL_ERR_NOMEM;
    if (!(path_copy = strdup(path)) || !yaml_parser_initialize(&parser)) goto out;
    parsing = true;
    free(config->path);
    config->path = path_copy;
    path_copy = NULL;
    yaml_parser_set_input_string(&parser, (const unsigned char *)bytes, size);
    if (!yaml_parser_load(&parser, &document)) {
        status = parser_problem(&parser, path, error);
        goto out;
    }
    loaded = true;
    status = DL_OK;
    yaml_node_t *root = yaml_document_get_root_node(&document);
    struct walk walk = {config, &document, 0, DL_OK};
    if (root && root->type == YAML_MAPPING_NODE)
        walk_mapping(&walk, root, "", 0);
    else if (root)
        status = dl_error_set(error, DL_ERR_INVALID,
                              "%s:1: sections such as \"source:\" are expected", path);
    if (walk.status == DL_ERR_NOMEM)
        status = dl_error_set(error, DL_ERR_NOMEM, "%s: out of memory", path);
    if (!status && root) {
        if (!yaml_parser_load(&parser, &next)) {
            status = parser_problem(&parser, path, error);
        } else {
            if (yaml_document_get_root_node(&next))
                status = dl_error_set(error, DL_ERR_INVALID, "%s:%zu: holds a second document",
                                      path, next.start_mark.line + 1);
            yaml_document_delete(&next);
        }
    }
out:
    if (loaded) yaml_document_delete(&document);
    if (parsing) yaml_parser_delete(&parser);
    free(path_copy);
    free(bytes);
    return status;
}
