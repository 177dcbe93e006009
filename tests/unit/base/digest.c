/* SHA-256 against the vectors of FIPS 180-4. */
#include <criterion/criterion.h>

#include "base/digest.h"

Test(digest, agrees_with_the_standard)
{
    char hex[DL_DIGEST_HEX_SIZE];
    cr_assert_eq(dl_digest_sha256_hex(dl_slice_of(NULL, 0), hex), DL_OK);
    cr_expect_str_eq(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_assert_eq(dl_digest_sha256_hex(dl_slice_text("abc"), hex), DL_OK);
    cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(digest, is_the_same_in_pieces)
{
    char hex[DL_DIGEST_HEX_SIZE];
    struct dl_digest *digest;
    cr_assert_eq(dl_digest_new(&digest), DL_OK);
    dl_digest_update(digest, "a", 1);
    dl_digest_update(digest, "", 0);
    dl_digest_update(digest, "bc", 2);
    dl_digest_finish_hex(digest, hex);
    dl_digest_free(digest);
    cr_expect_str_eq(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(digest, says_which_file_is_missing)
{
    char hex[DL_DIGEST_HEX_SIZE];
    struct dl_error error;
    cr_expect_eq(dl_digest_file_sha256_hex("/nonexistent", hex, &error), DL_ERR_IO);
    cr_expect_str_eq(error.text, "/nonexistent: No such file or directory");
}
