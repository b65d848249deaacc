"""Makes rows of journals: sound ones, and ones that each violate one invariant of the audit."""

from __future__ import annotations

from typing import Any

from state_machines.journal.events import OBSERVED, Kind, Row


def row(**changes: Any) -> Row:
    """Makes a row: broker 1 died, and broker 2 leads in one step."""
    fields: dict[str, Any] = {
        "v": 1, "cluster": "c", "ctl_id": 1, "ctl_epoch": 7, "seq": 3, "ts_us": 0, "mono_us": 0, "kind": Kind.LEADER,
        "topic": "orders", "partition": 0, "from_state": "ONLINE", "to_state": "ONLINE",
        "states": ["OFFLINE", "ONLINE"], "leader0": 1, "leader1": 2, "leader_epoch0": 4, "leader_epoch1": 5,
        "pepoch0": 8, "pepoch1": 9,
        "isr0": [1, 2, 3], "isr1": [2, 3], "replicas": [1, 2, 3], "reason": "broker_failure", "strategy": "offline",
        "steps": ["leader lost"],
    }  # fmt: skip
    return Row(**(fields | changes))


def by_leader(**changes: Any) -> Row:
    """Makes a row: the leader took broker 3 back."""
    fields: dict[str, Any] = {
        "kind": Kind.ISR, "leader0": 2, "isr0": [2], "isr1": [2, 3], "leader_epoch1": 4, "reason": "isr_by_leader",
        "strategy": None, "steps": None, "states": None,
    }  # fmt: skip
    return row(**(fields | changes))


def created(**changes: Any) -> Row:
    fields: dict[str, Any] = {
        "from_state": "NON_EXISTENT", "states": ["NEW", "ONLINE"], "leader0": None, "leader1": 1, "leader_epoch0": None,
        "leader_epoch1": 0, "isr0": None, "isr1": [1, 2, 3], "pepoch0": None, "pepoch1": 0, "strategy": "initial",
    }  # fmt: skip
    return row(**(fields | changes))


def replica(**changes: Any) -> Row:
    fields: dict[str, Any] = {"kind": Kind.REPLICA_STATE, "broker": 1, "from_state": "ONLINE", "to_state": "OFFLINE"}
    return Row(1, "c", 1, 7, 3, 0, 0, topic="orders", partition=0, **(fields | changes))


def procedure(before: str | None, after: str, **changes: Any) -> Row:
    """Makes a row of a procedure with steps."""
    fields: dict[str, Any] = {"pid": 12, "root": 12, "procedure": "reassign", "step": "move replicas"}
    return Row(1, "c", 1, 7, 3, 0, 0, Kind.PROC_STATE, from_state=before, to_state=after, **(fields | changes))


def request(**changes: Any) -> Row:
    """Makes a row of an acknowledged request."""
    fields: dict[str, Any] = {"broker_epoch": 9, "partitions": 4, "t_sent": 5, "t_acknowledged": 8}
    return Row(1, "c", 1, 7, 3, 0, 0, Kind.RPC_BATCH, broker=1, api="LEADER_AND_ISR", **(fields | changes))


SOUND: dict[str, Row] = {
    "an election": row(),
    "an election and a shrink in one write": row(leader_epoch1=6, steps=["leader lost", "a replica's broker died"]),
    "no replica can lead": row(
        leader1=-1,
        to_state="OFFLINE",
        states=None,
        isr0=[1],
        isr1=[1],
        strategy=None,
        steps=["a replica's broker died"],
    ),
    "a replica that an override dropped is named until it has stopped": row(adding=[3], removing=[3]),
    "an unclean election": row(isr0=[1], isr1=[3], leader1=3, strategy="unclean", unclean=True),
    "a leader's own change": by_leader(),
    "a new partition": created(),
    "a new partition that lost a replica at once": created(leader_epoch1=1, steps=["new", "died"], isr1=[1, 2]),
    "a preferred election": row(
        leader0=2, leader1=1, isr1=[1, 2, 3], strategy="preferred", steps=["preferred"], states=None
    ),
    "one that is gone is passed over": row(
        leader0=2, leader1=3, isr0=[2, 1, 3], isr1=[1, 3], absent=[1], strategy="controlled_shutdown", states=None
    ),
    "another controller's write": row(reason=OBSERVED, leader_epoch1=9, from_state="NON_EXISTENT", states=None),
    "another controller's ISR, before its assignment was read": row(reason=OBSERVED, leader_epoch1=9, isr1=[2, 3, 9]),
    "a replica that stops": replica(),
    "a new replica": replica(from_state="NON_EXISTENT", to_state="ONLINE", states=["NEW", "ONLINE"]),
    "a procedure begins": procedure(None, "RUNNABLE"),
    "a recorded call": procedure(None, "SUCCESS", step=None),
    "a procedure is rolled back": procedure("FAILED", "ROLLEDBACK"),
    "a request": request(),
    "a request that was given up": request(t_acknowledged=None),
    "a broker": Row(1, "c", 1, 7, 1, 0, 0, Kind.BROKER_UP, broker=1),
}
MUTATIONS: dict[str, tuple[str, Row]] = {
    "the leader epoch falls": ("A1", row(leader_epoch1=3)),
    "the leader epoch stays": ("A1", row(leader_epoch1=4)),
    "the leader epoch skips one": ("A1", row(leader_epoch1=6)),
    "two steps, one epoch": ("A1", row(steps=["leader lost", "a replica's broker died"])),
    "the leader's own change takes an epoch": ("A1", by_leader(leader_epoch1=5)),
    "the leader's own change counts a step": ("A1", by_leader(leader_epoch1=5, steps=["x"])),
    "a new partition begins at 1": ("A1", created(leader_epoch1=1)),
    "another's write takes the epoch down": ("A1", row(reason=OBSERVED, leader_epoch1=3)),
    "the leader is not in sync": ("A3", by_leader(isr1=[3])),
    "the ISR has a stranger": ("A4", row(isr1=[2, 3, 9])),
    "the ISR names one twice": ("A4", row(isr1=[2, 2])),
    "the ISR is empty": ("A5", row(leader1=-1, isr1=[], strategy=None)),
    "new again": ("A6", row(kind=Kind.PARTITION_STATE, from_state="OFFLINE", to_state="NEW", states=None)),
    "online out of nothing": ("A6", created(states=None)),
    "gone while online": ("A6", row(to_state="NON_EXISTENT", states=None)),
    "the states end elsewhere": ("A6", row(states=["OFFLINE"])),
    "an unknown state": ("A6", row(to_state="ASLEEP", states=None)),
    "a deleted replica is online": ("A6", replica(from_state="DELETION_SUCCESSFUL", to_state="ONLINE")),
    "a replica begins online": ("A6", replica(from_state="NON_EXISTENT", to_state="ONLINE")),
    "a version is skipped": ("A8", row(pepoch1=10, t_committed=1)),
    "a fact is older than what was known": ("A8", row(pepoch1=8)),
    "the leader is absent": ("A9", row(strategy="reassign", absent=[2])),
    "those that go come first": ("A12", row(removing=[1])),
    "a stranger is added": ("A12", row(adding=[9])),
    "the leader lagged": ("A10", row(isr0=[1, 3])),
    "the preferred one is another": ("A11", row(strategy="preferred")),
    "not the first in sync": ("A11", row(leader1=3)),
    "not the first to be started": ("A11", created(leader1=2)),
    "a procedure begins in the middle": ("A14", procedure(None, "WAITING")),
    "an ended procedure runs": ("A14", procedure("SUCCESS", "RUNNABLE")),
    "a state of no procedure": ("A14", procedure("RUNNABLE", "ONLINE")),
    "what has no steps is rolled back": ("A14", procedure("FAILED", "ROLLEDBACK", step=None)),
    "a request to no registration": ("A15", request(broker_epoch=None)),
    "a response before its request": ("A15", request(t_acknowledged=4)),
    "not the first that stays": ("A11", row(leader1=3, strategy="controlled_shutdown")),
}
