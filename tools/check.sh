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
mapfile -t c_files < <(git ls-files 'include/*.h' 'src/*.[ch]' 'tests/*.[ch]' 'bench/*.[ch]')
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

gate_tree() { tools/check_tree.py; }

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
        xargs -P "$jobs" -n 4 clang-tidy --quiet -p build/clang \
            2> >(grep -v 'warnings\? generated' >&2)
}

gate_asan() {
    build asan && ASAN_OPTIONS=detect_leaks=1 EK_SOAK_SECONDS=120 \
        ctest --preset asan -j "$jobs" -LE slow
}

gate_tsan() {
    # The scripts drive keel with the real model, thirty times slower here; serve/server
    # takes the same threads through the same hand-overs with a model of a few lines.
    build tsan && ctest --preset tsan -j "$jobs" -LE slow \
        -R '^(base/(team|ring|slots|log)|session/|net/|serve/|lm/|route/(pool|policy|chaos|proxy|floods|smuggling)$)' -E '^serve/(openai|http_abuse|serve|page)$'
}

gate_fuzz() {
    build fuzz || return 1
    local source running=0 rc=0
    for source in tests/fuzz/fuzz_*.c; do
        if ((running == jobs)); then
            wait -n || rc=1
            ((running -= 1))
        fi
        fuzz_one "$source" &
        ((running += 1))
    done
    while ((running > 0)); do
        wait -n || rc=1
        ((running -= 1))
    done
    return $rc
}

fuzz_one() { # fuzz_one SOURCE: what it finds lies beside the target, ready to be replayed
    local name log
    name=$(basename "$1" .c)
    log=build/fuzz/$name.log
    mkdir -p "build/fuzz/new/$name"
    if "build/fuzz/fuzz/$name" -max_total_time="$fuzz_seconds" -timeout=20 \
        -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="build/fuzz/$name-" \
        "build/fuzz/new/$name" "tests/fuzz/corpus/${name#fuzz_}" >"$log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
    else
        grep -v '^#' "$log" | tail -n 60
        echo "$name FAILED; the input lies at build/fuzz/$name-*"
        return 1
    fi
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
