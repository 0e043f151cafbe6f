/* What both loaders share: texts in, maps and tables out, every fault named. */
#include "base/mem.h"
#include "base/utf8.h"
#include "data/tokenizer_int.h"

#include <stdio.h>
#include <string.h>

#define SPACE_ESCAPE "\xe2\x96\x81" /* U+2581 */

/* Markers that end a turn in the chat formats of known models. */
static const char *const ends[] = {
    "<|im_end|>",      "<|eot_id|>",
    "<|eom_id|>",      "<end_of_turn>",
    "<|end|>",         "<|endoftext|>",
    "<|end_of_text|>", "<|return|>",
    "<|call|>",        "<|END_OF_TURN_TOKEN|>",
    "<|EOT|>",         "<turn|>",
    "<|eot|>",         "<|user|>",
    "<|observation|>", "[EOS]",
    "<EOT>",           "<｜end▁of▁sentence｜>",
};

int ek_tok_build_new(struct ek_tokenizer **out, size_t n, size_t text_bytes)
{
    struct ek_tokenizer *t = ek_calloc(1, sizeof *t);
    if (!t)
        return EK_ENOMEM;
    /* A text is kept twice at most, each with padding to 16 bytes. */
    size_t per_token = sizeof *t->tokens + 64;
    ek_arena_init(&t->arena, SIZE_MAX);
    ek_map_init(&t->ordinary, n, 0);
    ek_map_init(&t->others, n, 0);
    t->bos = t->eos = t->unk = -1;
    for (int i = 0; i < 256; i++)
        t->byte_ids[i] = -1;
    t->n_tokens = (int32_t)n;
    if (n <= (SIZE_MAX / 4 - text_bytes) / per_token) {
        t->arena.max_bytes = n * per_token + 2 * text_bytes + 4096;
        t->tokens = ek_arena_calloc(&t->arena, n ? n : 1, sizeof *t->tokens);
    }
    if (!t->tokens) {
        ek_tokenizer_free(t);
        return EK_ENOMEM;
    }
    *out = t;
    return 0;
}

void ek_tokenizer_free(struct ek_tokenizer *t)
{
    if (!t)
        return;
    ek_tok_trie_release(&t->trie[0]);
    ek_tok_trie_release(&t->trie[1]);
    ek_tok_merges_release(&t->merges);
    ek_tok_pre_release(&t->pre);
    ek_map_release(&t->ordinary);
    ek_map_release(&t->others);
    ek_arena_release(&t->arena);
    ek_free(t);
}

int ek_tok_build_token(struct ek_tokenizer *t, int32_t id, struct ek_str text,
                       const char *name, struct ek_err *err)
{
    if (text.n > UINT16_MAX)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: token %d is %zu bytes long; at most %d are possible",
                          name, id, text.n, UINT16_MAX);
    if (!ek_utf8_is_valid(text.p, text.n))
        return ek_err_set(err, EK_EFORMAT, "%s: token %d '%.*s' is not UTF-8", name, id,
                          (int)text.n, text.p);
    char *copy = ek_arena_strndup(&t->arena, text.p, text.n);
    if (!copy)
        return ek_err_set(err, EK_ENOMEM, "%s: out of memory", name);
    t->tokens[id].text = (struct ek_str){copy, text.n};
    return 0;
}

int ek_tok_byte_of_char(uint32_t c)
{
    bool is_itself =
        (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255);
    if (is_itself)
        return (int)c;
    if (c < 256 || c >= 256 + 68)
        return -1;
    c -= 256;
    if (c < 33)
        return (int)c;
    c -= 33;
    return c < 34 ? (int)(127 + c) : 173;
}

/* <|...|> and kin: words of a protocol, which a user's text must not speak. Runs of
 * spaces, HTML tags and <unused7> are user-defined, too, and are plain text. */
static bool is_marker(struct ek_str s)
{
    static const char *const words[] = {"<think>", "</think>", "<s>", "</s>"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (s.n == strlen(words[i]) && memcmp(s.p, words[i], s.n) == 0)
            return true;
    if (s.n < 3)
        return false;
    if (s.p[0] == '<' && s.p[s.n - 1] == '>')
        return memchr(s.p, '|', s.n) || memchr(s.p, '_', s.n) ||
               memmem(s.p, s.n, "\xef\xbd\x9c", 3);
    if (s.p[0] == '[' && s.p[s.n - 1] == ']') {
        for (size_t i = 1; i + 1 < s.n; i++)
            if (!(s.p[i] >= 'A' && s.p[i] <= 'Z') &&
                !(s.p[i] >= '0' && s.p[i] <= '9') && s.p[i] != '_' && s.p[i] != '/')
                return false;
        return s.p[1] >= 'A' || s.p[1] == '/';
    }
    return false;
}

static bool is_end_text(struct ek_str s)
{
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (s.n == strlen(ends[i]) && memcmp(s.p, ends[i], s.n) == 0)
            return true;
    return false;
}

/* Byte level: the bytes that the characters stand for. False where one stands for none:
 * such a token can only be an added one and means its text. */
static bool map_bytes(char *out, size_t *n_out, struct ek_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t c = 0;
        i += ek_utf8_decode(&c, text.p + i, text.n - i);
        int byte = ek_tok_byte_of_char(c);
        if (byte < 0)
            return false;
        out[n++] = (char)byte;
    }
    *n_out = n;
    return true;
}

static size_t unescape_spaces(char *out, struct ek_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n;) {
        bool is_escape = text.n - i >= 3 && memcmp(text.p + i, SPACE_ESCAPE, 3) == 0;
        out[n++] = is_escape ? ' ' : text.p[i];
        i += is_escape ? 3 : 1;
    }
    return n;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* "<0x0A>" -> 10, else -1. */
static int byte_token(struct ek_str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>')
        return -1;
    int hi = hex_value(s.p[3]), lo = hex_value(s.p[4]);
    return hi >= 0 && lo >= 0 ? hi * 16 + lo : -1;
}

/* Decides what token id means; its key in `ordinary` goes to *key, n 0 for none. */
static int derive_token(struct ek_tokenizer *t, int32_t id, struct ek_str *key)
{
    struct ek_tok_token *k = &t->tokens[id];
    *key = (struct ek_str){NULL, 0};
    k->bytes = k->text;
    k->is_special = k->type == EK_TOK_CONTROL || k->type == EK_TOK_UNKNOWN;
    k->is_guarded = k->is_special || (k->type == EK_TOK_USER && is_marker(k->text));
    k->is_end = k->is_guarded && is_end_text(k->text);
    if (k->is_guarded || k->text.n == 0)
        return 0;
    int byte = t->kind == EK_TOK_BYTE_LEVEL ? -1 : byte_token(k->text);
    if (byte >= 0 && k->type != EK_TOK_USER) {
        char c = (char)byte;
        k->bytes = (struct ek_str){ek_arena_strndup(&t->arena, &c, 1), 1};
        t->byte_ids[byte] = id;
        return k->bytes.p ? 0 : EK_ENOMEM;
    }
    if (t->kind == EK_TOK_BYTE_LEVEL && k->type == EK_TOK_USER)
        return 0;
    char *bytes = ek_arena_strndup(&t->arena, k->text.p, k->text.n);
    if (!bytes)
        return EK_ENOMEM;
    if (t->kind != EK_TOK_BYTE_LEVEL) {
        k->bytes = (struct ek_str){bytes, unescape_spaces(bytes, k->text)};
        *key = k->text;
    } else if (map_bytes(bytes, &k->bytes.n, k->text)) {
        k->bytes.p = bytes;
        *key = k->bytes;
        if (k->bytes.n == 1)
            t->byte_ids[(unsigned char)bytes[0]] = id;
    }
    return 0;
}

int ek_tok_build_maps(struct ek_tokenizer *t, const char *name, const char *key,
                      struct ek_err *err)
{
    int rc = ek_map_reserve(&t->ordinary, (size_t)t->n_tokens);
    for (int32_t id = 0; !rc && id < t->n_tokens; id++) {
        struct ek_str match;
        bool was_there = false;
        rc = derive_token(t, id, &match);
        if (rc)
            break;
        struct ek_tok_token *k = &t->tokens[id];
        if (match.n) {
            rc = ek_map_put(&t->ordinary, match.p, match.n, (uint64_t)id, &was_there);
            if (match.n > t->max_key_n)
                t->max_key_n = (uint32_t)match.n;
        } else if (k->text.n) {
            rc = ek_map_put(&t->others, k->text.p, k->text.n, (uint64_t)id, &was_there);
        }
        if (!rc && was_there)
            return ek_err_set(err, EK_EFORMAT, "%s: %s: token %d '%.*s' is there twice",
                              name, key, id, (int)k->text.n, k->text.p);
    }
    return rc ? ek_err_set(err, rc, "%s: %s: %s", name, key, ek_status_text(rc)) : 0;
}

int ek_tok_build_texts(const struct ek_tokenizer *t, struct ek_map *by_text,
                       const char *name, const char *key, struct ek_err *err)
{
    int rc = ek_map_reserve(by_text, (size_t)t->n_tokens);
    for (int32_t id = 0; !rc && id < t->n_tokens; id++) {
        struct ek_str text = t->tokens[id].text;
        bool was_there = false;
        if (text.n == 0)
            continue;
        rc = ek_map_put(by_text, text.p, text.n, (uint64_t)id, &was_there);
        if (!rc && was_there)
            return ek_err_set(err, EK_EFORMAT, "%s: %s: token %d '%.*s' is there twice",
                              name, key, id, (int)text.n, text.p);
    }
    return rc ? ek_err_set(err, rc, "%s: %s: %s", name, key, ek_status_text(rc)) : 0;
}

static int find_part(int32_t *id, const struct ek_map *by_text, const char *p, size_t n)
{
    uint64_t value;
    if (n == 0 || !ek_map_get(by_text, p, n, &value))
        return EK_ENOENT;
    *id = (int32_t)value;
    return 0;
}

int ek_tok_build_merge(struct ek_tokenizer *t, const struct ek_map *by_text,
                       struct ek_str a, struct ek_str b, uint32_t rank,
                       const char *name, const char *key, struct ek_err *err)
{
    char whole[4096];
    int32_t left, right, id;
    if (a.n + b.n > sizeof whole)
        return ek_err_set(err, EK_EFORMAT,
                          "%s: %s: merge %u makes a token of %zu bytes; "
                          "at most %zu are possible",
                          name, key, rank, a.n + b.n, sizeof whole);
    memcpy(whole, a.p, a.n);
    memcpy(whole + a.n, b.p, b.n);
    if (find_part(&left, by_text, a.p, a.n) || find_part(&right, by_text, b.p, b.n) ||
        find_part(&id, by_text, whole, a.n + b.n))
        return ek_err_set(err, EK_EFORMAT,
                          "%s: %s: merge %u '%.*s' + '%.*s': both parts and their "
                          "union must be tokens",
                          name, key, rank, (int)a.n, a.p, (int)b.n, b.p);
    /* A user's text must never become a guarded token, so no merge may yield one. */
    if (!t->tokens[id].is_guarded)
        (void)ek_tok_merges_put(&t->merges, left, right, rank, id);
    return 0;
}

int ek_tok_build_trie(struct ek_tokenizer *t)
{
    int rc = 0;
    for (int32_t id = 0; !rc && id < t->n_tokens; id++) {
        const struct ek_tok_token *k = &t->tokens[id];
        struct ek_tok_added added = {.id = id, .is_guarded = k->is_guarded};
        if (k->text.n && (k->is_guarded || k->type == EK_TOK_USER))
            rc = ek_tok_trie_add(&t->trie[0], k->text.p, k->text.n, &added);
    }
    return rc;
}
