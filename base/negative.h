/* Random negatives: which destination stands in for the true one. Counter-based,
 * so that the live service and `evaluate` draw the very same ones: the draw
 * depends on the seed, the event's index in the feed and the draw's number. */
#ifndef DL_BASE_NEGATIVE_H
#define DL_BASE_NEGATIVE_H

#include <stdint.h>

#include "base/rng.h"

/* Negatives that live quality ranks an event among: draws 0..19. Draw 0 is the
 * one that is published and that AP and AUC rest on. */
#define DL_LIVE_NEGATIVES 20

/* Index into the destination list (order of first appearance as a
 * destination), destination_count > 0. It may hit the true destination. */
static inline uint32_t dl_negative_index(uint64_t seed, uint64_t event_index, uint32_t draw,
                                         uint32_t destination_count)
{
    return (uint32_t)dl_bounded64(dl_draw64(seed, event_index, draw), destination_count);
}

#endif
