/* Shorthand for writing field tables. In each file T is the struct of the
 * table at hand: `#define T struct dl_score`. */
#ifndef DL_PROTO_MESSAGE_TABLES_H
#define DL_PROTO_MESSAGE_TABLES_H

#include <stddef.h>

#include "proto/message.h"

#define DL_TABLE_COUNT(table) (sizeof(table) / sizeof *(table))

/* Every field begins with this; more members may follow it. */
#define DL_FIELD(Number, Kind, Member)                                                             \
    .name = #Member, .number = (Number), .kind = DL_KIND_##Kind, .offset = offsetof(T, Member),    \
    .present = DL_FIELD_NOWHERE

/* A list: its pointer, its count and, for messages, the type of an element. */
#define DL_LIST(Number, Kind, Member, Count)                                                       \
    DL_FIELD(Number, Kind, Member), .count = offsetof(T, Count)

/* The same where the .proto has another name than the struct. */
#define DL_FIELD_AS(Name, Number, Kind, Member)                                                    \
    .name = (Name), .number = (Number), .kind = DL_KIND_##Kind, .offset = offsetof(T, Member),     \
    .present = DL_FIELD_NOWHERE

/* A field that an int of the struct says is there. */
#define DL_FIELD_IF(Number, Kind, Member, Present)                                                 \
    .name = #Member, .number = (Number), .kind = DL_KIND_##Kind, .offset = offsetof(T, Member),    \
    .present = offsetof(T, Present)

#define DL_TYPE(Name, Struct, Table)                                                               \
    {                                                                                              \
        .name = (Name), .size = sizeof(Struct), .field_count = DL_TABLE_COUNT(Table),              \
        .fields = (Table)                                                                          \
    }

#endif
