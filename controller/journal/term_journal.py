"""Writes a term's part of the journal: the interface of a domain, which adds entries of its own.

Every call takes constant time and never waits or raises: the writing thread makes, encodes and writes rows. Rows of
procedures are alike in all domains.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from controller.journal.entries import Entry, Head, Moment, Single, log_entries, log_lines
from state_machines.journal.events import SCHEMA_VERSION, Kind, Row
from state_machines.procedures.record import REMOVED, Caller, Record
from state_machines.procedures.states import State
from state_machines.procedures.transition import Members, Names, Transition

TEXT_MAX: Final = 500
"""Characters of an error, a result, a reason, a principal or a client in a row."""
LOCKS_MAX: Final = 100
MEMBERS_MAX: Final = 1_000
"""Locks, and topics or brokers, that one row names."""
CHILDREN_SHOWN: Final = 10
_NONE: Final = Members()
_STATES: Final = {state: state.name for state in State}
_PROC_STATE: Final = Kind.PROC_STATE.value

Sink = Callable[[Entry], None]
"""Takes an entry; must not wait."""

Clock = Callable[[], tuple[int, int]]
"""The wall clock and the monotonic clock, in microseconds."""


def clocks() -> tuple[int, int]:
    """Reads the machine's clocks."""
    return time.time_ns() // 1_000, time.monotonic_ns() // 1_000


class TermJournal:
    """Numbers the rows of one term. Without a sink no row is kept."""

    def __init__(self, sink: Sink | None = None, ctl_id: int = 0, epoch: int = 0, clock: Clock = clocks) -> None:
        self._sink = sink
        self._head = Head("", ctl_id, epoch)
        self._clock = clock
        self._seq = 1
        self._detect_us = 0

    @property
    def kept(self) -> bool:
        """Returns whether a sink keeps the rows."""
        return self._sink is not None

    @property
    def last_seq(self) -> int:
        """Returns the number of the last row; 0 before the first one, and without a sink."""
        return self._seq - 1

    @property
    def cluster_id(self) -> str:
        """Returns the cluster's id; empty where it is not known."""
        return self._head.cluster

    def of_cluster(self, cluster_id: str) -> None:
        """Sets the cluster id of all rows from now on."""
        self._head = Head(cluster_id, self._head.ctl_id, self._head.ctl_epoch)

    def noticed(self, monotonic_s: float) -> None:
        """Sets the time at which the event that is handled from now on was noticed."""
        self._detect_us = int(monotonic_s * 1e6)

    def now_us(self) -> int:
        """Returns the monotonic clock."""
        return self._clock()[1]

    def procedures(self, moved: Sequence[Transition], names: Names, domain: str) -> None:
        """Records durable changes of procedures, and has a line of each logged; without a sink it logs them itself."""
        worker = f"{domain}-{self._head.ctl_epoch}"
        self.add(lambda head, seq, moment: Procedural(head, seq, moment, moved, names, worker))

    def add(self, made: Callable[[Head, int, Moment], Entry]) -> None:
        """Records an entry of a domain, and has its lines logged; without a sink it logs them itself.

        ``made`` gets the head, the number of the first row and the clocks.
        """
        entry = made(self._head, self._seq, Moment(*self._clock()))
        if self._sink is None:
            log_entries([entry])
        else:
            self._put(entry, self._sink)

    def call(self, api: str, caller: Caller, *, partitions: int, elected: int, refused: int) -> None:
        """Records a client's call that is no procedure, and what became of it."""
        names = {"principal": bounded(caller.principal), "client": bounded(caller.client)}
        self.event(Kind.CALL, api=api, partitions=partitions, elected=elected, refused=refused, **names)

    def event(self, kind: Kind, **fields: object) -> None:
        """Records one row; ``fields`` are those of :class:`state_machines.journal.events.Row`."""
        if self._sink is not None:
            detect = {"t_detect": self._detect_us} if self._detect_us else {}
            row = Single(self._head, self._seq, self._moment(), {"kind": kind, **detect, **fields})
            self._put(row, self._sink)

    def _moment(self, decide_us: int = 0) -> Moment:
        return Moment(*self._clock(), self._detect_us, decide_us)

    def _put(self, entry: Entry, sink: Sink) -> None:
        self._seq += len(entry)
        sink(entry)


def bounded(text: str) -> str | None:
    """Returns text of others on one line and of limited length, None where there is none."""
    line = " ".join(text[: 2 * TEXT_MAX].split())
    return (line if len(line) <= TEXT_MAX else f"{line[: TEXT_MAX - 3]}...") or None


# -- rows of procedures


class Procedural(Entry, frozen=True):
    """Changes of procedures that entered together, as immutable records.

    ``worker``: the engine's domain and term, for log lines.
    ``each``: every row names what its procedure is about, and not only the first and the last one.
    """

    moved: Sequence[Transition]
    names: Names
    worker: str
    each: bool = False

    def __len__(self) -> int:
        return len(self.moved)

    def log(self, hidden: Counter[str]) -> None:
        """Writes the line of each row."""
        log_lines(self.rows(), self.worker)

    def rows(self) -> Iterator[Row]:
        """Yields a row for each change."""
        head, moment, names = self.head, self.moment, self.names
        for seq, (before, after) in enumerate(self.moved, self.seq):
            ends, caller = after.state.is_final, after.caller
            members = names.members(after) if self.each or ends or before is None else _NONE
            yield Row(
                SCHEMA_VERSION,
                head.cluster,
                head.ctl_id,
                head.ctl_epoch,
                seq,
                moment.ts_us,
                moment.mono_us,
                _PROC_STATE,
                from_state=_STATES[before.state] if before is not None else None,
                to_state=_STATES[after.state],
                reason=bounded(caller.reason) if caller.reason else None,
                why=self._sentence(before, after, members.what),
                err=bounded(after.error) if after.error else None,
                pid=after.pid,
                ppid=after.parent or None,
                root=after.root,
                procedure=after.kind,
                step=names.step_name(after, after.step) or (str(after.step) if _is_removed(after) else None),
                attempts=after.attempts or None,
                locks=names.lock_names(after)[:LOCKS_MAX] or None,
                locked=after.locked or None,
                topics=members.topics[:MEMBERS_MAX] or None,
                brokers=members.brokers[:MEMBERS_MAX] or None,
                principal=bounded(caller.principal) if caller.principal else None,
                client=bounded(caller.client) if caller.client else None,
                result=bounded(after.result.decode("utf-8", "replace")) if after.result else None,
                took_ms=max(0, after.updated_ms - after.submitted_ms) if ends else None,
                table=members.table or None,
                region=members.region or None,
                server=members.server or None,
                incarnation=members.incarnation or None,
            )

    def _sentence(self, before: Record | None, after: Record, what: str) -> str:
        """Describes the change in one sentence."""
        if before is None:
            return _begun(after, what)
        if _is_removed(after):
            return f"its record could not be used, and is removed{_requester(after)}: all else stays as it is"
        if after.state.is_final:
            return _ended(before, after)
        if after.bypassed and not before.bypassed:
            return f"a bypass is requested{_requester(after)}: it ends as it is"
        if after.aborted and not before.aborted:
            return f"{_abort(after)} is requested{_requester(after)}: its steps are undone"
        if after.ending != before.ending and after.ending.act == "leave-out":
            return f"a part of the log is left out{_requester(after)}: edits in it are not recovered"
        if after.ending != before.ending:
            return f"its end is requested{_requester(after)}: it ends with what it has done"
        if after.state is State.FAILED:
            return self._failed(before, after)
        return self._stepped(before, after)

    def _failed(self, before: Record, after: Record) -> str:
        if before.state is not State.FAILED:
            return f"failed: {bounded(after.error)}; its steps are undone"
        if len(after.done) < len(before.done):
            return f"step {self.names.step_name(after, before.done[-1])} undone"
        last = after.done[-1] if after.done else after.step
        return f"step {self.names.step_name(after, last)} cannot be undone yet, {_again(after)}"

    def _stepped(self, before: Record, after: Record) -> str:
        step = self.names.step_name(after, after.step)
        if after.attempts > before.attempts:
            return f"step {step} failed, {_again(after)}"
        if len(after.done) > len(before.done):
            done = f"step {self.names.step_name(after, after.done[-1])} done"
            return f"{done}, {_children(after)}" if after.state is State.WAITING else f"{done}, next is {step}"
        if after.attempts < before.attempts:
            return f"step {step} goes on after {before.attempts} attempts in vain"
        if after.state is before.state:
            return "changed by a command"
        return f"step {step} waits" if after.state is State.WAITING_TIMEOUT else f"step {step} goes on"


def _is_removed(record: Record) -> bool:
    """Checks whether a record that cannot be used was removed: its kind may not be known."""
    return record.ending.act == REMOVED


def _begun(record: Record, what: str) -> str:
    caller = record.caller
    by = f" by {bounded(caller.principal)}" if caller.principal else ""
    by += f" ({bounded(caller.client)})" if caller.client else ""
    by += f": {bounded(caller.reason)}" if caller.reason else ""
    if record.state.is_final:
        return f"requested{by}, and done: {bounded(record.result.decode('utf-8', 'replace')) or 'no result'}"
    return f"begun by pid={record.parent}" if record.parent else f"{what} submitted{by}".lstrip()


def _children(parent: Record) -> str:
    born = parent.born
    more = f" and {len(born) - CHILDREN_SHOWN} more" if len(born) > CHILDREN_SHOWN else ""
    return f"children begun: {', '.join(f'pid={pid}' for pid in born[:CHILDREN_SHOWN])}{more}"


def _abort(record: Record) -> str:
    return "a cancellation" if record.ending.act == "cancel" else "an abort"


def _requester(record: Record) -> str:
    """Names the author of the request to end a procedure, and the reason."""
    ending = record.ending
    by = f" by {bounded(ending.principal)}" if ending.principal else ""
    return by + (f" ({bounded(ending.reason)})" if ending.reason else "")


def _ended(before: Record, after: Record) -> str:
    result = bounded(after.result.decode("utf-8", "replace"))
    if before.state.is_final:
        return f"its result is corrected: {result or 'none'}"
    time = f"in {(after.updated_ms - after.submitted_ms) / 1000:.3f} s"
    if after.bypassed:
        return f"ended as it is {time}, because of a bypass"
    if after.state is State.ROLLEDBACK:
        return f"rolled back {time}: {bounded(after.error) or 'a part of it failed'}"
    return f"finished with SUCCESS {time}{f': {result}' if result else ''}"


def _again(record: Record) -> str:
    pause_s = (record.deadline_ms - record.updated_ms) / 1000
    return f"attempt {record.attempts}: {bounded(record.error)}; it is tried again in {pause_s:g} s"
