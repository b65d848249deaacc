"""Draws moves of replicas that leave their broker: it is decommissioned, or shares a rack with another replica."""

from __future__ import annotations

from state_machines.planning.drafting import PlanDraft, Replicas
from state_machines.planning.goals import Decommission, RestoreRacks, listed


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
