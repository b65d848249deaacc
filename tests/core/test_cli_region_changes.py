"""A change that no daemon takes: its cause is printed, again while it lasts, and the command ends in bounded time."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from cli import progress
from cli.commands import region_changes
from cli.exit_codes import Exit, Failure


@pytest.mark.parametrize(("wait", "lines", "ends_s"), [(True, 7, 60), (False, 1, 2)])
def test_a_cause_that_lasts_is_repeated_and_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, wait: bool, lines: int, ends_s: int
) -> None:
    now_s, said, causes = [1_000.0], list[str](), iter(["the term is over"])

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        now_s[0] += 1
        raise Failure(Exit.UNREACHABLE, next(causes, "database or disk is full"), "remove the cause")

    def sleep(pause_s: float) -> None:
        now_s[0] += pause_s

    monkeypatch.setattr(region_changes, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    session = SimpleNamespace(client=lambda: SimpleNamespace(post=post), output=SimpleNamespace(message=said.append))
    with pytest.raises(Failure, match="disk is full"):
        region_changes.changed(cast("Any", session), "/v1/namespaces", {}, wait, 3_600)
    assert now_s[0] - 1_000 <= ends_s + 1
    assert said[0].startswith("the term is over; the request is sent again")
    assert sum(one.startswith("database or disk is full; the request is sent again") for one in said[1:]) == lines - 1


def test_a_trouble_that_lasts_is_a_line_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, said = [1_000.0], list[str]()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    line = progress.ProgressLine(Console(file=io.StringIO()), 7, said.append)
    for _ in range(25):
        line.show(None, "database or disk is full")
        now_s[0] += 1
    assert said == ["pid 7: database or disk is full"] * 3
