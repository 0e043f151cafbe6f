/* tokenizer_make.h - small vocabularies for tests: GGUF metadata written by hand. */
#ifndef EVENKEEL_TESTS_DATA_TOKENIZER_MAKE_H
#define EVENKEEL_TESTS_DATA_TOKENIZER_MAKE_H

#include "base/buf.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"
#include "testkit.h"

#include <stdio.h>

struct make {
    struct ek_buf kv; /* the key-value section */
    uint64_t n_kv;
};

static inline void put(struct ek_buf *b, const void *p, size_t n)
{
    assert_int_equal(ek_buf_add(b, p, n), 0);
}

static inline void put_u32(struct ek_buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_u64(struct ek_buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_str(struct ek_buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    put(b, s, n);
}

static inline void make_init(struct make *m)
{
    ek_buf_init(&m->kv, 64 * 1024 * 1024);
    m->n_kv = 0;
}

static inline void make_key(struct make *m, const char *key, uint32_t type)
{
    put_str(&m->kv, key, strlen(key));
    put_u32(&m->kv, type);
    m->n_kv++;
}

static inline void make_str(struct make *m, const char *key, const char *value)
{
    make_key(m, key, EK_GGUF_STR);
    put_str(&m->kv, value, strlen(value));
}

static inline void make_u32(struct make *m, const char *key, uint32_t value)
{
    make_key(m, key, EK_GGUF_U32);
    put_u32(&m->kv, value);
}

static inline void make_bool(struct make *m, const char *key, bool value)
{
    make_key(m, key, EK_GGUF_BOOL);
    put(&m->kv, &value, 1);
}

static inline void make_array(struct make *m, const char *key, uint32_t type, size_t n)
{
    make_key(m, key, EK_GGUF_ARRAY);
    put_u32(&m->kv, type);
    put_u64(&m->kv, n);
}

static inline void make_strs(struct make *m, const char *key, const char *const *s,
                             size_t n)
{
    make_array(m, key, EK_GGUF_STR, n);
    for (size_t i = 0; i < n; i++)
        put_str(&m->kv, s[i], strlen(s[i]));
}

static inline void make_i32s(struct make *m, const char *key, const int32_t *v,
                             size_t n)
{
    make_array(m, key, EK_GGUF_I32, n);
    put(&m->kv, v, n * sizeof *v);
}

static inline void make_f32s(struct make *m, const char *key, const float *v, size_t n)
{
    make_array(m, key, EK_GGUF_F32, n);
    put(&m->kv, v, n * sizeof *v);
}

/* The whole file into out; m is released. */
static inline void make_file(struct make *m, struct ek_buf *out)
{
    ek_buf_init(out, 64 * 1024 * 1024);
    put(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, 0);
    put_u64(out, m->n_kv);
    put(out, m->kv.data, m->kv.len);
    ek_buf_release(&m->kv);
}

/* Loads what m holds; m is released. */
static inline int make_load(struct make *m, struct ek_tokenizer **t, struct ek_err *err)
{
    struct ek_buf file;
    struct ek_gguf *g = NULL;
    make_file(m, &file);
    int rc = ek_gguf_parse(&g, file.data, file.len, "made.gguf", err);
    if (!rc)
        rc = ek_tokenizer_from_gguf(t, g, err);
    ek_gguf_free(g);
    ek_buf_release(&file);
    return rc;
}

/* The byte alphabet's character of a byte. */
static inline void make_byte_char(char out[8], unsigned byte)
{
    memset(out, 0, 8);
    for (uint32_t c = 0; c < 512; c++)
        if (ek_tok_byte_of_char(c) == (int)byte)
            ek_utf8_encode(out, c);
}

struct made_bpe {
    char chars[256][8];
    const char *tokens[320];
    int32_t types[320];
    size_t n_tokens;
    const char *merges[64];
    size_t n_merges;
};

static inline int32_t made_token(struct made_bpe *v, const char *text, int32_t type)
{
    v->tokens[v->n_tokens] = text;
    v->types[v->n_tokens] = type;
    return (int32_t)v->n_tokens++;
}

/* 256 bytes (id = byte), and what a sentence of English needs. */
static inline void made_bpe_init(struct made_bpe *v)
{
    static const char *const words[] = {"he", "ll",   "hell", "hello",  "Ġw",
                                        "or", "Ġwor", "ld",   "Ġworld", "ĠĠ",
                                        "aa", "aaaa", "12",   "é"};
    static const char *const merges[] = {"h e", "l l",   "he ll", "hell o",  "Ġ w",
                                         "o r", "Ġw or", "l d",   "Ġwor ld", "Ġ Ġ",
                                         "a a", "aa aa", "1 2"};
    v->n_tokens = v->n_merges = 0;
    for (unsigned b = 0; b < 256; b++) {
        make_byte_char(v->chars[b], b);
        made_token(v, v->chars[b], EK_TOK_NORMAL);
    }
    for (size_t i = 0; i < 13; i++)
        made_token(v, words[i], EK_TOK_NORMAL);
    for (size_t i = 0; i < 13; i++)
        v->merges[v->n_merges++] = merges[i];
}

static inline void made_bpe_fill(const struct made_bpe *v, struct make *m,
                                 const char *pre)
{
    make_init(m);
    make_str(m, "tokenizer.ggml.model", "gpt2");
    make_str(m, "tokenizer.ggml.pre", pre);
    make_strs(m, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    make_i32s(m, "tokenizer.ggml.token_type", v->types, v->n_tokens);
    make_strs(m, "tokenizer.ggml.merges", v->merges, v->n_merges);
}

static inline struct ek_tokenizer *made_bpe_load(const struct made_bpe *v,
                                                 const char *pre)
{
    struct make m;
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    made_bpe_fill(v, &m, pre);
    if (make_load(&m, &t, &err))
        fail_msg("%s", err.text);
    return t;
}

/* "104 101" of the ids, in storage of the function. */
static inline const char *ids_text(const struct ek_ids *ids)
{
    static char text[4096];
    size_t at = 0;
    text[0] = 0;
    for (size_t i = 0; i < ids->n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, i ? " %d" : "%d",
                               ids->ids[i]);
    return text;
}

static inline void assert_encodes(const struct ek_tokenizer *t, const char *text,
                                  size_t n, enum ek_specials specials,
                                  const char *wanted)
{
    struct ek_ids ids;
    ek_ids_init(&ids, 100000);
    assert_int_equal(ek_tokenizer_encode(t, &ids, text, n, NULL, specials, true), 0);
    assert_string_equal(ids_text(&ids), wanted);
    ek_ids_release(&ids);
}

static inline void assert_round_trip(const struct ek_tokenizer *t, const char *text,
                                     size_t n)
{
    struct ek_ids ids;
    struct ek_buf out;
    ek_ids_init(&ids, SIZE_MAX / 8);
    ek_buf_init(&out, SIZE_MAX / 8);
    assert_int_equal(
        ek_tokenizer_encode(t, &ids, text, n, NULL, EK_SPECIALS_PLAIN, false), 0);
    assert_int_equal(ek_tokenizer_decode(t, &out, ids.ids, ids.n, false), 0);
    assert_int_equal(out.len, n);
    if (n)
        assert_memory_equal(out.data, text, n);
    ek_ids_release(&ids);
    ek_buf_release(&out);
}

#endif
