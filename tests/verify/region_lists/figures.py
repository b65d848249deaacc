"""Tells what happened in a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from controller.journal.reader import read
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from tests.verify.region_lists.chaos import Chaos
from tests.verify.region_lists.stage import Stage
from tests.verify.region_lists.verification import Verification


class Judged(NamedTuple):
    """What the journal of the daemon has, and which of its rules do not hold."""

    rows: list[Row]
    gaps: int
    violations: list[str]


def judged(stage: Stage) -> Judged:
    """Judges each row of the daemon's journal; a killed daemon leaves a gap."""
    found = list(read(stage.daemon.journal))
    rows = [row for row in found if isinstance(row, Row)]
    return Judged(rows, len(found) - len(rows), [str(violation) for violation in judge(rows)])


def figures(stage: Stage, chaos: Chaos, verification: Verification, judged: Judged, wrote_s: float) -> Iterator[str]:
    """Yields lines with counts of nodes, faults and recoveries, and the longest wait for a region."""
    yield (
        f"{verification.nodes} nodes acknowledged in {wrote_s:.0f} s, {verification.nodes / wrote_s:.0f} a second; "
        f"{verification.repeated} batches were repeated; faults: {dict(verification.faults) or 'none'}"
    )
    for name, count in sorted(chaos.counts.items()):
        yield f"{count:6} {name}"
    text = "".join(server.log.read_text(errors="replace") for server in stage.servers.values())
    fences = len(list(stage.data.glob("logs/*/FENCED")))
    for name, count in (
        ("fences of logs", fences),
        ("servers that wrote after their fence, and ended", text.count("FENCED exists")),
        ("servers that ended because the daemon counts them as dead", text.count("the daemon says so")),
        ("splits of parts of logs", text.count("log split: ")),
        ("opens of regions", text.count("region opened: ")),
        ("closes of regions", text.count("region closed: ")),
    ):
        yield f"{count:6} {name}"
    yield (
        f"the daemon's journal holds {len(judged.rows)} events of {len({row.ctl_epoch for row in judged.rows})} terms "
        f"with {judged.gaps} gaps; {len(judged.violations)} violations"
    )
    waits = sorted((seconds, region) for region, seconds in verification.longest_s.items())
    [seconds, region], [median_s, _] = waits[-1], waits[len(waits) // 2]
    yield f"longest wait for a region: {seconds:.1f} s (region {region}); median of regions {median_s:.1f} s"
