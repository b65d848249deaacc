"""Judges the regions of a domain as a whole, a part at a time: keys first, and the rest once it is known what goes on.

A model may change between two parts. So keys are followed from where they were reached, and a region that is not open
is looked at again in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from state_machines.regions.damage import Gap, RowKind
from state_machines.regions.entities import Region, Table
from state_machines.regions.findings import Finding, FindingKind, Findings, Held, Scope
from state_machines.regions.holes import cause_and_mend
from state_machines.regions.keys import Keys, behind
from state_machines.regions.layout import key_text
from state_machines.regions.left_out import LeftOut
from state_machines.regions.model import Regions
from state_machines.regions.overlaps import pair_mend
from state_machines.regions.report_owners import judge_claim, judge_owner
from state_machines.regions.report_rows import Told, damages, judge_heir, judge_parent
from state_machines.regions.states import PARTIAL, RegionState, ServerState, TableState

TOGETHER: Final = 2_000
"""Regions, or other rows, of one part."""
OWNERS_TOGETHER: Final = 500
"""Regions of one part that are not open: to judge one takes longer than to pass it by."""
PAIR: Final = 2
"""Regions that an overlap names."""
K = FindingKind


class Judge:
    """Judges a model. Take the parts of :meth:`of_keys`, find out what goes on, then take those of :meth:`of_rest`."""

    def __init__(self, model: Regions, scope: Scope) -> None:
        self._model, self._scope = model, scope
        self.found = Findings(scope)
        self._odd: list[Region] = []
        """Regions that are not open at a process that serves."""
        self._weight = 0
        self._left_out = LeftOut(model, "")

    def _after(self, weight: int) -> Iterator[None]:
        """Ends the part where it is heavy enough."""
        self._weight += weight
        if self._weight >= TOGETHER:
            self._weight = 0
            yield

    # -- keys

    def of_keys(self) -> Iterator[None]:
        """Looks at each region of each table; yields after each part."""
        for name in sorted(filter(self._scope.has, self._model.tables)):
            if (table := self._model.tables.get(name)) is not None:
                yield from self._of_table(table)

    def _of_table(self, table: Table) -> Iterator[None]:
        self._of_namespace(table)
        keys, at = Keys(table.name), 0
        last: Region | None = None
        while self._is_whole(table):
            at = behind(table, keys, at, last)
            some = table.regions[at : at + TOGETHER]
            if not some:
                self._note(table, keys.over() if at else Gap(table.name, b"", b"", False, ()))
                break
            self._judge(table, keys, some)
            at, last = at + len(some), some[-1]
            yield from self._after(len(some))
        yield from self._after(1)

    def _of_namespace(self, table: Table) -> None:
        self.found.tables += 1
        name, damages = table.namespace, self._model.damages
        if name not in self._model.namespaces and not damages.count[RowKind.NAMESPACE]:
            what = f"table {table.name}: its namespace has no row"
            mend = f"'regent namespaces create {name}' stores it"
            self.found.add(K.NO_NAMESPACE, Finding, K.NO_NAMESPACE, what, mend, table.name)

    def _is_whole(self, table: Table) -> bool:
        """Checks whether a table is there, and is to have all of its regions."""
        return self._model.tables.get(table.name) is table and table.state not in PARTIAL

    def _judge(self, table: Table, keys: Keys, some: Sequence[Region]) -> None:
        """Looks at regions that follow each other."""
        serving = {one for one in self._model.servers.values() if one.state is ServerState.ONLINE}
        open_, joint, owners = RegionState.OPEN, keys.joint, self._scope.owners
        before: Region | None = None
        for region in some:
            if region.start == joint:
                joint = region.end or None
            else:
                if before is not None:
                    keys.reached(before.id, before.end)
                self._note(table, keys.next(region.id, region.start, region.end))
                joint = keys.joint
            before = region
            if region.state is not open_ or region.server not in serving or region.id in owners:
                self._odd.append(region)
        keys.reached(some[-1].id, some[-1].end)
        self.found.regions += len(some)

    def _note(self, table: Table, gap: Gap | None) -> None:
        if gap is not None:
            describe = self._overlap if gap.overlap else self._hole
            self.found.add(K.OVERLAP if gap.overlap else K.HOLE, describe, table, gap)

    def _overlap(self, table: Table, gap: Gap) -> Finding:
        """Describes keys that several regions have."""
        beside = " and ".join(f"#{one}" for one in gap.regions)
        what = f"table {table.name}: regions {beside} have the same keys, {_keys_of(gap)}"
        mend = _overlap_mend(self._model, table, gap)
        return Finding(K.OVERLAP, what, mend, table.name, gap.regions, gap.start, gap.end)

    def _hole(self, table: Table, gap: Gap) -> Finding:
        """Describes keys that no region has."""
        if not self._scope.mends:
            return Finding(K.HOLE, "", "", table.name, gap.regions, gap.start, gap.end)
        if self._left_out.table != table.name:
            self._left_out = LeftOut(self._model, table.name)
        cause, mend = cause_and_mend(self._model, table, gap, self._left_out, self._scope.had)
        what = f"table {table.name}: no region has the keys {_keys_of(gap)}{cause and f' ({cause})'}"
        return Finding(K.HOLE, what, mend, table.name, gap.regions, gap.start, gap.end)

    # -- all else

    def of_rest(self, held: Held) -> Iterator[None]:
        """Looks at owners, at rows beside the regions, and at what is left out; yields after each part."""
        model, scope, found = self._model, self._scope, self.found
        self._of_halted(held)
        for at in range(0, len(self._odd), OWNERS_TOGETHER):
            for region in self._odd[at : at + OWNERS_TOGETHER]:
                if model.regions.get(region.id) is region:
                    judge_owner(model, scope, found, region, held)
            yield
        for id_, processes in held.claims:
            judge_claim(model, scope, found, id_, processes)
            yield from self._after(1)
        for parent in list(model.parents.values()):
            if model.parents.get(parent.id) is parent:
                judge_parent(model, scope, found, parent)
            yield from self._after(1)
        told = Told(model)
        for heir, sources in list(model.sources.items()):
            if model.sources.get(heir) is sources:
                judge_heir(model, scope, found, heir, sources, told)
            yield from self._after(1)
        rows = damages(model, scope, found)
        while some := len(list(islice(rows, TOGETHER))):
            yield from self._after(some)

    def _of_halted(self, held: Held) -> None:
        for name in filter(self._scope.has, held.halted):
            table = self._model.tables.get(name)
            if table is not None and table.state in _GOES_ON:
                what = f"table {name} is {table.state.name}, and no procedure goes on with it"
                self.found.add(K.HALTED, Finding, K.HALTED, what, _GOES_ON[table.state].format(name), name)


_GOES_ON: Final = {
    TableState.CREATING: "'regent tables enable {0}' goes on, 'disable' keeps the table closed, 'delete' takes it back",
    TableState.ENABLING: "'regent tables enable {0}' goes on, 'regent tables disable {0}' takes it back",
    TableState.DISABLING: "'regent tables disable {0}' goes on",
    TableState.DELETING: "'regent tables delete {0}' goes on",
    TableState.TRUNCATING: "'regent tables truncate {0}' goes on, 'regent tables delete {0}' removes it",
}
"""What goes on with a table that no procedure takes to its next state."""


def _keys_of(gap: Gap) -> str:
    return f"from {key_text(gap.start) or 'the first key'} to {key_text(gap.end) or 'the last one'}"


def _overlap_mend(model: Regions, table: Table, gap: Gap) -> str:
    """Returns the mend of keys that two regions have."""
    found = [one for id_ in gap.regions if (one := model.regions.get(id_)) is not None]
    if len(found) != PAIR:
        return f"'regent regions report --table {table.name}' says it anew: its regions are others by now"
    return pair_mend(model, found[0], found[1])
