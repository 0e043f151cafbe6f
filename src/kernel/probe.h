/* probe.h - what this CPU gives at most, measured beside a kernel in the same run, so
 * that the kernel's rate can be stated as a share of it.
 *
 *   read  reads p[0,n) with the widest loads, as two streams half of it apart, and
 *         returns a sum that depends on every byte
 *         p 64-byte aligned, n a multiple of 512
 *   dot   n times a fixed number of independent dot-product instructions, of the kind
 *         that a matmul of format f lives on, on registers alone; returns the
 *         multiply-adds done. A matmul of integers does ten for each eight of its own:
 *         some columns of activations have two terms.
 * Threads: any. Cost: linear, no allocation.
 */
#ifndef EVENKEEL_KERNEL_PROBE_H
#define EVENKEEL_KERNEL_PROBE_H

#include "kernel/weight.h"

typedef uint64_t ek_probe_read_fn(const void *p, size_t n);
typedef int64_t ek_probe_dot_fn(enum ek_weight_format f, int64_t n);

#endif
