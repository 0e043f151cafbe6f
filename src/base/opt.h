/* opt.h - the one table a verb's flags, YAML keys, --help and man page come from.
 *
 * A verb lists its options once; every option writes one member of the verb's settings
 * struct. Flags are --kv-dtype, YAML keys and --set keys are kv_dtype, both derived
 * from the same name. Precedence: default < --config file < --set < flag.
 * An unknown name is refused with the nearest known one ("did you mean ...").
 *
 * A configuration too large for flags is a second table of the verb, `keys`: names with
 * dots ("model.dim"), in YAML as nested mappings, in --set as they are, never flags.
 */
#ifndef EVENKEEL_BASE_OPT_H
#define EVENKEEL_BASE_OPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ek_opt_type {
    EK_OPT_FLAG,   /* bool; --x and --no-x */
    EK_OPT_INT,    /* int64_t, min..max */
    EK_OPT_REAL,   /* double, min..max */
    EK_OPT_STR,    /* const char * */
    EK_OPT_BYTES,  /* int64_t; 512MiB, 4GiB, 1000000 */
    EK_OPT_MS,     /* int64_t milliseconds; 250ms, 30s, 5min; a unit is needed */
    EK_OPT_CHOICE, /* int: index into `choices` */
    EK_OPT_LIST,   /* struct ek_opt_list; the flag may be repeated */
    EK_OPT_ITEMS,  /* struct ek_opt_items; a list of mappings, in files alone */
};

struct ek_opt_list {
    const char **items; /* owned by the arena of the parse */
    size_t n;
};

#define EK_OPT_ITEMS_MAX 16384 /* in one list */

/* Things of one kind that a file lists, each a struct of its own table of keys:
 *   backends:
 *     - name: a
 *       address: 127.0.0.1:9001      */
struct ek_opt_items {
    void *items;         /* (n) structs, owned by the arena of the parse */
    const char **places; /* (n) where each begins: "c.yaml:3:5"; likewise */
    size_t n;
};

struct ek_opt {
    const char *name; /* "kv_dtype"; the flag is --kv-dtype */
    enum ek_opt_type type;
    char letter;          /* short flag, or 0 */
    bool is_flag_only;    /* not a YAML key: --config, --check, --help */
    size_t offset;        /* offsetof(struct settings, member) */
    const char *value;    /* placeholder in help: "N", "FILE", "HOST:PORT" */
    const char *fallback; /* default as text, parsed like a value and shown in help;
                             NULL: zero. One that its own option refuses is a bug */
    const char *choices;  /* "fp8|bf16|f32" for EK_OPT_CHOICE */
    double min, max;      /* EK_OPT_INT, REAL, BYTES, MS; both 0: no bounds, 1e300: none
                             on that side */
    const char *help;     /* one sentence, lower case, no full stop */
    const struct ek_opt *item_keys; /* EK_OPT_ITEMS: of one, ends with {0} */
    size_t item_size;               /* of its struct */
};

struct ek_opt_verb {
    const char *name;          /* "serve" */
    const char *summary;       /* one line */
    const char *arguments;     /* "MODEL", "" for none; shown in usage */
    const char *details;       /* paragraphs: --help's end, man page; may be NULL */
    const char *examples;      /* lines of shell; may be NULL */
    const struct ek_opt *opts; /* ends with {0} */
    const struct ek_opt *keys; /* the same: keys of files and of --set alone, with dots.
                                  May be NULL; no key is named like an option */
    bool is_config_first;      /* the first argument is a --config file, below others */
    int min_args, max_args;
};

/* What a parse leaves beside the settings. */
struct ek_opt_args {
    const char **args; /* positional, borrowed from argv */
    int n_args;
    bool wants_help;     /* --help or -h was there: nothing else was checked */
    const char **places; /* (keys) where each of verb->keys was set: "c.yaml:3:8",
                            "--set"; NULL: its default */
};

/* Fills *settings (zeroed by the caller) from defaults, the YAML file named by
 * --config, --set key=value pairs, and argv[0,argc) (without the verb). `--config` and
 * `--set` are understood in every verb. Strings live in `arena` or argv.
 * Errors: EK_EINVAL with a sentence naming flag or file:line:column, the value and what
 * would be right; those of ek_file_read for the --config file (ceiling 1 MiB);
 * EK_ENOMEM. *settings is then partly filled, and freed with the arena. */
int ek_opt_parse(const struct ek_opt_verb *verb, void *settings,
                 struct ek_opt_args *out, int argc, char *const *argv,
                 struct ek_arena *arena, struct ek_err *err) EK_MUST_USE;

/* A time as EK_OPT_MS takes it; false: it is none. */
bool ek_opt_read_ms(int64_t *ms, const char *text);

/* Where the key was set, ": " behind it, or "" for a default: how an error that is
 * found after parsing begins. Returns out. */
const char *ek_opt_place(char out[512], const struct ek_opt_verb *verb,
                         const struct ek_opt_args *args, const char *key);

/* Fills *settings (zeroed) from the defaults of `keys` and from text[0,n), YAML or JSON
 * named `name` in errors: what ek_opt_keys_json wrote. Errors: as ek_opt_parse. */
int ek_opt_keys_read(const struct ek_opt *keys, void *settings, const char *name,
                     const char *text, size_t n, struct ek_arena *arena,
                     struct ek_err *err) EK_MUST_USE;

/* Every key with its value, as one JSON object with a member a section; reading it
 * gives the same settings. Errors: those of ek_buf_add. */
int ek_opt_keys_json(struct ek_buf *out, const struct ek_opt *keys,
                     const void *settings) EK_MUST_USE;

/* The first key whose value differs between two settings, those named in but[0,n_but)
 * aside; NULL: none. */
const struct ek_opt *ek_opt_keys_differ(const struct ek_opt *keys, const void *a,
                                        const void *b, const char *const *but,
                                        size_t n_but);

/* The value of one option as JSON: numbers, true, "text", lists in []. */
int ek_opt_value_json(struct ek_buf *out, const struct ek_opt *opt,
                      const void *settings) EK_MUST_USE;

/* The same table as text for a terminal, as a man(7) page in section 1, and as words
 * for shell completion: a flag a line, and behind a space its placeholder or choices.
 * `details` are paragraphs, an empty line between; lines that begin with a space stay
 * as they are. Errors: those of ek_buf_add. */
int ek_opt_help(struct ek_buf *out, const struct ek_opt_verb *verb) EK_MUST_USE;
int ek_opt_man(struct ek_buf *out, const struct ek_opt_verb *verb) EK_MUST_USE;
int ek_opt_words(struct ek_buf *out, const struct ek_opt_verb *verb) EK_MUST_USE;

/* The entry of names[0,n) nearest to `word` (edit distance <= 1/3 of its length), or
 * NULL: what "did you mean" offers. */
const char *ek_opt_nearest(const char *word, const char *const *names, size_t n);

#endif
