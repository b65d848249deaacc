"""A change that no daemon takes: its cause is printed, again while it lasts, and the command ends in bounded time."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from cli import progress
from cli.commands import region_changes, region_procedures, servers
from cli.exit_codes import Exit, Failure
from cli.output import Format, Output


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


@pytest.mark.parametrize("given", ["s1", "s1,1"])
def test_an_expiry_that_is_sent_again_is_about_the_process_that_was_there_at_first(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Its crash had begun by itself, so that no procedure has its nonce; then its response was lost."""
    incarnations, paths = iter([1, 2]), list[str]()

    def get(path: str) -> dict[str, Any]:
        return {"items": [{"name": "s1", "incarnation": next(incarnations)}]}

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        paths.append(path)
        if len(paths) == 1:
            raise Failure(Exit.UNREACHABLE, "no response", "wait")
        return {"items": [{"pid": 7}]}

    monkeypatch.setattr(region_changes, "AGAIN_S", 0.0)
    output = SimpleNamespace(message=str, detail=lambda *_: None)
    session = SimpleNamespace(client=lambda: SimpleNamespace(get=get, post=post), output=output)
    servers.expire(cast("Any", session), given, yes=True)
    assert paths == ["/v1/regions/servers/s1%2C1/expire"] * 2


def test_an_expiry_of_a_server_that_is_gone_is_answered_by_its_nonce() -> None:
    def get(path: str) -> dict[str, Any]:
        raise Failure(Exit.FAILED, "server 's1' is not known", "see 'regent servers list'")

    shown = list[dict[str, Any]]()
    client = SimpleNamespace(get=get, post=lambda path, body: {"items": [{"pid": 7, "nonce": body["nonce"]}]})
    output = SimpleNamespace(message=str, detail=lambda _, found: shown.append(found))
    session = SimpleNamespace(client=lambda: client, output=output)
    servers.expire(cast("Any", session), "s1", nonce="n1", yes=True)
    assert shown == [{"pid": 7, "nonce": "n1"}]


def test_a_trouble_that_lasts_is_a_line_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, said = [1_000.0], list[str]()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    line = progress.ProgressLine(Console(file=io.StringIO()), 7, said.append)
    for _ in range(25):
        line.show(None, "database or disk is full")
        now_s[0] += 1
    assert said == ["pid 7: database or disk is full"] * 3


def test_causes_that_take_turns_are_a_line_each_and_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, said = [1_000.0], list[str]()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    line = progress.ProgressLine(Console(file=io.StringIO()), 7, said.append)
    for number in range(60):
        line.show({"progress": f"s{number % 2} said failed_open", "endsBy": "'regent tables delete t' ends it"})
        now_s[0] += 2
    told = [f"pid 7: s{number} said failed_open; 'regent tables delete t' ends it" for number in range(2)]
    assert said == told * 2


def test_a_procedure_is_shown_without_lines_for_fields_that_have_no_value(capsys: pytest.CaptureFixture[str]) -> None:
    item = {"pid": 7, "state": "success", "ended": True, "parked": "", "parent": None, "results": [], "attempts": 0}
    Output(Format.TABLE, color=False).detail("Procedure", item)
    assert [one.split() for one in capsys.readouterr().out.splitlines()] == [
        ["pid", "7"], ["state", "success"], ["ended", "yes"], ["attempts", "0"],
    ]  # fmt: skip


def test_names_and_keys_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(Format.TABLE, color=False)
    output.listing("Region", [{"id": 7, "table": "a", "start": ":b:", "end": "[red]x[/]", "state": "OPEN"}])
    output.detail("Procedure", {"pid": 7, "reason": ":smile: [bold]"})
    output.message("name 'a:b:c': one colon")
    said = capsys.readouterr()
    assert [one in said.out for one in (":b:", "[red]x[/]", ":smile: [bold]")] == [True] * 3
    assert said.err == "name 'a:b:c': one colon\n"


@pytest.mark.parametrize(
    ("item", "flag"),
    [
        ({"state": "waiting", "ended": False, "error": "on t#1: no disk"}, "failing"),
        ({"state": "waiting", "ended": True, "error": "on t#1: no disk"}, ""),
        ({"state": "success", "ended": True, "unmet": "2 regions not open"}, "unmet"),
        ({"state": "success", "ended": True, "unmet": ""}, ""),
        ({"state": "bypassed", "ended": True, "unmet": "what it left undone is listed"}, ""),
    ],
)
def test_a_procedure_that_fails_or_left_something_undone_is_flagged_in_the_list(
    item: dict[str, Any], flag: str
) -> None:
    found = list[dict[str, Any]]()
    item = {"pid": 7, "stuck": False, **item}
    client = SimpleNamespace(pages=lambda path, params: [item])
    output = SimpleNamespace(listing=lambda _, items: found.extend(items))
    region_procedures.listed(cast("Any", SimpleNamespace(client=lambda: client, output=output)))
    assert [one["flag"] for one in found] == [flag]
