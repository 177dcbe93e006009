/* Server reflection: answers what grpcurl and its like ask. Bytes to bytes; the
 * descriptors are compiled in. v1 and v1alpha have the same messages. */
#ifndef DL_PROTO_REFLECTION_H
#define DL_PROTO_REFLECTION_H

#include "base/bytes.h"
#include "base/status.h"

/* Answers one ServerReflectionRequest by appending one
 * ServerReflectionResponse. What is not found is an answer too (error_response
 * with a gRPC status). DL_OK; DL_ERR_INVALID: the request is no such message;
 * DL_ERR_TOO_LARGE: a name of more than 1 KiB; DL_ERR_NOMEM. */
int dl_reflection_answer(struct dl_slice request, struct dl_buf *response, struct dl_error *error);

/* All .proto files as a google.protobuf.FileDescriptorSet. */
struct dl_slice dl_reflection_descriptors(void);

#endif
