"""Selects leaders (Kafka ``PartitionLeaderElectionAlgorithms``) by pure functions of values.

Each takes the partition's replicas in assignment order, its ISR and the replicas that are ``down`` although their
brokers are live (on failed log directories). It returns an :class:`Election`, or a :class:`NoLeader` with the reason.
An ISR is never emptied.

*Outranked* brokers refuse all requests, because they obey a higher controller epoch: a leader there would never know
that it leads. :func:`last` and :func:`never` keep leaderships from them; without such brokers a rule is itself. Leaders
of *drained* brokers were moved away by an operator: :func:`last` spares these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct

Replicas = tuple[int, ...]


class Election(Struct, frozen=True, gc=False):
    """A leader and the ISR it starts with. ``unclean``: it was not in the ISR, records may be lost."""

    leader: int
    isr: Replicas
    why: str
    unclean: bool = False


class NoLeader(Struct, frozen=True, gc=False):
    """No replica qualifies; ``why`` names the remedy."""

    why: str


Selector = Callable[[Replicas, Replicas, Collection[int]], Election | NoLeader]
"""A rule by replicas, ISR, and the replicas that are on failed log directories."""
Load = Callable[[int], float]
"""Returns how much a broker leads, for what it can."""

NEW_PARTITION = "new partition: first live replica leads, all live replicas are in sync"
OFFLINE_IN_ISR = "leader lost: first live replica of the ISR leads"
OFFLINE_UNCLEAN = "unclean election: no ISR member is live, first live replica leads"
PREFERRED = "preferred replica leads"
REASSIGNED = "reassignment: first live target replica of the ISR leads"
SHUTDOWN = "controlled shutdown: first other replica of the ISR leads"
DRAINED = "drain: first live replica of the ISR on another broker leads"
DRAINED_EVENLY = "drain: the live replica of the ISR leads whose broker has the fewest leaders for what it hosts"

_CHOOSING: Final = (NEW_PARTITION, OFFLINE_IN_ISR, OFFLINE_UNCLEAN, REASSIGNED, SHUTDOWN)
PASSED_OVER: Final = {why: f"{why}; brokers that obey a higher controller epoch were passed over" for why in _CHOOSING}
"""Reasons of elections in which outranked brokers come before the new leader."""
SPARED: Final = {why: f"{why}; drained brokers were passed over" for why in (*_CHOOSING, *PASSED_OVER.values())}
"""Reasons of elections in which drained brokers come before the new leader."""
UNCLEAN: Final = frozenset(
    why for why in (OFFLINE_UNCLEAN, *PASSED_OVER.values(), *SPARED.values()) if why.startswith(OFFLINE_UNCLEAN)
)
"""Reasons of unclean elections."""

NO_LIVE_REPLICA = "no replica is live: start one of the assigned brokers"
NO_LIVE_ISR = "no ISR member is live: start one of the ISR's brokers, or allow an unclean election"
NOTHING_LIVE = "no replica is live, in the ISR or not: start one of the assigned brokers"
PREFERRED_DOWN = "the preferred replica is not live: start its broker"
PREFERRED_BEHIND = "the preferred replica is not in the ISR: wait until it has caught up"
NO_TARGET = "no target replica is live and in the ISR: wait until one has caught up"
OUTRANKED = "only brokers that obey a higher controller epoch could lead: restart them"
NO_OTHER_ISR = "no other ISR member can lead: wait until another replica has caught up"
ONLY_AVOIDED = "its other live ISR members are drained, or refuse all requests: undrain one, or move the partition"
ONLY_REPLICA = "it has no other replica: add one, or move it"


def initial(
    replicas: Replicas, _isr: Replicas, down: Collection[int] = (), *, live: Collection[int]
) -> Election | NoLeader:
    """Elects the first live replica; all live replicas are the ISR."""
    isr = tuple(r for r in replicas if r in live and r not in down)
    return Election(isr[0], isr, NEW_PARTITION) if isr else NoLeader(NO_LIVE_REPLICA)


def offline(
    replicas: Replicas, isr: Replicas, down: Collection[int] = (), *, live: Collection[int], unclean: bool = False
) -> Election | NoLeader:
    """Elects the first live ISR member in assignment order; the ISR is cut to its live members.

    ``unclean`` is consulted only when no ISR member is live; then the first live replica leads alone.
    """
    live_isr = tuple(r for r in isr if r in live and r not in down)
    for replica in replicas:
        if replica in live_isr:
            return Election(replica, live_isr, OFFLINE_IN_ISR)
    if not unclean:
        return NoLeader(NO_LIVE_ISR)
    for replica in replicas:
        if replica in live and replica not in down:
            return Election(replica, (replica,), OFFLINE_UNCLEAN, unclean=True)
    return NoLeader(NOTHING_LIVE)


def preferred(
    replicas: Replicas, isr: Replicas, down: Collection[int] = (), *, live: Collection[int]
) -> Election | NoLeader:
    """Elects the first assigned replica, if it is live and in the ISR; the ISR is unchanged."""
    first = replicas[0] if replicas else None
    if first is None or first not in live or first in down:
        return NoLeader(PREFERRED_DOWN)
    return Election(first, isr, PREFERRED) if first in isr else NoLeader(PREFERRED_BEHIND)


def reassigned(
    targets: Replicas, isr: Replicas, down: Collection[int] = (), *, live: Collection[int]
) -> Election | NoLeader:
    """Elects the first target replica that is live and in the ISR; the ISR is unchanged."""
    for replica in targets:
        if replica in live and replica in isr and replica not in down:
            return Election(replica, isr, REASSIGNED)
    return NoLeader(NO_TARGET)


def controlled_shutdown(
    replicas: Replicas,
    isr: Replicas,
    down: Collection[int] = (),
    *,
    registered: Collection[int],
    shutting_down: Collection[int],
) -> Election | NoLeader:
    """Elects an ISR member that is not shutting down; all members that are shutting down leave the ISR."""
    remaining = tuple(r for r in isr if r not in shutting_down)
    for replica in replicas:
        if replica in remaining and replica in registered and replica not in down:
            return Election(replica, remaining, SHUTDOWN)
    return NoLeader(NO_OTHER_ISR)


def drained(
    replicas: Replicas,
    isr: Replicas,
    down: Collection[int] = (),
    *,
    live: Collection[int],
    avoided: Collection[int],
    load: Load | None = None,
) -> Election | NoLeader:
    """Elects a live ISR member that is not among ``avoided``, the first or that of least ``load``; keeps the ISR."""
    able = [replica for replica in replicas if replica in live and replica in isr and replica not in down]
    others = [replica for replica in able if replica not in avoided]
    if others:
        return Election(others[0] if load is None else min(others, key=load), isr, DRAINED_EVENLY if load else DRAINED)
    if len(replicas) == 1:
        return NoLeader(ONLY_REPLICA)
    return NoLeader(ONLY_AVOIDED if len(able) > 1 else NO_OTHER_ISR)


def last(select: Selector, outranked: Collection[int], spared: Collection[int] = ()) -> Selector:
    """Returns ``select`` with outranked brokers as leaders only where no other broker can lead.

    Brokers that are ``spared``, drained ones, lead where otherwise only outranked ones could. The ISR stays as
    ``select`` gives it, and whether the election is unclean.
    """
    if outranked:
        select = _passing(select, outranked, PASSED_OVER)
    return _passing(select, spared, SPARED) if spared else select


def _passing(select: Selector, passed: Collection[int], reasons: Mapping[str, str]) -> Selector:
    def passing(replicas: Replicas, isr: Replicas, down: Collection[int]) -> Election | NoLeader:
        usual = select(replicas, isr, down)
        if isinstance(usual, NoLeader) or usual.leader not in passed:
            return usual
        found = select(tuple(sorted(replicas, key=passed.__contains__)), isr, down)
        if isinstance(found, NoLeader) or found.leader in passed:
            return usual
        new_isr = found.isr if usual.unclean else usual.isr
        return Election(found.leader, new_isr, reasons[found.why], usual.unclean)

    return passing


def never(select: Selector, outranked: Collection[int]) -> Selector:
    """Returns ``select`` without outranked brokers as leaders: for elections where a leader that serves can stay."""
    if not outranked:
        return select

    def kept(replicas: Replicas, isr: Replicas, down: Collection[int]) -> Election | NoLeader:
        found = select(replicas, isr, down)
        return NoLeader(OUTRANKED) if isinstance(found, Election) and found.leader in outranked else found

    return kept
