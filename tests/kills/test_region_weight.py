"""Region procedures at their bounds: the largest requests, and a ZooKeeper that takes little at once."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from msgspec.structs import replace

from controller.procedures.writes import Scale
from controller.regions.environment import Options
from controller.regions.operator.ways import failures_of
from controller.regions.procedures import by_ids
from controller.regions.procedures.by_ids import BY_IDS
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from regent_agent import protocol
from state_machines.procedures.record import Caller, Record
from state_machines.procedures.states import State
from state_machines.regions.choosing import IDS_MAX
from state_machines.regions.layout import NAME_CHARS_MAX
from tests.kills import region_servers
from tests.kills.harness import Clock, Deaths
from tests.kills.region_cases import CASES, Case
from tests.kills.region_daemons import LEASE_MS, End, Life, Story, play
from tests.kills.region_servers import Service
from tests.kills.region_stories import crashes, create, nothing
from tests.kills.test_regions import STORES, end_of, in_memory, narrow_end_of

WIDE = "\U0001f680"
"""A character of four bytes."""
CONTROL = "\x01"
"""A character of six bytes in JSON."""
LONGEST = Caller(WIDE * 500, WIDE * 500, WIDE * 1_000, WIDE * 500)
NAME = "t" * NAME_CHARS_MAX
SERVERS = tuple(WIDE * 20 + one for one in "123")
"""Names of servers have at most 255 bytes as a path quotes them."""
OPTIONS = {f"{number:03}{CONTROL * 197}": CONTROL * 1_000 for number in range(100)}


class Run:
    """A service with servers, and a store; stories follow each other on it."""

    def __init__(self, store: str, folder: Path, servers: tuple[str, ...], fence: str = "lease") -> None:
        self.service, self.clock = Service(), Clock()
        self.domains = STORES[store](folder)
        self.options = Options(lease_ms=LEASE_MS, fence=fence)
        for name in servers:
            self.service.start(name)

    async def play(self, story: Story) -> End:
        deaths = Deaths()
        return await play(self.domains, self.service, self.clock, self.options, story, deaths)


def changes(kind: str, task: TableTask, caller: Caller) -> Story:
    """A caller changes a table."""

    async def story(life: object) -> Record:
        return await life.run(kind, TABLE_TASK.encode(task), caller=caller)  # type: ignore[attr-defined, no-any-return]

    return story


@pytest.mark.parametrize("store", STORES)
async def test_a_table_of_many_regions_is_disabled_with_a_long_reason(store: str, tmp_path: Path) -> None:
    """Each batch has 400 children, each of which had the reason."""
    run = Run(store, tmp_path, ("s1", "s2", "s3"))
    await run.play(changes("create_table", TableTask("t", uniform=1_200), Caller(nonce="1")))
    end = await run.play(changes("disable_table", TableTask("t"), Caller("User:ops", reason="\u6f22" * 710, nonce="2")))
    assert end.outcome == (State.SUCCESS, b"")
    assert {region[3] for region in end.regions} == {"CLOSED"}


@pytest.mark.parametrize("store", STORES)
async def test_the_most_ids_and_the_longest_reason_of_a_request_are_stored(store: str, tmp_path: Path) -> None:
    """Each batch has the reason, and each child of it."""
    run = Run(store, tmp_path, ("s1", "s2", "s3"))
    await run.play(changes("create_table", TableTask("t", uniform=500), Caller(nonce="1")))

    async def story(life: Life) -> Record:
        ids = [one.id for one in life.term.env.model.tables["t"].regions]
        ids += [(1 << 63) - 1 - at for at in range(IDS_MAX - len(ids))]
        task = by_ids.naming(ids, WIDE * 1_000)
        return await life.run(by_ids.CLOSE, BY_IDS.encode(task), caller=LONGEST)

    end = await run.play(story)
    assert end.outcome is not None
    assert end.outcome[0] is State.SUCCESS
    assert end.outcome[1].startswith(b"500 closed, 9,500 left out: ")
    assert {region[3] for region in end.regions} == {"CLOSED"}


@pytest.mark.parametrize("store", STORES)
async def test_a_table_is_created_and_crashes_with_the_longest_names_and_options(store: str, tmp_path: Path) -> None:
    run = Run(store, tmp_path, SERVERS)
    created = await run.play(changes("create_table", TableTask(NAME, options=OPTIONS, uniform=400), LONGEST))
    assert created.outcome == (State.SUCCESS, b"0")

    async def one_crashes(life: object) -> None:
        run.service.servers[SERVERS[0], 1].dies()

    end = await run.play(one_crashes)
    assert {region[3] for region in end.regions} == {"OPEN"}
    assert [name for name, _ in end.servers] == sorted(SERVERS[1:])
    end = await run.play(changes("disable_table", TableTask(NAME), replace(LONGEST, nonce="2" * 500)))
    assert {region[3] for region in end.regions} == {"CLOSED"}


async def test_a_log_with_a_part_that_no_record_can_hold_is_fenced_again_and_the_refusal_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_servers, "PARTS", ["a", WIDE * 1_000_000])
    run = Run("zookeeper", tmp_path, ("s1", "s2"), fence="log")
    await run.play(nothing)

    async def seen(life: Life) -> None:
        run.service.servers["s1", 1].dies()
        failed: list[str] = []

        def is_shown() -> bool:
            failed[:] = [one for one in failures_of(("s1", 1), life.term.engine) if "1000000 characters" in one]
            return bool(failed)

        await life.until(is_shown)
        assert "names a part with 1000000 characters, at most 10000" in failed[0]
        monkeypatch.setattr(region_servers, "PARTS", ["a"])
        await life.until(lambda: not life.term.env.model.servers.get(("s1", 1)))

    await run.play(seen)


@pytest.mark.parametrize("store", STORES)
async def test_a_log_whose_parts_have_long_names_is_split(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [f"{number:03}" + WIDE * 4_997 for number in range(100)]
    monkeypatch.setattr(region_servers, "PARTS", parts)
    run = Run(store, tmp_path, ("s1", "s2"), fence="log")
    await run.play(nothing)
    assert not (await run.play(crashes)).servers[1:]
    assert {part for _, _, part in run.service.split} == set(parts)


SOME = list(
    dict.fromkeys(
        (
            "disable",
            "work on a table",
            "assign by ids",
            "close by ids",
            *[name for name, case in CASES.items() if not case.whole][::5],
        )
    )
)


@pytest.mark.parametrize("name", SOME)
async def test_a_region_procedure_ends_the_same_where_little_fits_into_a_write(name: str, tmp_path: Path) -> None:
    expected = await end_of(CASES[name], in_memory(tmp_path), Deaths())
    fitting, parts = Scale.fitting, list[int]()

    def noting(*of: object) -> int:
        parts.append(fitting(*of))  # type: ignore[arg-type]
        return parts[-1]

    with mock.patch.object(Scale, "fitting", noting):
        assert await narrow_end_of(CASES[name], Deaths()) == expected
    if name == "disable":
        assert min(parts) >= 1, "batches of four regions went in parts"


async def test_regions_that_no_server_can_open_are_tried_once_by_a_batch_that_goes_in_parts() -> None:
    """The next part begins behind them: a batch that began anew would try them for ever."""
    failing = Case(create, (nothing,), {"open_attempts_max": 1})
    service = Service()
    service.failing = {region: [protocol.FAILED_OPEN] * 9 for region in range(2_000)}
    end = await narrow_end_of(failing, Deaths(), service)
    assert end.outcome == (State.SUCCESS, b"4")
    assert {len(one) for one in service.failing.values()} == {8, 9}


@pytest.mark.parametrize("name", ["split", "merge"])
async def test_keys_whose_change_is_too_large_for_one_write_stay_where_they_are(name: str) -> None:
    """The regions are closed by then, and opened again: there is no half of such a change."""
    end = await narrow_end_of(CASES[name], Deaths())
    assert end.outcome == (State.ROLLEDBACK, b"")
    assert [(start, state) for _, start, _, state, _ in end.regions] == [
        (key, "OPEN") for key in (b"", b"g", b"n", b"t")
    ]
    assert end.shapes == []
