"""Decides how the row of a table is stored again: what an operator gives wins over what its damaged row still holds.

A row that is stored again counts from the next term on, so this one remembers it: a second adoption with other values
would replace it unseen.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from state_machines.regions.states import TableKind, TableState

Options = tuple[tuple[str, str], ...]
"""Sorted pairs."""


class TableParts(NamedTuple):
    """What the damaged row of a table still holds, each field judged alone; None: it cannot be read."""

    kind: int | None = None
    state: int | None = None
    options: Options | None = None
    version: int | None = None


NOTHING: Final = TableParts()


class Given(NamedTuple):
    """What an operator gives for a row that is stored again; None: what its damaged row holds, else the default."""

    kind: TableKind | None = None
    enabled: bool | None = None
    options: Mapping[str, str] | None = None


class AdoptedRow(NamedTuple):
    """The row of a table as it is stored again. ``version``: None for the pid of the procedure that stores it."""

    kind: TableKind
    state: TableState
    options: Options
    version: int | None = None

    def __str__(self) -> str:
        state, kind = self.state.name.lower(), self.kind.name.lower()
        return f"kind {kind}, state {state} and {options_text(self.options)}"

    def same(self, other: AdoptedRow) -> bool:
        """Checks whether both are alike for operators: the version of one may be a pid."""
        return self[:3] == other[:3]


def options_text(options: Options) -> str:
    """Returns options for a sentence."""
    named = ", ".join(f"{name}={value}" for name, value in options)
    return f"options {named}" if named else "no options"


def adopted(parts: TableParts, given: Given) -> AdoptedRow:
    """Returns the row to store: regions that are open have its options only where it keeps options and version."""
    kind = given.kind if given.kind is not None else TableKind.USER if parts.kind is None else TableKind(parts.kind)
    options = tuple(sorted(given.options.items())) if given.options is not None else parts.options or ()
    keeps = options == parts.options
    return AdoptedRow(kind, _state(parts, given), options, parts.version if keeps else None)


def _state(parts: TableParts, given: Given) -> TableState:
    """Returns the state to store: a table that is not to be served may have open regions, so it is to be closed."""
    if given.enabled is not None:
        return TableState.ENABLED if given.enabled else TableState.DISABLING
    return TableState.ENABLED if parts.state is None else TableState(parts.state)


def readable_text(parts: TableParts, row: AdoptedRow | None = None) -> str:
    """Says what a damaged row still holds. ``row``: as it is stored again, so what is kept and what is replaced."""
    if parts == NOTHING:
        return "nothing can be read of its former row"
    if row is None:
        return f"its former row still has {', '.join(_told(parts, parts._fields))}"
    held = {name for name in parts._fields if getattr(parts, name) is not None}
    kept = {name for name in held if getattr(parts, name) == getattr(row, name)}
    others = held - kept - ({"version"} if row.version is None else set())
    lost = ", ".join(name for name in parts._fields if name not in held)
    sentences = (
        f"of its former row are kept: {', '.join(_told(parts, kept))}" if kept else "",
        f"of its former row are replaced: {', '.join(_told(parts, others))}" if others else "",
        f"its former row has no readable {lost}" if lost else "",
    )
    return "; ".join(filter(None, sentences))


def _told(parts: TableParts, fields: Container[str]) -> Iterator[str]:
    """Yields the fields of a row that can be read, in their order."""
    if parts.kind is not None and "kind" in fields:
        yield f"kind {TableKind(parts.kind).name.lower()}"
    if parts.state is not None and "state" in fields:
        yield f"state {TableState(parts.state).name.lower()}"
    if parts.options is not None and "options" in fields:
        yield options_text(parts.options)
    if parts.version is not None and "version" in fields:
        yield f"version {parts.version}"


class Stored:
    """Remembers what repairs have stored that the next term reads. ``servers``: processes, as NAME,INCARNATION."""

    def __init__(self) -> None:
        self.servers: set[str] = set()
        self._tables: dict[str, tuple[int, AdoptedRow]] = {}

    def put_table(self, table: str, pid: int, row: AdoptedRow) -> None:
        """Notes the row of a table, and the procedure that has stored it."""
        self._tables[table] = pid, row

    def table(self, table: str) -> tuple[int, AdoptedRow] | None:
        """Returns the row of a table, after the procedure that has stored it; None where none has."""
        return self._tables.get(table)


def changes_of(table: str, stored: AdoptedRow, wanted: AdoptedRow) -> str:
    """Returns the commands that give a row, once a term has it, what a second adoption wants of it."""
    acts: list[str] = []
    if wanted.options != stored.options:
        acts.append(f"'regent tables modify {table}' changes options")
    if wanted.state is not stored.state:
        act = "enable" if wanted.state is TableState.ENABLED else "disable"
        acts.append(f"'regent tables {act} {table}' changes its state")
    then = f", then {' and '.join(acts)}" if acts else ""
    kind = "; no command changes its kind: leave it out" if wanted.kind is not stored.kind else ""
    return f"restart the daemon{then}{kind}"
