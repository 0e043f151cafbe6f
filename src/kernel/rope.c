/* rope.c - the frequencies of a rotary embedding and the table of one step.
 *
 * Sources: LINEAR Chen et al. 2023, "Extending Context Window via Position
 * Interpolation"; LLAMA3 the Llama 3.1 model card's rope_scaling; YARN Peng et al. 2023,
 * "YaRN: Efficient Context Window Extension", section 3.2 (NTK by parts) and 3.4
 * (attention factor).
 */
#include "kernel/rope.h"

#include <math.h>

static const double two_pi = 6.283185307179586476925;

/* Frequencies whose wavelength is long against the old context are interpolated, short
 * ones kept; linear in the number of turns between. */
static double scale_llama3(double f, const struct ek_rope_options *o)
{
    double turns = o->original_ctx * f / two_pi;
    if (turns < o->low_freq_factor)
        return f / o->factor;
    if (turns > o->high_freq_factor)
        return f;
    double keep =
        (turns - o->low_freq_factor) / (o->high_freq_factor - o->low_freq_factor);
    return f * keep + f / o->factor * (1 - keep);
}

/* The (fractional) pair index that turns `beta` times within the old context. */
static double yarn_dim(double beta, const struct ek_rope_options *o)
{
    return o->n_dims * log(o->original_ctx / (two_pi * beta)) / (2 * log(o->base));
}

static double scale_yarn(double f, int i, const struct ek_rope_options *o)
{
    double low = floor(yarn_dim(o->beta_fast, o));
    double high = ceil(yarn_dim(o->beta_slow, o));
    low = fmax(low, 0);
    high = fmin(high, o->n_dims - 1);
    if (low == high)
        high += 0.001; /* a step instead of a division by zero */
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    return f / o->factor * ramp + f * (1 - ramp);
}

void ek_rope_init(struct ek_rope *r, const struct ek_rope_options *o)
{
    r->n_dims = o->n_dims;
    r->is_interleaved = o->is_interleaved;
    r->mscale = 1;
    for (int i = 0; i < o->n_dims / 2; i++) {
        double f = pow(o->base, -2.0 * i / o->n_dims);
        if (o->scaling == EK_ROPE_LINEAR)
            f /= o->factor;
        else if (o->scaling == EK_ROPE_LLAMA3)
            f = scale_llama3(f, o);
        else if (o->scaling == EK_ROPE_YARN)
            f = scale_yarn(f, i, o);
        r->inv_freq[i] = f;
    }
    if (o->scaling == EK_ROPE_YARN)
        r->mscale = (float)(o->mscale != 0 ? o->mscale : 0.1 * log(o->factor) + 1);
}

void ek_rope_table(float *cs, const struct ek_rope *r, const int32_t *pos, int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        for (int i = 0; i < r->n_dims / 2; i++) {
            double a = pos[t] * r->inv_freq[i], m = (double)r->mscale;
            cs[t * r->n_dims + 2 * i] = (float)(m * cos(a));
            cs[t * r->n_dims + 2 * i + 1] = (float)(m * sin(a));
        }
}
