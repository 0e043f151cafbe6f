/* verb_plot.c - keel plot: what runs logged, drawn and in figures. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/data.h"
#include "cli/plot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ARENA_BYTES  (1 << 20)
#define OUTPUT_BYTES (64 << 20)

struct settings {
    const char *out;
    struct ek_opt_list curves;
    bool json;
};

#define AT(member) offsetof(struct settings, member)

static const struct ek_opt opts[] = {
    {.name = "out",
     .type = EK_OPT_STR,
     .offset = AT(out),
     .value = "FILE",
     .fallback = "plot.svg",
     .help = "the drawing"},
    {.name = "curve",
     .type = EK_OPT_LIST,
     .offset = AT(curves),
     .value = "NAME",
     .help = "what is drawn, a panel each; default: loss, valid/ndcg@10 and "
             "valid/recall@10"},
    EK_VERB_JSON(AT(json)),
    {0},
};

static const struct ek_opt_verb table = {
    .name = "plot",
    .summary = "draw loss and metrics of training runs",
    .arguments = "RUN [RUN ...]",
    .details =
        "RUN is the folder of a run (run.dir of its configuration) or its log.jsonl. "
        "Several are drawn over one another, for comparison. A curve is named by its "
        "place in the log: loss, lr, tokens_per_s, mfu, valid/ndcg@10; a name that no "
        "run "
        "has is refused with those there are. A run may be under way.",
    .examples = "keel plot runs/beauty --out beauty.svg\n"
                "keel plot runs/a runs/b --curve loss --curve valid/unfiltered/ndcg@10",
    .opts = opts,
    .min_args = 1,
    .max_args = EK_PLOT_RUNS,
};

struct work {
    struct ek_plot_run runs[EK_PLOT_RUNS];
    size_t n_runs;
    const char *curves[EK_PLOT_CURVES];
    size_t n_curves;
};

static int read_run(struct ek_plot_run *run, const char *path, struct ek_err *err)
{
    char log[4096];
    struct stat st;
    bool is_folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    int n = snprintf(log, sizeof log, is_folder ? "%s/log.jsonl" : "%s", path);
    if (n < 0 || (size_t)n >= sizeof log)
        return ek_err_set(err, EK_ELIMIT, "%s: path is too long", path);
    run->name = path;
    int rc = ek_history_read(&run->history, log, err);
    if (!rc && run->history.n_curves == 0)
        rc = ek_err_set(err, EK_EFORMAT, "%s: has no point yet", log);
    return rc;
}

static bool is_there(const struct work *w, const char *curve)
{
    for (size_t i = 0; i < w->n_runs; i++) {
        if (ek_history_find(&w->runs[i].history, curve))
            return true;
    }
    return false;
}

static int refuse_curve(const struct work *w, const char *curve, struct ek_err *err)
{
    char there[600] = "";
    size_t n = 0;
    const struct ek_history *h = &w->runs[0].history;
    for (size_t i = 0; i < h->n_curves; i++) {
        int put = snprintf(there + n, sizeof there - n, "%s%s", i ? ", " : "",
                           h->curves[i].name);
        if (put < 0 || n + (size_t)put >= sizeof there)
            break;
        n += (size_t)put;
    }
    there[n] = 0;
    return ek_err_set(err, EK_EINVAL, "--curve '%.64s': no run has it; %s has %s",
                      curve, w->runs[0].name, there);
}

static int choose_curves(struct work *w, const struct ek_opt_list *wanted,
                         struct ek_err *err)
{
    static const char *const usual[] = {"loss", "valid/ndcg@10", "valid/recall@10"};
    if (wanted->n > EK_PLOT_CURVES)
        return ek_err_set(err, EK_EINVAL, "--curve: at most %d of them",
                          EK_PLOT_CURVES);
    for (size_t i = 0; i < wanted->n; i++) {
        if (!is_there(w, wanted->items[i]))
            return refuse_curve(w, wanted->items[i], err);
        w->curves[w->n_curves++] = wanted->items[i];
    }
    for (size_t i = 0; !wanted->n && i < sizeof usual / sizeof usual[0]; i++) {
        if (is_there(w, usual[i]))
            w->curves[w->n_curves++] = usual[i];
    }
    if (!w->n_curves) /* a log of something else: what it begins with */
        w->curves[w->n_curves++] = w->runs[0].history.curves[0].name;
    return 0;
}

static int add_range_json(struct ek_buf *b, const char *key, struct ek_history_point p)
{
    int rc =
        ek_buf_addf(b, ", \"%s\": {\"step\": %" PRId64 ", \"value\": ", key, p.step);
    if (!rc)
        rc = ek_json_add_double(b, p.value);
    return rc ? rc : ek_buf_add_char(b, '}');
}

static int add_range(struct ek_buf *b, const struct ek_plot_run *run, const char *curve,
                     bool is_json, bool is_first)
{
    struct ek_plot_range r = ek_plot_range(ek_history_find(&run->history, curve));
    if (!is_json && r.n == 0)
        return 0;
    if (!is_json)
        return ek_buf_addf(b,
                           "%s: %s: %zu points, last %.6g at step %" PRId64
                           ", lowest %.6g at %" PRId64 ", highest %.6g at %" PRId64
                           "\n",
                           run->name, curve, r.n, r.last.value, r.last.step,
                           r.low.value, r.low.step, r.high.value, r.high.step);
    int rc = ek_buf_add_str(b, is_first ? "{\"run\": " : ", {\"run\": ");
    if (!rc)
        rc = ek_json_add_str(b, run->name, strlen(run->name));
    if (!rc)
        rc = ek_buf_add_str(b, ", \"curve\": ");
    if (!rc)
        rc = ek_json_add_str(b, curve, strlen(curve));
    if (!rc)
        rc = ek_buf_addf(b, ", \"points\": %zu", r.n);
    if (!rc && r.n)
        rc = add_range_json(b, "last", r.last);
    if (!rc && r.n)
        rc = add_range_json(b, "lowest", r.low);
    if (!rc && r.n)
        rc = add_range_json(b, "highest", r.high);
    return rc ? rc : ek_buf_add_char(b, '}');
}

static int add_ranges(struct ek_buf *b, const struct work *w, const char *out,
                      bool is_json)
{
    int rc = is_json ? ek_buf_add_str(b, "{\"out\": ") : 0;
    if (!rc && is_json)
        rc = ek_json_add_str(b, out, strlen(out));
    if (!rc && is_json)
        rc = ek_buf_add_str(b, ", \"curves\": [");
    for (size_t k = 0; k < w->n_curves && !rc; k++) {
        for (size_t i = 0; i < w->n_runs && !rc; i++)
            rc = add_range(b, &w->runs[i], w->curves[k], is_json, k == 0 && i == 0);
    }
    return rc || !is_json ? rc : ek_buf_add_str(b, "]}\n");
}

static int draw(const struct work *w, const char *path, struct ek_err *err)
{
    struct ek_buf svg;
    ek_buf_init(&svg, OUTPUT_BYTES);
    int rc = ek_plot_svg(&svg, w->runs, w->n_runs, w->curves, w->n_curves);
    if (rc)
        ek_err_set(err, rc, "%s: %s", path, ek_status_text(rc));
    else
        rc = ek_file_write(path, svg.data, svg.len, err);
    ek_buf_release(&svg);
    return rc;
}

/* Returns an enum ek_exit. */
static int plot(struct work *w, const struct settings *set,
                const struct ek_opt_args *args, struct ek_buf *out)
{
    struct ek_err err = EK_ERR_INIT;
    int rc = 0;
    for (int i = 0; i < args->n_args && !rc; i++) {
        rc = read_run(&w->runs[w->n_runs], args->args[i], &err);
        w->n_runs++;
    }
    if (rc)
        return ek_verb_fail(&ek_verb_plot, &err, true);
    if (choose_curves(w, &set->curves, &err)) {
        (void)ek_verb_fail(&ek_verb_plot, &err, false);
        return EK_EXIT_USAGE;
    }
    if (draw(w, set->out, &err))
        return ek_verb_fail(&ek_verb_plot, &err, false);
    return ek_data_print(&ek_verb_plot, out, add_ranges(out, w, set->out, set->json));
}

static int run(int argc, char **argv)
{
    struct settings set = {0};
    struct ek_opt_args args;
    struct ek_arena arena;
    struct ek_buf out;
    struct work w = {.n_runs = 0};
    int code = EK_EXIT_OK;
    ek_arena_init(&arena, ARENA_BYTES);
    ek_buf_init(&out, OUTPUT_BYTES);
    if (ek_verb_options(&ek_verb_plot, &set, &args, argc, argv, &arena, &code))
        code = plot(&w, &set, &args, &out);
    for (size_t i = 0; i < w.n_runs; i++)
        ek_history_release(&w.runs[i].history);
    ek_buf_release(&out);
    ek_arena_release(&arena);
    return code;
}

const struct ek_verb ek_verb_plot = {&table, run};
