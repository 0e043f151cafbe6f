#!/usr/bin/env bash
# attention.sh - prints the table of jagged attention, forward and backward, against the
# best forms of PyTorch on the CPU: both sides in turn in one run, on the same lengths.
#
#   bench/attention.sh [--kinds jfa,hstu,gdpa,block] [--json FILE] [--threads N]
#                      [--repeats N] [--no-peer] [--no-compile] [--data FOLDER]
#
# Builds keel; makes, once, under ~/.cache/evenkeel/bench: a virtual environment with
# PyTorch from PyPI (gigabytes: its wheel brings CUDA), or takes the Python that
# EK_TORCH_PYTHON names. --data (or EK_DATA/recsys, ../shared/data/recsys): a folder with
# LastFM.txt, whose lengths are measured, too. docs/guide/bench.md tells what is counted.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/bench

data='' has_peer=true rest=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --no-peer) has_peer=false && shift ;;
    --data)
        [[ $# -ge 2 ]] || { echo "attention.sh: $1 needs a value" >&2 && exit 2; }
        data=$2 && shift 2 ;;
    *) rest+=("$1") && shift ;;
    esac
done

# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"
# shellcheck source=bench/peers/torch.sh
source "$root/bench/peers/torch.sh"
install_packages "building keel" "${packages_run[@]}"
mkdir -p "$cache"
cmake -S "$root" --preset release >/dev/null
cmake --build "$root/build/release" --target keel >/dev/null
args=(--keel "$root/build/release/bin/keel")

if $has_peer; then
    python=$(torch_python "$cache") || { echo "attention.sh: no peer; --no-peer measures alone" >&2 && exit 1; }
    args+=(--peer-python "$python")
fi
[[ -n $data ]] || data=${EK_DATA:-$root/../shared/data}/recsys
[[ ! -d $data ]] || args+=(--data "$data")
exec python3 "$root/bench/speed/attention.py" "${args[@]}" "${rest[@]}"
