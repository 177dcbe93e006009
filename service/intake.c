/* Decoding between a source and the engine. */
#include "service/intake.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

struct dl_intake {
    struct dl_engine *engine;
    struct dl_service_metrics *metrics;
    struct dl_event_decoder *decoder;
    int skip_tombstones;
    uint64_t broken;
    char first_reason[sizeof(struct dl_error) + 300];
};

static int map_field(struct dl_event_mapping *mapping, const char *field, const char *where,
                     struct dl_error *error)
{
    if (!where || !where[0]) return DL_OK;
    int status = dl_event_mapping_set(mapping, field, where, error);
    return status == DL_OK ? status : dl_error_wrap(error, status, "source.mapping.%s", field);
}

int dl_intake_decoder_config(const struct dl_config *config,
                             struct dl_event_decoder_config *decoder, struct dl_error *error)
{
    static const enum dl_event_format formats[] = {[DL_ENCODING_PROTOBUF] = DL_FORMAT_PROTOBUF,
                                                   [DL_ENCODING_CONFLUENT] = DL_FORMAT_CONFLUENT,
                                                   [DL_ENCODING_JSON] = DL_FORMAT_JSON,
                                                   [DL_ENCODING_CSV] = DL_FORMAT_CSV};
    dl_event_decoder_config_init(decoder, dl_clock_wall_us());
    decoder->format = formats[config->source.encoding];
    dl_time_rules_init(&decoder->time, config->source.time_unit, dl_clock_wall_us());
    if (config->source.delimiter) decoder->csv_separator = config->source.delimiter;
    decoder->feature_count = config->store.features ? (int32_t)config->store.features : -1;
    struct dl_event_mapping *m = &decoder->mapping;
    int status = map_field(m, "src", config->source.mapping.src, error);
    if (status == DL_OK) status = map_field(m, "dst", config->source.mapping.dst, error);
    if (status == DL_OK) status = map_field(m, "time", config->source.mapping.time, error);
    if (status == DL_OK) status = map_field(m, "type", config->source.mapping.type, error);
    if (status == DL_OK) status = map_field(m, "weight", config->source.mapping.weight, error);
    if (status == DL_OK) status = map_field(m, "id", config->source.mapping.id, error);
    for (size_t i = 0; status == DL_OK && i < config->source.mapping.features.count; i++)
        status = map_field(m, "features", config->source.mapping.features.items[i], error);
    return status;
}

int dl_intake_new(const struct dl_config *config, struct dl_engine *engine,
                  struct dl_service_metrics *metrics, struct dl_intake **out,
                  struct dl_error *error)
{
    struct dl_event_decoder_config decoder;
    int status = dl_intake_decoder_config(config, &decoder, error);
    if (status != DL_OK) return status;
    struct dl_intake *intake = calloc(1, sizeof *intake);
    if (!intake) return dl_error_set(error, DL_ERR_NOMEM, "out of memory for the decoder");
    intake->engine = engine;
    intake->metrics = metrics;
    intake->skip_tombstones = config->source.tombstones == DL_TOMBSTONE_SKIP;
    status = dl_event_decoder_new(&decoder, &intake->decoder, error);
    if (status != DL_OK) {
        free(intake);
        return status;
    }
    *out = intake;
    return DL_OK;
}

void dl_intake_free(struct dl_intake *intake)
{
    if (!intake) return;
    dl_event_decoder_free(intake->decoder);
    free(intake);
}

int dl_intake_header(struct dl_intake *intake, struct dl_slice line, struct dl_error *error)
{
    return dl_event_decoder_csv_header(intake->decoder, line, error);
}

int dl_intake_message(struct dl_intake *intake, const struct dl_arrival *arrival,
                      const struct dl_event_header *headers, uint32_t header_count)
{
    struct dl_edge_event event;
    struct dl_error error = {""};
    const char *field = "message";
    if (intake->metrics) {
        dl_counter_add(intake->metrics->records_total, 1);
        dl_counter_add(intake->metrics->record_bytes_total, arrival->payload.size);
    }
    struct dl_arrival with_headers = *arrival;
    with_headers.headers = headers;
    with_headers.header_count = header_count;
    arrival = &with_headers;
    if (!arrival->payload.data && intake->skip_tombstones) {
        if (intake->metrics) dl_counter_add(intake->metrics->events_tombstones_total, 1);
        return dl_engine_offer_nothing(intake->engine, arrival);
    }
    int status = dl_event_decode_headers(intake->decoder, headers, header_count, arrival->payload,
                                         &event, &field, &error);
    if (status == DL_OK) return dl_engine_offer(intake->engine, arrival, &event);
    if (intake->broken++ == 0)
        snprintf(intake->first_reason, sizeof intake->first_reason, "%s, record %lld: %s",
                 arrival->topic, (long long)arrival->offset, error.text);
    return dl_engine_offer_broken(intake->engine, arrival, error.text, field);
}

uint64_t dl_intake_broken(const struct dl_intake *intake, const char **first_reason)
{
    if (first_reason) *first_reason = intake->broken ? intake->first_reason : NULL;
    return intake->broken;
}
