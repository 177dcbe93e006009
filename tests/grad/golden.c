/* The whole model in double precision against an independent implementation:
 * what differs is only that the golden gradients are kept as floats. */
#include "tests/support/golden.h"

static void check(const char *path)
{
    struct golden golden;
    golden_open(&golden, path);
    golden_check_scores(&golden, 1e-11);
    golden_check_training(&golden, 2e-7, 1e-6);
    golden_close(&golden);
}

Test(golden, differential_attention_with_all_encodings)
{
    check("tests/golden/diffdyg.safetensors");
}

Test(golden, softmax_attention_without_encodings)
{
    check("tests/golden/diffdyg_softmax.safetensors");
}

Test(golden, windows_encoded_apart_and_a_pair_stage)
{
    check("tests/golden/diffdyg_cached.safetensors");
}

Test(golden, the_pair_stage_alone)
{
    check("tests/golden/mlp.safetensors");
}

Test(golden, the_pair_stage_without_steps)
{
    check("tests/golden/mlp_plain.safetensors");
}
