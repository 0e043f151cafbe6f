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
# shellcheck source=bench/beside_torch.sh
source "$(dirname "${BASH_SOURCE[0]}")/beside_torch.sh"
read_options "${BASH_SOURCE[0]}" "$@"
build keel
args=(--keel "$root/build/release/bin/keel")
python=$(peer_python attention.sh)
[[ -z $python ]] || args+=(--peer-python "$python")
[[ ! -d $data ]] || args+=(--data "$data")
exec python3 "$root/bench/speed/attention.py" "${args[@]}" "${rest[@]}"
