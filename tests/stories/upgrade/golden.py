"""Reads what a daemon of revision 2558b706 left at each of its writes; ``record.py`` wrote it."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from controller.journal.entries import Entry
from controller.journal.journal import encoded
from controller.journal.reader import CUT_SHORT, joined, parsed
from controller.procedures.kinds import Kind
from metadata_store.records import codec
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from state_machines.procedures.record import Record

FOLDER: Final = Path(__file__).parent / "data"
SOME: Final = 3
"""Of so many moments the short tests carry one on; ``tests/verify/test_upgrade_moments.py`` has all of them."""

Recorded = tuple[Record, bytes]
"""A procedure, and its bytes in ZooKeeper."""


class Moment(NamedTuple):
    """What a killed daemon left. ``around``: what brokers or servers had; ``journal``: all lines of the case so far."""

    when: str
    store: dict[str, Any]
    around: dict[str, Any]
    journal: list[str]


class Case(NamedTuple):
    """The moments of one procedure, what its clean run left, and the nonces of its clients by kind."""

    moments: list[Moment]
    end: Any
    nonces: dict[str, str]


class Recording(NamedTuple):
    """The steps of each kind of procedure, and the cases by name."""

    kinds: dict[str, list[str]]
    cases: dict[str, Case]


def recording(name: str) -> Recording:
    """Reads a file of moments: each line has what changed since the one before."""
    with lzma.open(FOLDER / f"{name}.jsonl.xz", "rt", encoding="utf-8") as file:
        first, *lines = map(json.loads, file)
    found: dict[str, Case] = {}
    moments: list[Moment] = []
    store: dict[str, Any] = {}
    around: dict[str, Any] = {}
    journal: list[str] = []
    for line in lines:
        if "end" in line:
            found[line["case"]] = Case(moments, line["end"], line["nonces"])
            moments, store, journal = [], {}, []
            continue
        store = {key: one for key, one in store.items() if key not in line.get("gone", ())} | line.get("changed", {})
        around = line.get("around", around)
        journal = journal + line.get("journal", [])
        moments.append(Moment(line["when"], store, around, journal))
    return Recording(first["kinds"], found)


def records_in(cases: Iterable[Case], parent: str) -> set[Recorded]:
    """Returns the procedures of all moments below a znode."""
    stores = (moment.store for case in cases for moment in case.moments)
    found = {
        (path, one[0].encode()) for store in stores for path, one in store.items() if path.startswith(f"{parent}/")
    }
    return {(codec.unsealed(int(path.rpartition("/")[2]), data), data) for path, data in found}


def check_steps(former: dict[str, list[str]], kinds: Iterable[Kind[Any]]) -> None:
    """Checks that each former kind is known, and that its steps have their former numbers, which records hold."""
    known = {kind.name: [step.name for step in kind.steps] for kind in kinds}
    assert {name: known.get(name, [])[: len(steps)] for name, steps in former.items()} == former


def row_of(line: bytes) -> Row:
    """Reads a line."""
    row = parsed(line)
    assert isinstance(row, Row), row
    return row


def check_record(record: Record, data: bytes) -> None:
    """Checks that a record is written as it was; that of a child has no caller any more."""
    if record.parent:
        former, present = (json.loads(one.rpartition(b"\n")[0]) for one in (data, codec.sealed(record)))
        assert present == {name: one for name, one in former.items() if name != "caller"}
    else:
        assert codec.sealed(record) == data


def check_journal(former: list[str], later: Iterable[Entry]) -> None:
    """Judges the rows of both daemons as one history; only the ends of killed terms may be missing."""
    text = b"".join(data for entry in later for _, data in encoded(entry))
    rows: list[Row] = []
    for row in joined(map(row_of, (*map(str.encode, former), *text.splitlines()))):
        if isinstance(row, Row):
            rows.append(row)
        else:
            assert row.why == CUT_SHORT, row
    found = [str(violation) for violation in judge(rows)]
    assert not found, found
