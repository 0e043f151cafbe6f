/* kit.h - what the tests of lm/ share: a loaded model with its team and pages, and the
 * tiny models of tests/lm/golden. */
#ifndef EVENKEEL_TESTS_LM_KIT_H
#define EVENKEEL_TESTS_LM_KIT_H

#include "base/json.h"
#include "lm/model.h"
#include "testkit.h"

#include <stdio.h>

#define KIT_PAGES 64
#define KIT_BATCH 64

struct kit_options {
    const char *file; /* of tests/lm/golden, "llama.gguf" or "llama" */
    enum ek_isa isa;
    int n_threads; /* 0: 1 */
    enum ek_lm_weights weights;
    bool has_prefill_weights;
    enum ek_lm_weights prefill_weights;
    enum ek_dtype kv_dtype;
    int32_t max_batch; /* 0: KIT_BATCH */
};

struct kit {
    struct ek_modelfile m;
    struct ek_team *team;
    struct ek_lm *lm;
    struct ek_kv kv;
    int32_t V;
};

static inline const char *kit_path(char out[512], const char *file)
{
    snprintf(out, 512, "%s/lm/golden/%s", EK_TESTS_DIR, file);
    return out;
}

static inline void kit_open(struct kit *k, const struct kit_options *o)
{
    struct ek_err err = EK_ERR_INIT;
    char path[512];
    struct ek_lm_options lo = {.weights = o->weights,
                               .has_prefill_weights = o->has_prefill_weights,
                               .prefill_weights = o->prefill_weights,
                               .max_batch_tokens =
                                   o->max_batch ? o->max_batch : KIT_BATCH};
    memset(k, 0, sizeof *k);
    if (ek_modelfile_open(&k->m, kit_path(path, o->file), &err) ||
        ek_team_new(&k->team, o->n_threads ? o->n_threads : 1, false, &err) ||
        ek_lm_load(&k->lm, &k->m, &lo, ek_ops_get(o->isa), k->team, &err) ||
        ek_kv_init(&k->kv, ek_lm_get_params(k->lm), o->kv_dtype, KIT_PAGES, &err))
        fail_msg("%s", err.text);
    k->V = ek_lm_get_params(k->lm)->V;
    /* What no page holds yet must never be read: NaN in every format. */
    memset(k->kv.data, 0xff,
           (size_t)KIT_PAGES * ek_kv_page_bytes(ek_lm_get_params(k->lm), o->kv_dtype));
}

static inline void kit_close(struct kit *k)
{
    ek_kv_release(&k->kv);
    ek_lm_free(k->lm);
    ek_team_free(k->team);
    ek_modelfile_close(&k->m);
}

/* Runs tokens[0,n) in chunks of `chunk` (0: whole) over the given pages; the last
 * position's logits go to out (V). */
static inline void kit_run(struct kit *k, float *out, const int32_t *tokens, int32_t n,
                           int32_t chunk, const int32_t *pages)
{
    for (int32_t at = 0; at < n; at += chunk) {
        int32_t left = n - at;
        if (chunk < 1 || chunk > left)
            chunk = left;
        struct ek_lm_seq s = {.tokens = tokens + at,
                              .n_tokens = chunk,
                              .pos0 = at,
                              .pages = pages,
                              .want =
                                  chunk == left ? EK_LM_WANT_LAST : EK_LM_WANT_NONE};
        assert_int_equal(ek_lm_forward(k->lm, &k->kv, &s, 1, out), chunk == left);
    }
}

/* golden.json; json_decref it. */
static inline json_t *kit_golden(void)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_buf text;
    json_t *root = NULL;
    char path[512];
    ek_buf_init(&text, 1 << 22);
    if (ek_file_read(&text, kit_path(path, "golden.json"), &err) ||
        ek_json_parse(&root, text.data, text.len, &(struct ek_json_limits){0}, &err))
        fail_msg("%s", err.text);
    ek_buf_release(&text);
    return root;
}

/* Tokens of a golden entry into out[n]; returns n. */
static inline int32_t kit_tokens(int32_t out[KIT_BATCH], const json_t *entry)
{
    const json_t *a = json_object_get(entry, "tokens");
    size_t n = json_array_size(a);
    assert_in_range(n, 1, KIT_BATCH);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(a, i));
    return (int32_t)n;
}

#endif
