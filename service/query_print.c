#include "service/query_print.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "proto/record_codec.h"

#define NAME_COLUMNS_MAX 40

/* ---- pieces ------------------------------------------------------------------------- */

/* Columns that the character beginning at `at` takes; *bytes: how long it is. C1
 * controls are the two bytes 0xc2 0x80 to 0xc2 0x9f. */
static int character(struct dl_slice name, size_t at, size_t *bytes, int *control)
{
    uint8_t byte = name.data[at];
    *bytes = 1;
    *control = byte < 0x20 || byte == 0x7f ||
               (byte == 0xc2 && at + 1 < name.size && name.data[at + 1] < 0xa0);
    while (at + *bytes < name.size && (name.data[at + *bytes] & 0xc0) == 0x80) (*bytes)++;
    return *control ? 4 * (int)*bytes : 1;
}

static int columns_of(struct dl_slice name)
{
    size_t bytes;
    int columns = 0, control;
    for (size_t at = 0; at < name.size; at += bytes)
        columns += character(name, at, &bytes, &control);
    return columns;
}

/* Writes a name, padded to `width` columns and cut there; 0: as it is. */
static void print_name(FILE *out, struct dl_slice name, int width)
{
    size_t bytes;
    int columns = 0, control;
    int cut = width > 0 && columns_of(name) > width;
    for (size_t at = 0; at < name.size; at += bytes) {
        int needs = character(name, at, &bytes, &control);
        if (cut && columns + needs > width - 1) break;
        for (size_t i = 0; i < bytes; i++)
            fprintf(out, control ? "\\x%02x" : "%c", name.data[at + i]);
        columns += needs;
    }
    if (cut) {
        fputs("\xe2\x80\xa6", out); /* an ellipsis */
        columns++;
    }
    for (; columns < width; columns++) fputc(' ', out);
}

static void widen(int *width, struct dl_slice name)
{
    int columns = columns_of(name);
    if (columns > NAME_COLUMNS_MAX) columns = NAME_COLUMNS_MAX;
    if (columns > *width) *width = columns;
}

static struct dl_slice text_of(const char *text)
{
    return dl_slice_text(text ? text : "");
}

static void print_text(FILE *out, const char *text)
{
    print_name(out, text_of(text), 0);
}

static const char *time_text(int64_t time, const char *unit, char text[40])
{
    enum dl_time_unit parsed = DL_TIME_TICKS;
    if (dl_time_unit_parse(text_of(unit), &parsed) != DL_OK) parsed = DL_TIME_TICKS;
    dl_time_format(time, parsed, text);
    return text;
}

static void print_origin(FILE *out, uint32_t origin)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {{DL_FROM_WINDOW, "window"},
                 {DL_FROM_PEERS, "peers"},
                 {DL_FROM_POPULAR, "popular"},
                 {DL_FROM_CALLER, "caller"}};
    const char *comma = "";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (!(origin & names[i].bit)) continue;
        fprintf(out, "%s%s", comma, names[i].name);
        comma = ",";
    }
}

/* ---- answers ----------------------------------------------------------------------------- */

void dl_print_scores(FILE *out, const struct dl_msg_score_request *request,
                     const struct dl_msg_score_response *response)
{
    int src_width = 3, dst_width = 3;
    for (uint32_t i = 0; i < request->pair_count; i++) {
        widen(&src_width, request->pairs[i].src);
        widen(&dst_width, request->pairs[i].dst);
    }
    fprintf(out, "%-*s  %-*s  %11s  %8s  %8s  %8s  %5s\n", src_width, "src", dst_width, "dst",
            "probability", "surprise", "src seen", "dst seen", "pair");
    for (uint32_t i = 0; i < response->score_count && i < request->pair_count; i++) {
        const struct dl_msg_pair_score *score = &response->scores[i];
        print_name(out, request->pairs[i].src, src_width);
        fputs("  ", out);
        print_name(out, request->pairs[i].dst, dst_width);
        fprintf(out, "  %11.6f  %8.3f  %8" PRIu64 "  %8" PRIu64 "  %5u%s\n", score->probability,
                score->surprise_bits, score->src_history, score->dst_history, score->pair_history,
                !score->src_known && !score->dst_known ? "  (both unknown)"
                : !score->src_known                    ? "  (source unknown)"
                : !score->dst_known                    ? "  (destination unknown)"
                                                       : "");
    }
    fprintf(out, "\nmodel %.*s, after %" PRIu64 " events\n", (int)response->model_version.size,
            (const char *)response->model_version.data, response->seq);
}

void dl_print_top_k(FILE *out, const struct dl_msg_top_k_response *response)
{
    int width = 9;
    for (uint32_t i = 0; i < response->candidate_count; i++)
        widen(&width, response->candidates[i].node);
    fputs("node ", out);
    print_name(out, response->node, 0);
    if (response->known)
        fprintf(out, ", %" PRIu64 " events", response->history);
    else
        fputs(", never seen", out);
    fprintf(out, "; %u candidates scored\n\n", response->scored);
    fprintf(out, "%4s  %-*s  %11s  %6s  %8s  %5s  %s\n", "rank", width, "candidate", "probability",
            "share", "seen", "pair", "from");
    for (uint32_t i = 0; i < response->candidate_count; i++) {
        const struct dl_candidate *candidate = &response->candidates[i];
        fprintf(out, "%4u  ", i + 1);
        print_name(out, candidate->node, width);
        fprintf(out, "  %11.6f  %6.4f  %8" PRIu64 "  %5u  ", candidate->probability,
                candidate->share, candidate->history, candidate->pair_history);
        print_origin(out, candidate->origin);
        fputc('\n', out);
    }
    fprintf(out, "\nmodel %.*s, after %" PRIu64 " events\n", (int)response->model_version.size,
            (const char *)response->model_version.data, response->seq);
}

static void print_interaction(FILE *out, const struct dl_msg_interaction *interaction, int width,
                              const char *unit)
{
    char when[40];
    fprintf(out, "%-3s  ", interaction->direction == DL_MSG_DIRECTION_OUT ? "out" : "in");
    print_name(out, interaction->peer, width);
    fprintf(out, "  %-24s  %10.6g", time_text(interaction->time, unit, when),
            (double)interaction->weight);
    if (interaction->type.size) {
        fputs("  ", out);
        print_name(out, interaction->type, 0);
    }
    fputc('\n', out);
}

void dl_print_window(FILE *out, const struct dl_msg_window_response *response)
{
    char first[40], last[40];
    int width = 4;
    fputs("node ", out);
    print_name(out, response->node, 0);
    if (!response->known) {
        fputs(": never seen\n", out);
        return;
    }
    fprintf(out,
            ": %" PRIu64 " events (%" PRIu64 " as source, %" PRIu64 " as destination), from %s to "
            "%s\n",
            response->events, response->events_out, response->events_in,
            time_text(response->first_time, response->time_unit, first),
            time_text(response->last_time, response->time_unit, last));
    fprintf(out, "newest %u of at most %u that are kept\n\n", response->interaction_count,
            response->window_max);
    for (uint32_t i = 0; i < response->interaction_count; i++)
        widen(&width, response->interactions[i].peer);
    fprintf(out, "%-3s  %-*s  %-24s  %10s  %s\n", "dir", width, "peer", "time", "weight", "type");
    for (uint32_t i = 0; i < response->interaction_count; i++)
        print_interaction(out, &response->interactions[i], width, response->time_unit);
}

void dl_print_explanation(FILE *out, const struct dl_msg_explain_response *response,
                          uint32_t count_max)
{
    int width = 4;
    uint32_t count = response->token_count;
    if (count_max && count > count_max) count = count_max;
    print_name(out, response->src, 0);
    fputs(" -> ", out);
    print_name(out, response->dst, 0);
    fprintf(out, ": probability %.6f, surprise %.3f bits\n", response->score.probability,
            response->score.surprise_bits);
    for (uint32_t i = 0; i < response->entropy_count; i++)
        fprintf(out, "layer %u: attention entropy %.3f of at most %.3f nats\n", i + 1,
                response->entropy_nats[i], response->entropy_uniform_nats);
    for (uint32_t i = 0; i < count; i++) widen(&width, response->tokens[i].interaction.peer);
    fprintf(out, "\n%-4s  %9s  %7s  %-3s  %-*s  %-24s  %10s  %s\n", "side", "attention", "uniform",
            "dir", width, "peer", "time", "weight", "type");
    for (uint32_t i = 0; i < count; i++) {
        const struct dl_msg_attended *token = &response->tokens[i];
        fprintf(out, "%-4s  %9.4f  %6.2fx  ", token->side == DL_MSG_SIDE_DST ? "dst" : "src",
                token->attention, token->over_uniform);
        if (token->has_interaction)
            print_interaction(out, &token->interaction, width, response->time_unit);
        else
            fputs("the node's own summary\n", out);
        if (token->sink) fputs("      a sink: more than mean + 3 standard deviations\n", out);
        for (uint32_t j = 0; j < token->per_head_count; j++)
            fprintf(out, "%s%.4f%s",
                    j == 0                                        ? "      by layer | and head: "
                    : response->heads && j % response->heads == 0 ? " | "
                                                                  : " ",
                    token->per_head[j], j + 1 == token->per_head_count ? "\n" : "");
    }
    if (count < response->token_count)
        fprintf(out, "... and %u more\n", response->token_count - count);
}

static void print_alert(FILE *out, const struct dl_alert *alert, const char *unit)
{
    char when[40];
    const int act = alert->kind == DL_ALERT_REFERENCE_RENEWED;
    fprintf(out, "%-7s  %-8s  %-21s  %s",
            act             ? "done"
            : alert->raised ? "raised"
                            : "cleared",
            dl_alert_severity_name(alert->severity), dl_alert_kind_name(alert->kind),
            unit ? time_text(alert->time, unit, when) : "");
    if (!act) fprintf(out, "  statistic %.5g, threshold %.5g", alert->statistic, alert->threshold);
    if (alert->node.size) {
        fputs("  node ", out);
        print_name(out, alert->node, 0);
    }
    if (alert->reason && alert->reason[0]) {
        fputs("  ", out);
        print_text(out, alert->reason);
    }
    fputc('\n', out);
}

static void print_quality(FILE *out, const struct dl_msg_quality *quality)
{
    fprintf(out, "\nlive quality      %10s  %10s  %10s\n", "AP", "AUC", "MRR");
    fprintf(out, "  all             %10.4f  %10.4f  %10.4f   (%" PRIu64 " pairs)\n", quality->ap,
            quality->auc, quality->mrr, quality->pairs);
    fprintf(out, "  recent          %10.4f  %10.4f  %10.4f   (%" PRIu64 " pairs)\n",
            quality->recent_ap, quality->recent_auc, quality->recent_mrr, quality->recent_pairs);
    fprintf(out, "  when trained    %10.4f  %10.4f  %10.4f\n", quality->trained_ap,
            quality->trained_auc, quality->trained_mrr);
}

void dl_print_drift(FILE *out, const struct dl_msg_drift_response *response)
{
    char when[40];
    if (response->ready)
        fprintf(out, "%s: statistic %.6g, threshold %.6g, p-value %.4g\n",
                response->alert_raised ? "shifted" : "no shift", response->statistic,
                response->threshold, response->p_value);
    else {
        fputs("not ready: ", out);
        print_text(out, response->reason);
        fputc('\n', out);
    }
    fprintf(out, "window %u events, reference %u rows", response->window, response->reference_size);
    if (response->reference_origin && response->reference_origin[0]) {
        fputs(" (", out);
        print_text(out, response->reference_origin);
        fputs(")", out);
    }
    fprintf(out, "; %" PRIu64 " events, newest %s\n", response->events,
            time_text(response->time, response->time_unit, when));
    if (response->run_length_asked > 0)
        fprintf(out, "false alarms: one in %.6g events asked, one in %.6g reached\n",
                response->run_length_asked, response->run_length_achieved);
    if (response->warning && response->warning[0]) {
        fputs("warning: ", out);
        print_text(out, response->warning);
        fputc('\n', out);
    }
    if (response->feature_count)
        fprintf(out, "\n%-20s  %7s  %12s  %12s\n", "feature", "share", "before", "now");
    for (uint32_t i = 0; i < response->feature_count; i++) {
        const struct dl_alert_feature *feature = &response->features[i];
        print_name(out, text_of(feature->name), 20);
        fprintf(out, "  %6.1f%%  %12.6g  %12.6g\n", 100 * feature->share, feature->before,
                feature->now);
    }
    if (response->has_quality) print_quality(out, &response->quality);
    if (response->alert_count) fputs("\nalerts, newest first\n", out);
    for (uint32_t i = 0; i < response->alert_count; i++)
        print_alert(out, &response->alerts[i], response->time_unit);
}

void dl_print_renewed(FILE *out, const struct dl_msg_renew_response *response)
{
    fprintf(out, "the reference is now the recent span: %u rows, taken at event %" PRIu64 "%s\n",
            response->reference_size, response->reference_seq,
            response->alert_cleared ? "; the alert is cleared" : "");
}

void dl_print_model(FILE *out, const struct dl_msg_model_response *response)
{
    char when[40];
    fputs("model         ", out);
    print_text(out, response->architecture);
    fputc(' ', out);
    print_text(out, response->version);
    fprintf(out, " (%s attention, %" PRIu64 " parameters, kernels ",
            response->differential ? "differential" : "softmax", response->parameters);
    print_text(out, response->kernels);
    fprintf(out, ")\nsizes         window %u, width %u, layers %u, heads %u\n", response->window,
            response->width, response->layers, response->heads);
    fputs("time unit     ", out);
    print_text(out, response->time_unit);
    fputs("\ntrained       ties ", out);
    print_text(out, response->ties);
    fputs(", negatives ", out);
    print_text(out, response->negatives);
    fprintf(out, ", seed %" PRIu64 ", %u epochs in %.0f s, until %s\n", response->seed,
            response->epochs, response->train_seconds,
            time_text(response->trained_until, response->time_unit, when));
    fprintf(out,
            "data          %" PRIu64 " edges, %" PRIu64 " nodes, %" PRIu64
            " timestamps, SHA-256 %.16s\n",
            response->data_edges, response->data_nodes, response->data_timestamps,
            response->data_hash ? response->data_hash : "");
    fprintf(out, "validation    AP %.4f, AUC %.4f, MRR %.4f, calibration error %.4f\n",
            response->validation.ap, response->validation.auc, response->validation.mrr,
            response->validation.ece);
    fprintf(out, "calibration   scale %.4f, shift %.4f\n", response->calibration_scale,
            response->calibration_shift);
    fprintf(out, "reference     %u rows\n", response->reference_size);
}

void dl_print_forgotten(FILE *out, const struct dl_msg_forget_response *response)
{
    if (response->found)
        fprintf(out, "forgotten; %" PRIu64 " events removed\n", response->events);
    else
        fputs("nothing was known of it\n", out);
}

/* ---- streams --------------------------------------------------------------------------------- */

static void print_dropped(FILE *out, uint64_t dropped)
{
    if (dropped)
        fprintf(out, "... %" PRIu64 " records dropped: this reader is too slow\n", dropped);
}

void dl_print_score_line(FILE *out, const struct dl_msg_score_message *message)
{
    const struct dl_score *score = &message->score;
    print_dropped(out, message->dropped);
    fprintf(out, "%" PRIu64 "  %" PRId64 "  ", score->seq, score->time);
    print_name(out, score->src, 0);
    fputs(" -> ", out);
    print_name(out, score->dst, 0);
    fprintf(out, "  p %.6f  surprise %.3f bits  seen %" PRIu64 "/%" PRIu64 "/%u\n",
            score->probability, score->surprise_bits, score->src_history, score->dst_history,
            score->pair_history);
}

void dl_print_prediction_line(FILE *out, const struct dl_msg_prediction_message *message)
{
    const struct dl_prediction *prediction = &message->prediction;
    print_dropped(out, message->dropped);
    fprintf(out, "%" PRIu64 "  %" PRId64 "  ", prediction->seq, prediction->time);
    print_name(out, prediction->node, 0);
    fputs(" ->", out);
    for (uint32_t i = 0; i < prediction->candidate_count; i++) {
        fputs(i ? ", " : " ", out);
        print_name(out, prediction->candidates[i].node, 0);
        fprintf(out, " %.4f", prediction->candidates[i].probability);
    }
    fputc('\n', out);
}

void dl_print_alert_line(FILE *out, const struct dl_msg_alert_message *message)
{
    print_dropped(out, message->dropped);
    fprintf(out, "%" PRIu64 "  %" PRId64 "  ", message->alert.seq, message->alert.time);
    print_alert(out, &message->alert, NULL);
}
