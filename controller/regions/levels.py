"""Finds the level of a store as a term begins, and stores it where none is stored: a new store has the newest one."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from metadata_store.catalog.judging import KINDS
from metadata_store.catalog.rows import (
    Content,
    HeirRow,
    MarkRow,
    ParentRow,
    PublishedRow,
    PutMark,
    Small,
    SnapshotPartRow,
    SnapshotRow,
)
from metadata_store.records.port import StoreFailed
from state_machines.regions import levels
from state_machines.regions.damage import RowKind
from state_machines.regions.levels import Form
from state_machines.regions.marks import STORE, MarkKind

log = logging.getLogger("regent.regions")

PLACE: Final = f"{MarkKind.LEVEL} of {STORE}"
"""Name of the level's row where that is damaged."""
OF_ROWS: Final[Mapping[type[Small], Form]] = {
    HeirRow: Form.HEIRS,
    ParentRow: Form.PARENTS,
    SnapshotRow: Form.SNAPSHOTS,
    SnapshotPartRow: Form.SNAPSHOTS,
    PublishedRow: Form.PUBLISHED,
}
"""The form of each kind of small rows."""
OF_DAMAGES: Final = {KINDS[row]: form for row, form in OF_ROWS.items()}
"""The same, of rows that are damaged."""


class Begun(NamedTuple):
    """A catalog's content with the mark of its level. ``writes``: the mark, where the store has none yet."""

    content: Content
    writes: Sequence[PutMark] = ()


def begin(content: Content, floor: int, *, is_new: bool) -> Begun:
    """Finds the level; raises ``StoreFailed`` where this daemon does not know it. ``floor``: see ``Catalog.level``.

    A row that is damaged stays as it is, and the level counts as the lowest one that reads all rows.
    """
    stored = next((one.value for one in content.marks if (one.kind, one.subject) == (MarkKind.LEVEL, STORE)), "")
    if stored:
        if why := levels.newer(int(stored)):
            raise StoreFailed(why)
        _tell(int(stored))
        return Begun(content)
    has_rows = bool(content.tables or content.regions or content.servers or content.buried or content.damaged)
    level = levels.NEWEST if is_new and not has_rows else levels.unstored(floor, _forms(content))
    _tell(level)
    row = MarkRow(MarkKind.LEVEL, STORE, str(level))
    damaged = any(one.kind is RowKind.MARK and one.name == PLACE for one in content.damaged)
    return Begun(content._replace(marks=(*content.marks, row)), () if damaged else (PutMark(row),))


def _tell(level: int) -> None:
    if level < levels.NEWEST:
        log.info(
            "regions: the store has level %d, and this daemon knows %d: it writes what older daemons read; %s",
            *(level, levels.NEWEST, levels.UPGRADE),
        )


def _forms(content: Content) -> Iterator[Form]:
    """Yields the forms that the rows of a catalog have."""
    yield from {OF_ROWS[type(one)] for one in content.small}
    yield from {OF_DAMAGES[one.kind] for one in content.damaged if one.kind in OF_DAMAGES}
    if any(one.version for one in content.tables):
        yield Form.VERSIONS
