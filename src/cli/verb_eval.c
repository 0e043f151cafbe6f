/* verb_eval.c - keel eval: a checkpoint ranked on the held-out part of a log. */
#include "base/json.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/trained.h"
#include "cli/verb.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (1 << 20)

struct settings {
    const char *data;
    int part;
    int64_t threads;
    bool json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "data",
     .letter = 'd',
     .type = EK_OPT_STR,
     .offset = AT(data),
     .value = "FILE",
     .help = "the log, a pack or text; without it, where it was in training"},
    {.name = "part",
     .type = EK_OPT_CHOICE,
     .offset = AT(part),
     .fallback = "test",
     .choices = "test|valid",
     .help = "which held-out part is ranked"},
    EK_VERB_THREADS(AT(threads)),
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "eval",
    .summary = "rank all items for every user with a trained model",
    .arguments = "CHECKPOINT",
    .details =
        "CHECKPOINT is a folder that keel train wrote: a run (then its best state), or "
        "one of its checkpoints. The log is split as in training, and for every row of "
        "the part all items are scored; the rank of the one that came gives recall, "
        "NDCG and MRR at 5, 10, 20, 50 and 200. Filtered: items that the user has "
        "before do not compete; unfiltered: all do. A tie goes to the item that the "
        "log named first.\n\n"
        "A model with a click head also gets its normalised entropy (1: no better than "
        "knowing the click rate) and AUC.\n\n"
        "The log must hold the items of training in the same order; the columns' names "
        "are those of the configuration.",
    .examples = "keel eval runs/beauty-sasrec\n"
                "keel eval runs/beauty-sasrec/checkpoints/last --part valid --json",
    .opts = opts,
    .min_args = 1,
    .max_args = 1,
};

static int add_json(struct ek_buf *b, const struct ek_trained *t, const char *part,
                    const struct ek_evaluation *e)
{
    int rc =
        ek_buf_addf(b, "{\"model\": \"%s\", \"step\": %" PRId64 ", \"checkpoint\": ",
                    ek_rec_kind_name(t->rec.kind), t->steps);
    if (!rc)
        rc = ek_json_add_str(b, t->folder, strlen(t->folder));
    if (!rc)
        rc = ek_buf_addf(b,
                         ", \"samples\": %" PRId64 ", \"items\": %" PRId64 ", \"%s\": ",
                         e->samples, t->items.n, part);
    if (!rc)
        rc = ek_ranking_json(b, &e->filtered);
    if (!rc)
        rc = ek_buf_addf(b, ", \"%s_unfiltered\": ", part);
    if (!rc)
        rc = ek_ranking_json(b, &e->unfiltered);
    if (!rc && isfinite(e->auc))
        rc = ek_buf_addf(b, ", \"normalised_entropy\": %.6f, \"auc\": %.6f",
                         e->normalised_entropy, e->auc);
    return rc ? rc
              : ek_buf_addf(b, ", \"seconds\": %.4f, \"forward_seconds\": %.4f}\n",
                            e->seconds, e->forward_seconds);
}

static int add_lines(struct ek_buf *b, const char *what, const struct ek_ranking *r)
{
    static const char *const names[] = {"recall", "ndcg", "mrr"};
    const double *const all[] = {r->recall, r->ndcg, r->mrr};
    int rc = ek_buf_addf(b, "\n%-12s", what);
    for (int k = 0; !rc && k < EK_EVAL_CUTS; k++)
        rc = ek_buf_addf(b, "     @%-3d", ek_eval_cuts[k]);
    for (int m = 0; !rc && m < 3; m++) {
        rc = ek_buf_addf(b, "\n  %-10s", names[m]);
        for (int k = 0; !rc && k < EK_EVAL_CUTS; k++)
            rc = ek_buf_addf(b, "   %.4f", all[m][k]);
    }
    return rc ? rc : ek_buf_add_char(b, '\n');
}

static int add_text(struct ek_buf *b, const struct ek_trained *t, const char *part,
                    const struct ek_evaluation *e)
{
    int rc = ek_buf_addf(b,
                         "%s, %s of step %" PRId64 "\n%s part, %" PRId64
                         " samples, %" PRId64 " items, %.2f s, %.2f of it the model\n",
                         t->folder, ek_rec_kind_name(t->rec.kind), t->steps, part,
                         e->samples, t->items.n, e->seconds, e->forward_seconds);
    if (!rc)
        rc = add_lines(b, "filtered", &e->filtered);
    if (!rc)
        rc = add_lines(b, "unfiltered", &e->unfiltered);
    if (!rc && isfinite(e->auc))
        rc = ek_buf_addf(b, "\nclicks        normalised entropy %.4f, AUC %.4f\n",
                         e->normalised_entropy, e->auc);
    return rc;
}

static bool should_stop(void *arg)
{
    (void)arg;
    return ek_interrupt_seen();
}

static int evaluate(struct ek_buf *out, const char *folder, const struct settings *set,
                    bool *is_input, struct ek_err *err)
{
    static const enum ek_part parts[] = {EK_PART_TEST, EK_PART_VALID};
    static const char *const names[] = {"test", "valid"};
    struct ek_trained t;
    struct ek_evaluation e;
    const struct ek_trained_options o = {.has_data = true,
                                         .data_path = set->data,
                                         .part = parts[set->part],
                                         .threads = set->threads};
    int rc = ek_verb_trained_open(&t, folder, o, err);
    if (rc)
        return rc;
    *is_input = false;
    t.evaluate.should_stop = should_stop;
    rc = ek_evaluate_run(&t.evaluate, &e, err);
    if (!rc)
        rc = set->json ? add_json(out, &t, names[set->part], &e)
                       : add_text(out, &t, names[set->part], &e);
    ek_trained_release(&t);
    return rc;
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct ek_err err = EK_ERR_INIT;
    bool is_input = true;
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_eval, &set, &args, argc, argv, &arena, &code)) {
        ek_interrupt_catch();
        if (evaluate(&out, args.args[0], &set, &is_input, &err))
            code = ek_verb_fail(&ek_verb_eval, &err, is_input);
        else
            code = ek_data_print(&ek_verb_eval, &out, 0);
    }
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_eval = {&table, run};
