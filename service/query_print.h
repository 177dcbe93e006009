/* Answers of the RPC service as text for people. Names come from the feed and
 * may hold anything, so unprintable bytes are written as \xNN. */
#ifndef DL_SERVICE_QUERY_PRINT_H
#define DL_SERVICE_QUERY_PRINT_H

#include <stdio.h>

#include "proto/rpc_messages.h"

void dl_print_scores(FILE *out, const struct dl_msg_score_request *request,
                     const struct dl_msg_score_response *response);
void dl_print_top_k(FILE *out, const struct dl_msg_top_k_response *response);
void dl_print_window(FILE *out, const struct dl_msg_window_response *response);
/* The `count_max` most attended tokens; 0: all. */
void dl_print_explanation(FILE *out, const struct dl_msg_explain_response *response,
                          uint32_t count_max);
void dl_print_drift(FILE *out, const struct dl_msg_drift_response *response);
void dl_print_renewed(FILE *out, const struct dl_msg_renew_response *response);
void dl_print_model(FILE *out, const struct dl_msg_model_response *response);
void dl_print_forgotten(FILE *out, const struct dl_msg_forget_response *response);

/* One line each; a line before it if records were dropped. */
void dl_print_score_line(FILE *out, const struct dl_msg_score_message *message);
void dl_print_prediction_line(FILE *out, const struct dl_msg_prediction_message *message);
void dl_print_alert_line(FILE *out, const struct dl_msg_alert_message *message);

#endif
