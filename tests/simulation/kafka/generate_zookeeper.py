"""Draws faults of ZooKeeper's servers and around them, apart from everything else."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from metadata_store.errors import TROUBLE
from tests.kit.simulation.script import Action, Word
from tests.simulation.kafka.acting import ACTIVE

CODES: Final = 0.4
FROZEN: Final = 0.5
GRANTED: Final = 0.3
FOREIGN: Final = 0.3
LATE: Final = 0.3
REFUSED: Final = 0.3
LEADERLESS: Final = 0.5
ACTIVE_CODES: Final = 0.2
ODD: Final = 0.3
"""Shares of seeds."""
_KINDS: Final = ("stranger", "bare", "other")
_SESSIONS_MS: Final = (4_500, 5_000, 6_000)


def troubles(seed: int, daemons: int, servers: int, brokers: int, begin_s: float, end_s: float) -> list[Action]:
    """Draws errors as replies, frozen servers and leaders, session lengths, late ends, refused connections."""
    r = Random(f"{seed} zookeeper")
    actions: list[Action] = []

    def some(share: float, times_max: int, draw: Callable[[], tuple[Word, ...]]) -> None:
        for _ in range(r.randint(1, times_max) if r.random() < share else 0):
            add(*draw())

    def add(verb: Word, *words: Word) -> None:
        at_s = r.uniform(begin_s, max(begin_s, end_s))
        actions.append(Action(round(at_s, 3), str(verb), words))

    def daemon() -> str:
        return f"d{r.randrange(daemons)}"

    def code(client: str, times: int, before: int) -> tuple[Word, ...]:
        return "zk-code", client, r.choice(sorted(TROUBLE)).name, times, before

    some(CODES, 6, lambda: code(daemon(), r.choice((1, 1, 2, 5, 20)), r.choice((0, 0, 1, 3, 10))))
    some(ACTIVE_CODES, 8, lambda: code(ACTIVE, 1, r.randint(0, 30)))
    some(FROZEN * (servers > 1), 3, lambda: ("zk-freeze", r.randint(1, servers - 1), _seconds(r, 4.0, 12.0)))
    some(GRANTED, 3, lambda: ("zk-grant", r.choice(_SESSIONS_MS)))
    some(GRANTED, 3, lambda: ("zk-blip", daemon()))
    some(FOREIGN, 1, lambda: ("foreign-epoch", r.randint(1, brokers)))
    some(LATE, 1, lambda: ("zk-late", round(r.uniform(5.0, 30.0), 3), round(r.uniform(1.0, 8.0), 3)))
    some(REFUSED, 3, lambda: ("zk-refuse", daemon(), _seconds(r, 5.0, 25.0)))
    some(LEADERLESS * (servers > 1), 3, lambda: ("zk-leaderless", _seconds(r, 6.0, 25.0), round(r.uniform(0, 10), 3)))
    return actions


def _seconds(r: Random, long_s: float, longest_s: float) -> float:
    """Draws a short time, or a long one."""
    return round(r.choice((r.uniform(0.5, long_s), r.uniform(long_s, longest_s))), 3)


def odd_daemons(seed: int, daemons: int) -> tuple[str, ...]:
    """Returns each daemon's kind: in some seeds one of them is configured differently from the rest."""
    r = Random(f"{seed} odd")
    if r.random() >= ODD:
        return ()
    kinds = ["-"] * daemons
    kinds[r.randrange(daemons)] = r.choice(_KINDS)
    return tuple(kinds)
