"""The journal of a small domain of regions, as the tests break it. Its rows are those of a term that was played."""

from __future__ import annotations

from tests.pipeline.logs import Line, Log, rows

A, B = {"server": "kv-1", "incarnation": 1795}, {"server": "kv-2", "incarnation": 1796}
FIRST, SECOND = 101, 102
OF_REGIONS = frozenset({"A16", "A17", "A18", "A19", "A20", "A21"})
"""Invariants of regions alone."""


def region(id_: int, pid: int, before: str | None, after: str, **fields: object) -> Line:
    """Makes a transition of a region."""
    common = {"kind": "REGION_STATE", "table": "kv", "region": id_, "pid": pid}
    return common | {"from_state": before, "to_state": after} | fields


def had(process: Line) -> Line:
    """Names the owner before."""
    return {"server0": process["server"], "incarnation0": process["incarnation"]}


def server(before: str | None, after: str, process: Line, **fields: object) -> Line:
    """Makes a change of a process."""
    return {"kind": "SERVER_STATE", "from_state": before, "to_state": after, "regions": 1} | process | fields


def opened(id_: int, pid: int, before: str, process: Line, **fields: object) -> list[Line]:
    """Lists an open: stored, sent, reported, stored again."""
    return [
        region(id_, pid, before, "OPENING", token=pid, sequence=0, **process),
        {"kind": "REGION_DISPATCH", "batch": 1, "operations": ["open"], "pids": [pid], **process},
        {"kind": "REGION_REPORT", "pid": pid, "outcome": "opened", "sequence": 1, **process},
        region(id_, pid, "OPENING", "OPEN", token=pid, sequence=1, **process, **had(process), **fields),
    ]


def sound_regions(cluster: str) -> Log:
    """Makes a sound log: a table of two regions, a move of the first, and the crash of the server of the second.

    Rows 4 to 6 make the table, 7 to 14 open it, 15 enables it. Rows 16 to 19 close the first region, 20 to 23 open it
    elsewhere. Rows 24 to 26 are the crash, 27 takes the second region off it, 28 to 31 open that elsewhere.
    """
    events = [
        {"kind": "CTL_ELECTED"},
        server(None, "ONLINE", A),
        server(None, "ONLINE", B),
        {"kind": "TABLE_STATE", "table": "kv", "to_state": "CREATING", "regions": 0, "pid": 1},
        region(FIRST, 1, None, "OFFLINE", start="", end="80"),
        region(SECOND, 1, None, "OFFLINE", start="80", end=""),
        *opened(FIRST, 3, "OFFLINE", A),
        *opened(SECOND, 4, "OFFLINE", A),
        {"kind": "TABLE_STATE", "table": "kv", "from_state": "CREATING", "to_state": "ENABLED", "regions": 2, "pid": 1},
        region(FIRST, 6, "OPEN", "CLOSING", token=3, **A, **had(A)),
        {"kind": "REGION_DISPATCH", "batch": 2, "operations": ["close"], "pids": [6], **A},
        {"kind": "REGION_REPORT", "pid": 6, "outcome": "closed", **A},
        region(FIRST, 6, "CLOSING", "CLOSED", token=3, **had(A)),
        *opened(FIRST, 7, "CLOSED", B),
        server("ONLINE", "CRASHED", A),
        server("CRASHED", "FENCED", A, pid=8),
        server("FENCED", "RELEASED", A, pid=8),
        region(SECOND, 10, "OPEN", "ABNORMALLY_CLOSED", token=4, **had(A)),
        *opened(SECOND, 10, "ABNORMALLY_CLOSED", B),
        server("RELEASED", "GONE", A, pid=8),
        {"kind": "CTL_RESIGNED"},
    ]
    return rows(cluster, 3, 1, *events)
