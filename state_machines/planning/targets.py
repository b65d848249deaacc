"""Validates given replicas of partitions, and draws their moves; finds every fault at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from state_machines.planning.cluster_view import ClusterView
from state_machines.planning.drafting import PlanDraft
from state_machines.planning.goals import Target, TargetReplicas, listed
from state_machines.planning.plan import INT32_MAX


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
