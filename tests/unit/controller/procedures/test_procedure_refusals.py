"""Refusals of requests to end a procedure name the command that ends it, and a part that is gone has its end."""

from __future__ import annotations

import re

import pytest

from controller.procedures.kinds import Kind
from controller.procedures.refusals import as_ended, not_ended
from state_machines.procedures.record import Ending
from state_machines.procedures.states import State
from tests.kills.harness import Daemon
from tests.kills.kinds import Notes, arrives, last, spreads, step, topic
from tests.unit.controller.procedures.test_procedures_engine import Host, ended, submitted

KINDS = (
    Kind("root", (step(spreads("part", 2)), step(last)), topic, no_return=0),
    Kind("part", (step(arrives), step(last)), topic),
)


async def family() -> tuple[Daemon[Notes], int]:
    daemon = await Host(*KINDS).daemon()
    pid = await submitted(daemon, "root")
    await daemon.until(lambda: len(daemon.engine.records) == 3)
    return daemon, pid


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("bypass", "it has parts that go on, and ends with them"),
        ("abort", "it cannot be undone any more"),
        ("remove", "its record can be used (waiting), and is not removed"),
    ],
)
async def test_the_command_of_a_refusal_is_accepted(act: str, why: str) -> None:
    daemon, pid = await family()
    if act != "remove":
        assert not await daemon.run(getattr(daemon.engine, act)(pid))
    found = not_ended(daemon.engine, pid, act, "regent procedures")
    assert found.why == f"pid {pid}: {why}"
    [leaf] = map(int, re.findall(r"'regent procedures bypass (\d+)'", found.remedy))
    assert await daemon.run(daemon.engine.bypass(leaf))
    [other] = [one.pid for one in daemon.engine.live() if one.kind == "part" and not one.bypassed]
    assert await daemon.run(daemon.engine.bypass(other))
    assert (await ended(daemon, pid)).bypassed


async def test_a_bypass_that_was_refused_for_parts_that_have_ended_since_is_to_be_sent_again() -> None:
    """The refusal is worded a moment after it: a command that names itself as the way out would confuse."""
    daemon = await Host(*KINDS).daemon()
    pid = await submitted(daemon, "part")
    found = not_ended(daemon.engine, pid, "bypass", "regent procedures")
    assert found.why == f"pid {pid}: its parts ended only now"
    assert found.remedy == f"'regent procedures bypass {pid}' ends it as it is: try again"
    assert await daemon.run(daemon.engine.bypass(pid))


async def test_what_has_ended_is_said_to_have() -> None:
    daemon, _ = await family()
    found = not_ended(daemon.engine, 999, "bypass", "regent procedures")
    assert found == ("pid 999: it has ended already", "see 'regent procedures show 999'")


async def test_a_part_that_is_gone_before_the_response_has_its_end_in_it() -> None:
    daemon, pid = await family()
    part = daemon.engine.records[pid + 1]
    ending = Ending("bypass", "uid 7", "it hangs")
    assert await daemon.run(daemon.engine.bypass(part.pid, ending))
    await daemon.until(lambda: part.pid not in daemon.engine.records)
    found = as_ended(daemon.engine, part, ending)
    assert (found.state, found.bypassed, found.ending.reason) == (State.SUCCESS, True, "it hangs")
    assert as_ended(daemon.engine, daemon.engine.records[pid], ending) is daemon.engine.records[pid]
