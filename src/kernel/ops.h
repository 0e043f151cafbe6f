/* ops.h - the table of kernels, one entry an operation, chosen once at start.
 *
 * Each operation's contract stands in its own header (matmul.h, norm.h, rope.h, attn.h,
 * jagged.h, kv_write.h, act.h, pick.h, beats.h, probe.h). Kernels take pointers and
 * sizes, never allocate, log or fail; shapes are checked when the plan is built. Work
 * is given as ranges, so callers split it among threads as they like and the result is
 * the same bits for every split.
 */
#ifndef EVENKEEL_KERNEL_OPS_H
#define EVENKEEL_KERNEL_OPS_H

#include "kernel/act.h"
#include "kernel/attn.h"
#include "kernel/beats.h"
#include "kernel/jagged.h"
#include "kernel/kv_write.h"
#include "kernel/matmul.h"
#include "kernel/norm.h"
#include "kernel/pick.h"
#include "kernel/probe.h"
#include "kernel/rope.h"
#include "num/cpu.h"

struct ek_ops {
    enum ek_isa isa;
    ek_matmul_prepare_fn *matmul_prepare;
    ek_matmul_fn *matmul;
    ek_rmsnorm_fn *rmsnorm;
    ek_rope_fn *rope;
    ek_rotate_fn *rotate;
    ek_kv_write_fn *kv_write;
    ek_attn_fn *attn;
    ek_attn_merge_fn *attn_merge;
    ek_jagged_fn *jagged_forward;
    ek_jagged_fn *jagged_backward;
    ek_glu_fn *glu;
    ek_add_fn *add;
    ek_peaks_fn *peaks;
    ek_weigh_fn *weigh;
    ek_beats_fn *beats;
    ek_probe_read_fn *probe_read; /* for measurements */
    ek_probe_dot_fn *probe_dot;
};

/* The variant for `isa`; an operation without one of its own uses the next lower ISA's.
 * Never NULL. The caller has checked that the CPU can run it (ek_isa_choose). */
const struct ek_ops *ek_ops_get(enum ek_isa isa);

#endif
