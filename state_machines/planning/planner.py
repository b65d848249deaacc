"""Plans: a goal and a view of the cluster give a plan. The same ones always give the same plan.

The planner counts replicas, not bytes or traffic: even counts, racks kept, few bytes moved, first replicas spread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from state_machines.planning.balancing import draw_added, draw_rebalance
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.drafting import PlanDraft, Replicas
from state_machines.planning.goals import (
    Add,
    Decommission,
    Goal,
    Rebalance,
    ReplicationFactor,
    RestoreRacks,
    Target,
    TargetReplicas,
    Undo,
    chosen_topics,
    in_words,
    listed,
)
from state_machines.planning.plan import INT32_MAX, Plan


def draw_targets(draft: PlanDraft, goal: Target) -> None:
    """Draws the given replicas as they are. Racks bind only planned replicas: for given ones the summary counts them.

    Replicas that are there already may be on brokers that take no further ones.
    """
    if not goal.partitions:
        draft.refuse("partitions", "partitions is empty: name at least one partition")
    named = Counter((wanted.topic, wanted.partition) for wanted in goal.partitions)
    for (topic, partition), count in named.items():
        if count > 1:
            draft.refuse(f"{topic}-{partition}", f"partitions names it {count} times: name it once")
    for wanted in sorted(goal.partitions, key=lambda w: (w.topic, w.partition)):
        if named[wanted.topic, wanted.partition] > 1:
            continue
        row = draft.view.find(wanted.topic, wanted.partition)
        origin = () if row is None else draft.view.assignments[row].replicas
        wrong = list(faults(draft.view, wanted, origin))
        for why in wrong:
            draft.refuse(f"{wanted.topic}-{wanted.partition}", why)
        if row is not None and draft.may_move(wanted.topic, row) and not wrong:
            draft.move(wanted.topic, row, wanted.replicas)


def faults(view: ClusterView, wanted: TargetReplicas, origin: tuple[int, ...]) -> Iterator[str]:
    """Yields what is wrong with the replicas that a partition is to have, where ``origin`` are those it has."""
    replicas, rows = wanted.replicas, view.topics.get(wanted.topic)
    if rows is None:
        yield f"topic = {wanted.topic!r}: it does not exist; correct the name"
    elif not origin and view.find(wanted.topic, wanted.partition) is None:
        yield f"partition = {wanted.partition}: the topic has {len(rows)} partitions and not this one; correct it"
    if not replicas:
        yield "replicas = []: name at least one broker"
    for broker, count in sorted(Counter(replicas).items()):
        if count > 1:
            yield f"replicas = [{listed(replicas)}]: broker {broker} is named {count} times; name it once"
        if not 0 <= broker <= INT32_MAX:
            yield f"replicas = [{listed(replicas)}]: {broker} is no broker id; give 0 to {INT32_MAX}"
        elif broker not in origin and (why := view.why_no_host(broker)) is not None:
            yield f"replicas = [{listed(replicas)}]: {why}"
    if rows is not None and replicas and (why := below_min_isr(view, wanted.topic, origin, replicas)) is not None:
        yield f"replicas = [{listed(replicas)}]: {why}"


def below_min_isr(view: ClusterView, topic: str, origin: tuple[int, ...], replicas: tuple[int, ...]) -> str | None:
    """Returns why a partition may not change to so few replicas; None where it may, or keeps their number.

    Kafka adds replicas before it removes others, so only the target counts.
    """
    least, count = view.min_isr_of(topic), len(set(replicas))
    if count >= least or count == len(origin):
        return None
    return f"{count} replicas are below min.insync.replicas = {least}; give {least} or more, or lower the setting"


def draw_undo(draft: PlanDraft, goal: Undo) -> None:
    """Draws moves back for partitions that are where the plan put them; those that are back already need none.

    What another client has moved since stays, and is refused.
    """
    if not goal.moves:
        draft.refuse("moves", f"{goal.source} moved nothing: there is nothing to take back")
    for move in sorted(goal.moves, key=lambda one: (one.topic, one.partition)):
        row = draft.view.find(move.topic, move.partition)
        if row is None:
            draft.refuse(move.name, "it does not exist any more: nothing of it can be taken back")
            continue
        assignment = draft.view.assignments[row]
        current = assignment.replicas
        if (current == move.origin and not assignment.moving) or not draft.may_move(move.topic, row):
            continue
        if set(current) != set(move.target):
            why = f"its replicas are [{listed(current)}], and the plan gave it [{listed(move.target)}]"
            draft.refuse(move.name, f"{why}: it was moved since; --target gives it the replicas that you want")
            continue
        wrong = list(faults(draft.view, TargetReplicas(move.topic, move.partition, move.origin), current))
        for why in wrong:
            draft.refuse(move.name, why)
        if not wrong:
            draft.move(move.topic, row, move.origin)


def draw_decommission(draft: PlanDraft, goal: Decommission) -> None:
    """Draws new replicas for those on the brokers that leave, each on the least loaded broker that racks allow."""
    draft.check_brokers(goal.brokers)
    draft.check_topics(goal.topics)
    for broker in sorted(set(goal.brokers) - draft.view.brokers.keys()):
        draft.refuse(f"broker {broker}", f"brokers names {broker}, which is unknown and hosts nothing: correct the id")
    if draft.refused:
        return
    leaving = frozenset(goal.brokers)
    for topic, row in draft.rows(goal.topics, lambda replicas: not leaving.isdisjoint(replicas)):
        origin = draft.view.assignments[row].replicas
        target = _replaced(draft, origin, leaving)
        if target is None:
            draft.refuse_crowded(topic, row, len(origin))
        else:
            draft.move(topic, row, draft.arranged(origin, target))


def _replaced(draft: PlanDraft, origin: Replicas, leaving: frozenset[int]) -> list[int] | None:
    """Returns the replicas with others in the places of those that leave; None where brokers are too few."""
    target, beside = list(origin), [b for b in origin if b not in leaving]
    for at, broker in enumerate(origin):
        if broker in leaving:
            found = draft.pick(beside)
            if found is None:
                return None
            target[at] = found
            beside.append(found)
    return target


def draw_racks(draft: PlanDraft, goal: RestoreRacks) -> None:
    """Draws moves of replicas that share a rack, to racks without a replica of the partition."""
    draft.check_topics(goal.topics)
    live = [broker for broker in draft.view.brokers.values() if broker.live]
    bare = [broker.id for broker in live if not broker.rack]
    if bare:
        brokers = "no live broker has" if len(bare) == len(live) else f"brokers [{listed(bare)}] do not have"
        draft.refuse("racks", f"{brokers} a rack: set broker.rack on all brokers")
    if draft.refused:
        return
    for topic, row in draft.rows(goal.topics, lambda replicas: draft.racks.missing(replicas) > 0):
        origin = draft.view.assignments[row].replicas
        draft.move(topic, row, draft.arranged(origin, _spread(draft, origin)))


def _spread(draft: PlanDraft, origin: Replicas) -> list[int]:
    """Returns the replicas on as many racks as they can be; those of the most loaded brokers move, the first last."""
    target, racks = list(origin), draft.racks
    while racks.missing(target) > 0:
        found = draft.pick(target)
        places = [racks.of(b) for b in target]
        shared = [at for at, rack in enumerate(places) if places.count(rack) > 1]
        if found is None:
            break
        leaves = max(shared, key=lambda at: (at != 0, draft.loads.replicas[target[at]], -at))
        target[leaves] = found
    return target


FACTOR_MAX: Final = 2**15 - 1
"""Largest replication factor (Kafka's int16)."""


def draw_factor(draft: PlanDraft, goal: ReplicationFactor) -> None:
    """Draws replicas on the least loaded brokers that racks allow, or drops those of the most loaded ones.

    The first replica is never dropped. A partition is refused where no live replica would stay.
    """
    draft.check_topics(goal.topics)
    if not 1 <= goal.factor <= FACTOR_MAX:
        draft.refuse("factor", f"factor = {goal.factor}: give 1 to {FACTOR_MAX}")
    if draft.refused:
        return
    topics = []
    for topic in sorted(set(goal.topics)):
        if goal.factor >= (least := draft.view.min_isr_of(topic)):
            topics.append(topic)
        else:
            why = f"factor = {goal.factor} is below min.insync.replicas = {least}: give {least}, or lower the setting"
            draft.refuse(f"topic {topic}", why)
    for topic, row in draft.rows(tuple(topics), lambda replicas: len(replicas) != goal.factor):
        origin = draft.view.assignments[row].replicas
        if goal.factor > len(origin):
            _grow(draft, topic, row, goal.factor)
        else:
            _shrink(draft, topic, row, goal.factor)


def _grow(draft: PlanDraft, topic: str, row: int, factor: int) -> None:
    origin = draft.view.assignments[row].replicas
    target = list(origin)
    while len(target) < factor:
        found = draft.pick(target)
        if found is None:
            draft.refuse_crowded(topic, row, factor)
            return
        target.append(found)
    draft.move(topic, row, draft.arranged(origin, target))


def _shrink(draft: PlanDraft, topic: str, row: int, factor: int) -> None:
    origin, live = draft.view.assignments[row].replicas, draft.view.is_live
    target = list(origin)
    while len(target) > factor:
        target.remove(_spare(draft, target))
    if any(map(live, target)):
        draft.move(topic, row, tuple(target))
    else:
        why = f"factor = {factor}: its first replica, which stays, is not live: start broker {origin[0]}"
        draft.refuse(f"{topic}-{draft.view.partitions[row]}", why)


def _spare(draft: PlanDraft, replicas: list[int]) -> int:
    """Returns the replica to drop: a dead one, else one that shares a rack, else that of the most loaded broker."""
    places = [draft.racks.of(b) for b in replicas]

    def weight(at: int) -> tuple[bool, bool, int, int]:
        broker = replicas[at]
        shares = places.count(places[at]) > 1
        return not draft.view.is_live(broker), shares, draft.loads.replicas[broker], at

    return replicas[max(range(1, len(replicas)), key=weight)]


def plan(view: ClusterView, goal: Goal) -> Plan:
    """Plans ``goal``; the result has at most one move for each partition.

    A goal that is wrong itself (an unknown broker, no topic) has refusals and no move. Partitions that cannot move are
    refused one by one, also where a reassignment of theirs is under way or their topic is being deleted.
    """
    given = goal
    if not isinstance(goal, Target | Undo | ReplicationFactor):
        goal = replace(goal, topics=chosen_topics(goal.topics, view.topics))
    elif isinstance(goal, ReplicationFactor):
        goal = replace(goal, topics=chosen_topics(goal.topics, view.topics) or ())
    draft = PlanDraft(view, goal.brokers if isinstance(goal, Decommission) else ())
    match goal:
        case Target():
            draw_targets(draft, goal)
        case Decommission():
            draw_decommission(draft, goal)
        case Add():
            draw_added(draft, goal)
        case ReplicationFactor():
            draw_factor(draft, goal)
        case RestoreRacks():
            draw_racks(draft, goal)
        case Rebalance():
            draw_rebalance(draft, goal)
        case Undo():
            draw_undo(draft, goal)
    return draft.finish(in_words(given))
