"""Commands on tables, servers and regions: each is one request, and is repeated while no daemon takes it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

import httpx
import pytest
from rich.console import Console

from cli import client, progress
from cli.client import Client
from cli.commands import procedures, region_changes, region_procedures, servers
from cli.exit_codes import Exit, Failure
from cli.output import Format, Output
from state_machines.regions.states import REPLACED, RegionState
from tests.kit.command import items, regent, unwrapped

Json = dict[str, Any]
PROCEDURE: Final[Json] = {"kind": "move", "state": "success", "ended": True, "stuck": False, "unusable": ""}
SERVER: Final[Json] = {"name": "kv 1", "incarnation": 5}
PAGE: Final[Json] = {"limit": client.PAGE}
WHY: Final = ("--reason", "new disk", "--nonce", "n1")
SAID: Final[Json] = {"reason": "new disk", "nonce": "n1", "dryRun": False}


class Daemon:
    """Responds to the client in place of a daemon, and notes requests. ``failure``: of each change."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, Json]] = []
        self.got: list[tuple[str, Json]] = []
        self.failure: Failure | None = None
        self.procedure: Json = {}

    def post(self, path: str, body: Json) -> Json:
        self.posted.append((path, body))
        if self.failure is not None:
            raise self.failure
        told = {"detail": "it has the keys from a to b"} if body.get("dryRun") else {}
        return {"items": [{"pid": 12, **PROCEDURE, "state": "runnable", "ended": False, **told}]}

    def get(self, path: str, params: Json | None = None) -> Json:
        self.got.append((path, dict(params or {})))
        found = SERVER if "/servers/" in path else {"pid": 12, **PROCEDURE} | self.procedure
        return {"items": [found]}


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    found = Daemon()
    with mock.patch.object(Client, "post", found.post), mock.patch.object(Client, "get", found.get):
        yield found


def mark(kind: str, subject: str, **more: Any) -> Json:
    return {"kind": kind, "subject": subject, **SAID, **more}


CREATED: Final[Json] = {"name": "shop:a/b", "splits": [], "uniform": 0, "kind": "user", "options": {}, **SAID}
CHANGES: Final[list[tuple[tuple[object, ...], str, Json]]] = [
    (("tables", "create", "shop:a/b", *WHY), "tables", CREATED),
    (
        ("tables", "create", "shop:a/b", "--regions", 4, "--kind", "meta", *WHY),
        "tables",
        CREATED | {"uniform": 4, "kind": "meta"},
    ),
    (
        ("tables", "create", "shop:a/b", "--split", "n", "--split", "x", "--option", "a=b=c", "--option", "d=", *WHY),
        "tables",
        CREATED | {"splits": ["n", "x"], "options": {"a": "b=c", "d": ""}},
    ),
    (("tables", "enable", "shop:a/b", *WHY), "tables/shop%3Aa%2Fb/enable", SAID),
    (("tables", "disable", "shop:a/b", "--yes", *WHY), "tables/shop%3Aa%2Fb/disable", SAID),
    (("tables", "delete", "shop:a/b", "--yes", *WHY), "tables/shop%3Aa%2Fb/delete", SAID),
    (
        ("tables", "truncate", "a/b", "--drop-splits", "--keep-disabled", "--yes", *WHY),
        "tables/a%2Fb/truncate",
        {"dropSplits": True, "enable": False, **SAID},
    ),
    (
        ("tables", "modify", "a/b", "--option", "a=b", "--remove", "c", "--together", 7, *WHY),
        "tables/a%2Fb/modify",
        {"options": {"a": "b"}, "remove": ["c"], "together": 7, **SAID},
    ),
    (("tables", "fix-keys", "a/b", "--yes", *WHY), "tables/a%2Fb/fix-keys", SAID),
    (
        ("tables", "adopt", "a/b", "--kind", "system", "--option", "a=b", "--disabled", "--yes", *WHY),
        "tables/a%2Fb/adopt",
        {"kind": "system", "options": {"a": "b"}, "enabled": False, **SAID},
    ),
    (("tables", "adopt", "t", "--yes", *WHY), "tables/t/adopt", SAID),
    (("tables", "adopt", "t", "--enabled", "--yes", *WHY), "tables/t/adopt", {"enabled": True, **SAID}),
    (
        ("regions", "remove-row", "row 3 of table mark", "--yes", *WHY),
        "rows/remove",
        {"place": "row 3 of table mark", "ended": False, **SAID},
    ),
    (
        ("tables", "clone", "a/b", "--snapshot", "s", *WHY),
        "tables/a%2Fb/clone",
        {"source": "", "snapshot": "s", "options": {}, **SAID},
    ),
    (
        ("tables", "flush", "a/b", *WHY),
        "tables/a%2Fb/work",
        {"work": "flush", "data": "", "tries": 3, "timeoutMs": 0, **SAID},
    ),
    (("tables", "snapshot", "a/b", "s", *WHY), "snapshots", {"name": "s", "table": "a/b", **SAID}),
    (
        ("tables", "restore", "a/b", "s", "--yes", *WHY),
        "tables/a%2Fb/restore",
        {"snapshot": "s", "enable": True, **SAID},
    ),
    (("snapshots", "delete", "s t", "--yes", *WHY), "snapshots/s%20t/delete", SAID),
    (("regions", "stop", "--yes", *WHY), "all/stop", SAID),
    (("regions", "start", *WHY), "all/start", SAID),
    (("tables", "delete", "..", "--yes", *WHY), "tables/%2E%2E/delete", SAID),
    (("tables", "delete", "a..b", "--yes", *WHY), "tables/a..b/delete", SAID),
    (("namespaces", "create", "a/b", *WHY), "namespaces", {"name": "a/b", **SAID}),
    (("namespaces", "delete", "a/b", *WHY), "namespaces/a%2Fb/delete", SAID),
    (("published", "put", "a/b", "x", *WHY), "published", {"name": "a/b", "value": "x", **SAID}),
    (("published", "remove", "a/b", *WHY), "published/a%2Fb/remove", SAID),
    (
        ("tables", "work", "shop:a/b", "flush", *WHY),
        "tables/shop%3Aa%2Fb/work",
        {"work": "flush", "data": "", "tries": 3, "timeoutMs": 0, **SAID},
    ),
    (
        ("regions", "work", 17, "x-compact", "--data", "all", "--tries", 0, "--for", "10m", *WHY),
        "17/work",
        {"work": "x-compact", "data": "all", "tries": 0, "timeoutMs": 600_000, **SAID},
    ),
    (("servers", "drain", "kv 1", *WHY), "servers/kv%201/drain", {"force": False, **SAID}),
    (("servers", "drain", "kv 1,5", "--force", *WHY), "servers/kv%201%2C5/drain", {"force": True, **SAID}),
    (("servers", "expire", "kv 1", "--yes", *WHY), "servers/kv%201%2C5/expire", SAID),
    (("servers", "recover", "kv 1,5", "--yes", *WHY), "servers/kv%201%2C5/recover", SAID),
    (
        ("regions", "adopt", 17, "--table", "a/b", "--start", "g", "--end", "", "--yes", *WHY),
        "17/adopt",
        {"table": "a/b", "start": "g", "end": "", **SAID},
    ),
    (("regions", "adopt", 18, "--table", "a/b", "--yes", *WHY), "18/adopt", {"table": "a/b", **SAID}),
    (("regions", "forget", 17, "--yes", *WHY), "17/forget", {"leaveHole": False, **SAID}),
    (("regions", "forget", 17, "--leave-hole", "--yes", *WHY), "17/forget", {"leaveHole": True, **SAID}),
    (("servers", "forget", "kv 1", *WHY), "servers/kv%201/forget", SAID),
    (("servers", "cordon", "kv 1", *WHY), "marks", mark("cordon", "kv 1")),
    (("servers", "uncordon", "kv 1", *WHY), "marks/remove", mark("cordon", "kv 1")),
    (("servers", "weight", "kv 1", "2.5", *WHY), "marks", mark("weight", "kv 1", weight=2.5)),
    (("servers", "weight", "kv 1", "1", *WHY), "marks/remove", mark("weight", "kv 1")),
    (("servers", "hold", "kv 1", "--for", "10m", *WHY), "marks", mark("hold", "kv 1", forS=600)),
    (("servers", "release", "kv 1", *WHY), "marks/remove", mark("hold", "kv 1")),
    (("regions", "pin", 17, "kv 1", *WHY), "marks", mark("pin", "17", server="kv 1")),
    (("regions", "unpin", 17, *WHY), "marks/remove", mark("pin", "17")),
    (("regions", "assign", 17, *WHY), "17/assign", {"server": "", **SAID}),
    (("regions", "assign", 17, "--to", "kv 1", *WHY), "17/assign", {"server": "kv 1", **SAID}),
    (("regions", "unassign", 17, "--yes", *WHY), "17/unassign", SAID),
    (("regions", "move", 17, "kv 1", *WHY), "17/move", {"server": "kv 1", "force": False, **SAID}),
    (("regions", "move", 17, "kv 1", "--force", *WHY), "17/move", {"server": "kv 1", "force": True, **SAID}),
    (("regions", "reopen", 17, *WHY), "17/reopen", SAID),
]
ENDS: Final[list[tuple[Json, Exit]]] = [
    ({}, Exit.DONE),
    ({"state": "rolledback"}, Exit.FAILED),
    ({"unmet": "1 region not open"}, Exit.REFUSED),
]
NAMES: Final = [" ".join(map(str, words[:-4])) for words, _, _ in CHANGES]


@pytest.mark.parametrize(("words", "path", "body"), CHANGES, ids=NAMES)
def test_a_dry_run_has_no_question_and_waits_for_nothing(
    daemon: Daemon, words: tuple[object, ...], path: str, body: Json
) -> None:
    words = tuple(word for word in words if word != "--yes")
    marks = path.startswith("marks")
    regent(*words, "--dry-run", *(() if marks else ("--wait",)))
    assert daemon.posted == [(f"/v1/regions/{path}", body | {"dryRun": True})]
    assert not [one for one, _ in daemon.got if "procedures" in one]


@pytest.mark.parametrize(
    ("words", "path", "body", "end", "code"),
    [(*change, *ENDS[at % len(ENDS)]) for at, change in enumerate(CHANGES)],
    ids=NAMES,
)
def test_a_change_is_one_request_with_all_that_was_given_and_its_wait_ends_as_the_procedure(
    daemon: Daemon, words: tuple[object, ...], path: str, body: Json, end: Json, code: Exit
) -> None:
    daemon.procedure = end
    marks = path.startswith("marks")
    [found] = items(*words, *(() if marks else ("--wait",)), code=code)
    assert found == {"pid": 12, **PROCEDURE} | end
    assert [one for one, _ in daemon.got if "procedures" in one] == ["/v1/regions/procedures/12"]
    assert daemon.posted == [(f"/v1/regions/{path}", body)]


@pytest.mark.parametrize(
    "words",
    [
        ("tables", "fix-keys", "t", "--yes"),
        ("regions", "adopt", 17, "--table", "t", "--yes"),
        ("regions", "forget", 17, "--yes"),
        ("regions", "remove-row", "row 3 of table mark", "--yes"),
        ("tables", "adopt", "t", "--yes"),
        ("servers", "recover", "kv-1", "--yes"),
    ],
    ids=lambda words: " ".join(map(str, words)),
)
def test_a_repair_without_a_reason_is_refused_before_it_is_sent(daemon: Daemon, words: tuple[object, ...]) -> None:
    for given in ((), ("--reason", " ")):
        said = unwrapped(regent(*words, *given, code=Exit.USAGE).stderr)
        assert "--reason is empty: a repair needs one" in said
        assert "say why, as --reason 'no copy has its row'" in said
    assert not daemon.posted
    regent(*words, "--dry-run")
    assert len(daemon.posted) == 1


@pytest.mark.parametrize(
    ("words", "path", "body", "question"),
    [
        (("regions", "adopt", 17, "--table", "t"), "17/adopt", {"table": "t"}, "Store region 17 of table t again?"),
        (("regions", "forget", 17), "17/forget", {"leaveHole": False}, "Remove what the catalog has of region 17?"),
        (("servers", "recover", "a,1"), "servers/a%2C1/recover", {}, "Store the row of server a,1 again?"),
    ],
    ids=["adopt", "forget", "recover"],
)
def test_the_question_before_a_repair_says_what_the_daemon_would_do(
    daemon: Daemon, words: tuple[object, ...], path: str, body: Json, question: str
) -> None:
    with mock.patch("cli.session.on_terminal", return_value=True):
        said = unwrapped(regent(*words, *WHY, code=Exit.REFUSED, typed="n\n").stderr)
        assert said.startswith(f"it has the keys from a to b{question}"), "on a line before it"
        assert daemon.posted == [(f"/v1/regions/{path}", body | {"dryRun": True})]
        regent(*words, *WHY, typed="y\n")
        assert daemon.posted[-1] == (f"/v1/regions/{path}", body | SAID)
        daemon.failure = Failure(Exit.REFUSED, "region 17 is there")
        assert "region 17 is there" in unwrapped(regent(*words, *WHY, code=Exit.REFUSED).stderr)


@pytest.mark.parametrize("given", [(), ("--nonce", "n1")], ids=["drawn", "given"])
def test_a_change_without_a_response_is_repeated_with_its_nonce(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...]
) -> None:
    monkeypatch.setattr(region_changes, "AGAIN_S", 0.0)
    posted: list[Json] = []

    def post(_path: str, body: Json) -> Json:
        posted.append(body)
        if len(posted) < 3:
            raise Failure(Exit.UNREACHABLE, "no daemon responds", "start one")
        return {"items": [{"pid": 12, **PROCEDURE}]}

    monkeypatch.setattr(Client, "post", lambda _client, path, body: post(path, body))
    said = unwrapped(regent("tables", "disable", "t", "--yes", *given).stderr)
    [nonce] = {body["nonce"] for body in posted}
    assert (len(posted), bool(nonce)) == (3, True)
    assert nonce == "n1" or not given
    assert f"no daemon responds; the request is sent again, with nonce {nonce}" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tables", "describe", ""), "the name is empty"),
        (("servers", "drain", ""), "the name is empty"),
        (("namespaces", "delete", ""), "the name is empty"),
        (("tables", "create", "t", "--regions", 0), "0 is less than 1."),
        (("tables", "create", "t", "--option", "ttl=1", "--option", "ttl=2"), "--option 'ttl' is given twice"),
        (("tables", "create", "t", "--regions", 1_000_001), "1000001 is more than 1000000."),
        (("tables", "create", "t", "--kind", "best"), "'--kind': 'best' is not one of 'meta', 'system', 'user'."),
        (("regions", "move", "users", "kv 1"), "'users' is no whole number."),
        (("regions", "list", "--request-timeout", "soon"), "'soon' is no number."),
        (("regions", "split", 17, "--key", ""), "--key is empty"),
        (("regions", "merge", 17), "1 region is namedRemedy: give 2 to 10 regions"),
        (("regions", "merge", *range(1, 12)), "11 regions are namedRemedy: give 2 to 10 regions"),
        (("servers", "hold", "kv 1", "--for", "61m"), "--for 61m is longer than 1h"),
        (("servers", "hold", "kv 1", "--for", "1x"), "90s, 10m, at most 1h"),
    ],
)
def test_what_no_daemon_would_take_is_refused_and_not_sent(
    daemon: Daemon, words: tuple[object, ...], said: str
) -> None:
    assert said in unwrapped(regent(*words, code=Exit.USAGE).stderr)
    assert (daemon.posted, daemon.got) == ([], [])


def test_regions_are_listed_by_each_state_that_they_can_have(daemon: Daemon) -> None:
    states = [*(one.name.lower() for one in RegionState if one not in REPLACED), "waiting"]
    for state in states:
        regent("regions", "list", "--state", state)
    assert [params["state"] for _, params in daemon.got] == states


def test_the_longest_hold_is_sent(daemon: Daemon) -> None:
    regent("servers", "hold", "kv 1", "--for", "1h")
    assert daemon.posted[0][1]["forS"] == 3_600


@pytest.mark.parametrize("code", [Exit.REFUSED, Exit.FAILED])
@pytest.mark.parametrize(("words", "path", "body"), CHANGES[::6], ids=NAMES[::6])
def test_a_change_that_the_daemon_refuses_is_sent_once(
    daemon: Daemon, words: tuple[object, ...], path: str, body: Json, code: Exit
) -> None:
    daemon.failure = Failure(code, "it cannot be", "the remedy")
    assert "it cannot be" in unwrapped(regent(*words, code=code).stderr)
    assert daemon.posted == [(f"/v1/regions/{path}", body)]


@pytest.mark.parametrize(
    ("words", "path", "params"),
    [
        (("regions", "status"), "", {}),
        (("regions", "describe", 17), "/17", {}),
        (("regions", "transitions", "--limit", 7), "/transitions", {"limit": 7}),
        (("regions", "marks"), "/marks", {}),
        (("regions", "procedures", "show", 12), "/procedures/12", {}),
        (("servers", "list"), "/servers", {}),
        (("namespaces", "list"), "/namespaces", {}),
        (("published", "list"), "/published", {}),
        (("snapshots", "list"), "/snapshots", {}),
        (("regions", "list"), "/list", PAGE),
        (
            (
                *("regions", "list", "--table", "shop:a", "--server-name", "kv 1", "--state", "open"),
                *("--in-transition", "--stranded"),
            ),
            "/list",
            {"table": "shop:a", "server": "kv 1", "state": "open", "inTransition": True, "stranded": True} | PAGE,
        ),
        (("regions", "list", "--stranded"), "/list", {"stranded": True} | PAGE),
        (("regions", "procedures", "list"), "/procedures", {"live": False, "parts": False} | PAGE),
        (
            ("regions", "procedures", "list", "--live", "--parts", "--kind", "crash"),
            "/procedures",
            {"live": True, "parts": True, "kind": "crash"} | PAGE,
        ),
    ],
    ids=lambda words: " ".join(map(str, words)) if isinstance(words, tuple) else "",
)
def test_a_look_is_one_request_with_its_filters(
    daemon: Daemon, words: tuple[object, ...], path: str, params: Json
) -> None:
    items(*words)
    [(asked, given)] = daemon.got
    assert (asked, given) == (f"/v1/regions{path}", params)


@pytest.mark.parametrize("act", ["abort", "bypass", "remove", "leave-out"])
@pytest.mark.parametrize(("given", "body"), [((), {}), (("--reason", "no disk"), {"reason": "no disk"})])
def test_an_end_of_a_procedure_of_regions_is_requested_with_its_reason(
    daemon: Daemon, act: str, given: tuple[str, ...], body: Json
) -> None:
    regent("regions", "procedures", act, 12, "--yes", *given)
    assert daemon.posted == [(f"/v1/regions/procedures/12/{act}", body)]


@pytest.mark.parametrize("option", ["ttl", "=60", ""])
def test_an_option_that_is_no_pair_and_keys_beside_a_number_of_regions_send_nothing(
    daemon: Daemon, tmp_path: Path, option: str
) -> None:
    said = regent("tables", "create", "t", "--option", "a=b", "--option", option, code=Exit.USAGE).stderr
    assert f"--option {option!r} is not NAME=VALUE" in unwrapped(said)
    keys = tmp_path / "keys"
    keys.write_bytes(b"a\xff")
    assert "keys cannot be read" in unwrapped(
        regent("tables", "create", "t", "--splits-file", keys, code=Exit.USAGE).stderr
    )
    regent("tables", "create", "t", "--split", "a", "--regions", 2, code=Exit.USAGE)
    assert not daemon.posted


@pytest.mark.parametrize("group", [(), ("regions",)], ids=["kafka", "regions"])
def test_locks_are_listed_all_of_them_or_those_that_are_waited_for(daemon: Daemon, group: tuple[str, ...]) -> None:
    locks = [{"pid": pid, "resource": "table t", "waiting": pid == 13} for pid in (12, 13, 14)]
    with mock.patch.object(Client, "get", return_value={"items": locks}) as get:
        assert [one["pid"] for one in items(*group, "locks")] == [12, 13, 14]
        assert [one["pid"] for one in items(*group, "locks", "--waiting")] == [13]
    assert {call.args[0] for call in get.call_args_list} == {f"/v1/{'/'.join((*group, 'locks'))}"}


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (("procedures", "wait", 12), "regent procedures wait 12"),
        (("regions", "procedures", "wait", 12), "regent regions procedures wait 12"),
        (("tables", "enable", "t", "--wait"), "regent regions procedures wait 12"),
        (("regions", "pin", 17, "kv-1"), "regent regions procedures wait 12"),
    ],
    ids=lambda words: " ".join(map(str, words)) if isinstance(words, tuple) else "",
)
def test_a_wait_whose_time_is_over_names_the_command_that_goes_on_with_it(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], again: str
) -> None:
    now_s = [1_000.0]

    def sleep(pause_s: float) -> None:
        now_s[0] += pause_s

    for module in (procedures, region_procedures):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    daemon.procedure = {"state": "runnable", "ended": False}
    timeout = () if "pin" in words else ("--timeout", 7)
    said = unwrapped(regent(*words, *timeout, code=Exit.UNFINISHED).stderr)
    assert f"procedure 12 has not ended after {7 if timeout else 60} s" in said
    assert said.rstrip().endswith(f"it goes on: {again}")
    assert now_s[0] == 1_000 + (7 if timeout else 60)


def test_a_request_that_is_too_large_is_one_of_wrong_use() -> None:
    """Its sender has to make it smaller: no daemon failed."""
    refused = httpx.Response(413, json={"message": "a body of 2080135 bytes is not read", "remedy": "send fewer"})
    sender = Client(Path("/nowhere"), 1)
    sender._http = httpx.Client(transport=httpx.MockTransport(lambda _: refused), base_url="http://regent")
    with pytest.raises(Failure, match="is not read") as failure:
        sender.post("/v1/regions/tables", {})
    assert failure.value.code is Exit.USAGE


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
