"""The data sets of the runs with their events and rounds, and the goals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.datasets import SINGLE_TOPICS
from benchmarks.results import Goal

FAILOVER: Final = "failover"
DEATH: Final = "death"
SHUTDOWN: Final = "shutdown"
BOTH_DIE: Final = "controller and broker death"
REASSIGNMENTS: Final = "reassignments"
PREFERRED: Final = "preferred leaders"
TOPICS: Final = "topics"

MOVED: Final = 5_000
ADDED: Final = 1_000

NO_GOAL: Final = Goal()

GOALS: Final[dict[tuple[str, str], Goal]] = {
    **{(case, size): Goal(ratio=15) for case in ("F1", "F2") for size in ("100kx20", "100kx100", "400kx50")},
    ("F1", SINGLE_TOPICS): Goal(ratio=6),
    ("F2", SINGLE_TOPICS): Goal(ratio=6),
    ("D1", "100kx20"): Goal(ratio=12),
    ("D1", SINGLE_TOPICS): Goal(ratio=8),
    ("D2", "100kx20"): Goal(ratio=12),
    ("D3", "100kx20"): Goal(ratio=4),
    ("F3", "100kx20"): Goal(ratio=15),
    ("R1", "10kx100"): Goal(ratio=100),
    ("R1q", "10kx100"): Goal(ratio=4_000),
    ("R2", "10kx100"): Goal(ratio=20),
    ("P1", "50kx20"): Goal(ratio=12),
    ("T1", "50kx20"): Goal(ratio=3),
    ("T2", "50kx20"): Goal(ratio=10),
    ("J", "100kx20"): Goal(ratio=0.95),
    ("I", "100kx20"): Goal(ratio=0.95),
    ("M1", "400kx50"): Goal(most=450),
    ("F2", "1mx100"): Goal(most=12),
    ("M1", "1mx100"): Goal(most=1_200),
    ("C1", "400kx50"): Goal(most=4.5),
    ("Z1", "100kx20"): Goal(ratio=25),
    ("Z2", "100kx20"): Goal(ratio=9),
}
LAG_GOAL: Final = Goal(most=0.25)


def goal(case: str, size: str) -> Goal:
    """Returns the goal of a case, if it has one at this size."""
    return LAG_GOAL if case == "L1" else GOALS.get((case, size), NO_GOAL)


@dataclass(frozen=True)
class Run:
    """A run of one data set: ``events`` after the failover of every round, and the warm rounds of regent and the peer.

    The first round of each process is the cold one and does not count among them; a peer with -1 does not take part.
    ``moved`` partitions are reassigned, ``added`` topics are created and deleted.
    """

    size: str
    events: tuple[str, ...] = ()
    rounds: int = 5
    peer_rounds: int = 5
    moved: int = MOVED
    added: int = ADDED


SMALL: Final = (
    Run("20kx10", (DEATH, SHUTDOWN), rounds=2, peer_rounds=2),
    Run("5kx10", (BOTH_DIE, REASSIGNMENTS, PREFERRED, TOPICS), rounds=1, peer_rounds=0, moved=200, added=20),
)
FULL: Final = (
    Run("100kx20", (DEATH, SHUTDOWN, BOTH_DIE)),
    Run("10kx100", (REASSIGNMENTS,), rounds=2, peer_rounds=1),
    Run("50kx20", (PREFERRED, TOPICS), rounds=3, peer_rounds=1),
    Run("100kx100"),
    Run(SINGLE_TOPICS, (SHUTDOWN,)),
    Run("400kx50"),
    Run("10kx50", rounds=3, peer_rounds=3),
    Run("50kx50", rounds=3, peer_rounds=2),
    Run("100kx50", rounds=3, peer_rounds=1),
    Run("200kx50", rounds=2, peer_rounds=1),
    Run("1mx50", rounds=1, peer_rounds=0),
    Run("1mx100", rounds=3, peer_rounds=-1),
)
PLOT_BROKERS: Final = 50
"""The plot of failover time over partitions has the sizes with this number of brokers."""
