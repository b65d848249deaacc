"""Plans: a goal and a view of the cluster give a plan. The same ones always give the same plan.

The planner counts replicas, not bytes or traffic: even counts, racks kept, few bytes moved, first replicas spread.
"""

from __future__ import annotations

from msgspec.structs import replace

from state_machines.planning.balancing import draw_added
from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.drafting import PlanDraft
from state_machines.planning.goals import (
    Add,
    Decommission,
    Goal,
    Rebalance,
    ReplicationFactor,
    RestoreRacks,
    Target,
    Undo,
    in_words,
)
from state_machines.planning.plan import Plan
from state_machines.planning.rebalancing import draw_rebalance
from state_machines.planning.relocating import draw_decommission, draw_racks
from state_machines.planning.resizing import draw_factor
from state_machines.planning.targets import draw_targets
from state_machines.planning.topics import chosen_topics
from state_machines.planning.undoing import draw_undo


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
