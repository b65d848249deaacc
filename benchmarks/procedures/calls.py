"""T1c, R1c, P1c: topics, reassignments and elections that a client requests, beside the daemon of an earlier commit.

The calls reach the daemon as an admin endpoint sends them, sealed in an envelope. Each daemon has a cluster of its own;
they take turns in the order ours, earlier, earlier, ours.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from admin.carrier import Carrier
from admin.ports import Call, Holder, Node
from benchmarks import request_znodes, requested
from benchmarks.arena import Arena, arena, say
from benchmarks.contestants import DAEMON_ID, OURS, Regent
from benchmarks.datasets import PARTITIONS_PER_TOPIC, REPLICATION, DataSet, Shape, data_set, shape
from benchmarks.procedures.plan import Sizes, goal
from benchmarks.procedures.rows import paired
from benchmarks.results import Row
from benchmarks.turns import EVENT_S_MAX, Clock, Turn, Wrong, check, failover, metered, quiet
from brokers.security.shared_secret import shared_secret
from brokers.wire.messages import request_codec
from brokers.wire.messages.partitions import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignedPartition,
    ReassignedTopic,
)
from brokers.wire.messages.topics import CreatableTopic, CreateTopicsRequest, ReplicaAssignment
from brokers.wire.versions import Api
from metadata_store import paths
from testing.embedded.process import ProcessFailed, poll

TOPICS_PER_CALL: Final = 100
TIMEOUT_MS: Final = 120_000
PRINCIPAL: Final = "User:ANONYMOUS"
CLUSTER: Final = "benchmark-cluster-00000"
SECRET_S_MAX: Final = 30.0
NAMES: Final = {
    "T1c": ("topics created by calls until answered and all have the change", "created by calls"),
    "R1c": ("reassignments requested by a call until answered and all have the change", "reassigned by a call"),
    "P1c": ("preferred leaders requested by a call until answered and all have the change", "elected by a call"),
}
_RUN: Final = "import sys; sys.path.insert(0, {tree!r}); sys.argv[0] = 'regent'; from cli.main import main; main()"


class Endpoint:
    """An admin endpoint of which only the way to the daemon is there."""

    def __init__(self, port: int, secret: bytes) -> None:
        self._holder = Holder(DAEMON_ID, "", "127.0.0.1", port, CLUSTER)
        self.carrier = Carrier(self, secret)

    def node(self) -> Node | None:
        """Returns None: no client sees this endpoint."""
        return None

    def holder(self) -> Holder | None:
        """Returns the daemon."""
        return self._holder

    def vacant(self) -> bool:
        """Returns False: the daemon has the role."""
        return False

    async def changed(self) -> None:
        """Never returns: the role does not move."""
        await asyncio.Event().wait()

    async def call(self, api: Api, version: int, body: Struct) -> Any:
        """Sends a call; returns its response."""
        codec = request_codec(api, version)
        head = api.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\xff\xff" + bytes(codec.flexible)
        return await self.carrier.carry(
            Call(api, version, body, PRINCIPAL, None, "127.0.0.1", head + codec.write(body)),
        )


async def measure(sizes: Sizes, folder: Path, revision: str) -> list[Row]:
    """Plays the daemons of this tree and of a revision in turn, each on a fresh data set."""
    tree = folder / "earlier"
    extract(revision, tree)
    taken: dict[bool, dict[str, list[Turn]]] = {here: {case: [] for case in NAMES} for here in (True, False)}
    for number, here in enumerate((True, False, False, True)):
        say(f"calls: regent {'of this tree' if here else f'at {revision}'}")
        command = None if here else (sys.executable, "-c", _RUN.format(tree=str(tree.resolve())), "run")
        for case, turns in (await play(sizes, folder / str(number), command)).items():
            taken[here][case] += turns
    rows: list[Row] = []
    for case, (what, _) in NAMES.items():
        walls = [[max(turn.told_s, turn.ready_s or 0.0) for turn in taken[here][case]] for here in (True, False)]
        row = paired(case, sizes.calls_shape, what, "s", *walls, goal=goal(case), peer_is=f"regent at {revision}")
        for name, here in (("regent", True), ("peer", False)):
            used = sorted(turn.cpu_s for turn in taken[here][case])
            row.phases[name] = {"CPU s": used[len(used) // 2]}
        rows.append(row)
    return rows


def extract(revision: str, tree: Path) -> None:
    """Writes the files of a revision into a folder."""
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", revision], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(tree)], check=True, input=archive)


async def play(
    sizes: Sizes, folder: Path, command: Sequence[str] | None, cases: Collection[str] = NAMES
) -> dict[str, list[Turn]]:
    """Plays all rounds of a daemon, after one that is not counted."""
    made: dict[str, list[Turn]] = {case: [] for case in cases}
    async with arena(shape(sizes.calls_shape), folder) as found:
        await found.zk.create(paths.CLUSTER_ID.rpartition("/")[0], None)
        await found.zk.create(paths.CLUSTER_ID, f'{{"version":"1","id":"{CLUSTER}"}}'.encode())
        regent = Regent(folder / OURS, found.zookeeper.connect, command=command)
        found.contestants[OURS] = regent
        await regent.boot(found.zk)
        endpoint = Endpoint(regent.port, await _secret(regent))
        for number in range(1 + max(1, sizes.rounds // 2)):  # each daemon has two turns
            turns = {case: await PLAYED[case](found, regent, endpoint, sizes) for case in made}
            say(", ".join(f"{case} {max(turn.told_s, turn.ready_s or 0.0):.3f} s" for case, turn in turns.items()))
            for case, turn in turns.items():
                if number:
                    made[case].append(turn)
        endpoint.carrier.close()
    return made


async def _secret(regent: Regent) -> bytes:
    file = regent.daemon.folder / "state" / "admin-secret"

    async def there() -> bool:
        return file.exists() and file.stat().st_size > 0

    if not await poll(there, SECRET_S_MAX):
        raise ProcessFailed(f"the daemon wrote no secret\n{regent.process.log_tail()}")
    return shared_secret(file)


async def _created(found: Arena, regent: Regent, endpoint: Endpoint, sizes: Sizes) -> Turn:
    """Creates topics by calls that are sent at once, and deletes them by znodes."""
    await found.calm()
    await failover(found, regent)
    added = data_set(
        Shape("added", sizes.topics, PARTITIONS_PER_TOPIC, REPLICATION, found.data.shape.brokers, prefix="added"),
    )
    turn = Turn(NAMES["T1c"][1])
    async with metered(found, regent, turn):
        clock = Clock.now()
        answers = await asyncio.gather(
            *(endpoint.call(Api.CREATE_TOPICS, 7, body) for body in _creations(added)),
        )
        turn.ready_s = Clock.now().began_s - clock.began_s
        found.oracle.creates(added)
        turn.told_s = (await quiet(found)).last_s - clock.began_s
    _refuse(turn, [topic for answer in answers for topic in answer.topics])
    await check(found, turn, clock)
    await found.fleet.list_stopped(True)
    await request_znodes.delete_topics(found.zk, added)
    found.oracle.deletes(added)
    await request_znodes.until_empty(found.zk, paths.DELETE_TOPICS, EVENT_S_MAX)
    await quiet(found)
    await found.fleet.list_stopped(False)
    return turn


def _creations(added: DataSet) -> list[CreateTopicsRequest]:
    topics = [
        CreatableTopic(
            name,
            -1,
            -1,
            tuple(ReplicaAssignment(n, placed) for n, placed in enumerate(added.replicas[added.rows_of(number)])),
            (),
        )
        for number, name in enumerate(added.topics)
    ]
    firsts = range(0, len(topics), TOPICS_PER_CALL)
    return [CreateTopicsRequest(tuple(topics[first : first + TOPICS_PER_CALL]), TIMEOUT_MS) for first in firsts]


async def _reassigned(found: Arena, regent: Regent, endpoint: Endpoint, sizes: Sizes) -> Turn:
    await found.calm()
    await failover(found, regent)
    targets = requested.moved(found.data, sizes.moves)
    by_topic: dict[str, list[ReassignedPartition]] = {}
    for row, target in targets.items():
        topic, partition = found.data.name(row)
        by_topic.setdefault(topic, []).append(ReassignedPartition(partition, target))
    topics = tuple(ReassignedTopic(name, tuple(partitions)) for name, partitions in by_topic.items())
    turn = Turn(NAMES["R1c"][1])
    async with metered(found, regent, turn):
        clock = Clock.now()
        body = AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics)
        answer = await endpoint.call(Api.ALTER_PARTITION_REASSIGNMENTS, 0, body)
        turn.ready_s = Clock.now().began_s - clock.began_s
        found.oracle.reassigns(targets)
        turn.told_s = (await quiet(found)).last_s - clock.began_s
    _refuse(turn, [answer, *(one for topic in answer.responses for one in topic.partitions)])
    await check(found, turn, clock)
    return turn


async def _elected(found: Arena, regent: Regent, endpoint: Endpoint, _sizes: Sizes) -> Turn:
    await found.calm(displaced=found.data.shape.partitions)
    await failover(found, regent)
    turn = Turn(NAMES["P1c"][1])
    async with metered(found, regent, turn):
        clock = Clock.now()
        answer = await endpoint.call(Api.ELECT_LEADERS, 2, ElectLeadersRequest(None, TIMEOUT_MS))
        turn.ready_s = Clock.now().began_s - clock.began_s
        found.oracle.prefers()
        turn.told_s = (await quiet(found)).last_s - clock.began_s
    _refuse(turn, [answer, *(one for topic in answer.replica_election_results for one in topic.partition_result)])
    await check(found, turn, clock)
    return turn


PLAYED: Final = {"T1c": _created, "R1c": _reassigned, "P1c": _elected}


def _refuse(turn: Turn, outcomes: Sequence[Any]) -> None:
    wrong = [one for one in outcomes if one.error_code]
    if wrong:
        raise Wrong(f"{turn.event}: {len(wrong)} of {len(outcomes)} were refused, the first: {wrong[0]}")
