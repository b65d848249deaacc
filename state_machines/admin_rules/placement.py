"""Places replicas as Kafka does (``AdminUtils.assignReplicasToBrokers``), with and without racks.

Start index and shift are arguments: Kafka draws both at random for new topics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class PlacementError(ValueError):
    """The brokers cannot carry the wanted replicas; the text names field, value and remedy."""


def place(
    brokers: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Returns replica lists by partition number. ``brokers`` maps id to rack; all of them have a rack or none has.

    ``start`` picks the first replica of the first partition, ``shift`` the distance of the second from the first.
    """
    if partitions <= 0:
        raise PlacementError(f"partitions = {partitions}: give 1 or more")
    if not brokers:
        raise PlacementError(f"replication_factor = {replication_factor}: no broker is live, start one")
    if not 0 < replication_factor <= len(brokers):
        raise PlacementError(
            f"replication_factor = {replication_factor}: give 1 to {len(brokers)}, the number of live brokers"
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if racks and len(racks) != len(brokers):
        bare = sorted(set(brokers) - set(racks))
        raise PlacementError(
            f"brokers {bare} have no rack while others have: set broker.rack on all brokers or on none"
        )
    numbers = range(first_partition, first_partition + partitions)
    if racks:
        return _racked(racks, numbers, replication_factor, start, shift)
    return _plain(sorted(brokers), numbers, replication_factor, start, shift)


def _further(first: int, shift: int, index: int, count: int) -> int:
    return (first + 1 + (shift + index) % (count - 1)) % count


def _plain(brokers: Sequence[int], numbers: range, factor: int, start: int, shift: int) -> dict[int, tuple[int, ...]]:
    count = len(brokers)
    placed: dict[int, tuple[int, ...]] = {}
    for p in numbers:
        if p > 0 and p % count == 0:
            shift += 1
        first = (p + start) % count
        placed[p] = (brokers[first], *(brokers[_further(first, shift, j, count)] for j in range(factor - 1)))
    return placed


def alternated(racks: Mapping[int, str]) -> list[int]:
    """Orders brokers so that neighbours are in different racks: one of each rack in turn."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    return [queue[turn] for turn in range(max(map(len, queues))) for queue in queues if turn < len(queue)]


def _racked(
    racks: Mapping[int, str], numbers: range, factor: int, start: int, shift: int
) -> dict[int, tuple[int, ...]]:
    order = alternated(racks)
    count, rack_count = len(order), len(set(racks.values()))
    placed: dict[int, tuple[int, ...]] = {}
    for p in numbers:
        if p > 0 and p % count == 0:
            shift += 1
        first = (p + start) % count
        placed[p] = _spread(order, racks, rack_count, first, shift, factor)
    return placed


def _spread(
    order: Sequence[int], racks: Mapping[int, str], rack_count: int, first: int, shift: int, factor: int
) -> tuple[int, ...]:
    """Places one partition: further replicas skip racks (then brokers) already used until all of them are."""
    count = len(order)
    chosen = [order[first]]
    used_racks = {racks[order[first]]}
    step = 0
    while len(chosen) < factor:
        broker = order[_further(first, shift * rack_count, step, count)]
        step += 1
        rack_ok = racks[broker] not in used_racks or len(used_racks) == rack_count
        broker_ok = broker not in chosen
        if rack_ok and broker_ok:
            chosen.append(broker)
            used_racks.add(racks[broker])
    return tuple(chosen)
