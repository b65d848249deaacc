"""Requests elections as an operator, and permits unclean ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from brokers.listener.controller_listener import NotController
from controller.kafka.requests.calls import Calls
from controller.kafka.requests.values import ElectLeadersCall, ElectLeadersReply
from metadata_store import paths
from metadata_store.codecs.cluster import encode_config
from metadata_store.codecs.notifications import encode_config_change, encode_partitions
from metadata_store.errors import NotConnected, OutcomeUnknown, ZkError
from metadata_store.port import ANY_VERSION
from state_machines.decisions.leader_election import ElectionType
from state_machines.machines.selectors import PREFERRED_BEHIND
from state_machines.model.types import Leadership, TopicPartition
from tests.simulation.kafka import faults
from tests.simulation.kafka.acting import Acting
from tests.simulation.kafka.history import Key
from tests.simulation.kafka.liveness import PATIENCE_S

REPLY_S_MAX: Final = 10.0


class ElectionActions(Acting):
    """Requests elections, which are no faults. I3, I4 and I5 judge the elections."""

    def do_ask_preferred(self, name: str) -> None:
        """Writes the znode of an old tool for all partitions of a topic, unless the znode exists."""
        self.w.operate(self._request_preferred(name))

    async def _request_preferred(self, name: str) -> None:
        data = encode_partitions(self._partitions(name))
        with suppress(ZkError, NotConnected, OutcomeUnknown):
            await self.w.operator.create(paths.PREFERRED_ELECTION, data)
            self.w.happened(faults.ELECTION_BY_ZNODE)

    def do_elect(self, kind: str, name: str) -> None:
        """Requests an election from the active daemon, for one topic or (``all``) for every topic."""
        self.w.operate(self._elect(ElectionType[kind.upper()], name))

    async def _elect(self, kind: ElectionType, name: str) -> None:
        daemon = self.w.serving_daemon()
        if daemon is None or daemon.term is None:
            return
        wanted = None if name == "all" else self._partitions(name)
        if kind is ElectionType.UNCLEAN:
            topics = self.w.invariants.history.topics if name == "all" else [name]
            self.w.invariants.history.unclean.update(topics)
        before = self._states()
        with suppress(NotController, TimeoutError), self.w.liveness.call("elect", daemon):
            async with asyncio.timeout(PATIENCE_S):
                reply = await Calls(daemon.term.queue).elect_leaders(ElectLeadersCall(kind, wanted, REPLY_S_MAX))
            self.w.trace(f"elected {kind.name} {name}: {[one.error for one in reply.results]}")
            self.w.happened(faults.ELECTION_BY_REQUEST)
            self._judge(reply, before)

    def _states(self) -> dict[Key, Leadership]:
        return {key: states[-1] for key, states in self.w.invariants.history.states.items() if states}

    def _judge(self, reply: ElectLeadersReply, before: Mapping[Key, Leadership]) -> None:
        """Checks I8: a preferred replica that a reply calls behind is behind in ZooKeeper.

        While a reassignment cannot begin, the preferred replica is that of the former order, which brokers show.
        """
        history = self.w.invariants.history
        moving = history.moving()
        for one in reply.results:
            key = one.topic, one.partition
            state, replicas = before.get(key), history.assignment(key)
            stayed = state is not None and state == history.current(key) and {*replicas[:1]} <= {*state.isr}
            if one.why == PREFERRED_BEHIND and stayed and key not in moving:
                self.w.invariants.claimed(f"broker {replicas[0]} is not in the ISR of {key}")

    def do_allow_unclean(self, name: str) -> None:
        """Allows unclean elections in a topic's configuration; no action forbids them again."""
        self.w.operate(self._allow_unclean(name))

    async def _allow_unclean(self, name: str) -> None:
        self.w.invariants.history.unclean.add(name)
        with suppress(ZkError, NotConnected, OutcomeUnknown):
            data = encode_config({"unclean.leader.election.enable": "true"})
            await self.w.operator.set(paths.topic_config(name), data, ANY_VERSION)
            note = encode_config_change(f"topics/{name}")
            await self.w.operator.create(paths.CONFIG_CHANGE_PREFIX, note, sequential=True)

    def _partitions(self, name: str) -> list[TopicPartition]:
        found = self.w.invariants.history.topics.get(name)
        return [TopicPartition(name, partition) for partition in found.partitions] if found is not None else []
