/* test_source.c - matrices of quantised folders: read by the published formulas, packed
 * without passing f32, and refused by name where their parts contradict each other. */
#include "base/rng.h"
#include "lm/kit.h"
#include "lm/model_int.h"
#include "lm/source.h"
#include "num/float.h"
#include "num/quant.h"

#include <math.h>

#define MAX_TENSORS 96

/* The golden model mistral (C 48, F 64, 2 layers), some of whose matrices a test keeps
 * in other tensors. */
struct folder {
    struct ek_modelfile m;
    struct ek_tensor items[MAX_TENSORS];
    struct ek_tensors tensors;
    struct ek_rng rng;
    void *owned[32];
    size_t n_owned;
};

#define DOWN "model.layers.0.mlp.down_proj.weight"
#define GATE "model.layers.1.mlp.gate_proj.weight"

#define SCALED "blk.0.ffn_down"

static void open_file(struct folder *f, const char *name)
{
    struct ek_err err = EK_ERR_INIT;
    char path[512];
    memset(f, 0, sizeof *f);
    ek_rng_init(&f->rng, 5);
    if (ek_modelfile_open(&f->m, kit_path(path, name), &err))
        fail_msg("%s", err.text);
    assert_in_range(f->m.tensors->n, 1, MAX_TENSORS - 16);
    memcpy(f->items, f->m.tensors->items, f->m.tensors->n * sizeof f->items[0]);
    f->tensors = (struct ek_tensors){.items = f->items, .n = f->m.tensors->n};
    f->m.tensors = &f->tensors;
}

static void open_folder(struct folder *f)
{
    open_file(f, "mistral");
}

static void close_folder(struct folder *f)
{
    for (size_t i = 0; i < f->n_owned; i++)
        free(f->owned[i]);
    ek_modelfile_close(&f->m);
}

static struct ek_tensor *tensor(struct folder *f, const char *name)
{
    for (size_t i = 0; i < f->tensors.n; i++) {
        if (!strcmp(f->items[i].name, name))
            return &f->items[i];
    }
    fail_msg("no tensor %s", name);
    return NULL;
}

/* A new tensor of zeros; the bytes are the caller's to fill. */
static unsigned char *add(struct folder *f, const char *name, enum ek_dtype t,
                          int64_t rows, int64_t cols)
{
    struct ek_tensor *x = &f->items[f->tensors.n++];
    *x = (struct ek_tensor){
        .name = name, .dtype = t, .n_dims = cols ? 2 : 1, .shape = {rows, cols}};
    assert_int_equal(ek_tensor_bytes(&x->bytes, t, x->shape, x->n_dims), 0);
    unsigned char *p = calloc(x->bytes + 1, 1);
    assert_non_null(p);
    f->owned[f->n_owned++] = p;
    x->data = p;
    return p;
}

static void fill_random(struct folder *f, unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)ek_rng_below(&f->rng, 256);
}

/* A positive bf16 near 0.01: all of its 8 bits in use. */
static uint16_t random_scale(struct folder *f)
{
    return (uint16_t)(0x3c00 + ek_rng_below(&f->rng, 0x100));
}

/* Keeps DOWN (48,64) as int4 with groups of `group` columns. */
static void pack_int4(struct folder *f, int64_t group, bool has_zeros)
{
    struct ek_tensor *codes = tensor(f, DOWN);
    int64_t n = 64 / group;
    unsigned char *p = calloc(48 * 32, 1);
    assert_non_null(p);
    f->owned[f->n_owned++] = p;
    fill_random(f, p, (size_t)48 * 32);
    *codes = (struct ek_tensor){.name = DOWN "_packed",
                                .dtype = EK_DTYPE_I32,
                                .n_dims = 2,
                                .shape = {48, 8},
                                .data = p,
                                .bytes = 48 * 32};
    uint16_t *scale = (void *)add(f, DOWN "_scale", EK_DTYPE_BF16, 48, n);
    for (int64_t i = 0; i < 48 * n; i++)
        scale[i] = random_scale(f);
    int64_t *shape = (void *)add(f, DOWN "_shape", EK_DTYPE_I64, 2, 0);
    shape[0] = 48;
    shape[1] = 64;
    if (has_zeros)
        fill_random(f, add(f, DOWN "_zero_point", EK_DTYPE_I32, 6, n),
                    (size_t)(6 * n * 4));
}

/* Keeps GATE (64,48) as fp8 under scales of (rows,cols). */
static void pack_fp8(struct folder *f, const char *name, int64_t rows, int64_t cols)
{
    struct ek_tensor *codes = tensor(f, GATE);
    unsigned char *p = calloc(64 * 48, 1);
    assert_non_null(p);
    f->owned[f->n_owned++] = p;
    fill_random(f, p, (size_t)64 * 48);
    for (size_t i = 0; i < (size_t)64 * 48; i++)
        p[i] = (p[i] & 127) == 127 ? 0x31 : p[i]; /* no NaN */
    codes->dtype = EK_DTYPE_E4M3;
    codes->data = p;
    codes->bytes = 64 * 48;
    float *scale = (void *)add(f, name, EK_DTYPE_F32, rows, cols);
    for (int64_t i = 0; i < rows * (cols ? cols : 1); i++)
        scale[i] = 0.001f * (float)(1 + ek_rng_below(&f->rng, 1000));
}

/* The file of GGUF, whose SCALED (48,64) is nvfp4 under a scale, which is told. */
static float *open_nvfp4(struct folder *f)
{
    open_file(f, "mistral.gguf");
    struct ek_tensor *codes = tensor(f, SCALED ".weight");
    unsigned char *p = calloc(48, 36);
    assert_non_null(p);
    f->owned[f->n_owned++] = p;
    fill_random(f, p, (size_t)48 * 36);
    for (size_t i = 0; i < (size_t)48 * 36; i++)
        if (i % 36 < 4)
            p[i] = (unsigned char)(0x30 + p[i] % 16);
    codes->dtype = EK_DTYPE_NVFP4;
    codes->data = p;
    codes->bytes = 48 * 36;
    float *scale = (void *)add(f, SCALED ".scale", EK_DTYPE_F32, 1, 0);
    *scale = 0.0037f;
    return scale;
}

/* The formula, word by word from the tensors. */
static float int4_value(struct folder *f, int64_t r, int64_t c)
{
    const uint32_t *words = tensor(f, DOWN "_packed")->data;
    const struct ek_tensor *scale = tensor(f, DOWN "_scale");
    int64_t n = scale->shape[1], g = c / (64 / n);
    int code = (int)(words[r * 8 + c / 8] >> 4 * (c % 8) & 15) - 8, zero = 0;
    for (size_t i = 0; i < f->tensors.n; i++) {
        if (!strcmp(f->items[i].name, DOWN "_zero_point"))
            zero = (int)(((const uint32_t *)f->items[i].data)[r / 8 * n + g] >>
                             4 * (r % 8) &
                         15) -
                   8;
    }
    return ek_bf16_to_f32(((const uint16_t *)scale->data)[r * n + g]) *
           (float)(code - zero);
}

static void find(struct ek_source *s, struct folder *f, const char *name)
{
    struct ek_err err = EK_ERR_INIT;
    if (ek_source_find(s, &f->m, name, &err))
        fail_msg("%s", err.text);
}

static void int4_reads_by_its_formula_in_groups_of_any_width(void **state)
{
    (void)state;
    for (int64_t group = 32; group <= 64; group *= 2) {
        for (int zeros = 0; zeros < 2; zeros++) {
            struct folder f;
            struct ek_source s;
            float got[48 * 64];
            open_folder(&f);
            pack_int4(&f, group, zeros);
            find(&s, &f, DOWN);
            assert_int_equal(s.kind, EK_SOURCE_INT4);
            ek_source_read(got, &s, 0, 48);
            for (int64_t i = 0; i < 48 * 64; i++)
                assert_true(got[i] == int4_value(&f, i / 64, i % 64));
            ek_source_read(got, &s, 7, 9); /* rows in the middle */
            assert_true(got[65] == int4_value(&f, 8, 1));
            close_folder(&f);
        }
    }
}

static void fp8_reads_by_its_formula_with_every_kind_of_scale(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, cols;
    } kinds[] = {{GATE "_scale_inv", 1, 1}, /* the one block of 64x48, or the matrix */
                 {GATE "_scale", 1, 0},
                 {GATE "_scale", 64, 1},
                 {GATE "_scale", 64, 0}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct folder f;
        struct ek_source s;
        float got[64 * 48];
        open_folder(&f);
        pack_fp8(&f, kinds[k].name, kinds[k].rows, kinds[k].cols);
        find(&s, &f, GATE);
        assert_int_equal(s.kind, EK_SOURCE_FP8);
        assert_int_equal(ek_source_has_blocks(&s), kinds[k].rows == 1);
        ek_source_read(got, &s, 0, 64);
        const float *scale = tensor(&f, kinds[k].name)->data;
        const unsigned char *codes = tensor(&f, GATE)->data;
        for (int64_t i = 0; i < 64 * 48; i++)
            assert_true(got[i] == scale[kinds[k].rows == 1 ? 0 : i / 48] *
                                      ek_e4m3_to_f32(codes[i]));
        close_folder(&f);
    }
}

static void nvfp4_is_multiplied_by_the_scale_beside_it(void **state)
{
    (void)state;
    struct folder f;
    struct ek_source s;
    float got[48 * 64], want[48 * 64];
    open_nvfp4(&f);
    find(&s, &f, SCALED ".weight");
    ek_quant_to_f32(want, EK_DTYPE_NVFP4, tensor(&f, SCALED ".weight")->data, 48 * 64);
    ek_source_read(got, &s, 0, 48);
    for (int64_t i = 0; i < 48 * 64; i++)
        assert_true(got[i] == want[i] * 0.0037f);
    ek_source_read(got, &s, 7, 9); /* rows in the middle */
    assert_true(got[65] == want[8 * 64 + 1] * 0.0037f);
    close_folder(&f);
}

static struct ek_lm *load(struct folder *f, struct ek_team *team, enum ek_lm_weights w)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm *lm = NULL;
    struct ek_lm_options o = {.weights = w, .max_batch_tokens = 4};
    if (ek_lm_load(&lm, &f->m, &o, ek_ops_get(EK_ISA_REF), team, &err))
        fail_msg("%s", err.text);
    return lm;
}

/* Largest difference of a packed matrix from its source, relative to `unit`. */
static float worst(const struct ek_weight *w, const struct ek_source *s, float unit)
{
    float a[64], b[64], most = 0;
    for (int64_t r = 0; r < w->N; r++) {
        ek_weight_row(a, w, r);
        ek_source_read(b, s, r, r + 1);
        for (int64_t c = 0; c < w->K; c++)
            most = fmaxf(most, fabsf(a[c] - b[c]) / unit);
    }
    return most;
}

static void codes_and_scales_are_packed_unchanged(void **state)
{
    (void)state;
    for (int zeros = 0; zeros < 2; zeros++) {
        struct ek_err err = EK_ERR_INIT;
        struct ek_team *team = NULL;
        struct folder f;
        struct ek_source down, gate;
        open_folder(&f);
        pack_int4(&f, 32, zeros);
        pack_fp8(&f, GATE "_scale_inv", 1, 1);
        find(&down, &f, DOWN);
        find(&gate, &f, GATE);
        assert_int_equal(ek_team_new(&team, 2, false, &err), 0);
        struct ek_lm *lm = load(&f, team, EK_LM_WEIGHTS_KEEP);
        assert_int_equal(lm->layers[0].w[EK_LM_DECODE][EK_LM_DOWN].format,
                         zeros ? EK_WEIGHT_I4 : EK_WEIGHT_I4S);
        assert_int_equal(lm->layers[1].w[EK_LM_DECODE][EK_LM_GATE].format,
                         EK_WEIGHT_E4M3);
        assert_true(worst(&lm->layers[1].w[EK_LM_DECODE][EK_LM_GATE], &gate, 1) == 0);
        /* Scales are below 1/32: a minimum of at most 15 of them, rounded to f16. */
        float off = worst(&lm->layers[0].w[EK_LM_DECODE][EK_LM_DOWN], &down,
                          15.0f / 32 * 0x1p-11f);
        assert_true(zeros ? off > 0 && off <= 1 : off == 0);
        ek_lm_free(lm);
        lm = load(&f, team, EK_LM_WEIGHTS_F32);
        assert_true(worst(&lm->layers[0].w[EK_LM_DECODE][EK_LM_DOWN], &down, 1) == 0);
        assert_true(worst(&lm->layers[1].w[EK_LM_DECODE][EK_LM_GATE], &gate, 1) == 0);
        ek_lm_free(lm);
        ek_lm_free(load(&f, team, EK_LM_WEIGHTS_FP8));
        ek_lm_free(load(&f, team, EK_LM_WEIGHTS_INT4));
        ek_team_free(team);
        close_folder(&f);
    }
}

static void scales_a_row_become_bf16(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_team *team = NULL;
    struct folder f;
    struct ek_source gate;
    open_folder(&f);
    pack_fp8(&f, GATE "_scale", 64, 1);
    find(&gate, &f, GATE);
    assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
    struct ek_lm *lm = load(&f, team, EK_LM_WEIGHTS_KEEP);
    assert_int_equal(lm->layers[1].w[EK_LM_DECODE][EK_LM_GATE].format, EK_WEIGHT_BF16);
    assert_true(
        worst(&lm->layers[1].w[EK_LM_DECODE][EK_LM_GATE], &gate, 448 * 0x1p-8f) <= 1);
    ek_lm_free(lm);
    ek_team_free(team);
    close_folder(&f);
}

/* Packed in every format, and the same as alone with each number multiplied. */
static void a_scaled_nvfp4_matrix_is_loaded(void **state)
{
    (void)state;
    static const enum ek_lm_weights all[] = {EK_LM_WEIGHTS_KEEP, EK_LM_WEIGHTS_F32,
                                             EK_LM_WEIGHTS_BF16, EK_LM_WEIGHTS_INT8,
                                             EK_LM_WEIGHTS_INT4, EK_LM_WEIGHTS_FP8};
    struct ek_err err = EK_ERR_INIT;
    struct ek_team *team = NULL;
    struct folder f;
    struct ek_source s;
    open_nvfp4(&f);
    find(&s, &f, SCALED ".weight");
    assert_int_equal(ek_team_new(&team, 2, false, &err), 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct ek_lm *lm = load(&f, team, all[i]);
        const struct ek_weight *w = &lm->layers[0].w[EK_LM_DECODE][EK_LM_DOWN];
        /* 6 times a scale of 15/8 is the largest; int4 has 15 steps to its like. */
        float off = worst(w, &s, 6 * 1.875f * 0.0037f);
        assert_true(all[i] == EK_LM_WEIGHTS_F32 ? off == 0 : off < 0.08f);
        ek_lm_free(lm);
    }
    ek_team_free(team);
    close_folder(&f);
}

static void expect(struct folder *f, const char *name, int status, const char *a,
                   const char *b)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_source s;
    assert_int_equal(ek_source_find(&s, &f->m, name, &err), status);
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("'%s' does not name '%s' and '%s'", err.text, a, b);
}

static void parts_that_contradict_each_other_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        int dim;
        int64_t size;
        int status;
        const char *expected;
    } lies[] = {{"_packed", 0, 47, EK_EFORMAT, "(48, 8) of i32"},
                {"_packed", 1, 9, EK_EFORMAT, "(48, 8) of i32"},
                {"_scale", 0, 49, EK_EFORMAT, "(48, groups)"},
                {"_scale", 1, 0, EK_EFORMAT, "(48, groups)"},
                {"_scale", 1, 3, EK_EFORMAT, "(48, groups)"},
                {"_scale", 1, 4, EK_EUNSUP, "16 columns"},
                {"_shape", 0, 3, EK_EFORMAT, "(2) of i64"},
                {"_zero_point", 0, 48, EK_EFORMAT, "(6, 2) of i32"},
                {"_zero_point", 1, 1, EK_EFORMAT, "(6, 2) of i32"}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct folder f;
        char name[128];
        open_folder(&f);
        pack_int4(&f, 32, true);
        snprintf(name, sizeof name, DOWN "%s", lies[i].part);
        tensor(&f, name)->shape[lies[i].dim] = lies[i].size;
        expect(&f, DOWN, lies[i].status, name, lies[i].expected);
        close_folder(&f);
    }
}

static void parts_that_are_missing_or_of_a_wrong_type_are_named(void **state)
{
    (void)state;
    static const char *const parts[] = {"_scale", "_shape"};
    struct folder f;
    open_folder(&f);
    pack_int4(&f, 32, true);
    for (size_t i = 0; i < 2; i++) {
        char name[128];
        snprintf(name, sizeof name, DOWN "%s", parts[i]);
        struct ek_tensor *t = tensor(&f, name);
        const char *kept = t->name;
        t->name = "elsewhere";
        expect(&f, DOWN, EK_EFORMAT, DOWN "_packed", name);
        t->name = kept;
    }
    tensor(&f, DOWN "_scale")->dtype = EK_DTYPE_I16;
    expect(&f, DOWN, EK_EFORMAT, DOWN "_scale", "real numbers");
    add(&f, DOWN "_g_idx", EK_DTYPE_I32, 64, 0);
    expect(&f, DOWN, EK_EUNSUP, "g_idx", "order");
    close_folder(&f);
    open_folder(&f);
    pack_int4(&f, 32, false);
    int64_t *shape = f.owned[2];
    shape[1] = -5;
    expect(&f, DOWN, EK_EFORMAT, "_shape", "-5");
    shape[1] = 60;
    expect(&f, DOWN, EK_EUNSUP, "_packed", "60");
    assert_int_equal(ek_source_find(&(struct ek_source){0}, &f.m, "x.weight", NULL),
                     EK_ENOENT);
    close_folder(&f);
}

static void e4m3_without_scale_is_refused_where_the_folder_is_quantised(void **state)
{
    (void)state;
    struct folder f;
    struct ek_source s;
    open_folder(&f);
    pack_fp8(&f, GATE "_elsewhere", 1, 1);
    find(&s, &f, GATE);
    assert_int_equal(s.kind, EK_SOURCE_PLAIN);
    assert_int_equal(
        json_object_set_new(f.m.config, "quantization_config", json_object()), 0);
    expect(&f, GATE, EK_EFORMAT, "'" GATE "'", GATE "_scale_inv");
    add(&f, GATE "_scale", EK_DTYPE_F32, 3, 1);
    expect(&f, GATE, EK_EFORMAT, GATE "_scale", "(1, 1)");
    close_folder(&f);
}

static void numbers_that_are_not_finite_are_found_in_their_part(void **state)
{
    (void)state;
    struct folder f;
    struct ek_source s;
    const struct ek_tensor *which = NULL;
    size_t at = 0;
    open_folder(&f);
    pack_int4(&f, 32, true);
    pack_fp8(&f, GATE "_scale", 64, 1);
    find(&s, &f, DOWN);
    assert_true(ek_source_check(&s, 0, 48, &which, &at));
    ((uint16_t *)f.owned[1])[13] = 0x7f80; /* row 6 */
    assert_true(ek_source_check(&s, 7, 48, &which, &at));
    assert_false(ek_source_check(&s, 6, 7, &which, &at));
    assert_string_equal(which->name, DOWN "_scale");
    assert_int_equal(at, 13);
    ((uint16_t *)f.owned[1])[13] = 0x4580; /* 4096 */
    assert_false(ek_source_check(&s, 0, 48, &which, &at));
    find(&s, &f, GATE);
    assert_true(ek_source_check(&s, 0, 64, &which, &at));
    ((unsigned char *)f.owned[4])[100] = 0xff;
    assert_false(ek_source_check(&s, 1, 64, &which, &at));
    assert_string_equal(which->name, GATE);
    assert_int_equal(at, 100);
    ((float *)f.owned[5])[63] = NAN;
    assert_false(ek_source_check(&s, 3, 64, &which, &at));
    assert_string_equal(which->name, GATE "_scale");
    assert_int_equal(at, 63);
    close_folder(&f);
}

static void an_nvfp4_scale_must_be_one_usable_number(void **state)
{
    (void)state;
    struct folder f;
    struct ek_source s;
    const struct ek_tensor *which = NULL;
    size_t at = 99;
    float *scale = open_nvfp4(&f);
    find(&s, &f, SCALED ".weight");
    assert_true(ek_source_check(&s, 0, 48, &which, &at));
    *scale = INFINITY;
    assert_false(ek_source_check(&s, 40, 48, &which, &at));
    assert_string_equal(which->name, SCALED ".scale");
    assert_int_equal(at, 0);
    tensor(&f, SCALED ".scale")->shape[0] = 48;
    expect(&f, SCALED ".weight", EK_EFORMAT, SCALED ".scale", "one real number");
    tensor(&f, SCALED ".scale")->shape[0] = 1;
    tensor(&f, SCALED ".scale")->dtype = EK_DTYPE_I32;
    expect(&f, SCALED ".weight", EK_EFORMAT, SCALED ".scale", "one real number");
    close_folder(&f);
}

static void refuse(struct folder *f, struct ek_team *team, const char *a, const char *b)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_lm *lm = NULL;
    struct ek_lm_options o = {.max_batch_tokens = 4};
    assert_int_equal(ek_lm_load(&lm, &f->m, &o, ek_ops_get(EK_ISA_REF), team, &err),
                     EK_EFORMAT);
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("'%s' does not name '%s' and '%s'", err.text, a, b);
}

#define ATTN0 "model.layers.0.self_attn."
#define ATTN1 "model.layers.1.self_attn."

/* One number of a new f32 tensor. */
static float *add_scale(struct folder *f, const char *name, int64_t n)
{
    return (float *)(void *)add(f, name, EK_DTYPE_F32, n, 0);
}

static void scales_of_an_fp8_cache_are_found_under_both_names(void **state)
{
    (void)state;
    struct ek_err err = EK_ERR_INIT;
    struct ek_team *team = NULL;
    struct folder f;
    open_folder(&f);
    assert_int_equal(ek_team_new(&team, 2, false, &err), 0);
    struct ek_lm *lm = load(&f, team, EK_LM_WEIGHTS_KEEP);
    assert_null(lm->kv_scales);
    int32_t K = lm->p.K;
    ek_lm_free(lm);
    add_scale(&f, ATTN0 "k_scale", 1)[0] = 0.25f;
    float *v = add_scale(&f, ATTN1 "v_proj.v_scale", K);
    for (int32_t i = 0; i < K; i++)
        v[i] = 2.0f + (float)i;
    lm = load(&f, team, EK_LM_WEIGHTS_KEEP);
    assert_non_null(lm->kv_scales);
    for (int32_t i = 0; i < K; i++) {
        assert_true(lm->kv_scales[i] == 0.25f);
        assert_true(lm->kv_scales[K + i] == 1.0f);
        assert_true(lm->kv_scales[2 * K + i] == 1.0f);
        assert_true(lm->kv_scales[3 * K + i] == 2.0f + (float)i);
    }
    ek_lm_free(lm);
    ek_team_free(team);
    close_folder(&f);
}

static void a_scale_of_an_fp8_cache_must_be_a_usable_number(void **state)
{
    (void)state;
    static const float bad[] = {0.0f, -1.0f, 1e-20f, 1e20f, INFINITY, NAN};
    struct ek_err err = EK_ERR_INIT;
    struct ek_team *team = NULL;
    struct folder f;
    assert_int_equal(ek_team_new(&team, 1, false, &err), 0);
    open_folder(&f);
    float *k = add_scale(&f, ATTN0 "k_scale", 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        k[0] = bad[i];
        refuse(&f, team, ATTN0 "k_scale", "from 1e-6 to 1e6");
    }
    close_folder(&f);
    open_folder(&f);
    add_scale(&f, ATTN1 "v_scale", 7);
    refuse(&f, team, ATTN1 "v_scale", "one for each of");
    close_folder(&f);
    ek_team_free(team);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int4_reads_by_its_formula_in_groups_of_any_width),
        cmocka_unit_test(fp8_reads_by_its_formula_with_every_kind_of_scale),
        cmocka_unit_test(nvfp4_is_multiplied_by_the_scale_beside_it),
        cmocka_unit_test(codes_and_scales_are_packed_unchanged),
        cmocka_unit_test(scales_of_an_fp8_cache_are_found_under_both_names),
        cmocka_unit_test(a_scale_of_an_fp8_cache_must_be_a_usable_number),
        cmocka_unit_test(scales_a_row_become_bf16),
        cmocka_unit_test(a_scaled_nvfp4_matrix_is_loaded),
        cmocka_unit_test(parts_that_contradict_each_other_are_named),
        cmocka_unit_test(parts_that_are_missing_or_of_a_wrong_type_are_named),
        cmocka_unit_test(e4m3_without_scale_is_refused_where_the_folder_is_quantised),
        cmocka_unit_test(numbers_that_are_not_finite_are_found_in_their_part),
        cmocka_unit_test(an_nvfp4_scale_must_be_one_usable_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
