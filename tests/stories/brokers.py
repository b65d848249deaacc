"""Brokers in their simplest form: the state that a sequence of requests leaves behind.

Both sides of a story drive them: the requests of this controller, and the trace of Kafka's. They ignore a LeaderAndIsr
whose leader epoch is known, and one whose leader is not on the live list.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from state_machines.model.types import LEADER_DURING_DELETE, NO_LEADER, Assignment, Leadership

LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA = "LeaderAndIsr", "UpdateMetadata", "StopReplica"


class Entry(Struct, frozen=True):
    """A partition in a request. Partition epochs are left out: merged writes have fewer of them."""

    leader: int = NO_LEADER
    epoch: int = 0
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    recovering: bool = False
    is_new: bool = False
    delete: bool = False

    @staticmethod
    def of(held: Leadership, assigned: Assignment, *, is_new: bool = False) -> Entry:
        """Returns the entry of LeaderAndIsr."""
        return Entry(
            held.leader,
            held.leader_epoch,
            held.isr,
            assigned.replicas,
            assigned.adding,
            assigned.removing,
            recovering=held.recovering,
            is_new=is_new,
        )

    @staticmethod
    def forgotten() -> Entry:
        """Returns the entry of UpdateMetadata for a partition that is being deleted."""
        return Entry(LEADER_DURING_DELETE)

    @staticmethod
    def metadata(held: Leadership, assigned: Assignment, offline: tuple[int, ...]) -> Entry:
        """Returns the entry of UpdateMetadata."""
        return Entry(held.leader, held.leader_epoch, held.isr, assigned.replicas, offline=offline)

    def __str__(self) -> str:
        if self.leader == LEADER_DURING_DELETE:
            return "forgotten"
        leader = "none" if self.leader == NO_LEADER else str(self.leader)
        marks = [word for word in ("recovering", "is_new") if getattr(self, word)]
        text = f"leader {leader} epoch {self.epoch} isr {ids(self.isr)}{''.join(' ' + m for m in marks)}"
        if self.adding or self.removing:
            text += f" replicas {shown(Assignment(self.replicas, self.adding, self.removing))}"
        return text.replace("is_new", "new") + (f" offline {ids(self.offline)}" if self.offline else "")


class Request(Struct, frozen=True):
    """A request: entries by partition; an UpdateMetadata has the whole live list besides."""

    kind: str
    entries: dict[str, Entry]
    live: tuple[int, ...] = ()

    @property
    def live_list_only(self) -> bool:
        """Whether it is an UpdateMetadata without partitions."""
        return not self.entries


class NaiveBroker:
    """One incarnation of a broker."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.orders: dict[str, tuple[str, Entry]] = {}
        self.metadata: dict[str, Entry] = {}
        self.live: tuple[int, ...] = ()
        self._epochs: dict[str, int] = {}

    def copy(self) -> NaiveBroker:
        """Returns another one that knows the same."""
        other = NaiveBroker(self.id)
        other.orders, other.metadata, other.live = dict(self.orders), dict(self.metadata), self.live
        other._epochs = dict(self._epochs)
        return other

    def take(self, request: Request) -> None:
        """Carries out a request."""
        if request.kind == UPDATE_METADATA:
            self.live = request.live
            self.metadata.update(request.entries)
            for name in [name for name, entry in request.entries.items() if entry.leader == LEADER_DURING_DELETE]:
                del self.metadata[name]
        for name, entry in request.entries.items():
            if request.kind == LEADER_AND_ISR:
                self._order(name, entry)
            elif request.kind == STOP_REPLICA and (entry.epoch < 0 or entry.epoch >= self._epochs.get(name, 0)):
                self.orders[name] = STOP_REPLICA, Entry(delete=entry.delete)

    def _order(self, name: str, entry: Entry) -> None:
        leader_known = entry.leader in self.live or entry.leader == self.id
        if entry.epoch > self._epochs.get(name, -1) and leader_known:
            self._epochs[name] = entry.epoch
            self.orders[name] = LEADER_AND_ISR, entry


def differences(ours: NaiveBroker, kafkas: NaiveBroker) -> list[str]:
    """Returns the differences between two brokers with the same id, in the last requests that they carried out."""
    found = []
    if ours.live != kafkas.live:
        found.append(f"broker {ours.id} knows live {ids(ours.live)}, under Kafka {ids(kafkas.live)}")
    for what, mine, theirs in (("order", ours.orders, kafkas.orders), ("metadata", ours.metadata, kafkas.metadata)):
        found += [
            f"broker {ours.id}, {what} of {name}: {_text(mine.get(name))}, under Kafka {_text(theirs.get(name))}"
            for name in sorted({*mine, *theirs})
            if mine.get(name) != theirs.get(name)
        ]
    return found


def _text(known: tuple[str, Entry] | Entry | None) -> str:
    return " ".join(map(str, known)) if isinstance(known, tuple) else str(known)


def ids(brokers: Iterable[int]) -> str:
    """Returns broker ids as stories write them."""
    return ",".join(map(str, brokers)) or "-"


def shown(assigned: Assignment) -> str:
    """Returns an assignment as stories write it."""
    changes = (("adding", assigned.adding), ("removing", assigned.removing))
    return " ".join([ids(assigned.replicas), *(f"{word} {ids(some)}" for word, some in changes if some)])


def read(words: list[str]) -> Assignment:
    """Reads what :func:`shown` writes."""
    changes = dict(zip(words[1::2], map(parsed, words[2::2]), strict=True))
    return Assignment(parsed(words[0]), changes.get("adding", ()), changes.get("removing", ()))


def parsed(text: str) -> tuple[int, ...]:
    """Reads what :func:`ids` writes."""
    return () if text == "-" else tuple(map(int, text.split(",")))
