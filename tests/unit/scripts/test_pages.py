"""Generated pages and their tables, and lines with ``make`` and ``python -m`` in docs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scripts.package import packages_of_extras
from testing.embedded.tools import CLASSES, Finished
from tests.verify.clients.accepted import Accepted
from tests.verify.clients.calls import CALLS
from tests.verify.clients.compare import RESULTS, differences
from tests.verify.clients.page import document
from tests.verify.stock_tools import compare
from tests.verify.stock_tools.accepted import ACCEPTED
from tests.verify.stock_tools.accepted import Accepted as AcceptedOutput
from tests.verify.stock_tools.lines import LINES
from tests.verify.stock_tools.lines_moves import FILES
from tests.verify.stock_tools.normal import normal
from tests.verify.stock_tools.page import document as tools_document
from tests.verify.stock_tools.sites import Result
from tests.verify.stock_tools.steps import Line

PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "clients.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "run: make docs"


def test_the_results_cover_the_table_and_every_difference_is_explained() -> None:
    played = json.loads(RESULTS.read_text(encoding="utf-8"))
    assert played["kafka"].keys() == played["regent"].keys()
    assert {len(results) for found in played.values() for results in found.values()} == {len(CALLS)}
    assert not [str(one) for one in differences(played) if one.accepted() is None]


def test_a_difference_is_accepted_as_a_whole_or_not_at_all() -> None:
    one = Accepted("described", kafka="nodes 1", regent="nodes 1 D", why="one node more")
    assert one.explains("described", "nodes 1", "nodes 1 D")
    assert not one.explains("described again", "nodes 1", "nodes 1 D")
    assert not one.explains("described", "nodes 1", "nodes 1 D E")
    assert not one.explains("described", "nodes 1 2", "nodes 1 D")


def test_the_readme_has_the_figures_of_the_page_of_conformance() -> None:
    docs = PAGE.parents[1]
    page = (PAGE.parent / "conformance.md").read_text(encoding="utf-8")
    found = re.search(
        r"(\d+) of (\d+) rows are covered, (\d+) more are answered\. (\d+) are built in part, (\d+) are", page
    )
    of_kafka = re.search(r"(\d+) of (\d+) are covered; (\d+) do not apply", page)
    assert found is not None
    assert of_kafka is not None
    covered, total, answered, part, missing = map(int, found.groups())
    kafka, all_tests, elsewhere = map(int, of_kafka.groups())
    text = " ".join((docs.parent / "README.md").read_text(encoding="utf-8").split())
    assert f"{covered} of the {total} behaviours" in text
    assert f"{answered} more are questions" in text
    assert f"{part} is built in part" in text
    assert not missing or f"{missing} not yet" in text
    assert f"{kafka} of the {all_tests - elsewhere} applicable tests" in text


TOOLS_PAGE = Path(__file__).parents[3] / "docs" / "evidence" / "stock-tools.md"


def test_the_page_of_tools_is_up_to_date() -> None:
    assert TOOLS_PAGE.read_text(encoding="utf-8") == tools_document(), "run: make docs"


def test_every_tool_and_every_file_is_used() -> None:
    assert {line.tool for line in LINES} == set(CLASSES) - {"kafka-delegation-tokens"}, "tokens need a secured cluster"
    assert {name for line in LINES for name in re.findall(r"\{files\}/(\S+)", line.text)} == set(FILES)


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda one: one.line)
def test_every_accepted_difference_covers_a_line(accepted: AcceptedOutput) -> None:
    assert any(accepted.covers(line.text) for line in LINES)


def test_only_values_that_vary_from_run_to_run_are_left_out() -> None:
    line = Line("kafka-topics --describe")
    row = "Topic: a\tTopicId: x4_-\tPartition: 0\tLeader: 2\tIsr: 3,1,2\n"
    printed = f"{row}[2026-01-02 03:04:05,678] ERROR 127.0.0.1:9\n\tat a.b\n"
    assert normal(printed, {"127.0.0.1:9": "BROKER-1"}, line) == (
        "Topic: a\tTopicId: ID\tPartition: 0\tLeader: 2\tIsr: 1,2,3",
        "[DATE] ERROR BROKER-1",
    )
    assert "Leader: N" in normal(printed, {}, line._replace(placed=True))[0]


def test_a_difference_of_tools_is_accepted_as_a_whole_or_not_at_all() -> None:
    one = AcceptedOutput("--describe", lost="", extra="node .*", why="one node more")
    assert one.explains("x --describe", (0, 0), (), ("node 4",))
    assert not one.explains("x --list", (0, 0), (), ("node 4",))
    assert not one.explains("x --describe", (0, 1), (), ("node 4",))
    assert not one.explains("x --describe", (0, 0), ("topic a",), ("node 4",))
    assert not one.explains("x --describe", (0, 0), (), ("node 4", "topic a"))


def test_a_line_that_waits_where_kafkas_does_not_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line("kafka-topics --delete --topic a")
    monkeypatch.setattr(compare, "LINES", (line,))
    quick = Result(0, ("done",), (), Finished(0, "done", ""), 0.5)
    slow = quick._replace(seconds=30.0)
    assert [one.extra for one in compare.differences({"kafka": [quick], "brokers": [slow]})] == [(compare.LONGER,)]
    assert not [*compare.differences({"kafka": [slow], "brokers": [quick]})]


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
