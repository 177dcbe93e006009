/* xoshiro256++ seeded by splitmix64. */
#include "base/rng.h"

#include <math.h>

static uint64_t rotate_left(uint64_t x, int k)
{
    return (x << k) | (x >> (64 - k));
}

void dl_rng_seed(struct dl_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) rng->state[i] = dl_mix64(seed + (uint64_t)i * 0x9e3779b97f4a7c15u);
}

uint64_t dl_rng_u64(struct dl_rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rotate_left(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t dl_rng_below(struct dl_rng *rng, uint64_t count)
{
    return dl_bounded64(dl_rng_u64(rng), count);
}

double dl_rng_uniform(struct dl_rng *rng)
{
    return (double)(dl_rng_u64(rng) >> 11) * 0x1p-53;
}

double dl_rng_normal(struct dl_rng *rng)
{
    double u = 1.0 - dl_rng_uniform(rng);
    double v = dl_rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}
