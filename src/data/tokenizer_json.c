/* Tokenizers as Hugging Face keeps them: the model and the tokens of tokenizer.json,
 * and the few facts that stand in tokenizer_config.json. */
#include "data/tokenizer_json.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

#define VOCAB  "model.vocab"
#define MERGES "model.merges"
#define ADDED  "added_tokens"

/* Ids may leave holes, but not so many that a small file asks for much memory. */
#define HOLES_MAX 65536

int ek_tok_json_fail(struct ek_tok_json *j, int status, const char *where,
                     const char *what)
{
    return ek_err_set(j->err, status, "%s: %s: %s", j->name, where, what);
}

const json_t *ek_tok_json_get(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

int ek_tok_json_bool(struct ek_tok_json *j, bool *out, const json_t *object,
                     const char *key, const char *where)
{
    const json_t *v = ek_tok_json_get(object, key);
    if (v && !json_is_boolean(v))
        return ek_err_set(j->err, EK_EFORMAT, "%s: %s.%s: expected true or false",
                          j->name, where, key);
    if (v)
        *out = json_is_true(v);
    return 0;
}

int ek_tok_json_str(struct ek_tok_json *j, struct ek_str *out, const json_t *object,
                    const char *key, const char *where)
{
    const json_t *v = ek_tok_json_get(object, key);
    if (v && !json_is_string(v))
        return ek_err_set(j->err, EK_EFORMAT, "%s: %s.%s: expected a string", j->name,
                          where, key);
    if (v)
        *out = (struct ek_str){json_string_value(v), json_string_length(v)};
    return 0;
}

static int get_id(struct ek_tok_json *j, int32_t *out, const json_t *v, size_t n_max,
                  const char *where, struct ek_str text)
{
    json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
    if (id < 0 || (size_t)id >= n_max)
        return ek_err_set(j->err, EK_EFORMAT,
                          "%s: %s: the id of '%.*s' is not an integer from 0 to %zu",
                          j->name, where, (int)(text.n < 200 ? text.n : 200), text.p,
                          n_max - 1);
    *out = (int32_t)id;
    return 0;
}

/* What an entry of added_tokens says. */
struct added {
    struct ek_str text;
    int32_t id;
    bool is_special, is_normalized;
    struct ek_tok_added how;
};

static int read_added(struct ek_tok_json *j, struct added *a, const json_t *v,
                      size_t n_max)
{
    *a = (struct added){.is_normalized = true};
    if (!json_is_object(v))
        return ek_tok_json_fail(j, EK_EFORMAT, ADDED, "expected a list of objects");
    int rc = ek_tok_json_str(j, &a->text, v, "content", ADDED);
    if (!rc && a->text.n == 0)
        rc = ek_tok_json_fail(j, EK_EFORMAT, ADDED, "an entry has no content");
    if (!rc)
        rc = get_id(j, &a->id, json_object_get(v, "id"), n_max, ADDED, a->text);
    if (!rc)
        rc = ek_tok_json_bool(j, &a->is_special, v, "special", ADDED);
    a->is_normalized = !a->is_special;
    if (!rc)
        rc = ek_tok_json_bool(j, &a->is_normalized, v, "normalized", ADDED);
    if (!rc)
        rc = ek_tok_json_bool(j, &a->how.eats_left, v, "lstrip", ADDED);
    if (!rc)
        rc = ek_tok_json_bool(j, &a->how.eats_right, v, "rstrip", ADDED);
    if (!rc)
        rc = ek_tok_json_bool(j, &a->how.is_single_word, v, "single_word", ADDED);
    a->how.id = a->id;
    return rc;
}

/* One more than the greatest id of vocab and added_tokens. */
static int count_tokens(struct ek_tok_json *j, size_t *n, const json_t *vocab,
                        const json_t *added)
{
    size_t n_max = json_object_size(vocab) + json_array_size(added) + HOLES_MAX;
    const char *text;
    const json_t *v;
    int64_t top = -1;
    int32_t id = 0;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, v)
    {
        struct ek_str s = {text, strlen(text)};
        rc = get_id(j, &id, v, n_max, VOCAB, s);
        if (rc)
            return rc;
        top = id > top ? id : top;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        struct added a;
        rc = read_added(j, &a, json_array_get(added, i), n_max);
        if (rc)
            return rc;
        top = a.id > top ? a.id : top;
    }
    *n = (size_t)(top + 1);
    return 0;
}

static int set_token(struct ek_tok_json *j, int32_t id, struct ek_str text,
                     enum ek_tok_type type, const char *where)
{
    struct ek_tok_token *k = &j->t->tokens[id];
    if (k->text.n && (k->text.n != text.n || memcmp(k->text.p, text.p, text.n) != 0))
        return ek_err_set(j->err, EK_EFORMAT, "%s: %s: '%.*s' and '%.*s' share id %d",
                          j->name, where, (int)text.n, text.p, (int)k->text.n,
                          k->text.p, id);
    k->type = (uint8_t)type;
    return k->text.n ? 0 : ek_tok_build_token(j->t, id, text, j->name, j->err);
}

static int load_tokens(struct ek_tok_json *j, size_t text_bytes)
{
    const json_t *model = ek_tok_json_get(j->root, "model");
    const json_t *vocab = ek_tok_json_get(model, "vocab");
    const json_t *added = ek_tok_json_get(j->root, ADDED);
    if (!json_is_object(vocab))
        return ek_tok_json_fail(j, EK_EFORMAT, VOCAB, "expected an object");
    if (added && !json_is_array(added))
        return ek_tok_json_fail(j, EK_EFORMAT, ADDED, "expected a list");
    size_t n = 0;
    int rc = count_tokens(j, &n, vocab, added);
    if (!rc && n == 0)
        rc = ek_tok_json_fail(j, EK_EFORMAT, VOCAB, "expected at least one token");
    if (!rc && ek_tok_build_new(&j->t, n, text_bytes))
        rc = ek_tok_json_fail(j, EK_ENOMEM, VOCAB, "out of memory");
    if (rc)
        return rc;
    const char *text;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, v)
    {
        struct ek_str s = {text, strlen(text)};
        rc = set_token(j, (int32_t)json_integer_value(v), s, EK_TOK_NORMAL, VOCAB);
        if (rc)
            return rc;
    }
    for (size_t i = 0; !rc && i < json_array_size(added); i++) {
        struct added a;
        rc = read_added(j, &a, json_array_get(added, i), n);
        if (!rc)
            rc = set_token(j, a.id, a.text, a.is_special ? EK_TOK_CONTROL : EK_TOK_USER,
                           ADDED);
    }
    return rc;
}

static int load_tries(struct ek_tok_json *j)
{
    const json_t *added = ek_tok_json_get(j->root, ADDED);
    int rc = 0;
    for (size_t i = 0; !rc && i < json_array_size(added); i++) {
        struct added a;
        rc = read_added(j, &a, json_array_get(added, i), (size_t)j->t->n_tokens);
        a.how.is_guarded = !rc && j->t->tokens[a.id].is_guarded;
        if (!rc && ek_tok_trie_add(&j->t->trie[a.is_normalized ? 1 : 0], a.text.p,
                                   a.text.n, &a.how))
            rc = ek_tok_json_fail(j, EK_ENOMEM, ADDED, "out of memory");
    }
    return rc;
}

static bool split_merge(const json_t *v, struct ek_str *a, struct ek_str *b)
{
    if (json_is_array(v) && json_array_size(v) == 2) {
        const json_t *left = json_array_get(v, 0), *right = json_array_get(v, 1);
        *a = (struct ek_str){json_string_value(left), json_string_length(left)};
        *b = (struct ek_str){json_string_value(right), json_string_length(right)};
        return a->p && b->p;
    }
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    const char *space = n > 2 ? memchr(s + 1, ' ', n - 2) : NULL;
    if (!space)
        return false;
    *a = (struct ek_str){s, (size_t)(space - s)};
    *b = (struct ek_str){space + 1, n - a->n - 1};
    return true;
}

static int load_merges(struct ek_tok_json *j, const json_t *model)
{
    const json_t *merges = ek_tok_json_get(model, "merges");
    if (!json_is_array(merges))
        return ek_tok_json_fail(j, EK_EFORMAT, MERGES, "expected a list");
    size_t n = json_array_size(merges);
    if (ek_tok_merges_init(&j->t->merges, n))
        return ek_tok_json_fail(j, EK_ENOMEM, MERGES, "out of memory");
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++) {
        struct ek_str a, b;
        if (!split_merge(json_array_get(merges, i), &a, &b))
            return ek_err_set(j->err, EK_EFORMAT,
                              "%s: %s[%zu]: expected \"a b\" or [\"a\", \"b\"]",
                              j->name, MERGES, i);
        rc = ek_tok_build_merge(j->t, &j->by_text, a, b, (uint32_t)i, j->name, MERGES,
                                j->err);
    }
    return rc;
}

/* Only BPE, and of it only what this tokenizer does. */
static int check_model(struct ek_tok_json *j, const json_t *model)
{
    static const char *const absent[] = {"continuing_subword_prefix",
                                         "end_of_word_suffix"};
    struct ek_str type = {"BPE", 3}, text;
    if (!json_is_object(model))
        return ek_tok_json_fail(j, EK_EFORMAT, "model", "expected an object");
    int rc = ek_tok_json_str(j, &type, model, "type", "model");
    if (!rc && (type.n != 3 || memcmp(type.p, "BPE", 3) != 0))
        return ek_err_set(j->err, EK_EUNSUP,
                          "%s: model.type '%.*s' is not known; known: BPE", j->name,
                          (int)(type.n < 60 ? type.n : 60), type.p);
    for (int i = 0; !rc && i < 2; i++) {
        text.n = 0;
        rc = ek_tok_json_str(j, &text, model, absent[i], "model");
        if (!rc && text.n)
            return ek_err_set(j->err, EK_EUNSUP, "%s: model.%s is not supported",
                              j->name, absent[i]);
    }
    const json_t *dropout = ek_tok_json_get(model, "dropout");
    if (!rc && dropout && json_number_value(dropout) != 0)
        rc = ek_tok_json_fail(j, EK_EUNSUP, "model.dropout", "is not supported");
    return rc;
}

static int load_model(struct ek_tok_json *j, size_t text_bytes)
{
    const json_t *model = ek_tok_json_get(j->root, "model");
    bool has_bytes = false;
    int rc = check_model(j, model);
    if (!rc)
        rc = ek_tok_json_bool(j, &has_bytes, model, "byte_fallback", "model");
    bool is_byte_level = ek_tok_json_is_byte_level(j->root);
    if (!rc && !has_bytes && !is_byte_level)
        rc = ek_tok_json_fail(j, EK_EUNSUP, "model",
                              "expected a ByteLevel pre-tokenizer or byte_fallback");
    if (!rc)
        rc = load_tokens(j, text_bytes);
    if (rc)
        return rc;
    j->t->kind = is_byte_level ? EK_TOK_BYTE_LEVEL : EK_TOK_SPM_MERGES;
    snprintf(j->t->label, sizeof j->t->label, "%s tokenizer.json",
             is_byte_level ? "bpe" : "spm");
    ek_map_init(&j->by_text, (size_t)j->t->n_tokens, 0);
    rc = ek_tok_build_texts(j->t, &j->by_text, j->name, VOCAB, j->err);
    if (!rc)
        rc = ek_tok_build_maps(j->t, j->name, VOCAB, j->err);
    if (!rc)
        rc =
            ek_tok_json_bool(j, &j->t->ignores_merges, model, "ignore_merges", "model");
    if (!rc)
        rc = ek_tok_json_bool(j, &j->t->fuses_unk, model, "fuse_unk", "model");
    return rc ? rc : load_merges(j, model);
}

/* A special token of the configuration: a string or an object with its content. */
static int load_named(struct ek_tok_json *j, int32_t *out, const json_t *object,
                      const char *key, const char *where)
{
    const json_t *v = ek_tok_json_get(object, key);
    if (json_is_object(v))
        v = ek_tok_json_get(v, "content");
    if (!v)
        return 0;
    if (!json_is_string(v))
        return ek_err_set(j->err, EK_EFORMAT, "%s: %s.%s: expected a string", j->name,
                          where, key);
    uint64_t id;
    if (!ek_map_get(&j->by_text, json_string_value(v), json_string_length(v), &id))
        return ek_err_set(j->err, EK_EFORMAT, "%s: %s.%s '%s' is not a token", j->name,
                          where, key, json_string_value(v));
    *out = (int32_t)id;
    return 0;
}

static int load_config(struct ek_tok_json *j)
{
    static const char where[] = "tokenizer_config";
    struct ek_tokenizer *t = j->t;
    if (!j->config)
        return 0;
    if (!json_is_object(j->config))
        return ek_tok_json_fail(j, EK_EFORMAT, where, "expected an object");
    int rc = load_named(j, &t->bos, j->config, "bos_token", where);
    if (!rc)
        rc = load_named(j, &t->eos, j->config, "eos_token", where);
    if (!rc)
        rc = ek_tok_json_bool(j, &t->adds_bos, j->config, "add_bos_token", where);
    return rc;
}

static int load_all(struct ek_tok_json *j, const char *json, size_t n,
                    const char *config, size_t config_n)
{
    int rc = ek_json_parse(&j->root, json, n, NULL, j->err);
    if (!rc && config)
        rc = ek_json_parse(&j->config, config, config_n, NULL, j->err);
    if (rc) {
        ek_err_prefix(j->err, "%s%s", j->name, j->root ? ": tokenizer_config" : "");
        return rc;
    }
    if (!json_is_object(j->root))
        return ek_tok_json_fail(j, EK_EFORMAT, "tokenizer", "expected an object");
    rc = load_model(j, n);
    if (!rc)
        rc = load_named(j, &j->t->unk, ek_tok_json_get(j->root, "model"), "unk_token",
                        "model");
    if (!rc)
        rc = load_tries(j);
    if (!rc)
        rc = ek_tok_json_steps(j);
    return rc ? rc : load_config(j);
}

int ek_tokenizer_from_json(struct ek_tokenizer **t, const char *json, size_t n,
                           const char *config, size_t config_n, const char *name,
                           struct ek_err *err)
{
    struct ek_tok_json j = {.name = name, .err = err};
    int rc = load_all(&j, json, n, config, config_n);
    json_decref(j.root);
    json_decref(j.config);
    ek_map_release(&j.by_text);
    if (rc) {
        ek_tokenizer_free(j.t);
        return rc;
    }
    *t = j.t;
    return 0;
}
