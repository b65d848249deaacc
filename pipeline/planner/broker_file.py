"""Reads racks and capacities of brokers from CSV."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.inputs import BadInput

NUMBERS: Final = ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cpu_bytes_per_s")
FORM: Final = "give a header of broker and any of rack, " + ", ".join(NUMBERS)


@dataclass(frozen=True)
class GivenBroker:
    """The rack and the capacities of a broker; None where unknown. ``cpu_bytes_per_s``: bytes in that it can lead."""

    rack: str | None = None
    disk_bytes: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    cpu_bytes_per_s: float | None = None


def read_brokers(path: Path | str) -> dict[int, GivenBroker]:
    """Reads brokers by id; an empty value is unknown. Raises :class:`BadInput`."""
    file, found = Path(path), dict[int, GivenBroker]()
    try:
        with file.open(newline="") as lines:
            rows = csv.DictReader(lines)
            columns = rows.fieldnames or ()
            unknown = sorted(set(columns) - {"broker", "rack", *NUMBERS})
            if "broker" not in columns or unknown:
                wrong = f"unknown columns {', '.join(unknown)}" if unknown else "no column broker"
                raise BadInput(f"{file}: {wrong}: {FORM}")
            for number, row in enumerate(rows, start=2):
                where = f"{file} line {number}"
                text = (row["broker"] or "").strip()
                if not (text.isascii() and text.isdigit()) or int(text) >= 2**31:
                    raise BadInput(f"{where}: broker = {text!r} is no broker id: give 0 or more")
                if int(text) in found:
                    raise BadInput(f"{where}: broker = {text} is there twice: keep one of the two lines")
                numbers = {name: _number(where, name, row.get(name)) for name in NUMBERS}
                found[int(text)] = GivenBroker((row.get("rack") or "").strip() or None, **numbers)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{file} cannot be read: {error}") from None
    return found


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
