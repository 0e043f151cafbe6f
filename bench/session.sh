#!/bin/sh
# Builds and runs the measurement of the session tracker; see bench/session.c.
#   bench/session.sh [--rounds N]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target bench_session >/dev/null
exec "$root/build/release/bench/bench_session" "$@"
