/* Checks that hold for every message table: it agrees with the descriptor that
 * protoc-c generated from the .proto, and random structs survive the trip
 * through protobuf-c and back, byte for byte. */
#ifndef DL_TESTS_PROTO_TABLES_H
#define DL_TESTS_PROTO_TABLES_H

#include <protobuf-c/protobuf-c.h>

#include "proto/message.h"

/* Names, numbers, types, labels, packing and enum names, nested types too. */
void expect_table_agrees(const struct dl_message_type *type,
                         const ProtobufCMessageDescriptor *descriptor);

/* `rounds` random structs: our bytes, unpacked and packed again by protobuf-c,
 * are the same bytes; and so are those of our decoder's struct. Also: every
 * truncation and some corruption of them is refused or decodes, and leaks or
 * overruns nothing (for the sanitizers to see). */
void expect_round_trips(const struct dl_message_type *type,
                        const ProtobufCMessageDescriptor *descriptor, uint64_t seed, int rounds);

#endif
