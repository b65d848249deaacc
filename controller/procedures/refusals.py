"""Words what stands still, and responses to requests to end a procedure: with the command that ends it, if any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from controller.procedures.engine import Engine
from controller.process.wording import counted, named
from state_machines.procedures.record import Ending, Record
from state_machines.procedures.states import State


class Refusal(NamedTuple):
    """Why a request is refused, and what would make one succeed."""

    why: str
    remedy: str


def not_ended(
    engine: Engine[Any], pid: int, act: str, command: str, better: str = "", *, in_vain: bool = False
) -> Refusal:
    """Says why a procedure cannot be ended in one way. ``command``: of this program, for the domain's procedures.

    ``better``: what ends it in a better way than a bypass. ``in_vain``: a bypass gains nothing, and is not named then.
    """
    record = engine.records.get(pid)
    if act not in ("abort", "bypass", "remove"):
        return Refusal(f"pid {pid}: it has failed or ended", f"see '{command} show {pid}'")
    if record is None or record.state.is_final:
        return Refusal(f"pid {pid}: it has ended already", f"see '{command} show {pid}'")
    leaf = _leaf(engine, record)
    if act == "bypass" and leaf == pid:
        return Refusal(f"pid {pid}: its parts ended only now", f"'{command} bypass {pid}' ends it as it is: try again")
    ends = better if in_vain and better else f"'{command} bypass {leaf}' ends it as it is"
    if better and not in_vain:
        ends = f"{better}; {ends}"
    if act == "remove":
        return Refusal(f"pid {pid}: its record can be used ({record.state.name.lower()}), and is not removed", ends)
    if act == "bypass":
        remedy = ends if in_vain and better else f"{ends}: it is one of them"
        return Refusal(f"pid {pid}: it has parts that go on, and ends with them", remedy)
    return Refusal(f"pid {pid}: it cannot be undone any more", ends)


def stopped(engine: Engine[Any], command: str, lists: str) -> Iterator[str]:
    """Yields warnings about procedures that do not go on. ``lists``: the command that says why."""
    if parked := sorted(engine.parked):
        yield (
            f"{counted(len(parked), 'procedure')} parked, because steps ended terms (pid {named(parked)}): "
            f"'{lists}' says why, and '{command} bypass PID' ends one"
        )
    if unusable := sorted(engine.unusable):
        yield (
            f"{counted(len(unusable), 'procedure')} cannot go on (pid {named(unusable)}): "
            f"'{lists}' says why, and '{command} remove PID' removes one"
        )


def forgotten(pid: int) -> Refusal:
    """Says why the procedure of a repeated request is not shown: its result went while the request was on its way."""
    return Refusal(
        f"pid {pid}, which this nonce has started, has ended, and its result was removed after its time",
        "look for what it did, and send what is missing with another nonce",
    )


def ending_of(act: str, principal: str, reason: str) -> Ending:
    """Returns the request to end a procedure, with its reason on one line."""
    return Ending(act, principal, " ".join(reason.split()))


def as_ended(engine: Engine[Any], before: Record, ending: Ending) -> Record:
    """Returns the record of a procedure whose end was requested; of a part that is gone by now, as it ended."""
    found = engine.records.get(before.pid)
    if found is not None:
        return found
    bypassed = ending.act == "bypass"
    state = State.SUCCESS if bypassed and before.state is not State.FAILED else State.ROLLEDBACK
    return replace(before, state=state, bypassed=bypassed or before.bypassed, ending=ending)


def taken_back(engine: Engine[Any], pid: int) -> int | None:
    """Returns the root of a procedure's family where that is being taken back."""
    record = engine.records.get(pid)
    root = engine.records.get(record.root) if record is not None else None
    if root is None or root.state.is_final:
        return None
    return root.pid if root.state is State.FAILED or root.aborted else None


def _leaf(engine: Engine[Any], record: Record) -> int:
    """Returns a part of a procedure that has none, or the procedure itself."""
    family = [one for one in engine.live() if record.pid in (one.pid, *one.ancestors)]
    parents = {one.parent for one in family}
    return next((one.pid for one in family if one.pid not in parents), record.pid)
