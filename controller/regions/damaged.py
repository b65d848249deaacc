"""Keeps safe what a term cannot read: nothing that was left out is given to another server, or told to clients.

A row that is left out stays as it is in the store. A process whose row is damaged, and names it still, counts as a
member; so does one without a row that a region or a procedure names. Its lease has to run out, and its crash to be
dealt with, or its registration stores the row anew.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from controller.process.wording import counted
from controller.regions import fencing
from controller.regions.fencing import LeaseAndFence
from metadata_store.catalog.judging import INT_MAX
from metadata_store.catalog.rows import Content, RegionRow
from state_machines.regions.damage import LEASE_PLACE, NO_TABLE, Damage, Damages, Gap, RowKind, shown
from state_machines.regions.entities import Server, Table
from state_machines.regions.keys import Keys
from state_machines.regions.model import Regions
from state_machines.regions.states import PARTIAL, ServerState, TableState

log = logging.getLogger("regent.regions")

LEASE_MS_MAX: Final = 600_000
"""Longest lease that the settings permit: of servers whose own one cannot be read."""
UNREADABLE: Final = INT_MAX
"""Stands for the highest incarnation of a name that was fenced, where its row cannot be read."""
NAMED_MAX: Final = 20
"""Damaged rows and gaps that the log and the status name."""
REMEDY: Final = "'regent regions report' names what mends them: a command, or their rows in a copy of the store"


class Unknown(NamedTuple):
    """Processes whose rows name no process: each region that is open at one of them must stay there.

    ``names``: those whose name can be read; ``any``: whether there are others.
    """

    names: frozenset[str]
    any: bool

    @classmethod
    def of(cls, damaged: Iterable[Damage]) -> Unknown:
        """Finds them among damaged rows."""
        servers = [one.name for one in damaged if one.kind is RowKind.SERVER and _key_of(one) is None]
        return cls(frozenset(one.rpartition(",")[0] for one in servers if one), "" in servers)

    def __bool__(self) -> bool:
        return self.any or bool(self.names)

    def may_be(self, server: str) -> bool:
        """Checks whether a server may be one of them."""
        return self.any or server in self.names


def _key_of(damage: Damage) -> tuple[str, int] | None:
    name, comma, incarnation = damage.name.rpartition(",")
    known = comma and name and incarnation.isascii() and incarnation.isdecimal() and 0 < int(incarnation) <= INT_MAX
    return (name, int(incarnation)) if known else None


def members(damaged: Iterable[Damage]) -> Iterator[tuple[str, int]]:
    """Yields processes whose rows are damaged, and name them."""
    for one in damaged:
        if one.kind is RowKind.SERVER and (key := _key_of(one)) is not None:
            yield key


def keep_away(model: Regions, damaged: Iterable[Damage]) -> None:
    """Enters damaged members, and keeps each name away whose fenced incarnations cannot be read."""
    for key in members(damaged):
        member(model, key)
    for one in damaged:
        if one.kind is RowKind.BURIED and one.name:
            model.buried[one.name] = UNREADABLE


def member(model: Regions, key: tuple[str, int]) -> Server:
    """Returns a process; one without a row that can be read is entered as a member."""
    if (server := model.servers.get(key)) is None:
        proof = model.proofs.get(key)
        server = model.servers[key] = Server(*key, "", "", ServerState.ONLINE, {}, proof=proof, stored=False)
    return server


def lease_and_fence_of(content: Content, present: LeaseAndFence) -> tuple[LeaseAndFence | None, list[Damage]]:
    """Returns the stored lease and fence, and the damage of their row. An unreadable lease counts as the longest."""
    found = fencing.lease_and_fence_in(content.marks)
    name = f"{fencing.MARK_KIND} of {fencing.MARK_SUBJECT}"
    wrong = any(one.kind is RowKind.MARK and one.name == name for one in content.damaged)
    why: list[Damage] = []
    if found is not None:
        try:
            fencing.fences_in(found.fence)
        except ValueError as error:
            why.append(Damage(RowKind.MARK, LEASE_PLACE, "value", shown(found.fence), str(error), name))
    if wrong or why:
        return LeaseAndFence(LEASE_MS_MAX, present.fence), why
    return found, why


def _of_row(row: RegionRow) -> tuple[str, int, bytes, bytes]:
    """Returns what the damage of a region whose row can be read says of it."""
    return row.table, row.id, row.start, row.end


def without_table(damages: Damages, row: RegionRow) -> None:
    """Leaves a region out whose table is not there, or left out itself."""
    if row.table in damages.tables:
        damages.leave_out(row.id, row.table)
    else:
        place = f"region {row.id}"
        damages.add(Damage(RowKind.REGION, place, "table", shown(row.table), NO_TABLE, "", *_of_row(row)))


def without_server(model: Regions, row: RegionRow) -> None:
    """Leaves a region out that a process may have whose own row cannot be read."""
    key = row.server, row.incarnation
    owner = f"{row.server},{row.incarnation}"
    why = "no row of a server names it, and one that cannot be read may: it may have the region still"
    place = f"region {row.id}"
    model.damages.add(Damage(RowKind.REGION, place, "server", shown(owner), why, owner, *_of_row(row)))
    model.strangers[key] = model.strangers.get(key, 0) + 1


def unnamed(model: Regions, key: tuple[str, int], where: str) -> Server | None:
    """Returns a process that has no row and may have a region; None where it was fenced.

    It counts as a member. ``where``: what names it.
    """
    fenced = model.is_buried(key) and model.buried[key[0]] < UNREADABLE
    if fenced or not key[0]:
        return None
    if key not in model.servers:
        log.error(
            "server %s,%d has no row, and %s names it: no other server gets its regions before its lease has run out "
            "and its crash is dealt with",
            *(*key, where),
        )
    return member(model, key)


def without_sources(damages: Damages, rows: Sequence[RegionRow], heirs: Container[int]) -> list[RegionRow]:
    """Leaves regions out of which it is not known any more what they refer to: opened, they would lack that data."""
    kept: list[RegionRow] = []
    for row in rows:
        if row.id in heirs:
            why = "what it refers to cannot be read: its data begins as that of others"
            place = f"region {row.id}"
            damages.add(Damage(RowKind.REGION, place, "sources", "", why, "", *_of_row(row)))
        else:
            kept.append(row)
    return kept


class Joints:
    """Follows the regions that are entered, in the order of tables and keys, where they do not join.

    ``end`` is the key at which the next one joins those before; None where it cannot.
    """

    def __init__(self, damages: Damages) -> None:
        self._damages = damages
        self._table: Table | None = None
        self._keys = Keys("")

    def next(self, table: Table, row: RegionRow, before: RegionRow | None) -> bytes | None:
        """Takes a region that does not join ``before``, the latest one; returns the key at which the next one joins."""
        if table is not self._table:
            self.end_table(before)
            self._table, self._keys = table, Keys(table.name)
        elif before is not None:
            self._keys.reached(before.id, before.end)
        self._note(self._keys.next(row.id, row.start, row.end))
        return self._keys.joint

    def end_table(self, before: RegionRow | None) -> None:
        """Ends the table of ``before``, the latest region."""
        if self._table is not None and before is not None:
            self._keys.reached(before.id, before.end)
            if self._table.state is not TableState.DISABLED:  # else its creation may have ended early
                self._note(self._keys.over())

    def _note(self, gap: Gap | None) -> None:
        assert self._table is not None
        if gap is not None and self._table.state not in PARTIAL:
            self._damages.add_gap(gap)


def tell(damages: Damages) -> None:
    """Logs what is left out."""
    for one in damages.rows[:NAMED_MAX]:
        log.error("left out, %s", one)
    for gap in damages.gaps[:NAMED_MAX]:
        log.error("%s: no answer is given for them", gap)
    if damages.count:
        log.error("%s; the rest is served: %s", left_out(damages), REMEDY)


def left_out(damages: Damages) -> str:
    """Says how many rows are left out: those that are damaged, and sound ones of a table that is left out."""
    damaged = sum(damages.count.values()) - damages.sound
    sound = f", with {counted(damages.sound, 'sound region')} of tables that are" if damages.sound else ""
    return f"{counted(damaged, 'damaged row')} left out{sound}"
