#!/bin/sh
# Installs regent from these sources below ROOT: a virtual environment of its own in ROOT/opt/regent, and the folders
# that the daemon writes to. The Dockerfile runs it with ROOT empty, the tests with a folder of theirs.
#   scripts/image/build.sh [ROOT]        PYTHON names another interpreter than python3, or than the one from before
set -eu
root=${1:-}
prefix=$root/opt/regent
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What the daemon needs is the lock's first section; every package is checked against its hashes.
sed -n '/^# section: runtime,/,/^# section: embedded,/p' "$source/requirements.lock" >"$work/runtime.txt"
grep -q -- --hash "$work/runtime.txt" || { echo "build.sh: no section 'runtime' in requirements.lock" >&2; exit 1; }

# An environment keeps the interpreter that it was made with: of another one it is made anew.
if [ -x "$prefix/bin/python" ]; then before=$(readlink -f "$prefix/bin/python"); else before=python3; fi
python=${PYTHON:-$before}
wanted=$(readlink -f "$("$python" -c 'import sys; print(sys.executable)')")
clear=
if [ -L "$prefix/bin/python" ] && [ "$(readlink -f "$prefix/bin/python")" != "$wanted" ]; then
    echo "build.sh: $prefix was made with another interpreter than $wanted, and is made anew" >&2
    clear=--clear
    # What a daemon may be running from stays until all that its successor needs is here.
    "$python" -m venv "$work/environment"
    "$work/environment/bin/python" -m pip download --quiet --no-input --disable-pip-version-check \
        --require-hashes --only-binary :all: --dest "$work/wheels" -r "$work/runtime.txt"
    export PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/wheels"
fi
"$python" -m venv $clear "$prefix"
pip() { "$prefix/bin/python" -m pip "$@" --quiet --no-input --disable-pip-version-check; }
pip install --require-hashes --only-binary :all: --no-compile -r "$work/runtime.txt"
pip install --no-deps --no-build-isolation --no-index --no-compile "$source"
pip uninstall --yes hatchling pip

# The interpreter behind the environment must be there for the daemon's user, too: pyenv's below /root is not.
interpreter=$(readlink -f "$prefix/bin/python")
folder=$interpreter
while [ "$folder" != / ]; do
    case $(stat -c %A "$folder") in
        *x) ;;
        *) echo "build.sh: warning: $folder is closed to other users, so the daemon's user cannot run $interpreter;" \
                "run again with PYTHON=/usr/bin/python3 (or another that all users may run)" >&2 ;;
    esac
    folder=$(dirname "$folder")
done

# The image's user cannot write bytecode later; a start would compile everything each time.
"$prefix/bin/python" -m compileall -q -j 0 "$prefix/lib"
mkdir -p -m 0750 "$root/run/regent" "$root/var/lib/regent"
mkdir -p -m 0751 "$root/etc/regent"
# By hand, too, the daemon runs as this user; systemd gives it these folders by itself.
if [ "$(id -u)" = 0 ] && id regent >/dev/null 2>&1; then
    chown regent:regent "$root/run/regent" "$root/var/lib/regent"
fi
"$prefix/bin/regent" version >&2
