"""Decides how an election of many partitions goes on: in waves, in the order of names, each partition once.

A look names the partitions of the next wave, and is stored before any of them is elected. So a wave that a crash
repeats counts what it had elected before the crash as its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from state_machines.decisions.leader_election import ElectionError, ElectionType, NotElected, forecast, outcome
from state_machines.machines.selectors import Election
from state_machines.model.cluster import Cluster
from state_machines.model.types import TopicPartition

BATCH_MAX: Final = 1_000
"""Partitions of one wave, at most."""
LOOKED_AT_MAX: Final = 20_000
"""Partitions that one look judges: some 10 ms."""
NAMED_MAX: Final = 20
"""Partitions that the result names for each reason; all are counted."""
NAME_BYTES_MAX: Final = 64 * 1024
"""Bytes of the names of one wave: they are stored."""
DRAINED: Final = "the preferred replica's broker is drained: regent undrain"

Name = tuple[str, int]


class Group(Struct, frozen=True, array_like=True):
    """Partitions with the same reason: their number, and the first of them."""

    why: str
    count: int
    names: tuple[Name, ...]


class MassElection(Struct, frozen=True, omit_defaults=True):
    """An election of many partitions as it is stored. ``partitions`` None: all.

    ``after``: the last partition that was judged. ``wave``: those that are being elected. ``already``: those that
    needed no election. ``losses``: those whose leader was not in the ISR, so records may be lost. ``is_over``: all were
    judged, or an operator stopped it.
    """

    kind: ElectionType
    partitions: tuple[Name, ...] | None = None
    batch_max: int = BATCH_MAX
    after: Name | None = None
    wave: tuple[Name, ...] = ()
    elected: int = 0
    already: int = 0
    refused: tuple[Group, ...] = ()
    losses: Group = Group("", 0, ())
    is_over: bool = False


def looked_on(cluster: Cluster, election: MassElection) -> MassElection:
    """Judges the next partitions, until a wave is full or :data:`LOOKED_AT_MAX` are judged."""
    wave: list[Name] = []
    losses: list[Name] = []
    refused: dict[str, list[Name]] = {}
    already, size, after, looked_at = 0, 0, election.after, 0
    for name in _names(cluster, election):
        if looked_at == LOOKED_AT_MAX or len(wave) == election.batch_max or size > NAME_BYTES_MAX:
            break
        looked_at, after = looked_at + 1, name
        found = _found(cluster, name, election.kind)
        if isinstance(found, Election):
            wave.append(name)
            losses += [name] * found.unclean
            size += len(name[0])
        elif found.error is ElectionError.ELECTION_NOT_NEEDED:
            already += 1
        else:
            refused.setdefault(found.why, []).append(name)
    return replace(
        election,
        after=after,
        wave=tuple(wave),
        already=election.already + already,
        refused=_added(election.refused, refused),
        losses=_grown(election.losses, losses),
        is_over=not looked_at,
    )


def wave_ended(cluster: Cluster, election: MassElection) -> MassElection:
    """Counts the outcomes of a wave after it was carried out."""
    elected, refused = 0, dict[str, list[Name]]()
    for name in election.wave:
        row = cluster.find(*name)
        found = outcome(cluster, row, election.kind) if row is not None else _GONE
        if found is None:
            elected += 1
        else:
            refused.setdefault(found.why, []).append(name)
    return replace(election, wave=(), elected=election.elected + elected, refused=_added(election.refused, refused))


def stopped(election: MassElection) -> MassElection:
    """Returns the election that judges no further partition; its wave goes on."""
    return replace(election, is_over=True)


def sentence(election: MassElection) -> str:
    """Returns how many partitions were elected, needed no election, or were refused with their reasons."""
    needless = "led by the preferred replica already" if election.kind is ElectionType.PREFERRED else "led already"
    parts = [f"{election.elected} elected", f"{election.already} {needless}"]
    parts += [f"{group.count} refused ({_listed(group)}): {group.why}" for group in election.refused]
    if election.losses.count:
        parts.append(f"{election.losses.count} may have lost records ({_listed(election.losses)})")
    return "; ".join(parts)


_GONE: Final = NotElected(ElectionError.UNKNOWN_TOPIC_OR_PARTITION, "the partition was deleted")


def _found(cluster: Cluster, name: Name, kind: ElectionType) -> Election | NotElected:
    found = forecast(cluster, cluster.find(*name), kind)
    if kind is ElectionType.PREFERRED and isinstance(found, Election) and found.leader in cluster.drained:
        return NotElected(ElectionError.PREFERRED_LEADER_NOT_AVAILABLE, DRAINED)
    return found


def _names(cluster: Cluster, election: MassElection) -> Iterator[Name]:
    """Yields the partitions that were not judged yet, by name."""
    after = election.after or ("", -1)
    if election.partitions is not None:
        yield from (name for name in sorted(set(election.partitions)) if name > after)
        return
    for topic in sorted(topic for topic in cluster.topic_index if topic >= after[0]):
        rows = cluster.topics[cluster.topic_index[topic]].rows
        yield from (name for name in sorted(cluster.name(i) for i in rows) if name > after)


def _added(groups: Iterable[Group], found: dict[str, list[Name]]) -> tuple[Group, ...]:
    known = {group.why: group for group in groups}
    known |= {why: _grown(known.get(why, Group(why, 0, ())), names) for why, names in found.items()}
    return tuple(known[why] for why in sorted(known))


def _grown(group: Group, names: Collection[Name]) -> Group:
    return Group(group.why, group.count + len(names), (*group.names, *names)[:NAMED_MAX])


def _listed(group: Group) -> str:
    more = f" and {group.count - len(group.names)} more" if group.count > len(group.names) else ""
    return ", ".join(str(TopicPartition(*name)) for name in group.names) + more
