"""Keeps the replicas whose brokers refuse LeaderAndIsr: an entry for each refused one, and none for any other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

_NONE: Final[Mapping[int, Refusal]] = {}


class Refusal(NamedTuple):
    """The error of a broker's response, and since when its responses have it."""

    error: int
    since_ms: int


class Refusals:
    """Refused rows by broker. An entry ends with a response without an error, or with its broker, replica or topic."""

    def __init__(self) -> None:
        self._by_broker: dict[int, dict[int, Refusal]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_broker)

    def of(self, i: int, broker: int) -> Refusal | None:
        """Returns the refusal of a row by a broker."""
        return self._by_broker.get(broker, _NONE).get(i)

    def on(self, broker: int) -> Mapping[int, Refusal]:
        """Returns the rows that a broker refuses."""
        return self._by_broker.get(broker, _NONE)

    def brokers(self) -> list[int]:
        """Returns the brokers that refuse a row."""
        return sorted(self._by_broker)

    def refusing(self, i: int, replicas: Iterable[int]) -> Iterator[int]:
        """Yields those of the replicas whose brokers refuse a row."""
        if self._by_broker:
            yield from (broker for broker in replicas if i in self._by_broker.get(broker, _NONE))

    def add(self, broker: int, failed: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Adds refused rows with their errors; a repeated refusal keeps its time."""
        known, fresh = self._by_broker.get(broker, _NONE), dict[int, Refusal]()
        shared: dict[int, Refusal] = {}
        for i, error in failed:
            before = known.get(i)
            same = before is not None and before.error == error
            fresh[i] = before if same and before is not None else shared.setdefault(error, Refusal(error, now_ms))
        if fresh:
            self._by_broker.setdefault(broker, {}).update(fresh)

    def end(self, broker: int, rows: Iterable[int]) -> None:
        """Ends the refusals of rows by a broker."""
        known = self._by_broker.get(broker)
        if known is not None:
            for i in rows:
                known.pop(i, None)
            if not known:
                del self._by_broker[broker]

    def end_rows(self, rows: Collection[int]) -> None:
        """Ends the refusals of rows by all brokers."""
        for broker in list(self._by_broker):
            self.end(broker, rows)

    def end_replicas(self, i: int, brokers: Iterable[int]) -> None:
        """Ends the refusals of a row by brokers."""
        for broker in brokers:
            self.end(broker, (i,))

    def end_brokers(self, brokers: Iterable[int]) -> None:
        """Ends all refusals of brokers."""
        for broker in brokers if self._by_broker else ():
            self._by_broker.pop(broker, None)
