# Sourced by the scripts beside it. Answers --help with the script's own second line; sets `root`, the project's
# folder, and `bin`, the programs of its .venv; and defines `install EXTRA`, to be called before anything in `bin`,
# and `accelerate`.

if [[ ${1-} == --help || ${1-} == -h ]]; then
    sed -n '2s/^# //p' "$0"
    exit
fi

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/.venv/bin

find_python() {
    local name
    for name in python3.11 python3 python3.12 python3.13 python3.14; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "error: no Python 3.11 or newer with the venv module was found" \
        "(tried python3.11, python3, python3.12 to python3.14)" >&2
    echo "hint: install one, for example with apt-get install python3.11-venv" >&2
    return 1
}

# install EXTRA: the project, editable, and that extra (may be empty) in .venv, made on first use. Does nothing when it
# was done for this pyproject.toml in this folder (a copied .venv still points to the folder that it came from).
install() {
    local extra=$1 stamp=$root/.venv/installed-$1 python wanted
    wanted=$(echo "$root" | cat - "$root/pyproject.toml" | cksum)

    # Two scripts may start at once: the second waits here, then finds the work done. macOS has no flock.
    exec 9<"${BASH_SOURCE[0]}"
    if command -v flock >/dev/null; then flock 9; fi

    if [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]] || ! "$bin/python" -c '' 2>/dev/null; then
        echo "setting up .venv${extra:+ with the extra \"$extra\"} (first use, or pyproject.toml changed) ..." >&2
        if ! "$bin/python" -c '' 2>/dev/null; then
            python=$(find_python)
            "$python" -m venv --clear "$root/.venv"
        fi
        "$bin/python" -m pip install --quiet --disable-pip-version-check --editable "$root${extra:+[$extra]}" >&2
        echo "$wanted" >"$stamp" # last: an installation that was cut short is done again
    fi
    exec 9<&-
}

# accelerate: builds the folder accelerator/ into .venv, if it has changed since. Without a C compiler everything runs
# without it, and says so; with CI set, that is an error.
accelerate() {
    local stamp=$root/.venv/accelerator wanted folder
    wanted=$({
        echo "$root"
        "$bin/python" -VV
        cat "$root/accelerator/pyproject.toml" "$root"/accelerator/src/*
    } | cksum)
    exec 9<"${BASH_SOURCE[0]}"
    if command -v flock >/dev/null; then flock 9; fi
    if [[ ! -f $stamp || $(<"$stamp") != "$wanted" ]]; then
        echo "building the accelerator ..." >&2
        folder=$(mktemp -d)
        cp -R "$root/accelerator/." "$folder" # the build leaves files where it runs
        if "$bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$folder" \
            >"$stamp.log" 2>&1; then
            echo "$wanted" >"$stamp"
        else
            "$bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes versioned-state-fast \
                >/dev/null 2>&1 || true
            rm -f "$stamp"
            echo "warning: the accelerator could not be built, and everything runs without it;" \
                ".venv/accelerator.log says why" >&2
        fi
        rm -rf "$folder"
    fi
    exec 9<&-
    [[ -f $stamp || -z ${CI-} ]]
}
