"""Copies the columns of an Arrow table into the arrays that :mod:`pipeline.kernel` reads: one layout, one signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline import kernel
from pipeline.kernel import ABSENT, Ints, Table
from state_machines.journal.audit import PARTITION_STEPS, PROCEDURE_BEGINS, REPLICA_STEPS
from state_machines.journal.checks import REGION_STEPS
from state_machines.procedures.states import VALID_PREVIOUS

READ: Final = (*kernel.FIELDS, *kernel.LISTS)
"""Columns of a table that are judged."""

NAMED: Final[Mapping[str, Sequence[str]]] = {
    "kind": kernel.KINDS,
    "reason": kernel.REASONS,
    "strategy": kernel.STRATEGIES,
}
"""Texts that the kernel has numbers for, in their order; all others have the next number."""
RANKED: Final = frozenset({"cluster", "topic", "topic_id"})
"""Texts that are only compared: their numbers are in the order of the texts."""
CODED: Final = (*NAMED, *sorted(RANKED), "from_state", "to_state")
"""Columns that are best read as dictionaries of texts."""
OF_STATES: Final = frozenset({"from_state", "to_state", "states"})


class Arrays(NamedTuple):
    """The arrays of a table with ``n`` rows.

    ``values``: (fields, n) in the order of :data:`pipeline.kernel.FIELDS`. ``starts`` and ``ends``: (lists, n), the
    places in ``items`` where a row's list begins and ends, both -1 for null. ``clusters``: the names by number.
    """

    values: Ints
    starts: Ints
    ends: Ints
    items: Ints
    clusters: dict[str, int]


def arrays(table: pa.Table) -> Arrays:
    """Copies the columns :data:`READ` of a table."""
    shape = (len(kernel.LISTS), table.num_rows)
    values = np.empty((len(kernel.FIELDS), table.num_rows), np.int64)
    starts, ends = np.empty(shape, np.int64), np.empty(shape, np.int64)
    items: list[Ints] = [np.empty(0, np.int64)]
    clusters: dict[str, int] = {}
    for number, name in enumerate(kernel.FIELDS):
        values[number] = numbers(name, table.column(name), clusters)
    used = 0
    for number, name in enumerate(kernel.LISTS):
        found = _joined(table.column(name))
        offsets = np.asarray(found.offsets, np.int64) + used
        missing = np.asarray(found.is_null())
        starts[number], ends[number] = np.where(missing, -1, offsets[:-1]), np.where(missing, -1, offsets[1:])
        items.append(_states(found.values) if name in OF_STATES else _integers(found.values))
        used += len(found.values)
    return Arrays(values, starts, ends, np.concatenate(items), clusters)


@cache
def states() -> dict[str, int]:
    """Returns the number of each state of any machine."""
    names = {name for before, after in _legal() for name in (before[1], after)}
    return {name: number for number, name in enumerate([*kernel.KNOWN_STATES, *sorted(names - {*kernel.KNOWN_STATES})])}


@cache
def legal() -> Table:
    """Returns which transitions the machines allow, as (machine, before, after)."""
    numbers = states()
    table: Table = np.zeros((len(kernel.MACHINES), len(numbers), len(numbers)), np.bool_)
    for (machine, before), after in _legal():
        table[kernel.MACHINES.index(machine), numbers[before], numbers[after]] = True
    return table


def _legal() -> list[tuple[tuple[str, str], str]]:
    machines: dict[str, Mapping[Any, Any]] = {
        "partition": PARTITION_STEPS,
        "replica": REPLICA_STEPS,
        "procedure": VALID_PREVIOUS,
    }
    steps = [
        ((machine, _name(before)), _name(after))
        for machine, table in machines.items()
        for after, froms in table.items()
        for before in froms
    ]
    steps += [(("procedure", ""), state) for state in PROCEDURE_BEGINS]
    return steps + [(("region", before), after) for before, after in sorted(REGION_STEPS)]


def _name(state: IntEnum) -> str:
    return state.name


def _joined(column: pa.ChunkedArray) -> Any:
    """Returns a column as one array."""
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def numbers(name: str, column: pa.ChunkedArray, clusters: dict[str, int]) -> Ints:
    """Returns the numbers of the field ``name``, one of :data:`pipeline.kernel.FIELDS` or another integer.

    Of ``cluster`` it puts the numbers of the names into ``clusters``.
    """
    if name == "steps":
        return _integers(pc.fill_null(pc.list_value_length(_joined(column)), 0))
    if name in OF_STATES:
        return _states(_joined(column))
    if name in NAMED:
        known = {text: number for number, text in enumerate(NAMED[name])}
        return _coded(_joined(column), lambda texts: [known.get(text, len(known)) for text in texts])
    if name in RANKED:
        return _coded(_joined(column), lambda texts: _ranks(texts, clusters if name == "cluster" else {}))
    if name == "step":
        return np.where(np.asarray(column.is_null()), ABSENT, 0)
    return _integers(_joined(column))


def _ranks(texts: list[str | None], into: dict[str, int]) -> list[int]:
    into.update({text: rank for rank, text in enumerate(sorted({text for text in texts if text is not None}))})
    return [ABSENT if text is None else into[text] for text in texts]


def _states(array: Any) -> Ints:
    """Returns the numbers of states; each that no machine has gets one of its own."""
    known = states()

    def numbered(texts: list[str | None]) -> list[int]:
        strange = {text: len(known) + at for at, text in enumerate(texts)}
        return [ABSENT if text is None else known.get(text, strange[text]) for text in texts]

    return _coded(array, numbered)


def _coded(array: Any, numbered: Any) -> Ints:
    """Returns numbers of texts; ``numbered`` makes those of different texts."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    found = np.array([*numbered(array.dictionary.to_pylist()), ABSENT], np.int64)
    places = np.asarray(pc.fill_null(array.indices.cast(pa.int64()), len(found) - 1))
    return found[places]


def _integers(array: Any) -> Ints:
    return np.asarray(pc.fill_null(array.cast(pa.int64()), ABSENT), np.int64)
