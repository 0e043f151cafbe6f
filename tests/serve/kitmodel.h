/* kitmodel.h - a model that is a few lines: its "keys and values" are the tokens
 * themselves, kept in pages, and its logits are a hash of every token that a sequence can
 * read. One wrong page anywhere gives another answer. */
#ifndef EVENKEEL_TESTS_SERVE_KITMODEL_H
#define EVENKEEL_TESTS_SERVE_KITMODEL_H

#include "base/map.h"
#include "data/tokenizer_make.h"
#include "serve/engine_int.h"

#include <math.h>
#include <pthread.h>

#define KIT_PAGES 40

/* The model's state, and what an engine over it needs (enginekit.h). */
struct kit {
    struct made_bpe made;
    struct ek_tokenizer *tokenizer; /* ids 0..255 are bytes */
    int32_t end_id;                 /* "<|im_end|>" */
    int32_t wide_id;                /* its text is KIT_WIDE: fills deltas soon */
    int32_t V;
    struct ek_engine *engine;
    struct ek_team *team;                      /* of 3, draws tokens with the engine */
    int n_together;                            /* times it did */
    int32_t slots[KIT_PAGES * EK_PAGE_TOKENS]; /* token at each place of the KV */
    const char *script;  /* not NULL: what every answer is, then the end token */
    int32_t script_at;   /* position of the script's first byte */
    bool is_broken;      /* the next row holds a NaN */
    bool has_own_decode; /* answer tokens leave other keys and values than prompt's */
    bool holds_deltas;   /* the reader gives nothing back until kit_release_deltas */
    struct ek_delta *held[256];
    int32_t n_held;
    int32_t n_forwards, max_rows, max_tokens;
    int32_t max_chunk;    /* most tokens of one sequence in one step */
    int32_t n_copies;     /* pages copied */
    int64_t kv_saturated; /* what the model says it has cut */
    int64_t now_us;       /* the engine's clock: steps move it by what they cost */
    int64_t step_us, prompt_us,
        answer_us;        /* each step, token of a prompt, of an answer */
    pthread_mutex_t gate; /* a step passes it: who holds it holds the engine */
};

static inline void kit_row(const struct kit *k, float *row, const int32_t *pages,
                           int32_t pos)
{
    uint64_t h = 1;
    for (int32_t i = 0; i <= pos; i++) {
        int32_t at = pages[i / EK_PAGE_TOKENS] * EK_PAGE_TOKENS + i % EK_PAGE_TOKENS;
        h = ek_hash(&k->slots[at], sizeof k->slots[at], h);
    }
    for (int32_t v = 0; v < k->V; v++)
        row[v] = (float)(ek_hash(&v, sizeof v, h) % 1000) / 250.0f;
    if (k->script) {
        size_t at = (size_t)(pos + 1 - k->script_at);
        row[at < strlen(k->script) ? (unsigned char)k->script[at] : k->end_id] = 50;
    } else {
        row[k->end_id] = -20;
    }
    if (k->is_broken)
        row[3] = NAN;
}

static inline void kit_copy_page(void *arg, int32_t to, int32_t from)
{
    struct kit *k = arg;
    size_t bytes = EK_PAGE_TOKENS * sizeof k->slots[0];
    memcpy(&k->slots[to * EK_PAGE_TOKENS], &k->slots[from * EK_PAGE_TOKENS], bytes);
    k->n_copies++;
}

/* What is read after it was freed gives another answer than any token would. */
static inline void kit_poison(void *arg, int32_t page)
{
    struct kit *k = arg;
    for (int32_t i = 0; i < EK_PAGE_TOKENS; i++)
        k->slots[page * EK_PAGE_TOKENS + i] = -1;
}

static inline int64_t kit_now_us(void *arg)
{
    const struct kit *k = arg;
    return k->now_us;
}

static inline int32_t kit_forward(void *arg, const struct ek_lm_seq *seqs,
                                  int32_t n_seqs, float *logits)
{
    struct kit *k = arg;
    int32_t n_rows = 0, n_tokens = 0;
    pthread_mutex_lock(&k->gate);
    pthread_mutex_unlock(&k->gate);
    k->now_us += k->step_us;
    for (int32_t s = 0; s < n_seqs; s++) {
        const struct ek_lm_seq *q = &seqs[s];
        for (int32_t i = 0; i < q->n_tokens; i++) {
            int32_t pos = q->pos0 + i;
            int32_t page = q->pages[pos / EK_PAGE_TOKENS];
            assert_in_range(page, 0, KIT_PAGES - 1);
            bool is_decode = k->has_own_decode && pos >= q->decode_from;
            k->slots[page * EK_PAGE_TOKENS + pos % EK_PAGE_TOKENS] =
                q->tokens[i] + (is_decode ? 1 << 20 : 0);
        }
        n_tokens += q->n_tokens;
        bool is_answer = q->n_tokens == 1 && q->pos0 >= q->decode_from;
        k->now_us += is_answer ? k->answer_us : q->n_tokens * k->prompt_us;
        k->max_chunk = q->n_tokens > k->max_chunk ? q->n_tokens : k->max_chunk;
        int32_t first = q->want == EK_LM_WANT_ALL    ? 0
                        : q->want == EK_LM_WANT_LAST ? q->n_tokens - 1
                                                     : q->n_tokens;
        for (int32_t i = first; i < q->n_tokens; i++)
            kit_row(k, logits + (size_t)n_rows++ * (size_t)k->V, q->pages, q->pos0 + i);
    }
    k->n_forwards++;
    k->max_rows = n_rows > k->max_rows ? n_rows : k->max_rows;
    k->max_tokens = n_tokens > k->max_tokens ? n_tokens : k->max_tokens;
    return n_rows;
}

#endif
