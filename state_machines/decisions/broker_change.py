"""Decides what a broker's death, return, shutdown and failed log directories change (``onBrokerFailure``, KIP-112).

The caller observes the registrations first: the model then knows the live brokers.

A broker whose log directory fails goes on running. It names itself in a notification, and responds to LeaderAndIsr with
KAFKA_STORAGE_ERROR for the lost replicas. They are offline until the broker starts anew.

A shutdown takes two decisions. Clients wait for the new leaders, so these are committed and sent before the followers.
Followers that leaders want in the ISR afterwards are kept out by a decision of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct

from state_machines.decisions.alter_partition import IsrRequest
from state_machines.machines import selectors
from state_machines.machines.draft import Draft
from state_machines.machines.partition import PartitionStateMachine, Unclean, never_unclean
from state_machines.machines.replica import ReplicaStateMachine
from state_machines.model.cluster import Cluster
from state_machines.model.types import NO_VERSION, Broker, PartitionState, ReplicaState

LEADER_DIED = "the leader's broker died"
REPLICA_DIED = "a replica's broker died"


class BrokerDelta(Struct, frozen=True):
    """Lists the differences of the registrations from the model.

    ``modified`` brokers keep their broker epoch, with other data.
    """

    new: tuple[int, ...]
    dead: tuple[int, ...]
    bounced: tuple[int, ...]
    modified: tuple[int, ...]

    @property
    def empty(self) -> bool:
        """Checks whether nothing changed."""
        return not (self.new or self.dead or self.bounced or self.modified)


def compare(known: Mapping[int, Broker], found: Mapping[int, Broker]) -> BrokerDelta:
    """Returns the new, dead, bounced (other broker epoch, KIP-380) and modified brokers in ``found``."""
    both = sorted(known.keys() & found.keys())
    return BrokerDelta(
        tuple(sorted(found.keys() - known.keys())),
        tuple(sorted(known.keys() - found.keys())),
        tuple(b for b in both if found[b].epoch != known[b].epoch),
        tuple(b for b in both if found[b].epoch == known[b].epoch and found[b] != known[b]),
    )


def touched_by_death(cluster: Cluster, dead: Collection[int]) -> list[int]:
    """Returns the rows that :func:`broker_death` may change, those first that have no leader.

    Reads the leader of every row, because a znode written by hand may name a leader outside of the assignment.
    """
    gone = PartitionState.NON_EXISTENT
    led = [
        i for i, row in enumerate(cluster.rows) if row.leader in dead and row.has_leadership and row.state is not gone
    ]
    first = dict.fromkeys((*led, *sorted(cluster.leaderless)))
    for broker in sorted(dead):
        first.update(dict.fromkeys(cluster.hosted(broker)))
    return list(first)


def broker_death(
    draft: Draft, dead: Collection[int], unclean: Unclean = never_unclean, rows: Sequence[int] | None = None
) -> None:
    """Takes the partitions that ``dead`` lead offline and elects leaders where none is left.

    Then takes all replicas on ``dead`` offline. ``rows``: some of :func:`touched_by_death`; None: all of them.
    """
    table, leaderless, gone = draft.rows, draft.cluster.leaderless, PartitionState.NON_EXISTENT
    rows = touched_by_death(draft.cluster, dead) if rows is None else rows
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    led = [i for i in rows if table[i].leader in dead and table[i].has_leadership and table[i].state is not gone]
    partitions.take_offline(led, LEADER_DIED)
    waiting = leaderless.intersection(rows).difference(led)
    partitions.elect_leaderless(led + sorted(waiting), unclean)
    for broker in sorted(dead):
        hosted = [i for i in rows if broker in table[i].assignment.replicas and table[i].state is not gone]
        replicas.take_offline(broker, sorted(hosted), REPLICA_DIED)


def touched_by_return(cluster: Cluster, returned: Collection[int]) -> list[int]:
    """Returns the rows that :func:`broker_return` may change or send, those first that have no leader."""
    first = dict.fromkeys(sorted(cluster.leaderless))
    for broker in sorted(returned):
        first.update(dict.fromkeys(cluster.hosted(broker)))
    return list(first)


def broker_return(
    draft: Draft, returned: Collection[int], unclean: Unclean = never_unclean, rows: Sequence[int] | None = None
) -> None:
    """Sends metadata of the partitions on ``returned``, then elects leaders for leaderless ones.

    The replicas on ``returned`` are online because their brokers are registered. ``rows``: some of
    :func:`touched_by_return`; None: all of them.
    """
    table, gone = draft.rows, PartitionState.NON_EXISTENT
    rows = touched_by_return(draft.cluster, returned) if rows is None else rows
    for broker in sorted(returned):
        draft.send_metadata(i for i in rows if broker in table[i].assignment.replicas and table[i].state is not gone)
    PartitionStateMachine(draft).elect_leaderless(sorted(draft.cluster.leaderless.intersection(rows)), unclean)


LEADER_FAILED = "the leader's log directory failed"
REPLICA_FAILED = "its log directory failed"


def log_directories_failed(draft: Draft, failed: Mapping[int, Sequence[int]], unclean: Unclean = never_unclean) -> None:
    """Draws failed log directories after :meth:`Cluster.observe_failed_dirs`; ``failed``: rows by broker.

    As at a broker's death, partitions that it led are elected, then the replicas go offline. Replicas of topics that
    are being deleted wait for the responses of their deletion.
    """
    partitions, replicas = PartitionStateMachine(draft), ReplicaStateMachine(draft)
    present = {
        broker: [i for i in rows if draft.row(i).state is not PartitionState.NON_EXISTENT]
        for broker, rows in failed.items()
    }
    led = sorted({i for broker, rows in present.items() for i in rows if draft.row(i).leader == broker})
    partitions.take_offline(led, LEADER_FAILED)
    partitions.elect_leaderless(sorted(draft.cluster.leaderless.union(led)), unclean)
    for broker, rows in sorted(present.items()):
        replicas.take_offline(broker, rows, REPLICA_FAILED)


LEAVES = "a replica's broker shuts down"
KEPT_OUT = "its broker shuts down: the replica is kept out of the ISR"
STAYS = "the shutdown of the replica's broker is undone"


def controlled_shutdown(draft: Draft, broker: int) -> None:
    """Draws both decisions as one, where nothing is committed between them."""
    move_leaders(draft, broker)
    stop_followers(draft, broker)


def move_leaders(draft: Draft, broker: int, rows: Iterable[int] | None = None) -> None:
    """Moves the broker's leaderships to other ISR members; single-replica partitions are left alone.

    ``rows``: some of those that the broker hosts; None: all of them.
    """
    cluster = draft.cluster
    led = [i for i in _replicated(draft, broker, rows) if draft.rows[i].leader == broker]
    select = partial(selectors.controlled_shutdown, registered=cluster.brokers, shutting_down=cluster.shutting_down)
    PartitionStateMachine(draft).elect(led, selectors.last(select, draft.outranked, draft.drained))


def stop_followers(
    draft: Draft,
    broker: int,
    moved: Collection[int] = (),
    *,
    may_be_undone: bool = False,
    rows: Iterable[int] | None = None,
) -> None:
    """Stops the broker's followers, but for the rows whose leadership it has just given away.

    ``may_be_undone``: only those that leave the ISR, which raises the leader epoch. Brokers ignore LeaderAndIsr with an
    epoch that they know, so the others would not follow again before their broker restarts. These, and the leaders that
    moved, follow on until :func:`keep_out`. ``rows``: some of those that the broker hosts; None: all of them.
    """
    table = draft.rows
    followed = [i for i in _replicated(draft, broker, rows) if table[i].leader != broker and i not in moved]
    if may_be_undone:
        followed = [i for i in followed if broker in table[i].isr and len(table[i].isr) > 1]
    ReplicaStateMachine(draft).take_offline(broker, followed, LEAVES)


def proposed(cluster: Cluster, refused: Iterable[IsrRequest]) -> dict[int, dict[int, int]]:
    """Returns the followers on brokers in their shutdown that leaders want in the ISR: leader epochs by broker and row.

    ``refused``: requests that were refused because a replica of theirs may not join the ISR.
    """
    found: dict[int, dict[int, int]] = {}
    for one in refused:
        if one.row is not None:
            for broker in cluster.shutting_down.intersection(one.isr).difference(cluster.rows[one.row].isr):
                found.setdefault(broker, {})[one.row] = one.leader_epoch
    return found


def keep_out(draft: Draft, broker: int, fetching: Mapping[int, int]) -> None:
    """Stops followers that a leader wants in the ISR, by row and leader epoch, and raises these epochs.

    A leader counts such a follower as in sync until the refusal, which completes no request that waits for it; the
    new epoch does. It also fences the follower's fetches. That it fetched in the epoch shows that its broker knows
    it, so LeaderAndIsr with the new epoch can begin it again.
    """
    rows, machine = draft.rows, ReplicaStateMachine(draft)
    able = machine.VALID_PREVIOUS[ReplicaState.OFFLINE]
    led = [
        i for i, epoch in fetching.items() if rows[i].state is PartitionState.ONLINE and rows[i].leader_epoch == epoch
    ]
    kept = [i for i in led if broker not in rows[i].isr and draft.replica(i, broker) in able]
    for i in kept:
        draft.renew(i, rows[i].leader, rows[i].isr, KEPT_OUT)
    machine.take_offline(broker, kept, KEPT_OUT)


def shutdown_undone(draft: Draft, broker: int, unclean: Unclean = never_unclean) -> None:
    """Lets the stopped followers of a broker follow again, and elects leaders where none is left.

    The model knows the broker as live by then. Replicas on failed log directories stay offline, and so do those of
    topics whose deletion has begun. One that waits for a reassignment needs its replicas.
    """
    cluster = draft.cluster
    rows = cluster.hosted(broker)
    stopped = [i for i in rows if draft.replica(i, broker) is ReplicaState.OFFLINE and broker not in cluster.failed(i)]
    ReplicaStateMachine(draft).bring_online([(i, broker) for i in stopped], STAYS)
    draft.send_metadata(rows)
    PartitionStateMachine(draft).elect_leaderless(sorted(cluster.leaderless), unclean)


def _replicated(draft: Draft, broker: int, rows: Iterable[int] | None) -> list[int]:
    table = draft.rows
    return [
        i
        for i in (draft.cluster.hosted(broker) if rows is None else rows)
        if table[i].version != NO_VERSION and len(table[i].assignment.replicas) > 1
    ]


def remaining(cluster: Cluster, broker: int) -> list[int]:
    """Returns the rows that the broker still leads and another broker could: the response to ControlledShutdown."""
    rows = cluster.rows
    led = [i for i in cluster.hosted(broker) if rows[i].leader == broker]
    return [i for i in led if len(rows[i].assignment.replicas) > 1 and rows[i].has_leadership]
