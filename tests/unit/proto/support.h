/* Shared by the proto tests. */
#ifndef DL_TESTS_PROTO_SUPPORT_H
#define DL_TESTS_PROTO_SUPPORT_H

#include <criterion/criterion.h>

#include "proto/event_codec.h"

/* 2026-09-21 in microseconds: "now" of the plausibility tests. */
#define NOW_US INT64_C(1790000000000000)

static inline struct dl_event_decoder_config config_of(enum dl_event_format format,
                                                       enum dl_time_unit unit)
{
    struct dl_event_decoder_config config;
    dl_event_decoder_config_init(&config, NOW_US);
    config.format = format;
    dl_time_rules_init(&config.time, unit, NOW_US);
    return config;
}

static inline struct dl_event_decoder *decoder_of(const struct dl_event_decoder_config *config)
{
    struct dl_event_decoder *decoder = NULL;
    struct dl_error error = {""};
    cr_assert_eq(dl_event_decoder_new(config, &decoder, &error), DL_OK, "%s", error.text);
    return decoder;
}

#define expect_slice(slice, wanted)                                                                \
    cr_expect(dl_slice_equal((slice), dl_slice_text(wanted)), "%s is \"%.*s\", not \"%s\"",        \
              #slice, (int)(slice).size, (const char *)(slice).data, (wanted))

/* Decodes, and wants success. */
static inline struct dl_edge_event decoded(struct dl_event_decoder *decoder,
                                           struct dl_slice message)
{
    struct dl_edge_event event;
    const char *field = "";
    struct dl_error error = {""};
    int status = dl_event_decode(decoder, message, &event, &field, &error);
    cr_assert_eq(status, DL_OK, "%s: %s (%.*s)", field, error.text, (int)message.size,
                 (const char *)message.data);
    return event;
}

/* Decodes, and wants this field named and this text in the line. */
static inline void expect_refused(struct dl_event_decoder *decoder, struct dl_slice message,
                                  const char *field, const char *text)
{
    struct dl_edge_event event;
    const char *named = NULL;
    struct dl_error error = {""};
    int status = dl_event_decode(decoder, message, &event, &named, &error);
    cr_expect_lt(status, 0, "taken: %.*s", (int)message.size, (const char *)message.data);
    if (status == DL_OK) return;
    cr_expect_str_eq(named, field, "%s: %s", named, error.text);
    cr_expect(strstr(error.text, text), "\"%s\" lacks \"%s\"", error.text, text);
    cr_expect_null(strchr(error.text, '\n'));
}

#endif
