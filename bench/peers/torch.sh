# shellcheck shell=bash
# torch.sh - sourced: a Python with PyTorch for those who compare with it.

torch_package=torch==2.15.0

# torch_python CACHE: prints a Python with torch; EK_TORCH_PYTHON's, or that of a virtual
# environment under CACHE, which it makes first if need be. Needs tools/packages.sh.
torch_python() {
    local venv=$1/torch
    if [[ -n ${EK_TORCH_PYTHON:-} ]]; then
        echo "$EK_TORCH_PYTHON"
        return
    fi
    if [[ ! -f $venv/ready ]]; then
        # shellcheck disable=SC2154 # tools/packages.sh has it
        install_packages "the peer" "${packages_peer[@]}" || return 1
        echo "Installing $torch_package, gigabytes ..." >&2
        rm -rf "$venv"
        python3 -m venv "$venv" &&
            "$venv/bin/pip" install -q --no-cache-dir --disable-pip-version-check \
                "$torch_package" numpy >&2 &&
            touch "$venv/ready" || return 1
    fi
    echo "$venv/bin/python"
}
