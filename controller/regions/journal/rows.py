"""Makes rows of what happened to regions: the loop queues items, the journal's thread makes their rows later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from controller.journal.entries import Entry
from controller.journal.term_journal import Procedural, bounded
from controller.process.wording import counted
from controller.regions.journal.items import (
    Attached,
    Changed,
    Discarded,
    Dispatched,
    Forgotten,
    Independent,
    Item,
    Made,
    Moved,
    Reported,
    ReportedTogether,
    ServerMoved,
    TableMoved,
    Together,
    rows_in,
)
from regent_agent import protocol
from state_machines.journal.checks import DISCARDED, FORGOTTEN
from state_machines.journal.events import INDEPENDENT, MAYBE_INDEPENDENT, SCHEMA_VERSION, Kind, RegionRow, Row
from state_machines.procedures.record import Record
from state_machines.procedures.transition import Members, Names
from state_machines.regions.entities import Server
from state_machines.regions.layout import key_text
from state_machines.regions.states import RegionState

DELETED: Final = "DELETED"
"""State of a table that is gone."""
_STATES: Final = {state: state.name for state in RegionState}
_STATE, _REPORT = Kind.REGION_STATE.value, Kind.REGION_REPORT.value
_OPERATIONS: Final[Mapping[type, str]] = {
    protocol.Open: "open",
    protocol.Close: "close",
    protocol.Task: "task",
    protocol.Work: "work",
}
_NOTHING: Final = Members()


class Regional(Entry, frozen=True):
    """Events of one turn of the loop, in their order, as ``count`` rows from ``seq`` on.

    ``retains``: regions return to the server that had them.
    """

    items: Sequence[Item]
    count: int
    names: Names
    retains: bool = False

    def __len__(self) -> int:
        return self.count

    @property
    def worker(self) -> str:
        """Returns the engine's domain and term, for log lines."""
        return f"regions-{self.head.ctl_epoch}"

    def rows(self) -> Iterator[Row]:
        """Yields the rows of all items."""
        seq = self.seq
        for item in self.items:
            yield from self.of(item, seq)
            seq += rows_in(item)

    def stored(self) -> Iterator[Row | RegionRow]:
        """Yields the rows of all items, those of regions in the form that is made faster."""
        seq = self.seq
        for item in self.items:
            if type(item) is Moved:  # most items are, and one generator less for each counts
                yield self._moved(item, seq)
                seq += 1
            else:
                yield from self._made(item, seq) if type(item) is Made else self.of(item, seq)
                seq += rows_in(item)

    def of(self, item: Item, seq: int) -> Iterator[Row]:
        """Yields the rows of one item, the first one with number ``seq``."""
        match item:
            case Changed():
                changed = Procedural(self.head, seq, self.moment, item.moved, self.names, self.worker, each=True)
                yield from changed.rows()
            case Moved():
                yield self._moved(item, seq).whole()
            case Attached():
                yield self._attached(item, seq).whole()
            case Reported():
                yield self._reported(item, seq)
            case ReportedTogether():
                yield self._reported_together(item, seq)
            case Together():
                yield self._together(item, seq)
            case Dispatched():
                yield self._dispatched(item, seq)
            case Made():
                yield from (one.whole() for one in self._made(item, seq))
            case Discarded() | Forgotten() | Independent():
                yield self._last_of(item, seq)
            case ServerMoved():
                yield self._server(item, seq)
            case TableMoved():
                yield self._table(item, seq)

    def _last_of(self, item: Discarded | Forgotten | Independent, seq: int) -> Row:
        """Returns the row of a region that is known, or that refers to others, no more."""
        match item:
            case Discarded():
                return self._discarded(item, seq)
            case Forgotten():
                return self._forgotten(item, seq)
            case _:
                return self._independent(item, seq)

    def about(self, record: Record | None) -> Members:
        """Returns what the procedure of an event is about, as it was when it began."""
        return _NOTHING if record is None else self.names.members(record)

    def _row(self, seq: int, kind: str, **fields: Any) -> Row:
        head, at = self.head, self.moment
        return Row(
            SCHEMA_VERSION, head.cluster, head.ctl_id, head.ctl_epoch, seq, at.ts_us, at.mono_us, kind, **fields
        )  # fmt: skip

    def _moved(self, item: Moved, seq: int) -> RegionRow:
        head, at, region, record, had, server = self.head, self.moment, item.region, item.record, item.had, item.server
        return RegionRow(  # by place: names would cost three times as much as all else
            SCHEMA_VERSION,
            head.cluster,
            head.ctl_id,
            head.ctl_epoch,
            seq,
            at.ts_us,
            at.mono_us,
            _STATE,
            _STATES[item.before],
            _STATES[item.state],
            None if record is None else self.names.members(record).why or None,
            item.pid or None,
            None if record is None else record.parent or None,
            None if record is None else record.root,
            None if record is None else record.kind,
            region.table.name,
            region.id,
            None if had is None else had.name,
            None if had is None else had.incarnation,
            None if server is None else server.name,
            None if server is None else server.incarnation,
            item.token or None,
            item.sequence,
        )

    def _attached(self, item: Attached, seq: int) -> RegionRow:
        state, region = item.state, item.region
        begins = Moved(region, item.pid, item.record, False, state, state, item.server, None, 0, region.sequence)
        return self._moved(begins, seq)

    def _made(self, item: Made, seq: int) -> Iterator[RegionRow]:
        head, at = self.head, self.moment
        for number, region in enumerate(item.regions, seq):
            yield RegionRow(
                SCHEMA_VERSION,
                head.cluster,
                head.ctl_id,
                head.ctl_epoch,
                number,
                at.ts_us,
                at.mono_us,
                _STATE,
                to_state=_STATES[item.state],
                pid=item.pid,
                table=item.table.name,
                region=region.id,
                start=key_text(region.start),
                end=key_text(region.end),
                regions=item.sources or None,
            )

    def _independent(self, item: Independent, seq: int) -> Row:
        return self._row(
            seq,
            _REPORT,
            table=item.region.table.name,
            region=item.region.id,
            **_owners(None, item.server),
            outcome=INDEPENDENT if item.answered else MAYBE_INDEPENDENT,
        )

    def _discarded(self, item: Discarded, seq: int) -> Row:
        parent = item.parent
        return self._row(
            seq,
            _STATE,
            from_state=RegionState(parent.state).name,
            to_state=DISCARDED,
            why=self.about(item.record).why or None,
            **_family(item.pid, item.record),
            table=parent.table,
            region=parent.id,
        )

    def _forgotten(self, item: Forgotten, seq: int) -> Row:
        return self._row(
            seq,
            _STATE,
            from_state=item.state or None,
            to_state=FORGOTTEN,
            why=self.about(item.record).why or None,
            **_family(item.pid, item.record),
            table=item.table or None,
            region=item.region,
        )

    def _dispatched(self, item: Dispatched, seq: int) -> Row:
        return self._row(
            seq,
            Kind.REGION_DISPATCH.value,
            **_owners(None, item.server),
            batch=item.number,
            operations=[_OPERATIONS[type(one)] for one in item.operations],
            pids=[one.pid for one in item.operations],
        )

    def _reported(self, item: Reported, seq: int) -> Row:
        result, about = item.result, self.about(item.record)
        return self._row(
            seq,
            _REPORT,
            err=bounded(result.text),
            **_family(result.pid, item.record),
            table=about.table or None,
            region=about.region or None,
            **_owners(None, item.server),
            sequence=result.sequence,
            outcome=bounded(result.outcome),
        )

    def _reported_together(self, item: ReportedTogether, seq: int) -> Row:
        return self._row(
            seq,
            _REPORT,
            **_of_family(item.record),
            table=self.about(item.record).table or None,
            **_owners(None, item.server),
            outcome=item.outcome,
            pids=item.pids,
        )

    def _together(self, item: Together, seq: int) -> Row:
        record, ends = item.record, item.before is not None
        count = counted(len(item.pids), "procedure")
        by = f" by pid={record.parent}" if record.parent else ""
        end = f"{count} finished with {record.state.name}, the longest in {item.took_ms / 1000:.3f} s"
        return self._row(
            seq,
            Kind.PROC_STATE.value,
            from_state=item.before.name if item.before is not None else None,
            to_state=record.state.name,
            why=end if ends else f"{count} begun{by}",
            **_of_family(record),
            step=self.names.step_name(record, record.step) or None,
            took_ms=item.took_ms if ends else None,
            table=self.about(record).table or None,
            pids=item.pids,
        )

    def _server(self, item: ServerMoved, seq: int) -> Row:
        return self._row(
            seq,
            Kind.SERVER_STATE.value,
            from_state=item.before or None,
            to_state=item.after,
            why=bounded(item.why),
            pid=item.pid or None,
            **_owners(None, item.server),
            regions=item.regions,
        )

    def _table(self, item: TableMoved, seq: int) -> Row:
        return self._row(
            seq,
            Kind.TABLE_STATE.value,
            from_state=item.before.name if item.before is not None else None,
            to_state=item.after.name if item.after is not None else DELETED,
            pid=item.pid,
            table=item.table,
            regions=item.regions,
        )


def _family(pid: int, record: Record | None) -> dict[str, Any]:
    if record is None:
        return {"pid": pid or None}
    return {"pid": pid, **_of_family(record)}


def _of_family(record: Record) -> dict[str, Any]:
    return {"ppid": record.parent or None, "root": record.root, "procedure": record.kind}


def _owners(had: Server | None, server: Server | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if had is not None:
        found["server0"], found["incarnation0"] = had.name, had.incarnation
    if server is not None:
        found["server"], found["incarnation"] = server.name, server.incarnation
    return found
