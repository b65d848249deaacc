"""Plans on real brokers: how they are made and run, and what must be left of them in ZooKeeper and on disks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cli.demo.process import RegentProcess
from metadata_store import paths
from state_machines.admin_rules.throttles import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from state_machines.model.types import Assignment
from tests.kit.cluster.scene import regent
from tests.kit.deadlines import eventually
from tests.verify.system import System

SETTINGS: Final = {LEADER_RATE, FOLLOWER_RATE, LEADER_REPLICAS, FOLLOWER_REPLICAS}
FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)(?P<ending>\.[0-9a-f]{32}-\w+)?")
"""Name of a log's folder; one with an ending is about to be deleted, moves between disks, or is a stray."""
SOON: Final = {"log.segment.delete.delay.ms": 1_000}
"""Brokers delete the folder of a removed replica after a second instead of a minute."""
SMALL_FETCHES: Final = {"replica.fetch.max.bytes": 65_536, "replica.fetch.response.max.bytes": 65_536}
"""A fetch is throttled once the rate was exceeded: with Kafka's default of 10 MiB the first one would bring it all."""
END_S_MAX: Final = 300.0

Spot = tuple[str, int]


async def ran(daemon: RegentProcess, *arguments: str) -> Any:
    """Runs a command of regent that must succeed; returns the items of its JSON."""
    code, out, err = await regent(daemon, *arguments, "-o", "json")
    assert code == 0, (arguments, out, err)
    return json.loads(out)["items"]


async def filled(s: System, topics: Iterable[str], partitions: int, replicas: Sequence[int], mb: float = 0.5) -> None:
    """Creates topics whose partitions all have the same replicas, with some data."""
    for topic in topics:
        await s.create(topic, dict.fromkeys(range(partitions), replicas))
        await s.fill(topic, range(partitions), mb)


def kafkas_file(s: System, name: str, targets: Mapping[Spot, Sequence[int]]) -> Path:
    """Writes targets as a file of kafka-reassign-partitions."""
    partitions = [{"topic": t, "partition": p, "replicas": list(replicas)} for (t, p), replicas in targets.items()]
    file = s.w.cluster.folder / name
    file.write_text(json.dumps({"version": 1, "partitions": partitions}), encoding="utf-8")
    return file


async def moved_by_tool(s: System, file: Path, *options: str) -> None:
    """Executes a file by ``kafka-reassign-partitions``; its throttle goes once the moves are verified."""
    tool = "kafka-reassign-partitions"
    await s.tool(tool, "--execute", "--reassignment-json-file", str(file), *options)

    async def verified() -> bool:
        done = await s.tool(tool, "--verify", "--reassignment-json-file", str(file))
        return "still in progress" not in done.out

    await eventually(verified, END_S_MAX)


async def assignments(s: System, topics: Iterable[str]) -> dict[Spot, Assignment]:
    """Reads the assignments of all partitions."""
    return {(topic, p): found for topic in topics for p, found in (await s.placed(topic)).items()}


async def arrived(s: System, topics: Iterable[str], target: Sequence[int]) -> int:
    """Counts the partitions that are on their target."""
    return [*(await assignments(s, topics)).values()].count(Assignment(tuple(target)))


async def has_arrived(s: System, topics: Iterable[str], target: Sequence[int], count: int) -> bool:
    """Returns whether so many partitions are on their target."""
    return await arrived(s, topics, target) >= count


async def moves(s: System, pid: str) -> dict[Spot, dict[str, Any]]:
    """Reads the moves of a plan."""
    return {(m["topic"], m["partition"]): m for m in await ran(await s.active(), "reassign", "show", pid)}


async def begins_nothing(s: System, pid: str) -> bool:
    """Returns whether no move of the plan is under way, while some are queued."""
    found = {move["status"] for move in (await moves(s, pid)).values()}
    return "queued" in found and "begun" not in found


async def waited(daemon: RegentProcess, pid: str) -> tuple[int, dict[str, Any]]:
    """Runs ``regent procedures wait``; returns its exit code and the procedure."""
    code, out, err = await regent(daemon, "procedures", "wait", pid, "--timeout", f"{END_S_MAX:g}", "-o", "json")
    assert out, (code, err)
    return code, json.loads(out)["items"][0]


async def killed(s: System) -> RegentProcess:
    """Kills the active daemon with SIGKILL and starts it again, as systemd does; returns it."""
    victim = await s.active()
    await victim.kill()
    await victim.boot(None)
    return victim


async def throttled(s: System, topics: Iterable[str]) -> set[str]:
    """Reads the entities whose configuration has a setting of a throttle."""
    entities = [("brokers", str(broker)) for broker in s.w.cluster.brokers] + [("topics", topic) for topic in topics]
    found: set[str] = set()
    for kind, name in entities:
        node = await s.w.zk.get(paths.config(kind, name))
        if node is not None and SETTINGS & json.loads(node.data or b"{}").get("config", {}).keys():
            found.add(f"{kind} {name}")
    return found


async def is_throttled(s: System, topics: Sequence[str]) -> bool:
    """Returns whether all brokers have a rate, and a topic lists replicas that copy."""
    return len(await throttled(s, topics)) > len(s.w.cluster.brokers)


def folders(s: System) -> dict[tuple[int, Path], re.Match[str]]:
    """Lists the logs' folders on all disks of all brokers."""
    found = {
        (broker, path): FOLDER.fullmatch(path.name)
        for broker, process in s.w.cluster.brokers.items()
        for path in process.folder.glob("data-*/*")
        if path.is_dir()
    }
    return {key: match for key, match in found.items() if match is not None}


async def strays(s: System) -> tuple[int, list[str]]:
    """Compares all disks with the assignments; returns the number of logs, and the folders that must not be there."""
    replicas = {name: set(assigned) for name, (assigned, _) in (await s.w.states()).items()}
    found = folders(s)
    wrong = [
        f"broker {broker}: {path.name}"
        for (broker, path), log in found.items()
        if log["ending"] or broker not in replicas.get((log["topic"], int(log["partition"])), ())
    ]
    return len(found), sorted(wrong)


async def nothing_left(s: System, topics: Sequence[str]) -> None:
    """Waits until no throttle and no stray folder is left, as ``regent strays`` says, too; prints what was compared."""

    async def clean() -> int:
        logs, wrong = await strays(s)
        assert not wrong, wrong
        return logs

    logs = await eventually(clean, 60.0)
    assert await throttled(s, topics) == set()
    [report] = await ran(await s.active(), "strays")
    assert (report["strays"], sorted(report["brokers"])) == ([], sorted(s.w.cluster.brokers))
    entities = f"{len(s.w.cluster.brokers)} brokers and {len(topics)} topics"
    s.times.note("left behind", f"no throttle on {entities}, no stray among {logs} folders on their disks")


async def at_count(check: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Waits long enough for moves on a busy machine."""
    await eventually(check, 120.0)
