"""Writes a broker's view as lines of text, and digests of such lines that do not depend on their order.

``topic|partition|leader|leader epoch|ISR|partition epoch|replicas``, ids separated by commas in the order of the
request; metadata ends with ``|offline replicas`` in ascending order, a stopped replica with ``|stopped``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from testing.simulated.hosting import Replica
from testing.simulated.metadata import MetadataCache
from testing.simulated.values import Key

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
