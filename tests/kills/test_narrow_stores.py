"""Every procedure of regions on a ZooKeeper that takes little at once: what a step makes is split, and no term ends.

A write that is larger than the server takes fails there, as on a real one. ``tests/verify/test_region_kills.py`` has
all families, and kills their daemons.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

from controller.procedures.writes import Scale
from regent_agent import protocol
from state_machines.procedures.states import State
from tests.kills.harness import Deaths
from tests.kills.region_cases import CASES, Case, create, nothing
from tests.kills.region_servers import Service
from tests.kills.test_regions import end_of, in_memory, narrow_end_of

SOME = ["disable", *list(CASES)[::5]]


@pytest.mark.parametrize("name", SOME)
async def test_a_region_procedure_ends_the_same_where_little_fits_into_a_write(name: str, tmp_path: Path) -> None:
    expected = await end_of(CASES[name], in_memory(tmp_path), Deaths())
    fitting, parts = Scale.fitting, list[int]()

    def noting(*of: object) -> int:
        parts.append(fitting(*of))  # type: ignore[arg-type]
        return parts[-1]

    with mock.patch.object(Scale, "fitting", noting):
        assert await narrow_end_of(CASES[name], Deaths()) == expected
    if name == "disable":
        assert min(parts) >= 1, "batches of four regions went in parts"


async def test_regions_that_no_server_can_open_are_tried_once_by_a_batch_that_goes_in_parts() -> None:
    """The next part begins behind them: a batch that began anew would try them for ever."""
    failing = Case(create, (nothing,), {"open_attempts_max": 1})
    service = Service()
    service.failing = {region: [protocol.FAILED_OPEN] * 9 for region in range(2_000)}
    end = await narrow_end_of(failing, Deaths(), service)
    assert end.outcome == (State.SUCCESS, b"4")
    assert {len(one) for one in service.failing.values()} == {8, 9}
