"""Kafka's side of a story: its controller's trace, told step by step, applied to znodes and brokers of its own.

====================================================== ======================================================
``W t-0 leader 2 epoch 1 isr 2 [recovering]``          a state znode is written (``leader none``: nobody leads)
``L 2,3 [new] t-0 t-1``                                one LeaderAndIsr to each of brokers 2 and 3, from the znodes
``U 2,3 t-0`` / ``U 2,3`` / ``U 1 all``                one UpdateMetadata to each; without partitions; with all
``L 1 all``                                            one LeaderAndIsr with all that the broker hosts
``S 1 t-1``                                            one StopReplica without deletion
``live 2,3``                                           from here on these are live (during a bounce)
====================================================== ======================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from state_machines.types import NO_LEADER, Leadership
from tests.stories.brokers import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, Entry, NaiveBroker, Request, parsed


class KafkaSide:
    """Znodes and brokers under Kafka's controller. ``replicas`` gives the assignment of a partition by name."""

    def __init__(self, replicas: Callable[[str], tuple[int, ...]]) -> None:
        self.states: dict[str, Leadership] = {}
        self.brokers: dict[int, NaiveBroker] = {}
        self.sent: dict[int, Counter[bool]] = {}
        self._replicas = replicas
        self._registered: tuple[int, ...] = ()
        self._live: frozenset[int] = frozenset()

    def begin(self, registered: tuple[int, ...], live: frozenset[int]) -> None:
        """A step begins with these brokers registered and live."""
        self._registered, self._live = registered, live
        self.sent = {b: Counter() for b in self.brokers}

    def play(self, line: list[str]) -> None:
        """One line of the trace."""
        verb, who, *rest = line
        if verb == "W":
            self._write(who, rest)
        elif verb == "live":
            self._live = frozenset(parsed(who))
        else:
            kind = {"L": LEADER_AND_ISR, "U": UPDATE_METADATA, "S": STOP_REPLICA}[verb]
            for broker in parsed(who):
                self._send(broker, self._request(kind, broker, rest))

    def _write(self, name: str, fields: list[str]) -> None:
        values = dict(zip(fields[::2], fields[1::2], strict=False))
        leader = NO_LEADER if values["leader"] == "none" else int(values["leader"])
        recovering = fields[-1] == "recovering"
        self.states[name] = Leadership(leader, int(values["epoch"]), parsed(values["isr"]), 0, 0, recovering)

    def _request(self, kind: str, broker: int, rest: list[str]) -> Request:
        is_new = rest[:1] == ["new"]
        names = rest[1:] if is_new else rest
        if names == ["all"]:
            hosted = kind == LEADER_AND_ISR
            names = [n for n in self.states if not hosted or broker in self._replicas(n)]
        entries = {name: self._entry(kind, name, is_new) for name in names}
        return Request(kind, entries, self._registered if kind == UPDATE_METADATA else ())

    def _entry(self, kind: str, name: str, is_new: bool) -> Entry:
        held, replicas = self.states[name], self._replicas(name)
        if kind == STOP_REPLICA:
            return Entry(epoch=held.leader_epoch)
        if kind == LEADER_AND_ISR:
            return Entry.of(held, replicas, is_new=is_new)
        offline = tuple(r for r in replicas if r not in self._live)
        return Entry(held.leader, held.leader_epoch, held.isr, replicas, offline)

    def _send(self, broker: int, request: Request) -> None:
        self.sent[broker][request.live_list_only] += 1
        self.brokers[broker].take(request)
