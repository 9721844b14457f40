# Sourced by the scripts beside it: a Python, and an environment that is made once.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# The first Python >= 3.10 that starts and can make environments; PYTHON=... decides otherwise.
find_python() {
    local candidate candidates=(python3 python3.{14,13,12,11,10} python)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' \
            >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "no Python from 3.10 on that can make environments was found${PYTHON:+ under PYTHON=$PYTHON}." \
        "Install one (on Debian with its venv package), or name it: PYTHON=/path/to/python $0"
}

# What an environment is made from; when it changes, the environment is made again.
fingerprint() { # python kind
    "$1" - "$ROOT" "$2" <<'PY'
import hashlib, pathlib, sys

root, kind = sys.argv[1:]
digest = hashlib.sha256(f"{sys.version} {sys.prefix} {root} {kind}".encode())
names = ["pyproject.toml", "constraints.txt", "scripts/_env.sh"]
for name in names:
    digest.update(pathlib.Path(root, name).read_bytes())
print(digest.hexdigest())
PY
}

# pip, told only what is new; its output is shown when it fails.
install() { # environment, pip's arguments
    local bin=$1/bin log
    shift
    log=$(mktemp)
    if ! "$bin/python" -m pip install --quiet --disable-pip-version-check \
        --constraint "$ROOT/constraints.txt" "$@" >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        die "pip could not install: $*"
    fi
    rm -f "$log"
}

# Makes $ROOT/.venv-KIND with torch and what else is asked for, or finds it up to date.
# torch comes first: alone, it takes the build that is pinned, and nothing later replaces it.
make_environment() { # kind, pip's arguments
    local kind=$1 python stamp
    local env=$ROOT/.venv-$kind
    shift
    python=$(find_python)
    stamp=$(fingerprint "$python" "$kind")
    if [[ -f $env/stamp && $(<"$env/stamp") == "$stamp" ]]; then
        say "environment: .venv-$kind is up to date"
        return
    fi
    # On the disk, with torch's build for CPUs.
    local size=1.1
    [[ $kind == demo ]] || size=2.5
    say "environment: making .venv-$kind with $("$python" --version) (some minutes, $size GB or more)"
    rm -rf "$env"
    "$python" -m venv "$env"
    say "environment: installing torch"
    install "$env" "$(grep '^torch==' "$ROOT/constraints.txt")"
    say "environment: installing the rest"
    install "$env" hatchling hatch-vcs editables
    install "$env" "$@"
    printf '%s\n' "$stamp" >"$env/stamp"
}
