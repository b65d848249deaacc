"""Judges lost records by those that a load sent, those acknowledged, and those a reader found. It does no I/O."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Spot(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Stall(NamedTuple):
    """The longest wait of one record for its acknowledgement, and where; ``spot`` is None where nothing was sent."""

    seconds: float
    spot: Spot | None

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s ({self.spot})" if self.spot else "nothing sent"


@dataclass(frozen=True)
class Verdict:
    """The judgement of a load's records. ``lost`` and ``duplicated`` list (partition, sequence number).

    ``unconfirmed``: read although never acknowledged (the reply was lost, or the send failed late): legal, counted.
    """

    sent: int
    acknowledged: int
    failed: int
    read: int
    lost: list[tuple[Spot, int]]
    duplicated: list[tuple[Spot, int]]
    unconfirmed: int

    def __str__(self) -> str:
        return (
            f"{self.sent} sent, {self.acknowledged} acknowledged, {self.failed} failed, {self.read} read, "
            f"{len(self.lost)} lost, {len(self.duplicated)} duplicated, {self.unconfirmed} read without acknowledgement"
        )


@dataclass
class Ledger:
    """The sent and the acknowledged records of a load, by partition."""

    tag: str = field(default_factory=lambda: secrets.token_hex(4))
    acknowledged: dict[Spot, set[int]] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    sent: int = 0

    def value(self, number: int) -> bytes:
        """Returns the record with this sequence number."""
        return f"{self.tag}:{number}".encode()

    def number(self, value: bytes | None) -> int | None:
        """Returns the sequence number of a record of this load; None for anything else."""
        tag, _, number = (value or b"").decode(errors="replace").partition(":")
        return int(number) if tag == self.tag and number.isdigit() else None

    def judge(self, read: Mapping[Spot, Counter[int]]) -> Verdict:
        """Compares the records read with those acknowledged."""
        lost, duplicated, unconfirmed = [], [], 0
        for spot in self.acknowledged.keys() | read.keys():
            confirmed, seen = self.acknowledged.get(spot, set()), read.get(spot, Counter())
            lost += [(spot, number) for number in sorted(confirmed - seen.keys())]
            duplicated += [(spot, number) for number, times in seen.items() if times > 1]
            unconfirmed += len(seen.keys() - confirmed)
        return Verdict(
            sent=self.sent,
            acknowledged=sum(map(len, self.acknowledged.values())),
            failed=self.errors.total(),
            read=sum(counter.total() for counter in read.values()),
            lost=lost,
            duplicated=duplicated,
            unconfirmed=unconfirmed,
        )
