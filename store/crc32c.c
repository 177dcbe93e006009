/* CRC-32C. The portable form works a nibble at a time over a 16-entry table
 * that fits in a cache line; the SSE 4.2 form takes eight bytes a step. */
#include "store/crc32c.h"

#include <string.h>

/* table[i]: the remainder of the nibble i under the reflected polynomial 0x82f63b78. */
static const uint32_t table[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t dl_crc32c_portable(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *at = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

#if defined(__x86_64__) && defined(__GNUC__)

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
                                                               size_t size)
{
    const uint8_t *at = data;
    uint64_t value = ~crc;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        value = __builtin_ia32_crc32di(value, word);
        at += 8;
        size -= 8;
    }
    while (size--) value = __builtin_ia32_crc32qi((uint32_t)value, *at++);
    return ~(uint32_t)value;
}

uint32_t dl_crc32c(uint32_t crc, const void *data, size_t size)
{
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, size)
                                            : dl_crc32c_portable(crc, data, size);
}

#else

uint32_t dl_crc32c(uint32_t crc, const void *data, size_t size)
{
    return dl_crc32c_portable(crc, data, size);
}

#endif
