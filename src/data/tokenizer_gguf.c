/* Tokenizers as GGUF keeps them: tokenizer.ggml.*. */
#include "base/mem.h"
#include "data/tokenizer_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOKENS "tokenizer.ggml.tokens"
#define TYPES  "tokenizer.ggml.token_type"
#define SCORES "tokenizer.ggml.scores"
#define MERGES "tokenizer.ggml.merges"

#define TOKENS_MAX (16 * 1024 * 1024)

struct loader {
    struct ek_tokenizer *t;
    const struct ek_gguf *g;
    const char *name;
    struct ek_err *err;
    const struct ek_tok_pre_name *pre;
    struct ek_map by_text;
};

static int fail(struct loader *l, int status, const char *key, const char *what)
{
    return ek_err_set(l->err, status, "%s: %s: %s", l->name, key, what);
}

static bool is_int(enum ek_gguf_type type)
{
    return type <= EK_GGUF_I32 || type == EK_GGUF_U64 || type == EK_GGUF_I64;
}

/* The array under key with n elements: strings, integers or floats, as `type` says. */
static int get_array(struct loader *l, const struct ek_gguf_kv **out, const char *key,
                     enum ek_gguf_type type, uint64_t n)
{
    const struct ek_gguf_kv *kv = ek_gguf_find(l->g, key);
    if (!kv)
        return fail(l, EK_EFORMAT, key, "is missing");
    bool is_right = kv->type == EK_GGUF_ARRAY &&
                    (kv->elem == type || (type == EK_GGUF_I32 && is_int(kv->elem)));
    if (!is_right)
        return fail(l, EK_EFORMAT, key,
                    type == EK_GGUF_STR   ? "expected an array of strings"
                    : type == EK_GGUF_F32 ? "expected an array of floats"
                                          : "expected an array of integers");
    if (n && kv->n != n)
        return ek_err_set(
            l->err, EK_EFORMAT, "%s: %s has %llu elements; expected %llu, one a token",
            l->name, key, (unsigned long long)kv->n, (unsigned long long)n);
    *out = kv;
    return 0;
}

static int load_tokens(struct loader *l, enum ek_tok_kind kind)
{
    const struct ek_gguf_kv *kv;
    int rc = get_array(l, &kv, TOKENS, EK_GGUF_STR, 0);
    if (rc)
        return rc;
    if (kv->n == 0 || kv->n > TOKENS_MAX)
        return ek_err_set(l->err, EK_EFORMAT,
                          "%s: %s has %llu elements; expected 1 to %d", l->name, TOKENS,
                          (unsigned long long)kv->n, TOKENS_MAX);
    size_t bytes = 0;
    for (uint64_t i = 0; i < kv->n; i++)
        bytes += ek_gguf_str_at(kv, i).n;
    rc = ek_tok_build_new(&l->t, (size_t)kv->n, bytes);
    if (rc)
        return fail(l, rc, TOKENS, "out of memory");
    l->t->kind = kind;
    for (uint64_t i = 0; !rc && i < kv->n; i++) {
        l->t->tokens[i].type = EK_TOK_NORMAL;
        rc = ek_tok_build_token(l->t, (int32_t)i, ek_gguf_str_at(kv, i), l->name,
                                l->err);
    }
    return rc;
}

static int load_types(struct loader *l)
{
    const struct ek_gguf_kv *kv;
    if (!ek_gguf_find(l->g, TYPES))
        return 0;
    int rc = get_array(l, &kv, TYPES, EK_GGUF_I32, (uint64_t)l->t->n_tokens);
    for (uint64_t i = 0; !rc && i < kv->n; i++) {
        int64_t type = ek_gguf_int_at(kv, i);
        if (type < EK_TOK_UNDEFINED || type > EK_TOK_BYTE)
            return ek_err_set(l->err, EK_EFORMAT,
                              "%s: %s[%llu] is %lld; expected 0 to %d", l->name, TYPES,
                              (unsigned long long)i, (long long)type, EK_TOK_BYTE);
        l->t->tokens[i].type = (uint8_t)type;
    }
    return rc;
}

static int load_scores(struct loader *l)
{
    const struct ek_gguf_kv *kv;
    int rc = get_array(l, &kv, SCORES, EK_GGUF_F32, (uint64_t)l->t->n_tokens);
    for (uint64_t i = 0; !rc && i < kv->n; i++) {
        double score = ek_gguf_num_at(kv, i);
        if (isnan(score))
            return ek_err_set(l->err, EK_EFORMAT, "%s: %s[%llu] is NaN", l->name,
                              SCORES, (unsigned long long)i);
        l->t->tokens[i].score = (float)score;
    }
    return rc;
}

static int load_merges(struct loader *l)
{
    const struct ek_gguf_kv *kv;
    int rc = get_array(l, &kv, MERGES, EK_GGUF_STR, 0);
    if (rc)
        return rc;
    if (kv->n > UINT32_MAX)
        return fail(l, EK_EFORMAT, MERGES, "has too many elements");
    if (ek_tok_merges_init(&l->t->merges, (size_t)kv->n))
        return fail(l, EK_ENOMEM, MERGES, "out of memory");
    for (uint64_t i = 0; !rc && i < kv->n; i++) {
        struct ek_str s = ek_gguf_str_at(kv, i);
        const char *space = s.n > 2 ? memchr(s.p + 1, ' ', s.n - 2) : NULL;
        if (!space)
            return ek_err_set(l->err, EK_EFORMAT,
                              "%s: %s[%llu] is '%.*s'; expected two parts with a space "
                              "between",
                              l->name, MERGES, (unsigned long long)i,
                              (int)(s.n < 200 ? s.n : 200), s.p);
        size_t n_left = (size_t)(space - s.p);
        rc = ek_tok_build_merge(l->t, &l->by_text, (struct ek_str){s.p, n_left},
                                (struct ek_str){space + 1, s.n - n_left - 1},
                                (uint32_t)i, l->name, MERGES, l->err);
    }
    return rc;
}

static int load_id(struct loader *l, const char *key, int32_t *out)
{
    uint32_t id;
    int rc = ek_gguf_get_u32(l->g, key, &id, l->err);
    if (rc == EK_ENOENT)
        return 0;
    if (rc)
        return rc;
    if (id >= (uint32_t)l->t->n_tokens)
        return ek_err_set(l->err, EK_EFORMAT,
                          "%s: %s is %u; expected below %d, the "
                          "number of tokens",
                          l->name, key, id, l->t->n_tokens);
    *out = (int32_t)id;
    return 0;
}

static int load_flag(struct loader *l, const char *key, bool *out)
{
    int rc = ek_gguf_get_bool(l->g, key, out, l->err);
    return rc == EK_ENOENT ? 0 : rc;
}

static int load_ids(struct loader *l)
{
    int32_t eot = -1, eom = -1;
    int rc = load_id(l, "tokenizer.ggml.bos_token_id", &l->t->bos);
    if (!rc)
        rc = load_id(l, "tokenizer.ggml.eos_token_id", &l->t->eos);
    if (!rc)
        rc = load_id(l, "tokenizer.ggml.unknown_token_id", &l->t->unk);
    if (!rc)
        rc = load_id(l, "tokenizer.ggml.eot_token_id", &eot);
    if (!rc)
        rc = load_id(l, "tokenizer.ggml.eom_token_id", &eom);
    if (!rc)
        rc = load_flag(l, "tokenizer.ggml.add_bos_token", &l->t->adds_bos);
    /* Files call any token unknown, <|endoftext|> for one: a byte that the vocabulary
     * lacks must not end the text. */
    if (l->t->unk >= 0 && l->t->tokens[l->t->unk].type != EK_TOK_UNKNOWN)
        l->t->unk = -1;
    if (eot >= 0)
        l->t->tokens[eot].is_end = true;
    if (eom >= 0)
        l->t->tokens[eom].is_end = true;
    return rc;
}

static int load_pre(struct loader *l)
{
    struct ek_str name = {"", 0};
    char known[1024];
    int rc = ek_gguf_get_str(l->g, "tokenizer.ggml.pre", &name, l->err);
    if (rc && rc != EK_ENOENT)
        return rc;
    l->pre = ek_tok_pre_find(name.p, name.n);
    if (!l->pre)
        return ek_err_set(l->err, EK_EUNSUP,
                          "%s: tokenizer.ggml.pre: pre-tokenizer '%.*s' is not known; "
                          "known: %s",
                          l->name, (int)(name.n < 60 ? name.n : 60), name.p,
                          ek_tok_pre_list(known, sizeof known));
    return 0;
}

static int compile_steps(struct loader *l, const char *const *patterns)
{
    int rc = 0;
    for (; !rc && *patterns; patterns++)
        rc = ek_tok_pre_add(&l->t->pre, *patterns, strlen(*patterns),
                            EK_TOK_CUT_ISOLATED, false, l->err);
    if (rc)
        ek_err_prefix(l->err, "%s: tokenizer.ggml.pre", l->name);
    return rc;
}

/* gpt2: byte-level BPE. */
static int load_byte_level(struct loader *l)
{
    int rc = compile_steps(l, l->pre->patterns);
    snprintf(l->t->label, sizeof l->t->label, "bpe %s", l->pre->name);
    l->t->ignores_merges = l->pre->ignores_merges;
    l->t->norm.is_nfc = l->pre->is_nfc;
    l->t->adds_bos = l->pre->adds_bos;
    return rc ? rc : load_merges(l);
}

static void set_space_rules(struct loader *l, bool adds_prefix)
{
    l->t->norm.escapes_space = true;
    l->t->norm.prefix = adds_prefix ? EK_TOK_PREFIX_ALWAYS : EK_TOK_PREFIX_NONE;
    l->t->strips_first_space = adds_prefix;
    l->t->fuses_unk = true;
    l->t->adds_bos = true;
}

/* llama: SentencePiece with scores. */
static int load_scored(struct loader *l)
{
    bool adds_prefix = true;
    int rc = load_flag(l, "tokenizer.ggml.add_space_prefix", &adds_prefix);
    snprintf(l->t->label, sizeof l->t->label, "spm");
    set_space_rules(l, adds_prefix);
    return rc ? rc : load_scores(l);
}

/* gemma4: SentencePiece's vocabulary with merges; lines are merged on their own. */
static int load_merged(struct loader *l)
{
    static const char *const lines[] = {"[^\\n]+|[\\n]+", NULL};
    bool adds_prefix = false;
    int rc = load_flag(l, "tokenizer.ggml.add_space_prefix", &adds_prefix);
    snprintf(l->t->label, sizeof l->t->label, "spm merges");
    set_space_rules(l, adds_prefix);
    if (!rc)
        rc = compile_steps(l, lines);
    return rc ? rc : load_merges(l);
}

static int load_model(struct loader *l)
{
    struct ek_str model = {"", 0};
    int rc = ek_gguf_get_str(l->g, "tokenizer.ggml.model", &model, l->err);
    if (rc == EK_ENOENT)
        return fail(l, EK_EFORMAT, "tokenizer.ggml.model", "is missing");
    if (rc)
        return rc;
    static const char *const models[] = {"gpt2", "llama", "gemma4"};
    static int (*const loaders[])(struct loader *) = {load_byte_level, load_scored,
                                                      load_merged};
    int kind = 0;
    while (kind < 3 && (strlen(models[kind]) != model.n ||
                        memcmp(models[kind], model.p, model.n) != 0))
        kind++;
    if (kind == 3)
        return ek_err_set(l->err, EK_EUNSUP,
                          "%s: tokenizer.ggml.model '%.*s' is not known; known: gpt2, "
                          "llama, gemma4",
                          l->name, (int)(model.n < 60 ? model.n : 60), model.p);
    if (kind == 0)
        rc = load_pre(l);
    if (!rc)
        rc = load_tokens(l, (enum ek_tok_kind)kind);
    if (!rc)
        rc = load_types(l);
    if (!rc)
        rc = ek_tok_build_maps(l->t, l->name, TOKENS, l->err);
    if (rc)
        return rc;
    ek_map_init(&l->by_text, (size_t)l->t->n_tokens, 0);
    rc = ek_tok_build_texts(l->t, &l->by_text, l->name, TOKENS, l->err);
    if (!rc)
        rc = loaders[kind](l);
    if (!rc)
        rc = load_ids(l);
    if (!rc && ek_tok_build_trie(l->t))
        rc = fail(l, EK_ENOMEM, TOKENS, "out of memory");
    return rc;
}

int ek_tokenizer_from_gguf(struct ek_tokenizer **t, const struct ek_gguf *g,
                           struct ek_err *err)
{
    struct loader l = {.g = g, .name = ek_gguf_name(g), .err = err};
    int rc = load_model(&l);
    ek_map_release(&l.by_text);
    if (rc) {
        ek_tokenizer_free(l.t);
        return rc;
    }
    *t = l.t;
    return 0;
}
