#!/usr/bin/env bash
# run.sh - from a bare Debian 12 to a model that answers: installs what is missing,
# builds, fetches the default model and starts the server.
#
#   ./run.sh                     serve on http://127.0.0.1:8080/
#   ./run.sh --ask "..."         answer once on standard output
#   ./run.sh --model FILE ...    use another model (GGUF file or Hugging Face folder)
# Whatever else is given goes to `keel serve` (see keel serve --help).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

model='' ask='' listen=127.0.0.1:8080 rest=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --help | -h) usage && exit 0 ;;
    --ask | --model | --listen)
        [[ $# -ge 2 ]] || { echo "run.sh: $1 needs a value" >&2 && exit 2; }
        printf -v "${1#--}" '%s' "$2" && shift 2 ;;
    --ask=*) ask=${1#*=} && shift ;;
    --model=*) model=${1#*=} && shift ;;
    --listen=*) listen=${1#*=} && shift ;;
    *) rest+=("$1") && shift ;;
    esac
done
# The build happens in this folder; a relative model path is the caller's.
[[ -z $model || $model == /* ]] || model=$OLDPWD/$model
if [[ -n $model && ! -e $model ]]; then
    echo "run.sh: $model: no such file" >&2
    exit 2
fi

# shellcheck source=tools/packages.sh
source tools/packages.sh
install_packages "building keel" "${packages_run[@]}"
keel=build/release/bin/keel
if [[ ! -f build/release/build.ninja ]]; then
    echo "Configuring ..." >&2
    cmake --preset release >build.log 2>&1 || { cat build.log >&2 && exit 1; }
    rm -f build.log
    echo "Building ..." >&2
fi
log=$(cmake --build --preset release --target keel 2>&1) || { echo "$log" >&2 && exit 1; }

if [[ -z $model ]]; then
    install_packages "fetching the default model" "${packages_fetch[@]}"
    model=$(tools/fetch_model.sh)
fi

if [[ -n $ask ]]; then
    exec "$keel" chat "$model" --ask "$ask" --temperature 0 "${rest[@]}"
fi
cat >&2 <<TXT

Chat page:  http://$listen/
Try it:     curl http://$listen/v1/chat/completions -H 'Content-Type: application/json' \\
              -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
Stop with Ctrl-C.

TXT
exec "$keel" serve "$model" --listen "$listen" "${rest[@]}"
