#!/usr/bin/env bash
# serve.sh - prints the table of serving speed against llama.cpp, both sides in turn in one
# run: medians, ratios and their spread, and how they compare with what they must reach.
#
#   bench/serve.sh [--quick] [--rows GROUPS] [--json FILE] [--threads N] [--text FILE]
#                  [--no-peer] [--model FILE] [--repeats N]
#
# --quick: 3 shorter repetitions instead of 5.  --rows: some of prefill, decode, streams, tools,
# kv, weights, isa, pages, accuracy, start, with commas between.
# Builds keel; makes, once, under ~/.cache/evenkeel/bench: the peer (llama-cpp-python, built
# from source for this CPU, or the Python that EK_PEER_PYTHON names), the small model in the
# peer's fastest format, and a larger model of random weights. LLAMA_CPP_BIN: a folder with
# llama-server, which then is the peer of the streaming rows, and llama-bench and
# llama-batched-bench, for the rows of tools. --text (or EK_DATA/text,
# ../shared/data/text): wikitext-2-test.txt, for the perplexities. docs/benchmarks.md tells
# how each row is measured.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/bench
peer_package=llama-cpp-python==0.3.36

model='' text='' has_peer=true rest=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;;
    --no-peer) has_peer=false && shift ;;
    --model | --text)
        [[ $# -ge 2 ]] || { echo "serve.sh: $1 needs a value" >&2 && exit 2; }
        printf -v "${1#--}" '%s' "$2" && shift 2 ;;
    *) rest+=("$1") && shift ;;
    esac
done

# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"
install_packages "building keel" "${packages_run[@]}"
install_packages "the default model" "${packages_fetch[@]}"
mkdir -p "$cache"
cmake -S "$root" --preset release >/dev/null
cmake --build "$root/build/release" --target keel >/dev/null
args=(--keel "$root/build/release/bin/keel" --cache "$cache")
[[ -n $model ]] || model=$("$root/tools/fetch_model.sh")
args+=(--model "$model")

# peer_python: prints the peer's Python, building it first if need be.
peer_python() {
    local venv=$cache/peer
    if [[ -n ${EK_PEER_PYTHON:-} ]]; then
        echo "$EK_PEER_PYTHON"
        return
    fi
    if [[ ! -f $venv/ready ]]; then
        install_packages "building the peer" "${packages_peer[@]}" || return 1
        echo "Building $peer_package for this CPU, minutes ..." >&2
        rm -rf "$venv"
        python3 -m venv "$venv" &&
            CMAKE_ARGS="-DGGML_NATIVE=ON" "$venv/bin/pip" install -q --no-cache-dir \
                --disable-pip-version-check --no-binary llama-cpp-python \
                "$peer_package" numpy >&2 &&
            touch "$venv/ready" || return 1
    fi
    echo "$venv/bin/python"
}

if $has_peer; then
    python=$(peer_python) || { echo "serve.sh: no peer; --no-peer measures alone" >&2 && exit 1; }
    small=$cache/$(basename "$model" .gguf).peer-q4_0.gguf
    large=$cache/qwen3-0.6b-random.q4_0.gguf
    [[ -f $small ]] || "$python" "$root/bench/peers/llamacpp.py" "$model" --requantize "$small"
    if [[ ! -f $large ]]; then
        "$python" "$root/bench/peers/random_model.py" "$large.new" && mv "$large.new" "$large"
    fi
    args+=(--peer-python "$python" --peer-model "$small" --large "$large")
    [[ -z ${LLAMA_CPP_BIN:-} ]] || args+=(--llama-bin "$LLAMA_CPP_BIN")
fi

if [[ -z $text ]]; then
    text=${EK_DATA:-$root/../shared/data}/text/wikitext-2-test.txt
    [[ -f $text ]] || text=''
fi
[[ -z $text ]] || args+=(--text "$text")
exec python3 "$root/bench/speed/main.py" "${args[@]}" "${rest[@]}"
