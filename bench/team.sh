#!/bin/sh
# Builds and runs the measurement of ek_team_run against OpenMP; see bench/team.c.
#   bench/team.sh [--threads N] [--rounds N] [--json FILE]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target bench_team >/dev/null
exec "$root/build/release/bench/bench_team" "$@"
