"""The help of the command: panels, examples that can be typed, and values that complete in a shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from typer.core import TyperGroup

from cli.help import Command, Panel
from tests.kit.answering import Answering
from tests.kit.command import command, regent

PANELS = {
    Panel.RUN: {"run", "admin-endpoint", "demo", "config"},
    Panel.LOOK: {
        "status",
        "history",
        "explain",
        "verify",
        "health",
        "can-stop",
        "can-remove",
        "restart-next",
        "strays",
        "list",
        "describe",
        "events",
        "procedures",
        "locks",
    },
    Panel.CHANGE: {
        "end",
        "preflight",
        "takeover",
        "reassign",
        "cordon",
        "deletions",
        "uncordon",
        "drain",
        "throttle",
        "elect",
        "restart",
        "undrain",
        "pause",
        "resume",
        "shutdown",
    },
    Panel.GIVE_BACK: {"handback"},
    Panel.REGIONS: {"regions", "tables", "snapshots", "namespaces", "published", "servers", "balancer"},
    Panel.PIPELINE: {"loads", "pipeline", "snapshot"},
    Panel.COMMAND: {"completion", "version"},
}


@cache
def shown(path: str) -> str:
    """Returns the help of a command, by its words."""
    return regent(*path.split(), "--help").stdout


def commands() -> dict[str, Command]:
    """Lists commands by their words, without those that only group others."""
    found: dict[str, Command] = {}
    waiting = [("", command())]
    while waiting:
        path, one = waiting.pop()
        if isinstance(one, TyperGroup):
            waiting += [(f"{path} {name}".strip(), child) for name, child in one.commands.items()]
        else:
            assert isinstance(one, Command), path
            found[path] = one
    return found


@pytest.mark.parametrize("panel", PANELS)
def test_each_panel_has_its_commands(panel: Panel) -> None:
    text = shown("").split(f"─ {panel.value} ─")[1].split("╰")[0]
    assert set(re.findall(r"(?m)^│ ([a-z][a-z-]+) ", text)) == PANELS[panel]


def test_every_command_has_a_panel() -> None:
    assert "─ Commands ─" not in shown("")
    assert {path.split()[0] for path in commands()} == set().union(*PANELS.values())


@pytest.mark.parametrize("path", commands())
def test_every_command_has_examples_with_options_that_it_has(path: str) -> None:
    examples = re.findall(r"(?m)^\s*(regent .*?)\s*$", (commands()[path].epilog or ""))
    assert examples
    for example in examples:
        words = shlex.split(example.partition(" > ")[0])
        assert words[1 : 1 + len(path.split())] == path.split(), example
        assert " ".join(example.split()) in " ".join(shown(path).split())
        for option in (word for word in words if re.fullmatch(r"--?[a-z-]+", word)):
            assert re.search(rf"(?<!\S){option}\b", shown(path)), (path, option)


@pytest.mark.parametrize("path", ["", "list", *commands()])
def test_a_flag_has_no_type(path: str) -> None:
    assert "<bool>" not in shown(path)
    assert re.search(r"--no-color +No colors", shown(path))


def test_panels_are_in_order() -> None:
    assert re.findall(r"(?m)^╭─ ([A-Z][a-z ]+?) ─", shown(""))[2:] == [panel.value for panel in PANELS]


def test_there_is_one_way_to_completion() -> None:
    assert "completion" in shown("")
    assert "--install-completion" not in shown("")


ROOT = Path(__file__).parents[3]


def suggested(socket: Path, words: str) -> list[str]:
    """Returns what bash is given for the last of ``words``, however long the daemon takes."""
    program = "import cli.session; cli.session.TIMEOUT_S = 60; from cli.main import main; main()"
    own = {"_REGENT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **own, "REGENT_SERVER": str(socket)}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not found.stderr, found.stderr
    return found.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("regent procedures show ", ["12", "13"]),
        ("regent end 1", ["12", "13"]),
        ("regent explain or", ["orders"]),
        ("regent can-stop ", ["1", "2", "3"]),
        ("regent can-stop 1 --accept below", ["below-min-isr"]),
        ("regent procedures list --kind dr", ["drain"]),
        ("regent events show --kind LEAD", ["LEADER"]),
    ],
)
@pytest.mark.usefixtures("view")
def test_values_complete(surface: tuple[Answering, Path], words: str, expected: list[str]) -> None:
    assert suggested(surface[1], words) == expected


def test_without_a_daemon_nothing_is_suggested_and_nothing_said(tmp_path: Path) -> None:
    assert suggested(tmp_path / "none.sock", "regent procedures show ") == []
