#!/usr/bin/env bash
# check.sh - the gates: format, tree, both compilers, static analysis, sanitizers, fuzzers.
# Every gate runs even after one failed; the exit code tells whether all passed.
#   tools/check.sh [GATE...]     only these: format tree shell clang cppcheck tidy asan
#                                tsan fuzz
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# shellcheck source=tools/packages.sh
source tools/packages.sh
install_packages "the gates" "${packages_run[@]}" "${packages_test[@]}" \
    "${packages_check[@]}" || exit 1

jobs=$(nproc)
fuzz_seconds=${FUZZ_SECONDS:-20}
mapfile -t c_files < <(git ls-files 'src/*.[ch]' 'tests/*.[ch]' 'bench/*.[ch]')
mapfile -t units < <(git ls-files 'src/*.c')

build() { # build PRESET [TARGET...]
    local preset=$1
    shift
    local log
    log=$(cmake --preset "$preset" && cmake --build --preset "$preset" "$@") || {
        grep -v '^\[' <<<"$log"
        return 1
    }
}

gate_format() { clang-format --dry-run -Werror "${c_files[@]}"; }

gate_tree() { tools/check_tree.py --quiet; }

gate_shell() { git ls-files '*.sh' .ci/run | xargs shellcheck -x; }

gate_clang() { build clang; }

gate_cppcheck() {
    cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr \
        --suppressions-list=tools/cppcheck.txt --error-exitcode=1 -j "$jobs" \
        -D_GNU_SOURCE -DEK_VERSION='""' '-Dalignas(x)=' -I src "${units[@]}"
}

gate_tidy() {
    cmake --preset clang >/dev/null &&
        printf '%s\n' "${units[@]}" |
        xargs -P "$jobs" -n 4 clang-tidy --quiet -p build/clang 2>/dev/null
}

gate_asan() {
    build asan && ASAN_OPTIONS=detect_leaks=1 ctest --preset asan -j "$jobs" -LE slow
}

gate_tsan() {
    build tsan && ctest --preset tsan -j "$jobs" -R '^(base/(team|ring|log)|net/|serve/|lm/)' -LE slow
}

gate_fuzz() {
    build fuzz || return 1
    local target name rc=0
    for target in build/fuzz/fuzz/fuzz_*; do
        name=$(basename "$target")
        echo "$name: $fuzz_seconds s"
        mkdir -p "build/fuzz/new/$name"
        "$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
            -print_final_stats=0 -verbosity=0 -artifact_prefix="build/fuzz/$name-" \
            "build/fuzz/new/$name" "tests/fuzz/corpus/${name#fuzz_}" || rc=1
    done
    return $rc
}

all=(format tree shell clang cppcheck tidy asan tsan fuzz)
failed=()
for gate in "${@:-${all[@]}}"; do
    start=$SECONDS
    echo "== $gate"
    if "gate_$gate"; then
        echo "== $gate passed in $((SECONDS - start)) s"
    else
        echo "== $gate FAILED after $((SECONDS - start)) s"
        failed+=("$gate")
    fi
done
if [[ ${#failed[@]} -gt 0 ]]; then
    echo "gates failed: ${failed[*]}"
    exit 1
fi
echo "all gates passed"
