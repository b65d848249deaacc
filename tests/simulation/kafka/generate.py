"""Draws a script from a seed: the cluster, and a skewed mix of actions on it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from state_machines.admin_rules.placement import place
from tests.kit.simulation.script import Action, Word
from tests.simulation.kafka import limits
from tests.simulation.kafka.acting import ACTIVE
from tests.simulation.kafka.generate_calls import calls
from tests.simulation.kafka.generate_calm import with_calm
from tests.simulation.kafka.generate_drains import drains
from tests.simulation.kafka.generate_foreign import foreign, ibp_of
from tests.simulation.kafka.generate_interference import interference
from tests.simulation.kafka.generate_plans import plans, throttles
from tests.simulation.kafka.generate_zookeeper import odd_daemons, troubles
from tests.simulation.kafka.plan import Plan

ACTIONS: Final = (90, 150)
PARTITIONS_MIN: Final = 30
FAULTS_MIN: Final = 5
BEGIN_S: Final = 4.0

FAMILIES: Final[dict[str, dict[str, float]]] = {
    "topics": {
        "topic": 1.0,
        "auto-topic": 1.5,
        "expand": 1.5,
        "delete-topic": 0.6,
        "recreate-topic": 0.8,
        "mark-topic": 1.2,
        "producer-ids": 1.5,
    },
    "moves": {"reassign": 3.0, "reassign-by-znode": 1.0},
    "elections": {"ask-preferred": 1.5, "elect": 1.5, "allow-unclean": 0.7},
    "stops": {"crash-broker": 2.0, "bounce-broker": 2.0, "stop-broker": 2.5, "flap-broker": 1.0, "move-broker": 0.7},
    "slow": {"freeze-broker": 1.0, "lag-broker": 3.0, "slow-broker": 1.5},
    "wire": {
        "refuse-broker": 1.0,
        "cut-broker": 1.5,
        "half-open-broker": 1.0,
        "lose-broker-replies": 1.5,
        "drop-broker-requests": 1.5,
        "stale-broker-epoch": 1.0,
        "stale-controller-epoch": 0.15,
        "storage-error": 0.6,
    },
    "daemons": {
        "kill-daemon": 1.2,
        "kill-daemon-at-write": 1.5,
        "stop-daemon": 0.8,
        "stop-daemon-at-write": 0.8,
        "hand-back": 0.25,
        "delete-controller": 1.5,
        "raise-epoch": 0.5,
        "freeze-daemon": 1.2,
        "stall-daemon": 0.8,
        "step-clock": 0.3,
        "give-role": 0.3,
    },
    "sessions": {
        "zk-blip": 1.5,
        "zk-expire": 0.8,
        "zk-cut": 1.2,
        "zk-lose-replies": 1.5,
        "zk-lose-requests": 1.0,
        "zk-lose-watches": 1.0,
        "zk-double-watches": 0.7,
        "zk-slow-answers": 1.5,
    },
    "ensemble": {"zk-lag": 1.0, "zk-restart": 0.4, "zk-read-only": 0.3, "zk-slow-disk": 0.8},
}
"""Verbs with their weights."""

NO_FAULTS: Final = frozenset(
    {
        "topic",
        "auto-topic",
        "expand",
        "delete-topic",
        "recreate-topic",
        "mark-topic",
        "producer-ids",
        "reassign",
        "reassign-by-znode",
        "ask-preferred",
        "elect",
        "allow-unclean",
        "lag-broker",
        "give-role",
        "stop-broker",
        "move-broker",
    }
)
SKEWS: Final = (0.0, 0.3, 1.0, 1.0, 3.0, 8.0)
PACES_S: Final = (0.05, 0.3, 1.0, 2.0)
OUSTED: Final = 0.5
"""Share of seeds in which the role is taken from a daemon in the midst of its writes."""
KEPT: Final = 0.15
"""Share of seeds in which brokers forbid the deletion of topics."""
PURGED: Final = 0.15
"""Share of seeds in which most topics are removed at one time."""
_KINDS: Final = ("preferred", "preferred", "unclean")
SWIZZLED: Final = ("crash-broker", "bounce-broker", "cut-broker", "freeze-broker", "stop-broker", "refuse-broker")


class Generator:
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.r = Random(f"{seed} plan")
        count = self.r.choice((3, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12))
        self.brokers = tuple(range(1, count + 1))
        self.racks = tuple(self.r.choice("abc") for _ in self.brokers) if self.r.random() < 0.3 else ()
        self.daemons = self.r.choice((2, 2, 3))
        self.servers = self.r.choice((1, 2, 3))
        self.topics: list[str] = []
        self.moved: list[str] = []
        self.partitions = 0
        self.actions: list[Action] = []
        self.at_s = BEGIN_S

    def plan(self) -> Plan:
        """Returns the plan of the seed."""
        r = self.r
        while self.partitions < PARTITIONS_MIN:
            self._add("topic", *self._topic(), at_s=r.uniform(0.5, BEGIN_S))
        weights = self._weights()
        verbs, pace_s = list(weights), r.choice(PACES_S)
        for _ in range(r.randint(*ACTIONS)):
            if r.random() < 0.1:
                pace_s = r.choice(PACES_S)
            self.at_s += r.expovariate(1 / pace_s)
            if r.random() < 0.015:
                self._swizzle()
            verb = r.choices(verbs, [weights[verb] for verb in verbs])[0]
            self._draw(verb)
        while sum(action.verb not in NO_FAULTS for action in self.actions) < FAULTS_MIN:
            self.at_s += 1.0
            self._draw("crash-broker")
        dead = (r.choice(self.brokers),) if len(self.brokers) > 3 and r.random() < 0.3 else ()
        ibp, absence = r.choice(("3.9-IV0", "2.7-IV1")), r.choice(("brokers", "hold"))
        ibp = ibp_of(self.seed, ibp)
        if r.random() < OUSTED:
            self._oust(r.uniform(BEGIN_S, max(BEGIN_S, self.at_s)))
        if r.random() < PURGED:
            self._purge(r.uniform(BEGIN_S, max(BEGIN_S, self.at_s)))
        self.actions += calls(self.seed, self.topics, len(self.brokers), BEGIN_S, self.at_s)
        planned = plans(self.seed, self.topics, self.brokers, BEGIN_S, self.at_s)
        self.actions += planned + throttles(self.seed, self.brokers, planned)
        self.actions += drains(self.seed, self.brokers, BEGIN_S, self.at_s)
        self.actions += troubles(self.seed, self.daemons, self.servers, len(self.brokers), BEGIN_S, self.at_s)
        self.actions += foreign(self.seed, self.topics, self.brokers, self.daemons, BEGIN_S, self.at_s)
        self.actions += interference(self.seed, self.topics, self.brokers, self.daemons, BEGIN_S, self.at_s)
        drawn = with_calm(self.seed, self.actions, self.brokers, self.daemons)
        actions = tuple(sorted(drawn, key=lambda action: action.at_s))
        return Plan(
            self.seed,
            self.brokers,
            self.racks,
            self.daemons,
            ibp,
            absence,
            self.servers,
            odd_daemons(self.seed, self.daemons),
            dead,
            limits.draw(Random(f"{self.seed} limits")),
            keeps=Random(f"{self.seed} guards").random() < KEPT,
            actions=actions,
        )

    def _weights(self) -> dict[str, float]:
        """Draws skewed weights: some seeds never meet a kind of fault, others meet little else."""
        weights: dict[str, float] = {}
        for verbs in FAMILIES.values():
            family = self.r.choice(SKEWS)
            weights |= {verb: weight * family * self.r.choice((0.3, 1.0, 1.0, 3.0)) for verb, weight in verbs.items()}
        return weights if any(weights.values()) else {"crash-broker": 1.0, "topic": 1.0}

    def _add(self, verb: str, *words: Word, at_s: float | None = None) -> None:
        rounded = tuple(round(word, 3) if isinstance(word, float) else word for word in words)
        self.actions.append(Action(round(self.at_s if at_s is None else at_s, 3), verb, rounded))

    def _swizzle(self) -> None:
        """Adds the same fault for one broker after the other, in any order, with little time between them."""
        verb, gap_s = self.r.choice(SWIZZLED), self.r.choice((0.005, 0.05, 0.3))
        for broker in self.r.sample(self.brokers, self.r.randint(2, len(self.brokers))):
            self.at_s += self.r.uniform(0.0, gap_s)
            words = self._of_broker(verb)
            self._add(verb, broker, *words)

    def _oust(self, at_s: float) -> None:
        """Takes the role from a daemon that is busy writing and receives everything late, its own fall included."""
        r = self.r
        delay_s, for_s = r.uniform(0.1, 0.8), r.uniform(2.0, 4.0)
        self._add("zk-slow-answers", ACTIVE, for_s, delay_s, at_s=at_s)
        for broker in r.sample(self.brokers, 2):
            self._add("stop-broker", broker, *self._of_broker("stop-broker"), at_s=at_s + r.uniform(0.0, for_s / 2))
        for _ in range(r.randint(2, 4)):
            self._add("auto-topic", *self._auto_topic(), at_s=at_s + r.uniform(0.0, for_s))
        self._add(r.choice(("delete-controller", "raise-epoch")), at_s=at_s + for_s / 2)

    def _purge(self, at_s: float) -> None:
        """Removes most topics: most partitions of the model then belong to topics that do not exist."""
        for name in self.r.sample(self.topics, round(0.9 * len(self.topics))):
            self._add("delete-topic", name, at_s=at_s + self.r.uniform(0.0, 1.0))

    # -- words

    def _draw(self, verb: str) -> None:
        draw: dict[str, Callable[[], tuple[Word, ...]]] = {
            "topic": self._topic,
            "auto-topic": self._auto_topic,
            "expand": self._expand,
            "delete-topic": lambda: (self.r.choice(self.topics),),
            "mark-topic": lambda: (self.r.choice(self.topics),),
            "recreate-topic": self._recreated,
            "reassign": self._reassigned,
            "reassign-by-znode": lambda: tuple(self._target() for _ in range(self.r.randint(1, 4))),
            "ask-preferred": lambda: (self.r.choice(self.topics),),
            "allow-unclean": lambda: (self.r.choice(self.topics),),
            "elect": lambda: (self.r.choice(_KINDS), self.r.choice((*self.topics, "all"))),
            "step-clock": lambda: (self.r.choice((-3_600.0, 86_400.0)),),
            "give-role": lambda: ("brokers",),
            "hand-back": lambda: (self.r.uniform(1.0, 15.0),),
            "delete-controller": tuple,
            "raise-epoch": tuple,
            "zk-lag": lambda: (self.r.randint(0, self.servers - 1), self.r.uniform(1, 8), self.r.uniform(0.05, 1.5)),
            "zk-restart": lambda: (self.r.uniform(0.1, 4.0),),
            "zk-read-only": lambda: (self.r.uniform(1.0, 12.0),),
            "zk-slow-disk": lambda: (self.r.uniform(1.0, 6.0), self.r.uniform(0.05, 0.6)),
        }
        if verb in draw:
            self._add(verb, *draw[verb]())
        elif verb.startswith("zk-"):
            self._add(verb, self._client(), *self._of_session(verb))
        elif "-daemon" in verb:
            self._add(verb, self.r.randrange(self.daemons), *self._of_daemon(verb))
        else:
            self._add(verb, self.r.choice(self.brokers), *self._of_broker(verb))
        if verb == "give-role":
            self._add(verb, "regent", at_s=self.at_s + self.r.uniform(0.5, 8.0))
        if verb == "stale-controller-epoch":
            self._add("raise-epoch", at_s=self.at_s + self.r.uniform(1.0, 6.0))

    def _client(self) -> str:
        if self.r.random() < 0.65:
            return f"d{self.r.randrange(self.daemons)}"
        return f"b{self.r.choice(self.brokers)}"

    def _of_session(self, verb: str) -> tuple[Word, ...]:
        r = self.r
        if verb == "zk-cut":
            return r.choice((r.uniform(0.2, 3.0), r.uniform(3.0, 14.0))), r.uniform(0.0, 1.8)
        if verb == "zk-slow-answers":
            return r.uniform(0.5, 8.0), r.uniform(0.05, 1.2)
        if verb in ("zk-lose-replies", "zk-lose-requests"):
            return r.choice((1, 1, 2, 3)), r.choice((0, 0, 1, 2, 4))
        return (r.choice((1, 1, 2, 3)),) if verb in ("zk-lose-watches", "zk-double-watches") else ()

    def _of_daemon(self, verb: str) -> tuple[Word, ...]:
        r = self.r
        back_s = r.choice((0.1, r.uniform(0.5, 4.0), r.uniform(4.0, 12.0)))
        if verb == "kill-daemon-at-write":
            return r.choice((1, 1, 2, 3, 5)), r.choice(("before", "after")), back_s
        if verb == "stop-daemon-at-write":
            return r.choice((1, 1, 2, 3, 5)), back_s
        if verb == "freeze-daemon":
            return (r.choice((r.uniform(0.5, 4.0), r.uniform(4.5, 6.5), r.uniform(6.0, 14.0))),)
        if verb == "stall-daemon":
            return r.uniform(0.5, 9.0), r.choice((0, 1))
        return (back_s,)

    def _of_broker(self, verb: str) -> tuple[Word, ...]:
        r = self.r
        seconds = r.choice((r.uniform(0.1, 2.0), r.uniform(1.0, 10.0)))
        if verb == "flap-broker":
            return r.randint(2, 5), r.uniform(0.05, 1.5)
        if verb == "slow-broker":
            return seconds, r.choice((0.05, 0.4, 1.5, 4.0))
        if verb in ("lose-broker-replies", "drop-broker-requests"):
            return (r.choice((1, 1, 2, 4)),)
        return (seconds,) if verb in _TIMED else ()

    def _topic(self) -> tuple[Word, ...]:
        r = self.r
        count, factor = r.choice((1, 2, 3, 6, 12)), r.randint(1, min(4, len(self.brokers)))
        name = f"t{len(self.topics)}"
        self.topics.append(name)
        return name, *self._replicas(count, factor, 0)

    def _replicas(self, count: int, factor: int, first: int) -> tuple[str, ...]:
        n = len(self.brokers)
        start, shift = self.r.randrange(n), self.r.randrange(n)
        placed = place(dict.fromkeys(self.brokers), count, factor, start=start, shift=shift, first_partition=first)
        self.partitions += count
        return tuple(",".join(map(str, replicas)) for replicas in placed.values())

    def _auto_topic(self) -> tuple[Word, ...]:
        name = f"t{len(self.topics)}"
        self.topics.append(name)
        return self.r.choice(self.brokers), name, self.r.randint(1, 3), self.r.randint(1, min(4, len(self.brokers) + 1))

    def _expand(self) -> tuple[Word, ...]:
        name = self.r.choice(self.topics)
        return name, *self._replicas(self.r.randint(1, 3), self.r.randint(1, min(3, len(self.brokers))), 0)

    def _recreated(self) -> tuple[Word, ...]:
        r = self.r
        name, gap_s = r.choice(self.topics), r.choice((0.0, r.uniform(0.0, 0.5), r.uniform(0.0, 5.0)))
        return name, gap_s, *self._replicas(r.choice((1, 2, 6)), r.randint(1, min(3, len(self.brokers))), 0)

    def _reassigned(self) -> tuple[Word, ...]:
        """Draws a reassignment, which often overrides or cancels an earlier one."""
        r = self.r
        if self.moved and r.random() < 0.35:
            name = r.choice(self.moved[-4:])
            return (f"{name}/-" if r.random() < 0.6 else f"{name}/{self._target_replicas()}",)
        return tuple(self._target() for _ in range(r.randint(1, 6)))

    def _target(self) -> str:
        self.moved.append(f"{self.r.choice(self.topics)}/{self.r.choice((0, 0, 1, 2, 5))}")
        return f"{self.moved[-1]}/{self._target_replicas()}"

    def _target_replicas(self) -> str:
        return ",".join(map(str, self.r.sample(self.brokers, self.r.randint(1, min(3, len(self.brokers))))))


_TIMED: Final = (
    "crash-broker",
    "stop-broker",
    "freeze-broker",
    "lag-broker",
    "refuse-broker",
    "cut-broker",
)


def generate(seed: int) -> Plan:
    """Returns the script of a seed."""
    return Generator(seed).plan()
