/* Results of the backend to the messages of service.proto. */
#include "service/rpc_methods_private.h"

#include <math.h>
#include <string.h>

/* NaN is no number that a client can use. */
static double or_zero(double value)
{
    return isfinite(value) ? value : 0;
}

static void out_of_memory(struct dl_rpc_job *job)
{
    struct dl_error error = {"out of memory for the answer"};
    dl_rpc_call_fail(job->call, DL_ERR_NOMEM, &error);
}

static void reply(struct dl_rpc_job *job, const void *message)
{
    if (dl_rpc_reply(job->entry->methods, job->call, dl_msg_methods[job->entry->id].response,
                     message) == DL_OK)
        dl_rpc_call_finish(job->call, DL_GRPC_OK, NULL);
}

static void *take(struct dl_rpc_job *job, size_t count, size_t size)
{
    struct dl_arena *arena = &job->entry->methods->answer_arena;
    dl_arena_reset(arena);
    return dl_arena_take(arena, count * size);
}

static struct dl_msg_pair_score pair_score(const struct dl_score *score)
{
    return (struct dl_msg_pair_score){
        .probability = score->probability,
        .surprise_bits = score->surprise_bits,
        .src_history = score->src_history,
        .dst_history = score->dst_history,
        .pair_history = score->pair_history,
        .src_known = score->src_history > 0,
        .dst_known = score->dst_history > 0,
    };
}

static void answer_score(struct dl_rpc_job *job, const struct dl_backend_scores *result)
{
    struct dl_msg_pair_score *scores = take(job, result->score_count, sizeof(*scores));
    struct dl_msg_score_response response = {.score_count = result->score_count, .scores = scores};
    if (!scores) {
        out_of_memory(job);
        return;
    }
    for (uint32_t i = 0; i < result->score_count; i++) scores[i] = pair_score(&result->scores[i]);
    if (result->score_count > 0) {
        response.model_version = result->scores[0].model_version;
        response.seq = result->scores[0].seq;
    }
    reply(job, &response);
}

static void answer_top_k(struct dl_rpc_job *job, const struct dl_prediction *result)
{
    struct dl_msg_top_k_response response = {
        .node = job->a,
        .known = result->history > 0,
        .time = result->time,
        .history = result->history,
        .scored = result->scored,
        .candidate_count = result->candidate_count,
        .candidates = result->candidates,
        .model_version = result->model_version,
        .seq = result->seq,
    };
    reply(job, &response);
}

static struct dl_msg_interaction interaction(const struct dl_backend_interaction *from)
{
    return (struct dl_msg_interaction){
        .peer = from->peer,
        .direction = from->out ? DL_MSG_DIRECTION_OUT : DL_MSG_DIRECTION_IN,
        .time = from->time,
        .seq = from->seq,
        .type = from->type,
        .weight = from->weight,
        .feature_count = from->feature_count,
        .features = from->features,
    };
}

static void answer_window(struct dl_rpc_job *job, const struct dl_backend_window *result)
{
    struct dl_msg_interaction *list = take(job, result->interaction_count, sizeof(*list));
    struct dl_msg_window_response response = {
        .node = job->a,
        .known = result->known,
        .events = result->events,
        .events_out = result->events_out,
        .events_in = result->events_in,
        .first_time = result->first_time,
        .last_time = result->last_time,
        .interaction_count = result->interaction_count,
        .interactions = list,
        .window_max = result->window_max,
        .time_unit = dl_time_unit_name(result->time_unit),
    };
    if (!list) {
        out_of_memory(job);
        return;
    }
    for (uint32_t i = 0; i < result->interaction_count; i++)
        list[i] = interaction(&result->interactions[i]);
    reply(job, &response);
}

static void answer_explain(struct dl_rpc_job *job, const struct dl_backend_explanation *result)
{
    struct dl_msg_attended *tokens = take(job, result->tokens, sizeof(*tokens));
    struct dl_msg_explain_response response = {
        .src = job->a,
        .dst = job->b,
        .time = result->score.time,
        .score = pair_score(&result->score),
        .token_count = result->tokens,
        .tokens = tokens,
        .layers = result->layers,
        .heads = result->heads,
        .entropy_count = result->layers,
        .entropy_nats = result->entropy_nats,
        .entropy_uniform_nats = result->entropy_uniform_nats,
        .model_version = result->score.model_version,
        .time_unit = dl_time_unit_name(result->time_unit),
    };
    if (!tokens) {
        out_of_memory(job);
        return;
    }
    for (uint32_t i = 0; i < result->tokens; i++) {
        const struct dl_backend_token *from = &result->token_list[i];
        tokens[i] = (struct dl_msg_attended){
            .side = from->side ? DL_MSG_SIDE_DST : DL_MSG_SIDE_SRC,
            .summary = from->self,
            .has_interaction = !from->self,
            .attention = from->weight,
            .over_uniform = from->ratio_to_uniform,
            .sink = from->sink,
            .per_head_count = from->weights ? result->layers * result->heads : 0,
            .per_head = from->weights,
        };
        if (!from->self) tokens[i].interaction = interaction(&from->event);
    }
    reply(job, &response);
}

static void answer_drift(struct dl_rpc_job *job, const struct dl_backend_drift *result)
{
    struct dl_msg_drift_response response = {
        .ready = result->ready,
        .reason = result->reason,
        .statistic = or_zero(result->statistic),
        .threshold = or_zero(result->threshold),
        .p_value = or_zero(result->p_value),
        .window = result->window,
        .reference_size = result->reference_size,
        .alert_raised = result->alert_raised,
        .feature_count = result->feature_count,
        .features = result->features,
        .has_quality = result->quality != NULL,
        .alert_count = result->alert_count,
        .alerts = result->alerts,
        .reference_origin = result->reference_origin,
        .reference_seq = result->reference_seq,
        .events = result->seq,
        .time = result->time,
        .time_unit = dl_time_unit_name(result->time_unit),
        .run_length_asked = or_zero(result->run_length_asked),
        .run_length_achieved = or_zero(result->run_length_achieved),
        .warning = result->warning,
    };
    if (result->quality) {
        const struct dl_backend_quality *quality = result->quality;
        response.quality = (struct dl_msg_quality){
            .pairs = quality->pairs,
            .ap = or_zero(quality->ap),
            .auc = or_zero(quality->auc),
            .mrr = or_zero(quality->mrr),
            .recent_pairs = quality->recent_pairs,
            .recent_ap = or_zero(quality->recent_ap),
            .recent_auc = or_zero(quality->recent_auc),
            .recent_mrr = or_zero(quality->recent_mrr),
            .trained_ap = or_zero(quality->trained_ap),
            .trained_auc = or_zero(quality->trained_auc),
            .trained_mrr = or_zero(quality->trained_mrr),
        };
    }
    reply(job, &response);
}

static void answer_model(struct dl_rpc_job *job, const struct dl_backend_model *result)
{
    const struct dl_model_info *info = result->info;
    const struct dl_network_config *config = &info->config;
    struct dl_msg_model_response response = {
        .version = info->version,
        .architecture = config->architecture,
        .window = config->window,
        .width = config->width,
        .layers = config->layers,
        .heads = config->heads,
        .parameters = info->parameters,
        .differential = config->differential,
        .time_unit = dl_time_unit_name(info->time_unit),
        .ties = info->ties,
        .negatives = info->negatives,
        .seed = info->seed,
        .trained_until = info->trained_until,
        .data_hash = info->data_hash,
        .data_edges = info->data_edges,
        .data_nodes = info->data_nodes,
        .data_timestamps = info->data_timestamps,
        .calibration_scale = info->calibration.scale,
        .calibration_shift = info->calibration.shift,
        .validation = {.ap = or_zero(info->validation_ap),
                       .auc = or_zero(info->validation_auc),
                       .mrr = or_zero(info->validation_mrr),
                       .ece = or_zero(info->validation_ece),
                       .entropy_count = config->layers,
                       .entropy_nats = info->validation_entropy},
        .train_seconds = info->train_seconds,
        .epochs = info->epochs,
        .reference_size = result->reference_size,
        .kernels = result->kernels,
    };
    reply(job, &response);
}

void dl_rpc_answer(struct dl_rpc_job *job, const union dl_backend_result *result)
{
    switch (job->entry->id) {
    case DL_METHOD_SCORE:
        answer_score(job, &result->scores);
        break;
    case DL_METHOD_TOP_K:
        answer_top_k(job, &result->prediction);
        break;
    case DL_METHOD_GET_WINDOW:
        answer_window(job, &result->window);
        break;
    case DL_METHOD_EXPLAIN:
        answer_explain(job, &result->explanation);
        break;
    case DL_METHOD_GET_DRIFT:
        answer_drift(job, &result->drift);
        break;
    case DL_METHOD_RENEW_REFERENCE: {
        const struct dl_backend_renewed *renewed = &result->renewed;
        reply(job, &(struct dl_msg_renew_response){renewed->reference_size, renewed->reference_seq,
                                                   renewed->alert_cleared});
        break;
    }
    case DL_METHOD_GET_MODEL:
        answer_model(job, &result->model);
        break;
    case DL_METHOD_FORGET:
        reply(job,
              &(struct dl_msg_forget_response){result->forgotten.found, result->forgotten.events});
        break;
    default:
        break;
    }
}
