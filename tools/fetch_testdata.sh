#!/usr/bin/env bash
# fetch_testdata.sh - what the tests compare with, fetched by package name: a Python
# environment in build/venv, the default model, and the source package of
# llama-cpp-python, whose vocabularies and chat templates are real ones. What cannot be
# fetched is said, and its tests are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=build/venv
stamp=$venv/requirements.txt
if ! cmp -s tests/requirements.txt "$stamp"; then
    echo "Installing Python packages for the tests into $venv ..." >&2
    # The system's own Python, so that the environment is the same everywhere.
    rm -rf "$venv"
    mkdir -p build
    if /usr/bin/python3 -m venv "$venv" &&
        "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt; then
        cp tests/requirements.txt "$stamp"
    else
        rm -rf "$venv"
        echo "The Python packages could not be installed: Python tests may be skipped." >&2
    fi
fi

tools/fetch_model.sh >/dev/null || echo "Tests of the default model are skipped." >&2

cache=${XDG_CACHE_HOME:-$HOME/.cache}/evenkeel
name=llama_cpp_python-0.3.36
if [[ ! -d $cache/$name ]]; then
    mkdir -p "$cache"
    aside=$(mktemp -d "$cache/fetch.XXXXXX")
    trap 'rm -rf "$aside"' EXIT
    echo "Fetching the source package llama-cpp-python 0.3.36 for its data ..." >&2
    # Only the archive is wanted, but pip asks it for its metadata: the environment has
    # the build backend that answers, so that nothing is built.
    "$venv/bin/pip" download -q --disable-pip-version-check --no-deps \
        --no-build-isolation --no-binary llama-cpp-python -d "$aside" \
        llama-cpp-python==0.3.36 >"$aside/log" 2>&1 || true
    if [[ -f $aside/$name.tar.gz ]]; then
        tar -xzf "$aside/$name.tar.gz" -C "$aside" "$name/vendor/llama.cpp/models"
        mv "$aside/$name" "$cache/$name"
    else
        grep -v '^WARNING' "$aside/log" | tail -n 2 >&2 || true
        echo "It could not be fetched: tests of real vocabularies and templates are skipped." >&2
    fi
fi
