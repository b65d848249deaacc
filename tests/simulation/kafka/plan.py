"""Describes a run as a script: its cluster, and its actions with their times. Text and values are the same thing.

::

    seed 17
    brokers 1 2 3 4
    racks a b a b
    daemons 2
    ibp 3.9-IV0
    absence brokers
    servers 3
    odd - stranger
    limits writes 5 rows 10 ...
    0.000 topic t0 1,2,3 2,3,4
    4.250 crash-broker 3 2.5
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.kit.simulation.script import Action, Word, number_or_text, read, text_of
from tests.simulation.kafka.limits import SimulationLimits, parsed

GIVEN = ("seed", "brokers", "daemons", "ibp", "absence", "servers")
"""Settings of its cluster that every script has."""


@dataclass(frozen=True)
class Plan:
    """A whole run.

    ``odd``: the kind of each daemon, ``-`` for one that follows ``absence`` (``settings_of`` of ``daemons.py``).
    ``dead``: brokers that are not started again when everything else is healed. ``limits``: None are the product's own.
    ``catches``: the planted bug that a story is known to catch. ``keeps``: no broker allows topics to be deleted.
    """

    seed: int
    brokers: tuple[int, ...] = (1, 2, 3)
    racks: tuple[str, ...] = ()
    daemons: int = 2
    ibp: str = "3.9-IV0"
    absence: str = "brokers"
    servers: int = 1
    odd: tuple[str, ...] = ()
    dead: tuple[int, ...] = ()
    limits: SimulationLimits | None = None
    catches: str | None = None
    keeps: bool = False
    actions: tuple[Action, ...] = field(default=())

    def with_actions(self, actions: Iterable[Action]) -> Plan:
        """Returns the same cluster, with another script."""
        return replace(self, actions=tuple(actions))

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}",
            f"brokers {_row(self.brokers)}",
            f"racks {_row(self.racks)}" if self.racks else "",
            f"daemons {self.daemons}",
            f"ibp {self.ibp}",
            f"absence {self.absence}",
            f"servers {self.servers}",
            f"odd {_row(self.odd)}" if self.odd else "",
            "keeps topics" if self.keeps else "",
            f"dead {_row(self.dead)}" if self.dead else "",
            f"limits {self.limits}" if self.limits else "",
            f"catches {self.catches}" if self.catches else "",
            *map(str, self.actions),
        ]
        return "\n".join(line for line in lines if line) + "\n"


def parse(text: str) -> Plan:
    """Parses the text that ``str`` of a plan gives, without empty lines and comments (``#``); raises ValueError."""
    settings, actions = read(text, GIVEN, number_or_text)
    return Plan(
        seed=int(settings["seed"][0]),
        brokers=tuple(map(int, settings["brokers"])),
        racks=tuple(settings.get("racks", ())),
        daemons=int(settings["daemons"][0]),
        ibp=settings["ibp"][0],
        absence=settings["absence"][0],
        servers=int(settings["servers"][0]),
        odd=tuple(settings.get("odd", ())),
        keeps="keeps" in settings,
        dead=tuple(map(int, settings.get("dead", ()))),
        limits=parsed(settings["limits"]) if "limits" in settings else None,
        catches=settings["catches"][0] if "catches" in settings else None,
        actions=actions,
    )


def _row(words: Iterable[Word]) -> str:
    return " ".join(map(text_of, words))
