#include <stdlib.h>

#include <criterion/criterion.h>

#include "service/rpc_core.h"
#include "service/tls_tokens.h"

#define ONE "0123456789abcdef"
#define TWO "fedcba9876543210"

static int parse(const char *text, struct dl_tokens **tokens, struct dl_error *error)
{
    *tokens = NULL;
    return dl_tokens_parse(dl_slice_text(text), "tokens", tokens, error);
}

static uint32_t roles(const struct dl_tokens *tokens, const char *authorization)
{
    const struct dl_token *token = dl_tokens_find(tokens, dl_slice_text(authorization));
    return token ? token->roles : 0;
}

Test(tokens, give_the_roles_of_their_line)
{
    struct dl_tokens *tokens;
    struct dl_error error = {""};
    cr_assert_eq(parse("# all\n\n" ONE "\tread,subscribe # x\r\n  " TWO " all", &tokens, &error),
                 DL_OK, "%s", error.text);
    cr_assert_eq(dl_tokens_count(tokens), 2);
    cr_assert_eq(roles(tokens, "Bearer " ONE), DL_RPC_READ | DL_RPC_SUBSCRIBE);
    cr_assert_eq(roles(tokens, "bearer " TWO), DL_RPC_ALL);
    const char *wrong[] = {"",
                           "Bearer",
                           "Bearer ",
                           "Bearer " ONE " ",
                           "Bearer  " ONE,
                           ONE,
                           "Basic " ONE,
                           "Bearer 0123456789abcde",
                           "Bearer #"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert_eq(roles(tokens, wrong[i]), 0, "%s", wrong[i]);
    dl_tokens_free(tokens);
}

Test(tokens, errors_name_the_line_and_never_the_token)
{
    const char *bad[] = {"\n" ONE,          "\n" ONE " reed", "\n" ONE " read write",
                         "\n" ONE " ,read", "\nshort read",   "\n" ONE " read,\x80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dl_tokens *tokens;
        struct dl_error error = {""};
        cr_assert_eq(parse(bad[i], &tokens, &error), DL_ERR_INVALID, "%s", bad[i]);
        cr_assert(strstr(error.text, "tokens:2"), "%s", error.text);
        cr_assert_not(strstr(error.text, ONE));
        cr_assert_not(strstr(error.text, "short"), "%s", error.text);
    }
}

Test(tokens, a_file_without_tokens_is_a_mistake)
{
    struct dl_tokens *tokens;
    struct dl_error error = {""};
    cr_assert_eq(parse("# nothing\n", &tokens, &error), DL_ERR_INVALID);
    cr_assert_eq(dl_tokens_read("/nonexistent/tokens", "http.tokens_file", &tokens, &error),
                 DL_ERR_IO);
    cr_assert(strstr(error.text, "/nonexistent/tokens"));
}

Test(tokens, are_limited_in_number)
{
    struct dl_buf text = {0};
    struct dl_tokens *tokens;
    struct dl_error error = {""};
    for (int i = 0; i <= DL_TOKENS_MAX; i++) dl_buf_printf(&text, "%020d read\n", i);
    cr_assert_eq(dl_tokens_parse(dl_buf_slice(&text), "tokens", &tokens, &error), DL_ERR_TOO_LARGE);
    dl_buf_free(&text);
}

Test(tokens, a_comment_is_the_name)
{
    struct dl_tokens *tokens;
    struct dl_error error = {""};
    cr_assert_eq(parse("0123456789abcdef0 read\n"
                       "0123456789abcdef1 admin #  the \xc3\xa9 one \n",
                       &tokens, &error),
                 DL_OK, "%s", error.text);
    const struct dl_token *plain =
        dl_tokens_find(tokens, dl_slice_text("Bearer 0123456789abcdef0"));
    const struct dl_token *named =
        dl_tokens_find(tokens, dl_slice_text("Bearer 0123456789abcdef1"));
    cr_assert(plain && named);
    cr_expect_str_eq(plain->name, "");
    cr_expect_str_eq(named->name, "the ?? one");
    cr_expect_eq(dl_tokens_find_hash(tokens, named->hash), named);
    cr_expect_null(dl_tokens_find(tokens, dl_slice_text("Bearer 0123456789abcdef2")));
    dl_tokens_free(tokens);
}
