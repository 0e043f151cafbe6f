/* probe_lm.c - what the forward pass says, for the Python tests.
 *
 *   probe_lm MODEL WEIGHTS KV_DTYPE N < lines of token ids
 * For each line: greedy decoding of N tokens. Answers a line of JSON:
 *   {"ids": [N ids], "first": [V logits after the prompt], "last": [V logits after all]}
 */
#include "base/mem.h"
#include "lm/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS 1024
#define MAX_PAGES  (MAX_TOKENS / EK_PAGE_TOKENS)

struct probe {
    struct ek_modelfile m;
    struct ek_team *team;
    struct ek_lm *lm;
    struct ek_kv kv;
    int32_t pages[MAX_PAGES];
};

static int find(const char *const *names, const char *word)
{
    int i = 0;
    while (names[i] && strcmp(names[i], word) != 0)
        i++;
    return i;
}

static int32_t largest(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static void print_row(const char *name, const float *x, int32_t n)
{
    printf(", \"%s\": [", name);
    for (int32_t i = 0; i < n; i++)
        printf("%s%.9g", i ? "," : "", (double)x[i]);
    printf("]");
}

static void answer(struct probe *p, const int32_t *prompt, int32_t n, int32_t n_new,
                   float *logits)
{
    int32_t V = ek_lm_get_params(p->lm)->V, id = 0;
    float *first = ek_alloc_array((size_t)V, sizeof *first);
    if (!first)
        exit(1);
    struct ek_lm_seq s = {
        .tokens = prompt, .n_tokens = n, .pages = p->pages, .want = EK_LM_WANT_LAST};
    ek_lm_forward(p->lm, &p->kv, &s, 1, logits);
    memcpy(first, logits, (size_t)V * sizeof *first);
    printf("{\"ids\": [");
    for (int32_t i = 0; i < n_new; i++) {
        id = largest(logits, V);
        printf("%s%d", i ? ", " : "", id);
        s.pos0 += s.n_tokens;
        s.tokens = &id;
        s.n_tokens = 1;
        ek_lm_forward(p->lm, &p->kv, &s, 1, logits);
    }
    printf("]");
    print_row("first", first, V);
    print_row("last", logits, V);
    printf("}\n");
    ek_free(first);
}

static int open_all(struct probe *p, char **argv, struct ek_err *err)
{
    static const char *const weights[] = {"keep", "f32",  "bf16", "fp8",
                                          "int8", "int4", NULL};
    enum ek_isa isa;
    struct ek_lm_options o = {.weights = (enum ek_lm_weights)find(weights, argv[2]),
                              .max_batch_tokens = 256};
    enum ek_dtype kv = strcmp(argv[3], "f32") ? EK_DTYPE_BF16 : EK_DTYPE_F32;
    int rc;
    if ((rc = ek_isa_choose(&isa, err)) != 0 ||
        (rc = ek_modelfile_open(&p->m, argv[1], err)) != 0 ||
        (rc = ek_team_new(&p->team, 2, false, err)) != 0 ||
        (rc = ek_lm_load(&p->lm, &p->m, &o, ek_ops_get(isa), p->team, err)) != 0)
        return rc;
    for (int32_t i = 0; i < MAX_PAGES; i++)
        p->pages[i] = MAX_PAGES - 1 - i;
    return ek_kv_init(&p->kv, ek_lm_get_params(p->lm), kv, MAX_PAGES, err);
}

static int answer_lines(struct probe *p, int32_t n_new)
{
    static char line[1 << 16];
    static int32_t ids[MAX_TOKENS];
    float *logits = ek_alloc_array((size_t)ek_lm_get_params(p->lm)->V, sizeof *logits);
    if (!logits)
        return 1;
    while (fgets(line, sizeof line, stdin)) {
        int32_t n = 0;
        char *at = line, *end;
        for (long id = strtol(at, &end, 10); end != at && n < 256;
             at = end, id = strtol(at, &end, 10))
            ids[n++] = (int32_t)id;
        if (n > 0)
            answer(p, ids, n, n_new, logits);
    }
    ek_free(logits);
    return 0;
}

int main(int argc, char **argv)
{
    static struct probe p;
    struct ek_err err = EK_ERR_INIT;
    if (argc != 5)
        return 2;
    if (open_all(&p, argv, &err)) {
        fprintf(stderr, "probe_lm: %s\n", err.text);
        return 1;
    }
    int rc = answer_lines(&p, (int32_t)strtol(argv[4], NULL, 10));
    ek_kv_release(&p.kv);
    ek_lm_free(p.lm);
    ek_team_free(p.team);
    ek_modelfile_close(&p.m);
    return rc;
}
