/* answer.h - completions as JSON: whole answers and chunks of server-sent events.
 * Pure writing: no state but what the caller keeps in ek_answer_piece. */
#ifndef EVENKEEL_SERVE_ANSWER_H
#define EVENKEEL_SERVE_ANSWER_H

#include "serve/api.h"
#include "serve/engine.h"
#include "serve/out.h"

/* What every object of one answer repeats. */
struct ek_answer_head {
    enum ek_api_kind kind;
    const char *id; /* "chatcmpl-..." */
    const char *model;
    int64_t created_s;
    const struct ek_tokenizer *tokenizer;
    bool has_logprobs;
    bool has_ids;       /* return_token_ids */
    bool has_usage_key; /* chunks say "usage":null when the usage comes at the end */
};

/* Part of one choice: all of it, or what a chunk adds. */
struct ek_answer_piece {
    int32_t index;
    struct ek_str text;
    const struct ek_token *tokens; /* (n_tokens) */
    const struct ek_logprob *top;  /* (n_tokens, n_top) */
    int32_t n_tokens, n_top;
    bool is_first; /* a chat chunk that names the role */
    enum ek_finish finish;
    int32_t stop_id;      /* -1: none */
    struct ek_str stop;   /* the stop string that ended it, or empty */
    uint64_t text_offset; /* characters of the choice before this piece's tokens */
    const struct ek_request *prompt; /* its tokens come first (echo with logprobs) */
};

struct ek_answer_usage {
    int64_t prompt_tokens, completion_tokens;
    int64_t cached_tokens; /* of the prompts, found in the prefix cache */
};

/* "data: {...}\n\n". usage may be NULL. */
void ek_answer_chunk(struct ek_out *o, const struct ek_answer_head *h,
                     const struct ek_answer_piece *p,
                     const struct ek_answer_usage *usage);

/* The last chunk of include_usage: no choices. */
void ek_answer_usage_chunk(struct ek_out *o, const struct ek_answer_head *h,
                           const struct ek_answer_usage *usage);

/* A whole answer of n choices. */
void ek_answer_whole(struct ek_out *o, const struct ek_answer_head *h,
                     const struct ek_answer_piece *choices, int32_t n,
                     const struct ek_answer_usage *usage);

/* Characters (not bytes) in the tokens' text: how far text_offset moves on. */
uint64_t ek_answer_chars(const struct ek_answer_head *h, const struct ek_token *tokens,
                         int32_t n);

#endif
