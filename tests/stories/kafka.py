"""Kafka's side of a story: its controller's trace, step by step, applied to znodes and brokers of its own.

====================================================== ======================================================
``W t-0 leader 2 epoch 1 isr 2 [recovering]``          a state znode is written (``leader none``: no leader)
``L 2,3 [new] t-0 t-1``                                one LeaderAndIsr to each of brokers 2 and 3, from the znodes
``U 2,3 t-0`` / ``U 2,3`` / ``U 1 all``                one UpdateMetadata to each; without partitions; with all
``L 1 all``                                            one LeaderAndIsr with all that the broker hosts
``S 1 t-1`` / ``S 1 delete t-1``                       one StopReplica without, or with, deletion
``T t-0 2,3,1 adding 3 removing 1``                    the topic znode has this assignment, and so has the memory
``U 1,2 forget t-0``                                   one UpdateMetadata that has them forget the partition
``D t``                                                the znodes of the topic are deleted
``A t-0 2,3``                                          the memory alone has this assignment
``down 1 t-0`` / ``down 1``                            replicas on failed log directories; none any more
``live 2,3``                                           from here on these are live (during a bounce)
====================================================== ======================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from state_machines.model.types import NO_LEADER, Assignment, Leadership
from tests.stories.brokers import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Entry,
    NaiveBroker,
    Request,
    parsed,
    read,
)


class KafkaSide:
    """Znodes and brokers under Kafka's controller. ``created`` gives the assignment that a partition was created with.

    ``assigned`` has the topic znodes' assignments of partitions that were reassigned.
    """

    def __init__(self, created: Callable[[str], Assignment]) -> None:
        self.states: dict[str, Leadership] = {}
        self.assigned: dict[str, Assignment] = {}
        self.deleted: set[str] = set()
        self.brokers: dict[int, NaiveBroker] = {}
        self.sent: dict[int, Counter[bool]] = {}
        self._created = created
        self._memory: dict[str, Assignment] = {}
        self._registered: tuple[int, ...] = ()
        self._live: frozenset[int] = frozenset()
        self._down: set[tuple[str, int]] = set()

    def begin(self, registered: tuple[int, ...], live: frozenset[int]) -> None:
        """Begins a step with these brokers registered and live."""
        self._registered, self._live = registered, live
        self.sent = {b: Counter() for b in self.brokers}

    def play(self, line: list[str]) -> None:
        """Plays one line of the trace."""
        verb, subject, *rest = line
        if verb == "W":
            self._write(subject, rest)
        elif verb in ("T", "A"):
            self._memory[subject] = read(rest)
            if verb == "T":
                self.assigned[subject] = self._memory[subject]
        elif verb == "D":
            self.states = {name: held for name, held in self.states.items() if name.rpartition("-")[0] != subject}
            self.deleted.add(subject)
        elif verb == "live":
            self._live = frozenset(parsed(subject))
        elif verb == "down":
            self._down = {(name, int(subject)) for name in rest}
        else:
            kind = {"L": LEADER_AND_ISR, "U": UPDATE_METADATA, "S": STOP_REPLICA}[verb]
            for broker in parsed(subject):
                self._send(broker, self._request(kind, broker, rest))

    def _write(self, name: str, fields: list[str]) -> None:
        values = dict(zip(fields[::2], fields[1::2], strict=False))
        leader = NO_LEADER if values["leader"] == "none" else int(values["leader"])
        recovering = fields[-1] == "recovering"
        self.states[name] = Leadership(leader, int(values["epoch"]), parsed(values["isr"]), 0, 0, recovering)

    def _request(self, kind: str, broker: int, rest: list[str]) -> Request:
        mark = rest[0] if rest[:1] in (["new"], ["delete"], ["forget"]) else ""
        names = rest[1:] if mark else rest
        if names == ["all"]:
            hosted = kind == LEADER_AND_ISR
            names = [n for n in self.states if not hosted or broker in self._assignment(n).replicas]
        entries = {name: self._entry(kind, name, mark) for name in names}
        return Request(kind, entries, self._registered if kind == UPDATE_METADATA else ())

    def _entry(self, kind: str, name: str, mark: str) -> Entry:
        if mark == "forget":
            return Entry.forgotten()
        held, assigned = self.states[name], self._assignment(name)
        if kind == STOP_REPLICA:
            return Entry(epoch=held.leader_epoch, delete=mark == "delete")
        if kind == LEADER_AND_ISR:
            return Entry.of(held, assigned, is_new=mark == "new")
        offline = tuple(r for r in assigned.replicas if r not in self._live or (name, r) in self._down)
        return Entry.metadata(held, assigned, offline)

    def _assignment(self, name: str) -> Assignment:
        return self._memory.get(name) or self._created(name)

    def _send(self, broker: int, request: Request) -> None:
        self.sent[broker][request.live_list_only] += 1
        self.brokers[broker].take(request)
