"""The rules of znodes of regions in transition, as tables that were written by hand: each state with each event."""

from __future__ import annotations

from itertools import product

import pytest

from state_machines.regions.unassigned import (
    MASTER,
    SERVER,
    Asked,
    Cause,
    MasterAct,
    Node,
    NodeState,
    Seen,
    ServerAct,
    master_act,
    may_be_offline,
    seen_by,
    server_act,
)

AT_A_SERVER = """
absent               create   -     -        -
offline, mine        -        -     opening  -
offline, of another  -        -     -        -
closing, mine        on       closed -       -
closing, of another  -        -     -        -
closed, mine         -        on    -        -
closed, of another   -        -     -        -
opening, mine        waits    -     on       opened
opening, of another  -        -     -        -
opened, mine         -        -     on       on
opened, of another   -        -     -        -
"""
"""What a server finds; then what it does where a close is asked, done, an open asked, done."""
ACTS = {
    "create": ServerAct.CREATE_CLOSING,
    "closed": ServerAct.TO_CLOSED,
    "opening": ServerAct.TO_OPENING,
    "opened": ServerAct.TO_OPENED,
    "on": ServerAct.GOES_ON,
    "waits": ServerAct.WAITS,
    "-": ServerAct.REFUSES,
}
AT_THE_DAEMON = """
none     nothing  create   nothing   nothing  nothing  nothing          create
offline  nothing  again    again     again    again    impossible       delete
closing  nothing  force    redirect  nothing  close    nothing          delete
closed   swap     nothing  swap      swap     swap     delete           delete
opening  nothing  nothing  force     nothing  again    awaits           delete
opened   store    nothing  force     store    delete   store_and_close  store
"""
"""A state; then what the daemon does: watch, dead source, dead destination, takeover, timeout, unwanted, startup."""


def rows(text: str, width: int) -> list[tuple[str, list[str]]]:
    found = [(line[:width].strip(), line[width:].split()) for line in text.strip().splitlines()]
    assert len({one for one, _ in found}) == len(found)
    return found


CASES_OF_SERVERS = [
    (Seen(seen), asked, ACTS[act])
    for seen, acts in rows(AT_A_SERVER, 20)
    for asked, act in zip((Asked.CLOSE, Asked.CLOSE_DONE, Asked.OPEN, Asked.OPEN_DONE), acts, strict=True)
]
CASES_OF_DAEMONS = [
    (None if state == "none" else NodeState(state), cause, MasterAct[act.upper()])
    for state, acts in rows(AT_THE_DAEMON, 9)
    for cause, act in zip(Cause, acts, strict=True)
]


@pytest.mark.seed("S0-82", "S0-83", "S0-84", "S0-85", "S0-86")
@pytest.mark.parametrize(("seen", "asked", "act"), CASES_OF_SERVERS)
def test_a_server_does_what_the_table_says(seen: Seen, asked: Asked, act: ServerAct) -> None:
    assert server_act(seen, asked) is act


@pytest.mark.seed("S0-57", "S0-58", "S0-60", "S0-61", "S0-62", "S0-63", "S0-64", "S0-72", "S0-73", "S0-74", "S0-75")
@pytest.mark.parametrize(("state", "cause", "act"), CASES_OF_DAEMONS)
def test_the_daemon_does_what_the_table_says(state: NodeState | None, cause: Cause, act: MasterAct) -> None:
    assert master_act(state, cause) is act


def test_the_tables_are_whole() -> None:
    assert {one[:2] for one in CASES_OF_SERVERS} == set(product(Seen, Asked))
    assert {one[:2] for one in CASES_OF_DAEMONS} == set(product((None, *NodeState), Cause))
    assert len(SERVER) == sum(act is not ServerAct.REFUSES for *_, act in CASES_OF_SERVERS)
    assert sum(map(len, MASTER.values())) == len(CASES_OF_DAEMONS)


@pytest.mark.seed("S0-82")
def test_no_state_is_moved_to_closing() -> None:
    assert [one for one, act in SERVER.items() if act is ServerAct.CREATE_CLOSING] == [(Seen.ABSENT, Asked.CLOSE)]


@pytest.mark.seed("S0-59")
def test_a_region_whose_source_closes_it_still_goes_nowhere_else() -> None:
    """The page sends it to another server: the source may serve, and flush, still, so it had two owners (C4)."""
    assert not may_be_offline(NodeState.CLOSING, Cause.DESTINATION)
    assert [cause for cause in Cause if may_be_offline(NodeState.CLOSING, cause)] == [Cause.SOURCE]


@pytest.mark.seed("S0-78", "S0-79", "S0-80")
def test_the_daemon_creates_forces_and_deletes_for_the_causes_of_the_page_and_of_its_settlements_alone() -> None:
    acts = {(state, cause): master_act(state, cause) for state, cause in product((None, *NodeState), Cause)}
    creates = {cause for (_, cause), act in acts.items() if act is MasterAct.CREATE}
    assert creates == {Cause.STARTUP, Cause.SOURCE}
    forces = {key for key, act in acts.items() if act is MasterAct.FORCE}
    assert forces == {
        (NodeState.CLOSING, Cause.SOURCE),
        (NodeState.OPENING, Cause.DESTINATION),
        (NodeState.OPENED, Cause.DESTINATION),
    }
    at_start = {state for state in NodeState if acts[state, Cause.STARTUP] is MasterAct.DELETE}
    assert at_start == set(NodeState) - {NodeState.OPENED}, "its process may serve, whatever became of its session"
    deletes = {state for (state, cause), act in acts.items() if act is MasterAct.DELETE and cause is not Cause.STARTUP}
    assert deletes == {NodeState.OPENED, NodeState.CLOSED}


@pytest.mark.parametrize("state", NodeState)
def test_a_server_knows_its_own_operation_by_process_and_token(state: NodeState) -> None:
    node = Node(state, 7, 40, 41, "s1", 5)
    assert seen_by(node, "s1", 5, 41) is Seen[state.name]
    for other in (("s2", 5, 41), ("s1", 6, 41), ("s1", 5, 42)):
        assert seen_by(node, *other) is Seen[f"{state.name}_OTHER"]
    assert seen_by(None, "s1", 5, 41) is Seen.ABSENT
