/* pages.c - cost of the page check before each step, by the page and by the token.
 *
 *   bench_pages [--rounds N]
 *
 * Sequences of one length fill the book, their pages in random order, as after long
 * service. Each round checks every sequence once; the median round counts. Shared: all
 * full pages are published, as with the prefix cache; own: none are. */
#include "serve/pages.h"

#include "args.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct scale {
    const char *name;
    int32_t n_seqs, n_tokens;
};

static const struct scale scales[] = {{"one sequence", 1, 8192},
                                      {"64 sequences", 64, 1024},
                                      {"1024 sequences", 1024, 4096}};

struct bench {
    struct ek_pages pages;
    struct ek_page_table *tables;
    struct ek_page_ref *refs;
    int32_t *tokens, *numbers;
    int32_t n_seqs, n_tokens, cap;
};

/* Of this thread: a busy machine does not count. */
static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *must(void *p)
{
    if (!p) {
        fputs("bench_pages: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static void shuffle_free_pages(struct ek_pages *p)
{
    struct ek_rng rng;
    ek_rng_init(&rng, 1);
    for (int32_t i = p->n_free - 1; i > 0; i--) {
        int32_t k = (int32_t)ek_rng_below(&rng, (uint64_t)i + 1);
        int32_t page = p->free_list[i];
        p->free_list[i] = p->free_list[k];
        p->free_list[k] = page;
    }
    for (int32_t i = 0; i < p->n_free; i++)
        p->pages[p->free_list[i]].parent = i; /* its place, as the book wants it */
}

/* Every sequence a page less than the table holds, and one token of the last. */
static void fill(struct bench *b, const struct scale *s, enum ek_page_check check,
                 bool is_shared)
{
    b->n_seqs = s->n_seqs;
    b->n_tokens = s->n_tokens - EK_PAGE_TOKENS + 1;
    b->cap = ek_pages_for_tokens(s->n_tokens);
    struct ek_pages_options o = {
        .n_pages = b->n_seqs * b->cap, .check = check, .caches_prefixes = is_shared};
    if (ek_pages_init(&b->pages, &o, NULL))
        must(NULL);
    shuffle_free_pages(&b->pages);
    size_t n = (size_t)b->n_seqs;
    b->tables = must(ek_calloc(n, sizeof *b->tables));
    b->refs = must(ek_calloc(n * (size_t)b->cap, sizeof *b->refs));
    b->tokens = must(ek_calloc(n * (size_t)b->n_tokens, sizeof *b->tokens));
    b->numbers = must(ek_calloc((size_t)b->cap, sizeof *b->numbers));
    for (size_t i = 0; i < n; i++) {
        int32_t *tokens = b->tokens + i * (size_t)b->n_tokens;
        for (int32_t k = 0; k < b->n_tokens; k++)
            tokens[k] = (int32_t)i * 7 + k;
        ek_page_table_init(&b->tables[i], i + 1, (struct ek_salt){1, 2},
                           b->refs + i * (size_t)b->cap, b->cap);
        if (ek_pages_reserve(&b->pages, &b->tables[i], b->n_tokens))
            must(NULL);
        ek_pages_commit(&b->pages, &b->tables[i], tokens, b->n_tokens);
    }
}

static void drain(struct bench *b)
{
    ek_pages_release(&b->pages);
    ek_free(b->tables);
    ek_free(b->refs);
    ek_free(b->tokens);
    ek_free(b->numbers);
}

/* Seconds of the median round. */
static double measure(const struct bench *b, int n_rounds)
{
    double seconds[BENCH_MAX_ROUNDS];
    for (int r = 0; r < n_rounds; r++) {
        double start = now_s();
        for (int32_t i = 0; i < b->n_seqs; i++) {
            const int32_t *tokens = b->tokens + (size_t)i * (size_t)b->n_tokens;
            if (ek_pages_check(&b->pages, &b->tables[i], tokens, 1, b->numbers, NULL))
                must(NULL);
        }
        seconds[r] = now_s() - start;
    }
    bench_sort(seconds, (size_t)n_rounds);
    return seconds[n_rounds / 2];
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"off", "pages", "full"};
    struct bench_args args = {.n_rounds = 101};
    if (!bench_take(&args, argc, argv) || args.json) {
        fprintf(stderr, "usage: bench_pages [--rounds N]   (1 to %d)\n",
                BENCH_MAX_ROUNDS);
        return 2;
    }
    printf("%-16s %-7s %-6s %10s %10s\n", "", "pages", "check", "ns/page", "ns/token");
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        for (int k = 0; k < 6; k++) {
            struct bench b;
            bool is_shared = k % 2;
            fill(&b, &scales[i], (enum ek_page_check)(k / 2), is_shared);
            double ns = 1e9 * measure(&b, args.n_rounds) / b.n_seqs;
            printf("%-16s %-7s %-6s %10.2f %10.3f\n", scales[i].name,
                   is_shared ? "shared" : "own", names[k / 2], ns / b.cap,
                   ns / b.n_tokens);
            drain(&b);
        }
    }
    return 0;
}
