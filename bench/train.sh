#!/usr/bin/env bash
# train.sh - prints the table of training: SASRec and HSTU against PyTorch that puts users
# of one length together, full ranking, jagged batches against padded ones, and a large table
# with row-wise adagrad; both sides in turn in one run.
#
#   bench/train.sh [--rows speed,eval,padded,table] [--json FILE] [--threads N] [--repeats N]
#                  [--seconds S] [--no-peer] [--data FOLDER]
#
# Builds keel; makes, once, under ~/.cache/evenkeel/bench: a virtual environment with
# PyTorch from PyPI (gigabytes: its wheel brings CUDA), or takes the Python that
# EK_TORCH_PYTHON names. --data (or EK_DATA/recsys, ../shared/data/recsys): a folder with
# Beauty.txt and LastFM.txt of https://github.com/RUCAIBox/CIKM2020-S3Rec.
set -euo pipefail
# shellcheck source=bench/beside_torch.sh
source "$(dirname "${BASH_SOURCE[0]}")/beside_torch.sh"
read_options "${BASH_SOURCE[0]}" "$@"
program=$root/bench/speed/train.py
python3 "$program" --check --data "$data" "${rest[@]}" # before anything is installed
build keel bench_rec bench_table
args=(--keel "$root/build/release/bin/keel" --rec "$root/build/release/bench/bench_rec"
    --table "$root/build/release/bench/bench_table")
python=$(peer_python train.sh)
[[ -z $python ]] || args+=(--peer-python "$python")
exec python3 "$program" "${args[@]}" --data "$data" "${rest[@]}"
