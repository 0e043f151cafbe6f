#!/bin/sh
# Builds and runs the measurement of decode attention at depth; see bench/attn.c.
#   bench/attn.sh [--rounds N] [--threads N] [--isa avx2] [--pages huge] [--only TEXT] [--json FILE]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target bench_attn >/dev/null
exec "$root/build/release/bench/bench_attn" "$@"
