"""Reduces a broker's view of its partitions to the parts that do not depend on the controller or the order.

Left out are the controller's id and epoch, details of single requests (``isNew``, recovery state), and of followers the
ISR. The leader epoch decides whether a LeaderAndIsr is heeded, so a follower's ISR is as old as its leader. Left out
are replicas of partitions without a leader, too. Brokers do not heed a LeaderAndIsr without one, so such a replica
depends on earlier requests. So do stopped replicas, equally left out.

Lines are another form, one for each partition, whose hashes are summed (:func:`digest`):
``topic|partition|leader|leader epoch|ISR|partition epoch|replicas``, ids separated by commas in the order of the
request; metadata ends with ``|offline replicas`` in ascending order, a stopped replica with ``|stopped``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from state_machines.model.types import NO_LEADER
from testing.simulated.broker import SimulatedBroker
from testing.simulated.hosting import Replica
from testing.simulated.metadata import MetadataCache
from testing.simulated.values import Key, MetadataEntry

DIGEST_BYTES = 16

Known = tuple[int, int, tuple[int, ...], int, tuple[int, ...], tuple[int, ...]]
"""Leader, leader epoch, ISR, partition epoch, replicas, offline replicas in ascending order."""
Led = tuple[int, tuple[int, ...], int, tuple[int, ...]]
"""Leader epoch, ISR, partition epoch, replicas."""
Followed = tuple[int, int, tuple[int, ...]]
"""Leader (-1: it was sent one that is not live), leader epoch, replicas."""

_UNKNOWN: Known = (0, 0, (), 0, (), ())


class View(Struct, frozen=True):
    """The partitions that one broker knows, leads and follows; equal views have equal digests."""

    live: tuple[int, ...]
    metadata: dict[Key, Known]
    led: dict[Key, Led]
    followed: dict[Key, Followed]

    def digest(self) -> str:
        """Returns a hexadecimal digest; the order of requests does not matter."""
        hashed = hashlib.blake2b(repr(self.live).encode(), digest_size=DIGEST_BYTES)
        for part in (self.metadata, self.led, self.followed):
            hashed.update(digest_of(part).encode())
        return hashed.hexdigest()


def digest_of(part: Mapping[Key, object]) -> str:
    """Returns the digest of one of the maps of a view."""
    hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for key in sorted(part):
        hashed.update(f"{key}{part[key]}\n".encode())
    return hashed.hexdigest()


def view(broker: SimulatedBroker) -> View:
    """Returns the view of a broker; the controller's own entry in the live list is left out."""
    led, followed = {}, {}
    metadata = {key: known_as(entry) for key, entry in broker.metadata.items()}
    for key, replica in broker.replicas.items():
        if replica.stopped or metadata.get(key, _UNKNOWN)[0] == NO_LEADER:
            continue
        if replica.leader == broker.id:
            led[key] = led_as(replica)
        else:
            followed[key] = replica.leader, replica.leader_epoch, replica.replicas
    live = tuple(sorted(broker.live.keys() - {broker.controller_id}))
    return View(live, metadata, led, followed)


def known_as(entry: MetadataEntry) -> Known:
    """Returns the compared part of a partition's metadata."""
    return (
        entry.leader,
        entry.leader_epoch,
        entry.isr,
        entry.partition_epoch,
        entry.replicas,
        tuple(sorted(entry.offline)),
    )


def led_as(replica: Replica) -> Led:
    """Returns the compared part of a partition that is led."""
    return replica.leader_epoch, replica.isr, replica.partition_epoch, replica.replicas


class Truth(Struct, frozen=True, gc=False):
    """A partition as ZooKeeper has it: the oracle's side of a comparison."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]


def expected_view(broker: int, live: Iterable[int], truth: Mapping[Key, Truth], leaving: Collection[int] = ()) -> View:
    """Returns the view of ``broker`` once it was sent everything; replicas on brokers ``leaving`` are offline too."""
    registered = frozenset(live)
    alive = registered - frozenset(leaving)
    metadata: dict[Key, Known] = {}
    led: dict[Key, Led] = {}
    followed: dict[Key, Followed] = {}
    for key, known in truth.items():
        offline = tuple(sorted(replica for replica in known.replicas if replica not in alive))
        metadata[key] = known.leader, known.leader_epoch, known.isr, known.partition_epoch, known.replicas, offline
        if broker not in known.replicas or known.leader == NO_LEADER:
            continue
        if known.leader == broker:
            led[key] = known.leader_epoch, known.isr, known.partition_epoch, known.replicas
        else:
            followed[key] = known.leader, known.leader_epoch, known.replicas
    return View(tuple(sorted(registered)), metadata, led, followed)


def differences(found: View, expected: View, limit: int = 20) -> list[str]:
    """Returns the first ``limit`` differences, in words."""
    lines = [] if found.live == expected.live else [f"live {found.live} instead of {expected.live}"]
    for name in ("metadata", "led", "followed"):
        mine, theirs = getattr(found, name), getattr(expected, name)
        for key in sorted({*mine, *theirs}):
            if mine.get(key) != theirs.get(key):
                lines.append(f"{name} of {key[0]}-{key[1]}: {mine.get(key)} instead of {theirs.get(key)}")
            if len(lines) >= limit:
                return lines
    return lines


HASH_BYTES: Final = 8
_MODULUS: Final = 1 << 8 * HASH_BYTES


@lru_cache(65_536)
def _csv(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def metadata_lines(cache: MetadataCache) -> Iterator[str]:
    """Returns the lines of UpdateMetadata."""
    for e in cache.partitions.values():
        yield (
            f"{e.topic}|{e.partition}|{e.leader}|{e.leader_epoch}|{_csv(e.isr)}|{e.partition_epoch}"
            f"|{_csv(e.replicas)}|{_csv(tuple(sorted(e.offline)))}"
        )


def replica_lines(replicas: Iterable[tuple[Key, Replica]]) -> Iterator[str]:
    """Returns the lines of LeaderAndIsr and StopReplica."""
    for (topic, partition), r in replicas:
        line = f"{topic}|{partition}|{r.leader}|{r.leader_epoch}|{_csv(r.isr)}|{r.partition_epoch}|{_csv(r.replicas)}"
        yield f"{line}|stopped" if r.stopped else line


def digest(lines: Iterable[str]) -> tuple[int, str]:
    """Returns the number of lines, and the sum of their BLAKE2b hashes (8 bytes, little-endian) modulo 2**64 as hex."""
    count = total = 0
    for line in lines:
        count += 1
        total += int.from_bytes(hashlib.blake2b(line.encode(), digest_size=HASH_BYTES).digest(), "little")
    return count, f"{total % _MODULUS:016x}"
