#!/usr/bin/env bash
# train.sh - prints the table of training: SASRec and HSTU against PyTorch that puts users
# of one length together, full ranking, and jagged batches against padded ones; both sides
# in turn in one run.
#
#   bench/train.sh [--rows speed,eval,padded] [--json FILE] [--threads N] [--repeats N]
#                  [--seconds S] [--no-peer] [--data FOLDER]
#
# Builds keel; makes, once, under ~/.cache/evenkeel/bench: a virtual environment with
# PyTorch from PyPI (gigabytes: its wheel brings CUDA), or takes the Python that
# EK_TORCH_PYTHON names. --data (or EK_DATA/recsys, ../shared/data/recsys): a folder with
# Beauty.txt and LastFM.txt of https://github.com/RUCAIBox/CIKM2020-S3Rec.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/bench

data='' has_peer=true rest=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --no-peer) has_peer=false && shift ;;
    --data)
        [[ $# -ge 2 ]] || { echo "train.sh: $1 needs a value" >&2 && exit 2; }
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
cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
cmake --build "$root/build/release" --target keel bench_rec >/dev/null
args=(--keel "$root/build/release/bin/keel" --rec "$root/build/release/bench/bench_rec")
if $has_peer; then
    python=$(torch_python "$cache") || { echo "train.sh: no peer; --no-peer measures alone" >&2 && exit 1; }
    args+=(--peer-python "$python")
fi
[[ -n $data ]] || data=${EK_DATA:-$root/../shared/data}/recsys
exec python3 "$root/bench/speed/train.py" "${args[@]}" --data "$data" "${rest[@]}"
