/* test_quantize.c - model files rewritten: what memory that runs out, a stop or a lie
 * leaves behind (nothing), and what calibration does to the error. The formats themselves
 * are checked against independent decoders by tests/cli/check_quantize.py. */
#include "lm/kit.h"
#include "lm/quantize.h"
#include "num/quant.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

static char root[64];

struct fixture {
    struct ek_modelfile m;
    struct ek_lm_params p;
    struct ek_team *team;
    char out[128];
};

static void setup(struct fixture *f, const char *file, const char *out)
{
    struct ek_err err = EK_ERR_INIT;
    char path[512];
    memset(f, 0, sizeof *f);
    if (ek_modelfile_open(&f->m, kit_path(path, file), &err) ||
        ek_lm_params_read(&f->p, &f->m, &err) || ek_team_new(&f->team, 2, false, &err))
        fail_msg("%s", err.text);
    snprintf(f->out, sizeof f->out, "%s/%s", root, out);
}

static void teardown(struct fixture *f)
{
    ek_team_free(f->team);
    ek_modelfile_close(&f->m);
}

static struct ek_quantize job_of(const struct fixture *f, enum ek_quantize_to to)
{
    return (struct ek_quantize){
        .m = &f->m, .p = &f->p, .path = f->out, .to = to, .team = f->team};
}

static int count_files(void)
{
    int n = 0;
    DIR *d = opendir(root);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void remove_all(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    assert_int_equal(system(command), 0);
}

static void any_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
        enum ek_quantize_to to;
    } cases[] = {{"mistral.gguf", "o.gguf", EK_QUANTIZE_INT4},
                 {"mistral", "o", EK_QUANTIZE_INT4},
                 {"mistral", "o", EK_QUANTIZE_FP8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        setup(&f, cases[i].in, cases[i].out);
        EK_EACH_FAILURE_BY (k, 3) {
            struct ek_err err = EK_ERR_INIT;
            struct ek_quantize_report r;
            struct ek_quantize job = job_of(&f, cases[i].to);
            ek_assert_rc(ek_quantize_run(&r, &job, &err));
            ek_quantize_report_release(&r);
            assert_int_equal(count_files(), ek_mem_failed() ? 0 : 1);
        }
        remove_all();
        teardown(&f);
    }
}

static bool stop(void *arg, int64_t done, int64_t total)
{
    assert_true(done <= total);
    return --*(int *)arg > 0;
}

static void stopping_anywhere_leaves_nothing(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"llama.gguf", "o.gguf"}, {"llama", "o"}};
    for (int i = 0; i < 2; i++) {
        struct fixture f;
        setup(&f, names[i][0], names[i][1]);
        for (int n = 1; n < 20; n += 3) {
            struct ek_err err = EK_ERR_INIT;
            struct ek_quantize_report r;
            struct ek_quantize job = job_of(&f, EK_QUANTIZE_BF16);
            int left = n;
            job.on_progress = stop;
            job.arg = &left;
            assert_int_equal(ek_quantize_run(&r, &job, &err), EK_ECANCELED);
            ek_quantize_report_release(&r);
            assert_int_equal(count_files(), 0);
        }
        teardown(&f);
    }
}

/* Squared error of what a written file holds of one matrix, each column weighed. */
static double error_of(const char *out, const char *name, const struct ek_tensor *in,
                       const float *v)
{
    struct ek_err err = EK_ERR_INIT;
    struct ek_modelfile m;
    double sum = 0;
    float x[64], w[64];
    assert_int_equal(ek_modelfile_open(&m, out, &err), 0);
    const struct ek_tensor *t = ek_modelfile_tensor(&m, name);
    assert_int_equal(t->dtype, EK_DTYPE_Q4_1);
    for (int64_t r = 0; r < t->shape[0]; r++) {
        ek_quant_to_f32(x, in->dtype, (const char *)in->data + r * 64 * 2, 64);
        ek_quant_to_f32(w, t->dtype, (const char *)t->data + r * 40, 64);
        for (int k = 0; k < 64; k++)
            sum += (double)v[k] * pow((double)x[k] - (double)w[k], 2);
    }
    ek_modelfile_close(&m);
    return sum;
}

static void calibration_lowers_the_error_it_weighs(void **state)
{
    (void)state;
    static const char name[] = "blk.1.ffn_down.weight"; /* (48,64), bf16 */
    struct fixture f;
    struct ek_err err = EK_ERR_INIT;
    struct ek_quantize_report r;
    struct ek_calibration c = {
        .n_layers = 2, .C = 48, .HD = 48, .F = 64, .n_tokens = 1};
    float means[2 * (2 * 48 + 48 + 64)];
    double errors[2];
    setup(&f, "mistral.gguf", "o.gguf");
    assert_true(f.p.C == 48 && f.p.F == 64 && f.p.H * f.p.D == 48);
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        means[i] = i % 8 ? 0.05f : 20.0f;
    c.means = means;
    const float *v = ek_calibration_get(&c, 1, EK_CALIBRATION_DOWN);
    for (int i = 0; i < 2; i++) {
        struct ek_quantize job = job_of(&f, EK_QUANTIZE_INT4);
        job.calibration = i ? &c : NULL;
        if (ek_quantize_run(&r, &job, &err))
            fail_msg("%s", err.text);
        errors[i] = error_of(f.out, name, ek_modelfile_tensor(&f.m, name), v);
        for (size_t n = 0; n < r.n && i; n++) {
            if (!strcmp(r.rows[n].name, name))
                assert_true(fabs(r.rows[n].weighted - errors[1]) < 1e-6 * errors[1]);
        }
        ek_quantize_report_release(&r);
        remove_all();
    }
    assert_true(errors[1] < 0.8 * errors[0]);
    teardown(&f);
}

static void a_report_adds_up_to_the_file(void **state)
{
    (void)state;
    struct fixture f;
    struct ek_err err = EK_ERR_INIT;
    struct ek_quantize_report r;
    struct ek_modelfile m;
    setup(&f, "mistral", "o");
    struct ek_quantize job = job_of(&f, EK_QUANTIZE_FP8);
    assert_int_equal(ek_quantize_run(&r, &job, &err), 0);
    assert_int_equal(ek_modelfile_open(&m, f.out, &err), 0);
    int64_t in = 0, out = 0;
    for (size_t i = 0; i < f.m.tensors->n; i++)
        in += (int64_t)f.m.tensors->items[i].bytes;
    for (size_t i = 0; i < m.tensors->n; i++)
        out += (int64_t)m.tensors->items[i].bytes;
    assert_int_equal(r.bytes_in, in);
    assert_int_equal(r.bytes_out, out);
    assert_int_equal(r.n, 2 + 2 * 7);
    ek_modelfile_close(&m);
    ek_quantize_report_release(&r);
    remove_all();
    teardown(&f);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/ek_quantize_XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_failed_allocation_leaves_nothing),
        cmocka_unit_test(stopping_anywhere_leaves_nothing),
        cmocka_unit_test(calibration_lowers_the_error_it_weighs),
        cmocka_unit_test(a_report_adds_up_to_the_file),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
