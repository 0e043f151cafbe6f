/* The table as text: for a terminal, as a man(7) page, as words for completion. Prose
 * (`details`) is paragraphs with an empty line between; a line that begins with a space
 * is kept as it stands. */
#include "base/opt_int.h"
#include "base/roff.h"

#include <ctype.h>
#include <string.h>

#define WIDTH       80   /* columns of a terminal page */
#define HELP_COLUMN 28   /* where the descriptions begin */
#define MAX_ENTRY   4096 /* bytes of one description */

static const char *placeholder(const struct ek_opt *opt)
{
    if (opt->type == EK_OPT_FLAG)
        return NULL;
    if (opt->value)
        return opt->value;
    switch (opt->type) {
    case EK_OPT_CHOICE:
        return opt->choices;
    case EK_OPT_BYTES:
        return "SIZE";
    case EK_OPT_MS:
        return "TIME";
    case EK_OPT_INT:
        return "N";
    case EK_OPT_REAL:
        return "X";
    case EK_OPT_ITEMS:
        return "LIST";
    default:
        return "TEXT";
    }
}

/* "a|b|c"; with spaces where a line could not be filled else. */
static int add_choices(struct ek_buf *out, const char *choices)
{
    if (strlen(choices) < WIDTH - HELP_COLUMN)
        return ek_buf_add_str(out, choices);
    int rc = 0;
    for (const char *p = choices; !rc && *p; p++)
        rc = *p == '|' ? ek_buf_add_str(out, ", ") : ek_buf_add_char(out, *p);
    return rc;
}

/* The help sentence with what the table knows: range, default, repetition. */
static int add_description(struct ek_buf *out, const struct ek_opt *opt)
{
    char range[128];
    const char *join = " (";
    int rc = ek_buf_add_str(out, opt->help ? opt->help : "");
    if (!rc && opt->type == EK_OPT_CHOICE && opt->value) {
        rc = ek_buf_add_str(out, join);
        if (!rc)
            rc = add_choices(out, opt->choices);
        join = "; ";
    }
    if (!rc && opt->type == EK_OPT_LIST) {
        rc = ek_buf_addf(out, "%smay be repeated", join);
        join = "; ";
    }
    if (!rc && ek_opt_range(range, opt)) {
        rc = ek_buf_addf(out, "%s%s", join, range);
        join = "; ";
    }
    if (!rc && opt->fallback && *opt->fallback) {
        rc = ek_buf_addf(out, "%sdefault: %s", join, opt->fallback);
        join = "; ";
    }
    return !rc && *join == ';' ? ek_buf_add_char(out, ')') : rc;
}

static int add_spaces(struct ek_buf *out, size_t n)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < n; i++)
        rc = ek_buf_add_char(out, ' ');
    return rc;
}

/* One paragraph s[0,n), its lines filled; the cursor stands at `column`, further lines
 * begin at `indent`. Ends with a newline. */
static int add_filled(struct ek_buf *out, const char *s, size_t n, size_t column,
                      size_t indent)
{
    bool is_first = true;
    int rc = 0;
    for (size_t i = 0; !rc && i < n;) {
        while (i < n && (s[i] == ' ' || s[i] == '\n'))
            i++;
        size_t end = i;
        while (end < n && s[end] != ' ' && s[end] != '\n')
            end++;
        if (end == i)
            break;
        if (!is_first && column + 1 + (end - i) > WIDTH) {
            rc = ek_buf_add_char(out, '\n');
            if (!rc)
                rc = add_spaces(out, indent);
            column = indent;
            is_first = true;
        }
        if (!rc && !is_first)
            rc = ek_buf_add_char(out, ' ');
        if (!rc)
            rc = ek_buf_add(out, s + i, end - i);
        column += end - i + !is_first;
        is_first = false;
        i = end;
    }
    return rc ? rc : ek_buf_add_char(out, '\n');
}

/* A run of `details`: a paragraph, or lines to keep. Returns its length, its end and
 * the empty lines behind it included; *n is the length without them. */
static size_t next_block(const char *s, size_t *n, bool *is_kept)
{
    *is_kept = *s == ' ';
    size_t i = 0;
    while (s[i]) {
        size_t line = strcspn(s + i, "\n");
        if (i > 0 && (line == 0 || (s[i] == ' ') != *is_kept))
            break;
        i += line + (s[i + line] == '\n');
    }
    *n = i;
    while (*n && s[*n - 1] == '\n')
        --*n;
    while (s[i] == '\n')
        i++;
    return i;
}

static int add_details(struct ek_buf *out, const char *s)
{
    int rc = 0;
    while (!rc && *s) {
        size_t n;
        bool is_kept;
        size_t step = next_block(s, &n, &is_kept);
        rc = ek_buf_add_char(out, '\n');
        if (!rc && is_kept)
            rc = ek_buf_addf(out, "%.*s\n", (int)n, s);
        else if (!rc)
            rc = add_filled(out, s, n, 0, 0);
        s += step;
    }
    return rc;
}

/* What an option does, in the column beside its name, which is `column` long; below it
 * when that is too long. */
static int add_beside(struct ek_buf *out, size_t column, const struct ek_opt *opt)
{
    int rc = 0;
    if (column + 2 > HELP_COLUMN) {
        rc = ek_buf_add_char(out, '\n');
        column = 0;
    }
    if (!rc)
        rc = add_spaces(out, HELP_COLUMN - column);
    struct ek_buf text;
    ek_buf_init(&text, MAX_ENTRY);
    if (!rc)
        rc = add_description(&text, opt);
    if (!rc)
        rc = add_filled(out, text.data, text.len, HELP_COLUMN, HELP_COLUMN);
    ek_buf_release(&text);
    return rc;
}

static int add_entry(struct ek_buf *out, const struct ek_opt *opt)
{
    char flag[EK_OPT_NAME_CAP];
    size_t start = out->len;
    const char *value = placeholder(opt);
    int rc = opt->letter ? ek_buf_addf(out, "  -%c, ", opt->letter)
                         : ek_buf_add_str(out, "      ");
    if (!rc)
        rc = ek_buf_addf(out, "--%s%s%s", ek_opt_flag(flag, opt->name),
                         value ? " " : "", value ? value : "");
    return rc ? rc : add_beside(out, out->len - start, opt);
}

/* `add` for every option: the verb's, then the common ones. */
static int for_each(struct ek_buf *out, const struct ek_opt_verb *verb,
                    int (*add)(struct ek_buf *out, const struct ek_opt *opt))
{
    int rc = 0;
    for (const struct ek_opt *o = verb->opts; !rc && o->name; o++)
        rc = add(out, o);
    for (const struct ek_opt *o = ek_opt_common; !rc && o->name; o++)
        rc = add(out, o);
    return rc;
}

/* One key of a configuration: no flag, so no dashes. of: the list it is a key of. */
static int add_key(struct ek_buf *out, const struct ek_opt *opt, const char *of)
{
    const char *value = opt->type == EK_OPT_FLAG ? "true|false" : placeholder(opt);
    size_t start = out->len;
    int rc = ek_buf_addf(out, "  %s%s%s %s", of, *of ? "[]." : "", opt->name, value);
    return rc ? rc : add_beside(out, out->len - start, opt);
}

static int add_keys(struct ek_buf *out, const struct ek_opt *keys)
{
    int rc =
        ek_buf_add_str(out, "\nkeys of the configuration (YAML: a section for what "
                            "stands before the dot;\n--set KEY=VALUE):\n");
    for (const struct ek_opt *o = keys; !rc && o->name; o++) {
        rc = add_key(out, o, "");
        for (const struct ek_opt *k = o->item_keys; !rc && k && k->name; k++)
            rc = add_key(out, k, o->name);
    }
    return rc;
}

int ek_opt_help(struct ek_buf *out, const struct ek_opt_verb *verb)
{
    const char *arguments = verb->arguments ? verb->arguments : "";
    int rc = ek_buf_addf(out, "usage: keel %s [options]%s%s\n\n%s\n\noptions:\n",
                         verb->name, *arguments ? " " : "", arguments, verb->summary);
    if (!rc)
        rc = for_each(out, verb, add_entry);
    if (!rc && verb->keys)
        rc = add_keys(out, verb->keys);
    if (!rc && verb->details)
        rc = add_details(out, verb->details);
    if (!rc && verb->examples)
        rc = ek_buf_add_str(out, "\nexamples:\n");
    for (const char *p = verb->examples; !rc && p && *p;) {
        size_t n = strcspn(p, "\n");
        rc = ek_buf_addf(out, "  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    return rc;
}

static int add_man_entry(struct ek_buf *out, const struct ek_opt *opt)
{
    char flag[EK_OPT_NAME_CAP];
    const char *value = placeholder(opt);
    int rc = ek_buf_add_str(out, ".TP\n");
    if (!rc && opt->letter)
        rc = ek_buf_addf(out, "\\fB\\-%c\\fR, ", opt->letter);
    if (!rc)
        rc = ek_roff_add_str(out, "\\fB\\-\\-", ek_opt_flag(flag, opt->name), "\\fR");
    if (!rc && value)
        rc = ek_roff_add_str(out, " \\fI", value, "\\fR");
    struct ek_buf text;
    ek_buf_init(&text, MAX_ENTRY);
    if (!rc)
        rc = add_description(&text, opt);
    if (!rc)
        rc = ek_roff_add_str(out, "\n", text.data, "\n");
    ek_buf_release(&text);
    return rc;
}

static int add_man_key(struct ek_buf *out, const struct ek_opt *opt, const char *of)
{
    const char *value = opt->type == EK_OPT_FLAG ? "true|false" : placeholder(opt);
    int rc = ek_roff_add_str(out, ".TP\n\\fB", of, *of ? "[]." : "");
    if (!rc)
        rc = ek_roff_add_str(out, "", opt->name, "\\fR");
    if (!rc)
        rc = ek_roff_add_str(out, " \\fI", value, "\\fR");
    struct ek_buf text;
    ek_buf_init(&text, MAX_ENTRY);
    if (!rc)
        rc = add_description(&text, opt);
    if (!rc)
        rc = ek_roff_add_str(out, "\n", text.data, "\n");
    ek_buf_release(&text);
    return rc;
}

static int add_man_keys(struct ek_buf *out, const struct ek_opt *keys)
{
    int rc = ek_buf_add_str(out, ".SH KEYS OF THE CONFIGURATION\nIn YAML a section for "
                                 "what stands before the dot; in \\fB\\-\\-set\\fR "
                                 "as they are.\n");
    for (const struct ek_opt *o = keys; !rc && o->name; o++) {
        rc = add_man_key(out, o, "");
        for (const struct ek_opt *k = o->item_keys; !rc && k && k->name; k++)
            rc = add_man_key(out, k, o->name);
    }
    return rc;
}

static int add_man_details(struct ek_buf *out, const char *s)
{
    int rc = 0;
    while (!rc && *s) {
        size_t n;
        bool is_kept;
        size_t step = next_block(s, &n, &is_kept);
        rc = ek_buf_add_str(out, is_kept ? ".PP\n.EX\n" : ".PP\n");
        if (!rc)
            rc = ek_roff_add(out, s, n);
        if (!rc)
            rc = ek_buf_add_str(out, is_kept ? "\n.EE\n" : "\n");
        s += step;
    }
    return rc;
}

/* The verb's name as in its page's: "bench serve" is bench-serve. */
static int add_man_name(struct ek_buf *out, const struct ek_opt_verb *verb,
                        bool is_capital)
{
    int rc = 0;
    for (const char *p = verb->name; !rc && *p; p++) {
        if (*p == ' ')
            rc = ek_buf_add_str(out, "\\-");
        else
            rc = ek_buf_add_char(out,
                                 is_capital ? (char)toupper((unsigned char)*p) : *p);
    }
    return rc;
}

static int add_man_head(struct ek_buf *out, const struct ek_opt_verb *verb)
{
    int rc = ek_buf_add_str(out, ".TH \"KEEL\\-");
    if (!rc)
        rc = add_man_name(out, verb, true);
    if (!rc)
        rc = ek_buf_add_str(out, "\" \"1\" \"\" \"evenkeel " EK_VERSION
                                 "\" \"User Commands\"\n.SH NAME\nkeel\\-");
    if (!rc)
        rc = add_man_name(out, verb, false);
    if (!rc)
        rc = ek_buf_add_str(out, " \\- ");
    if (!rc)
        rc = ek_roff_add_str(out, "", verb->summary, "\n.SH SYNOPSIS\n");
    if (!rc)
        rc = ek_buf_addf(out, ".B keel %s\n[\\fIoptions\\fR]\n", verb->name);
    if (!rc && verb->arguments && *verb->arguments)
        rc = ek_roff_add_str(out, "", verb->arguments, "\n");
    if (!rc && verb->details)
        rc = ek_buf_add_str(out, ".SH DESCRIPTION\n");
    if (!rc && verb->details)
        rc = add_man_details(out, verb->details);
    return rc ? rc : ek_buf_add_str(out, ".SH OPTIONS\n");
}

static const char man_tail[] =
    ".SH CONFIGURATION FILE\n"
    "The file of \\fB\\-\\-config\\fR is YAML: one mapping whose keys are the long "
    "flags\n"
    "with _ for \\-, whose values are written as on the command line, and lists where "
    "a\n"
    "flag may be repeated. An unknown key is an error.\n"
    "A flag overrides \\fB\\-\\-set\\fR, which overrides the file, which overrides "
    "the\n"
    "default.\n"
    ".SH EXIT STATUS\n"
    "0 done, 1 failed while running, 2 bad usage or configuration, 3 bad input file,\n"
    "130 interrupted.\n";

int ek_opt_man(struct ek_buf *out, const struct ek_opt_verb *verb)
{
    int rc = add_man_head(out, verb);
    if (!rc)
        rc = for_each(out, verb, add_man_entry);
    if (!rc && verb->keys)
        rc = add_man_keys(out, verb->keys);
    if (!rc)
        rc = ek_buf_add_str(out, man_tail);
    if (!rc && verb->examples)
        rc = ek_roff_add_str(out, ".SH EXAMPLES\n.EX\n", verb->examples, "\n.EE\n");
    return rc ? rc : ek_buf_add_str(out, ".SH SEE ALSO\n.BR keel (1)\n");
}

static int add_words(struct ek_buf *out, const struct ek_opt *opt)
{
    char flag[EK_OPT_NAME_CAP];
    const char *value = opt->type == EK_OPT_CHOICE ? opt->choices : placeholder(opt);
    ek_opt_flag(flag, opt->name);
    int rc = ek_buf_addf(out, "--%s%s%s\n", flag, value ? " " : "", value ? value : "");
    bool is_on_off = opt->type == EK_OPT_FLAG && !opt->is_flag_only;
    if (!rc && is_on_off)
        rc = ek_buf_addf(out, "--no-%s\n", flag);
    return rc;
}

int ek_opt_words(struct ek_buf *out, const struct ek_opt_verb *verb)
{
    return for_each(out, verb, add_words);
}
