"""``scripts/image/build.sh`` with stand-ins for the interpreter and for commands of root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts/image/build.sh"
INTERPRETER = """#!/bin/sh
case "$*" in
"-c "*) echo "$0" ;;
"-m venv "*)
    for prefix; do :; done
    case "$*" in *--clear*) rm -rf "$prefix" ;; esac
    mkdir -p "$prefix/bin"
    [ -L "$prefix/bin/python" ] || ln -s "$0" "$prefix/bin/python"
    printf '#!/bin/sh\\n' >"$prefix/bin/regent"
    chmod +x "$prefix/bin/regent"
    ;;
esac
"""
ID = """#!/bin/sh
case "$*" in
-u) echo 0 ;;
*) {known} ;;
esac
"""


def program(path: Path, text: str) -> Path:
    """Writes an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def build(root: Path, interpreter: Path | None, code: int = 0, **environment: str) -> str:
    """Runs the script, which must end with ``code``; returns its standard error."""
    environ = os.environ | ({"PYTHON": str(interpreter)} if interpreter else {}) | environment
    ended = subprocess.run([SCRIPT, root], env=environ, check=False, capture_output=True, text=True)
    assert ended.returncode == code, ended.stderr
    return ended.stderr


def test_another_interpreter_makes_the_environment_anew(tmp_path: Path) -> None:
    first, second = (program(tmp_path / name / "python3", INTERPRETER) for name in ("first", "second"))
    prefix = tmp_path / "root/opt/regent"
    assert "made anew" not in build(tmp_path / "root", first)
    (prefix / "kept").touch()
    assert "made anew" not in build(tmp_path / "root", first), "an upgrade leaves a running daemon its modules"
    assert (prefix / "kept").exists()
    assert f"another interpreter than {second}" in build(tmp_path / "root", second)
    assert (prefix / "bin/python").resolve() == second
    assert not (prefix / "kept").exists()
    second.unlink()
    build(tmp_path / "root", first)
    assert (prefix / "bin/python").resolve() == first, "also where the former interpreter is gone"


def test_an_upgrade_keeps_the_interpreter_although_another_python3_comes_first(tmp_path: Path) -> None:
    first, other = (program(tmp_path / name / "python3", INTERPRETER) for name in ("first", "other"))
    root, prefix = tmp_path / "root", tmp_path / "root/opt/regent"
    path = f"{other.parent}:{os.environ['PATH']}"
    build(root, first)
    (prefix / "kept").touch()
    assert "made anew" not in build(root, None, PATH=path)
    assert (prefix / "kept").exists()
    assert (prefix / "bin/python").resolve() == first
    first.unlink()
    assert "made anew" in build(root, None, PATH=path), "without its interpreter nothing runs there any more"
    assert (prefix / "bin/python").resolve() == other


def test_an_environment_stays_if_its_successor_cannot_be_downloaded(tmp_path: Path) -> None:
    first = program(tmp_path / "first/python3", INTERPRETER)
    offline = program(
        tmp_path / "offline/python3", INTERPRETER.replace("\nesac", '\n*" install "* | *" download "*) exit 9 ;;\nesac')
    )
    root, prefix = tmp_path / "root", tmp_path / "root/opt/regent"
    build(root, first)
    (prefix / "kept").touch()
    build(root, offline, code=9)
    assert (prefix / "kept").exists()
    assert (prefix / "bin/python").resolve() == first


@pytest.mark.parametrize("known", [True, False])
def test_the_daemons_folders_belong_to_its_user_where_that_user_exists(tmp_path: Path, known: bool) -> None:
    commands, called = tmp_path / "commands", tmp_path / "chown"
    program(commands / "id", ID.format(known="true" if known else "false"))
    program(commands / "chown", f'#!/bin/sh\necho "$@" >{called}\n')
    root = tmp_path / "root"
    interpreter = program(tmp_path / "python3", INTERPRETER)
    build(root, interpreter, PATH=f"{commands}:{os.environ['PATH']}")
    assert called.exists() == known
    if known:
        assert called.read_text().split() == ["regent:regent", f"{root}/run/regent", f"{root}/var/lib/regent"]
