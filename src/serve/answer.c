#include "serve/answer.h"

#include "base/utf8.h"

#include <string.h>

static struct ek_str piece_of(const struct ek_answer_head *h, int32_t id)
{
    return ek_tokenizer_piece(h->tokenizer, id, true);
}

static void put_text(struct ek_out *o, struct ek_str s)
{
    ek_out_json(o, s.n ? s.p : "", s.n);
}

static void put_bytes(struct ek_out *o, struct ek_str s)
{
    ek_out_str(o, "[");
    for (size_t i = 0; i < s.n; i++)
        ek_out_printf(o, "%s%u", i ? "," : "", (unsigned char)s.p[i]);
    ek_out_str(o, "]");
}

static void put_chat_token(struct ek_out *o, const struct ek_answer_head *h, int32_t id,
                           float logprob)
{
    struct ek_str piece = piece_of(h, id);
    ek_out_str(o, "{\"token\":");
    put_text(o, piece);
    ek_out_str(o, ",\"logprob\":");
    ek_out_number(o, (double)logprob);
    ek_out_str(o, ",\"bytes\":");
    put_bytes(o, piece);
}

static void put_chat_logprobs(struct ek_out *o, const struct ek_answer_head *h,
                              const struct ek_answer_piece *p)
{
    ek_out_str(o, "{\"content\":[");
    for (int32_t i = 0; i < p->n_tokens; i++) {
        ek_out_str(o, i ? "," : "");
        put_chat_token(o, h, p->tokens[i].id, p->tokens[i].logprob);
        ek_out_str(o, ",\"top_logprobs\":[");
        for (int32_t k = 0; k < p->n_top; k++) {
            const struct ek_logprob *t =
                &p->top[(size_t)i * (size_t)p->n_top + (size_t)k];
            ek_out_str(o, k ? "," : "");
            put_chat_token(o, h, t->id, t->logprob);
            ek_out_str(o, "}");
        }
        ek_out_str(o, "]}");
    }
    ek_out_str(o, "],\"refusal\":null}");
}

/* A token as a name: half a character is written "bytes:\xe2", as OpenAI does, so that
 * two of them stay two. */
static void put_name(struct ek_out *o, struct ek_str s)
{
    if (ek_utf8_is_valid(s.n ? s.p : "", s.n)) {
        put_text(o, s);
        return;
    }
    ek_out_str(o, "\"bytes:");
    for (size_t i = 0; i < s.n; i++)
        ek_out_printf(o, "\\\\x%02x", (unsigned char)s.p[i]);
    ek_out_str(o, "\"");
}

static bool is_same(struct ek_str a, struct ek_str b)
{
    return a.n == b.n && (a.n == 0 || !memcmp(a.p, b.p, a.n));
}

/* {"text":logprob,...}: the alternatives and, where it is not one of them, the token
 * itself. Two tokens of the same text are one key; the likelier one stays. */
static void put_top_map(struct ek_out *o, const struct ek_answer_head *h,
                        const struct ek_token *token, const struct ek_logprob *top,
                        int32_t n_top)
{
    struct ek_str own = piece_of(h, token->id);
    bool has_own = false;
    ek_out_str(o, "{");
    for (int32_t k = 0; k < n_top; k++) {
        struct ek_str s = piece_of(h, top[k].id);
        bool is_known = false;
        for (int32_t j = 0; j < k; j++)
            is_known = is_known || is_same(s, piece_of(h, top[j].id));
        if (is_known)
            continue;
        has_own = has_own || is_same(s, own);
        ek_out_str(o, k ? "," : "");
        put_name(o, s);
        ek_out_str(o, ":");
        ek_out_number(o, (double)top[k].logprob);
    }
    if (!has_own) {
        ek_out_str(o, n_top ? "," : "");
        put_name(o, own);
        ek_out_str(o, ":");
        ek_out_number(o, (double)token->logprob);
    }
    ek_out_str(o, "}");
}

static uint64_t n_chars(struct ek_str s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n;
}

uint64_t ek_answer_chars(const struct ek_answer_head *h, const struct ek_token *tokens,
                         int32_t n)
{
    uint64_t sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += n_chars(piece_of(h, tokens[i].id));
    return sum;
}

/* A list of tokens with their alternatives: the prompt's, then the answer's. */
struct token_run {
    const struct ek_token *tokens;
    const struct ek_logprob *top;
    int32_t n, n_top;
    bool is_prompt; /* its first token has no log-probability */
};

typedef void put_token_fn(struct ek_out *o, const struct ek_answer_head *h,
                          const struct token_run *run, int32_t i);

static void put_token_text(struct ek_out *o, const struct ek_answer_head *h,
                           const struct token_run *run, int32_t i)
{
    put_name(o, piece_of(h, run->tokens[i].id));
}

static void put_token_logprob(struct ek_out *o, const struct ek_answer_head *h,
                              const struct token_run *run, int32_t i)
{
    (void)h;
    if (run->is_prompt && i == 0)
        ek_out_str(o, "null");
    else
        ek_out_number(o, (double)run->tokens[i].logprob);
}

static void put_token_top(struct ek_out *o, const struct ek_answer_head *h,
                          const struct token_run *run, int32_t i)
{
    if (run->is_prompt && i == 0)
        ek_out_str(o, "null");
    else
        put_top_map(o, h, &run->tokens[i], run->top + (size_t)i * (size_t)run->n_top,
                    run->n_top);
}

static void put_list(struct ek_out *o, const struct ek_answer_head *h,
                     const struct token_run runs[2], const char *name,
                     put_token_fn *put)
{
    bool is_later = false;
    ek_out_printf(o, "\"%s\":[", name);
    for (int r = 0; r < 2; r++) {
        for (int32_t i = 0; i < runs[r].n; i++) {
            ek_out_str(o, is_later ? "," : "");
            put(o, h, &runs[r], i);
            is_later = true;
        }
    }
    ek_out_str(o, "],");
}

static void put_completion_logprobs(struct ek_out *o, const struct ek_answer_head *h,
                                    const struct ek_answer_piece *p)
{
    struct token_run runs[2] = {
        {NULL, NULL, 0, 0, true},
        {p->tokens, p->top, p->n_tokens, p->n_top, false},
    };
    if (p->prompt)
        runs[0] = (struct token_run){p->prompt->prompt_tokens, p->prompt->prompt_top,
                                     p->prompt->n_prompt_done, p->prompt->n_top, true};
    ek_out_str(o, "{");
    put_list(o, h, runs, "tokens", put_token_text);
    put_list(o, h, runs, "token_logprobs", put_token_logprob);
    put_list(o, h, runs, "top_logprobs", put_token_top);
    uint64_t offset = p->text_offset;
    bool is_later = false;
    ek_out_str(o, "\"text_offset\":[");
    for (int r = 0; r < 2; r++) {
        for (int32_t i = 0; i < runs[r].n; i++) {
            ek_out_printf(o, "%s%llu", is_later ? "," : "", (unsigned long long)offset);
            offset += n_chars(piece_of(h, runs[r].tokens[i].id));
            is_later = true;
        }
    }
    ek_out_str(o, "]}");
}

static void put_head(struct ek_out *o, const struct ek_answer_head *h,
                     const char *object)
{
    ek_out_str(o, "{\"id\":");
    ek_out_json(o, h->id, strlen(h->id));
    ek_out_printf(o, ",\"object\":\"%s\",\"created\":%lld,\"model\":", object,
                  (long long)h->created_s);
    ek_out_json(o, h->model, strlen(h->model));
    ek_out_str(o, ",\"choices\":[");
}

static void put_usage(struct ek_out *o, const struct ek_answer_usage *u)
{
    ek_out_printf(o,
                  ",\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                  "\"total_tokens\":%lld,\"prompt_tokens_details\":"
                  "{\"cached_tokens\":%lld}}",
                  (long long)u->prompt_tokens, (long long)u->completion_tokens,
                  (long long)u->prompt_tokens + (long long)u->completion_tokens,
                  (long long)u->cached_tokens);
}

static void put_finish(struct ek_out *o, const struct ek_answer_piece *p)
{
    if (p->finish == EK_FINISH_NONE)
        ek_out_str(o, ",\"finish_reason\":null");
    else
        ek_out_printf(o, ",\"finish_reason\":\"%s\"", ek_finish_name(p->finish));
    ek_out_str(o, ",\"stop_reason\":");
    if (p->stop.n > 0)
        ek_out_json(o, p->stop.p, p->stop.n);
    else if (p->stop_id >= 0)
        ek_out_printf(o, "%d", p->stop_id);
    else
        ek_out_str(o, "null");
}

static void put_token_ids(struct ek_out *o, const struct ek_answer_piece *p)
{
    ek_out_str(o, ",\"token_ids\":[");
    for (int32_t i = 0; i < p->n_tokens; i++)
        ek_out_printf(o, "%s%d", i ? "," : "", p->tokens[i].id);
    ek_out_str(o, "]");
}

static void put_content(struct ek_out *o, const struct ek_answer_head *h,
                        const struct ek_answer_piece *p, bool is_chunk)
{
    if (h->kind == EK_API_COMPLETION) {
        ek_out_str(o, ",\"text\":");
        put_text(o, p->text);
    } else if (!is_chunk) {
        ek_out_str(o, ",\"message\":{\"role\":\"assistant\",\"content\":");
        put_text(o, p->text);
        ek_out_str(o, ",\"refusal\":null}");
    } else {
        const char *role = p->is_first ? "\"role\":\"assistant\"," : "";
        if (p->is_first || p->text.n > 0) {
            ek_out_printf(o, ",\"delta\":{%s\"content\":", role);
            put_text(o, p->text);
            ek_out_str(o, "}");
        } else {
            ek_out_str(o, ",\"delta\":{}");
        }
    }
}

static void put_choice(struct ek_out *o, const struct ek_answer_head *h,
                       const struct ek_answer_piece *p, bool is_chunk)
{
    ek_out_printf(o, "{\"index\":%d", p->index);
    put_content(o, h, p, is_chunk);
    ek_out_str(o, ",\"logprobs\":");
    if (!h->has_logprobs || (is_chunk && p->n_tokens == 0 && !p->prompt))
        ek_out_str(o, "null");
    else if (h->kind == EK_API_CHAT)
        put_chat_logprobs(o, h, p);
    else
        put_completion_logprobs(o, h, p);
    put_finish(o, p);
    if (h->has_ids)
        put_token_ids(o, p);
    ek_out_str(o, "}");
}

static const char *chunk_object(const struct ek_answer_head *h)
{
    return h->kind == EK_API_CHAT ? "chat.completion.chunk" : "text_completion";
}

void ek_answer_chunk(struct ek_out *o, const struct ek_answer_head *h,
                     const struct ek_answer_piece *p,
                     const struct ek_answer_usage *usage)
{
    ek_out_str(o, "data: ");
    put_head(o, h, chunk_object(h));
    put_choice(o, h, p, true);
    ek_out_str(o, "]");
    if (usage)
        put_usage(o, usage);
    else if (h->has_usage_key)
        ek_out_str(o, ",\"usage\":null");
    ek_out_str(o, "}\n\n");
}

void ek_answer_usage_chunk(struct ek_out *o, const struct ek_answer_head *h,
                           const struct ek_answer_usage *usage)
{
    ek_out_str(o, "data: ");
    put_head(o, h, chunk_object(h));
    ek_out_str(o, "]");
    put_usage(o, usage);
    ek_out_str(o, "}\n\n");
}

void ek_answer_whole(struct ek_out *o, const struct ek_answer_head *h,
                     const struct ek_answer_piece *choices, int32_t n,
                     const struct ek_answer_usage *usage)
{
    put_head(o, h, h->kind == EK_API_CHAT ? "chat.completion" : "text_completion");
    for (int32_t i = 0; i < n; i++) {
        ek_out_str(o, i ? "," : "");
        put_choice(o, h, &choices[i], false);
    }
    ek_out_str(o, "]");
    put_usage(o, usage);
    ek_out_str(o, "}");
}
