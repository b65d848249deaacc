"""What waits for its counterpart: our decisions on one side, what was read on the other.

The model is ours alone: every decision is entered at once, as if it had been committed, so that the next one is taken
on it. Per partition that has decisions or reads without a counterpart, a :class:`Waiting` holds the last explained
state znode (``base``), our decisions since, and what was read since. A read that nothing explains waits, too: what it
answers may be learned a moment later. Time is an argument; nothing here does input or output.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from controller.shadow import compare
from controller.shadow.compare import Outcome, Seen, Step, judge
from controller.shadow.happenings import Happening, Kind, carry_out, other_orders, replay, step_of
from controller.shadow.tally import Tally, difference, reasons
from metadata_store import paths
from state_machines.cluster import Cluster, leadership_of
from state_machines.types import Broker, Leadership

HAPPENINGS_MAX: Final = 64
"""Happenings that are remembered, besides those that a waiting partition holds."""

SEEN_MAX: Final = 16
"""Unexplained reads of one partition that are kept in order; beyond them only the newest is."""

BEHIND_MAX: Final = 2
"""Events without a single answer, from which on the order of further ones is not known."""

EXCUSE_SHARE: Final = 10
"""A read that nothing explains counts as uncomparable, where it can, after the tenth part of the usual wait."""

TRIES_MAX: Final = 2_000
"""Other orders that are tried in one reading, over all partitions; the rest is tried in the next."""

PATIENCE: Final = 10
"""While counterparts arrive, one may be late by so many times the usual wait."""

ORDER_UNKNOWN: Final = "brokers changed at once: another order of the same events explains it"
ISR_UNSEEN: Final = "the leader changed its ISR between two reads: the base of the decision is not known"
BEING_DELETED: Final = "the topic is being deleted"
BEING_REASSIGNED: Final = "the partition is being reassigned"
FORGOTTEN: Final = "the topic vanished or was replaced"
UNSEEN_TERM: Final = "a controller came and went between two reads"
SEVERAL: Final = "several brokers came or went between two reads, and the controller wrote in between"
BEHIND: Final = "the controller was several events behind: the order in which it handled them is not known"
READ_LATE: Final = "the shadow was too slow: more may have happened between two reads"
BEGUN_BEFORE: Final = "under way when the shadow began to read"
PREFERRED: Final = "preferred election"
BARE_EPOCH: Final = (
    "epoch of an offline partition raised when its broker is found dead: nothing else changes, so regent does not write"
)
NO_EVENT: Final = "no event explains it"

_SHRINKING: Final = (Kind.DEATH, Kind.FAILOVER)

Certain = Callable[[int, Seen], bool]
"""Whether a broker was certainly still registered when a state znode was written."""


@dataclass(slots=True)
class Waiting:
    """One partition.

    ``base``: the last explained read, ``happened``: what is unanswered since. ``origin`` and ``since``: the same as of
    when it began to wait. ``puzzled_s``: when the oldest unexplained read became that. ``suspected``: brokers whose clean shutdown was inferred from it. ``blurred``: an ISR change was not seen by itself, so a missing write proves nothing.
    """

    base: Leadership | None
    happened: list[Happening]
    due_s: float
    origin: Leadership | None = field(init=False)
    since: list[Happening] = field(init=False)
    steps: list[Step] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    blurred: bool = False
    puzzled_s: float = 0.0
    suspected: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.begin(self.base)

    def begin(self, base: Leadership | None) -> None:
        """A new origin: what led to ``base`` is settled."""
        self.base = self.origin = base
        self.since = list(self.happened)


class Tracker:
    """Our model and what waits. ``wait_s``: how long a decision, or a read, may stay without its counterpart."""

    def __init__(self, tally: Tally, wait_s: float) -> None:
        self.model = Cluster()
        self.tally = tally
        self.wait_s = wait_s
        self.waiting: dict[int, Waiting] = {}
        self._puzzling: set[int] = set()
        self._recent: deque[Happening] = deque(maxlen=HAPPENINGS_MAX)
        self._by_number: dict[int, Happening] = {}
        self._withdrawn: dict[int, float] = {}
        self._number = 0
        self._tries = 0
        self._began_s = float("-inf")
        self._matched_s = float("-inf")

    def begin(self, epoch: int, brokers: Mapping[int, Broker], now: float) -> None:
        """Starts over: what waited cannot be compared any more, what is read next is taken as it is."""
        self.forget(list(self.waiting), BEGUN_BEFORE)
        self.model = Cluster(epoch)
        self.model.observe_brokers(brokers)
        self._recent.clear()
        self._withdrawn.clear()
        self._began_s = now

    # -- our decisions

    def happen(
        self,
        kind: Kind,
        who: Iterable[int],
        brokers: Mapping[int, Broker],
        now: float,
        *,
        rows: Iterable[int] = (),
        doubt: str = "",
    ) -> Happening:
        """Decides on the model and remembers each write until its counterpart is read."""
        self._number += 1
        behind = sum(1 for h in self._recent if h.expected and not h.met)
        happening = Happening(
            self._number,
            self.model.epoch,
            kind,
            tuple(who),
            dict(brokers),
            frozenset(),
            now,
            frozenset(rows),
            confirmed=kind is not Kind.SHUTDOWN,
            doubt=doubt or (BEHIND if behind >= BEHIND_MAX else ""),
        )
        happening.shutting_down = self._shutting_down(happening)
        self.tally.events[kind] += 1
        self._recent.append(happening)
        self._by_number[happening.number] = happening
        for waiting in self.waiting.values():
            waiting.happened.append(happening)
            waiting.since.append(happening)
        loading = self._loading() if kind is not Kind.FAILOVER else []
        for change in carry_out(self.model, happening, sorted(happening.rows)):
            waiting_row = self.waiting.get(change.entity)
            if waiting_row is None:
                happened = self._lately(now) if happening.rows else [*loading, happening]
                waiting_row = Waiting(leadership_of(change.before), happened, now + self.wait_s)
                self.waiting[change.entity] = waiting_row
            elif not waiting_row.seen:
                waiting_row.due_s = now + self.wait_s
            waiting_row.steps.append(step_of(change, happening))
            happening.expected += 1
        for i in sorted(self._puzzling):
            self._evaluate(i, now)
        return happening

    def _shutting_down(self, happening: Happening) -> frozenset[int]:
        if happening.kind is Kind.FAILOVER:
            return frozenset()
        known = self.model.brokers
        kept = {
            b
            for b in self.model.shutting_down
            if b in happening.brokers and b in known and happening.brokers[b].epoch == known[b].epoch
        }
        return frozenset(kept.union(happening.who if happening.kind is Kind.SHUTDOWN else ()))

    # -- what was read

    def observe(self, i: int, seen: Seen, now: float) -> None:
        """A state znode as read. Known content is passed over, leaders' ISR changes are facts, the rest must agree."""
        waiting = self.waiting.get(i)
        if waiting is None:
            base = leadership_of(self.model.rows[i])
            found = judge(base, (), seen.leadership)
            if found.outcome is Outcome.UNCHANGED:
                return
            if found.outcome is Outcome.ISR_CHANGES:
                self.tally.isr_changes += found.isr_changes
                self.model.load_leadership([i], [seen.leadership])
                return
            waiting = self.waiting[i] = Waiting(base, self._still_answered(now), now + self.wait_s)
        last = waiting.seen[-1].leadership if waiting.seen else waiting.base
        if seen.leadership == last:
            return
        del waiting.seen[SEEN_MAX - 1 :]
        if not waiting.seen:
            waiting.puzzled_s = now
            waiting.due_s = now + self.wait_s
        waiting.seen.append(seen)
        if self._under_way(waiting):
            self._matched_s = now
        self._puzzling.add(i)
        self._evaluate(i, now)

    def _lately(self, now: float) -> list[Happening]:
        """What another controller may still be answering: it takes events in order, so what came before an answered
        one is done.
        """
        answered = max((h.number for h in self._recent if h.met), default=0)
        return [h for h in self._recent if h.at_s > now - self.wait_s and h.number >= answered]

    def _loading(self) -> list[Happening]:
        """The last failover, where its controller may have read later registrations than we to begin with."""
        latest = next((h for h in reversed(self._recent) if h.met or h.kind is Kind.FAILOVER), None)
        done = latest is None or latest.kind is not Kind.FAILOVER or 0 < latest.met >= latest.expected
        return [] if latest is None or done else [latest]

    def _still_answered(self, now: float) -> list[Happening]:
        """Of it, what was not undone by a return."""
        lately = self._lately(now)
        undone = max((at for at, h in enumerate(lately, 1) if h.kind is Kind.RETURN), default=0)
        return lately[undone:]

    def _evaluate(self, i: int, now: float, *, excuse: bool = False) -> None:
        """Explains as many reads of a partition as possible, in their order; ``excuse``: as uncomparable, too."""
        waiting = self.waiting[i]
        while waiting.seen and self._explain(i, waiting, now, excuse):
            waiting.seen.pop(0)
            waiting.puzzled_s = now
        if waiting.seen:
            return
        self._puzzling.discard(i)
        if not waiting.steps:
            del self.waiting[i]
            self.model.load_leadership([i], [waiting.base])

    def _under_way(self, waiting: Waiting) -> bool:
        """Whether the oldest read lies inside a decision, of which we know only the end."""
        found = judge(waiting.base, waiting.steps, waiting.seen[0].leadership)
        return found.outcome is Outcome.UNDER_WAY

    def _superseded(self, i: int, waiting: Waiting) -> bool:
        """Whether the oldest read lies inside a decision, in any order of the events, and more was read since."""
        oldest = waiting.seen[0].leadership
        return len(waiting.seen) > 1 and self._another_order(i, waiting, oldest, Outcome.UNDER_WAY)

    def _explain(self, i: int, waiting: Waiting, now: float, excuse: bool) -> bool:
        """Whether the oldest read is explained; then it is the new base, unless it only lay inside a decision."""
        seen = waiting.seen[0]
        found = judge(waiting.base, waiting.steps, seen.leadership)
        if found.outcome is Outcome.UNCHANGED:
            return True
        if found.outcome is Outcome.AGREES:
            return self._agrees(i, waiting, seen, found.steps, now)
        if found.outcome is Outcome.UNDER_WAY and len(waiting.seen) > 1:
            return True
        if found.outcome is Outcome.ISR_CHANGES:
            self.tally.isr_changes += found.isr_changes
            waiting.blurred |= found.isr_changes > 1
        elif bare := self._bare_epochs(waiting, seen.leadership):
            if waiting.steps and not self._agrees(i, waiting, seen, len(waiting.steps), now):
                return False
            self.tally.not_ours[BARE_EPOCH] += bare
        elif not (excuse and self._excused(i, waiting, seen.leadership)):
            return excuse and self._superseded(i, waiting)
        self._rebase(i, waiting, seen.leadership)
        return True

    def _agrees(self, i: int, waiting: Waiting, seen: Seen, count: int, now: float) -> bool:
        """Counts a counterpart; one of an inferred happening waits until that is confirmed."""
        last = waiting.steps[count - 1]
        happening = self._by_number[last.happening]
        self._matched_s = now
        if not happening.confirmed:
            happening.matching.add(i)
            return False
        self.tally.unseen += count - 1
        happening.met += 1
        self.tally.agrees(happening.kind, last.why)
        waiting.base = seen.leadership
        waiting.steps = waiting.steps[count:]
        waiting.happened = [h for h in waiting.happened if h.number > last.happening]
        waiting.due_s = now + self.wait_s
        return True

    def _excused(self, i: int, waiting: Waiting, seen: Leadership) -> bool:
        """Whether the write is of a kind that regent does not decide by itself, or cannot be put in order."""
        replicas = self.model.rows[i].assignment.replicas
        if not waiting.steps and compare.is_preferred_election(waiting.base, seen, replicas):
            self.tally.not_ours[PREFERRED] += 1
        elif self._hidden(i, waiting, seen):
            self._uncomparable(waiting, ISR_UNSEEN)
        elif self._another_order(i, waiting, seen):
            self._uncomparable(waiting, ORDER_UNKNOWN)
        else:
            return False
        return True

    def _bare_epochs(self, waiting: Waiting, seen: Leadership) -> int:
        """Epochs that were raised by happenings of which each may raise one; 0 where there are too many."""
        wrote = {step.happening for step in waiting.steps}
        able = sum(1 for h in waiting.happened if h.kind in _SHRINKING and h.number not in wrote)
        bare = compare.bare_epochs(waiting.base, waiting.steps, seen)
        return bare if bare <= able else 0

    def _another_order(
        self, i: int, waiting: Waiting, seen: Leadership | None, outcome: Outcome = Outcome.AGREES
    ) -> bool:
        """Whether another order of the events since the origin leads to ``seen``."""
        for order in other_orders(waiting.since):
            self._tries += 1
            if self._tries > TRIES_MAX:
                return False
            steps = self._steps(i, waiting.origin, order)
            if seen == waiting.origin:
                if not steps:
                    return True
            elif seen is not None and judge(waiting.origin, steps, seen).outcome is outcome:
                return True
        return False

    def _hidden(self, i: int, waiting: Waiting, seen: Leadership) -> bool:
        """Whether ISR changes that were never read could lead to ``seen``."""
        decide = partial(self._steps, i, happened=waiting.happened)
        return compare.hidden_isr_explains(waiting.base, seen, self.model.rows[i].assignment.replicas, decide)

    def _hidden_in_another_order(self, i: int, waiting: Waiting, seen: Leadership) -> bool:
        replicas = self.model.rows[i].assignment.replicas
        for order in other_orders(waiting.since):
            self._tries += 1
            if compare.hidden_isr_explains(waiting.origin, seen, replicas, partial(self._steps, i, happened=order)):
                return True
        return False

    def _uncomparable(self, waiting: Waiting, why: str) -> None:
        self.tally.uncomparable[why] += 1
        waiting.blurred = True

    def _steps(self, i: int, base: Leadership | None, happened: list[Happening]) -> list[Step]:
        return replay(i, self.model.rows[i], base, happened)

    def _rebase(self, i: int, waiting: Waiting, base: Leadership | None) -> None:
        """Decides again what is still unanswered, on what was read."""
        waiting.begin(base)
        self._plan(i, waiting)

    def _plan(self, i: int, waiting: Waiting) -> None:
        steps = self._steps(i, waiting.base, waiting.happened)
        for change, planned in ((-1, waiting.steps), (1, steps)):
            for step in planned:
                self._by_number[step.happening].expected += change
        waiting.steps = steps
        self.model.load_leadership([i], [compare.after(waiting.base, steps)])

    # -- clean shutdowns, which leave no other trace

    def suspects(self, certain: Certain, now: float) -> list[tuple[int, int]]:
        """Brokers that partitions were moved off while they were registered, with the zxid of the first such write.

        A partition speaks against each broker once. One whose leader may have changed the ISR unseen does not.
        """
        first: dict[int, int] = {}
        for i in self._puzzling:
            waiting = self.waiting[i]
            seen = waiting.seen[0]
            end = compare.after(waiting.base, waiting.steps)
            lost = compare.lost_members(end, seen.leadership) - waiting.suspected
            for broker in lost if lost and self._speaks(i, waiting, seen.leadership) else ():
                if broker in self.model.brokers and certain(broker, seen) and not self._inferred(broker, now):
                    waiting.suspected.add(broker)
                    first[broker] = min(seen.zxid, first.get(broker, seen.zxid))
        return sorted((zxid, broker) for broker, zxid in first.items())

    def _speaks(self, i: int, waiting: Waiting, seen: Leadership) -> bool:
        """Whether a controller wrote the unexplained state, and nothing else can have led to it."""
        if any(h.doubt for h in waiting.since) or seen.leader_epoch <= compare.epoch_of(waiting.base):
            return False
        return not self._hidden(i, waiting, seen)

    def puzzling_before(self, zxid: int) -> bool:
        """Whether something that was written before ``zxid`` is not explained."""
        return any(self.waiting[i].seen[0].zxid < zxid for i in self._puzzling)

    def _inferred(self, broker: int, now: float) -> bool:
        """Whether it is under way, or was found wrong just now."""
        if self._withdrawn.get(broker, float("-inf")) > now - self.wait_s:
            return True
        return any(not h.confirmed and broker in h.who for h in self._recent)

    def _confirm_likely(self, now: float) -> None:
        """Most of the broker's partitions were moved: that is a clean shutdown, even while it is registered."""
        for happening in list(self._recent):
            matching = len(happening.matching)
            if not happening.confirmed and matching > 1 and 2 * matching >= happening.expected:
                self._confirm(happening, now)

    def left(self, brokers: Collection[int], now: float) -> None:
        """Brokers are gone: their clean shutdowns were."""
        for happening in list(self._recent):
            if not happening.confirmed and {*happening.who} & {*brokers}:
                self._confirm(happening, now)

    def _confirm(self, happening: Happening, now: float) -> None:
        happening.confirmed = True
        for i in sorted(happening.matching & self._puzzling):
            self._evaluate(i, now)
        happening.matching.clear()

    def _withdraw(self, happening: Happening, now: float) -> None:
        """It was no clean shutdown: the few partitions that looked like it changed for no reason that we know."""
        self.tally.events[happening.kind] -= 1
        self._recent.remove(happening)
        self._withdrawn.update(dict.fromkeys(happening.who, now))
        brokers = self.model.brokers
        self.model.observe_brokers({b: known for b, known in brokers.items() if b not in happening.who})
        self.model.observe_brokers(brokers)
        for later in self._recent:
            if later.number > happening.number:
                later.shutting_down = later.shutting_down.difference(happening.who)
        for i, waiting in list(self.waiting.items()):
            if any(h.number >= happening.number for h in waiting.happened):
                waiting.happened = [h for h in waiting.happened if h is not happening]
                waiting.since = [h for h in waiting.since if h is not happening]
                self._plan(i, waiting)
                self._evaluate(i, now)
        del self._by_number[happening.number]

    # -- time

    def hold(self, now: float) -> None:
        """Nobody holds the role: nothing can be answered, so nothing is late."""
        for waiting in self.waiting.values():
            waiting.due_s = max(waiting.due_s, now + self.wait_s)

    def expire(self, now: float, deleting: Collection[str] = ()) -> None:
        """What waited too long is a difference, unless it is known why it cannot be compared."""
        self._confirm_likely(now)
        self._tries = 0
        busy = now - self._matched_s < self.wait_s
        patience_s = self.wait_s * (PATIENCE - 1) if busy else 0.0
        late_s = now - self.wait_s - patience_s
        for happening in [h for h in self._recent if not h.confirmed and h.at_s <= late_s]:
            self._withdraw(happening, now)
        for i, waiting in list(self.waiting.items()):
            if waiting.seen and now >= waiting.puzzled_s + self.wait_s / EXCUSE_SHARE and _settled(waiting):
                self._evaluate(i, now, excuse=True)
            if i in self.waiting and self._tries <= TRIES_MAX and self._is_due(waiting, now, patience_s):
                self._too_late(i, waiting, now, deleting)
        held = {h.number for w in self.waiting.values() for h in w.happened} | {h.number for h in self._recent}
        self._by_number = {number: h for number, h in self._by_number.items() if number in held}

    def _is_due(self, waiting: Waiting, now: float, patience_s: float) -> bool:
        patient = not waiting.seen or self._under_way(waiting)
        return now >= waiting.due_s + (patience_s if patient else 0.0) and _settled(waiting)

    def _too_late(self, i: int, waiting: Waiting, now: float, deleting: Collection[str]) -> None:
        why = self._unclear(i, waiting, deleting)
        theirs, steps = waiting.base, waiting.steps
        if waiting.seen:
            theirs = waiting.seen.pop(0).leadership
            steps = steps[: judge(waiting.base, steps, theirs).steps or len(steps)]
        if why is not None:
            self.tally.uncomparable[why] += 1
        else:
            event = self._by_number[steps[-1].happening].what if steps else NO_EVENT
            ours = compare.after(waiting.base, steps)
            self.tally.differs(difference(self._path(i), waiting.base, ours, theirs, event, reasons(steps)))
        if why is None or theirs == waiting.base:
            answered = steps[-1].happening if steps else self._number
            waiting.happened = [h for h in waiting.happened if h.number > answered]
        waiting.due_s = now + self.wait_s
        self._rebase(i, waiting, theirs)
        self._evaluate(i, now)

    def _unclear(self, i: int, waiting: Waiting, deleting: Collection[str]) -> str | None:
        """Why the partition cannot be compared; None where it can."""
        row = self.model.rows[i]
        if self.model.name(i).topic in deleting:
            return BEING_DELETED
        if row.assignment.adding or row.assignment.removing:
            return BEING_REASSIGNED
        if waiting.blurred and not waiting.seen:
            return ISR_UNSEEN
        if not waiting.seen and self._another_order(i, waiting, waiting.base):
            return ORDER_UNKNOWN
        if waiting.seen and self._hidden_in_another_order(i, waiting, waiting.seen[0].leadership):
            return ISR_UNSEEN
        for happening in waiting.happened:
            if happening.doubt:
                return happening.doubt
        if not waiting.happened and waiting.due_s - self._began_s <= 2 * self.wait_s and self._was_unfinished(waiting):
            return BEGUN_BEFORE
        return None

    def _was_unfinished(self, waiting: Waiting) -> bool:
        """Whether a controller had something to do for the partition when the shadow began to read."""
        base = waiting.base
        return base is None or bool({base.leader, *base.isr} - self.model.brokers.keys())

    # -- topics

    def forget(self, rows: Iterable[int], why: str) -> None:
        """Rows end; what waited there stays uncompared."""
        for i in rows:
            self._puzzling.discard(i)
            if self.waiting.pop(i, None) is not None:
                self.tally.uncomparable[why] += 1

    def _path(self, i: int) -> str:
        name = self.model.name(i)
        return paths.state(name.topic, name.partition)


def _settled(waiting: Waiting) -> bool:
    """Whether nothing that the partition's decisions stand on is only inferred."""
    return all(h.confirmed for h in waiting.since)
