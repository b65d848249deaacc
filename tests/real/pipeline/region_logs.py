"""The journal of a small domain of regions, as the tests break it. Its rows are those of a term that was played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.real.pipeline.logs import Line, Log, Mutation, rows

A, B = {"server": "kv-1", "incarnation": 1795}, {"server": "kv-2", "incarnation": 1796}
FIRST, SECOND = 101, 102
LEFT, RIGHT, MERGED = 103, 104, 105
"""The heirs of the first region, and the one that the right heir and SECOND become."""
OF_REGIONS = frozenset({"A16", "A17", "A18", "A19", "A20", "A21", "A22", "A23", "A24"})
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


def closed(id_: int, pid: int, before: str, process: Line, token: int) -> list[Line]:
    """Lists a close: stored, sent, reported, stored again."""
    return [
        region(id_, pid, before, "CLOSING", token=token, **process, **had(process)),
        {"kind": "REGION_DISPATCH", "batch": 2, "operations": ["close"], "pids": [pid], **process},
        {"kind": "REGION_REPORT", "pid": pid, "outcome": "closed", **process},
        region(id_, pid, "CLOSING", "CLOSED", token=token, **had(process)),
    ]


def independent(id_: int, process: Line) -> Line:
    """Makes the word of a process that a region has data of its own."""
    return {"kind": "REGION_REPORT", "table": "kv", "region": id_, "outcome": "independent", **process}


def table(before: str, after: str, regions: int) -> Line:
    """Makes a change of another table."""
    return {
        "kind": "TABLE_STATE",
        "table": "kw",
        "from_state": before,
        "to_state": after,
        "regions": regions,
        "pid": 23,
    }


def sound_regions(cluster: str) -> Log:
    """Makes a sound log: a table of two regions, a move, the crash of a server, a split and a merge.

    Rows 4 to 6 make the table, 7 to 14 open it, 15 enables it. Rows 16 to 19 close the first region, 20 to 23 open it
    elsewhere. Rows 24 to 26 are the crash, 27 takes the second region off it, 28 to 31 open that elsewhere.
    Rows 33 to 37 close the first region, 38 splits it, 39 and 40 make its heirs, 41 to 48 open them, 49 and 50 make
    them independent, 51 discards the first region. Rows 52 to 61 close the second heir and the second region, 62 and
    63 merge them, 64 makes their heir, 65 to 68 open it, 69 makes it independent, 70 and 71 discard its parents.
    Rows 72 to 75 truncate another table, which was made before the journal begins; 76 and 77 are a merge that is taken
    back before it closes anything.
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
        *closed(FIRST, 6, "OPEN", A, 3),
        *opened(FIRST, 7, "CLOSED", B),
        server("ONLINE", "CRASHED", A),
        server("CRASHED", "FENCED", A, pid=8),
        server("FENCED", "RELEASED", A, pid=8),
        region(SECOND, 10, "OPEN", "ABNORMALLY_CLOSED", token=4, **had(A)),
        *opened(SECOND, 10, "ABNORMALLY_CLOSED", B),
        server("RELEASED", "GONE", A, pid=8),
        region(FIRST, 12, "OPEN", "SPLITTING", token=7, **B, **had(B)),
        *closed(FIRST, 13, "SPLITTING", B, 7),
        region(FIRST, 12, "CLOSED", "SPLIT"),
        region(LEFT, 12, None, "CLOSED", start="", end="40", regions=1),
        region(RIGHT, 12, None, "CLOSED", start="40", end="80", regions=1),
        *opened(LEFT, 14, "CLOSED", B),
        *opened(RIGHT, 15, "CLOSED", B),
        independent(LEFT, B),
        independent(RIGHT, B),
        region(FIRST, 16, "SPLIT", "DISCARDED"),
        region(RIGHT, 17, "OPEN", "MERGING", token=15, **B, **had(B)),
        region(SECOND, 17, "OPEN", "MERGING", token=10, **B, **had(B)),
        *closed(RIGHT, 18, "MERGING", B, 15),
        *closed(SECOND, 19, "MERGING", B, 10),
        region(RIGHT, 17, "CLOSED", "MERGED"),
        region(SECOND, 17, "CLOSED", "MERGED"),
        region(MERGED, 17, None, "CLOSED", start="40", end="", regions=2),
        *opened(MERGED, 20, "CLOSED", B),
        independent(MERGED, B),
        region(RIGHT, 21, "MERGED", "DISCARDED"),
        region(SECOND, 22, "MERGED", "DISCARDED"),
        table("DISABLED", "TRUNCATING", 2),
        region(106, 23, None, "OFFLINE", start="", end="m") | {"table": "kw"},
        region(107, 23, None, "OFFLINE", start="m", end="") | {"table": "kw"},
        table("TRUNCATING", "DISABLED", 2),
        region(MERGED, 24, "OPEN", "MERGING", token=20, **B, **had(B)),
        region(MERGED, 24, "MERGING", "OPEN", token=20, **B, **had(B)),
        {"kind": "CTL_RESIGNED"},
    ]
    return rows(cluster, 3, 1, *events)


COPY_ROWS: Final = len(sound_regions("")) - 2
"""Rows of one table in :func:`many_regions`; the term's first and last row are beside them."""
PIDS: Final = 30
"""More than the pids, region ids and servers of one table."""


def many_regions(cluster: str, epoch: int, copies: int, broken: Mapping[int, Mutation]) -> Log:
    """Makes one term with as many tables and pairs of servers as ``copies``, some of them broken.

    The rows of table ``n`` are those from number 2 + n * :data:`COPY_ROWS` on. No mutation may change their count.
    """
    events: list[Line] = [{"kind": "CTL_ELECTED"}]
    for number in range(copies):
        log = sound_regions(cluster)
        if number in broken:
            log = broken[number](log)
        events += (_of_copy(row, number) for row in log[1:-1])
    return rows(cluster, epoch, 3, *events, {"kind": "CTL_RESIGNED"})


def copy_of(seq: int) -> int:
    """Returns the table of a row of :func:`many_regions`."""
    return (seq - 2) // COPY_ROWS


def _of_copy(row: Line, number: int) -> Line:
    """Gives what a row names to one copy."""
    apart = number * PIDS
    changed = {name: value for name, value in row.items() if name in _EVENT}
    for name, value in row.items():
        if name in ("pid", "token", "region", "incarnation", "incarnation0") and value is not None:
            changed[name] = value + apart
        elif name == "pids" and value is not None:
            changed[name] = [pid + apart for pid in value]
        elif name in ("table", "server", "server0"):
            changed[name] = f"{value}.{number}"
    return changed


_EVENT: Final = {name for row in sound_regions("") for name in row} - {*rows("", 0, 0, {})[0]} | {"pid", "pids"}
"""Fields of a row beside those that :func:`~tests.real.pipeline.logs.rows` gives it."""
