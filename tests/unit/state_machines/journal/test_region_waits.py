"""The breakdown of a writer's wait names what its region waited for at each moment."""

from __future__ import annotations

from collections import Counter

import pytest

from state_machines.journal.events import Kind, Row
from tests.verify.region_lists.breakdown import DAEMON, FOREVER, Breakdown, Outage, Wait, shown

LEASE_US = 4_000_000
OLD, NEW = ("kv-1", 100), ("kv-2", 200)
REGION = 7


def s(seconds: float) -> int:
    """Returns a moment of the story in microseconds."""
    return 1_000_000_000 + int(seconds * 1e6)


def story() -> list[Row]:
    """Returns the rows of a crash: the lease ends at 5 s, and another server has the region at 8 s."""
    rows: list[Row] = []

    def add(at_s: float, kind: Kind, state: str, process: tuple[str, int] | None, region: int | None = None) -> None:
        seq, (server, incarnation) = len(rows) + 1, process or (None, None)
        row = Row(1, "regions", 1, 1, seq, s(at_s), 0, kind.value, to_state=state, region=region)
        row.server, row.incarnation = server, incarnation
        rows.append(row)

    add(0.0, Kind.REGION_STATE, "OPEN", OLD, region=REGION)
    add(5.0, Kind.SERVER_STATE, "CRASHED", OLD)
    add(5.5, Kind.SERVER_STATE, "FENCED", OLD)
    add(7.0, Kind.SERVER_STATE, "RELEASED", OLD)
    add(7.1, Kind.REGION_STATE, "ABNORMALLY_CLOSED", None, region=REGION)
    add(7.1, Kind.REGION_STATE, "OPENING", NEW, region=REGION)
    add(8.0, Kind.REGION_STATE, "OPEN", NEW, region=REGION)
    return rows


def parts(*outages: Outage, began_s: float = 1.0, ended_s: float = 8.2) -> dict[str, float]:
    found = Breakdown(story(), outages, LEASE_US, "t").of(Wait(REGION, b"k", s(began_s), s(ended_s)))
    assert sum(found.values()) == s(ended_s) - s(began_s)
    return {name: round(us / 1e6, 3) for name, us in found.items()}


def test_a_crash_is_divided_into_its_steps() -> None:
    killed = Outage("kv-1", s(1.0), FOREVER)
    assert parts(killed) == {"lease": 4.0, "fence": 0.5, "split": 1.5, "assign": 0.1, "open": 0.9, "client": 0.2}


def test_time_without_a_daemon_is_not_a_step_of_the_crash() -> None:
    found = parts(Outage("kv-1", s(1.0), FOREVER), Outage(DAEMON, s(2.0), s(3.0)), Outage(DAEMON, s(5.1), s(5.3)))
    assert found["daemon down"] == pytest.approx(1.2)
    assert found["lease"] == pytest.approx(3.0)
    assert found["fence"] == pytest.approx(0.3)


def test_a_region_that_is_open_while_its_client_needs_the_daemon_has_a_name_of_its_own() -> None:
    found = parts(Outage(DAEMON, s(2.0), s(3.0)), ended_s=4.0)
    assert found == {"client": 2.0, "daemon down, region open": 1.0}


def test_a_wait_for_an_heir_began_with_its_parent() -> None:
    """The parent was open for a second, closed for half a second, and the heir was open after another one."""
    rows: list[Row] = []
    for at_s, state, process, region, keys in (
        (0.0, "OFFLINE", None, REGION, ("", "")),
        (0.1, "OPEN", OLD, REGION, None),
        (2.0, "CLOSING", OLD, REGION, None),
        (2.5, "CLOSED", None, REGION, None),
        (2.6, "OFFLINE", None, 8, ("", "m")),
        (2.6, "OFFLINE", None, 9, ("m", "")),
        (2.7, "OPENING", NEW, 8, None),
        (2.7, "OPENING", OLD, 9, None),
        (2.9, "OPEN", OLD, 9, None),
        (3.5, "OPEN", NEW, 8, None),
    ):
        rows.append(Row(1, "regions", 1, 1, len(rows) + 1, s(at_s), 0, Kind.REGION_STATE.value, to_state=state))
        rows[-1].table, rows[-1].region = "t", region
        rows[-1].server, rows[-1].incarnation = process or (None, None)
        rows[-1].start, rows[-1].end = keys or (None, None)
    found = Breakdown(rows, [], LEASE_US, "t").of(Wait(8, b"k", s(1.0), s(3.6)))
    assert {name: round(us / 1e6, 3) for name, us in found.items()} == {
        "client": 1.1,
        "close": 0.5,
        "assign": 0.2,
        "open": 0.8,
    }


def test_a_lease_that_a_daemon_granted_anew_has_a_name_of_its_own() -> None:
    found = parts(Outage("kv-1", s(-1.0), FOREVER))
    assert (found["lease"], found["lease anew"]) == (2.0, 2.0)


def test_a_server_that_died_before_this_process_began_is_another_one() -> None:
    assert parts(Outage("kv-2", 150, FOREVER), ended_s=2.0) == {"client": 1.0}
    assert parts(Outage("kv-1", 50, FOREVER), ended_s=2.0) == {"client": 1.0}


def test_a_server_that_is_frozen_while_it_opens_is_waited_for() -> None:
    assert parts(Outage("kv-2", s(7.2), s(7.6)), began_s=7.1, ended_s=8.0) == {"open": 0.5, "lease": 0.4}


def test_parts_are_shown_from_the_longest_on() -> None:
    assert shown(Counter({"split": 1_000_000, "lease": 4_000_000, "open": 10_000})) == "lease 4.0 s, split 1.0 s"
