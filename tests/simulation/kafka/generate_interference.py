"""Draws writes of other clients between any two requests of a handler, apart from everything else."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from tests.kit.simulation.script import Action, Word
from tests.simulation.kafka.actions_interference import NOTIFICATIONS, PARENTS, REQUESTS

INTERPOSED: Final = 0.4
LITTERED: Final = 0.25
UNSEATED: Final = 0.25
"""Shares of seeds."""
REQUESTS_MAX: Final = 12
"""Last request of a handler at which another client writes."""


def interference(
    seed: int, topics: Sequence[str], brokers: Sequence[int], daemons: int, begin_s: float, end_s: float
) -> list[Action]:
    """Draws writes at requests of handlers, garbage, deleted queue positions and parents."""
    r = Random(f"{seed} interference")
    actions: list[Action] = []

    def add(verb: str, *words: Word) -> None:
        actions.append(Action(round(r.uniform(begin_s, max(begin_s, end_s)), 3), verb, words))

    if r.random() < INTERPOSED:
        for _ in range(r.randint(3, 12)):
            add("at-request", r.randint(1, REQUESTS_MAX), *_interposed(r, topics, brokers))
    if r.random() < LITTERED:
        for _ in range(r.randint(1, 4)):
            add("litter", r.choice((*NOTIFICATIONS, *REQUESTS)), round(r.uniform(0.5, 8.0), 3))
    if r.random() < UNSEATED:
        for _ in range(r.randint(1, 3)):
            if r.random() < 0.5:
                add("leave-queue", r.randrange(daemons))
            else:
                add("drop-parent", r.randrange(len(PARENTS)))
    return actions


def _interposed(r: Random, topics: Sequence[str], brokers: Sequence[int]) -> tuple[Word, ...]:
    """Draws another client's action on znodes that the handler may have just read."""
    name, broker, replicas = r.choice(topics), r.choice(brokers), ",".join(map(str, r.sample(brokers, 2)))
    return r.choice(
        (
            ("expand", name, replicas),
            ("delete-topic", name),
            ("recreate-topic", name, 0.0, replicas),
            ("mark-topic", name),
            ("rewrite-topic", name),
            ("scribble-state", name, 0, round(r.uniform(0.2, 4.0), 3)),
            ("reassign-by-znode", f"{name}/0/{replicas}"),
            ("ask-preferred", name),
            ("allow-unclean", name),
            ("bounce-broker", broker),
            ("flap-broker", broker, 1, 0.0),
            ("crash-broker", broker, round(r.uniform(0.1, 9.0), 3)),
            ("move-broker", broker),
            ("zk-blip", "active"),
            ("zk-expire", "active"),
            ("zk-lose-replies", "active", 1, 0),
            ("delete-controller",),
            ("raise-epoch",),
        )
    )
