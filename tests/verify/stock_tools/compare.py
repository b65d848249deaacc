"""Plays the table at both clusters at the same time, and compares the output."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tests.verify.stock_tools.accepted import ACCEPTED, Accepted
from tests.verify.stock_tools.lines import LINES
from tests.verify.stock_tools.sites import Result, Site, under_kafka, under_regent
from tests.verify.stock_tools.steps import Line

LONGER_S_MAX: Final = 15.0
"""By how much a line may take longer: the shortest time-out of a call is 30 s, a loaded machine takes some seconds."""
LONGER: Final = f"(it takes more than {LONGER_S_MAX:g} s longer)"
Played = dict[str, list[Result]]
"""By site, in the order of the table."""


class Difference(NamedTuple):
    """Holds a line whose output differs: ``lost`` lines came from Kafka's cluster, ``extra`` ones from regent's."""

    line: Line
    site: str
    codes: tuple[int, int]
    lost: tuple[str, ...]
    extra: tuple[str, ...]

    def accepted(self) -> Accepted | None:
        """Returns the accepted difference that covers this one."""
        found = (one for one in ACCEPTED if one.explains(self.line.text, self.codes, self.lost, self.extra))
        return next(found, None)

    def __str__(self) -> str:
        head = f"{self.line.text}\n  at {self.site}: exit codes {self.codes[0]} (Kafka) and {self.codes[1]} (regent)"
        return "\n".join([head, *(f"  - {one}" for one in self.lost), *(f"  + {one}" for one in self.extra)])


async def play(tell: Callable[[str], None], *, separately: bool = False) -> Played:
    """Starts both clusters, runs every line at each site, and returns the results.

    ``separately``: each line in a JVM of its own, as the scripts of the tools do it.
    """
    played: Played = {}

    def done(site: str, line: Line, result: Result) -> None:
        played.setdefault(site, []).append(result)
        tell(f"{site}: {line.text}: exit code {result.code}")

    async def visit(sites: Sequence[Site]) -> None:
        for site in sites:
            await site.play(done)

    async with (
        under_kafka(separately=separately) as kafka,
        under_regent(separately=separately) as regent,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(visit(kafka))
        group.create_task(visit(regent))
    return played


def differences(played: Played) -> Iterator[Difference]:
    """Yields differences between Kafka's cluster and each site of regent's, accepted or not."""
    for site, results in played.items():
        if site == "kafka":
            continue
        for line, ours, theirs in zip(LINES, results, played["kafka"], strict=True):
            here, there = Counter(ours.out + ours.err), Counter(theirs.out + theirs.err)
            lost, extra = tuple((there - here).elements()), tuple((here - there).elements())
            if ours.seconds > theirs.seconds + LONGER_S_MAX:
                extra += (LONGER,)
            if lost or extra or ours.code != theirs.code:
                yield Difference(line, site, (theirs.code, ours.code), lost, extra)
