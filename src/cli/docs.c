#include "cli/docs.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/roff.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MAX_PAGE_BYTES (1 << 20)
#define MAX_VERBS      64 /* verbs of verbs included */
#define NAME_CAP       64

static int write_page(const struct ek_buf *page, const char *folder, const char *name,
                      struct ek_err *err)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return ek_err_set(err, EK_ELIMIT, "%s: path is too long", folder);
    return ek_file_write(path, page->data, page->len, err);
}

/* Every verb and behind it those of its own. */
static size_t list_all(const struct ek_verb *all[MAX_VERBS],
                       const struct ek_verb *const *verbs, size_t n)
{
    size_t n_all = 0;
    for (size_t i = 0; i < n; i++) {
        assert(n_all < MAX_VERBS);
        all[n_all++] = verbs[i];
        for (const struct ek_verb *const *s = ek_verb_subs(verbs[i]); s && *s; s++) {
            assert(n_all < MAX_VERBS);
            all[n_all++] = *s;
        }
    }
    return n_all;
}

/* "bench-serve" for "bench serve". */
static const char *page_name(char out[NAME_CAP], const struct ek_verb *verb)
{
    snprintf(out, NAME_CAP, "%s", verb->table->name);
    for (char *p = out; *p; p++)
        *p = *p == ' ' ? '-' : *p;
    return out;
}

static int add_main_page(struct ek_buf *out, const struct ek_verb *const *verbs,
                         size_t n)
{
    char name[NAME_CAP];
    int rc = ek_buf_add_str(out, ".TH \"KEEL\" \"1\" \"\" \"evenkeel " EK_VERSION
                                 "\" \"User Commands\"\n"
                                 ".SH NAME\nkeel \\- keep uneven AI work level\n"
                                 ".SH SYNOPSIS\n.B keel\n\\fIverb\\fR\n"
                                 "[\\fIoptions\\fR]\n[\\fIarguments\\fR]\n"
                                 ".SH DESCRIPTION\nEach verb is a program of its own "
                                 "with its own page.\n");
    for (size_t i = 0; !rc && i < n; i++) {
        rc = ek_roff_add_str(out, ".TP\n\\fBkeel ", verbs[i]->table->name, "\\fR\n");
        if (!rc)
            rc = ek_roff_add_str(out, "", verbs[i]->table->summary, "\n");
    }
    if (!rc)
        rc =
            ek_buf_add_str(out, ".SH OPTIONS\n.TP\n\\fB\\-\\-help\\fR\n"
                                "list the verbs; behind a verb, its options\n"
                                ".TP\n\\fB\\-\\-version\\fR\nshow the version\n"
                                ".SH EXIT STATUS\n"
                                "0 done, 1 failed while running, 2 bad usage or "
                                "configuration, 3 bad input file,\n130 interrupted.\n");
    if (!rc && n)
        rc = ek_buf_add_str(out, ".SH SEE ALSO\n");
    for (size_t i = 0; !rc && i < n; i++)
        rc = ek_roff_add_str(out, ".BR keel\\-", page_name(name, verbs[i]),
                             i + 1 < n ? " (1),\n" : " (1)\n");
    return rc;
}

/* The words of a verb are lines "--flag" or "--flag VALUE" or "--flag a|b|c"; quotes
 * cannot be in them. */
static const char bash_head[] =
    "# Completion for keel(1), made from its options tables.\n"
    "_keel_words() {\n"
    "    case $1 in\n";
static const char bash_tail[] =
    "_keel() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
    "    local flag value flags= verb=${COMP_WORDS[1]} subs=\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$_keel_verbs --help --version\" -- "
    "\"$cur\")\n"
    "        return\n"
    "    fi\n"
    "    subs=$(_keel_subs \"$verb\")\n"
    "    if [[ -n $subs ]] && ((COMP_CWORD > 2)); then\n"
    "        verb+=\" ${COMP_WORDS[2]}\" subs=\n"
    "    fi\n"
    "    while read -r flag value; do\n"
    "        flags+=\" $flag\"\n"
    "        if [[ $flag == \"$prev\" && $value == *'|'* ]]; then\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"${value//|/ }\" -- \"$cur\")\n"
    "            return\n"
    "        fi\n"
    "    done < <(_keel_words \"$verb\")\n"
    "    if [[ $cur == -* ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\")\n"
    "    elif [[ -n $subs ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$subs\" -- \"$cur\")\n"
    "    else\n"
    "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _keel keel\n";

/* `_keel_subs VERB`: the words of the verb's own verbs. */
static int add_subs(struct ek_buf *out, const struct ek_verb *const *all, size_t n)
{
    int rc = ek_buf_add_str(out, "_keel_subs() {\n    case $1 in\n");
    for (size_t i = 0; !rc && i < n; i++) {
        const struct ek_verb *const *subs = ek_verb_subs(all[i]);
        if (!subs)
            continue;
        rc = ek_buf_addf(out, "    %s) echo '", all[i]->table->name);
        for (const struct ek_verb *const *s = subs; !rc && *s; s++)
            rc = ek_buf_addf(out, "%s ", ek_verb_word(*s));
        if (!rc)
            rc = ek_buf_add_str(out, "' ;;\n");
    }
    return rc ? rc : ek_buf_add_str(out, "    esac\n}\n");
}

static int add_completion(struct ek_buf *out, const struct ek_verb *const *all,
                          size_t n)
{
    int rc = ek_buf_add_str(out, bash_head);
    for (size_t i = 0; !rc && i < n; i++) {
        rc = ek_buf_addf(out, "    '%s') echo '", all[i]->table->name);
        if (!rc)
            rc = ek_opt_words(out, all[i]->table);
        if (!rc)
            rc = ek_buf_add_str(out, "' ;;\n");
    }
    if (!rc)
        rc = ek_buf_add_str(out, "    esac\n}\n");
    if (!rc)
        rc = add_subs(out, all, n);
    if (!rc)
        rc = ek_buf_add_str(out, bash_tail);
    if (!rc)
        rc = ek_buf_add_str(out, "_keel_verbs='");
    const char *join = "";
    for (size_t i = 0; !rc && i < n; i++) {
        if (strchr(all[i]->table->name, ' '))
            continue;
        rc = ek_buf_addf(out, "%s%s", join, all[i]->table->name);
        join = " ";
    }
    return rc ? rc : ek_buf_add_str(out, "'\n");
}

static int write_verb_page(struct ek_buf *page, const char *folder,
                           const struct ek_verb *verb, struct ek_err *err)
{
    char page_of[NAME_CAP], name[NAME_CAP + 8];
    snprintf(name, sizeof name, "keel-%s.1", page_name(page_of, verb));
    ek_buf_reset(page);
    int rc = ek_opt_man(page, verb->table);
    if (rc)
        return ek_err_set(err, rc, "%s: %s", name, ek_status_text(rc));
    return write_page(page, folder, name, err);
}

int ek_docs_write(const char *folder, const struct ek_verb *const *verbs, size_t n,
                  struct ek_err *err)
{
    struct ek_buf page;
    const struct ek_verb *all[MAX_VERBS];
    size_t n_all = list_all(all, verbs, n);
    ek_buf_init(&page, MAX_PAGE_BYTES);
    int rc = add_main_page(&page, all, n_all);
    if (!rc)
        rc = write_page(&page, folder, "keel.1", err);
    for (size_t i = 0; !rc && i < n_all; i++)
        rc = write_verb_page(&page, folder, all[i], err);
    ek_buf_reset(&page);
    if (!rc)
        rc = add_completion(&page, all, n_all);
    if (!rc)
        rc = write_page(&page, folder, "keel.bash", err);
    if (rc && err && !err->status)
        ek_err_set(err, rc, "%s: %s", folder, ek_status_text(rc));
    ek_buf_release(&page);
    return rc;
}
