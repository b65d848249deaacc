"""Executes commands to a process of simulated brokers: one JSON object a line, one line of response each.

``{"do": "stats"}`` and so on; the methods of :class:`Commands` are the commands, their arguments the further fields.
``brokers`` is a list of ids, empty for all. Times are nanoseconds of the monotonic clock, which all processes of one
machine share. The response to a command that cannot be done is ``{"error": "..."}``.
"""

from __future__ import annotations

import inspect
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from brokers.wire.versions import Api
from metadata_store.kafka_store import KafkaStore
from state_machines.model.types import Endpoint, Leadership, TopicAssignment
from testing.simulated.broker_server import HOST, UNREGISTERED, Count
from testing.simulated.digest import Truth, differences, digest, expected_view, metadata_lines, replica_lines, view
from testing.simulated.fleet import Fleet, Impossible
from testing.simulated.isr_round import Leader, catch_up, prepare
from testing.simulated.values import Key

DIFFERENCES_MAX = 20

Fields = dict[str, Any]


class Commands:
    """Executes the commands of one process."""

    def __init__(self, fleet: Fleet, stop: Callable[[], None]) -> None:
        self._fleet = fleet
        self._stop = stop
        self._prepared: list[Leader] | None = None

    async def response(self, line: bytes) -> bytes:
        """Returns the response to one line; never raises."""
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            name = str(fields.pop("do", ""))
            command = getattr(self, f"do_{name}", None)
            if command is None:
                raise Impossible(f"{name!r} is not one of {', '.join(self.names())}")
            done = command(**fields)
            found: Fields = await done if inspect.isawaitable(done) else done
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        return msgspec.json.encode(found)

    @classmethod
    def names(cls) -> list[str]:
        """Returns all commands."""
        return sorted(name.removeprefix("do_") for name in vars(cls) if name.startswith("do_"))

    # -- measuring

    def do_stats(self) -> Fields:
        """Returns per broker its state and, by kind of request, the counts since the last mark; cheap."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "now_ns": time.monotonic_ns(),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_peak_bytes": usage.ru_maxrss * 1024,
            "kept_bytes": self._fleet.bodies.kept_bytes,
            "brokers": {
                str(server.id): {
                    "registered": server.epoch != UNREGISTERED,
                    "epoch": server.epoch,
                    "port": server.port,
                    "controller_epoch": server.broker.controller_epoch,
                    **{api.name: _count(count) for api, count in server.counts.items()},
                }
                for server in self._fleet.servers.values()
            },
        }

    def do_mark(self) -> Fields:
        """Begins the counts anew."""
        for server in self._fleet.servers.values():
            server.counts.clear()
        return {"at_ns": time.monotonic_ns()}

    def do_forget(self) -> Fields:
        """Empties all views and forgets the controller epoch; registrations and counts stay."""
        for server in self._fleet.servers.values():
            server.forget()
        self._fleet.bodies.clear()
        return {}

    # -- lives

    async def do_die(self, brokers: Sequence[int]) -> Fields:
        """Closes ports and connections, deletes the registrations in one multi; views are forgotten."""
        return {"at_ns": await self._fleet.die(brokers)}

    async def do_register(self, brokers: Sequence[int]) -> Fields:
        """Listens on the same ports and registers with new epochs."""
        return {"at_ns": await self._fleet.register(brokers)}

    async def do_bounce(self, brokers: Sequence[int]) -> Fields:
        """Ends and begins incarnations; with a shared session in one multi, so that no reader misses the brokers."""
        return {"at_ns": await self._fleet.bounce(brokers)}

    async def do_shutdown(self, broker: int) -> Fields:
        """Sends ControlledShutdown to the present controller, timed; the broker goes on as before."""
        timed = await self._fleet.shut_down(broker)
        response = timed.response
        return {
            "at_ns": timed.sent_ns,
            "received_ns": timed.received_ns,
            "error_code": response.error,
            "remaining": len(response.remaining),
        }

    def do_stop(self) -> Fields:
        """Ends the process."""
        self._stop()
        return {}

    # -- manners

    def do_slow(self, brokers: Sequence[int], ms: float) -> Fields:
        """Delays responses by ``ms``."""
        for server in self._fleet.chosen(brokers or self._all()):
            server.faults.delay_s = ms / 1000
        return {}

    def do_mute(self, brokers: Sequence[int], on: bool = True) -> Fields:
        """Lets requests take effect without a response."""
        for server in self._fleet.chosen(brokers or self._all()):
            server.faults.mute = on
        return {}

    def do_errors(self, brokers: Sequence[int], api: str, top: int = 0, each: int | None = None) -> Fields:
        """Gives requests of one kind this top-level error, or this error for every partition; they have no effect."""
        for server in self._fleet.chosen(brokers or self._all()):
            faults = server.faults
            faults.top = {**faults.top, Api[api]: top}
            faults.each = {k: v for k, v in {**faults.each, Api[api]: each}.items() if v is not None}
        return {}

    def do_full(self, brokers: Sequence[int], api: str, on: bool = True) -> Fields:
        """Has lean brokers give every partition of such requests its code, as real ones do."""
        for server in self._fleet.chosen(brokers or self._all()):
            full = server.faults.full
            server.faults.full = full | {Api[api]} if on else full - {Api[api]}
        return {}

    async def do_fail(self, broker: int, topic: str, partition: int) -> Fields:
        """Fails the log directory of a replica, and notifies the controller (exact brokers only)."""
        [server] = self._fleet.chosen([broker])
        if not server.options.exact:
            raise Impossible("lean brokers have no logs: start the process with --exact")
        notification = server.broker.fail_partition(topic, partition)
        return {"path": (await self._fleet.zk.create(notification.path, notification.data, sequential=True)).path}

    def do_recover(self, brokers: Sequence[int] = ()) -> Fields:
        """Repairs log directories; the repair counts from the next registration on."""
        for server in self._fleet.chosen(brokers or self._all()):
            server.broker.recover()
        return {}

    def _all(self) -> list[int]:
        return list(self._fleet.servers)

    # -- views

    def do_digest(self, brokers: Sequence[int] = ()) -> Fields:
        """Returns digests of each broker's view (:mod:`testing.simulated.digest`), and its live list.

        Takes seconds.
        """
        metadata: dict[int, tuple[int, str]] = {}
        found: Fields = {}
        for server, broker in self._fleet.known(brokers):
            if id(broker.cache) not in metadata:
                metadata[id(broker.cache)] = digest(metadata_lines(broker.cache))
            found[str(server.id)] = {
                "metadata": metadata[id(broker.cache)],
                "replicas": digest(replica_lines(broker.replicas.items())),
                "live": sorted(broker.live),
                "controller": broker.controller_id,
            }
        return {"brokers": found}

    def do_dump(self, broker: int, file: str) -> Fields:
        """Writes a broker's view as sorted lines."""
        _, knows = next(self._fleet.known([broker]), (None, None))
        if knows is None:
            raise Impossible(f"broker {broker} is not registered")
        lines = [f"metadata {line}" for line in metadata_lines(knows.cache)]
        lines += [f"replica {line}" for line in replica_lines(knows.replicas.items())]
        Path(file).write_text("".join(f"{line}\n" for line in sorted(lines)), encoding="utf-8")
        return {"lines": len(lines)}

    async def do_compare(self, brokers: Sequence[int] = (), leaving: Sequence[int] = ()) -> Fields:
        """Returns differences of brokers' views from ZooKeeper; ``leaving`` are being shut down. For small clusters."""
        truth = await _truth(KafkaStore(self._fleet.zk))
        listed = await self._fleet.zk.children("/brokers/ids")
        live = {int(name) for name in (listed[0] if listed else [])}
        wrong: dict[str, list[str]] = {}
        for server, broker in self._fleet.known(brokers):
            seen, expected = view(broker), expected_view(server.id, live, truth, leaving)
            expected = replace(expected, live=tuple(sorted(live - {broker.controller_id})))
            if server.id in leaving:  # its replicas were stopped, and it is sent nothing more of them
                expected = replace(expected, led=seen.led, followed=seen.followed)
            found = differences(seen, expected, DIFFERENCES_MAX)
            if found:
                wrong[str(server.id)] = found
        return {"partitions": len(truth), "wrong": wrong}

    async def do_prepare(self, brokers: Sequence[int] = (), port: int = 0) -> Fields:
        """Prepares the next ``catch_up``; ``port``: of the controller, if brokers do not know it."""
        listener = self._fleet.chosen(self._all()[:1])[0].options.listeners[0]
        controller = Endpoint(listener, HOST, port) if port else None
        self._prepared = await prepare(self._fleet, list(brokers) or self._all(), controller)
        return {}

    async def do_catch_up(self, brokers: Sequence[int] = ()) -> Fields:
        """Brings all replicas on live brokers in sync: leaders send requests until no change is left.

        After ``prepare`` the leaders are on the brokers that were named there.
        """
        leaders, self._prepared = self._prepared, None
        if leaders is None:
            leaders = await prepare(self._fleet, list(brokers) or self._all())
        return await catch_up(self._fleet, leaders)


def _count(count: Count) -> Fields:
    return {
        "requests": count.requests,
        "bytes": count.bytes,
        "refused": count.refused,
        "first_ns": count.first_ns,
        "last_ns": count.last_ns,
    }


async def _truth(store: KafkaStore) -> dict[Key, Truth]:
    topics = [topic for topic in await store.load_topics() if isinstance(topic, TopicAssignment)]
    keys = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    replicas = {(t.name, p): assignment.replicas for t in topics for p, assignment in t.partitions.items()}
    states = await store.load_states(keys)
    return {
        key: Truth(state.leader, state.leader_epoch, state.isr, state.version, replicas[key])
        for key, state in zip(keys, states, strict=True)
        if isinstance(state, Leadership)
    }
