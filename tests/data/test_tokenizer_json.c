/* tokenizer.json: what is refused and how, and what the two files say together. */
#include "base/mem.h"
#include "tokenizer_make.h"

/* A small byte-level tokenizer, with places to put something else. */
static const char *const good =
    "{'added_tokens':[{'id':6,'content':'<|x|>','special':true,'normalized':false},"
    "{'id':7,'content':'<tool_call>','special':false}],"
    "'normalizer':null,"
    "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false},"
    "'decoder':{'type':'ByteLevel'},"
    "'post_processor':null,"
    "'model':{'type':'BPE','unk_token':null,"
    "'vocab':{'a':0,'b':1,'ab':2,'c':3,'abc':4,'\\u0120':5},"
    "'merges':['a b','ab c']}}";

/* `good` with `from` replaced by `to`, and ' by ". free() it. */
static char *changed(const char *from, const char *to)
{
    const char *at = strstr(good, from);
    assert_non_null(at);
    size_t n = strlen(good) + strlen(to) + 1;
    char *out = malloc(n);
    snprintf(out, n, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    for (char *p = out; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    return out;
}

static int load(struct ek_tokenizer **t, const char *json, const char *config,
                struct ek_err *err)
{
    return ek_tokenizer_from_json(t, json, strlen(json), config,
                                  config ? strlen(config) : 0, "made.json", err);
}

static struct ek_tokenizer *load_changed(const char *from, const char *to,
                                         const char *config)
{
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    char *json = changed(from, to);
    if (load(&t, json, config, &err))
        fail_msg("%s", err.text);
    free(json);
    return t;
}

static void assert_refused(const char *from, const char *to, int status,
                           const char *word)
{
    struct ek_tokenizer *t = NULL;
    struct ek_err err = EK_ERR_INIT;
    char *json = changed(from, to);
    int rc = load(&t, json, NULL, &err);
    if (rc != status)
        fail_msg("%s: %d %s", to, rc, err.text);
    assert_null(t);
    if (!strstr(err.text, word) || strncmp(err.text, "made.json", 9) != 0)
        fail_msg("'%s' does not say '%s'", err.text, word);
    free(json);
}

static void good_file_encodes_and_tells_special_from_marker(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load_changed("'a':0", "'a':0", NULL);
    assert_encodes(t, "abcab c", 7, EK_SPECIALS_PLAIN, "4 2 5 3");
    assert_encodes(t, "a<|x|><tool_call>", 17, EK_SPECIALS_PARSE, "0 6 7");
    assert_true(ek_tokenizer_is_special(t, 6));
    assert_int_equal(ek_tokenizer_piece(t, 6, false).n, 0);
    /* A marker is shown: clients look for it. */
    assert_int_equal(ek_tokenizer_piece(t, 7, false).n, 11);
    /* A user's marker is text; this vocabulary has few of its letters. */
    assert_encodes(t, "<tool_call>", 11, EK_SPECIALS_PLAIN, "3 0");
    assert_int_equal(ek_tokenizer_bos(t), -1);
    ek_tokenizer_free(t);
}

static void unknown_kinds_and_steps_are_refused_by_name(void **state)
{
    (void)state;
    assert_refused("'BPE'", "'Unigram'", EK_EUNSUP, "'Unigram' is not known");
    assert_refused("'BPE'", "'WordPiece'", EK_EUNSUP, "known: BPE");
    assert_refused("'normalizer':null", "'normalizer':{'type':'NFKC'}", EK_EUNSUP,
                   "normalizer: step 'NFKC'");
    assert_refused("'normalizer':null",
                   "'normalizer':{'type':'Sequence','normalizers':[{'type':'NFC'},"
                   "{'type':'Lowercase'}]}",
                   EK_EUNSUP, "'Lowercase'");
    assert_refused("{'type':'ByteLevel','add_prefix_space':false}",
                   "{'type':'Whitespace'}", EK_EUNSUP,
                   "pre_tokenizer: step 'Whitespace'");
    assert_refused("'decoder':{'type':'ByteLevel'}", "'decoder':{'type':'WordPiece'}",
                   EK_EUNSUP, "decoder: step 'WordPiece'");
    assert_refused("'post_processor':null",
                   "'post_processor':{'type':'BertProcessing'}", EK_EUNSUP,
                   "post_processor: step 'BertProcessing'");
    assert_refused("'unk_token':null", "'end_of_word_suffix':'</w>'", EK_EUNSUP,
                   "model.end_of_word_suffix");
    assert_refused("'unk_token':null", "'continuing_subword_prefix':'##'", EK_EUNSUP,
                   "model.continuing_subword_prefix");
    assert_refused("'unk_token':null", "'dropout':0.1", EK_EUNSUP, "model.dropout");
    assert_refused("{'type':'ByteLevel','add_prefix_space':false}",
                   "{'type':'Sequence','pretokenizers':[{'type':'ByteLevel',"
                   "'add_prefix_space':false},{'type':'Digits'}]}",
                   EK_EUNSUP, "a step after ByteLevel");
}

static void regular_expressions_that_do_not_compile_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int status;
        const char *word;
    } cases[] = {
        {"(a", EK_EFORMAT, "parenthes"},
        {"[a", EK_EUNSUP, "a set without its end"},
        {"\\\\h", EK_EUNSUP, "escape"},
        {"[[:alpha:]]", EK_EUNSUP, "set inside"},
        {"\\\\p{Nope}", EK_EFORMAT, "property"},
        {"\\\\pL", EK_EUNSUP, "braces"},
        {"[a&&b]", EK_EUNSUP, "intersection"},
        {"*", EK_EFORMAT, "quantifier"},
        {"\\\\", EK_EUNSUP, "backslash"},
        {"[\\\\S]", EK_EUNSUP, "in a set"},
        {"[\\\\p{L}&&[^", EK_EUNSUP, "end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char step[400];
        snprintf(step, sizeof step,
                 "{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':"
                 "{'Regex':'%s'},'behavior':'Isolated'},{'type':'ByteLevel'}]}",
                 cases[i].pattern);
        assert_refused("{'type':'ByteLevel','add_prefix_space':false}", step,
                       cases[i].status, cases[i].word);
    }
}

static void bad_tokens_are_refused(void **state)
{
    (void)state;
    assert_refused("'a':0", "'a':-1", EK_EFORMAT, "the id of 'a'");
    assert_refused("'a':0", "'a':'x'", EK_EFORMAT, "the id of 'a'");
    assert_refused("'a':0", "'a':1e9", EK_EFORMAT, "the id of 'a'");
    assert_refused("'a':0", "'a':1000000000", EK_EFORMAT, "from 0 to 65543");
    assert_refused("'a':0", "'a':1", EK_EFORMAT, "share id 1");
    assert_refused("'id':6", "'id':3", EK_EFORMAT, "share id 3");
    assert_refused("'id':6", "'ib':6", EK_EFORMAT, "the id of '<|x|>'");
    assert_refused("'content':'<|x|>'", "'content':''", EK_EFORMAT, "no content");
    assert_refused("'content':'<|x|>'", "'content':7", EK_EFORMAT, "expected a string");
    assert_refused("'content':'<|x|>'", "'content':'a'", EK_EFORMAT, "twice");
    assert_refused("'special':true", "'special':1", EK_EFORMAT, "true or false");
    assert_refused("'vocab':{", "'vocab':[{}],'x':{", EK_EFORMAT, "model.vocab");
    assert_refused("'a':0", "'a':0,'a':9", EK_EFORMAT, "duplicate");
    assert_refused("'unk_token':null", "'unk_token':'?'", EK_EFORMAT,
                   "model.unk_token '?'");
    assert_refused("'model'", "'mode'", EK_EFORMAT, "model: expected an object");
    assert_refused("'added_tokens':[", "'added_tokens':7,'x':[", EK_EFORMAT,
                   "added_tokens");
    assert_refused("{'added_tokens'", "[{'added_tokens'", EK_EFORMAT, "line");
}

static void bad_merges_are_refused(void **state)
{
    (void)state;
    assert_refused("'a b'", "'ab'", EK_EFORMAT, "model.merges[0]");
    assert_refused("'a b'", "'a q'", EK_EFORMAT, "merge 0 'a' + 'q'");
    assert_refused("'a b'", "'b a'", EK_EFORMAT, "their union");
    assert_refused("'a b'", "['a']", EK_EFORMAT, "model.merges[0]");
    assert_refused("'a b'", "['a',5]", EK_EFORMAT, "model.merges[0]");
    assert_refused("'a b'", "['a','']", EK_EFORMAT, "merge 0");
    assert_refused("'a b'", "{}", EK_EFORMAT, "model.merges[0]");
    assert_refused("'merges':[", "'merges':{},'x':[", EK_EFORMAT, "model.merges");
}

static void configuration_names_bos_and_eos(void **state)
{
    (void)state;
    struct ek_tokenizer *t =
        load_changed("'a':0", "'a':0",
                     "{\"bos_token\":{\"content\":\"<|x|>\"},\"eos_token\":\"b\",\"add_"
                     "bos_token\":true}");
    assert_int_equal(ek_tokenizer_bos(t), 6);
    assert_int_equal(ek_tokenizer_eos(t), 1);
    assert_true(ek_tokenizer_is_end(t, 1));
    assert_encodes(t, "a", 1, EK_SPECIALS_PLAIN, "6 0");
    ek_tokenizer_free(t);
    static const char *const bad[] = {
        "{\"bos_token\":\"?\"}",       "[]", "{\"eos_token\":5}",
        "{\"add_bos_token\":\"yes\"}", "{",  ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ek_err err = EK_ERR_INIT;
        char *json = changed("'a':0", "'a':0");
        t = NULL;
        assert_int_equal(load(&t, json, bad[i], &err), EK_EFORMAT);
        assert_non_null(strstr(err.text, "made.json: tokenizer_config"));
        free(json);
    }
}

static void template_asks_for_bos_and_the_configuration_may_refuse(void **state)
{
    (void)state;
    static const char template[] =
        "'post_processor':{'type':'TemplateProcessing','single':[{'SpecialToken':"
        "{'id':'<|x|>','type_id':0}},{'Sequence':{'id':'A','type_id':0}}]}";
    struct ek_tokenizer *t = load_changed("'post_processor':null", template, NULL);
    assert_encodes(t, "a", 1, EK_SPECIALS_PLAIN, "6 0");
    ek_tokenizer_free(t);
    t = load_changed("'post_processor':null", template, "{\"add_bos_token\":false}");
    assert_encodes(t, "a", 1, EK_SPECIALS_PLAIN, "0");
    ek_tokenizer_free(t);
    t = load_changed("'post_processor':null",
                     "'post_processor':{'type':'TemplateProcessing','single':["
                     "{'SpecialToken':{'id':'<|x|>'}},{'SpecialToken':{'id':'c'}},"
                     "{'Sequence':{'id':'A'}},{'SpecialToken':{'id':'b'}}]}",
                     NULL);
    assert_encodes(t, "a", 1, EK_SPECIALS_PLAIN, "6 3 0");
    ek_tokenizer_free(t);
    assert_refused("'post_processor':null",
                   "'post_processor':{'type':'TemplateProcessing','single':"
                   "[{'SpecialToken':{'id':'nobody'}}]}",
                   EK_EFORMAT, "'nobody' is not a token");
}

static void load_prefix(void *arg, const char *text, size_t n)
{
    struct ek_tokenizer *t = NULL;
    size_t whole = *(size_t *)arg;
    int rc = ek_tokenizer_from_json(&t, text, n, NULL, 0, "made.json", NULL);
    assert_int_equal(rc, n == whole ? 0 : EK_EFORMAT);
    ek_tokenizer_free(t);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    char *json = changed("'a':0", "'a':0");
    size_t n = strlen(json);
    ek_each_prefix(json, n, load_prefix, &n);
    free(json);
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    char *json = changed("'normalizer':null", "'normalizer':{'type':'NFC'}");
    EK_EACH_FAILURE (k) {
        struct ek_tokenizer *t = NULL;
        int rc = load(&t, json, "{\"eos_token\":\"b\"}", NULL);
        bool failed = ek_mem_failed();
        /* Without memory for its compiler, PCRE2 interprets: that is no failure. */
        assert_true(rc == 0 || (failed && rc == EK_ENOMEM));
        assert_true(failed || rc == 0);
        ek_tokenizer_free(t);
    }
    free(json);
}

static void translation_writes_out_what_pcre2_reads_differently(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\\s+(?!\\S)",
         "[\\x{9}-\\x{d}\\x{85}\\p{Z}]+(?![^\\x{9}-\\x{d}\\x{85}\\p{Z}])"},
        {"[^\\s\\p{L}]", "[^\\x{9}-\\x{d}\\x{85}\\p{Z}\\p{L}]"},
        {"\\p{Han}\\p{^Lu}", "\\p{sc:Han}\\P{Lu}"},
        {"[\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Z}&&[^a]]",
         "[^\\p{Cc}\\p{Cf}\\p{Cs}\\p{Co}\\p{Cn}a]"},
        {"\\u4e00[\\u4e00-\\u9fa5]", "\\x{4e00}[\\x{4e00}-\\x{9fa5}]"},
        {"\\[\\d\\.", "\\[\\d\\."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ek_buf out;
        struct ek_err err = EK_ERR_INIT;
        ek_buf_init(&out, 1000);
        if (ek_tok_regex_translate(&out, cases[i][0], strlen(cases[i][0]), &err))
            fail_msg("%s", err.text);
        assert_string_equal(out.data, cases[i][1]);
        ek_buf_release(&out);
    }
}

static void runaway_pattern_ends_in_an_error(void **state)
{
    (void)state;
    struct ek_tokenizer *t = load_changed(
        "{'type':'ByteLevel','add_prefix_space':false}",
        "{'type':'Sequence','pretokenizers':[{'type':'Split','pattern':{'Regex':"
        "'(a|aa)+$'},'behavior':'Isolated'},{'type':'ByteLevel',"
        "'add_prefix_space':false,'use_regex':false}]}",
        NULL);
    char text[201];
    struct ek_ids ids;
    memset(text, 'a', 200);
    text[200] = '!';
    ek_ids_init(&ids, 1000);
    assert_int_equal(
        ek_tokenizer_encode(t, &ids, text, 201, NULL, EK_SPECIALS_PLAIN, false),
        EK_ELIMIT);
    assert_int_equal(ids.n, 0);
    ek_ids_release(&ids);
    ek_tokenizer_free(t);
}

static void long_run_of_marks_is_put_in_order_in_proportion(void **state)
{
    (void)state;
    struct ek_tok_norm norm = {.is_nfc = true};
    struct ek_buf in, out;
    ek_buf_init(&in, 1 << 24);
    ek_buf_init(&out, 1 << 24);
    put(&in, "a", 1);
    for (int i = 0; i < 200000; i++)
        put(&in, i % 2 ? "\xcc\xa3" : "\xcc\x81", 2); /* classes 220 and 230 */
    assert_int_equal(ek_tok_normalize(&norm, &out, in.data, in.len, true), 0);
    /* a + U+0323 is U+1EA1; then all other marks below, then those above. */
    assert_memory_equal(out.data, "\xe1\xba\xa1\xcc\xa3", 5);
    assert_memory_equal(out.data + out.len - 2, "\xcc\x81", 2);
    assert_int_equal(out.len, 3 + 2 * (200000 - 1));
    ek_buf_release(&in);
    ek_buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_file_encodes_and_tells_special_from_marker),
        cmocka_unit_test(unknown_kinds_and_steps_are_refused_by_name),
        cmocka_unit_test(regular_expressions_that_do_not_compile_are_refused),
        cmocka_unit_test(bad_tokens_are_refused),
        cmocka_unit_test(bad_merges_are_refused),
        cmocka_unit_test(configuration_names_bos_and_eos),
        cmocka_unit_test(template_asks_for_bos_and_the_configuration_may_refuse),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(translation_writes_out_what_pcre2_reads_differently),
        cmocka_unit_test(runaway_pattern_ends_in_an_error),
        cmocka_unit_test(long_run_of_marks_is_put_in_order_in_proportion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
