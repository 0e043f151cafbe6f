#!/bin/sh
# Builds and runs the measurement of the matmul kernels; see bench/matmul.c.
#   bench/matmul.sh [--rounds N] [--threads N] [--isa avx2] [--memory hot] [--only TEXT]
#                   [--json FILE]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target bench_matmul >/dev/null
exec "$root/build/release/bench/bench_matmul" "$@"
