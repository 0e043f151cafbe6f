# shellcheck shell=bash
# beside_torch.sh - sourced by the tables that stand beside PyTorch: their common options,
# what they build and the Python of the peer. Sets root, cache, data, has_peer, rest.

# shellcheck disable=SC2034 # whoever sources this reads them
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/bench
data='' has_peer=true rest=()
# shellcheck source=tools/packages.sh
source "$root/tools/packages.sh"
# shellcheck source=bench/peers/torch.sh
source "$root/bench/peers/torch.sh"

# read_options FILE "$@": --help prints the comment that FILE opens with; what is for the
# Python program goes to rest.
read_options() {
    local file=$1 && shift
    while [[ $# -gt 0 ]]; do
        case $1 in
        --help | -h) sed -n '2,/^[^#]/{s/^# \{0,1\}//p}' "$file" && exit 0 ;;
        --no-peer) has_peer=false && shift ;;
        --data)
            [[ $# -ge 2 ]] || { echo "${file##*/}: $1 needs a value" >&2 && exit 2; }
            data=$2 && shift 2 ;;
        *) rest+=("$1") && shift ;;
        esac
    done
    [[ -n $data ]] || data=${EK_DATA:-$root/../shared/data}/recsys
}

# build TARGET...: in build/release, quietly.
build() {
    install_packages "building keel" "${packages_run[@]}"
    mkdir -p "$cache"
    cmake -S "$root" --preset release -DEK_BENCH=ON >/dev/null
    cmake --build "$root/build/release" --target "$@" >/dev/null
}

# peer_python NAME: prints a Python with torch, or nothing with --no-peer.
peer_python() {
    ! $has_peer && return
    torch_python "$cache" || { echo "$1: no peer; --no-peer measures alone" >&2 && exit 1; }
}
