/* Deterministic random numbers: a counter-based draw, which depends on nothing
 * but its arguments, and a stream (xoshiro256++, Blackman and Vigna 2019). */
#ifndef DL_BASE_RNG_H
#define DL_BASE_RNG_H

#include <stdint.h>

/* Mixes 64 bits (the splitmix64 finaliser). */
static inline uint64_t dl_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The draw number `draw` for event `index` under `seed`: uniform 64 bits. The
 * service and `evaluate` draw negatives with it, so both draw the same ones. */
static inline uint64_t dl_draw64(uint64_t seed, uint64_t index, uint64_t draw)
{
    return dl_mix64(dl_mix64(dl_mix64(seed) ^ index) ^ draw);
}

/* Uniform in [0, count), count > 0, from 64 uniform bits (multiply-shift). */
static inline uint64_t dl_bounded64(uint64_t bits, uint64_t count)
{
    return (uint64_t)(((unsigned __int128)bits * count) >> 64);
}

struct dl_rng {
    uint64_t state[4];
};

void dl_rng_seed(struct dl_rng *rng, uint64_t seed);
uint64_t dl_rng_u64(struct dl_rng *rng);
/* Uniform in [0, count), count > 0. */
uint64_t dl_rng_below(struct dl_rng *rng, uint64_t count);
/* Uniform in [0, 1). */
double dl_rng_uniform(struct dl_rng *rng);
/* Standard normal (Box-Muller, one of the pair). */
double dl_rng_normal(struct dl_rng *rng);

#endif
