#!/usr/bin/env bash
# test.sh - installs what the tests need, builds, and runs every test with ctest.
# The exit code tells whether all passed. Tests whose data is absent are skipped with a
# line (tests/README.md says which data they look for, and where).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# shellcheck source=tools/packages.sh
source tools/packages.sh
install_packages "the tests" "${packages_run[@]}" "${packages_fetch[@]}" "${packages_test[@]}"
tools/fetch_testdata.sh

cmake --preset release
cmake --build --preset release
ctest --preset release -j "$(nproc)" "$@"
