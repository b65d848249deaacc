"""Balances the cluster as a plan of ``regent reassign plan`` sees it: by replicas, leaders, topics and disks."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.planner.arrays import Array, np
from pipeline.planner.output import GOAL_WORDS
from pipeline.planner.planning import planned
from pipeline.planner.problem import MAY_MOVE, Brokers, Problem
from pipeline.planner.unmet import unmet
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.drafting import DELETING, MOVING, PlanDraft
from state_machines.planning.goals import Topics, chosen_topics, listed
from state_machines.planning.plan import Plan

WHY_STUCK = ("", MOVING, DELETING, "its topic is left out", "none of its replicas is live: start one")
_MOVING, _DELETING, _LEFT_OUT, _LOST = range(1, len(WHY_STUCK))


def balanced(view: ClusterView, topics: Topics, seeds: int = 4) -> Plan:
    """Plans moves that balance all brokers that may take replicas; ``topics``: only these move.

    Refusals name hard goals that cannot be reached, and topics that do not exist.
    """
    draft = PlanDraft(view)
    chosen = chosen_topics(topics, view.topics)
    draft.check_topics(chosen)
    if not draft.hosts:
        draft.refuse("brokers", "no broker may take replicas: start one, or uncordon one")
    if draft.refused or not view.partitions:
        return draft.finish(GOAL_WORDS)
    problem = problem_of_view(view, None if chosen is None else frozenset(chosen))
    found = planned(problem, seeds)
    ids = problem.brokers.ids
    for row in found.rows.tolist():
        target = tuple(int(ids[at]) for at in found.best.replicas[row] if at >= 0)
        draft.move(problem.topics[problem.topic[row]], row, target)
    for one in unmet(found):
        draft.refuse(listed(one.named), f"{one.goal}: {one.why}")
    return draft.finish(GOAL_WORDS)


def problem_of_view(view: ClusterView, chosen: frozenset[str] | None) -> Problem:
    """Returns the problem; its rows are those of the view. ``chosen``: topics that move. No traffic is known."""
    ids = np.array(sorted(view.brokers), np.int32)
    place = {int(broker): at for at, broker in enumerate(ids)}
    width = max((len(one.replicas) for one in view.assignments), default=1)
    replicas = np.full((len(view.partitions), width), -1, np.int32)
    for row, assignment in enumerate(view.assignments):
        for at, broker in enumerate(assignment.replicas):
            replicas[row, at] = place[broker]
    topic, size = np.zeros(len(replicas), np.int32), np.full(len(replicas), np.nan)
    for at, (name, rows) in enumerate(view.topics.items()):
        topic[rows.start : rows.stop] = at
        for row in rows:
            size[row] = view.sizes.get((name, view.partitions[row]), np.nan)
    none = np.full(len(replicas), np.nan)
    return Problem(
        cluster_id=view.cluster_id,
        topics=tuple(view.topics),
        topic=topic,
        partition=np.array(view.partitions, np.int32),
        replicas=replicas,
        size=size,
        bytes_in=none,
        bytes_out=none.copy(),
        stuck=np.fromiter(_stuck(view, chosen), np.int8, len(replicas)),
        brokers=_brokers(view, ids),
        why_stuck=WHY_STUCK,
    )


def _stuck(view: ClusterView, chosen: frozenset[str] | None) -> Iterator[int]:
    for name, rows in view.topics.items():
        for row in rows:
            assignment = view.assignments[row]
            if name in view.deleting:
                yield _DELETING
            elif assignment.moving:
                yield _MOVING
            elif chosen is not None and name not in chosen:
                yield _LEFT_OUT
            else:
                yield MAY_MOVE if any(map(view.is_live, assignment.replicas)) else _LOST


def _brokers(view: ClusterView, ids: Array) -> Brokers:
    """Returns the brokers as arrays. Those without a rack share one; that of an absent broker is one of its own."""
    known = [view.brokers[int(broker)] for broker in ids]
    keys = [one.rack or ("" if one.live else one.id) for one in known]
    number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    unknown = np.full(len(known), np.inf)
    return Brokers(
        ids=ids,
        rack=np.array([number[key] for key in keys], np.int32),
        live=np.array([one.live for one in known], bool),
        retiring=np.zeros(len(known), bool),
        excluded=np.array([one.cordoned for one in known], bool),
        disk=unknown,
        bytes_in=unknown,
        bytes_out=unknown,
        cpu=unknown,
    )
