/* From a message's bytes to the engine: decodes, and offers the event or the
 * reason why there is none. One intake a source; the loop's thread. */
#ifndef DL_SERVICE_INTAKE_H
#define DL_SERVICE_INTAKE_H

#include "proto/event_codec.h"
#include "service/config.h"
#include "service/engine.h"

struct dl_intake;

/* DL_ERR_INVALID with detail for a mapping that does not parse. */
int dl_intake_new(const struct dl_config *config, struct dl_engine *engine,
                  struct dl_service_metrics *metrics, struct dl_intake **intake,
                  struct dl_error *error);
void dl_intake_free(struct dl_intake *intake);

/* CSV only: the header line. DL_ERR_INVALID with detail. */
int dl_intake_header(struct dl_intake *intake, struct dl_slice line, struct dl_error *error);

/* One message; there must be room in the engine. `headers` may be NULL. Same
 * statuses as dl_engine_offer. */
int dl_intake_message(struct dl_intake *intake, const struct dl_arrival *arrival,
                      const struct dl_event_header *headers, uint32_t header_count);

/* Messages that became dead letters so far, and the first reason (or NULL). */
uint64_t dl_intake_broken(const struct dl_intake *intake, const char **first_reason);

/* The decoder's configuration that a source's configuration asks for. */
int dl_intake_decoder_config(const struct dl_config *config,
                             struct dl_event_decoder_config *decoder, struct dl_error *error);

#endif
