"""What goes wrong with ZooKeeper's servers and around them, drawn apart from everything else."""

from __future__ import annotations

from random import Random
from typing import Final

from metadata_store.errors import TROUBLE
from tests.simulation.plan import Action, Word

CODES: Final = 0.4
FROZEN: Final = 0.5
GRANTED: Final = 0.3
FOREIGN: Final = 0.3
ODD: Final = 0.3
"""Shares of seeds."""
_KINDS: Final = ("stranger", "bare", "other")
_SESSIONS_MS: Final = (4_500, 5_000, 6_000)


def troubles(seed: int, daemons: int, servers: int, brokers: int, begin_s: float, end_s: float) -> list[Action]:
    """Errors instead of answers, frozen servers, other session timeouts, and epochs of another cluster."""
    r = Random(f"{seed} zookeeper")
    actions: list[Action] = []

    def add(verb: str, *words: Word, after_s: float = 0.0) -> None:
        at_s = r.uniform(begin_s, max(begin_s, end_s)) + after_s
        actions.append(Action(round(at_s, 3), verb, words))

    if r.random() < CODES:
        for _ in range(r.randint(1, 6)):
            code = r.choice(sorted(TROUBLE)).name
            add("zk-code", f"d{r.randrange(daemons)}", code, r.choice((1, 1, 2, 5, 20)), r.choice((0, 0, 1, 3, 10)))
    if servers > 1 and r.random() < FROZEN:
        for _ in range(r.randint(1, 3)):
            add("zk-freeze", r.randint(1, servers - 1), round(r.choice((r.uniform(0.5, 3.0), r.uniform(4.0, 12.0))), 3))
    if r.random() < GRANTED:
        for _ in range(r.randint(1, 3)):
            add("zk-grant", r.choice(_SESSIONS_MS))
            add("zk-blip", f"d{r.randrange(daemons)}")
    if r.random() < FOREIGN:
        add("foreign-epoch", r.randint(1, brokers))
    return actions


def odd_daemons(seed: int, daemons: int) -> tuple[str, ...]:
    """What each daemon is like: in some seeds one of them is configured differently from the rest."""
    r = Random(f"{seed} odd")
    if r.random() >= ODD:
        return ()
    kinds = ["-"] * daemons
    kinds[r.randrange(daemons)] = r.choice(_KINDS)
    return tuple(kinds)
