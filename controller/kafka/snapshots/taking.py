"""Takes one snapshot of a term: reads the model part by part, and hands the parts to a writing process.

The loop does one part in a turn, and none while events wait: control has priority.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import anyio
import msgspec

from configs.journal_section import SnapshotsSettings
from controller.kafka.snapshots.writer import Begin, End, Message, Part, TopicPart, Written, framed
from controller.kafka.term.term import Term
from controller.process.children import Child, command_of
from controller.process.clock import wall_ms
from state_machines.journal.snapshot import FORMAT, PARTITIONS_PER_LINE_MAX, VERSION, BrokerLine, Header
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import MinIsr
from state_machines.model.types import Broker

COMMAND: Final = command_of("controller.kafka.snapshots.writer")
PART_ROWS: Final = 2_000
"""Partitions of a part: some milliseconds of the loop."""
TAKE_S_MAX: Final = 600.0
"""Longest time of one snapshot: a disk may stall."""
PATIENCE_S: Final = 1.0
"""Longest time that a part waits for an empty queue of events."""
PATIENCE_S_MAX: Final = 60.0
"""Longest time that all parts together wait for it: a queue that is never empty must not use up the whole time."""
LOOK_S: Final = 0.25
"""Pause between two looks whether the term has ended: a stalled disk must not keep its model in memory."""

T = TypeVar("T")


class NotTaken(Exception):
    """There is no snapshot, and the text says why."""


class TermOver(NotTaken):
    """There is no snapshot, because the term ended: nothing is wrong."""


class Taken(NamedTuple):
    """A snapshot that is on the disk, and the numbers of the journal between which it was read."""

    written: Written
    seq_first: int
    seq_last: int


async def take(term: Term, folder: Path, settings: SnapshotsSettings, cause: str, daemon: int) -> Taken:
    """Takes a snapshot; raises :class:`NotTaken` where there is none, or :class:`TermOver`.

    A disk that stalls while the last bytes are written may have the file nevertheless, which the text then says.
    """
    writer, end = await Writer.start(), None
    try:
        async with asyncio.timeout(TAKE_S_MAX):
            begin = _begin(term, folder, settings, cause, daemon)
            end = await _unless_over(term, _sent(term, writer, begin))
            written = await _unless_over(term, writer.answer())
    except TimeoutError:
        perhaps = "" if end is None else f"; all was sent to the disk, so look whether {folder} has it"
        raise NotTaken(f"it was not on the disk within {TAKE_S_MAX:.0f} s{perhaps}") from None
    finally:
        with anyio.CancelScope(shield=True):
            await writer.end()
    if written.err or not written.name:
        raise NotTaken(written.err or "its writing process ended early")
    return Taken(written, begin.header.seq, end.seq)


async def _unless_over(term: Term, work: Coroutine[None, None, T]) -> T:
    """Returns the result of the work; cancels it and raises :class:`TermOver` once the term ends."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            if not task.done() and (why := term.gate.why_ended) is not None:
                raise TermOver(f"the term ended ({why})")
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


def _begin(term: Term, folder: Path, settings: SnapshotsSettings, cause: str, daemon: int) -> Begin:
    journal, cluster = term.controller.journal, term.cluster
    place = (journal.cluster_id, daemon, cluster.epoch, journal.last_seq, wall_ms() * 1_000)
    lines = broker_lines(cluster, term.controller.adoption.session_ms)
    return Begin(str(folder), settings.files_max, settings.bytes_max, Header(FORMAT, VERSION, *place, cause), lines)


async def _sent(term: Term, writer: Writer, begin: Begin) -> End:
    """Sends all messages and returns the last one; stops where the writer has ended, whose answer has the reason."""
    end = End(begin.header.seq, wall_ms() * 1_000)
    loop, patience_s = asyncio.get_running_loop(), PATIENCE_S_MAX
    with suppress(BrokenPipeError):
        await writer.send(begin)
        for part in parts_of(term.cluster, term.cluster.min_isr):
            await writer.send(part)
            began_s = loop.time()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(PATIENCE_S, patience_s)):
                    await term.idle.wait()
            patience_s = max(0.0, patience_s - (loop.time() - began_s))
            if (why := term.gate.why_ended) is not None:
                raise TermOver(f"the term ended ({why})")
        end = End(term.controller.journal.last_seq, wall_ms() * 1_000)
        await writer.send(end)
    return end


def parts_of(cluster: Cluster, min_isr: MinIsr, rows_max: int = PART_ROWS) -> Iterator[Part]:
    """Yields the partitions; each call of ``next`` reads the model as it is then, at most ``rows_max`` rows of it.

    Rows are immutable, so a part is right for its moment. Topics that are created meanwhile come last; a topic that
    goes is left out from then on.
    """
    index = at = 0
    while index < len(cluster.topics):
        found: list[TopicPart] = []
        room = rows_max
        while room > 0 and index < len(cluster.topics):
            topic = cluster.topics[index]
            present = cluster.topic_index.get(topic.name) == index
            wanted = topic.rows[at : at + min(room, PARTITIONS_PER_LINE_MAX)] if present else ()
            if wanted:
                rows = [cluster.rows[i] for i in wanted]
                deleting = index in cluster.deletions
                found.append(TopicPart(topic.name, topic.topic_id, min_isr.of(topic.name), deleting, rows))
            at += len(wanted)
            room -= len(wanted) or 1
            if not present or at >= len(topic.rows):
                index, at = index + 1, 0
        yield Part(found)


def broker_lines(cluster: Cluster, session_ms: Callable[[Broker], int | None]) -> list[BrokerLine]:
    """Returns the registered brokers, and those that host replicas without being registered."""
    known = cluster.brokers
    lines = [
        BrokerLine(b, True, found.epoch, found.rack, b in cluster.shutting_down, session_ms(found))
        for b, found in sorted(known.items())
    ]
    return lines + [BrokerLine(b, False) for b in sorted(cluster.hosts() - known.keys())]


class Writer:
    """The writing process."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @classmethod
    async def start(cls) -> Writer:
        """Starts the process; raises :class:`NotTaken`."""
        try:
            return cls(await Child.start(COMMAND))
        except OSError as error:
            raise NotTaken(f"its writing process does not start: {error.strerror or error}") from error

    async def send(self, message: Message) -> None:
        """Sends a message as it is now; raises ``BrokenPipeError`` where the process has ended."""
        data = framed(message)
        await self._child.send(lambda: data)

    async def answer(self) -> Written:
        """Waits for the end of the process and returns its answer."""
        out, how = await self._child.answer()
        try:
            return msgspec.json.decode(out, type=Written)
        except msgspec.DecodeError:
            return Written(err=f"its writing process {how}")

    async def end(self) -> None:
        """Kills the process where it still runs."""
        await self._child.end()
