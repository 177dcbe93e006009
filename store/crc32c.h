/* CRC-32C (Castagnoli), the checksum of everything the store keeps in blobs. */
#ifndef DL_STORE_CRC32C_H
#define DL_STORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues `crc` (0 to start) over `size` bytes. Uses the processor's
 * instruction where there is one; the result is the same. */
uint32_t dl_crc32c(uint32_t crc, const void *data, size_t size);
/* The portable form, always built; the test compares the two. */
uint32_t dl_crc32c_portable(uint32_t crc, const void *data, size_t size);

#endif
