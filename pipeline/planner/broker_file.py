"""Reads racks and capacities of brokers, and of their log directories, from CSV."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pipeline.inputs import BadInput

NUMBERS: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cpu_bytes_per_s")
OTHERS: Final = -1
"""Stands for all brokers that have no line of their own; "*" in the file."""
FORM: Final = "give a header of broker and any of rack, log_dir, " + ", ".join(NUMBERS)


@dataclass(frozen=True)
class GivenBroker:
    """The rack and the capacities of a broker; None where unknown. ``cpu_bytes_per_s``: bytes in that it can lead.

    ``log_dirs``: the capacity in bytes of each log directory, where these are given; ``disk_bytes`` is their sum.
    """

    rack: str | None = None
    disk_bytes: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    cpu_bytes_per_s: float | None = None
    log_dirs: Mapping[str, float] = field(default_factory=dict)


def read_brokers(path: Path | str) -> dict[int, GivenBroker]:
    """Reads brokers by id, and :data:`OTHERS`; an empty value is unknown. Raises :class:`BadInput`.

    A broker has one line, or one for each of its log directories; then the other values may be in any one of them.
    """
    file, found = Path(path), dict[int, GivenBroker]()
    try:
        with file.open(newline="") as lines:
            rows = csv.DictReader(lines)
            columns = rows.fieldnames or ()
            unknown = sorted(set(columns) - {"broker", "rack", "log_dir", *NUMBERS})
            if "broker" not in columns or unknown:
                wrong = f"unknown columns {', '.join(unknown)}" if unknown else "no column broker"
                raise BadInput(f"{file}: {wrong}: {FORM}")
            for number, row in enumerate(rows, start=2):
                where = f"{file} line {number}"
                text = (row["broker"] or "").strip()
                broker = OTHERS if text == "*" else _id(where, text)
                numbers: dict[str, Any] = {name: _number(where, name, row.get(name)) for name in NUMBERS}
                given = GivenBroker((row.get("rack") or "").strip() or None, **numbers)
                if log_dir := (row.get("log_dir") or "").strip():
                    given = _with_log_dir(where, log_dir, given)
                if broker == OTHERS and given.rack is not None:
                    raise BadInput(f"{where}: rack = {given.rack!r} of *: give racks in lines of single brokers")
                found[broker] = _joined(where, text, found.get(broker), given)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    return found


def _id(where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) >= 2**31:
        raise BadInput(f"{where}: broker = {text!r} is no broker id: give 0 or more, or * for all others")
    return int(text)


def _with_log_dir(where: str, log_dir: str, given: GivenBroker) -> GivenBroker:
    if given.disk_bytes is None:
        raise BadInput(f"{where}: disk_bytes is missing: give the capacity of {log_dir}")
    return replace(given, log_dirs={log_dir: given.disk_bytes})


def _joined(where: str, broker: str, before: GivenBroker | None, given: GivenBroker) -> GivenBroker:
    """Returns what the lines of a broker say together; raises :class:`BadInput` where they contradict each other."""
    if before is None:
        return given
    if not before.log_dirs or not given.log_dirs:
        raise BadInput(
            f"{where}: broker = {broker} is there twice: keep one of the two lines, or give each its log_dir"
        )
    if twice := before.log_dirs.keys() & given.log_dirs.keys():
        raise BadInput(
            f"{where}: log_dir = {min(twice)!r} of broker {broker} is there twice: keep one of the two lines"
        )
    log_dirs = {**before.log_dirs, **given.log_dirs}
    values: dict[str, Any] = {}
    for name in ("rack", "bytes_in_per_s", "bytes_out_per_s", "cpu_bytes_per_s"):
        one, other = getattr(before, name), getattr(given, name)
        if one is not None and other is not None and one != other:
            raise BadInput(f"{where}: {name} = {other}, and {one} in an earlier line of broker {broker}: give it once")
        values[name] = other if one is None else one
    return GivenBroker(disk_bytes=sum(log_dirs.values()), log_dirs=log_dirs, **values)


def _number(where: str, name: str, text: str | None) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInput(f"{where}: {name} = {text!r}: give a number above 0, or nothing where it is unknown")
    return value
