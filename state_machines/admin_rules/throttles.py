"""Throttles the replication of moves and takes the throttles back (KIP-73, Kafka ``ReassignPartitionsCommand``).

A broker slows replication where two settings meet: its rate, a dynamic setting of the broker, and its replicas in the
lists of the topic. A leader slows fetches of replicas outside of the ISR, a follower slows its own fetches. So the
replicas from which moves copy are listed for leaders, and the added ones for followers, as Kafka's tool lists them.

The tool replaces lists and deletes all throttles at the end. Here lists are extended, and each setting returns to its
former value, unless it was changed meanwhile. A replica is listed while it copies. One that is in sync and listed would
share the rate with those that copy, and producers with acks=all would wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from state_machines.model.types import Assignment, TopicPartition

ALL_REPLICAS: Final = "*"
LIST_BYTES_MAX: Final = 32_767
"""Longest list in bytes: no broker can describe a topic with a longer one, as strings in responses end there."""
SHOWN_CHARS_MAX: Final = 60
"""Characters of a value that a sentence shows."""

_REPLICA: Final = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")
_INT32_MAX: Final = 2**31 - 1

Replica = tuple[int, int]
"""A partition and a broker."""


def extended(
    before: str | None, replicas: Iterable[Replica], place: tuple[object, str], notes: list[str]
) -> str | None:
    """Returns a list with ``replicas`` added; None where it stays: ``notes`` says why."""
    entity, setting = place
    if before is not None and before.strip() == ALL_REPLICAS:
        notes.append(f"{setting} of {entity} is {ALL_REPLICAS}: it throttles all replicas already, and stays")
        return None
    items = [item for each in (before or "").split(",") if (item := each.strip())]
    named = [replica_of(item) for item in items]
    if None in named:
        notes.append(
            f"{setting} of {entity} is {shown(before)} and stays, so its moves are not throttled: "
            f"give it the form partition:broker,partition:broker or {ALL_REPLICAS}"
        )
        return None
    missing = [replica for replica in replicas if replica not in set(named)]
    if not missing:
        return before
    text = ",".join((*items, *(f"{partition}:{broker}" for partition, broker in missing)))
    if len(text) <= LIST_BYTES_MAX:
        return text
    notes.append(
        f"{setting} of {entity} is set to {ALL_REPLICAS}, all replicas: a list of {len(text)} bytes is longer than the "
        f"{LIST_BYTES_MAX} bytes that brokers can describe"
    )
    return ALL_REPLICAS


def replica_of(item: str) -> Replica | None:
    """Returns a listed replica; None where the item is malformed."""
    found = _REPLICA.fullmatch(item)
    if found is None:
        return None
    partition, broker = int(found[1]), int(found[2])
    return (partition, broker) if max(partition, broker) <= _INT32_MAX else None


def shown(value: str | None) -> str:
    """Returns a value for a sentence, without its end where it is long."""
    if value is None:
        return "no value"
    return repr(value if len(value) <= SHOWN_CHARS_MAX else f"{value[:SHOWN_CHARS_MAX]}...")


BROKERS: Final = "brokers"
TOPICS: Final = "topics"
LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
RATES: Final = (FOLLOWER_RATE, LEADER_RATE)
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
LISTS: Final = (FOLLOWER_REPLICAS, LEADER_REPLICAS)

RATE_BYTES_PER_S_MAX: Final = 2**63 - 1


class Entity(NamedTuple):
    """An entity with dynamic configuration, ``/config/KIND/NAME``; ``kind`` is ``brokers`` or ``topics``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.removesuffix('s')} {self.name}"


Place = tuple[Entity, str]
"""A setting of an entity."""
Configs = Mapping[Entity, Mapping[str, str]]
"""The content of configuration znodes; an absent entity has none."""


class Throttle(Struct, frozen=True):
    """A setting that throttles moves; ``before`` None: it was not set.

    ``ours`` are the values by which a later look recognizes it: ``value``, and one that may stand in its place because
    ``value`` was not written yet.
    """

    entity: Entity
    setting: str
    before: str | None
    value: str
    ours: tuple[str, ...]

    def wrote(self, current: str | None) -> bool:
        """Checks whether the operation has written the value that stands there."""
        return current in self.ours


class Throttling(Struct, frozen=True):
    """The throttles to record before anything is written, then the entities to write with their whole content.

    ``settled``: the throttles to record once all is written. ``notes`` are sentences for the operator, on settings that
    stay as they are.
    """

    throttles: tuple[Throttle, ...]
    writes: Mapping[Entity, dict[str, str]]
    settled: tuple[Throttle, ...] = ()
    notes: tuple[str, ...] = ()


class Restoration(Struct, frozen=True):
    """The entities to write with their whole content, and sentences on settings that stay because they were changed."""

    writes: Mapping[Entity, dict[str, str]]
    notes: tuple[str, ...] = ()


def throttled_entities(moves: Mapping[TopicPartition, Assignment], brokers: Iterable[int] = ()) -> tuple[Entity, ...]:
    """Returns the entities whose configurations :func:`throttle` needs, sorted."""
    return tuple(sorted({entity for entity, _ in _wanted(moves, brokers)}))


def throttle(
    moves: Mapping[TopicPartition, Assignment],
    rate_bytes_per_s: int,
    found: Configs,
    earlier: Sequence[Throttle] = (),
    *,
    brokers: Iterable[int] = (),
) -> Throttling:
    """Returns the throttles of ``moves``, at a rate for each broker and direction; moves that add nothing have none.

    ``brokers`` have a rate, too, for later moves. ``earlier``: throttles of the same operation, which may have been
    written or not; their former values hold on. So a repetition returns the same throttles and writes what is missing.
    The rate and the moves may differ from earlier ones: then lists name the present moves alone, and rates that only
    earlier moves need stand until :func:`restore`. A list that is ``*`` or malformed stays, and so does a setting that
    was changed since ``earlier``. Raises ValueError for a rate outside of 1 to :data:`RATE_BYTES_PER_S_MAX`.
    """
    if not 1 <= rate_bytes_per_s <= RATE_BYTES_PER_S_MAX:
        raise ValueError(f"rate_bytes_per_s is {rate_bytes_per_s}: give a rate from 1 to {RATE_BYTES_PER_S_MAX}")
    return _drawn(_wanted(moves, brokers), rate_bytes_per_s, found, earlier)


def covers(throttles: Iterable[Throttle], moves: Mapping[TopicPartition, Assignment]) -> bool:
    """Checks whether lists that were written name all replicas that copy in these moves, and perhaps more."""
    lists = {(one.entity, one.setting): one.value for one in throttles}
    for place, replicas in _wanted(moves, ()).items():
        value = lists.get(place)
        if not isinstance(replicas, list) or value == ALL_REPLICAS:
            continue
        if value is None or not set(replicas) <= set(map(replica_of, value.split(","))):
            return False
    return True


def throttle_brokers(
    brokers: Iterable[int],
    topics: Iterable[str],
    rate_bytes_per_s: int,
    found: Configs,
    earlier: Sequence[Throttle] = (),
) -> Throttling:
    """Returns a rate for brokers in both directions, and all replicas of topics as throttled ones.

    The rate slows the replicas that lists name, those of ``topics`` among them. ``earlier`` as in :func:`throttle`.
    """
    wanted: dict[Place, _Wanted] = dict.fromkeys(broker_places(brokers, ()))
    wanted |= dict.fromkeys(broker_places((), topics), ALL_REPLICAS)
    return _drawn(wanted, rate_bytes_per_s, found, earlier)


def broker_places(brokers: Iterable[int], topics: Iterable[str]) -> tuple[Place, ...]:
    """Returns the settings that :func:`throttle_brokers` sets."""
    rates = [(Entity(BROKERS, str(b)), name) for b in sorted(set(brokers)) for name in RATES]
    return (*rates, *((Entity(TOPICS, topic), name) for topic in sorted(set(topics)) for name in LISTS))


def move_places(moves: Mapping[TopicPartition, Assignment], brokers: Iterable[int] = ()) -> tuple[Place, ...]:
    """Returns the settings that :func:`throttle` sets."""
    return tuple(_wanted(moves, brokers))


def _drawn(
    wanted: Mapping[Place, _Wanted], rate_bytes_per_s: int, found: Configs, earlier: Sequence[Throttle]
) -> Throttling:
    known = {(one.entity, one.setting): one for one in earlier}
    changes: dict[Place, str | None] = {}
    notes: list[str] = []
    drawn: set[Place] = set()
    for place, replicas in wanted.items():
        current, past = _current(found, place), known.get(place)
        if past is not None and current != past.before and not past.wrote(current):
            notes.append(_changed(place, current))
            continue
        before = current if past is None else past.before
        value = _value(replicas, rate_bytes_per_s, before, place, notes)
        if value is None or (past is None and value == current):
            continue
        if past is None or value != past.value:
            standing = (current,) if past is not None and current is not None and past.wrote(current) else ()
            known[place] = Throttle(*place, before, value, tuple(dict.fromkeys((value, *standing))))
        drawn.add(place)
        if value != current:
            changes[place] = value
    left = [one for place, one in known.items() if place not in wanted and one.setting in LISTS]
    _take_back(left, found, changes, notes)
    throttles = tuple(known[place] for place in sorted(known))
    kept = (one for one in throttles if one not in left)
    settled = tuple(replace(one, ours=(one.value,)) if (one.entity, one.setting) in drawn else one for one in kept)
    return Throttling(throttles, _contents(changes, found), settled, tuple(notes))


def _value(replicas: _Wanted, rate_bytes_per_s: int, before: str | None, place: Place, notes: list[str]) -> str | None:
    if replicas is None:
        return str(rate_bytes_per_s)
    return replicas if isinstance(replicas, str) else extended(before, replicas, place, notes)


def restore(throttles: Iterable[Throttle], found: Configs) -> Restoration:
    """Returns what gives each setting its former value; a setting that was changed meanwhile stays as it is.

    Settings that have their former values already are left out, so a repetition writes nothing.
    """
    changes: dict[Place, str | None] = {}
    notes: list[str] = []
    _take_back(throttles, found, changes, notes)
    return Restoration(_contents(changes, found), tuple(notes))


def _take_back(
    throttles: Iterable[Throttle], found: Configs, changes: dict[Place, str | None], notes: list[str]
) -> None:
    for one in throttles:
        place = one.entity, one.setting
        current = _current(found, place)
        if current == one.before:
            continue
        if one.wrote(current):
            changes[place] = one.before
        else:
            notes.append(_changed(place, current))


def unconfirmed(broker: int, rate_bytes_per_s: int, reported: Mapping[str, str | None]) -> list[str]:
    """Returns a sentence for each direction in which a broker reports another rate, for instance by DescribeConfigs."""
    return [
        f"broker {broker} has {setting} = {shown(reported.get(setting))} in force where {rate_bytes_per_s} is set"
        for setting in RATES
        if reported.get(setting) != str(rate_bytes_per_s)
    ]


_Wanted = list[Replica] | str | None
"""A list that names these replicas; the value itself; None: the rate."""


def _wanted(moves: Mapping[TopicPartition, Assignment], brokers: Iterable[int]) -> dict[Place, _Wanted]:
    """Returns the settings that throttle moves: lists with the replicas that they must name; None: a rate."""
    lists: dict[Place, list[Replica]] = {}
    hosts = set(brokers)
    for (topic, partition), move in sorted(moves.items()):
        sources, added = move.kept.origin, move.kept.adding
        if not added:
            continue
        hosts.update(sources, added)
        for setting, brokers in ((LEADER_REPLICAS, sources), (FOLLOWER_REPLICAS, added)):
            if not brokers:
                continue
            listed = lists.setdefault((Entity(TOPICS, topic), setting), [])
            listed += [(partition, broker) for broker in sorted(brokers)]
    return {**dict.fromkeys(broker_places(hosts, ())), **lists}


def _current(found: Configs, place: Place) -> str | None:
    entity, setting = place
    return found.get(entity, {}).get(setting)


def _contents(changes: Mapping[Place, str | None], found: Configs) -> dict[Entity, dict[str, str]]:
    """Returns the whole content of each entity that changes; None removes a setting."""
    contents: dict[Entity, dict[str, str]] = {}
    for (entity, setting), value in changes.items():
        content = contents.setdefault(entity, dict(found.get(entity, {})))
        if value is None:
            content.pop(setting, None)
        else:
            content[setting] = value
    return contents


def _changed(place: Place, current: str | None) -> str:
    entity, setting = place
    now = "was removed" if current is None else f"was changed to {shown(current)}"
    return f"{setting} of {entity} {now} meanwhile, and stays so"
