"""Words the reasons of a partition's state, and the events that would change it, in ordinary sentences.

It applies the election rules themselves (:mod:`state_machines.machines.selectors`) to the present row, so that an
explanation cannot differ from a decision. It is pure: values in, text out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from msgspec import Struct

from brokers.wire.errors import Error, error_name
from controller.operator.deletions import deletion_of_row
from controller.process.wording import counted
from state_machines.decisions.reassignment import is_complete
from state_machines.machines import selectors
from state_machines.machines.selectors import Election, NoLeader, Selector
from state_machines.model.cluster import Cluster
from state_machines.model.min_isr import required, under
from state_machines.model.refusals import Refusal
from state_machines.model.types import NO_LEADER, PartitionRow, PartitionState, ReplicaState

STATES = {
    PartitionState.NEW: "assigned, and never led yet",
    PartitionState.ONLINE: "its leader is registered",
    PartitionState.OFFLINE: "it was led, and its leader is gone",
    PartitionState.NON_EXISTENT: "its state znode cannot be used and nothing is decided (see the daemon's log)",
}
Since = Mapping[int, str]
NOT_KNOWN: Final[Since] = {}
DELETED = "its topic is being deleted, and brokers are sent that it is gone"
NO_ISR = "there is none: its topic is being deleted"
LEAVING = "its leader has just gone, and an election is under way"

REFUSING_SHOWN_MAX: Final = 10
"""Brokers that a status names; the others are counted."""
LIST_REFUSED: Final = "regent list partitions --refused"
ANOTHER_ID: Final = "the log there has another topic id than the topic's znode, as of an earlier topic of this name"


class Explained(Struct, frozen=True):
    """The explanation of one partition."""

    state: str
    leader: str
    isr: str
    would_change: list[str]


def explain(
    cluster: Cluster,
    i: int,
    *,
    unclean: bool,
    last: str | None = None,
    min_isr: int | None = None,
    since: Since = NOT_KNOWN,
) -> Explained:
    """Explains row ``i``.

    ``unclean``: whether its topic allows an unclean election; ``last``: the last change; ``min_isr``: the topic's
    ``min.insync.replicas``, None while it is unknown; ``since``: of dead brokers, since when, in words after "dead".
    """
    row = cluster.rows[i]
    if row.topic in cluster.deletions and row.state is PartitionState.NON_EXISTENT:
        return Explained(
            f"{row.state.name}: {DELETED}", "nobody leads it any more", NO_ISR, [deletion_of_row(cluster, i)]
        )
    leaving = row.state is PartitionState.ONLINE and row.leader not in cluster.brokers
    state = f"{row.state.name}: {LEAVING if leaving else STATES[row.state]}"
    least = None if min_isr is None else required(row, min_isr)
    changes = _would_change(cluster, i, unclean, least)
    deleted = [deletion_of_row(cluster, i)] if row.topic in cluster.deletions else []
    would_change = [*deleted, *ways_out(cluster, i), *changes, *_would_end(cluster, i, row, since)]
    isr = _isr(cluster, i, row, since) + _waiting(row, min_isr)
    return Explained(state, _leader(cluster, i, unclean, last, since), isr, would_change)


def _leader(cluster: Cluster, i: int, unclean: bool, last: str | None, since: Since) -> str:
    row = cluster.rows[i]
    if row.state is PartitionState.NON_EXISTENT:
        return "no leader is known"
    if row.state is not PartitionState.ONLINE:
        return _leaderless(cluster, i, unclean, since)
    text = f"broker {row.leader} leads at leader epoch {row.leader_epoch}; {_preference(cluster, i)}"
    if (refusal := cluster.refusals.of(i, row.leader)) is not None:
        text = f"broker {row.leader} is to lead at leader epoch {row.leader_epoch}, and {cause(refusal)}; nobody leads"
    if row.recovering:
        text += "; it was elected uncleanly and is still recovering"
    when = "in this term" if row.controller_epoch == cluster.epoch else f"at controller epoch {row.controller_epoch}"
    return f"{text}; decided {when}" + (f"; last change: {last}" if last else "")


def _leaderless(cluster: Cluster, i: int, unclean: bool, since: Since) -> str:
    row, found = cluster.rows[i], _elected(cluster, i, cluster.live, unclean)
    why = found.why if isinstance(found, NoLeader) else f"broker {found.leader} is about to be elected ({found.why})"
    before = (
        f"no leader since broker {row.leader} is gone{_dead(row.leader, since)}"
        if row.has_leadership and row.leader != NO_LEADER
        else ("no leader" if row.has_leadership else "no leader yet")
    )
    return f"{before}: {why}"


def _preference(cluster: Cluster, i: int) -> str:
    row = cluster.rows[i]
    first = row.assignment.replicas[0]
    if row.leader == first:
        return "it is the preferred replica, the first of the assignment"
    found = _preferred(cluster, i)
    if isinstance(found, NoLeader):
        return f"broker {first} would be preferred, but {found.why}"
    return f"broker {first} would be preferred and could lead; the automatic balance or an election by request helps"


def _isr(cluster: Cluster, i: int, row: PartitionRow, since: Since) -> str:
    if not row.has_leadership:
        return "there is none until a leader is elected"
    missing = [r for r in row.assignment.replicas if r not in row.isr]
    foreign = [r for r in row.isr if r not in row.assignment.replicas]
    text = f"in sync are {_ids(row.isr)}"
    if not missing:
        text += ", all replicas"
    for broker in missing:
        text += f"; {broker} is not: {_why_missing(cluster, i, row, broker, since)}"
    for broker in cluster.refusals.refusing(i, row.isr):
        text += f"; {broker} is in it, and follows nobody: the broker refuses the partition"
    if foreign:
        text += f"; {_ids(foreign)} in it is not assigned, which another writer did"
    return text


def _waiting(row: PartitionRow, min_isr: int | None) -> str:
    if min_isr is None or not row.has_leadership or not under(row, min_isr):
        return ""
    return f"; acks=all producers wait: {len(row.isr)} of {required(row, min_isr)} required replicas in sync"


def _why_missing(cluster: Cluster, i: int, row: PartitionRow, broker: int, since: Since) -> str:
    if broker not in cluster.brokers:
        return f"its broker is dead{when}" if (when := since.get(broker)) else "its broker is not registered"
    if broker in cluster.failed(i):
        return "its log directory failed; it is offline until its broker is restarted"
    if broker in cluster.shutting_down:
        return "its broker shuts down"
    if (refusal := cluster.refusals.of(i, broker)) is not None:
        return cause(refusal)
    if cluster.replica_state(i, broker) is not ReplicaState.ONLINE:
        return f"the replica is {cluster.replica_state(i, broker).name}"
    if row.state is not PartitionState.ONLINE:
        return "only a leader can add it"
    return f"it has not caught up with broker {row.leader}, which adds it by itself once it has"


def _dead(broker: int, since: Since) -> str:
    """Returns since when a broker is dead, in brackets; empty where that is not known."""
    return f" (dead{when})" if (when := since.get(broker)) else ""


def _would_change(cluster: Cluster, i: int, unclean: bool, least: int | None) -> Iterable[str]:
    row = cluster.rows[i]
    if row.state is PartitionState.NON_EXISTENT:
        yield "repairing or deleting its state znode: the daemon notices that at once"
    elif row.state is PartitionState.ONLINE:
        yield from _would_move(cluster, i, unclean, least)
    else:
        yield from _would_elect(cluster, i, unclean, least)


def _would_move(cluster: Cluster, i: int, unclean: bool, least: int | None) -> Iterable[str]:
    row, down = cluster.rows[i], cluster.failed(i)
    leader, replicas = row.leader, row.assignment.replicas
    found = _elected(cluster, i, cluster.live - {leader}, unclean)
    yield f"if broker {leader} dies, {_outcome(found, least)}"
    if len(replicas) == 1:
        yield f"if broker {leader} shuts down, the partition goes offline with it: it has no other replica"
    else:
        leaving = cluster.shutting_down | {leader}
        select = partial(selectors.controlled_shutdown, registered=cluster.brokers, shutting_down=leaving)
        moved = selectors.last(select, cluster.outranked, cluster.drained)(replicas, row.isr, down)
        yield f"if broker {leader} shuts down, {_outcome(moved, least)}"
    if leader != replicas[0]:
        moved = _preferred(cluster, i)
        if isinstance(moved, NoLeader):
            yield f"a preferred election would be refused: {moved.why}"
        else:
            yield f"at the next preferred election, automatic or by request, {_outcome(moved, least)}"


def _would_elect(cluster: Cluster, i: int, unclean: bool, least: int | None) -> Iterable[str]:
    row, down = cluster.rows[i], cluster.failed(i)
    for broker in row.assignment.replicas:
        if broker not in cluster.live or broker in down:
            found = _elected(cluster, i, cluster.live | {broker}, unclean, down - {broker})
            if isinstance(found, Election):
                returns = "is restarted with a sound log directory" if broker in down else "returns"
                yield f"if broker {broker} {returns}, {_outcome(found, least)}"
    if row.has_leadership and not unclean:
        found = _elected(cluster, i, cluster.live, unclean=True)
        if isinstance(found, Election) and found.unclean:
            lost = f"records that only {_ids(row.isr)} hold are lost"
            yield f"if an unclean election is allowed, {_outcome(found, least)}; {lost}"


def _would_end(cluster: Cluster, i: int, row: PartitionRow, since: Since) -> Iterable[str]:
    """Yields the condition that a reassignment waits for."""
    written = cluster.reassigning.get(i)
    if written is None:
        return
    behind = [b for b in written.target if b not in row.isr]
    away = [b for b in behind if b not in cluster.live]
    text = f"it is being reassigned to {_ids(written.target)}"
    if is_complete(cluster, i):
        yield f"{text}, and all but done: the removed replicas stop, then its topic znode is written"
    elif away:
        named = ", ".join(f"{broker}{_dead(broker, since)}" for broker in away)
        yield f"{text}, which waits for broker {named}: start it, or cancel the reassignment"
    elif behind:
        yield f"{text}, which ends once {_ids(behind)} is in sync"
    else:
        yield f"{text}, which ends once one of them that is in sync can lead"


def _elected(
    cluster: Cluster, i: int, live: Collection[int], unclean: bool, down: Collection[int] | None = None
) -> Election | NoLeader:
    """Applies the rule that elects a leader for a leaderless partition: the initial rule where it never had one."""
    row, offline = cluster.rows[i], cluster.failed(i) if down is None else down
    rule: Selector = partial(selectors.initial, live=live)
    if row.has_leadership:
        rule = partial(selectors.offline, live=live, unclean=unclean)
    return selectors.last(rule, cluster.outranked, cluster.drained)(row.assignment.replicas, row.isr, offline)


def _preferred(cluster: Cluster, i: int) -> Election | NoLeader:
    row, rule = cluster.rows[i], partial(selectors.preferred, live=cluster.live)
    return selectors.never(rule, cluster.outranked)(row.assignment.replicas, row.isr, cluster.failed(i))


def _outcome(found: Election | NoLeader, least: int | None) -> str:
    """Describes an election. ``least``: replicas in sync that acks=all requires, None while unknown."""
    if isinstance(found, NoLeader):
        return f"no other broker leads: {found.why}"
    text = f"broker {found.leader} leads with the ISR {_ids(found.isr)} ({found.why})"
    if least is None or len(found.isr) >= least:
        return text
    return f"{text}, and acks=all producers wait: {len(found.isr)} of {least} required replicas in sync"


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"


def refused_sentences(cluster: Cluster) -> Iterator[str]:
    """Yields a sentence for each broker that refuses partitions, with the first of them."""
    brokers = cluster.refusals.brokers()
    for broker in brokers[:REFUSING_SHOWN_MAX]:
        rows = cluster.refusals.on(broker)
        first = next(iter(rows))
        count, name, found = counted(len(rows), "partition"), cluster.name(first), rows[first]
        yield (
            f"broker {broker} refuses {count} since {_since(found)} with {error_name(found.error)}, "
            f"the first is {name}: regent explain {name.topic} {name.partition}"
        )
    if len(brokers) > REFUSING_SHOWN_MAX:
        yield f"{len(brokers) - REFUSING_SHOWN_MAX} more brokers refuse partitions: {LIST_REFUSED}"


def cause(found: Refusal) -> str:
    """Returns the error of a refusal with its meaning, and since when it holds."""
    meaning = f"; {ANOTHER_ID}" if found.error == Error.INCONSISTENT_TOPIC_ID else ""
    return f"it refuses the partition with {error_name(found.error)} since {_since(found)}{meaning}"


def ways_out(cluster: Cluster, i: int) -> Iterator[str]:
    """Yields a way out for the brokers that refuse a row; records of an earlier topic stay out of the new one."""
    row, name = cluster.rows[i], cluster.name(i)
    for broker in cluster.refusals.refusing(i, row.assignment.replicas):
        found = cluster.refusals.of(i, broker)
        if found is None:
            continue
        if found.error != Error.INCONSISTENT_TOPIC_ID:
            yield f"broker {broker} may accept it after a restart: its log has the cause"
        else:
            yield (
                f"broker {broker} accepts it without that log: stop it, move the directory {name} out of its log "
                "directories (keep it: it has the earlier topic's records), start it; it copies the partition from the "
                "leader"
            )
    others = [b for b in row.assignment.replicas if cluster.refusals.of(i, b) is None]
    if cluster.refusals and not others:
        yield (
            "all replicas refuse it, so nothing was written to it; deleting the topic deletes the earlier logs, too: "
            "copy them before if their records are needed"
        )


def _since(found: Refusal) -> str:
    return f"{datetime.fromtimestamp(found.since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
