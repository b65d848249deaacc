"""A claim that is lost while both daemons live: the first one renews no lease that the second one does not know."""

from __future__ import annotations

from tests.simulation.regions.plan import parse
from tests.simulation.regions.runner import in_child, play_planted

LOST = """
seed 1
servers good good good
daemons 2
placement round_robin
0.500 create t1 2 5
4.000 {fault}
4.000 break-link s1 d2 15
4.000 break-link d2 s1 15
4.000 break-link s2 d1 15
4.000 break-link s3 d1 15
"""


def test_a_server_is_not_kept_by_the_daemon_whose_lock_no_one_heeds() -> None:
    for fault in ("ignore-locks", "lose-claim"):
        plan = parse(LOST.format(fault=fault))
        assert in_child(play_planted, plan).violation is None
        violation = in_child(play_planted, plan, "go-on-after-a-claim-that-was-lost").violation
        assert violation is not None
        assert violation.invariant == "NoDoubleAssignment"
