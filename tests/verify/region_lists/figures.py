"""Tells what happened in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from controller.journal.reader import read
from controller.regions.procedures import discard, merge, split
from controller.regions.procedures.table_work import NAME as FLUSHES
from state_machines.journal.audit import judge
from state_machines.journal.events import Row
from state_machines.procedures.states import State
from tests.verify.region_lists.breakdown import FENCE, Breakdown, Wait, shown
from tests.verify.region_lists.chaos import Chaos
from tests.verify.region_lists.nodes import TABLE
from tests.verify.region_lists.stage import LEASE_MS, Stage
from tests.verify.region_lists.verification import Verification

RESHAPES: Final = frozenset({split.NAME, merge.NAME, discard.NAME, FLUSHES})
SHOWN: Final = 8
"""Waits that have a line of their own in any case."""
LONG_S: Final = LEASE_MS / 1_000 + 5
"""Each wait that is longer than this and the time of a fence has a line of its own."""


class Judged(NamedTuple):
    """What the journal of the daemon has, and which of its rules do not hold.

    ``ended``: how many splits, merges, discards and flushes ended well, by kind.
    """

    rows: list[Row]
    gaps: int
    violations: list[str]
    ended: Counter[str]


def judged(stage: Stage) -> Judged:
    """Judges each row of the daemon's journal; a killed daemon leaves a gap."""
    found = list(read(stage.daemon.journal))
    rows = [row for row in found if isinstance(row, Row)]
    ended = Counter(row.procedure for row in rows if row.procedure in RESHAPES and row.to_state == State.SUCCESS.name)
    return Judged(rows, len(found) - len(rows), [str(violation) for violation in judge(rows)], ended)


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
        *((f"procedures {kind} that ended well", judged.ended[kind]) for kind in sorted(judged.ended)),
    ):
        yield f"{count:6} {name}"
    yield (
        f"the daemon's journal holds {len(judged.rows)} events of {len({row.ctl_epoch for row in judged.rows})} terms "
        f"with {judged.gaps} gaps; {len(judged.violations)} violations"
    )
    yield from _waits(sorted(verification.longest.values(), key=lambda one: -one.seconds), chaos, judged.rows)


def _waits(longest: list[Wait], chaos: Chaos, rows: list[Row]) -> Iterator[str]:
    """Yields lines about the longest wait of each place, the longest first: where their time went."""
    breakdown = Breakdown(rows, chaos.outages, LEASE_MS * 1_000, TABLE)
    parts = [breakdown.of(wait) for wait in longest]
    yield f"longest wait: {longest[0].seconds:.1f} s; median of places {longest[len(longest) // 2].seconds:.1f} s"
    explained = [wait.seconds - found[FENCE] / 1e6 > LONG_S for wait, found in zip(longest, parts, strict=True)]
    yield f"{sum(explained)} places waited for longer than {LONG_S:g} s and the fence:"
    for number, (wait, found) in enumerate(zip(longest, parts, strict=True)):
        if number < SHOWN or explained[number]:
            from_s = (wait.began_us - chaos.began_us) / 1e6
            yield f"{wait.seconds:6.1f} s region {wait.region}, from {from_s:.1f} s of chaos.log: {shown(found)}"
    yield f"longest waits of all places together: {shown(sum(parts, Counter[str]()))}"
