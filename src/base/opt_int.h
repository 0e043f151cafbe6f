/* opt_int.h - what the files of the options table share.
 *
 *   opt.c        argv, precedence, positional arguments
 *   opt_value.c  one text -> one member, ranges and their words
 *   opt_names.c  names, flags, "did you mean"
 *   opt_yaml.c   the --config file
 *   opt_keys.c   nested keys apart from a command line: from text, to JSON
 *   opt_text.c   --help, man page, completion words
 */
#ifndef EVENKEEL_BASE_OPT_INT_H
#define EVENKEEL_BASE_OPT_INT_H

#include "base/opt.h"

#define EK_OPT_NAME_CAP 64 /* bytes of a name or flag with its NUL */

/* One parse in progress. */
struct ek_opt_parse {
    const struct ek_opt_verb *verb; /* borrowed */
    char *settings;                 /* the caller's struct */
    struct ek_arena *arena;         /* copies of strings, lists */
    struct ek_err *err;             /* may be NULL */
    unsigned *layer_of; /* a layer an option, by ek_opt_index: the last that wrote it */
    const char **places; /* as ek_opt_args has them; NULL: not asked for */
    unsigned layer;      /* 0 defaults, then files, --set, flags */
};

/* --config, --set and --help: in every verb, without a member. */
extern const struct ek_opt ek_opt_common[];

/* opt_value.c: text into the option's member of `settings`. A list gets one item more.
 * Strings are borrowed. Errors: EK_EINVAL "<where>: ...", EK_ENOMEM. */
int ek_opt_store(const struct ek_opt_parse *p, const struct ek_opt *opt,
                 const char *text, const char *where) EK_MUST_USE;

/* "a whole number from 1 to 256": what a value of this option must be. Returns out. */
const char *ek_opt_expected(char out[256], const struct ek_opt *opt);

/* "1 to 256", "at least 1"; false when the option has no bounds. */
bool ek_opt_range(char out[128], const struct ek_opt *opt);

/* opt_names.c: the option of that name among the verb's, then the common ones. */
const struct ek_opt *ek_opt_find(const struct ek_opt_verb *verb, const char *name);

/* The same in one table, which may be NULL. */
const struct ek_opt *ek_opt_find_in(const struct ek_opt *table, const char *name);

/* Into out: the section nearest to name; NULL: none is near. */
const char *ek_opt_near_section(char out[EK_OPT_NAME_CAP],
                                const struct ek_opt_verb *verb, const char *name);

/* Whether a key begins with name and a dot. */
bool ek_opt_is_section(const struct ek_opt_verb *verb, const char *name);

/* Entries of a table; 0 for NULL. The verb's options come first, then its keys. */
size_t ek_opt_count(const struct ek_opt *table);
size_t ek_opt_index(const struct ek_opt_verb *verb, const struct ek_opt *opt);
const struct ek_opt *ek_opt_find_letter(const struct ek_opt_verb *verb, char letter);

/* "kv_dtype" -> "kv-dtype". Returns out. */
const char *ek_opt_flag(char out[EK_OPT_NAME_CAP], const char *name);

/* The option whose name is nearest to `word`, - and _ being the same; NULL when none
 * is near. Keys only: those that a file may hold, in the end one of another section. */
const struct ek_opt *ek_opt_near(const struct ek_opt_verb *verb, const char *word,
                                 bool is_key);

/* opt.c: stores at the parse's layer; the first write of a layer empties a list. */
int ek_opt_apply(struct ek_opt_parse *p, const struct ek_opt *opt, const char *text,
                 const char *where) EK_MUST_USE;
void ek_opt_empty_list(struct ek_opt_parse *p, const struct ek_opt *opt);

/* Remembers where a key was set; nothing for an option. Errors: EK_ENOMEM. */
int ek_opt_set_place(const struct ek_opt_parse *p, const struct ek_opt *opt,
                     const char *place) EK_MUST_USE;

/* The option that `key` of a file or of --set names; NULL and an error "<where>: ..."
 * when there is none or it can only be a flag. */
const struct ek_opt *ek_opt_key(const struct ek_opt_parse *p, const char *key,
                                const char *where);

/* opt.c: what every parse begins with. */
void ek_opt_apply_defaults(struct ek_opt_parse *p);

/* opt_yaml.c: applies every key of the file, or of text[0,n), at the parse's layer.
 * flag: what named the file, for the error that it cannot be read; may be NULL. */
int ek_opt_load_yaml(struct ek_opt_parse *p, const char *path,
                     const char *flag) EK_MUST_USE;
int ek_opt_load_text(struct ek_opt_parse *p, const char *name, const char *text,
                     size_t n) EK_MUST_USE;

#endif
