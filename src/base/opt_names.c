#include "base/opt_int.h"

#include <string.h>

const struct ek_opt ek_opt_common[] = {
    {.name = "config",
     .type = EK_OPT_STR,
     .value = "FILE",
     .help = "read options from a YAML file: the keys are the long flags with _ for -",
     .is_flag_only = true},
    {.name = "set",
     .type = EK_OPT_LIST,
     .value = "KEY=VALUE",
     .help = "set an option by its key; overrides the file, a flag overrides it",
     .is_flag_only = true},
    {.name = "help",
     .letter = 'h',
     .type = EK_OPT_FLAG,
     .help = "show this text",
     .is_flag_only = true},
    {0},
};

const struct ek_opt *ek_opt_find_in(const struct ek_opt *table, const char *name)
{
    for (const struct ek_opt *o = table; o && o->name; o++) {
        if (!strcmp(o->name, name))
            return o;
    }
    return NULL;
}

const struct ek_opt *ek_opt_find(const struct ek_opt_verb *verb, const char *name)
{
    const struct ek_opt *o = ek_opt_find_in(verb->opts, name);
    return o ? o : ek_opt_find_in(ek_opt_common, name);
}

bool ek_opt_is_section(const struct ek_opt_verb *verb, const char *name)
{
    size_t n = strlen(name);
    for (const struct ek_opt *o = verb->keys; o && o->name; o++) {
        if (!strncmp(o->name, name, n) && o->name[n] == '.')
            return true;
    }
    return false;
}

size_t ek_opt_count(const struct ek_opt *table)
{
    size_t n = 0;
    while (table && table[n].name)
        n++;
    return n;
}

size_t ek_opt_index(const struct ek_opt_verb *verb, const struct ek_opt *opt)
{
    size_t n = ek_opt_count(verb->opts);
    if (opt >= verb->opts && opt < verb->opts + n)
        return (size_t)(opt - verb->opts);
    return n + (size_t)(opt - verb->keys);
}

const struct ek_opt *ek_opt_find_letter(const struct ek_opt_verb *verb, char letter)
{
    for (const struct ek_opt *o = verb->opts; o->name; o++) {
        if (o->letter == letter)
            return o;
    }
    for (const struct ek_opt *o = ek_opt_common; o->name; o++) {
        if (o->letter == letter)
            return o;
    }
    return NULL;
}

static void swap_char(char *out, const char *in, char from, char to)
{
    size_t i = 0;
    for (; i < EK_OPT_NAME_CAP - 1 && in[i]; i++)
        out[i] = in[i] == from ? to : in[i];
    out[i] = 0;
}

const char *ek_opt_flag(char out[EK_OPT_NAME_CAP], const char *name)
{
    swap_char(out, name, '_', '-');
    return out;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Edits (insert, delete, replace, swap of neighbours) from a to b: optimal string
 * alignment, three rows of the table at a time. Both are shorter than the cap. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][EK_OPT_NAME_CAP];
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3];
        const size_t *up = rows[(i + 2) % 3], *up2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t differ = a[i - 1] != b[j - 1];
            row[j] = min3(up[j] + 1, row[j - 1] + 1, up[j - 1] + differ);
            bool is_swap =
                i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swap && up2[j - 2] + 1 < row[j])
                row[j] = up2[j - 2] + 1;
        }
    }
    return rows[na % 3][nb];
}

/* The distance when it is at most a third of the word, else SIZE_MAX. */
static size_t near_distance(const char *word, const char *name)
{
    size_t n = strlen(word), m = strlen(name);
    if (n >= EK_OPT_NAME_CAP || m >= EK_OPT_NAME_CAP)
        return SIZE_MAX;
    size_t d = distance(word, n, name, m);
    return d <= n / 3 ? d : SIZE_MAX;
}

const char *ek_opt_nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t d = near_distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static const char *behind_dot(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The key whose last part is nearest to that of `name`: the right word in the wrong
 * section. */
static const struct ek_opt *near_elsewhere(const struct ek_opt *keys, const char *name)
{
    const struct ek_opt *best = NULL;
    size_t least = SIZE_MAX;
    for (const struct ek_opt *o = keys; o && o->name; o++) {
        size_t d = near_distance(behind_dot(name), behind_dot(o->name));
        if (d < least) {
            least = d;
            best = o;
        }
    }
    return best;
}

const struct ek_opt *ek_opt_near(const struct ek_opt_verb *verb, const char *word,
                                 bool is_key)
{
    char name[EK_OPT_NAME_CAP] = "";
    swap_char(name, word, '-', '_');
    const struct ek_opt *const tables[] = {is_key ? verb->keys : NULL, verb->opts,
                                           ek_opt_common};
    const struct ek_opt *best = NULL;
    size_t least = SIZE_MAX;
    for (int i = 0; i < 3; i++) {
        for (const struct ek_opt *o = tables[i]; o && o->name; o++) {
            size_t d = near_distance(name, o->name);
            if (d < least && !(is_key && o->is_flag_only)) {
                least = d;
                best = o;
            }
        }
    }
    if (!best && is_key && !ek_opt_is_section(verb, name))
        best = near_elsewhere(verb->keys, name);
    return best;
}

const char *ek_opt_near_section(char out[EK_OPT_NAME_CAP],
                                const struct ek_opt_verb *verb, const char *name)
{
    size_t least = SIZE_MAX;
    for (const struct ek_opt *o = verb->keys; o && o->name; o++) {
        char section[EK_OPT_NAME_CAP] = "";
        size_t n = strcspn(o->name, ".");
        if (!o->name[n] || n >= sizeof section)
            continue;
        memcpy(section, o->name, n);
        section[n] = 0;
        size_t d = near_distance(name, section);
        if (d < least) {
            least = d;
            memcpy(out, section, n + 1);
        }
    }
    return least < SIZE_MAX ? out : NULL;
}
