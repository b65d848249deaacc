"""The pause of automatic moves: over failovers, until its end, with requests of clients that go on."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest

from cli.exit_codes import Exit
from controller.http.documents import NotActive, ViewRefused
from controller.kafka.path.events import EventKind
from controller.kafka.procedures import drain, reassign
from controller.operator.pauses import ROUNDS_MAX, PauseRequest, PauseView, pause_sentence
from controller.process.clock import wall_ms
from metadata_store.nodes.pause_node import PATH, FoundPause, Pause, read_pause
from state_machines.decisions.drain import Drain
from state_machines.decisions.leader_election import ElectionType
from state_machines.decisions.plan_progress import ReassignPlan, Status
from state_machines.procedures.record import Caller
from state_machines.procedures.states import State
from tests.kit.answering import Answering, daemon_in_thread
from tests.kit.command import items, regent
from tests.kit.kafka.plans import applied, finished, moves, moving, record, running, statuses
from tests.kit.kafka.world import KafkaWorld, in_world


def view_of(w: KafkaWorld) -> PauseView:
    return PauseView(lambda: w.term)


async def paused(w: KafkaWorld, for_s: int | None = None, reason: str = "") -> PauseView:
    """Pauses in the present term."""
    view = view_of(w)
    assert (await view.pause(PauseRequest(for_s=for_s, reason=reason), "uid 0")).paused
    await w.settle()
    return view


async def led_by_others(w: KafkaWorld) -> None:
    """Topic t is led by brokers that are not preferred."""
    await w.topic("t", (1, 2), (1, 2), leaders=True, led_by=2)
    await w.begin_term()
    await w.propagated()


def obeyed(w: KafkaWorld) -> bool:
    return w.term.controller.pauses.in_force is not None


def leaders(w: KafkaWorld) -> list[int]:
    return [state.leader for _, state in sorted(w.states.items())]


async def balanced(w: KafkaWorld) -> list[int]:
    """Runs the automatic balance; returns the leaders."""
    w.term.queue.signal(EventKind.AUTO_BALANCE)
    await w.propagated()
    return leaders(w)


@in_world(1, 2, before=led_by_others)
async def test_the_balance_stands_still_and_a_client_may_elect(w: KafkaWorld) -> None:
    view = await paused(w)
    assert await balanced(w) == [2, 2]
    assert await w.elect(ElectionType.PREFERRED, ("t", 0)) == {("t", 0): 0}
    assert not (await view.resume()).paused
    await w.settle()
    assert await balanced(w) == [1, 1]


@in_world(1, 2, before=led_by_others)
async def test_elections_go_on(w: KafkaWorld) -> None:
    await paused(w)
    w.die(2)
    await w.propagated()
    assert leaders(w) == [1, 1]


@in_world(1, 2, before=led_by_others)
async def test_a_pause_outlives_the_daemon_and_ends_by_itself(w: KafkaWorld) -> None:
    await paused(w, for_s=60)
    await w.active.crash()
    await w.begin_term()
    await w.settle()
    assert obeyed(w)
    assert await balanced(w) == [2, 2]
    await asyncio.sleep(61)
    await w.settle()
    assert not obeyed(w)
    assert not (await view_of(w).shown()).paused
    assert await balanced(w) == [1, 1]


@pytest.mark.parametrize("set_ms", [-86_400_000, 86_400_000])
@in_world(1, 2, before=led_by_others)
async def test_a_pause_lasts_as_long_as_it_was_given_for_however_the_clock_is_set(w: KafkaWorld, set_ms: int) -> None:
    await paused(w, for_s=60)
    now_ms = wall_ms() + set_ms
    with mock.patch("controller.kafka.brokers.marks.wall_ms", return_value=now_ms):
        await asyncio.sleep(30)
        w.term.queue.signal(EventKind.PAUSE_CHANGE)
        await w.settle()
        assert obeyed(w)
        await asyncio.sleep(31)
        await w.settle()
        assert not obeyed(w)


@in_world(1, 2, before=led_by_others)
async def test_a_pause_whose_begin_is_ahead_of_the_clock_lasts_no_longer_than_its_length(w: KafkaWorld) -> None:
    await paused(w, for_s=60)
    await w.active.crash()
    with mock.patch("controller.kafka.brokers.marks.wall_ms", return_value=wall_ms() - 86_400_000):
        await w.begin_term()
        await w.settle()
        assert obeyed(w)
        await asyncio.sleep(61)
        await w.settle()
        assert not obeyed(w)


@in_world(1, 2, 3, 4)
async def test_a_plan_begins_no_wave_and_those_under_way_end(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), moves_max=2))
    assert len(moving(w)) == 2
    view = await paused(w)
    await finished(w, pid)
    assert (moving(w), statuses(w, pid).count(Status.QUEUED)) == (set(), 4)
    await view.resume()
    await w.settle()
    assert (await finished(w, pid)).state is State.SUCCESS


@in_world(1, 2, 3, 4)
async def test_a_plan_that_was_paused_alone_stays_so_after_the_resume(w: KafkaWorld) -> None:
    await running(w)
    pid = await applied(w, ReassignPlan(moves(), paused=True))
    view = await paused(w)
    await view.resume()
    await finished(w, pid)
    assert reassign.plan_of(record(w, pid)).paused
    assert moving(w) == set()


@in_world(1, 2, 3)
async def test_a_drain_waits_for_the_resume(w: KafkaWorld) -> None:
    await w.topic("t", (1, 2), leaders=True)
    await w.begin_term()
    view = await paused(w)
    engine = w.term.procedures.engine
    pid = await engine.submit(drain.NAME, drain.encode_drain(Drain((1,))), Caller())
    await asyncio.sleep(30)
    await w.settle()
    assert leaders(w) == [1]
    await view.resume()
    assert (await engine.result(pid)).state is State.SUCCESS
    assert leaders(w) == [2]


@in_world(1, 2, before=led_by_others)
async def test_a_second_pause_replaces_the_first_and_resume_without_one_changes_nothing(w: KafkaWorld) -> None:
    view = view_of(w)
    assert not (await view.resume()).paused
    await paused(w, for_s=60, reason="network")
    await paused(w, reason="disks")
    shown = await view.shown()
    assert (shown.paused, shown.reason, shown.principal, shown.until) == (True, "disks", "uid 0", None)
    await asyncio.sleep(61)
    await w.settle()
    assert obeyed(w), "the first one's end does not end the second"


@pytest.mark.parametrize(
    ("data", "why"), [(b"{", "JSON"), (b'{"pause":{},"version":2}', "format 2 is newer than this daemon's")]
)
@in_world(1, 2, before=led_by_others)
async def test_a_pause_that_cannot_be_read_leaves_the_one_before_in_force_and_is_not_written_over(
    w: KafkaWorld, data: bytes, why: str
) -> None:
    view = await paused(w)
    await w.operator.set(PATH, data, -1)
    await w.settle()
    assert obeyed(w)
    assert PATH in w.counters.malformed
    with pytest.raises(ViewRefused, match="cannot be understood"):
        await view.resume()
    await w.operator.delete(PATH, -1)
    await w.settle()
    assert not obeyed(w)


@in_world(1, 2, before=led_by_others)
async def test_a_pause_that_other_clients_write_all_the_time_is_given_up(w: KafkaWorld) -> None:
    view = await paused(w)

    async def foreign() -> None:
        await w.operator.set(PATH, b'{"pause":{},"version":1}', -1)

    w.active.script.at(PATH, foreign, exact=True, times=ROUNDS_MAX)
    with pytest.raises(ViewRefused, match="other clients write /regent/pause all the time"):
        await view.resume()


@in_world(1, 2, before=led_by_others)
async def test_a_term_that_may_not_write_pauses_nothing(w: KafkaWorld) -> None:
    w.term.gate.close()
    with pytest.raises(NotActive, match="cannot be written"):
        await view_of(w).pause(PauseRequest(), "uid 0")
    assert await read_pause(w.operator) == FoundPause()


@pytest.mark.parametrize(
    ("pause", "words"),
    [
        (None, None),
        (Pause(), "until 'regent resume', by an operator"),
        (Pause("disks", "uid 0", 1, 1_700_000_000_000), "until 2023-11-14 22:13:20 UTC, by uid 0: disks"),
    ],
)
def test_the_sentence_of_a_pause(pause: Pause | None, words: str | None) -> None:
    assert pause_sentence(pause) == words


@pytest.mark.parametrize(("until_ms", "holds"), [(0, True), (999, False), (1_000, False), (1_001, True)])
def test_a_pause_holds_up_to_its_end(until_ms: int, holds: bool) -> None:
    assert Pause(until_ms=until_ms).holds(1_000) is holds


def test_the_commands_pause_and_resume(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Answering()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), double) as socket:
        monkeypatch.setenv("REGENT_SERVER", str(socket))
        for given, seconds in (("90s", 90), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400)):
            assert items("pause", "--for", given, "--reason", "disks")[0]["paused"]
            assert double.noted("pauses.pause", "pauses.resume")[-1] == PauseRequest(for_s=seconds, reason="disks")
        items("pause")
        assert double.noted("pauses.pause", "pauses.resume")[-1] == PauseRequest()
        assert not items("resume")[0]["paused"]
        for given in ("5", "0s", "-1m", "1w", "1.5h"):
            assert "is no time" in regent("pause", "--for", given, code=Exit.USAGE).stderr
        assert "forS" in regent("pause", "--for", "367d", code=Exit.USAGE).stderr
