"""Clusters for tests of the planner, in one line each or drawn, and what a plan makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from state_machines.model.cluster import Cluster
from state_machines.model.types import Assignment, TopicAssignment
from state_machines.planning.cluster_view import ClusterView, view_of
from state_machines.planning.goals import Add, Decommission, Goal, Rebalance, ReplicationFactor, RestoreRacks
from state_machines.planning.plan import Move, Plan
from tests.kit.kafka.model import broker

CLUSTER_ID = "QkfA2lF2T1mYhUvqVCLIuA"
DAEMON = 1_000_000
Replicas = tuple[int, ...]


def make_view(
    racks: Mapping[int, str | None],
    topics: Mapping[str, Sequence[Replicas | Assignment]],
    *,
    dead: Collection[int] = (),
    stopping: Collection[int] = (),
    cordoned: Collection[int] = (),
    deleting: Collection[str] = (),
    sizes: Mapping[tuple[str, int], int] | None = None,
    min_isr: Mapping[str, int] | None = None,
) -> ClusterView:
    """Makes the view of a model with partitions 0, 1, ... of each topic; ``racks`` by broker."""
    cluster = Cluster(7, daemons=frozenset({DAEMON}))
    cluster.observe_brokers({b: broker(b, rack=rack) for b, rack in racks.items() if b not in dead})
    for b in stopping:
        cluster.observe_shutting_down(b)
    for name, placed in topics.items():
        found = {p: r if isinstance(r, Assignment) else Assignment(r) for p, r in enumerate(placed)}
        cluster.observe_topic(TopicAssignment(name, None, found, 0, 50))
    cluster.observe_deletions(deleting)
    return view_of(cluster, CLUSTER_ID, sizes=sizes, min_isr=min_isr, cordoned=cordoned)


def assigned(view: ClusterView) -> dict[tuple[str, int], Assignment]:
    """Returns the assignments by topic and partition."""
    return {(t, view.partitions[row]): view.assignments[row] for t, rows in view.topics.items() for row in rows}


def moves_of(plan: Plan) -> dict[str, tuple[Replicas, Replicas]]:
    """Returns origin and target by partition."""
    return {move.name: (move.origin, move.target) for move in plan.moves}


def refusals_of(plan: Plan) -> list[tuple[str, str]]:
    """Returns the refusals as pairs."""
    return [(refused.subject, refused.why) for refused in plan.refused]


def moved(view: ClusterView, moves: Collection[Move]) -> ClusterView:
    """Returns the view once all moves are complete."""
    targets = {(move.topic, move.partition): move.target for move in moves}
    after = [Assignment(targets[name]) if name in targets else known for name, known in assigned(view).items()]
    return replace(view, assignments=after)


def counts_of(view: ClusterView) -> Counter[int]:
    """Counts replicas by broker, of the targets of reassignments."""
    return Counter(b for assignment in view.assignments for b in assignment.target)


def rack_of(view: ClusterView, b: int) -> str | int:
    """Returns a broker's rack: all live ones without a rack share one, an absent one has its own."""
    known = view.brokers.get(b)
    if known is None or (known.rack is None and not known.live):
        return b
    return known.rack or ""


def racks_of(view: ClusterView, replicas: Collection[int]) -> set[str | int]:
    """Returns the distinct racks of replicas."""
    return {rack_of(view, b) for b in replicas}


def hosts_of(view: ClusterView, goal: Goal) -> set[int]:
    """Returns the brokers on which a plan may place replicas."""
    leaving = goal.brokers if isinstance(goal, Decommission) else ()
    return {b for b, known in view.brokers.items() if known.live and not known.cordoned and b not in leaving}


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    """Draws clusters of up to 7 brokers and 3 topics, with and without racks, dead brokers and the like."""
    ids = range(1, draw(st.integers(1, 7)) + 1)
    racked = draw(st.sampled_from(["abc", "abcd", "a", None, ("a", "b", None)]))
    racks = {b: draw(st.sampled_from(racked)) if racked else None for b in ids}
    some = st.lists(st.sampled_from(ids), max_size=2)
    orders = st.sampled_from(draw(st.lists(st.permutations(ids), min_size=1, max_size=6)))
    topics: dict[str, list[Replicas | Assignment]] = {}
    for name in ("a", "b", "c")[: draw(st.integers(1, 3))]:
        factor = draw(st.integers(1, min(4, len(ids))))
        placed = [tuple(found[:factor]) for found in draw(st.lists(orders, max_size=9))]
        topics[name] = list(placed)
        if placed and draw(st.integers(0, 3)) == 0:
            topics[name][0] = Assignment(placed[0]).reassigned_to(placed[-1])
        if placed and draw(st.integers(0, 9)) == 0:
            topics[name].append((DAEMON,))
    names = [(t, p) for t, placed in topics.items() for p in range(len(placed))]
    return make_view(
        racks,
        topics,
        dead=draw(st.just([]) | some),
        cordoned=draw(st.just([]) | some),
        deleting=draw(st.just([]) | st.lists(st.sampled_from(sorted(topics)), max_size=1)),
        sizes=draw(st.dictionaries(st.sampled_from(names), st.integers(0, 5))) if names else None,
        min_isr=draw(st.dictionaries(st.sampled_from(sorted(topics)), st.integers(1, 3))),
    )


def goals(view: ClusterView, *kinds: type) -> st.SearchStrategy[Goal]:
    """Draws goals for a cluster, of any of ``kinds``; all brokers and topics exist."""
    known = [*view.brokers] or [99]
    brokers = st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True).map(tuple)
    hosts = [b for b in view.brokers if view.why_no_host(b) is None] or known
    added = st.lists(st.sampled_from(hosts), min_size=1, max_size=3, unique=True).map(tuple)
    names = st.lists(st.sampled_from([*view.topics]), min_size=1, unique=True).map(tuple)
    limits = st.none() | names
    drawn: dict[type, st.SearchStrategy[Goal]] = {
        Decommission: st.builds(Decommission, brokers, limits),
        Add: st.builds(Add, added, limits),
        ReplicationFactor: st.builds(ReplicationFactor, names, st.integers(1, 5)),
        RestoreRacks: st.builds(RestoreRacks, limits),
        Rebalance: st.builds(Rebalance, limits),
    }
    return st.one_of([drawn[kind] for kind in kinds or drawn])
