"""Lines with ``make`` and ``python -m`` in the README and its pages: their targets and options exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scripts.package import packages_of_extras

ROOT = Path(__file__).parents[3]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
)
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
MADE = sorted(set(re.findall(r"(?:`|^)make ([a-z-]+(?: [A-Z]+=\w+)*)", TEXT, re.MULTILINE)))
MODULES = sorted(set(re.findall(r"`.venv/bin/python -m ([^`]+)`", TEXT)))


def run(*command: str) -> str:
    """Runs a command, which must succeed, and returns its output."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@cache
def offered(*program: str) -> str:
    """Returns the help of one of the repository's programs."""
    return run(sys.executable, *program, "--help")


def has_its_options(words: list[str], *program: str) -> None:
    """Asserts that a program has all given options."""
    for option in (word for word in words if word.startswith("--")):
        assert re.search(rf"{option}\b", offered(*program)), (program, option)


def has_options(line: str) -> None:
    """Asserts that the program of a command line has all its options."""
    words = shlex.split(line.partition(";")[0].removeprefix("@"))
    if words[1:2] == ["-m"] and words[2].split(".")[0] in ("tests", "benchmarks", "scripts"):
        has_its_options(words[3:], "-m", words[2])
    elif words[0].endswith("/regent"):
        has_its_options(words[2:], "-c", "from cli.main import main; main()", words[1])


@pytest.mark.skipif(shutil.which("make") is None, reason="this machine has no make")
@pytest.mark.parametrize("target", MADE)
def test_a_documented_target_exists_and_uses_its_variables(target: str) -> None:
    name, *variables = target.split()
    assert re.search(rf"(?m)^{name}:.*## ", (ROOT / "Makefile").read_text()), "make alone lists it"
    printed = run("make", "--dry-run", "--no-print-directory", *target.split())
    plain = run("make", "--dry-run", "--no-print-directory", name)
    assert bool(variables) == (printed != plain), "a variable changes the commands"
    for line in printed.replace("\\\n", " ").splitlines():
        has_options(line)


def lacks_an_extra(name: str) -> bool:
    """Returns whether a program of the repository ends because this environment lacks a package of an extra."""
    done = subprocess.run((sys.executable, "-m", name, "--help"), cwd=ROOT, capture_output=True, text=True, check=False)
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", done.stderr)
    return missing is not None and missing[1] in packages_of_extras()


@pytest.mark.parametrize("module", MODULES)
def test_a_documented_module_exists_with_its_options(module: str) -> None:
    name, *words = shlex.split(module)
    if lacks_an_extra(name):
        pytest.skip(f"{name} needs an extra that is not installed here")
    offered("-m", name)
    has_its_options(words, "-m", name)


def test_the_pages_contain_targets_and_modules() -> None:
    assert {"test", "demo", "verify", "bench", "bench-full"} <= set(MADE)
    assert any(target.startswith("simulate SEEDS=") for target in MADE)
    assert MODULES
