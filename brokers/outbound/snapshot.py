"""Encodes the full state in turns: one pass over a turn's rows makes each broker's LeaderAndIsr and one UpdateMetadata.

A turn is valid only while no row of it, no registration and no topic id changes; otherwise it is encoded again. So a
broker never gets a lower (leader epoch, partition epoch) after a higher one. A cache with a bound in bytes keeps turns;
a turn that was dropped is encoded again for the brokers that still need it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from brokers.wire.partitions import (
    NO_TOPIC,
    PartitionEncoder,
    body,
    heads_of,
    metadata_tail,
    topic_piece,
)
from brokers.wire.primitives import NO_TAGS, varint
from brokers.wire.versions import Ibp
from state_machines.model.types import Assignment, PartitionState
from state_machines.propagation.propagation import Propagation
from state_machines.propagation.view import ClusterView, is_sent

TURN_ROWS: Final = 20_000
"""Partitions per turn: about 35 ms of encoding, 1 to 1.5 MB of UpdateMetadata."""
CACHE_BYTES_MAX: Final = 64 << 20
"""Most bytes of kept turns: all turns of a cluster of some 250,000 partitions."""
PLANS_MAX: Final = 20_000
"""Number of plans, distinct pairs of assignment and ISR, at which all are dropped: about 15 MB."""

_ONLINE = PartitionState.ONLINE


class Turn:
    """Rows ``first`` to ``last`` (exclusive), encoded. ``metadata`` is None where no row of them is sent.

    ``cautious`` is the same without the withheld topics.
    """

    def __init__(
        self, first: int, last: int, metadata: bytes | None, leads: dict[int, bytes | None], cautious: bytes | None
    ) -> None:
        self.first = first
        self.last = last
        self.metadata = metadata
        self.leads = leads
        self.cautious = cautious
        self.number = 0
        self.live_version = 0
        self.withholding = 0
        self.ids_learned = 0
        bodies = (metadata, *leads.values(), None if cautious is metadata else cautious)
        self.size = sum(len(found or b"") for found in bodies)

    def take(self, broker: int) -> bytes | None:
        """Returns and drops the broker's LeaderAndIsr body; None where it hosts no replica of the turn."""
        lead = self.leads.pop(broker)
        self.size -= len(lead or b"")
        return lead


class Snapshots:
    """Makes the turns for all channels of one term. A turn's first row identifies it."""

    def __init__(
        self, propagation: Propagation, ibp: Ibp, turn_rows: int = TURN_ROWS, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> None:
        self._propagation = propagation
        self._encoder = PartitionEncoder(ibp)
        self._turn_rows = turn_rows
        self._bytes_max = cache_bytes_max
        self._cache: dict[int, Turn] = {}
        self._pieces: Pieces | None = None

    def turn(self, broker: int, first: int) -> Turn:
        """Returns the current turn from row ``first`` on, with ``broker``'s part still in it."""
        turn = self._cache.get(first)
        if turn is None or broker not in turn.leads or not self._current(turn):
            turn = self._encode(first)
        return turn

    def _current(self, turn: Turn) -> bool:
        propagation = self._propagation
        return (
            turn.live_version == propagation.live_version
            and turn.withholding == propagation.withholding
            and turn.ids_learned == propagation.view.ids_learned
            and propagation.feed.last_change(turn.first, turn.last) <= turn.number
        )

    def _encode(self, first: int) -> Turn:
        propagation = self._propagation
        wanting = [b for b, pending in propagation.pending.items() if pending.turn <= first < pending.turn_end]
        if self._pieces is None or not self._pieces.serves(wanting):
            self._pieces = Pieces(propagation.view, self._encoder, wanting)
        self._pieces.withheld = propagation.withheld
        turn = encode_turn(self._pieces, first, self._turn_rows)
        turn.number, turn.live_version = propagation.feed.number, propagation.live_version
        turn.withholding, turn.ids_learned = propagation.withholding, propagation.view.ids_learned
        self._cache.pop(first, None)
        self._cache[first] = turn
        while len(self._cache) > 1 and sum(kept.size for kept in self._cache.values()) > self._bytes_max:
            del self._cache[next(iter(self._cache))]
        return turn

    def clear_if_unused(self) -> None:
        """Frees the cache once no broker waits for a turn."""
        if self._pieces and not any(o.turn < o.turn_end for o in self._propagation.pending.values()):
            self._cache.clear()
            self._pieces = None


Sinks = list[Callable[[bytes], None]]


class _Plan(NamedTuple):
    """The common encoding of rows with one assignment and ISR: head, tail, LeaderAndIsr sinks, and offline replicas.

    It keeps its assignment and ISR, so that no other object gets their identity.
    """

    assignment: Assignment
    of_isr: tuple[int, ...]
    pack: Callable[..., bytes]
    isr: bytes
    replicas: bytes
    tail: bytes
    sinks: Sinks
    offline: bool


class Pieces:
    """Collects the entries of the current topic and, topic by topic, the pieces of every body of a turn.

    Plans outlive the turn while the same brokers need turns, and live brokers and log directories stay the same.
    """

    def __init__(self, view: ClusterView, encoder: PartitionEncoder, brokers: Collection[int]) -> None:
        self.view = view
        self.encoder = encoder
        self.metadata: list[bytes] = []
        self.withheld: Collection[int] = ()
        self._metadata_pieces: list[bytes] = []
        self._withheld_pieces: set[int] = set()
        self._live, self._failed = view.live, view.any_failed
        self._leads: dict[int, list[bytes]] = {broker: [] for broker in brokers}
        self._lead_parts: dict[int, list[bytes]] = {broker: [] for broker in brokers}
        self._lead_topics = dict.fromkeys(brokers, 0)
        self._plans: dict[tuple[int, int], _Plan] = {}
        self.latest: dict[int, _Plan] = {}
        """The last plan for each ISR, by the identity of its tuple."""

    def serves(self, brokers: Collection[int]) -> bool:
        """Returns whether the plans are valid for turns of ``brokers``."""
        same = self._live == self.view.live and self._failed == self.view.any_failed
        return same and list(brokers) == list(self._leads)

    def begin(self) -> None:
        """Begins a new turn."""
        self.metadata.clear()
        self._metadata_pieces.clear()
        self._withheld_pieces.clear()
        for broker, entries in self._leads.items():
            entries.clear()
            self._lead_parts[broker].clear()
            self._lead_topics[broker] = 0
        if len(self._plans) >= PLANS_MAX:
            self._plans.clear()
            self.latest.clear()

    def plan(self, i: int) -> _Plan:
        """Returns the plan of rows with the assignment and the ISR of row ``i``."""
        row = self.view.rows[i]
        key = id(row.assignment), id(row.isr)
        found = self._plans.get(key)
        if found is None:
            offline = self.view.offline_replicas(i)
            sinks = [self._leads[broker].append for broker in row.assignment.replicas if broker in self._leads]
            found = _Plan(row.assignment, row.isr, *heads_of(row), metadata_tail(offline), sinks, bool(offline))
            self._plans[key] = found
        self.latest[id(row.isr)] = found
        return found

    def sinks_of_running(self, i: int) -> Sinks:
        """Returns the sinks of the row's replicas without a StopReplica."""
        replicas = self.view.rows[i].assignment.replicas
        return [self._leads[b].append for b in replicas if b in self._leads and not self.view.stopped(i, b)]

    def flush(self, topic: int, rows: range) -> None:
        """Ends the topic of the collected rows; cheap for small topics on many brokers, too."""
        if not self.metadata:
            return
        encoded = self.encoder.topic(self.view.topics[topic])
        if topic in self.withheld:
            self._withheld_pieces.add(len(self._metadata_pieces))
        self._metadata_pieces.append(topic_piece(encoded, self.metadata))
        self.metadata.clear()
        heads: dict[int, bytes] = {}
        for broker in self._touched(rows):
            entries = self._leads.get(broker)
            if entries:
                count, parts = len(entries), self._lead_parts[broker]
                parts.append(heads.get(count) or heads.setdefault(count, encoded + varint(count + 1)))
                parts += entries
                parts.append(NO_TAGS)
                self._lead_topics[broker] += 1
                entries.clear()

    def _touched(self, rows: range) -> Iterable[int]:
        if len(rows) == 1:
            return self.view.rows[rows[0]].assignment.replicas
        if len(rows) * 4 >= len(self._leads):
            return self._leads
        return {broker for i in rows for broker in self.view.rows[i].assignment.replicas}

    def finish(self, first: int, last: int) -> Turn:
        """Returns the turn with its bodies."""
        leads = {
            broker: b"".join((varint(self._lead_topics[broker] + 1), *parts)) if parts else None
            for broker, parts in self._lead_parts.items()
        }
        metadata = cautious = body(self._metadata_pieces) if self._metadata_pieces else None
        if self._withheld_pieces:
            free = [piece for at, piece in enumerate(self._metadata_pieces) if at not in self._withheld_pieces]
            cautious = body(free) if free else None
        return Turn(first, last, metadata, leads, cautious)


def encode_turn(pieces: Pieces, first: int, rows_max: int) -> Turn:
    """Encodes at most ``rows_max`` rows in one pass, for all brokers of ``pieces``.

    It ends early before a topic that the turn holds already, because a request must not name a topic twice. Partitions
    that were added to a topic later have rows apart from its first ones.
    """
    pieces.begin()
    view = pieces.view
    rows, any_stopped, any_failed = view.rows, view.any_stopped, view.any_failed
    add_metadata, lead_tail, latest = pieces.metadata.append, pieces.encoder.leader_and_isr_tail, pieces.latest
    topic, start, last = NO_TOPIC, first, min(first + rows_max, len(rows))
    seen: set[int] = set()
    for i in range(first, last):
        row = rows[i]
        if row.topic != topic:
            if row.topic in seen:
                last = i
                break
            pieces.flush(topic, range(start, i))
            topic, start = row.topic, i
            seen.add(topic)
        if row.state is not _ONLINE and not is_sent(row):
            continue
        plan = latest.get(id(row.isr))
        if plan is None or plan[0] is not row.assignment:
            plan = pieces.plan(i)
        _, _, pack, isr, replicas, tail, sinks, offline = plan
        if any_failed:
            tail = metadata_tail(view.offline_replicas(i))
        fields = pack(row.partition, row.controller_epoch, row.leader, row.leader_epoch, isr, row.version, replicas)
        add_metadata(fields + tail)
        if any_failed or (any_stopped and (offline or row.state is not _ONLINE)):
            sinks = pieces.sinks_of_running(i)
        if sinks:
            entry = fields + lead_tail(row)
            for add in sinks:
                add(entry)
    pieces.flush(topic, range(start, last))
    return pieces.finish(first, last)
