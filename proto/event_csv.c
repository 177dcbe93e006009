/* EdgeEvent from a CSV line (RFC 4180 quoting; a record is one line). The
 * header line says which column is what; other columns are left alone. */
#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "proto/event_decoder.h"
#include "proto/text.h"

struct column {
    struct dl_slice text; /* without the quotes around it */
    int doubled;          /* holds doubled quotes */
};

static struct dl_slice trim_line_end(struct dl_slice line)
{
    while (line.size && (line.data[line.size - 1] == '\n' || line.data[line.size - 1] == '\r'))
        line.size--;
    return line;
}

/* Takes the next column off *line. 1; 0 if a quote is not closed or followed by
 * more. *last: it was the last one. */
static int next_column(struct dl_slice *line, char separator, struct column *column, int *last)
{
    const uint8_t *at = line->data, *end = at + line->size;
    column->doubled = 0;
    if (at < end && *at == '"') {
        const uint8_t *begin = ++at;
        for (;; at++) {
            if (at == end) return 0;
            if (*at != '"') continue;
            if (at + 1 == end || at[1] != '"') break;
            column->doubled = 1;
            at++;
        }
        column->text = dl_slice_of(begin, (size_t)(at - begin));
        at++;
        if (at < end && *at != (uint8_t)separator) return 0;
    } else {
        const uint8_t *stop = at < end ? memchr(at, separator, line->size) : NULL;
        if (!stop) stop = end;
        column->text = dl_slice_of(at, (size_t)(stop - at));
        at = stop;
    }
    *last = at == end;
    if (at < end) at++;
    *line = dl_slice_of(at, (size_t)(end - at));
    return 1;
}

/* ---- the header ---------------------------------------------------------------- */

static int text_is(struct dl_slice text, const char *wanted)
{
    return text.size == strlen(wanted) &&
           strncasecmp((const char *)text.data, wanted, text.size) == 0;
}

static uint8_t usual_field(struct dl_slice name)
{
    static const struct {
        const char *name;
        uint8_t field;
    } usual[] = {
        {"src", DL_FIELD_SRC},       {"source", DL_FIELD_SRC},      {"u", DL_FIELD_SRC},
        {"dst", DL_FIELD_DST},       {"destination", DL_FIELD_DST}, {"target", DL_FIELD_DST},
        {"v", DL_FIELD_DST},         {"time", DL_FIELD_TIME},       {"t", DL_FIELD_TIME},
        {"ts", DL_FIELD_TIME},       {"timestamp", DL_FIELD_TIME},  {"type", DL_FIELD_TYPE},
        {"weight", DL_FIELD_WEIGHT}, {"w", DL_FIELD_WEIGHT},        {"id", DL_FIELD_ID}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (text_is(name, usual[i].name)) return usual[i].field;
    return DL_FIELD_NONE;
}

/* Number of a column f0, F1, feature_2; -1 for another. */
static int32_t feature_number(struct dl_slice name)
{
    size_t prefix = 0;
    if (name.size > 8 && strncasecmp((const char *)name.data, "feature_", 8) == 0)
        prefix = 8;
    else if (name.size > 1 && (name.data[0] | 0x20) == 'f')
        prefix = 1;
    int64_t number;
    struct dl_slice digits = dl_slice_of(name.data + prefix, name.size - prefix);
    if (!prefix || digits.data[0] == '-' || !dl_text_is_integer(digits) || digits.size > 4 ||
        dl_text_parse_int64(digits, &number) != DL_NUMBER_OK)
        return -1;
    return (int32_t)number;
}

static const char *mapped_name(const struct dl_event_mapping *mapping, uint32_t field)
{
    const char *const names[] = {mapping->src,  mapping->dst,    mapping->time,
                                 mapping->type, mapping->weight, mapping->id};
    return names[field];
}

/* The names of a header, for people. */
static void list_columns(struct dl_slice header, char separator, char *text, size_t size)
{
    struct column column;
    char shown[64];
    size_t used = 0;
    for (int last = 0; !last && next_column(&header, separator, &column, &last);) {
        const char *name = used + 80 < size ? dl_text_quote(column.text, shown) : "...";
        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
        if (strcmp(name, "...") == 0) break;
    }
}

static int missing(const char *field, const char *wanted, struct dl_slice header, char separator,
                   struct dl_error *error)
{
    char there[256] = "", shown[64];
    list_columns(header, separator, there, sizeof there);
    return dl_error_set(error, DL_ERR_INVALID,
                        "CSV header has no column for %s%s%s%s; there are: %s; set "
                        "source.mapping.%s (--map %s=COLUMN)",
                        field, *wanted ? " (\"" : "", dl_text_quote(dl_slice_text(wanted), shown),
                        *wanted ? "\")" : "", there, field, field);
}

int dl_event_decoder_csv_header(struct dl_event_decoder *decoder, struct dl_slice line,
                                struct dl_error *error)
{
    const struct dl_event_mapping *mapping = &decoder->config.mapping;
    uint8_t fields[DL_CSV_COLUMNS_MAX];
    int found[DL_FIELD_FEATURES + DL_EVENT_FEATURES_MAX] = {0};
    int32_t numbers[DL_CSV_COLUMNS_MAX];
    int32_t first = INT32_MAX, highest = -1;
    uint32_t count = 0;
    int last = 0;
    line = trim_line_end(line);
    if (line.size >= 3 && memcmp(line.data, "\xef\xbb\xbf", 3) == 0)
        line = dl_slice_of(line.data + 3, line.size - 3);
    struct dl_slice header = line;
    if (line.size == 0) return dl_error_set(error, DL_ERR_INVALID, "CSV header line is empty");
    while (!last) {
        struct column column;
        if (count == DL_CSV_COLUMNS_MAX)
            return dl_error_set(error, DL_ERR_TOO_LARGE, "CSV header has more than %d columns",
                                DL_CSV_COLUMNS_MAX);
        if (!next_column(&line, decoder->config.csv_separator, &column, &last))
            return dl_error_set(error, DL_ERR_INVALID, "CSV header has a broken quote in column %u",
                                count + 1);
        while (column.text.size && column.text.data[0] == ' ')
            column.text = dl_slice_of(column.text.data + 1, column.text.size - 1);
        while (column.text.size && column.text.data[column.text.size - 1] == ' ')
            column.text.size--;
        fields[count] = DL_FIELD_NONE;
        numbers[count] = -1;
        for (uint32_t f = 0; f < DL_FIELD_FEATURES; f++)
            if (dl_slice_equal(column.text, dl_slice_text(mapped_name(mapping, f))) &&
                column.text.size)
                fields[count] = (uint8_t)f;
        for (uint32_t k = 0; k < mapping->feature_count; k++)
            if (dl_slice_equal(column.text, dl_slice_text(mapping->features[k])) &&
                column.text.size)
                fields[count] = (uint8_t)(DL_FIELD_FEATURES + k);
        if (fields[count] == DL_FIELD_NONE) {
            uint8_t field = usual_field(column.text);
            if (field != DL_FIELD_NONE && !mapped_name(mapping, field)[0])
                fields[count] = field;
            else if (field == DL_FIELD_NONE && mapping->feature_count == 0)
                numbers[count] = feature_number(column.text);
        }
        if (numbers[count] >= 0 && numbers[count] < first) first = numbers[count];
        if (numbers[count] > highest) highest = numbers[count];
        count++;
    }
    uint32_t features = mapping->feature_count;
    if (features == 1 && strcmp(mapping->features[0], "-") == 0) features = 0;
    if (highest >= 0) {
        if (first > 1 || highest - first >= DL_EVENT_FEATURES_MAX)
            return dl_error_set(error, DL_ERR_INVALID,
                                "CSV feature columns are numbered %d to %d; they begin at 0 or 1 "
                                "and are at most %d",
                                first, highest, DL_EVENT_FEATURES_MAX);
        features = (uint32_t)(highest - first + 1);
        for (uint32_t i = 0; i < count; i++)
            if (numbers[i] >= 0) fields[i] = (uint8_t)(DL_FIELD_FEATURES + numbers[i] - first);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (fields[i] == DL_FIELD_NONE) continue;
        if (found[fields[i]]++)
            return dl_error_set(
                error, DL_ERR_INVALID, "CSV header names two columns for %s; map the right one",
                dl_event_field_names[fields[i] < DL_FIELD_FEATURES ? fields[i]
                                                                   : DL_FIELD_FEATURES]);
    }
    for (uint32_t f = 0; f < DL_FIELD_FEATURES; f++) {
        const char *name = mapped_name(mapping, f);
        int needed = f <= DL_FIELD_TIME || (name[0] && strcmp(name, "-") != 0);
        if (needed && !found[f])
            return missing(dl_event_field_names[f], name, header, decoder->config.csv_separator,
                           error);
    }
    for (uint32_t k = 0; k < features; k++) {
        if (found[DL_FIELD_FEATURES + k]) continue;
        char name[16];
        snprintf(name, sizeof name, "f%d", (int)k + (first == INT32_MAX ? 0 : first));
        return missing("features", mapping->feature_count ? mapping->features[k] : name, header,
                       decoder->config.csv_separator, error);
    }
    memcpy(decoder->column_field, fields, count);
    decoder->column_count = count;
    decoder->csv_feature_count = features;
    return DL_OK;
}

/* ---- a line -------------------------------------------------------------------- */

static struct dl_slice trim(struct dl_slice text)
{
    while (text.size && text.data[0] == ' ') text = dl_slice_of(text.data + 1, text.size - 1);
    while (text.size && text.data[text.size - 1] == ' ') text.size--;
    return text;
}

/* The column's text; doubled quotes are undone in the decoder's text. */
static int take_text(struct dl_event_decoder *decoder, const struct column *column, uint32_t field,
                     struct dl_slice *out, const struct dl_decode_fault *fault)
{
    *out = column->text;
    if (!column->doubled) return DL_OK;
    uint8_t *to = decoder->text + decoder->text_size;
    size_t size = 0;
    for (size_t i = 0; i < column->text.size; i++) {
        if (size == DL_NAME_BYTES_MAX)
            return dl_event_fail(fault, (enum dl_event_field)field, DL_ERR_TOO_LARGE,
                                 "%s is more than %d bytes long", dl_event_field_names[field],
                                 DL_NAME_BYTES_MAX);
        to[size++] = column->text.data[i];
        i += column->text.data[i] == '"';
    }
    decoder->text_size += (uint32_t)size;
    *out = dl_slice_of(to, size);
    return DL_OK;
}

static int take_column(struct dl_event_decoder *decoder, const struct column *column,
                       uint32_t field, struct dl_edge_event *event, int *has_time,
                       const struct dl_decode_fault *fault)
{
    struct dl_slice number = trim(column->text);
    uint32_t index = field - DL_FIELD_FEATURES;
    switch (field) {
    case DL_FIELD_SRC:
        return take_text(decoder, column, field, &event->src, fault);
    case DL_FIELD_DST:
        return take_text(decoder, column, field, &event->dst, fault);
    case DL_FIELD_TYPE:
        return take_text(decoder, column, field, &event->type, fault);
    case DL_FIELD_ID:
        return take_text(decoder, column, field, &event->id, fault);
    case DL_FIELD_TIME:
        if (number.size == 0) return DL_OK;
        *has_time = 1;
        return dl_event_set_time(decoder, number, event, fault);
    case DL_FIELD_WEIGHT:
        if (number.size == 0) return DL_OK;
        event->has_weight = 1;
        return dl_event_set_number(number, DL_FIELD_WEIGHT, 0, &event->weight, fault);
    default:
        if (number.size == 0)
            return dl_event_fail(fault, DL_FIELD_FEATURES, DL_ERR_INVALID,
                                 "features[%" PRIu32 "] is empty, a number is wanted", index);
        return dl_event_set_number(number, DL_FIELD_FEATURES, index, &event->features[index],
                                   fault);
    }
}

int dl_event_decode_csv(struct dl_event_decoder *decoder, struct dl_slice message,
                        struct dl_edge_event *event, const struct dl_decode_fault *fault)
{
    struct dl_slice line = trim_line_end(message);
    if (decoder->column_count == 0)
        return dl_event_fail_message(fault, DL_ERR_INVALID, "CSV line before its header line");
    if (line.size == 0) return dl_event_fail_message(fault, DL_ERR_INVALID, "CSV line is empty");
    event->src = event->dst = event->type = event->id = (struct dl_slice){0};
    event->time = 0;
    event->weight = 1;
    event->has_weight = 0;
    event->feature_count = decoder->csv_feature_count;
    decoder->text_size = 0;
    int has_time = 0, last = 0;
    uint32_t count = 0;
    for (; !last; count++) {
        struct column column;
        if (!next_column(&line, decoder->config.csv_separator, &column, &last))
            return dl_event_fail_message(fault, DL_ERR_INVALID,
                                         "CSV line has a broken quote in column %" PRIu32
                                         " (a record must stand on one line)",
                                         count + 1);
        if (count == decoder->column_count) {
            count++;
            break;
        }
        uint8_t field = decoder->column_field[count];
        if (field == DL_FIELD_NONE) continue;
        int status = take_column(decoder, &column, field, event, &has_time, fault);
        if (status) return status;
    }
    if (count != decoder->column_count)
        return dl_event_fail_message(
            fault, DL_ERR_INVALID,
            count < decoder->column_count
                ? "CSV line has %" PRIu32 " columns, the header has %" PRIu32
                : "CSV line has %" PRIu32 " columns or more, the header has %" PRIu32,
            count, decoder->column_count);
    return dl_event_finish(decoder, event, has_time, fault);
}
