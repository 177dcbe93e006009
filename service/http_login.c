/* The page's way in: a token is exchanged for a session once. Also reads the
 * small JSON bodies of requests. */
#include "service/http_private.h"

#include <stdio.h>
#include <string.h>

#include "proto/json_scan.h"

int http_body_text(struct http_request *request, const char *pointer, char *text, size_t size)
{
    struct dl_json_pointer compiled;
    struct dl_json_value value = {DL_JSON_ABSENT, 0, {NULL, 0}};
    struct dl_error error = {""};
    char why[160];
    text[0] = '\0';
    if (request->upload.size == 0) return 1;
    int status = dl_json_pointer_compile(pointer, &compiled, &error);
    if (status == DL_OK)
        status = dl_json_scan(dl_buf_slice(&request->upload), &compiled, 1, &value, &error);
    if (status != DL_OK) {
        snprintf(why, sizeof why, "the body is not JSON: %.120s", error.text);
    } else if (value.kind == DL_JSON_ABSENT) {
        return 1;
    } else if (value.kind != DL_JSON_STRING) {
        snprintf(why, sizeof why, "%s is %s, not a string", pointer + 1,
                 dl_json_kind_name(value.kind));
    } else {
        long length = dl_json_unescape(value.text, (uint8_t *)text, size - 1);
        if (length >= 0 && !memchr(text, '\0', (size_t)length)) {
            text[length] = '\0';
            return 1;
        }
        snprintf(why, sizeof why, "%s takes at most %zu bytes of text", pointer + 1, size - 1);
    }
    http_answer_error(request, MHD_HTTP_BAD_REQUEST, why);
    return 0;
}

/* {"token_needed": ..., "name": ..., "roles": [...]}: what the caller may do. */
static void answer_session(struct http_request *request, const struct dl_token *token)
{
    static const struct {
        uint32_t role;
        const char *name;
    } roles[] = {{DL_RPC_READ, "read"},
                 {DL_RPC_SUBSCRIBE, "subscribe"},
                 {DL_RPC_INGEST, "ingest"},
                 {DL_RPC_ADMIN, "admin"}};
    const int on = dl_http_access_is_on(request->http->access);
    uint32_t may = on ? token ? token->roles : 0 : DL_RPC_ALL;
    dl_buf_clear(&request->body);
    struct dl_json json = dl_json_of(&request->body);
    dl_json_open(&json, '{');
    dl_json_key_bool(&json, "token_needed", on);
    dl_json_key_text(&json, "name", token ? token->name : "");
    dl_json_key(&json, "roles");
    dl_json_open(&json, '[');
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (may & roles[i].role) dl_json_text(&json, roles[i].name);
    dl_json_close(&json, ']');
    dl_json_close(&json, '}');
    dl_buf_text(&request->body, "\n");
    http_answer(request, MHD_HTTP_OK, http_json_type);
}

void http_session_handle(struct http_request *request)
{
    answer_session(request, http_token(request));
}

void http_login_handle(struct http_request *request)
{
    struct dl_http *http = request->http;
    const struct dl_token *token = NULL;
    char text[DL_TOKEN_BYTES_MAX + 1];
    if (!http_body_text(request, "/token", text, sizeof text)) return;
    if (!dl_http_access_is_on(http->access)) {
        answer_session(request, NULL);
        return;
    }
    int status = dl_http_access_login(http->access, dl_slice_text(text), http->tls != NULL,
                                      dl_clock_monotonic_ns(), request->cookie,
                                      sizeof request->cookie, &token);
    explicit_bzero(text, sizeof text);
    if (status == DL_OK)
        answer_session(request, token);
    else if (status == DL_ERR_DENIED)
        http_answer_error(request, MHD_HTTP_UNAUTHORIZED, "the token is not known");
    else
        http_answer_error(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "no randomness for a session");
}

void http_logout_handle(struct http_request *request)
{
    const char *cookies =
        MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_COOKIE);
    dl_http_access_logout(request->http->access, cookies, request->cookie, sizeof request->cookie);
    answer_session(request, NULL);
}
