"""Lines with ``make`` and ``python -m`` in the README and its pages can be typed: targets and options exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
)
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
MADE = sorted(set(re.findall(r"(?:`|^)make ([a-z-]+(?: [A-Z]+=\w+)*)", TEXT, re.MULTILINE)))
MODULES = sorted(set(re.findall(r"`.venv/bin/python -m ([^`]+)`", TEXT)))


def run(*command: str) -> str:
    """What a command prints; it must end well."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@cache
def offered(*program: str) -> str:
    """The help of one of our programs."""
    return run(sys.executable, *program, "--help")


def has_its_options(words: list[str], *program: str) -> None:
    """Every option that a program is given is one that it has."""
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", offered(*program)), (program, option)


def has_options(line: str) -> None:
    """A command line of ours, wherever the interpreter stands in it, fits the program."""
    words = shlex.split(line.partition(";")[0].removeprefix("@"))
    if words[1:2] == ["-m"] and words[2].split(".")[0] in ("tests", "benchmarks", "scripts"):
        has_its_options(words[3:], "-m", words[2])
    elif words[0].endswith("/regent"):
        has_its_options(words[2:], "-c", "from cli.main import main; main()", words[1])


@pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")
@pytest.mark.parametrize("target", MADE)
def test_make_knows_it_and_passes_on_what_is_there(target: str) -> None:
    name, *variables = target.split()
    assert re.search(rf"(?m)^{name}:.*## ", (ROOT / "Makefile").read_text()), "it is in the list that make prints"
    printed = run("make", "--dry-run", "--no-print-directory", *target.split())
    plain = run("make", "--dry-run", "--no-print-directory", name)
    assert bool(variables) == (printed != plain), "a variable changes what is done"
    for line in printed.splitlines():
        has_options(line)


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_there_with_the_options_named(module: str) -> None:
    name, *words = shlex.split(module)
    offered("-m", name)
    has_its_options(words, "-m", name)


def test_there_is_something_to_look_at() -> None:
    assert {"test", "demo", "verify", "bench", "bench-full"} <= set(MADE)
    assert any(target.startswith("simulate SEEDS=") for target in MADE)
    assert MODULES
