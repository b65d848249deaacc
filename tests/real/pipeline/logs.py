"""The journal of a small cluster with two daemons, and ways to break it. A log is a list of rows as in the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]
Log = list[Line]
Mutation = Callable[[Log], Log]


def rows(cluster: str, epoch: int, daemon: int, *events: Line) -> Log:
    """Makes a term: its events are numbered from 1."""
    head = {"v": 1, "cluster": cluster, "ctl_id": daemon, "ctl_epoch": epoch}
    times = [epoch * 1_000_000_000 + seq * 1_000 for seq in range(1, len(events) + 1)]
    return [
        head | {"seq": seq, "ts_us": 1_700_000_000_000_000 + us, "mono_us": us} | event
        for (seq, us), event in zip(enumerate(times, 1), events, strict=True)
    ]


def begin() -> list[Line]:
    """Lists the first events of a term: the election, and the brokers that were found."""
    return [
        {"kind": "CTL_ELECTED"},
        *(
            {"kind": "BROKER_UP", "broker": broker, "broker_epoch": 100 + broker, "rack": "abc"[broker - 1]}
            for broker in (1, 2, 3)
        ),
        {"kind": "CTL_PHASE"},
    ]


def written(**fields: Any) -> Line:
    """Makes a write of the daemon for the one partition."""
    partition = {"topic": "orders", "topic_id": "dG9waWM", "partition": 0, "t_committed": 1, "to_state": "ONLINE"}
    return partition | {"from_state": "ONLINE", "replicas": [1, 2, 3]} | fields


def procedure(pid: int, before: str | None, after: str, **fields: Any) -> Line:
    """Makes a row of a procedure; it keeps the lock of reassignments once it has one."""
    common = {"kind": "PROC_STATE", "pid": pid, "root": pid, "procedure": "drain", "step": "move"}
    return common | {"from_state": before, "to_state": after} | fields


def longer_operations() -> list[Line]:
    """Lists a procedure with a child, a recorded call, and a request to broker 3, which was registered."""
    lock = {"locks": ["server reassignments"], "locked": True}
    child = {"ppid": 1, "root": 1}
    return [
        procedure(1, None, "RUNNABLE"),
        procedure(1, "RUNNABLE", "WAITING", **lock),
        procedure(2, None, "RUNNABLE", **child),
        procedure(2, "RUNNABLE", "SUCCESS", **child),
        procedure(1, "WAITING", "SUCCESS", **lock),
        procedure(3, None, "SUCCESS", procedure="CREATE_TOPICS", step=None),
        {"kind": "RPC_BATCH", "api": "LEADER_AND_ISR", "broker": 3, "broker_epoch": 103, "partitions": 1,
         "t_sent": 6_000_017_000, "t_acknowledged": 6_000_017_900},
    ]  # fmt: skip


def of(before: tuple[int, int, int, list[int]], after: tuple[int, int, int, list[int]]) -> Line:
    """Names leader, leader epoch, partition epoch and ISR, before and after."""
    names = ("leader", "leader_epoch", "pepoch", "isr")
    return {f"{name}0": value for name, value in zip(names, before, strict=True)} | {
        f"{name}1": value for name, value in zip(names, after, strict=True)
    }


def sound(cluster: str) -> Log:
    """Makes a sound log: broker 1 dies and returns; the next daemon moves its leader back and removes broker 2."""
    new = {
        "kind": "LEADER", "from_state": "NON_EXISTENT", "states": ["NEW", "ONLINE"], "strategy": "initial",
        "leader1": 1, "leader_epoch1": 0, "pepoch1": 0, "isr1": [1, 2, 3], "steps": ["new"], "reason": "new_topic",
    }  # fmt: skip
    died = of((1, 0, 0, [1, 2, 3]), (2, 1, 1, [2, 3])) | {
        "kind": "LEADER", "states": ["OFFLINE", "ONLINE"], "strategy": "offline", "steps": ["lost"], "reason": "death",
    }  # fmt: skip
    back = of((2, 1, 1, [2, 3]), (2, 1, 2, [2, 3, 1])) | {"kind": "ISR", "reason": "isr_by_leader"}
    moved = of((2, 1, 2, [2, 3, 1]), (1, 2, 3, [3, 1])) | {
        "kind": "LEADER", "strategy": "controlled_shutdown", "steps": ["shutdown"], "reason": "controlled_shutdown",
    }  # fmt: skip
    begun = of((1, 2, 3, [3, 1]), (1, 3, 4, [3, 1])) | {
        "kind": "ISR", "replicas": [1, 3, 2], "removing": [2], "steps": ["reassigned"], "reason": "reassign",
    }  # fmt: skip
    ended = of((1, 3, 4, [3, 1]), (1, 4, 5, [3, 1])) | {
        "kind": "ISR", "replicas": [1, 3], "steps": ["reassigned"], "reason": "reassign",
    }  # fmt: skip
    replica = {
        "kind": "REPLICA_STATE", "topic": "orders", "partition": 0, "broker": 1, "from_state": "ONLINE",
        "to_state": "OFFLINE",
    }  # fmt: skip
    first = [
        {"kind": "TOPIC_CREATE", "topic": "orders"}, written(**new), {"kind": "BROKER_DOWN", "broker": 1},
        written(**died), replica, {"kind": "BROKER_UP", "broker": 1, "rack": "a"}, written(**back),
        {"kind": "CTL_RESIGNED"},
    ]  # fmt: skip
    second = [
        {"kind": "BROKER_SHUTDOWN_BEGIN", "broker": 2}, written(**moved), {"kind": "BROKER_SHUTDOWN_END", "broker": 2},
        {"kind": "BROKER_DOWN", "broker": 2}, written(**begun), written(**ended), *longer_operations(),
    ]  # fmt: skip
    return rows(cluster, 5, 1, *begin(), *first) + rows(cluster, 6, 2, *begin(), *second)


def change(at: tuple[int, int], **fields: Any) -> Mutation:
    """Changes values in one row; None removes a field."""

    def mutate(log: Log) -> Log:
        assert any((row["ctl_epoch"], row["seq"]) == at for row in log)
        return [row | fields if (row["ctl_epoch"], row["seq"]) == at else row for row in log]

    return mutate


def without(*at: tuple[int, int]) -> Mutation:
    """Removes rows."""
    return lambda log: [row for row in log if (row["ctl_epoch"], row["seq"]) not in at]


def also(**row: Any) -> Mutation:
    """Adds a row with the other fields of the log's first."""
    return lambda log: [*log, log[0] | row]


def both(*mutations: Mutation) -> Mutation:
    """Applies one mutation after the other."""

    def mutate(log: Log) -> Log:
        for mutation in mutations:
            log = mutation(log)
        return log

    return mutate


def text(log: Iterable[Line]) -> str:
    """Writes rows as lines of a file."""
    return "".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in log)


def write(folder: Path, logs: Iterable[Log]) -> list[str]:
    """Writes the journals of all daemons, each into its folder; returns the folders."""
    for number, log in enumerate(logs):
        for daemon in {row["ctl_id"] for row in log}:
            path = folder / f"daemon-{daemon}" / f"{number:010d}-000000000001.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text(row for row in log if row["ctl_id"] == daemon))
    return sorted(str(path) for path in folder.iterdir())
