#!/bin/sh
# Builds and runs the measurement of the page check; see bench/pages.c.
#   bench/pages.sh [--rounds N]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target bench_pages >/dev/null
exec "$root/build/release/bench/bench_pages" "$@"
