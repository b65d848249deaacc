"""Makes the problem of a plan from a snapshot or an assignment, loads, and what the operator wants of brokers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from pipeline.inputs import NONE, BadInput, Loads, Snapshot
from pipeline.planner.arrays import Array, np
from pipeline.planner.broker_file import OTHERS, GivenBroker
from pipeline.planner.broker_sets import BrokerSet
from pipeline.planner.problem import Brokers, Disks, PlanLimits, Problem, Sets
from state_machines.planning.goals import chosen_topics

WHY_STUCK: Final = (
    "",
    "it is being reassigned: wait until that is complete, or cancel it",
    "its topic is excluded: leave --exclude-topic out, or move it by hand",
    "none of its replicas is live, so none can be copied: start a broker of them",
)
_MOVING, _EXCLUDED, _LOST = 1, 2, 3
REST: Final = "of all others"
Placed: TypeAlias = tuple[int, int, str]


@dataclass(frozen=True)
class Wanted:
    """What the operator wants. ``retire``: ids of brokers that all replicas leave. ``exclude``: that take no more.

    ``exclude_topics``: names and patterns of topics that stay where they are. ``given``: racks and capacities by id.
    ``sets``: brokers that are for some topics alone; all others are for the other topics.
    """

    retire: Collection[int] = ()
    exclude: Collection[int] = ()
    exclude_topics: Sequence[str] = ()
    given: dict[int, GivenBroker] = field(default_factory=dict)
    sets: Sequence[BrokerSet] = ()
    limits: PlanLimits = field(default_factory=PlanLimits)

    def of(self, broker: int) -> GivenBroker:
        """Returns what is given of a broker, or of all others."""
        return self.given.get(broker) or self.given.get(OTHERS) or GivenBroker()


def problem_of(
    snapshot: Snapshot, loads: Loads, wanted: Wanted, cluster_id: str = "", log_dirs: Sequence[Placed] = ()
) -> Problem:
    """Returns the problem; raises :class:`BadInput` for a broker or a topic that is not there.

    ``log_dirs``: of replicas, as (row of the partition, broker id, path).
    """
    table = snapshot.partitions
    ids = np.union1d(snapshot.brokers.ids, table.replicas[table.replicas != NONE])
    ids = np.union1d(ids, np.array(sorted(wanted.given.keys() - {OTHERS}), np.int32)).astype(np.int32)
    for option, named in (("--retire", wanted.retire), ("--exclude-broker", wanted.exclude)):
        for broker in sorted(set(named) - set(ids.tolist())):
            raise BadInput(f"{option} {broker}: the cluster has no such broker; correct the id")
    width = max(1, table.replicas.shape[1])
    there = table.replicas != NONE
    replicas = np.where(there, np.searchsorted(ids, np.where(there, table.replicas, ids[0] if len(ids) else 0)), NONE)
    brokers = _brokers(snapshot, ids, wanted)
    return Problem(
        cluster_id=cluster_id or snapshot.cluster,
        topics=table.topics,
        topic=table.topic,
        partition=table.partition,
        replicas=replicas.astype(np.int32).reshape(-1, width),
        size=np.where(loads.size_bytes == NONE, np.nan, loads.size_bytes.astype(np.float64)),
        bytes_in=loads.bytes_in_per_s,
        bytes_out=loads.bytes_out_per_s,
        stuck=_stuck(snapshot, wanted.exclude_topics, brokers.live, replicas),
        brokers=brokers,
        limits=wanted.limits,
        why_stuck=WHY_STUCK,
        disks=_disks(ids, replicas, wanted, log_dirs),
        sets=_sets(ids, table.topics, wanted.sets) if wanted.sets else None,
    )


def _sets(ids: Array, topics: Sequence[str], given: Sequence[BrokerSet]) -> Sets:
    """Returns the sets of brokers; the last one is of the brokers and topics that none of them names."""
    names = (*(one.name for one in given), REST)
    of_broker, of_topic = np.full(len(ids), len(given), np.int32), np.full(len(topics), len(given), np.int32)
    places = {broker: at for at, broker in enumerate(ids.tolist())}
    for number, one in enumerate(given):
        for broker in one.brokers:
            if broker not in places:
                raise BadInput(f"set {one.name}: the cluster has no broker {broker}; correct the id")
            of_broker[places[broker]] = number
        for at, topic in enumerate(topics):
            if any(fnmatchcase(topic, pattern) for pattern in one.topics):
                if of_topic[at] != len(given):
                    raise BadInput(f"topic {topic} is in the sets {names[of_topic[at]]} and {one.name}: keep it in one")
                of_topic[at] = number
    if (of_topic == len(given)).any() and not (of_broker == len(given)).any():
        topic = topics[int((of_topic == len(given)).argmax())]
        raise BadInput(f"topic {topic} is in no set, and each broker is in one: name the topic in a set")
    return Sets(names, of_broker, of_topic)


def _disks(ids: Array, replicas: Array, wanted: Wanted, log_dirs: Sequence[Placed]) -> Disks | None:
    """Returns the log directories that are given, and where replicas are; None without any."""
    given = enumerate(map(wanted.of, ids.tolist()))
    listed = [(at, path, size) for at, one in given for path, size in one.log_dirs.items()]
    if not listed:
        return None
    index = {(at, path): number for number, (at, path, _) in enumerate(listed)}
    places = {broker: at for at, broker in enumerate(ids.tolist())}
    rows = np.array([row for row, _, _ in log_dirs], np.int64)
    brokers = np.array([places.get(broker, -2) for _, broker, _ in log_dirs], np.int64)
    found = np.array([index.get((places.get(broker, -2), path), -1) for _, broker, path in log_dirs], np.int32)
    here = replicas[rows] == brokers[:, None]
    there, at = here.any(axis=1), np.full(replicas.shape, -1, np.int32)
    at[rows[there], here.argmax(axis=1)[there]] = found[there]
    return Disks(
        np.array([one[0] for one in listed], np.int32),
        tuple(one[1] for one in listed),
        np.array([one[2] for one in listed], np.float64),
        at,
    )


def _stuck(snapshot: Snapshot, exclude: Sequence[str], live: Array, replicas: Array) -> Array:
    table = snapshot.partitions
    stuck = np.zeros(len(table), np.int8)
    excluded = chosen_topics(tuple(exclude), table.topics) or ()
    for name in sorted(set(excluded) - set(table.topics)):
        raise BadInput(f"--exclude-topic {name}: the cluster has no such topic; correct the name")
    names = np.isin(np.array(table.topics, dtype=object), list(excluded)) if excluded else np.zeros(0, bool)
    if excluded:
        stuck[names[table.topic]] = _EXCLUDED
    stuck[~(live[replicas] & (replicas >= 0)).any(axis=1)] = _LOST
    stuck[(table.adding | table.removing).any(axis=1)] = _MOVING
    return stuck


def _brokers(snapshot: Snapshot, ids: Array, wanted: Wanted) -> Brokers:
    known = snapshot.brokers
    names: dict[int, str | None] = {
        int(b): known.racks[rack] if rack >= 0 else None for b, rack in zip(known.ids, known.rack, strict=True)
    }
    registered = {int(b) for b, live in zip(known.ids, known.live, strict=True) if live}
    # A broker that the file adds and the snapshot does not know is one that is to come: it may take replicas.
    live = np.array([int(b) in registered or (int(b) in wanted.given and int(b) not in names) for b in ids], bool)
    racks = [wanted.of(int(b)).rack or names.get(int(b)) for b in ids]
    # Brokers without a rack share one that has no name; that of an absent broker counts as one of its own.
    keys = [rack or ("" if alive else int(b)) for b, rack, alive in zip(ids, racks, live, strict=True)]
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    capacity = {
        name: np.array([getattr(wanted.of(int(b)), name) or np.inf for b in ids], np.float64)
        for name in ("disk_bytes", "bytes_in_per_s", "bytes_out_per_s", "cpu_bytes_per_s")
    }
    return Brokers(
        ids=ids,
        rack=np.array([number[key] for key in keys], np.int32),
        live=live,
        retiring=np.isin(ids, np.array(sorted(wanted.retire), np.int32)),
        excluded=np.isin(ids, np.array(sorted(wanted.exclude), np.int32)),
        disk=capacity["disk_bytes"],
        bytes_in=capacity["bytes_in_per_s"],
        bytes_out=capacity["bytes_out_per_s"],
        cpu=capacity["cpu_bytes_per_s"],
    )
