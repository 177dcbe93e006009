/* The whole model in single precision against an independent implementation. */
#include "model/kernels/kernels.h"
#include "tests/support/golden.h"

static const char *const tiers[] = {"c", "avx2", "avx512"};

static void check(const char *path)
{
    for (int t = 0; t < 3; t++) {
        struct golden golden;
        setenv("DRIFTLINE_KERNELS", tiers[t], 1);
        const struct dl_kernels *kernels;
        if (dl_kernels_choose(&kernels, NULL) == DL_ERR_UNSUPPORTED) continue;
        golden_open(&golden, path);
        golden_check_scores(&golden, 1e-5);
        golden_check_training(&golden, 1e-5, 2e-4);
        golden_close(&golden);
    }
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
