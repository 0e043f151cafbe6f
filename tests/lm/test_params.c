/* test_params.c - hyperparameters from both containers: what families mean, what is
 * refused and how the sentence names it. */
#include "lm/kit.h"

#include <math.h>

/* -- a GGUF file of metadata alone ------------------------------------------------ */

#define MAX_KEYS 32

struct entry {
    const char *key; /* NULL: dropped */
    enum ek_gguf_type type;
    double number;
    const char *text;
};

struct file {
    struct entry e[MAX_KEYS];
    size_t n;
    struct ek_buf bytes;
    struct ek_modelfile m;
};

static void put(struct file *f, const char *key, enum ek_gguf_type type, double number,
                const char *text)
{
    size_t i = 0;
    while (i < f->n && (!f->e[i].key || strcmp(f->e[i].key, key) != 0))
        i++;
    assert_in_range(i, 0, MAX_KEYS - 1);
    f->n = i == f->n ? i + 1 : f->n;
    f->e[i] = (struct entry){key, type, number, text};
}

static void put_u32(struct file *f, const char *key, double v)
{
    put(f, key, EK_GGUF_U32, v, NULL);
}

static void put_f32(struct file *f, const char *key, double v)
{
    put(f, key, EK_GGUF_F32, v, NULL);
}

static void drop(struct file *f, const char *key)
{
    for (size_t i = 0; i < f->n; i++) {
        if (f->e[i].key && !strcmp(f->e[i].key, key))
            f->e[i].key = NULL;
    }
}

/* A sound llama; keys of another architecture are put by the test. */
static void begin(struct file *f)
{
    memset(f, 0, sizeof *f);
    put(f, "general.architecture", EK_GGUF_STR, 0, "llama");
    put(f, "general.name", EK_GGUF_STR, 0, "tiny");
    put_u32(f, "llama.block_count", 3);
    put_u32(f, "llama.context_length", 2048);
    put_u32(f, "llama.embedding_length", 48);
    put_u32(f, "llama.feed_forward_length", 96);
    put_u32(f, "llama.attention.head_count", 6);
    put_u32(f, "llama.attention.head_count_kv", 2);
    put_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5);
    put_u32(f, "llama.vocab_size", 320);
}

static void add(struct ek_buf *b, const void *p, size_t n)
{
    assert_int_equal(ek_buf_add(b, p, n), 0);
}

static void add_u64(struct ek_buf *b, uint64_t v)
{
    add(b, &v, sizeof v);
}

static void add_str(struct ek_buf *b, const char *s)
{
    add_u64(b, strlen(s));
    add(b, s, strlen(s));
}

static void add_entry(struct ek_buf *b, const struct entry *e)
{
    uint32_t type = e->type, u = (uint32_t)(e->number < 0 ? 0 : e->number);
    float f = (float)e->number;
    add_str(b, e->key);
    add(b, &type, sizeof type);
    if (e->type == EK_GGUF_STR) {
        add_str(b, e->text);
    } else if (e->type == EK_GGUF_F32) {
        add(b, &f, sizeof f);
    } else if (e->type == EK_GGUF_ARRAY) { /* of bools: "0110" */
        uint32_t elem = EK_GGUF_BOOL;
        add(b, &elem, sizeof elem);
        add_u64(b, strlen(e->text));
        for (const char *c = e->text; *c; c++)
            add(b, &(char){(char)(*c == '1')}, 1);
    } else {
        add(b, &u, sizeof u);
    }
}

static int read_gguf(struct ek_lm_params *p, struct file *f, struct ek_err *err)
{
    static char name[] = "tiny.gguf";
    uint64_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += f->e[i].key != NULL;
    ek_buf_init(&f->bytes, 1 << 20);
    add(&f->bytes, "GGUF\3\0\0\0", 8);
    add_u64(&f->bytes, 0);
    add_u64(&f->bytes, n);
    for (size_t i = 0; i < f->n; i++) {
        if (f->e[i].key)
            add_entry(&f->bytes, &f->e[i]);
    }
    memset(&f->m, 0, sizeof f->m);
    f->m.path = name;
    int rc = ek_gguf_parse(&f->m.gguf, f->bytes.data, f->bytes.len, name, err);
    if (rc)
        fail_msg("%s", err->text);
    f->m.tensors = ek_gguf_tensors(f->m.gguf);
    rc = ek_lm_params_read(p, &f->m, err);
    ek_gguf_free(f->m.gguf);
    ek_buf_release(&f->bytes);
    return rc;
}

/* Reading f fails with `status` and a sentence that holds each of the words. */
static void expect_gguf(struct file *f, int status, const char *a, const char *b)
{
    struct ek_lm_params p = {.C = -7};
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(read_gguf(&p, f, &err), status);
    if (!strstr(err.text, a) || !strstr(err.text, b) || !strstr(err.text, "tiny.gguf"))
        fail_msg("'%s' does not name '%s' and '%s'", err.text, a, b);
    assert_int_equal(p.C, -7);
}

static void a_llama_file_is_described(void **state)
{
    (void)state;
    struct file f;
    struct ek_lm_params p;
    struct ek_err err = EK_ERR_INIT;
    begin(&f);
    put_f32(&f, "llama.rope.freq_base", 5e5);
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_string_equal(p.arch, "llama");
    assert_string_equal(p.name, "tiny");
    assert_int_equal(p.n_layers, 3);
    assert_int_equal(p.D, 8);
    assert_int_equal(p.V, 320);
    assert_true(p.rope.is_interleaved && p.rope.base == 5e5 && p.rope.n_dims == 8);
    assert_true(p.is_tied && !p.has_qkv_bias && !p.has_qk_norm && !p.has_post_norms);
    assert_int_equal(p.window, 0);
    assert_true(fabsf(p.attn_scale - 1.0f / sqrtf(8.0f)) < 1e-7f);
    assert_int_equal(ek_lm_kv_elems(&p), 2 * 3 * 2 * 8);
}

static void unknown_architectures_are_named_with_the_known_ones(void **state)
{
    (void)state;
    struct file f;
    begin(&f);
    put(&f, "general.architecture", EK_GGUF_STR, 0, "mamba");
    expect_gguf(&f, EK_EUNSUP, "'mamba'", "qwen3");
    drop(&f, "general.architecture");
    expect_gguf(&f, EK_EFORMAT, "general.architecture", "missing");
    begin(&f);
    put_u32(&f, "llama.expert_count", 8);
    expect_gguf(&f, EK_EUNSUP, "llama.expert_count", "8");
}

static void missing_values_are_named(void **state)
{
    (void)state;
    static const char *const needed[] = {"llama.block_count",
                                         "llama.context_length",
                                         "llama.embedding_length",
                                         "llama.feed_forward_length",
                                         "llama.attention.head_count",
                                         "llama.attention.layer_norm_rms_epsilon",
                                         "llama.vocab_size"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        struct file f;
        begin(&f);
        drop(&f, needed[i]);
        expect_gguf(&f, EK_EFORMAT, needed[i], "missing");
    }
}

static void impossible_values_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool is_real;
        const char *word;
    } cases[] = {
        {"llama.block_count", 0, false, "0"},
        {"llama.block_count", 513, false, "513"},
        {"llama.embedding_length", 4e9, false, "llama.embedding_length"},
        {"llama.feed_forward_length", 2e6, false, "2000000"},
        {"llama.attention.head_count", 0, false, "head_count"},
        {"llama.attention.head_count_kv", 4, false, "multiple"},
        {"llama.attention.key_length", 7, false, "7"},
        {"llama.attention.key_length", 512, false, "512"},
        {"llama.attention.value_length", 16, false, "16"},
        {"llama.rope.dimension_count", 10, false, "10"},
        {"llama.rope.dimension_count", 3, false, "3"},
        {"llama.rope.freq_base", 0.5, true, "0.5"},
        {"llama.rope.freq_base", (double)INFINITY, true, "inf"},
        {"llama.rope.scaling.factor", 0.25, true, "0.25"},
        {"llama.attention.layer_norm_rms_epsilon", -1, true, "-1"},
        {"llama.attention.layer_norm_rms_epsilon", (double)NAN, true, "nan"},
        {"llama.final_logit_softcapping", -2, true, "-2"},
        {"llama.attention.scale", (double)INFINITY, true, "inf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct file f;
        begin(&f);
        put(&f, cases[i].key, cases[i].is_real ? EK_GGUF_F32 : EK_GGUF_U32,
            cases[i].value, NULL);
        struct ek_lm_params p;
        struct ek_err err = EK_ERR_INIT;
        int rc = read_gguf(&p, &f, &err);
        if (rc != EK_EFORMAT && rc != EK_EUNSUP)
            fail_msg("%s %g was accepted", cases[i].key, cases[i].value);
        if (!strstr(err.text, cases[i].word))
            fail_msg("'%s' does not name '%s'", err.text, cases[i].word);
    }
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    struct file f;
    begin(&f);
    put(&f, "llama.block_count", EK_GGUF_STR, 0, "three");
    expect_gguf(&f, EK_EFORMAT, "llama.block_count", "tiny");
    begin(&f);
    put(&f, "llama.attention.head_count_kv", EK_GGUF_ARRAY, 0, "111");
    expect_gguf(&f, EK_EFORMAT, "llama.attention.head_count_kv", "tiny");
}

static void gguf_scalings_are_read(void **state)
{
    (void)state;
    struct file f;
    struct ek_lm_params p;
    struct ek_err err = EK_ERR_INIT;
    begin(&f);
    put_f32(&f, "llama.rope.scaling.factor", 4);
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(p.rope.scaling == EK_ROPE_LINEAR && p.rope.factor == 4);
    put(&f, "llama.rope.scaling.type", EK_GGUF_STR, 0, "yarn");
    put_u32(&f, "llama.rope.scaling.original_context_length", 512);
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(p.rope.scaling == EK_ROPE_YARN && p.rope.original_ctx == 512);
    assert_true(fabs(p.rope.mscale - (0.1 * log(4) + 1)) < 1e-9);
    put(&f, "llama.rope.scaling.type", EK_GGUF_STR, 0, "none");
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(p.rope.scaling == EK_ROPE_NONE && p.rope.factor == 1);
    put(&f, "llama.rope.scaling.type", EK_GGUF_STR, 0, "longrope");
    expect_gguf(&f, EK_EUNSUP, "'longrope'", "yarn");
}

static void windows_and_patterns_are_read(void **state)
{
    (void)state;
    struct file f;
    struct ek_lm_params p;
    struct ek_err err = EK_ERR_INIT;
    begin(&f);
    put_u32(&f, "llama.attention.sliding_window", 64);
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(p.window == 64 && p.is_local[0] && p.is_local[1] && p.is_local[2]);
    put_u32(&f, "llama.attention.sliding_window_pattern", 2);
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(p.is_local[0] && !p.is_local[1] && p.is_local[2]);
    put(&f, "llama.attention.sliding_window_pattern", EK_GGUF_ARRAY, 0, "001");
    assert_int_equal(read_gguf(&p, &f, &err), 0);
    assert_true(!p.is_local[0] && !p.is_local[1] && p.is_local[2]);
    put(&f, "llama.attention.sliding_window_pattern", EK_GGUF_ARRAY, 0, "01");
    expect_gguf(&f, EK_EFORMAT, "sliding_window_pattern", "3 layers");
}

/* -- config.json ------------------------------------------------------------------ */

#define LLAMA                                                                          \
    "\"model_type\":\"llama\",\"num_hidden_layers\":3,\"hidden_size\":48,"             \
    "\"intermediate_size\":96,\"num_attention_heads\":6,\"num_key_value_heads\":2,"    \
    "\"vocab_size\":320,\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-5"
#define QWEN3                                                                          \
    "\"model_type\":\"qwen3\",\"num_hidden_layers\":3,\"hidden_size\":48,"             \
    "\"intermediate_size\":96,\"num_attention_heads\":6,\"vocab_size\":320"

static int read_hf(struct ek_lm_params *p, const char *members, struct ek_err *err)
{
    static char name[] = "folder";
    static const struct ek_tensors none = {NULL, 0, NULL};
    char text[2048];
    struct ek_modelfile m = {.path = name, .tensors = &none};
    int n = snprintf(text, sizeof text, "{%s}", members);
    assert_in_range(n, 2, sizeof text - 1);
    if (ek_json_parse(&m.config, text, (size_t)n, &(struct ek_json_limits){0}, err))
        fail_msg("%s", err->text);
    int rc = ek_lm_params_read(p, &m, err);
    json_decref(m.config);
    return rc;
}

static void read_hf_ok(struct ek_lm_params *p, const char *members)
{
    struct ek_err err = EK_ERR_INIT;
    if (read_hf(p, members, &err))
        fail_msg("%s", err.text);
}

static void expect_hf(const char *members, int status, const char *a, const char *b)
{
    struct ek_lm_params p = {.C = -7};
    struct ek_err err = EK_ERR_INIT;
    assert_int_equal(read_hf(&p, members, &err), status);
    if (!strstr(err.text, a) || !strstr(err.text, b) || !strstr(err.text, "folder"))
        fail_msg("'%s' does not name '%s' and '%s'", err.text, a, b);
    assert_int_equal(p.C, -7);
}

static void rope_is_read_in_the_old_and_the_new_form(void **state)
{
    (void)state;
    struct ek_lm_params a, b;
    read_hf_ok(&a,
               LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\","
                     "\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
                     "\"original_max_position_embeddings\":1024}");
    read_hf_ok(&b, LLAMA ",\"rope_parameters\":{\"rope_type\":\"llama3\","
                         "\"rope_theta\":500000,\"factor\":8.0,\"low_freq_factor\":1.0,"
                         "\"high_freq_factor\":4.0,"
                         "\"original_max_position_embeddings\":1024}");
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(a.rope.scaling == EK_ROPE_LLAMA3 && a.rope.base == 5e5 &&
                a.rope.factor == 8 && a.rope.original_ctx == 1024);
    assert_false(a.rope.is_interleaved);
    read_hf_ok(&a, LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}");
    assert_true(a.rope.scaling == EK_ROPE_LINEAR && a.rope.factor == 2.5 &&
                a.rope.base == 1e4);
    read_hf_ok(&a, LLAMA ",\"rope_scaling\":null");
    assert_true(a.rope.scaling == EK_ROPE_NONE);
}

static void yarn_takes_its_attention_factor_where_it_is_given(void **state)
{
    (void)state;
    struct ek_lm_params p;
    read_hf_ok(&p, LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                         "\"original_max_position_embeddings\":512}");
    assert_true(fabs(p.rope.mscale - (0.1 * log(4) + 1)) < 1e-12);
    read_hf_ok(&p, LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,"
                         "\"attention_factor\":1.25,\"beta_fast\":16}");
    assert_true(p.rope.mscale == 1.25 && p.rope.beta_fast == 16 &&
                p.rope.beta_slow == 1 && p.rope.original_ctx == 2048);
    read_hf_ok(&p, LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40,"
                         "\"mscale\":1.0,\"mscale_all_dim\":0.5}");
    assert_true(fabs(p.rope.mscale - (0.1 * log(40) + 1) / (0.05 * log(40) + 1)) <
                1e-12);
}

static void gemma_has_two_ropes_and_its_own_defaults(void **state)
{
    (void)state;
    struct ek_lm_params p;
    read_hf_ok(&p, "\"model_type\":\"gemma3_text\",\"hidden_size\":640,"
                   "\"num_hidden_layers\":18,\"rope_local_base_freq\":20000,"
                   "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8},"
                   "\"sliding_window\":512,\"query_pre_attn_scalar\":64");
    assert_true(p.rope.base == 1e6 && p.rope.scaling == EK_ROPE_LINEAR);
    assert_true(p.rope_local.base == 2e4 && p.rope_local.scaling == EK_ROPE_NONE);
    assert_true(p.is_local[4] && !p.is_local[5] && p.is_local[17 - 1] &&
                !p.is_local[17]);
    assert_true(p.is_tied && p.has_post_norms && p.has_qk_norm);
    assert_true(p.norm_offset == 1.0f && p.attn_scale == 0.125f);
    assert_true(p.glu == EK_GLU_GELU_TANH && p.H == 8 && p.K == 4 && p.D == 256);
    read_hf_ok(&p, "\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":2560,"
                   "\"num_hidden_layers\":34},\"vision_config\":{}");
    assert_true(p.C == 2560 && p.n_layers == 34 && p.window == 4096);
}

static void qwen_uses_its_window_only_when_told(void **state)
{
    (void)state;
    struct ek_lm_params p;
    read_hf_ok(&p, QWEN3 ",\"sliding_window\":64,\"max_window_layers\":1");
    assert_true(p.window == 0 && p.D == 128 && p.K == 6 && !p.is_tied);
    read_hf_ok(&p, QWEN3 ",\"sliding_window\":64,\"max_window_layers\":1,"
                         "\"use_sliding_window\":true,\"head_dim\":16,"
                         "\"tie_word_embeddings\":true");
    assert_true(p.window == 64 && !p.is_local[0] && p.is_local[1] && p.is_local[2]);
    assert_true(p.D == 16 && p.is_tied);
    read_hf_ok(&p, QWEN3 ",\"sliding_window\":64,\"use_sliding_window\":true,"
                         "\"layer_types\":[\"full_attention\",\"sliding_attention\","
                         "\"full_attention\"]");
    assert_true(!p.is_local[0] && p.is_local[1] && !p.is_local[2]);
}

#define QUANTIZED(members) LLAMA ",\"quantization_config\":{" members "}"
#define PACKED(format, weights)                                                        \
    QUANTIZED("\"quant_method\":\"compressed-tensors\",\"format\":\"" format           \
              "\",\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"           \
              "\"weights\":{" weights "}}}")

static void schemes_of_quantised_folders_are_read_or_refused(void **state)
{
    (void)state;
    struct ek_lm_params p;
    read_hf_ok(&p, QUANTIZED("\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                             "\"weight_block_size\":[128,128]"));
    read_hf_ok(&p, QUANTIZED("\"quant_method\":\"fp8\",\"weight_block_size\":null"));
    read_hf_ok(&p, PACKED("pack-quantized",
                          "\"num_bits\":4,\"type\":\"int\",\"actorder\":\"static\""));
    read_hf_ok(&p, PACKED("float-quantized", "\"num_bits\":8,\"type\":\"float\""));
    expect_hf(QUANTIZED("\"quant_method\":\"gptq\""), EK_EUNSUP, "quantization_config",
              "'gptq'");
    expect_hf(QUANTIZED("\"quant_method\":\"fp8\",\"weight_block_size\":[64,128]"),
              EK_EUNSUP, "weight_block_size", "[128, 128]");
    expect_hf(QUANTIZED("\"quant_method\":\"fp8\",\"fmt\":\"e5m2\""), EK_EUNSUP,
              "'e5m2'", "e4m3");
    expect_hf(PACKED("nvfp4-pack-quantized", "\"num_bits\":4"), EK_EUNSUP, "'format'",
              "nvfp4");
    expect_hf(PACKED("pack-quantized", "\"num_bits\":3"), EK_EUNSUP, "'weights'",
              "num_bits 4");
    expect_hf(PACKED("pack-quantized", "\"num_bits\":4,\"actorder\":\"group\""),
              EK_EUNSUP, "'actorder'", "static");
    expect_hf(QUANTIZED("\"quant_method\":\"compressed-tensors\",\"format\":"
                        "\"pack-quantized\",\"sparsity_config\":{\"format\":"
                        "\"sparse-24-bitmask\"}"),
              EK_EUNSUP, "sparse", "dense");
    expect_hf(QUANTIZED("\"quant_method\":\"compressed-tensors\",\"format\":"
                        "\"pack-quantized\",\"config_groups\":[]"),
              EK_EUNSUP, "config_groups", "object");
}

static void configs_that_cannot_be_computed_are_refused(void **state)
{
    (void)state;
    expect_hf("\"model_type\":\"gpt2\"", EK_EUNSUP, "'gpt2'", "mistral");
    expect_hf("\"hidden_size\":4", EK_EFORMAT, "model_type", "missing");
    expect_hf(LLAMA ",\"hidden_act\":\"relu\"", EK_EUNSUP, "hidden_act", "'relu'");
    expect_hf(LLAMA ",\"attention_bias\":true", EK_EUNSUP, "attention_bias", "true");
    expect_hf(LLAMA ",\"mlp_bias\":true", EK_EUNSUP, "mlp_bias", "true");
    expect_hf(LLAMA ",\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}",
              EK_EUNSUP, "'dynamic'", "llama3");
    expect_hf(LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2}",
              EK_EFORMAT, "low_freq_factor", "0 < low < high");
    expect_hf(LLAMA ",\"rope_scaling\":7", EK_EFORMAT, "rope_parameters", "object");
    expect_hf(LLAMA ",\"partial_rotary_factor\":1.5", EK_EFORMAT, "1.5", "at most 1");
    expect_hf(LLAMA ",\"head_dim\":\"8\"", EK_EFORMAT, "head_dim", "a string");
    expect_hf(LLAMA ",\"tie_word_embeddings\":1", EK_EFORMAT, "tie_word_embeddings",
              "true or false");
    expect_hf(QWEN3 ",\"layer_types\":[\"full_attention\"],\"sliding_window\":9,"
                    "\"use_sliding_window\":true",
              EK_EFORMAT, "layer_types", "3");
    expect_hf(QWEN3 ",\"layer_types\":[\"full_attention\",\"chunked_attention\",1],"
                    "\"sliding_window\":9,\"use_sliding_window\":true",
              EK_EUNSUP, "layer_types", "chunked_attention");
    expect_hf(QWEN3 ",\"max_window_layers\":-1,\"sliding_window\":9,"
                    "\"use_sliding_window\":true",
              EK_EFORMAT, "max_window_layers", "number");
    expect_hf("\"model_type\":\"gemma3\",\"text_config\":3", EK_EFORMAT, "text_config",
              "object");
    expect_hf("\"model_type\":\"gemma3_text\",\"attn_logit_softcapping\":50", EK_EUNSUP,
              "attn_logit_softcapping", "null");
    expect_hf("\"model_type\":\"llama\",\"num_hidden_layers\":3,\"hidden_size\":-48",
              EK_EFORMAT, "hidden_size", "-48");
    expect_hf("\"model_type\":\"llama\",\"num_hidden_layers\":2.5", EK_EFORMAT,
              "num_hidden_layers", "whole number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_file_is_described),
        cmocka_unit_test(unknown_architectures_are_named_with_the_known_ones),
        cmocka_unit_test(missing_values_are_named),
        cmocka_unit_test(impossible_values_are_named),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(gguf_scalings_are_read),
        cmocka_unit_test(windows_and_patterns_are_read),
        cmocka_unit_test(rope_is_read_in_the_old_and_the_new_form),
        cmocka_unit_test(yarn_takes_its_attention_factor_where_it_is_given),
        cmocka_unit_test(gemma_has_two_ropes_and_its_own_defaults),
        cmocka_unit_test(qwen_uses_its_window_only_when_told),
        cmocka_unit_test(schemes_of_quantised_folders_are_read_or_refused),
        cmocka_unit_test(configs_that_cannot_be_computed_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
