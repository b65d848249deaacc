"""Draws a script from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from testing.simulated.regions.behaviours import BEHAVIOURS, UNHURRIED
from tests.kit.simulation.script import Action
from tests.simulation.regions.doubling import PARTS
from tests.simulation.regions.named import named
from tests.simulation.regions.plan import RegionPlan
from tests.simulation.regions.scenes import scene

FIRST_S: Final = 1.0
LAST_S: Final = 30.0
ACTIONS_MAX: Final = 30
BURSTS: Final = 8
IMPOSTORS_MAX: Final = 3
HOLDS_MAX: Final = 2
BURST_S: Final = 0.8
COMMANDS: Final = 0.25
"""Part of the runs whose servers are fenced by a command."""
RESTORES: Final = 0.5
"""Part of the runs in which the store is restored from a copy."""
DAYS: Final = 0.3
"""Part of the runs in which the wall clock is set by a day."""
CLAIMS: Final = ("ignore-locks",)
"""Faults of the claim."""
SHAPES: Final = 0.7
"""Part of the runs in which the shapes of tables change."""
SHAPED_MAX: Final = 14
MET: Final = 0.5
"""Part of these changes that something meets that they have to stand."""
BALANCED_S: Final = 4.0
BALANCES: Final = 0.3
"""Part of the runs in which regions are balanced."""
WEIGHED: Final = 0.5
"""Part of these in which a server gets a weight."""
SERVER_WEIGHTS: Final = ("0.5", "3")
BALANCED_ALONE: Final = 0.25
"""Part of the runs in which daemons balance regions by themselves."""
BALANCER_PERIODS_MS: Final = (3_000, 8_000)
DOUBLES: Final = 0.1
"""Part of the runs in which a region gets keys of another one."""
DAMAGES: Final = 0.25
"""Part of the runs in which the row of a region is lost."""
OF_LEVEL_1: Final = 0.12
"""Part of the runs whose store is of the oldest level."""
RAISED: Final = 0.8
"""Part of these in which an operator raises it."""
OLD: Final = 0.2
"""Part of these in which some servers are of a version that can do less."""
NODED: Final = 0.25
"""Part of the runs whose servers answer by znodes."""
HURRIES_NOT: Final = 0.4
"""Part of the servers there that take about as long as a znode may stay as it is."""
STRANGERS_MAX: Final = 6
"""Writes of strangers to znodes there."""
FOREIGN: Final = ("gone", "garbage", "offline", "opening", "closing")
"""What they make of a znode; an answer that they make up would be believed."""
BRIEF_S: Final = (1.4, 2.4)
"""How long servers freeze there: longer than their session lives, and not as long as their lease."""
TAKEOVERS_MAX: Final = 8
"""Deaths of daemons there, at writes of rows and znodes."""
OF_STORES: Final = frozenset({"copy-store", "restore-store", "ignore-locks"})
TABLES: Final = (("meta", 0, 1), ("sys", 1, 2), ("t1", 2, 5), ("t2", 2, 3))
"""Names, classes and numbers of regions."""


def generate(seed: int) -> RegionPlan:
    """Returns the plan of a seed."""
    chance = random.Random(f"{seed} plan")
    count = chance.randint(2, 4)
    good = chance.random() < 0.5
    servers = tuple("good" if good or n == 0 else chance.choice(tuple(BEHAVIOURS)) for n in range(count))
    plan = RegionPlan(
        seed,
        servers,
        daemons=chance.choice((1, 2)),
        fence=_fence(seed, chance),
        placement=chance.choice(("retain", "round_robin", "random")),
        servers_min=chance.randint(1, 2),
        open_attempts_max=chance.choice((0, 0, 0, 3)),
        delay_ms=chance.choice((5, 50, 150)),
        network_ms=chance.choice((10, 20, 300)),
        write_ms=chance.choice((10, 20, 150)),
    )
    times = sorted(_times(chance))
    claims = random.Random(f"{seed} claims")
    drawn = [Action(at_s, *_drawn(chance, plan)) for at_s in times]
    drawn += [Action(at_s, claims.choice(CLAIMS), ()) for at_s in _claim_times(claims)]
    if claims.random() < DAYS:
        drawn += [Action(at_s, "wall", (claims.choice(("-86400", "86400")),)) for at_s in _claim_times(claims)]
    if claims.random() < RESTORES:
        at_s = FIRST_S + claims.random() * (LAST_S - FIRST_S)
        drawn.append(Action(round(at_s, 3), "copy-store", ()))
        again_s = at_s + 0.5 + claims.random() * 10
        drawn.append(Action(round(again_s, 3), "restore-store", (f"{claims.random():.3f}",)))
    made = [
        Action(round(0.5 + number * chance.random() * 2, 3), "create", (name, str(kind), str(regions)))
        for number, (name, kind, regions) in enumerate(TABLES)
    ]
    plan, shaped = _shaped(seed, _leveled(seed, _balanced_alone(seed, plan)), times)
    drawn += (
        *_impostors(seed),
        *_holds(seed, plan),
        *shaped,
        *scene(seed),
        *named(seed),
        *_balances(seed, plan),
        *_upgrade(seed, plan),
        *_damages(seed),
        *_doubles(seed, plan),
    )
    return _transported(plan.with_actions(sorted((*made, *drawn), key=lambda one: one.at_s)))


def _transported(plan: RegionPlan) -> RegionPlan:
    """Draws the transport, by a draw of its own. There no store goes back, which would leave znodes of a later time."""
    chance = random.Random(f"{plan.seed} transport")
    if chance.random() >= NODED:
        return plan
    servers = tuple(UNHURRIED if chance.random() < HURRIES_NOT else one for one in plan.servers)
    actions = [one for one in plan.actions if one.verb not in OF_STORES]
    for _ in range(chance.randint(0, TAKEOVERS_MAX)):
        at_s = max(FIRST_S, chance.choice(plan.actions).at_s + chance.uniform(-BURST_S, BURST_S))
        words = _daemon(chance, plan), str(chance.randint(1, 4)), chance.choice(("before", "after"))
        actions.append(Action(round(at_s, 3), "kill-at-write", words))
    for _ in range(chance.randint(0, 2)):
        at_s = FIRST_S + chance.random() * (LAST_S - FIRST_S)
        actions.append(
            Action(round(at_s, 3), "freeze-server", (_server(chance, plan), f"{chance.uniform(*BRIEF_S):.3f}"))
        )
    for _ in range(chance.randint(0, STRANGERS_MAX)):
        at_s = max(FIRST_S, chance.choice(plan.actions).at_s + chance.uniform(0.0, BURST_S))
        actions.append(Action(round(at_s, 3), "stranger", (_any(chance), chance.choice(FOREIGN))))
    return replace(plan, transport="zookeeper", servers=servers).with_actions(sorted(actions, key=lambda one: one.at_s))


def _shaped(seed: int, plan: RegionPlan, times: list[float]) -> tuple[RegionPlan, list[Action]]:
    """Draws changes of the shapes of tables, by draws of their own: most come shortly before or after a fault."""
    chance = random.Random(f"{seed} shape")
    if chance.random() >= SHAPES:
        return plan, []
    old = chance.randint(1, len(plan.servers)) if chance.random() < OLD else 0
    verbs = tuple(SHAPING)
    found = []
    for verb in chance.choices(verbs, [SHAPING[one][0] for one in verbs], k=chance.randint(1, SHAPED_MAX)):
        at_s = max(FIRST_S, chance.choice(times) + (chance.random() - 0.5) * 2 * BURST_S)
        found.append(Action(round(at_s, 3), verb, tuple(SHAPING[verb][1](chance, plan))))
        if verb in BESIDE and chance.random() < MET:
            found += [
                Action(round(max(FIRST_S, at_s + chance.uniform(*when)), 3), one, tuple(words(chance, plan)))
                for one, when, words in chance.choice(BESIDE[verb])
            ]
    return replace(plan, old_servers=old), found


def _impostors(seed: int) -> list[Action]:
    """Draws processes that speak for others, by draws of their own."""
    chance = random.Random(f"{seed} impostors")
    times = sorted(FIRST_S + chance.random() * (LAST_S - FIRST_S) for _ in range(chance.randint(0, IMPOSTORS_MAX)))
    words = [(chance.choice(("server", "server", "client")), str(chance.randint(0, 99))) for _ in times]
    return [Action(round(at_s, 3), "impostor", one) for at_s, one in zip(times, words, strict=True)]


def _holds(seed: int, plan: RegionPlan) -> list[Action]:
    """Draws machines that a hypervisor holds, by draws of their own."""
    chance = random.Random(f"{seed} holds")
    times = sorted(FIRST_S + chance.random() * (LAST_S - FIRST_S) for _ in range(chance.randint(0, HOLDS_MAX)))
    return [Action(round(at_s, 3), "hold-machine", (_server(chance, plan), _for_s(chance, 9))) for at_s in times]


def _balances(seed: int, plan: RegionPlan) -> Iterator[Action]:
    """Draws balances, by draws of their own."""
    chance = random.Random(f"{seed} balance")
    if chance.random() >= BALANCES:
        return
    for _ in range(chance.randint(1, 2)):
        at_s = BALANCED_S + chance.random() * (LAST_S - BALANCED_S)
        yield Action(round(at_s, 3), "balance", (_server(chance, plan),))
    if chance.random() < WEIGHED:
        at_s = FIRST_S + chance.random() * (LAST_S - FIRST_S)
        yield Action(round(at_s, 3), "weight", (_server(chance, plan), chance.choice(SERVER_WEIGHTS)))


def _balanced_alone(seed: int, plan: RegionPlan) -> RegionPlan:
    """Draws whether daemons balance regions by themselves, by draws of their own."""
    chance = random.Random(f"{seed} balancer")
    if chance.random() >= BALANCED_ALONE:
        return plan
    return replace(plan, balancer_period_ms=chance.choice(BALANCER_PERIODS_MS))


def _leveled(seed: int, plan: RegionPlan) -> RegionPlan:
    """Draws the level of the store, by draws of its own."""
    return replace(plan, level=1) if random.Random(f"{seed} level").random() < OF_LEVEL_1 else plan


def _upgrade(seed: int, plan: RegionPlan) -> Iterator[Action]:
    """Draws when an operator raises the level of the store."""
    chance = random.Random(f"{seed} upgrade")
    if plan.level == 1 and chance.random() < RAISED:
        yield Action(round(FIRST_S + chance.random() * (LAST_S - FIRST_S), 3), "upgrade", ())


def _damages(seed: int) -> Iterator[Action]:
    """Draws when rows of regions are lost, by draws of their own."""
    chance = random.Random(f"{seed} damage")
    if chance.random() >= DAMAGES:
        return
    for _ in range(chance.randint(1, 2)):
        at_s = BALANCED_S + chance.random() * (LAST_S - BALANCED_S)
        yield Action(round(at_s, 3), "lose-row", (_any(chance), chance.choice(("adopt", "adopt", "fill"))))


def _doubles(seed: int, plan: RegionPlan) -> Iterator[Action]:
    """Draws when a region gets keys of another one, by draws of its own."""
    chance = random.Random(f"{seed} double")
    if chance.random() < DOUBLES:
        at_s = BALANCED_S + chance.random() * (LAST_S - BALANCED_S)
        words = _any(chance), chance.choice(PARTS), _server(chance, plan)
        yield Action(round(at_s, 3), "double-row", words)


def _fence(seed: int, chance: random.Random) -> str:
    """Draws a fence; the command has draws of its own, so that it changes nothing else of a run."""
    fence = chance.choice(("lease", "log"))
    return "command" if random.Random(f"{seed} fence").random() < COMMANDS else fence


def _times(chance: random.Random) -> list[float]:
    """Returns the times of actions: most come shortly after another one, while that has its effects."""
    times = [FIRST_S + chance.random() * (LAST_S - FIRST_S) for _ in range(BURSTS)]
    while len(times) < ACTIONS_MAX:
        times.append(chance.choice(times) + chance.random() ** 2 * BURST_S)
    return [round(at_s, 3) for at_s in times]


def _claim_times(chance: random.Random) -> list[float]:
    """Returns the times of faults of the claim, which have draws of their own."""
    return [round(FIRST_S + chance.random() * (LAST_S - FIRST_S), 3) for _ in range(chance.choice((0, 1, 2, 3)))]


Drawn = tuple[str, tuple[str, ...]]


def _drawn(chance: random.Random, plan: RegionPlan) -> Drawn:
    """Draws a verb by its weight, and its words."""
    verbs = tuple(WEIGHTS)
    verb = chance.choices(verbs, [WEIGHTS[one][0] for one in verbs])[0]
    return verb, tuple(WEIGHTS[verb][1](chance, plan))


def _server(chance: random.Random, plan: RegionPlan) -> str:
    return f"s{chance.randint(1, len(plan.servers))}"


def _daemon(chance: random.Random, plan: RegionPlan) -> str:
    return f"d{chance.randint(1, plan.daemons)}"


def _table(chance: random.Random) -> str:
    return chance.choice(TABLES)[0]


def _for_s(chance: random.Random, longest_s: float) -> str:
    return f"{0.1 + chance.random() ** 2 * longest_s:.3f}"


def _link(chance: random.Random, plan: RegionPlan) -> tuple[str, ...]:
    ends = [_server(chance, plan), _daemon(chance, plan)]
    chance.shuffle(ends)
    return (*ends, _for_s(chance, 8))


def _created(chance: random.Random, _: RegionPlan) -> tuple[str, ...]:
    name, kind, count = chance.choice(TABLES)
    return name, str(kind), str(count)


def _any(chance: random.Random) -> str:
    return str(chance.randint(0, 99))


Words = Callable[[random.Random, RegionPlan], tuple[str, ...]]
WEIGHTS: Final[dict[str, tuple[float, Words]]] = {
    "kill-server": (3, lambda c, p: (_server(c, p), _for_s(c, 8))),
    "freeze-server": (2, lambda c, p: (_server(c, p), _for_s(c, 12))),
    "replace-server": (1, lambda c, p: (_server(c, p),)),
    "leave": (1.5, lambda c, p: (_server(c, p),)),
    "expire": (1, lambda c, p: (_server(c, p),)),
    "list-regions": (1, lambda c, p: (_server(c, p),)),
    "kill-daemon": (1.5, lambda c, p: (_daemon(c, p), _for_s(c, 5))),
    "lose-claim": (1, lambda _c, _p: ()),
    "kill-at-write": (3, lambda c, p: (_daemon(c, p), str(c.randint(1, 8)), c.choice(("before", "after")))),
    "lose-records": (1.5, lambda c, _: (str(c.randint(0, 99)),)),
    "freeze-daemon": (1, lambda c, p: (_daemon(c, p), _for_s(c, 6))),
    "break-link": (1.5, _link),
    "slow": (0.9, lambda c, _: (c.choice(("0", "0.1", "0.4")),)),
    "lossy": (0.7, lambda c, _: (c.choice(("0", "0.05", "0.2")),)),
    "wall": (0.5, lambda c, _: (c.choice(("-3600", "-1.5", "1.5", "3600")),)),
    "create": (0.5, _created),
    "enable": (2.5, lambda c, _: (_table(c),)),
    "disable": (2.5, lambda c, _: (_table(c),)),
    "delete": (0.7, lambda c, _: (_table(c),)),
    "move": (2, lambda c, p: (str(c.randint(0, 99)), c.choice(("", _server(c, p))) or "-")),
    "reopen": (1, lambda c, _: (str(c.randint(0, 99)),)),
    "assign": (0.7, lambda c, _: (str(c.randint(0, 99)),)),
    "unassign": (0.7, lambda c, _: (str(c.randint(0, 99)),)),
    "cordon": (0.7, lambda c, p: (_server(c, p),)),
    "hold": (0.7, lambda c, p: (_server(c, p), _for_s(c, 60))),
    "pin": (0.7, lambda c, p: (str(c.randint(0, 99)), _server(c, p))),
    "unmark": (1.2, lambda c, _: (str(c.randint(0, 99)),)),
    "abort": (0.7, lambda c, _: (str(c.randint(0, 99)),)),
    "bypass": (1.5, lambda c, _: (str(c.randint(0, 99)),)),
    "operate": (3, lambda c, p: (str(c.randint(0, 99)), str(c.randint(0, 99)), _table(c), _server(c, p))),
    "spoil": (0.5, lambda c, _: (str(c.randint(0, 99)), c.choice(("torn", "newer")))),
}
"""Weight and words of each verb."""
SNAPSHOTS: Final = ("a", "b")
SHAPING: Final[dict[str, tuple[float, Words]]] = {
    "split": (5, lambda c, _: (_any(c), c.choice(("-", _any(c))))),
    "merge": (4, lambda c, _: (_any(c), c.choice(("2", "2", "2", "3", "3", "apart")))),
    "truncate": (1, lambda c, _: (_any(c), c.choice(("same", "one")))),
    "modify": (1.5, lambda c, _: (_table(c), str(c.randint(0, 9)))),
    "flush": (0.7, lambda c, _: (_table(c),)),
    "snapshot": (4, lambda c, _: (c.choice(SNAPSHOTS), _any(c))),
    "forget-snapshot": (0.5, lambda c, _: (c.choice(SNAPSHOTS),)),
    "clone": (2, lambda c, _: (c.choice(("c1", "c2")), c.choice(("table", "snapshot")), _any(c))),
    "restore-snapshot": (1, lambda c, _: (_any(c), _any(c))),
    "abort-split": (1, lambda c, _: (_any(c),)),
    "drop-independent": (0.8, lambda c, p: (_server(c, p), _for_s(c, 15))),
}
"""Weight and words of each verb that changes the shapes of tables."""
LATE: Final = ("drop-independent", (-0.5, 0.0), lambda c, p: (_server(c, p), "9"))
MEETS: Final[tuple[tuple[tuple[str, tuple[float, float], Words], ...], ...]] = (
    (("abort-split", (0.1, 1.5), lambda c, _: (_any(c),)),),
    (("kill-server", (0.1, 1.5), lambda c, p: (_server(c, p), _for_s(c, 4))),),
    (LATE, *(("reopen", (2.5, 7.0), lambda c, _: (_any(c),)) for _ in range(4))),
    (LATE, *(("move", (2.5, 7.0), lambda c, _: (_any(c), "-")) for _ in range(4))),
)
BESIDE: Final = {
    "split": MEETS,
    "merge": MEETS,
    "clone": (
        (LATE, *(("delete", (0.2, 3.0), lambda c, _: (_table(c),)) for _ in range(4))),
        (LATE, *(("forget-snapshot", (0.2, 3.0), lambda c, _: (c.choice(SNAPSHOTS),)) for _ in range(3))),
    ),
}
"""What meets a change, as verbs with times from its own, and words."""
